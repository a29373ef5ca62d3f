/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce.cu - one pass by all threads of a launch. A kernel for each element type.
 */
#include "pass.cuh"
#include "reduce.h"

#define RD_REDUCE(type)                                                                                                \
    RD_KERNEL(rd_reduce_##type, rd_reduce_args, RD_REDUCE_THREADS)                                                     \
    {                                                                                                                  \
        uint64_t thread = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;                                             \
        rd_pass_part<rd_##type>(args, thread, (uint64_t)gridDim.x * blockDim.x);                                       \
    }
RD_REDUCE(int8)
RD_REDUCE(uint8)
RD_REDUCE(int32)
RD_REDUCE(uint32)
RD_REDUCE(int64)
RD_REDUCE(uint64)
RD_REDUCE(float16)
RD_REDUCE(float32)
RD_REDUCE(float64)
RD_REDUCE(bfloat16)
RD_REDUCE(float8e4m3)
RD_REDUCE(float8e5m2)
