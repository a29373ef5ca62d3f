/* SPDX-License-Identifier: Apache-2.0
 *
 * share.c - memory of other processes: IPC handles, which name a descriptor of the process that made them, and memory
 * that is made, exported as a descriptor, and mapped where it is wanted.
 */
#include "sanitize.h"
#include "sim.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096, GRANULE = 2 << 20, TICKET_MAGIC = 0x63756461 };

struct sim_allocation {
    struct sim_handle handle;
    int fd, device;
    size_t bytes;
    bool exportable;
    unsigned users; /* its handles and where it is mapped */
};

/* ---- Tickets ------------------------------------------------------------------------------------------------------
 */

_Static_assert(sizeof(struct sim_ticket) <= 64, "a handle has 64 bytes");

void sim_ticket_write(char *bytes64, struct sim_ticket ticket)
{
    ticket.magic = TICKET_MAGIC;
    ticket.pid = (int32_t)getpid();
    memset(bytes64, 0, 64);
    memcpy(bytes64, &ticket, sizeof ticket);
}

int sim_ticket_open(const char *bytes64, int kind, struct sim_ticket *ticket)
{
    char path[64], target[64];
    memcpy(ticket, bytes64, sizeof *ticket);
    if (ticket->magic != TICKET_MAGIC || ticket->kind != kind) return -1;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)ticket->pid, (int)ticket->fd);
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0) return -1;
    target[length] = '\0';
    if (strncmp(target, "/memfd:cudasim", 14) != 0) return -1;
    return open(path, O_RDWR | O_CLOEXEC);
}

/* ---- IPC handles of memory ----------------------------------------------------------------------------------------
 */

rd_cu_result cuIpcGetMemHandle(rd_cu_ipc_memory *handle, rd_cu_address address)
{
    SIM_ENTER_CONTEXT(cuIpcGetMemHandle, context);
    rd_cu_result result = sim_settings.no_ipc ? RD_CU_ERROR_NOT_SUPPORTED : RD_CU_ERROR_INVALID_VALUE;
    (void)context;
    sim_lock();
    struct sim_range *range = sim_range_find(address);
    if (range != NULL && range->kind == SIM_DEVICE_MEMORY && !sim_settings.no_ipc) {
        sim_ticket_write(handle->bytes, (struct sim_ticket){.kind = SIM_ALLOCATION,
                                                            .fd = range->fd,
                                                            .device = range->device,
                                                            .offset = range->offset,
                                                            .bytes = range->bytes,
                                                            .id = range->id});
        result = RD_CU_SUCCESS;
    }
    sim_unlock();
    return result;
}

static struct sim_range *range_for(struct sim_context *context, enum sim_memory kind, int device)
{
    struct sim_range *range = calloc(1, sizeof *range);
    if (range == NULL) abort();
    range->kind = kind;
    range->context = context;
    range->device = device;
    range->fd = -1;
    return range;
}

/* Maps what the ticket names; its pages and those around it. */
static struct sim_range *import(struct sim_context *context, const struct sim_ticket *ticket, int fd)
{
    size_t before = ticket->offset % PAGE, bytes = (before + ticket->bytes + PAGE - 1) / PAGE * PAGE;
    char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(ticket->offset - before));
    if (map == MAP_FAILED) return NULL;
    struct sim_range *range = range_for(context, SIM_IMPORTED, ticket->device);
    range->start = (uintptr_t)map + before;
    range->bytes = ticket->bytes;
    range->map = (uintptr_t)map;
    range->map_bytes = bytes;
    range->opens = 1;
    SIM_POISON(map, bytes);
    sim_range_add(range);
    return range;
}

/* A second opening is the first one's address. */
rd_cu_result cuIpcOpenMemHandle(rd_cu_address *address, rd_cu_ipc_memory handle, unsigned flags)
{
    SIM_ENTER_CONTEXT(cuIpcOpenMemHandle, context);
    struct sim_ticket ticket;
    if (flags != RD_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return RD_CU_ERROR_INVALID_VALUE;
    int fd = sim_ticket_open(handle.bytes, SIM_ALLOCATION, &ticket);
    if (fd < 0) return RD_CU_ERROR_INVALID_VALUE;
    rd_cu_result result = RD_CU_SUCCESS;
    sim_lock();
    struct sim_range *range = sim_range_match(SIM_IMPORTED, handle.bytes);
    if (ticket.pid == (int)getpid()) {
        result = RD_CU_ERROR_INVALID_CONTEXT;
    } else if (!sim_devices_reach(context->device, ticket.device)) {
        result = RD_CU_ERROR_PEER_ACCESS_UNSUPPORTED;
    } else if (range != NULL) {
        range->opens++;
    } else {
        range = import(context, &ticket, fd);
        if (range == NULL)
            result = RD_CU_ERROR_MAP_FAILED;
        else
            memcpy(range->ticket, handle.bytes, sizeof range->ticket);
    }
    if (result == RD_CU_SUCCESS) *address = range->start;
    sim_unlock();
    close(fd);
    return result;
}

rd_cu_result cuIpcCloseMemHandle(rd_cu_address address)
{
    SIM_ENTER_CONTEXT(cuIpcCloseMemHandle, context);
    sim_lock();
    struct sim_range *range = sim_range_find(address);
    bool known = range != NULL && range->kind == SIM_IMPORTED && range->start == address;
    if (known && --range->opens == 0) {
        sim_context_await(context);
        SIM_UNPOISON(range->map, range->map_bytes);
        munmap((void *)range->map, range->map_bytes);
        sim_range_remove(range);
        free(range);
    }
    sim_unlock();
    return known ? RD_CU_SUCCESS : RD_CU_ERROR_INVALID_VALUE;
}

/* ---- Made, exported, mapped ----------------------------------------------------------------------------------------
 */

/* The device lies in the descriptor's name, so that an importer knows it. */
static int allocation_fd(int device, size_t bytes)
{
    char name[32];
    snprintf(name, sizeof name, "cudasim pages %d", device);
    int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static int device_of(int fd)
{
    char path[64], target[64];
    int device;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0) return -1;
    target[length] = '\0';
    return sscanf(target, "/memfd:cudasim pages %d", &device) == 1 ? device : -1;
}

/* With the lock held. */
static rd_cu_allocation allocation_add(int fd, int device, size_t bytes, bool exportable)
{
    struct sim_allocation *made = calloc(1, sizeof *made);
    if (made == NULL) abort();
    *made = (struct sim_allocation){.fd = fd, .device = device, .bytes = bytes, .exportable = exportable, .users = 1};
    sim_handle_add(&made->handle, SIM_ALLOCATION);
    return (rd_cu_allocation)(uintptr_t)made;
}

static void allocation_release(struct sim_allocation *allocation)
{
    if (--allocation->users > 0) return;
    sim_handle_remove(&allocation->handle);
    close(allocation->fd);
    free(allocation);
}

static struct sim_allocation *allocation_find(rd_cu_allocation handle)
{
    return sim_handle_find((void *)(uintptr_t)handle, SIM_ALLOCATION);
}

static bool sensible(const rd_cu_properties *wanted)
{
    return wanted->type == RD_CU_MEM_ALLOCATION_TYPE_PINNED &&
           wanted->location.type == RD_CU_MEM_LOCATION_TYPE_DEVICE && sim_device(wanted->location.id) >= 0 &&
           wanted->handle_types <= RD_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

rd_cu_result cuMemGetAllocationGranularity(size_t *bytes, const rd_cu_properties *wanted, unsigned which)
{
    SIM_ENTER(cuMemGetAllocationGranularity);
    if (!sensible(wanted) || which > RD_CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) return RD_CU_ERROR_INVALID_VALUE;
    *bytes = GRANULE;
    return RD_CU_SUCCESS;
}

rd_cu_result cuMemCreate(rd_cu_allocation *allocation, size_t bytes, const rd_cu_properties *wanted,
                         unsigned long long flags)
{
    SIM_ENTER(cuMemCreate);
    if (flags != 0 || bytes == 0 || bytes % GRANULE != 0 || !sensible(wanted)) return RD_CU_ERROR_INVALID_VALUE;
    if (wanted->handle_types != 0 && sim_settings.no_fds) return RD_CU_ERROR_NOT_SUPPORTED;
    if (wanted->flags.rdma && sim_settings.no_rdma) return RD_CU_ERROR_NOT_SUPPORTED;
    if (bytes > sim_settings.memory_bytes) return RD_CU_ERROR_OUT_OF_MEMORY;
    int device = sim_device(wanted->location.id), fd = allocation_fd(device, bytes);
    if (fd < 0) return RD_CU_ERROR_OUT_OF_MEMORY;
    sim_lock();
    *allocation = allocation_add(fd, device, bytes, wanted->handle_types != 0);
    sim_unlock();
    return RD_CU_SUCCESS;
}

rd_cu_result cuMemRelease(rd_cu_allocation allocation)
{
    SIM_ENTER(cuMemRelease);
    sim_lock();
    struct sim_allocation *found = allocation_find(allocation);
    if (found != NULL) allocation_release(found);
    sim_unlock();
    return found != NULL ? RD_CU_SUCCESS : RD_CU_ERROR_INVALID_VALUE;
}

rd_cu_result cuMemRetainAllocationHandle(rd_cu_allocation *allocation, void *address)
{
    SIM_ENTER(cuMemRetainAllocationHandle);
    sim_lock();
    struct sim_range *range = sim_range_find((uintptr_t)address);
    bool known = range != NULL && range->kind == SIM_MAPPED;
    if (known) {
        range->allocation->users++;
        *allocation = (rd_cu_allocation)(uintptr_t)range->allocation;
    }
    sim_unlock();
    return known ? RD_CU_SUCCESS : RD_CU_ERROR_INVALID_VALUE;
}

rd_cu_result cuMemExportToShareableHandle(void *handle, rd_cu_allocation allocation, unsigned type,
                                          unsigned long long flags)
{
    SIM_ENTER(cuMemExportToShareableHandle);
    int fd = -1;
    sim_lock();
    struct sim_allocation *found = allocation_find(allocation);
    if (found != NULL && found->exportable && type == RD_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && flags == 0)
        fd = fcntl(found->fd, F_DUPFD_CLOEXEC, 0);
    sim_unlock();
    if (fd < 0) return RD_CU_ERROR_INVALID_VALUE;
    *(int *)handle = fd;
    return RD_CU_SUCCESS;
}

/* The handle is the descriptor itself, cast; it stays the caller's. */
rd_cu_result cuMemImportFromShareableHandle(rd_cu_allocation *allocation, void *handle, unsigned type)
{
    SIM_ENTER(cuMemImportFromShareableHandle);
    struct stat is;
    int given = (int)(intptr_t)handle, device = device_of(given);
    if (type != RD_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || device < 0 || fstat(given, &is) != 0)
        return RD_CU_ERROR_INVALID_VALUE;
    int fd = fcntl(given, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return RD_CU_ERROR_OPERATING_SYSTEM;
    sim_lock();
    *allocation = allocation_add(fd, device, (size_t)is.st_size, true);
    sim_unlock();
    return RD_CU_SUCCESS;
}

rd_cu_result cuMemAddressReserve(rd_cu_address *address, size_t bytes, size_t alignment, rd_cu_address wish,
                                 unsigned long long flags)
{
    SIM_ENTER(cuMemAddressReserve);
    (void)wish; /* no more than that */
    if (bytes == 0 || bytes % GRANULE != 0 || flags != 0 || (alignment & (alignment - 1)) != 0)
        return RD_CU_ERROR_INVALID_VALUE;
    sim_lock();
    uintptr_t start = sim_reserve(bytes, alignment > GRANULE ? alignment : GRANULE);
    sim_unlock();
    if (start == 0) return RD_CU_ERROR_OUT_OF_MEMORY;
    *address = start;
    return RD_CU_SUCCESS;
}

rd_cu_result cuMemAddressFree(rd_cu_address address, size_t bytes)
{
    SIM_ENTER(cuMemAddressFree);
    sim_lock();
    bool known = sim_range_find(address) == NULL && sim_unreserve(address, bytes);
    sim_unlock();
    return known ? RD_CU_SUCCESS : RD_CU_ERROR_INVALID_VALUE;
}

/* Mapped, but nobody may touch it before cuMemSetAccess. */
rd_cu_result cuMemMap(rd_cu_address address, size_t bytes, size_t offset, rd_cu_allocation allocation,
                      unsigned long long flags)
{
    SIM_ENTER(cuMemMap);
    rd_cu_result result = RD_CU_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_allocation *found = allocation_find(allocation);
    if (found != NULL && flags == 0 && offset == 0 && bytes > 0 && bytes % GRANULE == 0 && bytes <= found->bytes &&
        sim_memory_reserved(address) && sim_memory_reserved(address + bytes - 1) && sim_range_find(address) == NULL) {
        void *map = mmap(sim_pointer(address), bytes, PROT_NONE, MAP_FIXED | MAP_SHARED, found->fd, 0);
        if (map == MAP_FAILED) abort();
        struct sim_range *range = range_for(NULL, SIM_MAPPED, found->device);
        range->start = range->map = address;
        range->bytes = range->map_bytes = bytes;
        range->allocation = found;
        SIM_POISON(map, bytes);
        found->users++;
        sim_range_add(range);
        result = RD_CU_SUCCESS;
    }
    sim_unlock();
    return result;
}

static struct sim_range *find_mapped(rd_cu_address address, size_t bytes)
{
    struct sim_range *range = sim_range_find(address);
    return range != NULL && range->kind == SIM_MAPPED && range->start == address && range->bytes == bytes ? range
                                                                                                          : NULL;
}

rd_cu_result cuMemUnmap(rd_cu_address address, size_t bytes)
{
    SIM_ENTER(cuMemUnmap);
    sim_lock();
    struct sim_range *range = find_mapped(address, bytes);
    if (range != NULL) {
        sim_unmap(address, bytes);
        allocation_release(range->allocation);
        sim_range_remove(range);
        free(range);
    }
    sim_unlock();
    return range != NULL ? RD_CU_SUCCESS : RD_CU_ERROR_INVALID_VALUE;
}

/* Devices without a way there cannot be given access. */
rd_cu_result cuMemSetAccess(rd_cu_address address, size_t bytes, const rd_cu_access *access, size_t count)
{
    SIM_ENTER(cuMemSetAccess);
    rd_cu_result result = RD_CU_SUCCESS;
    sim_lock();
    struct sim_range *range = find_mapped(address, bytes);
    if (range == NULL || count == 0) result = RD_CU_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && result == RD_CU_SUCCESS; i++) {
        int device = sim_device(access[i].location.id);
        if (access[i].location.type != RD_CU_MEM_LOCATION_TYPE_DEVICE || device < 0)
            result = RD_CU_ERROR_INVALID_DEVICE;
        else if (!sim_devices_reach(device, range->device))
            result = RD_CU_ERROR_INVALID_DEVICE;
        else
            range->accessible[device] = access[i].flags == RD_CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    if (result == RD_CU_SUCCESS && mprotect((void *)range->map, bytes, PROT_READ | PROT_WRITE) != 0) abort();
    sim_unlock();
    return result;
}

/* ---- What RDMA devices reach ---------------------------------------------------------------------------------------
 */

/* The descriptor of the pages themselves, which no RDMA layer takes for a dma-buf; tests look through it. Of memory
 * that is mapped, from its first page on. */
rd_cu_result cuMemGetHandleForAddressRange(void *handle, rd_cu_address address, size_t bytes, unsigned type,
                                           unsigned long long flags)
{
    SIM_ENTER_CONTEXT(cuMemGetHandleForAddressRange, context);
    int fd = -1;
    (void)context;
    if (sim_settings.no_dmabuf) return RD_CU_ERROR_NOT_SUPPORTED;
    if (type != RD_CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags != 0 || bytes == 0 || (address | bytes) % PAGE != 0)
        return RD_CU_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_range *range = sim_range_find(address);
    if (range != NULL && range->kind == SIM_MAPPED && range->start == address && bytes <= range->bytes)
        fd = fcntl(range->allocation->fd, F_DUPFD_CLOEXEC, 0);
    sim_unlock();
    if (fd < 0) return RD_CU_ERROR_INVALID_VALUE;
    *(int *)handle = fd;
    return RD_CU_SUCCESS;
}

/* Here an RDMA device writes to the memory that kernels read, and nothing is late. A test that has it late hooks in
 * here (tests/rdma/gpu.c). */
rd_cu_result cuFlushGPUDirectRDMAWrites(unsigned target, unsigned scope)
{
    SIM_ENTER_CONTEXT(cuFlushGPUDirectRDMAWrites, context);
    (void)context;
    if (sim_settings.no_rdma || sim_settings.no_flush) return RD_CU_ERROR_NOT_SUPPORTED;
    return target == RD_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX &&
                   scope == RD_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER
               ? RD_CU_SUCCESS
               : RD_CU_ERROR_INVALID_VALUE;
}
