/* SPDX-License-Identifier: Apache-2.0
 *
 * links.h - links beyond the ring's neighbours, made when they are first needed.
 *
 * The rank that has something to send visits the peer's service thread, which makes the receiving end at once, whatever
 * the peer's own threads are doing; so a first message can leave before anybody there asks for it. Messages and
 * collectives have links of their own, so that a message that nobody has received yet keeps no collective waiting.
 */
#ifndef RD_CORE_LINKS_H
#define RD_CORE_LINKS_H

#include "base/bell.h"
#include "boot/boot.h"
#include "ring/exec.h"

#include <stdatomic.h>

typedef enum rd_lane { RD_LANE_MESSAGES, RD_LANE_COLLECTIVES, RD_LANES } rd_lane;

typedef struct rd_links {
    rd_wire *out, *in;              /* [lane * size + peer]; by the thread whose task runs */
    _Atomic(rondo_link *) *arrived; /* likewise: receiving ends that the service thread made, until they are taken */
    uint64_t *sent, *received;      /* messages to and from each peer so far */
    unsigned char *reach;           /* rondo_reach of each peer, as far as is known (reach.h) */
    uint32_t *lacking;              /* transports that this rank or the peer cannot use, by peer */
    struct rd_rails *rails;         /* this rank's RDMA ports; NULL: not looked for, or none */
    signed char *rail;              /* ... of which links with each peer take this one; -1: none is named */
    bool on_rails;                  /* the cards of rings are such ports */
} rd_links;

/* The name of a port of this rank's, for rondo_link_spec; -1: NULL. (rails.c) */
const char *rd_links_port(const rd_links *links, int rail);

rondo_result rd_links_open(rondo_comm *comm);
void rd_links_close(rondo_comm *comm);

static inline rd_wire *rd_links_out(rd_links *links, int size, rd_lane lane, int peer)
{
    return &links->out[lane * size + peer];
}
static inline rd_wire *rd_links_in(rd_links *links, int size, rd_lane lane, int peer)
{
    return &links->in[lane * size + peer];
}

/* The link to a peer, made if it is not there. Waits for the peer's service thread, never for its calls; ends when the
 * communicator does. */
rondo_result rd_links_make(rondo_comm *comm, rd_lane lane, int peer, int64_t deadline);
/* Takes the receiving end from a peer, if it has arrived; true: the wire has its link now, and had none. */
bool rd_links_take(rondo_comm *comm, rd_lane lane, int peer);
/* On the service thread: a peer made a sending end. */
void rd_links_greeted(void *comm, int peer, int index, int fd, const rd_greeting *greeting);

#endif
