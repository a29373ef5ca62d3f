/* SPDX-License-Identifier: Apache-2.0
 *
 * native.h - the eight types that are their own wide type, and the arithmetic on lanes of each.
 */
#ifndef RD_REDUCE_NATIVE_H
#define RD_REDUCE_NATIVE_H

#include "reduce/vector.h"

/* Of aligned sums: float8.h. */
struct rd_quotient {
    float lift, factor, drop;
};

/* What the lanes of one call are multiplied with or divided by. */
struct rd_factors {
    double scale_double, divisor_double;
    float scale_float, divisor_float;
    float reciprocal;          /* of divisor_float where that is a power of two, else 0 */
    struct rd_divider divider; /* for integers */
    struct rd_quotient quotient; /* for float8 */
};

/* Memory and lanes: 4 vectors, in order. */
#define RD_LANES(type)                                                                                                 \
    RD_INLINE void load_##type(const unsigned char *from, v_##type to[4])                                              \
    {                                                                                                                  \
        for (int i = 0; i < 4; i++) to[i] = (v_##type)load_vector(from + i * RD_VECTOR_BYTES);                         \
    }                                                                                                                  \
    RD_INLINE void order_##type(const v_##type from[4], v_##type to[4])                                                \
    {                                                                                                                  \
        for (int i = 0; i < 4; i++) to[i] = from[i];                                                                   \
    }                                                                                                                  \
    RD_INLINE void lanes_##type(const v_##type from[4], v_##type to[4]) { order_##type(from, to); }

/* Stored as they are. */
#define RD_UNCHANGED(type)                                                                                             \
    RD_INLINE void pack_##type(const v_##type from[4], v_uint8 to[4], bool exact)                                      \
    {                                                                                                                  \
        (void)exact;                                                                                                   \
        for (int i = 0; i < 4; i++) to[i] = (v_uint8)from[i];                                                          \
    }

/* Signed sums and products are taken unsigned: they wrap, and have the same bits. */
#define RD_INTEGER(type, bits)                                                                                         \
    RD_LANES(type)                                                                                                     \
    RD_UNCHANGED(type)                                                                                                 \
    RD_INLINE v_##type combine_##type(rondo_op op, v_##type a, v_##type b)                                             \
    {                                                                                                                  \
        switch (op) {                                                                                                  \
        case RONDO_PROD: return (v_##type)multiply_##bits((v_##bits)a, (v_##bits)b);                                   \
        case RONDO_MAX: return max_##type(a, b);                                                                       \
        case RONDO_MIN: return min_##type(a, b);                                                                       \
        default: return (v_##type)((v_##bits)a + (v_##bits)b);                                                         \
        }                                                                                                              \
    }                                                                                                                  \
    RD_INLINE v_##type scale_##type(v_##type a, const struct rd_factors *by)                                           \
    {                                                                                                                  \
        (void)by;                                                                                                      \
        return a;                                                                                                      \
    }                                                                                                                  \
    RD_INLINE void finish_##type(v_##type a[4], const struct rd_factors *by)                                           \
    {                                                                                                                  \
        for (int i = 0; i < 4; i++) a[i] = divide_##type(a[i], by->divider);                                           \
    }

#define RD_FLOAT(type, scalar)                                                                                         \
    RD_LANES(type)                                                                                                     \
    RD_INLINE void pack_##type(const v_##type from[4], v_uint8 to[4], bool exact)                                      \
    {                                                                                                                  \
        (void)exact;                                                                                                   \
        v_##type settled[4] = {from[0], from[1], from[2], from[3]};                                                    \
        settle_##type(settled);                                                                                        \
        for (int i = 0; i < 4; i++) to[i] = (v_uint8)settled[i];                                                       \
    }                                                                                                                  \
    RD_INLINE v_##type combine_##type(rondo_op op, v_##type a, v_##type b)                                             \
    {                                                                                                                  \
        switch (op) {                                                                                                  \
        case RONDO_PROD: return a * b;                                                                                 \
        case RONDO_MAX: return max_##type(a, b);                                                                       \
        case RONDO_MIN: return min_##type(a, b);                                                                       \
        default: return a + b;                                                                                         \
        }                                                                                                              \
    }                                                                                                                  \
    RD_INLINE v_##type scale_##type(v_##type a, const struct rd_factors *by)                                           \
    {                                                                                                                  \
        return a * by->scale_##scalar;                                                                                 \
    }

RD_INTEGER(int8, uint8)
RD_INTEGER(uint8, uint8)
RD_INTEGER(int32, uint32)
RD_INTEGER(uint32, uint32)
RD_INTEGER(int64, uint64)
RD_INTEGER(uint64, uint64)
RD_FLOAT(float32, float)
RD_FLOAT(float64, double)

RD_INLINE void finish_float64(v_float64 a[4], const struct rd_factors *by)
{
    for (int i = 0; i < 4; i++) a[i] /= by->divisor_double;
}
/* A power of two has an exact reciprocal. Types that are scaled need none: it is 1 for them. */
RD_INLINE void finish_float32(v_float32 a[4], const struct rd_factors *by)
{
    if (by->reciprocal != 0)
        for (int i = 0; i < 4; i++) a[i] *= by->reciprocal;
    else
        for (int i = 0; i < 4; i++) a[i] /= by->divisor_float;
}

#endif
