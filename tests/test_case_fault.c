/* SPDX-License-Identifier: Apache-2.0
 *
 * Cases 1, 3, 6 and 7 over links that are worse than any real one: that see slices late, say "try again" without cause,
 * take bytes in small parts, are slow; at random, all ranks in one thread. And links that fail at the k-th call.
 */
#include "test.h"

#include "base/dtype.h"
#include "base/status.h"
#include "trial.h"
#include "world.h"

static uint64_t fault_seed, wrapped;

static double part(uint64_t draw) { return (double)(draw % 1000) / 1000; }

/* Some ends are well, some have one fault, some have all. */
static rondo_link *wrap(rondo_link *inner)
{
    uint64_t draw = mix(fault_seed, wrapped++);
    struct rd_fault fault = {.seed = draw};
    if (draw & 1) fault.again = part(draw >> 8) * 0.9;
    if (draw & 2) fault.delay = (uint32_t)(draw >> 20) % 9;
    if ((draw & 60) == 4) fault.bytes_per_second = 300000000;
    rondo_link *link = rd_fault_wrap(inner, &fault);
    assert_non_null(link);
    return link;
}

/* ---- A trial in a world ---- */

typedef struct buffers {
    unsigned char *send[WORLD_MAX], *recv[WORLD_MAX], *memory[WORLD_MAX][2];
    size_t bytes[2];
} buffers;

static world_call lay_out(const trial *t, int n, rondo_algo algo, buffers *b)
{
    size_t width = rd_dtype_bytes(t->dtype), sends = trial_sends(t, n) * width, receives = trial_receives(t, n) * width;
    bool scatters = t->collective == RONDO_COLL_REDUCE_SCATTER, gathers = t->collective == RONDO_COLL_ALL_GATHER;
    world_call call = {.collective = t->collective, .algo = algo, .dtype = t->dtype, .op = t->op, .root = t->root};
    call.count = t->count * (scatters || gathers ? (uint64_t)n : 1);
    b->bytes[0] = !t->in_place || sends > receives ? sends : receives;
    b->bytes[1] = t->in_place ? 0 : receives;
    for (int r = 0; r < n; r++) {
        size_t mine = (size_t)r * t->count * width;
        for (int k = 0; k < 2; k++)
            b->memory[r][k] = guard_begin(b->bytes[k], (t->skew * (size_t)(r + k + 1)) % 64, false);
        b->send[r] = b->memory[r][0] + (t->in_place && gathers ? mine : 0);
        b->recv[r] = t->in_place ? b->memory[r][0] + (scatters ? mine : 0) : b->memory[r][1];
        trial_fill(t, r, n, b->send[r]);
        call.send[r] = b->send[r];
        call.recv[r] = b->recv[r];
    }
    return call;
}

static void put_away(int n, buffers *b)
{
    for (int r = 0; r < n; r++)
        for (int k = 0; k < 2; k++) assert_true(guard_end(b->memory[r][k], b->bytes[k]));
}

static void world_trial(world *w, const trial *t, rondo_algo algo, uint64_t seed)
{
    static buffers b;
    char name[160], text[256];
    int n = w->options.n;
    world_call call = lay_out(t, n, algo, &b);
    world_run(w, &call, seed);
    for (int r = 0; r < n; r++)
        if (!trial_holds(t, r, n, b.recv[r], text, sizeof text))
            fail_msg("seed %llu: %s: %s", (unsigned long long)seed, trial_name(t, name, sizeof name), text);
    put_away(n, &b);
}

static trial random_trial(uint64_t seed, int n)
{
    const size_t un = (size_t)n, counts[] = {0, 1, un, 2 * un + 1, 4096, 4097, 1024 * un - 1, 11032, 3 * 8192 + 1};
    return trial_draw(seed, n, counts[mix(seed, 9) % (sizeof counts / sizeof *counts)]);
}

static void case_fault_random(void **state)
{
    static world w;
    static const struct {
        const rondo_transport *(*transport)(int from);
        bool flat;
    } kinds[] = {{world_loop, true}, {world_shm, true}, {world_shm, false}, {world_tcp, false}, {world_mixed, false}};
    uint64_t seeds = (uint64_t)(200 / test_slowness());
    (void)state;
    for (fault_seed = 1; fault_seed <= seeds; fault_seed++) {
        uint64_t draw = mix(fault_seed, 12345);
        size_t k = draw % 5;
        world_options o = {
            .n = 2 + (int)(draw >> 8 & 63) % 5,
            .channels = kinds[k].flat ? 1 : 1 + (int)(draw >> 16 & 1),
            .slice_bytes = 4096,
            .flat = kinds[k].flat,
            .sockets = 1 + (int)(draw >> 20 & 1),
            .socket_bytes = draw >> 24 & 1 ? 4608 : 0,
            .transport = kinds[k].transport,
            .wrap = wrap,
        };
        wrapped = 0;
        world_open(&w, &o);
        for (uint64_t i = 0; i < 10; i++) {
            trial t = random_trial(fault_seed * 100 + i, o.n);
            bool flat = o.flat && t.collective == RONDO_COLL_ALL_REDUCE && i % 3;
            world_trial(&w, &t, flat ? RONDO_ALGO_FLAT : RONDO_ALGO_RING, fault_seed * 100 + i);
        }
        world_close(&w);
    }
}

/* ---- The k-th call fails ---- */

static uint64_t failing_end, fail_at;
static rondo_link_result fail_with;
static rondo_link *failing;

static rondo_link *wrap_one(rondo_link *inner)
{
    struct rd_fault fault = {.seed = 1};
    bool this_one = wrapped++ == failing_end;
    if (this_one) fault.fail_at = fail_at, fault.fail_with = fail_with;
    rondo_link *link = rd_fault_wrap(inner, &fault);
    assert_non_null(link);
    if (this_one) failing = link;
    return link;
}

/* Advances all ranks until one fails, or none can go on. Returns the rank that failed, -1 if all are done. */
static int drive(world *w, uint64_t seed)
{
    int n = w->options.n, left = n;
    bool done[WORLD_MAX] = {false};
    for (uint64_t turn = 0; left && turn < 200000; turn++) {
        int r = (int)(mix(seed, turn) % (uint64_t)n);
        if (done[r]) continue;
        rd_progress p = rd_op_advance(&w->op[r]);
        if (p == RD_FAILED) return r;
        if (p == RD_DONE) done[r] = true, left--;
    }
    if (left) fail_msg("end %d, call %d: %d ranks wait and nobody has failed", (int)failing_end, (int)fail_at, left);
    return -1;
}

/* Whose end the i-th wrapped one is: links are made one after the other, the sending end first. */
static bool owns(const world *w, int rank, const rondo_link *link)
{
    for (int i = 0; i < w->options.n * RD_MAX_CHANNELS; i++)
        if (w->out[rank][i].link == link || w->in[rank][i].link == link) return true;
    return false;
}

static bool fails_once(const world_options *o, const trial *t, rondo_algo algo)
{
    static world w;
    static buffers b;
    char name[160], text[256];
    wrapped = 0;
    failing = NULL;
    world_open(&w, o);
    assert_non_null(failing);
    world_call call = lay_out(t, o->n, algo, &b);
    world_start(&w, &call, fail_at);
    rd_fail(RONDO_SUCCESS, "none yet");
    int rank = drive(&w, fail_at);
    if (rank >= 0) {
        const rd_op *op = &w.op[rank];
        trial_name(t, name, sizeof name);
        if (!op->failed || op->failed->link != failing || !owns(&w, rank, failing) || op->failure != fail_with)
            fail_msg("%s, end %d at call %d: rank %d names %s, result %d", name, (int)failing_end, (int)fail_at, rank,
                     op->failed ? "another wire" : "no wire", op->failure);
        snprintf(text, sizeof text, "rank %d failed at call %d", failing->peer, (int)fail_at);
        if (fail_with == RONDO_LINK_BROKEN && !strstr(rd_last_error(), text))
            fail_msg("\"%s\" lacks %s", rd_last_error(), text);
    }
    for (int r = 0; rank < 0 && r < o->n; r++)
        if (!trial_holds(t, r, o->n, b.recv[r], text, sizeof text)) fail_msg("%s: %s", name, text);
    put_away(o->n, &b);
    world_close(&w);
    return rank >= 0;
}

/* Every end, at every call that it gets. */
static void fail_everywhere(const world_options *o, rondo_algo algo, rondo_collective collective, rondo_dtype dtype)
{
    int ends = o->flat ? 2 * o->n * (o->n - 1) : 2 * o->n * o->channels;
    trial t = {.collective = collective, .dtype = dtype, .op = RONDO_SUM, .count = 5001, .seed = 5};
    for (failing_end = 0; failing_end < (uint64_t)ends; failing_end++) {
        uint64_t most = 0;
        for (fail_at = 1; fail_at < 1000; fail_at += 1 + fail_at / (test_slowness() > 1 ? 3 : 20))
            if (fails_once(o, &t, algo)) most = fail_at;
            else if (fail_at > most + 40) break;
        assert_true(most > 2);
    }
}

static void case_fault_at_every_call(void **state)
{
    static const rondo_link_result results[] = {RONDO_LINK_BROKEN, RONDO_LINK_CLOSED};
    (void)state;
    for (int k = 0; k < 2; k++) {
        fail_with = results[k];
        world_options o = {.n = 3, .channels = 1, .slice_bytes = 4096, .transport = world_shm, .wrap = wrap_one};
        fail_everywhere(&o, RONDO_ALGO_RING, RONDO_COLL_ALL_REDUCE, RONDO_BFLOAT16);
        o.transport = world_tcp;
        fail_everywhere(&o, RONDO_ALGO_RING, RONDO_COLL_ALL_REDUCE, RONDO_FLOAT32);
        o.transport = world_loop;
        o.flat = true;
        fail_everywhere(&o, RONDO_ALGO_FLAT, RONDO_COLL_ALL_REDUCE, RONDO_FLOAT32);
        world_options two = {.n = 2, .channels = 2, .slice_bytes = 4096, .transport = world_tcp, .wrap = wrap_one};
        fail_everywhere(&two, RONDO_ALGO_RING, RONDO_COLL_REDUCE_SCATTER, RONDO_FLOAT16);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_fault_random),
        cmocka_unit_test(case_fault_at_every_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
