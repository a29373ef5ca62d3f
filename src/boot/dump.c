/* SPDX-License-Identifier: Apache-2.0
 *
 * dump.c - whoever asks what this process does: a descriptor of the answer, and the connection is over. The process may
 * be in the middle of anything, or hang; its service thread answers all the same.
 */
#include "boot/service.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define PAUSE_SECONDS 0.05

enum { NAMES = 10, AT_ONCE = 16 };

static int (*dump)(void); /* [locked] of the process, and of its children */

void rd_service_set_dump(int (*function)(void))
{
    rd_service_lock();
    dump = function;
    rd_service_unlock();
}

static void answer(int asker)
{
    uid_t user;
    size_t put;
    if (rd_sock_peer_process(asker, &user, NULL) != RONDO_SUCCESS || (user != geteuid() && user != 0)) {
        rd_service->strangers++;
        rd_log(RD_LOG_INFO, "somebody else wants to know what this process does: refused");
        return;
    }
    int fd = dump ? dump() : -1;
    if (fd < 0) return;
    (void)rd_sock_write(asker, "d", 1, &put, &fd, 1); /* its buffer is empty: this does not fail for want of room */
    close(fd);
}

static void open_again(rd_timer *timer)
{
    (void)timer;
    rd_watch_events(&rd_service->dump, EPOLLIN);
}

static void ready(rd_watch *watch, uint32_t events)
{
    (void)events;
    for (int i = 0; i < AT_ONCE; i++) {
        int asker;
        rondo_result result = rd_sock_accept(watch->fd, &asker);
        if (result == RONDO_SUCCESS) {
            answer(asker);
            close(asker);
            continue;
        }
        if (result != RONDO_IN_PROGRESS) { /* no descriptors left: later, perhaps */
            rd_watch_events(watch, 0);
            rd_timer_set(&rd_service->dump_pause, rd_deadline(PAUSE_SECONDS), open_again);
        }
        return;
    }
}

void rd_dump_listen(void)
{
    char name[RD_UNIX_NAME];
    int fd = -1;
    rd_service->dump.fd = -1;
    rd_service->dump.ready = ready;
    for (int i = 0; i < NAMES && fd < 0; i++) { /* a process of another pid namespace may have this number, too */
        snprintf(name, sizeof name, i ? "rondo-dump-%d-%d" : "rondo-dump-%d", (int)getpid(), i);
        if (rd_sock_listen_unix(&fd, name) != RONDO_SUCCESS) fd = -1;
    }
    if (fd < 0 || rd_watch_open(&rd_service->dump, fd, EPOLLIN) != RONDO_SUCCESS)
        rd_log(RD_LOG_INFO, "nobody can ask this process what it does: %s", rd_last_error());
}
