/* SPDX-License-Identifier: Apache-2.0
 *
 * order.h - maxima and minima of the narrow floats by their bits, without widening: a step takes 4 vectors of elements
 * in memory's order. Bits are a sign and a magnitude:
 *
 *   maximum   at least one is positive:  the larger of the two as signed integers
 *             both are negative:         the smaller magnitude, which is the smaller of the two as unsigned integers
 *   minimum   at least one is negative:  the larger of the two as unsigned integers
 *             both are positive:         the smaller magnitude
 *
 * which of the two it is, the sign of the signed maximum or minimum says. +0 is above -0 in either. A NaN has a larger
 * magnitude than infinity.
 */
#ifndef RD_REDUCE_ORDER_H
#define RD_REDUCE_ORDER_H

#include "reduce/native.h"

/* `negative` where sign is negative, else sign. */
#if RD_VECTOR_BYTES == 64
RD_INLINE v_uint16 choose_uint16(v_int16 sign, v_uint16 negative)
{
    __m512i s = (__m512i)sign;
    return (v_uint16)_mm512_mask_mov_epi16(s, _mm512_movepi16_mask(s), (__m512i)negative);
}
RD_INLINE v_uint8 choose_uint8(v_int8 sign, v_uint8 negative)
{
    __m512i s = (__m512i)sign;
    return (v_uint8)_mm512_mask_mov_epi8(s, _mm512_movepi8_mask(s), (__m512i)negative);
}
#elif RD_VECTOR_BYTES == 32
RD_INLINE v_uint16 choose_uint16(v_int16 sign, v_uint16 negative)
{
    return (v_uint16)_mm256_blendv_epi8((__m256i)sign, (__m256i)negative, (__m256i)(sign >> 15));
}
RD_INLINE v_uint8 choose_uint8(v_int8 sign, v_uint8 negative)
{
    return (v_uint8)_mm256_blendv_epi8((__m256i)sign, (__m256i)negative, (__m256i)sign);
}
#else
RD_INLINE v_uint16 choose_uint16(v_int16 sign, v_uint16 negative)
{
    v_uint16 mask = (v_uint16)(sign < 0);
    return RD_SELECT(mask, negative, (v_uint16)sign);
}
RD_INLINE v_uint8 choose_uint8(v_int8 sign, v_uint8 negative)
{
    v_uint8 mask = (v_uint8)(sign < 0);
    return RD_SELECT(mask, negative, (v_uint8)sign);
}
#endif

#define RD_ORDERED(type, bits, infinity, nan)                                                                          \
    typedef v_u##bits v_ordered_##type;                                                                                \
    RD_LANES(ordered_##type)                                                                                           \
    RD_UNCHANGED(ordered_##type)                                                                                       \
    RD_INLINE v_ordered_##type combine_ordered_##type(rondo_op op, v_ordered_##type a, v_ordered_##type b)             \
    {                                                                                                                  \
        const v_u##bits all = (v_u##bits){0} - 1, magnitude = all >> 1;                                                \
        v_u##bits larger = max_u##bits(a & magnitude, b & magnitude), chosen;                                          \
        if (op == RONDO_MAX)                                                                                           \
            chosen = choose_u##bits(max_##bits((v_##bits)a, (v_##bits)b), min_u##bits(a, b));                          \
        else                                                                                                           \
            chosen = choose_u##bits(min_##bits((v_##bits)a, (v_##bits)b), max_u##bits(a, b));                          \
        return replace_above_u##bits(chosen, larger, infinity, nan);                                                   \
    }
RD_ORDERED(float16, int16, 0x7c00, 0x7e00)
RD_ORDERED(bfloat16, int16, 0x7f80, 0x7fc0)
RD_ORDERED(float8e4m3, int8, 0x7e, 0x7f)
RD_ORDERED(float8e5m2, int8, 0x7c, 0x7e)

#endif
