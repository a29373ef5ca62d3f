/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/doctor.h"

#include "base/interface.h"
#include "base/shared.h"
#include "base/status.h"
#include "cli/team.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/futex.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- Memory of a host ---- */

static void check_memory(rd_findings *f, const char *section)
{
    enum { BYTES = 64 << 10 };
    void *mine = NULL, *theirs = NULL;
    int fd = -1;
    rondo_result result = rd_shared_create("rondo doctor", BYTES, &mine, &fd);
    if (result == RONDO_SUCCESS) result = rd_shared_map(fd, BYTES, &theirs);
    if (result == RONDO_SUCCESS) {
        *(volatile char *)mine = 42;
        rd_find(f, section, "shm", *(volatile char *)theirs == 42 ? RD_LEVEL_OK : RD_LEVEL_MISSING, NULL,
                "a memfd was allocated, sealed, and mapped twice; there is no file to leave behind");
    } else {
        rd_find(f, section, "shm", RD_LEVEL_MISSING,
                "allow memfd_create and fallocate (container profile, memory limit)", "%s", rd_last_error());
    }
    rd_shared_unmap(theirs, BYTES);
    rd_shared_unmap(mine, BYTES);
    if (fd >= 0) close(fd);
}

static void check_sleep(rd_findings *f, const char *section)
{
    uint32_t word = 0;
    long woken = syscall(SYS_futex, &word, FUTEX_WAKE, 1, NULL, NULL, 0);
    if (woken < 0)
        rd_find(f, section, "futex", RD_LEVEL_MISSING, "allow futex in the container's profile", "futex: %s",
                strerror(errno));
    int bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), poll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    bool works = bell >= 0 && poll >= 0 && epoll_ctl(poll, EPOLL_CTL_ADD, bell, &event) == 0;
    if (!works)
        rd_find(f, section, "epoll", RD_LEVEL_MISSING, "ulimit -n 4096", "eventfd and epoll: %s", strerror(errno));
    if (bell >= 0) close(bell);
    if (poll >= 0) close(poll);
    if (works && woken >= 0)
        rd_find(f, section, "sleep", RD_LEVEL_OK, NULL, "a waiting rank can sleep: by futex, by eventfd and epoll");
}

static void check_unix(rd_findings *f, const char *section)
{
    char name[64];
    int fd;
    snprintf(name, sizeof name, "rondo-doctor-%d", (int)getpid());
    if (rd_sock_listen_unix(&fd, name) == RONDO_SUCCESS) {
        close(fd);
        rd_find(f, section, "unix", RD_LEVEL_OK, NULL, "ranks of this host meet over abstract unix sockets");
    } else {
        rd_find(f, section, "unix", RD_LEVEL_MISSING, "allow unix sockets in the container's profile", "%s",
                rd_last_error());
    }
}

/* ---- Network ---- */

/* The numbers of an interface; "" when it has none that could be used. */
static void numbers_of(const struct ifaddrs *all, const char *name, char *text, size_t bytes)
{
    size_t used = 0;
    *text = '\0';
    for (const struct ifaddrs *i = all; i && used < bytes; i = i->ifa_next) {
        char number[INET6_ADDRSTRLEN];
        if (strcmp(i->ifa_name, name) != 0 || !i->ifa_addr) continue;
        const void *at = i->ifa_addr->sa_family == AF_INET
                             ? (const void *)&((struct sockaddr_in *)i->ifa_addr)->sin_addr
                             : (const void *)&((struct sockaddr_in6 *)i->ifa_addr)->sin6_addr;
        if (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6) continue;
        if (i->ifa_addr->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)at)) continue;
        if (!inet_ntop(i->ifa_addr->sa_family, at, number, sizeof number)) continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", number);
    }
}

/* Whether one of the interface's addresses was picked. */
static bool is_used(const char *name, const rd_interface *picked, int count)
{
    for (int p = 0; p < count; p++)
        if (strcmp(picked[p].name, name) == 0) return true;
    return false;
}

static const char *why_not(const struct ifaddrs *i, const char *numbers, const char *filter)
{
    if (!(i->ifa_flags & IFF_UP)) return "it is down";
    if (!(i->ifa_flags & IFF_RUNNING)) return "it has no carrier";
    if (!*numbers) return "it has no address, or only a link-local one";
    if (filter) return "RONDO_INTERFACE leaves it out";
    if (i->ifa_flags & IFF_LOOPBACK) return "loopback is for when there is nothing else";
    return "it is a bridge or virtual; RONDO_INTERFACE may name it";
}

static void check_interfaces(rd_findings *f, const char *section, const struct ifaddrs *all, const char *filter)
{
    enum { ROOM = 64 };
    rd_interface picked[ROOM];
    int count = 0;
    if (rd_interface_pick(all, filter, picked, ROOM, &count) != RONDO_SUCCESS)
        rd_find(f, section, "tcp", RD_LEVEL_MISSING, "unset RONDO_INTERFACE", "%s", rd_last_error());
    else if (!count)
        rd_find(f, section, "tcp", RD_LEVEL_WARNING, "bring an interface up: ip link set dev NAME up",
                "no interface has an address: ranks of this host only");
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        const struct ifaddrs *first = all;
        char name[40], numbers[256];
        while (strcmp(first->ifa_name, i->ifa_name) != 0) first = first->ifa_next;
        if (first != i) continue;
        snprintf(name, sizeof name, "tcp %s", i->ifa_name);
        numbers_of(all, i->ifa_name, numbers, sizeof numbers);
        if (is_used(i->ifa_name, picked, count))
            rd_find(f, section, name, RD_LEVEL_OK, NULL, "%s", numbers);
        else
            rd_find(f, section, name, RD_LEVEL_INFO, NULL, "not used: %s%s%s", why_not(i, numbers, filter),
                    *numbers ? "; " : "", numbers);
    }
}

static void check_network(rd_findings *f, const char *section, const char *filter)
{
    struct ifaddrs *all = NULL;
    int fd, port;
    if (rd_sock_listen_tcp(&fd, 0, &port) != RONDO_SUCCESS) {
        rd_find(f, section, "tcp", RD_LEVEL_MISSING, "allow TCP sockets in the container's profile", "%s",
                rd_last_error());
        return;
    }
    close(fd);
    if (getifaddrs(&all)) {
        rd_find(f, section, "tcp", RD_LEVEL_MISSING, "allow netlink sockets in the container's profile",
                "listing the network interfaces: %s", strerror(errno));
        return;
    }
    check_interfaces(f, section, all, filter);
    freeifaddrs(all);
}

void rd_doctor_links(rd_findings *f, const rd_settings *settings)
{
    static const char section[] = "links";
    check_memory(f, section);
    check_sleep(f, section);
    check_unix(f, section);
    check_network(f, section, settings ? settings->interface : NULL);
}

/* ---- Self-test ---- */

enum { TEST_RANKS = 2, TEST_COUNT = 100003 };

/* Sums of whole numbers, exact in float32. */
static float test_value(int rank, int i) { return (float)((i * 7 + rank * 5) % 1000 + 1); }

static rondo_result sum_and_check(rondo_comm *comm, int rank, void *context)
{
    static float numbers[TEST_COUNT];
    int *wrong = context;
    for (int i = 0; i < TEST_COUNT; i++) numbers[i] = test_value(rank, i);
    rondo_result result = rondo_all_reduce(numbers, numbers, TEST_COUNT, RONDO_FLOAT32, RONDO_SUM, comm, NULL);
    for (int i = 0; result == RONDO_SUCCESS && i < TEST_COUNT; i++) {
        float sum = 0;
        for (int r = 0; r < TEST_RANKS; r++) sum += test_value(r, i);
        wrong[rank] += numbers[i] != sum;
    }
    return result;
}

static void self_test(rd_findings *f, const char *transport)
{
    const char *const environment[][2] = {{"RONDO_TRANSPORT", transport},
                                          {"RONDO_ALGO", NULL},
                                          {"RONDO_TRACE", NULL},
                                          {"RONDO_RECORD", NULL},
                                          {NULL, NULL}};
    char text[600];
    int *wrong = rd_team_memory(TEST_RANKS * sizeof *wrong);
    if (!wrong) {
        rd_find(f, "self-test", transport, RD_LEVEL_MISSING, NULL, "no memory: %s", strerror(errno));
        return;
    }
    rd_team team = {
        .ranks = TEST_RANKS, .timeout_s = 10, .environment = environment, .run = sum_and_check, .context = wrong};
    if (!rd_team_run(&team, text, sizeof text))
        rd_find(f, "self-test", transport, RD_LEVEL_MISSING, "see what is missing above", "%s", text);
    else if (wrong[0] + wrong[1])
        rd_find(f, "self-test", transport, RD_LEVEL_MISSING, "report this as a bug of Rondo", "%d of %d sums are wrong",
                wrong[0] + wrong[1], TEST_RANKS * TEST_COUNT);
    else
        rd_find(f, "self-test", transport, RD_LEVEL_OK, NULL, "%d ranks summed %d float32, every one right", TEST_RANKS,
                TEST_COUNT);
    rd_team_memory_free(wrong, TEST_RANKS * sizeof *wrong);
}

void rd_doctor_self_test(rd_findings *f)
{
    self_test(f, "shm");
    self_test(f, "tcp");
}
