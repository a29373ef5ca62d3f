/* SPDX-License-Identifier: Apache-2.0
 *
 * peers_kernel.c - the transfers of an operation as one kernel of its engine (kernels/peers.cu), instead of a copy for
 * each slice. The slices and heads are the same: peers need not know who does it how.
 *
 * The kernel's wires are those that stand in the circle of peers.c, in that order, and behind them what the rank keeps.
 * Their queues are as far as the kernel says; the circle stays as it is until the kernel has ended.
 */
#include "ring/exec.h"

#include "kernels/peers.h"
#include "kernels/ring.h"

enum { PIECE = 16, WARP = 32 }; /* bytes that a thread copies at once, and threads */

static bool keeps(const rd_op *op)
{
    const unsigned char *from;
    unsigned char *to;
    return op->plan.collective != RONDO_COLLECTIVES && rd_peers_own(op, &from, &to) > 0;
}

/* Where the engine is told of the operation's transfers; NULL: they are too many for it. */
static rd_peers_args *room(const rd_op *op)
{
    int transfers = op->transfer_count + 2 * op->peers.opens;
    return op->engine->ops->peers_room(op->engine, op->peers.busy + keeps(op), transfers + keeps(op));
}

/* Only once all links stand. To wait for those that others make would hold back what this rank sends, and a peer may
 * have to receive that before it makes the link; so it goes slice by slice when two ranks first meet. */
bool rd_peers_kernel_covers(const rd_op *op)
{
    const rd_peers *peers = &op->peers;
    const uint32_t needs = RONDO_LINK_VIEW | RONDO_LINK_DEVICE;
    const rd_wire *wire = peers->served;
    if (!op->engine->ops->peers || op->trace || peers->unlinked || !peers->busy) return false;
    for (int i = 0; i < peers->busy; i++, wire = wire->after)
        if ((wire->link->caps & needs) != needs) return false;
    return room(op) != NULL;
}

/* ---- The launch ---- */

/* The transfers of a wire behind `count` others; returns how many there are then. */
static rondo_link_result tell(const rd_wire *wire, rd_peers_args *args, int i, uint32_t *count)
{
    rd_peers_wire *told = &args->wire[i];
    rondo_link *link = wire->link;
    *told = (rd_peers_wire){.slot_bytes = link->slot_bytes, .first = *count};
    told->does = wire->first->sends ? RD_PEERS_SENDS : RD_PEERS_RECEIVES;
    for (const rd_transfer *t = wire->first; t; t = t->next, told->count++)
        args->transfers[(*count)++] = (rd_peers_transfer){
            .from = t->at, .to = t->sends ? NULL : t->at, .bytes = t->bytes, .signature = t->signature};
    return link->ops->view(link, &told->view);
}

static void tell_own(const rd_op *op, rd_peers_args *args, int i, uint32_t count)
{
    rd_peers_transfer *own = &args->transfers[count];
    *own = (rd_peers_transfer){0};
    own->bytes = rd_peers_own(op, &own->from, &own->to);
    args->wire[i] = (rd_peers_wire){.first = count, .count = 1, .does = RD_PEERS_KEEPS};
}

/* As many as have something to do in the longest slice. */
static int threads_for(const rd_peers_args *args, int wires)
{
    uint64_t longest = 0;
    for (int i = 0; i < wires; i++) {
        const rd_peers_wire *wire = &args->wire[i];
        for (uint32_t t = wire->first; t < wire->first + wire->count; t++) {
            uint64_t bytes = args->transfers[t].bytes;
            if (wire->does != RD_PEERS_KEEPS && bytes > wire->slot_bytes) bytes = wire->slot_bytes;
            if (bytes > longest) longest = bytes;
        }
    }
    uint64_t warps = longest / (PIECE * WARP) + 1, most = RD_PEERS_THREADS / WARP;
    return (int)(warps < most ? warps : most) * WARP;
}

static rondo_link_result launch(rd_op *op)
{
    rd_peers *peers = &op->peers;
    rd_peers_args *args = room(op);
    const rd_wire *wire = peers->served;
    int wires = peers->busy;
    uint32_t count = 0;
    for (int i = 0; i < wires; i++, wire = wire->after) {
        rondo_link_result r = tell(wire, args, i, &count);
        if (r != RONDO_LINK_OK) return r;
    }
    if (keeps(op)) tell_own(op, args, wires++, count);
    if (rd_engine_peers(op->engine, wires, threads_for(args, wires)) != RONDO_SUCCESS) return rd_op_engine_failed(op);
    peers->told = args;
    op->kernel_ticket = op->engine->given;
    return RONDO_LINK_OK;
}

/* ---- What it says ---- */

/* The wire's queue is as far as the kernel says. */
static bool catch_up(rd_wire *wire, const rd_peers_args *args, int i)
{
    uint64_t slices = args->wire[i].view.next + __atomic_load_n(&args->reports[i].slices, __ATOMIC_RELAXED);
    bool moved = wire->used < slices;
    for (; wire->used < slices; wire->used++) {
        wire->first->begun++;
        rd_wire_slice_done(wire);
    }
    return moved;
}

/* The kernel has ended. The links go on where it has left them. */
static rd_progress conclude(rd_op *op)
{
    const rd_peers_args *args = op->peers.told;
    rd_progress progress = RD_DONE;
    const rd_wire *wire = op->peers.served;
    for (int i = 0; i < op->peers.busy; i++, wire = wire->after) {
        const rd_peers_report *report = &args->reports[i];
        uint64_t sent = args->wire[i].does == RD_PEERS_SENDS ? report->bytes : 0;
        rondo_link_result r = wire->link->ops->moved(wire->link, report->slices, sent);
        if (r == RONDO_LINK_OK && report->end == RD_RING_MISMATCH) r = RONDO_LINK_MISMATCH;
        if (r == RONDO_LINK_OK && report->end != RD_RING_DONE) r = RONDO_LINK_BROKEN;
        if (r != RONDO_LINK_OK && (progress == RD_DONE || r == RONDO_LINK_MISMATCH)) progress = rd_op_fail(op, wire, r);
    }
    return progress;
}

rd_progress rd_peers_kernel_advance(rd_op *op)
{
    if (!op->kernel_ticket) {
        rondo_link_result r = launch(op);
        return r == RONDO_LINK_OK ? RD_MOVED : rd_op_fail(op, NULL, r);
    }
    bool done = rd_engine_done(op->engine, op->kernel_ticket), moved = false;
    rd_wire *wire = op->peers.served;
    for (int i = 0; i < op->peers.busy; i++, wire = wire->after) moved = catch_up(wire, op->peers.told, i) || moved;
    if (!done) return moved ? RD_MOVED : RD_IDLE;
    op->kernel_ticket = 0;
    return conclude(op);
}

/* What the heads say was so when the queues were as far as they are, or has become so since. */
bool rd_peers_kernel_goes_on(const rd_op *op)
{
    bool waits = false;
    const rd_wire *wire = op->peers.served;
    for (int i = 0; i < op->peers.busy; i++, wire = wire->after) {
        const rondo_view *view = &op->peers.told->wire[i].view;
        uint64_t n = wire->used;
        const rondo_slot *head = rondo_view_head(view, n);
        if (!wire->first) continue;
        if (wire->first->sends && n < view->count) return true;
        if (wire->first->sends && __atomic_load_n(&head->freed, __ATOMIC_RELAXED) > n - view->count) return true;
        if (!wire->first->sends && __atomic_load_n(&head->filled, __ATOMIC_RELAXED) > n) return true;
        waits = true;
    }
    return !waits;
}
