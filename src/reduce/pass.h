/* SPDX-License-Identifier: Apache-2.0
 *
 * pass.h - one pass over a slice of one element type, for each operator. Included once for each type, with
 *
 *   RD_TYPE     its name; the headers above have load_, pack_ and, for a narrow type, order_ and lanes_ of it
 *   RD_LANE     the name of its wide type, whose combine_, scale_ and finish_ they have
 *   RD_BYTES    of one element
 *   RD_WIDE     of one element in the wide type
 *   RD_ALIGNED  1 where load_aligned_ and pack_aligned_ exist (float8.h), else 0
 *   RD_ORDERED_TYPE  of order.h, which has maxima and minima only
 *
 * A step takes as many elements as fill 4 vectors of lanes, from every source, and writes them to every output. All
 * reads of a step come before its writes, and no step reads what another one writes, so that outputs may equal sources.
 */
#define RD_STEP (4 * RD_VECTOR_BYTES / RD_WIDE) /* elements */
#define RD_NARROW_TYPE (RD_BYTES < RD_WIDE)
#define RD_LANE_VECTOR RD_NAME(v, RD_LANE)

RD_INLINE void RD_NAME(load_term, RD_TYPE)(const struct rd_call *call, struct rd_form form, int k, size_t at,
                                           RD_LANE_VECTOR to[4])
{
    bool wide = k == 0 && form.first_wide;
    size_t bytes = wide ? RD_WIDE : RD_BYTES;
    const unsigned char *from = (const unsigned char *)call->pass->source[k] + at * bytes;
    if (wide) {
        RD_LANE_VECTOR order[4];
        RD_NAME(load, RD_LANE)(from, order);
        RD_NAME(lanes, RD_TYPE)(order, to);
#if RD_ALIGNED
    } else if (form.aligned) {
        RD_NAME(load_aligned, RD_TYPE)(from, to);
#endif
    } else {
        RD_NAME(load, RD_TYPE)(from, to);
    }
#ifndef RD_ORDERED_TYPE
    if (form.op == RONDO_AVG && call->scaled && !(k == 0 && call->pass->first_partial))
        for (int i = 0; i < 4; i++) to[i] = RD_NAME(scale, RD_LANE)(to[i], &call->factors);
#endif
    if (k == 0 && call->touch) rd_touch_lines(from, RD_STEP * bytes);
}

RD_INLINE void RD_NAME(pack_sum, RD_TYPE)(const RD_LANE_VECTOR from[4], struct rd_form form, v_uint8 to[4])
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

RD_INLINE void RD_NAME(step, RD_TYPE)(const struct rd_call *call, struct rd_form form, size_t at)
{
    RD_LANE_VECTOR sum[4], term[4];
    RD_NAME(load_term, RD_TYPE)(call, form, 0, at, sum);
    for (int k = 1; k < call->pass->sources; k++) {
        RD_NAME(load_term, RD_TYPE)(call, form, k, at, term);
        for (int i = 0; i < 4; i++) sum[i] = RD_NAME(combine, RD_LANE)(form.op, sum[i], term[i]);
    }
#ifdef RD_ORDERED_TYPE
    if (call->pass->sources == 1) /* itself, but for a NaN, which combining makes the canonical one */
        for (int i = 0; i < 4; i++) sum[i] = RD_NAME(combine, RD_LANE)(form.op, sum[i], sum[i]);
#else
    if (form.op == RONDO_AVG && call->divided)
        for (int i = 0; i < 4; i++) sum[i] = RD_NAME(finish, RD_LANE)(sum[i], &call->factors);
#endif

    v_uint8 packed[4];
    size_t bytes = form.out_wide ? RD_WIDE : RD_BYTES;
    RD_NAME(pack_sum, RD_TYPE)(sum, form, packed);
    for (int o = 0; o < call->pass->outputs; o++) {
        unsigned char *to = (unsigned char *)call->pass->output[o] + at * bytes;
        for (size_t i = 0; i < RD_STEP * bytes / RD_VECTOR_BYTES; i++)
            store_vector(to + i * RD_VECTOR_BYTES, packed[i]);
    }
}

RD_INLINE size_t RD_NAME(steps, RD_TYPE)(const struct rd_call *call, struct rd_form form, size_t at)
{
    for (; call->pass->count - at >= RD_STEP; at += RD_STEP) RD_NAME(step, RD_TYPE)(call, form, at);
    return at;
}

/* All whole steps from `at` on: a loop for each pair of forms. */
RD_INLINE size_t RD_NAME(all_steps, RD_TYPE)(const struct rd_call *call, rondo_op op, size_t at)
{
#if RD_NARROW_TYPE
    bool first_wide = call->pass->first_wide, out_wide = call->pass->out_wide;
    if (first_wide && out_wide) return RD_NAME(steps, RD_TYPE)(call, (struct rd_form){op, true, true, false}, at);
    if (first_wide) return RD_NAME(steps, RD_TYPE)(call, (struct rd_form){op, true, false, false}, at);
    if (out_wide || op == RONDO_MAX || op == RONDO_MIN) /* those of the narrow form never come here */
        return RD_NAME(steps, RD_TYPE)(call, (struct rd_form){op, false, true, false}, at);
#endif
    return RD_NAME(steps, RD_TYPE)(call, (struct rd_form){op, false, false, RD_ALIGNED && op == RONDO_SUM}, at);
}

#define RD_RUN(reduction, pass, op)                                                                                    \
    {                                                                                                                  \
        struct rd_call call = rd_call_of(reduction, pass);                                                             \
        size_t at = rd_head(&call, RD_STEP);                                                                           \
        at = RD_NAME(all_steps, RD_TYPE)(&call, op, at);                                                               \
        if (at < pass->count) rd_part(&call, RD_STEP, at, pass->count - at);                                           \
    }
#define RD_OPERATOR(name, op)                                                                                          \
    static void RD_NAME(RD_TYPE, name)(const rd_reduction *reduction, const rd_pass *pass)                             \
        RD_RUN(reduction, pass, op)
#define RD_ORDER(name, op)                                                                                             \
    static void RD_NAME(RD_TYPE, name)(const rd_reduction *reduction, const rd_pass *pass)                             \
    {                                                                                                                  \
        if (!pass->first_wide && !pass->out_wide) RD_NAME(RD_NAME(ordered, RD_TYPE), name)(reduction, pass);           \
        else RD_RUN(reduction, pass, op)                                                                               \
    }
#if !defined RD_SAME_SUMS && !defined RD_ORDERED_TYPE /* signed integers take sums and products from the unsigned */
RD_OPERATOR(sum, RONDO_SUM)
RD_OPERATOR(prod, RONDO_PROD)
#endif
#if RD_NARROW_TYPE
RD_ORDER(max, RONDO_MAX)
RD_ORDER(min, RONDO_MIN)
#else
RD_OPERATOR(max, RONDO_MAX)
RD_OPERATOR(min, RONDO_MIN)
#endif
#ifndef RD_ORDERED_TYPE
RD_OPERATOR(avg, RONDO_AVG)
#endif

#undef RD_RUN
#undef RD_ORDER
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
#undef RD_ORDERED_TYPE
