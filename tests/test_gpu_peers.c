/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gpu_peers.c - transfers as one kernel: gather, scatter, all-to-all and groups of messages, on 2 to 8 ranks, of
 * odd sizes and misaligned, alone and beside ranks that go slice by slice. Every byte is where it belongs, and every
 * rank has launched one kernel. In any order of threads. What waits can be stopped, a foreign message is noticed, and
 * bugs that are planted in the kernel (cudasim/plant.sh) are found.
 */
#include "gpu_kit.h"
#include "gpu_world.h"
#include "on_cudasim.h"
#include "ranks.h"

#include "base/status.h"
#include "kernels/peers.h"
#include "reduce/device.h"

#include <unistd.h>

#define SETTINGS "devices=4 multiprocessors=32"
enum { SLICE = 4096, OFFSET = 3, PAST = 1 };

static world gpus;

static void open_world_by(int n, bool within)
{
    gpu_plain = rd_device_engine_ops;
    gpu_plain.peers = NULL;
    gpu_world_open(&gpus, (world_options){.n = n, .channels = 1, .slice_bytes = SLICE, .peers = true}, within);
}

static void open_world(int n)
{
    open_world_by(n, false);
}

/* ---- Memory of ranks ---- */

static unsigned char byte(uint64_t seed, int from, int to, uint64_t i)
{
    return (unsigned char)mix(seed * 64 + (uint64_t)from * 8 + (uint64_t)to, i);
}

static unsigned char *take(int rank, size_t bytes)
{
    void *at;
    assert_int_equal(rd_device_alloc(gpu_devices[rank], bytes, &at), RONDO_SUCCESS);
    return at;
}

static void move(int rank, unsigned char *to, const unsigned char *from, size_t bytes)
{
    assert_int_equal(rd_device_move(gpu_devices[rank], to, from, bytes), RONDO_SUCCESS);
}

/* ---- Collectives ---- */

/* count: of the whole message. What rank `from` has for rank `to` is chunk `to` at all-to-all and scatter, and at
 * gather all that it has. */
static void run(rondo_collective collective, int n, uint64_t count, uint64_t seed)
{
    size_t bytes = count + OFFSET + PAST, at = seed % (OFFSET + 1);
    unsigned char *in[GPU_RANKS], *out[GPU_RANKS], *here = malloc(bytes), *want = malloc(bytes), *got = malloc(bytes);
    world_call c = {.collective = collective,
                    .algo = RONDO_ALGO_PEERS,
                    .dtype = RONDO_UINT8,
                    .root = (int)(seed % (uint64_t)n),
                    .count = count};
    uint64_t each = count / (uint64_t)n;
    for (int r = 0; r < n; r++) {
        for (uint64_t i = 0; i < bytes; i++) here[i] = 0;
        for (int to = 0; to < n; to++)
            for (uint64_t i = 0; i < each; i++) {
                if (collective != RONDO_COLL_GATHER)
                    here[at + (uint64_t)to * each + i] = byte(seed, r, to, i);
                else if (to == c.root)
                    here[at + i] = byte(seed, r, to, i);
            }
        in[r] = take(r, bytes), out[r] = take(r, bytes);
        move(r, in[r], here, bytes);
        memset(want, 0x5a, bytes);
        move(r, out[r], want, bytes);
        c.send[r] = in[r] + at;
        c.recv[r] = out[r] + at;
    }
    world_run(&gpus, &c, seed);
    for (int r = 0; r < n; r++) {
        memset(want, 0x5a, bytes);
        for (int from = 0; from < n; from++)
            for (uint64_t i = 0; i < each; i++) {
                if (collective == RONDO_COLL_SCATTER && from == c.root) want[at + i] = byte(seed, from, r, i);
                if (collective == RONDO_COLL_ALL_TO_ALL || (collective == RONDO_COLL_GATHER && r == c.root))
                    want[at + (uint64_t)from * each + i] = byte(seed, from, r, i);
            }
        move(r, got, out[r], bytes);
        if (memcmp(got, want, bytes))
            fail_msg("collective %d of %d ranks, %llu bytes, seed %llu: rank %d has others", collective, n,
                     (unsigned long long)count, (unsigned long long)seed, r);
        rd_device_free(gpu_device_of(r), in[r]), rd_device_free(gpu_device_of(r), out[r]);
    }
    free(here), free(want), free(got);
}

static void all_collectives(int n, uint64_t first, uint64_t last)
{
    static const uint64_t each[] = {0, 1, 7, 33, 1000, SLICE, 5 * SLICE + 3};
    for (uint64_t seed = first; seed < last; seed++)
        run(RONDO_COLL_GATHER + (rondo_collective)(seed % 3), n, each[seed % 7] * (uint64_t)n, seed);
}

static void test_collectives(void **state)
{
    (void)state;
    for (int n = 2; n <= GPU_RANKS; n++) {
        open_world(n);
        unsigned long before = cudasim_calls("kernel");
        uint64_t calls = test_slowness() > 1 ? 7 : 21;
        all_collectives(n, 0, calls);
        assert_int_equal(cudasim_calls("kernel") - before, calls * (uint64_t)n); /* one each, and nothing else */
        gpu_world_close(&gpus);
    }
}

/* ---- Messages ---- */

enum { MESSAGES = 4 }; /* of each rank to each other */

typedef struct letter {
    int from, to;
    size_t bytes;
    unsigned char *out, *in;
    uint64_t number;
} letter;

static letter letters[GPU_RANKS * GPU_RANKS * MESSAGES];
static int letter_count;
static rd_transfer transfers[GPU_RANKS][2 * GPU_RANKS * MESSAGES];
static int transfer_count[GPU_RANKS];

static void write_letter(int from, int to, size_t bytes, uint64_t seed)
{
    size_t at = seed % 16, room = at + bytes + PAST;
    unsigned char *here = malloc(room);
    letter *l = &letters[letter_count++];
    *l = (letter){from, to, bytes, take(from, room) + at, take(to, room) + at, seed};
    memset(here, 0x5a, room);
    move(to, l->in - at, here, room);
    for (size_t i = 0; i < bytes; i++) here[at + i] = byte(seed, from, to, i);
    move(from, l->out - at, here, room);
    transfers[from][transfer_count[from]++] = (rd_transfer){
        .wire = &gpus.peer_out[from][to], .sends = true, .at = l->out, .bytes = bytes, .signature = seed, .peer = to};
    transfers[to][transfer_count[to]++] =
        (rd_transfer){.wire = &gpus.peer_in[to][from], .at = l->in, .bytes = bytes, .signature = seed, .peer = from};
    free(here);
}

static void start_rank(int r)
{
    rd_op *op = &gpus.op[r];
    rd_op_transfers(op, transfers[r], transfer_count[r]);
    op->engine = gpus.options.engine(r);
    op->trace = NULL;
    rd_op_start(op);
}

static void read_letters(void)
{
    while (letter_count) {
        const letter *l = &letters[--letter_count];
        size_t at = l->number % 16, room = at + l->bytes + PAST;
        unsigned char *got = malloc(room);
        move(l->to, got, l->in - at, room);
        for (size_t i = 0; i < room; i++) {
            bool inside = i >= at && i < at + l->bytes;
            unsigned char want = inside ? byte(l->number, l->from, l->to, i - at) : 0x5a;
            if (got[i] != want)
                fail_msg("message %llu, %zu bytes from %d to %d: byte %zd is %d, not %d", (unsigned long long)l->number,
                         l->bytes, l->from, l->to, (ssize_t)(i - at), got[i], want);
        }
        rd_device_free(gpu_device_of(l->from), l->out - at), rd_device_free(gpu_device_of(l->to), l->in - at);
        free(got);
    }
    memset(transfer_count, 0, sizeof transfer_count);
}

static void deliver(int n, uint64_t seed)
{
    for (int r = 0; r < n; r++) start_rank(r);
    world_finish(&gpus, seed);
    read_letters();
}

static size_t size_of(uint64_t seed)
{
    static const size_t sizes[] = {0, 1, 31, 32, 33, 1001, SLICE, SLICE + 1, 11 * SLICE + 5};
    return sizes[mix(seed, 1) % (sizeof sizes / sizeof *sizes)];
}

/* Everybody to everybody, several times. */
static void everyone(int n, uint64_t seed)
{
    for (int from = 0; from < n; from++)
        for (int to = 0; to < n; to++)
            for (int i = 0; to != from && i < MESSAGES; i++, seed++) write_letter(from, to, size_of(seed), seed);
    deliver(n, seed);
}

/* To the next rank, from the one before. */
static void exchange_round(int n, uint64_t seed)
{
    for (int r = 0; r < n; r++, seed++) write_letter(r, (r + 1) % n, 9 * SLICE + seed % 7, seed);
    deliver(n, seed);
}

/* As it comes, many have nothing. */
static void some(int n, uint64_t seed)
{
    for (int k = 0; k < 5; k++, seed++) {
        int from = (int)(mix(seed, 2) % (uint64_t)n), to = (int)(mix(seed, 3) % (uint64_t)n);
        if (from != to) write_letter(from, to, size_of(seed), seed);
    }
    deliver(n, seed);
}

static void test_messages(void **state)
{
    (void)state;
    uint64_t rounds = test_slowness() > 1 ? 1 : 3;
    for (int n = 2; n <= GPU_RANKS; n += n < 4 ? 1 : 4) {
        open_world(n);
        for (uint64_t seed = 0; seed < rounds; seed++) {
            unsigned long before = cudasim_calls("kernel");
            everyone(n, seed * 1000);
            assert_int_equal(cudasim_calls("kernel") - before, n);
            exchange_round(n, seed * 1000 + 500);
            assert_int_equal(cudasim_calls("kernel") - before, 2 * n);
        }
        for (uint64_t seed = 0; seed < 3 * rounds; seed++) some(n, seed * 100);
        gpu_world_close(&gpus);
    }
}

static void test_beside_slices(void **state)
{
    (void)state;
    for (gpu_plain_every = 2; gpu_plain_every <= 3; gpu_plain_every++) {
        open_world(4);
        all_collectives(4, 5, test_slowness() > 1 ? 12 : 26);
        for (uint64_t seed = 0; seed < 3; seed++) everyone(4, seed * 1000), exchange_round(4, seed);
        gpu_world_close(&gpus);
    }
    gpu_plain_every = 0;
}

static void test_any_order_of_threads(void **state)
{
    (void)state;
    open_world(3);
    for (unsigned seed = 1; seed <= 20; seed++) {
        cudasim_seed(seed);
        all_collectives(3, seed * 5, seed * 5 + 3);
        everyone(3, seed * 100);
    }
    cudasim_seed(0);
    gpu_world_close(&gpus);
}

/* More than a launch holds goes slice by slice. */
static void test_too_many(void **state)
{
    (void)state;
    static rd_transfer many[2][RD_PEERS_TRANSFERS + 1];
    open_world(2);
    for (int count = RD_PEERS_TRANSFERS; count <= RD_PEERS_TRANSFERS + 1; count++) {
        for (int r = 0; r < 2; r++) {
            for (int i = 0; i < count; i++)
                many[r][i] = (rd_transfer){.wire = r ? &gpus.peer_in[1][0] : &gpus.peer_out[0][1],
                                           .sends = r == 0,
                                           .signature = (uint64_t)i,
                                           .peer = !r};
            rd_op_transfers(&gpus.op[r], many[r], count);
            gpus.op[r].engine = gpus.options.engine(r);
            rd_op_start(&gpus.op[r]);
            assert_int_equal(gpus.op[r].peers.kernel, count == RD_PEERS_TRANSFERS);
        }
        world_finish(&gpus, 1);
    }
    gpu_world_close(&gpus);
}

/* Blocks that cannot be resident together with those of another rank on the GPU are not launched. */
static void test_no_room(void **state)
{
    (void)state;
    rd_device *other;
    open_world(2);
    assert_int_equal(rd_device_open(&other, gpu_device_of(0)), RONDO_SUCCESS);
    rd_gpu *gpu = other->gpu;
    int more = 2 - gpu_devices[0]->taken;
    assert_true(rd_device_take(other, gpu->resident / 2 - atomic_load(&gpu->taken) - more));
    for (int turn = 0; turn < 2; turn++) {
        exchange_round(2, 9); /* one block each way */
        for (int r = 0; r < 2; r++) assert_true(gpus.op[r].peers.kernel);
        run(RONDO_COLL_ALL_TO_ALL, 2, 1000, 5);
        assert_int_equal(gpus.op[0].peers.kernel, turn == 1);
        assert_true(gpus.op[1].peers.kernel);
        if (turn == 0) rd_device_close(other);
    }
    gpu_world_close(&gpus);
}

/* ---- Waits ---- */

/* Rank 0 has sent the first of two messages, and then is gone. Rank 1's kernel goes on for as long as there is
 * something to take, then it waits, says so, and ends when it is told to. */
static void test_stop(void **state)
{
    (void)state;
    bool to_receive;
    open_world(2);
    write_letter(0, 1, 3 * SLICE, 7);
    write_letter(0, 1, 3 * SLICE, 8);
    write_letter(1, 0, 100 * SLICE, 9);
    transfer_count[0] = 1;
    start_rank(0);
    for (int i = 0; rd_op_advance(&gpus.op[0]) != RD_DONE; i++, usleep(1000)) assert_true(i < 20000);
    start_rank(1);
    rd_op *op = &gpus.op[1];
    assert_true(op->peers.kernel);
    assert_int_equal(rd_op_advance(op), RD_MOVED);
    assert_true(rd_peers_kernel_goes_on(op)); /* nothing is known of it but that there is something to take */
    for (int i = 0; transfers[1][0].done < 3 || transfers[1][2].done < 4; i++, usleep(1000)) {
        rd_op_advance(op);
        assert_true(i < 20000);
    }
    for (int i = 0; i < 20; i++, usleep(1000)) assert_int_equal(rd_op_advance(op), RD_IDLE);
    assert_false(rd_peers_kernel_goes_on(op));
    assert_int_equal(transfers[1][0].done, 3);
    assert_int_equal(transfers[1][1].done, 0);
    assert_int_equal(transfers[1][2].done, 4); /* as many as there are slots */
    assert_int_equal(rd_op_waits_for(op, &to_receive), 0);
    assert_true(to_receive);
    for (int i = 0; !rd_op_withdraw(op); i++, usleep(1000)) assert_true(i < 20000);
    assert_int_equal(rd_op_advance(op), RD_FAILED);
    assert_int_equal(op->failure, RONDO_LINK_BROKEN);
    assert_int_equal(gpus.peer_out[1][0].link->bytes_sent, 4 * SLICE);
    letter_count = 0;
    memset(transfer_count, 0, sizeof transfer_count);
    gpu_world_close(&gpus);
}

/* What is sent is not what is expected: the second message of two. That also ends what waits beside it. */
static void mismatch_of(size_t bytes, size_t other_bytes, uint64_t other_signature)
{
    uint64_t signature, seen;
    open_world(2);
    write_letter(0, 1, SLICE + 1, 1);
    write_letter(0, 1, bytes, 2);
    transfers[1][1].bytes = other_bytes;
    transfers[1][1].signature = other_signature;
    write_letter(1, 0, 100 * SLICE, 3);
    transfer_count[0]--; /* which is never received */
    for (int r = 0; r < 2; r++) start_rank(r);
    rd_op *op = &gpus.op[1];
    rd_progress sent = RD_IDLE;
    for (int i = 0; op->failure == RONDO_LINK_OK; i++, usleep(100)) {
        if (sent != RD_DONE) sent = rd_op_advance(&gpus.op[0]);
        rd_op_advance(op);
        assert_true(i < 200000);
    }
    assert_int_equal(op->failure, RONDO_LINK_MISMATCH);
    assert_ptr_equal(op->failed, &gpus.peer_in[1][0]);
    op->failed->link->ops->seen(op->failed->link, &signature, &seen);
    assert_int_equal(signature, 2);
    assert_int_equal(seen, bytes < SLICE ? bytes : SLICE);
    assert_int_equal(transfers[1][0].done, transfers[1][0].slices);
    assert_int_equal(transfers[1][1].done, 0);
    for (int r = 0; r < 2; r++)
        for (int i = 0; !rd_op_withdraw(&gpus.op[r]); i++, usleep(1000)) assert_true(i < 20000);
    letter_count = 0;
    memset(transfer_count, 0, sizeof transfer_count);
    gpu_world_close(&gpus);
}
static void test_mismatch(void **state)
{
    (void)state;
    mismatch_of(100, 100, 77);
    mismatch_of(100, 101, 2);
    mismatch_of(SLICE, 3 * SLICE, 77);
    mismatch_of(3 * SLICE, SLICE, 77);
}

/* ---- Planted bugs ---- */

/* What a run with a bug does. */
static void walk(void **state)
{
    (void)state;
    alarm((unsigned)(3 + 2 * test_slowness())); /* what hangs */
    for (int within = 0; within < 2; within++) {
        open_world_by(3, within);
        for (uint64_t seed = 0; seed < 2; seed++) {
            run(RONDO_COLL_ALL_TO_ALL, 3, 3 * (5 * SLICE + 3), 1 + seed);
            everyone(3, seed * 100);
        }
        gpu_world_close(&gpus);
    }
}

static void test_planted(void **state)
{
    (void)state;
    static const gpu_plant plants[] = {
        {"no_peers_barrier", NULL}, {"lost_slice", NULL},      {"one_too_far", NULL},
        {"misaligned", "ubsan"},    {"relaxed_store", "tsan"}, {"relaxed_load", "tsan"},
    };
    if (!is_cudasim()) skip();
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
        cmocka_unit_test(test_collectives),   cmocka_unit_test(test_messages),
        cmocka_unit_test(test_beside_slices), cmocka_unit_test(test_any_order_of_threads),
        cmocka_unit_test(test_too_many),      cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_stop),          cmocka_unit_test(test_mismatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
