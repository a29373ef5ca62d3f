/* SPDX-License-Identifier: Apache-2.0
 *
 * device_peers.c - transfers as one kernel, a block for each wire. As with ring kernels (device_ring.c) what the kernel
 * and its host tell one another lies in host memory that the GPU reaches; what is told first, the argument, is copied
 * by the launch.
 */
#include "reduce/device.h"

#include "base/status.h"
#include "kernels/peers.h"

#include <string.h>

_Static_assert(sizeof(rd_peers_args) <= 4096, "a kernel's argument holds so many wires (kernels/device.cuh)");

struct rd_device_peers {
    uint32_t stop;
    rd_peers_args args;
    rd_peers_report reports[RD_PEERS_WIRES];
    rd_peers_transfer transfers[RD_PEERS_TRANSFERS];
};

size_t rd_device_peers_bytes(void)
{
    return sizeof(struct rd_device_peers);
}

rondo_result rd_gpu_load_peers(rd_gpu *gpu)
{
    int blocks;
    RD_TRY(RD_GPU(gpu->ordinal, cuModuleGetFunction, &gpu->peers, gpu->module, "rd_peers"));
    RD_TRY(RD_GPU(gpu->ordinal, cuFuncGetAttribute, &gpu->peers_threads, RD_CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                  gpu->peers));
    RD_TRY(
        RD_GPU(gpu->ordinal, cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, gpu->peers, gpu->peers_threads, 0));
    if (blocks * gpu->multiprocessors < gpu->resident) gpu->resident = blocks * gpu->multiprocessors;
    return RONDO_SUCCESS;
}

rd_peers_args *rd_device_peers_room(rd_engine *engine, int wires, int transfers)
{
    rd_device *device = (rd_device *)engine;
    struct rd_device_peers *peers = device->peers;
    if (wires > RD_PEERS_WIRES || transfers > RD_PEERS_TRANSFERS || !rd_device_take(device, wires)) return NULL;
    peers->args.stop = &peers->stop;
    peers->args.transfers = peers->transfers;
    peers->args.reports = peers->reports;
    return &peers->args;
}

rondo_result rd_device_peers(rd_engine *engine, int wires, int threads)
{
    rd_device *device = (rd_device *)engine;
    const rd_gpu *gpu = device->gpu;
    struct rd_device_peers *peers = device->peers;
    if (threads > gpu->peers_threads) threads = gpu->peers_threads;
    memset(peers->reports, 0, sizeof peers->reports);
    return rd_device_launch(device, gpu->peers, wires, threads, &peers->args, &peers->stop);
}
