/* SPDX-License-Identifier: Apache-2.0
 *
 * device_ring.c - ring kernels: a whole collective in one launch, a block for each channel. What a kernel and its host
 * tell one another lies in host memory that the GPU reaches, which this process may write while nothing runs: so a
 * launch waits for no copy. The kernel counts on there, and a launch that a graph repeats goes on where the last one
 * ended.
 */
#include "reduce/device.h"

#include "base/dtype.h"
#include "base/status.h"
#include "kernels/ring.h"

#include <stdio.h>
#include <string.h>

#define RING_RANKS 256 /* of a ring, at most */

struct rd_device_ring {
    uint32_t stop;
    rd_ring_report reports[RD_RING_CHANNELS];
    rd_ring_counts counts[RD_RING_CHANNELS];
    int32_t order[RING_RANKS];
    uint64_t bounds[RING_RANKS + 1];
};

size_t rd_device_ring_bytes(void)
{
    return sizeof(struct rd_device_ring);
}

/* How many blocks of the type that takes most are resident at once. */
rondo_result rd_gpu_load_ring(rd_gpu *gpu)
{
    int least = -1;
    for (int type = 0; type < RONDO_DTYPES; type++) {
        char name[64];
        int blocks;
        snprintf(name, sizeof name, "rd_ring_%s", rd_dtype_name((rondo_dtype)type));
        RD_TRY(RD_GPU(gpu->ordinal, cuModuleGetFunction, &gpu->ring[type], gpu->module, name));
        RD_TRY(RD_GPU(gpu->ordinal, cuFuncGetAttribute, &gpu->ring_threads[type],
                      RD_CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, gpu->ring[type]));
        RD_TRY(RD_GPU(gpu->ordinal, cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, gpu->ring[type],
                      gpu->ring_threads[type], 0));
        if (least < 0 || blocks < least) least = blocks;
    }
    gpu->resident = least * gpu->multiprocessors;
    return RONDO_SUCCESS;
}

bool rd_device_ring_take(rd_engine *engine, int channels, int ranks)
{
    return ranks <= RING_RANKS && channels <= RD_RING_CHANNELS && rd_device_take((rd_device *)engine, channels);
}

/* The order and the bounds where the GPU reads them; ranks in their own order need none. */
static void place_plan(struct rd_device_ring *ring, rondo_plan *plan)
{
    bool in_order = true;
    for (int32_t i = 0; plan->order && i < plan->size; i++) {
        ring->order[i] = plan->order[i];
        in_order = in_order && plan->order[i] == i;
    }
    for (int32_t c = 0; plan->bounds && c <= plan->chunks; c++) ring->bounds[c] = plan->bounds[c];
    plan->order = in_order ? NULL : ring->order;
    plan->bounds = plan->bounds ? ring->bounds : NULL;
}

rondo_result rd_device_ring(rd_engine *engine, rondo_dtype type, rd_ring_args *args, int threads)
{
    rd_device *device = (rd_device *)engine;
    const rd_gpu *gpu = device->gpu;
    struct rd_device_ring *ring = device->ring;
    if (threads > gpu->ring_threads[type]) threads = gpu->ring_threads[type];
    for (int32_t c = 0; c < args->channels; c++) {
        ring->counts[c] = (rd_ring_counts){args->channel[c].in.next, args->channel[c].out.next};
        ring->reports[c] = (rd_ring_report){0};
    }
    place_plan(ring, &args->plan);
    args->stop = &ring->stop;
    args->counts = ring->counts;
    args->reports = ring->reports;
    engine->reports = ring->reports;
    return rd_device_launch(device, gpu->ring[type], args->channels, threads, args, &ring->stop);
}
