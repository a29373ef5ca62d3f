/* SPDX-License-Identifier: Apache-2.0
 *
 * rondo_plan_split.h - cutting a message into parts and slices: a part of rondo_plan.h, which includes it.
 */
#ifndef RONDO_PLAN_SPLIT_H
#define RONDO_PLAN_SPLIT_H

#include <stdint.h>

#ifdef __CUDACC__
#define RONDO_PLAN_FN static __host__ __device__ inline
#else
#define RONDO_PLAN_FN static inline
#endif

/* A part of a message, in elements from its start. */
typedef struct rondo_range {
    uint64_t first, count;
} rondo_range;

/* Where part i of n begins, 0 <= i <= n, in elements; part n begins at the end. See rondo_split. */
RONDO_PLAN_FN uint64_t rondo_split_at(uint64_t count, uint32_t n, uint32_t i, uint64_t grain)
{
    uint64_t full = count / grain, grains = full + (count % grain != 0);
    uint64_t before = grains / n * i + (i < grains % n ? i : grains % n);
    return before > full ? count : before * grain; /* before <= full: the product is at most count, and fits */
}

/* Part i of n, 0 <= i < n, of a range, cut at multiples of `grain` (at least 1) elements from its start. Counted in
 * grains, of which the last may be incomplete, parts differ by at most one, the longer ones first. The parts follow one
 * another and cover the range; any count up to 2^64 - 1 will do. */
RONDO_PLAN_FN rondo_range rondo_split(rondo_range whole, uint32_t n, uint32_t i, uint64_t grain)
{
    uint64_t from = rondo_split_at(whole.count, n, i, grain);
    rondo_range part;
    part.first = whole.first + from;
    part.count = rondo_split_at(whole.count, n, i + 1, grain) - from;
    return part;
}

/* Slice `slice` (from 0) of a chunk, or of a channel's part of one, in slices of `elements`: the last is shorter, those
 * past it are empty. */
RONDO_PLAN_FN rondo_range rondo_slice(rondo_range part, uint64_t slice, uint64_t elements)
{
    uint64_t from = slice * elements, left;
    rondo_range r;
    if (from > part.count) from = part.count;
    left = part.count - from;
    r.first = part.first + from;
    r.count = left < elements ? left : elements;
    return r;
}

/* Slices of a part of `count` elements. One at least: an empty part still sends a slice in every step, so that no rank is
 * done before all have called. */
RONDO_PLAN_FN uint64_t rondo_slices(uint64_t count, uint64_t elements)
{
    return count > elements ? (count - 1) / elements + 1 : 1;
}

#endif
