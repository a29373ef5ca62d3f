/* SPDX-License-Identifier: Apache-2.0
 *
 * order_search.c - makes a round trip cheaper, step by step.
 *   2-opt    reverse a stretch of it wherever that makes it cheaper
 *   Or-opt   move a piece of one to three nodes elsewhere, as it is or turned round
 * in turns, until neither finds anything. Prefix sums of the costs walked forward and backward give the gain of each
 * change in a few look-ups, for matrices that are not symmetric too. Always in the same order, and the first gain is
 * taken: so every process ends at the same round trip.
 */
#include "base/status.h"
#include "topo/order.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Changes looked at are at most this many. A bound on work, not on time: it must end at the same round trip everywhere.
 * Up to some 500 nodes the search comes to rest before. */
enum { MOST_LOOKS = 8 << 20, PIECE = 3 };

typedef struct search {
    const uint64_t *cost;
    int n;
    int32_t *order;
    /* The way from position 0 to position k, and from k back to 0 over the same nodes; position n is position 0 again.
     */
    uint64_t *forward, *backward;
    uint64_t work; /* that is left */
} search;

static int32_t at(const search *s, int position)
{
    return s->order[position < s->n ? position : position - s->n];
}

static uint64_t hop(const search *s, int from, int to)
{
    return s->cost[(size_t)at(s, from) * (size_t)s->n + (size_t)at(s, to)];
}

/* After a change from position `from` on. */
static void measure(search *s, int from)
{
    for (int k = from; k < s->n; k++) {
        s->forward[k + 1] = s->forward[k] + hop(s, k, k + 1);
        s->backward[k + 1] = s->backward[k] + hop(s, k + 1, k);
    }
    s->work -= s->work < (uint64_t)s->n ? s->work : (uint64_t)s->n;
}

static void reverse(int32_t *order, int first, int last)
{
    for (; first < last; first++, last--) {
        int32_t node = order[first];
        order[first] = order[last];
        order[last] = node;
    }
}

/* Position 0 stays where it is: every round trip can be read from there. */
static bool two_opt(search *s)
{
    bool gained = false;
    for (int i = 1; i < s->n - 1; i++) {
        for (int j = i + 1; j < s->n; j++) {
            if (s->work == 0) return false;
            s->work--;
            uint64_t turned = hop(s, i - 1, j) + (s->backward[j] - s->backward[i]) + hop(s, i, j + 1);
            if (turned >= s->forward[j + 1] - s->forward[i - 1]) continue;
            reverse(s->order, i, j);
            measure(s, i - 1);
            gained = true;
        }
    }
    return gained;
}

/* Takes the piece first ... last to behind position `to`, which is not within it. Returns the first position that
 * changed. */
static int move(search *s, int first, int last, int to, bool turned)
{
    int32_t piece[PIECE];
    int size = last - first + 1;
    if (turned) reverse(s->order, first, last);
    memcpy(piece, s->order + first, (size_t)size * sizeof *piece);
    if (to < first) {
        memmove(s->order + to + 1 + size, s->order + to + 1, (size_t)(first - to - 1) * sizeof *piece);
        memcpy(s->order + to + 1, piece, (size_t)size * sizeof *piece);
        return to + 1;
    }
    memmove(s->order + first, s->order + last + 1, (size_t)(to - last) * sizeof *piece);
    memcpy(s->order + to - size + 1, piece, (size_t)size * sizeof *piece);
    return first;
}

static bool or_opt_from(search *s, int first, int last)
{
    uint64_t within = s->forward[last] - s->forward[first], turned_within = s->backward[last] - s->backward[first];
    uint64_t apart = hop(s, first - 1, first) + within + hop(s, last, last + 1), joined = hop(s, first - 1, last + 1);
    for (int to = 0; to < s->n; to++) {
        if (to >= first - 1 && to <= last) continue;
        if (s->work == 0) return false;
        s->work--;
        uint64_t before = apart + hop(s, to, to + 1);
        uint64_t as_is = joined + hop(s, to, first) + within + hop(s, last, to + 1);
        uint64_t turned = joined + hop(s, to, last) + turned_within + hop(s, first, to + 1);
        if (as_is >= before && turned >= before) continue;
        measure(s, move(s, first, last, to, turned < as_is) - 1);
        return true;
    }
    return false;
}

static bool or_opt(search *s)
{
    bool gained = false;
    for (int size = 1; size <= PIECE; size++)
        for (int first = 1; first + size <= s->n; first++) gained |= or_opt_from(s, first, first + size - 1);
    return gained;
}

rondo_result rd_tour_search(const uint64_t *cost, int n, int32_t *order)
{
    uint64_t *sums = calloc(2 * ((size_t)n + 1), sizeof *sums);
    if (!sums) return rd_fail(RONDO_SYSTEM_ERROR, "no memory to order %d ranks", n);
    search s = {.cost = cost, .n = n, .order = order, .forward = sums, .backward = sums + n + 1, .work = MOST_LOOKS};
    measure(&s, 0);
    for (bool gained = true; gained;) {
        gained = two_opt(&s);
        gained |= or_opt(&s);
    }
    free(sums);
    return RONDO_SUCCESS;
}
