/* SPDX-License-Identifier: Apache-2.0
 *
 * reach.h - what it takes to make a link to a peer, at the start (edges.c) or on demand (links.c): which transport
 * reaches the peer, what is asked of its ends, and the answer of the receiving one.
 *
 * Whether two ranks share a host is certain only when a connection has tried it: so a peer that seems near and that no
 * unix socket reaches is tried once more as one of another host, and is one from then on (comm->links.reach).
 */
#ifndef RD_CORE_REACH_H
#define RD_CORE_REACH_H

#include "core/comm.h"
#include "rondo_transport.h"

/* Attempts to reach a peer, the nearest way first. */
typedef struct rd_reaching {
    const rondo_comm *comm;
    int peer;
    char why[256];  /* the latest transport was chosen */
    char lost[512]; /* why it was not reached as one host; "": that has not been found */
} rd_reaching;

/* Chooses a transport for a peer as near as comm->links.reach says; fails where none will do. */
rondo_result rd_reach_choose(rd_reaching *attempt, const rondo_transport **transport);
/* What a connection by that transport came to. True: try again, as it is one of another host from now on. */
bool rd_reach_farther(rd_reaching *attempt, const rondo_transport *transport, rondo_result result);

/* Over what a connection for that transport goes (boot.h): a unix socket, or `network`. */
int rd_reach_over(const rondo_transport *transport, int network);

/* What RONDO_TRANSPORT asks for; NULL: nothing. */
const char *rd_forced_transport(const rondo_comm *comm);

/* An end in host memory; rail: which RDMA port it takes, -1: none is named. */
rondo_link_spec rd_link_spec(rondo_comm *comm, int peer, int rail, uint32_t slots, size_t slot_bytes);

/* Makes the receiving end that was offered, and answers. Takes over the offer's descriptors and fd, which a transport
 * of sockets has as its first. After a failure *link is the end, if it was made. */
rondo_result rd_link_answer(const rondo_transport *transport, const rondo_link_spec *spec, const rondo_offer *offer,
                            int fd, int64_t deadline, rondo_link **link);

#endif
