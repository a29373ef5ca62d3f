/* SPDX-License-Identifier: Apache-2.0
 *
 * rondo_plan.h - the schedule: which chunk goes where at which step. Pure integers: no memory, links, time or GPU.
 *
 * The executors, the GPU kernel, the simulator, the lesson and the tests all call the functions below, so what is
 * taught here is what runs. Valid as C11, C++17 and CUDA; nothing allocates, nothing is global.
 *
 * ---- The problem ---------------------------------------------------------------------------------------------------
 *
 * N ranks hold n bytes each and all want the sum. If one rank, the root, collects everything and sends the result
 * back, its link carries (N-1) n bytes in and (N-1) n bytes out while the others wait: twice the ranks, twice the time.
 * The ring gives every rank the same work. Rank r only ever sends to r+1 and only ever receives from r-1:
 *
 *              rank 0 ------> rank 1
 *                ^               |          The message is cut into N chunks, here 4. Chunk c *belongs to* rank c:
 *                |               |          its sum is completed there. In each step all N links carry one chunk at
 *                |               v          the same time, so no rank waits for another one's share of the work.
 *              rank 3 <------ rank 2
 *
 * All-reduce is two trips round it. *Reduce-scatter*: every chunk gathers a term at each rank until it comes home
 * complete (N-1 steps). *All-gather*: every chunk goes round once more and is copied (N-1 steps). Modulo N:
 *
 *              reduce-scatter, step s           all-gather, step s
 *   sends      chunk p-1-s                      chunk p-s
 *   receives   chunk p-2-s, adds to it          chunk p-1-s, keeps it
 *
 * where p is the rank's *position* on the ring; the ring need not pass the ranks in order (rondo_plan.order), and
 * then "chunk p" means the chunk of the rank at position p. Each step sends exactly what the step before received.
 *
 * ---- A worked example ----------------------------------------------------------------------------------------------
 *
 * 4 ranks, 4 elements, so that a chunk is one element. A digit's place says which rank it came from and the digit
 * says which chunk it is: a chunk is complete when it shows 4 equal digits.
 *
 *                     chunk 0   chunk 1   chunk 2   chunk 3
 *           rank 0          1         2         3         4
 *           rank 1         10        20        30        40
 *           rank 2        100       200       300       400
 *           rank 3       1000      2000      3000      4000
 *           the sum      1111      2222      3333      4444
 *
 * Reduce-scatter: "c3 4 ->" means "sends chunk 3, whose value is 4"; below it what then arrives, and the sum.
 *
 *                     rank 0             rank 1             rank 2             rank 3
 *   step 0  sends     c3 4 ->            c0 10 ->           c1 200 ->          c2 3000 ->         its own terms
 *           receives  c2 3000+3=3003     c3 4+40=44         c0 10+100=110      c1 200+2000=2200
 *   step 1  sends     c2 3003 ->         c3 44 ->           c0 110 ->          c1 2200 ->         what it just received
 *           receives  c1 2200+2=2202     c2 3003+30=3033    c3 44+400=444      c0 110+1000=1110
 *   step 2  sends     c1 2202 ->         c2 3033 ->         c3 444 ->          c0 1110 ->
 *           receives  c0 1110+1=1111     c1 2202+20=2222    c2 3033+300=3333   c3 444+4000=4444   chunk r is home
 *
 * All-gather: the finished chunks travel on, and replace what they find.
 *
 *   step 3  sends     c0 1111 ->         c1 2222 ->         c2 3333 ->         c3 4444 ->
 *           receives  c3 4444            c0 1111            c1 2222            c2 3333
 *   step 4  receives  c2 3333            c3 4444            c0 1111            c1 2222
 *   step 5  receives  c1 2222            c2 3333            c3 4444            c0 1111            all have all
 *
 * ---- What it costs -------------------------------------------------------------------------------------------------
 *
 * A rank sends 2(N-1) chunks of n/N bytes, 2(N-1)/N of the message: less than 2n however many ranks there are, and no
 * all-reduce can do with less (P. Patarasu and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
 * workstations", J. Parallel Distrib. Comput. 69(2), 2009). With links that take alpha seconds to deliver anything
 * and carry B bytes per second, and gamma seconds to add a byte (the model of R. Thakur, R. Rabenseifner and W. Gropp,
 * "Optimization of collective communication operations in MPICH", Int. J. High Perform. Comput. Appl. 19(1), 2005):
 *
 *   time = 2(N-1) (alpha + n/(N B)) + (N-1)/N n gamma
 *
 * The price is the first term: 2(N-1) latencies where a tree pays 2 log2 N, so a small message on many ranks is better
 * off elsewhere. Cutting chunks into slices overlaps the two other terms; that is the executor's business, the
 * schedule does not change. Two bandwidths are quoted: algbw = n / time, what the caller sees, and
 * busbw = algbw * 2(N-1)/N, what a link carried, which can be held against B whatever N is. (n is the larger buffer.
 * Broadcast and reduce: busbw = algbw. All others: busbw = algbw * (N-1)/N.)
 *
 * ---- In which order, and in which type -----------------------------------------------------------------------------
 *
 * Floating-point sums depend on their order. Here it is fixed: chunk c is added along the ring from the rank after its
 * owner to the owner, always from the left, ((x[c+1] + x[c+2]) + ...) + x[c]. Every element is summed once, along one
 * chain of ranks, and copied from there: all ranks end with the same bits and a run repeats them. Another N, count or
 * ring moves elements to other chunks, and so may change the last bits. (RONDO_NUMERICS=strict has every element added
 * in the order of ranks instead: by a chain to the last rank and one back, or by flat plans, whose owners have all terms.)
 *
 * Types narrower than float32 would lose digits if each hop rounded. In a *wide* plan partial sums travel in float32:
 * from the second step of reduce-scatter on, since the first sends a rank's own term as it is, and until the owner
 * rounds the complete sum, once. So 1 step is narrow, N-2 are wide and the N-1 of all-gather are narrow again:
 * (1 + 2(N-2) + (N-1))/N = (3N-4)/N of the message for 16-bit types, (1 + 4(N-2) + (N-1))/N = (5N-8)/N for 8-bit.
 *
 * ---- Who has called ------------------------------------------------------------------------------------------------
 *
 * Every slice bears a signature of the call, so ranks notice that they do not make the same one. In an all-reduce no
 * more is needed: every rank hears from its predecessor before it is done. On a chain, below, the first rank hears from
 * nobody, and if each of N ranks names another as the root there may be no slice on any link, and all wait. So rooted
 * collectives, and peers plans, *open*: before it waits for anything each rank passes an empty slice to its successor
 * on the ring. It takes its predecessor's just before the first slice of a chunk from there; where none comes from
 * there, at the end. That costs each rank one empty slice, all at the same time and ahead of the payload; and it costs
 * the first of a chain the wait until its predecessor, which is the last, has called. Hierarchical plans open as well:
 * their rings are not the one on which a rank notices that its predecessor makes another call.
 *
 * ---- The other plans -----------------------------------------------------------------------------------------------
 *
 * Broadcast and reduce are *chains*, the ring cut open at the root: the whole message is one chunk that passes each
 * rank once. Broadcast goes from the root to the rank before it, reduce from the rank after the root to the root, so
 * a reduce adds as the root's chunk of an all-reduce does. Slices fill the chain: about n/B, and not N-1 times that.
 *
 * *Flat* is for ranks that share memory, where any rank reaches any other as cheaply as its neighbour. In N-1 steps
 * each rank hands every owner its term directly, and in N-1 more each owner hands out the sum. The bytes are the
 * ring's 2(N-1)/N, but nothing waits for a trip round, and wide types cost nothing, since a partial sum never leaves
 * its owner. The owner adds in the ring's order, the rank after it first and itself last: the same bits as the ring.
 *
 * *Exchange* is flat for messages so short that a second hop costs more than N-1 times the bytes: in N-1 steps each
 * rank hands every other its whole message, and each adds up every chunk itself, in the order its owner would.
 *
 * *Hierarchical* is for several hosts with several ranks each: rondo_plan_hier.h has the lesson, and what belongs to it.
 *
 * *Peers* is for what no rank can do for another: gather, scatter and all-to-all. Every chunk goes straight from the
 * rank that has it to the rank that wants it; on a ring it would travel N/2 links on average. In step s of an all-to-all
 * each rank sends to the one s+1 positions ahead and receives from the one s+1 behind, so that in any step each rank
 * sends one chunk and receives one. Its steps are independent of one another, and need links of their own.
 *
 * ---- Counts that N does not divide ---------------------------------------------------------------------------------
 *
 * The first count mod N chunks are one element longer. A count below N leaves chunks of 0 elements, and they travel
 * like the others: a step is a step, with an empty slice that bears the signature of the call. Without it a rank could
 * return success from an all-reduce of 1 element, or of 0, that another rank never called.
 */
#ifndef RONDO_PLAN_H
#define RONDO_PLAN_H

#include "rondo_plan_split.h"

#include <stddef.h>
#include <stdint.h>

typedef enum rondo_collective {
    RONDO_COLL_ALL_REDUCE = 0,
    RONDO_COLL_REDUCE_SCATTER = 1,
    RONDO_COLL_ALL_GATHER = 2,
    RONDO_COLL_BROADCAST = 3,
    RONDO_COLL_REDUCE = 4,
    RONDO_COLL_GATHER = 5,
    RONDO_COLL_SCATTER = 6,
    RONDO_COLL_ALL_TO_ALL = 7,
    RONDO_COLLECTIVES = 8 /* how many there are */
} rondo_collective;

typedef enum rondo_algo {
    RONDO_ALGO_RING = 0,
    RONDO_ALGO_FLAT = 1,     /* for all-reduce, reduce-scatter, all-gather, as the ring is; it is also for chains */
    RONDO_ALGO_EXCHANGE = 2, /* for all-reduce */
    RONDO_ALGO_PEERS = 3,    /* for gather, scatter and all-to-all, and nothing else is for them */
    RONDO_ALGO_HIER = 4,     /* hierarchical, for all-reduce: rondo_plan_init_hier */
    RONDO_ALGOS = 5          /* how many there are */
} rondo_algo;

#define RONDO_WHOLE 0x7fffffff /* in place of a chunk's number: all chunks, the whole message */
#define RONDO_EMPTY 0x7ffffffe /* no chunk: an empty slice */
#define RONDO_OPENING (-1)     /* the opening in place of a step's number, in traces */

/* What becomes of a chunk that arrives. */
typedef enum rondo_action {
    RONDO_REPLACE = 0, /* it replaces what is there */
    RONDO_REDUCE = 1,  /* ring: sum = arrived + own. flat: sum = sum + arrived, or the first to arrive */
    RONDO_FINISH = 2   /* as REDUCE (flat: and then sum + own); the sum is now complete: average and round it */
} rondo_action;

/* One step of one rank. A peer or chunk of -1: nothing is sent (or received) in this step, and the flags that go with
 * it mean nothing. Peers are ranks; chunk c is the one that rank c owns (chains have the one chunk 0; a hierarchical plan's
 * chunk N + i is piece i, and its chunks belong to other ranks). In an all-to-all
 * send_chunk is of the send buffer, the one for send_to, and recv_chunk of the receive buffer, the one from recv_from.
 * The two halves are independent: a step may send before, while or after it receives, but on a ring what the step before
 * received must have arrived before it is sent. Messages from one rank to another are in the order of their steps. */
typedef struct rondo_step {
    int32_t send_to, send_chunk;
    int32_t recv_from, recv_chunk;
    uint8_t send_own;   /* 1: the rank's own input goes out; 0: what the step before (ring) or the sum (flat) left */
    uint8_t send_wide;  /* 1: travels in the accumulation type, 0: in the element type */
    uint8_t recv_own;   /* 1: what arrives is the sender's own input (its send_own), not a sum or a chunk passed on */
    uint8_t recv_wide;  /* likewise; equal to the sender's send_wide */
    uint8_t action;     /* rondo_action of what arrives */
    uint8_t held;       /* 1: what the rank sends, if not passed on, and adds is not its input but what its earlier steps
                         * left of the chunk: in a hierarchical plan between hosts, the sum of its host */
} rondo_step;

/* The whole schedule of one rank for one message. Plain data that may be copied, also to a GPU; valid as long as
 * `order` and `bounds` are, which must be readable where the functions below are called. Made by rondo_plan_init;
 * read-only after that. */
typedef struct rondo_plan {
    int32_t collective, algo;
    int32_t size, rank, root;        /* N; 0 to N-1 */
    int32_t position, root_position; /* of rank and root on the ring */
    int32_t chunks;                  /* N, or 1 on a chain */
    int32_t wide;                    /* 1: partial sums travel in the accumulation type */
    int32_t steps;                   /* of this rank: see rondo_plan_length */
    int32_t local;                   /* L of a hierarchical plan; else 0 */
    uint64_t count;                  /* elements of the whole message: the larger buffer, or in an all-to-all each */
    const int32_t *order;            /* order[position] = rank, N of them; NULL: position p is rank p */
    const uint64_t *bounds;          /* chunk c is [bounds[c], bounds[c + 1]) in elements; NULL: as even as can be */
} rondo_plan;

/* ---- Where chunks lie -------------------------------------------------------------------------------------------- */

/* i modulo n, 0 <= result < n for negative i too. */
RONDO_PLAN_FN int32_t rondo_ring_mod(int64_t i, int32_t n)
{
    int64_t m = i % n;
    return (int32_t)(m < 0 ? m + n : m);
}

/* The rank at a position of the ring. Any position will do: -1 is the last, N the first again. */
RONDO_PLAN_FN int32_t rondo_ring_rank(const rondo_plan *p, int64_t position)
{
    int32_t at = rondo_ring_mod(position, p->size);
    return p->order ? p->order[at] : at;
}

/* Where chunk c, 0 <= c < p->chunks, lies in the message. Depends on count and N only (and L), or is the caller's. */
RONDO_PLAN_FN rondo_range rondo_chunk(const rondo_plan *p, int32_t c)
{
    rondo_range whole = {0, p->count}, chunk;
    if (c == RONDO_WHOLE) return whole;
    if (c == RONDO_EMPTY) {
        whole.count = 0;
        return whole;
    }
    if (p->local) { /* chunk i H + h is part h of piece i */
        int32_t hosts = p->size / p->local, i = c < p->chunks ? c / hosts : c - p->chunks;
        rondo_range piece = rondo_split(whole, (uint32_t)p->local, (uint32_t)i, 1);
        return c < p->chunks ? rondo_split(piece, (uint32_t)hosts, (uint32_t)(c % hosts), 1) : piece;
    }
    if (!p->bounds) return rondo_split(whole, (uint32_t)p->chunks, (uint32_t)c, 1);
    chunk.first = p->bounds[c];
    chunk.count = p->bounds[c + 1] - p->bounds[c];
    return chunk;
}

/* Elements of the largest chunk: what a scratch for one chunk must hold. */
RONDO_PLAN_FN uint64_t rondo_chunk_max(const rondo_plan *p)
{
    uint64_t most = 0;
    if (!p->bounds) return rondo_chunk(p, 0).count;
    for (int32_t c = 0; c < p->chunks; c++)
        if (rondo_chunk(p, c).count > most) most = rondo_chunk(p, c).count;
    return most;
}

/* ---- Making a plan ----------------------------------------------------------------------------------------------- */

/* 1: the collective passes the whole message from rank to rank, from or to the root. */
RONDO_PLAN_FN int rondo_is_chain(int32_t collective)
{
    return collective == RONDO_COLL_BROADCAST || collective == RONDO_COLL_REDUCE;
}

/* 1: there is a plan of this collective by this algorithm. */
RONDO_PLAN_FN int rondo_algo_fits(int32_t collective, int32_t algo)
{
    if (collective < 0 || collective >= RONDO_COLLECTIVES) return 0;
    if (collective >= RONDO_COLL_GATHER) return algo == RONDO_ALGO_PEERS;
    if (algo == RONDO_ALGO_FLAT) return !rondo_is_chain(collective);
    return algo == RONDO_ALGO_RING ||
           ((algo == RONDO_ALGO_EXCHANGE || algo == RONDO_ALGO_HIER) && collective == RONDO_COLL_ALL_REDUCE);
}

/* The steps of the rank at a position: 2(N-1) or N-1; on a chain 0 to 2; in gather and scatter 1 off the root. */
RONDO_PLAN_FN int32_t rondo_plan_length(int32_t collective, int32_t algo, int32_t size, int32_t position, int32_t root)
{
    if (size == 1) return 0;
    if (rondo_is_chain(collective)) {
        int32_t other_end = rondo_ring_mod((int64_t)root + (collective == RONDO_COLL_REDUCE ? 1 : -1), size);
        return position == root || position == other_end ? 1 : 2;
    }
    if ((collective == RONDO_COLL_GATHER || collective == RONDO_COLL_SCATTER) && position != root) return 1;
    return collective == RONDO_COLL_ALL_REDUCE && algo != RONDO_ALGO_EXCHANGE ? 2 * (size - 1) : size - 1;
}

/* Fills in *p with the schedule of `rank` of `size` (N) for one message of `count` elements: the whole message, which
 * is the larger buffer of a reduce-scatter, all-gather, gather or scatter, and either buffer of an all-to-all.
 *   root    of broadcast, reduce, gather, scatter; any rank, 0 say, for the others
 *   order   see rondo_plan; a permutation of 0 to N-1, the same on every rank, or NULL; must outlive the plan
 *   bounds  see rondo_plan; N+1 numbers (chains: 2) that never fall and end with count, or NULL; must outlive the plan
 *   wide    nonzero: partial sums travel in a wider type than the elements; ignored where none travel
 * Returns 0; or -1, and then *p is untouched: no such collective or algorithm, or not one for the other, size below 1,
 * rank or root outside 0 to N-1, an order that holds a number outside 0 to N-1 or lacks rank or root (other doubles go
 * unnoticed), bounds that fall or do not end with count, an all-to-all with bounds or a count that N does not divide (a
 * chunk would have one size where it leaves and another where it arrives), RONDO_ALGO_HIER: that has an init of its own. */
RONDO_PLAN_FN int rondo_plan_init(rondo_plan *p, rondo_collective collective, rondo_algo algo, int32_t size,
                                  int32_t rank, int32_t root, uint64_t count, const int32_t *order,
                                  const uint64_t *bounds, int wide)
{
    int32_t chunks = rondo_is_chain(collective) ? 1 : size, position = -1, root_position = -1;
    if (!rondo_algo_fits(collective, algo) || algo == RONDO_ALGO_HIER) return -1;
    if (size < 1 || rank < 0 || rank >= size || root < 0 || root >= size) return -1;
    for (int32_t at = 0; order && at < size; at++) {
        if (order[at] < 0 || order[at] >= size) return -1;
        if (order[at] == rank) position = at;
        if (order[at] == root) root_position = at;
    }
    if (!order) position = rank, root_position = root;
    if (position < 0 || root_position < 0) return -1;
    for (int32_t c = 0; bounds && c < chunks; c++)
        if (bounds[c] > bounds[c + 1] || bounds[c + 1] > count) return -1;
    if (bounds && bounds[chunks] != count) return -1;
    if (collective == RONDO_COLL_ALL_TO_ALL && (bounds || count % (uint64_t)size)) return -1;
    p->collective = collective;
    p->algo = algo;
    p->size = size;
    p->rank = rank;
    p->root = root;
    p->position = position;
    p->root_position = root_position;
    p->chunks = chunks;
    p->wide = wide != 0;
    p->steps = rondo_plan_length(collective, algo, size, position, root_position);
    p->local = 0;
    p->count = count;
    p->order = order;
    p->bounds = bounds;
    return 0;
}

/* ---- The steps --------------------------------------------------------------------------------------------------- */

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
    t.held = 0;
    return t;
}

/* Step s of all-gather on the ring, 0 <= s < N-1: chunk c sets out from its owner and replaces what it finds at every
 * other rank. In an all-reduce the first chunk sent is the one that reduce-scatter has just finished. */
RONDO_PLAN_FN rondo_step rondo_step_ring_all_gather(const rondo_plan *p, int32_t s)
{
    rondo_step t;
    t.send_to = rondo_ring_rank(p, (int64_t)p->position + 1);
    t.recv_from = rondo_ring_rank(p, (int64_t)p->position - 1);
    t.send_chunk = rondo_ring_rank(p, (int64_t)p->position - s);
    t.recv_chunk = rondo_ring_rank(p, (int64_t)p->position - 1 - s);
    t.send_own = t.recv_own = s == 0 && p->collective == RONDO_COLL_ALL_GATHER;
    t.send_wide = t.recv_wide = t.held = 0;
    t.action = RONDO_REPLACE;
    return t;
}

/* Rooted collectives are a chain round the ring: broadcast from root, reduce from the rank after root to root. The
 * first only sends, the last only receives; one between them receives in step 0 and sends in step 1, slice by slice. */
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
    t.held = 0;
    return t;
}

/* Step s of a flat plan: N-1 direct steps of reduce-scatter, N-1 direct ones of all-gather, or both. The owner takes
 * the terms of its chunk in the ring's order (the rank after it first, itself last), so the bits are the ring's; and
 * gives the sum back in the same order, so that the k-th to be served is the k-th who gave. */
RONDO_PLAN_FN rondo_step rondo_step_flat(const rondo_plan *p, int32_t s)
{
    int32_t reduce_steps = p->collective == RONDO_COLL_ALL_GATHER ? 0 : p->size - 1;
    int gather = s >= reduce_steps;
    int64_t away = (gather ? s - reduce_steps : s) + 1;
    int32_t ahead = rondo_ring_rank(p, p->position + away), behind = rondo_ring_rank(p, p->position - away);
    rondo_step t;
    t.send_to = gather ? ahead : behind;
    t.send_chunk = gather ? p->rank : behind;
    t.recv_from = gather ? behind : ahead;
    t.recv_chunk = gather ? behind : p->rank;
    t.send_own = t.recv_own = !gather || p->collective == RONDO_COLL_ALL_GATHER;
    t.send_wide = t.recv_wide = t.held = 0;
    t.action = gather ? RONDO_REPLACE : s == p->size - 2 ? RONDO_FINISH : RONDO_REDUCE;
    return t;
}

/* Step s of an exchange: terms come in the order in which flat's do. */
RONDO_PLAN_FN rondo_step rondo_step_exchange(const rondo_plan *p, int32_t s)
{
    rondo_step t;
    t.send_to = rondo_ring_rank(p, (int64_t)p->position - 1 - s);
    t.recv_from = rondo_ring_rank(p, (int64_t)p->position + 1 + s);
    t.send_chunk = t.recv_chunk = RONDO_WHOLE;
    t.send_own = t.recv_own = 1;
    t.send_wide = t.recv_wide = t.held = 0;
    t.action = s == p->size - 2 ? RONDO_FINISH : RONDO_REDUCE;
    return t;
}

/* Step s of a peers plan. A root goes through the others in the ring's order, from the one after it. */
RONDO_PLAN_FN rondo_step rondo_step_peers(const rondo_plan *p, int32_t s)
{
    int all = p->collective == RONDO_COLL_ALL_TO_ALL, at_root = !all && p->position == p->root_position;
    int sends = all || at_root == (p->collective == RONDO_COLL_SCATTER);
    int receives = all || !sends;
    int32_t ahead = rondo_ring_rank(p, (int64_t)p->position + 1 + s);
    int32_t behind = rondo_ring_rank(p, (int64_t)p->position - 1 - s);
    rondo_step t;
    t.send_to = !sends ? -1 : all || at_root ? ahead : p->root;
    t.send_chunk = !sends ? -1 : all || at_root ? ahead : p->rank;
    t.recv_from = !receives ? -1 : all ? behind : at_root ? ahead : p->root;
    t.recv_chunk = !receives ? -1 : all ? behind : at_root ? ahead : p->rank;
    t.send_own = t.recv_own = 1;
    t.send_wide = t.recv_wide = t.held = 0;
    t.action = RONDO_REPLACE;
    return t;
}

#include "rondo_plan_hier.h"

/* Step s of the plan, 0 <= s < p->steps: the function to call. */
RONDO_PLAN_FN rondo_step rondo_plan_step(const rondo_plan *p, int32_t s)
{
    if (p->algo == RONDO_ALGO_FLAT) return rondo_step_flat(p, s);
    if (p->algo == RONDO_ALGO_EXCHANGE) return rondo_step_exchange(p, s);
    if (p->algo == RONDO_ALGO_PEERS) return rondo_step_peers(p, s);
    if (p->algo == RONDO_ALGO_HIER) return rondo_step_hier(p, s);
    switch (p->collective) {
    case RONDO_COLL_ALL_REDUCE:
        return s < p->size - 1 ? rondo_step_ring_reduce_scatter(p, s)
                               : rondo_step_ring_all_gather(p, s - (p->size - 1));
    case RONDO_COLL_REDUCE_SCATTER: return rondo_step_ring_reduce_scatter(p, s);
    case RONDO_COLL_ALL_GATHER: return rondo_step_ring_all_gather(p, s);
    default: return rondo_step_ring_chain(p, s);
    }
}

/* 1: the rank opens, once, whatever is cut into slices and channels. */
RONDO_PLAN_FN int rondo_plan_opens(const rondo_plan *p)
{
    return p->size > 1 && (rondo_is_chain(p->collective) || p->algo == RONDO_ALGO_PEERS || p->algo == RONDO_ALGO_HIER);
}

/* What the rank of a plan that opens sends before all steps, and receives just before the first step that receives from
 * there, or after all steps if none does (peers and hierarchical: whenever it comes, their steps have links of their own). */
RONDO_PLAN_FN rondo_step rondo_plan_opening(const rondo_plan *p)
{
    rondo_step t;
    t.send_to = rondo_ring_rank(p, (int64_t)p->position + 1);
    t.recv_from = rondo_ring_rank(p, (int64_t)p->position - 1);
    t.send_chunk = t.recv_chunk = RONDO_EMPTY;
    t.send_own = t.recv_own = t.send_wide = t.recv_wide = t.held = 0;
    t.action = RONDO_REPLACE;
    return t;
}

#endif
