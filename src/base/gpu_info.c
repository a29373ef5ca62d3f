/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_info.c - what the driver says about GPUs, as plain data.
 */
#include "base/gpu.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>

int rd_gpu_count(void)
{
    int count = 0;
    const struct rd_gpu_driver *driver = rd_gpu_driver();
    if (driver == NULL || driver->cuDeviceGetCount(&count) != RD_CU_SUCCESS) return 0;
    return count;
}

static rondo_result known(int device)
{
    RD_TRY(rd_gpu_require());
    int count = rd_gpu_count();
    if (device >= 0 && device < count) return RONDO_SUCCESS;
    return rd_fail(RONDO_INVALID_ARGUMENT, "there is no GPU %d: this process sees %d, numbered from 0", device, count);
}

/* A value of a device that can be asked for by number. */
static rondo_result attribute(int device, unsigned which, int *value)
{
    return RD_GPU(device, cuDeviceGetAttribute, value, which, device);
}

rondo_result rd_gpu_describe(int device, struct rd_gpu_info *info)
{
    struct rd_gpu_info found = {0};
    rd_cu_uuid uuid;
    int domain, bus, slot, major, minor, managed, fds;
    RD_TRY(known(device));
    RD_TRY(RD_GPU(device, cuDeviceGetName, found.name, sizeof found.name, device));
    RD_TRY(RD_GPU(device, cuDeviceGetUuid, &uuid, device));
    RD_TRY(RD_GPU(device, cuDeviceTotalMem, &found.memory_bytes, device));
    RD_TRY(attribute(device, RD_CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, &domain));
    RD_TRY(attribute(device, RD_CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, &bus));
    RD_TRY(attribute(device, RD_CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, &slot));
    RD_TRY(attribute(device, RD_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major));
    RD_TRY(attribute(device, RD_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor));
    RD_TRY(attribute(device, RD_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &found.multiprocessors));
    RD_TRY(attribute(device, RD_CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, &managed));
    RD_TRY(attribute(device, RD_CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, &fds));
    snprintf(found.pci, sizeof found.pci, "%04x:%02x:%02x.0", (unsigned)domain, bus & 0xff, slot & 0x1f);
    memcpy(found.uuid, uuid.bytes, sizeof found.uuid);
    found.capability = 10 * major + minor;
    found.managed_by_host = managed != 0;
    found.exports_fds = fds != 0;
    *info = found;
    return RONDO_SUCCESS;
}

struct rd_gpu_place rd_gpu_locate(const void *ptr)
{
    const struct rd_gpu_driver *driver = rd_gpu_driver();
    struct rd_gpu_place place = {.gpu = -1};
    unsigned type = 0, managed = 0;
    unsigned which[] = {RD_CU_POINTER_ATTRIBUTE_MEMORY_TYPE, RD_CU_POINTER_ATTRIBUTE_IS_MANAGED,
                        RD_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, RD_CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                        RD_CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *values[] = {&type, &managed, &place.gpu, &place.start, &place.bytes};
    /* Of what it does not know the driver says so by zeros, and no failure. */
    if (!driver || driver->cuPointerGetAttributes(5, which, values, (rd_cu_address)(uintptr_t)ptr) != RD_CU_SUCCESS ||
        !type)
        return (struct rd_gpu_place){.gpu = -1};
    place.known = true;
    place.managed = managed != 0;
    place.device = !managed && type == RD_CU_MEMORYTYPE_DEVICE;
    return place;
}

rondo_result rd_gpu_reach(int from, int to, struct rd_gpu_reach *reach)
{
    int access, atomics, rank;
    RD_TRY(known(from));
    RD_TRY(known(to));
    if (from == to) {
        *reach = (struct rd_gpu_reach){.access = true, .atomics = true, .rank = 0};
        return RONDO_SUCCESS;
    }
    RD_TRY(RD_GPU(from, cuDeviceGetP2PAttribute, &access, RD_CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, from, to));
    RD_TRY(
        RD_GPU(from, cuDeviceGetP2PAttribute, &atomics, RD_CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, from, to));
    RD_TRY(RD_GPU(from, cuDeviceGetP2PAttribute, &rank, RD_CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, from, to));
    *reach = (struct rd_gpu_reach){.access = access != 0, .atomics = atomics != 0, .rank = rank};
    return RONDO_SUCCESS;
}
