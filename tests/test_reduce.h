/* SPDX-License-Identifier: Apache-2.0
 *
 * test_reduce.h - what a pass must compute, one element at a time, in plain scalar C and with none of the kernels'
 * means: narrow floats are decoded from their definition and encoded by division and rounding in double.
 */
#ifndef TEST_REDUCE_H
#define TEST_REDUCE_H

#include "test.h"

#include "base/dtype.h"
#include "base/env.h"
#include "base/status.h"
#include "reduce/reduce.h"

#include <math.h>
#include <stdbool.h>

#define FOR_EACH_LEVEL(level)                                          \
    for (int level = RD_CPU_PORTABLE; level <= RD_CPU_AVX512; level++) \
        if (rd_cpu_level_has(level))
#define FOR_EACH_TYPE(type) for (rondo_dtype type = 0; type < RONDO_DTYPES; type++)
#define FOR_EACH_OP(op) for (rondo_op op = 0; op < RONDO_OPS; op++)

/* ---- Random numbers, the same in every run -------------------------------------------------------------------- */

static inline uint64_t random_bits(void)
{
    static uint64_t state = 0x9e3779b97f4a7c15u;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state * 0x2545f4914f6cdd1du;
}
static inline size_t random_below(size_t n) { return (size_t)((random_bits() >> 33) % n); }

/* ---- Types ---------------------------------------------------------------------------------------------------- */

struct layout {
    int exponent_bits, fraction_bits;
    bool infinity;
};
static inline struct layout layout_of(rondo_dtype type)
{
    switch (type) {
    case RONDO_FLOAT16: return (struct layout){5, 10, true};
    case RONDO_BFLOAT16: return (struct layout){8, 7, true};
    case RONDO_FLOAT8E4M3: return (struct layout){4, 3, false};
    case RONDO_FLOAT8E5M2: return (struct layout){5, 2, true};
    case RONDO_FLOAT32: return (struct layout){8, 23, true};
    case RONDO_FLOAT64: return (struct layout){11, 52, true};
    default: return (struct layout){0, 0, false};
    }
}
static inline bool is_float(rondo_dtype type) { return layout_of(type).exponent_bits > 0; }
static inline bool is_signed(rondo_dtype type)
{
    return type == RONDO_INT8 || type == RONDO_INT32 || type == RONDO_INT64;
}
static inline uint64_t low_bits(uint64_t bits, size_t bytes)
{
    return bytes == 8 ? bits : bits & ((1ull << 8 * bytes) - 1);
}
static inline uint64_t canonical_nan(rondo_dtype type)
{
    static const uint64_t nan[RONDO_DTYPES] = {
        [RONDO_FLOAT16] = 0x7e00,  [RONDO_BFLOAT16] = 0x7fc0,    [RONDO_FLOAT8E4M3] = 0x7f,
        [RONDO_FLOAT8E5M2] = 0x7e, [RONDO_FLOAT32] = 0x7fc00000, [RONDO_FLOAT64] = 0x7ff8000000000000,
    };
    return nan[type];
}

/* What the bits of a narrow float say. */
static inline float decode(rondo_dtype type, uint64_t bits)
{
    struct layout l = layout_of(type);
    int bias = (1 << (l.exponent_bits - 1)) - 1, top = (1 << l.exponent_bits) - 1;
    int fraction = (int)(bits & ((1u << l.fraction_bits) - 1)), exponent = (int)(bits >> l.fraction_bits) & top;
    double sign = bits >> (l.exponent_bits + l.fraction_bits) & 1 ? -1 : 1;
    if (l.infinity && exponent == top) return fraction ? NAN : (float)(sign * INFINITY);
    if (!l.infinity && exponent == top && fraction == (1 << l.fraction_bits) - 1) return NAN;
    if (exponent == 0) return (float)(sign * ldexp(fraction, 1 - bias - l.fraction_bits));
    return (float)(sign * ldexp((1 << l.fraction_bits) + fraction, exponent - bias - l.fraction_bits));
}

/* The bits of `value` rounded to nearest even. Too large: infinity, and the largest finite value for float8. `exact`:
 * value is one of the type, so that an infinity stays. */
static inline uint64_t encode(rondo_dtype type, float value, bool exact)
{
    struct layout l = layout_of(type);
    int bias = (1 << (l.exponent_bits - 1)) - 1, top = (1 << l.exponent_bits) - 1;
    uint64_t sign = signbit(value) ? 1ull << (l.exponent_bits + l.fraction_bits) : 0;
    uint64_t infinity = (uint64_t)top << l.fraction_bits;
    bool float8 = rd_dtype_bytes(type) == 1;
    uint64_t largest = l.infinity ? infinity - 1 : infinity + (1u << l.fraction_bits) - 2;
    if (isnan(value)) return canonical_nan(type);
    if (isinf(value)) return sign | (float8 && !exact ? largest : infinity);
    double magnitude = fabs((double)value);
    int exponent = magnitude > 0 ? ilogb(magnitude) : 1 - bias;
    if (exponent < 1 - bias) exponent = 1 - bias;
    double units = nearbyint(ldexp(magnitude, l.fraction_bits - exponent)); /* up to 2^(fraction_bits + 1) */
    int64_t bits = ((int64_t)(exponent + bias - 1) * (1 << l.fraction_bits)) + (int64_t)units;
    if ((uint64_t)bits > largest) return sign | (float8 ? largest : infinity);
    return sign | (uint64_t)bits;
}

/* ---- One element ---------------------------------------------------------------------------------------------- */

static inline double larger(double a, double b)
{
    if (isnan(a) || isnan(b)) return NAN;
    if (a == b) return signbit(a) ? b : a;
    return a > b ? a : b;
}
static inline double smaller(double a, double b)
{
    if (isnan(a) || isnan(b)) return NAN;
    if (a == b) return signbit(a) ? a : b;
    return a < b ? a : b;
}
static inline float combine_float(rondo_op op, float a, float b)
{
    switch (op) {
    case RONDO_PROD: return a * b;
    case RONDO_MAX: return (float)larger(a, b);
    case RONDO_MIN: return (float)smaller(a, b);
    default: return a + b;
    }
}
static inline double combine_double(rondo_op op, double a, double b)
{
    switch (op) {
    case RONDO_PROD: return a * b;
    case RONDO_MAX: return larger(a, b);
    case RONDO_MIN: return smaller(a, b);
    default: return a + b;
    }
}
static inline int64_t extended(rondo_dtype type, uint64_t bits)
{
    int unused = 64 - 8 * (int)rd_dtype_bytes(type);
    return (int64_t)(bits << unused) >> unused;
}
static inline uint64_t combine_integer(rondo_dtype type, rondo_op op, uint64_t a, uint64_t b)
{
    bool greater = is_signed(type) ? extended(type, a) > extended(type, b) : a > b;
    switch (op) {
    case RONDO_PROD: return low_bits(a * b, rd_dtype_bytes(type));
    case RONDO_MAX: return greater ? a : b;
    case RONDO_MIN: return greater ? b : a;
    default: return low_bits(a + b, rd_dtype_bytes(type));
    }
}

static inline double scale_of(rondo_dtype type, rondo_op op, int ranks)
{
    double scale = 1;
    if (op != RONDO_AVG || (type != RONDO_FLOAT32 && type != RONDO_FLOAT64 && type != RONDO_BFLOAT16)) return 1;
    while (scale * ranks > 1) scale /= 2;
    return scale;
}
static inline uint64_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return isnan(value) ? canonical_nan(RONDO_FLOAT32) : bits;
}
static inline float float_of(uint64_t bits)
{
    uint32_t word = (uint32_t)bits;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

static inline uint64_t expected_integer(rondo_dtype type, rondo_op op, int ranks, const rd_pass *pass,
                                        const uint64_t *term)
{
    uint64_t sum = term[0];
    for (int k = 1; k < pass->sources; k++) sum = combine_integer(type, op, sum, term[k]);
    if (op != RONDO_AVG || !pass->finish) return sum;
    if (is_signed(type)) return low_bits((uint64_t)(extended(type, sum) / ranks), rd_dtype_bytes(type));
    return sum / (uint64_t)ranks;
}
static inline uint64_t expected_double(rondo_op op, int ranks, const rd_pass *pass, const uint64_t *term)
{
    double sum = 0, value, scale = scale_of(RONDO_FLOAT64, op, ranks);
    uint64_t bits;
    for (int k = 0; k < pass->sources; k++) {
        memcpy(&value, &term[k], sizeof value);
        if (op == RONDO_AVG && !(k == 0 && pass->first_partial)) value *= scale;
        sum = k == 0 ? value : combine_double(op, sum, value);
    }
    if (op == RONDO_AVG && pass->finish) sum /= ranks * scale;
    memcpy(&bits, &sum, sizeof bits);
    return isnan(sum) ? canonical_nan(RONDO_FLOAT64) : bits;
}

/* The result's bits for the terms' bits (term[0] in the wide type where the pass says so). */
static inline uint64_t expected(rondo_dtype type, rondo_op op, int ranks, const rd_pass *pass, const uint64_t *term)
{
    if (!is_float(type)) return expected_integer(type, op, ranks, pass, term);
    if (type == RONDO_FLOAT64) return expected_double(op, ranks, pass, term);
    double scale = scale_of(type, op, ranks);
    float sum = 0;
    for (int k = 0; k < pass->sources; k++) {
        bool wide = type == RONDO_FLOAT32 || (k == 0 && pass->first_wide);
        float value = wide ? float_of(term[k]) : decode(type, term[k]);
        if (op == RONDO_AVG && !(k == 0 && pass->first_partial)) value *= (float)scale;
        sum = k == 0 ? value : combine_float(op, sum, value);
    }
    if (op == RONDO_AVG && pass->finish) sum /= (float)(ranks * scale);
    if (type == RONDO_FLOAT32 || pass->out_wide) return float_bits(sum);
    return encode(type, sum, op == RONDO_MAX || op == RONDO_MIN);
}

/* ---- Buffers -------------------------------------------------------------------------------------------------- */

static inline uint64_t read_bits(const void *from, size_t index, size_t bytes)
{
    uint64_t bits = 0;
    memcpy(&bits, (const char *)from + index * bytes, bytes);
    return bits;
}
static inline void write_bits(void *to, size_t index, size_t bytes, uint64_t bits)
{
    memcpy((char *)to + index * bytes, &bits, bytes);
}

/* Bits of one element: half of them anything at all, half from around the edges of the type. */
static inline uint64_t random_element(rondo_dtype type)
{
    size_t bytes = rd_dtype_bytes(type);
    if (random_below(2)) return low_bits(random_bits(), bytes);
    uint64_t sign = 1ull << (8 * bytes - 1), one = 1ull << layout_of(type).fraction_bits;
    uint64_t top = is_float(type) ? (sign - 1) & ~(one - 1) : sign - 1, middle = top / 2 & ~(one - 1);
    uint64_t edges[] = {0,       1,       2,   one - 1, one, one + 1, top - 1, top,
                        top + 1, top + 2, top + one / 2, sign - 1, middle, middle + 1, middle - 1, middle + one};
    return low_bits(edges[random_below(sizeof edges / sizeof *edges)] ^ (random_below(2) ? sign : 0), bytes);
}

static inline void must_init(rd_reduction *reduction, rondo_dtype type, rondo_op op, int ranks, int level)
{
    if (rd_reduction_init(reduction, type, op, ranks, level) != RONDO_SUCCESS) fail_msg("%s", rd_last_error());
}

#endif
