/* SPDX-License-Identifier: Apache-2.0
 *
 * The test data itself: types are converted right, and what is said to be a reduction is one.
 */
#include "test.h"

#include "base/dtype.h"
#include "elements.h"

#include <math.h>

static bool same(double a, double b) { return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b); }

/* Every code of a narrow type survives; and what lies between two of them goes to the nearer one, or the even one. */
static void codes(rondo_dtype type)
{
    int bits = (int)rd_dtype_bytes(type) * 8;
    double before = 0;
    for (uint32_t code = 0; code < 1u << bits; code++) {
        uint16_t at = (uint16_t)code, back = 0;
        double x = element_get(&at, type);
        assert_true(same(element_round(x, type), x));
        element_put(&back, type, x);
        if (!isnan(x)) assert_int_equal(back, code);
        if (code > 0 && code < 1u << (bits - 1) && isfinite(x)) {
            double middle = (before + x) / 2;
            assert_true(element_round(middle, type) == (code % 2 ? before : x));
            assert_true(element_round(nextafter(middle, INFINITY), type) == x);
            assert_true(element_round(-nextafter(middle, 0), type) == -before);
        }
        before = x;
    }
}

static void test_codes(void **state)
{
    (void)state;
    codes(RONDO_FLOAT16);
    codes(RONDO_BFLOAT16);
    codes(RONDO_FLOAT8E4M3);
    codes(RONDO_FLOAT8E5M2);
    assert_true(element_largest(RONDO_FLOAT8E4M3) == 448);
    assert_true(element_largest(RONDO_FLOAT8E5M2) == 57344);
    assert_true(element_largest(RONDO_FLOAT16) == 65504);
    assert_true(element_smallest(RONDO_FLOAT16) == 0x1p-24);
    assert_true(isnan(element_round(INFINITY, RONDO_FLOAT8E4M3)));
    assert_true(isinf(element_round(65520, RONDO_FLOAT16)));
    float x = -2.5f;
    unsigned char b[2];
    element_put(b, RONDO_BFLOAT16, -2.5);
    assert_memory_equal(b, (unsigned char *)&x + 2, 2);
}

static double combine(rondo_op op, double a, double b)
{
    switch (op) {
    case RONDO_PROD: return a * b;
    case RONDO_MAX: return a > b ? a : b;
    case RONDO_MIN: return a < b ? a : b;
    default: return a + b;
    }
}

static void test_data(void **state)
{
    (void)state;
    for (int type = 0; type < RONDO_DTYPES; type++)
        for (int op = 0; op < RONDO_OPS; op++)
            for (int n = 1; n <= 17; n++) {
                rondo_dtype t = (rondo_dtype)type;
                int differ = 0;
                for (uint64_t i = 0; i < 300; i++) {
                    double x = 0, result = element_result(t, (rondo_op)op, n, i, 3);
                    for (int r = 0; r < n; r++) {
                        double term = element_term(t, (rondo_op)op, r, n, i, 3);
                        assert_true(element_round(term, t) == term);
                        x = r ? combine((rondo_op)op, x, term) : term;
                        differ += term != element_term(t, (rondo_op)op, r ? r - 1 : n - 1, n, i, 3);
                        differ += term != element_term(t, (rondo_op)op, r, n, i + 1, 3);
                    }
                    if (op == RONDO_AVG && element_is_float(t)) assert_true(fabs(x / n - result) <= fabs(x / n) / 8);
                    else assert_true((op == RONDO_AVG ? trunc(x / n) : x) == result);
                    assert_true(element_round(result, t) == result);
                }
                assert_true(differ > 50 * n);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_codes), cmocka_unit_test(test_data)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
