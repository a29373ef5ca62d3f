/* SPDX-License-Identifier: Apache-2.0
 *
 * rondo_plan.h - the schedule: which chunk goes where at which step. Pure integers.
 */
#ifndef RONDO_PLAN_H
#define RONDO_PLAN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define RONDO_PLAN_FN static __host__ __device__ inline
#else
#define RONDO_PLAN_FN static inline
#endif

typedef enum rondo_collective {
    RONDO_COLL_ALL_REDUCE = 0,
    RONDO_COLL_REDUCE_SCATTER = 1,
    RONDO_COLL_ALL_GATHER = 2,
    RONDO_COLL_BROADCAST = 3,
    RONDO_COLL_REDUCE = 4,
    RONDO_COLLECTIVES = 5
} rondo_collective;

typedef enum rondo_algo { RONDO_ALGO_RING = 0, RONDO_ALGO_FLAT = 1 } rondo_algo;

/* What becomes of a chunk that arrives. */
typedef enum rondo_action {
    RONDO_REPLACE = 0, /* it replaces what is there */
    RONDO_REDUCE = 1,  /* what is here is added to it: sum = arrived + own */
    RONDO_FINISH = 2   /* as REDUCE, and the sum is now complete: average and round */
} rondo_action;

/* One step of one rank. A peer or chunk of -1: nothing is sent (or received) in this step.
 * Peers are ranks; chunk c is the one that rank c owns (rooted collectives have the one chunk 0). */
typedef struct rondo_step {
    int32_t send_to, send_chunk;
    int32_t recv_from, recv_chunk;
    uint8_t send_own;   /* 1: the rank's own input goes out; 0: what the step before (ring) or the sum (flat) left */
    uint8_t send_wide;  /* 1: travels in the accumulation type, 0: in the element type */
    uint8_t recv_own;   /* 1: what arrives is the sender's own input, 0: a partial or complete sum, or a chunk moved */
    uint8_t recv_wide;
    uint8_t action;     /* rondo_action of what arrives */
} rondo_step;

/* The whole schedule of one rank for one message; plain data, valid as long as `order` and `bounds` are. */
typedef struct rondo_plan {
    int32_t collective, algo;
    int32_t size, rank, root;
    int32_t position, root_position; /* of rank and root on the ring */
    int32_t chunks;                  /* N, or 1 for rooted collectives */
    int32_t wide;                    /* partial sums travel in the accumulation type */
    int32_t steps;
    uint64_t count;                  /* elements of the whole message */
    const int32_t *order;            /* order[position] = rank; NULL: position p is rank p */
    const uint64_t *bounds;          /* chunk c is [bounds[c], bounds[c + 1]); NULL: as even as can be */
} rondo_plan;

typedef struct rondo_range {
    uint64_t first, count; /* in elements */
} rondo_range;

RONDO_PLAN_FN int32_t rondo_ring_mod(int64_t i, int32_t n)
{
    int64_t m = i % n;
    return (int32_t)(m < 0 ? m + n : m);
}

/* The rank that stands `ahead` positions further round the ring than `position`. */
RONDO_PLAN_FN int32_t rondo_ring_rank(const rondo_plan *p, int64_t position)
{
    int32_t at = rondo_ring_mod(position, p->size);
    return p->order ? p->order[at] : at;
}

/* Part i of n of a range, in whole multiples of `grain` elements from its start (the last takes the rest):
 * sizes differ by at most one grain. */
RONDO_PLAN_FN rondo_range rondo_split(rondo_range whole, uint32_t n, uint32_t i, uint64_t grain)
{
    uint64_t grains = whole.count / grain + (whole.count % grain != 0);
    uint64_t each = grains / n, more = grains % n;
    uint64_t from = (each * i + (i < more ? i : more)) * grain;
    uint64_t to = (each * (i + 1) + (i + 1 < more ? i + 1 : more)) * grain;
    rondo_range part;
    if (to > whole.count || i + 1 == n) to = whole.count;
    if (from > to) from = to;
    part.first = whole.first + from;
    part.count = to - from;
    return part;
}

/* Where chunk c lies in the message. Depends on count and N only, or is the caller's. */
RONDO_PLAN_FN rondo_range rondo_chunk(const rondo_plan *p, int32_t c)
{
    rondo_range whole = {0, p->count}, chunk;
    if (!p->bounds) return rondo_split(whole, (uint32_t)p->chunks, (uint32_t)c, 1);
    chunk.first = p->bounds[c];
    chunk.count = p->bounds[c + 1] - p->bounds[c];
    return chunk;
}

/* Elements of the largest chunk. */
RONDO_PLAN_FN uint64_t rondo_chunk_max(const rondo_plan *p)
{
    uint64_t most = 0;
    if (!p->bounds) return rondo_chunk(p, 0).count;
    for (int32_t c = 0; c < p->chunks; c++)
        if (rondo_chunk(p, c).count > most) most = rondo_chunk(p, c).count;
    return most;
}

/* Fills in a plan. order, bounds: see rondo_plan, they may be NULL and must outlive it. wide: 1 when partial sums
 * travel in a wider type. Returns 0, or -1 when size, rank or root are out of range or rank is not in order. */
RONDO_PLAN_FN int rondo_plan_init(rondo_plan *p, rondo_collective collective, rondo_algo algo, int32_t size,
                                  int32_t rank, int32_t root, uint64_t count, const int32_t *order,
                                  const uint64_t *bounds, int wide)
{
    int rooted = collective == RONDO_COLL_BROADCAST || collective == RONDO_COLL_REDUCE;
    if (size < 1 || rank < 0 || rank >= size || root < 0 || root >= size) return -1;
    p->collective = collective;
    p->algo = algo;
    p->size = size;
    p->rank = rank;
    p->root = root;
    p->position = p->root_position = -1;
    p->chunks = rooted ? 1 : size;
    p->wide = wide;
    p->count = count;
    p->order = order;
    p->bounds = bounds;
    for (int32_t at = 0; at < size; at++) {
        if (rondo_ring_rank(p, at) == rank) p->position = at;
        if (rondo_ring_rank(p, at) == root) p->root_position = at;
    }
    if (p->position < 0 || p->root_position < 0) return -1;
    if (rooted) {
        int32_t along = rondo_ring_mod((int64_t)p->position - p->root_position, size);
        int first = collective == RONDO_COLL_BROADCAST ? along == 0 : along == rondo_ring_mod(1, size);
        int last = collective == RONDO_COLL_BROADCAST ? along == size - 1 : along == 0;
        p->steps = size == 1 ? 0 : first || last ? 1 : 2;
    } else {
        p->steps = collective == RONDO_COLL_ALL_REDUCE ? 2 * (size - 1) : size - 1;
    }
    return 0;
}

/* Step s of reduce-scatter on the ring, 0 <= s < N-1: chunk c sets out from the rank after its owner and gathers
 * a term at every rank until it comes home, so its terms are added in ring order, the owner's last. */
RONDO_PLAN_FN rondo_step rondo_step_ring_reduce_scatter(const rondo_plan *p, int32_t s)
{
    rondo_step t;
    t.send_to = rondo_ring_rank(p, (int64_t)p->position + 1);
    t.recv_from = rondo_ring_rank(p, (int64_t)p->position - 1);
    t.send_chunk = rondo_ring_rank(p, (int64_t)p->position - 1 - s);
    t.recv_chunk = rondo_ring_rank(p, (int64_t)p->position - 2 - s);
    t.send_own = t.recv_own = s == 0;
    t.send_wide = t.recv_wide = p->wide && s > 0;
    t.action = s == p->size - 2 ? RONDO_FINISH : RONDO_REDUCE;
    return t;
}

/* Step s of all-gather on the ring: chunk c sets out from its owner and replaces what it finds at every rank. */
RONDO_PLAN_FN rondo_step rondo_step_ring_all_gather(const rondo_plan *p, int32_t s)
{
    rondo_step t;
    t.send_to = rondo_ring_rank(p, (int64_t)p->position + 1);
    t.recv_from = rondo_ring_rank(p, (int64_t)p->position - 1);
    t.send_chunk = rondo_ring_rank(p, (int64_t)p->position - s);
    t.recv_chunk = rondo_ring_rank(p, (int64_t)p->position - 1 - s);
    t.send_own = t.recv_own = s == 0 && p->collective == RONDO_COLL_ALL_GATHER;
    t.send_wide = t.recv_wide = 0;
    t.action = RONDO_REPLACE;
    return t;
}

/* Rooted collectives are a chain round the ring: broadcast from root, reduce from the rank after root to root.
 * A rank in the middle receives in step 0 and sends in step 1; the first only sends, the last only receives. */
RONDO_PLAN_FN rondo_step rondo_step_ring_chain(const rondo_plan *p, int32_t s)
{
    int reduce = p->collective == RONDO_COLL_REDUCE;
    int32_t along = rondo_ring_mod((int64_t)p->position - p->root_position - (reduce ? 1 : 0), p->size);
    int sends = along == 0 ? s == 0 : s == 1 && along < p->size - 1;
    int receives = along > 0 && s == 0;
    rondo_step t;
    t.send_to = sends ? rondo_ring_rank(p, (int64_t)p->position + 1) : -1;
    t.send_chunk = sends ? 0 : -1;
    t.recv_from = receives ? rondo_ring_rank(p, (int64_t)p->position - 1) : -1;
    t.recv_chunk = receives ? 0 : -1;
    t.send_own = sends && along == 0;
    t.recv_own = receives && along == 1;
    t.send_wide = reduce && p->wide && along > 0;
    t.recv_wide = reduce && p->wide && along > 1;
    t.action = !reduce ? RONDO_REPLACE : along == p->size - 1 ? RONDO_FINISH : RONDO_REDUCE;
    return t;
}

/* Flat all-reduce on one host: N-1 direct reduce-scatter steps, then N-1 direct all-gather steps. The owner adds
 * the terms of its chunk in the ring's order (the rank after it first, itself last), so the bits are the ring's. */
RONDO_PLAN_FN rondo_step rondo_step_flat(const rondo_plan *p, int32_t s)
{
    int gather = s >= p->size - 1;
    int64_t away = (gather ? s - (p->size - 1) : s) + 1;
    int32_t ahead = rondo_ring_rank(p, p->position + away), behind = rondo_ring_rank(p, p->position - away);
    rondo_step t;
    t.send_to = gather ? ahead : behind;
    t.send_chunk = gather ? p->rank : behind;
    t.recv_from = gather ? behind : ahead;
    t.recv_chunk = gather ? behind : p->rank;
    t.send_own = t.recv_own = !gather;
    t.send_wide = t.recv_wide = 0;
    t.action = gather ? RONDO_REPLACE : s == p->size - 2 ? RONDO_FINISH : RONDO_REDUCE;
    return t;
}

/* Step s of the plan, 0 <= s < p->steps. */
RONDO_PLAN_FN rondo_step rondo_plan_step(const rondo_plan *p, int32_t s)
{
    if (p->algo == RONDO_ALGO_FLAT) return rondo_step_flat(p, s);
    switch (p->collective) {
    case RONDO_COLL_ALL_REDUCE:
        return s < p->size - 1 ? rondo_step_ring_reduce_scatter(p, s)
                               : rondo_step_ring_all_gather(p, s - (p->size - 1));
    case RONDO_COLL_REDUCE_SCATTER: return rondo_step_ring_reduce_scatter(p, s);
    case RONDO_COLL_ALL_GATHER: return rondo_step_ring_all_gather(p, s);
    default: return rondo_step_ring_chain(p, s);
    }
}

#endif
