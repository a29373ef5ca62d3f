/* SPDX-License-Identifier: Apache-2.0
 *
 * dtype.h - what everyone may know of element types and operators: size, name, whether sums are taken in float32.
 */
#ifndef RD_BASE_DTYPE_H
#define RD_BASE_DTYPE_H

#include "rondo.h"

#include <stdbool.h>

/* 0 for an unknown type */
extern const unsigned char rd_dtype_sizes[RONDO_DTYPES];
static inline size_t rd_dtype_bytes(rondo_dtype type)
{
    return (unsigned)type < RONDO_DTYPES ? rd_dtype_sizes[type] : 0;
}
const char *rd_dtype_name(rondo_dtype type);
const char *rd_op_name(rondo_op op);
bool rd_dtype_narrow(rondo_dtype type); /* a float type narrower than float32 */

#endif
