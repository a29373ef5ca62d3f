/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_reach.c - what memory the device reads from and writes to: the caller's, where it can be registered, else the
 * link's own, from and into which is copied; and GPU memory.
 *
 * There are two ways to register GPU memory: as a dma-buf, which the GPU's driver exports and the kernel's RDMA layer
 * takes, and by its address, which needs a module of the GPU's vendor beneath that layer (nvidia-peermem). Whether
 * either works depends on the GPU, the RDMA device, both drivers and the kernel, and nobody tells beforehand: so both
 * are tried.
 */
#include "base/gpu_rdma.h"
#include "base/status.h"
#include "transport/verbs_link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void rd_verbs_reach(rd_verbs_end *end, rd_verbs_frame *frame, uint64_t slice)
{
    rd_verbs_rail *rail = rd_verbs_rail_of(end, slice);
    const struct ibv_mr *mr = rail->mr;
    frame->at = frame->memory;
    if (rd_verbs_is_gpu(end, frame->memory))
        mr = end->gpu.mr[slice % (uint64_t)end->rail_count];
    else if ((frame->region = rd_verbs_region_get(rail->device, frame->memory, frame->bytes, end->side == RD_RECEIVER)))
        mr = rd_verbs_region_mr(frame->region);
    else
        frame->at = end->bounce + slice % end->link.slots * end->link.slot_bytes;
    frame->local = mr->lkey;
    frame->remote = mr->rkey;
}

void rd_verbs_let_go(rd_verbs_frame *frame)
{
    if (frame->region) rd_verbs_region_put(frame->region);
    frame->region = NULL;
}

void rd_verbs_foresee(rondo_link *link, const void *ptr, size_t bytes)
{
    rd_verbs_end *end = (rd_verbs_end *)link;
    if (bytes <= end->eager) return;
    for (int i = 0; i < end->rail_count; i++) {
        const rd_verbs_region *region = rd_verbs_region_get(end->rails[i].device, ptr, bytes, end->side == RD_RECEIVER);
        if (region) rd_verbs_region_put(region);
    }
}

/* ---- GPU memory ---- */

static struct ibv_mr *by_descriptor(const rd_verbs_end *end, const rd_verbs_device *device, int access, char *why,
                                    size_t bytes)
{
    const rd_verbs_calls *ibv = rd_verbs_lib();
    const rd_verbs_gpu *gpu = &end->gpu;
    int fd;
    if (!ibv->reg_dmabuf_mr) {
        snprintf(why, bytes, "this libibverbs knows no dma-buf");
        return NULL;
    }
    if (rd_gpu_rdma_export(gpu->device, gpu->from, gpu->bytes, &fd) != RONDO_SUCCESS) {
        snprintf(why, bytes, "%s", rd_last_error());
        return NULL;
    }
    errno = 0;
    struct ibv_mr *mr = ibv->reg_dmabuf_mr(device->pd, 0, gpu->bytes, gpu->from, fd, access);
    if (!mr) snprintf(why, bytes, "%s does not register a dma-buf: %s", device->name, strerror(errno));
    close(fd); /* what is registered keeps it */
    return mr;
}

static struct ibv_mr *by_address(const rd_verbs_end *end, const rd_verbs_device *device, int access, char *why,
                                 size_t bytes)
{
    const rd_verbs_gpu *gpu = &end->gpu;
    struct ibv_mr *mr = rd_verbs_lib()->reg_mr(device->pd, (void *)gpu->from, gpu->bytes, access);
    if (!mr) snprintf(why, bytes, "%s does not register it by its address: %s", device->name, strerror(errno));
    return mr;
}

/* For one rail; an earlier one on the same device has done so for both. */
static bool register_for(rd_verbs_end *end, int rail, const char **as, char *how, size_t bytes)
{
    rd_verbs_gpu *gpu = &end->gpu;
    char no_descriptor[256], no_address[160];
    int access = IBV_ACCESS_LOCAL_WRITE | (end->side == RD_RECEIVER ? IBV_ACCESS_REMOTE_WRITE : 0);
    const rd_verbs_device *device = end->rails[rail].device;
    for (int i = 0; i < rail && !gpu->mr[rail]; i++)
        if (end->rails[i].device == device) gpu->mr[rail] = gpu->mr[i];
    if (gpu->mr[rail]) return true;
    *as = "as a dma-buf";
    gpu->mr[rail] = by_descriptor(end, device, access, no_descriptor, sizeof no_descriptor);
    if (gpu->mr[rail]) return true;
    *as = "by its address";
    gpu->mr[rail] = by_address(end, device, access, no_address, sizeof no_address);
    if (!gpu->mr[rail]) snprintf(how, bytes, "%s; %s (nvidia-peermem is not loaded?)", no_descriptor, no_address);
    return gpu->mr[rail] != NULL;
}

rondo_link_result rd_verbs_reach_gpu(rondo_link *link, int device, void *ptr, size_t bytes, size_t *least, char *how,
                                     size_t how_bytes)
{
    rd_verbs_end *end = (rd_verbs_end *)link;
    char order[160];
    const char *as = "";
    rd_gpu_inbound inbound = rd_gpu_rdma_inbound(device, order, sizeof order);
    if (inbound == RD_GPU_INBOUND_NONE) {
        snprintf(how, how_bytes, "%s", order);
        return RONDO_LINK_AGAIN;
    }
    end->gpu = (rd_verbs_gpu){.from = (uintptr_t)ptr,
                              .bytes = bytes,
                              .device = device,
                              .flush = end->side == RD_RECEIVER && inbound == RD_GPU_INBOUND_FLUSHED};
    for (int i = 0; i < end->rail_count; i++)
        if (!register_for(end, i, &as, how, how_bytes)) {
            rd_verbs_gpu_close(end);
            return RONDO_LINK_AGAIN;
        }
    snprintf(how, how_bytes, "%s reaches it, registered %s; %s", end->rails[0].device->name, as, order);
    *least = end->eager;
    return RONDO_LINK_OK;
}

bool rd_verbs_gpu_arrived(rd_verbs_end *end)
{
    if (!end->gpu.flush || end->gpu.flushed) return true;
    end->gpu.flushed = rd_gpu_rdma_flush(end->gpu.device) == RONDO_SUCCESS;
    if (end->gpu.flushed) return true;
    rd_verbs_broken(end, "what it wrote to the GPU cannot be flushed", rd_last_error());
    return false;
}

void rd_verbs_gpu_close(rd_verbs_end *end)
{
    rd_verbs_gpu *gpu = &end->gpu;
    for (int i = end->rail_count; i-- > 0;) {
        bool shared = false;
        for (int j = 0; j < i; j++) shared = shared || gpu->mr[j] == gpu->mr[i];
        if (gpu->mr[i] && !shared) rd_verbs_lib()->dereg_mr(gpu->mr[i]);
    }
    *gpu = (rd_verbs_gpu){0};
}
