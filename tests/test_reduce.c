/* SPDX-License-Identifier: Apache-2.0
 *
 * Every type and operator at every level against test_reduce.h, bit for bit; known sums; bad arguments.
 */
#include "test_reduce.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

/* ---- In place, many, chained ---------------------------------------------------------------------------------- */

static void fill(void *to, rondo_dtype type, size_t count)
{
    for (size_t i = 0; i < count; i++) write_bits(to, i, rd_dtype_bytes(type), random_element(type));
}

static void outputs_may_be_sources(void **state)
{
    (void)state;
    enum { COUNT = 777, N = 4 };
    static unsigned char rank[N][COUNT * 8 + 64], copy[N][COUNT * 8];
    FOR_EACH_TYPE(type)
        FOR_EACH_LEVEL(level) {
            size_t bytes = rd_dtype_bytes(type), offset = random_below(2) * random_below(64);
            rd_reduction reduction;
            rd_pass pass = {.count = COUNT, .sources = N, .outputs = N, .finish = true, .touch = true};
            must_init(&reduction, type, RONDO_SUM, N, level);
            for (int k = 0; k < N; k++) {
                fill(copy[k], type, COUNT);
                pass.source[k] = pass.output[k] = memcpy(rank[k] + offset, copy[k], COUNT * bytes);
            }
            rd_reduce(&reduction, &pass);
            for (size_t i = 0; i < COUNT; i++) {
                uint64_t term[N];
                for (int k = 0; k < N; k++) term[k] = read_bits(copy[k], i, bytes);
                uint64_t sum = expected(type, RONDO_SUM, N, &pass, term);
                for (int k = 0; k < N; k++) assert_true(read_bits(pass.output[k], i, bytes) == sum);
            }
        }
}

static void as_many_sources_and_outputs_as_allowed(void **state)
{
    (void)state;
    static float data[RD_MAX_SOURCES][100];
    FOR_EACH_LEVEL(level) {
        rd_reduction reduction;
        rd_pass pass = {.count = 100, .sources = RD_MAX_SOURCES, .outputs = RD_MAX_SOURCES, .finish = true};
        must_init(&reduction, RONDO_FLOAT32, RONDO_SUM, RD_MAX_SOURCES, level);
        for (int k = 0; k < RD_MAX_SOURCES; k++) {
            for (int i = 0; i < 100; i++) data[k][i] = (float)(k * 100 + i);
            pass.source[k] = pass.output[k] = data[k];
        }
        rd_reduce(&reduction, &pass);
        for (int k = 0; k < RD_MAX_SOURCES; k++)
            for (int i = 0; i < 100; i++) assert_true(data[k][i] == (float)(64 * i + 100 * 2016));
    }
}

/* One pass over all ranks' terms, and the same along a ring: native first, wide in between, rounded at the end. */
static void a_chain_has_the_bits_of_one_pass(void **state)
{
    (void)state;
    enum { COUNT = 300, N = 5 };
    static unsigned char rank[N][COUNT * 8], once[COUNT * 8], link[2][COUNT * 8], last[COUNT * 8];
    FOR_EACH_TYPE(type)
        FOR_EACH_OP(op)
            FOR_EACH_LEVEL(level) {
                rd_reduction reduction;
                must_init(&reduction, type, op, N, level);
                rd_pass all = {.count = COUNT, .sources = N, .outputs = 1, .finish = true, .output = {once}};
                for (int k = 0; k < N; k++) fill(rank[k], type, COUNT), all.source[k] = rank[k];
                rd_reduce(&reduction, &all);
                for (int k = 1; k < N; k++) {
                    rd_pass hop = {.count = COUNT,
                                   .sources = 2,
                                   .outputs = 1,
                                   .first_partial = k > 1,
                                   .first_wide = k > 1,
                                   .out_wide = k < N - 1,
                                   .finish = k == N - 1};
                    hop.source[0] = k == 1 ? rank[0] : link[k % 2];
                    hop.source[1] = rank[k];
                    hop.output[0] = k == N - 1 ? last : link[(k + 1) % 2];
                    rd_reduce(&reduction, &hop);
                }
                assert_memory_equal(once, last, COUNT * reduction.bytes);
            }
}

/* ---- Known sums ----------------------------------------------------------------------------------------------- */

/* Reduces the values given to one element, `out`. */
#define REDUCE(type, op, ranks, level, out, ...)                                                                       \
    reduce_values(type, op, ranks, level, &(out), sizeof(out), (const __typeof__(out)[]){__VA_ARGS__},                 \
                  (int)(sizeof((__typeof__(out)[]){__VA_ARGS__}) / sizeof(out)))

static void reduce_values(rondo_dtype type, rondo_op op, int ranks, int level, void *out, size_t bytes,
                          const void *terms, int n)
{
    rd_reduction reduction;
    rd_pass pass = {.count = 1, .sources = n, .outputs = 1, .finish = true, .output = {out}};
    must_init(&reduction, type, op, ranks, level);
    for (int k = 0; k < n; k++) pass.source[k] = (const char *)terms + (size_t)k * bytes;
    rd_reduce(&reduction, &pass);
}

static void integers_wrap_and_averages_truncate(void **state)
{
    (void)state;
    FOR_EACH_LEVEL(level) {
        int8_t s8;
        uint8_t u8;
        int32_t s32;
        int64_t s64;
        uint64_t u64;
        REDUCE(RONDO_INT8, RONDO_SUM, 2, level, s8, 120, 100);
        assert_int_equal(s8, -36);
        REDUCE(RONDO_UINT8, RONDO_SUM, 2, level, u8, 200, 100);
        assert_int_equal(u8, 44);
        REDUCE(RONDO_INT8, RONDO_AVG, 2, level, s8, 120, 100);
        assert_int_equal(s8, -18);
        REDUCE(RONDO_INT8, RONDO_AVG, 128, level, s8, -128, 0);
        assert_int_equal(s8, -1);
        REDUCE(RONDO_INT8, RONDO_AVG, 129, level, s8, -128, 0);
        assert_int_equal(s8, 0);
        REDUCE(RONDO_INT32, RONDO_AVG, 3, level, s32, 1, 1, 0);
        assert_int_equal(s32, 0);
        REDUCE(RONDO_INT32, RONDO_AVG, 3, level, s32, -1, -1, 0);
        assert_int_equal(s32, 0);
        REDUCE(RONDO_INT32, RONDO_AVG, 3, level, s32, -7, 0, 0);
        assert_int_equal(s32, -2);
        REDUCE(RONDO_INT32, RONDO_AVG, 3, level, s32, 7, 7, 7);
        assert_int_equal(s32, 7);
        REDUCE(RONDO_INT32, RONDO_AVG, 3, level, s32, INT32_MIN, 0, 0);
        assert_int_equal(s32, INT32_MIN / 3);
        REDUCE(RONDO_INT64, RONDO_AVG, 2147483647, level, s64, INT64_MIN, 0);
        assert_true(s64 == INT64_MIN / 2147483647);
        REDUCE(RONDO_UINT64, RONDO_AVG, 7, level, u64, UINT64_MAX, 0);
        assert_true(u64 == UINT64_MAX / 7);
    }
}

/* Quotients next to a multiple of the divisor, where a wrong multiplier shows. */
static void check_quotients(rondo_dtype type, int ranks, int level)
{
    enum { COUNT = 600 };
    static uint64_t value[COUNT], out[COUNT];
    size_t bytes = rd_dtype_bytes(type);
    rd_reduction reduction;
    rd_pass pass = {.count = COUNT, .sources = 1, .outputs = 1, .finish = true, .source = {value}, .output = {out}};
    must_init(&reduction, type, RONDO_AVG, ranks, level);
    for (size_t i = 0; i < COUNT; i++) {
        uint64_t bits = bytes == 1 ? i : random_bits() >> random_below(64);
        if (bytes > 1 && i % 2) bits = bits / (uint64_t)ranks * (uint64_t)ranks - i % 4 / 2;
        write_bits(value, i, bytes, low_bits(bits, bytes));
    }
    rd_reduce(&reduction, &pass);
    for (size_t i = 0; i < COUNT; i++) {
        uint64_t term[2 /* for gcc, which does not see that one is read */] = {read_bits(value, i, bytes)};
        uint64_t wanted = expected(type, RONDO_AVG, ranks, &pass, term);
        if (read_bits(out, i, bytes) != wanted)
            fail_msg("%s, %s: %llx / %d is %llx, not %llx", rd_dtype_name(type), rd_cpu_level_name(level),
                     (unsigned long long)term[0], ranks, (unsigned long long)read_bits(out, i, bytes),
                     (unsigned long long)wanted);
    }
}
static void integer_averages_are_exact_quotients(void **state)
{
    (void)state;
    for (int64_t ranks = 1; ranks < INT32_MAX; ranks = ranks < 300 ? ranks + 1 : ranks * 2 - (int64_t)random_below(9))
        FOR_EACH_TYPE(type)
            if (!is_float(type)) FOR_EACH_LEVEL(level) check_quotients(type, (int)ranks, level);
}

static void float_averages_do_not_overflow(void **state)
{
    (void)state;
    FOR_EACH_LEVEL(level) {
        float f;
        double d;
        uint16_t h;
        uint8_t b;
        REDUCE(RONDO_FLOAT32, RONDO_AVG, 3, level, f, 1, 1, 0);
        assert_true(f == 2.0f / 3.0f);
        REDUCE(RONDO_FLOAT32, RONDO_AVG, 3, level, f, 0x1.8p127f, 0x1.8p127f, 0x1.8p127f);
        assert_true(f == 0x1.8p127f);
        REDUCE(RONDO_FLOAT64, RONDO_AVG, 3, level, d, 0x1.8p1023, 0x1.8p1023, 0x1.8p1023);
        assert_true(d == 0x1.8p1023);
        REDUCE(RONDO_FLOAT16, RONDO_AVG, 2, level, h, 0x7b53, 0x7b53); /* 60000 */
        assert_int_equal(h, 0x7b53);
        REDUCE(RONDO_BFLOAT16, RONDO_AVG, 3, level, h, 0x7f16, 0x7f16, 0x7f16); /* 2e38 */
        assert_int_equal(h, 0x7f16);
        REDUCE(RONDO_FLOAT8E4M3, RONDO_AVG, 3, level, b, 0x7e, 0x7e, 0x7e); /* 448 */
        assert_int_equal(b, 0x7e);
    }
}

static void averages_are_the_sum_divided(void **state)
{
    (void)state;
    FOR_EACH_LEVEL(level)
        for (int i = 0; i < 2000; i++) {
            int ranks = 3 + (int)random_below(3);
            float value[5], out, sum = 0;
            rd_reduction reduction;
            rd_pass pass = {.count = 1, .sources = ranks, .outputs = 1, .finish = true, .output = {&out}};
            must_init(&reduction, RONDO_FLOAT32, RONDO_AVG, ranks, level);
            for (int k = 0; k < ranks; k++) {
                value[k] = (float)(int32_t)random_bits() / 1e6f;
                sum = k == 0 ? value[0] : sum + value[k];
                pass.source[k] = &value[k];
            }
            rd_reduce(&reduction, &pass);
            assert_true(out == sum / (float)ranks);
        }
}

static void nan_and_zero_in_max_and_min(void **state)
{
    (void)state;
    FOR_EACH_LEVEL(level) {
        float f;
        REDUCE(RONDO_FLOAT32, RONDO_MAX, 2, level, f, NAN, 1);
        assert_true(isnan(f) && !signbit(f));
        REDUCE(RONDO_FLOAT32, RONDO_MAX, 2, level, f, 1, -NAN);
        assert_true(isnan(f) && !signbit(f));
        REDUCE(RONDO_FLOAT32, RONDO_MIN, 3, level, f, NAN, 1, 2);
        assert_true(isnan(f));
        REDUCE(RONDO_FLOAT32, RONDO_MAX, 2, level, f, -0.0f, 0.0f);
        assert_true(f == 0 && !signbit(f));
        REDUCE(RONDO_FLOAT32, RONDO_MAX, 2, level, f, 0.0f, -0.0f);
        assert_true(f == 0 && !signbit(f));
        REDUCE(RONDO_FLOAT32, RONDO_MIN, 2, level, f, -0.0f, 0.0f);
        assert_true(f == 0 && signbit(f));
        REDUCE(RONDO_FLOAT32, RONDO_MIN, 2, level, f, 0.0f, -0.0f);
        assert_true(f == 0 && signbit(f));
    }
}

static void nothing_flushes_to_zero(void **state)
{
    (void)state;
#ifdef __x86_64__
    const unsigned flushing = 0x9fc0 | 0x6000; /* flush to zero, denormals are zero, round toward zero */
    unsigned original = _mm_getcsr();
    FOR_EACH_LEVEL(level) {
        float f;
        uint16_t h;
        uint8_t b;
        _mm_setcsr(flushing);
        unsigned saved = rd_fp_enter();
        REDUCE(RONDO_FLOAT32, RONDO_SUM, 2, level, f, 0x1p-149f, 0x1p-149f);
        uint64_t sum = float_bits(f);
        REDUCE(RONDO_FLOAT32, RONDO_MAX, 2, level, f, 0x1p-149f, 0.0f);
        uint64_t max = float_bits(f);
        REDUCE(RONDO_BFLOAT16, RONDO_SUM, 2, level, h, 1, 2);
        REDUCE(RONDO_FLOAT8E4M3, RONDO_SUM, 2, level, b, 1, 2);
        rd_fp_leave(saved);
        unsigned left = _mm_getcsr();
        _mm_setcsr(original);
        assert_int_equal(left, flushing);
        assert_int_equal(saved, flushing);
        assert_int_equal(sum, 2);
        assert_int_equal(max, 1);
        assert_int_equal(h, 3);
        assert_int_equal(b, 3);
    }
#endif
}

/* ---- Arguments ------------------------------------------------------------------------------------------------ */

static void bad_arguments_are_named(void **state)
{
    (void)state;
    rd_reduction reduction, untouched;
    memset(&reduction, 0x5a, sizeof reduction), memset(&untouched, 0x5a, sizeof untouched);
    assert_int_equal(rd_reduction_init(&reduction, (rondo_dtype)12, RONDO_SUM, 2, 0), RONDO_INVALID_ARGUMENT);
    assert_non_null(strstr(rd_last_error(), "12"));
    assert_int_equal(rd_reduction_init(&reduction, (rondo_dtype)-1, RONDO_SUM, 2, 0), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rd_reduction_init(&reduction, RONDO_INT8, (rondo_op)5, 2, 0), RONDO_INVALID_ARGUMENT);
    assert_non_null(strstr(rd_last_error(), "operator 5"));
    assert_int_equal(rd_reduction_init(&reduction, RONDO_INT8, RONDO_SUM, 0, 0), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rd_reduction_init(&reduction, RONDO_INT8, RONDO_SUM, 2, 77), RONDO_INVALID_ARGUMENT);
    assert_non_null(strstr(rd_last_error(), "77"));
    assert_non_null(strstr(rd_last_error(), "portable"));
    for (int level = RD_CPU_PORTABLE; level <= RD_CPU_AVX512; level++)
        if (!rd_cpu_level_has(level))
            assert_int_equal(rd_reduction_init(&reduction, RONDO_INT8, RONDO_SUM, 2, level), RONDO_INVALID_ARGUMENT);
    assert_memory_equal(&reduction, &untouched, sizeof reduction);
}

static void levels_have_names(void **state)
{
    (void)state;
    assert_string_equal(rd_cpu_level_name(RD_CPU_PORTABLE), "portable");
    assert_string_equal(rd_cpu_level_name(RD_CPU_AVX512), "avx512");
    assert_string_equal(rd_cpu_level_name(RD_CPU_AUTO), rd_cpu_level_name(rd_cpu_level_best()));
    assert_true(rd_cpu_level_has(RD_CPU_AUTO) && rd_cpu_level_has(RD_CPU_PORTABLE) &&
                rd_cpu_level_has(rd_cpu_level_best()));
    assert_false(rd_cpu_level_has(77));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_may_be_sources),
        cmocka_unit_test(as_many_sources_and_outputs_as_allowed),
        cmocka_unit_test(a_chain_has_the_bits_of_one_pass),
        cmocka_unit_test(integers_wrap_and_averages_truncate),
        cmocka_unit_test(integer_averages_are_exact_quotients),
        cmocka_unit_test(float_averages_do_not_overflow),
        cmocka_unit_test(averages_are_the_sum_divided),
        cmocka_unit_test(nan_and_zero_in_max_and_min),
        cmocka_unit_test(nothing_flushes_to_zero),
        cmocka_unit_test(bad_arguments_are_named),
        cmocka_unit_test(levels_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
