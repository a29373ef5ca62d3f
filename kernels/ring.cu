/* SPDX-License-Identifier: Apache-2.0
 *
 * ring.cu - rings as one kernel: a block for each channel walks the rank's plan of each call to its end, and waits in slots'
 * heads for its neighbours, which are kernels like this one, or CPUs with stepwise engines: it does what
 * src/ring/ring.c does, in the same order of events (exec.h), with the same slices and so the same bits. All blocks of
 * all ranks that share a GPU must be resident together.
 *
 * A slice's way: one thread waits until it is there and there is a slot for what becomes of it; a barrier; all threads
 * do the pass; a barrier; that thread stores the heads. What the others wrote before the barrier the release carries
 * along.
 *
 * Where slices go in packets (packet.cuh) every thread waits for its own, and the first for a slot, if it is not known
 * that there is one; a barrier; heads are stored for those who look for a foreign slice, and nobody waits for them.
 */
#include "packet.cuh"
#include "slice.cuh"

/* Where a channel is. The same in all threads of its block. */
struct rd_ring_at {
    const rd_ring_args &args;
    const rd_ring_channel &channel;
    uint64_t received, sent; /* by all launches so far */
    uint64_t granted;        /* of packets: slices that are known to have a slot */
    uint64_t bytes;
    uint64_t end; /* RD_RING_UNDERWAY while it goes on; of packets: in this thread */
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

/* ---- One slice: by all threads ---- */

/* Room for a slice in packets. What the oldest slot that is out says is asked for; the youngest may say that all are
 * back, which saves the way to the others. */
RD_DEVICE uint64_t rd_ring_grant(const rd_ring_at &at, uint64_t *granted)
{
    const rondo_view *out = &at.channel.out;
    uint64_t end = rd_await_room(at.args.stop, out, at.sent);
    bool all = at.sent == 0 || rd_load_acquire(&rondo_view_head(out, at.sent - 1)->freed) == at.sent;
    *granted = at.sent + (all ? out->count : 1);
    return end;
}

/* Waits for what the slice needs, but for packets; what comes of it is known to all. */
RD_CALLED bool rd_ring_begin(rd_ring_at &at, bool receives, bool sends, uint64_t in_bytes)
{
    __shared__ uint64_t end, granted;
    const rd_ring_args &args = at.args;
    if (args.packed && (!sends || at.sent < at.granted)) return true;
    if (threadIdx.x == 0) {
        end = RD_RING_UNDERWAY;
        if (args.packed) {
            end = rd_ring_grant(at, &granted);
        } else {
            if (receives)
                end = rd_await_slice(args.stop, &at.channel.in, at.received, args.signature, in_bytes);
            if (end == RD_RING_UNDERWAY && sends) end = rd_await_room(args.stop, &at.channel.out, at.sent);
        }
        if (end == RD_RING_MISMATCH) rd_store_relaxed(args.stop, 1);
    }
    __syncthreads();
    at.end = end;
    if (args.packed) at.granted = granted;
    return end == RD_RING_UNDERWAY;
}

/* The slice is done with, and what became of it is sent. False: some thread has given up. */
RD_CALLED bool rd_ring_end(rd_ring_at &at, bool receives, bool sends, uint64_t out_bytes)
{
    if (!at.args.packed) {
        __syncthreads();
    } else if (__syncthreads_or(at.end != RD_RING_UNDERWAY)) {
        if (at.end == RD_RING_UNDERWAY) at.end = RD_RING_STOPPED;
        return false;
    }
    if (threadIdx.x == 0 && sends) rd_fill_slot(&at.channel.out, at.sent, at.args.signature, out_bytes);
    if (threadIdx.x == 0 && receives) rd_free_slot(&at.channel.in, at.received);
    at.received += receives;
    at.sent += sends;
    at.bytes += sends ? out_bytes : 0;
    return true;
}

/* ---- Packets ---- */

/* Why a thread should not wait any longer, if so. The first one also looks whether what has come is of another call: then
 * its packets will not be taken. */
RD_CALLED uint64_t rd_ring_look(const rd_ring_at &at, uint64_t in_bytes)
{
    const rondo_slot *head = rondo_view_head(&at.channel.in, at.received);
    if (rd_load_relaxed(at.args.stop)) return RD_RING_STOPPED;
    if (threadIdx.x != 0 || rd_load_acquire(&head->filled) < at.received + 1) return RD_RING_UNDERWAY;
    if (head->signature == at.args.signature && head->bytes == in_bytes) return RD_RING_UNDERWAY;
    rd_store_relaxed(at.args.stop, 1);
    return RD_RING_MISMATCH;
}

/* Waits for the bytes of the slice from `first` on. */
template <int MOST>
RD_DEVICE uint64_t rd_ring_take(const rd_ring_at &at, uint64_t first, uint64_t bytes, uint64_t in_bytes, uint64_t *to)
{
    rd_pair *from = (rd_pair *)rondo_view_packets(&at.channel.in, at.received) + first / RD_PACKED;
    uint32_t flag = rd_packet_flag(at.args.signature, at.received);
    for (int turn = 1; !rd_packets_take<MOST>(from, to, rd_packets(bytes), flag); turn++) {
        uint64_t end = turn % 64 ? (uint64_t)RD_RING_UNDERWAY : rd_ring_look(at, in_bytes);
        if (end != RD_RING_UNDERWAY) return end;
        rd_spin();
    }
    return RD_RING_UNDERWAY;
}

/* A pass whose first source comes, and whose last output goes, in packets: what a piece needs comes to this thread's own
 * memory, where the pass takes it, and leaves what it sends. */
template <class Type>
RD_DEVICE void rd_ring_pass_packed(rd_ring_at &at, const rd_slice_pass &pass, bool receives, bool sends,
                                   uint64_t in_bytes)
{
    typedef rd_shape<Type> shape;
    const int most = shape::elements * shape::wide_bytes / RD_PACKED;
    const uint64_t in_each = pass.first_wide ? shape::wide_bytes : shape::bytes;
    const uint64_t out_each = pass.out_wide ? shape::wide_bytes : shape::bytes;
    for (uint64_t first = threadIdx.x * shape::elements; first == 0 || first < pass.count;
         first += blockDim.x * shape::elements) {
        alignas(16) uint64_t in[most] = {}, out[most] = {};
        uint64_t left = pass.count - first;
        int n = left < shape::elements ? (int)left : shape::elements;
        rd_slice_pass mine = pass;
        if (receives) {
            at.end = rd_ring_take<most>(at, first * in_each, n * in_each, in_bytes, in);
            if (at.end != RD_RING_UNDERWAY) return;
        }
        for (int k = 0; k < pass.sources; k++)
            mine.source[k] = (const unsigned char *)pass.source[k] + first * (k ? (uint64_t)shape::bytes : in_each);
        for (int o = 0; o < pass.outputs; o++) mine.output[o] = (unsigned char *)pass.output[o] + first * out_each;
        if (receives) mine.source[0] = in;
        if (sends) mine.output[pass.outputs - 1] = out;
        if (n == shape::elements)
            rd_piece<Type, true>(mine, 0, n);
        else
            rd_piece<Type, false>(mine, 0, n);
        rd_pair *to = (rd_pair *)rondo_view_packets(&at.channel.out, at.sent) + first * out_each / RD_PACKED;
        uint32_t flag = rd_packet_flag(at.args.signature, at.sent);
        if (sends) rd_packets_store(to, out, rd_packets(n * out_each), flag);
    }
}

template <class Type>
RD_DEVICE void rd_ring_pass(rd_ring_at &at, const rd_slice_pass &pass, bool receives, bool sends, uint64_t in_bytes)
{
    if (at.args.packed)
        rd_ring_pass_packed<Type>(at, pass, receives, sends, in_bytes);
    else if (pass.outputs)
        rd_pass_part<Type>(pass, threadIdx.x, blockDim.x);
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

RD_CALLED void rd_ring_copy(rd_ring_at &at, const rd_slice_pass &pass, bool receives, bool sends)
{
    rd_ring_pass<rd_uint8>(at, pass, receives, sends, pass.count);
}

/* Out of place, a rank's own chunk of an all-gather or broadcast must also reach its own output. */
RD_DEVICE rd_slice_pass rd_ring_own_pass(const rd_ring_args &args, const rd_ring_event &e, void *slot)
{
    const unsigned char *own = rd_ring_input(args, e.out.send_chunk, e.part);
    unsigned char *keep = nullptr;
    if (args.plan.collective == RONDO_COLL_ALL_GATHER || args.plan.collective == RONDO_COLL_BROADCAST)
        keep = rd_ring_output(args, e.out.send_chunk, e.part);
    return rd_copy_pass(slot, keep == own ? nullptr : keep, own, e.out_bytes);
}

RD_DEVICE rd_slice_pass rd_ring_sum_pass(const rd_ring_args &args, const rd_ring_event &e, const void *in, void *slot)
{
    rd_slice_pass pass = {};
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
    return pass;
}

template <class Type> RD_DEVICE bool rd_ring_run(rd_ring_at &at, const rd_ring_event &e)
{
    const rd_ring_args &args = at.args;
    if (!rd_ring_begin(at, e.receives, e.sends, e.in_bytes)) return false;
    const void *in = e.receives ? rondo_view_payload(&at.channel.in, at.received, e.in_bytes) : nullptr;
    void *slot = e.sends ? rondo_view_payload(&at.channel.out, at.sent, e.out_bytes) : nullptr;
    if (!e.receives)
        rd_ring_copy(at, rd_ring_own_pass(args, e, slot), false, true);
    else if (e.in.action == RONDO_REPLACE)
        rd_ring_copy(at, rd_copy_pass(slot, rd_ring_output(args, e.in.recv_chunk, e.part), in, e.in_bytes), true,
                     e.sends);
    else
        rd_ring_pass<Type>(at, rd_ring_sum_pass(args, e, in, slot), true, e.sends, e.in_bytes);
    return rd_ring_end(at, e.receives, e.sends, e.out_bytes);
}

/* An opening, which is empty. */
RD_CALLED bool rd_ring_open(rd_ring_at &at, bool receives)
{
    unsigned char nothing;
    if (!rd_ring_begin(at, receives, !receives, 0)) return false;
    rd_ring_copy(at, rd_copy_pass(&nothing, nullptr, &nothing, 0), receives, !receives);
    return rd_ring_end(at, receives, !receives, 0);
}

/* ---- A channel ---- */

template <class Type> RD_DEVICE bool rd_ring_walk(rd_ring_at &at)
{
    const rd_ring_args &args = at.args;
    bool whole = args.plan.algo == RONDO_ALGO_EXCHANGE;
    rondo_range longest = {0, whole ? args.plan.count : rondo_chunk_max(&args.plan)};
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

/* The call after this one, in memory of the block: the host's is a way over PCIe for each look. NULL: there is none. */
RD_CALLED const rd_ring_args *rd_ring_next(const rd_ring_args *call)
{
    __shared__ rd_ring_args here;
    const uint64_t *from = (const uint64_t *)call->next;
    __syncthreads(); /* all are through with this one */
    if (!from) return nullptr;
    for (unsigned i = threadIdx.x; i < sizeof here / sizeof *from; i += blockDim.x) ((uint64_t *)&here)[i] = from[i];
    __syncthreads();
    return &here;
}

/* All calls of a launch: each channel at its own pace, since no call uses what another one writes. */
template <class Type> RD_DEVICE void rd_ring_all(const rd_ring_args &first)
{
    const rd_ring_counts before = first.counts[blockIdx.x];
    rd_ring_counts now = before;
    uint64_t bytes = 0, end = RD_RING_DONE;
    for (const rd_ring_args *call = &first; call && end == RD_RING_DONE; call = rd_ring_next(call)) {
        if (blockIdx.x >= (unsigned)call->channels) continue;
        rd_ring_at at = {*call, call->channel[blockIdx.x], now.received, now.sent, now.sent, bytes, RD_RING_UNDERWAY};
        if (rd_ring_walk<Type>(at)) at.end = RD_RING_DONE;
        now = {at.received, at.sent};
        bytes = at.bytes;
        end = at.end;
    }
    __syncthreads(); /* all have read the counts */
    if (threadIdx.x != 0) return;
    first.counts[blockIdx.x] = now;
    first.reports[blockIdx.x] = {now.received - before.received, now.sent - before.sent, bytes, end};
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
