/* SPDX-License-Identifier: Apache-2.0 */
#include "base/gpu_shared.h"

#include "base/status.h"

#include <string.h>
#include <unistd.h>

/* Memory keeps its context, which would free it. */
static rondo_result hold(int device)
{
    rd_cu_context context;
    return RD_GPU(device, cuDevicePrimaryCtxRetain, &context, device);
}

static void release(int device)
{
    rd_gpu_driver()->cuDevicePrimaryCtxRelease(device);
}

/* ---- Who can do what ---- */

static bool has(int device, unsigned attribute)
{
    int value = 0;
    return rd_gpu_driver()->cuDeviceGetAttribute(&value, attribute, device) == RD_CU_SUCCESS && value;
}

unsigned rd_gpu_shared_ways(int device, bool one_process)
{
    unsigned ways = 0;
    if (has(device, RD_CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) ways |= RD_GPU_BY_DESCRIPTOR;
    if (one_process)
        ways |= RD_GPU_BY_ADDRESS;
    else if (has(device, RD_CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED))
        ways |= RD_GPU_BY_HANDLE;
    return ways;
}

static rondo_result uuid_of(int device, char uuid[16])
{
    rd_cu_uuid found;
    RD_TRY(RD_GPU(device, cuDeviceGetUuid, &found, device));
    memcpy(uuid, found.bytes, sizeof found.bytes);
    return RONDO_SUCCESS;
}

int rd_gpu_by_uuid(const char uuid[16])
{
    rd_cu_uuid found;
    for (int device = 0; device < rd_gpu_count(); device++)
        if (rd_gpu_driver()->cuDeviceGetUuid(&found, device) == RD_CU_SUCCESS && !memcmp(found.bytes, uuid, 16))
            return device;
    return -1;
}

/* ---- By descriptor ---- */

/* Maps an allocation for kernels of `device`. */
static rondo_result map(int device, rd_cu_allocation allocation, size_t bytes, rd_cu_address *address)
{
    const rd_cu_access access = {.location = {.type = RD_CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                                 .flags = RD_CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    rd_cu_address at;
    RD_TRY(RD_GPU(device, cuMemAddressReserve, &at, bytes, 0, 0, 0));
    rondo_result result = RD_GPU(device, cuMemMap, at, bytes, 0, allocation, 0);
    if (result != RONDO_SUCCESS) goto free_address;
    result = RD_GPU(device, cuMemSetAccess, at, bytes, &access, 1);
    if (result != RONDO_SUCCESS) goto unmap;
    *address = at;
    return RONDO_SUCCESS;

unmap:
    rd_gpu_driver()->cuMemUnmap(at, bytes);
free_address:
    rd_gpu_driver()->cuMemAddressFree(at, bytes);
    return result;
}

/* What is mapped keeps the allocation; its handle is not needed any more. */
static rondo_result make_by_descriptor(int device, size_t bytes, rd_gpu_shared *made, int *fd)
{
    const rd_cu_properties wanted = {
        .type = RD_CU_MEM_ALLOCATION_TYPE_PINNED,
        .handle_types = RD_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = RD_CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
        .flags = {.rdma = has(device, RD_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)}};
    size_t granule;
    rd_cu_allocation allocation;
    int exported;
    RD_TRY(RD_GPU(device, cuMemGetAllocationGranularity, &granule, &wanted, RD_CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    made->bytes = (bytes + granule - 1) / granule * granule;
    RD_TRY(RD_GPU(device, cuMemCreate, &allocation, made->bytes, &wanted, 0));
    rondo_result result = RD_GPU(device, cuMemExportToShareableHandle, &exported, allocation,
                                 RD_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result != RONDO_SUCCESS) goto out;
    result = map(device, allocation, made->bytes, &made->address);
    if (result == RONDO_SUCCESS)
        *fd = exported;
    else
        close(exported);
out:
    rd_gpu_driver()->cuMemRelease(allocation);
    return result;
}

static rondo_result open_by_descriptor(int device, int fd, rd_gpu_shared *opened)
{
    rd_cu_allocation allocation;
    RD_TRY(RD_GPU(device, cuMemImportFromShareableHandle, &allocation, (void *)(intptr_t)fd,
                  RD_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    rondo_result result = map(device, allocation, opened->bytes, &opened->address);
    rd_gpu_driver()->cuMemRelease(allocation);
    return result;
}

/* ---- By handle, by address ---- */

static rondo_result make_allocated(int device, size_t bytes, rd_gpu_shared *made, rd_gpu_ticket *ticket)
{
    made->bytes = bytes;
    RD_TRY(RD_GPU(device, cuMemAlloc, &made->address, bytes));
    ticket->where.address = made->address;
    if (made->way == RD_GPU_BY_ADDRESS) return RONDO_SUCCESS;
    rondo_result result = RD_GPU(device, cuIpcGetMemHandle, &ticket->where.handle, made->address);
    if (result != RONDO_SUCCESS) rd_gpu_driver()->cuMemFree(made->address);
    return result;
}

/* The context of `device` is current; its kernels shall reach the memory of `peer`. */
static rondo_result enable_peer(int device, int peer)
{
    rd_cu_context context;
    if (device == peer) return RONDO_SUCCESS;
    RD_TRY(RD_GPU(peer, cuDevicePrimaryCtxRetain, &context, peer));
    rd_cu_result result = rd_gpu_driver()->cuCtxEnablePeerAccess(context, 0);
    release(peer);
    if (result == RD_CU_ERROR_PEER_ACCESS_ALREADY_ENABLED) return RONDO_SUCCESS;
    return rd_gpu_check(result, "cuCtxEnablePeerAccess", device);
}

static rondo_result open_address(int device, const rd_gpu_ticket *ticket, rd_gpu_shared *opened)
{
    int maker = rd_gpu_by_uuid(ticket->uuid);
    if (maker < 0) return rd_fail(RONDO_REMOTE_ERROR, "the memory's GPU is none of this process");
    opened->address = ticket->where.address;
    return enable_peer(device, maker);
}

/* ---- Both sides ---- */

/* On a stream of its own, for any other may have work that waits for this rank. */
static rondo_result clear(int device, const rd_gpu_shared *memory)
{
    rd_cu_stream stream;
    RD_TRY(RD_GPU(device, cuStreamCreateWithPriority, &stream, RD_CU_STREAM_NON_BLOCKING, 0));
    rondo_result result = RD_GPU(device, cuMemsetD8Async, memory->address, 0, memory->bytes, stream);
    if (result == RONDO_SUCCESS) result = RD_GPU(device, cuStreamSynchronize, stream);
    rd_gpu_driver()->cuStreamDestroy(stream);
    return result;
}

/* Its device's context is current. */
static void give_back(const rd_gpu_shared *memory)
{
    const struct rd_gpu_driver *driver = rd_gpu_driver();
    if (memory->way == RD_GPU_BY_DESCRIPTOR) {
        driver->cuMemUnmap(memory->address, memory->bytes);
        driver->cuMemAddressFree(memory->address, memory->bytes);
    } else if (memory->made) {
        driver->cuMemFree(memory->address);
    } else if (memory->way == RD_GPU_BY_HANDLE) {
        driver->cuIpcCloseMemHandle(memory->address);
    }
}

rondo_result rd_gpu_shared_make(int device, size_t bytes, unsigned ways, rd_gpu_shared *made, rd_gpu_ticket *ticket,
                                int *fd)
{
    rd_gpu_shared memory = {.device = device, .made = true};
    rd_gpu_ticket says = {0};
    *fd = -1;
    memory.way = ways & RD_GPU_BY_DESCRIPTOR ? RD_GPU_BY_DESCRIPTOR
                 : ways & RD_GPU_BY_ADDRESS  ? RD_GPU_BY_ADDRESS
                                             : RD_GPU_BY_HANDLE;
    RD_TRY(uuid_of(device, says.uuid));
    RD_TRY(hold(device));
    rondo_result result = rd_gpu_enter_primary(device);
    if (result == RONDO_SUCCESS) {
        result = memory.way == RD_GPU_BY_DESCRIPTOR ? make_by_descriptor(device, bytes, &memory, fd)
                                                    : make_allocated(device, bytes, &memory, &says);
        if (result == RONDO_SUCCESS && (result = clear(device, &memory)) != RONDO_SUCCESS) give_back(&memory);
        rd_gpu_leave_primary(device);
    }
    if (result != RONDO_SUCCESS) {
        if (*fd >= 0) close(*fd);
        *fd = -1;
        release(device);
        return result;
    }
    says.way = memory.way;
    says.bytes = memory.bytes;
    *made = memory;
    *ticket = says;
    return RONDO_SUCCESS;
}

rondo_result rd_gpu_shared_open(int device, const rd_gpu_ticket *ticket, int fd, size_t least, rd_gpu_shared *opened)
{
    rd_gpu_shared memory = {.device = device, .bytes = ticket->bytes, .way = ticket->way};
    if (ticket->bytes < least || (ticket->way == RD_GPU_BY_DESCRIPTOR) != (fd >= 0))
        return rd_fail(RONDO_REMOTE_ERROR, "what was said of it is damaged (%llu bytes where %zu are needed, way %u)",
                       (unsigned long long)ticket->bytes, least, ticket->way);
    RD_TRY(hold(device));
    rondo_result result = rd_gpu_enter_primary(device);
    if (result == RONDO_SUCCESS) {
        switch (memory.way) {
        case RD_GPU_BY_DESCRIPTOR: result = open_by_descriptor(device, fd, &memory); break;
        case RD_GPU_BY_HANDLE:
            result = RD_GPU(device, cuIpcOpenMemHandle, &memory.address, ticket->where.handle,
                            RD_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
            break;
        case RD_GPU_BY_ADDRESS: result = open_address(device, ticket, &memory); break;
        default: result = rd_fail(RONDO_REMOTE_ERROR, "it is shared in a way that this build does not know");
        }
        rd_gpu_leave_primary(device);
    }
    if (result == RONDO_SUCCESS)
        *opened = memory;
    else
        release(device);
    return result;
}

/* A child of fork has no driver; its parent has the memory. */
void rd_gpu_shared_close(rd_gpu_shared *memory)
{
    if (!rd_gpu_driver() || !memory->bytes) return;
    if (rd_gpu_enter_primary(memory->device) == RONDO_SUCCESS) {
        give_back(memory);
        rd_gpu_leave_primary(memory->device);
    }
    release(memory->device);
    memory->bytes = 0;
}

/* ---- Host memory ---- */

rondo_result rd_gpu_pin(int device, void *address, size_t bytes)
{
    const unsigned flags = RD_CU_MEMHOSTREGISTER_PORTABLE | RD_CU_MEMHOSTREGISTER_DEVICEMAP;
    RD_TRY(rd_gpu_enter_primary(device));
    rondo_result result = RD_GPU(device, cuMemHostRegister, address, bytes, flags);
    rd_gpu_leave_primary(device);
    return result;
}

void rd_gpu_unpin(int device, void *address)
{
    if (!rd_gpu_driver() || rd_gpu_enter_primary(device) != RONDO_SUCCESS) return;
    rd_gpu_driver()->cuMemHostUnregister(address);
    rd_gpu_leave_primary(device);
}
