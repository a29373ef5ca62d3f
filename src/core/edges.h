/* SPDX-License-Identifier: Apache-2.0
 *
 * edges.h - making a communicator's links when it starts, all of them in three rounds, so that nobody waits for one who
 * waits: offer to all, accept from all, complete.
 */
#ifndef RD_CORE_EDGES_H
#define RD_CORE_EDGES_H

#include "core/card.h"

/* One end of a link that is to be: the sending end in one list, the receiving end in another. */
typedef struct rd_edge {
    int peer;
    int index;    /* by which both ends name it */
    int network;  /* of those that the two hosts share, the one to try first */
    int rail;     /* this rank's RDMA port; -1: none is named */
    uint32_t slots;
    size_t slot_bytes;
    rd_wire *wire;
    int fd;       /* of a link whose answer is awaited; else -1 */
} rd_edge;

typedef struct rd_edges {
    rondo_comm *comm;
    const rd_card *cards;
    int64_t deadline;
    rd_edge *out, *in; /* ends that send, and that receive */
    int outs, ins;
} rd_edges;

/* Makes them; after a failure what stands is in the wires, and nothing else is left open. */
rondo_result rd_edges_make(rd_edges *edges);

#endif
