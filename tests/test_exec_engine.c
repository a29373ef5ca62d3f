/* SPDX-License-Identifier: Apache-2.0
 *
 * The executor with an engine that does what it is given later: every collective on ranks with and without one, over
 * every kind of link, has the bits it has without. All ranks in one thread, in random order; what is given to an engine
 * is done at random looks, so a slice that is passed on too early carries what was in its slot before.
 */
#include "test.h"

#include "base/status.h"
#include "ranks.h"
#include "world.h"

#define SLICE 4096

/* ---- An engine ---- */

typedef struct job {
    const rd_reduction *reduction; /* NULL: a copy */
    rd_pass pass;
    size_t bytes;
} job;

enum { LINE = 256 };

typedef struct late {
    rd_engine engine;
    job line[LINE];
    uint64_t looks, seed, most; /* most: of what was given and not done */
    uint64_t fails_at;          /* this ticket is refused; 0: none */
} late;

static late lates[WORLD_MAX];

static job *next_job(late *l)
{
    uint64_t waiting = l->engine.given - l->engine.done;
    assert_true(waiting < LINE);
    if (waiting + 1 > l->most) l->most = waiting + 1;
    return &l->line[l->engine.given % LINE];
}

static rondo_result refuse(const late *l)
{
    return l->fails_at && l->engine.given + 1 >= l->fails_at ? rd_fail(RONDO_UNHANDLED_CUDA_ERROR, "as it was told to")
                                                             : RONDO_SUCCESS;
}

static rondo_result late_reduce(rd_engine *engine, const rd_reduction *reduction, const rd_pass *pass)
{
    late *l = (late *)engine;
    RD_TRY(refuse(l));
    *next_job(l) = (job){.reduction = reduction, .pass = *pass};
    return RONDO_SUCCESS;
}

static rondo_result late_copy(rd_engine *engine, void *to, void *also, const void *from, size_t bytes)
{
    late *l = (late *)engine;
    RD_TRY(refuse(l));
    *next_job(l) = (job){.pass = {.source = {from}, .output = {to, also}}, .bytes = bytes};
    return RONDO_SUCCESS;
}

static uint64_t late_look(rd_engine *engine)
{
    late *l = (late *)engine;
    uint64_t done = engine->done, draw = mix(l->seed, l->looks++);
    for (uint64_t n = draw % 8 < 5 ? 0 : draw % 3 + 1; n && done < engine->given; n--, done++) {
        job *j = &l->line[done % LINE];
        if (j->reduction)
            rd_reduce(j->reduction, &j->pass);
        else
            rd_copy(j->pass.output[0], j->pass.output[1], j->pass.source[0], j->bytes, false);
    }
    return done;
}

static rondo_result late_check(rd_engine *engine)
{
    (void)engine;
    return RONDO_SUCCESS;
}

static rd_engine *late_at(int rank)
{
    static const struct rd_engine_ops ops = {
        .reduce = late_reduce, .copy = late_copy, .look = late_look, .check = late_check};
    lates[rank].engine.ops = &ops;
    return &lates[rank].engine;
}

static rd_engine *on_all(int rank)
{
    return late_at(rank);
}
static rd_engine *on_some(int rank)
{
    return rank % 3 != 1 ? late_at(rank) : NULL;
}

/* ---- The same call with and without ---- */

static const struct kind {
    const char *name;
    const rondo_transport *(*transport)(int from);
    int socket_bytes, channels;
} kinds[] = {
    {"loop", world_loop, 0, 1},           {"shm", world_shm, 0, 2},     {"tcp", world_tcp, 0, 1},
    {"tcp in parts", world_tcp, 4608, 2}, {"mixed", world_mixed, 0, 1},
};

static world worlds[2]; /* without, with */
static unsigned char *in[WORLD_MAX], *out[2][WORLD_MAX];

static bool reduces(rondo_collective c)
{
    return c == RONDO_COLL_ALL_REDUCE || c == RONDO_COLL_REDUCE_SCATTER || c == RONDO_COLL_REDUCE;
}

/* The whole message on every rank: more than some collectives need. */
static void fill(int n, size_t bytes, rondo_dtype dtype, uint64_t seed)
{
    for (int r = 0; r < n; r++) {
        in[r] = malloc(bytes + 1);
        for (size_t i = 0; i < bytes; i++) in[r][i] = (unsigned char)(mix(seed + (uint64_t)r, i) >> 8);
        for (size_t i = 3; dtype == RONDO_FLOAT32 && i < bytes; i += 4)
            in[r][i] = (in[r][i] & 0x81) | 0x3e; /* numbers */
        for (int w = 0; w < 2; w++) out[w][r] = malloc(bytes + 1), memset(out[w][r], 0x5a, bytes + 1);
    }
}

static void run(rondo_collective collective, int n, rondo_dtype dtype, uint64_t count, bool in_place, uint64_t seed)
{
    bool peers = collective >= RONDO_COLL_GATHER;
    world_call c = {.collective = collective,
                    .algo = peers ? RONDO_ALGO_PEERS : RONDO_ALGO_RING,
                    .dtype = dtype,
                    .op = seed % 3 ? RONDO_SUM : RONDO_AVG,
                    .root = (int)(seed % (uint64_t)n),
                    .count = count};
    if (collective == RONDO_COLL_ALL_REDUCE && n == 2 && seed % 2) c.algo = RONDO_ALGO_EXCHANGE;
    size_t bytes = count * (dtype == RONDO_FLOAT32 ? 4 : dtype == RONDO_BFLOAT16 ? 2 : 1);
    fill(n, bytes, dtype, seed);
    for (int w = 0; w < 2; w++) {
        for (int r = 0; r < n; r++) {
            bool here = in_place && (collective == RONDO_COLL_ALL_REDUCE || collective == RONDO_COLL_BROADCAST);
            c.recv[r] = out[w][r];
            c.send[r] = here ? memcpy(out[w][r], in[r], bytes) : in[r];
        }
        world_run(&worlds[w], &c, seed);
    }
    for (int r = 0; r < n; r++) {
        assert_memory_equal(out[0][r], out[1][r], bytes + 1);
        free(in[r]), free(out[0][r]), free(out[1][r]);
    }
}

static void every_collective_has_the_same_bits(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 5, 8};
    static const rondo_dtype types[] = {RONDO_FLOAT32, RONDO_BFLOAT16, RONDO_INT8};
    static const uint64_t counts[] = {0, 1, 100, SLICE, 20 * SLICE + 40};
    uint64_t seed = 0;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            int n = sizes[s];
            if (test_slowness() > 1 && n > 3) continue;
            for (int w = 0; w < 2; w++) {
                world_options o = {.n = n,
                                   .channels = kinds[k].channels,
                                   .slice_bytes = SLICE,
                                   .peers = true,
                                   .transport = kinds[k].transport,
                                   .socket_bytes = kinds[k].socket_bytes};
                if (w == 1) o.engine = (k + s) % 2 ? on_some : on_all;
                world_open(&worlds[w], &o);
            }
            for (rondo_collective c = 0; c < RONDO_COLLECTIVES; c++)
                for (size_t i = 0; i < sizeof counts / sizeof *counts; i++, seed++) {
                    uint64_t each = c >= RONDO_COLL_GATHER || c == RONDO_COLL_REDUCE_SCATTER ? (uint64_t)n : 1;
                    run(c, n, reduces(c) ? types[seed % 3] : RONDO_INT8, counts[i] / each * each, seed & 1, seed);
                }
            world_close(&worlds[0]);
            world_close(&worlds[1]);
        }
}

/* ---- How much is under way, and failures ---- */

static void several_events_are_under_way(void **state)
{
    (void)state;
    for (int r = 0; r < 3; r++) lates[r].most = 0;
    for (int w = 0; w < 2; w++) {
        world_options o = {
            .n = 3, .channels = 1, .slice_bytes = SLICE, .transport = world_shm, .engine = w ? on_all : NULL};
        world_open(&worlds[w], &o);
    }
    run(RONDO_COLL_ALL_REDUCE, 3, RONDO_FLOAT32, 100 * SLICE, false, 1);
    for (int r = 0; r < 3; r++) assert_int_equal(lates[r].most, RD_BLOCK);
    world_close(&worlds[0]);
    world_close(&worlds[1]);
}

/* One rank's engine refuses at some point: its operation fails and says so, and then it waits for what it has given. */
static void a_failed_engine_fails_the_operation(void **state)
{
    (void)state;
    static float data[3][50000];
    for (rondo_collective c = RONDO_COLL_ALL_REDUCE; c <= RONDO_COLL_ALL_TO_ALL;
         c += RONDO_COLL_ALL_TO_ALL - RONDO_COLL_ALL_REDUCE)
        for (uint64_t at = 1; at < 20; at += 6) {
            rd_progress end[WORLD_MAX];
            world_options o = {
                .n = 3, .channels = 1, .slice_bytes = SLICE, .peers = true, .transport = world_shm, .engine = on_all};
            world_call call = {.collective = c,
                               .algo = c == RONDO_COLL_ALL_TO_ALL ? RONDO_ALGO_PEERS : RONDO_ALGO_RING,
                               .dtype = RONDO_FLOAT32,
                               .op = RONDO_SUM,
                               .count = 24999};
            for (int r = 0; r < 3; r++)
                call.send[r] = (unsigned char *)data[r], call.recv[r] = (unsigned char *)(data[r] + 24999);
            world_open(&worlds[1], &o);
            lates[1].fails_at = lates[1].engine.given + at;
            world_start(&worlds[1], &call, at);
            world_drive(&worlds[1], at, end);
            assert_int_equal(end[1], RD_FAILED);
            assert_true(worlds[1].op[1].engine_failed);
            assert_null(worlds[1].op[1].failed);
            assert_string_equal(rd_last_error(), "as it was told to");
            for (int r = 0; r < 3; r++)
                for (int looks = 0; !rd_op_withdraw(&worlds[1].op[r]); looks++) assert_true(looks < 1000);
            for (int r = 0; r < 3; r++) assert_int_equal(lates[r].engine.done, lates[r].engine.given);
            lates[1].fails_at = 0;
            world_close(&worlds[1]);
        }
}

int main(void)
{
    for (int r = 0; r < WORLD_MAX; r++) lates[r].seed = (uint64_t)r;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_has_the_same_bits),
        cmocka_unit_test(several_events_are_under_way),
        cmocka_unit_test(a_failed_engine_fails_the_operation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
