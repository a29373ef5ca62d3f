/* SPDX-License-Identifier: Apache-2.0
 *
 * ring.h - what a ring kernel is told, and what it tells. C and C++: the library fills it in, the kernel reads it.
 */
#ifndef RD_KERNELS_RING_H
#define RD_KERNELS_RING_H

#include "rondo_plan.h"
#include "rondo_transport.h"

#define RD_RING_CALLS    16 /* of a launch, at most */
#define RD_RING_CHANNELS 8   /* blocks of a launch, at most */
#define RD_RING_THREADS  512 /* of a block, at most */

/* How a channel ended. */
enum { RD_RING_UNDERWAY, RD_RING_DONE, RD_RING_STOPPED, RD_RING_MISMATCH };

/* One end of a channel's links, in the GPU's memory: slices that this rank has received and sent over it so far, by all
 * launches. The kernel counts on, so that a launch may be repeated as it is. */
typedef struct rd_ring_counts {
    uint64_t received, sent;
} rd_ring_counts;

/* What a channel has done in the latest launch; host memory. */
typedef struct rd_ring_report {
    uint64_t received, sent; /* slices */
    uint64_t bytes;          /* sent */
    uint64_t end;
} rd_ring_report;

typedef struct rd_ring_channel {
    rondo_view in, out; /* but for `next`: counts has it */
} rd_ring_channel;

/* A call. Every address is one that the GPU can reach. src/ring/exec.h has the words. */
typedef struct rd_ring_args {
    rondo_plan plan; /* with order and bounds that the GPU can read */
    uint64_t signature;
    uint64_t slice_elements;
    const unsigned char *input;
    unsigned char *output;
    int32_t input_whole, output_whole;
    int32_t bytes, wide_bytes; /* of an element */
    int32_t op, ranks;
    double scale, divisor;
    uint64_t grain; /* elements: where channels part */
    int32_t channels, block;
    int32_t packed;          /* slices go in packets, on all links */
    uint32_t *stop;          /* host memory; not 0: give up. The kernel sets it when one of its channels cannot go on */
    rd_ring_counts *counts;  /* by channel */
    rd_ring_report *reports; /* by channel */
    const struct rd_ring_args *next; /* the call after it, in host memory; NULL: it is the last of its launch */
    rd_ring_channel channel[RD_RING_CHANNELS];
} rd_ring_args;

#endif
