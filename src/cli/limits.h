/* SPDX-License-Identifier: Apache-2.0
 *
 * limits.h - what this machine allows, measured: the yardstick beside every row of `rondo bench`.
 *
 *   limits_meet.c    ranks of one host meet at flags, and find out where their cores sit
 *   limits_share.c   memory of every rank that all ranks of the host map
 *   limits_memory.c  the zero-copy bound: a collective whose buffers all ranks can read and write
 *   limits_sockets.c plain sockets between neighbours
 *
 * limits_meet.c and limits_memory.c know nothing of Rondo: programs that measure peers are built with them as well.
 */
#ifndef RD_CLI_LIMITS_H
#define RD_CLI_LIMITS_H

#include "rondo.h"

#include <stdatomic.h>
#include <stdbool.h>

/* ---- Meeting ---- */

typedef struct rd_flag {
    _Alignas(128) _Atomic uint64_t count; /* two lines of 64 bytes: some CPUs fetch them in pairs */
} rd_flag;

/* What two ranks share at the closest. */
typedef struct rd_placement {
    double round_trip_ns; /* of a flag */
    bool one_core;        /* they run on threads of one core, which they therefore share */
} rd_placement;

/* What one rank shows the others. */
typedef struct rd_page {
    rd_flag arrived, ball;
    rd_placement place;   /* of this rank and the next one */
    uint64_t token;       /* proves to a peer that it mapped this page and no other */
} rd_page;

typedef struct rd_meeting {
    rd_page **pages; /* by rank */
    int rank, size;
    bool crowded; /* more ranks than cores: a rank that waits makes room for the others */
    uint64_t met, shots;
} rd_meeting;

/* Returns when all ranks are here, within about a flag's latency of one another. A rank that stays away for ten
 * minutes ends the process, with a word on standard error. */
void rd_meet(rd_meeting *meeting);

/* Looks at each rank and the next round the ring: the slowest such pair's round trip, and whether all of them share a
 * core. Every rank gets the same. All ranks call it; 0.1 ms for each pair. Meaningless when crowded. */
rd_placement rd_find_placement(rd_meeting *meeting);

/* The closest that they share: a "core", an "L3" cache (a round trip of 50 to 125 ns), only the "host" (250 to 400);
 * "busy": it took too long for any, so something else runs on their processors. */
const char *rd_placement_name(rd_placement place);

/* For qsort: doubles, the least first. */
int rd_by_value(const void *a, const void *b);

/* ---- Sharing ---- */

/* Memory that each rank made and all have mapped: of[r] is rank r's. */
typedef struct rd_commons {
    void **of;
    size_t bytes;
    int size;
} rd_commons;

/* Every rank calls it, with the same bytes. RONDO_INVALID_USAGE: the ranks are not all on one host, or a rank may not
 * look at another one's descriptors. The outcome is the same on every rank, and nothing is left behind on failure. */
rondo_result rd_commons_open(rd_commons *commons, size_t bytes, rondo_comm *comm);
void rd_commons_close(rd_commons *commons);

/* ---- The zero-copy bound ---- */

typedef enum rd_bound_kind {
    RD_BOUND_ALL_REDUCE,
    RD_BOUND_REDUCE_SCATTER,
    RD_BOUND_ALL_GATHER,
    RD_BOUND_BROADCAST,
    RD_BOUND_REDUCE
} rd_bound_kind;

/* The work of one rank between two meetings, on buffers of whole lines of 64 bytes: from[r] and to[r] are rank r's (the
 * same in place). Of an all-reduce: adds the rank's 1/N of all buffers and writes it to all. Adds 32-bit integers,
 * which costs what floats cost, whatever the bits are. */
void rd_bound_work(rd_bound_kind kind, unsigned char *const *from, unsigned char *const *to, int rank, int size,
                   int root, size_t bytes);

/* ---- Memory alone ---- */

/* a[i] = b[i] + 3 c[i], i < count. */
void rd_triad(double *restrict a, const double *restrict b, const double *restrict c, size_t count);

/* ---- Sockets ---- */

enum { RD_STREAMS = 4 };

/* Connections to the next rank and from the one before. */
typedef struct rd_streams {
    int out[RD_STREAMS], in[RD_STREAMS];
    bool crowded;
} rd_streams;
#define RD_STREAMS_NONE {{-1, -1, -1, -1}, {-1, -1, -1, -1}, false}

/* By TCP, or over unix sockets, for ranks of one host. Every rank calls it. The outcome is the same on every rank. */
rondo_result rd_streams_open(rd_streams *streams, rondo_comm *comm, bool over_unix);
void rd_streams_close(rd_streams *streams);

/* Sends `sends` bytes of `from` to the next rank and receives `receives` into `to`, both at once, over `sockets`
 * connections, at most `piece` bytes a system call. Both ends give the same sockets. */
rondo_result rd_streams_exchange(const rd_streams *streams, int sockets, size_t piece, const void *from, size_t sends,
                                 void *to, size_t receives);

#endif
