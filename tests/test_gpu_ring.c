/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gpu_ring.c - the ring as one kernel: over slots in GPU memory, on 2 to 8 ranks, every collective, type and
 * operator, in place and misaligned, alone and beside ranks that go step by step, it has the bits and sends the bytes
 * of the CPUs'. In any order of threads. What waits can be stopped, and a foreign call is noticed. And bugs that are
 * planted in the kernels (cudasim/plant.sh) are found.
 */
#include "gpu_kit.h"
#include "gpu_world.h"
#include "on_cudasim.h"
#include "ranks.h"

#include "base/dtype.h"
#include "base/status.h"
#include "reduce/device.h"

#include <unistd.h>

/* PACKED_UP_TO: bytes of a message that goes in packets (src/ring/kernel.c). */
#define SETTINGS "devices=4"
enum { SLICE = 4096, OFFSET = 3, PACKED_UP_TO = 131072 };

static world cpus, gpus;

static void open_worlds_by(int n, int channels, bool within)
{
    world_options o = {.n = n, .channels = channels, .slice_bytes = SLICE, .transport = world_loop};
    gpu_plain = rd_device_engine_ops;
    gpu_plain.ring = NULL;
    world_open(&cpus, &o);
    gpu_world_open(&gpus, o, within);
}

static void open_worlds(int n, int channels)
{
    open_worlds_by(n, channels, false);
}

static void close_worlds(void)
{
    world_close(&cpus);
    gpu_world_close(&gpus);
}

/* One call of all ranks in both worlds; buffers of the whole message on every rank, more than some collectives need. */
static void run_by(rondo_algo algo, rondo_collective collective, int n, rondo_dtype type, rondo_op op, uint64_t count,
                   bool in_place, uint64_t seed)
{
    size_t bytes = (count + OFFSET + 1) * rd_dtype_bytes(type), at = seed % (OFFSET + 1) * rd_dtype_bytes(type);
    unsigned char *here[GPU_RANKS], *want[GPU_RANKS], *got = malloc(bytes);
    void *in[GPU_RANKS], *out[GPU_RANKS];
    size_t bytes_of_message = count * rd_dtype_bytes(type);
    world_call c = {.collective = collective,
                    .algo = algo,
                    .dtype = type,
                    .op = op,
                    .root = (int)(seed % (uint64_t)n),
                    .count = count},
               g = c;
    for (int r = 0; r < n; r++) {
        here[r] = malloc(bytes), want[r] = malloc(bytes);
        for (size_t i = 0; i < bytes; i++) here[r][i] = (unsigned char)(mix(seed + (uint64_t)r, i) >> 8);
        assert_int_equal(rd_device_alloc(gpu_devices[r], bytes, &in[r]), RONDO_SUCCESS);
        assert_int_equal(rd_device_alloc(gpu_devices[r], bytes, &out[r]), RONDO_SUCCESS);
        assert_int_equal(rd_device_move(gpu_devices[r], in[r], here[r], bytes), RONDO_SUCCESS);
        memset(want[r], 0x5a, bytes);
        if (in_place) memcpy(want[r], here[r], bytes);
        assert_int_equal(rd_device_move(gpu_devices[r], out[r], want[r], bytes), RONDO_SUCCESS);
        c.send[r] = (in_place ? want[r] : here[r]) + at;
        c.recv[r] = want[r] + at;
        g.send[r] = (unsigned char *)(in_place ? out[r] : in[r]) + at;
        g.recv[r] = (unsigned char *)out[r] + at;
    }
    world_run(&cpus, &c, seed);
    world_run(&gpus, &g, seed);
    for (int r = 0; r < n; r++) {
        assert_int_equal(rd_device_move(gpu_devices[r], got, out[r], bytes), RONDO_SUCCESS);
        if (memcmp(got, want[r], bytes))
            fail_msg("collective %d of %d ranks, %llu %s, operator %d, seed %llu: rank %d has other bits", collective,
                     n, (unsigned long long)count, rd_dtype_name(type), op, (unsigned long long)seed, r);
        assert_int_equal(world_ring_bytes(&gpus, r, -1), world_ring_bytes(&cpus, r, -1));
        if (gpus.op[r].by == RD_BY_KERNEL)
            assert_int_equal(gpus.op[r].kernel_packed,
                             (gpus.wiring[r].kernels & RONDO_LINK_PACKETS) && bytes_of_message <= PACKED_UP_TO);
        rd_device_free(gpu_device_of(r), in[r]), rd_device_free(gpu_device_of(r), out[r]);
        free(here[r]), free(want[r]);
    }
    free(got);
}

static void run(rondo_collective collective, int n, rondo_dtype type, rondo_op op, uint64_t count, bool in_place,
                uint64_t seed)
{
    run_by(RONDO_ALGO_RING, collective, n, type, op, count, in_place, seed);
}

static bool moves(rondo_collective c)
{
    return c == RONDO_COLL_ALL_GATHER || c == RONDO_COLL_BROADCAST;
}

static void all_collectives(int n, uint64_t first, uint64_t last)
{
    static const uint64_t counts[] = {0, 1, 7, 1000, 5003, 20011};
    for (uint64_t seed = first; seed < last; seed++) {
        rondo_collective c = (rondo_collective)(seed % 5);
        uint64_t count = counts[seed / 5 % 6];
        if (c == RONDO_COLL_REDUCE_SCATTER || c == RONDO_COLL_ALL_GATHER) count = count / (uint64_t)n * (uint64_t)n;
        bool in_place = seed % 2 && (c == RONDO_COLL_ALL_REDUCE || c == RONDO_COLL_BROADCAST);
        run(c, n, (rondo_dtype)(seed % RONDO_DTYPES), moves(c) ? RONDO_SUM : (rondo_op)(seed / 3 % RONDO_OPS), count,
            in_place, seed);
    }
}

static void test_bits(void **state)
{
    (void)state;
    for (int n = 2; n <= GPU_RANKS; n++) {
        unsigned long before = cudasim_calls("kernel");
        gpu_plain_every = 0;
        open_worlds(n, n == 4 ? 2 : 1);
        uint64_t calls = test_slowness() > 1 ? 30 : n > 4 ? 40 : 90;
        all_collectives(n, 0, calls);
        assert_int_equal(cudasim_calls("kernel") - before, calls * (uint64_t)n); /* one each, and nothing else */
        close_worlds();
    }
}

/* All types and operators of all-reduce, in packets and, since every rank does the same, in whole slices. */
static void test_types(void **state)
{
    (void)state;
    open_worlds(3, 1);
    for (rondo_dtype type = 0; type < RONDO_DTYPES; type++)
        for (rondo_op op = 0; op < RONDO_OPS; op++) {
            run(RONDO_COLL_ALL_REDUCE, 3, type, op, 1501, op % 2, (uint64_t)type);
            if (test_slowness() > 1 && (int)op != (int)type % RONDO_OPS) continue;
            run(RONDO_COLL_ALL_REDUCE, 3, type, op, PACKED_UP_TO / rd_dtype_bytes(type) + 5, op % 2, (uint64_t)type);
        }
    close_worlds();
}

/* Two ranks exchange their messages instead: over the same links, by the same kernel. */
static void test_exchange(void **state)
{
    (void)state;
    open_worlds(2, 2);
    for (rondo_dtype type = 0; type < RONDO_DTYPES; type++)
        for (uint64_t count = 1; count < 40000; count = count * 7 + 3)
            run_by(RONDO_ALGO_EXCHANGE, RONDO_COLL_ALL_REDUCE, 2, type, (rondo_op)(count % RONDO_OPS), count, count % 3,
                   count + (uint64_t)type);
    close_worlds();
}

/* Short and long messages in turns, so that packets and whole slices follow each other in every slot. */
static void test_turns(void **state)
{
    (void)state;
    open_worlds(4, 2);
    for (uint64_t seed = 0; seed < (test_slowness() > 1 ? 6 : 12); seed++)
        run(RONDO_COLL_ALL_REDUCE, 4, RONDO_INT32, RONDO_SUM, seed % 3 == 1 ? 40000 : 1 + seed * 50, seed % 2, seed);
    close_worlds();
}

/* Several all-reduces in one launch give what one after the other gives without. */
enum { TOGETHER = 4 };
static void run_together(int n, const uint64_t counts[TOGETHER], uint64_t seed)
{
    unsigned char *want[TOGETHER][GPU_RANKS], *got;
    void *at[TOGETHER][GPU_RANKS];
    unsigned long kernels = cudasim_calls("kernel");
    for (int k = 0; k < TOGETHER; k++) {
        size_t bytes = counts[k] * sizeof(int32_t);
        world_call c = {.collective = RONDO_COLL_ALL_REDUCE,
                        .algo = RONDO_ALGO_RING,
                        .dtype = RONDO_INT32,
                        .op = k == 1 ? RONDO_MAX : RONDO_SUM,
                        .count = counts[k]},
                   g = c;
        for (int r = 0; r < n; r++) {
            c.send[r] = c.recv[r] = want[k][r] = malloc(bytes);
            for (size_t i = 0; i < bytes; i++) want[k][r][i] = (unsigned char)(mix(seed + (uint64_t)(r + k), i) >> 8);
            assert_int_equal(rd_device_alloc(gpu_devices[r], bytes, &at[k][r]), RONDO_SUCCESS);
            assert_int_equal(rd_device_move(gpu_devices[r], at[k][r], want[k][r], bytes), RONDO_SUCCESS);
            g.send[r] = g.recv[r] = at[k][r];
        }
        world_run(&cpus, &c, seed);
        world_start(&gpus, &g, seed);
        for (int r = 0; r < n && k + 1 < TOGETHER; r++) assert_int_equal(rd_kernel_wait(&gpus.op[r]), RONDO_LINK_OK);
    }
    world_finish(&gpus, seed);
    assert_int_equal(cudasim_calls("kernel") - kernels, n);
    for (int r = 0; r < n; r++) {
        assert_int_equal(world_ring_bytes(&gpus, r, -1), world_ring_bytes(&cpus, r, -1));
        for (int k = 0; k < TOGETHER; k++) {
            size_t bytes = counts[k] * sizeof(int32_t);
            got = malloc(bytes);
            assert_int_equal(rd_device_move(gpu_devices[r], got, at[k][r], bytes), RONDO_SUCCESS);
            if (memcmp(got, want[k][r], bytes))
                fail_msg("seed %llu, rank %d, call %d: other bits", (unsigned long long)seed, r, k);
            rd_device_free(gpu_device_of(r), at[k][r]);
            free(got), free(want[k][r]);
        }
    }
}

/* In packets and in whole slices, by one channel and by two. */
static const uint64_t together[][TOGETHER] = {{1003, 40001, 7, 700}, {7, 1, 1003, 3}, {40001, 50000, 40001, 1}};

static void test_together(void **state)
{
    (void)state;
    open_worlds(3, 2);
    for (unsigned seed = 1; seed <= 20; seed++) {
        cudasim_seed(seed);
        run_together(3, together[seed % 3], seed);
    }
    cudasim_seed(0);
    close_worlds();
}

static void test_beside_steps(void **state)
{
    (void)state;
    for (gpu_plain_every = 2; gpu_plain_every <= 3; gpu_plain_every++) {
        open_worlds(4, 1);
        all_collectives(4, 10, test_slowness() > 1 ? 25 : 60);
        close_worlds();
    }
    gpu_plain_every = 0;
}

static void test_any_order_of_threads(void **state)
{
    (void)state;
    open_worlds(3, 1);
    for (unsigned seed = 1; seed <= 20; seed++) {
        cudasim_seed(seed);
        all_collectives(3, seed * 5, seed * 5 + 3);
    }
    cudasim_seed(0);
    close_worlds();
}

/* Rank 1 does not call. Rank 0's kernel waits, and ends when it is told to. */
static void stop_at(uint64_t count)
{
    void *memory;
    world_call c = {
        .collective = RONDO_COLL_ALL_REDUCE, .algo = RONDO_ALGO_RING, .dtype = RONDO_FLOAT32, .count = count};
    open_worlds(2, 1);
    assert_int_equal(rd_device_alloc(gpu_devices[0], count * 4, &memory), RONDO_SUCCESS);
    c.send[0] = c.recv[0] = memory;
    world_start_rank(&gpus, 0, &c, 1);
    assert_int_equal(gpus.op[0].by, RD_BY_KERNEL);
    assert_int_equal(rd_op_advance(&gpus.op[0]), RD_MOVED);
    for (int i = 0; i < 20; i++, usleep(1000)) assert_int_equal(rd_op_advance(&gpus.op[0]), RD_IDLE);
    for (int i = 0; !rd_op_withdraw(&gpus.op[0]); i++, usleep(1000)) assert_true(i < 20000);
    assert_int_equal(rd_op_advance(&gpus.op[0]), RD_FAILED);
    rd_device_free(0, memory);
    close_worlds();
}
static void test_stop(void **state)
{
    (void)state;
    stop_at(1);
    stop_at(5000);
    stop_at(50000);
}

/* Ranks make calls that differ: both kernels end, and the links tell what came. */
static void mismatch_of(uint64_t one, uint64_t other)
{
    void *memory[2];
    rd_progress end[WORLD_MAX] = {RD_IDLE, RD_IDLE};
    uint64_t signature, bytes;
    world_call c = {.collective = RONDO_COLL_ALL_REDUCE, .algo = RONDO_ALGO_RING};
    open_worlds(2, 1);
    for (int r = 0; r < 2; r++) {
        c.count = r ? other : one;
        assert_int_equal(rd_device_alloc(gpu_devices[r], c.count * 4, &memory[r]), RONDO_SUCCESS);
        c.send[r] = c.recv[r] = memory[r];
        c.dtype = r ? RONDO_INT32 : RONDO_FLOAT32;
        world_start_rank(&gpus, r, &c, 1);
    }
    for (int i = 0; (end[0] != RD_FAILED || end[1] != RD_FAILED) && i < 20000; i++, usleep(1000))
        for (int r = 0; r < 2; r++)
            if (end[r] != RD_FAILED) end[r] = rd_op_advance(&gpus.op[r]);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(end[r], RD_FAILED);
        assert_int_equal(gpus.op[r].failure, RONDO_LINK_MISMATCH);
        rondo_link *in = gpus.wiring[r].ring_in[0]->link;
        in->ops->seen(in, &signature, &bytes);
        assert_int_equal(signature, gpus.op[!r].signature);
        rd_device_free(gpu_device_of(r), memory[r]);
    }
    close_worlds();
}
static void test_mismatch(void **state)
{
    (void)state;
    mismatch_of(5000, 5000); /* the types differ */
    mismatch_of(1, 5000);
    mismatch_of(5000, 50000); /* one in packets, the other in whole slices */
    mismatch_of(50000, 70000);
}

/* ---- Planted bugs ---- */

/* What a run with a bug does: both protocols, odd counts, misaligned. */
static void walk(void **state)
{
    (void)state;
    static const uint64_t counts[] = {7, 1003, 40001};
    alarm((unsigned)(4 + 3 * test_slowness())); /* what hangs */
    for (int within = 0; within < 2; within++) {
        open_worlds_by(3, 1, within);
        for (uint64_t seed = 0; seed < 6; seed++)
            run(RONDO_COLL_ALL_REDUCE, 3, seed % 2 ? RONDO_INT8 : RONDO_FLOAT32, RONDO_SUM, counts[seed % 3], false,
                seed);
        run_together(3, together[1], 1);
        close_worlds();
    }
}

static void test_planted(void **state)
{
    (void)state;
    static const gpu_plant plants[] = {
        {"no_barrier", NULL},      {"no_packed_barrier", NULL}, {"half_flag", NULL},          {"lost_counter", NULL},
        {"no_call_barrier", NULL}, {"one_too_far", NULL},       {"one_packet_too_few", NULL}, {"misaligned", "ubsan"},
        {"relaxed_store", "tsan"}, {"relaxed_load", "tsan"}, /* which the processor's own order hides */
    };
    if (!is_cudasim()) skip();
    assert_int_equal(sweep_walks(SETTINGS, "apart", 2), 0);
    plants_are_found(SETTINGS, plants, sizeof plants / sizeof *plants);
}

int main(int argc, char **argv)
{
    on_cudasim(argv, SETTINGS);
    needs_kernels();
    const struct CMUnitTest one[] = {cmocka_unit_test(walk)};
    if (argc > 1) return cmocka_run_group_tests(one, NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planted), /* first, for processes are forked */
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_beside_steps),
        cmocka_unit_test(test_together),
        cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_any_order_of_threads),
        cmocka_unit_test(test_exchange),
        cmocka_unit_test(test_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
