/* SPDX-License-Identifier: Apache-2.0
 *
 * convert.c - float types, element by element. Narrowing rounds to nearest, ties to even, once.
 */
#include "base/dtype.h"
#include "ddp/ddp.h"

#include <math.h>
#include <string.h>

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The float beside `value` whose last bit says that something was cut off: rounded on to fewer bits, it gives what
 * `value` would have given itself. */
static float to_odd(double value)
{
    float near = (float)value;
    if ((double)near == value || isnan(near)) return near;
    uint32_t bits = bits_of(near) - (fabs((double)near) > fabs(value));
    return float_of(bits | 1);
}

static uint16_t to_bfloat16(float value)
{
    uint32_t bits = bits_of(value);
    if (isnan(value)) return 0x7fc0;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static uint16_t to_float16(float value)
{
    uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (isnan(value)) return 0x7e00;
    if (size >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and more */
    if (size < 0x38800000) {                                  /* below 2^-14: multiples of 2^-24 */
        float scaled = float_of(size) * 0x1p24f;
        return (uint16_t)(sign | (uint32_t)lrintf(scaled));
    }
    size -= 0x38000000; /* the exponents' biases, 127 and 15 */
    return (uint16_t)(sign | (size + 0xfff + (size >> 13 & 1)) >> 13);
}

static float from_float16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, size = half & 0x7fff;
    if (size >= 0x7c00) return float_of(sign | 0x7f800000 | (size & 0x3ff) << 13);
    if (size < 0x400) return float_of(sign | bits_of((float)size * 0x1p-24f));
    return float_of(sign | ((size << 13) + 0x38000000));
}

double rd_ddp_get(const void *data, size_t index, rondo_dtype dtype)
{
    switch (dtype) {
    case RONDO_FLOAT64: return ((const double *)data)[index];
    case RONDO_FLOAT32: return (double)((const float *)data)[index];
    case RONDO_FLOAT16: return (double)from_float16(((const uint16_t *)data)[index]);
    case RONDO_BFLOAT16: return (double)float_of((uint32_t)((const uint16_t *)data)[index] << 16);
    default: return 0;
    }
}

void rd_ddp_put(void *data, size_t index, rondo_dtype dtype, double value)
{
    switch (dtype) {
    case RONDO_FLOAT64: ((double *)data)[index] = value; break;
    case RONDO_FLOAT32: ((float *)data)[index] = (float)value; break;
    case RONDO_FLOAT16: ((uint16_t *)data)[index] = to_float16(to_odd(value)); break;
    case RONDO_BFLOAT16: ((uint16_t *)data)[index] = to_bfloat16(to_odd(value)); break;
    default: break;
    }
}

void rd_ddp_scale(void *data, size_t count, rondo_dtype dtype, double factor)
{
    if (dtype == RONDO_FLOAT32) {
        float *value = data;
        for (size_t i = 0; i < count; i++) value[i] = (float)((double)value[i] * factor);
        return;
    }
    for (size_t i = 0; i < count; i++) rd_ddp_put(data, i, dtype, rd_ddp_get(data, i, dtype) * factor);
}

void rd_ddp_add_squares(const void *data, size_t count, rondo_dtype dtype, double *sum)
{
    for (size_t i = 0; i < count; i++) {
        double value = rd_ddp_get(data, i, dtype);
        *sum += value * value;
    }
}

/* What compression does most gets loops of its own. */
static void narrow_floats(const float *from, uint16_t *to, rondo_dtype to_type, size_t count)
{
    if (to_type == RONDO_BFLOAT16)
        for (size_t i = 0; i < count; i++) to[i] = to_bfloat16(from[i]);
    else
        for (size_t i = 0; i < count; i++) to[i] = to_float16(from[i]);
}

void rd_ddp_convert(const void *from, rondo_dtype from_type, void *to, rondo_dtype to_type, size_t count)
{
    if (from_type == RONDO_FLOAT32 && rd_dtype_bytes(to_type) == 2) {
        narrow_floats(from, to, to_type, count);
        return;
    }
    for (size_t i = 0; i < count; i++) rd_ddp_put(to, i, to_type, rd_ddp_get(from, i, from_type));
}
