/* SPDX-License-Identifier: Apache-2.0
 *
 * Data that can fail. The value depends on rank and index, so that no permutation, missing part or doubled part goes
 * unseen; it repeats after a prime number of elements, so that no chunk or slice begins where another one does, and yet
 * buffers are filled and compared at the speed of memory.
 */
#include "base/dtype.h"
#include "base/status.h"
#include "cli/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PERIOD = 1021 };

/* ---- Values ---- */

/* Whole numbers up to here are exact in the type, and so is everything on the way to them. */
static unsigned exact_to(rondo_dtype dtype)
{
    switch (dtype) {
    case RONDO_INT8: return 127;
    case RONDO_UINT8: return 255;
    case RONDO_FLOAT8E4M3: return 16;
    case RONDO_FLOAT8E5M2: return 8;
    case RONDO_BFLOAT16: return 256;
    case RONDO_FLOAT16: return 2048;
    default: return 1 << 20;
    }
}

static unsigned mix(size_t index, int rank)
{
    uint64_t x = (uint64_t)index * 0x9e3779b97f4a7c15u + (uint64_t)rank * 0xd1b54a32d192ed03u;
    return (unsigned)((x ^ x >> 29) >> 32);
}

static unsigned value(const rd_bench_data *data, int rank, size_t index)
{
    unsigned most = exact_to(data->dtype), each = most / (unsigned)data->size, ranks = (unsigned)data->size;
    if (each > 100) each = 100;
    switch (data->op) {
    case RONDO_PROD: return 1 + (rank < 3 ? mix(index, rank) % 2 : 0);
    case RONDO_MAX:
    case RONDO_MIN: return mix(index, rank) % (most < 100 ? most : 100);
    case RONDO_AVG: /* one rank has one more than the average, another one less */
        if (each < 2) return 0;
        return 1 + mix(index, 0) % (each - 1) + (index % ranks == (unsigned)rank) -
               ((index + 1) % ranks == (unsigned)rank);
    default:
        if (each) return mix(index, rank) % (each + 1);
        return (unsigned)rank < most ? mix(index, rank) % 2 : 0; /* more ranks than the type can count */
    }
}

static unsigned reduced(const rd_bench_data *data, size_t index)
{
    unsigned result = value(data, 0, index);
    for (int r = 1; r < data->size; r++) {
        unsigned next = value(data, r, index);
        switch (data->op) {
        case RONDO_PROD: result *= next; break;
        case RONDO_MAX: result = next > result ? next : result; break;
        case RONDO_MIN: result = next < result ? next : result; break;
        default: result += next;
        }
    }
    return data->op == RONDO_AVG ? result / (unsigned)data->size : result;
}

/* ---- Bits ---- */

/* A whole number that the float type holds exactly. */
static uint32_t float_bits(unsigned number, int fraction_bits, int bias)
{
    int exponent;
    if (!number) return 0;
    double fraction = frexp(number, &exponent); /* 0.5 <= fraction < 1 */
    return (uint32_t)(exponent - 1 + bias) << fraction_bits | (uint32_t)ldexp(2 * fraction - 1, fraction_bits);
}

static void encode(rondo_dtype dtype, unsigned number, void *to)
{
    union {
        uint8_t u8;
        uint16_t u16;
        uint32_t u32;
        uint64_t u64;
        float f32;
        double f64;
    } bits = {.u64 = 0};
    switch (dtype) {
    case RONDO_INT8:
    case RONDO_UINT8: bits.u8 = (uint8_t)number; break;
    case RONDO_INT32:
    case RONDO_UINT32: bits.u32 = number; break;
    case RONDO_INT64:
    case RONDO_UINT64: bits.u64 = number; break;
    case RONDO_FLOAT32: bits.f32 = (float)number; break;
    case RONDO_FLOAT64: bits.f64 = number; break;
    case RONDO_FLOAT16: bits.u16 = (uint16_t)float_bits(number, 10, 15); break;
    case RONDO_BFLOAT16: bits.u16 = (uint16_t)float_bits(number, 7, 127); break;
    case RONDO_FLOAT8E4M3: bits.u8 = (uint8_t)float_bits(number, 3, 7); break;
    default: bits.u8 = (uint8_t)float_bits(number, 2, 15); break;
    }
    memcpy(to, &bits, rd_dtype_bytes(dtype));
}

static void fill_period(const rd_bench_data *data, unsigned char *to, int rank)
{
    size_t bytes = rd_dtype_bytes(data->dtype);
    for (size_t i = 0; i < PERIOD; i++)
        encode(data->dtype, rank < 0 ? reduced(data, i) : value(data, rank, i), to + i * bytes);
}

/* ---- Buffers ---- */

rondo_result rd_data_open(rd_bench_data *data, rondo_dtype dtype, rondo_op op, int rank, int size)
{
    size_t bytes = PERIOD * rd_dtype_bytes(dtype);
    rd_bench_data made = {.dtype = dtype, .op = op, .rank = rank, .size = size};
    made.own = malloc(3 * bytes);
    if (!made.own) return rd_fail_errno("no memory for %zu bytes of values", 3 * bytes);
    made.result = made.own + bytes;
    made.other = made.result + bytes;
    fill_period(&made, made.own, rank);
    fill_period(&made, made.result, -1);
    *data = made;
    return RONDO_SUCCESS;
}

void rd_data_close(rd_bench_data *data)
{
    free(data->own);
}

void rd_data_fill(const rd_bench_data *data, void *buffer, size_t count)
{
    size_t element = rd_dtype_bytes(data->dtype), bytes = count * element, period = PERIOD * element;
    for (size_t at = 0; at < bytes; at += period)
        memcpy((unsigned char *)buffer + at, data->own, bytes - at < period ? bytes - at : period);
}

static size_t count_wrong(const unsigned char *buffer, size_t count, const unsigned char *period, size_t first,
                          size_t element)
{
    size_t wrong = 0, at = first % PERIOD;
    while (count > 0) {
        size_t run = PERIOD - at < count ? PERIOD - at : count;
        if (memcmp(buffer, period + at * element, run * element) != 0)
            for (size_t i = 0; i < run; i++)
                wrong += memcmp(buffer + i * element, period + (at + i) * element, element) != 0;
        buffer += run * element;
        count -= run;
        at = 0;
    }
    return wrong;
}

size_t rd_data_wrong_result(const rd_bench_data *data, const void *buffer, size_t count, size_t first)
{
    return count_wrong(buffer, count, data->result, first, rd_dtype_bytes(data->dtype));
}

size_t rd_data_wrong_copy(rd_bench_data *data, const void *buffer, size_t count, size_t first, int rank)
{
    fill_period(data, data->other, rank);
    return count_wrong(buffer, count, data->other, first, rd_dtype_bytes(data->dtype));
}
