/* SPDX-License-Identifier: Apache-2.0
 *
 * float8.h - the 8-bit float types: from memory to lanes of float32 and back, in two ways.
 *
 * By way of float16. e5m2 is the upper byte of a float16. e4m3's seven magnitude bits, one place lower, are a float16
 * that is 2^-8 times as large, subnormals included (exponent biases 7 and 15).
 *
 * Aligned, for sums. Put at the upper end of a float32's fraction and the lower end of its exponent,
 * the magnitude bits are a float32 that is 2^-120 (e4m3) or 2^-112 (e5m2) times as large, and what is subnormal in one
 * is so in the other. All lanes being smaller by the same power of two, sums of them are rounded at the same places: a
 * sum that is subnormal is exact in both, for it is a multiple of float8's smallest number. This needs no conversions,
 * but products and quotients would lose bits, and processors that slow down for subnormals do so for these, not for
 * sums. Infinities and NaN have no such form: a step that meets one takes the way of float16.
 *
 * Quotients of aligned sums without a division, and without a product that is subnormal or has a subnormal factor: a
 * sum's magnitude s is lifted by C, a power of two of at least n * 2^-126; (s + C) r, where r is a little more than 1/n,
 * is a normal number, and C r is taken away from it. So a quotient comes out up to 12 units of its last place too large,
 * never too small. That is enough to round it to a float8. If it is the middle between two results it lies less than 16
 * units above that, and it alone: s and n times the middle are multiples of the same number, unless s uses its last 5
 * bits, and so another quotient is at least 16 units away. If s uses them, which takes terms that are 2^19 times as large
 * as others, the step takes the way of float16. This holds up to RD_MOST_QUOTIENT.
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
    int fraction_bits;
    int half_place, aligned_place; /* of the lowest magnitude bit in a float16, and in the upper half of a float32 */
    uint16_t largest, infinity, nan; /* bytes; infinity: the largest that a maximum may be */
    float half_scale;                /* of a float16 so made */
    uint8_t bias, one_more[8];       /* of products: product8.h */
    const struct rd_constants8 *fixed;
};
/* clang-format off */
static const struct rd_float8 e4m3 = {3, 7, 4, 0x7e, 0x7e, 0x7f, 0x1p-8f, 7 << 3,
                                      {0, 0x70, 0x78, 0x7c, 0x3e, 0x3e, 0x0e, 0}, &rd_constants_e4m3};
static const struct rd_float8 e5m2 = {2, 8, 5, 0x7b, 0x7c, 0x7e, 1, 15 << 2, {0, 0x04, 0x02, 0}, &rd_constants_e5m2};
/* clang-format on */

RD_INLINE bool any_above(v_uint8 magnitude, v_uint8 limit)
{
#if RD_VECTOR_BYTES == 64
    return _mm512_cmpgt_epi8_mask((__m512i)magnitude, (__m512i)limit) != 0;
#elif RD_VECTOR_BYTES == 32
    return _mm256_movemask_epi8(_mm256_cmpgt_epi8((__m256i)magnitude, (__m256i)limit)) != 0;
#else
    return any_bit((v_uint64)((v_int8)magnitude > (v_int8)limit));
#endif
}

RD_INLINE bool any_less(v_uint8 a, uint8_t limit)
{
    v_uint8 least = (v_uint8){0} + limit;
#if RD_VECTOR_BYTES == 64
    return _mm512_cmplt_epu8_mask((__m512i)a, (__m512i)least) != 0;
#elif RD_VECTOR_BYTES == 32
    return (unsigned)_mm256_movemask_epi8((__m256i)(max_uint8(a, least) == a)) != 0xffffffff;
#else
    return any_bit((v_uint64)(a < least));
#endif
}

/* The even bytes, with their signs, as 16 bits each, shifted left by `place`. */
RD_INLINE v_uint16 even_bytes(v_uint8 bytes, int place)
{
#if RD_VECTOR_BYTES > 16 /* multiplied, as there are more shifts than the processors have units for; 256 is no byte */
    rd_x86_integer factors = (rd_x86_integer)((v_uint16){0} + (uint16_t)(1 << place));
    if (place < 8) return (v_uint16)RD_X86(maddubs_epi16)(factors, (rd_x86_integer)bytes);
#endif
    return (v_uint16)((v_int16)((v_uint16)bytes << 8) >> (8 - place));
}
/* Bytes to 16 bits each, the magnitude's lowest bit at `place`. */
RD_INLINE void spread(v_uint8 bytes, int place, v_uint16 *even, v_uint16 *odd)
{
    uint16_t keep = (uint16_t)(RD_SIGN | 0x7f << place);
    *even = even_bytes(bytes, place) & keep;
    *odd = (v_uint16)((v_int16)bytes >> (8 - place)) & keep;
}

/* Bits 0 to bit - 1 joined into `bit`. */
RD_INLINE v_float32 join_low_bits(v_float32 value, int bit, bool exact)
{
    v_uint32 bits = (v_uint32)value;
    uint32_t low = (1u << bit) - 1;
    return exact ? value : (v_float32)(bits | (((bits & low) + low) & (low + 1)));
}

/* And back: the bits above the half's place, rounded, as the upper byte. */
RD_INLINE v_uint16 round_to_byte(v_uint16 half, struct rd_float8 type, bool exact)
{
    int place = type.half_place;
    v_uint16 given = half & 0x7fff, magnitude = given;
    if (!exact) magnitude = given + (uint16_t)((1 << (place - 1)) - 1) + ((given >> place) & 1);
    int16_t limit = (int16_t)((exact ? type.infinity : type.largest) << place);
    magnitude = (v_uint16)min_int16((v_int16)magnitude, (v_int16){0} + limit) << (8 - place);
    return replace_above_uint16(magnitude | (half & RD_SIGN), given, RD_HALF_INFINITY, (uint16_t)(type.nan << 8));
}
RD_INLINE v_uint8 join_bytes(v_uint16 even, v_uint16 odd) { return (v_uint8)((even >> 8) | (odd & 0xff00)); }

/* Lanes 0 and 2: lower and upper half of the even elements, 1 and 3: of the odd ones. */
RD_INLINE void load_float8(const unsigned char *from, v_float32 to[4], struct rd_float8 type)
{
    v_uint8 bytes = load_vector(from);
    v_uint16 even, odd;
    spread(bytes, type.half_place, &even, &odd);
    if (__builtin_expect(any_above(bytes & 0x7f, RD_FIXED(uint8, type.fixed->largest)), 0)) {
        /* infinities and NaN get all exponent bits */
        v_int16 largest = (v_int16){0} + (int16_t)(type.largest << type.half_place);
        even |= (v_uint16)((v_int16)(even & 0x7fff) > largest) & RD_HALF_INFINITY;
        odd |= (v_uint16)((v_int16)(odd & 0x7fff) > largest) & RD_HALF_INFINITY;
    }
    halves_to_floats(even, &to[0], &to[2]);
    halves_to_floats(odd, &to[1], &to[3]);
    for (int i = 0; i < 4; i++) to[i] *= 1 / type.half_scale;
}
RD_INLINE void pack_float8(const v_float32 from[4], v_uint8 to[4], struct rd_float8 type, bool exact)
{
    v_float32 lane[4]; /* 17: within a float16 even where float8's smallest number is the result */
    for (int i = 0; i < 4; i++) lane[i] = join_low_bits(from[i] * type.half_scale, 17, exact);
    v_uint16 even = floats_to_halves(lane[0], lane[2], true), odd = floats_to_halves(lane[1], lane[3], true);
    to[0] = join_bytes(round_to_byte(even, type, exact), round_to_byte(odd, type, exact));
}

/* Lanes 0 and 2: every other even element, 1 and 3: of the odd ones. */
RD_INLINE void load_aligned(const unsigned char *from, v_float32 to[4], struct rd_float8 type)
{
    v_uint16 half[2], keep = RD_FIXED(uint16, type.fixed->keep);
    v_uint8 bytes = load_vector(from);
#if RD_VECTOR_BYTES > 16
    half[0] =
        (v_uint16)RD_X86(maddubs_epi16)((rd_x86_integer)RD_FIXED(uint16, type.fixed->factor), (rd_x86_integer)bytes);
#else
    half[0] = even_bytes(bytes, type.aligned_place);
#endif
    half[1] = (v_uint16)((v_int16)bytes >> (8 - type.aligned_place));
    for (int i = 0; i < 2; i++) {
        half[i] &= keep;
        to[i] = (v_float32)((v_uint32)half[i] << 16);
        to[i + 2] = (v_float32)((v_uint32)half[i] & RD_FIXED(uint32, rd_constants.upper32));
    }
}
/* The half of a rounded sum. Up to twice the smallest normal number a magnitude is how many times the smallest of all
 * numbers it is, which is halved as such; from there on, half a number is one exponent less. The larger of the two is
 * right, even where the former is that of the last four bits only, as looked up. */
RD_INLINE v_uint8 halve(v_uint8 magnitude, struct rd_float8 type)
{
#if RD_VECTOR_BYTES == 32
    const v_uint64 halves = {0x0403020202010000, 0x0807060606050404, 0x0403020202010000, 0x0807060606050404};
    return max_uint8((v_uint8)_mm256_shuffle_epi8((__m256i)halves, (__m256i)magnitude),
                     (v_uint8)_mm256_subs_epu8((__m256i)magnitude, (__m256i)RD_FIXED(uint8, type.fixed->unit)));
#else
    uint8_t exponent = (uint8_t)(1 << type.fraction_bits);
    v_uint8 half = (v_uint8)((v_uint16)magnitude >> 1) & 0x7f, less = max_uint8(magnitude, (v_uint8){0} + exponent);
    return max_uint8(half + (magnitude & half & 1), less - exponent);
#endif
}

/* By what sums are divided so; those of two terms, which are rounded by fewer bits, by less. */
#define RD_MOST_QUOTIENT        4096
#define RD_MOST_QUOTIENT_OF_TWO 10
enum rd_division { RD_AS_IT_IS, RD_HALVED, RD_DIVIDED };

RD_INLINE struct rd_quotient rd_quotient_of(int n)
{
    float lift = 0x1p-126f, factor = (float)((1 + 0x3p-23) / n);
    for (int power = 1; power < n; power *= 2) lift *= 2;
    return (struct rd_quotient){lift, factor, lift * factor - 0x1p-148f};
}

/* Magnitudes of quotients, a little too large. false: rounded as they are they might be wrong. */
RD_INLINE bool divide_aligned(const v_float32 sum[4], v_float32 to[4], struct rd_quotient by, bool two)
{
    v_uint32 used = {0};
    for (int i = 0; i < 4; i++) {
        used |= (v_uint32)sum[i];
        v_float32 magnitude = (v_float32)((v_uint32)sum[i] & RD_FIXED(uint32, rd_constants.magnitude32));
        to[i] = (magnitude + by.lift) * by.factor - by.drop;
    }
    return two || !any_bit_of(used, RD_FIXED(uint32, rd_constants.last_bits32));
}

/* Of the magnitude, which may be above the largest, the upper byte of 16 bits is kept and the lower one rounds it. What
 * is below those 16 bits, joined into one, can only decide a sum of more than two: one of two is then the middle
 * between two results or differs from it by more, and so is its quotient by a small number (tests/test_reduce_narrow.c
 * has every pair). */
struct rd_rounding {
    bool two, halved;
    const uint16_t *near; /* what is so little above the middle is the middle; NULL: nothing */
};
RD_INLINE void pack_aligned(const v_float32 from[4], v_uint8 sign, v_uint8 to[4], struct rd_float8 type,
                            struct rd_rounding how)
{
    int above = 8 - type.aligned_place;
    v_uint16 magnitude[2];
    for (int i = 0; i < 2; i++) {
        v_uint32 low = (v_uint32)from[i], high = (v_uint32)from[i + 2];
        if (how.two)
            magnitude[i] = alternate(low >> (16 - above), high << above);
        else
            magnitude[i] = upper_halves(low, high) << above | is_above(lower_halves(low, high), how.near);
    }
    v_uint8 kept = alternate_bytes(magnitude[0] >> 8, magnitude[1]);
    kept = round_up_uint8(kept, alternate_bytes(magnitude[0], magnitude[1] << 8), RD_FIXED(uint8, rd_constants.one8));
    if (how.halved) kept = halve(kept, type);
    kept = min_uint8(kept, RD_FIXED(uint8, type.fixed->largest));
    to[0] = kept | sign;
}

/* The signs of sums in the order of memory: as the sums have them, or as the two terms tell. Those say negative where the
 * lesser is, and the greater is not, or its magnitude is less, so that they are less than 128 apart. */
RD_INLINE v_uint8 signs_of_sums(const v_float32 sum[4])
{
    v_uint16 even = upper_halves((v_uint32)sum[0], (v_uint32)sum[2]);
    v_uint16 odd = upper_halves((v_uint32)sum[1], (v_uint32)sum[3]);
    return alternate_bytes(even >> 8, odd) & RD_FIXED(uint8, rd_constants.sign8);
}
RD_INLINE v_uint8 signs_of_two(v_uint8 a, v_uint8 b)
{
    v_uint8 lesser = (v_uint8)min_int8((v_int8)a, (v_int8)b), greater = (v_uint8)max_int8((v_int8)a, (v_int8)b);
    v_uint8 sign = lesser & RD_FIXED(uint8, rd_constants.sign8);
#if RD_VECTOR_BYTES == 32
    return (v_uint8)_mm256_andnot_si256((__m256i)(greater - lesser), (__m256i)sign);
#else
    return sign & ~(greater - lesser);
#endif
}

/* false: as divide_aligned. */
RD_INLINE bool pack_sum_aligned(const v_float32 sum[4], v_uint8 sign, v_uint8 to[4], struct rd_float8 type, bool two,
                                enum rd_division division, struct rd_quotient by)
{
    v_float32 quotient[4];
    if (division != RD_DIVIDED)
        pack_aligned(sum, sign, to, type, (struct rd_rounding){.two = two, .halved = division == RD_HALVED});
    else if (divide_aligned(sum, quotient, by, two))
        pack_aligned(quotient, sign, to, type, (struct rd_rounding){.two = two, .near = rd_constants.near16});
    else
        return false;
    return true;
}

#define RD_FLOAT8(name, type)                                                                                          \
    RD_INLINE void load_##name(const unsigned char *from, v_float32 to[4])                                             \
    {                                                                                                                  \
        load_float8(from, to, type);                                                                                   \
    }                                                                                                                  \
    RD_INLINE void load_aligned_##name(const unsigned char *from, v_float32 to[4])                                     \
    {                                                                                                                  \
        load_aligned(from, to, type);                                                                                  \
    }                                                                                                                  \
    RD_INLINE bool special_##name(v_uint8 magnitude)                                                                   \
    {                                                                                                                  \
        return any_above(magnitude, RD_FIXED(uint8, type.fixed->largest));                                             \
    }                                                                                                                  \
    RD_INLINE void pack_##name(const v_float32 from[4], v_uint8 to[4], bool exact)                                     \
    {                                                                                                                  \
        pack_float8(from, to, type, exact);                                                                            \
    }                                                                                                                  \
    RD_INLINE bool pack_aligned_##name(const v_float32 sum[4], v_uint8 sign, v_uint8 to[4], bool two,                  \
                                       enum rd_division division, struct rd_quotient by)                               \
    {                                                                                                                  \
        return pack_sum_aligned(sum, sign, to, type, two, division, by);                                               \
    }
RD_FLOAT8(float8e4m3, e4m3)
RD_FLOAT8(float8e5m2, e5m2)
#define order_float8e4m3 order_bfloat16
#define lanes_float8e4m3 lanes_bfloat16
#define order_float8e5m2 order_bfloat16
#define lanes_float8e5m2 lanes_bfloat16

#endif
