/* SPDX-License-Identifier: Apache-2.0
 *
 * world.h - all ranks of an executor test in one thread: their links are made here, and their operations advance in
 * an order drawn from a seed.
 */
#ifndef RONDO_TEST_WORLD_H
#define RONDO_TEST_WORLD_H

#include "base/bell.h"
#include "ring/exec.h"
#include "transport/transport.h"

#define WORLD_MAX 32

typedef struct world_options {
    int n, channels;
    size_t slice_bytes;
    bool flat, peers;                        /* peers: wires of their own between any two */
    int sockets;                             /* per TCP link; 0: 1 */
    int socket_bytes;                        /* of their buffers, so that slices go in parts; 0: as they are */
    bool one_way;                            /* only of the sockets from rank 0 */
    const rondo_transport *(*transport)(int from); /* of the ring link from rank `from` to the next */
    rondo_link *(*wrap)(rondo_link *link);   /* every end passes through it, unless NULL */
    const int32_t *order;                    /* of the ring; NULL: rank order */
    const int32_t *orders[RD_MAX_CHANNELS];  /* of the channels' rings, where they differ from that; NULL: it */
    int (*device)(int rank);                 /* its GPU, for links that need one; NULL: 0 */
    rd_engine *(*engine)(int rank);          /* carries out the rank's passes, over slots; NULL, or gives it: none */
    int local;                               /* ranks of each host, with wires for hierarchical calls; 0: none */
    const rondo_transport *(*rail)(int from); /* ... between hosts, and by `transport` inside */
} world_options;

typedef struct world {
    world_options options;
    rondo_bell bell[WORLD_MAX];
    rd_wire *out[WORLD_MAX], *in[WORLD_MAX]; /* [rank][channel * n + peer] */
    rd_wire peer_out[WORLD_MAX][WORLD_MAX], peer_in[WORLD_MAX][WORLD_MAX]; /* [rank][peer] */
    rd_hier hier[WORLD_MAX];
    rd_wire hier_out[WORLD_MAX][RD_OPEN][RD_MAX_CHANNELS], hier_in[WORLD_MAX][RD_OPEN][RD_MAX_CHANNELS];
    rd_transfer transfers[WORLD_MAX][2 * WORLD_MAX];
    rd_wiring wiring[WORLD_MAX];
    rd_op op[WORLD_MAX];
    rd_reduction reduction[WORLD_MAX];
    rondo_step steps[WORLD_MAX][2 * WORLD_MAX];
    rd_course courses[WORLD_MAX][RD_MAX_CHANNELS];
    rondo_step course_steps[WORLD_MAX][RD_MAX_CHANNELS][2 * WORLD_MAX];
    uint64_t advances;                       /* so far */
} world;

void world_open(world *w, const world_options *options);
void world_close(world *w);

/* One collective call of all ranks, as core makes it. send[r], recv[r]: rank r's buffers. Fails the test when it does not
 * end, or a link fails. */
typedef struct world_call {
    rondo_collective collective;
    rondo_algo algo;
    rondo_dtype dtype;
    rondo_op op;
    int root, cpu;
    uint64_t count; /* of the whole message */
    const unsigned char *send[WORLD_MAX];
    unsigned char *recv[WORLD_MAX];
} world_call;

void world_run(world *w, const world_call *call, uint64_t seed);

/* Its halves: every rank's operation has started; whatever has started on all ranks ends. */
void world_start(world *w, const world_call *call, uint64_t seed);
void world_finish(world *w, uint64_t seed);

/* The same for one rank, so that ranks can make calls that differ. Calls that are alike have one signature. */
void world_start_rank(world *w, int r, const world_call *call, uint64_t seed);

/* Drives what has started until every rank is done (end[r] == RD_DONE) or has failed (RD_FAILED), or none can go on:
 * those that are left have RD_IDLE. As core does it: a rank that can do nothing looks around. */
void world_drive(world *w, uint64_t seed, rd_progress end[]);

/* Payload that rank r has sent so far over the ring links of `channel` (-1: all channels), or over all links. */
uint64_t world_ring_bytes(const world *w, int r, int channel);
uint64_t world_all_bytes(const world *w, int r);

const rondo_transport *world_loop(int from);
const rondo_transport *world_shm(int from);
const rondo_transport *world_tcp(int from);
const rondo_transport *world_mixed(int from); /* tcp, loop, loop, tcp, loop, loop ... */

/* A pseudo-random 64-bit number of a seed and an index. */
uint64_t mix(uint64_t seed, uint64_t index);

#endif
