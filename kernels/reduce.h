/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce.h - what a reduction kernel is told. C and C++: the library fills it in, the kernel reads it.
 */
#ifndef RD_KERNELS_REDUCE_H
#define RD_KERNELS_REDUCE_H

#include <stdint.h>

#define RD_REDUCE_TERMS   64  /* sources, and outputs, at most */
#define RD_REDUCE_THREADS 256 /* of a block, at most */

/* One pass over one slice; src/reduce/reduce.h has the words of rd_pass and rd_reduction, which these are. Every
 * address is one that the GPU can reach, with no alignment asked for. */
typedef struct rd_reduce_args {
    uint64_t count;
    double scale, divisor;
    int32_t op, ranks;
    int32_t sources, outputs;
    int32_t first_partial, first_wide, out_wide, finish; /* 0 or 1 */
    const void *source[RD_REDUCE_TERMS];
    void *output[RD_REDUCE_TERMS];
} rd_reduce_args;

#endif
