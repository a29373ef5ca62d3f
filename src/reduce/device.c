/* SPDX-License-Identifier: Apache-2.0 */
#include "reduce/device.h"

#include "base/dtype.h"
#include "base/process.h"
#include "base/status.h"
#include "reduce/image.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Streams of the highest priority take turns in queues of their own, which a user's stream that waits for ours does not
 * block. The driver takes the nearest priority that it has. */
#define HIGHEST_PRIORITY (-100)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
RD_HOLD_AT_FORK(lock)
static rd_gpu *gpus;

int rd_device_current(void)
{
    rd_cu_context context = NULL;
    rd_cu_device device;
    const struct rd_gpu_driver *driver = rd_gpu_in_use() ? rd_gpu_driver() : NULL;
    if (!driver || driver->cuCtxGetCurrent(&context) != RD_CU_SUCCESS || !context) return -1;
    return driver->cuCtxGetDevice(&device) == RD_CU_SUCCESS ? device : -1;
}

rondo_result rd_gpu_push(const rd_gpu *gpu)
{
    return rd_gpu_enter(gpu->ordinal, gpu->context);
}

void rd_gpu_pop(void)
{
    rd_gpu_leave();
}

/* ---- What ranks share ---- */

static rondo_result needs(int ordinal, unsigned attribute, const char *what)
{
    int value;
    RD_TRY(RD_GPU(ordinal, cuDeviceGetAttribute, &value, attribute, ordinal));
    if (value) return RONDO_SUCCESS;
    return rd_fail(RONDO_INVALID_USAGE, "GPU %d cannot be used, for it lacks %s; set RONDO_DEVICE=host", ordinal, what);
}

static rondo_result check_abilities(rd_gpu *gpu)
{
    int counts;
    RD_TRY(needs(gpu->ordinal, RD_CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, "unified addressing"));
    RD_TRY(needs(gpu->ordinal, RD_CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, "access to registered host memory"));
    RD_TRY(needs(gpu->ordinal, RD_CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
                 "access to registered host memory at its own address"));
    RD_TRY(RD_GPU(gpu->ordinal, cuDeviceGetAttribute, &counts, RD_CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
                  gpu->ordinal));
    gpu->counts = counts != 0;
    return RD_GPU(gpu->ordinal, cuDeviceGetAttribute, &gpu->multiprocessors,
                  RD_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, gpu->ordinal);
}

/* A driver that loads kernels when they are first used does so when it is asked about them. */
static rondo_result load_kernels(rd_gpu *gpu)
{
    rd_cu_result loaded = rd_gpu_driver()->cuModuleLoadData(&gpu->module, rd_kernel_image);
    if (loaded != RD_CU_SUCCESS && rd_kernel_image_is_remark())
        return rd_fail(RONDO_INVALID_USAGE,
                       "GPU %d cannot be used: this librondo was built without nvcc, and so without kernels; build it "
                       "where the CUDA toolkit is, or set RONDO_DEVICE=host",
                       gpu->ordinal);
    RD_TRY(rd_gpu_check(loaded, "cuModuleLoadData", gpu->ordinal));
    for (int type = 0; type < RONDO_DTYPES; type++) {
        char name[64];
        snprintf(name, sizeof name, "rd_reduce_%s", rd_dtype_name((rondo_dtype)type));
        RD_TRY(RD_GPU(gpu->ordinal, cuModuleGetFunction, &gpu->reduce[type], gpu->module, name));
        RD_TRY(RD_GPU(gpu->ordinal, cuFuncGetAttribute, &gpu->threads[type], RD_CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                      gpu->reduce[type]));
    }
    RD_TRY(rd_gpu_load_ring(gpu));
    return rd_gpu_load_peers(gpu);
}

static rondo_result open_gpu(rd_gpu **made, int ordinal)
{
    int count = rd_gpu_count();
    if (ordinal < 0 || ordinal >= count)
        return rd_fail(RONDO_INVALID_ARGUMENT, "there is no GPU %d: this process sees %d, numbered from 0", ordinal,
                       count);
    rd_gpu *gpu = calloc(1, sizeof *gpu);
    if (!gpu) return rd_fail_errno("no memory for what is known of GPU %d", ordinal);
    gpu->ordinal = ordinal;
    rondo_result result = RD_GPU(ordinal, cuDevicePrimaryCtxRetain, &gpu->context, ordinal);
    if (result != RONDO_SUCCESS) goto free_gpu;
    if ((result = rd_gpu_push(gpu)) != RONDO_SUCCESS) goto release;
    result = check_abilities(gpu);
    if (result == RONDO_SUCCESS) result = load_kernels(gpu);
    if (result != RONDO_SUCCESS && gpu->module) rd_gpu_driver()->cuModuleUnload(gpu->module);
    rd_gpu_pop();
    if (result != RONDO_SUCCESS) goto release;
    *made = gpu;
    return RONDO_SUCCESS;

release:
    rd_gpu_driver()->cuDevicePrimaryCtxRelease(ordinal);
free_gpu:
    free(gpu);
    return result;
}

rondo_result rd_gpu_take(rd_gpu **gpu, int ordinal)
{
    rondo_result result = RONDO_SUCCESS;
    RD_TRY(rd_gpu_require()); /* loads the driver under a lock of its own, and at a fork both are held */
    pthread_mutex_lock(&lock);
    rd_gpu *found = gpus;
    while (found && found->ordinal != ordinal) found = found->next;
    if (!found && (result = open_gpu(&found, ordinal)) == RONDO_SUCCESS) {
        found->next = gpus;
        gpus = found;
    }
    if (result == RONDO_SUCCESS) {
        found->users++;
        *gpu = found;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

void rd_gpu_drop(rd_gpu *gpu)
{
    pthread_mutex_lock(&lock);
    if (--gpu->users == 0) {
        rd_gpu **at = &gpus;
        while (*at != gpu) at = &(*at)->next;
        *at = gpu->next;
        if (rd_gpu_push(gpu) == RONDO_SUCCESS) {
            rd_gpu_driver()->cuModuleUnload(gpu->module);
            rd_gpu_pop();
        }
        rd_gpu_driver()->cuDevicePrimaryCtxRelease(gpu->ordinal);
        free(gpu);
    }
    pthread_mutex_unlock(&lock);
}

bool rd_device_take(rd_device *device, int blocks)
{
    rd_gpu *gpu = device->gpu;
    int more = blocks - device->taken;
    if (more <= 0) return true;
    if (atomic_fetch_add(&gpu->taken, more) + more > gpu->resident / 2) {
        atomic_fetch_sub(&gpu->taken, more);
        return false;
    }
    device->taken = blocks;
    return true;
}

void rd_device_drop(rd_device *device)
{
    atomic_fetch_sub(&device->gpu->taken, device->taken);
    device->taken = 0;
}

/* ---- What each has for itself ---- */

static rondo_result open_counting(rd_device *device)
{
    int ordinal = device->gpu->ordinal;
    if (device->gpu->counts) {
        void *counter;
        RD_TRY(RD_GPU(ordinal, cuMemHostAlloc, &counter, sizeof *device->counter,
                      RD_CU_MEMHOSTALLOC_PORTABLE | RD_CU_MEMHOSTALLOC_DEVICEMAP));
        device->counter = counter;
        *device->counter = 0;
        return RONDO_SUCCESS;
    }
    for (int i = 0; i < RD_MARKS; i++)
        RD_TRY(RD_GPU(ordinal, cuEventCreate, &device->events[i], RD_CU_EVENT_DISABLE_TIMING));
    return RONDO_SUCCESS;
}

/* Host memory for what a kernel and its host tell one another, all zeros. */
static rondo_result alloc_told(const rd_device *device, size_t bytes, void **memory)
{
    void *made = NULL;
    RD_TRY(RD_GPU(device->gpu->ordinal, cuMemHostAlloc, &made, bytes,
                  RD_CU_MEMHOSTALLOC_PORTABLE | RD_CU_MEMHOSTALLOC_DEVICEMAP));
    *memory = memset(made, 0, bytes);
    return RONDO_SUCCESS;
}

/* The stream waits for no other: what a call has to wait for it waits for before it begins. */
static rondo_result open_stream(rd_device *device)
{
    void *ring = NULL, *peers = NULL;
    RD_TRY(rd_gpu_push(device->gpu));
    rondo_result result = RD_GPU(device->gpu->ordinal, cuStreamCreateWithPriority, &device->stream,
                                 RD_CU_STREAM_NON_BLOCKING, HIGHEST_PRIORITY);
    if (result == RONDO_SUCCESS) result = open_counting(device);
    if (result == RONDO_SUCCESS) result = alloc_told(device, rd_device_ring_bytes(), &ring);
    if (result == RONDO_SUCCESS) result = alloc_told(device, rd_device_peers_bytes(), &peers);
    device->ring = ring;
    device->peers = peers;
    rd_gpu_pop();
    return result;
}

rondo_result rd_device_open(rd_device **device, int ordinal)
{
    rd_device *made = calloc(1, sizeof *made);
    if (!made) return rd_fail_errno("no memory for a rank on GPU %d", ordinal);
    made->engine.ops = &rd_device_engine_ops;
    rondo_result result = rd_gpu_take(&made->gpu, ordinal);
    if (result != RONDO_SUCCESS) {
        free(made);
        return result;
    }
    rd_gpu_marks_init(&made->legacy, made->gpu->context, ordinal);
    if ((result = open_stream(made)) != RONDO_SUCCESS) {
        rd_device_close(made);
        return result;
    }
    *device = made;
    return RONDO_SUCCESS;
}

void rd_device_close(rd_device *device)
{
    if (!device) return;
    const struct rd_gpu_driver *driver = rd_gpu_driver();
    rd_gpu_marks_destroy(&device->legacy);
    if (rd_gpu_push(device->gpu) == RONDO_SUCCESS) {
        if (device->stream) {
            driver->cuStreamSynchronize(device->stream);
            driver->cuStreamDestroy(device->stream);
        }
        if (device->counter) driver->cuMemFreeHost(device->counter);
        if (device->ring) driver->cuMemFreeHost(device->ring);
        if (device->peers) driver->cuMemFreeHost(device->peers);
        for (int i = 0; i < RD_MARKS; i++)
            if (device->events[i]) driver->cuEventDestroy(device->events[i]);
        rd_gpu_pop();
    }
    rd_device_drop(device);
    rd_gpu_drop(device->gpu);
    free(device);
}

int rd_device_ordinal(const rd_device *device)
{
    return device->gpu->ordinal;
}

rd_engine *rd_device_engine(rd_device *device)
{
    return &device->engine;
}
