/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels.h - all kernels of one level: included by kernels_LEVEL.c, with RD_KERNELS, the name of its table, and
 * RD_VECTOR_BYTES.
 *
 * Reading order: constants.h, vector.h, native.h, order.h, narrow.h, float8.h, product8.h, sum8.h, pass.h.
 */
#include "reduce/order.h"
#include "reduce/product8.h"
#include "reduce/sum8.h"
#include "reduce/table.h"

#define RD_NAME_(a, b) a##_##b
#define RD_NAME(a, b) RD_NAME_(a, b)

#define RD_WORTH_ALIGNING 65536 /* bytes of output from which on a partial first step pays; it costs 30 to 100 ns */

/* A pass, and what holds for all of it. */
struct rd_call {
    const rd_reduction *reduction;
    const rd_pass *pass;
    struct rd_factors factors;
    bool scaled, divided, touch;
    size_t first_bytes, out_bytes; /* of one element of source[0] and of the outputs */
};

/* What one loop over steps takes as known. */
struct rd_form {
    rondo_op op;
    int sources; /* 0: any number */
    bool first_wide, out_wide, aligned;
    bool fused;                /* terms after the first are scaled as they are added */
    enum rd_division division; /* of aligned sums */
};

static bool touches(const rd_pass *pass)
{
    for (int o = 0; o < pass->outputs && pass->touch; o++)
        if (pass->output[o] == pass->source[0]) return false; /* the output's stores do it */
    return pass->touch;
}

static struct rd_call rd_call_of(const rd_reduction *reduction, const rd_pass *pass)
{
    struct rd_call call = {.reduction = reduction, .pass = pass, .touch = touches(pass)};
    call.first_bytes = pass->first_wide ? reduction->wide_bytes : reduction->bytes;
    call.out_bytes = pass->out_wide ? reduction->wide_bytes : reduction->bytes;
    if (call.touch && pass->count > 0) rd_touch_line((uintptr_t)pass->source[0]);
    if (reduction->op != RONDO_AVG) return call;
    bool integer = reduction->type <= RONDO_UINT64;
    call.factors.scale_double = reduction->scale, call.factors.divisor_double = reduction->divisor;
    call.factors.scale_float = (float)reduction->scale, call.factors.divisor_float = (float)reduction->divisor;
    if ((reduction->ranks & (reduction->ranks - 1)) == 0) call.factors.reciprocal = 1 / call.factors.divisor_float;
    call.scaled = reduction->scale != 1;
    call.divided = pass->finish && (integer ? reduction->ranks : reduction->divisor) != 1;
    if (call.divided && reduction->bytes == 1 && !integer) call.factors.quotient = rd_quotient_of(reduction->ranks);
    if (integer && call.divided)
        call.factors.divider = rd_divider_of((unsigned)reduction->ranks, (int)reduction->bytes * 8);
    return call;
}

/* n elements from `at` on, fewer than a step: the same pass over a whole step of copies. */
static void rd_part(const rd_reduction *reduction, const rd_pass *pass, size_t step, size_t at, size_t n)
{
    _Alignas(RD_LINE) unsigned char terms[RD_MAX_SOURCES][4 * RD_VECTOR_BYTES];
    _Alignas(RD_LINE) unsigned char result[4 * RD_VECTOR_BYTES] = {0};
    size_t out_bytes = pass->out_wide ? reduction->wide_bytes : reduction->bytes;
    rd_pass whole;
    memcpy(&whole, pass, offsetof(rd_pass, source));
    whole.count = step, whole.outputs = 1, whole.touch = false;
    whole.output[0] = result;
    for (int k = 0; k < pass->sources; k++) {
        size_t bytes = k == 0 && pass->first_wide ? reduction->wide_bytes : reduction->bytes;
        whole.source[k] = terms[k];
        fill_vectors(terms[k], (const unsigned char *)pass->source[k] + at * bytes, n * bytes);
        if (k == 0 && touches(pass)) rd_touch_lines((const unsigned char *)pass->source[k] + at * bytes, n * bytes);
    }
    reduction->run(reduction, &whole);
    for (int o = 0; o < pass->outputs; o++)
        memcpy((unsigned char *)pass->output[o] + at * out_bytes, result, n * out_bytes);
}

/* Of how many sources and outputs element `at` begins a line. */
static int rd_begin_lines(const struct rd_call *call, size_t at)
{
    const rd_pass *pass = call->pass;
    int n = 0;
    for (int k = 0; k < pass->sources; k++) {
        size_t bytes = k == 0 ? call->first_bytes : call->reduction->bytes;
        n += ((uintptr_t)pass->source[k] + at * bytes) % RD_LINE == 0;
    }
    for (int o = 0; o < pass->outputs; o++) n += ((uintptr_t)pass->output[o] + at * call->out_bytes) % RD_LINE == 0;
    return n;
}

/* Handles as many elements first as bring output[0] to the beginning of a line, and says how many: none where as many
 * sources and outputs begin one as it is. Of flat's slots and as many places of the user's the slots shall, for their lines
 * move between caches. */
static size_t rd_head(const struct rd_call *call, size_t step)
{
    size_t to_line = -(uintptr_t)call->pass->output[0] & (RD_LINE - 1), head = to_line / call->out_bytes;
    if (to_line % call->out_bytes != 0 || call->pass->count * call->out_bytes < RD_WORTH_ALIGNING) return 0;
    if (rd_begin_lines(call, head) <= rd_begin_lines(call, 0)) return 0;
    for (size_t at = 0, n; at < head; at += n) {
        n = head - at < step ? head - at : step;
        rd_part(call->reduction, call->pass, step, at, n);
    }
    return head;
}

#define RD_TYPE uint8
#define RD_LANE uint8
#define RD_BYTES 1
#define RD_WIDE 1
#define RD_ALIGNED 0
#include "reduce/pass.h"
#define RD_TYPE int8
#define RD_LANE int8
#define RD_BYTES 1
#define RD_WIDE 1
#define RD_ALIGNED 0
#define RD_SAME_SUMS
#include "reduce/pass.h"
#define RD_TYPE uint32
#define RD_LANE uint32
#define RD_BYTES 4
#define RD_WIDE 4
#define RD_ALIGNED 0
#include "reduce/pass.h"
#define RD_TYPE int32
#define RD_LANE int32
#define RD_BYTES 4
#define RD_WIDE 4
#define RD_ALIGNED 0
#define RD_SAME_SUMS
#include "reduce/pass.h"
#define RD_TYPE uint64
#define RD_LANE uint64
#define RD_BYTES 8
#define RD_WIDE 8
#define RD_ALIGNED 0
#include "reduce/pass.h"
#define RD_TYPE int64
#define RD_LANE int64
#define RD_BYTES 8
#define RD_WIDE 8
#define RD_ALIGNED 0
#define RD_SAME_SUMS
#include "reduce/pass.h"
#define RD_TYPE float32
#define RD_LANE float32
#define RD_BYTES 4
#define RD_WIDE 4
#define RD_ALIGNED 0
#include "reduce/pass.h"
#define RD_TYPE float64
#define RD_LANE float64
#define RD_BYTES 8
#define RD_WIDE 8
#define RD_ALIGNED 0
#include "reduce/pass.h"
#if RD_VECTOR_BYTES < 64 /* the conversions of AVX2 take half the time of AVX-512's on Zen 4 */
#define RD_TYPE    ordered_float16
#define RD_LANE    ordered_float16
#define RD_BYTES   2
#define RD_WIDE    2
#define RD_ALIGNED 0
#define RD_ORDERED_TYPE
#include "reduce/pass.h"
#define RD_TYPE float16
#define RD_LANE float32
#define RD_COMBINE float16
#define RD_BYTES 2
#define RD_WIDE 4
#define RD_ALIGNED 0
#include "reduce/pass.h"
#endif
#define RD_TYPE    ordered_bfloat16
#define RD_LANE    ordered_bfloat16
#define RD_BYTES   2
#define RD_WIDE    2
#define RD_ALIGNED 0
#define RD_ORDERED_TYPE
#include "reduce/pass.h"
#define RD_TYPE bfloat16
#define RD_LANE float32
#define RD_BYTES 2
#define RD_WIDE 4
#define RD_ALIGNED 0
#if RD_VECTOR_BYTES > 16
#define RD_FUSES
#endif
#include "reduce/pass.h"
#define RD_TYPE    ordered_float8e4m3
#define RD_LANE    ordered_float8e4m3
#define RD_BYTES   1
#define RD_WIDE    1
#define RD_ALIGNED 0
#define RD_ORDERED_TYPE
#include "reduce/pass.h"
#define RD_TYPE float8e4m3
#define RD_LANE float32
#define RD_BYTES 1
#define RD_WIDE 4
#define RD_ALIGNED 1
#include "reduce/pass.h"
#define RD_TYPE    ordered_float8e5m2
#define RD_LANE    ordered_float8e5m2
#define RD_BYTES   1
#define RD_WIDE    1
#define RD_ALIGNED 0
#define RD_ORDERED_TYPE
#include "reduce/pass.h"
#define RD_TYPE float8e5m2
#define RD_LANE float32
#define RD_BYTES 1
#define RD_WIDE 4
#define RD_ALIGNED 1
#include "reduce/pass.h"

/* Copies fewer bytes than a line. */
static void copy_part(unsigned char *to, unsigned char *also, const unsigned char *from, size_t bytes, bool touch)
{
    if (bytes == 0) return;
    if (touch) rd_touch_lines(from, bytes);
    memcpy(to, from, bytes);
    if (also) memcpy(also, from, bytes);
}

/* Loads lie as they may, stores go to whole lines of `to`. */
static void copy(void *to, void *also, const void *from, size_t bytes, bool touch)
{
    unsigned char *t = to, *a = also;
    const unsigned char *f = from;
    size_t head = -(uintptr_t)t & (RD_LINE - 1), at = head < bytes ? head : bytes;
    if (touch && bytes > 0) rd_touch_line((uintptr_t)f);
    copy_part(t, a, f, at, touch);
    for (; bytes - at >= RD_LINE; at += RD_LINE) {
        v_uint8 line[RD_LINE / RD_VECTOR_BYTES];
        for (int i = 0; i < RD_LINE / RD_VECTOR_BYTES; i++) line[i] = load_vector(f + at + i * RD_VECTOR_BYTES);
        if (touch) rd_touch_lines(f + at, RD_LINE);
        for (int i = 0; i < RD_LINE / RD_VECTOR_BYTES; i++) store_vector(t + at + i * RD_VECTOR_BYTES, line[i]);
        if (also)
            for (int i = 0; i < RD_LINE / RD_VECTOR_BYTES; i++) store_vector(a + at + i * RD_VECTOR_BYTES, line[i]);
    }
    copy_part(t + at, a ? a + at : NULL, f + at, bytes - at, touch);
}

#define RD_ROW(type, sums)                                                                                             \
    {                                                                                                                  \
        sums##_sum, sums##_prod, type##_max, type##_min, type##_avg                                                    \
    }
const struct rd_kernels RD_KERNELS = {
    .run = {[RONDO_INT8] = RD_ROW(int8, uint8),
            [RONDO_UINT8] = RD_ROW(uint8, uint8),
            [RONDO_INT32] = RD_ROW(int32, uint32),
            [RONDO_UINT32] = RD_ROW(uint32, uint32),
            [RONDO_INT64] = RD_ROW(int64, uint64),
            [RONDO_UINT64] = RD_ROW(uint64, uint64),
#if RD_VECTOR_BYTES < 64
            [RONDO_FLOAT16] = RD_ROW(float16, float16),
#endif
            [RONDO_FLOAT32] = RD_ROW(float32, float32),
            [RONDO_FLOAT64] = RD_ROW(float64, float64),
            [RONDO_BFLOAT16] = RD_ROW(bfloat16, bfloat16),
            [RONDO_FLOAT8E4M3] = RD_ROW(float8e4m3, float8e4m3),
            [RONDO_FLOAT8E5M2] = RD_ROW(float8e5m2, float8e5m2)},
#if RD_VECTOR_BYTES == 16
    .few = {[RONDO_INT8] = RD_ROW(few_int8, few_uint8),
            [RONDO_UINT8] = RD_ROW(few_uint8, few_uint8),
            [RONDO_INT32] = RD_ROW(few_int32, few_uint32),
            [RONDO_UINT32] = RD_ROW(few_uint32, few_uint32),
            [RONDO_INT64] = RD_ROW(few_int64, few_uint64),
            [RONDO_UINT64] = RD_ROW(few_uint64, few_uint64),
            [RONDO_FLOAT32] = RD_ROW(few_float32, few_float32),
            [RONDO_FLOAT64] = RD_ROW(few_float64, few_float64)},
#endif
    .copy = copy,
};
