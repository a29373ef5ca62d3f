/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan_peers.c - gather, scatter and all-to-all: every chunk leaves once, and arrives once, where it is expected.
 */
#include "rondo_plan.h"
#include "test.h"

#include <stdbool.h>

#define MOST 64

static rondo_plan plans[MOST];
static int arrived[MOST][MOST]; /* [rank][chunk] */

#define require(p, s, condition)                                                                                       \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            fail_msg("%s: collective %d, N %d, rank %d, root %d, step %d", #condition, (p)->collective, (p)->size,     \
                     (p)->rank, (p)->root, s);                                                                         \
    } while (0)

/* The one step in which the rank to which `from` sends receives from it. */
static rondo_step other_end(const rondo_plan *to, int32_t from)
{
    rondo_step found = {0};
    int times = 0;
    for (int32_t s = 0; s < to->steps; s++) {
        rondo_step t = rondo_plan_step(to, s);
        if (t.recv_from != from) continue;
        found = t;
        times++;
    }
    require(to, from, times == 1);
    return found;
}

/* Follows everything that the rank sends. Returns how many elements that is. */
static uint64_t follow(const rondo_plan *p)
{
    bool all = p->collective == RONDO_COLL_ALL_TO_ALL;
    bool met[MOST] = {false};
    uint64_t sent = 0;
    for (int32_t s = 0; s < p->steps; s++) {
        rondo_step t = rondo_plan_step(p, s);
        require(p, s, (t.send_to < 0) == (t.send_chunk < 0) && (t.recv_from < 0) == (t.recv_chunk < 0));
        if (t.recv_from >= 0) require(p, s, t.recv_own && !t.recv_wide && t.action == RONDO_REPLACE);
        if (all) require(p, s, t.recv_from == rondo_ring_rank(p, (int64_t)p->position - 1 - s));
        if (t.send_to < 0) continue;
        require(p, s, t.send_to < p->size && t.send_to != p->rank && t.send_own && !t.send_wide && !met[t.send_to]);
        met[t.send_to] = true;
        const rondo_plan *to = &plans[t.send_to];
        rondo_step there = other_end(to, p->rank);
        int32_t mine = p->collective == RONDO_COLL_GATHER ? p->rank : t.send_to;
        require(p, s, t.send_chunk == mine && there.recv_chunk == (all ? p->rank : mine));
        require(p, s, rondo_chunk(p, t.send_chunk).count == rondo_chunk(to, there.recv_chunk).count);
        arrived[t.send_to][there.recv_chunk]++;
        sent += rondo_chunk(p, t.send_chunk).count;
    }
    return sent;
}

static bool expects(const rondo_plan *p, int32_t chunk)
{
    if (p->collective == RONDO_COLL_ALL_TO_ALL) return chunk != p->rank; /* the own one stays at home */
    if (p->collective == RONDO_COLL_GATHER) return p->rank == p->root && chunk != p->rank;
    return p->rank != p->root && chunk == p->rank;
}

static void whole_world(rondo_collective collective, int32_t n, int32_t root, uint64_t count, const int32_t *order,
                        const uint64_t *bounds)
{
    uint64_t sent = 0, own = 0;
    memset(arrived, 0, sizeof arrived);
    for (int32_t r = 0; r < n; r++)
        assert_int_equal(rondo_plan_init(&plans[r], collective, RONDO_ALGO_PEERS, n, r, root, count, order, bounds, 1), 0);
    for (int32_t r = 0; r < n; r++) {
        const rondo_plan *p = &plans[r];
        bool whole = collective == RONDO_COLL_ALL_TO_ALL || r == root;
        assert_int_equal(p->steps, n == 1 ? 0 : whole ? n - 1 : 1);
        assert_int_equal(p->chunks, n);
        assert_int_equal(rondo_plan_opens(p), n > 1);
        if (n > 1) assert_int_equal(rondo_plan_opening(p).send_to, order[(p->position + 1) % n]);
        sent += follow(p);
        if (whole) own += rondo_chunk(p, r).count;
    }
    for (int32_t r = 0; r < n; r++)
        for (int32_t c = 0; c < n; c++)
            if (arrived[r][c] != expects(&plans[r], c))
                fail_msg("collective %d, N %d, root %d: chunk %d arrives %d times at rank %d", collective, n, root, c,
                         arrived[r][c], r);
    assert_int_equal(sent, count * (collective == RONDO_COLL_ALL_TO_ALL ? (uint64_t)n : 1) - own);
}

static void test_every_world_size(void **state)
{
    (void)state;
    for (int32_t n = 1; n <= MOST; n++) {
        int32_t order[MOST], stride = n % 7 ? 7 : 5; /* a ring that is not the ranks' order, where n allows one */
        uint64_t bounds[MOST + 1] = {0};
        for (int32_t at = 0; at < n; at++) {
            order[at] = n % stride ? at * stride % n : at;
            bounds[at + 1] = bounds[at] + (uint64_t)(at * at % 5); /* each its own count, some none */
        }
        for (int32_t root = 0; root < n; root += n < 10 ? 1 : 7) {
            whole_world(RONDO_COLL_GATHER, n, root, 3 * (uint64_t)n + 1, order, NULL);
            whole_world(RONDO_COLL_GATHER, n, root, bounds[n], order, bounds);
            whole_world(RONDO_COLL_SCATTER, n, root, bounds[n], order, bounds);
            whole_world(RONDO_COLL_SCATTER, n, root, (uint64_t)n / 2, order, NULL);
        }
        whole_world(RONDO_COLL_ALL_TO_ALL, n, 0, 3 * (uint64_t)n, order, NULL);
        rondo_plan p;
        if (n > 1)
            assert_int_equal(rondo_plan_init(&p, RONDO_COLL_ALL_TO_ALL, RONDO_ALGO_PEERS, n, 0, 0, 3 * (uint64_t)n + 1, NULL,
                                             NULL, 0), -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_world_size)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
