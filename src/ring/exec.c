/* SPDX-License-Identifier: Apache-2.0 */
#include "ring/exec.h"

#include "base/hot.h"

#include <string.h>

static enum rd_executor executor(const rd_op *op)
{
    if (op->plan.algo == RONDO_ALGO_PEERS) return RD_BY_PEERS;
    if (op->stage) return RD_BY_RING;
    if (op->plan.steps == 0) return RD_BY_ITSELF;
    if (op->plan.algo == RONDO_ALGO_HIER) return RD_BY_HIER;
    if (op->plan.algo == RONDO_ALGO_FLAT) return RD_BY_FLAT;
    /* Between two ranks the exchange's two links are the ring's. */
    if (op->plan.algo == RONDO_ALGO_EXCHANGE && op->wiring->flat_out) return RD_BY_EXCHANGE;
    return RD_BY_RING;
}

void rd_wire_foresee(const rd_wire *wire, const void *at, size_t bytes)
{
    rondo_link *link = wire->link;
    if (at && bytes && (link->caps & RONDO_LINK_MEMORY) && link->ops->foresee) link->ops->foresee(link, at, bytes);
}

/* Which memory the slices will come from and go to. */
static void foresee(const rd_op *op, const rd_flow *flow)
{
    const rd_buffers *b = &op->buffers;
    if (!((flow->out->link->caps | flow->in->link->caps) & RONDO_LINK_MEMORY)) return;
    size_t whole = op->plan.count * op->reduction->bytes;
    size_t own = rondo_chunk(&op->plan, op->plan.rank).count * op->reduction->bytes;
    rd_wire_foresee(flow->out, b->input, b->input_whole ? whole : own);
    rd_wire_foresee(flow->out, b->output, b->output_whole ? whole : own);
    rd_wire_foresee(flow->in, b->output, b->output_whole ? whole : own);
    rd_wire_foresee(flow->out, flow->scratch, op->wiring->slice_bytes);
    rd_wire_foresee(flow->in, flow->scratch, op->wiring->slice_bytes);
}

RD_APART void start_ring(rd_op *op)
{
    const rd_wiring *wiring = op->wiring;
    size_t widest = op->plan.wide ? op->reduction->wide_bytes : op->reduction->bytes;
    op->slice_elements = wiring->slice_bytes / widest;
    op->block = RD_BLOCK;
    /* Partial sums that have no place in the user's memory share the scratch, several at a time; where the sum is
     * wider than what landed, each needs room for both. */
    if (wiring->staged && op->plan.wide) op->slice_elements /= 2 * RD_PARTS;
    else if (wiring->staged && op->plan.collective != RONDO_COLL_ALL_GATHER && !op->buffers.output_whole) op->slice_elements /= RD_PARTS;
    for (int c = 0; c < wiring->channels; c++) {
        rd_ring_start(op, &op->flow[c], c);
        foresee(op, &op->flow[c]);
    }
}

static void forget_failure(rd_op *op)
{
    op->failure = RONDO_LINK_OK;
    op->failed = NULL;
    op->engine_failed = false;
}

/* Flat's chunks take divisions: 3 to 8 % of 1 and 4 KiB. */
void rd_op_start_again(rd_op *op)
{
    if (op->by == RD_BY_FLAT) {
        forget_failure(op);
        rd_flat_start_again(op);
    } else {
        rd_op_start(op);
    }
}

void rd_op_start(rd_op *op)
{
    forget_failure(op);
    op->own_ticket = 0;
    op->by = executor(op);
    switch (op->by) {
    case RD_BY_ITSELF: break;
    case RD_BY_PEERS: rd_peers_start(op); break;
    case RD_BY_EXCHANGE: rd_exchange_start(op); break;
    case RD_BY_FLAT:
        op->slice_elements = op->wiring->flat_bytes / op->reduction->bytes;
        rd_flat_start(op);
        break;
    case RD_BY_HIER: rd_hier_start(op); break;
    case RD_BY_KERNEL:
    case RD_BY_RING:
        start_ring(op);
        op->kernel_ticket = 0;
        if (rd_kernel_covers(op)) op->by = RD_BY_KERNEL;
        break;
    }
}

RD_APART rd_progress move_own_by_engine(rd_op *op, size_t bytes)
{
    if (op->own_ticket) return rd_engine_done(op->engine, op->own_ticket) ? RD_DONE : RD_IDLE;
    rondo_link_result r = rd_op_copy(op, op->buffers.output, NULL, op->buffers.input, bytes, false);
    if (r != RONDO_LINK_OK) return rd_op_fail(op, NULL, r);
    op->own_ticket = op->engine->given;
    return RD_MOVED;
}

/* A world of one: the message is its own result. */
static rd_progress move_own(rd_op *op)
{
    size_t bytes = op->plan.count * op->reduction->bytes;
    if (!bytes || !op->buffers.output || op->buffers.output == op->buffers.input) return RD_DONE;
    if (op->engine) return move_own_by_engine(op, bytes);
    memmove(op->buffers.output, op->buffers.input, bytes);
    return RD_DONE;
}

RD_APART rd_progress advance_channels(rd_op *op)
{
    rd_progress all = RD_DONE;
    for (int c = 0; c < op->wiring->channels; c++) {
        if (op->flow[c].done) continue;
        rd_progress one = rd_ring_advance(op, &op->flow[c]);
        if (one == RD_FAILED) return RD_FAILED;
        if (one == RD_DONE) op->flow[c].done = true;
        else if (all != RD_MOVED) all = one;
        if (one == RD_DONE && all == RD_IDLE) all = RD_MOVED;
    }
    for (int c = 0; c < op->wiring->channels; c++)
        if (!op->flow[c].done) return all;
    return RD_DONE;
}

rd_progress rd_op_advance(rd_op *op)
{
    switch (op->by) {
    case RD_BY_ITSELF: return move_own(op);
    case RD_BY_EXCHANGE: return rd_exchange_advance(op);
    case RD_BY_FLAT: return rd_flat_advance(op);
    case RD_BY_PEERS: return rd_peers_advance(op);
    case RD_BY_HIER: return rd_hier_advance(op);
    case RD_BY_KERNEL: return rd_kernel_advance(op);
    case RD_BY_RING: break;
    }
    return advance_channels(op);
}

static rd_progress armed(rd_op *op, const rd_wire *wire, rondo_link_result answer)
{
    if (answer == RONDO_LINK_AGAIN) return RD_IDLE;
    return answer == RONDO_LINK_BROKEN ? rd_op_fail(op, wire, answer) : RD_MOVED;
}

rd_progress rd_op_arm(rd_op *op, rondo_bell *bell)
{
    rd_progress all = RD_IDLE;
    const rd_wire *wire = NULL;
    if (op->kernel_ticket) return RD_IDLE; /* its end rings no bell */
    if (op->by == RD_BY_PEERS) {
        rondo_link_result answer = rd_peers_arm(op, bell, &wire);
        return armed(op, wire, answer);
    }
    if (op->by == RD_BY_ITSELF) return RD_MOVED;
    if (op->by == RD_BY_HIER) return rd_hier_arm(op, bell);
    if (op->by == RD_BY_EXCHANGE) return armed(op, op->exchange.blocked, rd_exchange_arm(op, bell));
    if (op->by == RD_BY_FLAT) return armed(op, op->flat.blocked, rd_flat_arm(op, bell));
    for (int c = 0; c < op->wiring->channels && all == RD_IDLE; c++) {
        if (op->flow[c].done) continue;
        rondo_link_result answer = rd_ring_arm(&op->flow[c], bell, &wire);
        all = armed(op, wire, answer);
    }
    return all;
}

bool rd_op_foreign(const rd_op *op, const rd_wire *wire, uint64_t also)
{
    rondo_link *link = wire->link;
    uint64_t signature, bytes;
    void *place;
    if ((link->caps & (RONDO_LINK_SLOTS | RONDO_LINK_STAGED)) != RONDO_LINK_SLOTS ||
        link->ops->peek(link, 0, op->signature, &place) != RONDO_LINK_MISMATCH)
        return false;
    link->ops->seen(link, &signature, &bytes); /* a mismatch of the size alone is for those who know it */
    return signature != op->signature && signature != also;
}

/* Why some rank sees it when not all make the same call: let call k be the first in which they differ. Whatever earlier
 * calls put on a wire they also take from it, so what a rank sends first in call k is the first that its successor meets
 * there in call k. Whatever the operation, a rank sends its successor on the ring a slice, of the steps or the opening,
 * before it waits for a rank that is in call k; and it is not done without one from its predecessor. Round the ring some
 * rank makes another call than its predecessor. It is not done, for what comes from there is foreign; and while it is
 * blocked on another wire, it sees that here, or by the receive that it has had posted there since the start.
 * A wire that the operation is through with is left alone: there may be a later call of a rank that is ahead. */
rd_progress rd_op_look(rd_op *op)
{
    const rd_wire *wire = NULL;
    if (op->by == RD_BY_ITSELF || op->by == RD_BY_PEERS) return RD_IDLE; /* peers look at all wires anyway */
    if (op->by == RD_BY_KERNEL) return RD_IDLE; /* and so does a kernel */
    if (op->by == RD_BY_EXCHANGE) wire = rd_exchange_look(op);
    else if (op->by == RD_BY_FLAT) wire = rd_flat_look(op);
    else if (op->by == RD_BY_HIER) wire = rd_hier_look(op);
    else
        for (int c = 0; c < op->wiring->channels && !wire; c++) wire = rd_ring_look(op, &op->flow[c]);
    return wire ? rd_op_fail(op, wire, RONDO_LINK_MISMATCH) : RD_IDLE;
}

/* Slots are nobody's memory but the link's. */
static bool is_withdrawn(const rd_wire *wire)
{
    rondo_link *link = wire->link;
    return !link || !(link->caps & RONDO_LINK_MEMORY) || !link->ops->withdraw ||
           link->ops->withdraw(link) != RONDO_LINK_AGAIN;
}

/* What an engine was given before it failed will not touch memory any more. */
bool rd_op_withdraw(rd_op *op)
{
    rd_kernel_stop(op);
    if (op->engine && !rd_engine_done(op->engine, op->engine->given))
        return op->engine->ops->check(op->engine) != RONDO_SUCCESS;
    bool all = true;
    switch (op->by) {
    case RD_BY_ITSELF:
    case RD_BY_KERNEL:
    case RD_BY_EXCHANGE: break; /* nobody reaches what is not in slots */
    case RD_BY_FLAT: return rd_flat_withdraw(op);
    case RD_BY_HIER: return rd_hier_withdraw(op);
    case RD_BY_RING:
        for (int c = 0; c < op->wiring->channels; c++)
            all = is_withdrawn(op->flow[c].in) && is_withdrawn(op->flow[c].out) && all;
        break;
    case RD_BY_PEERS:
        for (int i = 0; i < op->transfer_count; i++) all = is_withdrawn(op->transfers[i].wire) && all;
        break;
    }
    return all;
}

int rd_op_waits_for(const rd_op *op, bool *to_receive)
{
    if (op->by == RD_BY_PEERS) return rd_peers_waits_for(op, to_receive);
    if (op->by == RD_BY_EXCHANGE) {
        *to_receive = !op->exchange.to_send;
        return op->exchange.blocked ? op->exchange.blocked->link->peer : -1;
    }
    if (op->by == RD_BY_FLAT) return rd_flat_waits_for(op, to_receive);
    if (op->by == RD_BY_HIER) return rd_hier_waits_for(op, to_receive);
    if (op->by == RD_BY_KERNEL) return rd_kernel_waits_for(op, to_receive);
    const rd_flow *flow = NULL;
    for (int c = 0; c < op->wiring->channels; c++) {
        const rd_flow *one = &op->flow[c];
        if (!one->done && (!flow || (flow->blocked != RD_NEEDS_IN && one->blocked == RD_NEEDS_IN))) flow = one;
    }
    *to_receive = flow && flow->blocked == RD_NEEDS_IN;
    return flow ? (*to_receive ? flow->in : flow->out)->link->peer : -1;
}

static size_t offset(const rd_op *op, int32_t chunk, rondo_range part, bool whole)
{
    uint64_t elements = part.first;
    if (!whole) elements -= rondo_chunk(&op->plan, chunk).first;
    return elements * op->reduction->bytes;
}

const unsigned char *rd_op_input(const rd_op *op, int32_t chunk, rondo_range part)
{
    return op->buffers.input ? op->buffers.input + offset(op, chunk, part, op->buffers.input_whole) : NULL;
}

unsigned char *rd_op_output(const rd_op *op, int32_t chunk, rondo_range part)
{
    return op->buffers.output ? op->buffers.output + offset(op, chunk, part, op->buffers.output_whole) : NULL;
}

rondo_link_result rd_op_engine_failed(rd_op *op)
{
    op->engine_failed = true;
    return RONDO_LINK_BROKEN;
}

rd_progress rd_op_fail(rd_op *op, const rd_wire *wire, rondo_link_result why)
{
    op->failure = why;
    op->failed = wire;
    return RD_FAILED;
}
