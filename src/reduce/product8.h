/* SPDX-License-Identifier: Apache-2.0
 *
 * product8.h - products of two float8 by their bits. A magnitude is nearly a logarithm: exponents add, and so do
 * fractions but for a rest, since (1 + x) (1 + y) is 1 + x + y + xy, or half of that and one exponent more. Rounded to
 * the few bits of a float8's fraction the rest is 0 or 1 in the last place. So the product of two magnitudes is their
 * sum less the bias, and one more for some pairs of fractions, which a table has: in row x, bit y.
 */
#ifndef RD_REDUCE_PRODUCT8_H
#define RD_REDUCE_PRODUCT8_H

#include "reduce/float8.h"

#if RD_VECTOR_BYTES > 16
/* table[index], of at most 8. */
RD_INLINE v_uint8 look_up(const uint8_t table[8], v_uint8 index)
{
    uint64_t eight;
    memcpy(&eight, table, sizeof eight);
    return (v_uint8)RD_X86(shuffle_epi8)((rd_x86_integer)((v_uint64){0} + eight), (rd_x86_integer)index);
}
RD_INLINE v_uint8 is_zero(v_uint8 a)
{
#if RD_VECTOR_BYTES == 64
    return (v_uint8)_mm512_movm_epi8(_mm512_testn_epi8_mask((__m512i)a, (__m512i)a));
#else
    return (v_uint8)(a == 0);
#endif
}

/* false: not what has been said, as a factor or a product is subnormal, infinite or NaN. */
RD_INLINE bool multiply_float8(v_uint8 a, v_uint8 b, struct rd_float8 type, v_uint8 *product)
{
    static const uint8_t bit[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    const uint8_t normal = (uint8_t)(1 << type.fraction_bits), fraction = normal - 1; /* normal: the smallest such */
    v_uint8 x = a & 0x7f, y = b & 0x7f, bias = (v_uint8){0} + type.bias, largest = {0};
    largest += (uint8_t)type.largest;
    v_uint8 smaller = min_uint8(x, y), zero = is_zero(smaller);
    v_uint8 as_it_is = is_zero(look_up(type.one_more, x & fraction) & look_up(bit, y & fraction)); /* 0 or -1 */
    v_uint8 sum = max_uint8(x + y + 1 + as_it_is, bias) - bias;
    *product = (~zero & min_uint8(sum, largest)) | ((a ^ b) & 0x80);
    return !any_above(max_uint8(x, y), RD_FIXED(uint8, type.fixed->largest)) &&
           !any_less(min_uint8(smaller, sum) | zero, normal);
}
#else
RD_INLINE bool multiply_float8(v_uint8 a, v_uint8 b, struct rd_float8 type, v_uint8 *product)
{
    (void)a, (void)b, (void)type, (void)product;
    return false; /* no table look-ups */
}
#endif
#define RD_MULTIPLY(name, type)                                                                                        \
    RD_INLINE bool multiply_##name(v_uint8 a, v_uint8 b, v_uint8 *to)                                                  \
    {                                                                                                                  \
        return multiply_float8(a, b, type, to);                                                                        \
    }
RD_MULTIPLY(float8e4m3, e4m3)
RD_MULTIPLY(float8e5m2, e5m2)

#endif
