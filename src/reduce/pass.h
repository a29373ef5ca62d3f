/* SPDX-License-Identifier: Apache-2.0
 *
 * pass.h - one pass over a slice of one element type, for each operator. Included once for each type, with
 *
 *   RD_TYPE     its name; the headers above have load_, pack_ and, for a narrow type, order_ and lanes_ of it
 *   RD_LANE     the name of its wide type, whose combine_, scale_ and finish_ they have
 *   RD_COMBINE  whose combine_ it is, where that is not RD_LANE's
 *   RD_BYTES    of one element
 *   RD_WIDE     of one element in the wide type
 *   RD_ALIGNED  1 where load_aligned_, pack_aligned_, special_, multiply_ and, if RD_LOOKS_UP, add_ exist (float8.h,
 *               product8.h, sum8.h), else 0
 *   RD_FUSES    add_scaled_ exists
 *   RD_ORDERED_TYPE  of order.h, which has maxima and minima only
 *
 * A step takes as many elements as fill 4 vectors of lanes, from every source, and writes them to every output. All
 * reads of a step come before its writes, and no step reads what another one writes, so that outputs may equal sources.
 */
#define RD_STEP (4 * RD_VECTOR_BYTES / RD_WIDE) /* elements */
#define RD_NARROW_TYPE (RD_BYTES < RD_WIDE)
#define RD_LANE_VECTOR RD_NAME(v, RD_LANE)
/* Loops for two sources, and of narrow types for three. */
#define RD_FEW_SOURCES 3
#if RD_VECTOR_BYTES > 16 || RD_BYTES < RD_WIDE || defined RD_ORDERED_TYPE
#define RD_PAIRS true
#else
#define RD_PAIRS false /* they make a float32 sum of 16-byte vectors take 0.09 ns a byte, not 0.05 */
#endif
#ifndef RD_COMBINE
#define RD_COMBINE RD_LANE
#endif

RD_INLINE void RD_NAME(scale_term, RD_TYPE)(const struct rd_call *call, struct rd_form form, int k, RD_LANE_VECTOR to[4])
{
#ifndef RD_ORDERED_TYPE
    if (form.op == RONDO_AVG && !form.aligned && call->scaled && !(k > 0 && form.fused) &&
        !(k == 0 && call->pass->first_partial))
        for (int i = 0; i < 4; i++) to[i] = RD_NAME(scale, RD_LANE)(to[i], &call->factors);
#else
    (void)call, (void)form, (void)k, (void)to;
#endif
}

/* Term k: a step of source[k] from `from` on. */
RD_INLINE void RD_NAME(load_term, RD_TYPE)(const struct rd_call *call, struct rd_form form, int k,
                                           const unsigned char *from, RD_LANE_VECTOR to[4])
{
    bool wide = k == 0 && form.first_wide;
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
    RD_NAME(scale_term, RD_TYPE)(call, form, k, to);
    if (k == 0 && form.sources == 0 && call->touch) rd_touch_lines(from, RD_STEP * (wide ? RD_WIDE : RD_BYTES));
}

RD_INLINE void RD_NAME(add_term, RD_TYPE)(const struct rd_call *call, struct rd_form form, RD_LANE_VECTOR sum[4],
                                          const RD_LANE_VECTOR term[4])
{
#ifdef RD_FUSES
    if (form.fused) {
        const v_float32 scale = (v_float32){0} + call->factors.scale_float;
        for (int i = 0; i < 4; i++) sum[i] = RD_NAME(add_scaled, RD_TYPE)(sum[i], term[i], scale);
        return;
    }
#else
    (void)call;
#endif
    for (int i = 0; i < 4; i++) sum[i] = RD_NAME(combine, RD_COMBINE)(form.op, sum[i], term[i]);
}

/* The sum of all terms, as it is stored. false: a step for rare_step. */
RD_INLINE bool RD_NAME(pack_sum, RD_TYPE)(const struct rd_call *call, struct rd_form form, RD_LANE_VECTOR sum[4],
                                          const unsigned char *const term[], v_uint8 to[4])
{
    (void)term;
    bool exact = form.op == RONDO_MAX || form.op == RONDO_MIN;
#ifdef RD_ORDERED_TYPE
    if (call->pass->sources == 1) /* itself, but for a NaN, which combining makes the canonical one */
        RD_NAME(add_term, RD_TYPE)(call, form, sum, sum);
#else
    if (form.op == RONDO_AVG && call->divided && !form.aligned) RD_NAME(finish, RD_LANE)(sum, &call->factors);
#endif
    if (form.out_wide) {
        RD_LANE_VECTOR order[4];
        RD_NAME(order, RD_TYPE)(sum, order);
        RD_NAME(pack, RD_LANE)(order, to, exact);
#if RD_ALIGNED
    } else if (form.aligned) {
        bool two = form.sources == 2;
        v_uint8 sign = two ? signs_of_two(load_vector(term[0]), load_vector(term[1])) : signs_of_sums(sum);
        return RD_NAME(pack_aligned, RD_TYPE)(sum, sign, to, two, form.division, call->factors.quotient);
#endif
    } else {
        RD_NAME(pack, RD_TYPE)(sum, to, exact);
    }
    return true;
}

/* false: a step for rare_step. */
RD_INLINE bool RD_NAME(step, RD_TYPE)(const struct rd_call *call, struct rd_form form, size_t at)
{
    const rd_pass *pass = call->pass;
    size_t first_bytes = form.first_wide ? RD_WIDE : RD_BYTES, out_bytes = form.out_wide ? RD_WIDE : RD_BYTES;
    RD_LANE_VECTOR sum[4], term[4];
    RD_NAME(load_term, RD_TYPE)(call, form, 0, (const unsigned char *)pass->source[0] + at * first_bytes, sum);
    for (int k = 1; k < pass->sources; k++) {
        RD_NAME(load_term, RD_TYPE)(call, form, k, (const unsigned char *)pass->source[k] + at * RD_BYTES, term);
        RD_NAME(add_term, RD_TYPE)(call, form, sum, term);
    }
    v_uint8 packed[4];
    if (__builtin_expect(!RD_NAME(pack_sum, RD_TYPE)(call, form, sum, NULL, packed), 0)) return false;
    for (int o = 0; o < pass->outputs; o++)
        store_vectors((unsigned char *)pass->output[o] + at * out_bytes, packed, RD_STEP * out_bytes);
    return true;
}

#if RD_ALIGNED
/* By way of float16, which has a form for every value. */
static __attribute__((noinline)) void RD_NAME(rare_step, RD_TYPE)(const struct rd_call *call, rondo_op op, size_t at)
{
    if (op == RONDO_AVG)
        RD_NAME(step, RD_TYPE)(call, (struct rd_form){.op = RONDO_AVG}, at);
    else if (op == RONDO_PROD)
        RD_NAME(step, RD_TYPE)(call, (struct rd_form){.op = RONDO_PROD}, at);
    else
        RD_NAME(step, RD_TYPE)(call, (struct rd_form){.op = RONDO_SUM}, at);
}
/* Whether any term of these steps has no aligned form. */
RD_INLINE bool RD_NAME(special_steps, RD_TYPE)(const unsigned char *const term[], int sources, size_t at, size_t steps)
{
    const v_uint8 magnitude = RD_FIXED(uint8, rd_constants.magnitude8);
    v_uint8 largest = load_vector(term[0] + at) & magnitude;
    for (int k = 0; k < sources; k++)
        for (size_t i = k == 0; i < steps; i++)
            largest = max_uint8(largest, load_vector(term[k] + at + i * RD_STEP) & magnitude);
    return RD_NAME(special, RD_TYPE)(largest);
}
#define RD_SPECIAL_STEPS RD_NAME(special_steps, RD_TYPE)
#define RD_RARE_STEP     RD_NAME(rare_step, RD_TYPE)
#else
#define RD_SPECIAL_STEPS(term, sources, at, steps) ((void)(term), false)
#define RD_RARE_STEP(call, op, at)                 (void)0
#endif

RD_INLINE size_t RD_NAME(steps, RD_TYPE)(const struct rd_call *call, struct rd_form form, size_t at)
{
    const unsigned char *const *source = (const unsigned char *const *)call->pass->source;
    for (; call->pass->count - at >= RD_STEP; at += RD_STEP)
        if ((form.aligned && __builtin_expect(RD_SPECIAL_STEPS(source, call->pass->sources, at, 1), 0)) ||
            !RD_NAME(step, RD_TYPE)(call, form, at))
            RD_RARE_STEP(call, form.op, at);
    return at;
}

/* false: a step for rare_step. */
RD_INLINE bool RD_NAME(few_step, RD_TYPE)(const struct rd_call *call, struct rd_form form,
                                          const unsigned char *const term[], v_uint8 packed[4])
{
    RD_LANE_VECTOR sum[4], add[4];
#if RD_ALIGNED
    if (form.op == RONDO_PROD && form.sources == 2)
        return RD_NAME(multiply, RD_TYPE)(load_vector(term[0]), load_vector(term[1]), packed);
#endif
    RD_NAME(load_term, RD_TYPE)(call, form, 0, term[0], sum);
    for (int k = 1; k < form.sources; k++) {
        RD_NAME(load_term, RD_TYPE)(call, form, k, term[k], add);
        RD_NAME(add_term, RD_TYPE)(call, form, sum, add);
    }
    return RD_NAME(pack_sum, RD_TYPE)(call, form, sum, term, packed);
}

/* The same for two or three sources and one or two outputs, with all that a step would look up known before the first:
 * a step of a narrow type is so few bytes that this is a third of its time. `together` is how many steps are made at
 * once, so that one needn't wait for the other. */
RD_INLINE size_t RD_NAME(few_steps, RD_TYPE)(const struct rd_call *call, struct rd_form form, size_t together, size_t at)
{
    const struct rd_call here = *call;
    const unsigned char *source[RD_FEW_SOURCES];
    unsigned char *to = call->pass->output[0], *also = call->pass->outputs > 1 ? call->pass->output[1] : NULL;
    for (int k = 0; k < form.sources; k++) source[k] = call->pass->source[k];
    bool touch = call->touch;
    for (size_t end = call->pass->count - (call->pass->count - at) % (together * RD_STEP); at < end;
         at += together * RD_STEP) {
        v_uint8 packed[2][4];
        bool usual = !(form.aligned && RD_SPECIAL_STEPS(source, form.sources, at, together));
        for (size_t i = 0; i < together; i++) {
            const unsigned char *term[RD_FEW_SOURCES];
            for (int k = 0; k < form.sources; k++) term[k] = source[k] + (at + i * RD_STEP) * RD_BYTES;
            usual = usual && RD_NAME(few_step, RD_TYPE)(&here, form, term, packed[i]);
        }
        if (__builtin_expect(!usual, 0)) {
            for (size_t i = 0; i < together; i++) RD_RARE_STEP(call, form.op, at + i * RD_STEP);
            continue;
        }
        if (touch) rd_touch_lines(source[0] + at * RD_BYTES, together * RD_STEP * RD_BYTES);
        for (size_t i = 0; i < together; i++)
            store_vectors(to + (at + i * RD_STEP) * RD_BYTES, packed[i], RD_STEP * RD_BYTES);
        if (__builtin_expect(!also, 0)) continue;
        for (size_t i = 0; i < together; i++)
            store_vectors(also + (at + i * RD_STEP) * RD_BYTES, packed[i], RD_STEP * RD_BYTES);
    }
    return at;
}

#if RD_ALIGNED && RD_LOOKS_UP
/* Sums and averages of two by look-ups, two steps at once, until there are not two, or one is for rare_step. */
RD_INLINE size_t RD_NAME(usual_steps, RD_TYPE)(const struct rd_call *call, uint8_t twice, size_t at)
{
    const unsigned char *first = call->pass->source[0], *second = call->pass->source[1];
    unsigned char *to = call->pass->output[0], *also = call->pass->outputs > 1 ? call->pass->output[1] : NULL;
    struct rd_sums8 by;
    memcpy(&by, call->reduction->tables[call->divided], sizeof by);
    bool touch = call->touch;
    for (size_t count = call->pass->count; count - at >= 2 * RD_STEP; at += 2 * RD_STEP) {
        v_uint8 packed[2];
        if (__builtin_expect(!RD_NAME(add, RD_TYPE)(first + at, second + at, &by, twice, packed), 0)) break;
        if (touch) rd_touch_lines(first + at, 2 * RD_STEP);
        store_vectors(to + at, packed, sizeof packed);
        if (also) store_vectors(also + at, packed, sizeof packed);
    }
    return at;
}
static __attribute__((noinline)) size_t RD_NAME(look_up_steps, RD_TYPE)(const struct rd_call *call, rondo_op op,
                                                                       size_t at)
{
    uint8_t twice = RD_NAME(twice, RD_TYPE)(call->divided ? call->reduction->ranks : 1);
    for (;; at += 2 * RD_STEP) {
        at = twice ? RD_NAME(usual_steps, RD_TYPE)(call, twice, at) : RD_NAME(usual_steps, RD_TYPE)(call, 0, at);
        if (call->pass->count - at < 2 * RD_STEP) return at;
        RD_RARE_STEP(call, op, at);
        RD_RARE_STEP(call, op, at + RD_STEP);
    }
}
#endif

/* Steps whose first source and outputs are of the type itself. */
RD_INLINE size_t RD_NAME(narrow_steps, RD_TYPE)(const struct rd_call *call, struct rd_form form, size_t at)
{
    if (form.sources == 0) return RD_NAME(steps, RD_TYPE)(call, form, at);
    if (form.aligned && RD_VECTOR_BYTES > 16) at = RD_NAME(few_steps, RD_TYPE)(call, form, 2, at);
    return RD_NAME(few_steps, RD_TYPE)(call, form, 1, at);
}
RD_INLINE size_t RD_NAME(steps_of, RD_TYPE)(const struct rd_call *call, rondo_op op, int sources, size_t at)
{
    struct rd_form any = {.op = op, .sources = sources}, as_it_is = {.op = op, .sources = sources, .aligned = true},
                   halved = {.op = op, .sources = sources, .aligned = true, .division = RD_HALVED},
                   divided = {.op = op, .sources = sources, .aligned = true, .division = RD_DIVIDED};
    int n = call->divided ? call->reduction->ranks : 1;
    if (RD_ALIGNED && (op == RONDO_SUM || (op == RONDO_AVG && !call->scaled && n <= RD_MOST_QUOTIENT))) {
        if (op == RONDO_SUM || n == 1) return RD_NAME(narrow_steps, RD_TYPE)(call, as_it_is, at);
        if (sources == 2 && n == 2) return RD_NAME(narrow_steps, RD_TYPE)(call, halved, at);
        return RD_NAME(narrow_steps, RD_TYPE)(call, divided, at);
    }
#ifdef RD_FUSES
    struct rd_form fused = {.op = op, .sources = sources, .fused = true};
    if (op == RONDO_AVG && call->scaled && call->reduction->ranks <= 1 << 16)
        return RD_NAME(narrow_steps, RD_TYPE)(call, fused, at);
#endif
    return RD_NAME(narrow_steps, RD_TYPE)(call, any, at);
}

/* All whole steps from `at` on: a loop for each pair of forms. */
RD_INLINE size_t RD_NAME(all_steps, RD_TYPE)(const struct rd_call *call, rondo_op op, size_t at)
{
#if RD_NARROW_TYPE
    struct rd_form wide_to_wide = {.op = op, .first_wide = true, .out_wide = true};
    struct rd_form from_wide = {.op = op, .first_wide = true}, to_wide = {.op = op, .out_wide = true};
    bool first_wide = call->pass->first_wide, out_wide = call->pass->out_wide;
    if (first_wide && out_wide) return RD_NAME(steps, RD_TYPE)(call, wide_to_wide, at);
    if (first_wide) return RD_NAME(steps, RD_TYPE)(call, from_wide, at);
    if (out_wide || op == RONDO_MAX || op == RONDO_MIN) /* those of the narrow form never come here */
        return RD_NAME(steps, RD_TYPE)(call, to_wide, at);
#endif
    int sources = call->pass->sources;
    bool far = RD_ALIGNED && op == RONDO_AVG && call->divided && call->reduction->ranks > RD_MOST_QUOTIENT_OF_TWO;
    bool few = RD_PAIRS && call->pass->outputs <= 2 && !far;
#if RD_ALIGNED && RD_LOOKS_UP
    bool sums = (op == RONDO_SUM || op == RONDO_AVG) && !call->scaled && call->reduction->tables[call->divided];
    if (sums && sources == 2 && call->pass->outputs <= 2) at = RD_NAME(look_up_steps, RD_TYPE)(call, op, at);
#endif
    if (few && sources == 2) return RD_NAME(steps_of, RD_TYPE)(call, op, 2, at);
    if (few && sources == 3 && RD_NARROW_TYPE) return RD_NAME(steps_of, RD_TYPE)(call, op, 3, at);
    return RD_NAME(steps_of, RD_TYPE)(call, op, 0, at);
}

/* A short pass, by pieces of at most 4 vectors: what steps look up, and the detour that rd_part takes, would be most of
 * its time. */
#if RD_VECTOR_BYTES == 16 && !RD_NARROW_TYPE && !defined RD_ORDERED_TYPE
RD_INLINE void RD_NAME(load_few, RD_TYPE)(const struct rd_call *call, struct rd_form form, int k, size_t at,
                                          size_t bytes, RD_LANE_VECTOR to[4])
{
    v_uint8 loaded[4];
    load_few((const unsigned char *)call->pass->source[k] + at, bytes, loaded);
    RD_NAME(load, RD_TYPE)((const unsigned char *)loaded, to);
    RD_NAME(scale_term, RD_TYPE)(call, form, k, to);
}

RD_INLINE void RD_NAME(few, RD_TYPE)(const rd_reduction *reduction, const rd_pass *pass, rondo_op op)
{
    const struct rd_form form = {.op = op};
    const struct rd_call call = op == RONDO_AVG ? rd_call_of(reduction, pass) : (struct rd_call){.pass = pass};
    size_t all = pass->count * RD_BYTES;
    for (size_t at = 0, bytes; at < all; at += bytes) {
        RD_LANE_VECTOR sum[4], term[4];
        v_uint8 packed[4];
        bytes = all - at < RD_STEP * RD_BYTES ? all - at : RD_STEP * RD_BYTES;
        RD_NAME(load_few, RD_TYPE)(&call, form, 0, at, bytes, sum);
        for (int k = 1; k < pass->sources; k++) {
            RD_NAME(load_few, RD_TYPE)(&call, form, k, at, bytes, term);
            RD_NAME(add_term, RD_TYPE)(&call, form, sum, term);
        }
        RD_NAME(pack_sum, RD_TYPE)(&call, form, sum, NULL, packed);
        for (int o = 0; o < pass->outputs; o++) store_few((unsigned char *)pass->output[o] + at, bytes, packed);
    }
    if (!touches(pass)) return;
    rd_touch_line((uintptr_t)pass->source[0]);
    rd_touch_lines(pass->source[0], all);
}
#define RD_FEW(name, op)                                                                                               \
    static void RD_NAME(RD_NAME(few, RD_TYPE), name)(const rd_reduction *reduction, const rd_pass *pass)               \
    {                                                                                                                  \
        RD_NAME(few, RD_TYPE)(reduction, pass, op);                                                                    \
    }
#else
#define RD_FEW(name, op)
#endif

#define RD_RUN(reduction, pass, op)                                                                                    \
    {                                                                                                                  \
        size_t at = 0;                                                                                                 \
        if (pass->count >= RD_STEP) {                                                                                  \
            struct rd_call call = rd_call_of(reduction, pass);                                                          \
            at = rd_head(&call, RD_STEP);                                                                              \
            at = RD_NAME(all_steps, RD_TYPE)(&call, op, at);                                                           \
        }                                                                                                              \
        if (at < pass->count) rd_part(reduction, pass, RD_STEP, at, pass->count - at);                                 \
    }
#define RD_OPERATOR(name, op)                                                                                          \
    static void RD_NAME(RD_TYPE, name)(const rd_reduction *reduction, const rd_pass *pass) RD_RUN(reduction, pass, op)  \
    RD_FEW(name, op)
#define RD_ORDER(name, op)                                                                                             \
    static void RD_NAME(RD_TYPE, name)(const rd_reduction *reduction, const rd_pass *pass)                             \
    {                                                                                                                  \
        if (!pass->first_wide && !pass->out_wide)                                                                      \
            RD_NAME(RD_NAME(ordered, RD_TYPE), name)(reduction, pass);                                                 \
        else                                                                                                           \
            RD_RUN(reduction, pass, op)                                                                                \
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

#undef RD_SPECIAL_STEPS
#undef RD_RARE_STEP
#undef RD_RUN
#undef RD_FEW
#undef RD_ORDER
#undef RD_OPERATOR
#undef RD_STEP
#undef RD_NARROW_TYPE
#undef RD_LANE_VECTOR
#undef RD_PAIRS
#undef RD_FEW_SOURCES
#undef RD_TYPE
#undef RD_LANE
#undef RD_COMBINE
#undef RD_BYTES
#undef RD_WIDE
#undef RD_ALIGNED
#undef RD_SAME_SUMS
#undef RD_FUSES
#undef RD_ORDERED_TYPE
