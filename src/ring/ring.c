/* SPDX-License-Identifier: Apache-2.0
 *
 * ring.c - a channel of the ring. See exec.h for the order of events.
 *
 * One event reads a slice once: from the slot it arrived in, or from where the link stored it; adds the rank's own
 * term; and writes the sum once: into the next rank's slot, into the user's memory, or both. A link without slots
 * sends from the user's memory, and receives into it whatever replaces what is there; what is to be added lands in
 * scratch.
 */
#include "ring/event.h"

#define SLOTS(wire) ((wire)->link->caps & RONDO_LINK_SLOTS)
#define STAGED(wire) ((wire)->link->caps & RONDO_LINK_STAGED)
/* Moves only when polled: no slots, or staged ones. */
#define POLLED(wire) (((wire)->link->caps & (RONDO_LINK_SLOTS | RONDO_LINK_STAGED)) != RONDO_LINK_SLOTS)

static unsigned char nothing[1]; /* where empty slices of an opening lie */

void rd_ring_start(rd_op *op, rd_flow *flow, int channel)
{
    rd_wiring *wiring = op->wiring;
    bool whole = op->plan.algo == RONDO_ALGO_EXCHANGE;
    rondo_range longest = {0, op->stage ? op->stage->longest : whole ? op->plan.count : rondo_chunk_max(&op->plan)};
    uint64_t most = rondo_split(longest, (uint32_t)wiring->channels, 0, RD_CHANNEL_GRAIN).count;
    *flow = (rd_flow){.out = wiring->ring_out[channel], .in = wiring->ring_in[channel],
                      .scratch = wiring->scratch[channel], .channel = channel,
                      .plan = op->courses ? &op->courses[channel].plan : &op->plan,
                      .steps = op->courses ? op->courses[channel].steps : op->steps};
    if (op->engine) op->behind[channel] = (rd_behind){0};
    flow->slices = op->stage && op->stage->opens ? 0 : rondo_slices(most, op->slice_elements);
    flow->out_done = flow->out->used;
    flow->in_count = flow->in->used;
    flow->opens = channel == 0 && rondo_plan_opens(flow->plan) && (!op->stage || op->stage->opens);
    flow->comes = flow->opens;
    for (int32_t step = 0; step < flow->plan->steps; step++)
        if (flow->steps[step].recv_from >= 0) flow->comes += flow->slices;
    if (flow->scratch) {
        size_t widest = flow->plan->wide ? op->reduction->wide_bytes : op->reduction->bytes;
        flow->part_bytes = op->slice_elements * widest * (flow->plan->wide ? 2 : 1);
        uint64_t fit = wiring->slice_bytes / flow->part_bytes;
        flow->parts.count = fit < RD_PARTS ? (uint32_t)fit : RD_PARTS;
    }
}

/* ---- parts of the scratch ---- */

static unsigned char *part_at(const rd_flow *flow, uint64_t n)
{
    return flow->scratch + (n % flow->parts.count) * flow->part_bytes;
}

static bool part_take(rd_flow *flow)
{
    rd_parts *parts = &flow->parts;
    while (parts->freed < parts->applied && parts->sent_as[parts->freed % parts->count] <= flow->out_done)
        parts->freed++;
    if (parts->taken - parts->freed == parts->count) return false;
    parts->sent_as[parts->taken % parts->count] = 0;
    parts->taken++;
    return true;
}

/* ---- receiving ---- */

static bool lands_in_output(const rondo_step *step) { return step->action == RONDO_REPLACE; }

/* The next slice that shall come: to `to`, or, where slots are staged, into the next slot. */
static rondo_link_result post(rd_op *op, rd_flow *flow, void *to, size_t bytes)
{
    rondo_link *link = flow->in->link;
    rondo_link_result r;
    if (STAGED(flow->in)) {
        r = link->ops->peek_ahead(link, (uint32_t)(flow->posted - flow->applied), bytes, op->signature, &to);
        if (r == RONDO_LINK_AGAIN) r = RONDO_LINK_OK; /* it is not there yet */
    } else {
        r = link->ops->recv(link, to, bytes, op->signature);
        flow->in_refused = r == RONDO_LINK_AGAIN;
    }
    flow->posted += r == RONDO_LINK_OK;
    return r;
}

/* Posts receives on a wire that moves when polled, as far ahead as there are places for what comes. An opening is the
 * first, also on a rank that takes it last: until then no slice of another call can come unseen. */
static rondo_link_result post_receives(rd_op *op, rd_flow *flow)
{
    rondo_link *link = flow->in->link;
    if (flow->opens && !flow->posted) {
        rondo_link_result r = post(op, flow, nothing, 0);
        if (r != RONDO_LINK_OK) return r;
    }
    while (flow->post_first < flow->slices) {
        rondo_step step = flow->steps[flow->post_step];
        if (step.recv_from >= 0) {
            rondo_range part = rd_piece(op, flow, step.recv_chunk, flow->post_slice);
            bool direct = STAGED(flow->in) || lands_in_output(&step);
            if (flow->posted - flow->applied >= link->slots || (!direct && !part_take(flow))) return RONDO_LINK_OK;
            void *to = direct ? rd_op_output(op, step.recv_chunk, part) : part_at(flow, flow->parts.taken - 1);
            rondo_link_result r = post(op, flow, to, rd_wire_bytes(op, part, step.recv_wide));
            if (r != RONDO_LINK_OK) {
                if (!direct) flow->parts.taken--;
                return r;
            }
        }
        rd_next(op, flow, &flow->post_first, &flow->post_step, &flow->post_slice, flow->plan->steps - 1);
    }
    return RONDO_LINK_OK;
}

/* Behind slices that the engine reads and that are not released yet. */
static rondo_link_result peek_ahead(const rd_op *op, const rd_flow *flow, const rd_event *e, void **place)
{
    rondo_link *link = flow->in->link;
    uint32_t ahead = (uint32_t)op->behind[flow->channel].reading;
    if (ahead && !link->ops->peek_ahead) return RONDO_LINK_AGAIN;
    return ahead ? link->ops->peek_ahead(link, ahead, e->in_bytes, op->signature, place)
                 : link->ops->peek(link, e->in_bytes, op->signature, place);
}

/* The slice that the event receives, readable; AGAIN when it is not there yet. */
static rondo_link_result arrived(rd_op *op, rd_flow *flow, const rd_event *e, void **place)
{
    rondo_link *link = flow->in->link;
    if (op->engine) return peek_ahead(op, flow, e, place);
    if (SLOTS(flow->in)) return link->ops->peek(link, e->in_bytes, op->signature, place);
    if (flow->in_count <= flow->in->used) return RONDO_LINK_AGAIN;
    *place = lands_in_output(&e->in) ? rd_op_output(op, e->in.recv_chunk, e->part) : part_at(flow, flow->parts.applied);
    return RONDO_LINK_OK;
}

/* ---- sending ---- */

/* Without a slot to go to, a partial sum lies in the output where its chunk has a place of its size there. */
static bool sums_in_scratch(const rd_op *op, const rd_event *e)
{
    return e->in.action == RONDO_REDUCE && (e->out.send_wide || !op->buffers.output_whole);
}

/* A writable place for what the event sends; AGAIN while there is none. `in` is where the incoming slice lies. */
static rondo_link_result writable(rd_op *op, rd_flow *flow, const rd_event *e, void *in, void **place)
{
    rondo_link *link = flow->out->link;
    if (SLOTS(flow->out)) return link->ops->reserve(link, e->out_bytes, place);
    if (flow->out->used - flow->out_done >= link->slots) return RONDO_LINK_AGAIN;
    if (!e->receives) {
        *place = (void *)(uintptr_t)rd_op_term(op, &e->out, e->out.send_chunk, e->part); /* sent from, never written to */
    } else if (!sums_in_scratch(op, e)) {
        *place = rd_op_output(op, e->out.send_chunk, e->part);
    } else if (!SLOTS(flow->in)) {
        /* The sum replaces what landed, or, where it is wider, lies behind it, and leaves from there. */
        *place = (unsigned char *)in + (e->in.recv_wide == e->out.send_wide ? 0 : flow->part_bytes / 2);
    } else {
        if (!part_take(flow)) return RONDO_LINK_AGAIN;
        *place = part_at(flow, flow->parts.taken - 1);
    }
    return RONDO_LINK_OK;
}

RD_HOT rondo_link_result hand_over(rd_op *op, rd_flow *flow, const rd_event *e, const void *place)
{
    rondo_link *link = flow->out->link;
    rondo_link_result r = SLOTS(flow->out) ? link->ops->commit(link, e->out_bytes, op->signature)
                                           : link->ops->send(link, place, e->out_bytes, op->signature);
    flow->out_refused = r == RONDO_LINK_AGAIN;
    if (r != RONDO_LINK_OK) return r;
    flow->out->used++;
    flow->sent++;
    return RONDO_LINK_OK;
}

/* ---- one event ---- */

/* Out of place, a rank's own chunk of an all-gather or broadcast must also reach its own output. */
static rondo_link_result send_own(rd_op *op, rd_flow *flow, const rd_event *e, void *place)
{
    const unsigned char *own = rd_op_term(op, &e->out, e->out.send_chunk, e->part);
    unsigned char *keep = NULL;
    if (flow->plan->collective == RONDO_COLL_ALL_GATHER || flow->plan->collective == RONDO_COLL_BROADCAST)
        keep = rd_op_output(op, e->out.send_chunk, e->part);
    if (keep == own) keep = NULL;
    if (SLOTS(flow->out)) return rd_op_copy(op, place, keep, own, e->out_bytes, false);
    return keep ? rd_op_copy(op, keep, NULL, own, e->out_bytes, false) : RONDO_LINK_OK;
}

static rondo_link_result move_on(rd_op *op, rd_flow *flow, const rd_event *e, void *in, void *place)
{
    bool touch = flow->in->link->caps & RONDO_LINK_TOUCH;
    unsigned char *output = rd_op_output(op, e->in.recv_chunk, e->part);
    void *slot = e->sends && SLOTS(flow->out) ? place : NULL;
    if (in != output) return rd_op_copy(op, output, slot, in, e->in_bytes, touch);
    return slot ? rd_op_copy(op, slot, NULL, in, e->in_bytes, false) : RONDO_LINK_OK;
}

/* Two sums of hosts, neither of them a rank's input; when that completes the sum, a second pass finishes it. */
static rondo_link_result join(rd_op *op, rd_flow *flow, const rd_event *e, void *in, void *place)
{
    bool finish = e->in.action == RONDO_FINISH;
    void *ours = (void *)(uintptr_t)rd_op_term(op, &e->in, e->in.recv_chunk, e->part);
    rd_pass pass;
    rd_pass_begin(&pass, e->part.count, 2);
    pass.source[0] = in;
    pass.source[1] = ours;
    pass.first_partial = true;
    pass.touch = flow->in->link->caps & RONDO_LINK_TOUCH;
    pass.output[pass.outputs++] = finish ? ours : place;
    rd_reduce(op->stage->joins, &pass);
    if (!finish) return RONDO_LINK_OK;
    rd_pass_begin(&pass, e->part.count, 1);
    pass.source[0] = ours;
    pass.first_partial = pass.finish = true;
    pass.first_wide = e->in.recv_wide;
    pass.output[pass.outputs++] = rd_op_output(op, e->in.recv_chunk, e->part);
    if (e->sends && place != pass.output[0]) pass.output[pass.outputs++] = place;
    return rd_op_reduce(op, &pass);
}

static rondo_link_result add(rd_op *op, rd_flow *flow, const rd_event *e, void *in, void *place)
{
    rd_pass pass;
    if (e->in.held) return join(op, flow, e, in, place);
    rd_pass_begin(&pass, e->part.count, 2);
    pass.source[0] = in;
    pass.source[1] = rd_op_input(op, e->in.recv_chunk, e->part);
    pass.first_partial = !e->in.recv_own;
    pass.first_wide = e->in.recv_wide;
    pass.finish = e->in.action == RONDO_FINISH;
    pass.out_wide = e->sends && e->out.send_wide;
    pass.touch = flow->in->link->caps & RONDO_LINK_TOUCH;
    if (pass.finish) pass.output[pass.outputs++] = rd_op_output(op, e->in.recv_chunk, e->part);
    if (!pass.finish && !e->sends && op->stage) { /* a host's sum, which stays here for the rail */
        pass.out_wide = flow->plan->wide;
        pass.output[pass.outputs++] = op->stage->held + (e->part.first - op->stage->held_first) * op->stage->held_bytes;
    }
    if (e->sends && (!pass.finish || place != pass.output[0])) pass.output[pass.outputs++] = place;
    return rd_op_reduce(op, &pass);
}

RD_HOT rondo_link_result consumed(rd_op *op, rd_flow *flow, const rd_event *e)
{
    bool from_scratch = !SLOTS(flow->out) && sums_in_scratch(op, e);
    if (SLOTS(flow->in)) {
        rondo_link_result r = flow->in->link->ops->release(flow->in->link);
        if (r != RONDO_LINK_OK) return r;
    }
    if (from_scratch || (!SLOTS(flow->in) && !lands_in_output(&e->in)))
        flow->parts.sent_as[flow->parts.applied++ % flow->parts.count] = from_scratch ? flow->out->used : 0;
    flow->in->used++;
    flow->applied++;
    return RONDO_LINK_OK;
}

static void record(const rd_op *op, const rd_flow *flow, const rd_event *e)
{
    int32_t event = e->event + (op->stage ? op->stage->first_step : 0);
    rondo_range part = {e->part.first + (op->stage ? op->stage->origin : 0), e->part.count};
    if (e->receives) rd_trace_received(op->trace, event - 1, &e->in, part, e->in_bytes, e->slice, flow->channel);
    if (e->sends) rd_trace_sent(op->trace, event, &e->out, part, e->out_bytes, e->slice, flow->channel);
}

/* An exchange in place writes its sums where its own terms leave from: not before they have left. */
static bool still_leaving(const rd_op *op, const rd_flow *flow, const rd_event *e)
{
    if (flow->plan->algo != RONDO_ALGO_EXCHANGE || SLOTS(flow->out) || op->buffers.output != op->buffers.input) return false;
    uint64_t before = flow->out->used - flow->sent;
    return e->receives && flow->out_done <= before + e->slice;
}

/* Brings what the event sends to where it leaves from, or has the engine do so. */
static rondo_link_result work(rd_op *op, rd_flow *flow, const rd_event *e)
{
    void *in = NULL, *place = NULL;
    rondo_link_result r;
    if (e->receives) {
        flow->blocked = RD_NEEDS_IN;
        if ((r = arrived(op, flow, e, &in)) != RONDO_LINK_OK) return r;
    }
    if (still_leaving(op, flow, e)) {
        flow->blocked = RD_NEEDS_OUT;
        return RONDO_LINK_AGAIN;
    }
    if (e->sends) {
        flow->blocked = RD_NEEDS_OUT;
        if ((r = writable(op, flow, e, in, &place)) != RONDO_LINK_OK) return r;
    }
    flow->blocked = RD_NEEDS_ENGINE;
    if (!e->receives)
        r = send_own(op, flow, e, place);
    else if (e->in.action == RONDO_REPLACE)
        r = move_on(op, flow, e, in, place);
    else
        r = add(op, flow, e, in, place);
    if (r != RONDO_LINK_OK) return r;
    flow->worked = true;
    flow->place = place;
    return RONDO_LINK_OK;
}

/* What the event sends is there: on its way with it, and what was received is not needed any more. */
RD_HOT rondo_link_result pass_on(rd_op *op, rd_flow *flow, const rd_event *e)
{
    rondo_link_result r;
    if (e->sends) {
        flow->blocked = RD_NEEDS_OUT;
        if ((r = hand_over(op, flow, e, flow->place)) != RONDO_LINK_OK) return r;
    }
    flow->worked = false;
    if (e->receives) {
        flow->blocked = RD_NEEDS_IN;
        if ((r = consumed(op, flow, e)) != RONDO_LINK_OK) return r;
    }
    flow->blocked = RD_FREE;
    if (op->trace) record(op, flow, e);
    return RONDO_LINK_OK;
}

/* The event begins; to be passed on when it is done. */
static void note_begun(rd_op *op, rd_flow *flow, const rd_event *e)
{
    rd_behind *behind = &op->behind[flow->channel];
    flow->worked = false;
    behind->tickets[flow->begun++ % RD_BLOCK] = op->engine->given;
    behind->reading += e->receives;
}

static rondo_link_result run_event(rd_op *op, rd_flow *flow, const rd_event *e)
{
    if (op->engine && flow->begun - op->behind[flow->channel].ended == RD_BLOCK) {
        flow->blocked = RD_NEEDS_ENGINE;
        return RONDO_LINK_AGAIN;
    }
    /* A link may say "try again" to a send; to add once more would not be the same. */
    if (!flow->worked) {
        rondo_link_result r = work(op, flow, e);
        if (r != RONDO_LINK_OK) return r;
    }
    if (!op->engine) return pass_on(op, flow, e);
    note_begun(op, flow, e);
    return RONDO_LINK_OK;
}

/* Passes on what the engine has done, in the order in which it was begun. All links have slots here, so that pass_on
 * needs no place, and is never told to try again. */
static __attribute__((noinline)) rondo_link_result end_events(rd_op *op, rd_flow *flow)
{
    rd_behind *behind = &op->behind[flow->channel];
    while (behind->ended < flow->begun && rd_engine_done(op->engine, behind->tickets[behind->ended % RD_BLOCK])) {
        rd_event e = rd_event_at(op, flow, behind->event, behind->slice);
        if (e.receives || e.sends) {
            rondo_link_result r = pass_on(op, flow, &e);
            if (r != RONDO_LINK_OK) return r;
            behind->reading -= e.receives;
            behind->ended++;
        }
        rd_next(op, flow, &behind->first, &behind->event, &behind->slice, flow->plan->steps);
    }
    return RONDO_LINK_OK;
}

/* ---- the opening ---- */

static rondo_link_result send_opening(rd_op *op, rd_flow *flow)
{
    static const rd_event empty = {.sends = true};
    void *place = nothing;
    flow->blocked = RD_NEEDS_OUT;
    rondo_link_result r = RONDO_LINK_OK;
    if (SLOTS(flow->out)) r = flow->out->link->ops->reserve(flow->out->link, 0, &place);
    if (r == RONDO_LINK_OK) r = hand_over(op, flow, &empty, place);
    if (r != RONDO_LINK_OK) return r;
    flow->opened = true;
    rondo_step step = rondo_plan_opening(flow->plan);
    if (op->trace) rd_trace_sent(op->trace, RONDO_OPENING, &step, (rondo_range){0, 0}, 0, 0, flow->channel);
    return RONDO_LINK_OK;
}

static rondo_link_result take_opening(rd_op *op, rd_flow *flow)
{
    rondo_link *link = flow->in->link;
    void *place;
    flow->blocked = RD_NEEDS_IN;
    if (SLOTS(flow->in)) {
        rondo_link_result r = link->ops->peek(link, 0, op->signature, &place);
        if (r == RONDO_LINK_OK) r = link->ops->release(link);
        if (r != RONDO_LINK_OK) return r;
    } else if (flow->in_count <= flow->in->used) {
        return RONDO_LINK_AGAIN;
    }
    flow->in->used++;
    flow->applied++;
    flow->met = true;
    rondo_step step = rondo_plan_opening(flow->plan);
    if (op->trace) rd_trace_received(op->trace, RONDO_OPENING, &step, (rondo_range){0, 0}, 0, 0, flow->channel);
    return RONDO_LINK_OK;
}

/* Does of the opening what is due before an event that receives, or does not, and at the end. */
static rondo_link_result open_edge(rd_op *op, rd_flow *flow, bool take)
{
    rondo_link_result r = RONDO_LINK_OK;
    if (!flow->opens) return r;
    if (!flow->opened) r = send_opening(op, flow);
    if (r == RONDO_LINK_OK && take && !flow->met) r = take_opening(op, flow);
    return r;
}

/* ---- progress ---- */

/* Links without slots move bytes only when polled. First the sends: what they free is room for receives; and before the
 * first send receives are posted, but not asked for, which takes a system call that somebody would wait for. A closed
 * end is no failure while what it brought suffices. */
static rondo_link_result poll_links(rd_op *op, rd_flow *flow)
{
    rondo_link *in = flow->in->link, *out = flow->out->link;
    rondo_link_result r;
    if (POLLED(flow->out) && flow->out->used > flow->out_done) {
        r = out->ops->poll(out, &flow->out_done);
        flow->blocked = RD_NEEDS_OUT;
        if (r != RONDO_LINK_OK && flow->out_done < flow->out->used) return r;
    }
    if (POLLED(flow->in)) {
        bool sends_first = flow->blocked == RD_FREE && flow->steps[0].send_to >= 0;
        r = post_receives(op, flow);
        flow->blocked = RD_NEEDS_IN;
        if (sends_first) return r <= RONDO_LINK_AGAIN ? RONDO_LINK_OK : r;
        if (r <= RONDO_LINK_AGAIN && flow->posted > flow->applied) r = in->ops->poll(in, &flow->in_count);
        if (r > RONDO_LINK_AGAIN && flow->in_count <= flow->in->used) return r;
    }
    return RONDO_LINK_OK;
}

/* sent <= applied + block, on plans that go all round; a breach is a bug of this file. */
static bool counters_hold(const rd_op *op, const rd_flow *flow)
{
    return flow->plan->chunks == 1 || flow->sent <= flow->applied + (uint64_t)op->block;
}

/* Everything that can change while a flow waits; it has moved if this has. */
static uint64_t moves(const rd_flow *flow)
{
    return flow->sent + flow->applied + flow->posted + flow->out_done + flow->in_count + flow->begun;
}

/* Done when every send has left the user's memory. */
static rondo_link_result at_the_end(rd_op *op, rd_flow *flow)
{
    if (op->engine && op->behind[flow->channel].ended < flow->begun) {
        flow->blocked = RD_NEEDS_ENGINE;
        return RONDO_LINK_AGAIN;
    }
    rondo_link_result r = open_edge(op, flow, true);
    if (r != RONDO_LINK_OK || !POLLED(flow->out) || flow->out_done >= flow->out->used) return r;
    flow->blocked = RD_NEEDS_OUT;
    return RONDO_LINK_AGAIN;
}

/* At most RD_TURN events, so that other channels and operations, and an abort, have their turn. */
rd_progress rd_ring_advance(rd_op *op, rd_flow *flow)
{
    uint64_t before = moves(flow);
    for (int turn = 0; turn < RD_TURN; turn++) {
        rondo_link_result r = poll_links(op, flow);
        if (r == RONDO_LINK_OK && op->engine) r = end_events(op, flow);
        bool through = flow->first >= flow->slices;
        if (r == RONDO_LINK_OK && through) r = at_the_end(op, flow);
        if (r == RONDO_LINK_OK && through) return RD_DONE;
        if (r == RONDO_LINK_OK) {
            rd_event e = rd_event_at(op, flow, flow->event, flow->slice);
            r = open_edge(op, flow, e.receives);
            if (r == RONDO_LINK_OK && (e.receives || e.sends)) r = run_event(op, flow, &e);
        }
        if (r == RONDO_LINK_AGAIN) return moves(flow) > before ? RD_MOVED : RD_IDLE;
        if (r != RONDO_LINK_OK)
            return rd_op_fail(op, op->engine_failed ? NULL : flow->blocked == RD_NEEDS_IN ? flow->in : flow->out, r);
        if (!counters_hold(op, flow)) return rd_op_fail(op, NULL, RONDO_LINK_BROKEN);
        rd_next(op, flow, &flow->first, &flow->event, &flow->slice, flow->plan->steps);
    }
    return RD_MOVED;
}

rondo_link_result rd_ring_arm(rd_flow *flow, rondo_bell *bell, const rd_wire **which)
{
    rondo_link *in = flow->in->link, *out = flow->out->link;
    rondo_link_result r = RONDO_LINK_AGAIN;
    *which = flow->in;
    /* A link that moves only when polled is watched whatever the flow waits for, and also one that took nothing. */
    if (POLLED(flow->in) ? flow->posted > flow->applied || flow->in_refused : flow->blocked == RD_NEEDS_IN)
        r = in->ops->arm(in, bell, POLLED(flow->in) ? flow->in_count : flow->in->used);
    if (r != RONDO_LINK_AGAIN) return r;
    *which = flow->out;
    if (POLLED(flow->out) ? flow->out->used > flow->out_done || flow->out_refused : flow->blocked == RD_NEEDS_OUT)
        r = out->ops->arm(out, bell, POLLED(flow->out) ? flow->out_done : flow->out->used - out->slots);
    return r;
}

const rd_wire *rd_ring_look(const rd_op *op, const rd_flow *flow)
{
    return flow->applied < flow->comes && rd_op_foreign(op, flow->in, op->signature) ? flow->in : NULL;
}
