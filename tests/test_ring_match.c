/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that make different calls: someone notices, and nobody takes his part for done who needed another's. All ranks
 * in one thread, over every kind of link.
 */
#include "test.h"

#include "ranks.h"
#include "world.h"

#include <unistd.h>

#define BYTES (64 * 1024)

static unsigned char *memory[WORLD_MAX][2];

static void some_memory(world_call *c)
{
    for (int r = 0; r < WORLD_MAX; r++)
        for (int k = 0; k < 2; k++) {
            if (!memory[r][k]) memory[r][k] = malloc(BYTES);
            assert_non_null(memory[r][k]);
        }
    for (int r = 0; r < WORLD_MAX; r++) {
        c->send[r] = memory[r][0];
        c->recv[r] = memory[r][1];
    }
}

static const struct kind {
    const char *name;
    const rondo_transport *(*transport)(int from);
    int channels;
    bool flat;
} kinds[] = {
    {"loop, all to all", world_loop, 1, true}, {"loop", world_loop, 2, false}, {"shm", world_shm, 1, false},
    {"tcp", world_tcp, 2, false},              {"mixed", world_mixed, 1, false},
};
#define KINDS (sizeof kinds / sizeof *kinds)

static void open_world(world *w, const struct kind *kind, int n)
{
    world_options o = {.n = n, .channels = kind->channels, .slice_bytes = 4096, .flat = kind->flat,
                       .transport = kind->transport};
    world_open(w, &o);
}

/* ---- Openings ---- */

/* Rank r's own idea of who is the root. With `shift` 2 to n-1 nobody takes itself for the first or the last. */
static int root_of(int r, int shift, int n) { return (r + shift) % n; }

static void every_rank_another_root(const struct kind *kind, int n, rondo_collective collective, uint64_t count)
{
    static world w;
    rd_progress end[WORLD_MAX];
    for (int shift = 0; shift < n; shift++) {
        int failed = 0, done = 0;
        open_world(&w, kind, n);
        for (int r = 0; r < n; r++) {
            world_call c = {.collective = collective, .dtype = RONDO_INT32, .root = root_of(r, shift, n), .count = count};
            some_memory(&c);
            world_start_rank(&w, r, &c, 1);
        }
        world_drive(&w, (uint64_t)(n * 100 + shift), end);
        for (int r = 0; r < n; r++) {
            failed += end[r] == RD_FAILED && w.op[r].failure == RONDO_LINK_MISMATCH;
            done += end[r] == RD_DONE;
        }
        if (!failed || done)
            fail_msg("%s, %d ranks, collective %d of %llu, root is my rank + %d: %d notice, %d are done", kind->name, n,
                     collective, (unsigned long long)count, shift, failed, done);
        world_close(&w);
    }
}

static void test_other_roots(void **state)
{
    (void)state;
    static const uint64_t counts[] = {0, 1, 9000};
    for (size_t k = 0; k < KINDS; k++)
        for (int n = 2; n <= 5; n++)
            for (int i = 0; i < 3; i++) {
                every_rank_another_root(&kinds[k], n, RONDO_COLL_BROADCAST, counts[i]);
                every_rank_another_root(&kinds[k], n, RONDO_COLL_REDUCE, counts[i]);
            }
}

/* Rank `late` is driven only after the others could do no more: does `rank` wait for it? */
static void must_wait(const struct kind *kind, int n, rondo_collective collective, int root, int late, int rank)
{
    static world w;
    open_world(&w, kind, n);
    world_call c = {.collective = collective, .dtype = RONDO_INT32, .root = root, .count = 3};
    some_memory(&c);
    world_start(&w, &c, 1);
    for (int turn = 0; turn < 50; turn++)
        for (int r = 0; r < n; r++)
            if (r != late && rd_op_advance(&w.op[r]) == RD_DONE && r == rank)
                fail_msg("%s, %d ranks: rank %d is done before rank %d has called", kind->name, n, rank, late);
    world_close(&w);
}

static void test_success_means_that_the_predecessor_has_called(void **state)
{
    (void)state;
    for (size_t k = 0; k < KINDS; k++)
        for (int n = 2; n <= 5; n++)
            for (int root = 0; root < n; root++) {
                must_wait(&kinds[k], n, RONDO_COLL_BROADCAST, root, (root + n - 1) % n, root);
                must_wait(&kinds[k], n, RONDO_COLL_REDUCE, root, root, (root + 1) % n);
            }
}

/* Calls in a row by a root that is driven as often as it likes, the others one at a time in turn. */
static void test_fast_root(void **state)
{
    (void)state;
    static world w;
    const int n = 4, calls = 50;
    for (size_t k = 0; k < KINDS; k++) {
        int at[4] = {0};
        open_world(&w, &kinds[k], n);
        for (int r = 0; r < n; r++) at[r] = -1;
        for (int left = n, turn = 0; left && turn < 1000000; turn++) {
            int r = turn % 8 ? 0 : turn / 8 % n;
            if (at[r] == calls) continue;
            if (at[r] >= 0 && rd_op_advance(&w.op[r]) != RD_DONE) {
                assert_int_equal(w.op[r].failure, RONDO_LINK_OK);
                continue;
            }
            for (int i = 0; at[r] >= 0 && i < 2500; i++)
                assert_int_equal(((int32_t *)(void *)memory[r][1])[i], i * 3 + at[r]);
            if (++at[r] == calls) left--;
            world_call c = {.collective = RONDO_COLL_BROADCAST, .dtype = RONDO_INT32, .root = 0, .count = 2500};
            some_memory(&c);
            for (int i = 0; r == 0 && i < 2500; i++) ((int32_t *)(void *)memory[0][0])[i] = i * 3 + at[0];
            if (at[r] < calls) world_start_rank(&w, r, &c, (uint64_t)at[r]);
        }
        for (int r = 0; r < n; r++) assert_int_equal(at[r], calls);
        world_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_other_roots),
        cmocka_unit_test(test_success_means_that_the_predecessor_has_called),
        cmocka_unit_test(test_fast_root),
    };
    alarm(120 * (unsigned)test_slowness());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
