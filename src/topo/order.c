/* SPDX-License-Identifier: Apache-2.0
 *
 * order.c - a cheap round trip over a cost matrix. Knows ranks as numbers, and nothing of what they stand for.
 *
 * First from each rank to the nearest one not yet visited, the lowest number among equals: so ranks with equal costs
 * keep their order, and any process that has the matrix finds the same ring.
 *
 * That is already a shortest round trip where costs are ultrametric, as costs by the closest shared thing are
 * (cost.c). Proof: all ranks within distance h of each other form a cluster, and everything outside is further than h;
 * so the walk leaves a cluster only when it is used up, and pays for k parts of a cluster k-1 steps at the cluster's
 * own distance, and one more for the whole: a minimum spanning tree and one longest edge. No round trip is cheaper: it
 * must leave and enter one of the outermost parts, so has a longest edge, and without it still joins all ranks.
 *
 * Other matrices (measured ones, say) are then improved by 2-opt: reverse a stretch of the ring wherever that makes it
 * cheaper. Prefix sums of the ring's costs walked forward and backward give the gain of a reversal in four look-ups,
 * for matrices that are not symmetric too.
 */
#include "base/status.h"
#include "topo/topo.h"

#include <stdlib.h>

/* Reversals looked at are at most this many times n * n. A bound on work, not on time: it must end at the same ring
 * everywhere. Random matrices of 1,024 ranks come to rest within a tenth of it. */
enum { ROUNDS = 32 };

static void nearest_neighbours(const uint32_t *cost, int n, int32_t *order)
{
    for (int i = 0; i < n; i++) order[i] = i;
    for (int i = 1; i < n; i++) {
        const uint32_t *from = cost + (size_t)order[i - 1] * (size_t)n;
        int best = i;
        for (int j = i + 1; j < n; j++) {
            uint32_t here = from[order[j]], least = from[order[best]];
            if (here < least || (here == least && order[j] < order[best])) best = j;
        }
        int32_t rank = order[best];
        order[best] = order[i];
        order[i] = rank;
    }
}

/* forward[k], backward[k]: the way from position 0 to position k, and from k back to 0 over the same ranks; position n
 * is position 0 again. Brought up to date from position `from` on. */
static void measure(const uint32_t *cost, int n, const int32_t *order, int from, uint64_t *forward, uint64_t *backward)
{
    for (int k = from; k < n; k++) {
        size_t a = (size_t)order[k], b = (size_t)order[k + 1 < n ? k + 1 : 0];
        forward[k + 1] = forward[k] + cost[a * (size_t)n + b];
        backward[k + 1] = backward[k] + cost[b * (size_t)n + a];
    }
}

static void reverse(int32_t *order, int first, int last)
{
    for (; first < last; first++, last--) {
        int32_t rank = order[first];
        order[first] = order[last];
        order[last] = rank;
    }
}

/* Position 0 stays where it is: every round trip can be read from there. */
static void two_opt(const uint32_t *cost, int n, int32_t *order, uint64_t *forward, uint64_t *backward)
{
    uint64_t work = (uint64_t)n * (uint64_t)n * ROUNDS;
    measure(cost, n, order, 0, forward, backward);
    for (int gained = 1; gained;) {
        gained = 0;
        for (int i = 1; i < n - 1; i++) {
            for (int j = i + 1; j < n; j++) {
                if (work-- == 0) return;
                uint32_t in = cost[(size_t)order[i - 1] * (size_t)n + (size_t)order[j]];
                uint32_t out = cost[(size_t)order[i] * (size_t)n + (size_t)order[j + 1 < n ? j + 1 : 0]];
                if (in + (backward[j] - backward[i]) + out >= forward[j + 1] - forward[i - 1]) continue;
                reverse(order, i, j);
                measure(cost, n, order, i - 1, forward, backward);
                work -= work < (uint64_t)n ? work : (uint64_t)n;
                gained = 1;
            }
        }
    }
}

rondo_result rd_ring_order(const uint32_t *cost, int n, int32_t *order)
{
    if (n < 1) return rd_fail(RONDO_INVALID_ARGUMENT, "ring order of %d ranks: at least 1 is needed", n);
    uint64_t *sums = calloc(2 * ((size_t)n + 1), sizeof *sums);
    if (!sums) return rd_fail(RONDO_SYSTEM_ERROR, "no memory to order a ring of %d ranks", n);
    nearest_neighbours(cost, n, order);
    two_opt(cost, n, order, sums, sums + n + 1);
    free(sums);
    return RONDO_SUCCESS;
}
