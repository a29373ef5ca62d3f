/* SPDX-License-Identifier: Apache-2.0
 *
 * kernel.c - the rings of operations as one kernel of their engine (kernels/ring.cu), instead of a pass for each slice.
 * The slices and their order are the same: neighbours need not know who does it how.
 */
#include "ring/exec.h"

#include "kernels/ring.h"

_Static_assert(RD_KERNEL_CALLS <= RD_RING_CALLS, "the engine has room for so many");

/* How a ring is done as one kernel, by what all its links can do and the size of the message; the first line that fits.
 * All ranks must do the same where they use packets or fewer channels: so only where all do the ring so, which they tell
 * one another when the links stand. Beside one that goes slice by slice the last line is for all.
 *
 * Packets save a short message the wait for heads, which lie in host memory, at each hop a way over PCIe. Their price,
 * twice the bytes, shows when those take longer than that. A channel more pays when there is more than one slice for
 * each. Set without a GPU to measure on. */
typedef struct choice {
    uint32_t caps;
    size_t most; /* bytes of the message */
    bool packed;
    int channels, threads; /* at most; threads of a block */
} choice;
static const choice choices[] = {
    {RONDO_LINK_DEVICE | RONDO_LINK_PACKETS, 2048, true, 1, 128},
    {RONDO_LINK_DEVICE | RONDO_LINK_PACKETS, 32768, true, 1, 512},
    {RONDO_LINK_DEVICE | RONDO_LINK_PACKETS, 131072, true, RD_MAX_CHANNELS, 512},
    {RONDO_LINK_DEVICE, SIZE_MAX, false, RD_MAX_CHANNELS, 512},
};
enum { CHOICES = sizeof choices / sizeof *choices };

static const choice *choose(const rd_op *op)
{
    size_t bytes = op->plan.count * op->reduction->bytes;
    const choice *last = &choices[CHOICES - 1];
    for (const choice *c = choices; c < last; c++)
        if ((op->wiring->kernels & c->caps) == c->caps && bytes <= c->most) return c;
    return last;
}

void rd_kernel_wire(rd_wiring *wiring, rd_engine *engine, int ranks)
{
    uint32_t caps = ~0u;
    wiring->kernel = wiring->kernels = 0;
    if (!engine || !engine->ops->ring) return;
    for (int c = 0; c < wiring->channels; c++) caps &= wiring->ring_out[c]->link->caps & wiring->ring_in[c]->link->caps;
    if ((caps & RONDO_LINK_VIEW) && (caps & RONDO_LINK_DEVICE) && engine->ops->ring_take(engine, wiring->channels, ranks))
        wiring->kernel = wiring->kernels = caps;
}

bool rd_kernel_covers(const rd_op *op)
{
    return op->wiring->kernel && op->engine && !op->courses && !op->stage && !op->trace;
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

/* Tells the engine of the operation, behind those that wait for its launch. */
static rondo_link_result describe(rd_op *op)
{
    const rd_wiring *wiring = op->wiring;
    const rd_reduction *reduction = op->reduction;
    const choice *how = choose(op);
    rd_ring_args *args = op->engine->ops->ring_room(op->engine) + op->kernel_waiting;
    size_t widest = op->plan.wide ? reduction->wide_bytes : reduction->bytes;
    int channels = wiring->channels < how->channels ? wiring->channels : how->channels;
    if (how->packed && op->slice_elements > RONDO_PACKED_MOST / widest) op->slice_elements = RONDO_PACKED_MOST / widest;
    op->kernel_packed = how->packed;
    if (op->kernel_waiting == 0) op->kernel_channels = op->kernel_threads = 0;
    if (op->kernel_channels < channels) op->kernel_channels = channels;
    if (op->kernel_threads < how->threads) op->kernel_threads = how->threads;
    *args = (rd_ring_args){
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
        .channels = channels,
        .block = op->block,
        .packed = how->packed,
    };
    for (int c = 0; c < channels; c++) {
        rondo_link *in = wiring->ring_in[c]->link, *out = wiring->ring_out[c]->link;
        rondo_link_result r = in->ops->view(in, &args->channel[c].in);
        if (r == RONDO_LINK_OK) r = out->ops->view(out, &args->channel[c].out);
        if (r != RONDO_LINK_OK) return r;
    }
    return RONDO_LINK_OK;
}

rondo_link_result rd_kernel_wait(rd_op *op)
{
    rondo_link_result r = describe(op);
    op->kernel_waiting = r == RONDO_LINK_OK ? op->kernel_waiting + 1 : 0;
    return r;
}

static rondo_link_result launch(rd_op *op)
{
    rondo_link_result r = describe(op);
    int count = op->kernel_waiting + 1;
    op->kernel_waiting = 0;
    if (r != RONDO_LINK_OK) return r;
    if (rd_engine_ring(op->engine, op->reduction->type, count, op->kernel_threads) != RONDO_SUCCESS)
        return rd_op_engine_failed(op);
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
    for (int c = 0; c < op->kernel_channels; c++) {
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
