/* SPDX-License-Identifier: Apache-2.0
 *
 * narrow.h - the 16-bit float types: from memory to lanes of float32 and back.
 *
 * A step handles as many elements as a vector has bytes: 4 vectors of float32 lanes. Which lane holds which element is
 * up to the type, so that widening and narrowing cost least; only the forms in memory are in order. Narrowing rounds to
 * nearest, ties to even, at every level to the same bits.
 */
#ifndef RD_REDUCE_NARROW_H
#define RD_REDUCE_NARROW_H

#include "reduce/native.h"

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

/* ---- Two vectors of lanes as one of lanes half as wide --------------------------------------------------------- */

/* Lanes 0, 2, 4 ... of the first, 1, 3, 5 ... of the second. */
RD_INLINE v_uint16 alternate(v_uint32 even, v_uint32 odd)
{
#if RD_VECTOR_BYTES == 64
    return (v_uint16)_mm512_mask_blend_epi16(0xaaaaaaaa, (__m512i)even, (__m512i)odd);
#elif RD_VECTOR_BYTES == 32
    return (v_uint16)_mm256_blend_epi16((__m256i)even, (__m256i)odd, 0xaa);
#else
    return (v_uint16)((even & 0xffff) | (odd & 0xffff0000));
#endif
}
RD_INLINE v_uint8 alternate_bytes(v_uint16 even, v_uint16 odd)
{
#if RD_VECTOR_BYTES == 64
    return (v_uint8)_mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaa, (__m512i)even, (__m512i)odd);
#elif RD_VECTOR_BYTES == 32
    return (v_uint8)_mm256_blendv_epi8((__m256i)even, (__m256i)odd, _mm256_set1_epi16((short)0xff00));
#else
    return (v_uint8)((even & 0xff) | (odd & 0xff00));
#endif
}
RD_INLINE v_uint16 upper_halves(v_uint32 even, v_uint32 odd)
{
    return alternate(even >> 16, odd);
}
RD_INLINE v_uint16 lower_halves(v_uint32 even, v_uint32 odd)
{
    return alternate(even, odd << 16);
}

/* 1 where a is above limit, else 0; NULL: above 0. */
RD_INLINE v_uint16 is_above(v_uint16 a, const uint16_t *limit)
{
#if RD_VECTOR_BYTES > 16
    if (limit) a = (v_uint16)RD_X86(subs_epu16)((rd_x86_integer)a, (rd_x86_integer)RD_FIXED(uint16, limit));
    return min_uint16(a, RD_FIXED(uint16, rd_constants.one16));
#else
    v_uint16 than = {0};
    if (limit) than = RD_FIXED(uint16, limit);
    return (v_uint16)(a > than) & 1;
#endif
}

/* Nearest, ties to even: one more where the rest, of which all bits set would be nearly one, is more than half, or half
 * and the last bit is set. A rest of 0 stays 0. */
#ifdef __x86_64__
#define RD_ROUND_UP(bits, suffix, above)                                                                               \
    RD_INLINE v_u##bits round_up_u##bits(v_u##bits kept, v_u##bits rest, v_u##bits one)                                \
    {                                                                                                                  \
        rd_x86_integer even = (rd_x86_integer)(~kept & one);                                                           \
        v_u##bits less = (v_u##bits)RD_X86(subs_##suffix)((rd_x86_integer)rest, even);                                 \
        return above;                                                                                                  \
    }
#else
#define RD_ROUND_UP(bits, suffix, above)                                                                               \
    RD_INLINE v_u##bits round_up_u##bits(v_u##bits kept, v_u##bits rest, v_u##bits one)                                \
    {                                                                                                                  \
        v_u##bits less = rest - ((v_u##bits)(rest != 0) & ~kept & one);                                                \
        return above;                                                                                                  \
    }
#endif
RD_ROUND_UP(int16, epu16, kept + (less >> 15))
RD_ROUND_UP(int8, epu8, kept - (v_uint8)((v_int8)less < 0))

/* ---- float16 ------------------------------------------------------------------------------------------------- */

#if RD_VECTOR_BYTES == 64
#define RD_LOAD_HALVES(from) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(from)))
RD_INLINE void halves_to_floats(v_uint16 from, v_float32 *low, v_float32 *high)
{
    *low = _mm512_cvtph_ps(_mm512_castsi512_si256((__m512i)from));
    *high = _mm512_cvtph_ps(_mm512_extracti64x4_epi64((__m512i)from, 1));
}
#define RD_NARROW(low, high, mode)                                                                                     \
    (v_uint16) _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtps_ph(low, mode)), _mm512_cvtps_ph(high, mode), 1)
#elif RD_VECTOR_BYTES == 32
#define RD_LOAD_HALVES(from) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from)))
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
    v_uint32 rounding = {0};
    if (!truncate) rounding = 0xfff + ((magnitude >> 13) & 1);
    v_uint32 normal = (magnitude + rounding - (112u << 23)) >> 13;
    v_uint32 beyond = (v_uint32)(magnitude + rounding >= 143u << 23);
    normal = RD_SELECT(beyond, (v_uint32){0} + RD_HALF_INFINITY, normal);
    v_float32 tiny = (v_float32)(magnitude & small);
    v_uint32 subnormal = truncate ? (v_uint32)__builtin_convertvector(tiny * 0x1p24f, v_int32)
                                  : (v_uint32)(tiny + 0.5f) - 0x3f000000;
    v_uint32 half = RD_SELECT(small, subnormal, normal);
    return RD_SELECT(nan, (v_uint32){0} + 0x7e00, half) | sign;
}
static __attribute__((noinline)) void halves_to_floats(v_uint16 from, v_float32 *low, v_float32 *high)
{
    v_uint32 pairs = (v_uint32)from;
    v_float32 apart[2] = {half_to_float(pairs & 0xffff), half_to_float(pairs >> 16)}, order[2];
    interleave(apart, order);
    *low = order[0], *high = order[1];
}
static __attribute__((noinline)) v_uint16 floats_to_halves(v_float32 low, v_float32 high, bool truncate)
{
    v_float32 order[2] = {low, high}, apart[2];
    separate(order, apart);
    return (v_uint16)(float_to_half(apart[0], truncate) | float_to_half(apart[1], truncate) << 16);
}
#endif

RD_INLINE void load_float16(const unsigned char *from, v_float32 to[4])
{
#if RD_VECTOR_BYTES > 16
    for (int i = 0; i < 4; i++) to[i] = RD_LOAD_HALVES(from + i * RD_VECTOR_BYTES / 2);
#else
    halves_to_floats((v_uint16)load_vector(from), &to[0], &to[1]);
    halves_to_floats((v_uint16)load_vector(from + RD_VECTOR_BYTES), &to[2], &to[3]);
#endif
}
RD_INLINE void pack_float16(const v_float32 from[4], v_uint8 to[4], bool exact)
{
    (void)exact;
    v_float32 settled[4] = {from[0], from[1], from[2], from[3]};
    settle_float32(settled);
    for (int i = 0; i < 2; i++) to[i] = (v_uint8)floats_to_halves(settled[2 * i], settled[2 * i + 1], false);
}
/* b * 1 + a is rounded once, so it is a + b. Zen 4 adds in the units that convert to and from float16, the busy ones
 * here, but multiplies and adds in others. No lane is subnormal, which would slow down some processors. */
RD_INLINE v_float32 combine_float16(rondo_op op, v_float32 a, v_float32 b)
{
#if RD_VECTOR_BYTES == 32
    if (op == RONDO_SUM || op == RONDO_AVG) return _mm256_fmadd_ps(b, _mm256_set1_ps(1), a);
#endif
    return combine_float32(op, a, b);
}
RD_INLINE void order_float16(const v_float32 from[4], v_float32 to[4])
{
    for (int i = 0; i < 4; i++) to[i] = from[i];
}
#define lanes_float16 order_float16

/* ---- bfloat16: the upper half of a float32. Even elements in one vector, odd ones in the next ------------------- */

RD_INLINE void load_bfloat16(const unsigned char *from, v_float32 to[4])
{
    for (int i = 0; i < 2; i++) {
        v_uint32 pairs = (v_uint32)load_vector(from + i * RD_VECTOR_BYTES);
        to[2 * i] = (v_float32)(pairs << 16);
        to[2 * i + 1] = (v_float32)(pairs & RD_FIXED(uint32, rd_constants.upper32));
    }
}
RD_INLINE void pack_bfloat16(const v_float32 from[4], v_uint8 to[4], bool exact)
{
    (void)exact;
    v_float32 settled[4] = {from[0], from[1], from[2], from[3]};
    settle_float32(settled);
    for (int i = 0; i < 2; i++) {
        v_uint32 even = (v_uint32)settled[2 * i], odd = (v_uint32)settled[2 * i + 1];
        to[i] = (v_uint8)round_up_uint16(upper_halves(even, odd), lower_halves(even, odd),
                                         RD_FIXED(uint16, rd_constants.one16));
    }
}
/* Scaling by up to 2^-16 is exact, even of the smallest number: so the product may be taken as one with the sum. */
#if RD_VECTOR_BYTES == 64
RD_INLINE v_float32 add_scaled_bfloat16(v_float32 sum, v_float32 term, v_float32 scale)
{
    return _mm512_fmadd_ps(term, scale, sum);
}
#elif RD_VECTOR_BYTES == 32
RD_INLINE v_float32 add_scaled_bfloat16(v_float32 sum, v_float32 term, v_float32 scale)
{
    return _mm256_fmadd_ps(term, scale, sum);
}
#endif
RD_INLINE void order_bfloat16(const v_float32 from[4], v_float32 to[4])
{
    interleave(from, to), interleave(from + 2, to + 2);
}
RD_INLINE void lanes_bfloat16(const v_float32 from[4], v_float32 to[4])
{
    separate(from, to), separate(from + 2, to + 2);
}

#endif
