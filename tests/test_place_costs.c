/* SPDX-License-Identifier: Apache-2.0
 *
 * test_place_costs.c - what hops cost by the places of their ranks, and which ranks are crowded.
 */
#include "test.h"

#include "place_kit.h"

/* ---- Costs --------------------------------------------------------------------------------------------------- */

static void costs_grow_with_the_distance(void **state)
{
    (void)state;
    enum { COUNT = 8 };
    /* The first against each of the others, from near to far. */
    static const rd_place places[COUNT] = {
        {0, 0, 0, 0, 0, 0, 1, 0, 0},    {0, 0, 0, 0, 0, 0, 1, 1, 1}, {0, 0, 0, 0, 0, 1, 1, 2, 2},
        {0, 0, 0, 0, 1, 2, 1, 4, 4},    {0, 0, 0, 1, 2, 4, 1, 8, 8}, {0, 0, 1, 2, 4, 8, 1, 16, 16},
        {0, 1, 2, 4, 8, 16, 1, 32, 32}, {1, 0, 0, 0, 0, 0, 1, 0, 0},
    };
    for (int i = 2; i < COUNT; i++) assert_true(cost_of(&places[0], &places[i]) > cost_of(&places[0], &places[i - 1]));
    assert_true(cost_of(&places[0], &places[7]) > 5 * cost_of(&places[0], &places[6])); /* hosts dominate */
    for (int i = 0; i < COUNT; i++)
        for (int j = 0; j < COUNT; j++)
            assert_int_equal(cost_of(&places[i], &places[j]), cost_of(&places[j], &places[i]));
}

static void an_unbound_rank_shares_only_what_is_certain(void **state)
{
    (void)state;
    static const rd_place core = {0, 0, 0, 0, 0, 0, 1, 0, 0}, other_l3 = {0, 0, 0, 1, 1, 1, 1, 4, 4},
                          other_package = {0, 1, 1, 2, 2, 2, 1, 8, 8}, same_package = {0, 0, -1, -1, -1, -1, 8, 0, 7},
                          unbound = {0, -1, -1, -1, -1, -1, 16, 0, 15},
                          far_unbound = {1, -1, -1, -1, -1, -1, 16, 0, 15};
    uint32_t sockets = cost_of(&core, &other_package), hosts = cost_of(&core, &far_unbound);
    assert_int_equal(cost_of(&core, &unbound), sockets);
    assert_int_equal(cost_of(&unbound, &unbound), sockets);
    assert_int_equal(cost_of(&unbound, &far_unbound), hosts);
    assert_true(cost_of(&core, &same_package) < sockets);
    assert_true(cost_of(&core, &same_package) >= cost_of(&core, &other_l3));
}

static void memory_over_both_packages_does_not_join_them(void **state)
{
    (void)state;
    rd_machine *machine = machine_of("[numa] pack:2 core:2 pu:1");
    rd_place a, b, c;
    rd_place_of_pu(machine, 0, &a);
    rd_place_of_pu(machine, 1, &b);
    rd_place_of_pu(machine, 2, &c);
    assert_true(cost_of(&a, &b) < cost_of(&b, &c));
    rd_machine_free(machine);
}

static void costs_are_ultrametric(void **state)
{
    (void)state;
    rd_machine *machine = machine_of("pack:2 numa:2 l3:2 l2:2 core:2 pu:2");
    random_state = 7;
    for (int i = 0; i < 20000; i++) {
        rd_place x = random_place(machine, 64, 2), y = random_place(machine, 64, 2), z = random_place(machine, 64, 2);
        uint32_t xy = cost_of(&x, &y), yz = cost_of(&y, &z), xz = cost_of(&x, &z);
        assert_true(xz <= (xy > yz ? xy : yz));
    }
    rd_machine_free(machine);
}

/* ---- Crowds --------------------------------------------------------------------------------------------------- */

static rd_place bound_to(int host, int first, int last)
{
    return (rd_place){host, -1, -1, -1, -1, -1, last - first + 1, first, last};
}

static void crowded_is_more_ranks_than_units(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        int ranks, bindings[5][2];
        bool crowded;
    } cases[] = {
        {"unbound, a unit each", 2, {{0, 1}, {0, 1}}, false},
        {"unbound, one too many", 3, {{0, 1}, {0, 1}, {0, 1}}, true},
        {"bound to a unit each", 2, {{0, 0}, {1, 1}}, false},
        {"bound to the same unit", 2, {{1, 1}, {1, 1}}, true},
        {"two units each, apart", 4, {{0, 1}, {2, 3}, {4, 5}, {6, 7}}, false},
        {"one bound, the others free", 4, {{2, 2}, {0, 3}, {0, 3}, {0, 3}}, false},
        {"a crowd in one corner", 4, {{0, 7}, {4, 5}, {4, 4}, {5, 5}}, true},
        {"a crowd in the whole only", 5, {{0, 3}, {0, 0}, {1, 1}, {2, 2}, {3, 3}}, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rd_place places[6];
        int n = cases[i].ranks;
        for (int r = 0; r < n; r++) places[r] = bound_to(3, cases[i].bindings[r][0], cases[i].bindings[r][1]);
        places[n] = bound_to(4, cases[i].bindings[0][0], cases[i].bindings[0][1]); /* another host's do not count */
        if (rd_crowded(places, n + 1, 3) != cases[i].crowded) fail_msg("%s", cases[i].what);
        assert_false(rd_crowded(places, n + 1, 4));
    }
    rd_place holes = {0, -1, -1, -1, -1, -1, 2, 0, 7}; /* two units of eight */
    rd_place three[3] = {holes, holes, holes};
    assert_false(rd_crowded(three, 2, 0));
    assert_true(rd_crowded(three, 3, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(costs_grow_with_the_distance),
        cmocka_unit_test(an_unbound_rank_shares_only_what_is_certain),
        cmocka_unit_test(memory_over_both_packages_does_not_join_them),
        cmocka_unit_test(costs_are_ultrametric),
        cmocka_unit_test(crowded_is_more_ranks_than_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
