/* SPDX-License-Identifier: Apache-2.0
 *
 * pass.h - one pass over a slice of one element type, for each operator. Included once for each type, with
 *
 *   RD_TYPE     its name; the headers above have load_, pack_ and, for a narrow type, order_ and lanes_ of it
 *   RD_LANE     the name of its wide type, whose combine_, scale_ and finish_ they have
 *   RD_BYTES    of one element
 *   RD_WIDE     of one element in the wide type
 *
 * A step takes as many elements as fill 4 vectors of lanes, from every source, and writes them to every output. All reads
 * of a step come before its writes, and no step reads what another one writes, so that outputs may equal sources.
 */
#define RD_STEP (4 * RD_VECTOR_BYTES / RD_WIDE) /* elements */
#define RD_NARROW_TYPE (RD_BYTES < RD_WIDE)
#define RD_LANE_VECTOR RD_NAME(v, RD_LANE)

/* What is the same for all steps of a pass; constants wherever that spares work in the loop. */
#define RD_FORM bool first_wide, bool out_wide, int sources, int outputs

/* Where n elements of a source lie; fewer than a step are brought into a spare one. */
RD_INLINE const unsigned char *RD_NAME(reach, RD_TYPE)(const unsigned char *from, size_t n, size_t bytes,
                                                       unsigned char *spare)
{
    if (n == RD_STEP) return from;
    memset(spare, 0, 4 * RD_VECTOR_BYTES);
    return memcpy(spare, from, n * bytes);
}

RD_INLINE void RD_NAME(load_term, RD_TYPE)(const struct rd_call *call, rondo_op op, const void *source, bool wide,
                                           bool partial, size_t at, size_t n, RD_LANE_VECTOR to[4])
{
    unsigned char spare[4 * RD_VECTOR_BYTES];
    if (wide) {
        RD_LANE_VECTOR order[4];
        const unsigned char *from = (const unsigned char *)source + at * RD_WIDE;
        RD_NAME(load, RD_LANE)(RD_NAME(reach, RD_TYPE)(from, n, RD_WIDE, spare), order, op);
        RD_NAME(lanes, RD_TYPE)(order, to, op);
    } else {
        const unsigned char *from = (const unsigned char *)source + at * RD_BYTES;
        RD_NAME(load, RD_TYPE)(RD_NAME(reach, RD_TYPE)(from, n, RD_BYTES, spare), to, op);
    }
    if (op == RONDO_AVG && call->scaled && !partial)
        for (int i = 0; i < 4; i++) to[i] = RD_NAME(scale, RD_LANE)(to[i], &call->factors);
}

RD_INLINE void RD_NAME(store_sum, RD_TYPE)(const struct rd_call *call, rondo_op op, bool wide, int outputs, size_t at,
                                           size_t n, const RD_LANE_VECTOR from[4])
{
    size_t bytes = wide ? RD_WIDE : RD_BYTES;
    v_uint8 packed[4];
    if (wide) {
        RD_LANE_VECTOR order[4];
        RD_NAME(order, RD_TYPE)(from, order, op);
        RD_NAME(pack, RD_LANE)(order, packed, op);
    } else {
        RD_NAME(pack, RD_TYPE)(from, packed, op);
    }
    for (int o = 0; o < outputs; o++) {
        unsigned char *to = (unsigned char *)call->pass->output[o] + at * bytes;
        if (n == RD_STEP)
            for (size_t i = 0; i < RD_STEP * bytes / RD_VECTOR_BYTES; i++) store_vector(to + i * RD_VECTOR_BYTES, packed[i]);
        else
            memcpy(to, packed, n * bytes);
    }
}

RD_INLINE void RD_NAME(step, RD_TYPE)(const struct rd_call *call, rondo_op op, RD_FORM, size_t at, size_t n)
{
    const rd_pass *pass = call->pass;
    size_t first_bytes = first_wide ? RD_WIDE : RD_BYTES;
    RD_LANE_VECTOR sum[4], term[4];
    RD_NAME(load_term, RD_TYPE)(call, op, pass->source[0], first_wide, pass->first_partial, at, n, sum);
    if (call->touch) rd_touch_lines((const unsigned char *)pass->source[0] + at * first_bytes, n * first_bytes);
    for (int k = 1; k < sources; k++) {
        RD_NAME(load_term, RD_TYPE)(call, op, pass->source[k], false, false, at, n, term);
        for (int i = 0; i < 4; i++) sum[i] = RD_NAME(combine, RD_LANE)(op, sum[i], term[i]);
    }
    if (op == RONDO_AVG && call->divided)
        for (int i = 0; i < 4; i++) sum[i] = RD_NAME(finish, RD_LANE)(sum[i], &call->factors);
    RD_NAME(store_sum, RD_TYPE)(call, op, out_wide, outputs, at, n, sum);
}

RD_INLINE size_t RD_NAME(steps, RD_TYPE)(const struct rd_call *call, rondo_op op, RD_FORM, size_t at)
{
    for (; call->pass->count - at >= RD_STEP; at += RD_STEP)
        RD_NAME(step, RD_TYPE)(call, op, first_wide, out_wide, sources, outputs, at, RD_STEP);
    return at;
}

/* All whole steps from `at` on. Where memory sets the pace, the ring's two sources and one or two outputs are worth loops
 * of their own; where conversions do, the forms of the first source and of the outputs are. */
RD_INLINE size_t RD_NAME(all_steps, RD_TYPE)(const struct rd_call *call, rondo_op op, size_t at)
{
    int sources = call->pass->sources, outputs = call->pass->outputs;
#if RD_NARROW_TYPE
    bool first_wide = call->pass->first_wide, out_wide = call->pass->out_wide;
    if (first_wide && out_wide) return RD_NAME(steps, RD_TYPE)(call, op, true, true, sources, outputs, at);
    if (first_wide) return RD_NAME(steps, RD_TYPE)(call, op, true, false, sources, outputs, at);
    if (out_wide) return RD_NAME(steps, RD_TYPE)(call, op, false, true, sources, outputs, at);
#else
    if (sources == 2 && outputs == 1) return RD_NAME(steps, RD_TYPE)(call, op, false, false, 2, 1, at);
    if (sources == 2 && outputs == 2) return RD_NAME(steps, RD_TYPE)(call, op, false, false, 2, 2, at);
#endif
    return RD_NAME(steps, RD_TYPE)(call, op, false, false, sources, outputs, at);
}

#define RD_OPERATOR(name, op)                                                                                          \
    static __attribute__((noinline)) void RD_NAME(RD_TYPE, name##_part)(const struct rd_call *call, size_t at, size_t n) \
    {                                                                                                                  \
        const rd_pass *pass = call->pass;                                                                              \
        bool first_wide = RD_NARROW_TYPE && pass->first_wide, out_wide = RD_NARROW_TYPE && pass->out_wide;             \
        RD_NAME(step, RD_TYPE)(call, op, first_wide, out_wide, pass->sources, pass->outputs, at, n);                   \
    }                                                                                                                  \
    static void RD_NAME(RD_TYPE, name)(const rd_reduction *reduction, const rd_pass *pass)                             \
    {                                                                                                                  \
        struct rd_call call = rd_call_of(reduction, pass);                                                             \
        size_t at = 0, head = rd_head(&call);                                                                          \
        for (size_t n; at < head; at += n) {                                                                           \
            n = head - at < RD_STEP ? head - at : RD_STEP;                                                             \
            RD_NAME(RD_TYPE, name##_part)(&call, at, n);                                                               \
        }                                                                                                              \
        at = RD_NAME(all_steps, RD_TYPE)(&call, op, at);                                                               \
        if (at < pass->count) RD_NAME(RD_TYPE, name##_part)(&call, at, pass->count - at);                              \
    }
#ifndef RD_SAME_SUMS /* signed integers take their sums and products from the unsigned */
RD_OPERATOR(sum, RONDO_SUM)
RD_OPERATOR(prod, RONDO_PROD)
#endif
RD_OPERATOR(max, RONDO_MAX)
RD_OPERATOR(min, RONDO_MIN)
RD_OPERATOR(avg, RONDO_AVG)

#undef RD_OPERATOR
#undef RD_STEP
#undef RD_NARROW_TYPE
#undef RD_FORM
#undef RD_LANE_VECTOR
#undef RD_TYPE
#undef RD_LANE
#undef RD_BYTES
#undef RD_WIDE
#undef RD_SAME_SUMS
