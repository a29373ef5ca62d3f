/* SPDX-License-Identifier: Apache-2.0
 *
 * hello.h - the first bytes on the connection that makes a link: from its sending end, answered by the same from the
 * other.
 */
#ifndef RD_CORE_HELLO_H
#define RD_CORE_HELLO_H

#include "core/comm.h"
#include "rondo_transport.h"

/* Its form on the wire: docs/wire.md. */
typedef struct rd_link_hello {
    uint32_t version, sockets, slots, fd_count, bytes;
    uint64_t slot_bytes;
    char transport[9];
} rd_link_hello;

#define RD_HELLO_BYTES (5 * 4 + 8 + 8 + 128) /* and the offer's data */

void rd_hello_pack(unsigned char bytes[RD_HELLO_BYTES], const rondo_transport *transport, const rondo_link_spec *spec,
                   const rondo_offer *offer);
/* Without the offer's descriptors. RONDO_REMOTE_ERROR: damaged. */
rondo_result rd_hello_unpack(const unsigned char bytes[RD_HELLO_BYTES], rd_link_hello *hello, rondo_offer *offer);

/* Waits until the peer's first byte is there, the communicator has ended, or the deadline. */
rondo_result rd_hello_await(const rondo_comm *comm, int fd, int64_t deadline);

/* Over a connection, descriptors too. recv awaits it first. */
rondo_result rd_hello_send(int fd, const rondo_transport *transport, const rondo_link_spec *spec,
                           const rondo_offer *offer, int64_t deadline);
rondo_result rd_hello_recv(const rondo_comm *comm, int fd, rd_link_hello *hello, rondo_offer *offer, int64_t deadline);

/* NULL: this build has none of this name. */
const rondo_transport *rd_transport_named(const char *name);
/* The one that a peer's hello names; RONDO_REMOTE_ERROR: this build has none of this name. */
rondo_result rd_hello_transport(const rd_link_hello *hello, int peer, const rondo_transport **transport);

#endif
