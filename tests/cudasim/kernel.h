/* SPDX-License-Identifier: Apache-2.0
 *
 * kernel.h - what the simulated driver and a kernel compiled for the CPU know of one another. C and C++.
 */
#ifndef RONDO_CUDASIM_KERNEL_H
#define RONDO_CUDASIM_KERNEL_H

#include <stddef.h>
#include <stdint.h>

enum { RD_SIM_WARP = 32, RD_SIM_ARGUMENT_BYTES = 4096 };

/* What a kernel library exports as NAME_sim for each kernel NAME. */
struct rd_sim_kernel {
    size_t argument_bytes;             /* of its one argument, a struct by value */
    unsigned max_threads;              /* of a block */
    void (*run)(const void *argument); /* what one thread does */
    void (*share)(void); /* before any does: the block's shared memory is there */
};

struct rd_sim_dim {
    unsigned x, y, z;
};

/* Where a kernel's code is. */
struct rd_sim_thread {
    struct rd_sim_dim thread, block, block_size, grid_size;
    unsigned lane; /* in its warp */
    void *shared;  /* dynamic shared memory of its block */
};

struct rd_sim_services {
    const struct rd_sim_thread *(*self)(void);
    void (*spin)(void);
    void (*barrier)(void); /* __syncthreads */
    /* __syncwarp(mask), and lanes[i] becomes what lane i of the mask gave. */
    void (*warp)(unsigned mask, uint64_t value, uint64_t *lanes);
    void (*touch)(const void *address, size_t bytes); /* before an access, in libraries that check them */
};

#endif
