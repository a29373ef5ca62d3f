/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan_hier.c - the hierarchical schedule, carried out on lists of ranks: for every shape of hosts and ranks up to
 * 64 every chunk ends everywhere, as the sum of all terms, each once and in the documented order; and what crosses the
 * network is what the header says.
 */
#include "rondo_plan.h"
#include "test.h"

#include <stdbool.h>
#include <stdio.h>

enum { MOST = 64 };

/* A sum: which ranks' terms, in which order; of how many hosts' sums it is made up, 0: one rank's input. */
typedef struct value {
    int8_t terms, joined;
    bool complete, wide;
    int8_t rank[MOST];
} value;

static value held[MOST][MOST]; /* [rank][chunk] */
static struct {
    value chunk[MOST];
    int32_t first, count;
} out[MOST]; /* what the rank sends in this step */
static rondo_plan plans[MOST];

#define require(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition)) fail_msg("%s: %d hosts of %d ranks, rank %d, step %d", #condition, hosts, local, r, s);      \
    } while (0)

static value own(int32_t r)
{
    value v = {.terms = 1};
    v.rank[0] = (int8_t)r;
    return v;
}

static value added(value left, value right)
{
    for (int i = 0; i < right.terms; i++) left.rank[left.terms++] = right.rank[i];
    return left;
}

/* The chunks that a chunk's number stands for: itself, or those of a piece. */
static void chunks_of(const rondo_plan *p, int32_t c, int32_t *first, int32_t *count)
{
    int32_t hosts = p->size / p->local;
    *first = c < p->chunks ? c : (c - p->chunks) * hosts;
    *count = c < p->chunks ? 1 : hosts;
}

static void step_all(int32_t hosts, int32_t local, int32_t s, uint64_t crossed[])
{
    int32_t n = hosts * local;
    rondo_step t[MOST];
    for (int32_t r = 0; r < n; r++) {
        t[r] = rondo_plan_step(&plans[r], s);
        require(t[r].send_to >= 0 && t[r].send_to < n && t[r].send_to != r);
        chunks_of(&plans[r], t[r].send_chunk, &out[r].first, &out[r].count);
        for (int32_t k = 0; k < out[r].count; k++) {
            value v = t[r].send_own ? own(r) : held[r][out[r].first + k];
            require(v.terms > 0);
            require(t[r].send_wide == (plans[r].wide && v.terms > 1 && !v.complete));
            out[r].chunk[k] = v;
        }
        int32_t to = plans[t[r].send_to].position;
        if (to / local != plans[r].position / local) {
            require(to % local == plans[r].position % local); /* rails */
            crossed[plans[r].position / local] += rondo_chunk(&plans[r], t[r].send_chunk).count;
        }
    }
    for (int32_t r = 0; r < n; r++) {
        int32_t from = t[r].recv_from, first, count;
        require(from >= 0 && from < n && t[from].send_to == r && t[from].send_chunk == t[r].recv_chunk);
        require(t[from].send_own == t[r].recv_own && t[from].send_wide == t[r].recv_wide);
        chunks_of(&plans[r], t[r].recv_chunk, &first, &count);
        for (int32_t k = 0; k < count; k++) {
            value in = out[from].chunk[k], *here = &held[r][first + k];
            if (t[r].action == RONDO_REPLACE) {
                require(in.complete);
                *here = in;
                continue;
            }
            require(t[r].held == (here->terms > 0)); /* its own input goes in once, then what there is of it */
            *here = added(in, t[r].held ? *here : own(r));
            here->complete = t[r].action == RONDO_FINISH;
            require(here->complete == (here->terms == n));
        }
    }
}

/* What a chunk's sum must be. */
static value documented(const int32_t *order, int32_t hosts, int32_t local, int32_t chunk)
{
    value v = {.complete = true};
    int32_t i = chunk / hosts, h = chunk % hosts;
    for (int32_t host = 1; host <= hosts; host++)
        for (int32_t k = 1; k <= local; k++) {
            int32_t at = (h + host) % hosts * local + (i + k) % local;
            v.rank[v.terms++] = (int8_t)(order ? order[at] : at);
        }
    return v;
}

static void simulate(int32_t hosts, int32_t local, const int32_t *order, int wide)
{
    int32_t n = hosts * local, r = 0, s = -1;
    uint64_t crossed[MOST] = {0};
    memset(held, 0, sizeof held);
    for (r = 0; r < n; r++) {
        assert_int_equal(rondo_plan_init_hier(&plans[r], n, r, local, 3 * (uint64_t)n, order, wide), 0);
        require(plans[r].steps == 2 * (local - 1) + 2 * (hosts - 1));
        require(rondo_plan_opens(&plans[r]) == (n > 1));
    }
    for (s = 0; s < plans[0].steps; s++) step_all(hosts, local, s, crossed);
    for (r = 0; r < n; r++)
        for (int32_t c = 0; c < n && n > 1; c++) {
            value want = documented(order, hosts, local, c);
            require(held[r][c].complete && held[r][c].terms == n && !memcmp(held[r][c].rank, want.rank, (size_t)n));
        }
    for (int32_t h = 0; h < hosts; h++) assert_int_equal(crossed[h], 2 * ((uint64_t)hosts - 1) * 3 * (uint64_t)local);
}

static void every_shape(void **state)
{
    (void)state;
    int32_t order[MOST];
    uint32_t seed = 7;
    for (int32_t hosts = 1; hosts <= MOST; hosts++)
        for (int32_t local = 1; hosts * local <= MOST; local++) {
            for (int32_t i = 0; i < hosts * local; i++) {
                int32_t j = (int32_t)((seed = seed * 1664525 + 1013904223) >> 8) % (i + 1);
                order[i] = order[j];
                order[j] = i;
            }
            simulate(hosts, local, NULL, 0);
            simulate(hosts, local, order, 1);
        }
}

/* Chunks cover the message once, in order, and pieces are their chunks. */
static void chunks_and_segments(void **state)
{
    (void)state;
    static const uint64_t counts[] = {0, 1, 5, 6, 7, 1000003, (uint64_t)RONDO_SEGMENT * 6, (1ull << 33) + 7};
    rondo_plan p;
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        uint64_t at = 0, segments = rondo_segments(counts[k], 6);
        assert_int_equal(rondo_plan_init_hier(&p, 6, 4, 2, counts[k], NULL, 0), 0);
        for (int32_t c = 0; c < 6; c++) {
            rondo_range chunk = rondo_chunk(&p, c), piece = rondo_chunk(&p, 6 + c / 3);
            assert_int_equal(chunk.first, at);
            if (c % 3 == 0) assert_int_equal(piece.first, at);
            at += chunk.count;
            if (c % 3 == 2) assert_int_equal(piece.first + piece.count, at);
        }
        assert_int_equal(at, counts[k]);
        at = 0;
        for (uint64_t g = 0; g < segments; g++) {
            rondo_range segment = rondo_segment(counts[k], 6, g);
            assert_int_equal(segment.first, at);
            assert_true(segment.count <= (uint64_t)RONDO_SEGMENT * 6 && (segment.count > 0 || counts[k] == 0));
            at += segment.count;
        }
        assert_int_equal(at, counts[k]);
    }
}

static void refused(void **state)
{
    (void)state;
    rondo_plan p;
    static const int32_t none[] = {0, 1, 2, 9};
    assert_int_equal(rondo_plan_init_hier(&p, 6, 0, 4, 10, NULL, 0), -1);
    assert_int_equal(rondo_plan_init_hier(&p, 6, 0, 0, 10, NULL, 0), -1);
    assert_int_equal(rondo_plan_init_hier(&p, 0, 0, 1, 10, NULL, 0), -1);
    assert_int_equal(rondo_plan_init_hier(&p, 6, 6, 2, 10, NULL, 0), -1);
    assert_int_equal(rondo_plan_init_hier(&p, 4, 0, 2, 10, none, 0), -1);
    assert_int_equal(rondo_plan_init(&p, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_HIER, 4, 0, 0, 10, NULL, NULL, 0), -1);
    assert_int_equal(rondo_algo_fits(RONDO_COLL_REDUCE_SCATTER, RONDO_ALGO_HIER), 0);
}

/* The table in the header, number by number. */
static void the_worked_example(void **state)
{
    (void)state;
    static const int sent[4][4][2] = {{{3, 4}, {10, 20}, {300, 400}, {1000, 2000}},
                                      {{22, -1}, {44, -1}, {1100, -1}, {3300, -1}},
                                      {{1111, -1}, {3333, -1}, {2222, -1}, {4444, -1}},
                                      {{1111, 2222}, {3333, 4444}, {1111, 2222}, {3333, 4444}}};
    int input[4][4], sum[4][4] = {{0}}, moved[4][2];
    for (int r = 0, digit = 1; r < 4; r++, digit *= 10)
        for (int c = 0; c < 4; c++) input[r][c] = digit * (c + 1);
    for (int r = 0; r < 4; r++) assert_int_equal(rondo_plan_init_hier(&plans[r], 4, r, 2, 4, NULL, 0), 0);
    for (int s = 0; s < 4; s++) {
        int32_t first, count;
        for (int r = 0; r < 4; r++) {
            rondo_step t = rondo_plan_step(&plans[r], s);
            chunks_of(&plans[r], t.send_chunk, &first, &count);
            moved[r][1] = -1;
            for (int k = 0; k < count; k++) moved[r][k] = (t.send_own ? input : sum)[r][first + k];
            assert_memory_equal(moved[r], sent[s][r], sizeof moved[r]);
        }
        for (int r = 0; r < 4; r++) {
            rondo_step t = rondo_plan_step(&plans[r], s);
            chunks_of(&plans[r], t.recv_chunk, &first, &count);
            for (int k = 0; k < count; k++)
                sum[r][first + k] =
                    moved[t.recv_from][k] + (t.action == RONDO_REPLACE ? 0 : (t.held ? sum : input)[r][first + k]);
        }
    }
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 4; c++) assert_int_equal(sum[r][c], 1111 * (c + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_worked_example),
        cmocka_unit_test(every_shape),
        cmocka_unit_test(chunks_and_segments),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
