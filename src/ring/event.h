/* SPDX-License-Identifier: Apache-2.0
 *
 * event.h - the events of a channel of the ring: what each does, and in which order they come (exec.h). For ring.c.
 */
#ifndef RD_RING_EVENT_H
#define RD_RING_EVENT_H

#include "base/hot.h"
#include "ring/exec.h"

/* What one event does. */
typedef struct rd_event {
    int32_t event;
    uint64_t slice;
    bool receives, sends;
    rondo_step in, out; /* the steps that bring and that send */
    rondo_range part;   /* of the message */
    size_t in_bytes, out_bytes;
} rd_event;

static inline size_t rd_wire_bytes(const rd_op *op, rondo_range part, bool wide)
{
    return part.count * (wide ? op->reduction->wide_bytes : op->reduction->bytes);
}

/* Slice `slice` of the channel's part of a chunk; empty past its end. */
static inline rondo_range rd_piece(const rd_op *op, const rd_flow *flow, int32_t chunk, uint64_t slice)
{
    rondo_range all = rondo_split(rondo_chunk(flow->plan, chunk), (uint32_t)op->wiring->channels,
                                  (uint32_t)flow->channel, RD_CHANNEL_GRAIN);
    return rondo_slice(all, slice, op->slice_elements);
}

/* The next (first, index, slice) in the order of exec.h, index running from 0 to last. */
static inline void rd_next(const rd_op *op, const rd_flow *flow, uint64_t *first, int32_t *index, uint64_t *slice,
                           int32_t last)
{
    if (++*slice < flow->slices && *slice < *first + (uint64_t)op->block) return;
    if (++*index <= last) {
        *slice = *first;
        return;
    }
    *index = 0;
    *first += (uint64_t)op->block;
    *slice = *first;
}

RD_HOT rd_event rd_event_at(const rd_op *op, const rd_flow *flow, int32_t event, uint64_t slice)
{
    rd_event e = {.event = event, .slice = slice};
    int32_t chunk = -1;
    if (event > 0) {
        e.in = flow->steps[event - 1];
        e.receives = e.in.recv_from >= 0;
        if (e.receives) chunk = e.in.recv_chunk;
    }
    if (event < flow->plan->steps) {
        e.out = flow->steps[event];
        e.sends = e.out.send_to >= 0;
        if (e.sends) chunk = e.out.send_chunk;
    }
    if (chunk < 0) return e;
    e.part = rd_piece(op, flow, chunk, slice);
    e.in_bytes = rd_wire_bytes(op, e.part, e.receives && e.in.recv_wide);
    e.out_bytes = rd_wire_bytes(op, e.part, e.sends && e.out.send_wide);
    return e;
}

#endif
