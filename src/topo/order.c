/* SPDX-License-Identifier: Apache-2.0
 *
 * order.c - a cheap round trip over a cost matrix. Knows ranks as numbers, and nothing of what they stand for.
 *
 * First from each rank to the nearest one not yet visited, the lowest number among equals: so ranks with equal costs
 * keep their order, and any process that has the matrix finds the same ring. Where that is as cheap as a round trip can
 * be at all, it is the answer. A round trip without its longest hop joins all ranks, so it is no cheaper than the
 * minimum spanning tree, and its longest hop is no shorter than the tree's longest edge: their sum is the bound.
 *
 * The walk meets it where costs are ultrametric, as costs by the closest shared thing are (cost.c): all ranks within
 * distance h of each other form a cluster, and everything outside is further than h; so the walk leaves a cluster only
 * when it is used up, and pays for k parts of a cluster k-1 steps at the cluster's own distance, and one more for the
 * whole. Other matrices (links between GPUs, measured ones) need the search: of all round trips up to 16 ranks
 * (order_exact.c), step by step from there for more (order_search.c).
 *
 * A way that does not come back is a round trip through one node more, whose edges are what it costs to begin and to
 * end.
 */
#include "topo/order.h"
#include "base/status.h"
#include "topo/ring.h"

#include <stdlib.h>

static void nearest_first(const uint64_t *cost, int n, int32_t *order)
{
    for (int i = 0; i < n; i++) order[i] = i;
    for (int i = 1; i < n; i++) {
        const uint64_t *from = cost + (size_t)order[i - 1] * (size_t)n;
        int best = i;
        for (int j = i + 1; j < n; j++) {
            uint64_t here = from[order[j]], least = from[order[best]];
            if (here < least || (here == least && order[j] < order[best])) best = j;
        }
        int32_t rank = order[best];
        order[best] = order[i];
        order[i] = rank;
    }
}

static uint64_t length(const uint64_t *cost, int n, const int32_t *order)
{
    uint64_t sum = 0;
    for (int i = 0; i < n; i++) sum += cost[(size_t)order[i] * (size_t)n + (size_t)order[i + 1 < n ? i + 1 : 0]];
    return sum;
}

/* The minimum spanning tree over nodes first ... n-1, where a hop costs as much as in its cheaper direction; and its
 * longest edge. Prim's way; `reach` has room for n. */
static uint64_t spanning_tree(const uint64_t *cost, int n, int first, uint64_t *reach, uint64_t *longest)
{
    const uint64_t inside = UINT64_MAX;
    uint64_t sum = 0;
    int last = first;
    *longest = 0;
    for (int i = first; i < n; i++) reach[i] = inside - 1;
    for (int joined = first + 1; joined < n; joined++) {
        int nearest = -1;
        reach[last] = inside;
        for (int i = first; i < n; i++) {
            if (reach[i] == inside) continue;
            uint64_t there = cost[(size_t)last * (size_t)n + (size_t)i],
                     back = cost[(size_t)i * (size_t)n + (size_t)last];
            if (back < there) there = back;
            if (there < reach[i]) reach[i] = there;
            if (nearest < 0 || reach[i] < reach[nearest]) nearest = i;
        }
        sum += reach[nearest];
        if (reach[nearest] > *longest) *longest = reach[nearest];
        last = nearest;
    }
    return sum;
}

/* What beginning and ending cost at least; node 0 is not a rank. They must be two ranks where there are two. */
static uint64_t least_ends(const uint64_t *cost, int n)
{
    uint64_t least = UINT64_MAX;
    if (n == 2) return cost[1] + cost[2];
    for (size_t a = 1; a < (size_t)n; a++)
        for (size_t b = 1; b < (size_t)n; b++)
            if (a != b && cost[a] + cost[b * (size_t)n] < least) least = cost[a] + cost[b * (size_t)n];
    return least;
}

static rondo_result tour(const uint64_t *cost, int n, bool path, int32_t *order)
{
    uint64_t *reach = malloc((size_t)n * sizeof *reach), longest;
    if (!reach) return rd_fail(RONDO_SYSTEM_ERROR, "no memory to order %d ranks", n);
    uint64_t bound = spanning_tree(cost, n, path, reach, &longest);
    bound += path ? least_ends(cost, n) : n > 1 ? longest : 0;
    free(reach);
    nearest_first(cost, n, order);
    if (length(cost, n, order) == bound) return RONDO_SUCCESS;
    return n <= RD_EXACT_NODES - !path ? rd_tour_exact(cost, n, order) : rd_tour_search(cost, n, order);
}

static uint64_t *room_for(int n)
{
    uint64_t *cost = n < 1 ? NULL : calloc((size_t)n * (size_t)n, sizeof *cost);
    if (!cost) rd_fail(RONDO_SYSTEM_ERROR, "no memory to order %d ranks", n);
    return cost;
}

static rondo_result at_least_one(int n)
{
    return n < 1 ? rd_fail(RONDO_INVALID_ARGUMENT, "ring order of %d ranks: at least 1 is needed", n) : RONDO_SUCCESS;
}

rondo_result rd_ring_order(const uint32_t *cost, int n, int32_t *order)
{
    RD_TRY(at_least_one(n));
    uint64_t *wide = room_for(n);
    if (!wide) return RONDO_SYSTEM_ERROR;
    for (int a = 0; a < n; a++) /* a rank's cost to itself is nobody's business */
        for (int b = 0; b < n; b++)
            wide[(size_t)a * (size_t)n + (size_t)b] = a == b ? 0 : cost[(size_t)a * (size_t)n + (size_t)b];
    rondo_result result = tour(wide, n, false, order);
    free(wide);
    return result;
}

/* One unit of begin or end outweighs any way: that is below 1,024 x 2^32 = 2^42 for as many ranks as are promised, and
 * two of 2^19 units keep the sum below 2^63. */
enum { UNIT_BITS = 42, MOST_UNITS = 1 << 19 };

static uint64_t least_of(const uint32_t *values, int n)
{
    uint32_t least = values[0];
    for (int i = 1; i < n; i++)
        if (values[i] < least) least = values[i];
    return least;
}

static uint64_t units(uint64_t above_least)
{
    return (above_least < MOST_UNITS ? above_least : MOST_UNITS) << UNIT_BITS;
}

rondo_result rd_path_order(const uint32_t *cost, int n, const uint32_t *begin, const uint32_t *end, int32_t *order)
{
    RD_TRY(at_least_one(n));
    size_t nodes = (size_t)n + 1;
    uint64_t first = least_of(begin, n), last = least_of(end, n), *wide = room_for(n + 1);
    int32_t *found = malloc(nodes * sizeof *found);
    rondo_result result = RONDO_SYSTEM_ERROR;
    if (!wide || !found) {
        result = rd_fail(RONDO_SYSTEM_ERROR, "no memory to order %d ranks", n);
        goto out;
    }
    for (size_t a = 0; a < (size_t)n; a++) {
        wide[a + 1] = units(begin[a] - first);
        wide[(a + 1) * nodes] = units(end[a] - last);
        for (size_t b = 0; b < (size_t)n; b++) wide[(a + 1) * nodes + b + 1] = a == b ? 0 : cost[a * (size_t)n + b];
    }
    result = tour(wide, n + 1, true, found);
    for (int i = 0; i < n && result == RONDO_SUCCESS; i++) order[i] = found[i + 1] - 1;
out:
    free(found);
    free(wide);
    return result;
}
