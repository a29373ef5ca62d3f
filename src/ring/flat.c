/* SPDX-License-Identifier: Apache-2.0
 *
 * flat.c - the flat all-reduce over links between all ranks of a host that have slots and RETURN.
 *
 *   publish    for every peer: my term of the peer's chunk goes into a slot of the link to it
 *   reduce     my chunk: all terms are read where they lie, in ring order, my own last; the sum is written to my
 *              output and back into every slot it was read from
 *   collect    for every peer: the slot that I published to it now holds the sum of its chunk; copy it out
 *
 * So each rank writes, reads and copies out (N-1)/N of the message, and a slot changes hands twice without another
 * flag: it is free for its sender as soon as its sum has been copied out.
 */
#include "ring/exec.h"

static rondo_range piece(const rd_op *op, int32_t chunk, uint64_t slice)
{
    rondo_range all = rondo_chunk(&op->plan, chunk);
    uint64_t from = slice * op->slice_elements;
    if (from > all.count) from = all.count;
    uint64_t left = all.count - from;
    return (rondo_range){all.first + from, left < op->slice_elements ? left : op->slice_elements};
}

void rd_flat_start(rd_op *op)
{
    rd_flat *flat = &op->flat;
    uint64_t most = rondo_chunk_max(&op->plan);
    flat->slices = most ? (most + op->slice_elements - 1) / op->slice_elements : 1;
    flat->published = flat->reduced = flat->collected = 0;
    flat->publish_at = flat->reduce_at = flat->collect_at = 0;
    flat->blocked = NULL;
    for (int32_t r = 0; r < op->plan.size; r++) flat->base[r] = r == op->plan.rank ? 0 : op->wiring->flat_out[r].used;
}

/* Each of the three goes on from where it stopped: AGAIN when it cannot, OK when a slice is through. */

static rondo_link_result publish(rd_op *op)
{
    rd_flat *flat = &op->flat;
    for (; flat->publish_at < op->plan.size - 1; flat->publish_at++) {
        rondo_step step = op->steps[flat->publish_at];
        rd_wire *wire = &op->wiring->flat_out[step.send_to];
        rondo_range part = piece(op, step.send_chunk, flat->published);
        size_t bytes = part.count * op->reduction->bytes;
        void *place;
        flat->blocked = wire;
        rondo_link_result r = wire->link->ops->reserve(wire->link, &place);
        if (r != RONDO_LINK_OK) return r;
        if (bytes) rd_copy(place, NULL, rd_op_input(op, step.send_chunk, part), bytes, false);
        flat->place[flat->publish_at][flat->published % RD_FLAT_SLOTS] = place;
        if ((r = wire->link->ops->commit(wire->link, bytes, op->signature)) != RONDO_LINK_OK) return r;
        wire->used++;
        if (op->trace) rd_trace_sent(op->trace, flat->publish_at, &step, part, bytes, flat->published, 0);
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
    for (int32_t s = 0; s < peers; s++) rd_trace_received(op->trace, s, &op->steps[s], part, bytes, slice, 0);
    for (int32_t s = peers; s < 2 * peers; s++) rd_trace_sent(op->trace, s, &op->steps[s], part, bytes, slice, 0);
}

static rondo_link_result reduce(rd_op *op)
{
    rd_flat *flat = &op->flat;
    int32_t peers = op->plan.size - 1;
    rondo_range part = piece(op, op->plan.rank, flat->reduced);
    for (; flat->reduce_at < peers; flat->reduce_at++) {
        rd_wire *wire = &op->wiring->flat_in[op->steps[flat->reduce_at].recv_from];
        flat->blocked = wire;
        rondo_link_result r = wire->link->ops->peek(wire->link, part.count * op->reduction->bytes, op->signature,
                                                    &flat->arrived[flat->reduce_at]);
        if (r != RONDO_LINK_OK) return r;
    }
    rd_pass pass = {.count = part.count, .sources = peers + 1, .outputs = peers + 1, .finish = true};
    for (int32_t s = 0; s < peers; s++) pass.source[s] = pass.output[s + 1] = flat->arrived[s];
    pass.source[peers] = rd_op_input(op, op->plan.rank, part);
    pass.output[0] = rd_op_output(op, op->plan.rank, part);
    rd_reduce(op->reduction, &pass);
    for (int32_t s = 0; s < peers; s++) {
        rd_wire *wire = &op->wiring->flat_in[op->steps[s].recv_from];
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

static rondo_link_result collect(rd_op *op)
{
    rd_flat *flat = &op->flat;
    int32_t peers = op->plan.size - 1;
    for (; flat->collect_at < peers; flat->collect_at++) {
        rondo_step step = op->steps[peers + flat->collect_at];
        rd_wire *wire = &op->wiring->flat_out[step.recv_from];
        rondo_range part = piece(op, step.recv_chunk, flat->collected);
        uint64_t back;
        flat->blocked = wire;
        rondo_link_result r = wire->link->ops->poll(wire->link, &back);
        if (back <= flat->base[step.recv_from] + flat->collected) return r == RONDO_LINK_OK ? RONDO_LINK_AGAIN : r;
        size_t bytes = part.count * op->reduction->bytes;
        /* Step `collect_at` published to the rank that this step collects from. */
        void *place = flat->place[flat->collect_at][flat->collected % RD_FLAT_SLOTS];
        if (bytes) rd_copy(rd_op_output(op, step.recv_chunk, part), NULL, place, bytes, false);
        if (op->trace)
            rd_trace_received(op->trace, peers + flat->collect_at, &step, part, bytes, flat->collected, 0);
    }
    flat->collect_at = 0;
    flat->collected++;
    return RONDO_LINK_OK;
}

rd_progress rd_flat_advance(rd_op *op)
{
    rd_flat *flat = &op->flat;
    bool moved = false;
    while (flat->collected < flat->slices) {
        bool idle = true;
        rondo_link_result r;
        if (flat->published < flat->slices && flat->published < flat->collected + RD_FLAT_SLOTS) {
            if ((r = publish(op)) > RONDO_LINK_AGAIN) return rd_op_fail(op, flat->blocked, r);
            idle &= r == RONDO_LINK_AGAIN;
        }
        if (flat->reduced < flat->published) {
            if ((r = reduce(op)) > RONDO_LINK_AGAIN) return rd_op_fail(op, flat->blocked, r);
            idle &= r == RONDO_LINK_AGAIN;
        }
        if (flat->collected < flat->reduced) {
            if ((r = collect(op)) > RONDO_LINK_AGAIN) return rd_op_fail(op, flat->blocked, r);
            idle &= r == RONDO_LINK_AGAIN;
        }
        if (idle) return moved ? RD_MOVED : RD_IDLE;
        moved = true;
    }
    return RD_DONE;
}

bool rd_flat_arm(rd_op *op, rondo_bell *bell)
{
    rd_flat *flat = &op->flat;
    int32_t peers = op->plan.size - 1;
    if (flat->published < flat->slices && flat->published < flat->collected + RD_FLAT_SLOTS) {
        rd_wire *wire = &op->wiring->flat_out[op->steps[flat->publish_at].send_to];
        if (wire->link->ops->arm(wire->link, bell, wire->used - wire->link->slots) != RONDO_LINK_AGAIN) return false;
    }
    if (flat->reduced < flat->published) {
        rd_wire *wire = &op->wiring->flat_in[op->steps[flat->reduce_at].recv_from];
        if (wire->link->ops->arm(wire->link, bell, wire->used) != RONDO_LINK_AGAIN) return false;
    }
    if (flat->collected < flat->reduced) {
        int32_t from = op->steps[peers + flat->collect_at].recv_from;
        rd_wire *wire = &op->wiring->flat_out[from];
        uint64_t seen = flat->base[from] + flat->collected;
        if (wire->link->ops->arm(wire->link, bell, seen) != RONDO_LINK_AGAIN) return false;
    }
    return true;
}
