/* SPDX-License-Identifier: Apache-2.0
 *
 * Cases 1 to 3 and 5: large, larger, empty, and misaligned.
 */
#include "test.h"

#include "base/dtype.h"
#include "rondo_plan.h"
#include "trial.h"

/* ---- Case 1 ---- */

static size_t large(void) { return (size_t)(10556587 / test_slowness()) | 1; }

static void large_rank(rondo_comm *comm, int rank, int n, void *context)
{
    size_t count = large(), bytes = count * sizeof(float);
    unsigned char *memory = guard_begin(bytes, 0, false);
    float *x = (float *)(void *)memory;
    (void)context;
    for (size_t i = 0; i < count; i++) x[i] = (float)(i % 97) + (float)rank;
    SUCCEEDS(rondo_all_reduce(x, x, count, RONDO_FLOAT32, RONDO_SUM, comm, NULL), comm);
    for (size_t i = 0; i < count; i++) {
        float want = 8 * (float)(i % 97) + 28;
        CHECK(x[i] == want, "rank %d of %d, element %zu: %g, not %g", rank, n, i, (double)x[i], (double)want);
    }
    CHECK(guard_end(memory, bytes), "rank %d: written beside the buffer", rank);
    rondo_comm_destroy(comm);
}

static void case_01(void **state)
{
    (void)state;
    for (int w = 0; w <= WAY_TCP; w++) {
        way_take(&ways[w]);
        ranks_run(8, NULL, NULL, large_rank, NULL);
    }
}

/* ---- Case 2 ---- */

/* All chunks in one pass of reduce-scatter and one of all-gather: [0, count) is sent once by each pair of steps taken
 * over all ranks, and every offset in bytes is below 2^63. */
static void check_plan(uint64_t count, int n, rondo_algo algo)
{
    const uint64_t element = 8;
    rondo_plan p = {0};
    for (int s = 0; s < 2 * (n - 1); s++) {
        uint64_t covered = 0;
        for (int r = 0; r < n; r++) {
            assert_int_equal(rondo_plan_init(&p, RONDO_COLL_ALL_REDUCE, algo, n, r, 0, count, NULL, NULL, 0), 0);
            assert_int_equal(p.steps, 2 * (n - 1));
            rondo_step step = rondo_plan_step(&p, s);
            rondo_range chunk = rondo_chunk(&p, step.send_chunk);
            assert_true(chunk.first <= count && chunk.count <= count - chunk.first);
            assert_true((int64_t)((chunk.first + chunk.count) * element) >= 0);
            if (algo == RONDO_ALGO_RING) covered += chunk.count;
        }
        assert_int_equal(covered, algo == RONDO_ALGO_RING ? count : 0);
    }
    uint64_t end = 0;
    for (int c = 0; c < n; c++) {
        assert_int_equal(rondo_chunk(&p, c).first, end);
        end += rondo_chunk(&p, c).count;
    }
    assert_int_equal(end, count);
}

static void refused(rondo_comm *comm, rondo_result r, const char *number)
{
    CHECK(r == RONDO_INVALID_ARGUMENT, "%s", rondo_result_string(r));
    CHECK(strstr(rondo_last_error(comm), "count") && strstr(rondo_last_error(comm), number), "\"%s\" lacks count or %s",
          rondo_last_error(comm), number);
}

static void huge_rank(rondo_comm *comm, int rank, int n, void *context)
{
    float x = 0;
    const size_t huge = (size_t)-4, whole = (size_t)1 << 60; /* the second is too much for n ranks of float64 only */
    (void)rank, (void)n, (void)context;
    refused(comm, rondo_all_reduce(&x, &x, huge, RONDO_FLOAT32, RONDO_SUM, comm, NULL), "18446744073709551612");
    refused(comm, rondo_all_reduce(&x, &x, huge, RONDO_INT8, RONDO_SUM, comm, NULL), "18446744073709551612");
    refused(comm, rondo_reduce_scatter(&x, &x, huge, RONDO_FLOAT64, RONDO_SUM, comm, NULL), "18446744073709551612");
    refused(comm, rondo_reduce_scatter(&x, &x, whole, RONDO_FLOAT64, RONDO_SUM, comm, NULL), "1152921504606846976");
    refused(comm, rondo_all_gather(&x, &x, whole, RONDO_FLOAT64, comm, NULL), "1152921504606846976");
    refused(comm, rondo_broadcast(&x, &x, huge, RONDO_INT8, 0, comm, NULL), "18446744073709551612");
    refused(comm, rondo_reduce(&x, &x, huge, RONDO_INT8, RONDO_SUM, 1, comm, NULL), "18446744073709551612");
    trial_still_works(comm, 2);
    rondo_comm_destroy(comm);
}

static void case_02(void **state)
{
    (void)state;
    check_plan((1ull << 33) + 7, 4, RONDO_ALGO_RING);
    check_plan((1ull << 33) + 7, 4, RONDO_ALGO_FLAT);
    check_plan(1500000000, 4, RONDO_ALGO_RING);
    check_plan(1500000000, 7, RONDO_ALGO_FLAT);
    way_take(&ways[WAY_FLAT]);
    ranks_run(2, NULL, NULL, huge_rank, NULL);
}

/* ---- Case 3 ---- */

static void empty_rank(rondo_comm *comm, int rank, int n, void *context)
{
    (void)rank, (void)context;
    for (int c = 0; c < TRIAL_COLLECTIVES; c++) {
        trial t = {.collective = (rondo_collective)c, .dtype = RONDO_FLOAT32, .op = RONDO_SUM, .root = n - 1};
        SUCCEEDS(trial_call(&t, NULL, NULL, comm), comm);
        trial bad = t;
        bad.dtype = (rondo_dtype)99;
        CHECK(trial_call(&bad, NULL, NULL, comm) == RONDO_INVALID_ARGUMENT, "an unknown type, collective %d", c);
        CHECK(strstr(rondo_last_error(comm), "dtype is 99"), "%s", rondo_last_error(comm));
        if (c == RONDO_COLL_BROADCAST || c == RONDO_COLL_REDUCE) {
            bad = t;
            bad.root = n;
            CHECK(trial_call(&bad, NULL, NULL, comm) == RONDO_INVALID_ARGUMENT, "count 0 with a bad root");
            CHECK(strstr(rondo_last_error(comm), "root"), "%s", rondo_last_error(comm));
        }
        t.count = 5;
        trial_run(&t, comm);
    }
    SUCCEEDS(rondo_barrier(comm, NULL), comm);
    rondo_comm_destroy(comm);
}

static void case_03(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++)
        for (int n = 1; n <= 4; n++) {
            way_take(&ways[w]);
            ranks_run(n, NULL, NULL, empty_rank, NULL);
        }
}

/* ---- Case 5 ---- */

static void misaligned_rank(rondo_comm *comm, int rank, int n, void *context)
{
    (void)rank, (void)context;
    for (int type = 0; type < RONDO_DTYPES; type++)
        for (int c = 0; c < TRIAL_COLLECTIVES; c++)
            for (size_t skew = 1; skew < 2 * rd_dtype_bytes((rondo_dtype)type); skew += skew < 8 ? 2 : 5) {
                trial t = trial_draw(skew, n, 301 + skew);
                t.collective = (rondo_collective)c;
                t.dtype = (rondo_dtype)type;
                t.skew = skew;
                t.in_place = false;
                trial_run(&t, comm);
                t.in_place = true;
                trial_run(&t, comm);
            }
    rondo_comm_destroy(comm);
}

static void case_05(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++) {
        way_take(&ways[w]);
        ranks_run(3, NULL, NULL, misaligned_rank, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_01),
        cmocka_unit_test(case_02),
        cmocka_unit_test(case_03),
        cmocka_unit_test(case_05),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
