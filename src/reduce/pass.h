/* SPDX-License-Identifier: Apache-2.0
 *
 * pass.h - one pass over a slice of one element type, for each operator. Included once for each type, with
 *
 *   RD_TYPE     its name; the headers above have load_, pack_ and, for a narrow type, order_ and lanes_ of it
 *   RD_LANE     the name of its wide type, whose combine_, scale_ and finish_ they have
 *   RD_BYTES    of one element
 *   RD_WIDE     of one element in the wide type
 *   RD_ALIGNED  1 where load_aligned_ and pack_aligned_ exist (float8.h), else 0
 *
 * A step takes as many elements as fill 4 vectors of lanes, from every source, and writes them to every output. All
 * reads of a step come before its writes, and no step reads what another one writes, so that outputs may equal sources.
 */
#define RD_STEP (4 * RD_VECTOR_BYTES / RD_WIDE) /* elements */
#define RD_NARROW_TYPE (RD_BYTES < RD_WIDE)
#define RD_LANE_VECTOR RD_NAME(v, RD_LANE)

/* Lanes of n elements at `from`; fewer than a step are brought into a spare one first. */
RD_INLINE void RD_NAME(load_lanes, RD_TYPE)(const unsigned char *from, bool wide, bool aligned, size_t n,
                                            RD_LANE_VECTOR to[4])
{
    unsigned char spare[4 * RD_VECTOR_BYTES];
    if (n < RD_STEP) {
        memset(spare, 0, sizeof spare);
        from = memcpy(spare, from, n * (wide ? RD_WIDE : RD_BYTES));
    }
    if (wide) {
        RD_LANE_VECTOR order[4];
        RD_NAME(load, RD_LANE)(from, order);
        RD_NAME(lanes, RD_TYPE)(order, to);
#if RD_ALIGNED
    } else if (aligned) {
        RD_NAME(load_aligned, RD_TYPE)(from, to);
#endif
    } else {
        RD_NAME(load, RD_TYPE)(from, to);
    }
    (void)aligned;
}

RD_INLINE void RD_NAME(pack_lanes, RD_TYPE)(const RD_LANE_VECTOR from[4], struct rd_form form, v_uint8 to[4])
{
    bool exact = form.op == RONDO_MAX || form.op == RONDO_MIN;
    if (form.out_wide) {
        RD_LANE_VECTOR order[4];
        RD_NAME(order, RD_TYPE)(from, order);
        RD_NAME(pack, RD_LANE)(order, to, exact);
#if RD_ALIGNED
    } else if (form.aligned) {
        RD_NAME(pack_aligned, RD_TYPE)(from, to, exact);
#endif
    } else {
        RD_NAME(pack, RD_TYPE)(from, to, exact);
    }
}

RD_INLINE void RD_NAME(load_term, RD_TYPE)(const struct rd_call *call, struct rd_form form, int k, size_t at, size_t n,
                                           RD_LANE_VECTOR to[4])
{
    bool wide = k == 0 && form.first_wide;
    size_t bytes = wide ? RD_WIDE : RD_BYTES;
    const unsigned char *from = (const unsigned char *)call->pass->source[k] + at * bytes;
    RD_NAME(load_lanes, RD_TYPE)(from, wide, form.aligned, n, to);
    if (form.op == RONDO_AVG && call->scaled && !(k == 0 && call->pass->first_partial))
        for (int i = 0; i < 4; i++) to[i] = RD_NAME(scale, RD_LANE)(to[i], &call->factors);
    if (k == 0 && call->touch) rd_touch_lines(from, n * bytes);
}

RD_INLINE void RD_NAME(step, RD_TYPE)(const struct rd_call *call, struct rd_form form, size_t at, size_t n)
{
    RD_LANE_VECTOR sum[4], term[4];
    RD_NAME(load_term, RD_TYPE)(call, form, 0, at, n, sum);
    for (int k = 1; k < form.sources; k++) {
        RD_NAME(load_term, RD_TYPE)(call, form, k, at, n, term);
        for (int i = 0; i < 4; i++) sum[i] = RD_NAME(combine, RD_LANE)(form.op, sum[i], term[i]);
    }
    if (form.op == RONDO_AVG && call->divided)
        for (int i = 0; i < 4; i++) sum[i] = RD_NAME(finish, RD_LANE)(sum[i], &call->factors);

    v_uint8 packed[4];
    size_t out_bytes = form.out_wide ? RD_WIDE : RD_BYTES;
    RD_NAME(pack_lanes, RD_TYPE)(sum, form, packed);
    for (int o = 0; o < form.outputs; o++) {
        unsigned char *to = (unsigned char *)call->pass->output[o] + at * out_bytes;
        if (n < RD_STEP) memcpy(to, packed, n * out_bytes);
        else
            for (size_t i = 0; i < RD_STEP * out_bytes / RD_VECTOR_BYTES; i++)
                store_vector(to + i * RD_VECTOR_BYTES, packed[i]);
    }
}

RD_INLINE size_t RD_NAME(steps, RD_TYPE)(const struct rd_call *call, struct rd_form form, size_t at)
{
    for (; call->pass->count - at >= RD_STEP; at += RD_STEP) RD_NAME(step, RD_TYPE)(call, form, at, RD_STEP);
    return at;
}

/* All whole steps from `at` on. Where memory sets the pace, the ring's two sources and one or two outputs are worth
 * loops of their own; where conversions do, the forms of the first source and of the outputs are. */
RD_INLINE size_t RD_NAME(all_steps, RD_TYPE)(const struct rd_call *call, rondo_op op, size_t at)
{
    int sources = call->pass->sources, outputs = call->pass->outputs;
#if RD_NARROW_TYPE
    bool first_wide = call->pass->first_wide, out_wide = call->pass->out_wide;
    bool aligned = RD_ALIGNED && op != RONDO_PROD && op != RONDO_AVG;
    if (first_wide && out_wide)
        return RD_NAME(steps, RD_TYPE)(call, RD_FORM(op, true, true, false, sources, outputs), at);
    if (first_wide) return RD_NAME(steps, RD_TYPE)(call, RD_FORM(op, true, false, false, sources, outputs), at);
    if (out_wide) return RD_NAME(steps, RD_TYPE)(call, RD_FORM(op, false, true, false, sources, outputs), at);
    return RD_NAME(steps, RD_TYPE)(call, RD_FORM(op, false, false, aligned, sources, outputs), at);
#else
    if (sources == 2 && outputs == 1) return RD_NAME(steps, RD_TYPE)(call, RD_FORM(op, false, false, false, 2, 1), at);
    if (sources == 2 && outputs == 2) return RD_NAME(steps, RD_TYPE)(call, RD_FORM(op, false, false, false, 2, 2), at);
    return RD_NAME(steps, RD_TYPE)(call, RD_FORM(op, false, false, false, sources, outputs), at);
#endif
}

/* Fewer elements than a step: at either end. */
RD_INLINE void RD_NAME(part, RD_TYPE)(const struct rd_call *call, rondo_op op, size_t at, size_t n)
{
    const rd_pass *pass = call->pass;
    bool first_wide = RD_NARROW_TYPE && pass->first_wide, out_wide = RD_NARROW_TYPE && pass->out_wide;
    RD_NAME(step, RD_TYPE)(call, RD_FORM(op, first_wide, out_wide, false, pass->sources, pass->outputs), at, n);
}

#define RD_OPERATOR(name, op)                                                                                          \
    static __attribute__((noinline)) void RD_NAME(RD_TYPE, name##_part)(const struct rd_call *call, size_t at,         \
                                                                        size_t n)                                      \
    {                                                                                                                  \
        RD_NAME(part, RD_TYPE)(call, op, at, n);                                                                       \
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
#undef RD_LANE_VECTOR
#undef RD_TYPE
#undef RD_LANE
#undef RD_BYTES
#undef RD_WIDE
#undef RD_ALIGNED
#undef RD_SAME_SUMS
