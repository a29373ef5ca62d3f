/* SPDX-License-Identifier: Apache-2.0
 *
 * case 4: buffers that are not aligned cost little. Runs alone (run.sh), since it measures.
 */
#include "test.h"

#include "ranks.h"

#include <unistd.h>

#define BYTES ((size_t)64 << 20)
#define COUNT (BYTES / sizeof(float) / (test_slowness() > 1 ? 64 : 1)) /* a sanitizer only looks, and slowly */
#define BEST_OF 3

static float value(int rank, size_t i) { return (float)((i * 7) % 97 + (size_t)rank); }

/* Seconds of one all-reduce in place at `data`, exact, its buffer rewritten before. */
static double timed(rondo_comm *comm, float *data, int rank, int n)
{
    for (size_t i = 0, count = COUNT; i < count; i++) data[i] = value(rank, i);
    CHECK(rondo_barrier(comm, NULL) == RONDO_SUCCESS, "%s", rondo_last_error(comm));
    double start = test_seconds();
    CHECK(rondo_all_reduce(data, data, COUNT, RONDO_FLOAT32, RONDO_SUM, comm, NULL) == RONDO_SUCCESS, "%s", rondo_last_error(comm));
    double took = test_seconds() - start;
    for (size_t i = 0, count = COUNT; i < count; i++) {
        float want = (float)(n * (int)((i * 7) % 97) + n * (n - 1) / 2);
        CHECK(data[i] == want, "element %zu is %g, not %g", i, (double)data[i], (double)want);
    }
    return took;
}

static void aligned_and_not(rondo_comm *comm, int rank, int n, void *context)
{
    (void)context;
    float *memory = aligned_alloc(4096, BYTES + 4096);
    for (int shift = 1; shift <= 3; shift++) {
        double best[2] = {1e9, 1e9};
        /* A noisy machine may spoil a pair; more pairs only if it did. */
        for (int pair = 0; pair < 4 * BEST_OF && (pair < BEST_OF || best[0] < 0.8 * best[1]); pair++)
            for (int off = 0; off < 2; off++) {
                double took = timed(comm, memory + (off ? shift : 0), rank, n), slowest = 0, all[2];
                CHECK(rondo_all_gather(&took, all, 1, RONDO_FLOAT64, comm, NULL) == RONDO_SUCCESS, "%s", rondo_last_error(comm));
                for (int r = 0; r < n; r++) slowest = all[r] > slowest ? all[r] : slowest;
                if (slowest < best[off]) best[off] = slowest;
            }
        if (rank == 0) printf("%d elements off: %.1f ms, aligned %.1f ms\n", shift, best[1] * 1e3, best[0] * 1e3);
        if (test_slowness() <= 1) /* a sanitizer's own cost depends on alignment */
            CHECK(best[0] >= 0.8 * best[1], "%d elements off: %.3g s, aligned %.3g s", shift, best[1], best[0]);
    }
    free(memory);
}

static void case_04(void **state)
{
    (void)state;
    ranks_run(2, NULL, NULL, aligned_and_not, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(case_04)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
