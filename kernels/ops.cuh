/* SPDX-License-Identifier: Apache-2.0
 *
 * ops.cuh - the element types and the operators on them, one element at a time. A type has
 *
 *   lane          in what its sums are taken: float32 for a float that is narrower, else the type itself
 *   bits          an unsigned integer as wide as an element in memory
 *   value, store  from the one to the other. store makes every NaN the canonical one; exact: it is a maximum or
 * minimum, which is one of the terms add, multiply, larger, smaller, scale, divide    on lanes
 *
 * src/reduce/reduce.h says what the bits must be.
 */
#ifndef RD_KERNELS_OPS_CUH
#define RD_KERNELS_OPS_CUH

#include "device.cuh"
#include "rondo.h"

/* ---- Integers: sums and products wrap, so they are taken unsigned ----------------------------------------------- */

/* Quotient: in what an element is divided by an int. */
template <class Lane, class Bits, class Quotient> struct rd_integer {
    typedef Lane lane;
    typedef Bits bits;
    RD_DEVICE lane value(bits b) { return (lane)b; }
    RD_DEVICE bits store(lane a, bool) { return (bits)a; }
    RD_DEVICE lane add(lane a, lane b) { return (lane)(bits)((bits)a + (bits)b); }
    RD_DEVICE lane multiply(lane a, lane b) { return (lane)(bits)((bits)a * (bits)b); }
    RD_DEVICE lane larger(lane a, lane b) { return a > b ? a : b; }
    RD_DEVICE lane smaller(lane a, lane b) { return a < b ? a : b; }
    RD_DEVICE lane scale(lane a, double) { return a; }
    RD_DEVICE lane divide(lane a, double, int32_t ranks) { return (lane)((Quotient)a / (Quotient)ranks); }
};
typedef rd_integer<int8_t, uint8_t, int32_t> rd_int8;
typedef rd_integer<uint8_t, uint8_t, uint32_t> rd_uint8;
typedef rd_integer<int32_t, uint32_t, int32_t> rd_int32;
typedef rd_integer<uint32_t, uint32_t, uint32_t> rd_uint32;
typedef rd_integer<int64_t, uint64_t, int64_t> rd_int64;
typedef rd_integer<uint64_t, uint64_t, uint64_t> rd_uint64;

/* ---- Floats ----------------------------------------------------------------------------------------------------- */

/* Arithmetic in Lane, whose bits are Word. A NaN wins, and +0 is above -0: of two that are equal, a maximum has the
 * sign only if both have it, a minimum if one has it. */
template <class Lane, class Word> struct rd_real {
    typedef Lane lane;
    RD_DEVICE lane add(lane a, lane b) { return a + b; }
    RD_DEVICE lane multiply(lane a, lane b) { return a * b; }
    RD_DEVICE lane larger(lane a, lane b)
    {
        if (a == b) return rd_bits_as<lane>(rd_bits_as<Word>(a) & rd_bits_as<Word>(b));
        return a > b || a != a ? a : b;
    }
    RD_DEVICE lane smaller(lane a, lane b)
    {
        if (a == b) return rd_bits_as<lane>(rd_bits_as<Word>(a) | rd_bits_as<Word>(b));
        return a < b || a != a ? a : b;
    }
    RD_DEVICE lane scale(lane a, double by) { return a * (lane)by; }
    RD_DEVICE lane divide(lane a, double by, int32_t) { return a / (lane)by; }
};

struct rd_float32 : rd_real<float, uint32_t> {
    typedef uint32_t bits;
    RD_DEVICE float value(bits b) { return rd_bits_as<float>(b); }
    RD_DEVICE bits store(float a, bool) { return a != a ? 0x7fc00000u : rd_bits_as<bits>(a); }
};

struct rd_float64 : rd_real<double, uint64_t> {
    typedef uint64_t bits;
    RD_DEVICE double value(bits b) { return rd_bits_as<double>(b); }
    RD_DEVICE bits store(double a, bool) { return a != a ? 0x7ff8000000000000u : rd_bits_as<bits>(a); }
};

struct rd_float16 : rd_real<float, uint32_t> {
    typedef uint16_t bits;
    RD_DEVICE float value(bits b) { return rd_float16_value(b); }
    RD_DEVICE bits store(float a, bool) { return a != a ? (bits)0x7e00 : rd_float16_bits(a); }
};

struct rd_bfloat16 : rd_real<float, uint32_t> {
    typedef uint16_t bits;
    RD_DEVICE float value(bits b) { return rd_bits_as<float>((uint32_t)b << 16); }
    RD_DEVICE bits store(float a, bool)
    {
        uint32_t word = rd_bits_as<uint32_t>(a);
        return a != a ? (bits)0x7fc0 : (bits)((word + 0x7fff + (word >> 16 & 1)) >> 16);
    }
};

/* The float8 types are float16 with bits missing: e5m2 its upper byte; e4m3's magnitude, one place lower, is one that
 * is 2^-8 times as large. Beyond the largest number, which has the bits LARGEST, a result becomes that; only a maximum
 * or minimum may be INFINITE. */
template <int EXPONENT, int FRACTION, int LARGEST, int INFINITE, int NAN_BITS>
struct rd_float8 : rd_real<float, uint32_t> {
    typedef uint8_t bits;
    RD_DEVICE float value(bits b)
    {
        uint32_t magnitude = b & 0x7f;
        if (magnitude > INFINITE) return rd_bits_as<float>(0x7fc00000u);
        float half = rd_float16_value((uint16_t)((b & 0x80) << 8 | magnitude << (10 - FRACTION)));
        return EXPONENT == 4 ? half * 256 : half;
    }
    RD_DEVICE bits store(float a, bool exact)
    {
        uint32_t word = rd_bits_as<uint32_t>(a), magnitude = rd_narrow_magnitude<EXPONENT, FRACTION>(a);
        if (a != a) return (bits)NAN_BITS;
        if (magnitude > LARGEST) magnitude = exact && (word & 0x7fffffff) == 0x7f800000 ? INFINITE : LARGEST;
        return (bits)((word >> 24 & 0x80) | magnitude);
    }
};
typedef rd_float8<4, 3, 0x7e, 0x7e, 0x7f> rd_float8e4m3;
typedef rd_float8<5, 2, 0x7b, 0x7c, 0x7e> rd_float8e5m2;

/* ---- Operators: sum[i] = sum[i] op term[i] ---------------------------------------------------------------------- */

template <class Type, int ELEMENTS>
RD_DEVICE void rd_combine(int32_t op, typename Type::lane sum[ELEMENTS], const typename Type::lane term[ELEMENTS])
{
#define RD_EACH(operation)                                                                                             \
    RD_UNROLL                                                                                                          \
    for (int i = 0; i < ELEMENTS; i++) sum[i] = Type::operation(sum[i], term[i]);                                      \
    break;
    switch (op) {
    case RONDO_PROD: RD_EACH(multiply)
    case RONDO_MAX: RD_EACH(larger)
    case RONDO_MIN: RD_EACH(smaller)
    default: RD_EACH(add)
    }
#undef RD_EACH
}

#endif
