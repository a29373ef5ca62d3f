/* SPDX-License-Identifier: Apache-2.0
 *
 * test_exec_hier.c - hierarchical all-reduces: every shape of hosts and ranks, kind of link, type and operator; in the
 * documented order, with the same bits everywhere; and what crosses each network.
 */
#include "test.h"

#include "base/dtype.h"
#include "elements.h"
#include "world.h"

static world_options shape(int hosts, int local, int channels, const rondo_transport *(*inside)(int),
                           const rondo_transport *(*rail)(int))
{
    return (world_options){.n = hosts * local,
                           .channels = channels,
                           .slice_bytes = 4096,
                           .transport = inside,
                           .local = local,
                           .rail = rail};
}

static world *opened(const world_options *o)
{
    world *w = malloc(sizeof *w);
    world_open(w, o);
    return w;
}

static void closed(world *w)
{
    world_close(w);
    free(w);
}

static void run_one(world *w, rondo_dtype type, rondo_op op, uint64_t count, bool in_place, uint64_t seed)
{
    int n = w->options.n;
    size_t bytes = rd_dtype_bytes(type);
    world_call c = {
        .collective = RONDO_COLL_ALL_REDUCE, .algo = RONDO_ALGO_HIER, .dtype = type, .op = op, .count = count};
    unsigned char *send[WORLD_MAX];
    for (int r = 0; r < n; r++) {
        c.recv[r] = malloc(count * bytes + 64);
        memset(c.recv[r], 0xA5, count * bytes + 64);
        send[r] = in_place ? c.recv[r] : malloc(count * bytes + 1);
        for (uint64_t i = 0; i < count; i++)
            element_put(send[r] + i * bytes, type, element_term(type, op, r, n, i, seed));
        c.send[r] = send[r];
    }
    world_run(w, &c, seed);
    for (int r = 0; r < n; r++) {
        for (uint64_t i = 0; i < count; i++) {
            double got = element_get(c.recv[r] + i * bytes, type), want = element_result(type, op, n, i, seed);
            if (got != want)
                fail_msg("%d hosts of %d ranks, %s %s of %llu, %s, rank %d, element %llu: %g, not %g",
                         n / w->options.local, w->options.local, rd_dtype_name(type), rd_op_name(op),
                         (unsigned long long)count, in_place ? "in place" : "out of place", r, (unsigned long long)i,
                         got, want);
        }
        for (int i = 0; i < 64; i++) assert_int_equal(c.recv[r][count * bytes + (size_t)i], 0xA5);
        for (uint64_t i = 0; !in_place && i < count; i++)
            assert_true(element_get(send[r] + i * bytes, type) ==
                        element_round(element_term(type, op, r, n, i, seed), type));
        if (!in_place) free(send[r]);
        free(c.recv[r]);
    }
}

static const rondo_transport *(*const kinds[][2])(int) = {{world_loop, world_tcp},
                                                          {world_shm, world_tcp},
                                                          {world_loop, world_loop},
                                                          {world_tcp, world_tcp},
                                                          {world_mixed, world_mixed}};

static void every_shape(void **state)
{
    (void)state;
    static const int shapes[][2] = {{2, 2}, {2, 3}, {3, 2}, {4, 2}, {2, 4}, {3, 3},
                                    {1, 3}, {3, 1}, {2, 1}, {1, 2}, {2, 8}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t k = s % 5; k < s % 5 + 3; k += 2) { /* two kinds of links each, in turns */
            const rondo_transport *(*const *kind)(int) = kinds[k % 5];
            int n = shapes[s][0] * shapes[s][1];
            world_options o = shape(shapes[s][0], shapes[s][1], 1 + (int)(s + k) % 3, kind[0], kind[1]);
            world *w = opened(&o);
            uint64_t un = (uint64_t)n, counts[] = {0, 1, un - 1, un, un + 1, 1024, 1024 * un + 1, 7000 * un / 2 + 3};
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                for (int in_place = 0; in_place < 2; in_place++) {
                    run_one(w, RONDO_FLOAT32, RONDO_SUM, counts[c], in_place, c);
                    run_one(w, c % 2 ? RONDO_BFLOAT16 : RONDO_FLOAT16, RONDO_SUM, counts[c], in_place, c);
                }
            closed(w);
        }
}

static void every_type_and_operator(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        world_options o = shape(3, 2, 2, kinds[k][0], kinds[k][1]);
        world *w = opened(&o);
        for (int type = 0; type < RONDO_DTYPES; type++)
            for (int op = 0; op < RONDO_OPS; op++) run_one(w, (rondo_dtype)type, (rondo_op)op, 5003, op % 2, 11);
        closed(w);
    }
}

/* Several segments, of which the later overtake nobody; the last is shorter. */
static void long_messages(void **state)
{
    (void)state;
    world_options o = shape(2, 2, 2, world_loop, world_tcp);
    o.slice_bytes = 65536;
    world *w = opened(&o);
    uint64_t segment = (uint64_t)RONDO_SEGMENT * 4;
    run_one(w, RONDO_UINT8, RONDO_SUM, 3 * segment + 5, false, 3);
    run_one(w, RONDO_FLOAT8E4M3, RONDO_MAX, 2 * segment + 1, true, 4);
    run_one(w, RONDO_BFLOAT16, RONDO_AVG, segment + 1, true, 5);
    closed(w);
}

static float uneven(int rank, uint64_t i)
{
    return (float)((double)(mix((uint64_t)rank, i) >> 11) * 0x1p-53);
}

/* Along the ring of each host, then along the rail. */
static float documented(const int32_t *order, int hosts, int local, uint64_t count, uint64_t i)
{
    rondo_range whole = {0, count}, piece, chunk;
    int at = 0, host = 0;
    float sum = 0;
    while (piece = rondo_split(whole, (uint32_t)local, (uint32_t)at, 1), i >= piece.first + piece.count) at++;
    while (chunk = rondo_split(piece, (uint32_t)hosts, (uint32_t)host, 1), i >= chunk.first + chunk.count) host++;
    for (int h = 1; h <= hosts; h++) {
        const int32_t *ranks = order + (host + h) % hosts * local;
        float of_host = uneven(ranks[(at + 1) % local], i);
        for (int k = 2; k <= local; k++) of_host += uneven(ranks[(at + k) % local], i);
        sum = h == 1 ? of_host : sum + of_host;
    }
    return sum;
}

static void order_of_additions(void **state)
{
    (void)state;
    enum { COUNT = 9001, HOSTS = 3, LOCAL = 3, N = HOSTS * LOCAL };
    static const int32_t order[N] = {4, 1, 0, 2, 8, 7, 3, 5, 6};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        world_options o = shape(HOSTS, LOCAL, 2, kinds[k][0], kinds[k][1]);
        o.order = order;
        world *w = opened(&o);
        world_call c = {.collective = RONDO_COLL_ALL_REDUCE,
                        .algo = RONDO_ALGO_HIER,
                        .dtype = RONDO_FLOAT32,
                        .op = RONDO_SUM,
                        .count = COUNT};
        float *data[N];
        for (int r = 0; r < N; r++) {
            c.send[r] = c.recv[r] = malloc(COUNT * sizeof(float));
            data[r] = (float *)(void *)c.recv[r];
            for (uint64_t i = 0; i < COUNT; i++) data[r][i] = uneven(r, i);
        }
        world_run(w, &c, k);
        for (uint64_t i = 0; i < COUNT; i++) assert_true(data[0][i] == documented(order, HOSTS, LOCAL, COUNT, i));
        for (int r = 1; r < N; r++) assert_memory_equal(data[r], data[0], COUNT * sizeof(float));
        for (int r = 0; r < N; r++) free(data[r]);
        closed(w);
    }
}

/* 2(H-1)/H of the message by all of a host's ranks together. */
static void what_crosses_the_network(void **state)
{
    (void)state;
    enum { HOSTS = 4, LOCAL = 2, COUNT = HOSTS * LOCAL * 1000 };
    world_options o = shape(HOSTS, LOCAL, 1, world_loop, world_tcp);
    world *w = opened(&o);
    run_one(w, RONDO_FLOAT32, RONDO_SUM, COUNT, true, 9);
    for (int h = 0; h < HOSTS; h++) {
        uint64_t bytes = 0;
        for (int i = 0; i < LOCAL; i++) bytes += w->hier_out[h * LOCAL + i][RD_RAIL][0].link->bytes_sent;
        assert_int_equal(bytes, 2 * (HOSTS - 1) * COUNT * 4 / HOSTS);
    }
    closed(w);
}

/* Someone calls something else: all hear of it, none is done. */
static void other_calls(void **state)
{
    (void)state;
    for (int other = 0; other < 6; other++) {
        world_options o = shape(3, 2, 1, world_loop, world_tcp);
        world *w = opened(&o);
        world_call c = {.collective = RONDO_COLL_ALL_REDUCE,
                        .algo = RONDO_ALGO_HIER,
                        .dtype = RONDO_INT32,
                        .op = RONDO_SUM,
                        .count = 6};
        unsigned char *memory = calloc(6, 64);
        rd_progress end[WORLD_MAX];
        int failed = 0;
        for (int r = 0; r < 6; r++) {
            c.send[r] = c.recv[r] = memory + 64 * r;
            world_call mine = c;
            if (r == other) mine.algo = RONDO_ALGO_RING, mine.collective = RONDO_COLL_BROADCAST, mine.root = r;
            world_start_rank(w, r, &mine, 1);
        }
        world_drive(w, (uint64_t)other, end);
        for (int r = 0; r < 6; r++) failed += end[r] == RD_FAILED;
        assert_true(failed > 0);
        for (int r = 0; r < 6; r++) assert_true(r == other || end[r] != RD_DONE);
        closed(w);
        free(memory);
    }
}

/* Ends of links on which withdraw was called. */
static const rondo_link *withdrawn[64];
static int withdrawals;
static rondo_link_result count_withdraw(rondo_link *link)
{
    assert_true(withdrawals < 64);
    withdrawn[withdrawals++] = link;
    return RONDO_LINK_OK;
}
static rondo_link *counting(rondo_link *link)
{
    static rondo_link_ops ops;
    ops = *link->ops;
    ops.withdraw = count_withdraw;
    link->ops = &ops;
    return link;
}

/* One that ends early, when the other host has not begun, takes back what its rails were given. */
static void ends_early(void **state)
{
    (void)state;
    world_options o = shape(2, 2, 1, world_tcp, world_tcp);
    o.wrap = counting;
    world *w = opened(&o);
    world_call c = {.collective = RONDO_COLL_ALL_REDUCE, .algo = RONDO_ALGO_HIER, .dtype = RONDO_FLOAT32, .count = 4096};
    unsigned char *memory = calloc(4, 4 * 4096);
    for (int r = 0; r < 4; r++) c.send[r] = c.recv[r] = memory + 4 * 4096 * r;
    for (int r = 0; r < 2; r++) world_start_rank(w, r, &c, 1);
    for (int turn = 0; turn < 1000; turn++) rd_op_advance(&w->op[turn % 2]);
    withdrawals = 0;
    assert_true(rd_op_withdraw(&w->op[0]));
    bool rail = false;
    for (int i = 0; i < withdrawals; i++) rail = rail || withdrawn[i] == w->hier[0].wiring[RD_RAIL].ring_in[0]->link;
    assert_true(rail);
    closed(w);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape),
        cmocka_unit_test(every_type_and_operator),
        cmocka_unit_test(long_messages),
        cmocka_unit_test(order_of_additions),
        cmocka_unit_test(what_crosses_the_network),
        cmocka_unit_test(other_calls),
        cmocka_unit_test(ends_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
