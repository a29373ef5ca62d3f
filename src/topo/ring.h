/* SPDX-License-Identifier: Apache-2.0
 *
 * ring.h - from what ranks tell about themselves to the rings, the same on every rank.
 *   order.c         a cheap way through all ranks over a cost matrix; knows nothing else
 *   order_exact.c   ... the cheapest, up to 16 ranks
 *   order_search.c  ... a cheaper one than was there, for more
 *   nics.c          which network cards a channel crosses between two hosts by
 *   rings.c         hosts one after the other, inside each from the inbound card to the outbound one
 */
#ifndef RD_TOPO_RING_H
#define RD_TOPO_RING_H

#include "topo/topo.h"

/* ---- What a rank tells, beside its rd_place, when there are GPUs or several hosts: plain data ---- */

enum { RD_MAX_GPUS = 64, RD_MAX_NICS = 16, RD_MAX_NETWORKS = 4, RD_MAX_RINGS = 8 };
#define RD_NO_GPU UINT32_MAX

/* A GPU of the rank's host and the way to it: from the rank's own GPU where it has one, else from its processor. */
typedef struct rd_way {
    uint32_t bus; /* rd_bus_id(); a host's ranks call a GPU by the same */
    rd_link link;
} rd_way;

/* A network card of the rank's host, likewise. Of two cards that have a network in common, one reaches the other. Which
 * networks there are is for the caller to know; he numbers them as he likes, the same on all hosts. A card that lists
 * none (all 0) is taken to reach every other one like it. */
typedef struct rd_nic {
    char name[16]; /* of the network interface, or where there is none of the OpenFabrics device */
    uint32_t bus;  /* rd_bus_id(); interfaces on one function share it. 0: it shares with none */
    uint32_t mbit; /* per second; 0: not known */
    uint32_t up;   /* 0: it cannot be used now */
    uint64_t networks[RD_MAX_NETWORKS];
    rd_link link;
} rd_nic;

typedef struct rd_around {
    uint32_t gpu; /* the one whose memory it works on; RD_NO_GPU: host memory */
    int32_t gpus, nics;
    rd_way to_gpu[RD_MAX_GPUS];
    rd_nic nic[RD_MAX_NICS];
} rd_around;

/* ---- The rings ---- */

/* From a rank to the next one. Between hosts: by which cards, as indices into nic[] of these two ranks' rd_around; -1
 * within a host, or where nothing is known of cards. */
typedef struct rd_hop {
    int32_t from, to;
    int32_t nic, nic_there;
    rd_link link;
} rd_hop;

typedef struct rd_rings {
    int ranks, hosts, channels;
    rd_hop *hops; /* [channel * ranks + position]; `from` is the rank at that position, and 0 at the first */
} rd_rings;

/* What is known of all ranks. */
typedef struct rd_told {
    int ranks;
    const rd_place *places;  /* with their hosts' numbers */
    const rd_around *around; /* NULL: nobody has told */
    const rd_link *links; /* [a * ranks + b]: within a host, instead of what follows from those; NULL: as it follows */
    bool by_rank; /* all rings shall go from rank to rank, whatever that costs */
} rd_told;

/* channels: how many rings, 1 to RD_MAX_RINGS; 0: as many as the links are good for. Free with rd_rings_free. */
rondo_result rd_rings_make(rd_rings *rings, const rd_told *told, int channels);
void rd_rings_free(rd_rings *rings);

/* The link between two ranks of one host. */
rd_link rd_told_link(const rd_told *told, int a, int b);
/* The hop of a ring that takes longest; NULL for one rank. */
const rd_hop *rd_rings_slowest(const rd_rings *rings, int channel);

/* ---- The order ---- */

/* order[0 ... n-1]: a permutation of 0 ... n-1 that starts with 0 and makes the sum of cost[order[i] * n + order[i+1]]
 * round the ring small: the least there is up to 16 ranks. Deterministic. 1,024 in under a second. Of equally cheap
 * ones it is the one that goes to the nearest first, and of equally near ranks to the lowest. */
rondo_result rd_ring_order(const uint32_t *cost, int n, int32_t *order);
/* The same for a way that does not come back: it begins and ends where begin[first] + end[last] is least, and is the
 * cheapest of those. (Differences of more than half a million in begin or end count as half a million.) */
rondo_result rd_path_order(const uint32_t *cost, int n, const uint32_t *begin, const uint32_t *end, int32_t *order);

#endif
