/* SPDX-License-Identifier: Apache-2.0
 *
 * peers.h - what a kernel that carries out transfers is told, and what it tells. C and C++.
 */
#ifndef RD_KERNELS_PEERS_H
#define RD_KERNELS_PEERS_H

#include "rondo_transport.h"

#define RD_PEERS_WIRES     48   /* blocks of a launch, at most */
#define RD_PEERS_TRANSFERS 1024 /* of a launch, at most */
#define RD_PEERS_THREADS   512  /* of a block, at most */

/* What is sent, or where what is received goes; or both, of what the rank has for itself. */
typedef struct rd_peers_transfer {
    const unsigned char *from;
    unsigned char *to;
    uint64_t bytes, signature;
} rd_peers_transfer;

enum { RD_PEERS_SENDS, RD_PEERS_RECEIVES, RD_PEERS_KEEPS };

/* One end of a link, and its transfers in their order. What the rank keeps has no link. */
typedef struct rd_peers_wire {
    rondo_view view;
    uint64_t slot_bytes;   /* of the longest slice */
    uint32_t first, count; /* of the transfers */
    int32_t does;          /* RD_PEERS_... */
} rd_peers_wire;

/* How far a wire is in the latest launch; host memory. */
typedef struct rd_peers_report {
    uint64_t slices; /* moved: stored as it goes on */
    uint64_t bytes;  /* ... and at the end */
    uint64_t end;    /* RD_RING_... (ring.h), at the end */
} rd_peers_report;

/* Every address is one that the GPU can reach. */
typedef struct rd_peers_args {
    uint32_t *stop; /* host memory; not 0: give up. The kernel sets it when one of its wires cannot go on */
    rd_peers_transfer *transfers; /* host memory */
    rd_peers_report *reports;     /* by wire */
    rd_peers_wire wire[RD_PEERS_WIRES];
} rd_peers_args;

#endif
