/* SPDX-License-Identifier: Apache-2.0
 *
 * Rings from what ranks tell: hosts, network cards, channels. Machines with GPUs are in test_topo_machines.c.
 */
#include "test.h"

#include "base/status.h"
#include "topo/nics.h"

#include <time.h>

enum { MOST = 1024 };

static rd_place bound_to(int host, int package, int core)
{
    return (rd_place){.host = host,
                      .package = package,
                      .numa = package,
                      .l3 = package,
                      .l2 = core,
                      .core = core,
                      .pus = 1,
                      .first_pu = core,
                      .last_pu = core};
}

static rd_nic card(const char *name, uint32_t mbit, uint64_t network, rd_link_kind near)
{
    rd_nic nic = {.mbit = mbit, .up = 1, .networks = {network}, .link = rd_link_of(near)};
    snprintf(nic.name, sizeof nic.name, "%s", name);
    return nic;
}

static rondo_result rings_of(rd_rings *rings, const rd_place *places, const rd_around *around, int ranks, int channels)
{
    return rd_rings_make(rings, &(rd_told){.ranks = ranks, .places = places, .around = around}, channels);
}

/* Every rank once in every ring, each host in one stretch, and each hop from where the last one went to. */
static void assert_rings(const rd_rings *rings, const rd_place *places)
{
    for (int c = 0; c < rings->channels; c++) {
        const rd_hop *hops = rings->hops + c * rings->ranks;
        bool seen[MOST] = {false};
        int changes = 0;
        assert_int_equal(hops[0].from, 0);
        for (int i = 0; i < rings->ranks; i++) {
            assert_in_range(hops[i].from, 0, rings->ranks - 1);
            assert_false(seen[hops[i].from]);
            seen[hops[i].from] = true;
            assert_int_equal(hops[i].to, hops[(i + 1) % rings->ranks].from);
            bool leaves = places[hops[i].from].host != places[hops[i].to].host;
            changes += leaves;
            if (!leaves) assert_true(hops[i].nic == -1 && hops[i].nic_there == -1);
        }
        assert_int_equal(changes, rings->hosts == 1 ? 0 : rings->hosts);
    }
}

/* The hop by which the ring leaves a host. */
static const rd_hop *leaving(const rd_rings *rings, int channel, const rd_place *places, int host)
{
    for (int i = 0; i < rings->ranks; i++) {
        const rd_hop *hop = &rings->hops[channel * rings->ranks + i];
        if (places[hop->from].host == host && places[hop->to].host != host) return hop;
    }
    fail_msg("the ring never leaves host %d", host);
    return NULL;
}

static void without_devices_it_is_the_order_of_places(void **state)
{
    (void)state;
    rd_place places[8];
    rd_rings rings;
    static const int32_t expected[8] = {0, 4, 2, 6, 1, 5, 3, 7};
    for (int r = 0; r < 8; r++) places[r] = bound_to(r % 2, r / 2 % 2, r / 2 % 2 * 2 + r / 4);
    assert_int_equal(rings_of(&rings, places, NULL, 8, 0), RONDO_SUCCESS);
    assert_int_equal(rings.channels, 1);
    assert_rings(&rings, places);
    for (int i = 0; i < 8; i++) assert_int_equal(rings.hops[i].from, expected[i]);
    assert_int_equal(rings.hops[0].link.kind, RD_LINK_L3);
    assert_int_equal(rings.hops[1].link.kind, RD_LINK_HOST);
    assert_int_equal(rings.hops[3].link.kind, RD_LINK_NETWORK);
    assert_int_equal(rd_rings_slowest(&rings, 0)->link.kind, RD_LINK_NETWORK);
    rd_rings_free(&rings);
    assert_int_equal(rings_of(&rings, places, NULL, 1, 0), RONDO_SUCCESS);
    assert_null(rd_rings_slowest(&rings, 0));
    rd_rings_free(&rings);
}

/* ... unless they shall go by rank: past what is nearer, with the cards of each channel where every host is one stretch of
 * ranks, and without where the ring comes back to a host. */
static void by_rank_it_is_the_order_of_ranks(void **state)
{
    (void)state;
    enum { N = 10 }; /* on five hosts, of which an order of their own would be sought */
    rd_place places[N];
    static rd_around around[N];
    rd_rings rings;
    for (int scattered = 0; scattered < 2; scattered++) {
        for (int r = 0; r < N; r++) {
            int host = scattered ? r % 5 : r / 2;
            places[r] = bound_to(host, r % 2, r);
            around[r] = (rd_around){.gpu = RD_NO_GPU, .nics = 2};
            for (int k = 0; k < 2; k++)
                around[r].nic[k] = card(k ? "eth1" : "eth0", host % 2 ? 25000 : 10000, 100 + (uint64_t)k, RD_LINK_PCI_HOST);
        }
        rd_told told = {.ranks = N, .places = places, .around = around, .by_rank = true};
        assert_int_equal(rd_rings_make(&rings, &told, 2), RONDO_SUCCESS);
        for (int i = 0; i < 2 * N; i++) {
            const rd_hop *hop = &rings.hops[i];
            assert_int_equal(hop->from, i % N);
            assert_int_equal(hop->to, (i + 1) % N);
            bool leaves = places[hop->from].host != places[hop->to].host;
            assert_int_equal(hop->nic, leaves && !scattered ? i / N : -1);
        }
        rd_rings_free(&rings);
    }
    for (int r = 0; r < 8; r++) places[r] = bound_to(0, r % 2, r);
    assert_int_equal(rd_rings_make(&rings, &(rd_told){.ranks = 8, .places = places, .by_rank = true}, 0), RONDO_SUCCESS);
    for (int i = 0; i < 8; i++) assert_int_equal(rings.hops[i].from, i);
    rd_rings_free(&rings);
}

/* Two cards a host, one at each package. Each ring enters and leaves by its own, beside the rank that is near it. */
static void each_ring_has_its_rail(void **state)
{
    (void)state;
    enum { HOSTS = 4, EACH = 4, N = HOSTS * EACH };
    rd_place places[N];
    static rd_around around[N];
    rd_rings rings;
    for (int r = 0; r < N; r++) {
        int package = r % EACH % 2;
        places[r] = bound_to(r / EACH, package, r % EACH);
        around[r] = (rd_around){.gpu = RD_NO_GPU, .nics = 2};
        for (int k = 0; k < 2; k++)
            around[r].nic[k] =
                card(k ? "eth1" : "eth0", 25000, 0, k == package ? RD_LINK_PCI_BRIDGE : RD_LINK_PCI_HOST);
    }
    for (int apart = 0; apart < 2; apart++) { /* one network for all cards; then one for each rail */
        for (int r = 0; r < N && apart; r++)
            for (int k = 0; k < 2; k++) around[r].nic[k].networks[0] = 100 + (uint64_t)k;
        assert_int_equal(rings_of(&rings, places, around, N, 0), RONDO_SUCCESS);
        assert_int_equal(rings.channels, 2);
        assert_rings(&rings, places);
        for (int c = 0; c < 2; c++) {
            for (int h = 0; h < HOSTS; h++) {
                const rd_hop *hop = leaving(&rings, c, places, h);
                assert_int_equal(hop->nic, c);
                assert_int_equal(hop->nic_there, c);
                assert_int_equal(places[hop->from].package, c);
                assert_int_equal(places[hop->to].package, c);
                assert_int_equal(hop->link.mbs, 25000 / 8);
            }
        }
        rd_rings_free(&rings);
    }
}

/* Cards that are down, slow, or on networks that the next host lacks. */
static void cards_that_do_not_serve_are_left_out(void **state)
{
    (void)state;
    rd_place places[3];
    static rd_around around[3];
    rd_rings rings;
    for (int r = 0; r < 3; r++) {
        places[r] = bound_to(r, 0, 0);
        around[r] = (rd_around){.gpu = RD_NO_GPU, .nics = 4};
        around[r].nic[0] = card("eth0", 1000, 1, RD_LINK_PCI_BRIDGE);                /* slow, on all */
        around[r].nic[1] = card("eth1", 100000, 2, RD_LINK_PCI_BRIDGE);              /* fast, */
        around[r].nic[1].up = r != 2;                                                /* but down on the third host */
        around[r].nic[2] = card("eth2", 50000, 3 + (uint64_t)r, RD_LINK_PCI_BRIDGE); /* each on its own */
        around[r].nic[3] = card("eth3", 25000, 9, RD_LINK_PCI_BRIDGE);
    }
    around[2].nic[3] = card("eth3", 25000, 77, RD_LINK_PCI_BRIDGE); /* one network more on the third */
    around[2].nic[3].networks[1] = 9;
    assert_int_equal(rings_of(&rings, places, around, 3, 0), RONDO_SUCCESS);
    assert_int_equal(rings.channels, 1);
    assert_rings(&rings, places);
    const rd_hop *first = leaving(&rings, 0, places, 0), *second = leaving(&rings, 0, places, 1);
    assert_true(first->nic == 1 && first->nic_there == 1);
    assert_true(second->nic == 3 && second->nic_there == 3);
    rd_rings_free(&rings);
    /* No network in common: the rank knows no card, and the ring is there all the same. */
    for (int k = 0; k < 4; k++) around[1].nic[k].networks[0] = 1000 + (uint64_t)k;
    assert_int_equal(rings_of(&rings, places, around, 3, 2), RONDO_SUCCESS);
    assert_int_equal(rings.channels, 2);
    assert_int_equal(leaving(&rings, 1, places, 0)->nic, -1);
    assert_int_equal(leaving(&rings, 1, places, 0)->link.kind, RD_LINK_NETWORK);
    rd_rings_free(&rings);
}

/* One ring has one card: of equal ones that which some rank is near to. More rings take the others as well. */
static void one_ring_takes_the_nearest_of_equal_cards(void **state)
{
    (void)state;
    rd_place places[2];
    static rd_around around[2];
    rd_rings rings;
    int32_t nic, nic_there;
    for (int r = 0; r < 2; r++) {
        places[r] = bound_to(r, 1, 4);
        around[r] = (rd_around){.gpu = RD_NO_GPU, .nics = 3};
        for (int k = 0; k < 3; k++) around[r].nic[k] = card("", 100000, 1, k == 2 ? RD_LINK_PCI_SWITCH : RD_LINK_PCI_HOST);
    }
    assert_int_equal(rings_of(&rings, places, around, 2, 1), RONDO_SUCCESS);
    for (int h = 0; h < 2; h++) assert_true(leaving(&rings, 0, places, h)->nic == 2 && leaving(&rings, 0, places, h)->nic_there == 2);
    rd_rings_free(&rings);
    assert_int_equal(rings_of(&rings, places, around, 2, 0), RONDO_SUCCESS);
    assert_int_equal(rings.channels, 3);
    for (int c = 0; c < 3; c++) assert_int_equal(leaving(&rings, c, places, 0)->nic, (c + 2) % 3);
    rd_rings_free(&rings);
    rd_nics_pair(&around[0], &around[1], &nic, &nic_there);
    assert_true(nic == 2 && nic_there == 2);
    around[0].nic[2].networks[0] = 2; /* reaches none there */
    rd_nics_pair(&around[0], &around[1], &nic, &nic_there);
    assert_true(nic == 0 && nic_there == 0); /* one rail before the nearer card of another */
    around[1].nic[2].mbit = 200000;
    rd_nics_pair(&around[1], &around[0], &nic, &nic_there);
    assert_true(nic == 0 && nic_there == 0); /* it is as fast as its slower end */
    for (int k = 0; k < 3; k++) around[1].nic[k].networks[0] = 7;
    rd_nics_pair(&around[0], &around[1], &nic, &nic_there);
    assert_true(nic == -1 && nic_there == -1);
}

/* Four hosts, of which 0 and 2, 1 and 3 share the fast network: the ring takes it where it can. */
static void hosts_are_ordered_by_what_joins_them(void **state)
{
    (void)state;
    rd_place places[4];
    static rd_around around[4];
    rd_rings rings;
    for (int r = 0; r < 4; r++) {
        places[r] = bound_to(r, 0, 0);
        around[r] = (rd_around){.gpu = RD_NO_GPU, .nics = 2};
        around[r].nic[0] = card("eth0", 1000, 1, RD_LINK_PCI_BRIDGE);
        around[r].nic[1] = card("ib0", 100000, 10 + (uint64_t)(r % 2), RD_LINK_PCI_BRIDGE);
    }
    assert_int_equal(rings_of(&rings, places, around, 4, 0), RONDO_SUCCESS);
    static const int32_t expected[4] = {0, 2, 1, 3};
    for (int i = 0; i < 4; i++) assert_int_equal(rings.hops[i].from, expected[i]);
    rd_rings_free(&rings);
}

/* A ring of four GPUs joined by direct links, each pair of neighbours by one: the second ring is the first one turned
 * round, and there is no third. With all six pairs joined each GPU has three links out; three rings cannot share those
 * without a link in common, but six can with two on each. */
static void further_rings_take_other_links(void **state)
{
    (void)state;
    enum { N = 4 };
    rd_place places[N];
    static rd_around around[N];
    rd_rings rings;
    for (int full = 0; full < 2; full++) {
        for (int r = 0; r < N; r++) {
            places[r] = bound_to(0, 0, r);
            around[r] = (rd_around){.gpu = (uint32_t)r, .gpus = N};
            for (int k = 0; k < N; k++) {
                bool joined = full || (r + k) % 2;
                around[r].to_gpu[k] =
                    (rd_way){.bus = (uint32_t)k, .link = rd_link_of(joined ? RD_LINK_NVLINK : RD_LINK_PCI_BRIDGE)};
            }
        }
        assert_int_equal(rings_of(&rings, places, around, N, 0), RONDO_SUCCESS);
        assert_rings(&rings, places);
        int users[N][N] = {{0}};
        for (int i = 0; i < rings.channels * N; i++) {
            const rd_hop *hop = &rings.hops[i];
            assert_int_equal(hop->link.kind, RD_LINK_NVLINK);
            assert_true(++users[hop->from][hop->to] <= 1 + full);
        }
        assert_int_equal(rings.channels, full ? 6 : 2);
        rd_rings_free(&rings);
    }
}

static int64_t work_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* 64 hosts of 16 ranks, or 1,024 of one, two cards each, four rings: every rank does this when a job starts. */
static void a_thousand_ranks_take_less_than_a_second(void **state)
{
    (void)state;
    static rd_place places[MOST];
    rd_around *around = calloc(MOST, sizeof *around);
    assert_non_null(around);
    for (int each = 16; each >= 1; each -= 15) {
        rd_rings rings;
        for (int r = 0; r < MOST; r++) {
            places[r] = bound_to(r / each, r % each % 2, r % each);
            around[r] = (rd_around){.gpu = RD_NO_GPU, .nics = 2};
            for (int k = 0; k < 2; k++)
                around[r].nic[k] = card("eth", 25000, 1, k == r % 2 ? RD_LINK_PCI_BRIDGE : RD_LINK_PCI_HOST);
        }
        int64_t start = work_time();
        assert_int_equal(rings_of(&rings, places, around, MOST, 4), RONDO_SUCCESS);
        int64_t took = work_time() - start;
        print_message("%d ranks on %d hosts, 4 rings: %.1f ms\n", MOST, rings.hosts, (double)took / 1e6);
        assert_true(took < 1000000000);
        assert_rings(&rings, places);
        rd_rings_free(&rings);
    }
    free(around);
}

static void wrong_numbers_are_refused(void **state)
{
    (void)state;
    rd_place place = {0};
    rd_rings rings = {.channels = 77};
    assert_int_equal(rings_of(&rings, &place, NULL, 0, 1), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rings_of(&rings, &place, NULL, 1, 9), RONDO_INVALID_ARGUMENT);
    assert_non_null(strstr(rd_last_error(), "9 rings"));
    assert_int_equal(rings_of(&rings, &place, NULL, 1, -1), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rings.channels, 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_devices_it_is_the_order_of_places),
        cmocka_unit_test(by_rank_it_is_the_order_of_ranks),
        cmocka_unit_test(each_ring_has_its_rail),
        cmocka_unit_test(cards_that_do_not_serve_are_left_out),
        cmocka_unit_test(one_ring_takes_the_nearest_of_equal_cards),
        cmocka_unit_test(hosts_are_ordered_by_what_joins_them),
        cmocka_unit_test(further_rings_take_other_links),
        cmocka_unit_test(a_thousand_ranks_take_less_than_a_second),
        cmocka_unit_test(wrong_numbers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
