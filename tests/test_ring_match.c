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
                       .peers = true, .transport = kind->transport};
    world_open(w, &o);
}

static rondo_algo algo_of(rondo_collective c) { return c < RONDO_COLL_GATHER ? RONDO_ALGO_RING : RONDO_ALGO_PEERS; }

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
            world_call c = {.collective = collective, .algo = algo_of(collective), .dtype = RONDO_INT32,
                            .root = root_of(r, shift, n), .count = count};
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
            for (int i = 0; i < 3; i++)
                for (int c = RONDO_COLL_BROADCAST; c <= RONDO_COLL_SCATTER; c++)
                    every_rank_another_root(&kinds[k], n, (rondo_collective)c, counts[i]);
}

/* Rank `late` is driven only after the others could do no more: does `rank` wait for it? */
static void must_wait(const struct kind *kind, int n, rondo_collective collective, int root, int late, int rank)
{
    static world w;
    open_world(&w, kind, n);
    world_call c = {.collective = collective, .algo = algo_of(collective), .dtype = RONDO_INT32, .root = root, .count = 3};
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
                for (int late = 0; late < n; late++) {
                    must_wait(&kinds[k], n, RONDO_COLL_GATHER, root, late, (late + 1) % n);
                    must_wait(&kinds[k], n, RONDO_COLL_SCATTER, root, late, (late + 1) % n);
                }
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

/* ---- One rank makes another call ---- */

static const struct combination {
    rondo_collective collective;
    rondo_algo algo;
} combinations[] = {
    {RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING},     {RONDO_COLL_ALL_REDUCE, RONDO_ALGO_FLAT},
    {RONDO_COLL_ALL_REDUCE, RONDO_ALGO_EXCHANGE}, {RONDO_COLL_REDUCE_SCATTER, RONDO_ALGO_RING},
    {RONDO_COLL_ALL_GATHER, RONDO_ALGO_RING},     {RONDO_COLL_BROADCAST, RONDO_ALGO_RING},
    {RONDO_COLL_REDUCE, RONDO_ALGO_RING},         {RONDO_COLL_GATHER, RONDO_ALGO_PEERS},
    {RONDO_COLL_SCATTER, RONDO_ALGO_PEERS},       {RONDO_COLL_ALL_TO_ALL, RONDO_ALGO_PEERS},
};
#define COMBINATIONS (sizeof combinations / sizeof *combinations)

static bool possible(const struct kind *kind, const struct combination *c)
{
    return kind->flat || (c->algo != RONDO_ALGO_FLAT && c->algo != RONDO_ALGO_EXCHANGE);
}

/* Its result needs something of every rank. */
static bool needs_all(rondo_collective c)
{
    return c == RONDO_COLL_ALL_REDUCE || c == RONDO_COLL_REDUCE_SCATTER || c == RONDO_COLL_ALL_GATHER ||
           c == RONDO_COLL_ALL_TO_ALL;
}

static void odd_one_out(const struct kind *kind, int n, int odd, const struct combination *most,
                        const struct combination *other, uint64_t count)
{
    static world w;
    rd_progress end[WORLD_MAX];
    int noticed = 0;
    open_world(&w, kind, n);
    for (int r = 0; r < n; r++) {
        const struct combination *mine = r == odd ? other : most;
        world_call c = {.collective = mine->collective, .algo = mine->algo, .dtype = RONDO_INT32, .root = n - 1,
                        .count = mine->algo == RONDO_ALGO_EXCHANGE && count > 5 ? 1000 : count};
        if (mine->collective == RONDO_COLL_ALL_TO_ALL) c.count -= count % (uint64_t)n;
        some_memory(&c);
        world_start_rank(&w, r, &c, 1);
    }
    world_drive(&w, count + (uint64_t)odd, end);
    for (int r = 0; r < n; r++) {
        bool mismatch = end[r] == RD_FAILED && w.op[r].failure == RONDO_LINK_MISMATCH;
        noticed += mismatch;
        if ((end[r] == RD_FAILED && !mismatch) || (end[r] == RD_DONE && needs_all(w.op[r].plan.collective)))
            fail_msg("%s, %d ranks: all but %d call %d by %d, it %d by %d, count %llu: rank %d ends with %d", kind->name, n,
                     odd, most->collective, most->algo, other->collective, other->algo, (unsigned long long)count, r, end[r]);
    }
    if (!noticed)
        fail_msg("%s, %d ranks: all but %d call %d by %d, it %d by %d, count %llu: nobody notices", kind->name, n, odd,
                 most->collective, most->algo, other->collective, other->algo, (unsigned long long)count);
    world_close(&w);
}

static void test_odd_one_out(void **state)
{
    (void)state;
    static const uint64_t counts[] = {0, 5, 14000};
    uint64_t draw = 0;
    for (size_t k = 0; k < KINDS; k++)
        for (size_t i = 0; i < COMBINATIONS * COMBINATIONS; i++) {
            const struct combination *most = &combinations[i / COMBINATIONS], *other = &combinations[i % COMBINATIONS];
            if (most == other || !possible(&kinds[k], most) || !possible(&kinds[k], other)) continue;
            for (int n = 3; n <= 5; n++)
                for (int c = 0; c < 3; c++)
                    odd_one_out(&kinds[k], n, (int)(mix(5, draw++) % (uint64_t)n), most, other, counts[c]);
        }
}

/* ---- Whom an operation waits for ---- */

/* Rank `late` is driven `turns` times, with the others, and then stands still. */
static void stand_still(world *w, int late, uint64_t turns)
{
    for (uint64_t turn = 0; turn < turns; turn++)
        for (int r = 0; r < w->options.n; r++) rd_op_advance(&w->op[r]);
    for (int turn = 0; turn < 100; turn++)
        for (int r = 0; r < w->options.n; r++)
            if (r != late) rd_op_advance(&w->op[r]);
}

static void test_waits_for(void **state)
{
    (void)state;
    static world w;
    bool to_receive;
    for (int n = 2; n <= 5; n++)
        for (int late = 0; late < n; late++)
            for (uint64_t turns = 0; turns < 3; turns++)
                for (int algo = RONDO_ALGO_RING; algo <= RONDO_ALGO_EXCHANGE; algo++) {
                    if (turns && algo != RONDO_ALGO_RING) continue; /* all but over by then */
                    open_world(&w, &kinds[algo == RONDO_ALGO_RING ? 1 : 0], n);
                    world_call c = {.collective = RONDO_COLL_ALL_REDUCE, .algo = (rondo_algo)algo, .dtype = RONDO_UINT8,
                                    .count = algo == RONDO_ALGO_EXCHANGE ? 3 : BYTES - 1};
                    some_memory(&c);
                    world_start(&w, &c, turns);
                    stand_still(&w, late, turns);
                    for (int r = 0; r < n; r++) {
                        int rank = r == late ? late : rd_op_waits_for(&w.op[r], &to_receive);
                        if (algo != RONDO_ALGO_RING) assert_int_equal(rank, late);
                        else if (r == (late + 1) % n && !turns) assert_true(rank == late && to_receive);
                        else if (r != late) assert_true(rank == (r + n - 1) % n || rank == (r + 1) % n);
                    }
                    world_close(&w);
                }
}

/* A rank that has not taken what a call before sent it leaves no room for this one. */
static void waits_for_room(uint64_t taken)
{
    static world w;
    bool to_receive = true;
    open_world(&w, &kinds[0], 3);
    world_call c = {.collective = RONDO_COLL_REDUCE, .dtype = RONDO_UINT8, .root = 2, .count = taken * 4096};
    some_memory(&c);
    for (int r = 0; r < 3; r++) world_start_rank(&w, r, &c, 1);
    rd_progress first = RD_MOVED;
    for (int turn = 0; turn < 20 && first != RD_DONE; turn++) {
        first = rd_op_advance(&w.op[0]);
        rd_op_advance(&w.op[2]);
    }
    assert_int_equal(first, RD_DONE); /* the wire to rank 1, which does nothing, holds an opening and what was taken */
    c.collective = RONDO_COLL_ALL_REDUCE;
    c.count = 3 * 2 * 4096; /* two slices to each */
    c.algo = RONDO_ALGO_FLAT;
    world_start_rank(&w, 0, &c, 2);
    for (int turn = 0; turn < 20; turn++) rd_op_advance(&w.op[0]);
    assert_int_equal(rd_op_waits_for(&w.op[0], &to_receive), 1);
    assert_false(to_receive);
    world_close(&w);
}

static void test_waits_for_room(void **state)
{
    (void)state;
    waits_for_room(3); /* all of the wire's slots, */
    waits_for_room(2); /* or all but one: a slice can be published, and waits for the next */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_other_roots),
        cmocka_unit_test(test_success_means_that_the_predecessor_has_called),
        cmocka_unit_test(test_fast_root),
        cmocka_unit_test(test_odd_one_out),
        cmocka_unit_test(test_waits_for),
        cmocka_unit_test(test_waits_for_room),
    };
    alarm(120 * (unsigned)test_slowness());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
