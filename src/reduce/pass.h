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

/* Loads n elements of `bytes` each from their place in a source; fewer than a step go by way of a spare step. */
RD_INLINE const unsigned char *RD_NAME(reach, RD_TYPE)(const void *source, size_t at, size_t n, size_t bytes,
                                                       unsigned char *spare)
{
    const unsigned char *from = (const unsigned char *)source + at * bytes;
    if (n == RD_STEP) return from;
    memset(spare, 0, 4 * RD_VECTOR_BYTES);
    return memcpy(spare, from, n * bytes);
}

RD_INLINE void RD_NAME(load_term, RD_TYPE)(const struct rd_call *call, rondo_op op, int k, size_t at, size_t n,
                                           RD_LANE_VECTOR to[4])
{
    unsigned char spare[4 * RD_VECTOR_BYTES];
    const void *source = call->pass->source[k];
#if RD_NARROW_TYPE
    if (k == 0 && call->pass->first_wide) {
        RD_LANE_VECTOR wide[4];
        RD_NAME(load, RD_LANE)(RD_NAME(reach, RD_TYPE)(source, at, n, RD_WIDE, spare), wide, op);
        RD_NAME(lanes, RD_TYPE)(wide, to, op);
    } else
#endif
        RD_NAME(load, RD_TYPE)(RD_NAME(reach, RD_TYPE)(source, at, n, RD_BYTES, spare), to, op);
    if (op == RONDO_AVG && call->scaled && !(k == 0 && call->pass->first_partial))
        for (int i = 0; i < 4; i++) to[i] = RD_NAME(scale, RD_LANE)(to[i], &call->factors);
    if (k == 0 && call->touch) rd_touch_lines((const unsigned char *)source + at * call->first_bytes, n * call->first_bytes);
}

RD_INLINE void RD_NAME(store_sum, RD_TYPE)(const struct rd_call *call, rondo_op op, int outputs, size_t at, size_t n,
                                           const RD_LANE_VECTOR from[4])
{
    v_uint8 packed[4];
    int vectors;
#if RD_NARROW_TYPE
    if (call->pass->out_wide) {
        RD_LANE_VECTOR wide[4];
        RD_NAME(order, RD_TYPE)(from, wide, op);
        vectors = RD_NAME(pack, RD_LANE)(wide, packed, op);
    } else
#endif
        vectors = RD_NAME(pack, RD_TYPE)(from, packed, op);
    for (int o = 0; o < outputs; o++) {
        unsigned char *to = (unsigned char *)call->pass->output[o] + at * call->out_bytes;
        if (n == RD_STEP)
            for (int i = 0; i < vectors; i++) store_vector(to + i * RD_VECTOR_BYTES, packed[i]);
        else
            memcpy(to, packed, n * call->out_bytes);
    }
}

RD_INLINE void RD_NAME(step, RD_TYPE)(const struct rd_call *call, rondo_op op, int sources, int outputs, size_t at, size_t n)
{
    RD_LANE_VECTOR sum[4], term[4];
    RD_NAME(load_term, RD_TYPE)(call, op, 0, at, n, sum);
    for (int k = 1; k < sources; k++) {
        RD_NAME(load_term, RD_TYPE)(call, op, k, at, n, term);
        for (int i = 0; i < 4; i++) sum[i] = RD_NAME(combine, RD_LANE)(op, sum[i], term[i]);
    }
    if (op == RONDO_AVG && call->divided)
        for (int i = 0; i < 4; i++) sum[i] = RD_NAME(finish, RD_LANE)(sum[i], &call->factors);
    RD_NAME(store_sum, RD_TYPE)(call, op, outputs, at, n, sum);
}

/* The ring's passes have two sources and one or two outputs: known numbers, no inner loops. */
RD_INLINE void RD_NAME(pass, RD_TYPE)(const rd_reduction *reduction, const rd_pass *pass, rondo_op op,
                                      void (*part)(const struct rd_call *call, size_t at, size_t n))
{
    struct rd_call call = rd_call_of(reduction, pass);
    size_t at = rd_head(&call), count = pass->count;
    if (at > 0) part(&call, 0, at);
    if (pass->sources == 2 && pass->outputs == 1)
        for (; count - at >= RD_STEP; at += RD_STEP) RD_NAME(step, RD_TYPE)(&call, op, 2, 1, at, RD_STEP);
    else if (pass->sources == 2 && pass->outputs == 2)
        for (; count - at >= RD_STEP; at += RD_STEP) RD_NAME(step, RD_TYPE)(&call, op, 2, 2, at, RD_STEP);
    else
        for (; count - at >= RD_STEP; at += RD_STEP)
            RD_NAME(step, RD_TYPE)(&call, op, pass->sources, pass->outputs, at, RD_STEP);
    if (at < count) part(&call, at, count - at);
}

#define RD_OPERATOR(name, op)                                                                                          \
    static __attribute__((noinline)) void RD_NAME(RD_TYPE, name##_part)(const struct rd_call *call, size_t at, size_t n) \
    {                                                                                                                  \
        RD_NAME(step, RD_TYPE)(call, op, call->pass->sources, call->pass->outputs, at, n);                             \
    }                                                                                                                  \
    static void RD_NAME(RD_TYPE, name)(const rd_reduction *reduction, const rd_pass *pass)                             \
    {                                                                                                                  \
        RD_NAME(pass, RD_TYPE)(reduction, pass, op, RD_NAME(RD_TYPE, name##_part));                                    \
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
#undef RD_SAME_SUMS
