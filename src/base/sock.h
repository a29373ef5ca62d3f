/* SPDX-License-Identifier: Apache-2.0
 *
 * sock.h - sockets as the control plane wants them: non-blocking, close-on-exec, with deadlines, never a SIGPIPE.
 *
 * An address has a text form: "10.0.0.1:4711", "[fd00::1]:4711", or "unix:name" for a socket in Linux's abstract
 * namespace, which leaves no file behind and ends with its network namespace.
 *
 * Results: RONDO_TIMEOUT at the deadline (rd_deadline(); INT64_MAX: none), RONDO_REMOTE_ERROR when the other end
 * closed or refused, RONDO_SYSTEM_ERROR for the rest. A stream that failed half way is of no further use: close it.
 */
#ifndef RD_BASE_SOCK_H
#define RD_BASE_SOCK_H

#include "rondo.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#define RD_ADDRESS_TEXT 64 /* room for any address's text, with its end */
#define RD_SOCK_FDS 4      /* descriptors that one message may carry */

/* ---- Addresses ---- */

typedef struct rd_address {
    struct sockaddr_storage at;
    socklen_t bytes;
} rd_address;

/* RONDO_INVALID_ARGUMENT names the text and the forms there are. No name is looked up. */
rondo_result rd_address_parse(rd_address *address, const char *text);
void rd_address_print(const rd_address *address, char text[RD_ADDRESS_TEXT]);
void rd_address_set_port(rd_address *address, int port); /* no effect on unix sockets */
int rd_address_port(const rd_address *address);          /* 0 for unix sockets */
bool rd_address_is_loopback(const rd_address *address);  /* unix sockets are */

/* The addresses of a host name or of a number in text, in the resolver's order. A name that is not known may be so
 * soon: asks again until the deadline. RONDO_INVALID_ARGUMENT when it is not. */
rondo_result rd_address_resolve(const char *host, int port, int64_t deadline, rd_address *list, int room, int *count);

/* ---- Making connections ---- */

/* Listens on a TCP port of all addresses, IPv4 and IPv6 (port 0: any free one; *bound is the one it got).
 * RONDO_SYSTEM_ERROR when it is taken, with errno EADDRINUSE. */
rondo_result rd_sock_listen_tcp(int *fd, int port, int *bound);
/* Listens on abstract socket `name` (without "unix:"). errno EADDRINUSE when it is taken. */
rondo_result rd_sock_listen_unix(int *fd, const char *name);
/* The next connection, if there is one: RONDO_IN_PROGRESS if not. RONDO_SYSTEM_ERROR is lasting (EMFILE): pause. */
rondo_result rd_sock_accept(int listener, int *fd);

/* Begins a connection. *done: it stands already; else wait for POLLOUT and ask rd_sock_connected(). RONDO_IN_PROGRESS:
 * not even that (the queue of a unix socket is full), try again. */
rondo_result rd_sock_connect_start(int *fd, const rd_address *to, bool *done);
rondo_result rd_sock_connected(int fd, const rd_address *to);
/* Both, with a deadline. On a unix socket whose queue is full it tries again until then. */
rondo_result rd_sock_connect(int *fd, const rd_address *to, int64_t deadline);

/* ---- Bytes and descriptors ---- */

/* One attempt, of bytes > 0. *got, *put: bytes moved, at least 1 on success; RONDO_IN_PROGRESS: none now. Descriptors
 * (fds NULL: none wanted) arrive with the first byte of the write that carried them; *count goes in as the room (at
 * most RD_SOCK_FDS) and comes out as their number. More than fit, or any when none are wanted, is an error with all
 * of them closed. RONDO_SYSTEM_ERROR when they came and this process has no room: the bytes are there, *got of them,
 * and *count is 0. Received descriptors are close-on-exec and the caller's. */
rondo_result rd_sock_read(int fd, void *data, size_t bytes, size_t *got, int *fds, int *count);
rondo_result rd_sock_write(int fd, const void *data, size_t bytes, size_t *put, const int *fds, int count);

/* All of it, or an error. */
rondo_result rd_sock_recv(int fd, void *data, size_t bytes, int64_t deadline);
rondo_result rd_sock_send(int fd, const void *data, size_t bytes, int64_t deadline);
/* With exactly `count` descriptors; on error none is left open (receiving), none is closed (sending). bytes > 0. */
rondo_result rd_sock_recv_fds(int fd, void *data, size_t bytes, int *fds, int count, int64_t deadline);
rondo_result rd_sock_send_fds(int fd, const void *data, size_t bytes, const int *fds, int count, int64_t deadline);

/* Waits for POLLIN or POLLOUT. */
rondo_result rd_sock_wait(int fd, short events, int64_t deadline);

/* ---- The other end ---- */

rondo_result rd_sock_peer_address(int fd, rd_address *address);
/* Of a unix socket: who connected or listened, by the kernel's word. uid and pid may be NULL. */
rondo_result rd_sock_peer_process(int fd, uid_t *uid, pid_t *pid);

#endif
