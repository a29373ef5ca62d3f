/* SPDX-License-Identifier: Apache-2.0 */
#include "base/gpu_rdma.h"

#include "base/status.h"

#include <stdio.h>

/* 0 also where the driver does not know the attribute. */
static int ask(int device, unsigned attribute)
{
    int value = 0;
    return rd_gpu_driver()->cuDeviceGetAttribute(&value, attribute, device) == RD_CU_SUCCESS ? value : 0;
}

rd_gpu_inbound rd_gpu_rdma_inbound(int device, char *why, size_t bytes)
{
    int ordering = ask(device, RD_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);
    int options = ask(device, RD_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
    if (!ask(device, RD_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED)) {
        snprintf(why, bytes, "the driver gives RDMA devices no access to GPU %d", device);
        return RD_GPU_INBOUND_NONE;
    }
    if (ordering >= RD_CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER) {
        snprintf(why, bytes, "GPU %d sees in order what RDMA devices write", device);
        return RD_GPU_INBOUND_ORDERED;
    }
    if (options & RD_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST) {
        snprintf(why, bytes, "what RDMA devices write to GPU %d is flushed by the driver", device);
        return RD_GPU_INBOUND_FLUSHED;
    }
    snprintf(why, bytes, "GPU %d neither sees in order what RDMA devices write, nor can it be flushed", device);
    return RD_GPU_INBOUND_NONE;
}

rondo_result rd_gpu_rdma_flush(int device)
{
    RD_TRY(rd_gpu_enter_primary(device));
    rondo_result result =
        RD_GPU(device, cuFlushGPUDirectRDMAWrites, RD_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
               RD_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
    rd_gpu_leave_primary(device);
    return result;
}

bool rd_gpu_rdma_exports(int device)
{
    return ask(device, RD_CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
}

rondo_result rd_gpu_rdma_export(int device, rd_cu_address at, size_t bytes, int *fd)
{
    if (!rd_gpu_rdma_exports(device))
        return rd_fail(RONDO_INVALID_USAGE, "the driver exports no dma-buf of GPU %d (the open kernel modules do)",
                       device);
    RD_TRY(rd_gpu_enter_primary(device));
    rondo_result result =
        RD_GPU(device, cuMemGetHandleForAddressRange, fd, at, bytes, RD_CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    rd_gpu_leave_primary(device);
    return result;
}
