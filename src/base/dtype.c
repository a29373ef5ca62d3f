/* SPDX-License-Identifier: Apache-2.0 */
#include "base/dtype.h"

const unsigned char rd_dtype_sizes[RONDO_DTYPES] = {
    [RONDO_INT8] = 1,    [RONDO_UINT8] = 1,   [RONDO_INT32] = 4,   [RONDO_UINT32] = 4,
    [RONDO_INT64] = 8,   [RONDO_UINT64] = 8,  [RONDO_FLOAT16] = 2, [RONDO_FLOAT32] = 4,
    [RONDO_FLOAT64] = 8, [RONDO_BFLOAT16] = 2, [RONDO_FLOAT8E4M3] = 1, [RONDO_FLOAT8E5M2] = 1,
};

static const struct {
    const char *name;
    bool narrow;
} types[RONDO_DTYPES] = {
    [RONDO_INT8] = {"int8", false},          [RONDO_UINT8] = {"uint8", false},
    [RONDO_INT32] = {"int32", false},        [RONDO_UINT32] = {"uint32", false},
    [RONDO_INT64] = {"int64", false},        [RONDO_UINT64] = {"uint64", false},
    [RONDO_FLOAT16] = {"float16", true},     [RONDO_FLOAT32] = {"float32", false},
    [RONDO_FLOAT64] = {"float64", false},    [RONDO_BFLOAT16] = {"bfloat16", true},
    [RONDO_FLOAT8E4M3] = {"float8e4m3", true}, [RONDO_FLOAT8E5M2] = {"float8e5m2", true},
};

static bool known(rondo_dtype type) { return (int)type >= 0 && (int)type < RONDO_DTYPES; }

const char *rd_dtype_name(rondo_dtype type) { return known(type) ? types[type].name : "unknown type"; }
bool rd_dtype_narrow(rondo_dtype type) { return known(type) && types[type].narrow; }

const char *rd_op_name(rondo_op op)
{
    static const char *const names[RONDO_OPS] = {"sum", "prod", "max", "min", "avg"};
    return (int)op >= 0 && (int)op < RONDO_OPS ? names[op] : "unknown operator";
}
