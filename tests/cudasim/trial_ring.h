/* SPDX-License-Identifier: Apache-2.0
 *
 * trial_ring.h - what trial_ring.cu is told. C and C++.
 */
#ifndef RONDO_CUDASIM_TRIAL_RING_H
#define RONDO_CUDASIM_TRIAL_RING_H

#include <stdint.h>

/* Two slots of one rank, in its memory; its predecessor fills them. */
struct ring_link {
    uint64_t filled, freed; /* slices so far, by the predecessor and by the owner */
    uint64_t pad[6];
    float slot[]; /* 2 * room */
};

struct ring_args {
    float *data;                /* count elements, reduced in place */
    struct ring_link *in, *out; /* mine, and the successor's */
    uint64_t *launches;         /* slices of all launches before, in device memory: the kernel moves it on */
    const uint32_t *abort;      /* not 0: give up */
    uint32_t *gave_up;
    uint64_t count, room;
    int32_t rank, n;
};

#endif
