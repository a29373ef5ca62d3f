/* SPDX-License-Identifier: Apache-2.0
 *
 * test_exec_orders.c - channels whose rings go round in different orders: right results, the same bits on all ranks, and
 * the order of additions that is documented: of each channel's part of a chunk, along that channel's ring.
 */
#include "test.h"

#include "base/dtype.h"
#include "elements.h"
#include "world.h"

enum { N = 5, CHANNELS = 3 };
static const int32_t orders[CHANNELS][N] = {{0, 1, 2, 3, 4}, {0, 3, 1, 4, 2}, {0, 4, 3, 2, 1}};

static world_options options(const rondo_transport *(*transport)(int))
{
    world_options o = {.n = N, .channels = CHANNELS, .slice_bytes = 4096, .transport = transport};
    for (int c = 0; c < CHANNELS; c++) o.orders[c] = orders[c];
    return o;
}

/* Numbers whose sum depends on the order. */
static float uneven(int rank, uint64_t i)
{
    return (float)((double)(mix((uint64_t)rank, i) >> 11) * 0x1p-53 * (i % 3 ? 1.0 : 1e6));
}

/* The sum in the order of the channel that the element belongs to. */
static float sum_of(uint64_t count, uint64_t i)
{
    int chunk = 0, channel = 0, at = 0;
    rondo_range whole = {0, count}, part;
    while (part = rondo_split(whole, N, (uint32_t)chunk, 1), i >= part.first + part.count) chunk++;
    rondo_range mine = part;
    while (part = rondo_split(mine, CHANNELS, (uint32_t)channel, RD_CHANNEL_GRAIN), i >= part.first + part.count) channel++;
    while (orders[channel][at] != chunk) at++;
    float sum = uneven(orders[channel][(at + 1) % N], i);
    for (int k = 2; k <= N; k++) sum += uneven(orders[channel][(at + k) % N], i);
    return sum;
}

static void documented_order(const rondo_transport *(*transport)(int))
{
    enum { COUNT = 40007 };
    world_options o = options(transport);
    world *w = malloc(sizeof *w);
    world_call call = {.collective = RONDO_COLL_ALL_REDUCE, .dtype = RONDO_FLOAT32, .op = RONDO_SUM, .count = COUNT};
    float *data[N];
    world_open(w, &o);
    for (int r = 0; r < N; r++) {
        call.send[r] = call.recv[r] = malloc(COUNT * sizeof(float));
        data[r] = (float *)(void *)call.recv[r];
        for (uint64_t i = 0; i < COUNT; i++) data[r][i] = uneven(r, i);
    }
    world_run(w, &call, 7);
    for (uint64_t i = 0; i < COUNT; i++) assert_true(data[0][i] == sum_of(COUNT, i));
    for (int r = 1; r < N; r++) assert_memory_equal(data[r], data[0], COUNT * sizeof(float));
    for (int r = 0; r < N; r++) free(data[r]);
    world_close(w);
    free(w);
}

static void documented_order_of_additions(void **state)
{
    (void)state;
    documented_order(world_loop);
    documented_order(world_tcp);
    documented_order(world_mixed);
}

/* One call; data as in elements.h, out of place. */
static void check(world *w, world_call *c, uint64_t seed)
{
    bool scatters = c->collective == RONDO_COLL_REDUCE_SCATTER, gathers = c->collective == RONDO_COLL_ALL_GATHER;
    size_t bytes = rd_dtype_bytes(c->dtype), part = c->count / N;
    for (int r = 0; r < N; r++) {
        unsigned char *send = malloc(c->count * bytes + 1);
        for (uint64_t i = 0; i < c->count; i++) {
            bool own = !gathers || i / part == (uint64_t)r;
            if (own) element_put(send + (gathers ? i % part : i) * bytes, c->dtype, element_term(c->dtype, c->op, r, N, i, 1));
        }
        c->send[r] = send;
        c->recv[r] = malloc(c->count * bytes + 1);
    }
    world_run(w, c, seed);
    for (int r = 0; r < N; r++) {
        uint64_t from = scatters ? part * (uint64_t)r : 0, count = scatters ? part : c->count;
        if (c->collective == RONDO_COLL_REDUCE && r != c->root) count = 0;
        for (uint64_t i = from; i < from + count; i++) {
            double want = element_result(c->dtype, c->op, N, i, 1);
            if (gathers) want = element_round(element_term(c->dtype, c->op, (int)(i / part), N, i, 1), c->dtype);
            if (c->collective == RONDO_COLL_BROADCAST)
                want = element_round(element_term(c->dtype, c->op, c->root, N, i, 1), c->dtype);
            double got = element_get(c->recv[r] + (i - from) * bytes, c->dtype);
            if (got != want)
                fail_msg("collective %d, type %d, rank %d, element %llu: %g, not %g", c->collective, c->dtype, r,
                         (unsigned long long)i, got, want);
        }
    }
    for (int r = 0; r < N; r++) {
        free((void *)(uintptr_t)c->send[r]);
        free(c->recv[r]);
    }
}

static void every_collective(void **state)
{
    (void)state;
    static const uint64_t counts[] = {0, 5, 35, 640, 20000, 60005};
    static const rondo_dtype types[] = {RONDO_FLOAT32, RONDO_BFLOAT16, RONDO_INT8};
    const rondo_transport *(*const transports[])(int) = {world_loop, world_tcp, world_mixed};
    for (int t = 0; t < 3; t++) {
        world_options o = options(transports[t]);
        world *w = malloc(sizeof *w);
        world_open(w, &o);
        for (int coll = 0; coll <= RONDO_COLL_REDUCE; coll++)
            for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
                for (int type = 0; type < 3; type++) {
                    world_call c = {.collective = (rondo_collective)coll, .dtype = types[type], .op = RONDO_SUM,
                                    .root = (int)k % N, .count = counts[k]};
                    check(w, &c, k);
                }
        world_close(w);
        free(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documented_order_of_additions),
        cmocka_unit_test(every_collective),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
