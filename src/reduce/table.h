/* SPDX-License-Identifier: Apache-2.0
 *
 * table.h - what one level of kernels offers. The same source is compiled once for each level; dispatch.c chooses.
 */
#ifndef RD_REDUCE_TABLE_H
#define RD_REDUCE_TABLE_H

#include "reduce/reduce.h"

#define RD_FEW_BYTES 255 /* of a pass that is fewer bytes than a step of AVX-512 */

struct rd_kernels {
    /* NULL: the level below does it better */
    void (*run[RONDO_DTYPES][RONDO_OPS])(const rd_reduction *reduction, const rd_pass *pass);
    /* Passes of at most RD_FEW_BYTES over types that are their own wide type; of the portable level only. */
    void (*few[RONDO_DTYPES][RONDO_OPS])(const rd_reduction *reduction, const rd_pass *pass);
    void (*copy)(void *to, void *also, const void *from, size_t bytes, bool touch);
};

extern const struct rd_kernels rd_kernels_portable;
#ifdef __x86_64__
extern const struct rd_kernels rd_kernels_avx2, rd_kernels_avx512;
#endif

#endif
