/* SPDX-License-Identifier: Apache-2.0
 *
 * flat.c - the flat all-reduce over links between all ranks of a host that have slots and RETURN.
 *
 *   publish    for every peer: my term of the peer's chunk goes into a slot of the link to it
 *   reduce     my chunk: all terms are read where they lie, in ring order, my own last (or in the order of ranks); the
 *              sum is written to my output and back into every slot it was read from
 *   collect    for every peer: the slot that I published to it now holds the sum of its chunk; copy it out
 *
 * Where a link can reach the user's memory (RONDO_LINK_DIRECT; rondo_mem_alloc on one host, anything in one process),
 * what is published is the whereabouts of the memory instead of its contents, once for all slices: the owner reads the
 * terms and writes the sums where they belong, and the slot comes back when it has done the last slice. Each pair of
 * ranks does this or the other as it can; the others need not know.
 *
 * By slots, each rank writes, reads and copies out (N-1)/N of the message, and a slot changes hands twice without another
 * flag: it is free for its sender as soon as its sum has been copied out.
 */
#include "ring/exec.h"

#include <string.h>

/* What is published in place of slices, under a signature of its own. */
typedef struct whereabouts {
    unsigned char input[128], output[128];
} whereabouts;
#define DIRECT_MARK 0x5d1c7d1c7d1c7d1cu

static rondo_range piece(const rd_op *op, int32_t chunk, uint64_t slice)
{
    return rondo_slice(op->flat.chunk[chunk], slice, op->slice_elements);
}

void rd_flat_start(rd_op *op)
{
    rd_flat *flat = &op->flat;
    uint64_t most = 0;
    flat->ahead = RD_FLAT_SLOTS;
    for (int32_t r = 0; r < op->plan.size; r++) {
        flat->chunk[r] = rondo_chunk(&op->plan, r);
        if (flat->chunk[r].count > most) most = flat->chunk[r].count;
        if (r == op->plan.rank) continue;
        uint32_t slots = op->wiring->flat_out[r].link->slots;
        if (slots < flat->ahead) flat->ahead = slots;
    }
    flat->slices = rondo_slices(most, op->slice_elements);
    flat->apart = flat->ahead > 2 ? 2 : 1;
    rd_flat_start_again(op);
}

void rd_flat_start_again(rd_op *op)
{
    rd_flat *flat = &op->flat;
    flat->published = flat->reduced = flat->collected = 0;
    flat->publish_at = flat->reduce_at = flat->collect_at = 0;
    flat->blocked = NULL;
    for (int32_t r = 0; r < op->plan.size; r++) {
        flat->direct_to[r] = false; /* by step, of which there are fewer than ranks */
        flat->peer_in[r] = NULL;
        flat->base[r] = op->wiring->flat_out[r].used; /* 0 of this rank's own place */
    }
}

/* Each of the three goes on from where it stopped: AGAIN when it cannot, OK when a slice is through. */

/* Tells the peer of this step where this rank's memory is, if it can reach it. */
static bool describe(rd_op *op, rondo_link *link, whereabouts *where)
{
    size_t bytes = op->plan.count * op->reduction->bytes;
    if (!(link->caps & RONDO_LINK_DIRECT) || bytes < RD_DIRECT_LEAST) return false;
    void *input = (void *)(uintptr_t)op->buffers.input; /* only read */
    return link->ops->register_memory(link, input, bytes, where->input) == RONDO_LINK_OK &&
           link->ops->register_memory(link, op->buffers.output, bytes, where->output) == RONDO_LINK_OK;
}

/* One slice of the peer's chunk goes into the reserved slot; the first may turn out to stand for all. */
static rondo_link_result publish_to(rd_op *op, rondo_link *link, const rondo_step *step, rondo_range part, void *place)
{
    rd_flat *flat = &op->flat;
    size_t bytes = part.count * op->reduction->bytes;
    whereabouts where;
    if (flat->published == 0 && describe(op, link, &where)) {
        flat->direct_to[flat->publish_at] = true;
        memcpy(place, &where, sizeof where);
        return link->ops->commit(link, sizeof where, op->signature ^ DIRECT_MARK);
    }
    if (bytes) rd_copy(place, NULL, rd_op_input(op, step->send_chunk, part), bytes, false);
    flat->place[flat->publish_at][flat->published % RD_FLAT_SLOTS] = place;
    return link->ops->commit(link, bytes, op->signature);
}

static rondo_link_result publish(rd_op *op)
{
    rd_flat *flat = &op->flat;
    for (; flat->publish_at < op->plan.size - 1; flat->publish_at++) {
        const rondo_step *step = &op->steps[flat->publish_at];
        rondo_range part = piece(op, step->send_chunk, flat->published);
        if (!flat->direct_to[flat->publish_at]) {
            rd_wire *wire = &op->wiring->flat_out[step->send_to];
            void *place;
            flat->blocked = wire;
            rondo_link_result r = wire->link->ops->reserve(wire->link, part.count * op->reduction->bytes, &place);
            if (r == RONDO_LINK_OK) r = publish_to(op, wire->link, step, part, place);
            if (r != RONDO_LINK_OK) return r;
            wire->used++;
        }
        size_t bytes = flat->direct_to[flat->publish_at] ? 0 : part.count * op->reduction->bytes;
        if (op->trace) rd_trace_sent(op->trace, flat->publish_at, step, part, bytes, flat->published, 0);
    }
    flat->publish_at = 0;
    flat->published++;
    return RONDO_LINK_OK;
}

/* All terms of a slice of my chunk arrived, and its sum went back to all. */
static void record_sums(const rd_op *op, rondo_range part, uint64_t slice)
{
    int32_t peers = op->plan.size - 1;
    size_t bytes = part.count * op->reduction->bytes;
    for (int32_t s = 0; s < peers; s++)
        rd_trace_received(op->trace, s, &op->steps[s], part, op->flat.peer_in[s] ? 0 : bytes, slice, 0);
    for (int32_t s = 0; s < peers; s++)
        rd_trace_sent(op->trace, peers + s, &op->steps[peers + s], part, op->flat.peer_in[s] ? 0 : bytes, slice, 0);
}

/* The peer's slice is there, in a slot; or, the first time, where its memory is. */
static rondo_link_result look(rd_op *op, rondo_link *link, int32_t s, size_t bytes)
{
    rd_flat *flat = &op->flat;
    void *place, *input, *output;
    rondo_link_result r = link->ops->peek(link, bytes, op->signature, &flat->arrived[s]);
    if (r != RONDO_LINK_MISMATCH || flat->reduced > 0) return r;
    r = link->ops->peek(link, sizeof(whereabouts), op->signature ^ DIRECT_MARK, &place);
    if (r != RONDO_LINK_OK) return r;
    whereabouts where;
    memcpy(&where, place, sizeof where);
    size_t all = op->plan.count * op->reduction->bytes;
    if ((r = link->ops->import_memory(link, where.input, all, &input)) != RONDO_LINK_OK) return r;
    if ((r = link->ops->import_memory(link, where.output, all, &output)) != RONDO_LINK_OK) return r;
    flat->peer_in[s] = input;
    flat->peer_out[s] = output;
    return RONDO_LINK_OK;
}

static rd_wire *giver(rd_op *op, int32_t s) { return &op->wiring->flat_in[op->steps[s].recv_from]; }

/* Before and after touching peers' memory. On failure none is entered. */
static rondo_link_result enter_all(rd_op *op, int32_t peers)
{
    for (int32_t s = 0; s < peers; s++) {
        if (!op->flat.peer_in[s]) continue;
        rondo_link *link = giver(op, s)->link;
        rondo_link_result r = link->ops->enter(link);
        if (r == RONDO_LINK_OK) continue;
        op->flat.blocked = giver(op, s);
        while (s-- > 0)
            if (op->flat.peer_in[s]) giver(op, s)->link->ops->leave(giver(op, s)->link);
        return r;
    }
    return RONDO_LINK_OK;
}

static void leave_all(rd_op *op, int32_t peers)
{
    for (int32_t s = 0; s < peers; s++)
        if (op->flat.peer_in[s]) giver(op, s)->link->ops->leave(giver(op, s)->link);
}

static rondo_link_result add_up(rd_op *op, rondo_range part)
{
    rd_flat *flat = &op->flat;
    int32_t peers = op->plan.size - 1;
    size_t at = part.first * op->reduction->bytes;
    rd_pass pass;
    rd_pass_begin(&pass, part.count, peers + 1);
    pass.outputs = peers + 1;
    pass.finish = true;
    pass.output[0] = rd_op_output(op, op->plan.rank, part);
    /* Step s brings the term of the rank s + 1 positions on; this rank's own is the last of that row. */
    int32_t s = op->in_rank_order ? peers - op->plan.position : 0;
    for (int32_t k = 0; k <= peers; k++, s = s == peers ? 0 : s + 1) {
        if (s == peers) {
            pass.source[k] = rd_op_input(op, op->plan.rank, part);
            continue;
        }
        pass.source[k] = flat->peer_in[s] ? flat->peer_in[s] + at : flat->arrived[s];
        pass.output[s + 1] = flat->peer_in[s] ? flat->peer_out[s] + at : flat->arrived[s];
    }
    rondo_link_result r = enter_all(op, peers);
    if (r != RONDO_LINK_OK) return r;
    rd_reduce(op->reduction, &pass);
    leave_all(op, peers);
    return RONDO_LINK_OK;
}

static rondo_link_result reduce(rd_op *op)
{
    rd_flat *flat = &op->flat;
    int32_t peers = op->plan.size - 1;
    rondo_range part = piece(op, op->plan.rank, flat->reduced);
    for (; flat->reduce_at < peers; flat->reduce_at++) {
        rd_wire *wire = giver(op, flat->reduce_at);
        if (flat->peer_in[flat->reduce_at]) continue;
        flat->blocked = wire;
        rondo_link_result r = look(op, wire->link, flat->reduce_at, part.count * op->reduction->bytes);
        if (r != RONDO_LINK_OK) return r;
    }
    rondo_link_result added = add_up(op, part);
    if (added != RONDO_LINK_OK) return added;
    for (int32_t s = 0; s < peers; s++) {
        rd_wire *wire = giver(op, s);
        if (flat->peer_in[s] && flat->reduced + 1 < flat->slices) continue;
        flat->blocked = wire;
        rondo_link_result r = wire->link->ops->release(wire->link);
        if (r != RONDO_LINK_OK) return r;
        wire->used++;
    }
    if (op->trace) record_sums(op, part, flat->reduced);
    flat->reduce_at = 0;
    flat->reduced++;
    return RONDO_LINK_OK;
}

/* How many slices must have come back over the wire of step s before the one to collect is here. */
static uint64_t back_when_here(const rd_flat *flat, int32_t s)
{
    if (!flat->direct_to[s]) return flat->collected + 1;
    return flat->collected + 1 < flat->slices ? 0 : 1;
}

static rondo_link_result collect(rd_op *op)
{
    rd_flat *flat = &op->flat;
    int32_t peers = op->plan.size - 1;
    for (; flat->collect_at < peers; flat->collect_at++) {
        /* Step `collect_at` published to the rank that this step collects from. */
        const rondo_step *step = &op->steps[peers + flat->collect_at];
        rd_wire *wire = &op->wiring->flat_out[step->recv_from];
        rondo_range part = piece(op, step->recv_chunk, flat->collected);
        bool direct = flat->direct_to[flat->collect_at];
        size_t bytes = direct ? 0 : part.count * op->reduction->bytes;
        uint64_t back;
        flat->blocked = wire;
        rondo_link_result r = wire->link->ops->poll(wire->link, &back);
        if (back < flat->base[step->recv_from] + back_when_here(flat, flat->collect_at))
            return r == RONDO_LINK_OK ? RONDO_LINK_AGAIN : r;
        void *place = flat->place[flat->collect_at][flat->collected % RD_FLAT_SLOTS];
        if (bytes) rd_copy(rd_op_output(op, step->recv_chunk, part), NULL, place, bytes, false);
        if (op->trace) rd_trace_received(op->trace, peers + flat->collect_at, step, part, bytes, flat->collected, 0);
    }
    flat->collect_at = 0;
    flat->collected++;
    return RONDO_LINK_OK;
}

static bool may_publish(const rd_flat *flat)
{
    return flat->published < flat->slices && flat->published < flat->collected + flat->ahead;
}

/* With slots to spare a slice is reduced and collected one slice late: a peer that is a little slower is then not
 * waited for. When nothing more can be published it is not put off, so that something is always to be done:
 *   collected <= reduced <= published <= collected + ahead, and apart <= ahead.
 * In the oldest operation of any rank there is room for what may be published. If nobody may publish, the rank that has
 * reduced least either has something published, whose other terms are all there, or has reduced all it published, which
 * is `ahead` more than it collected: their sums come from ranks that have reduced no less. */
static bool may_reduce(const rd_flat *flat)
{
    return flat->reduced + (may_publish(flat) ? flat->apart : 1) <= flat->published;
}

static bool may_collect(const rd_flat *flat)
{
    return flat->reduced >= flat->collected + flat->apart || flat->reduced == flat->slices;
}

rd_progress rd_flat_advance(rd_op *op)
{
    rd_flat *flat = &op->flat;
    bool moved = false;
    for (int turn = 0; flat->collected < flat->slices; turn++) {
        bool idle = true;
        if (turn == RD_TURN) return RD_MOVED;
        rondo_link_result r;
        if (may_publish(flat)) {
            if ((r = publish(op)) > RONDO_LINK_AGAIN) return rd_op_fail(op, flat->blocked, r);
            idle &= r == RONDO_LINK_AGAIN;
        }
        if (may_reduce(flat)) {
            if ((r = reduce(op)) > RONDO_LINK_AGAIN) return rd_op_fail(op, flat->blocked, r);
            idle &= r == RONDO_LINK_AGAIN;
        }
        if (may_collect(flat)) {
            if ((r = collect(op)) > RONDO_LINK_AGAIN) return rd_op_fail(op, flat->blocked, r);
            idle &= r == RONDO_LINK_AGAIN;
        }
        if (idle) return moved ? RD_MOVED : RD_IDLE;
        moved = true;
    }
    return RD_DONE;
}

bool rd_flat_withdraw(rd_op *op)
{
    for (int32_t s = 0; s < op->plan.size - 1; s++) {
        rondo_link *link = op->wiring->flat_out[op->steps[s].send_to].link;
        if (op->flat.direct_to[s] && link->ops->withdraw(link) == RONDO_LINK_AGAIN) return false;
    }
    return true;
}

rondo_link_result rd_flat_arm(rd_op *op, rondo_bell *bell)
{
    rd_flat *flat = &op->flat;
    int32_t peers = op->plan.size - 1;
    rondo_link_result r = RONDO_LINK_AGAIN;
    if (may_publish(flat)) {
        rd_wire *wire = &op->wiring->flat_out[op->steps[flat->publish_at].send_to];
        r = wire->link->ops->arm(wire->link, bell, wire->used - wire->link->slots);
        if (r != RONDO_LINK_AGAIN) return r;
    }
    if (may_reduce(flat)) {
        rd_wire *wire = &op->wiring->flat_in[op->steps[flat->reduce_at].recv_from];
        r = wire->link->ops->arm(wire->link, bell, wire->used);
        if (r != RONDO_LINK_AGAIN) return r;
    }
    if (may_collect(flat)) {
        int32_t from = op->steps[peers + flat->collect_at].recv_from;
        rd_wire *wire = &op->wiring->flat_out[from];
        r = wire->link->ops->arm(wire->link, bell, flat->base[from] + back_when_here(flat, flat->collect_at) - 1);
    }
    return r;
}

const rd_wire *rd_flat_look(const rd_op *op)
{
    if (op->flat.reduced == op->flat.slices) return NULL;
    for (int32_t s = 0; s < op->plan.size - 1; s++) {
        const rd_wire *wire = &op->wiring->flat_in[op->steps[s].recv_from];
        if (rd_op_foreign(op, wire, op->signature ^ DIRECT_MARK)) return wire;
    }
    return NULL;
}

/* Whose term is missing holds up others, too, and may be why a sum does not come back; and who owes a sum has
 * everybody's terms of it. */
int rd_flat_waits_for(const rd_op *op, bool *to_receive)
{
    const rd_flat *flat = &op->flat;
    *to_receive = true;
    if (may_reduce(flat)) return op->steps[flat->reduce_at].recv_from;
    if (may_collect(flat)) return op->steps[op->plan.size - 1 + flat->collect_at].recv_from;
    *to_receive = false;
    return op->steps[flat->publish_at].send_to;
}
