/* SPDX-License-Identifier: Apache-2.0
 *
 * peers.cu - transfers between this rank and others, all at once: a block for each wire, which moves its slices as
 * src/ring/peers.c does. At the other end is a kernel like this one, or a CPU with a stepwise engine. No block waits
 * for another, so no send waits for a receive; but all must be resident together, for each may wait for a peer that
 * waits for another one.
 *
 * A slice's way is the ring's (ring.cu): one thread waits; a barrier; all threads copy; a barrier; that thread stores
 * the head. Without packets: they would need memory of their own in every link.
 */
#include "peers.h"
#include "slice.cuh"

/* Where a wire is. The same in all threads of its block. */
struct rd_peers_at {
    const rd_peers_args &args;
    const rd_peers_wire &wire;
    uint64_t slices, bytes; /* moved */
};

/* Waits for the next slice, or for room for it; what comes of it is known to all. */
RD_DEVICE uint64_t rd_peers_begin(const rd_peers_at &at, uint64_t signature, uint64_t bytes)
{
    __shared__ uint64_t end;
    const rondo_view *view = &at.wire.view;
    uint64_t n = view->next + at.slices;
    if (threadIdx.x == 0) {
        end = at.wire.does == RD_PEERS_SENDS ? rd_await_room(at.args.stop, view, n)
                                             : rd_await_slice(at.args.stop, view, n, signature, bytes);
        if (end == RD_RING_MISMATCH) rd_store_relaxed(at.args.stop, 1);
    }
    __syncthreads();
    return end;
}

/* It has been copied. */
RD_DEVICE void rd_peers_end(rd_peers_at &at, uint64_t signature, uint64_t bytes)
{
    const rondo_view *view = &at.wire.view;
    uint64_t n = view->next + at.slices;
    __syncthreads(); /* all have done their part of the slice */
    at.slices++;
    at.bytes += bytes;
    if (threadIdx.x != 0) return;
    if (at.wire.does == RD_PEERS_SENDS)
        rd_fill_slot(view, n, signature, bytes);
    else
        rd_free_slot(view, n);
    rd_store_relaxed(&at.args.reports[blockIdx.x].slices, at.slices);
}

RD_CALLED void rd_peers_copy(void *to, const void *from, uint64_t bytes)
{
    rd_pass_part<rd_uint8>(rd_copy_pass(to, nullptr, from, bytes), threadIdx.x, blockDim.x);
}

/* The transfer is a copy of what lies in host memory: that is read once, and not for each slice. */
RD_DEVICE uint64_t rd_peers_move(rd_peers_at &at, const rd_peers_transfer transfer)
{
    uint64_t most = at.wire.slot_bytes, slices = rondo_slices(transfer.bytes, most);
    for (uint64_t slice = 0; slice < slices; slice++) {
        uint64_t first = slice * most, left = transfer.bytes - first, bytes = left < most ? left : most;
        uint64_t end = rd_peers_begin(at, transfer.signature, bytes);
        if (end != RD_RING_UNDERWAY) return end;
        void *slot = rondo_view_payload(&at.wire.view, at.wire.view.next + at.slices, bytes);
        if (at.wire.does == RD_PEERS_SENDS)
            rd_peers_copy(slot, transfer.from + first, bytes);
        else
            rd_peers_copy(transfer.to + first, slot, bytes);
        rd_peers_end(at, transfer.signature, bytes);
    }
    return RD_RING_UNDERWAY;
}

RD_KERNEL(rd_peers, rd_peers_args, RD_PEERS_THREADS)
{
    const rd_peers_wire &wire = args.wire[blockIdx.x];
    rd_peers_at at = {args, wire, 0, 0};
    uint64_t end = RD_RING_UNDERWAY;
    for (uint32_t i = 0; i < wire.count && end == RD_RING_UNDERWAY; i++) {
        const rd_peers_transfer transfer = args.transfers[wire.first + i];
        if (wire.does == RD_PEERS_KEEPS)
            rd_peers_copy(transfer.to, transfer.from, transfer.bytes);
        else
            end = rd_peers_move(at, transfer);
    }
    if (threadIdx.x != 0) return;
    rd_peers_report *report = &args.reports[blockIdx.x];
    report->bytes = at.bytes;
    report->end = end == RD_RING_UNDERWAY ? (uint64_t)RD_RING_DONE : end;
}
