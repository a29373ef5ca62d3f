/* SPDX-License-Identifier: Apache-2.0
 *
 * guard_calls.c - fixed calls, to have their instructions counted by bench/guard.py.
 *
 *   guard_calls          all of them, each FEW and then MANY times by one counted_block() each
 *   guard_calls --list   a line for each, in that order: FEW MANY NAME; before them a line on what compiled this
 *
 * All ranks live in one process, over loop links, and each call is one group of all ranks' calls. So one thread drives
 * them in turns, none of them ever waits, and every run executes the same instructions. The library's other threads
 * work as they please; what is counted is this thread's, inside measured_call().
 *
 * A group has a cost of its own. What one rank's plain call takes is seen with the second rank on a stream: it has long
 * sent its part of an exchange, and sleeps, when the first one calls, which so finds everything there.
 */
#include "rondo.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_RANKS = 4, MOST_BYTES = 1 << 20, KIB = 1 << 10, DEADLINE_S = 100, ASLEEP_US = 10000 };

/* PLAIN: an all-reduce of one rank without a group, the other's is on a stream. */
typedef enum what { ALL_REDUCE, PLAIN, REDUCE_SCATTER, ALL_GATHER, BROADCAST, MESSAGE, WHATS } what;

static const char *const names[WHATS] = {"all_reduce", "all_reduce", "reduce_scatter",
                                         "all_gather", "broadcast",  "send/recv"};

/* Ranks and algorithm make a team; those of one team stand together, since each is started once. */
static const struct guard_case {
    int ranks;
    const char *algo;
    what what;
    size_t bytes;
} cases[] = {
    {1, NULL, ALL_REDUCE, 8},
    {2, "exchange", PLAIN, 8},
    {2, "exchange", PLAIN, KIB},
    {2, "exchange", ALL_REDUCE, 8},
    {2, "exchange", ALL_REDUCE, KIB},
    {2, "flat", ALL_REDUCE, 8},
    {2, "flat", ALL_REDUCE, KIB},
    {2, "flat", ALL_REDUCE, 64 * KIB},
    {2, "flat", ALL_REDUCE, MOST_BYTES},
    {2, "ring", ALL_REDUCE, 8},
    {2, "ring", ALL_REDUCE, KIB},
    {2, "ring", ALL_REDUCE, 64 * KIB},
    {2, "ring", ALL_REDUCE, MOST_BYTES},
    {2, "ring", REDUCE_SCATTER, 64 * KIB},
    {2, "ring", ALL_GATHER, 64 * KIB},
    {2, "ring", BROADCAST, 8},
    {2, "ring", BROADCAST, 64 * KIB},
    {2, "ring", MESSAGE, 8},
    {2, "ring", MESSAGE, 64 * KIB},
    {4, "exchange", ALL_REDUCE, 8},
    {4, "exchange", ALL_REDUCE, KIB},
    {4, "flat", ALL_REDUCE, 8},
    {4, "flat", ALL_REDUCE, KIB},
    {4, "flat", ALL_REDUCE, 64 * KIB},
    {4, "flat", ALL_REDUCE, MOST_BYTES},
    {4, "ring", ALL_REDUCE, 8},
    {4, "ring", ALL_REDUCE, KIB},
    {4, "ring", ALL_REDUCE, 64 * KIB},
    {4, "ring", ALL_REDUCE, MOST_BYTES},
    {4, "ring", REDUCE_SCATTER, 64 * KIB},
    {4, "ring", ALL_GATHER, 64 * KIB},
    {4, "ring", BROADCAST, 8},
    {4, "ring", BROADCAST, 64 * KIB},
};
enum { CASES = sizeof cases / sizeof *cases };

typedef struct team {
    rondo_comm *comms[MOST_RANKS];
    float *from[MOST_RANKS], *to[MOST_RANKS];
    rondo_stream *stream; /* for the last rank of a plain call */
} team;

static void check(rondo_result result, const char *doing)
{
    if (result == RONDO_SUCCESS) return;
    fprintf(stderr, "guard_calls: %s: %s\n", doing, rondo_last_error(NULL));
    exit(1);
}

static int few(const struct guard_case *c) { return c->bytes > 64 * KIB ? 1 : 10; }
static int many(const struct guard_case *c) { return c->bytes > 64 * KIB ? 3 : 50; }

/* ---- Calls ---- */

static rondo_result call(const struct guard_case *c, const team *t, int rank, rondo_stream *stream)
{
    rondo_comm *comm = t->comms[rank];
    const float *from = t->from[rank];
    float *to = t->to[rank];
    size_t count = c->bytes / sizeof *from, part = count / (size_t)c->ranks;
    switch (c->what) {
    case ALL_REDUCE:
    case PLAIN: return rondo_all_reduce(from, to, count, RONDO_FLOAT32, RONDO_SUM, comm, stream);
    case REDUCE_SCATTER: return rondo_reduce_scatter(from, to, part, RONDO_FLOAT32, RONDO_SUM, comm, stream);
    case ALL_GATHER: return rondo_all_gather(from, to, part, RONDO_FLOAT32, comm, stream);
    case BROADCAST: return rondo_broadcast(from, to, count, RONDO_FLOAT32, 0, comm, stream);
    default:
        return rank == 0 ? rondo_send(from, count, RONDO_FLOAT32, 1, comm, stream)
                         : rondo_recv(to, count, RONDO_FLOAT32, 0, comm, stream);
    }
}

/* Callgrind knows these two by their names, so they are no static functions. */
void measured_call(const struct guard_case *c, const team *t);
void counted_block(const struct guard_case *c, const team *t, int times);

__attribute__((noinline)) void measured_call(const struct guard_case *c, const team *t)
{
    if (c->ranks == 1 || c->what == PLAIN) {
        check(call(c, t, 0, NULL), "a call");
        return;
    }
    check(rondo_group_start(), "rondo_group_start");
    for (int r = 0; r < c->ranks; r++) check(call(c, t, r, NULL), "a call");
    check(rondo_group_end(), "rondo_group_end");
}

/* At its end the counts so far are written down, and begin at 0 again. */
__attribute__((noinline)) void counted_block(const struct guard_case *c, const team *t, int times)
{
    for (int i = 0; i < times; i++) {
        if (c->what == PLAIN) {
            check(call(c, t, 1, t->stream), "a call on a stream");
            usleep(ASLEEP_US);
        }
        measured_call(c, t);
        if (c->what == PLAIN) check(rondo_stream_synchronize(t->stream), "rondo_stream_synchronize");
    }
}

/* ---- Values: small whole numbers, whose sums are exact ---- */

static float value(int rank, size_t i) { return (float)((i * 7 + (size_t)rank * 13) % 1000); }

/* Element i of rank's result. */
static float right(const struct guard_case *c, int rank, size_t i)
{
    size_t part = c->bytes / sizeof(float) / (size_t)c->ranks;
    float sum = 0;
    if (c->what == BROADCAST || c->what == MESSAGE) return value(0, i);
    if (c->what == ALL_GATHER) return value((int)(i / part), i % part);
    for (int r = 0; r < c->ranks; r++) sum += value(r, c->what == REDUCE_SCATTER ? (size_t)rank * part + i : i);
    return sum;
}

static void check_results(const struct guard_case *c, const team *t)
{
    size_t count = c->bytes / sizeof(float) / (c->what == REDUCE_SCATTER ? (size_t)c->ranks : 1);
    for (int r = c->what == MESSAGE; r < c->ranks; r++)
        for (size_t i = 0; i < count; i++) {
            if (t->to[r][i] == right(c, r, i)) continue;
            fprintf(stderr, "guard_calls: %s, %zu bytes, %d ranks, %s: element %zu of rank %d is %g, not %g\n",
                    names[c->what], c->bytes, c->ranks, c->algo, i, r, t->to[r][i], right(c, r, i));
            exit(1);
        }
}

/* ---- Teams ---- */

static bool same_team(const struct guard_case *a, const struct guard_case *b)
{
    return a->ranks == b->ranks && a->algo == b->algo;
}

static void start(team *t, const struct guard_case *c)
{
    rondo_unique_id id;
    rondo_config config = RONDO_CONFIG_INIT;
    config.transport = "loop";
    config.algo = c->algo;
    check(rondo_get_unique_id(&id), "rondo_get_unique_id");
    check(rondo_group_start(), "rondo_group_start");
    for (int r = 0; r < c->ranks; r++)
        check(rondo_init_rank(&t->comms[r], c->ranks, id, r, &config), "rondo_init_rank");
    check(rondo_group_end(), "the start of the ranks");
    check(rondo_stream_create(&t->stream, t->comms[c->ranks - 1]), "rondo_stream_create");
}

static void end(team *t, int ranks)
{
    check(rondo_stream_destroy(t->stream), "rondo_stream_destroy");
    for (int r = 0; r < ranks; r++) check(rondo_comm_destroy(t->comms[r]), "rondo_comm_destroy");
}

/* Alignment decides how many steps a kernel takes. */
static void allocate(team *t)
{
    for (int r = 0; r < MOST_RANKS; r++) {
        t->from[r] = aligned_alloc(4096, MOST_BYTES);
        t->to[r] = aligned_alloc(4096, MOST_BYTES);
        if (!t->from[r] || !t->to[r]) {
            fprintf(stderr, "guard_calls: no memory for buffers of %d bytes\n", MOST_BYTES);
            exit(1);
        }
        for (size_t i = 0; i < MOST_BYTES / sizeof(float); i++) t->from[r][i] = value(r, i);
    }
}

static void list(void)
{
    printf("compiler %s %s\n",
#ifdef __clang__
           "clang",
#else
           "gcc",
#endif
           __VERSION__);
    for (const struct guard_case *c = cases; c < cases + CASES; c++) {
        printf("%d %d %s, ", few(c), many(c), names[c->what]);
        if (c->bytes >= MOST_BYTES) printf("1 MiB");
        else if (c->bytes >= KIB) printf("%zu KiB", c->bytes / KIB);
        else printf("%zu B", c->bytes);
        if (c->ranks == 1) printf(", 1 rank");
        else printf(", %s%d ranks", c->what == PLAIN ? "one of " : "", c->ranks);
        if (c->algo && c->what <= PLAIN) printf(", %s", c->algo);
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    team t;
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        list();
        return 0;
    }
    if (argc > 1) {
        fprintf(stderr, "usage: guard_calls [--list]\n");
        return 2;
    }
    alarm(DEADLINE_S);
    allocate(&t);
    for (const struct guard_case *c = cases; c < cases + CASES; c++) {
        if (c == cases || !same_team(c, c - 1)) start(&t, c);
        for (int r = 0; r < c->ranks; r++) memset(t.to[r], 0, c->bytes);
        counted_block(c, &t, 2); /* the first makes plans, links and memory */
        counted_block(c, &t, few(c));
        counted_block(c, &t, many(c));
        check_results(c, &t);
        if (c + 1 == cases + CASES || !same_team(c, c + 1)) end(&t, c->ranks);
    }
    return 0;
}
