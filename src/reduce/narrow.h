/* SPDX-License-Identifier: Apache-2.0
 *
 * narrow.h - the four float types narrower than float32: from memory to lanes of float32 and back.
 *
 * A step handles as many elements as a vector has bytes: 4 vectors of float32 lanes. Which lane holds which element is up
 * to the type, so that widening and narrowing cost least; only the forms in memory are in order. Narrowing rounds to
 * nearest, ties to even, at every level to the same bits.
 */
#ifndef RD_REDUCE_NARROW_H
#define RD_REDUCE_NARROW_H

#include "reduce/vector.h"

#define RD_SIGN 0x8000
#define RD_HALF_INFINITY 0x7c00

/* ---- Lanes taken alternately from two vectors, and back ------------------------------------------------------- */

#if RD_VECTOR_BYTES == 64
#define RD_LOWER 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define RD_UPPER 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define RD_EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define RD_ODD 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#elif RD_VECTOR_BYTES == 32
#define RD_LOWER 0, 8, 1, 9, 2, 10, 3, 11
#define RD_UPPER 4, 12, 5, 13, 6, 14, 7, 15
#define RD_EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define RD_ODD 1, 3, 5, 7, 9, 11, 13, 15
#else
#define RD_LOWER 0, 4, 1, 5
#define RD_UPPER 2, 6, 3, 7
#define RD_EVEN 0, 2, 4, 6
#define RD_ODD 1, 3, 5, 7
#endif

RD_INLINE void interleave(const v_float32 from[2], v_float32 to[2])
{
    v_float32 even = from[0], odd = from[1];
    to[0] = __builtin_shufflevector(even, odd, RD_LOWER);
    to[1] = __builtin_shufflevector(even, odd, RD_UPPER);
}
RD_INLINE void separate(const v_float32 from[2], v_float32 to[2])
{
    v_float32 low = from[0], high = from[1];
    to[0] = __builtin_shufflevector(low, high, RD_EVEN);
    to[1] = __builtin_shufflevector(low, high, RD_ODD);
}

/* ---- float16 ------------------------------------------------------------------------------------------------- */

#if RD_VECTOR_BYTES == 64
typedef __m256i_u rd_halves;
RD_INLINE void halves_to_floats(v_uint16 from, v_float32 *low, v_float32 *high)
{
    *low = _mm512_cvtph_ps(_mm512_castsi512_si256((__m512i)from));
    *high = _mm512_cvtph_ps(_mm512_extracti64x4_epi64((__m512i)from, 1));
}
#define RD_NARROW(low, high, mode)                                                                                     \
    (v_uint16) _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtps_ph(low, mode)), _mm512_cvtps_ph(high, mode), 1)
#elif RD_VECTOR_BYTES == 32
typedef __m128i_u rd_halves;
RD_INLINE void halves_to_floats(v_uint16 from, v_float32 *low, v_float32 *high)
{
    *low = _mm256_cvtph_ps(_mm256_castsi256_si128((__m256i)from));
    *high = _mm256_cvtph_ps(_mm256_extracti128_si256((__m256i)from, 1));
}
#define RD_NARROW(low, high, mode) (v_uint16) _mm256_set_m128i(_mm256_cvtps_ph(high, mode), _mm256_cvtps_ph(low, mode))
#endif

#if RD_VECTOR_BYTES > 16
RD_INLINE v_uint16 floats_to_halves(v_float32 low, v_float32 high, bool truncate)
{
    return truncate ? RD_NARROW(low, high, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)
                    : RD_NARROW(low, high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#else
/* Exponents are 112 apart (biases 127 and 15). A float16 that is subnormal, its fraction put into a float32 of exponent
 * 2^-14, is 2^-14 too much; one that is infinite or NaN needs the 112 once more to have all exponent bits set. */
RD_INLINE v_float32 half_to_float(v_uint32 half)
{
    v_uint32 magnitude = (half & 0x7fff) << 13, sign = (half & RD_SIGN) << 16;
    v_uint32 special = (v_uint32)(magnitude >= (RD_HALF_INFINITY << 13)), small = (v_uint32)(magnitude < 1u << 23);
    v_uint32 normal = magnitude + (112u << 23) + (special & (112u << 23));
    v_uint32 subnormal = (v_uint32)((v_float32)(magnitude + (113u << 23)) - 0x1p-14f);
    return (v_float32)(RD_SELECT(small, subnormal, normal) | sign);
}
/* A subnormal result is the magnitude in units of 2^-24: adding 1/2, whose last bit is worth that, rounds it there, and
 * a conversion to an integer truncates it. */
RD_INLINE v_uint32 float_to_half(v_float32 value, bool truncate)
{
    v_uint32 bits = (v_uint32)value, magnitude = bits & 0x7fffffff, sign = (bits >> 16) & RD_SIGN;
    v_uint32 nan = (v_uint32)(magnitude > 0x7f800000u), small = (v_uint32)(magnitude < 113u << 23);
    v_uint32 rounding = truncate ? (v_uint32){0} : 0xfff + ((magnitude >> 13) & 1);
    v_uint32 normal = (magnitude + rounding - (112u << 23)) >> 13;
    v_uint32 beyond = (v_uint32)(magnitude + rounding >= 143u << 23);
    normal = RD_SELECT(beyond, (v_uint32){0} + RD_HALF_INFINITY, normal);
    v_float32 tiny = (v_float32)(magnitude & small);
    v_uint32 subnormal = truncate ? (v_uint32)__builtin_convertvector(tiny * 0x1p24f, v_int32)
                                  : (v_uint32)(tiny + 0.5f) - 0x3f000000;
    v_uint32 half = RD_SELECT(small, subnormal, normal);
    return RD_SELECT(nan, (v_uint32){0} + 0x7e00, half) | sign;
}
RD_INLINE void halves_to_floats(v_uint16 from, v_float32 *low, v_float32 *high)
{
    v_uint32 pairs = (v_uint32)from;
    v_float32 apart[2] = {half_to_float(pairs & 0xffff), half_to_float(pairs >> 16)}, order[2];
    interleave(apart, order);
    *low = order[0], *high = order[1];
}
RD_INLINE v_uint16 floats_to_halves(v_float32 low, v_float32 high, bool truncate)
{
    v_float32 order[2] = {low, high}, apart[2];
    separate(order, apart);
    return (v_uint16)(float_to_half(apart[0], truncate) | float_to_half(apart[1], truncate) << 16);
}
#endif

RD_INLINE void load_float16(const unsigned char *from, v_float32 to[4], rondo_op op)
{
    (void)op;
#if RD_VECTOR_BYTES > 16
    for (int i = 0; i < 4; i++) to[i] = RD_X86(cvtph_ps)(*(const rd_halves *)(from + i * RD_VECTOR_BYTES / 2));
#else
    halves_to_floats((v_uint16)load_vector(from), &to[0], &to[1]);
    halves_to_floats((v_uint16)load_vector(from + RD_VECTOR_BYTES), &to[2], &to[3]);
#endif
}
RD_INLINE void pack_float16(const v_float32 from[4], v_uint8 to[4], rondo_op op)
{
    (void)op;
    v_float32 settled[4] = {from[0], from[1], from[2], from[3]};
    settle_float32(settled);
    to[0] = (v_uint8)floats_to_halves(settled[0], settled[1], false);
    to[1] = (v_uint8)floats_to_halves(settled[2], settled[3], false);
}
RD_INLINE void order_float16(const v_float32 from[4], v_float32 to[4], rondo_op op)
{
    (void)op;
    for (int i = 0; i < 4; i++) to[i] = from[i];
}
#define lanes_float16 order_float16

/* ---- bfloat16: the upper half of a float32. Even elements in one vector, odd ones in the next ------------------- */

RD_INLINE void load_bfloat16(const unsigned char *from, v_float32 to[4], rondo_op op)
{
    (void)op;
    for (int i = 0; i < 2; i++) {
        v_uint32 pairs = (v_uint32)load_vector(from + i * RD_VECTOR_BYTES);
        to[2 * i] = (v_float32)(pairs << 16);
        to[2 * i + 1] = (v_float32)(pairs & 0xffff0000);
    }
}
RD_INLINE v_uint32 round_bfloat16(v_float32 value)
{
    v_uint32 bits = (v_uint32)value;
    return bits + 0x7fff + ((bits >> 16) & 1);
}
RD_INLINE void pack_bfloat16(const v_float32 from[4], v_uint8 to[4], rondo_op op)
{
    (void)op;
    v_float32 settled[4] = {from[0], from[1], from[2], from[3]};
    settle_float32(settled);
    for (int i = 0; i < 2; i++)
        to[i] = (v_uint8)((round_bfloat16(settled[2 * i]) >> 16) | (round_bfloat16(settled[2 * i + 1]) & 0xffff0000));
}
RD_INLINE void order_bfloat16(const v_float32 from[4], v_float32 to[4], rondo_op op)
{
    (void)op;
    interleave(from, to), interleave(from + 2, to + 2);
}
RD_INLINE void lanes_bfloat16(const v_float32 from[4], v_float32 to[4], rondo_op op)
{
    (void)op;
    separate(from, to), separate(from + 2, to + 2);
}

/* ---- float8, by way of float16 --------------------------------------------------------------------------------
 *
 * e5m2 is the upper byte of a float16. e4m3's seven magnitude bits, one place lower in it, are a float16 2^-8 times as
 * large, subnormals included (exponent biases 7 and 15), and its only NaN, 0x7f, is the one magnitude that reaches
 * 0x80 when 1 is added. The factor 2^-8 is exact, so sums, averages, maxima and minima of e4m3 are taken in lanes that
 * are 2^-8 times the value; products are not.
 *
 * Narrowing float32 first to float16 and then to float8 would round twice. So all bits below the last that matters
 * (17: it lies below the tie bit and within float16 even where the result is the smallest subnormal) are first joined
 * into that one, and the conversion to float16 truncates.
 *
 * Beyond the largest finite value, infinity included, a result becomes that value: __NV_SATFINITE of CUDA's cuda_fp8.h,
 * which the constructors of __nv_fp8_e4m3 and __nv_fp8_e5m2 use; OCP's OFP8 specification 1.0 calls it the saturating
 * mode. Maxima and minima are values that were there, and e5m2's infinities stay. */

#define RD_E4M3_LANES(op) ((op) == RONDO_PROD ? 0x1p-8f : 1.0f) /* factor from a lane to a float16 */
RD_INLINE bool chooses(rondo_op op) { return op == RONDO_MAX || op == RONDO_MIN; }

/* Lanes 0 and 2: low and high half of the even elements, 1 and 3: of the odd ones. */
RD_INLINE void load_float8e5m2(const unsigned char *from, v_float32 to[4], rondo_op op)
{
    (void)op;
    v_uint16 pairs = (v_uint16)load_vector(from);
    halves_to_floats(pairs << 8, &to[0], &to[2]);
    halves_to_floats(pairs & 0xff00, &to[1], &to[3]);
}
RD_INLINE void load_float8e4m3(const unsigned char *from, v_float32 to[4], rondo_op op)
{
    v_uint8 bytes = load_vector(from), magnitude = bytes & 0x7f;
    v_uint16 marked = (v_uint16)(magnitude | ((magnitude + 1) & 0x80)), signs = (v_uint16)bytes & 0x8080;
    halves_to_floats(((marked << 7) & 0x7f80) | ((signs << 8) & RD_SIGN), &to[0], &to[2]);
    halves_to_floats(((marked >> 1) & 0x7f80) | (signs & RD_SIGN), &to[1], &to[3]);
    if (op == RONDO_PROD)
        for (int i = 0; i < 4; i++) to[i] *= 0x1p8f;
}

RD_INLINE v_float32 join_low_bits(v_float32 value, bool exact)
{
    v_uint32 bits = (v_uint32)value;
    return exact ? value : (v_float32)(bits | (((bits & 0x1ffff) + 0x1ffff) & 0x20000));
}
/* A float16 with `drop` bits too many, rounded, as the upper byte of each lane. */
RD_INLINE v_uint16 round_half(v_uint16 half, int drop, uint16_t largest, uint16_t nan, bool exact)
{
    v_uint16 given = half & 0x7fff;
    v_uint16 magnitude = exact ? given : given + (uint16_t)((1 << (drop - 1)) - 1) + ((given >> drop) & 1);
    magnitude = (v_uint16)min_int16((v_int16)magnitude, (v_int16){0} + (int16_t)largest) << (8 - drop);
    return replace_nan(magnitude | (half & RD_SIGN), given, nan);
}
RD_INLINE v_uint8 join_bytes(v_uint16 even, v_uint16 odd) { return (v_uint8)((even >> 8) | (odd & 0xff00)); }

RD_INLINE void pack_float8e5m2(const v_float32 from[4], v_uint8 to[4], rondo_op op)
{
    bool exact = chooses(op);
    v_uint16 half[2];
    for (int i = 0; i < 2; i++) {
        half[i] = floats_to_halves(join_low_bits(from[i], exact), join_low_bits(from[i + 2], exact), true);
        half[i] = round_half(half[i], 8, exact ? RD_HALF_INFINITY : 0x7b00, 0x7e00, exact);
    }
    to[0] = join_bytes(half[0], half[1]);
}
RD_INLINE void pack_float8e4m3(const v_float32 from[4], v_uint8 to[4], rondo_op op)
{
    bool exact = chooses(op);
    v_uint16 half[2];
    for (int i = 0; i < 2; i++) {
        v_float32 low = from[i] * RD_E4M3_LANES(op), high = from[i + 2] * RD_E4M3_LANES(op);
        half[i] = floats_to_halves(join_low_bits(low, exact), join_low_bits(high, exact), true);
        half[i] = round_half(half[i], 7, 0x7e << 7, 0x7f00, exact);
    }
    to[0] = join_bytes(half[0], half[1]);
}

#define order_float8e5m2 order_bfloat16
#define lanes_float8e5m2 lanes_bfloat16
RD_INLINE void order_float8e4m3(const v_float32 from[4], v_float32 to[4], rondo_op op)
{
    order_bfloat16(from, to, op);
    for (int i = 0; i < 4; i++) to[i] *= 0x1p8f * RD_E4M3_LANES(op);
}
RD_INLINE void lanes_float8e4m3(const v_float32 from[4], v_float32 to[4], rondo_op op)
{
    lanes_bfloat16(from, to, op);
    for (int i = 0; i < 4; i++) to[i] *= 0x1p-8f / RD_E4M3_LANES(op);
}

#endif
