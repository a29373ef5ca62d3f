/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_rdma.h - a GPU's memory as RDMA devices reach it: as a descriptor that the kernel's RDMA layer understands, and
 * when kernels see what a device has written there.
 */
#ifndef RD_BASE_GPU_RDMA_H
#define RD_BASE_GPU_RDMA_H

#include "base/gpu.h"

/* An RDMA device's writes take another way into the GPU than what announces them, the completion, takes to the CPU. So
 * the announcement may overtake them. */
typedef enum rd_gpu_inbound {
    RD_GPU_INBOUND_NONE,    /* no RDMA device may write there, or nobody can tell when it has */
    RD_GPU_INBOUND_FLUSHED, /* what has completed is there once rd_gpu_rdma_flush has returned */
    RD_GPU_INBOUND_ORDERED  /* it is there when it has completed */
} rd_gpu_inbound;

/* `why` gets a sentence either way. */
rd_gpu_inbound rd_gpu_rdma_inbound(int device, char *why, size_t bytes);

rondo_result rd_gpu_rdma_flush(int device);

/* Whether the driver exports memory as a dma-buf. */
bool rd_gpu_rdma_exports(int device);
/* A dma-buf of [at, at + bytes), whole pages of one allocation of this GPU; the caller closes it. */
rondo_result rd_gpu_rdma_export(int device, rd_cu_address at, size_t bytes, int *fd);

#endif
