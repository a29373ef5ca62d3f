/* SPDX-License-Identifier: Apache-2.0
 *
 * one.h - for benchmarks: values near 1 in any element type, so that neither NaN nor subnormals are measured.
 */
#ifndef RONDO_BENCH_ONE_H
#define RONDO_BENCH_ONE_H

#include "rondo.h"

/* The bits of a 1. */
static inline uint64_t bits_of_one(rondo_dtype type)
{
    switch (type) {
    case RONDO_FLOAT16: return 0x3c00;
    case RONDO_BFLOAT16: return 0x3f80;
    case RONDO_FLOAT32: return 0x3f800000;
    case RONDO_FLOAT64: return 0x3ff0000000000000;
    case RONDO_FLOAT8E4M3: return 0x38;
    case RONDO_FLOAT8E5M2: return 0x3c;
    default: return 1;
    }
}

#endif
