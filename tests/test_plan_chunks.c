/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan_chunks.c - where the schedule cuts a message, up to counts at which 64 bits are just enough, and what
 * rondo_plan_init refuses.
 */
#include "rondo_plan.h"
#include "test.h"

static rondo_plan all_reduce_plan(uint64_t count, int32_t n, int32_t rank, const uint64_t *bounds)
{
    rondo_plan p = {0};
    int result = rondo_plan_init(&p, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING, n, rank, 0, count, NULL, bounds, 0);
    assert_int_equal(result, 0);
    return p;
}

/* Parts `from` to `to` of n: they follow one another, begin at multiples of the grain, differ by at most one grain, the
 * longer ones first, and lie where arithmetic in 128 bits says. */
static void check_split(rondo_range whole, uint32_t n, uint32_t from, uint32_t to, uint64_t grain)
{
    typedef unsigned __int128 wide_int;
    wide_int grains = ((wide_int)whole.count + grain - 1) / grain;
    uint64_t most = 0;
    for (uint32_t i = from; i < to; i++) {
        rondo_range part = rondo_split(whole, n, i, grain);
        wide_int begin = (grains / n * i + (i < grains % n ? i : grains % n)) * grain;
        wide_int end = (grains / n * ((wide_int)i + 1) + (i + 1ull < grains % n ? i + 1ull : grains % n)) * grain;
        uint64_t at = begin < whole.count ? (uint64_t)begin : whole.count;
        assert_int_equal(part.first, whole.first + at);
        assert_int_equal(part.count, (end < whole.count ? (uint64_t)end : whole.count) - at);
        assert_true(at % grain == 0 || at == whole.count);
        uint64_t length = part.count / grain + (part.count % grain != 0);
        if (i == from) most = length;
        assert_true(length <= most && most - length <= 1);
        most = length > most ? length : most;
        if (i == 0) assert_int_equal(part.first, whole.first);
        if (i + 1 == n) assert_int_equal(part.first - whole.first + part.count, whole.count);
    }
}

static void test_split(void **state)
{
    static const uint64_t grains[] = {1, 2, 3, 16, 64, 1 << 20, 1ull << 32, 1ull << 63, UINT64_MAX};
    static const uint64_t counts[] = {0, 1, 63, 64, 65, 1000003, (1ull << 33) + 7, (1ull << 63) - 1, 1ull << 63,
                                      UINT64_MAX - 64, UINT64_MAX - 3, UINT64_MAX - 1, UINT64_MAX};
    static const uint32_t parts[] = {1, 2, 3, 4, 7, 64, 1000, 10000, UINT32_MAX};
    (void)state;
    for (uint32_t n = 1; n <= 40; n++)
        for (uint64_t count = 0; count <= 3 * n + 1; count++)
            for (uint64_t grain = 1; grain < 6; grain++) check_split((rondo_range){100, count}, n, 0, n, grain);
    for (size_t g = 0; g < sizeof(grains) / sizeof(grains[0]); g++)
        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
            for (size_t k = 0; k < sizeof(parts) / sizeof(parts[0]); k++) {
                rondo_range whole = {0, counts[c]};
                uint32_t n = parts[k], some = n < 1000 ? n : 1000;
                check_split(whole, n, 0, some, grains[g]);
                check_split(whole, n, n - some, n, grains[g]);
            }
}

/* The chunks of a plan cover the message once, one after another; and so do those that all ranks send in any step. */
static void check_chunks(uint64_t count, int32_t n, const uint64_t *bounds)
{
    rondo_plan p = all_reduce_plan(count, n, n - 1, bounds);
    uint64_t end = 0, most = 0, least = UINT64_MAX;
    for (int32_t c = 0; c < n; c++) {
        rondo_range chunk = rondo_chunk(&p, c);
        assert_int_equal(chunk.first, end);
        assert_true(chunk.count <= count - end);
        end += chunk.count;
        most = chunk.count > most ? chunk.count : most;
        least = chunk.count < least ? chunk.count : least;
    }
    assert_int_equal(end, count);
    assert_int_equal(rondo_chunk_max(&p), most);
    if (!bounds) assert_true(most - least <= 1);
    for (int32_t s = 0; s < p.steps; s += 1 + p.steps / 7) {
        uint64_t covered = 0;
        for (int32_t r = 0; r < n; r++) {
            p = all_reduce_plan(count, n, r, bounds);
            covered += rondo_chunk(&p, rondo_plan_step(&p, s).send_chunk).count;
        }
        assert_int_equal(covered, count);
    }
}

static void test_chunks(void **state)
{
    static const uint64_t some[] = {0, 0, 5, 5, 105, 106}, bytes = 8;
    (void)state;
    for (int32_t n = 1; n <= 512; n += n < 64 ? 1 : 37)
        for (uint64_t count = 0; count <= 3 * (uint64_t)n; count += n < 16 ? 1 : (uint64_t)n / 5)
            check_chunks(count, n, NULL);
    check_chunks((1ull << 33) + 7, 4, NULL);
    check_chunks(1500000000, 4, NULL);
    check_chunks(1500000000, 7, NULL);
    check_chunks(UINT64_MAX, 5, NULL);
    check_chunks(UINT64_MAX, 4, NULL);
    check_chunks(106, 5, some);

    rondo_plan p = all_reduce_plan((1ull << 33) + 7, 4, 3, NULL); /* bytes of the two large messages, by hand */
    assert_int_equal(rondo_chunk(&p, 3).first * bytes, 51539607600);
    assert_int_equal((rondo_chunk(&p, 3).first + rondo_chunk(&p, 3).count) * bytes, 68719476792);
    assert_int_equal(rondo_plan_init(&p, RONDO_COLL_REDUCE, RONDO_ALGO_RING, 4, 3, 0, 1500000000, NULL, NULL, 0), 0);
    assert_int_equal(rondo_chunk(&p, 0).count * bytes, 12000000000);
}

static void test_refusals(void **state)
{
    static const int32_t order[] = {2, 0, 1}, lacks_rank[] = {2, 0, 0}, lacks_root[] = {1, 0, 0}, beyond[] = {2, 1, 3};
    static const uint64_t bounds[] = {0, 4, 9, 10}, falling[] = {0, 5, 4, 10}, above[] = {0, 5, 12, 10};
    static const uint64_t even[] = {0, 2, 4, 6, 8, 10};
    const int ring = RONDO_ALGO_RING, flat = RONDO_ALGO_FLAT, sum = RONDO_COLL_ALL_REDUCE, cast = RONDO_COLL_BROADCAST;
    const struct {
        int collective, algo;
        int32_t size, rank, root;
        const int32_t *order;
        const uint64_t *bounds;
        int result;
    } calls[] = {
        {sum, ring, 3, 1, 2, order, bounds, 0},
        {cast, ring, 3, 1, 2, order, NULL, 0},
        {sum, flat, 1, 0, 0, NULL, NULL, 0},
        {sum, ring, 0, 0, 0, NULL, NULL, -1},
        {sum, ring, -1, 0, 0, NULL, NULL, -1},
        {sum, ring, 3, 3, 0, NULL, NULL, -1},
        {sum, ring, 3, -1, 0, NULL, NULL, -1},
        {sum, ring, 3, 0, 3, NULL, NULL, -1},
        {sum, ring, 3, 0, -1, NULL, NULL, -1},
        {sum, ring, 3, 1, 0, lacks_rank, NULL, -1},
        {cast, ring, 3, 1, 2, lacks_root, NULL, -1},
        {sum, ring, 3, 1, 2, beyond, NULL, -1},
        {sum, ring, 3, 1, 2, NULL, falling, -1},
        {sum, ring, 3, 1, 2, NULL, above, -1},
        {sum, ring, 2, 1, 0, NULL, bounds, -1},
        {cast, flat, 3, 1, 2, NULL, NULL, -1},
        {RONDO_COLL_REDUCE, flat, 3, 1, 2, NULL, NULL, -1},
        {RONDO_COLLECTIVES, ring, 3, 1, 2, NULL, NULL, -1},
        {sum, RONDO_ALGO_EXCHANGE, 3, 1, 2, NULL, NULL, 0},
        {cast, RONDO_ALGO_EXCHANGE, 3, 1, 2, NULL, NULL, -1},
        {RONDO_COLL_REDUCE_SCATTER, RONDO_ALGO_EXCHANGE, 3, 1, 0, NULL, NULL, -1},
        {sum, RONDO_ALGO_PEERS, 3, 1, 2, NULL, NULL, -1},
        {sum, RONDO_ALGOS, 3, 1, 2, NULL, NULL, -1},
        {sum, -1, 3, 1, 2, NULL, NULL, -1},
        {-1, ring, 3, 1, 2, NULL, NULL, -1},
        {RONDO_COLL_GATHER, RONDO_ALGO_PEERS, 3, 1, 2, order, bounds, 0},
        {RONDO_COLL_SCATTER, ring, 3, 1, 2, NULL, NULL, -1},
        {RONDO_COLL_ALL_TO_ALL, RONDO_ALGO_PEERS, 5, 1, 2, NULL, NULL, 0},
        {RONDO_COLL_ALL_TO_ALL, RONDO_ALGO_PEERS, 3, 1, 2, NULL, NULL, -1},
        {RONDO_COLL_ALL_TO_ALL, RONDO_ALGO_PEERS, 5, 1, 2, NULL, even, -1},
    };
    rondo_plan p, before;
    (void)state;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        memset(&p, 0x5a, sizeof(p));
        memcpy(&before, &p, sizeof(p));
        int result = rondo_plan_init(&p, (rondo_collective)calls[i].collective, (rondo_algo)calls[i].algo,
                                     calls[i].size, calls[i].rank, calls[i].root, 10, calls[i].order,
                                     calls[i].bounds, 0);
        if (result != calls[i].result) fail_msg("call %zu: %d instead of %d", i, result, calls[i].result);
        assert_int_equal(memcmp(&p, &before, sizeof(p)) == 0, result == -1);
    }
}

/* In an exchange every rank hands its whole message to every other once, and meets the others' in ring order. */
static void test_exchange(void **state)
{
    static int32_t order[64];
    (void)state;
    for (int32_t n = 1; n <= 64; n++) {
        int32_t stride = n % 7 ? 7 : 5; /* a ring that is not the ranks' order, where n allows one */
        for (int32_t at = 0; at < n; at++) order[at] = n % stride ? at * stride % n : at;
        for (int32_t at = 0; at < n; at++) {
            rondo_plan p = {0}, q;
            uint64_t sent = 0;
            assert_int_equal(rondo_plan_init(&p, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_EXCHANGE, n, order[at], 0, 10, order,
                                             NULL, 1), 0);
            assert_int_equal(p.steps, n - 1);
            for (int32_t s = 0; s < p.steps; s++) {
                rondo_step t = rondo_plan_step(&p, s);
                assert_int_equal(t.recv_from, order[(at + 1 + s) % n]);
                assert_int_equal(t.action, s == n - 2 ? RONDO_FINISH : RONDO_REDUCE);
                assert_true(t.send_own && t.recv_own && !t.send_wide && !t.recv_wide);
                assert_true(t.send_chunk == RONDO_WHOLE && t.recv_chunk == RONDO_WHOLE);
                assert_int_equal(rondo_chunk(&p, t.send_chunk).count, 10);
                sent |= UINT64_C(1) << t.send_to;
                /* whom I send to in step s receives from me in step s */
                rondo_plan_init(&q, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_EXCHANGE, n, t.send_to, 0, 10, order, NULL, 1);
                assert_int_equal(rondo_plan_step(&q, s).recv_from, order[at]);
            }
            assert_int_equal(__builtin_popcountll(sent), n - 1);
            assert_false(sent >> order[at] & 1);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_exchange),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
