/* SPDX-License-Identifier: Apache-2.0
 *
 * sum8.h - sums and averages of two float8 by look-ups. The tables, and why that works: tables8.h.
 */
#ifndef RD_REDUCE_SUM8_H
#define RD_REDUCE_SUM8_H

#include "reduce/float8.h"
#include "reduce/tables8.h"

#if RD_VECTOR_BYTES == 64
#define RD_LOOKS_UP 1
struct rd_sums8 {
    v_uint8 log[2], whole[2], rest[2], below[2], above[2], magnitude[2], first;
};
_Static_assert(sizeof(struct rd_sums8) == sizeof(struct rd_tables8), "the same tables, in registers");

RD_INLINE v_uint8 look_up_128(const v_uint8 table[2], v_uint8 index)
{
    return (v_uint8)_mm512_permutex2var_epi8((__m512i)table[0], (__m512i)index, (__m512i)table[1]);
}

/* From RD_LOG_LEAST on, the logarithms of subnormal averages: those that are rounded to a magnitude once more, which
 * for divisors up to 4 that are powers of two does no harm. */
RD_INLINE uint8_t rounded_twice(int divisor, struct rd_float8 type)
{
    bool harmless = divisor <= 2 || divisor == 4;
    return harmless ? 0 : RD_LOG_OF_ONE - RD_LOG_LEAST + (uint8_t)((type.fraction_bits - 1) << type.fraction_bits);
}

/* Each look-up waits for the one before it, so two vectors take turns. */
#define RD_BOTH for (int i = 0; i < 2; i++)

/* The sums of two vectors, divided by the tables' divisor. false: an infinity, a NaN, or an average rounded twice. */
RD_INLINE bool add_float8(const unsigned char *first, const unsigned char *second, const struct rd_sums8 *by,
                          struct rd_float8 type, uint8_t twice, v_uint8 to[2])
{
    const uint8_t unit = (uint8_t)(1 << type.fraction_bits), least = RD_LOG_OF_ONE + (type.fraction_bits - 2) * unit;
    v_uint8 a[2], b[2], x[2], y[2], larger[2], end[2], term[2], rest[2], sum[2], log[2], largest = {0}, none = {0};
    largest += (uint8_t)type.largest, none += RD_LOG_OF_NONE;
    RD_BOTH a[i] = load_vector(first + i * RD_VECTOR_BYTES);
    RD_BOTH b[i] = load_vector(second + i * RD_VECTOR_BYTES);
    RD_BOTH x[i] = look_up_128(by->log, a[i]);
    RD_BOTH y[i] = look_up_128(by->log, b[i]);
    RD_BOTH larger[i] = max_uint8(x[i], y[i]);
    RD_BOTH end[i] = larger[i] | (uint8_t)(unit - 1);
    RD_BOTH term[i] = min_uint8(end[i] - min_uint8(x[i], y[i]), (v_uint8){0} + 63);
    RD_BOTH term[i] |= (v_uint8)((v_uint16)(a[i] ^ b[i]) >> 1) & 0x40; /* signs differ */
    RD_BOTH sum[i] = look_up_128(by->whole, term[i]);
    RD_BOTH rest[i] = look_up_128(by->rest, term[i]);
    RD_BOTH sum[i] += (v_uint8)_mm512_permutexvar_epi8((__m512i)larger[i], (__m512i)by->first);
    RD_BOTH x[i] = look_up_128(by->below, sum[i]);
    RD_BOTH y[i] = look_up_128(by->above, sum[i]);
    RD_BOTH log[i] = (v_uint8)_mm512_subs_epu8((__m512i)end[i], (__m512i)x[i]);
    RD_BOTH
    {
        __mmask64 more = _mm512_cmpgt_epu8_mask((__m512i)rest[i], (__m512i)y[i]);
        log[i] = (v_uint8)_mm512_mask_sub_epi8((__m512i)log[i], more, (__m512i)log[i], (__m512i)none); /* 255 is -1 */
    }
    RD_BOTH x[i] = (v_uint8)_mm512_subs_epu8((__m512i)log[i], _mm512_set1_epi8((char)least)); /* of normal results */
    RD_BOTH y[i] = look_up_128(by->magnitude, log[i]); /* of small ones; of larger ones less than x */
    RD_BOTH to[i] = min_uint8(max_uint8(x[i], y[i]), largest) | signs_of_two(a[i], b[i]);

    __mmask64 rare = _mm512_cmpeq_epi8_mask((__m512i)max_uint8(larger[0], larger[1]), (__m512i)none);
    if (twice > 0) {
        v_uint8 lowest = min_uint8(log[0] - RD_LOG_LEAST, log[1] - RD_LOG_LEAST);
        rare |= _mm512_cmplt_epu8_mask((__m512i)lowest, (__m512i)((v_uint8){0} + twice));
    }
    return rare == 0;
}
#undef RD_BOTH
#define RD_ADD_FLOAT8(name, type)                                                                                      \
    RD_INLINE uint8_t twice_##name(int divisor) { return rounded_twice(divisor, type); }                               \
    RD_INLINE bool add_##name(const unsigned char *first, const unsigned char *second, const struct rd_sums8 *by,      \
                              uint8_t twice, v_uint8 to[2])                                                            \
    {                                                                                                                  \
        return add_float8(first, second, by, type, twice, to);                                                         \
    }
RD_ADD_FLOAT8(float8e4m3, e4m3)
RD_ADD_FLOAT8(float8e5m2, e5m2)
#else
#define RD_LOOKS_UP 0
#endif

#endif
