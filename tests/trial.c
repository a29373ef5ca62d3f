/* SPDX-License-Identifier: Apache-2.0 */
#include "test.h"

#include "base/dtype.h"
#include "elements.h"
#include "trial.h"
#include "world.h"

#define GUARD 128
#define UNWRITTEN 0xC3

const struct way ways[WAYS] = {
    [WAY_FLAT] = {"shm flat", "shm", "flat"},
    [WAY_RING] = {"shm ring", "shm", "ring"},
    [WAY_TCP] = {"tcp", "tcp", NULL},
    [WAY_AUTO] = {"shm", "shm", NULL},
    [WAY_EXCHANGE] = {"shm exchange", "shm", "exchange"},
};

void way_take(const struct way *way)
{
    test_env("RONDO_TRANSPORT", way->transport);
    test_env("RONDO_ALGO", way->algo);
}

/* ---- Guards ---- */

static unsigned char canary(size_t i) { return (unsigned char)(0x5A ^ (i * 29)); }

unsigned char *guard_begin(size_t bytes, size_t skew, bool shared)
{
    size_t whole = GUARD + bytes + 2 * GUARD;
    void *base = NULL;
    if (!shared) base = aligned_alloc(64, (whole + 63) / 64 * 64);
    else if (rondo_mem_alloc(&base, whole, NULL) != RONDO_SUCCESS) base = NULL;
    if (!base) abort();
    unsigned char *before = base, *memory = before + GUARD + skew;
    before[0] = shared;
    for (size_t i = 1; i < GUARD + skew; i++) before[i] = canary(i);
    for (size_t i = 0; i < GUARD; i++) memory[bytes + i] = canary(i);
    memset(memory, UNWRITTEN, bytes);
    return memory;
}

bool guard_end(unsigned char *memory, size_t bytes)
{
    size_t skew = (uintptr_t)memory % 64;
    unsigned char *base = memory - skew - GUARD;
    bool intact = base[0] <= 1;
    for (size_t i = 1; i < GUARD + skew; i++) intact &= base[i] == canary(i);
    for (size_t i = 0; i < GUARD; i++) intact &= memory[bytes + i] == canary(i);
    if (base[0]) intact &= rondo_mem_free(base, NULL) == RONDO_SUCCESS;
    else free(base);
    return intact;
}

/* ---- Trials ---- */

static bool scatters(const trial *t) { return t->collective == RONDO_COLL_REDUCE_SCATTER; }
static bool gathers(const trial *t) { return t->collective == RONDO_COLL_ALL_GATHER; }
static bool shares(const trial *t, int rank, uint64_t bit) { return t->shared && mix(t->shared, (uint64_t)rank) & bit; }
static bool reads(const trial *t, int rank) { return t->collective != RONDO_COLL_BROADCAST || rank == t->root; }
static bool writes(const trial *t, int rank) { return t->collective != RONDO_COLL_REDUCE || rank == t->root; }

trial trial_draw(uint64_t seed, int n, size_t count)
{
    uint64_t draw = mix(seed, 77);
    return (trial){
        .collective = (rondo_collective)(draw % TRIAL_COLLECTIVES),
        .dtype = (rondo_dtype)((draw >> 8) % RONDO_DTYPES),
        .op = (rondo_op)((draw >> 16) % RONDO_OPS),
        .root = (int)((draw >> 24) % (uint64_t)n),
        .count = count,
        .in_place = draw >> 40 & 1,
        .skew = (draw >> 41) % 8,
        .shared = draw >> 44 & 3 ? 0 : draw,
        .seed = seed,
    };
}

size_t trial_sends(const trial *t, int n) { return scatters(t) ? t->count * (size_t)n : t->count; }
size_t trial_receives(const trial *t, int n) { return gathers(t) ? t->count * (size_t)n : t->count; }

/* Pure moves are of terms that differ from rank to rank, whatever the operator says. */
static double sent(const trial *t, int rank, int n, uint64_t i)
{
    bool moves = gathers(t) || t->collective == RONDO_COLL_BROADCAST;
    return element_term(t->dtype, moves ? RONDO_SUM : t->op, rank, n, i + (gathers(t) ? (uint64_t)rank * t->count : 0),
                        t->seed);
}

static double wanted(const trial *t, int rank, int n, uint64_t i)
{
    if (t->collective == RONDO_COLL_BROADCAST) return sent(t, t->root, n, i);
    if (gathers(t)) return sent(t, (int)(i / t->count), n, i % t->count);
    return element_result(t->dtype, t->op, n, i + (scatters(t) ? (uint64_t)rank * t->count : 0), t->seed);
}

void trial_fill(const trial *t, int rank, int n, void *send)
{
    size_t b = rd_dtype_bytes(t->dtype), count = trial_sends(t, n);
    for (size_t i = 0; i < count; i++) element_put((unsigned char *)send + i * b, t->dtype, sent(t, rank, n, i));
}

const char *trial_name(const trial *t, char *text, size_t bytes)
{
    static const char *const names[TRIAL_COLLECTIVES] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                                         "reduce"};
    snprintf(text, bytes, "%s of %zu %s, %s, root %d%s%s, skew %zu", names[t->collective], t->count,
             rd_dtype_name(t->dtype), rd_op_name(t->op), t->root, t->in_place ? ", in place" : "",
             t->shared ? ", shared" : "", t->skew);
    return text;
}

bool trial_holds(const trial *t, int rank, int n, const void *recv, char *text, size_t bytes)
{
    size_t b = rd_dtype_bytes(t->dtype), count = trial_receives(t, n);
    for (size_t i = 0; writes(t, rank) && i < count; i++) {
        double got = element_get((const unsigned char *)recv + i * b, t->dtype), want = wanted(t, rank, n, i);
        if (got == want) continue;
        snprintf(text, bytes, "rank %d of %d, element %zu of %zu: %.17g, not %.17g", rank, n, i, count, got, want);
        return false;
    }
    return true;
}

rondo_result trial_call(const trial *t, const void *send, void *recv, rondo_comm *comm)
{
    switch (t->collective) {
    case RONDO_COLL_ALL_REDUCE: return rondo_all_reduce(send, recv, t->count, t->dtype, t->op, comm, NULL);
    case RONDO_COLL_REDUCE_SCATTER: return rondo_reduce_scatter(send, recv, t->count, t->dtype, t->op, comm, NULL);
    case RONDO_COLL_ALL_GATHER: return rondo_all_gather(send, recv, t->count, t->dtype, comm, NULL);
    case RONDO_COLL_BROADCAST: return rondo_broadcast(send, recv, t->count, t->dtype, t->root, comm, NULL);
    default: return rondo_reduce(send, recv, t->count, t->dtype, t->op, t->root, comm, NULL);
    }
}

/* Memory that the call should leave as it was. */
static bool unchanged(const trial *t, int rank, int n, const unsigned char *send, size_t except, size_t width)
{
    size_t b = rd_dtype_bytes(t->dtype), count = trial_sends(t, n);
    for (size_t i = 0; i < count; i++) {
        if (i >= except && i - except < width) continue;
        if (element_get(send + i * b, t->dtype) != sent(t, rank, n, i)) return false;
    }
    return true;
}

static bool unwritten(const unsigned char *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (memory[i] != UNWRITTEN) return false;
    return true;
}

static void run_apart(const trial *t, rondo_comm *comm, const char *name)
{
    char text[256];
    int rank = rondo_comm_rank(comm), n = rondo_comm_size(comm);
    size_t b = rd_dtype_bytes(t->dtype), send_bytes = trial_sends(t, n) * b, recv_bytes = trial_receives(t, n) * b;
    /* What a rank does not use may be NULL, or memory that stays as it is. */
    bool spare = t->seed % 2;
    unsigned char *send = guard_begin(send_bytes, t->skew, shares(t, rank, 1));
    unsigned char *recv = guard_begin(recv_bytes, t->skew * 5 % 64, shares(t, rank, 2));
    trial_fill(t, rank, n, send);
    rondo_result r = trial_call(t, reads(t, rank) || spare ? send : NULL, writes(t, rank) || spare ? recv : NULL, comm);
    CHECK(r == RONDO_SUCCESS, "%s: %s: %s", name, rondo_result_string(r), rondo_last_error(comm));
    CHECK(trial_holds(t, rank, n, recv, text, sizeof text), "%s: %s", name, text);
    CHECK(unchanged(t, rank, n, send, 0, 0), "%s: rank %d of %d: send was changed", name, rank, n);
    CHECK(writes(t, rank) || unwritten(recv, recv_bytes), "%s: rank %d of %d: recv is not its own", name, rank, n);
    CHECK(guard_end(send, send_bytes), "%s: rank %d of %d: written beside send", name, rank, n);
    CHECK(guard_end(recv, recv_bytes), "%s: rank %d of %d: written beside recv", name, rank, n);
}

static void run_in_place(const trial *t, rondo_comm *comm, const char *name)
{
    char text[256];
    int rank = rondo_comm_rank(comm), n = rondo_comm_size(comm);
    size_t b = rd_dtype_bytes(t->dtype), sends = trial_sends(t, n), receives = trial_receives(t, n);
    size_t bytes = (sends > receives ? sends : receives) * b, mine = (size_t)rank * t->count;
    unsigned char *memory = guard_begin(bytes, t->skew, shares(t, rank, 1));
    unsigned char *send = memory + (gathers(t) ? mine * b : 0), *recv = memory + (scatters(t) ? mine * b : 0);
    if (reads(t, rank)) trial_fill(t, rank, n, send);
    rondo_result r = trial_call(t, send, recv, comm);
    CHECK(r == RONDO_SUCCESS, "%s: %s: %s", name, rondo_result_string(r), rondo_last_error(comm));
    CHECK(trial_holds(t, rank, n, recv, text, sizeof text), "%s: %s", name, text);
    CHECK(!scatters(t) || unchanged(t, rank, n, send, mine, t->count), "%s: rank %d of %d: other parts were changed",
          name, rank, n);
    CHECK(writes(t, rank) || unchanged(t, rank, n, send, 0, 0), "%s: rank %d of %d: send was changed", name, rank, n);
    CHECK(guard_end(memory, bytes), "%s: rank %d of %d: written beside the buffer", name, rank, n);
}

void trial_run(const trial *t, rondo_comm *comm)
{
    char name[160];
    trial_name(t, name, sizeof name);
    (t->in_place ? run_in_place : run_apart)(t, comm, name);
}

void trial_still_works(rondo_comm *comm, uint64_t seed)
{
    trial t = {.collective = RONDO_COLL_ALL_REDUCE, .dtype = RONDO_INT32, .op = RONDO_SUM, .count = 5, .seed = seed};
    trial_run(&t, comm);
}
