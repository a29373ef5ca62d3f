/* SPDX-License-Identifier: Apache-2.0
 *
 * What sockets alone can do between neighbours: the same bytes, both ways at once, without slices, headers or sums.
 */
#include "base/clock.h"
#include "base/env.h"
#include "base/interface.h"
#include "base/status.h"
#include "cli/limits.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { ADDRESSES = 8 };
#define UNIX_PREFIX "unix:"
#define CONNECT_S 3.0  /* for each of a peer's addresses */
#define ACCEPT_S  30.0 /* for all of the neighbour's connections, and the first bytes of each */

typedef struct contact {
    char address[ADDRESSES][RD_ADDRESS_TEXT];
    uint64_t token; /* which strangers do not know */
    int32_t count;
} contact;

typedef struct greeting {
    uint64_t token;
    uint64_t stream;
} greeting;

/* No effect on a unix socket, which has no such delay. */
static void no_delay(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static rondo_result announce(contact *mine, bool over_unix, int *listener)
{
    rd_interface list[ADDRESSES];
    int port = 0, count = 0;
    if (getrandom(&mine->token, sizeof mine->token, 0) != (ssize_t)sizeof mine->token)
        return rd_fail_errno("no random numbers");
    if (over_unix) {
        snprintf(mine->address[0], sizeof mine->address[0], UNIX_PREFIX "rondo-bench-%016llx",
                 (unsigned long long)mine->token);
        mine->count = 1;
        return rd_sock_listen_unix(listener, mine->address[0] + strlen(UNIX_PREFIX));
    }
    RD_TRY(rd_interface_list(rd_env("RONDO_INTERFACE"), list, ADDRESSES, &count));
    RD_TRY(rd_sock_listen_tcp(listener, 0, &port));
    mine->count = count;
    for (int i = 0; i < count; i++) {
        rd_address_set_port(&list[i].at, port);
        rd_address_print(&list[i].at, mine->address[i]);
    }
    return RONDO_SUCCESS;
}

/* The first of the peer's addresses that answers. */
static rondo_result connect_to(const contact *peer, int *fd)
{
    rondo_result result = rd_fail(RONDO_SYSTEM_ERROR, "the next rank has no address");
    for (int i = 0; i < peer->count; i++) {
        rd_address address;
        RD_TRY(rd_address_parse(&address, peer->address[i]));
        result = rd_sock_connect(fd, &address, rd_deadline(CONNECT_S));
        if (result == RONDO_SUCCESS) return result;
    }
    return result;
}

static rondo_result connect_all(rd_streams *streams, const contact *next)
{
    for (int s = 0; s < RD_STREAMS; s++) {
        greeting hello = {.token = next->token, .stream = (uint64_t)s};
        RD_TRY(connect_to(next, &streams->out[s]));
        no_delay(streams->out[s]);
        RD_TRY(rd_sock_send(streams->out[s], &hello, sizeof hello, rd_deadline(CONNECT_S)));
    }
    return RONDO_SUCCESS;
}

static rondo_result accept_all(rd_streams *streams, int listener, uint64_t token)
{
    int64_t deadline = rd_deadline(ACCEPT_S);
    for (int accepted = 0; accepted < RD_STREAMS;) {
        greeting hello = {0};
        int fd;
        RD_TRY(rd_sock_wait(listener, POLLIN, deadline));
        rondo_result result = rd_sock_accept(listener, &fd);
        if (result == RONDO_IN_PROGRESS) continue;
        RD_TRY(result);
        result = rd_sock_recv(fd, &hello, sizeof hello, deadline);
        if (result != RONDO_SUCCESS || hello.token != token || hello.stream >= RD_STREAMS ||
            streams->in[hello.stream] >= 0) {
            close(fd);
            continue;
        }
        no_delay(fd);
        streams->in[hello.stream] = fd;
        accepted++;
    }
    return RONDO_SUCCESS;
}

void rd_streams_close(rd_streams *streams)
{
    for (int s = 0; s < RD_STREAMS; s++) {
        if (streams->out[s] >= 0) close(streams->out[s]);
        if (streams->in[s] >= 0) close(streams->in[s]);
        streams->out[s] = streams->in[s] = -1;
    }
}

rondo_result rd_streams_open(rd_streams *streams, rondo_comm *comm, bool over_unix)
{
    int rank = rondo_comm_rank(comm), size = rondo_comm_size(comm), listener = -1;
    contact *all = calloc((size_t)size, sizeof *all);
    if (!all) return rd_fail_errno("no memory for the addresses of %d ranks", size);
    for (int s = 0; s < RD_STREAMS; s++) streams->out[s] = streams->in[s] = -1;
    rondo_result mine = announce(&all[rank], over_unix, &listener);
    rondo_result result = rondo_all_gather(&all[rank], all, sizeof *all, RONDO_UINT8, comm, NULL);
    if (mine == RONDO_SUCCESS && result == RONDO_SUCCESS) mine = connect_all(streams, &all[(rank + 1) % size]);
    if (mine == RONDO_SUCCESS && result == RONDO_SUCCESS) mine = accept_all(streams, listener, all[rank].token);
    int32_t good = mine == RONDO_SUCCESS;
    if (result == RONDO_SUCCESS) result = rondo_all_reduce(&good, &good, 1, RONDO_INT32, RONDO_MIN, comm, NULL);
    if (result == RONDO_SUCCESS && mine != RONDO_SUCCESS)
        result = mine;
    else if (result == RONDO_SUCCESS && !good)
        result = rd_fail(RONDO_REMOTE_ERROR, "another rank could not connect");
    if (result != RONDO_SUCCESS) rd_streams_close(streams);
    if (listener >= 0) close(listener);
    free(all);
    return result;
}

/* ---- Moving bytes ---- */

/* Part of the message on one connection, one way. */
typedef struct way {
    int fd;
    size_t at, end;
} way;

/* One system call if there is something left. False on an error. */
static bool push(way *out, const unsigned char *from, size_t piece, bool *moved)
{
    size_t left = out->end - out->at;
    if (!left) return true;
    ssize_t n = send(out->fd, from + out->at, left < piece ? left : piece, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    out->at += (size_t)n;
    *moved = true;
    return true;
}

static bool pull(way *in, unsigned char *to, size_t piece, bool *moved)
{
    size_t left = in->end - in->at;
    if (!left) return true;
    ssize_t n = recv(in->fd, to + in->at, left < piece ? left : piece, MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) errno = ECONNRESET;
    in->at += (size_t)n;
    *moved = true;
    return n > 0;
}

/* Sleeps until one of them can go on. */
static void sleep_on(const way *out, const way *in, int sockets)
{
    struct pollfd polled[2 * RD_STREAMS];
    nfds_t count = 0;
    for (int s = 0; s < sockets; s++) {
        if (out[s].at < out[s].end) polled[count++] = (struct pollfd){.fd = out[s].fd, .events = POLLOUT};
        if (in[s].at < in[s].end) polled[count++] = (struct pollfd){.fd = in[s].fd, .events = POLLIN};
    }
    poll(polled, count, 1000);
}

static bool any_left(const way *out, const way *in, int sockets)
{
    bool left = false;
    for (int s = 0; s < sockets; s++) left = left || out[s].at < out[s].end || in[s].at < in[s].end;
    return left;
}

rondo_result rd_streams_exchange(const rd_streams *streams, int sockets, size_t piece, const void *from, size_t sends,
                                 void *to, size_t receives)
{
    way out[RD_STREAMS], in[RD_STREAMS];
    size_t count = (size_t)sockets;
    for (size_t s = 0; s < count; s++) {
        out[s] = (way){streams->out[s], sends * s / count, sends * (s + 1) / count};
        in[s] = (way){streams->in[s], receives * s / count, receives * (s + 1) / count};
    }
    while (any_left(out, in, sockets)) {
        bool moved = false;
        for (int s = 0; s < sockets; s++)
            if (!push(&out[s], from, piece, &moved) || !pull(&in[s], to, piece, &moved))
                return rd_fail_errno("a measuring connection broke");
        if (!moved && streams->crowded) sleep_on(out, in, sockets);
    }
    return RONDO_SUCCESS;
}
