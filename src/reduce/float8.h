/* SPDX-License-Identifier: Apache-2.0
 *
 * float8.h - the 8-bit float types: from memory to lanes of float32 and back, in two ways.
 *
 * By way of float16. e5m2 is the upper byte of a float16. e4m3's seven magnitude bits, one place lower, are a float16
 * that is 2^-8 times as large, subnormals included (exponent biases 7 and 15).
 *
 * Aligned, for sums, maxima and minima. Put at the upper end of a float32's fraction and the lower end of its exponent,
 * the magnitude bits are a float32 that is 2^-120 (e4m3) or 2^-112 (e5m2) times as large, and what is subnormal in one
 * is so in the other. All lanes being smaller by the same power of two, sums of them are rounded at the same places: a
 * sum that is subnormal is exact in both, for it is a multiple of float8's smallest number. This needs no conversions,
 * but products and quotients would lose bits, and processors that slow down for subnormals do so for these, not for
 * sums.
 *
 * Rounding twice. To take a float32 to 16 bits first, by truncation, all bits below the last of these that matters are
 * joined into it: whether the rest was more or less than half, or just half, stays visible.
 *
 * Beyond the largest finite value, infinity included, a result becomes that value: __NV_SATFINITE of CUDA's cuda_fp8.h,
 * which the constructors of __nv_fp8_e4m3 and __nv_fp8_e5m2 use; OCP's OFP8 specification 1.0 calls it the saturating
 * mode. Maxima and minima are values that were there, so that e5m2's infinities stay.
 */
#ifndef RD_REDUCE_FLOAT8_H
#define RD_REDUCE_FLOAT8_H

#include "reduce/narrow.h"

struct rd_float8 {
    int half_place, aligned_place; /* of the lowest magnitude bit in a float16, and in the upper half of a float32 */
    uint16_t largest, infinity, nan; /* bytes; infinity: the largest that a maximum may be */
    float half_scale;                /* of a float16 so made */
};
static const struct rd_float8 e4m3 = {7, 4, 0x7e, 0x7e, 0x7f, 0x1p-8f}, e5m2 = {8, 5, 0x7b, 0x7c, 0x7e, 1};

#define RD_FLOAT_INFINITY 0x7f80 /* upper half */

RD_INLINE bool any_above(v_uint8 magnitude, uint16_t limit)
{
#if RD_VECTOR_BYTES == 64
    return _mm512_cmpgt_epi8_mask((__m512i)magnitude, _mm512_set1_epi8((char)limit)) != 0;
#elif RD_VECTOR_BYTES == 32
    return _mm256_movemask_epi8(_mm256_cmpgt_epi8((__m256i)magnitude, _mm256_set1_epi8((char)limit))) != 0;
#else
    return any_bit((v_uint64)((v_int8)magnitude > (int8_t)limit));
#endif
}

/* Bytes to 16 bits each, the magnitude's lowest bit at `place`; infinity and NaN get all exponent bits. */
RD_INLINE void spread(v_uint8 bytes, int place, uint16_t infinity, struct rd_float8 type, v_uint16 *even, v_uint16 *odd)
{
    uint16_t keep = (uint16_t)(RD_SIGN | 0x7f << place);
    v_int16 largest = (v_int16){0} + (int16_t)(type.largest << place);
    *even = (v_uint16)((v_int16)((v_uint16)bytes << 8) >> (8 - place)) & keep;
    *odd = (v_uint16)((v_int16)bytes >> (8 - place)) & keep;
    if (__builtin_expect(any_above(bytes & 0x7f, type.largest), 0)) {
        *even |= (v_uint16)((v_int16)(*even & 0x7fff) > largest) & infinity;
        *odd |= (v_uint16)((v_int16)(*odd & 0x7fff) > largest) & infinity;
    }
}

/* Bits 0 to bit - 1 joined into `bit`. */
RD_INLINE v_float32 join_low_bits(v_float32 value, int bit, bool exact)
{
    v_uint32 bits = (v_uint32)value;
    uint32_t low = (1u << bit) - 1;
    return exact ? value : (v_float32)(bits | (((bits & low) + low) & (low + 1)));
}

/* And back: the bits above `place`, rounded, as the upper byte. */
RD_INLINE v_uint16 round_to_byte(v_uint16 half, int place, uint16_t infinity, struct rd_float8 type, bool exact)
{
    v_uint16 given = half & 0x7fff, magnitude = given;
    if (!exact) magnitude = given + (uint16_t)((1 << (place - 1)) - 1) + ((given >> place) & 1);
    int16_t limit = (int16_t)((exact ? type.infinity : type.largest) << place);
    magnitude = (v_uint16)min_int16((v_int16)magnitude, (v_int16){0} + limit) << (8 - place);
    return replace_above_uint16(magnitude | (half & RD_SIGN), given, infinity, (uint16_t)(type.nan << 8));
}
RD_INLINE v_uint8 join_bytes(v_uint16 even, v_uint16 odd) { return (v_uint8)((even >> 8) | (odd & 0xff00)); }

/* Lanes 0 and 2: lower and upper half of the even elements, 1 and 3: of the odd ones. */
RD_INLINE void load_float8(const unsigned char *from, v_float32 to[4], struct rd_float8 type)
{
    v_uint16 even, odd;
    spread(load_vector(from), type.half_place, RD_HALF_INFINITY, type, &even, &odd);
    halves_to_floats(even, &to[0], &to[2]);
    halves_to_floats(odd, &to[1], &to[3]);
    for (int i = 0; i < 4; i++) to[i] *= 1 / type.half_scale;
}
RD_INLINE void pack_float8(const v_float32 from[4], v_uint8 to[4], struct rd_float8 type, bool exact)
{
    v_float32 lane[4]; /* 17: within a float16 even where float8's smallest number is the result */
    for (int i = 0; i < 4; i++) lane[i] = join_low_bits(from[i] * type.half_scale, 17, exact);
    v_uint16 even = floats_to_halves(lane[0], lane[2], true), odd = floats_to_halves(lane[1], lane[3], true);
    to[0] = join_bytes(round_to_byte(even, type.half_place, RD_HALF_INFINITY, type, exact),
                       round_to_byte(odd, type.half_place, RD_HALF_INFINITY, type, exact));
}

/* Lanes 0 and 2: every other even element, 1 and 3: of the odd ones. */
RD_INLINE void load_aligned(const unsigned char *from, v_float32 to[4], struct rd_float8 type)
{
    v_uint16 half[2];
    spread(load_vector(from), type.aligned_place, RD_FLOAT_INFINITY, type, &half[0], &half[1]);
    for (int i = 0; i < 2; i++) {
        to[i] = (v_float32)((v_uint32)half[i] << 16);
        to[i + 2] = (v_float32)((v_uint32)half[i] & 0xffff0000);
    }
}
RD_INLINE void pack_aligned(const v_float32 from[4], v_uint8 to[4], struct rd_float8 type, bool exact)
{
    v_uint16 byte[2];
    for (int i = 0; i < 2; i++) {
        v_uint32 low = (v_uint32)join_low_bits(from[i], 16, exact),
                 high = (v_uint32)join_low_bits(from[i + 2], 16, exact);
        byte[i] = (v_uint16)((low >> 16) | (high & 0xffff0000));
        byte[i] = round_to_byte(byte[i], type.aligned_place, RD_FLOAT_INFINITY, type, exact);
    }
    to[0] = join_bytes(byte[0], byte[1]);
}

#define RD_FLOAT8(name, type)                                                                                          \
    RD_INLINE void load_##name(const unsigned char *from, v_float32 to[4]) { load_float8(from, to, type); }            \
    RD_INLINE void load_aligned_##name(const unsigned char *from, v_float32 to[4]) { load_aligned(from, to, type); }   \
    RD_INLINE void pack_##name(const v_float32 from[4], v_uint8 to[4], bool exact)                                     \
    {                                                                                                                  \
        pack_float8(from, to, type, exact);                                                                            \
    }                                                                                                                  \
    RD_INLINE void pack_aligned_##name(const v_float32 from[4], v_uint8 to[4], bool exact)                             \
    {                                                                                                                  \
        pack_aligned(from, to, type, exact);                                                                           \
    }
RD_FLOAT8(float8e4m3, e4m3)
RD_FLOAT8(float8e5m2, e5m2)
#define order_float8e4m3 order_bfloat16
#define lanes_float8e4m3 lanes_bfloat16
#define order_float8e5m2 order_bfloat16
#define lanes_float8e5m2 lanes_bfloat16

#endif
