/* SPDX-License-Identifier: Apache-2.0 */
#include "base/dtype.h"

static const struct {
    const char *name;
    size_t bytes;
    bool narrow;
} types[RONDO_DTYPES] = {
    [RONDO_INT8] = {"int8", 1, false},          [RONDO_UINT8] = {"uint8", 1, false},
    [RONDO_INT32] = {"int32", 4, false},        [RONDO_UINT32] = {"uint32", 4, false},
    [RONDO_INT64] = {"int64", 8, false},        [RONDO_UINT64] = {"uint64", 8, false},
    [RONDO_FLOAT16] = {"float16", 2, true},     [RONDO_FLOAT32] = {"float32", 4, false},
    [RONDO_FLOAT64] = {"float64", 8, false},    [RONDO_BFLOAT16] = {"bfloat16", 2, true},
    [RONDO_FLOAT8E4M3] = {"float8e4m3", 1, true}, [RONDO_FLOAT8E5M2] = {"float8e5m2", 1, true},
};

static bool known(rondo_dtype type) { return (int)type >= 0 && (int)type < RONDO_DTYPES; }

size_t rd_dtype_bytes(rondo_dtype type) { return known(type) ? types[type].bytes : 0; }
const char *rd_dtype_name(rondo_dtype type) { return known(type) ? types[type].name : "unknown type"; }
bool rd_dtype_narrow(rondo_dtype type) { return known(type) && types[type].narrow; }

const char *rd_op_name(rondo_op op)
{
    static const char *const names[RONDO_OPS] = {"sum", "prod", "max", "min", "avg"};
    return (int)op >= 0 && (int)op < RONDO_OPS ? names[op] : "unknown operator";
}
