/* SPDX-License-Identifier: Apache-2.0
 *
 * device_ring.c - ring kernels: whole collectives in one launch, a block for each channel. What a kernel and its host
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
    rd_ring_args calls[RD_RING_CALLS]; /* the first is copied by the launch */
};
_Static_assert(sizeof(rd_ring_args) <= 4096, "a kernel's argument");

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

rd_ring_args *rd_device_ring_room(rd_engine *engine)
{
    return ((rd_device *)engine)->ring->calls;
}

/* The order and the bounds where the GPU reads them; ranks in their own order need none. All calls of a launch have the
 * same order, and one that has bounds is alone. */
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

rondo_result rd_device_ring(rd_engine *engine, rondo_dtype type, int count, int threads)
{
    rd_device *device = (rd_device *)engine;
    const rd_gpu *gpu = device->gpu;
    struct rd_device_ring *ring = device->ring;
    int32_t blocks = 0;
    if (threads > gpu->ring_threads[type]) threads = gpu->ring_threads[type];
    for (int k = 0; k < count; k++) {
        rd_ring_args *call = &ring->calls[k];
        for (; blocks < call->channels; blocks++) {
            ring->counts[blocks] = (rd_ring_counts){call->channel[blocks].in.next, call->channel[blocks].out.next};
            ring->reports[blocks] = (rd_ring_report){0};
        }
        place_plan(ring, &call->plan);
        call->stop = &ring->stop;
        call->counts = ring->counts;
        call->reports = ring->reports;
        call->next = k + 1 < count ? call + 1 : NULL;
    }
    engine->reports = ring->reports;
    return rd_device_launch(device, gpu->ring[type], blocks, threads, ring->calls, &ring->stop);
}
