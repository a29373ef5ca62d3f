/* SPDX-License-Identifier: Apache-2.0 */
#include "reduce/device.h"

#include "base/process.h"
#include "base/status.h"

#include <pthread.h>
#include <stdlib.h>

#define PAGE ((uintptr_t)4096)

/* ---- What memory is ---- */

rd_reach rd_device_reach(int ordinal, const void *ptr, size_t bytes, int *owner)
{
    struct rd_gpu_place place = rd_gpu_locate(ptr);
    if (!place.known) return RD_REACH_HOST;
    if (place.managed) return ordinal < 0 ? RD_REACH_HOST : RD_REACH_GPU;
    if (place.device) {
        *owner = place.gpu;
        return place.gpu == ordinal ? RD_REACH_GPU : RD_REACH_OTHER;
    }
    unsigned long long offset = (uintptr_t)ptr - place.start;
    bool pinned = offset <= place.bytes && bytes <= place.bytes - offset;
    return pinned && ordinal >= 0 ? RD_REACH_GPU : RD_REACH_HOST;
}

/* ---- Host memory that GPUs reach ---- */

/* Both ends of a link within a process lie in the same memory, which the driver registers once. */
typedef struct pinned {
    struct pinned *next;
    void *base;
    int users;
    rd_gpu *gpu; /* whose context has it */
} pinned;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
RD_HOLD_AT_FORK(lock)
static pinned *all;

static pinned **find(const void *base)
{
    pinned **at = &all;
    while (*at && (*at)->base != base) at = &(*at)->next;
    return at;
}

static void *first_page(const void *base)
{
    return (void *)((uintptr_t)base & ~(PAGE - 1));
}

/* Takes gpu over when it succeeds. */
static rondo_result pin_anew(rd_gpu *gpu, void *base, size_t bytes)
{
    pinned *made = malloc(sizeof *made);
    if (!made) return rd_fail_errno("no memory for the list of memory that GPUs reach");
    *made = (pinned){.base = base, .users = 1, .gpu = gpu};
    rondo_result result = rd_gpu_push(gpu);
    if (result == RONDO_SUCCESS) {
        result = RD_GPU(gpu->ordinal, cuMemHostRegister, base, bytes,
                        RD_CU_MEMHOSTREGISTER_PORTABLE | RD_CU_MEMHOSTREGISTER_DEVICEMAP);
        rd_gpu_pop();
    }
    if (result != RONDO_SUCCESS) {
        free(made);
        return result;
    }
    made->next = all;
    all = made;
    return RONDO_SUCCESS;
}

/* GPUs are taken and dropped outside of the lock: theirs is held at a fork, too, and never together with this one. */
rondo_result rd_device_pin(rd_device *device, void *base, size_t bytes)
{
    rd_gpu *gpu;
    rondo_result result = RONDO_SUCCESS;
    void *from = first_page(base);
    size_t whole = (((uintptr_t)base + bytes + PAGE - 1) & ~(PAGE - 1)) - (uintptr_t)from;
    RD_TRY(rd_gpu_take(&gpu, device->gpu->ordinal));
    pthread_mutex_lock(&lock);
    pinned *known = *find(from);
    if (known)
        known->users++;
    else
        result = pin_anew(gpu, from, whole);
    pthread_mutex_unlock(&lock);
    if (known || result != RONDO_SUCCESS) rd_gpu_drop(gpu);
    return result;
}

void rd_device_unpin(void *base)
{
    rd_gpu *gpu = NULL;
    pthread_mutex_lock(&lock);
    pinned **at = find(first_page(base)), *known = *at;
    if (known && --known->users == 0) {
        *at = known->next;
        gpu = known->gpu;
        if (rd_gpu_push(gpu) == RONDO_SUCCESS) {
            rd_gpu_driver()->cuMemHostUnregister(known->base);
            rd_gpu_pop();
        }
        free(known);
    }
    pthread_mutex_unlock(&lock);
    if (gpu) rd_gpu_drop(gpu);
}

rondo_result rd_device_alloc_host(rd_device *device, size_t bytes, void **ptr)
{
    RD_TRY(rd_gpu_push(device->gpu));
    rondo_result result = RD_GPU(device->gpu->ordinal, cuMemHostAlloc, ptr, bytes,
                                 RD_CU_MEMHOSTALLOC_PORTABLE | RD_CU_MEMHOSTALLOC_DEVICEMAP);
    rd_gpu_pop();
    return result;
}

void rd_device_free_host(rd_device *device, void *ptr)
{
    if (!ptr || rd_gpu_push(device->gpu) != RONDO_SUCCESS) return;
    rd_gpu_driver()->cuMemFreeHost(ptr);
    rd_gpu_pop();
}

/* ---- The GPU's memory ---- */

/* An allocation is a user of the GPU: it may outlive the communicator that it was made with. */
rondo_result rd_device_alloc(rd_device *device, size_t bytes, void **ptr)
{
    rd_gpu *gpu;
    rd_cu_address made;
    size_t some = bytes ? bytes : 1;
    RD_TRY(rd_gpu_take(&gpu, device->gpu->ordinal));
    rondo_result result = rd_gpu_push(gpu);
    if (result != RONDO_SUCCESS) goto drop;
    result = RD_GPU(gpu->ordinal, cuMemAlloc, &made, some);
    if (result != RONDO_SUCCESS) goto pop;
    result = RD_GPU(gpu->ordinal, cuMemsetD8Async, made, 0, some, device->stream);
    if (result == RONDO_SUCCESS) result = RD_GPU(gpu->ordinal, cuStreamSynchronize, device->stream);
    if (result != RONDO_SUCCESS) goto free_made;
    rd_gpu_pop();
    *ptr = (void *)(uintptr_t)made;
    return RONDO_SUCCESS;

free_made:
    rd_gpu_driver()->cuMemFree(made);
pop:
    rd_gpu_pop();
drop:
    rd_gpu_drop(gpu);
    return result;
}

rondo_result rd_device_free(int ordinal, void *ptr)
{
    rd_gpu *gpu;
    RD_TRY(rd_gpu_take(&gpu, ordinal));
    rondo_result result = rd_gpu_push(gpu);
    if (result == RONDO_SUCCESS) {
        result = RD_GPU(ordinal, cuMemFree, (rd_cu_address)(uintptr_t)ptr);
        rd_gpu_pop();
    }
    rd_gpu_drop(gpu);
    if (result == RONDO_SUCCESS) rd_gpu_drop(gpu); /* the allocation's */
    return result;
}

rondo_result rd_device_move(rd_device *device, void *to, const void *from, size_t bytes)
{
    int ordinal = device->gpu->ordinal;
    RD_TRY(rd_gpu_push(device->gpu));
    rondo_result result = RD_GPU(ordinal, cuMemcpyAsync, (rd_cu_address)(uintptr_t)to, (rd_cu_address)(uintptr_t)from,
                                 bytes, device->stream);
    if (result == RONDO_SUCCESS) result = RD_GPU(ordinal, cuStreamSynchronize, device->stream);
    rd_gpu_pop();
    return result;
}
