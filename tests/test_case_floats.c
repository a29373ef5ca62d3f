/* SPDX-License-Identifier: Apache-2.0
 *
 * What floats hold besides numbers, end to end: NaN, infinities, signed zeros, subnormals; and a caller whose processor
 * is set to flush or to round otherwise.
 */
#include "test.h"

#include "base/dtype.h"
#include "elements.h"
#include "trial.h"

#include <fenv.h>
#include <math.h>

#ifdef __x86_64__
#include <immintrin.h>
#define FLUSHING (_MM_FLUSH_ZERO_ON | 0x40u /* denormals are zero */)
#endif

static const rondo_dtype floats[] = {RONDO_FLOAT16, RONDO_FLOAT32, RONDO_FLOAT64, RONDO_BFLOAT16, RONDO_FLOAT8E4M3,
                                     RONDO_FLOAT8E5M2};
#define FLOATS (sizeof floats / sizeof *floats)
#define COUNT 2311

static bool same(double a, double b) { return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b); }

/* What a rank holds: one of the special ones, otherwise for each rank and element. */
static double special(rondo_dtype type, int rank, size_t i)
{
    double tiny = element_smallest(type), large = element_largest(type);
    double infinite = type == RONDO_FLOAT8E4M3 ? large : (double)INFINITY;
    const double values[] = {0.0, -0.0, tiny, -tiny, 3 * tiny, 1, -1, large, -large, infinite, -infinite, (double)NAN};
    size_t k = i;
    for (int r = 0; r < rank; r++) k /= 12;
    return values[k % 12];
}

static double chosen(rondo_op op, double a, double b)
{
    if (isnan(a) || isnan(b)) return (double)NAN;
    if (a == b) return (signbit(a) != 0) == (op == RONDO_MIN) ? a : b; /* of two zeros, +0 is the larger */
    return (a > b) == (op == RONDO_MAX) ? a : b;
}

static void check_chosen(rondo_comm *comm, int rank, int n, rondo_dtype type, rondo_op op)
{
    size_t b = rd_dtype_bytes(type);
    unsigned char *x = guard_begin(COUNT * b, 0, false);
    for (size_t i = 0; i < COUNT; i++) element_put(x + i * b, type, special(type, rank, i));
    SUCCEEDS(rondo_all_reduce(x, x, COUNT, type, op, comm, NULL), comm);
    for (size_t i = 0; i < COUNT; i++) {
        double want = special(type, 0, i), got = element_get(x + i * b, type);
        for (int r = 1; r < n; r++) want = chosen(op, want, special(type, r, i));
        CHECK(same(got, want), "%s %s, element %zu of rank %d: %g, not %g", rd_dtype_name(type), rd_op_name(op), i,
              rank, got, want);
    }
    CHECK(guard_end(x, COUNT * b), "written beside the buffer");
}

/* Sums and products whose terms or results are subnormal, and exact. */
static void check_tiny(rondo_comm *comm, int rank, int n, rondo_dtype type)
{
    size_t b = rd_dtype_bytes(type);
    double tiny = element_smallest(type);
    unsigned char *x = guard_begin(COUNT * b, 0, false);
    static const rondo_op ops[] = {RONDO_SUM, RONDO_PROD, RONDO_MIN, RONDO_MAX};
    for (int k = 0; k < 4; k++) {
        for (size_t i = 0; i < COUNT; i++) {
            double sign = i % 2 ? -1 : 1;
            double term = ops[k] != RONDO_PROD ? sign * tiny : rank == 0 ? sign * 8 * tiny : rank == 1 ? 0.5 : 1;
            element_put(x + i * b, type, term);
        }
        SUCCEEDS(rondo_all_reduce(x, x, COUNT, type, ops[k], comm, NULL), comm);
        for (size_t i = 0; i < COUNT; i++) {
            double want = (i % 2 ? -tiny : tiny) * (ops[k] == RONDO_SUM ? n : ops[k] == RONDO_PROD ? 4 : 1);
            double got = element_get(x + i * b, type);
            CHECK(same(got, want), "%s %s, element %zu of rank %d: %g, not %g", rd_dtype_name(type), rd_op_name(ops[k]),
                  i, rank, got, want);
        }
    }
    CHECK(guard_end(x, COUNT * b), "written beside the buffer");
}

static void special_rank(rondo_comm *comm, int rank, int n, void *context)
{
    (void)context;
    for (size_t t = 0; t < FLOATS; t++) {
        check_chosen(comm, rank, n, floats[t], RONDO_MAX);
        check_chosen(comm, rank, n, floats[t], RONDO_MIN);
        check_tiny(comm, rank, n, floats[t]);
    }
    rondo_comm_destroy(comm);
}

static void on_all_ways(rank_fn f, int n)
{
    for (int w = 0; w < WAYS; w++) {
        way_take(&ways[w]);
        ranks_run(n, NULL, NULL, f, NULL);
    }
}

static void case_nan_zero_subnormal(void **state)
{
    (void)state;
    test_env("RONDO_SLICE", "4096");
    on_all_ways(special_rank, 2);
    on_all_ways(special_rank, 3);
    on_all_ways(special_rank, 5);
    test_env("RONDO_SLICE", NULL);
}

/* ---- The caller's floating-point state ---- */

/* Half of the ranks round toward zero, or flush; the results are as ever, and so is the state after the call. */
static void check_state(rondo_comm *comm, int rank, rondo_dtype type)
{
    size_t b = rd_dtype_bytes(type);
    double tiny = element_smallest(type), unit = 1;
    /* 1 and three quarters of what its last place is worth: rounds up to nearest, down toward zero. */
    while (element_round(1 + unit / 2, type) != 1) unit /= 2;
    unsigned char x[64 * 8], y[64 * 8];
    memset(x, 0, sizeof x);
    for (size_t i = 0; i < 64; i++) {
        double term = i % 2 ? tiny : i % 4 == 0 ? -tiny : rank == 0 ? 1 : rank == 1 ? 3 * unit / 4 : 0;
        element_put(x + i * b, type, term);
    }
    int rounding = rank % 2 ? FE_TOWARDZERO : FE_TONEAREST;
    fesetround(rounding);
#ifdef __x86_64__
    if (rank % 2 == 0) _mm_setcsr(_mm_getcsr() | FLUSHING);
    unsigned control = _mm_getcsr() & ~0x3fu;
#endif
    rondo_result sum = rondo_all_reduce(x, y, 64, type, RONDO_SUM, comm, NULL);
    rondo_result refused = rondo_all_reduce(x, y, 64, type, (rondo_op)77, comm, NULL);
#ifdef __x86_64__
    unsigned after = _mm_getcsr() & ~0x3fu;
    _mm_setcsr(_mm_getcsr() & ~FLUSHING);
    CHECK(after == control, "rank %d: the processor's state is %#x, was %#x", rank, after, control);
#endif
    CHECK(fegetround() == rounding, "rank %d: rounding changed", rank);
    fesetround(FE_TONEAREST);
    CHECK(sum == RONDO_SUCCESS && refused == RONDO_INVALID_ARGUMENT, "rank %d: %s", rank, rondo_last_error(comm));
    for (size_t i = 0; i < 64; i++) {
        double want = i % 2 ? 4 * tiny : i % 4 == 0 ? -4 * tiny : 1 + unit;
        double got = element_get(y + i * b, type);
        CHECK(same(got, want), "%s, element %zu of rank %d: %g, not %g", rd_dtype_name(type), i, rank, got, want);
    }
}

static void state_rank(rondo_comm *comm, int rank, int n, void *context)
{
    (void)n, (void)context;
    for (size_t t = 0; t < FLOATS; t++) check_state(comm, rank, floats[t]);
    rondo_comm_destroy(comm);
}

static void case_processor_state(void **state)
{
    (void)state;
    on_all_ways(state_rank, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_nan_zero_subnormal),
        cmocka_unit_test(case_processor_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
