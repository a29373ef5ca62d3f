/* SPDX-License-Identifier: Apache-2.0
 *
 * peers.c - transfers between this rank and others, all under way at once: gather, scatter, all-to-all, sends and
 * receives.
 *
 * A wire holds its transfers in a queue, and the wires that have some stand in a circle. Each gets a slice moved in its
 * turn, so that none starves and a slow one holds up nobody. Where a link has no slots, the oldest transfers on a wire
 * may be on their way while the next is begun; a transfer is done when its memory is the caller's again.
 *
 * An opening is two transfers of nothing, to the next rank on the ring and from the one before.
 */
#include "ring/exec.h"

#define SLOTS(wire) ((wire)->link->caps & RONDO_LINK_SLOTS)
#define STAGED(wire) ((wire)->link->caps & RONDO_LINK_STAGED)
#define HOME_PIECE (256 * 1024) /* bytes of a rank's own chunk that it copies in one advance */

static void append(rd_op *op, rd_transfer *t)
{
    rd_peers *peers = &op->peers;
    rd_wire *wire = t->wire;
    t->slices = rondo_slices(t->bytes, wire->link->slot_bytes);
    t->begun = t->done = 0;
    t->next = NULL;
    rd_wire_foresee(wire, t->at, t->bytes);
    if (wire->first) {
        wire->last->next = t;
        wire->last = t;
        return;
    }
    wire->first = wire->last = t;
    wire->counted = wire->begun = wire->used;
    wire->after = peers->busy ? peers->served->after : wire;
    if (peers->busy) peers->served->after = wire;
    peers->served = wire;
    peers->busy++;
}

void rd_op_linked(rd_op *op, rd_wire *wire)
{
    for (int i = 0; i < op->transfer_count; i++) {
        if (op->transfers[i].wire != wire) continue;
        append(op, &op->transfers[i]);
        op->peers.unlinked--;
    }
}

void rd_peers_start(rd_op *op)
{
    rd_peers *peers = &op->peers;
    peers->served = NULL;
    peers->busy = 0;
    peers->unlinked = 0;
    peers->home = 0;
    peers->opens = rondo_plan_opens(&op->plan);
    for (int i = 0; i < op->transfer_count; i++) op->transfers[i].wire->first = NULL;
    if (peers->opens) {
        peers->opening[0] = (rd_transfer){.wire = op->wiring->ring_out[0], .sends = true};
        peers->opening[1] = (rd_transfer){.wire = op->wiring->ring_in[0]};
        for (int i = 0; i < 2; i++) {
            peers->opening[i].at = peers->nothing;
            peers->opening[i].signature = op->signature;
            peers->opening[i].step = RONDO_OPENING;
            peers->opening[i].peer = peers->opening[i].wire->link->peer;
            peers->opening[i].wire->first = NULL;
            append(op, &peers->opening[i]);
        }
    }
    for (int i = 0; i < op->transfer_count; i++) {
        rd_transfer *t = &op->transfers[i];
        if (t->wire->link) append(op, t);
        else {
            t->slices = 1; /* at least */
            t->done = 0;
            peers->unlinked++;
        }
    }
    op->kernel_ticket = 0;
    peers->kernel = op->engine && rd_peers_kernel_covers(op);
}

int rd_peers_transfers(const rd_op *op, rd_wire *out, rd_wire *in, rd_transfer *list)
{
    int count = 0;
    for (int32_t s = 0; s < op->plan.steps; s++) {
        const rondo_step *step = &op->steps[s];
        rd_transfer t = {.signature = op->signature, .step = s};
        if (step->send_to >= 0) {
            rondo_range chunk = rondo_chunk(&op->plan, step->send_chunk);
            t.wire = &out[step->send_to];
            t.peer = step->send_to;
            t.sends = true;
            t.at = (unsigned char *)(uintptr_t)rd_op_input(op, step->send_chunk, chunk); /* only read */
            t.bytes = chunk.count * op->reduction->bytes;
            list[count++] = t;
        }
        if (step->recv_from >= 0) {
            rondo_range chunk = rondo_chunk(&op->plan, step->recv_chunk);
            t.wire = &in[step->recv_from];
            t.peer = step->recv_from;
            t.sends = false;
            t.at = rd_op_output(op, step->recv_chunk, chunk);
            t.bytes = chunk.count * op->reduction->bytes;
            list[count++] = t;
        }
    }
    return count;
}

void rd_op_transfers(rd_op *op, rd_transfer *list, int count)
{
    op->plan = (rondo_plan){.collective = RONDO_COLLECTIVES, .algo = RONDO_ALGO_PEERS};
    op->transfers = list;
    op->transfer_count = count;
}

/* ---- one slice ---- */

static size_t slice_bytes(const rd_transfer *t, uint64_t slice)
{
    size_t left = t->bytes - slice * t->wire->link->slot_bytes;
    return left < t->wire->link->slot_bytes ? left : t->wire->link->slot_bytes;
}

static unsigned char *slice_at(const rd_transfer *t, uint64_t slice) { return t->at + slice * t->wire->link->slot_bytes; }

/* Slice number `slice` of a transfer has gone, or come. */
static void record(const rd_op *op, const rd_transfer *t, uint64_t slice)
{
    if (!op->trace || op->plan.collective == RONDO_COLLECTIVES) return;
    rondo_step step = t->step == RONDO_OPENING ? rondo_plan_opening(&op->plan) : op->steps[t->step];
    rondo_range chunk = rondo_chunk(&op->plan, t->sends ? step.send_chunk : step.recv_chunk);
    rondo_range part = rondo_slice(chunk, slice, t->wire->link->slot_bytes / op->reduction->bytes);
    size_t bytes = slice_bytes(t, slice);
    if (t->sends) rd_trace_sent(op->trace, t->step, &step, part, bytes, slice, 0);
    else rd_trace_received(op->trace, t->step, &step, part, bytes, slice, 0);
}

void rd_wire_slice_done(rd_wire *wire)
{
    if (++wire->first->done == wire->first->slices) wire->first = wire->first->next;
}

static rondo_link_result fill_slot(rd_op *op, rd_wire *wire)
{
    rd_transfer *t = wire->first;
    size_t bytes = slice_bytes(t, t->begun);
    void *place;
    rondo_link_result r = wire->link->ops->reserve(wire->link, bytes, &place);
    if (r != RONDO_LINK_OK) return r;
    if (bytes) rd_copy(place, NULL, slice_at(t, t->begun), bytes, false);
    if ((r = wire->link->ops->commit(wire->link, bytes, t->signature)) != RONDO_LINK_OK) return r;
    record(op, t, t->begun);
    wire->used++;
    t->begun++;
    rd_wire_slice_done(wire);
    return RONDO_LINK_OK;
}

static rondo_link_result empty_slot(rd_op *op, rd_wire *wire)
{
    rd_transfer *t = wire->first;
    size_t bytes = slice_bytes(t, t->begun);
    void *place;
    rondo_link_result r = wire->link->ops->peek(wire->link, bytes, t->signature, &place);
    if (r != RONDO_LINK_OK) return r;
    if (bytes) rd_copy(slice_at(t, t->begun), NULL, place, bytes, wire->link->caps & RONDO_LINK_TOUCH);
    if ((r = wire->link->ops->release(wire->link)) != RONDO_LINK_OK) return r;
    record(op, t, t->begun);
    wire->used++;
    t->begun++;
    rd_wire_slice_done(wire);
    return RONDO_LINK_OK;
}

/* Hands the link the next slice of the oldest transfer that it has not yet had all of; OK, too, when there is none. */
static rondo_link_result hand_over(rd_op *op, rd_wire *wire, bool *moved)
{
    rd_transfer *t = wire->first;
    while (t && t->begun == t->slices) t = t->next;
    if (!t) return RONDO_LINK_OK;
    const rondo_link_ops *ops = wire->link->ops;
    unsigned char *at = slice_at(t, t->begun);
    size_t bytes = slice_bytes(t, t->begun);
    rondo_link_result r = t->sends ? ops->send(wire->link, at, bytes, t->signature)
                                   : ops->recv(wire->link, at, bytes, t->signature);
    if (r != RONDO_LINK_OK) return r;
    *moved = true;
    if (t->sends) {
        record(op, t, t->begun);
        wire->used++;
    }
    t->begun++;
    return RONDO_LINK_OK;
}

/* What the link says has come all the way. A closed end is no failure while what it brought suffices. */
static rondo_link_result count_off(rd_op *op, rd_wire *wire, bool *moved)
{
    uint64_t count;
    if (wire->first->begun == wire->first->done) return RONDO_LINK_OK;
    rondo_link_result r = wire->link->ops->poll(wire->link, &count);
    if (r > RONDO_LINK_AGAIN && count <= wire->counted) return r;
    for (; wire->counted < count; wire->counted++) {
        *moved = true;
        if (!wire->first->sends) {
            record(op, wire->first, wire->first->done);
            wire->used++;
        }
        rd_wire_slice_done(wire);
    }
    return RONDO_LINK_OK;
}

static rondo_link_result by_memory(rd_op *op, rd_wire *wire)
{
    bool moved = false;
    rondo_link_result r = hand_over(op, wire, &moved);
    if (r <= RONDO_LINK_AGAIN) r = count_off(op, wire, &moved);
    return r > RONDO_LINK_AGAIN ? r : moved ? RONDO_LINK_OK : RONDO_LINK_AGAIN;
}

/* ---- slots that an engine fills and empties, or that are staged ---- */

/* Begins the next slice of the oldest transfer that is not all begun; OK, too, when there is none, or no more may be.
 */
static rondo_link_result begin_slice(rd_op *op, rd_wire *wire, bool *moved)
{
    rd_transfer *t = wire->first;
    while (t && t->begun == t->slices) t = t->next;
    uint64_t ahead = wire->begun - wire->used;
    if (!t || ahead == RD_BLOCK) return RONDO_LINK_OK;
    const rondo_link_ops *ops = wire->link->ops;
    size_t bytes = slice_bytes(t, t->begun);
    void *place;
    rondo_link_result r;
    if (t->sends)
        r = ops->reserve(wire->link, bytes, &place);
    else if (!ahead)
        r = ops->peek(wire->link, bytes, t->signature, &place);
    else if (!ops->peek_ahead)
        return RONDO_LINK_OK;
    else
        r = ops->peek_ahead(wire->link, (uint32_t)ahead, bytes, t->signature, &place);
    if (r != RONDO_LINK_OK) return r;
    unsigned char *at = slice_at(t, t->begun);
    if (bytes && t->sends)
        r = rd_op_copy(op, place, NULL, at, bytes, false);
    else if (bytes)
        r = rd_op_copy(op, at, NULL, place, bytes, wire->link->caps & RONDO_LINK_TOUCH);
    if (r != RONDO_LINK_OK) return r;
    wire->tickets[wire->begun++ % RD_BLOCK] = op->engine ? op->engine->given : 0;
    t->begun++;
    *moved = true;
    return RONDO_LINK_OK;
}

/* Passes on what has been done of that: a slot that is filled to the peer, or one that is empty back to it. */
static rondo_link_result end_slices(rd_op *op, rd_wire *wire, bool *moved)
{
    while (wire->used < wire->begun) {
        if (op->engine && !rd_engine_done(op->engine, wire->tickets[wire->used % RD_BLOCK])) break;
        rd_transfer *t = wire->first;
        const rondo_link_ops *ops = wire->link->ops;
        rondo_link_result r =
            t->sends ? ops->commit(wire->link, slice_bytes(t, t->done), t->signature) : ops->release(wire->link);
        if (r != RONDO_LINK_OK) return r;
        record(op, t, t->done);
        wire->used++;
        rd_wire_slice_done(wire);
        *moved = true;
    }
    return RONDO_LINK_OK;
}

/* What was committed to staged slots leaves them only when polled. */
static bool lingers(const rd_wire *wire)
{
    return STAGED(wire) && wire->last->sends && wire->counted < wire->used;
}

static rondo_link_result by_turns(rd_op *op, rd_wire *wire)
{
    bool moved = false;
    rondo_link_result r = begin_slice(op, wire, &moved);
    if (r <= RONDO_LINK_AGAIN) {
        rondo_link_result ended = end_slices(op, wire, &moved);
        if (ended != RONDO_LINK_OK) r = ended;
    }
    if (r <= RONDO_LINK_AGAIN && lingers(wire)) {
        uint64_t before = wire->counted;
        r = wire->link->ops->poll(wire->link, &wire->counted);
        moved = moved || wire->counted > before;
    }
    return r > RONDO_LINK_AGAIN ? r : moved ? RONDO_LINK_OK : RONDO_LINK_AGAIN;
}

/* ---- progress ---- */

size_t rd_peers_own(const rd_op *op, const unsigned char **from, unsigned char **to)
{
    const rondo_plan *plan = &op->plan;
    if (plan->collective != RONDO_COLL_ALL_TO_ALL && plan->rank != plan->root) return 0;
    rondo_range own = rondo_chunk(plan, plan->rank);
    *from = rd_op_input(op, plan->rank, own);
    *to = rd_op_output(op, plan->rank, own);
    return *from == *to ? 0 : own.count * op->reduction->bytes - op->peers.home;
}

/* A rank's chunk for itself, a piece at a time, or by the engine as a whole. */
static rondo_link_result keep_own(rd_op *op, bool *kept)
{
    rd_peers *peers = &op->peers;
    const unsigned char *from;
    unsigned char *to;
    *kept = false;
    if (op->plan.collective == RONDO_COLLECTIVES) return RONDO_LINK_OK;
    size_t left = rd_peers_own(op, &from, &to);
    if (!left) return RONDO_LINK_OK;
    if (!op->engine && left > HOME_PIECE) left = HOME_PIECE;
    rondo_link_result r = rd_op_copy(op, to + peers->home, NULL, from + peers->home, left, false);
    if (r != RONDO_LINK_OK) return r;
    if (op->engine) op->own_ticket = op->engine->given;
    peers->home += left;
    *kept = true;
    return RONDO_LINK_OK;
}

static rondo_link_result serve(rd_op *op, rd_wire *wire)
{
    if (!SLOTS(wire)) return by_memory(op, wire);
    if (op->engine || STAGED(wire)) return by_turns(op, wire);
    return wire->first->sends ? fill_slot(op, wire) : empty_slot(op, wire);
}

/* RD_IDLE only after every wire was asked in vain; so a slice of another call shows, wherever it comes. */
rd_progress rd_peers_advance(rd_op *op)
{
    rd_peers *peers = &op->peers;
    bool kept;
    int turn = 0;
    if (peers->kernel) return rd_peers_kernel_advance(op);
    if (keep_own(op, &kept) != RONDO_LINK_OK) return rd_op_fail(op, NULL, RONDO_LINK_BROKEN);
    for (int idle = 0; turn < RD_TURN && idle < peers->busy;) {
        rd_wire *wire = peers->served->after;
        rondo_link_result r = serve(op, wire);
        if (r > RONDO_LINK_AGAIN) return rd_op_fail(op, op->engine_failed ? NULL : wire, r);
        if (r == RONDO_LINK_OK) turn++;
        idle = r == RONDO_LINK_OK ? 0 : idle + 1;
        if (wire->first || lingers(wire))
            peers->served = wire;
        else {
            peers->served->after = wire->after;
            peers->busy--;
        }
    }
    bool has_own = !op->own_ticket || rd_engine_done(op->engine, op->own_ticket);
    if (!kept && !peers->busy && !peers->unlinked && has_own) return RD_DONE;
    return kept || turn ? RD_MOVED : RD_IDLE;
}

rondo_link_result rd_peers_arm(rd_op *op, rondo_bell *bell, const rd_wire **which)
{
    rd_wire *wire = op->peers.served;
    for (int i = 0; i < op->peers.busy; i++, wire = wire->after) {
        *which = wire;
        bool counts = !SLOTS(wire) || (STAGED(wire) && wire->last->sends);
        uint64_t seen = counts ? wire->counted : wire->first->sends ? wire->used - wire->link->slots : wire->used;
        rondo_link_result r = wire->link->ops->arm(wire->link, bell, seen);
        if (r != RONDO_LINK_AGAIN) return r;
    }
    return RONDO_LINK_AGAIN;
}

int rd_peers_waits_for(const rd_op *op, bool *to_receive)
{
    const rd_transfer *wanted = NULL;
    for (int i = 0; i < op->transfer_count && !wanted; i++)
        if (op->transfers[i].done < op->transfers[i].slices) wanted = &op->transfers[i];
    for (int i = 1; i >= 0 && op->peers.opens && !wanted; i--)
        if (!op->peers.opening[i].done) wanted = &op->peers.opening[i];
    *to_receive = wanted && !wanted->sends;
    return wanted ? wanted->peer : -1;
}
