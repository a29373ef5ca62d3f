/* SPDX-License-Identifier: Apache-2.0 */
#include "elements.h"

#include "base/dtype.h"
#include "world.h"

#include <math.h>
#include <string.h>

/* A float format of 8 or 16 bits. Without infinities the highest code is NaN, the one below it the largest number. */
typedef struct format {
    int exponent, fraction;
    bool infinities;
} format;

static const format *narrow(rondo_dtype type)
{
    static const format half = {5, 10, true}, brain = {8, 7, true}, e4m3 = {4, 3, false}, e5m2 = {5, 2, true};
    switch (type) {
    case RONDO_FLOAT16: return &half;
    case RONDO_BFLOAT16: return &brain;
    case RONDO_FLOAT8E4M3: return &e4m3;
    case RONDO_FLOAT8E5M2: return &e5m2;
    default: return NULL;
    }
}

static int lowest(const format *f) { return 2 - (1 << (f->exponent - 1)); } /* exponent of the smallest normal number */

static uint32_t encode(const format *f, double x)
{
    uint32_t top = (1u << (f->exponent + f->fraction)) - 1;
    uint32_t past = f->infinities ? top - ((1u << f->fraction) - 1) : top; /* past the largest number */
    uint32_t sign = signbit(x) ? top + 1 : 0;
    if (isnan(x)) return sign | top;
    if (isinf(x)) return sign | past;
    int e = x == 0 ? lowest(f) : ilogb(x);
    if (e < lowest(f)) e = lowest(f);
    /* The fraction with its leading 1, in units of its last place: a carry into the exponent comes out right. */
    uint64_t code = ((uint64_t)(e - lowest(f)) << f->fraction) + (uint64_t)rint(ldexp(fabs(x), f->fraction - e));
    return sign | (code < past ? (uint32_t)code : past);
}

static double decode(const format *f, uint32_t code)
{
    uint32_t top = (1u << (f->exponent + f->fraction)) - 1, magnitude = code & top;
    int e = (int)(magnitude >> f->fraction);
    uint32_t fraction = magnitude & ((1u << f->fraction) - 1);
    double x;
    if (f->infinities && e == (1 << f->exponent) - 1) x = fraction ? (double)NAN : (double)INFINITY;
    else if (!f->infinities && magnitude == top) x = (double)NAN;
    else if (e == 0) x = ldexp(fraction, lowest(f) - f->fraction);
    else x = ldexp(fraction + (1u << f->fraction), lowest(f) + e - 1 - f->fraction);
    return code > top ? -x : x;
}

bool element_is_float(rondo_dtype type) { return narrow(type) || type == RONDO_FLOAT32 || type == RONDO_FLOAT64; }

bool element_is_unsigned(rondo_dtype type)
{
    return type == RONDO_UINT8 || type == RONDO_UINT32 || type == RONDO_UINT64;
}

#define PUT(ctype)                   \
    do {                             \
        ctype value = (ctype)x;      \
        memcpy(at, &value, sizeof value); \
        return;                      \
    } while (0)
#define GET(ctype)                   \
    do {                             \
        ctype value;                 \
        memcpy(&value, at, sizeof value); \
        return (double)value;        \
    } while (0)

void element_put(void *at, rondo_dtype type, double x)
{
    switch (type) {
    case RONDO_INT8: PUT(int8_t);
    case RONDO_UINT8: PUT(uint8_t);
    case RONDO_INT32: PUT(int32_t);
    case RONDO_UINT32: PUT(uint32_t);
    case RONDO_INT64: PUT(int64_t);
    case RONDO_UINT64: PUT(uint64_t);
    case RONDO_FLOAT32: PUT(float);
    case RONDO_FLOAT64: PUT(double);
    default: break;
    }
    uint16_t code = (uint16_t)encode(narrow(type), x);
    if (rd_dtype_bytes(type) == 2) memcpy(at, &code, 2);
    else *(unsigned char *)at = (unsigned char)code;
}

double element_get(const void *at, rondo_dtype type)
{
    switch (type) {
    case RONDO_INT8: GET(int8_t);
    case RONDO_UINT8: GET(uint8_t);
    case RONDO_INT32: GET(int32_t);
    case RONDO_UINT32: GET(uint32_t);
    case RONDO_INT64: GET(int64_t);
    case RONDO_UINT64: GET(uint64_t);
    case RONDO_FLOAT32: GET(float);
    case RONDO_FLOAT64: GET(double);
    default: break;
    }
    uint16_t code = *(const unsigned char *)at;
    if (rd_dtype_bytes(type) == 2) memcpy(&code, at, 2);
    return decode(narrow(type), code);
}

double element_round(double x, rondo_dtype type)
{
    unsigned char at[8];
    element_put(at, type, x);
    return element_get(at, type);
}

double element_smallest(rondo_dtype type)
{
    const format *f = narrow(type);
    if (f) return decode(f, 1);
    return type == RONDO_FLOAT32 ? 0x1p-149 : type == RONDO_FLOAT64 ? 0x1p-1074 : 1;
}

double element_largest(rondo_dtype type)
{
    const format *f = narrow(type);
    if (f) return decode(f, encode(f, (double)INFINITY) - 1);
    switch (type) {
    case RONDO_INT8: return INT8_MAX;
    case RONDO_UINT8: return UINT8_MAX;
    case RONDO_INT32: return INT32_MAX;
    case RONDO_UINT32: return UINT32_MAX;
    case RONDO_FLOAT32: return 0x1.fffffep127;
    case RONDO_FLOAT64: return 0x1.fffffffffffffp1023;
    default: return 0x1p53; /* of the 64-bit integers, what double holds */
    }
}

double element_exact(rondo_dtype type)
{
    const format *f = narrow(type);
    if (f) return f->fraction < 4 ? 2 << f->fraction : 200; /* some hundred different sums are enough */
    switch (type) {
    case RONDO_INT8: return 100;
    case RONDO_UINT8: return 200;
    case RONDO_FLOAT32: return 1 << 22;
    case RONDO_INT32:
    case RONDO_UINT32: return 1 << 30;
    default: return 0x1p45;
    }
}

/* ---- Data: a total is drawn for each element, and shared out so that ranks differ -------------------------------- */

enum { TOTAL, SHIFT, SPREAD, SIGN };

static uint64_t draw(uint64_t i, uint64_t seed, int what) { return mix(seed * 8 + (uint64_t)what, i); }

static int64_t total_of(rondo_dtype type, uint64_t i, uint64_t seed)
{
    int64_t most = (int64_t)element_exact(type);
    uint64_t number = draw(i, seed, TOTAL);
    if (element_is_unsigned(type)) return (int64_t)(number % (uint64_t)(most + 1));
    return (int64_t)(number % (uint64_t)(2 * most + 1)) - most;
}

/* Shares that differ by one, and something that every second rank has more and the one before it less. */
static double share(rondo_dtype type, int rank, int n, uint64_t i, uint64_t seed)
{
    int64_t total = total_of(type, i, seed), each = total / n, rest = total % n;
    if (rest < 0) rest += n, each--;
    if (((uint64_t)rank + draw(i, seed, SHIFT)) % (uint64_t)n < (uint64_t)rest) each++;
    if (element_is_unsigned(type) || (rank ^ 1) >= n) return (double)each;
    int64_t more = (int64_t)(draw(i, seed + (uint64_t)rank / 2, SPREAD) % (uint64_t)(element_exact(type) / 4 + 1));
    return (double)(rank & 1 ? each + more : each - more);
}

static int twos_of(int n, uint64_t i, uint64_t seed)
{
    int twos = (int)(draw(i, seed, TOTAL) % 4);
    return twos < n ? twos : n;
}

/* 1 or 2, with signs that cancel all round but for one that may not. */
static double factor(rondo_dtype type, int rank, int n, uint64_t i, uint64_t seed)
{
    double x = ((uint64_t)rank + draw(i, seed, SHIFT)) % (uint64_t)n < (uint64_t)twos_of(n, i, seed) ? 2 : 1;
    uint64_t next = (uint64_t)(rank + 1) % (uint64_t)n;
    bool minus = (draw(i, seed + (uint64_t)rank, SPREAD) ^ draw(i, seed + next, SPREAD)) & 1;
    if (draw(i, seed, SIGN) % (2 * (uint64_t)n) == (uint64_t)rank) minus = !minus;
    return minus && !element_is_unsigned(type) ? -x : x;
}

/* One rank has the total, the others lie beyond it. */
static double beyond(rondo_dtype type, rondo_op op, int rank, int n, uint64_t i, uint64_t seed)
{
    int64_t total = total_of(type, i, seed), most = (int64_t)element_exact(type);
    int64_t room = op == RONDO_MIN ? most - total : total + (element_is_unsigned(type) ? 0 : most);
    if (draw(i, seed, SHIFT) % (uint64_t)n == (uint64_t)rank) return (double)total;
    int64_t away = (int64_t)(draw(i, seed + 1000 + (uint64_t)rank, SPREAD) % (uint64_t)(room + 1));
    return (double)(op == RONDO_MIN ? total + away : total - away);
}

double element_term(rondo_dtype type, rondo_op op, int rank, int n, uint64_t i, uint64_t seed)
{
    switch (op) {
    case RONDO_PROD: return factor(type, rank, n, i, seed);
    case RONDO_MAX:
    case RONDO_MIN: return beyond(type, op, rank, n, i, seed);
    default: return share(type, rank, n, i, seed);
    }
}

double element_result(rondo_dtype type, rondo_op op, int n, uint64_t i, uint64_t seed)
{
    int64_t total = total_of(type, i, seed);
    if (op == RONDO_PROD) {
        double product = 1 << twos_of(n, i, seed);
        return !element_is_unsigned(type) && draw(i, seed, SIGN) % (2 * (uint64_t)n) < (uint64_t)n ? -product : product;
    }
    if (op != RONDO_AVG) return (double)total;
    if (!element_is_float(type)) return (double)(total / n);
    if (type == RONDO_FLOAT64) return (double)total / n;
    return element_round((double)((float)total / (float)n), type);
}
