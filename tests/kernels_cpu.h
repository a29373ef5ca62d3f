/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels_cpu.h - what kernels find on a GPU, for those compiled for the CPU: whoever calls one says where it is.
 */
#ifndef RONDO_TEST_KERNELS_CPU_H
#define RONDO_TEST_KERNELS_CPU_H

#define RD_SIM_KERNEL(name, args_type, max_threads) extern "C" void name(const args_type args)
struct rd_place {
    unsigned x, y, z;
};
extern "C" {
extern thread_local rd_place threadIdx, blockIdx, blockDim, gridDim;
}

#endif
