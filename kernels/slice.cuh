/* SPDX-License-Identifier: Apache-2.0
 *
 * slice.cuh - what kernels that wait do with a slice: its head, by one thread, and a pass over it, by all of a block.
 * Why a wait ends: RD_RING_... (ring.h).
 */
#ifndef RD_KERNELS_SLICE_CUH
#define RD_KERNELS_SLICE_CUH

#include "pass.cuh"
#include "ring.h"

/* ---- Heads ---- */

/* Until a word, which only grows, has come to `number`. */
RD_DEVICE uint64_t rd_await(const uint32_t *stop, const uint64_t *word, uint64_t number)
{
    for (int turn = 1; rd_load_acquire(word) < number; turn++) {
        if (turn % 8 == 0 && rd_load_relaxed(stop)) return RD_RING_STOPPED;
        rd_spin();
    }
    return RD_RING_UNDERWAY;
}

/* Slice n is there, and is the one that is expected. */
RD_DEVICE uint64_t rd_await_slice(const uint32_t *stop, const rondo_view *in, uint64_t n, uint64_t signature,
                                  uint64_t bytes)
{
    const rondo_slot *head = rondo_view_head(in, n);
    uint64_t end = rd_await(stop, &head->filled, n + 1);
    if (end != RD_RING_UNDERWAY) return end;
    return head->signature == signature && head->bytes == bytes ? RD_RING_UNDERWAY : RD_RING_MISMATCH;
}

/* The slot of slice n has come back. */
RD_DEVICE uint64_t rd_await_room(const uint32_t *stop, const rondo_view *out, uint64_t n)
{
    if (n < out->count) return RD_RING_UNDERWAY;
    return rd_await(stop, &rondo_view_head(out, n)->freed, n - out->count + 1);
}

RD_DEVICE void rd_fill_slot(const rondo_view *out, uint64_t n, uint64_t signature, uint64_t bytes)
{
    rondo_slot *head = rondo_view_head(out, n);
    head->signature = signature;
    head->bytes = bytes;
    rd_store_release(&head->filled, n + 1);
}

RD_DEVICE void rd_free_slot(const rondo_view *in, uint64_t n)
{
    rd_store_release(&rondo_view_head(in, n)->freed, n + 1);
}

/* ---- A pass over a slice (pass.cuh) ---- */

struct rd_slice_pass {
    uint64_t count;
    double scale, divisor;
    int32_t op, ranks;
    int32_t sources, outputs;
    int32_t first_partial, first_wide, out_wide, finish;
    const void *source[2];
    void *output[2];
};

/* A copy: the sum of one term, in bytes (rd_uint8). */
RD_DEVICE rd_slice_pass rd_copy_pass(void *to, void *also, const void *from, uint64_t bytes)
{
    rd_slice_pass pass = {};
    pass.count = bytes;
    pass.op = RONDO_SUM;
    pass.ranks = pass.sources = 1;
    pass.source[0] = from;
    if (also) pass.output[pass.outputs++] = also;
    if (to) pass.output[pass.outputs++] = to;
    return pass;
}

#endif
