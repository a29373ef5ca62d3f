/* SPDX-License-Identifier: Apache-2.0
 *
 * Transfers between peers: gather, scatter, all-to-all, sends and receives; all ranks driven by one thread, in random
 * order, over every kind of link.
 */
#include "test.h"

#include "base/status.h"
#include "ranks.h"
#include "world.h"

#include <unistd.h>

#define SLICE 4096

static const struct kind {
    const char *name;
    const rondo_transport *(*transport)(int from);
    int socket_bytes;
    bool faults;
} kinds[] = {
    {"loop", world_loop, 0, false},
    {"shm", world_shm, 0, false},
    {"tcp", world_tcp, 0, false},
    {"tcp in parts", world_tcp, 4608, false},
    {"mixed", world_mixed, 0, false},
    {"loop with faults", world_loop, 0, true},
    {"tcp with faults", world_tcp, 0, true},
};
#define KINDS (sizeof kinds / sizeof *kinds)

static uint64_t wrapped;

static rondo_link *wrap(rondo_link *inner)
{
    uint64_t draw = mix(3, wrapped++);
    struct rd_fault fault = {.seed = draw, .again = draw & 1 ? 0.5 : 0, .delay = (uint32_t)(draw >> 8 & 7)};
    rondo_link *link = rd_fault_wrap(inner, &fault);
    assert_non_null(link);
    return link;
}

static world w;

static void open_world(const struct kind *kind, int n, const int32_t *order)
{
    world_options o = {.n = n, .channels = 1, .slice_bytes = SLICE, .peers = true, .transport = kind->transport,
                       .socket_bytes = kind->socket_bytes, .wrap = kind->faults ? wrap : NULL, .order = order};
    world_open(&w, &o);
}

/* What rank `from` has for rank `to`. */
static int16_t value(int from, int to, uint64_t i) { return (int16_t)mix((uint64_t)(from * 64 + to), i); }

static void fill(int16_t *at, int from, int to, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) at[i] = value(from, to, i);
}

static void check(const int16_t *at, int from, int to, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (at[i] != value(from, to, i))
            fail_msg("element %llu of what rank %d has for rank %d is %d, not %d", (unsigned long long)i, from, to, at[i],
                     value(from, to, i));
}

/* ---- Collectives ---- */

static bool has_whole(const world_call *c, int r, bool sends)
{
    if (c->collective == RONDO_COLL_ALL_TO_ALL) return true;
    return r == c->root && sends == (c->collective == RONDO_COLL_SCATTER);
}

/* `part` elements from each rank, for each, or both. In place at the root of gather and scatter. */
static void run(rondo_collective collective, int n, int root, uint64_t part, bool in_place, uint64_t seed)
{
    world_call c = {.collective = collective, .algo = RONDO_ALGO_PEERS, .dtype = RONDO_FLOAT16, .root = root,
                    .count = part * (uint64_t)n};
    bool all = collective == RONDO_COLL_ALL_TO_ALL, gather = collective == RONDO_COLL_GATHER;
    int16_t *send[WORLD_MAX], *recv[WORLD_MAX];
    for (int r = 0; r < n; r++) {
        uint64_t out = has_whole(&c, r, true) ? c.count : part, in = has_whole(&c, r, false) ? c.count : part;
        send[r] = malloc(out * 2); /* exactly: a sanitizer sees what goes past it */
        recv[r] = malloc(in * 2);
        memset(recv[r], 0x5a, in * 2);
        for (int to = 0; to < n; to++)
            if (out == c.count) fill(send[r] + part * (uint64_t)to, r, to, part);
        if (out != c.count || n == 1) fill(send[r], r, gather ? root : r, part);
        c.send[r] = (unsigned char *)send[r];
        c.recv[r] = (unsigned char *)recv[r];
        if (!in_place || all || r != root) continue;
        if (gather) c.send[r] = memcpy(recv[r] + part * (uint64_t)r, send[r], part * 2);
        else c.recv[r] = (unsigned char *)(send[r] + part * (uint64_t)r);
    }
    world_run(&w, &c, seed);
    for (int r = 0; r < n; r++) {
        bool whole = has_whole(&c, r, false);
        for (int from = 0; whole && from < n; from++) check(recv[r] + part * (uint64_t)from, from, r, part);
        if (collective == RONDO_COLL_SCATTER) check((int16_t *)(void *)c.recv[r], root, r, part);
        free(send[r]);
        free(recv[r]);
    }
}

static void test_collectives(void **state)
{
    (void)state;
    static const uint64_t parts[] = {0, 1, 7, SLICE / 2 - 1, SLICE / 2, SLICE / 2 + 1, 9 * SLICE + 5};
    static const int32_t order[8] = {3, 0, 2, 1, 4, 7, 5, 6};
    uint64_t seed = 0;
    for (size_t k = 0; k < KINDS; k++)
        for (int n = 1; n <= 8; n += test_slowness() > 1 ? 3 : 1) {
            open_world(&kinds[k], n, n == 8 || n == 4 ? order : NULL);
            for (size_t i = 0; i < sizeof parts / sizeof *parts; i++, seed++) {
                int root = (int)(mix(seed, 0) % (uint64_t)n);
                run(RONDO_COLL_GATHER, n, root, parts[i], i & 1, seed);
                run(RONDO_COLL_ALL_TO_ALL, n, 0, parts[i], false, seed);
                run(RONDO_COLL_SCATTER, n, root, parts[i], i & 1, seed);
            }
            world_close(&w);
        }
}

/* ---- Sends and receives ---- */

static const size_t sizes[] = {0, 1, 5, SLICE - 1, SLICE, SLICE + 1, 0, 40 * SLICE + 77, 3, 0, 2 * SLICE, 9999};
#define MESSAGES (sizeof sizes / sizeof *sizes)

static uint64_t signature(int from, int to, size_t message, size_t bytes)
{
    return mix(mix((uint64_t)(from * 64 + to), message), bytes);
}

/* Every message of `sizes` from every rank to the next `spread` ones, all at once. */
static void test_many_messages(void **state)
{
    (void)state;
    static rd_transfer list[4][4 * 2 * MESSAGES];
    for (size_t k = 0; k < KINDS; k++)
        for (int n = 2; n <= 4; n++) {
            int count[4] = {0};
            rd_progress end[WORLD_MAX];
            open_world(&kinds[k], n, NULL);
            for (int r = 0; r < n; r++) {
                for (size_t m = 0; m < MESSAGES; m++)
                    for (int p = 0; p < n; p++) {
                        if (p == r) continue;
                        unsigned char *out = malloc(sizes[m]), *in = malloc(sizes[m]);
                        for (size_t i = 0; i < sizes[m]; i++) out[i] = (unsigned char)value(r * 8 + (int)m, p, i);
                        rd_transfer *t = &list[r][count[r]];
                        count[r] += 2;
                        t[0] = (rd_transfer){.wire = &w.peer_out[r][p], .sends = true, .at = out, .bytes = sizes[m],
                                             .signature = signature(r, p, m, sizes[m])};
                        t[1] = (rd_transfer){.wire = &w.peer_in[r][p], .at = in, .bytes = sizes[m],
                                             .signature = signature(p, r, m, sizes[m])};
                    }
                rd_op_transfers(&w.op[r], list[r], count[r]);
                rd_op_start(&w.op[r]);
            }
            world_drive(&w, k, end);
            for (int r = 0; r < n; r++) {
                if (end[r] != RD_DONE) fail_msg("%s, %d ranks: rank %d ends with %d", kinds[k].name, n, r, end[r]);
                for (int t = 0; t < count[r]; t++) {
                    const rd_transfer *one = &list[r][t];
                    int m = t / 2 / (n - 1), p = one->wire->link->peer;
                    for (size_t i = 0; i < one->bytes && !one->sends; i++)
                        assert_int_equal(one->at[i], (unsigned char)value(p * 8 + m, r, i));
                    free(one->at);
                }
            }
            world_close(&w);
        }
}

/* One transfer from rank 0 to rank 1 as the two ends see it, started. */
static rd_transfer sent, received;

static void start_pair(size_t out, size_t in, uint64_t out_signature, uint64_t in_signature)
{
    static unsigned char memory[2][64 * SLICE];
    for (size_t i = 0; i < out; i++) memory[0][i] = (unsigned char)value(0, 1, i);
    sent = (rd_transfer){.wire = &w.peer_out[0][1], .sends = true, .at = memory[0], .bytes = out};
    received = (rd_transfer){.wire = &w.peer_in[1][0], .at = memory[1], .bytes = in};
    sent.signature = out_signature;
    received.signature = in_signature;
    rd_op_transfers(&w.op[0], &sent, 1);
    rd_op_transfers(&w.op[1], &received, 1);
    rd_op_start(&w.op[0]);
    rd_op_start(&w.op[1]);
}

static void test_mismatch(void **state)
{
    (void)state;
    static const struct {
        size_t out, in;
        bool same;
    } cases[] = {{5, 5, false}, {5, 6, true}, {0, 1, true}, {1, 0, true}, {3 * SLICE, 2 * SLICE, false}, {0, 0, false},
                 {2 * SLICE + 1, 2 * SLICE + 2, true}};
    for (size_t k = 0; k < KINDS; k++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            rd_progress end[WORLD_MAX];
            open_world(&kinds[k], 2, NULL);
            start_pair(cases[i].out, cases[i].in, 7, cases[i].same ? 7 : 8);
            world_drive(&w, i, end);
            assert_int_equal(end[1], RD_FAILED);
            assert_int_equal(w.op[1].failure, RONDO_LINK_MISMATCH);
            assert_ptr_equal(w.op[1].failed, &w.peer_in[1][0]);
            world_close(&w);
        }
}

static void test_a_peer_that_closes(void **state)
{
    (void)state;
    for (size_t k = 0; k < KINDS; k++) {
        rd_progress end[WORLD_MAX];
        for (int side = 0; side < 2; side++) { /* which end goes */
            open_world(&kinds[k], 2, NULL);
            start_pair(60 * SLICE, 60 * SLICE, 7, 7);
            for (int turn = 0; turn < 3; turn++) rd_op_advance(&w.op[turn % 2]);
            rd_wire *wire = side ? &w.peer_in[1][0] : &w.peer_out[0][1];
            wire->link->ops->close(wire->link);
            wire->link = NULL;
            rd_op *op = &w.op[1 - side];
            rd_progress p = RD_MOVED;
            for (int turn = 0; turn < 100000 && p != RD_FAILED && p != RD_DONE; turn++) p = rd_op_advance(op);
            assert_int_equal(p, RD_FAILED);
            assert_true(op->failure == RONDO_LINK_CLOSED || op->failure == RONDO_LINK_BROKEN);
            world_close(&w);
        }
        /* What it sent before is used up. */
        open_world(&kinds[k], 2, NULL);
        start_pair(100, 100, 7, 7);
        w.op[1].transfer_count = 0;
        rd_op_start(&w.op[1]);
        world_drive(&w, k, end);
        assert_int_equal(end[0], RD_DONE);
        w.peer_out[0][1].link->ops->close(w.peer_out[0][1].link);
        w.peer_out[0][1].link = NULL;
        rd_op_transfers(&w.op[1], &received, 1);
        rd_op_start(&w.op[1]);
        rd_progress p = RD_MOVED;
        for (int turn = 0; turn < 1000 && p != RD_DONE; turn++) assert_true((p = rd_op_advance(&w.op[1])) != RD_FAILED);
        assert_int_equal(p, RD_DONE);
        for (size_t i = 0; i < 100; i++) assert_int_equal(received.at[i], (unsigned char)value(0, 1, i));
        world_close(&w);
    }
}

/* A rank that does nothing holds up what goes to it and nothing else, and is the one that is waited for; no advance moves
 * more than RD_TURN slices. */
static void test_turns(void **state)
{
    (void)state;
    static unsigned char memory[2][32 * SLICE];
    for (size_t k = 0; k < 3; k++) {
        bool to_receive;
        open_world(&kinds[k], 3, NULL);
        rd_wire *to1 = &w.peer_out[0][1], *from1 = &w.peer_in[0][1], *to2 = &w.peer_out[0][2];
        rd_transfer out[] = {{.wire = to1, .sends = true, .at = memory[0], .bytes = 5 * SLICE, .signature = 1, .peer = 1},
                             {.wire = from1, .at = memory[1], .bytes = 1, .signature = 2, .peer = 1},
                             {.wire = to2, .sends = true, .at = memory[0], .bytes = 32 * SLICE, .signature = 3, .peer = 2}};
        rd_transfer in = {.wire = &w.peer_in[2][0], .at = memory[1], .bytes = 32 * SLICE, .signature = 3};
        rd_op_transfers(&w.op[0], out, 3);
        rd_op_transfers(&w.op[2], &in, 1);
        rd_op_start(&w.op[0]);
        rd_op_start(&w.op[2]);
        rd_progress p = RD_MOVED;
        for (int turn = 0; turn < 10000 && p != RD_DONE; turn++) {
            uint64_t before = out[0].begun + out[2].begun;
            assert_true(rd_op_advance(&w.op[0]) != RD_DONE);
            assert_in_range(out[0].begun + out[2].begun - before, 0, RD_TURN);
            p = rd_op_advance(&w.op[2]);
        }
        assert_int_equal(p, RD_DONE);
        while (rd_op_advance(&w.op[0]) == RD_MOVED) continue;
        assert_int_equal(out[2].done, 32);
        assert_int_equal(rd_op_waits_for(&w.op[0], &to_receive), 1);
        assert_int_equal(to_receive, out[0].done == out[0].slices);
        assert_true(rd_op_withdraw(&w.op[0]));
        world_close(&w);
    }
}

/* The trace of an all-to-all: every slice that went and came, its place in the message, and the opening. */
static void test_trace(void **state)
{
    (void)state;
    char file[] = "/tmp/rondo-peers-XXXXXX";
    static unsigned char memory[3][2][3 * 5000];
    world_call c = {.collective = RONDO_COLL_ALL_TO_ALL, .algo = RONDO_ALGO_PEERS, .dtype = RONDO_UINT8, .count = 3 * 5000};
    uint64_t bytes[2] = {0}, places[2] = {0};
    int openings[2] = {0};
    rondo_trace_record record;
    rd_trace *trace[3];
    close(mkstemp(file));
    open_world(&kinds[1], 3, NULL);
    for (int r = 0; r < 3; r++) {
        c.send[r] = memory[r][0];
        c.recv[r] = memory[r][1];
        assert_int_equal(rd_trace_open(&trace[r], file, r), RONDO_SUCCESS);
        w.op[r].trace = trace[r];
    }
    world_run(&w, &c, 1);
    world_close(&w);
    for (int r = 0; r < 3; r++) rd_trace_close(trace[r]);
    FILE *in = fopen(file, "r");
    assert_non_null(in);
    while (fread(&record, sizeof record, 1, in) == 1) {
        const rondo_trace_slice *s = &record.of.slice;
        bool came = record.kind == RONDO_TRACE_RECEIVE;
        openings[came] += s->step == RONDO_OPENING;
        if (s->step == RONDO_OPENING) continue;
        assert_int_equal(s->chunk, s->peer); /* where it lies at this end */
        assert_int_equal(s->first, (uint64_t)s->chunk * 5000 + s->slice * SLICE);
        bytes[came] += s->bytes;
        places[came] += s->slice;
    }
    fclose(in);
    unlink(file);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(bytes[k], 3 * 2 * 5000);
        assert_int_equal(places[k], 3 * 2); /* two slices each */
        assert_int_equal(openings[k], 3);
    }
}

/* Two messages of one slice: between them a rank is asleep, and what arrives on any wire wakes it. */
static void test_arm(void **state)
{
    (void)state;
    unsigned char a[2], b[2];
    for (size_t k = 0; k < 3; k++)
        for (int waker = 1; waker < 3; waker++) {
            open_world(&kinds[k], 3, NULL);
            rd_transfer in[] = {{.wire = &w.peer_in[0][1], .at = a, .bytes = 2, .signature = 1},
                                {.wire = &w.peer_in[0][2], .at = b, .bytes = 2, .signature = 2}};
            rd_transfer out = {.wire = &w.peer_out[waker][0], .sends = true, .at = a, .bytes = 2};
            out.signature = (uint64_t)waker;
            rd_op_transfers(&w.op[0], in, 2);
            rd_op_transfers(&w.op[waker], &out, 1);
            rd_op_start(&w.op[0]);
            rd_op_start(&w.op[waker]);
            while (rd_op_advance(&w.op[0]) == RD_MOVED) continue;
            rd_bell_arm(&w.bell[0]);
            assert_int_equal(rd_op_arm(&w.op[0], &w.bell[0]), RD_IDLE);
            while (rd_op_advance(&w.op[waker]) != RD_DONE) continue;
            double start = test_seconds();
            rd_bell_sleep(&w.bell[0], 20000000000);
            assert_true(test_seconds() - start < 10);
            rd_op_advance(&w.op[0]);
            assert_int_equal(in[waker - 1].done, 1);
            rd_bell_disarm(&w.bell[0]);
            world_close(&w);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collectives), cmocka_unit_test(test_many_messages),
        cmocka_unit_test(test_mismatch),    cmocka_unit_test(test_a_peer_that_closes),
        cmocka_unit_test(test_turns),       cmocka_unit_test(test_arm),
        cmocka_unit_test(test_trace),
    };
    alarm(120 * (unsigned)test_slowness());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
