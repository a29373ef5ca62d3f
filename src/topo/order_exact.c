/* SPDX-License-Identifier: Apache-2.0
 *
 * order_exact.c - the cheapest round trip, by dynamic programming over subsets (Held and Karp).
 *
 * rest[S][v]: the cheapest way from v through all nodes that are not in S, and back to node 0, where S holds v and all
 * that were visited before, in whatever order. It is found from the sets that hold one node more:
 *     rest[all][v] = cost(v, 0)
 *     rest[S][v]   = the least of cost(v, u) + rest[S and u][u] over all u that are not in S
 * and so for 16 nodes beside node 0 in 2^16 x 16 x 16 / 2 steps instead of 16! = 2 x 10^13: some 10 ms and 8 MiB. Since
 * the table says from each point on what the rest costs, the round trip is read off from its beginning, and at each
 * point the nearest of the nodes that keep it cheapest is taken, the lowest number among equals.
 */
#include "base/status.h"
#include "topo/order.h"

#include <stdlib.h>

/* Node v > 0 is bit v - 1 of a set. */
static uint64_t step(const uint64_t *cost, int n, const uint64_t *rest, uint32_t set, int v, int u)
{
    return cost[v * n + u] + rest[(size_t)(set | 1u << (u - 1)) * (size_t)(n - 1) + (size_t)(u - 1)];
}

static void fill(const uint64_t *cost, int n, uint64_t *rest)
{
    uint32_t all = (1u << (n - 1)) - 1;
    for (int v = 1; v < n; v++) rest[(size_t)all * (size_t)(n - 1) + (size_t)(v - 1)] = cost[v * n];
    for (uint32_t set = all; set-- > 1;) {
        for (int v = 1; v < n; v++) {
            if (!(set >> (v - 1) & 1)) continue;
            uint64_t least = UINT64_MAX;
            for (uint32_t left = all & ~set; left; left &= left - 1) {
                uint64_t way = step(cost, n, rest, set, v, __builtin_ctz(left) + 1);
                if (way < least) least = way;
            }
            rest[(size_t)set * (size_t)(n - 1) + (size_t)(v - 1)] = least;
        }
    }
}

/* From v, where the rest is cheapest; of those the nearest, of equals the lowest. */
static int next(const uint64_t *cost, int n, const uint64_t *rest, uint32_t set, int v)
{
    uint64_t least = UINT64_MAX;
    int best = n - 1;
    for (int u = 1; u < n; u++) {
        if (set >> (u - 1) & 1) continue;
        uint64_t way = step(cost, n, rest, set, v, u);
        if (way > least || (way == least && cost[v * n + u] >= cost[v * n + best])) continue;
        least = way;
        best = u;
    }
    return best;
}

rondo_result rd_tour_exact(const uint64_t *cost, int n, int32_t *order)
{
    order[0] = 0;
    if (n < 2) return RONDO_SUCCESS;
    uint64_t *rest = malloc(((size_t)1 << (n - 1)) * (size_t)(n - 1) * sizeof *rest);
    if (!rest) return rd_fail(RONDO_SYSTEM_ERROR, "no memory to order %d ranks", n);
    fill(cost, n, rest);
    for (int i = 1, set = 0; i < n; i++) {
        order[i] = next(cost, n, rest, (uint32_t)set, order[i - 1]);
        set |= 1 << (order[i] - 1);
    }
    free(rest);
    return RONDO_SUCCESS;
}
