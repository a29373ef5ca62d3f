/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels_cpu.h - what kernels find on a GPU, for those compiled for the CPU: whoever calls one says where it is.
 */
#ifndef RONDO_TEST_KERNELS_CPU_H
#define RONDO_TEST_KERNELS_CPU_H

#include <stddef.h>

struct rd_sim_kernel {
    size_t argument_bytes;
    int max_threads;
};
struct rd_place {
    unsigned x, y, z;
};
extern "C" {
extern thread_local rd_place threadIdx, blockIdx, blockDim, gridDim;
}

#endif
