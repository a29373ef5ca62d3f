/* SPDX-License-Identifier: Apache-2.0
 *
 * Case 7: every number of ranks from 1 to 17, counts from nothing to 2N+1 and around every size at which the library
 * does something else, all types and collectives, guarded. One set of processes per number of ranks and way. The
 * smaller sets make every combination of the small counts, the others their share, drawn at random but always the same.
 */
#include "test.h"

#include "base/dtype.h"
#include "ring/exec.h"
#include "trial.h"
#include "world.h"

#define SMALL_SLICE 4096
#define LARGE_SLICE 262144

typedef struct sweep {
    bool small;     /* counts 0 to 2N+1, else around the switches */
    uint64_t every; /* one of so many combinations is made */
    uint64_t seed;
    size_t slice;
} sweep;

/* Bytes of a slot that flat gives each peer (src/core/connect.c), of so many for all. */
static size_t flat_slot(const sweep *s, int n, size_t all)
{
    size_t each = n > 1 ? all / 2 / (size_t)(n - 1) / 4096 * 4096 : s->slice;
    if (each < 16384) each = 16384;
    return each < s->slice ? each : s->slice;
}

/* Counts around which slices, blocks of slices, the slots of a link, and parts of a channel begin or end: of the whole
 * message, or of a part of it for the collectives that count so. */
static size_t switches(const sweep *s, rondo_collective c, rondo_dtype type, int n, size_t *counts)
{
    size_t b = rd_dtype_bytes(type), used = 0;
    bool wide = rd_dtype_narrow(type) && c != RONDO_COLL_ALL_GATHER && c != RONDO_COLL_BROADCAST;
    const size_t units[] = {s->slice / (wide ? 4 : b),      /* partial sums travel in float32 */
                            s->slice / (wide ? 32 : 4 * b), /* in parts of a scratch, where a link has no slots */
                            flat_slot(s, n, 1 << 20) / b,   /* where ranks take turns, and */
                            flat_slot(s, n, 2 << 20) / b,   /* else */
                            4096 / (b * (size_t)(n > 1 ? n - 1 : 1)),  /* exchange up to here, */
                            32768 / (b * (size_t)(n > 1 ? n - 1 : 1)), /* and where ranks take turns, here */
                            64};                                       /* channels begin on cache lines */
    const size_t times[] = {1, 2, 4, 5};
    for (size_t u = 0; u < sizeof units / sizeof *units; u++)
        for (size_t k = 0; k < sizeof times / sizeof *times; k++) {
            size_t at = units[u] * times[k] * (c == RONDO_COLL_ALL_REDUCE && u != 4 && u != 5 ? (size_t)n : 1);
            if (at == 0) at = 1;
            for (size_t beside = at - 1; beside <= at + 1; beside++) counts[used++] = beside;
        }
    return used;
}

static void sweep_rank(rondo_comm *comm, int rank, int n, void *context)
{
    const sweep *s = context;
    size_t counts[84], used = 0;
    uint64_t number = 0;
    (void)rank;
    for (int type = 0; type < RONDO_DTYPES; type++)
        for (int c = 0; c < TRIAL_COLLECTIVES; c++) {
            if (s->small)
                for (used = 0; used < 2 * (size_t)n + 2; used++) counts[used] = used;
            else
                used = switches(s, (rondo_collective)c, (rondo_dtype)type, n, counts);
            for (size_t k = 0; k < used; k++) {
                uint64_t draw = mix(s->seed, number++);
                if (draw % s->every) continue;
                trial t = trial_draw(draw, n, counts[k]);
                t.collective = (rondo_collective)c;
                t.dtype = (rondo_dtype)type;
                trial_run(&t, comm);
            }
        }
    rondo_comm_destroy(comm);
}

static void run(int n, int w, bool small, double every, size_t slice)
{
    char text[32];
    if (n > 16 && (w == WAY_FLAT || w == WAY_EXCHANGE)) return; /* refused: RONDO_FLAT_RANKS */
    sweep s = {small, (uint64_t)(every * test_slowness()), (uint64_t)(n * WAYS + w), slice};
    if (s.every < 1) s.every = 1;
    snprintf(text, sizeof text, "%zu", slice);
    way_take(&ways[w]);
    test_env("RONDO_SLICE", text);
    test_env("RONDO_CHANNELS", n % 3 == 2 ? "2" : NULL);
    test_env("RONDO_SOCKETS", n % 4 == 1 ? "2" : NULL);
    ranks_run(n, NULL, NULL, sweep_rank, &s);
    test_env("RONDO_SLICE", NULL);
    test_env("RONDO_CHANNELS", NULL);
    test_env("RONDO_SOCKETS", NULL);
}

static void case_07_small(void **state)
{
    (void)state;
    for (int n = 1; n <= 17; n++) {
        run(n, WAY_AUTO, true, n / 2, SMALL_SLICE);
        run(n, WAY_FLAT, true, n / 2, SMALL_SLICE);
        run(n, WAY_RING, true, n / 2, SMALL_SLICE);
        run(n, WAY_TCP, true, n * n / 8, SMALL_SLICE);
    }
}

static void case_07_switches(void **state)
{
    (void)state;
    for (int n = 1; n <= 17; n++)
        for (int w = 0; w < WAYS; w++) run(n, w, false, 30 + 6 * n * n, SMALL_SLICE);
}

static void case_07_large_switches(void **state)
{
    static const int sizes[] = {2, 5, 8};
    (void)state;
    for (int k = 0; k < 3; k++)
        for (int w = 0; w < WAYS; w++) run(sizes[k], w, false, 200 * sizes[k], LARGE_SLICE);
}

/* Shared memory on some ranks, at and around the size from which on peers reach into it; memory may be gone right after
 * the call. */
static void direct_rank(rondo_comm *comm, int rank, int n, void *context)
{
    (void)rank, (void)context;
    for (uint64_t type = 0; type < RONDO_DTYPES; type++)
        for (uint64_t k = 0; k < 6; k++) {
            size_t at = RD_DIRECT_LEAST / rd_dtype_bytes((rondo_dtype)type);
            const size_t counts[] = {at - 1, at, at + 1, at + (size_t)n / 2, 2 * at + 1, 5 * at - 3};
            uint64_t draw = mix(type * 6 + k, (uint64_t)n);
            if (draw % (uint64_t)(n * test_slowness()) > 0) continue;
            trial t = trial_draw(draw, n, counts[k]);
            t.collective = RONDO_COLL_ALL_REDUCE;
            t.dtype = (rondo_dtype)type;
            t.shared = draw | 1;
            trial_run(&t, comm);
        }
    rondo_comm_destroy(comm);
}

static void case_07_direct(void **state)
{
    static const char *const slices[] = {"4096", NULL};
    (void)state;
    for (int n = 2; n <= 8; n++)
        for (int s = 0; s < 2; s++) {
            way_take(&ways[n % 2 ? WAY_FLAT : WAY_AUTO]);
            test_env("RONDO_SLICE", slices[s]);
            ranks_run(n, NULL, NULL, direct_rank, NULL);
        }
    test_env("RONDO_SLICE", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_07_small),
        cmocka_unit_test(case_07_switches),
        cmocka_unit_test(case_07_large_switches),
        cmocka_unit_test(case_07_direct),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
