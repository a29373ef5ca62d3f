/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sock.h"

#include "base/clock.h"
#include "base/status.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- Results ---- */

static bool is_remote(int error)
{
    switch (error) {
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN: return true;
    default: return false;
    }
}

static rondo_result fail_with(int error, const char *what, const rd_address *address)
{
    char text[RD_ADDRESS_TEXT];
    rondo_result result = is_remote(error) ? RONDO_REMOTE_ERROR : RONDO_SYSTEM_ERROR;
    rd_address_print(address, text);
    rd_fail(result, "%s %s: %s%s", what, text, strerror(error), rd_errno_remedy(error));
    errno = error; /* callers tell a port that is taken from other failures */
    return result;
}

/* An accepted IPv4 connection of a socket that serves both is IPv4 to us. */
static bool peer_of(int fd, rd_address *a)
{
    memset(a, 0, sizeof *a);
    a->bytes = sizeof a->at;
    if (getpeername(fd, (struct sockaddr *)&a->at, &a->bytes)) return false;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&a->at;
    if (a->at.ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) return true;
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = v6->sin6_port};
    memcpy(&v4.sin_addr, &v6->sin6_addr.s6_addr[12], sizeof v4.sin_addr);
    memset(a, 0, sizeof *a);
    memcpy(&a->at, &v4, sizeof v4);
    a->bytes = sizeof v4;
    return true;
}

/* Who is at the other end, for messages; of a broken connection the kernel no longer says. */
static void peer_text(int fd, char text[RD_ADDRESS_TEXT])
{
    rd_address peer;
    if (peer_of(fd, &peer))
        rd_address_print(&peer, text);
    else
        snprintf(text, RD_ADDRESS_TEXT, "the other end");
}

static rondo_result fail_on(int fd, int error, const char *what)
{
    char peer[RD_ADDRESS_TEXT];
    peer_text(fd, peer);
    return rd_fail(is_remote(error) ? RONDO_REMOTE_ERROR : RONDO_SYSTEM_ERROR, "%s %s: %s", what, peer,
                   strerror(error));
}

/* ---- Making connections ---- */

static void no_delay(int fd, int family)
{
    if (family != AF_UNIX) (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
}

static int try_listen(const rd_address *at)
{
    int family = at->at.ss_family, error;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    /* A port whose last owner is gone can be had at once, though connections of his linger; one that is listened on
     * is still refused. Unix sockets take no notice. */
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int))) goto close_fd;
    if (family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){0}, sizeof(int))) goto close_fd;
    if (bind(fd, (const struct sockaddr *)&at->at, at->bytes) || listen(fd, SOMAXCONN)) goto close_fd;
    return fd;
close_fd:
    error = errno;
    close(fd);
    errno = error;
    return -1;
}

rondo_result rd_sock_listen_tcp(int *fd, int port, int *bound)
{
    rd_address any;
    RD_TRY(rd_address_parse(&any, "[::]:0"));
    rd_address_set_port(&any, port);
    int s = try_listen(&any);
    if (s < 0 && errno != EADDRINUSE) { /* a kernel without IPv6 */
        RD_TRY(rd_address_parse(&any, "0.0.0.0:0"));
        rd_address_set_port(&any, port);
        s = try_listen(&any);
    }
    if (s < 0) return fail_with(errno, "listening on", &any);
    any.bytes = sizeof any.at;
    if (getsockname(s, (struct sockaddr *)&any.at, &any.bytes)) {
        close(s);
        return rd_fail_errno("asking for the port of a listening socket");
    }
    *bound = rd_address_port(&any);
    *fd = s;
    return RONDO_SUCCESS;
}

rondo_result rd_sock_listen_unix(int *fd, const char *name)
{
    char text[RD_ADDRESS_TEXT + 8];
    rd_address at;
    snprintf(text, sizeof text, "unix:%s", name);
    RD_TRY(rd_address_parse(&at, text));
    int s = try_listen(&at);
    if (s < 0) return fail_with(errno, "listening on", &at);
    *fd = s;
    return RONDO_SUCCESS;
}

rondo_result rd_sock_accept(int listener, int *fd)
{
    rd_address from = {.bytes = sizeof from.at};
    for (;;) {
        int s = accept4(listener, (struct sockaddr *)&from.at, &from.bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (s >= 0) {
            no_delay(s, from.at.ss_family);
            *fd = s;
            return RONDO_SUCCESS;
        }
        if (errno == EAGAIN) return RONDO_IN_PROGRESS;
        /* What befell one connection before it was ours says nothing about the next. */
        if (errno != EINTR && errno != EPROTO && !is_remote(errno)) return rd_fail_errno("accepting a connection");
    }
}

/* The kernel lets a connection to a free local port of its own range meet itself. */
static bool is_own_echo(int fd)
{
    rd_address here = {.bytes = sizeof here.at}, there = {.bytes = sizeof there.at};
    if (getsockname(fd, (struct sockaddr *)&here.at, &here.bytes) ||
        getpeername(fd, (struct sockaddr *)&there.at, &there.bytes))
        return false;
    return here.at.ss_family != AF_UNIX && here.bytes == there.bytes && memcmp(&here.at, &there.at, here.bytes) == 0;
}

rondo_result rd_sock_connected(int fd, const rd_address *to)
{
    int error = 0;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error})) error = errno;
    if (!error && is_own_echo(fd)) error = ECONNREFUSED;
    return error ? fail_with(error, "connecting to", to) : RONDO_SUCCESS;
}

rondo_result rd_sock_connect_start(int *fd, const rd_address *to, bool *done)
{
    int s = socket(to->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0) return rd_fail_errno("making a socket");
    no_delay(s, to->at.ss_family);
    bool stands = connect(s, (const struct sockaddr *)&to->at, to->bytes) == 0;
    int error = stands ? 0 : errno;
    rondo_result result = RONDO_SUCCESS;
    if (stands)
        result = rd_sock_connected(s, to);
    else if (error == EAGAIN)
        result = RONDO_IN_PROGRESS; /* the queue of a unix socket is full */
    else if (error != EINPROGRESS && error != EINTR)
        result = fail_with(error, "connecting to", to);
    if (result != RONDO_SUCCESS) {
        close(s);
        return result;
    }
    *done = stands;
    *fd = s;
    return RONDO_SUCCESS;
}

rondo_result rd_sock_connect(int *fd, const rd_address *to, int64_t deadline)
{
    int s = -1;
    bool done = false;
    rondo_result result;
    while ((result = rd_sock_connect_start(&s, to, &done)) == RONDO_IN_PROGRESS && rd_now() < deadline)
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    if (result == RONDO_IN_PROGRESS) {
        char text[RD_ADDRESS_TEXT];
        rd_address_print(to, text);
        return rd_fail(RONDO_TIMEOUT, "connecting to %s: its queue stayed full", text);
    }
    if (result != RONDO_SUCCESS) return result;
    if (!done && (result = rd_sock_wait(s, POLLOUT, deadline)) == RONDO_SUCCESS) result = rd_sock_connected(s, to);
    if (result != RONDO_SUCCESS) {
        close(s);
        return result;
    }
    *fd = s;
    return RONDO_SUCCESS;
}

/* ---- Bytes and descriptors ---- */

rondo_result rd_sock_wait(int fd, short events, int64_t deadline)
{
    struct pollfd p = {.fd = fd, .events = events};
    for (;;) {
        int ready = poll(&p, 1, rd_until_ms(deadline));
        if (ready > 0) return RONDO_SUCCESS;
        if (ready < 0 && errno != EINTR) return rd_fail_errno("waiting for a socket");
        if (ready == 0 && rd_now() >= deadline) break;
    }
    char peer[RD_ADDRESS_TEXT];
    peer_text(fd, peer);
    return rd_fail(RONDO_TIMEOUT, "waiting %s %s: timed out", events & POLLIN ? "for data from" : "to send to", peer);
}

union control {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(RD_SOCK_FDS * sizeof(int))];
};

static void close_all(const int *fds, int count)
{
    for (int i = 0; i < count; i++) close(fds[i]);
}

/* Takes over the descriptors that came with a message, whatever their number. */
static int take_fds(struct msghdr *message, int fds[RD_SOCK_FDS])
{
    int count = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        int here = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds + count, CMSG_DATA(c), (size_t)here * sizeof(int));
        count += here;
    }
    return count;
}

rondo_result rd_sock_read(int fd, void *data, size_t bytes, size_t *got, int *fds, int *count)
{
    union control control;
    struct iovec part = {.iov_base = data, .iov_len = bytes};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    int came[RD_SOCK_FDS], room = fds ? *count : 0;
    ssize_t n;
    do n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0) return errno == EAGAIN ? RONDO_IN_PROGRESS : fail_on(fd, errno, "receiving from");
    int fd_count = take_fds(&message, came);
    bool lost = message.msg_flags & MSG_CTRUNC;
    if (fd_count > room || (lost && fd_count == RD_SOCK_FDS)) {
        close_all(came, fd_count);
        return rd_fail(RONDO_REMOTE_ERROR, "descriptors came that do not belong here");
    }
    if (lost) {
        close_all(came, fd_count);
        if (fds) *count = 0;
        *got = (size_t)n;
        return rd_fail(RONDO_SYSTEM_ERROR, "receiving descriptors: %s%s", strerror(EMFILE), rd_errno_remedy(EMFILE));
    }
    if (n == 0) {
        char peer[RD_ADDRESS_TEXT];
        peer_text(fd, peer);
        return rd_fail(RONDO_REMOTE_ERROR, "%s closed the connection", peer);
    }
    if (fds) {
        memcpy(fds, came, (size_t)fd_count * sizeof *fds);
        *count = fd_count;
    }
    *got = (size_t)n;
    return RONDO_SUCCESS;
}

rondo_result rd_sock_write(int fd, const void *data, size_t bytes, size_t *put, const int *fds, int count)
{
    union control control = {.bytes = {0}};
    struct iovec part = {.iov_base = (void *)(uintptr_t)data, .iov_len = bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fds && count > 0) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE((size_t)count * sizeof *fds);
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN((size_t)count * sizeof *fds);
        memcpy(CMSG_DATA(&control.head), fds, (size_t)count * sizeof *fds);
    }
    ssize_t n;
    do n = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n < 0) return errno == EAGAIN ? RONDO_IN_PROGRESS : fail_on(fd, errno, "sending to");
    *put = (size_t)n;
    return RONDO_SUCCESS;
}

rondo_result rd_sock_recv_fds(int fd, void *data, size_t bytes, int *fds, int count, int64_t deadline)
{
    int have[RD_SOCK_FDS] = {0}, held = 0;
    rondo_result result = RONDO_SUCCESS;
    for (size_t done = 0, got; done < bytes; done += got) {
        int room = done == 0 ? count : 0;
        while ((result = rd_sock_read(fd, (char *)data + done, bytes - done, &got, room ? have : NULL, &room)) ==
               RONDO_IN_PROGRESS)
            if ((result = rd_sock_wait(fd, POLLIN, deadline)) != RONDO_SUCCESS) break;
        if (result != RONDO_SUCCESS) break;
        if (done == 0) held = room;
        if (held == count) continue;
        result = rd_fail(RONDO_REMOTE_ERROR, "%d descriptors came where %d belong", held, count);
        break;
    }
    if (result != RONDO_SUCCESS)
        close_all(have, held);
    else if (count > 0)
        memcpy(fds, have, (size_t)count * sizeof *fds);
    return result;
}

rondo_result rd_sock_send_fds(int fd, const void *data, size_t bytes, const int *fds, int count, int64_t deadline)
{
    rondo_result result;
    for (size_t done = 0, put; done < bytes; done += put) {
        while ((result = rd_sock_write(fd, (const char *)data + done, bytes - done, &put, fds,
                                       done == 0 ? count : 0)) == RONDO_IN_PROGRESS)
            RD_TRY(rd_sock_wait(fd, POLLOUT, deadline));
        RD_TRY(result);
    }
    return RONDO_SUCCESS;
}

rondo_result rd_sock_recv(int fd, void *data, size_t bytes, int64_t deadline)
{
    return rd_sock_recv_fds(fd, data, bytes, NULL, 0, deadline);
}

rondo_result rd_sock_send(int fd, const void *data, size_t bytes, int64_t deadline)
{
    return rd_sock_send_fds(fd, data, bytes, NULL, 0, deadline);
}

/* ---- The other end ---- */

rondo_result rd_sock_peer_address(int fd, rd_address *address)
{
    rd_address a;
    if (!peer_of(fd, &a)) return rd_fail_errno("asking for the address of the other end");
    *address = a;
    return RONDO_SUCCESS;
}

rondo_result rd_sock_peer_process(int fd, uid_t *uid, pid_t *pid)
{
    struct ucred credentials;
    int family = 0;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &(socklen_t){sizeof family}))
        return rd_fail_errno("asking for a socket's family");
    if (family != AF_UNIX)
        return rd_fail(RONDO_INTERNAL_ERROR, "only a unix socket knows the process at its other end");
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &(socklen_t){sizeof credentials}))
        return rd_fail_errno("asking for the process at the other end");
    if (uid) *uid = credentials.uid;
    if (pid) *pid = credentials.pid;
    return RONDO_SUCCESS;
}
