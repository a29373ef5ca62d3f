/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c - allocations and what a pointer is.
 *
 * A device's memory is a memfd, seen through a reservation of addresses: other processes can map parts of it. An
 * allocation ends where a page ends and the next one is a guard; the bytes between what was asked for and the guard are
 * watched. Fresh memory holds 0xFB; freed memory is gone, and its addresses are the last to be used again.
 */
#include "sanitize.h"
#include "sim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, ALIGNMENT = 256, FRESH = 0xFB, FRESH_MOST = 16 << 20, RESERVATIONS = 256 };

static struct sim_range *ranges;
static uint64_t last_id;
static struct {
    int fd;
    uintptr_t start;
    size_t cursor, used;
} devices[SIM_DEVICES];
static struct {
    uintptr_t start;
    size_t bytes;
} reservations[RESERVATIONS];
static int reservation_count;

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* ---- Ranges -------------------------------------------------------------------------------------------------------
 */

struct sim_range *sim_range_find(rd_cu_address address)
{
    for (struct sim_range *range = ranges; range != NULL; range = range->next)
        if (address >= range->start && address - range->start < range->bytes) return range;
    return NULL;
}

void sim_range_add(struct sim_range *range)
{
    range->id = ++last_id;
    range->next = ranges;
    ranges = range;
}

void sim_range_remove(struct sim_range *range)
{
    struct sim_range **at = &ranges;
    while (*at != range) at = &(*at)->next;
    *at = range->next;
}

int sim_range_count(enum sim_memory kind)
{
    int count = 0;
    for (struct sim_range *range = ranges; range != NULL; range = range->next) count += range->kind == kind;
    return count;
}

struct sim_range *sim_range_match(enum sim_memory kind, const char *ticket)
{
    for (struct sim_range *range = ranges; range != NULL; range = range->next)
        if (range->kind == kind && memcmp(range->ticket, ticket, sizeof range->ticket) == 0) return range;
    return NULL;
}

/* The one of that kind that begins there. */
static struct sim_range *find_start(rd_cu_address address, enum sim_memory kind)
{
    struct sim_range *range = sim_range_find(address);
    return range != NULL && range->start == address && range->kind == kind ? range : NULL;
}

static struct sim_range *range_new(struct sim_context *context, enum sim_memory kind)
{
    struct sim_range *range = calloc(1, sizeof *range);
    if (range == NULL) abort();
    range->kind = kind;
    range->context = context;
    range->device = context->device;
    range->fd = -1;
    return range;
}

uintptr_t sim_reserve(size_t bytes, size_t alignment)
{
    if (reservation_count == RESERVATIONS) return 0;
    char *place = mmap(NULL, bytes + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED) return 0;
    uintptr_t start = round_up((uintptr_t)place, alignment);
    reservations[reservation_count].start = start;
    reservations[reservation_count++].bytes = bytes;
    return start;
}

bool sim_unreserve(uintptr_t start, size_t bytes)
{
    for (int i = 0; i < reservation_count; i++) {
        if (reservations[i].start != start || reservations[i].bytes != bytes) continue;
        munmap((void *)start, bytes);
        reservations[i] = reservations[--reservation_count];
        return true;
    }
    return false;
}

bool sim_memory_reserved(rd_cu_address address)
{
    for (int i = 0; i < reservation_count; i++)
        if (address >= reservations[i].start && address - reservations[i].start < reservations[i].bytes) return true;
    return false;
}

void sim_unmap(uintptr_t address, size_t bytes)
{
    SIM_UNPOISON(address, bytes);
    if (mmap((void *)address, bytes, PROT_NONE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) ==
        MAP_FAILED)
        abort();
}

/* Plain memory of this process. Pointers are looked for among numbers: two small ones in eight bytes are below 2^44,
 * where sanitizers have their shadows; programs and libraries are above. */
static bool is_mapped(uintptr_t address)
{
    return msync((void *)(address / PAGE * PAGE), PAGE, MS_ASYNC) == 0;
}

const char *sim_memory_fault(const struct sim_context *context, rd_cu_address address)
{
    struct sim_range *range = sim_range_find(address);
    if ((uint32_t)address < PAGE) return NULL; /* a small number, with what happens to lie behind it */
    if (range == NULL) {
        if (sim_memory_reserved(address)) return "memory that has been freed, or lies past an allocation";
        return address >> 47 == 0 && address >> 44 != 0 && is_mapped(address) ? "host memory that is not pinned" : NULL;
    }
    switch (range->kind) {
    case SIM_DEVICE_MEMORY:
        if (range->device == context->device || context->peer[range->device]) return NULL;
        return "another device's memory, without peer access";
    case SIM_MAPPED:
        return range->accessible[context->device] ? NULL
                                                  : "mapped memory, without access for this device (cuMemSetAccess)";
    default: return NULL;
    }
}

const char *sim_memory_touch(const struct sim_context *context, uintptr_t address, size_t bytes, uintptr_t *from,
                             uintptr_t *to)
{
    struct sim_range *range = sim_range_find(address);
    if (range == NULL) {
        for (range = ranges; range != NULL; range = range->next)
            if (address - range->map < range->map_bytes + PAGE) return "past the end of an allocation, or before it";
        return sim_memory_reserved(address) ? "memory that has been freed, or never was" : NULL;
    }
    if (address + bytes > range->start + range->bytes) return "past the end of an allocation";
    const char *fault = sim_memory_fault(context, range->start);
    *from = fault == NULL ? range->start : 0;
    *to = fault == NULL ? range->start + range->bytes : 0;
    return fault;
}

/* The thread sanitizer is to see these; the address sanitizer is not, since device memory is poison to it. */
#ifdef SIM_SAN_address
__attribute__((optimize("no-tree-loop-distribute-patterns"))) void sim_copy(void *to, const void *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) ((char *)to)[i] = ((const char *)from)[i];
}

__attribute__((optimize("no-tree-loop-distribute-patterns"))) void sim_fill(void *to, unsigned char value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) ((unsigned char *)to)[i] = value;
}
#else
void sim_copy(void *to, const void *from, size_t bytes)
{
    memmove(to, from, bytes);
}
void sim_fill(void *to, unsigned char value, size_t bytes)
{
    memset(to, value, bytes);
}
#endif

/* ---- Watched ends -------------------------------------------------------------------------------------------------
 */

/* Pages that end with the allocation; fills it. */
static void range_begin(struct sim_range *range, uintptr_t map, size_t bytes)
{
    size_t rounded = round_up(bytes, ALIGNMENT);
    range->bytes = bytes;
    range->map = map;
    range->map_bytes = round_up(rounded, PAGE);
    range->start = map + range->map_bytes - rounded;
    sim_fill((void *)map, FRESH, range->map_bytes < FRESH_MOST ? range->map_bytes : FRESH_MOST);
    sim_fill((void *)(range->start + bytes), FRESH, rounded - bytes);
    if (range->kind == SIM_DEVICE_MEMORY)
        SIM_POISON(map, range->map_bytes);
    else
        SIM_POISON(range->start + bytes, rounded - bytes);
}

static void range_check(const struct sim_range *range)
{
    const unsigned char *end = (const unsigned char *)range->start + range->bytes;
    size_t rest = range->map + range->map_bytes - (uintptr_t)end;
    SIM_UNPOISON(range->map, range->map_bytes);
    for (size_t i = 0; i < rest; i++) {
        if (end[i] == FRESH) continue;
        sim_say("somebody wrote %zu bytes past the end of an allocation of %zu bytes", i + 1, range->bytes);
        abort();
    }
}

/* ---- On a device --------------------------------------------------------------------------------------------------
 */

static void device_begin(int device)
{
    char name[32];
    if (devices[device].start != 0) return;
    snprintf(name, sizeof name, "cudasim device %d", device);
    devices[device].fd = memfd_create(name, MFD_CLOEXEC);
    devices[device].start = sim_reserve(2 * sim_settings.memory_bytes, (size_t)2 << 20);
    if (devices[device].fd < 0 || devices[device].start == 0 ||
        ftruncate(devices[device].fd, (off_t)(2 * sim_settings.memory_bytes)) != 0) {
        sim_say("device %d: %s", device, strerror(errno));
        abort();
    }
}

/* Where `bytes` fit, from the place of the last allocation on; SIZE_MAX: nowhere. */
static size_t device_place(int device, size_t bytes)
{
    size_t most = 2 * sim_settings.memory_bytes, place = devices[device].cursor;
    for (int round = 0; round < 2; round++, place = 0) {
        for (bool moved = true; moved && place + bytes <= most;) {
            moved = false;
            for (struct sim_range *range = ranges; range != NULL; range = range->next) {
                size_t start = range->map - devices[device].start, end = start + range->map_bytes + PAGE;
                if (range->kind != SIM_DEVICE_MEMORY || range->device != device || start >= place + bytes ||
                    end <= place)
                    continue;
                place = end;
                moved = true;
            }
        }
        if (place + bytes <= most) return place;
    }
    return SIZE_MAX;
}

static rd_cu_result device_alloc(struct sim_context *context, rd_cu_address *address, size_t bytes)
{
    int device = context->device;
    size_t pages = round_up(round_up(bytes, ALIGNMENT), PAGE);
    device_begin(device);
    if (bytes == 0) return RD_CU_ERROR_INVALID_VALUE;
    if (bytes > sim_settings.memory_bytes || devices[device].used + pages > sim_settings.memory_bytes)
        return RD_CU_ERROR_OUT_OF_MEMORY;
    size_t place = device_place(device, pages + PAGE);
    if (place == SIZE_MAX) return RD_CU_ERROR_OUT_OF_MEMORY;
    uintptr_t map = devices[device].start + place;
    if (mmap((void *)map, pages, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_SHARED, devices[device].fd, (off_t)place) ==
        MAP_FAILED)
        return RD_CU_ERROR_OUT_OF_MEMORY;
    struct sim_range *range = range_new(context, SIM_DEVICE_MEMORY);
    range_begin(range, map, bytes);
    range->fd = devices[device].fd;
    range->offset = range->start - devices[device].start;
    devices[device].cursor = place + pages + PAGE;
    devices[device].used += pages;
    sim_range_add(range);
    *address = range->start;
    return RD_CU_SUCCESS;
}

static void device_free(struct sim_range *range)
{
    size_t place = range->map - devices[range->device].start;
    range_check(range);
    sim_unmap(range->map, range->map_bytes);
    fallocate(range->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)place, (off_t)range->map_bytes);
    devices[range->device].used -= range->map_bytes;
    sim_range_remove(range);
    free(range);
}

rd_cu_result cuMemAlloc(rd_cu_address *address, size_t bytes)
{
    SIM_ENTER_CONTEXT(cuMemAlloc, context);
    sim_lock();
    rd_cu_result result = device_alloc(context, address, bytes);
    sim_unlock();
    return result;
}

rd_cu_result cuMemGetInfo(size_t *free_bytes, size_t *total)
{
    SIM_ENTER_CONTEXT(cuMemGetInfo, context);
    sim_lock();
    *free_bytes = sim_settings.memory_bytes - devices[context->device].used;
    sim_unlock();
    *total = sim_settings.memory_bytes;
    return RD_CU_SUCCESS;
}

/* ---- On the host --------------------------------------------------------------------------------------------------
 */

static rd_cu_result host_alloc(struct sim_context *context, uintptr_t *address, size_t bytes, enum sim_memory kind)
{
    size_t pages = round_up(round_up(bytes, ALIGNMENT), PAGE);
    if (bytes == 0 || bytes > (size_t)1 << 40) return RD_CU_ERROR_INVALID_VALUE;
    char *map = mmap(NULL, pages + PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map + pages, PAGE, PROT_NONE) != 0) return RD_CU_ERROR_OUT_OF_MEMORY;
    struct sim_range *range = range_new(context, kind);
    range_begin(range, (uintptr_t)map, bytes);
    sim_lock();
    sim_range_add(range);
    sim_unlock();
    *address = range->start;
    return RD_CU_SUCCESS;
}

static void host_free(struct sim_range *range)
{
    range_check(range);
    munmap((void *)range->map, range->map_bytes + PAGE);
    sim_range_remove(range);
    free(range);
}

rd_cu_result cuMemAllocManaged(rd_cu_address *address, size_t bytes, unsigned flags)
{
    SIM_ENTER_CONTEXT(cuMemAllocManaged, context);
    uintptr_t made;
    if (flags != RD_CU_MEM_ATTACH_GLOBAL) return RD_CU_ERROR_INVALID_VALUE;
    rd_cu_result result = host_alloc(context, &made, bytes, SIM_MANAGED);
    if (result == RD_CU_SUCCESS) *address = made;
    return result;
}

rd_cu_result cuMemHostAlloc(void **address, size_t bytes, unsigned flags)
{
    SIM_ENTER_CONTEXT(cuMemHostAlloc, context);
    uintptr_t made;
    if (flags > 7) return RD_CU_ERROR_INVALID_VALUE;
    rd_cu_result result = host_alloc(context, &made, bytes, SIM_HOST_ALLOCATED);
    if (result == RD_CU_SUCCESS) *address = (void *)made;
    return result;
}

/* Both kinds of memory end only when the device has done what it was given. */
rd_cu_result cuMemFree(rd_cu_address address)
{
    SIM_ENTER_CONTEXT(cuMemFree, context);
    rd_cu_result result = RD_CU_SUCCESS;
    if (address == 0) return RD_CU_SUCCESS;
    sim_lock();
    struct sim_range *range = find_start(address, SIM_DEVICE_MEMORY), *managed = find_start(address, SIM_MANAGED);
    if (range != NULL) {
        sim_context_await(range->context);
        device_free(range);
    } else if (managed != NULL) {
        sim_context_await(context);
        host_free(managed);
    } else {
        result = RD_CU_ERROR_INVALID_VALUE;
    }
    sim_unlock();
    return result;
}

rd_cu_result cuMemFreeHost(void *address)
{
    SIM_ENTER_CONTEXT(cuMemFreeHost, context);
    sim_lock();
    struct sim_range *range = find_start((uintptr_t)address, SIM_HOST_ALLOCATED);
    if (range != NULL) {
        sim_context_await(context);
        host_free(range);
    }
    sim_unlock();
    return range != NULL || address == NULL ? RD_CU_SUCCESS : RD_CU_ERROR_INVALID_VALUE;
}

/* Pages are pinned, so two registrations must not share one. */
static bool overlaps(uintptr_t start, size_t bytes)
{
    uintptr_t first = start / PAGE, last = (start + bytes - 1) / PAGE;
    for (struct sim_range *range = ranges; range != NULL; range = range->next)
        if (range->start / PAGE <= last && first <= (range->start + range->bytes - 1) / PAGE) return true;
    return false;
}

rd_cu_result cuMemHostRegister(void *address, size_t bytes, unsigned flags)
{
    SIM_ENTER_CONTEXT(cuMemHostRegister, context);
    uintptr_t start = (uintptr_t)address;
    rd_cu_result result = RD_CU_SUCCESS;
    if (start == 0 || bytes == 0 || (flags & ~7u) != 0 || !is_mapped(start) || !is_mapped(start + bytes - 1))
        return RD_CU_ERROR_INVALID_VALUE;
    sim_lock();
    if (overlaps(start, bytes)) {
        result = RD_CU_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    } else {
        struct sim_range *range = range_new(context, SIM_HOST_REGISTERED);
        range->start = start;
        range->bytes = bytes;
        sim_range_add(range);
    }
    sim_unlock();
    return result;
}

rd_cu_result cuMemHostUnregister(void *address)
{
    SIM_ENTER_CONTEXT(cuMemHostUnregister, context);
    (void)context;
    sim_lock();
    struct sim_range *range = find_start((uintptr_t)address, SIM_HOST_REGISTERED);
    if (range != NULL) {
        sim_range_remove(range);
        free(range);
    }
    sim_unlock();
    return range != NULL ? RD_CU_SUCCESS : RD_CU_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

rd_cu_result cuMemHostGetDevicePointer(rd_cu_address *address, void *host, unsigned flags)
{
    SIM_ENTER_CONTEXT(cuMemHostGetDevicePointer, context);
    (void)context;
    sim_lock();
    struct sim_range *range = sim_range_find((uintptr_t)host);
    bool known =
        flags == 0 && range != NULL && (range->kind == SIM_HOST_ALLOCATED || range->kind == SIM_HOST_REGISTERED);
    sim_unlock();
    if (known) *address = (uintptr_t)host;
    return known ? RD_CU_SUCCESS : RD_CU_ERROR_INVALID_VALUE;
}

void sim_context_memory_free(struct sim_context *context)
{
    for (struct sim_range *range = ranges, *next; range != NULL; range = next) {
        next = range->next;
        if (range->context != context) continue;
        if (range->kind == SIM_DEVICE_MEMORY)
            device_free(range);
        else if (range->kind == SIM_HOST_ALLOCATED || range->kind == SIM_MANAGED)
            host_free(range);
    }
}
