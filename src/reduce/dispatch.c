/* SPDX-License-Identifier: Apache-2.0 */
#include "reduce/reduce.h"

#include "base/dtype.h"
#include "base/env.h"
#include "base/hot.h"
#include "base/status.h"
#include "reduce/table.h"
#include "reduce/tables8.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#ifdef __x86_64__
#include <cpuid.h>
#endif

/* ---- Levels -------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    const struct rd_kernels *kernels;
} levels[] = {
    [RD_CPU_PORTABLE] = {"portable", &rd_kernels_portable},
#ifdef __x86_64__
    [RD_CPU_AVX2] = {"avx2", &rd_kernels_avx2},
    [RD_CPU_AVX512] = {"avx512", &rd_kernels_avx512},
#else
    [RD_CPU_AVX2] = {"avx2", NULL},
    [RD_CPU_AVX512] = {"avx512", NULL},
#endif
};

#ifdef __x86_64__
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

/* __builtin_cpu_supports() also asks whether the operating system saves the registers. */
bool rd_cpu_level_has(int level)
{
    switch (level) {
    case RD_CPU_AUTO:
    case RD_CPU_PORTABLE: return true;
#ifdef __x86_64__
    case RD_CPU_AVX2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    case RD_CPU_AVX512:
        return rd_cpu_level_has(RD_CPU_AVX2) && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi");
#endif
    default: return false;
    }
}

/* Asked for once: a virtual machine may take microseconds to answer, and rd_copy() wants to know each time. */
int rd_cpu_level_best(void)
{
    static _Atomic int best;
    int level = atomic_load_explicit(&best, memory_order_relaxed);
    if (level != RD_CPU_AUTO) return level;
    for (level = RD_CPU_AVX512; !rd_cpu_level_has(level); level--) continue;
    atomic_store_explicit(&best, level, memory_order_relaxed);
    return level;
}

const char *rd_cpu_level_name(int level)
{
    if (level == RD_CPU_AUTO) level = rd_cpu_level_best();
    return level >= RD_CPU_PORTABLE && level <= RD_CPU_AVX512 ? levels[level].name : "unknown level";
}

/* ---- Reductions ---------------------------------------------------------------------------------------------- */

static rondo_result no_such_level(int level)
{
    char have[64] = "";
    for (int l = RD_CPU_PORTABLE, used = 0; l <= RD_CPU_AVX512; l++)
        if (rd_cpu_level_has(l))
            used += snprintf(have + used, sizeof have - (size_t)used, "%s%s", used ? ", " : "", levels[l].name);
    return rd_fail(RONDO_INVALID_ARGUMENT,
                   "reduction kernels of level %d (%s) do not run on this processor, which has: %s; "
                   "set RONDO_CPU to one of these or to auto",
                   level, rd_cpu_level_name(level), have);
}

/* The float types whose sums could leave the range of the type they are taken in. */
static bool needs_scaling(rondo_dtype type)
{
    return type == RONDO_FLOAT32 || type == RONDO_FLOAT64 || type == RONDO_BFLOAT16;
}

/* 2^-k, k = ceil(log2 ranks) */
static double scale_for(int ranks)
{
    double scale = 1;
    while (scale * ranks > 1) scale /= 2;
    return scale;
}

rondo_result rd_reduction_init(rd_reduction *reduction, rondo_dtype type, rondo_op op, int ranks, int level)
{
    if ((int)type < 0 || (int)type >= RONDO_DTYPES)
        return rd_fail(RONDO_INVALID_ARGUMENT, "unknown element type %d; valid: 0 (%s) to %d (%s)", (int)type,
                       rd_dtype_name((rondo_dtype)0), RONDO_DTYPES - 1, rd_dtype_name((rondo_dtype)(RONDO_DTYPES - 1)));
    if ((int)op < 0 || (int)op >= RONDO_OPS)
        return rd_fail(RONDO_INVALID_ARGUMENT, "unknown operator %d; valid: 0 (%s) to %d (%s)", (int)op,
                       rd_op_name((rondo_op)0), RONDO_OPS - 1, rd_op_name((rondo_op)(RONDO_OPS - 1)));
    if (ranks < 1) return rd_fail(RONDO_INVALID_ARGUMENT, "a reduction of %d ranks; there must be at least 1", ranks);
    if (!rd_cpu_level_has(level)) return no_such_level(level);
    if (level == RD_CPU_AUTO) level = rd_cpu_level_best();
    while (!levels[level].kernels->run[type][op]) level--;

    size_t bytes = rd_dtype_bytes(type);
    void (*few)(const rd_reduction *, const rd_pass *) = levels[RD_CPU_PORTABLE].kernels->few[type][op];
    double scale = op == RONDO_AVG && needs_scaling(type) ? scale_for(ranks) : 1;
    *reduction = (rd_reduction){
        .type = type,
        .op = op,
        .ranks = ranks,
        .bytes = bytes,
        .wide_bytes = rd_dtype_narrow(type) ? sizeof(float) : bytes,
        .run = levels[level].kernels->run[type][op],
        .run_few = few,
        .few_most = few ? RD_FEW_BYTES / bytes : 0,
        .scale = scale,
        .divisor = op == RONDO_AVG ? ranks * scale : 1,
    };
    if (level == RD_CPU_AVX512 && bytes == 1 && rd_dtype_narrow(type) && (op == RONDO_SUM || op == RONDO_AVG)) {
        reduction->tables[0] = rd_tables8_of(type, 1);
        reduction->tables[1] = rd_tables8_of(type, ranks);
    }
    return RONDO_SUCCESS;
}

void rd_reduction_in_type(rd_reduction *reduction)
{
    if (reduction->op != RONDO_AVG || reduction->wide_bytes == reduction->bytes) return;
    reduction->scale = scale_for(reduction->ranks);
    reduction->divisor = reduction->ranks * reduction->scale;
}

RD_APART void copy_lines(void *to, void *also, const void *from, size_t bytes, bool touch)
{
    levels[rd_cpu_level_best()].kernels->copy(to, also, from, bytes, touch);
}

/* Less than a line is the C library's business, and nothing nobody's: then there may be no addresses. */
void rd_copy(void *to, void *also, const void *from, size_t bytes, bool touch)
{
    if (bytes == 0) return;
    if (bytes < 64 && !also && !touch) memcpy(to, from, bytes);
    else copy_lines(to, also, from, bytes, touch);
}
