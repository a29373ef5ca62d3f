/* SPDX-License-Identifier: Apache-2.0 */
#include "chaos.h"

#include <stdlib.h>
#include <string.h>

#define SEVERAL    4
#define MOST_BYTES (4u << 20)

typedef struct buffers {
    uint32_t *send, *recv;
    size_t room; /* elements */
} buffers;

static buffers kept[SEVERAL];
static rondo_stream *stream;
static double slowest, allowed;

double chaos_slowest(void)
{
    return slowest;
}
void chaos_allow(double seconds)
{
    allowed = seconds;
}
double chaos_limit(void)
{
    return (CHAOS_TIMEOUT_S + CHAOS_GRACE_S) * test_slowness() + allowed;
}
double chaos_moment(void)
{
    return 1 * test_slowness() + allowed;
}

#define TIMED(call) (clock_start(), clock_stop(call, #call))
static double began;

static void clock_start(void)
{
    began = test_seconds();
}

static rondo_result clock_stop(rondo_result result, const char *call)
{
    double took = test_seconds() - began;
    if (took > slowest) slowest = took;
    CHECK(took < chaos_limit(), "%s took %.3g s: %s: %s", call, took, rondo_result_string(result),
          rondo_last_error(NULL));
    return result;
}

static buffers *room_for(int which, size_t elements)
{
    buffers *b = &kept[which];
    if (elements <= b->room) return b;
    b->send = realloc(b->send, elements * 4);
    b->recv = realloc(b->recv, elements * 4);
    b->room = elements;
    CHECK(b->send && b->recv, "no memory for %zu elements", elements);
    return b;
}

void chaos_calls_end(void)
{
    for (int i = 0; i < SEVERAL; i++) {
        free(kept[i].send);
        free(kept[i].recv);
        kept[i] = (buffers){0};
    }
    rondo_stream_destroy(stream);
    stream = NULL;
}

/* ---- Values ---- */

static uint32_t value(int rank, int number, size_t i)
{
    uint32_t x = (uint32_t)i * 2654435761u + (uint32_t)rank * 40503u + (uint32_t)number * 977u;
    return x ^ (x >> 15);
}

static uint32_t reduced(rondo_op op, int n, int number, size_t i)
{
    uint32_t all = value(0, number, i);
    for (int r = 1; r < n; r++) {
        uint32_t x = value(r, number, i);
        if (op == RONDO_SUM)
            all += x;
        else if (op == RONDO_PROD)
            all *= x;
        else if (op == RONDO_MAX)
            all = x > all ? x : all;
        else
            all = x < all ? x : all;
    }
    return all;
}

static void fill(uint32_t *at, size_t count, int rank, int number)
{
    for (size_t i = 0; i < count; i++) at[i] = value(rank, number, i);
}

/* Every element of what is short, some of what is long. */
static size_t stride(size_t count)
{
    return count > 20000 ? 13 : 1;
}

static void check_value(const char *what, int number, size_t i, uint32_t is, uint32_t should)
{
    CHECK(is == should, "call %d, %s: element %zu is %u and should be %u", number, what, i, is, should);
}

/* ---- One collective ---- */

typedef struct collective {
    deed deed;
    size_t count;
    rondo_op op;
    int root, number;
    buffers *b;
} collective;

static collective describe(rondo_comm *comm, deed which, uint32_t bytes, uint64_t seed, int number, int place)
{
    int n = rondo_comm_size(comm), rank = rondo_comm_rank(comm);
    bool parts = which != DEED_ALL_REDUCE && which != DEED_BROADCAST && which != DEED_REDUCE;
    size_t count = bytes / 4 / (parts ? (size_t)n : 1);
    collective c = {which, count, (rondo_op)chaos_below(&seed, 4), (int)chaos_below(&seed, (uint32_t)n), number, NULL};
    c.b = room_for(place, count * (parts ? (size_t)n : 1) + 1);
    fill(c.b->send, count * (parts ? (size_t)n : 1), rank, number);
    memset(c.b->recv, 0xa5, count * (parts ? (size_t)n : 1) * 4);
    return c;
}

static rondo_result make_one(rondo_comm *comm, const collective *c, rondo_stream *on)
{
    const rondo_dtype type = RONDO_UINT32;
    uint32_t *send = c->b->send, *recv = c->b->recv;
    switch (c->deed) {
    case DEED_ALL_REDUCE: return rondo_all_reduce(send, recv, c->count, type, c->op, comm, on);
    case DEED_REDUCE_SCATTER: return rondo_reduce_scatter(send, recv, c->count, type, c->op, comm, on);
    case DEED_ALL_GATHER: return rondo_all_gather(send, recv, c->count, type, comm, on);
    case DEED_BROADCAST: return rondo_broadcast(send, recv, c->count, type, c->root, comm, on);
    case DEED_REDUCE: return rondo_reduce(send, recv, c->count, type, c->op, c->root, comm, on);
    case DEED_GATHER: return rondo_gather(send, recv, c->count, type, c->root, comm, on);
    case DEED_SCATTER: return rondo_scatter(send, recv, c->count, type, c->root, comm, on);
    case DEED_ALL_TO_ALL: return rondo_all_to_all(send, recv, c->count, type, comm, on);
    default: return rondo_barrier(comm, on);
    }
}

static void check_one(rondo_comm *comm, const collective *c)
{
    int n = rondo_comm_size(comm), rank = rondo_comm_rank(comm), k = c->number;
    size_t count = c->count, mine = count * (size_t)rank;
    const uint32_t *recv = c->b->recv;
    bool at_root = rank == c->root;
    for (size_t i = 0; i < count; i += stride(count)) {
        if (c->deed == DEED_ALL_REDUCE) check_value("all-reduce", k, i, recv[i], reduced(c->op, n, k, i));
        if (c->deed == DEED_REDUCE && at_root) check_value("reduce", k, i, recv[i], reduced(c->op, n, k, i));
        if (c->deed == DEED_REDUCE_SCATTER)
            check_value("reduce-scatter", k, i, recv[i], reduced(c->op, n, k, mine + i));
        if (c->deed == DEED_BROADCAST) check_value("broadcast", k, i, recv[i], value(c->root, k, i));
        if (c->deed == DEED_SCATTER) check_value("scatter", k, i, recv[i], value(c->root, k, mine + i));
        for (int r = 0; r < n; r++) {
            size_t at = (size_t)r * count + i;
            if (c->deed == DEED_ALL_GATHER) check_value("all-gather", k, at, recv[at], value(r, k, i));
            if (c->deed == DEED_GATHER && at_root) check_value("gather", k, at, recv[at], value(r, k, i));
            if (c->deed == DEED_ALL_TO_ALL) check_value("all-to-all", k, at, recv[at], value(r, k, mine + i));
        }
    }
}

static rondo_result one(rondo_comm *comm, deed which, uint32_t bytes, uint64_t seed, int number)
{
    collective c = describe(comm, which, bytes, seed, number, 0);
    rondo_result result = TIMED(make_one(comm, &c, NULL));
    if (result == RONDO_SUCCESS) check_one(comm, &c);
    return result;
}

/* ---- Several ---- */

static rondo_result several(rondo_comm *comm, const chaos_call *call, int number)
{
    uint64_t seed = call->seed;
    collective c[SEVERAL];
    bool grouped = call->deed == DEED_GROUP, streamed = call->deed == DEED_STREAM || chaos_below(&seed, 3) == 0;
    int n = 2 + (int)chaos_below(&seed, SEVERAL - 1);
    rondo_result result = RONDO_SUCCESS;
    bool alike = chaos_below(&seed, 2); /* so that they run as one */
    if (streamed && !stream) CHECK(rondo_stream_create(&stream, NULL) == RONDO_SUCCESS, "%s", rondo_last_error(NULL));
    for (int i = 0; i < n; i++) {
        deed which = alike ? DEED_ALL_REDUCE : (deed)chaos_below(&seed, COLLECTIVE_DEEDS);
        uint64_t own = alike ? call->seed : chaos_random(&seed);
        c[i] = describe(comm, which, call->bytes / (uint32_t)n, own, number * SEVERAL + i, i);
    }
    if (grouped) rondo_group_start();
    for (int i = 0; i < n && result == RONDO_SUCCESS; i++)
        result = TIMED(make_one(comm, &c[i], streamed ? stream : NULL));
    if (grouped) result = TIMED(rondo_group_end());
    if (streamed) { /* what was given before a failure runs, too */
        rondo_result later = TIMED(rondo_stream_synchronize(stream));
        if (result == RONDO_SUCCESS) result = later;
    }
    for (int i = 0; i < n && result == RONDO_SUCCESS; i++) check_one(comm, &c[i]);
    return result;
}

/* Everyone sends to the ranks at some distances, which are the same for all, and receives from those before it. */
static rondo_result messages(rondo_comm *comm, const chaos_call *call, int number)
{
    int n = rondo_comm_size(comm), rank = rondo_comm_rank(comm), distance[SEVERAL];
    uint64_t seed = call->seed;
    int m = 1 + (int)chaos_below(&seed, SEVERAL);
    size_t count = call->bytes / 4 / (uint32_t)m;
    for (int i = 0; i < m; i++) {
        distance[i] = (int)chaos_below(&seed, (uint32_t)n);
        buffers *b = room_for(i, count + 1);
        fill(b->send, count, rank, number * SEVERAL + i);
        memset(b->recv, 0xa5, count * 4);
    }
    rondo_group_start();
    for (int i = 0; i < m; i++) {
        rondo_send(kept[i].send, count, RONDO_UINT32, (rank + distance[i]) % n, comm, NULL);
        rondo_recv(kept[i].recv, count, RONDO_UINT32, (rank + n - distance[i]) % n, comm, NULL);
    }
    rondo_result result = TIMED(rondo_group_end());
    for (int i = 0; i < m && result == RONDO_SUCCESS; i++)
        for (size_t k = 0; k < count; k += stride(count))
            check_value("message", number, k, kept[i].recv[k],
                        value((rank + n - distance[i]) % n, number * SEVERAL + i, k));
    return result;
}

static rondo_result split(rondo_comm *comm, const chaos_call *call, int number, bool *on_child)
{
    int n = rondo_comm_size(comm), rank = rondo_comm_rank(comm), color = 0, members = 0;
    uint64_t seed = call->seed;
    int colors[CHAOS_RANKS] = {0};
    rondo_comm *child = NULL;
    for (int r = 0; r < n; r++) colors[r] = (int)chaos_below(&seed, 9) / 4; /* 0, 1, seldom 2: none */
    color = colors[rank] == 2 ? RONDO_NO_COLOR : colors[rank];
    for (int r = 0; r < n; r++) members += colors[r] == colors[rank];
    *on_child = true;
    rondo_result result = TIMED(rondo_comm_split(comm, color, rank, &child, NULL));
    if (result != RONDO_SUCCESS || color == RONDO_NO_COLOR) return result;
    CHECK(rondo_comm_size(child) == members, "a child of %d ranks, not %d", rondo_comm_size(child), members);
    for (int i = 0; i < 2 && result == RONDO_SUCCESS; i++)
        result = one(child, (deed)chaos_below(&seed, COLLECTIVE_DEEDS), call->bytes, call->seed, number * SEVERAL + i);
    CHECK(TIMED(rondo_comm_destroy(child)) == RONDO_SUCCESS, "destroy");
    return result;
}

rondo_result chaos_make(rondo_comm *comm, const chaos_call *call, int number, bool *on_child)
{
    *on_child = false;
    switch (call->deed) {
    case DEED_MESSAGES: return messages(comm, call, number);
    case DEED_GROUP:
    case DEED_STREAM: return several(comm, call, number);
    case DEED_SPLIT: return split(comm, call, number, on_child);
    default: return one(comm, call->deed, call->bytes, call->seed, number);
    }
}

void chaos_must_work(rondo_comm *comm, int number)
{
    static const deed deeds[] = {DEED_BARRIER, DEED_ALL_REDUCE, DEED_ALL_TO_ALL, DEED_BROADCAST, DEED_MESSAGES};
    for (int i = 0; i < 5; i++) {
        chaos_call call = {deeds[i], 3000u << 2 * i, (uint32_t)(number + i)};
        bool on_child;
        rondo_result result = chaos_make(comm, &call, number + i, &on_child);
        CHECK(result == RONDO_SUCCESS, "call %d of the survivors: %s: %s", i, rondo_result_string(result),
              rondo_last_error(comm));
    }
}
