/* SPDX-License-Identifier: Apache-2.0
 *
 * test_ring_order.c - the ring: on machines described in words, and against brute force.
 */
#include "test.h"

#include "place_kit.h"
#include "ranks.h"

#include <time.h>

enum { MOST = 1024 };

static uint32_t *matrix_of(const rd_place *places, int n)
{
    uint32_t *cost = malloc((size_t)n * (size_t)n * sizeof *cost);
    assert_non_null(cost);
    for (int a = 0; a < n; a++)
        for (int b = 0; b < n; b++) cost[a * n + b] = cost_of(&places[a], &places[b]);
    return cost;
}

static void ring_of(const rd_place *places, int n, int32_t *order)
{
    uint32_t *cost = matrix_of(places, n);
    assert_int_equal(rd_ring_order(cost, n, order), RONDO_SUCCESS);
    free(cost);
}

static uint64_t length_of(const uint32_t *cost, int n, const int32_t *order)
{
    uint64_t sum = 0;
    for (int i = 0; i < n; i++) sum += cost[order[i] * n + order[(i + 1) % n]];
    return sum;
}

static void assert_ring(const int32_t *order, int n)
{
    bool seen[MOST] = {false};
    assert_int_equal(order[0], 0);
    for (int i = 0; i < n; i++) {
        assert_in_range(order[i], 0, n - 1);
        assert_false(seen[order[i]]);
        seen[order[i]] = true;
    }
}

/* How often the ring steps from one value of a field to another, closing step included. */
#define CHANGES(places, order, n, field) changes(places, order, n, offsetof(rd_place, field))
static int changes(const rd_place *places, const int32_t *order, int n, size_t field)
{
    int count = 0;
    for (int i = 0; i < n; i++) {
        int32_t from, to;
        memcpy(&from, (const char *)&places[order[i]] + field, sizeof from);
        memcpy(&to, (const char *)&places[order[(i + 1) % n]] + field, sizeof to);
        count += from != to;
    }
    return count;
}

/* ---- Rings on known machines --------------------------------------------------------------------------------- */

static void golden_rings(void **state)
{
    (void)state;
    static const struct {
        const char *description;
        int ranks;
        int pus[8];   /* of each rank */
        int hosts[8];
        int32_t ring[8];
    } cases[] = {
        /* round-robin over two packages */
        {"pack:2 core:4 pu:1", 8, {0, 4, 1, 5, 2, 6, 3, 7}, {0}, {0, 2, 4, 6, 1, 3, 5, 7}},
        /* the same where the memory is one */
        {"[numa] pack:2 core:4 pu:1", 8, {0, 4, 1, 5, 2, 6, 3, 7}, {0}, {0, 2, 4, 6, 1, 3, 5, 7}},
        /* SMT siblings, numbered as Linux does: first one of each core, then the others */
        {"pack:1 l3:2 core:2 pu:2", 8, {0, 2, 4, 6, 1, 3, 5, 7}, {0}, {0, 4, 1, 5, 2, 6, 3, 7}},
        /* four L3 caches of two cores, scattered */
        {"pack:2 l3:2 core:2 pu:1", 8, {0, 4, 2, 6, 1, 5, 3, 7}, {0}, {0, 4, 2, 6, 1, 5, 3, 7}},
        /* two hosts, interleaved, the same places on both */
        {"pack:2 core:2 pu:1", 8, {0, 0, 2, 2, 1, 1, 3, 3}, {0, 1, 0, 1, 0, 1, 0, 1}, {0, 4, 2, 6, 1, 5, 3, 7}},
        /* packed already: nothing to change */
        {"pack:2 numa:1 l3:2 core:2 pu:1", 8, {0, 1, 2, 3, 4, 5, 6, 7}, {0}, {0, 1, 2, 3, 4, 5, 6, 7}},
        /* three ranks: there is but one ring, and its direction is fixed by the lowest rank first */
        {"pack:3 pu:1", 3, {2, 1, 0}, {0}, {0, 1, 2}},
        {"pu:1", 1, {0}, {0}, {0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rd_machine *machine = machine_of(cases[i].description);
        rd_place places[8];
        int32_t order[8];
        for (int r = 0; r < cases[i].ranks; r++) {
            assert_int_equal(rd_place_of_pu(machine, cases[i].pus[r], &places[r]), RONDO_SUCCESS);
            places[r].host = cases[i].hosts[r];
        }
        ring_of(places, cases[i].ranks, order);
        for (int r = 0; r < cases[i].ranks; r++)
            if (order[r] != cases[i].ring[r])
                fail_msg("%s: position %d holds rank %d, not %d", cases[i].description, r, order[r], cases[i].ring[r]);
        rd_machine_free(machine);
    }
}

/* Every PU has a rank; ranks are dealt out like cards, over packages first, then over their caches and cores. */
static void scattered_ranks_come_together(void **state)
{
    (void)state;
    rd_machine *machine = machine_of("pack:2 numa:1 l3:2 core:4 pu:2");
    enum { RANKS = 32 };
    rd_place places[RANKS];
    int32_t order[RANKS];
    for (int r = 0; r < RANKS; r++) {
        int package = r % 2, l3 = r / 2 % 2, core = r / 4 % 4, pu = r / 16;
        assert_int_equal(rd_place_of_pu(machine, package * 16 + l3 * 8 + core * 2 + pu, &places[r]), RONDO_SUCCESS);
    }
    ring_of(places, RANKS, order);
    assert_ring(order, RANKS);
    assert_int_equal(CHANGES(places, order, RANKS, package), 2);
    assert_int_equal(CHANGES(places, order, RANKS, l3), 4);
    assert_int_equal(CHANGES(places, order, RANKS, core), 16); /* siblings stand side by side */
    rd_machine_free(machine);
}

static void hosts_stay_together(void **state)
{
    (void)state;
    enum { HOSTS = 5, RANKS = 80 };
    rd_machine *machine = machine_of("pack:2 l3:2 core:2 pu:2");
    rd_place places[RANKS];
    int32_t order[RANKS];
    random_state = 3;
    for (int round = 0; round < 50; round++) {
        for (int r = 0; r < RANKS; r++) {
            places[r] = random_place(machine, 16, 1);
            places[r].host = r % HOSTS;
        }
        ring_of(places, RANKS, order);
        assert_ring(order, RANKS);
        assert_int_equal(CHANGES(places, order, RANKS, host), HOSTS);
    }
    rd_machine_free(machine);
}

static void unbound_ranks_keep_their_order(void **state)
{
    (void)state;
    enum { RANKS = 64 };
    rd_place places[RANKS];
    int32_t order[RANKS];
    for (int r = 0; r < RANKS; r++) places[r] = (rd_place){0, -1, -1, -1, -1, -1, 64, 0, 63};
    ring_of(places, RANKS, order);
    for (int r = 0; r < RANKS; r++) assert_int_equal(order[r], r);
}

/* ---- The order itself ---------------------------------------------------------------------------------------- */

static uint64_t shortest(const uint32_t *cost, int n, int32_t *order, int position)
{
    if (position == n) return length_of(cost, n, order);
    uint64_t best = UINT64_MAX;
    for (int i = position; i < n; i++) {
        int32_t a = order[position], b = order[i];
        order[position] = b, order[i] = a;
        uint64_t length = shortest(cost, n, order, position + 1);
        if (length < best) best = length;
        order[position] = a, order[i] = b;
    }
    return best;
}

static uint64_t brute_force(const uint32_t *cost, int n)
{
    int32_t order[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    return shortest(cost, n, order, 1);
}

static void costs_by_place_give_the_shortest_ring(void **state)
{
    (void)state;
    rd_machine *machine = machine_of("pack:2 numa:2 l3:2 l2:2 core:2 pu:2");
    random_state = 11;
    for (int round = 0; round < 150; round++) {
        int n = 1 + round % 8;
        rd_place places[8];
        int32_t order[8];
        for (int r = 0; r < n; r++) places[r] = random_place(machine, 64, 1 + round % 3);
        uint32_t *cost = matrix_of(places, n);
        assert_int_equal(rd_ring_order(cost, n, order), RONDO_SUCCESS);
        assert_ring(order, n);
        assert_int_equal(length_of(cost, n, order), brute_force(cost, n));
        free(cost);
    }
    rd_machine_free(machine);
}

/* Without any structure, and with directions that cost differently: still the shortest. */
static void random_costs_give_the_shortest_ring(void **state)
{
    (void)state;
    random_state = 5;
    for (int round = 0; round < 800; round++) {
        int n = 2 + round % 7;
        bool symmetric = round % 2;
        uint32_t cost[64], most = round % 3 ? 1000 : 3; /* few values: many rings are equally short */
        int32_t order[8];
        for (int a = 0; a < n; a++)
            for (int b = 0; b < n; b++)
                cost[a * n + b] = symmetric && b < a ? cost[b * n + a] : a == b ? 0 : 1 + random_below(most);
        assert_int_equal(rd_ring_order(cost, n, order), RONDO_SUCCESS);
        assert_ring(order, n);
        assert_int_equal(length_of(cost, n, order), brute_force(cost, n));
    }
}

/* A way that does not come back: (what its ends cost, its length) by brute force, and the order that goes to the nearest
 * first and to the lowest of equals. */
typedef struct best_way {
    uint64_t ends, length;
    int32_t order[8];
} best_way;

static bool is_better(const best_way *a, const best_way *b, const uint32_t *cost, int n, const uint32_t *begin)
{
    if (a->ends != b->ends) return a->ends < b->ends;
    if (a->length != b->length) return a->length < b->length;
    for (int i = 0; i < n; i++) {
        uint32_t x = i ? cost[a->order[i - 1] * n + a->order[i]] : begin[a->order[i]];
        uint32_t y = i ? cost[b->order[i - 1] * n + b->order[i]] : begin[b->order[i]];
        if (x != y) return x < y;
        if (a->order[i] != b->order[i]) return a->order[i] < b->order[i];
    }
    return false;
}

static void try_ways(const uint32_t *cost, int n, const uint32_t *begin, const uint32_t *end, best_way *now, int position,
                     best_way *best)
{
    if (position == n) {
        now->ends = (uint64_t)begin[now->order[0]] + end[now->order[n - 1]];
        now->length = 0;
        for (int i = 0; i + 1 < n; i++) now->length += cost[now->order[i] * n + now->order[i + 1]];
        if (is_better(now, best, cost, n, begin)) *best = *now;
        return;
    }
    for (int i = position; i < n; i++) {
        int32_t a = now->order[position], b = now->order[i];
        now->order[position] = b, now->order[i] = a;
        try_ways(cost, n, begin, end, now, position + 1, best);
        now->order[position] = a, now->order[i] = b;
    }
}

static void ways_begin_and_end_where_it_is_nearest(void **state)
{
    (void)state;
    random_state = 21;
    for (int round = 0; round < 300; round++) {
        int n = 1 + round % 7;
        uint32_t cost[64], begin[8], end[8], most = round % 2 ? 1000 : 4;
        int32_t order[8];
        best_way now = {.order = {0, 1, 2, 3, 4, 5, 6, 7}}, best = {.ends = UINT64_MAX};
        for (int a = 0; a < n; a++) {
            begin[a] = 7 + random_below(round % 3 ? 3 : 1);
            end[a] = round % 5 ? begin[a] : random_below(most);
            for (int b = 0; b < n; b++) cost[a * n + b] = 1 + random_below(most);
        }
        assert_int_equal(rd_path_order(cost, n, begin, end, order), RONDO_SUCCESS);
        try_ways(cost, n, begin, end, &now, 0, &best);
        if (memcmp(order, best.order, (size_t)n * sizeof *order)) fail_msg("round %d, %d ranks", round, n);
    }
}

/* Beyond 16 ranks the search does it: here up to 16, beside the shortest. */
static void the_search_comes_near_the_shortest(void **state)
{
    (void)state;
    enum { TRIALS = 40, N = 13 };
    random_state = 17;
    for (int symmetric = 1; symmetric >= 0; symmetric--) {
        double excess = 0;
        for (int round = 0; round < TRIALS; round++) {
            uint64_t cost[N * N], sum = 0, least = 0;
            int32_t order[N], exact[N];
            for (int a = 0; a < N; a++)
                for (int b = 0; b < N; b++)
                    cost[a * N + b] = symmetric && b < a ? cost[b * N + a] : a == b ? 0 : 1 + random_below(1000);
            for (int i = 0; i < N; i++) order[i] = i;
            assert_int_equal(rd_tour_search(cost, N, order), RONDO_SUCCESS);
            assert_int_equal(rd_tour_exact(cost, N, exact), RONDO_SUCCESS);
            assert_ring(order, N);
            for (int i = 0; i < N; i++) {
                sum += cost[order[i] * N + order[(i + 1) % N]];
                least += cost[exact[i] * N + exact[(i + 1) % N]];
            }
            assert_true(sum >= least);
            excess += (double)sum / (double)least - 1;
        }
        print_message("%s: the search's rings are %.1f %% longer than the shortest\n",
                      symmetric ? "symmetric" : "asymmetric", 100 * excess / TRIALS);
        assert_true(excess / TRIALS < (symmetric ? 0.1 : 0.35));
    }
}

/* Of this thread alone: the tests share the machine. */
static int64_t work_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void thousand_ranks_in_under_a_second(void **state)
{
    (void)state;
    rd_machine *machine = machine_of("pack:2 numa:4 l3:2 core:4 pu:2");
    rd_place *places = malloc(MOST * sizeof *places);
    assert_non_null(places);
    for (int r = 0; r < MOST; r++) {
        assert_int_equal(rd_place_of_pu(machine, r * 37 % 128, &places[r]), RONDO_SUCCESS);
        places[r].host = r % 8;
    }
    uint32_t *cost = matrix_of(places, MOST);
    int32_t order[MOST], again[MOST];
    random_state = 9;
    for (int structured = 1; structured >= 0; structured--) {
        int64_t start = work_time();
        assert_int_equal(rd_ring_order(cost, MOST, order), RONDO_SUCCESS);
        int64_t took = work_time() - start;
        print_message("%d ranks, %s costs: %.1f ms\n", MOST, structured ? "a machine's" : "random", (double)took / 1e6);
        assert_true(took < (int64_t)(1000000000 * test_slowness()));
        assert_ring(order, MOST);
        assert_int_equal(rd_ring_order(cost, MOST, again), RONDO_SUCCESS);
        assert_memory_equal(order, again, sizeof order);
        if (structured) assert_int_equal(CHANGES(places, order, MOST, host), 8);
        for (int a = 0; a < MOST; a++)
            for (int b = 0; b < MOST; b++)
                cost[a * MOST + b] = b < a ? cost[b * MOST + a] : 1 + random_below(1000000);
    }
    free(cost);
    free(places);
    rd_machine_free(machine);
}

static void large_costs_do_not_overflow(void **state)
{
    (void)state;
    enum { N = 6 };
    uint32_t cost[N * N];
    int32_t order[N];
    for (int i = 0; i < N * N; i++) cost[i] = UINT32_MAX;
    for (int i = 0; i < N; i += 2) cost[i * N + (i + 4) % N] = cost[(i + 4) % N * N + i] = UINT32_MAX - 1;
    assert_int_equal(rd_ring_order(cost, N, order), RONDO_SUCCESS);
    assert_ring(order, N);
    assert_int_equal(length_of(cost, N, order), brute_force(cost, N));
}

static void no_ranks_are_refused(void **state)
{
    (void)state;
    uint32_t cost = 0;
    int32_t order = 77;
    for (int n = -1; n <= 0; n++) {
        assert_int_equal(rd_ring_order(&cost, n, &order), RONDO_INVALID_ARGUMENT);
        assert_int_equal(order, 77);
    }
    assert_int_equal(rd_ring_order(&cost, 1, &order), RONDO_SUCCESS);
    assert_int_equal(order, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_rings),
        cmocka_unit_test(scattered_ranks_come_together),
        cmocka_unit_test(hosts_stay_together),
        cmocka_unit_test(unbound_ranks_keep_their_order),
        cmocka_unit_test(costs_by_place_give_the_shortest_ring),
        cmocka_unit_test(random_costs_give_the_shortest_ring),
        cmocka_unit_test(ways_begin_and_end_where_it_is_nearest),
        cmocka_unit_test(the_search_comes_near_the_shortest),
        cmocka_unit_test(thousand_ranks_in_under_a_second),
        cmocka_unit_test(large_costs_do_not_overflow),
        cmocka_unit_test(no_ranks_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
