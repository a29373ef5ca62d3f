/* SPDX-License-Identifier: Apache-2.0
 *
 * rondo_plan_hier.h - the hierarchical all-reduce: a part of rondo_plan.h, which includes it.
 *
 * For H hosts of L ranks each (N = H L), where a host's ranks reach one another faster than the network does.
 * On the ring a message crosses every host's network 2(N-1)/N times, and a chunk H times each way round; here it is
 * 2(H-1)/H times, and H-1. The ring visits host after host, so rank i of host h is at position h L + i. The message is cut
 * into L *pieces*, each piece into H chunks: piece i has the chunks i H to i H + H-1, and chunk i H + h *belongs to* rank i
 * of host h. Three rings, one after the other:
 *
 *   inside each host   reduce-scatter of pieces    L-1 steps     rank i is left with its host's sum of piece i
 *   between hosts      all-reduce of chunks     2(H-1) steps     the i-th ranks of all hosts, a *rail*, add up piece i
 *   inside each host   all-gather of pieces        L-1 steps     all have all
 *
 * With 2 hosts of 2 ranks, digits as above:
 *
 *                      rank 0 of host 0   rank 1 of host 0   rank 2 of host 1    rank 3 of host 1
 *   inside   sends     c2 3, c3 4 ->      c0 10, c1 20 ->    c2 300, c3 400 ->   c0 1000, c1 2000 ->
 *            has       c0 11, c1 22       c2 33, c3 44       c0 1100, c1 2200    c2 3300, c3 4400
 *   between  sends     c1 22 -> rank 2    c3 44 -> rank 3    c0 1100 -> rank 0   c2 3300 -> rank 1
 *            completes c0 1111            c2 3333            c1 2222             c3 4444
 *            sends     c0 -> rank 2       c2 -> rank 3       c1 -> rank 0        c3 -> rank 1
 *   inside   sends     c0, c1 ->          c2, c3 ->          c0, c1 ->           c2, c3 ->
 *
 * Terms are added along the host's ring from the one after rank i to rank i, and the hosts' sums along the rail, from the
 * host after the chunk's to the chunk's: every element by one chain at one rank, so all have the same bits, which are not
 * the flat ring's. Wide types stay wide from the second step on until the chunk is complete. A long message goes in
 * *segments* (rondo_segment), so that a later one is added up inside the hosts while an earlier one crosses the network.
 *
 * ---- What it costs -------------------------------------------------------------------------------------------------
 *
 * With links of alpha seconds and B bytes per second inside a host, alpha' and B' between hosts (B' of all cards of a
 * host), and a message of n bytes:
 *
 *   ring           2(N-1)/N (H alpha' + (N-H) alpha)  +  2(N-1)/N n / min(B, B')
 *   hierarchical   2(H-1) alpha' + 2(L-1) alpha       +  2(H-1)/H n / B' + 2(L-1)/L n / B
 *
 * Short messages gain at least one crossing of the network in each direction; long ones gain where B > H B', that is
 * where the memory of a host is more than H times as fast as its network. Segments overlap the last two terms.
 */
#ifndef RONDO_PLAN_H
#include "rondo_plan.h" /* comes back here, at the place where it needs this */
#elif !defined(RONDO_PLAN_HIER_H)
#define RONDO_PLAN_HIER_H

#define RONDO_SEGMENT 131072 /* elements of a chunk in a segment, at most */

/* Segments of a hierarchical all-reduce of `count` elements by `size` ranks, each with a plan of its own: as many as keep
 * chunks to RONDO_SEGMENT elements. They depend on nothing else, and with them the order of additions. */
RONDO_PLAN_FN uint64_t rondo_segments(uint64_t count, int32_t size)
{
    return rondo_slices(count, (uint64_t)RONDO_SEGMENT * (uint64_t)size);
}

/* Segment k of them, 0 <= k < rondo_segments(count, size): they differ by an element at most. */
RONDO_PLAN_FN rondo_range rondo_segment(uint64_t count, int32_t size, uint64_t k)
{
    rondo_range whole = {0, count};
    return rondo_split(whole, (uint32_t)rondo_segments(count, size), (uint32_t)k, 1);
}

/* The same for the hierarchical all-reduce of `count` elements, a segment say, by ranks of which `local` (L) each share a
 * host: those at positions h L to h L + L-1 of `order`, for each h. Returns -1, too, when L does not divide N. */
RONDO_PLAN_FN int rondo_plan_init_hier(rondo_plan *p, int32_t size, int32_t rank, int32_t local, uint64_t count,
                                       const int32_t *order, int wide)
{
    if (local < 1 || size < 1 || size % local) return -1;
    if (rondo_plan_init(p, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING, size, rank, 0, count, order, NULL, wide)) return -1;
    p->algo = RONDO_ALGO_HIER;
    p->local = local;
    p->steps = 2 * (local - 1) + 2 * (size / local - 1);
    return 0;
}

/* Step s of a hierarchical plan: one of a smaller ring, of the host's ranks (N' = L, chunks are pieces) or of the rail
 * (N' = H), whose positions and chunks then get their names in the whole. */
RONDO_PLAN_FN rondo_step rondo_step_hier(const rondo_plan *p, int32_t s)
{
    int32_t local = p->local, hosts = p->size / local, host = p->position / local, i = p->position % local;
    int32_t inside = local - 1, between = 2 * (hosts - 1), on_rail = s >= inside && s < inside + between;
    int32_t first = on_rail ? i * hosts : p->chunks; /* what chunk 0 of the smaller ring is called */
    rondo_plan ring = *p;
    rondo_step t;
    ring.order = NULL;
    ring.size = on_rail ? hosts : local;
    ring.position = on_rail ? host : i;
    if (on_rail) s -= inside;
    else if (s >= inside) s -= between; /* the second half of an all-reduce of pieces */
    t = s < ring.size - 1 ? rondo_step_ring_reduce_scatter(&ring, s)
                          : rondo_step_ring_all_gather(&ring, s - (ring.size - 1));
    t.send_to = rondo_ring_rank(p, on_rail ? (int64_t)t.send_to * local + i : (int64_t)host * local + t.send_to);
    t.recv_from = rondo_ring_rank(p, on_rail ? (int64_t)t.recv_from * local + i : (int64_t)host * local + t.recv_from);
    t.send_chunk += first;
    t.recv_chunk += first;
    if (on_rail && local > 1 && s < hosts - 1) { /* the terms are sums of hosts */
        t.held = 1;
        t.send_own = t.recv_own = 0;
        t.send_wide = t.recv_wide = p->wide != 0;
    }
    if (!on_rail && t.action == RONDO_FINISH && hosts > 1) t.action = RONDO_REDUCE; /* complete it is on the rail */
    return t;
}

#endif
