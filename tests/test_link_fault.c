/* SPDX-License-Identifier: Apache-2.0
 *
 * test_link_fault.c - the fault wrapper does what it is told to, and nothing when it is told nothing.
 */
#include "link_kit.h"

#include "base/status.h"
#include "test.h"

static const struct link_kind kinds[] = {
    {.name = "loop", .transport = &rd_transport_loop},
    {.name = "tcp", .transport = &rd_transport_tcp, .sockets = 1},
};

static void open_with(struct link_pair *pair, const struct link_kind *kind, const struct rd_fault *sender,
                      const struct rd_fault *receiver)
{
    const struct rd_fault *faults[2] = {sender, receiver};
    link_pair_open(pair, kind, 4, 4096);
    for (int side = 0; side < 2; side++) {
        if (!faults[side]) continue;
        pair->ends[side] = rd_fault_wrap(pair->ends[side], faults[side]);
        assert_non_null(pair->ends[side]);
    }
}

static void test_fails_at(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++)
        for (int side = 0; side < 2; side++)
            for (int with = RONDO_LINK_CLOSED; with <= RONDO_LINK_BROKEN; with++) {
                const struct rd_fault fault = {.fail_at = 20, .fail_with = with}, none = {0};
                struct link_pair pair;
                unsigned char memory[64] = {0};
                rondo_link_result result = RONDO_LINK_OK;
                uint64_t n = 0, count;
                open_with(&pair, &kinds[k], side ? &none : &fault, side ? &fault : &none);
                for (; n < 100 && result == RONDO_LINK_OK; n++) {
                    result = link_put(pair.ends[RD_SENDER], n, memory, 64);
                    if (result == RONDO_LINK_OK)
                        result = link_get(pair.ends[RD_RECEIVER], n, memory, 64, link_signature(n));
                }
                assert_in_range(n, 2, 20);
                assert_int_equal(result, with);
                assert_int_equal(pair.ends[side]->ops->poll(pair.ends[side], &count), with);
                assert_true(count < n);
                assert_int_equal(pair.ends[side]->ops->arm(pair.ends[side], &pair.bells[side], count), RONDO_LINK_OK);
                if (with == RONDO_LINK_BROKEN) assert_non_null(strstr(rd_last_error(), "at call 20"));
                link_pair_close(&pair);
            }
}

static void test_delay(void **state)
{
    (void)state;
    const struct rd_fault fault = {.delay = 5};
    struct link_pair pair;
    uint64_t count = 99;
    void *place;
    open_with(&pair, &kinds[0], NULL, &fault);
    unsigned char byte = 1;
    assert_int_equal(link_put(pair.ends[0], 0, &byte, 1), RONDO_LINK_OK);
    rondo_link *receiver = pair.ends[1];
    for (int looks = 0; looks < 5; looks++) {
        if (looks % 2) {
            assert_int_equal(receiver->ops->poll(receiver, &count), RONDO_LINK_OK);
            assert_int_equal(count, 0);
        } else {
            assert_int_equal(receiver->ops->peek(receiver, 1, link_signature(0), &place), RONDO_LINK_AGAIN);
        }
        assert_int_equal(link_nap(receiver, &pair.bells[1], 0, LINK_DEADLINE_NS), 0); /* no ring will come */
    }
    assert_int_equal(receiver->ops->poll(receiver, &count), RONDO_LINK_OK);
    assert_int_equal(count, 1);
    assert_int_equal(receiver->ops->peek(receiver, 1, link_signature(0), &place), RONDO_LINK_OK);
    link_pair_close(&pair);
}

static void test_throttle(void **state)
{
    (void)state;
    const struct rd_fault fault = {.bytes_per_second = 1000000};
    for (int k = 0; k < 2; k++) {
        struct link_pair pair;
        unsigned char memory[4096] = {0};
        open_with(&pair, &kinds[k], &fault, NULL);
        int64_t from = rd_now();
        for (uint64_t n = 0; n < 26; n++) { /* all but the last cost 4.096 ms each */
            assert_int_equal(link_put(pair.ends[0], n, memory, 4096), RONDO_LINK_OK);
            assert_int_equal(link_get(pair.ends[1], n, memory, 4096, link_signature(n)), RONDO_LINK_OK);
        }
        assert_true(rd_now() - from >= 100000000);
        link_pair_close(&pair);
    }
}

/* The same seed, the same answers; all zero, no fault. */
static void test_again(void **state)
{
    (void)state;
    int answers[3][64];
    for (int run = 0; run < 3; run++) {
        const struct rd_fault fault = {.seed = 5, .again = run < 2 ? 0.5 : 0};
        struct link_pair pair;
        int again = 0;
        unsigned char byte = 1;
        open_with(&pair, &kinds[0], NULL, &fault);
        assert_int_equal(link_put(pair.ends[0], 0, &byte, 1), RONDO_LINK_OK);
        for (int i = 0; i < 64; i++) {
            void *place;
            answers[run][i] = pair.ends[1]->ops->peek(pair.ends[1], 1, link_signature(0), &place);
            again += answers[run][i] == RONDO_LINK_AGAIN;
        }
        assert_in_range(again, run < 2 ? 16 : 0, run < 2 ? 48 : 0);
        link_pair_close(&pair);
    }
    assert_memory_equal(answers[0], answers[1], sizeof answers[0]);
}

static void test_bad_options(void **state)
{
    (void)state;
    const struct rd_fault bad[] = {{.delay = RD_FAULT_DELAY + 1}, {.again = 1}, {.again = -0.5}, {.again = 0.0 / 0.0}};
    struct link_pair pair;
    link_pair_open(&pair, &kinds[0], 4, 4096);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_null(rd_fault_wrap(pair.ends[0], &bad[i]));
    link_pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fails_at), cmocka_unit_test(test_delay),       cmocka_unit_test(test_throttle),
        cmocka_unit_test(test_again),    cmocka_unit_test(test_bad_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
