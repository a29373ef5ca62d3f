/* SPDX-License-Identifier: Apache-2.0
 *
 * vector.h - one vector of each element type, RD_VECTOR_BYTES (16, 32 or 64) long, and the operators on it.
 *
 * Written with the vector types that gcc and clang share, so that the portable level is vector code on every processor;
 * intrinsics stand only where the compilers would need more instructions for the same bits.
 */
#ifndef RD_REDUCE_VECTOR_H
#define RD_REDUCE_VECTOR_H

#include "reduce/constants.h"

#include "rondo.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#define RD_INLINE static inline __attribute__((always_inline))
#define RD_VECTOR __attribute__((vector_size(RD_VECTOR_BYTES)))
#define RD_LINE 64 /* bytes of a cache line */

typedef int8_t v_int8 RD_VECTOR;
typedef uint8_t v_uint8 RD_VECTOR;
typedef int16_t v_int16 RD_VECTOR;
typedef uint16_t v_uint16 RD_VECTOR;
typedef int32_t v_int32 RD_VECTOR;
typedef uint32_t v_uint32 RD_VECTOR;
typedef int64_t v_int64 RD_VECTOR;
typedef uint64_t v_uint64 RD_VECTOR;
typedef float v_float32 RD_VECTOR;
typedef double v_float64 RD_VECTOR;

/* RD_X86(add_epi8): the intrinsic of this vector length. */
#if RD_VECTOR_BYTES == 64
#define RD_X86(name) _mm512_##name
typedef __m512i rd_x86_integer;
#elif RD_VECTOR_BYTES == 32
#define RD_X86(name) _mm256_##name
typedef __m256i rd_x86_integer;
#elif defined(__x86_64__)
#define RD_X86(name) _mm_##name
typedef __m128i rd_x86_integer;
#endif

#define RD_SELECT(mask, yes, no) (((mask) & (yes)) | (~(mask) & (no))) /* all of one integer type */

RD_INLINE v_uint8 load_vector(const unsigned char *from)
{
    v_uint8 vector;
    memcpy(&vector, from, sizeof vector);
    return vector;
}
#define RD_FIXED(type, array) ((v_##type)load_vector((const unsigned char *)(array))) /* of constants.h */

/* ---- Maximum and minimum ------------------------------------------------------------------------------------- */

#define RD_ORDER_X86(type, suffix)                                                                                     \
    RD_INLINE v_##type max_##type(v_##type a, v_##type b)                                                              \
    {                                                                                                                  \
        return (v_##type)RD_X86(max_##suffix)((rd_x86_integer)a, (rd_x86_integer)b);                                   \
    }                                                                                                                  \
    RD_INLINE v_##type min_##type(v_##type a, v_##type b)                                                              \
    {                                                                                                                  \
        return (v_##type)RD_X86(min_##suffix)((rd_x86_integer)a, (rd_x86_integer)b);                                   \
    }
#define RD_ORDER_ANY(type)                                                                                             \
    RD_INLINE v_##type max_##type(v_##type a, v_##type b)                                                              \
    {                                                                                                                  \
        v_##type greater = (v_##type)(a > b);                                                                          \
        return RD_SELECT(greater, a, b);                                                                               \
    }                                                                                                                  \
    RD_INLINE v_##type min_##type(v_##type a, v_##type b)                                                              \
    {                                                                                                                  \
        v_##type less = (v_##type)(a < b);                                                                             \
        return RD_SELECT(less, a, b);                                                                                  \
    }

#if RD_VECTOR_BYTES > 16
RD_ORDER_X86(int8, epi8)
RD_ORDER_X86(uint8, epu8)
RD_ORDER_X86(int32, epi32)
RD_ORDER_X86(uint32, epu32)
RD_ORDER_X86(uint16, epu16)
#else
RD_ORDER_ANY(int8)
RD_ORDER_ANY(uint8)
RD_ORDER_ANY(int32)
RD_ORDER_ANY(uint32)
RD_ORDER_ANY(uint16)
#endif
#if RD_VECTOR_BYTES == 64
RD_ORDER_X86(int64, epi64)
RD_ORDER_X86(uint64, epu64)
#else
RD_ORDER_ANY(int64)
RD_ORDER_ANY(uint64)
#endif
#ifdef __x86_64__
RD_ORDER_X86(int16, epi16)
#else
RD_ORDER_ANY(int16)
#endif

/* Floats: a NaN wins, +0 > -0. `nan` is all ones where one of the two is a NaN: or-ing it in makes the lane a NaN.
 * The processors' max and min give the second operand when both are zeros; taking them both ways round and joining
 * the bits (and: the sign stays only if both have it; or: if one has it) settles the sign. AVX-512's range does that
 * itself: 5 asks for the maximum, 4 for the minimum, with the sign of what it chose. */
#if RD_VECTOR_BYTES == 64
#define RD_ORDER_FLOAT(type, suffix)                                                                                   \
    RD_INLINE v_##type range_##type(v_##type ranged, v_##type a, v_##type b)                                           \
    {                                                                                                                  \
        return _mm512_mask_mov_##suffix(ranged, _mm512_cmp_##suffix##_mask(a, b, _CMP_UNORD_Q), a + b);                \
    }                                                                                                                  \
    RD_INLINE v_##type max_##type(v_##type a, v_##type b)                                                              \
    {                                                                                                                  \
        return range_##type(_mm512_range_##suffix(a, b, 5), a, b);                                                     \
    }                                                                                                                  \
    RD_INLINE v_##type min_##type(v_##type a, v_##type b)                                                              \
    {                                                                                                                  \
        return range_##type(_mm512_range_##suffix(a, b, 4), a, b);                                                     \
    }
RD_ORDER_FLOAT(float32, ps)
RD_ORDER_FLOAT(float64, pd)
#elif RD_VECTOR_BYTES == 32
#define RD_ORDER_FLOAT(type, bits, suffix)                                                                             \
    RD_INLINE v_##type max_##type(v_##type a, v_##type b)                                                              \
    {                                                                                                                  \
        bits nan = (bits)_mm256_cmp_##suffix(a, b, _CMP_UNORD_Q);                                                      \
        return (v_##type)(((bits)_mm256_max_##suffix(a, b) & (bits)_mm256_max_##suffix(b, a)) | nan);                  \
    }                                                                                                                  \
    RD_INLINE v_##type min_##type(v_##type a, v_##type b)                                                              \
    {                                                                                                                  \
        bits nan = (bits)_mm256_cmp_##suffix(a, b, _CMP_UNORD_Q);                                                      \
        return (v_##type)((bits)_mm256_min_##suffix(a, b) | (bits)_mm256_min_##suffix(b, a) | nan);                    \
    }
RD_ORDER_FLOAT(float32, v_uint32, ps)
RD_ORDER_FLOAT(float64, v_uint64, pd)
#else
#define RD_ORDER_FLOAT(type, bits)                                                                                     \
    RD_INLINE v_##type max_##type(v_##type a, v_##type b)                                                              \
    {                                                                                                                  \
        bits x = (bits)a, y = (bits)b, nan = (bits)(a != a) | (bits)(b != b);                                          \
        bits one = (bits)(a > b), two = (bits)(b > a);                                                                 \
        return (v_##type)((RD_SELECT(one, x, y) & RD_SELECT(two, y, x)) | nan);                                        \
    }                                                                                                                  \
    RD_INLINE v_##type min_##type(v_##type a, v_##type b)                                                              \
    {                                                                                                                  \
        bits x = (bits)a, y = (bits)b, nan = (bits)(a != a) | (bits)(b != b);                                          \
        bits one = (bits)(a < b), two = (bits)(b < a);                                                                 \
        return (v_##type)(RD_SELECT(one, x, y) | RD_SELECT(two, y, x) | nan);                                          \
    }
RD_ORDER_FLOAT(float32, v_uint32)
RD_ORDER_FLOAT(float64, v_uint64)
#endif

/* ---- NaN ----------------------------------------------------------------------------------------------------- */

/* Which NaN a processor makes of two depends on their order and on the instruction: every one that is stored is made
 * the same, quiet and without sign. They are rare, so a step first asks whether it has any: an unordered comparison
 * looks at two vectors at once. */
#if RD_VECTOR_BYTES == 64
#define RD_ANY_NAN(suffix, a) \
    (_mm512_cmp_##suffix##_mask(a[0], a[1], _CMP_UNORD_Q) | _mm512_cmp_##suffix##_mask(a[2], a[3], _CMP_UNORD_Q))
RD_INLINE bool any_nan_float32(const v_float32 a[4]) { return RD_ANY_NAN(ps, a) != 0; }
RD_INLINE bool any_nan_float64(const v_float64 a[4]) { return RD_ANY_NAN(pd, a) != 0; }
#elif RD_VECTOR_BYTES == 32
#define RD_ANY_NAN(suffix, a)                                                                                          \
    _mm256_movemask_##suffix(_mm256_or_##suffix(_mm256_cmp_##suffix(a[0], a[1], _CMP_UNORD_Q),                         \
                                                _mm256_cmp_##suffix(a[2], a[3], _CMP_UNORD_Q)))
RD_INLINE bool any_nan_float32(const v_float32 a[4]) { return RD_ANY_NAN(ps, a) != 0; }
RD_INLINE bool any_nan_float64(const v_float64 a[4]) { return RD_ANY_NAN(pd, a) != 0; }
#else
#define RD_ANY_NAN(bits, a) ((bits)(a[0] != a[0]) | (bits)(a[1] != a[1]) | (bits)(a[2] != a[2]) | (bits)(a[3] != a[3]))
RD_INLINE bool any_bit(v_uint64 a) { return (a[0] | a[1]) != 0; }
RD_INLINE bool any_nan_float32(const v_float32 a[4]) { return any_bit((v_uint64)RD_ANY_NAN(v_uint32, a)); }
RD_INLINE bool any_nan_float64(const v_float64 a[4]) { return any_bit(RD_ANY_NAN(v_uint64, a)); }
#endif

/* Whether any lane has one of these bits. */
RD_INLINE bool any_bit_of(v_uint32 a, v_uint32 bits)
{
#if RD_VECTOR_BYTES == 64
    return _mm512_test_epi32_mask((__m512i)a, (__m512i)bits) != 0;
#elif RD_VECTOR_BYTES == 32
    return !_mm256_testz_si256((__m256i)a, (__m256i)bits);
#else
    return any_bit((v_uint64)(a & bits));
#endif
}

#define RD_CANONICAL_NAN(type, bits, nan)                                                                              \
    RD_INLINE void settle_##type(v_##type a[4])                                                                        \
    {                                                                                                                  \
        if (__builtin_expect(any_nan_##type(a), 0))                                                                    \
            for (int i = 0; i < 4; i++) {                                                                              \
                bits is_nan = (bits)(a[i] != a[i]);                                                                    \
                a[i] = (v_##type)RD_SELECT(is_nan, (bits){0} + (nan), (bits)a[i]);                                     \
            }                                                                                                          \
    }
RD_CANONICAL_NAN(float32, v_uint32, 0x7fc00000u)
RD_CANONICAL_NAN(float64, v_uint64, 0x7ff8000000000000u)

/* value, and `with` where magnitude (one bit less than the element) is above limit. */
#if RD_VECTOR_BYTES == 64
#define RD_REPLACE_ABOVE(bits, scalar, suffix)                                                                         \
    RD_INLINE v_u##bits replace_above_u##bits(v_u##bits value, v_u##bits magnitude, unsigned limit, unsigned with)     \
    {                                                                                                                  \
        __m512i than = _mm512_set1_##suffix((scalar)limit), other = _mm512_set1_##suffix((scalar)with);                \
        return (v_u##bits)_mm512_mask_mov_##suffix((__m512i)value,                                                     \
                                                   _mm512_cmpgt_##suffix##_mask((__m512i)magnitude, than), other);     \
    }
#elif RD_VECTOR_BYTES == 32
#define RD_REPLACE_ABOVE(bits, scalar, suffix)                                                                         \
    RD_INLINE v_u##bits replace_above_u##bits(v_u##bits value, v_u##bits magnitude, unsigned limit, unsigned with)     \
    {                                                                                                                  \
        __m256i than = _mm256_set1_##suffix((scalar)limit), other = _mm256_set1_##suffix((scalar)with);                \
        return (v_u##bits)_mm256_blendv_epi8((__m256i)value, other, _mm256_cmpgt_##suffix((__m256i)magnitude, than));  \
    }
#else
#define RD_REPLACE_ABOVE(bits, scalar, suffix)                                                                         \
    RD_INLINE v_u##bits replace_above_u##bits(v_u##bits value, v_u##bits magnitude, unsigned limit, unsigned with)     \
    {                                                                                                                  \
        v_u##bits above = (v_u##bits)((v_##bits)magnitude > (scalar)limit);                                            \
        return RD_SELECT(above, (v_u##bits){0} + (u##bits##_t)with, value);                                            \
    }
#endif
RD_REPLACE_ABOVE(int8, char, epi8)
RD_REPLACE_ABOVE(int16, short, epi16)

/* ---- Products of integers ------------------------------------------------------------------------------------ */

RD_INLINE v_uint8 multiply_uint8(v_uint8 a, v_uint8 b)
{
    v_uint16 x = (v_uint16)a, y = (v_uint16)b;
    return (v_uint8)(((x * y) & 0xff) | ((x >> 8) * (y & 0xff00))); /* no processor here multiplies bytes */
}
RD_INLINE v_uint32 multiply_uint32(v_uint32 a, v_uint32 b) { return a * b; }
RD_INLINE v_uint64 multiply_uint64(v_uint64 a, v_uint64 b) { return a * b; }

/* The full products of the low halves. */
RD_INLINE v_uint64 multiply_low(v_uint64 a, v_uint64 b)
{
#ifdef __x86_64__
    return (v_uint64)RD_X86(mul_epu32)((rd_x86_integer)a, (rd_x86_integer)b);
#else
    return (a & 0xffffffff) * (b & 0xffffffff);
#endif
}

/* ---- Quotients of integers by one number --------------------------------------------------------------------- */

/* x / n for every x of w bits, by a multiplication (Granlund and Montgomery, "Division by Invariant Integers using
 * Multiplication", PLDI 1994, figure 4.1): with s = ceil(log2 n) and m = floor(2^w * (2^s - n) / n) + 1
 *     t = high half of m * x,   x / n = (t + (x - t) / 2) / 2^(s-1)
 * n is at least 2. For bytes, n above 255 leaves nothing of any x, which s = 9 says as well. */
struct rd_divider {
    uint64_t multiplier;
    int shift; /* s - 1 */
};

RD_INLINE struct rd_divider rd_divider_of(unsigned n, int bits)
{
    struct rd_divider divider = {0, 0};
    while (divider.shift < 31 && (2u << divider.shift) < n) divider.shift++;
    uint64_t rest = ((uint64_t)2 << divider.shift) - n; /* less than n, which is less than 2^31 */
    if (bits == 8) {
        divider.multiplier = (rest << 8) / n + 1;
        if (n > 255) divider = (struct rd_divider){0, 8};
    } else {
        uint64_t high = (rest << 32) / n, low = ((rest << 32) % n << 32) / n;
        divider.multiplier = (bits == 32 ? high : high << 32 | low) + 1;
    }
    return divider;
}

RD_INLINE v_uint16 divide_bytes(v_uint16 x, struct rd_divider by)
{
    v_uint16 t = (x * (uint16_t)by.multiplier) >> 8;
    return (t + ((x - t) >> 1)) >> by.shift;
}
RD_INLINE v_uint8 divide_uint8(v_uint8 a, struct rd_divider by)
{
    v_uint16 x = (v_uint16)a;
    return (v_uint8)(divide_bytes(x & 0xff, by) | divide_bytes(x >> 8, by) << 8);
}
RD_INLINE v_uint32 divide_uint32(v_uint32 x, struct rd_divider by)
{
    v_uint64 m = (v_uint64){0} + by.multiplier, pairs = (v_uint64)x;
    v_uint64 even = multiply_low(pairs, m) >> 32, odd = multiply_low(pairs >> 32, m);
    v_uint32 t = (v_uint32)(even | (odd & 0xffffffff00000000));
    return (t + ((x - t) >> 1)) >> by.shift;
}
RD_INLINE v_uint64 divide_uint64(v_uint64 x, struct rd_divider by)
{
    v_uint64 m = (v_uint64){0} + by.multiplier;
    v_uint64 cross = multiply_low(x >> 32, m) + (multiply_low(x, m) >> 32);
    v_uint64 other = multiply_low(x, m >> 32) + (cross & 0xffffffff);
    v_uint64 t = multiply_low(x >> 32, m >> 32) + (cross >> 32) + (other >> 32);
    return (t + ((x - t) >> 1)) >> by.shift;
}

/* Toward zero: the magnitude is divided and the sign put back. */
#define RD_DIVIDE_SIGNED(type, bits)                                                                                   \
    RD_INLINE v_##type divide_##type(v_##type x, struct rd_divider by)                                                 \
    {                                                                                                                  \
        v_##bits sign = (v_##bits)(x < 0);                                                                             \
        return (v_##type)((divide_##bits(((v_##bits)x ^ sign) - sign, by) ^ sign) - sign);                             \
    }
RD_DIVIDE_SIGNED(int8, uint8)
RD_DIVIDE_SIGNED(int32, uint32)
RD_DIVIDE_SIGNED(int64, uint64)

/* ---- Memory -------------------------------------------------------------------------------------------------- */

/* `bytes` from `from`, fewer than 4 vectors, and zeros behind them to the end of the fourth. By masks where there are:
 * a vector that is loaded where fewer bytes were just stored into zeros has to wait for both stores. */
RD_INLINE void fill_vectors(unsigned char *to, const unsigned char *from, size_t bytes)
{
#if RD_VECTOR_BYTES == 64
    for (size_t at = 0; at < 4 * RD_VECTOR_BYTES; at += RD_VECTOR_BYTES) {
        size_t left = bytes > at ? bytes - at : 0;
        __mmask64 mask = left >= 64 ? ~0ull : (1ull << left) - 1;
        _mm512_store_si512(to + at, _mm512_maskz_loadu_epi8(mask, from + at));
    }
#else
    memset(to, 0, 4 * RD_VECTOR_BYTES);
    memcpy(to, from, bytes);
#endif
}
RD_INLINE void store_vector(unsigned char *to, v_uint8 vector) { memcpy(to, &vector, sizeof vector); }

#if RD_VECTOR_BYTES == 16
/* 1 to 64 bytes as vectors that overlap: the first and the last bytes of them, as many as the next smaller power of two.
 * A byte that lies in two is worked on twice, with one result. No detour by memory, where a vector must wait for the
 * smaller stores that make it up. */
#define RD_FEW_WORD(bits)                                                                                              \
    RD_INLINE v_uint8 load_word##bits(const unsigned char *from)                                                       \
    {                                                                                                                  \
        uint##bits##_t word;                                                                                           \
        memcpy(&word, from, sizeof word);                                                                              \
        return (v_uint8)(v_uint64){word, 0};                                                                           \
    }                                                                                                                  \
    RD_INLINE void store_word##bits(unsigned char *to, v_uint8 vector)                                                 \
    {                                                                                                                  \
        uint##bits##_t word = (uint##bits##_t)((v_uint64)vector)[0];                                                   \
        memcpy(to, &word, sizeof word);                                                                                \
    }
RD_FEW_WORD(8)
RD_FEW_WORD(16)
RD_FEW_WORD(32)
RD_FEW_WORD(64)

RD_INLINE void load_few(const unsigned char *from, size_t bytes, v_uint8 to[4])
{
    const unsigned char *end = from + bytes;
    if (bytes > 32) {
        to[0] = load_vector(from), to[1] = load_vector(from + 16);
        to[2] = load_vector(end - 32), to[3] = load_vector(end - 16);
        return;
    }
    if (bytes >= 16) to[0] = load_vector(from), to[1] = load_vector(end - 16);
    else if (bytes >= 8) to[0] = load_word64(from), to[1] = load_word64(end - 8);
    else if (bytes >= 4) to[0] = load_word32(from), to[1] = load_word32(end - 4);
    else if (bytes >= 2) to[0] = load_word16(from), to[1] = load_word16(end - 2);
    else to[0] = to[1] = load_word8(from);
    to[2] = to[0], to[3] = to[1];
}

RD_INLINE void store_few(unsigned char *to, size_t bytes, const v_uint8 from[4])
{
    unsigned char *end = to + bytes;
    if (bytes > 32) {
        store_vector(to, from[0]), store_vector(to + 16, from[1]);
        store_vector(end - 32, from[2]), store_vector(end - 16, from[3]);
    } else if (bytes >= 16) store_vector(to, from[0]), store_vector(end - 16, from[1]);
    else if (bytes >= 8) store_word64(to, from[0]), store_word64(end - 8, from[1]);
    else if (bytes >= 4) store_word32(to, from[0]), store_word32(end - 4, from[1]);
    else if (bytes >= 2) store_word16(to, from[0]), store_word16(end - 2, from[1]);
    else store_word8(to, from[0]);
}
#endif

RD_INLINE void store_vectors(unsigned char *to, const v_uint8 *vectors, size_t bytes)
{
    for (size_t i = 0; i < bytes / RD_VECTOR_BYTES; i++) store_vector(to + i * RD_VECTOR_BYTES, vectors[i]);
}

/* Stores one byte back to every line that begins in [from, from + bytes), and to the one that from lies in. A processor
 * that is about to write a line asks for it exclusively; one that only reads it leaves a copy with its last writer,
 * whose next store must then wait until that copy is given up. */
RD_INLINE void rd_touch_line(uintptr_t at)
{
    volatile unsigned char *byte = (volatile unsigned char *)at;
    unsigned char as_it_was = *byte;
    *byte = as_it_was;
}
RD_INLINE void rd_touch_lines(const void *from, size_t bytes)
{
    uintptr_t at = (uintptr_t)from, end = at + bytes;
    for (at = (at + RD_LINE - 1) & ~(uintptr_t)(RD_LINE - 1); at < end; at += RD_LINE) rd_touch_line(at);
}

#endif
