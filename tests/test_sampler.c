/* SPDX-License-Identifier: Apache-2.0
 *
 * test_sampler.c - which samples each rank takes: case 36, PyTorch's numbers, and an order that never changes.
 */
#include "rondo_ddp.h"
#include "test.h"

#include <unistd.h>

static rondo_sampler *make(uint64_t samples, int world, int rank, rondo_tail tail, int shuffle, uint64_t seed)
{
    rondo_sampler_config config = RONDO_SAMPLER_CONFIG_INIT;
    rondo_sampler *s = NULL;
    config.samples = samples;
    config.world_size = world;
    config.rank = rank;
    config.tail = tail;
    config.shuffle = shuffle;
    config.seed = seed;
    assert_int_equal(rondo_sampler_create(&s, &config), RONDO_SUCCESS);
    return s;
}

static uint64_t at(const rondo_sampler *s, uint64_t i)
{
    uint64_t sample = UINT64_MAX;
    assert_int_equal(rondo_sampler_get(s, i, &sample), RONDO_SUCCESS);
    return sample;
}

typedef struct share {
    uint64_t samples;
    int world;
    rondo_tail tail;
    uint64_t total;
    uint64_t count[8], sample[8][4]; /* by rank, not shuffled */
} share;

/* PAD and DROP are what torch.utils.data.DistributedSampler(range(samples), world, rank, shuffle=False) gives. */
static const share shares[] = {
    {3, 7, RONDO_TAIL_PAD, 7, {1, 1, 1, 1, 1, 1, 1}, {{0}, {1}, {2}, {0}, {1}, {2}, {0}}},
    {3, 7, RONDO_TAIL_DROP, 0, {0}, {{0}}},
    {3, 7, RONDO_TAIL_UNEVEN, 3, {1, 1, 1}, {{0}, {1}, {2}}},
    {10, 4, RONDO_TAIL_PAD, 12, {3, 3, 3, 3}, {{0, 4, 8}, {1, 5, 9}, {2, 6, 0}, {3, 7, 1}}},
    {10, 4, RONDO_TAIL_DROP, 8, {2, 2, 2, 2}, {{0, 4}, {1, 5}, {2, 6}, {3, 7}}},
    {10, 4, RONDO_TAIL_UNEVEN, 10, {3, 3, 2, 2}, {{0, 4, 8}, {1, 5, 9}, {2, 6}, {3, 7}}},
    {8, 4, RONDO_TAIL_PAD, 8, {2, 2, 2, 2}, {{0, 4}, {1, 5}, {2, 6}, {3, 7}}},
    {1, 3, RONDO_TAIL_PAD, 3, {1, 1, 1}, {{0}, {0}, {0}}},
    {0, 3, RONDO_TAIL_PAD, 0, {0}, {{0}}},
};

static void shares_are_as_in_pytorch(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof shares / sizeof *shares; k++)
        for (int r = 0; r < shares[k].world; r++) {
            rondo_sampler *s = make(shares[k].samples, shares[k].world, r, shares[k].tail, 0, 0);
            assert_int_equal(rondo_sampler_total(s), shares[k].total);
            assert_int_equal(rondo_sampler_count(s), shares[k].count[r]);
            for (uint64_t i = 0; i < shares[k].count[r]; i++) assert_int_equal(at(s, i), shares[k].sample[r][i]);
            rondo_sampler_destroy(s);
        }
}

/* Shuffled, too, every sample is taken, and only the padding twice. */
static void union_is_the_data_set(void **state)
{
    (void)state;
    static const rondo_tail tails[] = {RONDO_TAIL_PAD, RONDO_TAIL_DROP, RONDO_TAIL_UNEVEN};
    for (int t = 0; t < 3; t++)
        for (uint64_t samples = 0; samples < 40; samples++)
            for (int world = 1; world < 18; world++) {
                int times[40] = {0};
                uint64_t taken = 0, total = 0, once = 0;
                for (int r = 0; r < world; r++) {
                    rondo_sampler *s = make(samples, world, r, tails[t], 1, 7 + samples);
                    assert_int_equal(rondo_sampler_set_epoch(s, 3), RONDO_SUCCESS);
                    for (uint64_t i = 0; i < rondo_sampler_count(s); i++) times[at(s, i)]++;
                    taken += rondo_sampler_count(s);
                    total = rondo_sampler_total(s);
                    rondo_sampler_destroy(s);
                }
                assert_int_equal(taken, total);
                for (uint64_t i = 0; i < samples; i++) once += times[i] > 0;
                assert_int_equal(once,
                                 tails[t] == RONDO_TAIL_DROP ? samples / (uint64_t)world * (uint64_t)world : samples);
            }
}

/* Worked out from the header's description by another program (Python). */
static const uint64_t order_42_epoch[2][10] = {{4, 7, 2, 9, 0, 6, 8, 5, 3, 1}, {9, 1, 7, 8, 2, 5, 3, 6, 0, 4}};

static void order_is_the_same_everywhere(void **state)
{
    (void)state;
    for (int world = 1; world < 4; world++)
        for (int r = 0; r < world; r++) {
            rondo_sampler *s = make(10, world, r, RONDO_TAIL_UNEVEN, 1, 42);
            for (int epoch = 0; epoch < 2; epoch++) {
                rondo_sampler_set_epoch(s, (uint64_t)epoch);
                for (uint64_t i = 0; i < rondo_sampler_count(s); i++)
                    assert_int_equal(at(s, i), order_42_epoch[epoch][(uint64_t)r + i * (uint64_t)world]);
            }
            rondo_sampler_destroy(s);
        }
}

static void epochs_and_seeds_differ(void **state)
{
    (void)state;
    enum { SAMPLES = 1000, OTHERS = 4 };
    static const uint64_t seed[OTHERS] = {0, 0, 1, 1}, epoch[OTHERS] = {0, 1, 0, 1};
    rondo_sampler *s[OTHERS];
    for (int k = 0; k < OTHERS; k++) {
        s[k] = make(SAMPLES, 1, 0, RONDO_TAIL_PAD, 1, seed[k]);
        rondo_sampler_set_epoch(s[k], epoch[k]);
    }
    for (int k = 0; k < OTHERS; k++)
        for (int l = 0; l < k; l++) {
            int same = 0;
            for (uint64_t i = 0; i < SAMPLES; i++) same += at(s[k], i) == at(s[l], i);
            assert_true(same < 12); /* one is expected by chance */
        }
    for (int k = 0; k < OTHERS; k++) rondo_sampler_destroy(s[k]);
}

/* 6 orders of 3 samples, 12,000 epochs: 2,000 of each are expected, with a deviation of 41. */
static void all_orders_are_equally_likely(void **state)
{
    (void)state;
    int times[27] = {0};
    rondo_sampler *s = make(3, 1, 0, RONDO_TAIL_PAD, 1, 5);
    for (uint64_t epoch = 0; epoch < 12000; epoch++) {
        rondo_sampler_set_epoch(s, epoch);
        times[9 * at(s, 0) + 3 * at(s, 1) + at(s, 2)]++;
    }
    int orders = 0;
    for (int k = 0; k < 27; k++) {
        if (times[k] == 0) continue;
        orders++;
        assert_in_range(times[k], 1800, 2200);
    }
    assert_int_equal(orders, 6);
    rondo_sampler_destroy(s);
}

static void refused(rondo_sampler_config config, const char *said)
{
    rondo_sampler *s = NULL;
    assert_int_equal(rondo_sampler_create(&s, &config), RONDO_INVALID_ARGUMENT);
    assert_null(s);
    if (!strstr(rondo_last_error(NULL), said)) fail_msg("'%s' lacks '%s'", rondo_last_error(NULL), said);
}

static void wrong_arguments_are_named(void **state)
{
    (void)state;
    rondo_sampler_config good = {sizeof good, 10, 4, 1, 1, 0, RONDO_TAIL_PAD}, c = good;
    c.world_size = 0;
    refused(c, "world_size is 0; the world has 1 rank or more");
    c = good;
    c.rank = 4;
    refused(c, "rank is 4; in a world of 4 it must be from 0 to 3");
    c = good;
    c.rank = -1;
    refused(c, "rank is -1");
    c = good;
    c.tail = (rondo_tail)3;
    refused(c, "tail is 3");
    c = good;
    c.samples = UINT64_MAX;
    refused(c, "samples is 18446744073709551615");
    c = good;
    c.size = 3;
    refused(c, "config->size is 3");
    assert_int_equal(rondo_sampler_create(NULL, &good), RONDO_INVALID_ARGUMENT);
    rondo_sampler *s = make(10, 4, 3, RONDO_TAIL_UNEVEN, 0, 0);
    uint64_t sample = 77;
    assert_int_equal(rondo_sampler_get(s, 2, &sample), RONDO_INVALID_ARGUMENT);
    assert_non_null(strstr(rondo_last_error(NULL), "i is 2; rank 3 takes 2 samples"));
    assert_int_equal(sample, 77);
    rondo_sampler_destroy(s);
    rondo_sampler_destroy(NULL);
}

int main(void)
{
    alarm(60);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_as_in_pytorch),      cmocka_unit_test(union_is_the_data_set),
        cmocka_unit_test(order_is_the_same_everywhere),  cmocka_unit_test(epochs_and_seeds_differ),
        cmocka_unit_test(all_orders_are_equally_likely), cmocka_unit_test(wrong_arguments_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
