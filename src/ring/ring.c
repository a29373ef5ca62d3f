/* SPDX-License-Identifier: Apache-2.0
 *
 * ring.c - a channel of the ring. See exec.h for the order of events.
 *
 * One event reads a slice once: from the slot it arrived in, or from where the link stored it; adds the rank's own
 * term; and writes the sum once: into the next rank's slot, into the user's memory, or both. A link without slots
 * sends from the user's memory, and receives into it whatever replaces what is there; what is to be added lands in
 * scratch.
 */
#include "ring/exec.h"

#define SLOTS(wire) ((wire)->link->caps & RONDO_LINK_SLOTS)

static unsigned char nothing[1]; /* where empty slices of an opening lie */

/* What one event does. */
typedef struct rd_event {
    bool receives, sends;
    rondo_step in, out;     /* the steps that bring and that send */
    rondo_range part;       /* of the message */
    size_t in_bytes, out_bytes;
} rd_event;

static size_t wire_bytes(const rd_op *op, rondo_range part, bool wide)
{
    return part.count * (wide ? op->reduction->wide_bytes : op->reduction->bytes);
}

/* Slice `slice` of the channel's part of a chunk; empty past its end. */
static rondo_range piece(const rd_op *op, const rd_flow *flow, int32_t chunk, uint64_t slice)
{
    rondo_range all = rondo_split(rondo_chunk(&op->plan, chunk), (uint32_t)op->wiring->channels,
                                  (uint32_t)flow->channel, RD_CHANNEL_GRAIN);
    return rondo_slice(all, slice, op->slice_elements);
}

void rd_ring_start(rd_op *op, rd_flow *flow, int channel)
{
    rd_wiring *wiring = op->wiring;
    bool whole = op->plan.algo == RONDO_ALGO_EXCHANGE;
    rondo_range longest = {0, whole ? op->plan.count : rondo_chunk_max(&op->plan)};
    uint64_t most = rondo_split(longest, (uint32_t)wiring->channels, 0, RD_CHANNEL_GRAIN).count;
    *flow = (rd_flow){.out = wiring->ring_out[channel], .in = wiring->ring_in[channel],
                      .scratch = wiring->scratch[channel], .channel = channel};
    flow->slices = rondo_slices(most, op->slice_elements);
    flow->out_done = flow->out->used;
    flow->in_count = flow->in->used;
    flow->opens = channel == 0 && rondo_plan_opens(&op->plan);
    flow->comes = flow->opens;
    for (int32_t step = 0; step < op->plan.steps; step++)
        if (op->steps[step].recv_from >= 0) flow->comes += flow->slices;
    if (flow->scratch) {
        size_t widest = op->plan.wide ? op->reduction->wide_bytes : op->reduction->bytes;
        flow->part_bytes = op->slice_elements * widest * (op->plan.wide ? 2 : 1);
        uint64_t fit = wiring->slice_bytes / flow->part_bytes;
        flow->parts.count = fit < RD_PARTS ? (uint32_t)fit : RD_PARTS;
    }
}

/* The next (first, index, slice) in the order of exec.h, index running from 0 to last. */
static void next(const rd_op *op, const rd_flow *flow, uint64_t *first, int32_t *index, uint64_t *slice, int32_t last)
{
    if (++*slice < flow->slices && *slice < *first + (uint64_t)op->block) return;
    if (++*index <= last) {
        *slice = *first;
        return;
    }
    *index = 0;
    *first += (uint64_t)op->block;
    *slice = *first;
}

static rd_event event_here(const rd_op *op, const rd_flow *flow)
{
    rd_event e = {0};
    int32_t chunk = -1;
    if (flow->event > 0) {
        e.in = op->steps[flow->event - 1];
        e.receives = e.in.recv_from >= 0;
        if (e.receives) chunk = e.in.recv_chunk;
    }
    if (flow->event < op->plan.steps) {
        e.out = op->steps[flow->event];
        e.sends = e.out.send_to >= 0;
        if (e.sends) chunk = e.out.send_chunk;
    }
    if (chunk < 0) return e;
    e.part = piece(op, flow, chunk, flow->slice);
    e.in_bytes = wire_bytes(op, e.part, e.receives && e.in.recv_wide);
    e.out_bytes = wire_bytes(op, e.part, e.sends && e.out.send_wide);
    return e;
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

/* Posts receives on a wire without slots, as far ahead as there are places for what comes. An opening is the first,
 * also on a rank that takes it last: until then no slice of another call can come unseen. */
static rondo_link_result post_receives(rd_op *op, rd_flow *flow)
{
    rondo_link *link = flow->in->link;
    if (flow->opens && !flow->posted) {
        rondo_link_result r = link->ops->recv(link, nothing, 0, op->signature);
        flow->in_refused = r == RONDO_LINK_AGAIN;
        if (r != RONDO_LINK_OK) return r;
        flow->posted++;
    }
    while (flow->post_first < flow->slices) {
        rondo_step step = op->steps[flow->post_step];
        if (step.recv_from >= 0) {
            rondo_range part = piece(op, flow, step.recv_chunk, flow->post_slice);
            bool direct = lands_in_output(&step);
            if (flow->posted - flow->applied >= link->slots || (!direct && !part_take(flow))) return RONDO_LINK_OK;
            void *to = direct ? rd_op_output(op, step.recv_chunk, part) : part_at(flow, flow->parts.taken - 1);
            rondo_link_result r = link->ops->recv(link, to, wire_bytes(op, part, step.recv_wide), op->signature);
            flow->in_refused = r == RONDO_LINK_AGAIN;
            if (r != RONDO_LINK_OK) {
                if (!direct) flow->parts.taken--;
                return r;
            }
            flow->posted++;
        }
        next(op, flow, &flow->post_first, &flow->post_step, &flow->post_slice, op->plan.steps - 1);
    }
    return RONDO_LINK_OK;
}

/* The slice that the event receives, readable; AGAIN when it is not there yet. */
static rondo_link_result arrived(rd_op *op, rd_flow *flow, const rd_event *e, void **place)
{
    rondo_link *link = flow->in->link;
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
        *place = (void *)(uintptr_t)rd_op_input(op, e->out.send_chunk, e->part); /* sent from, never written to */
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

static rondo_link_result hand_over(rd_op *op, rd_flow *flow, const rd_event *e, const void *place)
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
static void send_own(rd_op *op, rd_flow *flow, const rd_event *e, void *place)
{
    const unsigned char *own = rd_op_input(op, e->out.send_chunk, e->part);
    unsigned char *keep = NULL;
    if (op->plan.collective == RONDO_COLL_ALL_GATHER || op->plan.collective == RONDO_COLL_BROADCAST)
        keep = rd_op_output(op, e->out.send_chunk, e->part);
    if (keep == own) keep = NULL;
    if (SLOTS(flow->out)) rd_copy(place, keep, own, e->out_bytes, false);
    else if (keep) rd_copy(keep, NULL, own, e->out_bytes, false);
}

static void move_on(rd_op *op, rd_flow *flow, const rd_event *e, void *in, void *place)
{
    bool touch = flow->in->link->caps & RONDO_LINK_TOUCH;
    unsigned char *output = rd_op_output(op, e->in.recv_chunk, e->part);
    void *slot = e->sends && SLOTS(flow->out) ? place : NULL;
    if (in != output) rd_copy(output, slot, in, e->in_bytes, touch);
    else if (slot) rd_copy(slot, NULL, in, e->in_bytes, false);
}

static void add(rd_op *op, rd_flow *flow, const rd_event *e, void *in, void *place)
{
    rd_pass pass;
    rd_pass_begin(&pass, e->part.count, 2);
    pass.source[0] = in;
    pass.source[1] = rd_op_input(op, e->in.recv_chunk, e->part);
    pass.first_partial = !e->in.recv_own;
    pass.first_wide = e->in.recv_wide;
    pass.finish = e->in.action == RONDO_FINISH;
    pass.out_wide = e->sends && e->out.send_wide;
    pass.touch = flow->in->link->caps & RONDO_LINK_TOUCH;
    if (pass.finish) pass.output[pass.outputs++] = rd_op_output(op, e->in.recv_chunk, e->part);
    if (e->sends && (!pass.finish || place != pass.output[0])) pass.output[pass.outputs++] = place;
    rd_reduce(op->reduction, &pass);
}

static rondo_link_result consumed(rd_op *op, rd_flow *flow, const rd_event *e)
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
    if (e->receives)
        rd_trace_received(op->trace, flow->event - 1, &e->in, e->part, e->in_bytes, flow->slice, flow->channel);
    if (e->sends) rd_trace_sent(op->trace, flow->event, &e->out, e->part, e->out_bytes, flow->slice, flow->channel);
}

/* An exchange in place writes its sums where its own terms leave from: not before they have left. */
static bool still_leaving(const rd_op *op, const rd_flow *flow, const rd_event *e)
{
    if (op->plan.algo != RONDO_ALGO_EXCHANGE || SLOTS(flow->out) || op->buffers.output != op->buffers.input) return false;
    uint64_t before = flow->out->used - flow->sent;
    return e->receives && flow->out_done <= before + flow->slice;
}

/* Brings what the event sends to where it leaves from. */
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
    if (!e->receives) send_own(op, flow, e, place);
    else if (e->in.action == RONDO_REPLACE) move_on(op, flow, e, in, place);
    else add(op, flow, e, in, place);
    flow->worked = true;
    flow->place = place;
    return RONDO_LINK_OK;
}

static rondo_link_result run_event(rd_op *op, rd_flow *flow, const rd_event *e)
{
    rondo_link_result r;
    /* A link may say "try again" to a send; to add once more would not be the same. */
    if (!flow->worked && (r = work(op, flow, e)) != RONDO_LINK_OK) return r;
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
    rondo_step step = rondo_plan_opening(&op->plan);
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
    rondo_step step = rondo_plan_opening(&op->plan);
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

/* Links without slots move bytes only when polled. First the sends: what they free is room for receives. A closed end is
 * no failure while what it brought suffices. */
static rondo_link_result poll_links(rd_op *op, rd_flow *flow)
{
    rondo_link *in = flow->in->link, *out = flow->out->link;
    rondo_link_result r;
    if (!SLOTS(flow->out) && flow->out->used > flow->out_done) {
        r = out->ops->poll(out, &flow->out_done);
        flow->blocked = RD_NEEDS_OUT;
        if (r != RONDO_LINK_OK && flow->out_done < flow->out->used) return r;
    }
    if (!SLOTS(flow->in)) {
        r = post_receives(op, flow);
        flow->blocked = RD_NEEDS_IN;
        if (r <= RONDO_LINK_AGAIN && flow->posted > flow->applied) r = in->ops->poll(in, &flow->in_count);
        if (r > RONDO_LINK_AGAIN && flow->in_count <= flow->in->used) return r;
    }
    return RONDO_LINK_OK;
}

/* sent <= applied + block, on plans that go all round; a breach is a bug of this file. */
static bool counters_hold(const rd_op *op, const rd_flow *flow)
{
    return op->plan.chunks == 1 || flow->sent <= flow->applied + (uint64_t)op->block;
}

/* Everything that can change while a flow waits; it has moved if this has. */
static uint64_t moves(const rd_flow *flow)
{
    return flow->sent + flow->applied + flow->posted + flow->out_done + flow->in_count;
}

/* Done when every send has left the user's memory. */
static rondo_link_result at_the_end(rd_op *op, rd_flow *flow)
{
    rondo_link_result r = open_edge(op, flow, true);
    if (r != RONDO_LINK_OK || SLOTS(flow->out) || flow->out_done >= flow->out->used) return r;
    flow->blocked = RD_NEEDS_OUT;
    return RONDO_LINK_AGAIN;
}

/* At most RD_TURN events, so that other channels and operations, and an abort, have their turn. */
rd_progress rd_ring_advance(rd_op *op, rd_flow *flow)
{
    uint64_t before = moves(flow);
    for (int turn = 0; turn < RD_TURN; turn++) {
        rondo_link_result r = poll_links(op, flow);
        bool through = flow->first >= flow->slices;
        if (r == RONDO_LINK_OK && through) r = at_the_end(op, flow);
        if (r == RONDO_LINK_OK && through) return RD_DONE;
        if (r == RONDO_LINK_OK) {
            rd_event e = event_here(op, flow);
            r = open_edge(op, flow, e.receives);
            if (r == RONDO_LINK_OK && (e.receives || e.sends)) r = run_event(op, flow, &e);
        }
        if (r == RONDO_LINK_AGAIN) return moves(flow) > before ? RD_MOVED : RD_IDLE;
        if (r != RONDO_LINK_OK) return rd_op_fail(op, flow->blocked == RD_NEEDS_IN ? flow->in : flow->out, r);
        if (!counters_hold(op, flow)) return rd_op_fail(op, NULL, RONDO_LINK_BROKEN);
        next(op, flow, &flow->first, &flow->event, &flow->slice, op->plan.steps);
    }
    return RD_MOVED;
}

rondo_link_result rd_ring_arm(rd_flow *flow, rondo_bell *bell)
{
    rondo_link *in = flow->in->link, *out = flow->out->link;
    rondo_link_result r = RONDO_LINK_AGAIN;
    /* A link without slots moves only when polled, so it is watched whatever the flow waits for. */
    if (!SLOTS(flow->in) ? flow->posted > flow->applied : flow->blocked == RD_NEEDS_IN)
        r = in->ops->arm(in, bell, SLOTS(flow->in) ? flow->in->used : flow->in_count);
    if (r != RONDO_LINK_AGAIN) return r;
    if (!SLOTS(flow->out) ? flow->out->used > flow->out_done : flow->blocked == RD_NEEDS_OUT)
        r = out->ops->arm(out, bell, SLOTS(flow->out) ? flow->out->used - out->slots : flow->out_done);
    return r;
}

const rd_wire *rd_ring_look(const rd_op *op, const rd_flow *flow)
{
    return flow->applied < flow->comes && rd_op_foreign(op, flow->in, op->signature) ? flow->in : NULL;
}
