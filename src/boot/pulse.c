/* SPDX-License-Identifier: Apache-2.0
 *
 * pulse.c - who is stopped (SIGSTOP, a debugger): alive, but not going on.
 *
 * On one host each service thread looks once a second at the processes behind its control connections. Between hosts
 * each end sends a heartbeat every half second; when none comes while the other kernel still acknowledges ours, the
 * process there is stopped. Without acknowledgement nothing is known: a host may be gone, and then the kernel ends the
 * connection.
 *
 * A change floods. Each word on a rank bears a time, later than that of any word before it, so the newest wins and
 * floods end; a rank that hears that it is stopped knows better, and says so with a later time still.
 */
#include "boot/control.h"

#include "base/clock.h"
#include "base/log.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TICK_SECONDS 0.5
#define LOOK_SECONDS 1.0
#define SILENT_NS    INT64_C(1250000000) /* and a tick, and the flood: all know within 2 s */
#define LATE_NS      INT64_C(750000000)  /* a tick so late says that this process itself was stopped */
#define NETWORK_MS   30000               /* a network that swallows all so long is a broken one */

/* ---- Words on a rank ---- */

static rd_blob *word_on(int rank, bool is_stopped, uint64_t observed)
{
    rd_blob *blob = rd_blob_new(RD_SAY_STOPPED, 16);
    if (!blob) return NULL;
    rd_writer w = {blob->data + RD_FRAME_HEAD, 16, false};
    rd_write_u32(&w, (uint32_t)rank);
    rd_write_u32(&w, is_stopped);
    rd_write_u64(&w, observed);
    return blob;
}

rd_blob *rd_pulse_known(const rd_member *member, int rank)
{
    const rd_rank *r = &member->ranks[rank];
    return r->is_stopped ? word_on(rank, true, r->observed) : NULL;
}

static void accept_word(rd_member *member, int rank, bool is_stopped, uint64_t observed, const rd_control *from)
{
    rd_rank *r = &member->ranks[rank];
    bool changes = r->is_stopped != is_stopped;
    r->observed = observed;
    r->is_stopped = is_stopped;
    if (changes) r->stopped_at = rd_now();
    rd_control *own = is_stopped ? NULL : rd_control_to(member, rank);
    if (own) { /* should it be stopped again, that is a change; and its next heartbeat has yet to come */
        own->seen_stopped = false;
        own->heard_at = rd_now();
    }
    rd_control_flood(member, word_on(rank, is_stopped, observed), from);
    if (!changes || r->gone) return;
    rd_log(RD_LOG_INFO, "rank %d: rank %d %s", member->job.rank, rank, is_stopped ? "is stopped" : "goes on");
    rd_control_changed(member);
}

/* Later than all that was said of this rank, also by hosts whose clocks are ahead. */
static uint64_t time_of_word(const rd_rank *r)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t now = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
    return now > r->observed ? now : r->observed + 1;
}

/* What this end of the connection sees of the other. Only a change counts: others may know better. */
static void see(rd_control *control, bool is_stopped)
{
    rd_rank *r = &control->member->ranks[control->peer];
    if (control->seen_stopped == is_stopped) return;
    control->seen_stopped = is_stopped;
    if (r->is_stopped != is_stopped) accept_word(control->member, control->peer, is_stopped, time_of_word(r), NULL);
}

void rd_pulse_heard_stopped(rd_control *control, rd_reader *r, int *fd)
{
    rd_member *member = control->member;
    uint32_t rank = rd_read_u32(r), is_stopped = rd_read_u32(r);
    uint64_t observed = rd_read_u64(r);
    (void)fd;
    if (r->bad || rank >= (uint32_t)member->job.world || observed <= member->ranks[rank].observed) return;
    if (rank != (uint32_t)member->job.rank) {
        accept_word(member, (int)rank, is_stopped != 0, observed, control);
        return;
    }
    rd_rank *self = &member->ranks[rank];
    self->observed = observed;
    if (!is_stopped) return;
    self->observed = time_of_word(self);
    rd_control_flood(member, word_on((int)rank, false, self->observed), NULL);
}

/* ---- On one host ---- */

void rd_pulse_process(rd_control *control, int pidfd)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", pidfd);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    text[got > 0 ? got : 0] = 0;
    const char *at = strstr(text, "\nPid:");
    long pid = at ? strtol(at + 5, NULL, 10) : 0;
    control->process = pid > 0 ? (pid_t)pid : 0; /* 0: of another pid namespace; -1: it has ended */
}

/* `before` where that cannot be read. Opened anew each time: the descriptors that would be kept cost more than the
 * microseconds. */
static bool process_is_stopped(pid_t pid, bool before)
{
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return before;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    text[got > 0 ? got : 0] = 0;
    const char *name_end = strrchr(text, ')'); /* the name may hold anything */
    return name_end && name_end[1] == ' ' && (name_end[2] == 'T' || name_end[2] == 't');
}

/* What has been looked at already: communicators of one process have the same neighbours. */
typedef struct looks {
    int count;
    struct {
        pid_t pid;
        bool is_stopped;
    } at[32];
} looks;

static void look(rd_control *control, looks *seen)
{
    int i = 0;
    while (i < seen->count && seen->at[i].pid != control->process) i++;
    bool is_stopped =
        i < seen->count ? seen->at[i].is_stopped : process_is_stopped(control->process, control->seen_stopped);
    if (i == seen->count && i < (int)(sizeof seen->at / sizeof seen->at[0])) {
        seen->at[i].pid = control->process;
        seen->at[i].is_stopped = is_stopped;
        seen->count++;
    }
    see(control, is_stopped);
}

/* ---- Between hosts ---- */

/* Its kernel has everything that was sent, and said so lately. */
static bool is_acknowledged(const rd_control *control)
{
    struct tcp_info info;
    socklen_t bytes = sizeof info;
    memset(&info, 0, sizeof info);
    if (getsockopt(control->frames.watch.fd, IPPROTO_TCP, TCP_INFO, &info, &bytes)) return false;
    return info.tcpi_unacked == 0 && (int64_t)info.tcpi_last_ack_recv * 1000000 < SILENT_NS;
}

static void beat(rd_control *control, int64_t now)
{
    bool silent = now - control->heard_at > SILENT_NS;
    if (!silent)
        see(control, false);
    else if (!control->seen_stopped && is_acknowledged(control))
        see(control, true);
    /* A stopped process reads nothing: what is sent would only fill the socket. The kernels' keepalive goes on. */
    if (!control->seen_stopped && !rd_frames_unsent(&control->frames))
        rd_frames_send(&control->frames, rd_blob_new(RD_SAY_HEARTBEAT, 0), -1);
}

static void mind_network(int fd)
{
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &(int){5}, sizeof(int));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &(int){5}, sizeof(int));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &(unsigned){NETWORK_MS}, sizeof(unsigned));
}

/* ---- The timer ---- */

static void pulse(rd_timer *timer)
{
    int64_t now = rd_now();
    bool late = now - timer->at > LATE_NS, looking = now >= rd_service->look_at, any = false;
    looks seen = {.count = 0};
    for (rd_member *m = rd_service->members; m; m = m->next) {
        for (rd_control *c = m->controls; c; c = c->next) {
            any = true;
            if (late) c->heard_at = now; /* what came meanwhile has yet to be read */
            if (!c->frames.over_unix)
                beat(c, now);
            else if (looking && c->process)
                look(c, &seen);
        }
    }
    if (looking) rd_service->look_at = now + (int64_t)((LOOK_SECONDS - TICK_SECONDS / 2) * 1e9);
    if (any) rd_timer_set(timer, rd_deadline(TICK_SECONDS), pulse);
}

void rd_pulse_watch(rd_control *control)
{
    control->heard_at = rd_now();
    if (!control->frames.over_unix) mind_network(control->frames.watch.fd);
    if (!rd_service->pulse.set) rd_timer_set(&rd_service->pulse, rd_deadline(TICK_SECONDS), pulse);
}
