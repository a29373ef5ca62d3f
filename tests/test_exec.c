/* SPDX-License-Identifier: Apache-2.0
 *
 * The executor: all ranks driven by one thread, in random order, over every kind of link.
 */
#include "test.h"

#include "base/dtype.h"
#include "base/memory.h"
#include "ranks.h"
#include "world.h"

#define GUARD 64

/* Guarded buffers of one call; elements are small integers, exact in every type used here. */
typedef struct buffers {
    unsigned char *send[WORLD_MAX], *recv[WORLD_MAX];
    size_t send_bytes, recv_bytes;
} buffers;

static double value(int rank, uint64_t i) { return (double)((i * 7 + (uint64_t)rank * 3) % 11) + 1; }

static void put(unsigned char *at, rondo_dtype type, double x)
{
    if (type == RONDO_FLOAT32) { float f = (float)x; memcpy(at, &f, 4); }
    else if (type == RONDO_FLOAT64) memcpy(at, &x, 8);
    else if (type == RONDO_INT32) { int32_t i = (int32_t)x; memcpy(at, &i, 4); }
    else if (type == RONDO_UINT8) *at = (unsigned char)x;
    else { float f = (float)x; uint32_t bits; memcpy(&bits, &f, 4); bits >>= 16; memcpy(at, &bits, 2); } /* bfloat16 */
}

static double get(const unsigned char *at, rondo_dtype type)
{
    if (type == RONDO_FLOAT32) { float f; memcpy(&f, at, 4); return f; }
    if (type == RONDO_FLOAT64) { double d; memcpy(&d, at, 8); return d; }
    if (type == RONDO_INT32) { int32_t i; memcpy(&i, at, 4); return i; }
    if (type == RONDO_UINT8) return *at;
    uint16_t half; memcpy(&half, at, 2);
    uint32_t bits = (uint32_t)half << 16; float f; memcpy(&f, &bits, 4);
    return f;
}

static unsigned char *guarded(size_t bytes)
{
    unsigned char *all = malloc(bytes + 2 * GUARD);
    memset(all, 0xA5, bytes + 2 * GUARD);
    return all + GUARD;
}

static void check_guard(unsigned char *at, size_t bytes)
{
    for (int i = 0; i < GUARD; i++) {
        assert_int_equal(at[-1 - i], 0xA5);
        assert_int_equal(at[bytes + (size_t)i], 0xA5);
    }
    free(at - GUARD);
}

/* What element i of the result of rank r must be. */
static double expected(const world_call *c, int n, int r, uint64_t i)
{
    (void)r;
    if (c->collective == RONDO_COLL_BROADCAST) return value(c->root, i);
    double sum = value(0, i);
    for (int k = 1; k < n; k++) sum = c->op == RONDO_MAX ? (sum > value(k, i) ? sum : value(k, i)) : sum + value(k, i);
    return sum;
}

static void run_and_check(world *w, world_call *c, bool in_place, uint64_t seed)
{
    int n = w->options.n;
    size_t b = rd_dtype_bytes(c->dtype);
    uint64_t part = c->count / (uint64_t)n; /* of the gathering ones */
    bool scatter = c->collective == RONDO_COLL_REDUCE_SCATTER, gather = c->collective == RONDO_COLL_ALL_GATHER;
    uint64_t sends = gather ? part : c->count, recvs = scatter ? part : c->count;
    for (int r = 0; r < n; r++) {
        unsigned char *s = guarded(sends * b), *d;
        c->recv[r] = d = guarded(recvs * b);
        for (uint64_t i = 0; i < sends; i++) put(s + i * b, c->dtype, value(r, gather ? i + (uint64_t)r * part : i));
        c->send[r] = s;
        if (in_place && !scatter && !gather) {
            memcpy(d, s, sends * b);
            c->send[r] = d;
            check_guard(s, sends * b);
        }
    }
    world_run(w, c, seed);
    for (int r = 0; r < n; r++) {
        bool has = c->collective != RONDO_COLL_REDUCE || r == c->root;
        for (uint64_t i = 0; has && i < recvs; i++) {
            uint64_t at = scatter ? i + (uint64_t)r * part : i;
            double want = gather ? value((int)(i / (part ? part : 1)), i) : expected(c, n, r, at);
            double got = get(c->recv[r] + i * b, c->dtype);
            if (got != want)
                fail_msg("%d ranks, collective %d, algo %d, %s %s, count %llu, rank %d, element %llu: %g, not %g", n,
                         c->collective, c->algo, rd_dtype_name(c->dtype), rd_op_name(c->op), (unsigned long long)c->count,
                         r, (unsigned long long)i, got, want);
        }
        if (c->send[r] != c->recv[r]) {
            for (uint64_t i = 0; i < sends; i++) /* nobody writes to send */
                assert_true(get(c->send[r] + i * b, c->dtype) == value(r, gather ? i + (uint64_t)r * part : i));
            check_guard((unsigned char *)(uintptr_t)c->send[r], sends * b);
        }
        check_guard(c->recv[r], recvs * b);
    }
}

/* Every collective at counts around nothing, N, a slice and a few blocks. */
static void sweep(world *w, rondo_dtype type, uint64_t seed)
{
    int n = w->options.n;
    uint64_t slice = w->options.slice_bytes / rd_dtype_bytes(type), un = (uint64_t)n;
    uint64_t counts[] = {0, 1, un - 1, un, un + 1, 2 * un + 1, slice - 1, slice * un, slice * un + 1, 7 * slice * un + 3};
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
        for (int coll = 0; coll <= RONDO_COLL_REDUCE; coll++) {
            world_call c = {.collective = (rondo_collective)coll, .dtype = type, .op = k % 2 ? RONDO_SUM : RONDO_MAX,
                            .root = (int)(k % un), .count = counts[k]};
            bool gathers = coll == RONDO_COLL_REDUCE_SCATTER || coll == RONDO_COLL_ALL_GATHER;
            if (gathers) c.count = counts[k] / un * un;
            for (int in_place = 0; in_place < 2; in_place++) run_and_check(w, &c, in_place, seed++);
            if (coll == RONDO_COLL_ALL_REDUCE && !w->options.flat && n == 2) { /* an exchange over the ring's links */
                c.algo = RONDO_ALGO_EXCHANGE;
                run_and_check(w, &c, true, seed++);
                run_and_check(w, &c, false, seed++);
            }
            if (coll == RONDO_COLL_ALL_REDUCE && w->options.flat) {
                c.algo = RONDO_ALGO_FLAT;
                run_and_check(w, &c, true, seed++);
                run_and_check(w, &c, false, seed++);
                if (counts[k] > slice) continue;
                c.algo = RONDO_ALGO_EXCHANGE;
                run_and_check(w, &c, true, seed++);
                run_and_check(w, &c, false, seed++);
            }
        }
}

static void all_types(const world_options *options, uint64_t seed)
{
    static const rondo_dtype types[] = {RONDO_FLOAT32, RONDO_BFLOAT16, RONDO_INT32, RONDO_FLOAT64, RONDO_UINT8};
    static world w;
    world_open(&w, options);
    size_t some = test_slowness() > 1 ? 2 : sizeof types / sizeof *types;
    for (size_t t = 0; t < some; t++) sweep(&w, types[t], seed + t * 1000);
    world_close(&w);
}

static void over(const rondo_transport *(*transport)(int), bool flat)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    size_t some = test_slowness() > 1 ? 4 : sizeof sizes / sizeof *sizes;
    for (size_t k = 0; k < some; k++) {
        world_options o = {.n = sizes[k], .channels = 1, .slice_bytes = 4096, .flat = flat && sizes[k] > 1, .transport = transport};
        all_types(&o, 17 * k);
    }
}

static void test_loop(void **state) { (void)state; over(world_loop, true); }
static void test_shm(void **state) { (void)state; over(world_shm, true); }
static void test_tcp(void **state) { (void)state; over(world_tcp, false); }
static void test_mixed(void **state) { (void)state; over(world_mixed, false); }

static void test_channels(void **state)
{
    (void)state;
    static const int32_t order[] = {0, 3, 1, 4, 2};
    for (int channels = 1; channels <= 4; channels *= 2)
        for (int tcp = 0; tcp < 2; tcp++) {
            world_options o = {.n = 5, .channels = channels, .slice_bytes = 4096, .sockets = channels,
                               .transport = tcp ? world_tcp : world_loop, .order = order};
            all_types(&o, (uint64_t)channels);
        }
}

/* Two ranks exchange over sockets so narrow one way that a rank's terms are still leaving when the sums come to take their place. */
static void test_narrow_pair(void **state)
{
    (void)state;
    static world w;
    for (int sockets = 1; sockets <= 2; sockets++) {
        world_options o = {.n = 2, .channels = 1, .slice_bytes = 65536, .sockets = sockets, .socket_bytes = 4096, .one_way = true,
                           .transport = world_tcp};
        world_open(&w, &o);
        for (uint64_t seed = 0; seed < 10; seed++) {
            world_call c = {.collective = RONDO_COLL_ALL_REDUCE, .algo = RONDO_ALGO_EXCHANGE, .dtype = seed % 2 ? RONDO_FLOAT32 : RONDO_BFLOAT16,
                            .op = RONDO_SUM, .count = 150001};
            run_and_check(&w, &c, true, seed);
        }
        world_close(&w);
    }
}

/* Payload per rank is what the plan says, split evenly over channels. */
static void test_bytes(void **state)
{
    (void)state;
    static world w;
    for (int n = 2; n <= 8; n += test_slowness() > 1 ? 3 : 1)
        for (int channels = 1; channels <= 4; channels *= 2)
            for (int kind = 0; kind < 4; kind++) {
                rondo_dtype type = kind == 1 ? RONDO_BFLOAT16 : kind == 2 ? RONDO_FLOAT8E4M3 : RONDO_FLOAT32;
                bool flat = kind == 3;
                if (flat && channels > 1) continue;
                /* flat: so few that slots are used */
                uint64_t un = (uint64_t)n, count = (flat ? 1024 : 4096) * un, b = rd_dtype_bytes(type);
                world_options o = {.n = n, .channels = channels, .slice_bytes = 4096, .flat = flat,
                                   .transport = n % 2 || flat ? world_loop : world_tcp};
                world_open(&w, &o);
                world_call c = {.collective = RONDO_COLL_ALL_REDUCE, .algo = flat, .dtype = type, .count = count};
                for (int r = 0; r < n; r++) c.send[r] = c.recv[r] = calloc(count, b);
                world_run(&w, &c, (uint64_t)n);
                uint64_t units = kind == 1 ? 3 * un - 4 : kind == 2 ? 5 * un - 8 : 2 * (un - 1);
                if (n == 2) units = 2;
                if (flat) units = un - 1; /* sums come back in the slots they were read from */
                for (int r = 0; r < n; r++) {
                    assert_int_equal(flat ? world_all_bytes(&w, r) : world_ring_bytes(&w, r, -1), units * count / un * b);
                    for (int ch = 0; ch < channels && !flat; ch++)
                        assert_int_equal(world_ring_bytes(&w, r, ch), units * count / un * b / (uint64_t)channels);
                    free(c.recv[r]);
                }
                world_close(&w);
            }
}

/* Ring and flat, slots and sockets, one slice size and another: the same bits from random floats. */
static void test_same_bits(void **state)
{
    (void)state;
    static world w;
    static const rondo_dtype types[] = {RONDO_FLOAT32, RONDO_BFLOAT16, RONDO_FLOAT16, RONDO_FLOAT64};
    static const int sizes[] = {2, 3, 5, 8};
    const uint64_t count = 503;
    for (size_t t = 0; t < 4; t++)
        for (size_t k = 0; k < 4; k++)
            for (int op = RONDO_SUM; op <= RONDO_AVG; op++) {
                int n = sizes[k];
                size_t bytes = count * rd_dtype_bytes(types[t]);
                unsigned char *first = NULL;
                for (int way = 0; way < 5; way++) {
                    world_options o = {.n = n, .channels = way == 2 ? 2 : 1, .slice_bytes = way == 3 ? 8192 : 4096,
                                       .flat = way == 1 || way == 4, .transport = way == 2 ? world_tcp : world_loop};
                    world_open(&w, &o);
                    rondo_algo algo = way == 1 ? RONDO_ALGO_FLAT : way == 4 ? RONDO_ALGO_EXCHANGE : RONDO_ALGO_RING;
                    world_call c = {.collective = RONDO_COLL_ALL_REDUCE, .algo = algo, .dtype = types[t],
                                    .op = (rondo_op)op, .count = count};
                    for (int r = 0; r < n; r++) {
                        unsigned char *p = c.recv[r] = malloc(bytes);
                        c.send[r] = p;
                        for (uint64_t i = 0; i < count; i++) {
                            double x = ((double)(mix((uint64_t)r + 5, i) % 2000001) - 1e6) / 777.0;
                            if (types[t] == RONDO_FLOAT16) {
                                uint16_t h = (uint16_t)(mix((uint64_t)r, i) & 0xBBFF); /* finite, below 2 */
                                memcpy(p + 2 * i, &h, 2);
                            } else put(p + i * rd_dtype_bytes(types[t]), types[t], x);
                        }
                    }
                    world_run(&w, &c, (uint64_t)way);
                    for (int r = 0; r < n; r++) {
                        if (!first) {
                            first = malloc(bytes);
                            memcpy(first, c.recv[r], bytes);
                        }
                        if (memcmp(first, c.recv[r], bytes))
                            fail_msg("%s %s, %d ranks: way %d, rank %d has other bits", rd_dtype_name(types[t]),
                                     rd_op_name((rondo_op)op), n, way, r);
                        free(c.recv[r]);
                    }
                    world_close(&w);
                }
                free(first);
            }
}

static size_t mappings_of_memory(void)
{
    char line[512];
    size_t n = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps)) n += strstr(line, "rondo memory") != NULL;
    fclose(maps);
    return n;
}

/* Memory that peers reach directly beside memory that they cannot, in every mixture of ranks, in place and not; when it
 * is freed, peers let go of it. */
static void test_direct(void **state)
{
    (void)state;
    static world w;
    const int n = 3;
    const uint64_t count = 50021;
    world_options o = {.n = n, .channels = 1, .slice_bytes = 16384, .flat = true, .transport = world_shm};
    world_open(&w, &o);
    size_t before = mappings_of_memory();
    for (int mixture = 0; mixture < 64; mixture++) {
        void *memory[6];
        world_call c = {.collective = RONDO_COLL_ALL_REDUCE, .algo = RONDO_ALGO_FLAT, .dtype = RONDO_FLOAT32, .count = count};
        bool in_place = mixture % 3 == 0;
        for (int k = 0; k < 2 * n; k++) {
            bool direct = mixture >> k & 1;
            size_t bytes = count * 4 + 3 * GUARD, shift = (size_t)(4 * k);
            if (direct) assert_int_equal(rd_memory_alloc(bytes, &memory[k]), RONDO_SUCCESS);
            else memory[k] = malloc(bytes);
            unsigned char *at = (unsigned char *)memory[k] + GUARD + shift;
            memset(memory[k], 0xA5, bytes);
            for (uint64_t i = 0; i < count && k < n; i++) put(at + 4 * i, RONDO_FLOAT32, value(k, i));
            if (k < n) c.send[k] = c.recv[k] = at;
            else if (!in_place) c.recv[k - n] = at;
        }
        world_run(&w, &c, (uint64_t)mixture);
        for (int r = 0; r < n; r++) {
            for (int g = 1; g <= GUARD; g++) {
                assert_int_equal(c.recv[r][-g], 0xA5);
                assert_int_equal(c.recv[r][count * 4 + (size_t)g - 1], 0xA5);
            }
            for (uint64_t i = 0; i < count; i++) {
                double want = expected(&c, n, r, i);
                if (get(c.recv[r] + 4 * i, RONDO_FLOAT32) != want)
                    fail_msg("mixture %d, rank %d, element %llu: %g, not %g", mixture, r, (unsigned long long)i,
                             get(c.recv[r] + 4 * i, RONDO_FLOAT32), want);
                if (!in_place) assert_true(get(c.send[r] + 4 * i, RONDO_FLOAT32) == value(r, i));
            }
        }
        for (int k = 0; k < 2 * n; k++)
            if (mixture >> k & 1) assert_int_equal(rd_memory_free(memory[k]), RONDO_SUCCESS);
            else free(memory[k]);
    }
    for (int r = 0; r < n; r++)
        for (int p = 0; p < n; p++)
            if (p != r) w.in[r][p].link->ops->arm(w.in[r][p].link, &w.bell[r], UINT64_MAX);
    assert_int_equal(mappings_of_memory(), before);
    world_close(&w);
}

/* A rank whose peer does nothing publishes as many slices as its link has slots. */
static void test_flat_ahead(void **state)
{
    (void)state;
    static world w;
    static float data[2][10 * 4096];
    world_options o = {.n = 2, .channels = 1, .slice_bytes = 4096, .flat = true, .transport = world_shm};
    world_open(&w, &o);
    world_call c = {.collective = RONDO_COLL_ALL_REDUCE, .algo = RONDO_ALGO_FLAT, .dtype = RONDO_FLOAT32,
                    .count = sizeof data[0] / sizeof(float)};
    for (int r = 0; r < 2; r++) c.send[r] = c.recv[r] = (unsigned char *)data[r];
    world_start(&w, &c, 1);
    while (rd_op_advance(&w.op[0]) == RD_MOVED) continue;
    assert_int_equal(w.out[0][1].used, w.out[0][1].link->slots);
    while (rd_op_advance(&w.op[1]) == RD_MOVED) continue;
    assert_int_equal(w.op[1].flat.reduced, w.out[0][1].link->slots);
    assert_int_equal(w.op[1].flat.collected, 0); /* it waits for sums of rank 0 */
    world_close(&w);
}

/* Many calls on the same links, each by another schedule. */
static void test_random_schedules(void **state)
{
    (void)state;
    static world w;
    world_options o = {.n = 8, .channels = 1, .slice_bytes = 4096, .flat = true, .transport = world_shm};
    world_open(&w, &o);
    for (uint64_t seed = 0; seed < (getenv("RONDO_TEST_LONG") ? 20000 : test_slowness() > 1 ? 60 : 300); seed++) {
        world_call c = {.collective = (rondo_collective)(mix(1, seed) % (RONDO_COLL_REDUCE + 1)), .dtype = RONDO_INT32,
                        .op = RONDO_SUM, .root = (int)(mix(2, seed) % 8), .count = mix(3, seed) % 6000 * 8};
        if (c.collective == RONDO_COLL_ALL_REDUCE && mix(4, seed) % 2)
            c.algo = c.count <= 1024 ? RONDO_ALGO_EXCHANGE : RONDO_ALGO_FLAT;
        run_and_check(&w, &c, mix(5, seed) % 2, seed);
    }
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loop),  cmocka_unit_test(test_shm),      cmocka_unit_test(test_tcp),
        cmocka_unit_test(test_mixed), cmocka_unit_test(test_channels), cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_same_bits), cmocka_unit_test(test_direct), cmocka_unit_test(test_flat_ahead),
        cmocka_unit_test(test_random_schedules), cmocka_unit_test(test_narrow_pair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
