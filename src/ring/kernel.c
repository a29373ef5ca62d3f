/* SPDX-License-Identifier: Apache-2.0
 *
 * kernel.c - the ring of an operation as one kernel of its engine (kernels/ring.cu), instead of a pass for each slice.
 * The slices and their order are the same: neighbours need not know who does it how.
 */
#include "ring/exec.h"

#include "kernels/ring.h"

#include <string.h>

/* What each is for, by where the slots lie: messages of at least so many bytes. To launch once and not for each slice
 * pays everywhere; but a kernel that waits in host memory's slots polls over PCIe, and keeps its multiprocessors
 * from others while it does. Set without a GPU to measure on. */
static const struct {
    uint32_t caps;
    size_t least;
} worth[] = {
    {RONDO_LINK_DEVICE, 0},
};

static bool pays(const rd_op *op, uint32_t caps)
{
    for (size_t i = 0; i < sizeof worth / sizeof *worth; i++)
        if ((caps & worth[i].caps) == worth[i].caps && op->plan.count * op->reduction->bytes >= worth[i].least)
            return true;
    return false;
}

bool rd_kernel_covers(const rd_op *op)
{
    const rd_wiring *wiring = op->wiring;
    uint32_t caps = ~0u;
    if (!op->engine || !op->engine->ops->ring || op->plan.algo != RONDO_ALGO_RING || op->courses || op->stage ||
        op->trace)
        return false;
    for (int c = 0; c < wiring->channels; c++) caps &= wiring->ring_out[c]->link->caps & wiring->ring_in[c]->link->caps;
    return (caps & RONDO_LINK_VIEW) && pays(op, caps) &&
           op->engine->ops->ring_channels(op->engine, op->plan.size) >= wiring->channels;
}

/* Buffers that the rank's part of the collective does not touch may lie where no GPU reaches. */
static bool reads_input(const rondo_plan *plan)
{
    return plan->count && (plan->collective != RONDO_COLL_BROADCAST || plan->rank == plan->root);
}
static bool writes_output(const rondo_plan *plan)
{
    return plan->count && (plan->collective != RONDO_COLL_REDUCE || plan->rank == plan->root);
}

static rondo_link_result launch(rd_op *op)
{
    const rd_wiring *wiring = op->wiring;
    const rd_reduction *reduction = op->reduction;
    rd_ring_args args = {
        .plan = op->plan,
        .signature = op->signature,
        .slice_elements = op->slice_elements,
        .input = reads_input(&op->plan) ? op->buffers.input : NULL,
        .output = writes_output(&op->plan) ? op->buffers.output : NULL,
        .input_whole = op->buffers.input_whole,
        .output_whole = op->buffers.output_whole,
        .bytes = (int32_t)reduction->bytes,
        .wide_bytes = (int32_t)reduction->wide_bytes,
        .op = (int32_t)reduction->op,
        .ranks = reduction->ranks,
        .scale = reduction->scale,
        .divisor = reduction->divisor,
        .grain = RD_CHANNEL_GRAIN,
        .channels = wiring->channels,
        .block = op->block,
    };
    for (int c = 0; c < wiring->channels; c++) {
        rondo_link *in = wiring->ring_in[c]->link, *out = wiring->ring_out[c]->link;
        rondo_link_result r = in->ops->view(in, &args.channel[c].in);
        if (r == RONDO_LINK_OK) r = out->ops->view(out, &args.channel[c].out);
        if (r != RONDO_LINK_OK) return r;
    }
    if (rd_engine_ring(op->engine, reduction->type, &args) != RONDO_SUCCESS) return rd_op_engine_failed(op);
    op->kernel_ticket = op->engine->given;
    return RONDO_LINK_OK;
}

/* The links go on where the kernel has left them. */
static rondo_link_result account(rd_op *op, int c)
{
    const rd_ring_report *report = &op->engine->reports[c];
    rd_wire *in = op->wiring->ring_in[c], *out = op->wiring->ring_out[c];
    rondo_link_result r = in->link->ops->moved(in->link, report->received, 0);
    if (r == RONDO_LINK_OK) r = out->link->ops->moved(out->link, report->sent, report->bytes);
    in->used += report->received;
    out->used += report->sent;
    return r;
}

rd_progress rd_kernel_advance(rd_op *op)
{
    if (!op->kernel_ticket) {
        rondo_link_result r = launch(op);
        return r == RONDO_LINK_OK ? RD_MOVED : rd_op_fail(op, NULL, r);
    }
    if (!rd_engine_done(op->engine, op->kernel_ticket)) return RD_IDLE;
    op->kernel_ticket = 0;
    rd_progress progress = RD_DONE;
    for (int c = 0; c < op->wiring->channels; c++) {
        uint64_t end = op->engine->reports[c].end;
        rondo_link_result r = account(op, c);
        if (r == RONDO_LINK_OK && end == RD_RING_MISMATCH) r = RONDO_LINK_MISMATCH;
        if (r == RONDO_LINK_OK && end != RD_RING_DONE) r = RONDO_LINK_BROKEN;
        if (r != RONDO_LINK_OK && (progress == RD_DONE || end == RD_RING_MISMATCH))
            progress = rd_op_fail(op, op->wiring->ring_in[c], r);
    }
    return progress;
}

void rd_kernel_stop(rd_op *op)
{
    if (op->kernel_ticket) __atomic_store_n(op->engine->stop, 1, __ATOMIC_RELAXED);
}

/* The kernel does not say which way it waits; where nothing comes, nothing is sent for long. */
int rd_kernel_waits_for(const rd_op *op, bool *to_receive)
{
    *to_receive = true;
    return op->wiring->ring_in[0]->link->peer;
}
