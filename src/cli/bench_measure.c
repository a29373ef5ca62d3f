/* SPDX-License-Identifier: Apache-2.0
 *
 * One row. What is compared must have met the same machine, so a block of it holds everything: where the
 * ranks' cores sit, then the calls, the limit and the copy in turns, then where they sit again. Where the two disagree
 * they were moved in between, and the block is measured again.
 *
 * Times: before each call every rank rewrites its buffer and all meet; then each takes its own time, and the slowest
 * rank's is the call's. (Buffers left as they are would be found in private caches, which no training step finds.)
 */
#include "base/clock.h"
#include "base/dtype.h"
#include "base/status.h"
#include "cli/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ATTEMPTS = 5, ROUNDS = 3 };
enum { LEAST_CALLS = 10, MOST_CALLS = 2000, MOST_LIMIT_CALLS = 300, LEAST_STREAM_CALLS = 6, MOST_STREAM_CALLS = 60 };
enum { LARGEST_FLAG = 1024 };    /* bytes up to which one wait is all that a call need take */
enum { SMALLEST_SPLIT = 16384 }; /* bytes from which several sockets are tried */
#define BUDGET_S        0.1      /* for the timed calls of a row */
#define LIMIT_TOLERANCE 1.05

/* What is timed: one kind of call, with what is done before each. */
typedef struct contest {
    rd_bench *bench;
    size_t bytes, count; /* of the row */
    void (*prepare)(const struct contest *);
    rondo_result (*work)(const struct contest *);
    int sockets; /* of raw sockets */
    size_t piece;
    int calls;
    double *times; /* microseconds */
} contest;

/* ---- The collective ---- */

static size_t element(const rd_bench *b)
{
    return rd_dtype_bytes(b->options->dtype);
}

/* This rank's part of a buffer of all ranks' parts. */
static unsigned char *part(const contest *c, unsigned char *whole)
{
    return whole + (size_t)c->bench->rank * c->count * element(c->bench);
}

static unsigned char *send_buffer(const contest *c)
{
    const rd_bench *b = c->bench;
    bool gathers = b->options->collective == RD_BENCH_ALL_GATHER || b->options->collective == RD_BENCH_GATHER;
    return gathers && !b->options->out_of_place ? part(c, b->main) : b->main;
}

static unsigned char *recv_buffer(const contest *c)
{
    const rd_bench *b = c->bench;
    if (b->options->out_of_place) return b->spare;
    bool scatters = b->options->collective == RD_BENCH_REDUCE_SCATTER || b->options->collective == RD_BENCH_SCATTER;
    return scatters ? part(c, b->main) : b->main;
}

static size_t sent_count(const contest *c)
{
    const rd_bench *b = c->bench;
    rd_bench_collective what = b->options->collective;
    bool from_root = what == RD_BENCH_BROADCAST || what == RD_BENCH_SCATTER;
    bool all_parts = what == RD_BENCH_REDUCE_SCATTER || what == RD_BENCH_SCATTER || what == RD_BENCH_ALL_TO_ALL;
    if (from_root && b->rank != b->options->root) return 0;
    return c->count * (all_parts ? (size_t)b->size : 1);
}

static void prepare_call(const contest *c)
{
    rd_data_fill(&c->bench->data, send_buffer(c), sent_count(c));
}

/* Round the ring, as nccl-tests do. */
static rondo_result send_and_receive(const contest *c, const void *send, void *recv)
{
    const rd_bench *b = c->bench;
    int next = (b->rank + 1) % b->size, before = (b->rank + b->size - 1) % b->size;
    RD_TRY(rondo_group_start());
    (void)rondo_send(send, c->count, b->options->dtype, next, b->comm, NULL); /* the end of the group says why not */
    (void)rondo_recv(recv, c->count, b->options->dtype, before, b->comm, NULL);
    return rondo_group_end();
}

static rondo_result call(const contest *c)
{
    const rd_bench_options *o = c->bench->options;
    const void *send = rd_twin(c->bench, send_buffer(c), c->bytes);
    void *recv = rd_twin(c->bench, recv_buffer(c), c->bytes);
    rondo_comm *comm = c->bench->comm;
    switch (o->collective) {
    case RD_BENCH_ALL_REDUCE: return rondo_all_reduce(send, recv, c->count, o->dtype, o->op, comm, NULL);
    case RD_BENCH_REDUCE_SCATTER: return rondo_reduce_scatter(send, recv, c->count, o->dtype, o->op, comm, NULL);
    case RD_BENCH_ALL_GATHER: return rondo_all_gather(send, recv, c->count, o->dtype, comm, NULL);
    case RD_BENCH_BROADCAST: return rondo_broadcast(send, recv, c->count, o->dtype, o->root, comm, NULL);
    case RD_BENCH_REDUCE: return rondo_reduce(send, recv, c->count, o->dtype, o->op, o->root, comm, NULL);
    case RD_BENCH_GATHER: return rondo_gather(send, recv, c->count, o->dtype, o->root, comm, NULL);
    case RD_BENCH_SCATTER: return rondo_scatter(send, recv, c->count, o->dtype, o->root, comm, NULL);
    case RD_BENCH_ALL_TO_ALL: return rondo_all_to_all(send, recv, c->count, o->dtype, comm, NULL);
    case RD_BENCH_SENDRECV: return send_and_receive(c, send, recv);
    default: return rondo_barrier(comm, NULL);
    }
}

/* ---- Checking ---- */

/* Nothing may be right by having been right before. To be called before the input is written, which may be there. */
static void spoil(const contest *c)
{
    const rd_bench *b = c->bench;
    memset(b->options->out_of_place ? b->spare : b->main, 0xa5, c->bytes);
}

static bool ends_at_root(rd_bench_collective what) { return what == RD_BENCH_REDUCE || what == RD_BENCH_GATHER; }

/* Turns all bits of the result's first elements on the last rank (where only the root has a result, there). */
static void plant(const contest *c)
{
    const rd_bench *b = c->bench;
    size_t wrong = b->options->plant < c->count ? b->options->plant : c->count;
    int where = ends_at_root(b->options->collective) ? b->options->root : b->size - 1;
    unsigned char *result = recv_buffer(c);
    for (size_t i = 0; b->rank == where && i < wrong * element(b); i++) result[i] ^= 0xff;
}

/* Of a result that is parts of all ranks, each from element `first` of theirs on. */
static uint64_t wrong_parts(const contest *c, const unsigned char *result, size_t first)
{
    rd_bench *b = c->bench;
    uint64_t wrong = 0;
    for (int r = 0; r < b->size; r++)
        wrong += rd_data_wrong_copy(&b->data, result + (size_t)r * c->count * element(b), c->count, first, r);
    return wrong;
}

static uint64_t wrong_here(const contest *c)
{
    rd_bench *b = c->bench;
    const unsigned char *result = recv_buffer(c);
    size_t mine = (size_t)b->rank * c->count;
    int root = b->options->root, before = (b->rank + b->size - 1) % b->size;
    if (ends_at_root(b->options->collective) && b->rank != root) return 0;
    switch (b->options->collective) {
    case RD_BENCH_ALL_REDUCE: return rd_data_wrong_result(&b->data, result, c->count, 0);
    case RD_BENCH_REDUCE_SCATTER: return rd_data_wrong_result(&b->data, result, c->count, mine);
    case RD_BENCH_REDUCE: return rd_data_wrong_result(&b->data, result, c->count, 0);
    case RD_BENCH_BROADCAST: return rd_data_wrong_copy(&b->data, result, c->count, 0, root);
    case RD_BENCH_SCATTER: return rd_data_wrong_copy(&b->data, result, c->count, mine, root);
    case RD_BENCH_SENDRECV: return rd_data_wrong_copy(&b->data, result, c->count, 0, before);
    case RD_BENCH_GATHER:
    case RD_BENCH_ALL_GATHER: return wrong_parts(c, result, 0);
    case RD_BENCH_ALL_TO_ALL: return wrong_parts(c, result, mine);
    default: return 0;
    }
}

/* ---- The limits ---- */

static void prepare_copy(const contest *c)
{
    rd_data_fill(&c->bench->data, c->bench->main, c->bytes / element(c->bench));
}

static rondo_result copy(const contest *c)
{
    memcpy(c->bench->spare, c->bench->main, c->bytes);
    return RONDO_SUCCESS;
}

static void prepare_bound(const contest *c)
{
    const rd_bench *b = c->bench;
    rd_data_fill(&b->data, b->from[b->rank], c->bytes / element(b));
}

static rondo_result bound(const contest *c)
{
    static const rd_bound_kind kinds[] = {[RD_BENCH_ALL_REDUCE] = RD_BOUND_ALL_REDUCE,
                                          [RD_BENCH_REDUCE_SCATTER] = RD_BOUND_REDUCE_SCATTER,
                                          [RD_BENCH_ALL_GATHER] = RD_BOUND_ALL_GATHER,
                                          [RD_BENCH_BROADCAST] = RD_BOUND_BROADCAST,
                                          [RD_BENCH_REDUCE] = RD_BOUND_REDUCE};
    rd_bench *b = c->bench;
    rd_meet(&b->meeting);
    rd_bound_work(kinds[b->options->collective], b->from, b->to, b->rank, b->size, b->options->root, c->bytes);
    rd_meet(&b->meeting);
    return RONDO_SUCCESS;
}

static rondo_result meeting(const contest *c)
{
    rd_meet(&c->bench->meeting);
    return RONDO_SUCCESS;
}

/* As many bytes as the collective brings over a link of the ring. */
static rondo_result exchange(const contest *c)
{
    const rd_bench *b = c->bench;
    rd_bench_collective what = b->options->collective;
    size_t bytes = (size_t)((double)c->bytes * rd_bench_factor(what, b->size)), sends = bytes, receives = bytes;
    int position = (b->rank - b->options->root + b->size) % b->size, last = b->size - 1;
    if (what == RD_BENCH_BARRIER) sends = receives = 1;
    if (what == RD_BENCH_BROADCAST) { /* a chain from the root */
        if (position == 0) receives = 0;
        if (position == last) sends = 0;
    }
    if (what == RD_BENCH_REDUCE) { /* a chain to the root */
        if (position == 0) sends = 0;
        if (position == 1 % b->size) receives = 0;
    }
    if (what == RD_BENCH_GATHER) { /* all of it comes to the root */
        if (position != 0) receives = 0;
        if (position != last) sends = 0;
    }
    if (what == RD_BENCH_SCATTER) { /* all of it leaves the root */
        if (position != 0) sends = 0;
        if (position != 1 % b->size) receives = 0;
    }
    return rd_streams_exchange(&b->streams, c->sockets, c->piece, b->main, sends, b->spare, receives);
}

/* ---- Timing ---- */

static rondo_result meet(rd_bench *b)
{
    if (!b->one_host) return rondo_barrier(b->comm, NULL);
    rd_meet(&b->meeting);
    return RONDO_SUCCESS;
}

/* Calls [first, last) of a contest, after one that does not count. */
static rondo_result run(const contest *c, int first, int last)
{
    bool fresh = !c->bench->options->reuse || c->work != call;
    for (int i = first - 1; i < last; i++) {
        if (fresh && c->prepare) {
            c->prepare(c);
            RD_TRY(rd_twins_put(c->bench, c->bytes));
        }
        RD_TRY(meet(c->bench));
        int64_t begin = rd_now();
        RD_TRY(c->work(c));
        if (i >= first) c->times[i] = (double)(rd_now() - begin) * 1e-3;
    }
    return RONDO_SUCCESS;
}

/* The calls of a contest, each checked outside of its time. */
static rondo_result run_checked(const contest *c, int first, int last, uint64_t *wrong)
{
    for (int i = first; i < last; i++) {
        spoil(c);
        c->prepare(c);
        RD_TRY(rd_twins_put(c->bench, c->bytes));
        RD_TRY(meet(c->bench));
        int64_t begin = rd_now();
        RD_TRY(c->work(c));
        if (c->times) c->times[i] = (double)(rd_now() - begin) * 1e-3;
        RD_TRY(rd_twins_get(c->bench, c->bytes));
        plant(c);
        *wrong += wrong_here(c);
    }
    return RONDO_SUCCESS;
}

/* Makes the times those of the slowest rank in each call, sorted. */
static rondo_result gather_times(const contest *c)
{
    RD_TRY(rondo_all_reduce(c->times, c->times, (size_t)c->calls, RONDO_FLOAT64, RONDO_MAX, c->bench->comm, NULL));
    qsort(c->times, (size_t)c->calls, sizeof *c->times, rd_by_value);
    return RONDO_SUCCESS;
}

static double median(const contest *c)
{
    int middle = c->calls / 2;
    return c->calls % 2 ? c->times[middle] : (c->times[middle - 1] + c->times[middle]) / 2;
}

/* Warms up, and from that says how many calls fit into the budget. */
static rondo_result warm_up(const contest *c, int *calls)
{
    const rd_bench_options *o = c->bench->options;
    double each = 0;
    for (int i = 0; i < o->warm_up; i++) {
        if (i == 0 || !o->reuse) c->prepare(c);
        RD_TRY(rd_twins_put(c->bench, c->bytes));
        RD_TRY(meet(c->bench));
        int64_t begin = rd_now();
        RD_TRY(c->work(c));
        double took = (double)(rd_now() - begin) * 1e-9;
        if (i == 0 || took < each) each = took; /* the first ones touch memory for the first time */
    }
    RD_TRY(rondo_all_reduce(&each, &each, 1, RONDO_FLOAT64, RONDO_MAX, c->bench->comm, NULL));
    double fit = BUDGET_S / (each + 1e-9);
    *calls = fit < LEAST_CALLS ? LEAST_CALLS : fit > MOST_CALLS ? MOST_CALLS : (int)fit;
    if (o->iterations) *calls = o->iterations;
    return RONDO_SUCCESS;
}

/* ---- A block ---- */

enum { MOST_CONTESTS = 2 + 3 * RD_STREAMS };

typedef struct block {
    contest contests[MOST_CONTESTS]; /* the call, the copy, and what bounds the call: the best of the rest */
    int count;
    const char *limit_name; /* NULL: nothing bounds it */
    double *times;
} block;

static void add_contest(block *a, const contest *row, int calls, void (*prepare)(const contest *),
                        rondo_result (*work)(const contest *), int sockets, size_t piece)
{
    contest *c = &a->contests[a->count++];
    *c = *row;
    c->calls = calls;
    c->prepare = prepare;
    c->work = work;
    c->sockets = sockets;
    c->piece = piece;
}

/* 1, 2 and 4 sockets, pieces of 64 KiB, 256 KiB and any size; none that would be the same as another. */
static void add_streams(block *a, const contest *row, int calls)
{
    static const size_t pieces[] = {SIZE_MAX, 256 << 10, 64 << 10};
    int each = calls / 3 > MOST_STREAM_CALLS ? MOST_STREAM_CALLS : calls / 3;
    if (each < LEAST_STREAM_CALLS) each = LEAST_STREAM_CALLS;
    for (int sockets = 1; sockets <= RD_STREAMS; sockets *= 2)
        for (int p = 0; p < 3; p++)
            if ((sockets == 1 || row->bytes >= SMALLEST_SPLIT) && (p == 0 || row->bytes / (size_t)sockets > pieces[p]))
                add_contest(a, row, each, prepare_copy, exchange, sockets, pieces[p]);
    a->limit_name = "sockets";
}

static void add_limits(block *a, const contest *row, int calls)
{
    const rd_bench *b = row->bench;
    bool small = row->bytes <= LARGEST_FLAG;
    if (calls > MOST_LIMIT_CALLS) calls = MOST_LIMIT_CALLS;
    if (row->bytes) add_contest(a, row, calls, prepare_copy, copy, 0, 0);
    if (b->size == 1) return;
    if (strcmp(b->transport, "tcp") == 0) {
        if (b->has_streams) add_streams(a, row, calls);
    } else if (b->options->collective != RD_BENCH_BARRIER && !rd_bench_has_bound(b->options->collective)) {
        return; /* one way is shorter than a round trip, and what lies between is the messages' own affair */
    } else if (small && b->crowded) {
        add_contest(a, row, calls, NULL, meeting, 0, 0);
        a->limit_name = "meeting";
    } else if (small) {
        a->limit_name = "round trip";
    } else if (b->shared.of) {
        add_contest(a, row, calls, prepare_bound, bound, 0, 0);
        a->limit_name = "zero-copy";
    }
}

static rondo_result make_times(block *a)
{
    size_t total = 0;
    for (int i = 0; i < a->count; i++) total += (size_t)a->contests[i].calls;
    a->times = malloc(total * sizeof *a->times);
    if (!a->times) return rd_fail_errno("no memory for %zu times", total);
    total = 0;
    for (int i = 0; i < a->count; i++) {
        a->contests[i].times = a->times + total;
        total += (size_t)a->contests[i].calls;
    }
    return RONDO_SUCCESS;
}

static void say_progress(const rd_bench *b, size_t bytes, int attempt, int round)
{
    if (b->rank || !b->options->progress) return;
    /* The cursor rests at the margin: the row itself will cover this. A launcher passes a line on when more follows. */
    fprintf(stderr, "row %d of %d: %zu bytes, attempt %d, round %d of %d   \r ", b->row, b->rows, bytes, attempt,
            round + 1, ROUNDS);
}

/* All contests in turns, ROUNDS times; then their times are the slowest rank's. */
static rondo_result run_block(const block *a, int attempt, uint64_t *wrong)
{
    bool every = a->contests[0].bench->options->check == RD_CHECK_EVERY;
    for (int round = 0; round < ROUNDS; round++) {
        say_progress(a->contests[0].bench, a->contests[0].bytes, attempt, round);
        for (int i = 0; i < a->count; i++) {
            const contest *c = &a->contests[i];
            int first = c->calls * round / ROUNDS, last = c->calls * (round + 1) / ROUNDS;
            if (i == 0 && every)
                RD_TRY(run_checked(c, first, last, wrong));
            else if (first < last)
                RD_TRY(run(c, first, last));
        }
    }
    for (int i = 0; i < a->count; i++) RD_TRY(gather_times(&a->contests[i]));
    return RONDO_SUCCESS;
}

/* Blocks until one in which the ranks stayed where they were. */
static rondo_result find_still_block(const block *a, rd_row *row, uint64_t *wrong)
{
    rd_bench *b = a->contests[0].bench;
    bool still = false;
    for (row->attempts = 0; !still && row->attempts < ATTEMPTS;) {
        const char *before = NULL;
        if (b->one_host && !b->crowded && b->size > 1) before = rd_placement_name(rd_find_placement(&b->meeting));
        RD_TRY(run_block(a, ++row->attempts, wrong));
        still = !before;
        row->placement = !b->one_host ? "network" : b->crowded ? "turns" : "one";
        if (!before) continue;
        rd_placement after = rd_find_placement(&b->meeting);
        row->round_trip_ns = after.round_trip_ns;
        row->placement = rd_placement_name(after);
        still = strcmp(before, row->placement) == 0;
    }
    if (!still) row->placement = "mixed";
    return RONDO_SUCCESS;
}

static void fill_row(const block *a, rd_row *row)
{
    const contest *c = &a->contests[0];
    row->calls = c->calls;
    row->min_us = c->times[0];
    row->median_us = median(c);
    row->max_us = c->times[c->calls - 1];
    row->p99_us = c->times[(c->calls * 99 + 99) / 100 - 1];
    row->algbw = row->median_us > 0 ? (double)row->bytes / row->median_us * 1e-3 : 0;
    row->busbw = row->algbw * rd_bench_factor(c->bench->options->collective, c->bench->size);
    row->limit_name = a->limit_name;
    for (int i = 1; i < a->count; i++) {
        double time = median(&a->contests[i]);
        if (a->contests[i].work == copy)
            row->copy_us = time;
        else if (row->limit_us <= 0 || time < row->limit_us)
            row->limit_us = time;
    }
    if (a->limit_name && strcmp(a->limit_name, "round trip") == 0) row->limit_us = row->round_trip_ns * 1e-3;
    row->limit_is_wrong = row->limit_us > LIMIT_TOLERANCE * row->median_us;
}

double rd_bench_factor(rd_bench_collective collective, int size)
{
    double most = (double)(size - 1) / size;
    return collective == RD_BENCH_ALL_REDUCE ? 2 * most : rd_bench_gathers(collective) ? most : 1;
}

/* The collective at a size that is a whole number of elements for every rank. */
static contest shape_of(rd_bench *b, size_t bytes)
{
    size_t ranks = rd_bench_gathers(b->options->collective) ? (size_t)b->size : 1;
    return (contest){
        .bench = b, .bytes = bytes, .count = bytes / element(b) / ranks, .prepare = prepare_call, .work = call};
}

rondo_result rd_bench_call_once(rd_bench *b, size_t bytes)
{
    contest shape = shape_of(b, bytes);
    return call(&shape);
}

rondo_result rd_bench_measure(rd_bench *b, size_t bytes, rd_row *row)
{
    contest shape = shape_of(b, bytes);
    block a = {.count = 0};
    int calls = 0;
    *row = (rd_row){.count = shape.count, .bytes = bytes, .algorithm = row->algorithm};
    RD_TRY(warm_up(&shape, &calls));
    add_contest(&a, &shape, calls, prepare_call, call, 0, 0);
    if (b->options->limits) add_limits(&a, &shape, calls);
    RD_TRY(make_times(&a));
    rondo_result result = find_still_block(&a, row, &row->wrong);
    if (result == RONDO_SUCCESS) fill_row(&a, row);
    free(a.times);
    RD_TRY(result);
    row->checked = b->options->check != RD_CHECK_NONE && b->options->collective != RD_BENCH_BARRIER;
    if (b->options->check == RD_CHECK_ONCE) RD_TRY(run_checked(&shape, 0, 1, &row->wrong));
    return rondo_all_reduce(&row->wrong, &row->wrong, 1, RONDO_UINT64, RONDO_SUM, b->comm, NULL);
}
