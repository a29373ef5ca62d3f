/* SPDX-License-Identifier: Apache-2.0
 *
 * live.c - the GPUs of the machine here as the CUDA driver reports them: attached to hwloc's objects by their bus
 * addresses, and which of them reach one another's memory.
 */
#include "base/gpu.h"
#include "base/status.h"
#include "topo/machine.h"

#include <stdio.h>
#include <stdlib.h>

static hwloc_obj_t pci_at(const rd_machine *machine, uint32_t bus)
{
    return hwloc_get_pcidev_by_busid(machine->topology, bus >> 16, bus >> 8 & 0xff, bus >> 3 & 0x1f, bus & 7);
}

static rondo_result add_missing(rd_machine *machine, const rd_live_gpu *gpus, int count)
{
    for (int i = 0; i < count; i++) {
        rd_device_object *gpu = rd_machine_gpu_on(machine, gpus[i].bus);
        if (!gpu && !(gpu = rd_machine_add_gpu(machine, pci_at(machine, gpus[i].bus), gpus[i].bus)))
            return RONDO_SYSTEM_ERROR;
        snprintf(gpu->seen.name, sizeof gpu->seen.name, "cuda%d", i);
        snprintf(gpu->seen.model, sizeof gpu->seen.model, "%s", gpus[i].name);
    }
    rd_machine_sort_gpus(machine);
    return RONDO_SUCCESS;
}

static int index_of(rd_machine *machine, uint32_t bus)
{
    return (int)(rd_machine_gpu_on(machine, bus) - machine->gpus);
}

/* The rank of a pair is a number without a unit. Where ranks differ, the lowest is for links that are better than PCIe.
 */
static rondo_result guess_fabric(rd_machine *machine, const rd_live_gpu *gpus, int count, const rd_gpu_access *access)
{
    uint32_t least = UINT32_MAX, most = 0;
    for (int i = 0; i < count * count; i++) {
        if (i / count == i % count || !access[i].can) continue;
        if (access[i].rank < least) least = access[i].rank;
        if (access[i].rank > most) most = access[i].rank;
    }
    if (least >= most) return RONDO_SUCCESS;
    RD_TRY(rd_fabric_room(machine));
    for (int i = 0; i < count * count; i++)
        if (access[i].can && access[i].rank == least)
            rd_fabric_add(machine, index_of(machine, gpus[i / count].bus), index_of(machine, gpus[i % count].bus),
                          RD_LINK_NVLINK, rd_link_of(RD_LINK_NVLINK).mbs);
    return RONDO_SUCCESS;
}

rondo_result rd_machine_attach_gpus(rd_machine *machine, const rd_live_gpu *gpus, int count,
                                    const rd_gpu_access *access)
{
    int before = machine->gpu_count;
    if (count < 1) return RONDO_SUCCESS;
    RD_TRY(add_missing(machine, gpus, count));
    size_t n = (size_t)machine->gpu_count;
    if (machine->gpu_count != before && machine->fabric) RD_TRY(rd_machine_find_fabric(machine));
    free(machine->access);
    machine->access = calloc(n * n, sizeof *machine->access);
    if (!machine->access) return rd_fail(RONDO_SYSTEM_ERROR, "no memory for what the driver says of %zu GPUs", n);
    for (size_t i = 0; i < n * n; i++) machine->access[i].can = true; /* of others than the driver's nothing is known */
    for (int i = 0; i < count * count; i++)
        machine->access[(size_t)index_of(machine, gpus[i / count].bus) * n +
                        (size_t)index_of(machine, gpus[i % count].bus)] = access[i];
    return machine->fabric ? RONDO_SUCCESS : guess_fabric(machine, gpus, count, access);
}

/* ---- Asking ---- */

static rondo_result ask(rd_live_gpu *gpus, rd_gpu_access *access, int count)
{
    struct rd_gpu_info info;
    struct rd_gpu_reach reach;
    for (int a = 0; a < count; a++) {
        RD_TRY(rd_gpu_describe(a, &info));
        if (!rd_bus_id_parse(&gpus[a].bus, info.pci)) gpus[a].bus = RD_NO_BUS + (uint32_t)a;
        snprintf(gpus[a].name, sizeof gpus[a].name, "%s", info.name);
        for (int b = 0; b < count; b++) {
            access[a * count + b].can = true;
            if (a == b) continue;
            RD_TRY(rd_gpu_reach(a, b, &reach));
            access[a * count + b] = (rd_gpu_access){.can = reach.access, .rank = (uint32_t)reach.rank};
        }
    }
    return RONDO_SUCCESS;
}

rondo_result rd_machine_ask_driver(rd_machine *machine)
{
    int count = rd_gpu_count();
    if (count == 0) return RONDO_SUCCESS;
    rd_live_gpu *gpus = calloc((size_t)count, sizeof *gpus);
    rd_gpu_access *access = calloc((size_t)count * (size_t)count, sizeof *access);
    rondo_result result;
    if (!gpus || !access)
        result = rd_fail(RONDO_SYSTEM_ERROR, "no memory for what the driver says of %d GPUs", count);
    else
        result = ask(gpus, access, count);
    if (result == RONDO_SUCCESS) result = rd_machine_attach_gpus(machine, gpus, count, access);
    if (result == RONDO_SUCCESS) result = rd_machine_attach_nvml(machine);
    free(access);
    free(gpus);
    return result;
}
