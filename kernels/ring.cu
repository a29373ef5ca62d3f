/* SPDX-License-Identifier: Apache-2.0
 *
 * ring.cu - the ring as one kernel: a block for each channel walks the rank's plan to its end, and waits in slots'
 * heads for its neighbours, which are kernels like this one, or CPUs with stepwise engines: it does what
 * src/ring/ring.c does, in the same order of events (exec.h), with the same slices and so the same bits. All blocks of
 * all ranks that share a GPU must be resident together.
 *
 * A slice's way: one thread waits until it is there and there is a slot for what becomes of it; a barrier; all threads
 * do the pass; a barrier; that thread stores the heads. What the others wrote before the barrier the release carries
 * along.
 */
#include "pass.cuh"
#include "ring.h"

/* What a pass needs to know (pass.cuh). */
struct rd_ring_pass {
    uint64_t count;
    double scale, divisor;
    int32_t op, ranks;
    int32_t sources, outputs;
    int32_t first_partial, first_wide, out_wide, finish;
    const void *source[2];
    void *output[2];
};

/* Where a channel is. The same in all threads of its block. */
struct rd_ring_at {
    const rd_ring_args &args;
    const rd_ring_channel &channel;
    uint64_t received, sent; /* by all launches so far */
    uint64_t bytes;
    uint64_t end; /* RD_RING_UNDERWAY while it goes on */
};

/* An event receives what step e-1 brings and sends what step e sends: the same slice. */
struct rd_ring_event {
    bool receives, sends;
    rondo_step in, out;
    rondo_range part;
    uint64_t in_bytes, out_bytes;
};

RD_DEVICE rondo_range rd_ring_piece(const rd_ring_args &args, int32_t chunk, uint64_t slice)
{
    rondo_range all = rondo_split(rondo_chunk(&args.plan, chunk), (uint32_t)args.channels, blockIdx.x, args.grain);
    return rondo_slice(all, slice, args.slice_elements);
}

RD_CALLED rd_ring_event rd_ring_event_at(const rd_ring_args &args, int32_t event, uint64_t slice)
{
    rd_ring_event e = {};
    int32_t chunk = -1;
    if (event > 0) {
        e.in = rondo_plan_step(&args.plan, event - 1);
        e.receives = e.in.recv_from >= 0;
        if (e.receives) chunk = e.in.recv_chunk;
    }
    if (event < args.plan.steps) {
        e.out = rondo_plan_step(&args.plan, event);
        e.sends = e.out.send_to >= 0;
        if (e.sends) chunk = e.out.send_chunk;
    }
    if (chunk < 0) return e;
    e.part = rd_ring_piece(args, chunk, slice);
    e.in_bytes = e.part.count * (uint64_t)(e.receives && e.in.recv_wide ? args.wide_bytes : args.bytes);
    e.out_bytes = e.part.count * (uint64_t)(e.sends && e.out.send_wide ? args.wide_bytes : args.bytes);
    return e;
}

/* ---- Heads: by one thread ---- */

/* Until a word, which only grows, has come to `number`. */
RD_DEVICE uint64_t rd_ring_await(const rd_ring_args &args, const uint64_t *word, uint64_t number)
{
    for (int turn = 1; rd_load_acquire(word) < number; turn++) {
        if (turn % 8 == 0 && rd_load_relaxed(args.stop)) return RD_RING_STOPPED;
        rd_spin();
    }
    return RD_RING_UNDERWAY;
}

/* The next slice is there, and is this call's. */
RD_DEVICE uint64_t rd_ring_arrived(const rd_ring_at &at, uint64_t bytes)
{
    const rondo_slot *head = rondo_view_head(&at.channel.in, at.received);
    uint64_t end = rd_ring_await(at.args, &head->filled, at.received + 1);
    if (end != RD_RING_UNDERWAY) return end;
    return head->signature == at.args.signature && head->bytes == bytes ? RD_RING_UNDERWAY : RD_RING_MISMATCH;
}

/* The slot of the next slice to send has come back. */
RD_DEVICE uint64_t rd_ring_room(const rd_ring_at &at)
{
    const rondo_view *out = &at.channel.out;
    if (at.sent < out->count) return RD_RING_UNDERWAY;
    return rd_ring_await(at.args, &rondo_view_head(out, at.sent)->freed, at.sent - out->count + 1);
}

RD_DEVICE void rd_ring_fill(const rd_ring_at &at, uint64_t bytes)
{
    rondo_slot *head = rondo_view_head(&at.channel.out, at.sent);
    head->signature = at.args.signature;
    head->bytes = bytes;
    rd_store_release(&head->filled, at.sent + 1);
}

RD_DEVICE void rd_ring_free(const rd_ring_at &at)
{
    rd_store_release(&rondo_view_head(&at.channel.in, at.received)->freed, at.received + 1);
}

/* ---- One slice: by all threads ---- */

/* Waits for what the slice needs; what comes of it is known to all. */
RD_CALLED bool rd_ring_begin(rd_ring_at &at, bool receives, bool sends, uint64_t in_bytes)
{
    __shared__ uint64_t end;
    if (threadIdx.x == 0) {
        end = receives ? rd_ring_arrived(at, in_bytes) : (uint64_t)RD_RING_UNDERWAY;
        if (end == RD_RING_UNDERWAY && sends) end = rd_ring_room(at);
        if (end == RD_RING_MISMATCH) rd_store_relaxed(at.args.stop, 1);
    }
    __syncthreads();
    at.end = end;
    return end == RD_RING_UNDERWAY;
}

/* The slice is done with, and what became of it is sent. */
RD_DEVICE void rd_ring_end(rd_ring_at &at, bool receives, bool sends, uint64_t out_bytes)
{
    __syncthreads();
    if (threadIdx.x == 0 && sends) rd_ring_fill(at, out_bytes);
    if (threadIdx.x == 0 && receives) rd_ring_free(at);
    at.received += receives;
    at.sent += sends;
    at.bytes += sends ? out_bytes : 0;
}

/* An opening, which is empty. */
RD_CALLED bool rd_ring_open(rd_ring_at &at, bool receives)
{
    if (!rd_ring_begin(at, receives, !receives, 0)) return false;
    rd_ring_end(at, receives, !receives, 0);
    return true;
}

/* ---- One event ---- */

RD_DEVICE uint64_t rd_ring_offset(const rd_ring_args &args, int32_t chunk, rondo_range part, bool whole)
{
    uint64_t first = part.first - (whole ? 0 : rondo_chunk(&args.plan, chunk).first);
    return first * (uint64_t)args.bytes;
}
RD_DEVICE const unsigned char *rd_ring_input(const rd_ring_args &args, int32_t chunk, rondo_range part)
{
    return args.input + rd_ring_offset(args, chunk, part, args.input_whole);
}
RD_DEVICE unsigned char *rd_ring_output(const rd_ring_args &args, int32_t chunk, rondo_range part)
{
    return args.output + rd_ring_offset(args, chunk, part, args.output_whole);
}

RD_CALLED void rd_ring_copy(void *to, void *also, const void *from, uint64_t bytes)
{
    rd_ring_pass pass = {};
    pass.count = bytes;
    pass.op = RONDO_SUM;
    pass.ranks = pass.sources = 1;
    pass.source[0] = from;
    if (to) pass.output[pass.outputs++] = to;
    if (also) pass.output[pass.outputs++] = also;
    if (pass.outputs) rd_pass_part<rd_uint8>(pass, threadIdx.x, blockDim.x);
}

/* Out of place, a rank's own chunk of an all-gather or broadcast must also reach its own output. */
RD_DEVICE void rd_ring_send_own(const rd_ring_args &args, const rd_ring_event &e, void *slot)
{
    const unsigned char *own = rd_ring_input(args, e.out.send_chunk, e.part);
    unsigned char *keep = nullptr;
    if (args.plan.collective == RONDO_COLL_ALL_GATHER || args.plan.collective == RONDO_COLL_BROADCAST)
        keep = rd_ring_output(args, e.out.send_chunk, e.part);
    rd_ring_copy(slot, keep == own ? nullptr : keep, own, e.out_bytes);
}

template <class Type>
RD_DEVICE void rd_ring_add(const rd_ring_args &args, const rd_ring_event &e, const void *in, void *slot)
{
    rd_ring_pass pass = {};
    pass.count = e.part.count;
    pass.scale = args.scale;
    pass.divisor = args.divisor;
    pass.op = args.op;
    pass.ranks = args.ranks;
    pass.sources = 2;
    pass.source[0] = in;
    pass.source[1] = rd_ring_input(args, e.in.recv_chunk, e.part);
    pass.first_partial = !e.in.recv_own;
    pass.first_wide = e.in.recv_wide;
    pass.finish = e.in.action == RONDO_FINISH;
    pass.out_wide = e.sends && e.out.send_wide;
    if (pass.finish) pass.output[pass.outputs++] = rd_ring_output(args, e.in.recv_chunk, e.part);
    if (e.sends) pass.output[pass.outputs++] = slot;
    rd_pass_part<Type>(pass, threadIdx.x, blockDim.x);
}

template <class Type> RD_DEVICE bool rd_ring_run(rd_ring_at &at, const rd_ring_event &e)
{
    const rd_ring_args &args = at.args;
    if (!rd_ring_begin(at, e.receives, e.sends, e.in_bytes)) return false;
    const void *in = e.receives ? rondo_view_payload(&at.channel.in, at.received, e.in_bytes) : nullptr;
    void *slot = e.sends ? rondo_view_payload(&at.channel.out, at.sent, e.out_bytes) : nullptr;
    if (!e.receives)
        rd_ring_send_own(args, e, slot);
    else if (e.in.action == RONDO_REPLACE)
        rd_ring_copy(rd_ring_output(args, e.in.recv_chunk, e.part), slot, in, e.in_bytes);
    else
        rd_ring_add<Type>(args, e, in, slot);
    rd_ring_end(at, e.receives, e.sends, e.out_bytes);
    return true;
}

/* ---- A channel ---- */

template <class Type> RD_DEVICE bool rd_ring_walk(rd_ring_at &at)
{
    const rd_ring_args &args = at.args;
    rondo_range longest = {0, rondo_chunk_max(&args.plan)};
    uint64_t most = rondo_split(longest, (uint32_t)args.channels, 0, args.grain).count;
    uint64_t slices = rondo_slices(most, args.slice_elements), block = (uint64_t)args.block;
    bool opens = blockIdx.x == 0 && rondo_plan_opens(&args.plan), met = !opens;
    if (opens && !rd_ring_open(at, false)) return false;
    for (uint64_t first = 0; first < slices; first += block)
        for (int32_t event = 0; event <= args.plan.steps; event++)
            for (uint64_t slice = first; slice < first + block && slice < slices; slice++) {
                rd_ring_event e = rd_ring_event_at(args, event, slice);
                if (e.receives && !met) {
                    met = true;
                    if (!rd_ring_open(at, true)) return false;
                }
                if ((e.receives || e.sends) && !rd_ring_run<Type>(at, e)) return false;
            }
    return met || rd_ring_open(at, true);
}

template <class Type> RD_DEVICE void rd_ring_all(const rd_ring_args &args)
{
    rd_ring_counts *counts = &args.counts[blockIdx.x];
    rd_ring_at at = {args, args.channel[blockIdx.x], counts->received, counts->sent, 0, RD_RING_UNDERWAY};
    uint64_t received = at.received, sent = at.sent;
    if (rd_ring_walk<Type>(at)) at.end = RD_RING_DONE;
    __syncthreads(); /* all have read the counts */
    if (threadIdx.x != 0) return;
    counts->received = at.received;
    counts->sent = at.sent;
    args.reports[blockIdx.x] = {at.received - received, at.sent - sent, at.bytes, at.end};
}

#define RD_RING(type)                                                                                                  \
    RD_KERNEL(rd_ring_##type, rd_ring_args, RD_RING_THREADS)                                                           \
    {                                                                                                                  \
        rd_ring_all<rd_##type>(args);                                                                                  \
    }
RD_RING(int8)
RD_RING(uint8)
RD_RING(int32)
RD_RING(uint32)
RD_RING(int64)
RD_RING(uint64)
RD_RING(float16)
RD_RING(float32)
RD_RING(float64)
RD_RING(bfloat16)
RD_RING(float8e4m3)
RD_RING(float8e5m2)
