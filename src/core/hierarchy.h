/* SPDX-License-Identifier: Apache-2.0
 *
 * hierarchy.h - hierarchical all-reduces of a communicator: whether its ranks' hosts allow for them, their links, and up to
 * which size they beat the ring.
 */
#ifndef RD_CORE_HIERARCHY_H
#define RD_CORE_HIERARCHY_H

#include "core/edges.h"

#define RD_HIERARCHY_EDGES (2 + RD_MAX_CHANNELS) /* at most, that send, and likewise that receive */

typedef struct rd_hierarchy {
    rd_hier hier;
    int32_t *order; /* the ring's, from the first rank of a host on */
    int hosts, local;
    size_t most;    /* bytes of an all-reduce up to which it is faster than the ring, by the model */
    rd_wire out[RD_OPEN][RD_MAX_CHANNELS], in[RD_OPEN][RD_MAX_CHANNELS];
} rd_hierarchy;

/* Sets comm->hierarchy where there are several hosts with the same number of ranks, two at least, unless another algorithm
 * is asked for; else the log says why not. After the rings are ordered. */
rondo_result rd_hierarchy_open(rondo_comm *comm, const rd_card *cards, const rd_neighbours *near);
void rd_hierarchy_close(rondo_comm *comm);

/* The ends of its links to be made; returns how many of each. */
int rd_hierarchy_edges(rondo_comm *comm, rd_edge *out, rd_edge *in);
/* A link of a stage that this rank has an end of has no slots. */
bool rd_hierarchy_staged(const rondo_comm *comm, int stage);
/* The links stand. staged: by stage, whether some rank says so. */
rondo_result rd_hierarchy_wire(rondo_comm *comm, const bool staged[RD_OPEN]);

#endif
