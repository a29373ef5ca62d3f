/* SPDX-License-Identifier: Apache-2.0
 *
 * The four narrow float types, value by value: every pattern of 8 and of 16 bits is widened, every float32 at and
 * beside the middle between two neighbours is narrowed, every pair of float8 is reduced, every 16 bits are with others.
 */
#include "test_reduce.h"

#define FOR_EACH_NARROW(type)                               \
    for (rondo_dtype type = 0; type < RONDO_DTYPES; type++) \
        if (rd_dtype_narrow(type))

enum { PATTERNS = 65536 };

static void run(rondo_dtype type, rondo_op op, int ranks, int level, const rd_pass *pass)
{
    rd_reduction reduction;
    must_init(&reduction, type, op, ranks, level);
    rd_reduce(&reduction, pass);
}

static void every_pattern_widens_and_comes_back(void **state)
{
    (void)state;
    static uint16_t patterns[PATTERNS], back[PATTERNS];
    static uint32_t wide[PATTERNS];
    FOR_EACH_NARROW(type)
        FOR_EACH_OP(op)
            FOR_EACH_LEVEL(level) {
                size_t bytes = rd_dtype_bytes(type), count = bytes == 1 ? 256 : PATTERNS;
                bool exact = op == RONDO_MAX || op == RONDO_MIN;
                rd_pass widen = {.count = count,
                                 .sources = 1,
                                 .outputs = 1,
                                 .out_wide = true,
                                 .source = {patterns},
                                 .output = {wide}};
                rd_pass narrow = {.count = count, .sources = 1, .outputs = 1, .finish = true, .first_partial = true,
                                  .first_wide = true, .source = {wide}, .output = {back}};
                for (size_t i = 0; i < count; i++) write_bits(patterns, i, bytes, i);
                run(type, op, 1, level, &widen);
                run(type, op, 1, level, &narrow);
                for (size_t i = 0; i < count; i++) {
                    float value = decode(type, i);
                    uint64_t wanted = isnan(value) ? canonical_nan(type) : i;
                    if (isinf(value) && bytes == 1 && !exact) wanted = i - 1; /* the largest finite value */
                    if (wide[i] != float_bits(value) || read_bits(back, i, bytes) != wanted)
                        fail_msg("%s %s, %s: %zx widens to %x and comes back as %llx", rd_dtype_name(type),
                                 rd_op_name(op), rd_cpu_level_name(level), i, wide[i],
                                 (unsigned long long)read_bits(back, i, bytes));
                }
            }
}

/* The two neighbours of a rounded value are no nearer to what was rounded. */
static void check_nearest(rondo_dtype type, float value, uint64_t bits)
{
    float rounded = decode(type, bits);
    if (!isfinite(value) || !isfinite(rounded)) return;
    uint64_t sign = 1ull << (8 * rd_dtype_bytes(type) - 1), magnitude = bits & (sign - 1);
    double distance = fabs((double)value - rounded);
    if (fabsf(value) > fabsf(rounded) && !isfinite(decode(type, magnitude + 1)))
        return; /* the largest: no neighbour above */
    for (int step = -1; step <= 1; step += 2) {
        if (step < 0 && magnitude == 0) continue;
        float neighbour = decode(type, (bits & sign) | (step < 0 ? magnitude - 1 : magnitude + 1));
        if (!isfinite(neighbour)) continue;
        double other = fabs((double)value - neighbour);
        assert_true(distance < other || (distance == other && bits % 2 == 0));
    }
}

static void check_narrowing(rondo_dtype type, const float *values, size_t count)
{
    static const rondo_op ops[] = {RONDO_SUM, RONDO_PROD, RONDO_AVG};
    static uint16_t out[8 * PATTERNS];
    size_t bytes = rd_dtype_bytes(type);
    rd_pass pass = {.count = count,
                    .sources = 1,
                    .outputs = 1,
                    .finish = true,
                    .first_partial = true,
                    .first_wide = true,
                    .source = {values},
                    .output = {out}};
    assert_true(count <= 8 * PATTERNS);
    FOR_EACH_LEVEL(level)
        for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
            run(type, ops[o], 1, level, &pass);
            for (size_t i = 0; i < count; i++) {
                uint64_t bits = read_bits(out, i, bytes), wanted = encode(type, values[i], false);
                if (bits != wanted)
                    fail_msg("%s %s, %s: %a becomes %llx, not %llx", rd_dtype_name(type), rd_op_name(ops[o]),
                             rd_cpu_level_name(level), values[i], (unsigned long long)bits, (unsigned long long)wanted);
            }
        }
    for (size_t i = 0; i < count; i++) check_nearest(type, values[i], read_bits(out, i, bytes));
}

static void the_middle_between_neighbours_rounds_to_even(void **state)
{
    (void)state;
    static float values[8 * PATTERNS];
    FOR_EACH_NARROW(type) {
        size_t patterns = rd_dtype_bytes(type) == 1 ? 256 : PATTERNS, n = 0;
        for (uint64_t i = 0; i + 1 < patterns; i++) {
            float a = decode(type, i), b = decode(type, i + 1);
            if (!isfinite(a)) continue;
            double distance = isfinite(b) ? (double)b - a : (double)a - decode(type, i - 1);
            float middle = (float)(a + distance / 2);
            values[n++] = middle, values[n++] = nextafterf(middle, INFINITY),
            values[n++] = nextafterf(middle, -INFINITY);
            values[n++] = a, values[n++] = nextafterf(a, INFINITY), values[n++] = nextafterf(a, -INFINITY);
        }
        check_narrowing(type, values, n);
    }
}

static void any_float32_narrows(void **state)
{
    (void)state;
    enum { COUNT = 1 << 16 };
    static float values[COUNT];
    FOR_EACH_NARROW(type) {
        for (size_t i = 0; i < COUNT; i++) {
            values[i] = float_of(random_bits() >> 32);
            if (i % 2)
                values[i] =
                    decode(type, low_bits(random_bits(), rd_dtype_bytes(type))) * (float)(1 + random_below(9)) / 7;
        }
        check_narrowing(type, values, COUNT);
    }
}

/* Elements of a, of b and, unless it is NULL, of c, reduced at every level. */
static void check_terms(rondo_dtype type, rondo_op op, int ranks, const void *a, const void *b, const void *c)
{
    static uint16_t out[PATTERNS], wanted[PATTERNS];
    size_t bytes = rd_dtype_bytes(type);
    rd_pass pass = {
        .count = PATTERNS, .sources = c ? 3 : 2, .outputs = 1, .finish = true, .source = {a, b, c}, .output = {out}};
    for (size_t i = 0; i < PATTERNS; i++) {
        uint64_t term[3] = {read_bits(a, i, bytes), read_bits(b, i, bytes), c ? read_bits(c, i, bytes) : 0};
        write_bits(wanted, i, bytes, expected(type, op, ranks, &pass, term));
    }
    FOR_EACH_LEVEL(level)
    {
        run(type, op, ranks, level, &pass);
        for (size_t i = 0; i < PATTERNS; i++)
            if (read_bits(out, i, bytes) != read_bits(wanted, i, bytes))
                fail_msg("%s %s of %d, %s: %llx, %llx and %llx give %llx, not %llx", rd_dtype_name(type),
                         rd_op_name(op), ranks, rd_cpu_level_name(level), (unsigned long long)read_bits(a, i, bytes),
                         (unsigned long long)read_bits(b, i, bytes),
                         (unsigned long long)(c ? read_bits(c, i, bytes) : 0),
                         (unsigned long long)read_bits(out, i, bytes), (unsigned long long)read_bits(wanted, i, bytes));
    }
}

/* Kernels take a way of their own for steps with something rare: 0 is a usual pair, 1 one whose average is subnormal, 2
 * one with an infinity or a NaN. */
static int rarity(rondo_dtype type, int ranks, uint8_t a, uint8_t b)
{
    float sum = decode(type, a) + decode(type, b);
    if (!isfinite(decode(type, a)) || !isfinite(decode(type, b))) return 2;
    return sum != 0 && fabsf(sum / (float)ranks) < decode(type, 1u << layout_of(type).fraction_bits);
}

/* In an order in which equally rare ones are side by side. */
static void every_pair_of_float8(void **state)
{
    (void)state;
    static uint8_t a[PATTERNS], b[PATTERNS];
    for (rondo_dtype type = RONDO_FLOAT8E4M3; type <= RONDO_FLOAT8E5M2; type++) FOR_EACH_OP(op)
    for (int ranks = 2; ranks <= (op == RONDO_AVG ? 18 : 2); ranks++) {
        size_t n = 0;
        for (int rare = 0; rare <= 2; rare++)
            for (size_t i = 0; i < PATTERNS; i++)
                if (rarity(type, ranks, (uint8_t)i, (uint8_t)(i >> 8)) == rare)
                    a[n] = (uint8_t)i, b[n++] = (uint8_t)(i >> 8);
        check_terms(type, op, ranks, a, b, NULL);
    }
}

/* Every pair of finite ones and a third: the smallest number, so that sums lie as near as can be to what is divided to
 * the middle between two results; others, among them one in the middle; NaN. */
static void every_pair_of_float8_and_a_third(void **state)
{
    (void)state;
    static const int ranks[] = {2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 64, 100, 4096, 4097};
    static uint8_t a[PATTERNS], b[PATTERNS], c[PATTERNS];
    for (rondo_dtype type = RONDO_FLOAT8E4M3; type <= RONDO_FLOAT8E5M2; type++) {
        const uint8_t thirds[] = {0x01, 0x81, 0x02, 0x05, 0x3b, 0xba, 0x79, 0x7f};
        for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++)
            for (size_t t = 0; t < sizeof thirds; t++) {
                for (size_t i = 0; i < PATTERNS; i++) a[i] = (uint8_t)i, b[i] = (uint8_t)(i >> 8), c[i] = thirds[t];
                check_terms(type, ranks[r] == 2 ? RONDO_SUM : RONDO_AVG, ranks[r], a, b, c);
            }
    }
}

/* Every value beside one from each edge of the type, negative NaN and infinity among them, and beside any others. */
static void every_16_bits_beside_others(void **state)
{
    (void)state;
    static const int ranks[] = {2, 3, 1 << 16, 1 << 20}; /* scaled by up to 2^-16, and by more */
    static uint16_t a[PATTERNS], b[PATTERNS];
    for (rondo_dtype type = 0; type < RONDO_DTYPES; type++) {
        if (!rd_dtype_narrow(type) || rd_dtype_bytes(type) != 2) continue;
        uint16_t one = (uint16_t)(1u << layout_of(type).fraction_bits), top = 0x8000u - one;
        uint16_t others[] = {0,       0x8000,  1,   0x8001,  one - 1,       one,    0x8000 | (one + 1),
                             top - 1, top / 2, top, top + 1, 0x8000u | top, 0xffff, 0x8000u | (top - 1)};
        for (size_t i = 0; i < PATTERNS; i++) a[i] = (uint16_t)i;
        FOR_EACH_OP(op)
        for (size_t o = 0; o <= sizeof others / sizeof *others; o++) {
            for (size_t i = 0; i < PATTERNS; i++)
                b[i] = o < sizeof others / sizeof *others ? others[o] : (uint16_t)random_bits();
            check_terms(type, op, op == RONDO_AVG ? ranks[o % 4] : 2, a, b, NULL);
        }
    }
}

/* 256 and seven times 1: rounded once it is 264, rounded at each hop it would stay 256. */
static void sums_are_rounded_once(void **state)
{
    (void)state;
    static const uint16_t large = 0x4380, one = 0x3f80;
    FOR_EACH_LEVEL(level) {
        uint16_t out;
        rd_pass pass = {.count = 1, .sources = 8, .outputs = 1, .finish = true, .output = {&out}};
        for (int k = 0; k < 8; k++) pass.source[k] = k == 0 ? &large : &one;
        run(RONDO_BFLOAT16, RONDO_SUM, 8, level, &pass);
        assert_int_equal(out, 0x4384);
    }
}

static void float8_saturates(void **state)
{
    (void)state;
    FOR_EACH_LEVEL(level) {
        uint8_t out, largest[2] = {0x7e, 0xfe}, infinite = 0x7c, one = 0x3c;
        rd_pass pass = {.count = 1, .sources = 2, .outputs = 1, .finish = true, .output = {&out}};
        pass.source[0] = pass.source[1] = &largest[0];
        run(RONDO_FLOAT8E4M3, RONDO_SUM, 2, level, &pass);
        assert_int_equal(out, 0x7e);
        pass.source[0] = pass.source[1] = &largest[1];
        run(RONDO_FLOAT8E4M3, RONDO_SUM, 2, level, &pass);
        assert_int_equal(out, 0xfe);
        pass.source[0] = &infinite, pass.source[1] = &one;
        run(RONDO_FLOAT8E5M2, RONDO_SUM, 2, level, &pass);
        assert_int_equal(out, 0x7b);
        run(RONDO_FLOAT8E5M2, RONDO_MAX, 2, level, &pass);
        assert_int_equal(out, 0x7c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pattern_widens_and_comes_back),
        cmocka_unit_test(the_middle_between_neighbours_rounds_to_even),
        cmocka_unit_test(any_float32_narrows),
        cmocka_unit_test(every_pair_of_float8),
        cmocka_unit_test(every_pair_of_float8_and_a_third),
        cmocka_unit_test(every_16_bits_beside_others),
        cmocka_unit_test(sums_are_rounded_once),
        cmocka_unit_test(float8_saturates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
