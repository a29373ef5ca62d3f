/* SPDX-License-Identifier: Apache-2.0 */
#include "ddp/places.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rd_cu_address address(const float *ptr)
{
    return (rd_cu_address)(uintptr_t)ptr;
}

rondo_result rd_place_open(rd_place *place, int gpu, int device)
{
    *place = (rd_place){.gpu = -1};
    if (gpu < 0) return RONDO_SUCCESS;
    RD_TRY(rd_gpu_require());
    if (gpu >= rd_gpu_count())
        return rd_fail(
            RONDO_INVALID_ARGUMENT,
            "rondo_data_parallel_create_on: device %d is to be on GPU %d; this process sees %d, numbered from 0",
            device, gpu, rd_gpu_count());
    RD_TRY(RD_GPU(gpu, cuDevicePrimaryCtxRetain, &place->context, gpu));
    place->gpu = gpu;
    return RONDO_SUCCESS;
}

void rd_place_close(rd_place *place)
{
    if (place->gpu >= 0 && rd_gpu_driver()) rd_gpu_driver()->cuDevicePrimaryCtxRelease(place->gpu);
}

rondo_result rd_place_enter(const rd_place *place)
{
    if (place->gpu < 0) return RONDO_SUCCESS;
    RD_TRY(rd_gpu_require());
    return RD_GPU(place->gpu, cuCtxPushCurrent, place->context);
}

rondo_result rd_place_leave(const rd_place *place)
{
    if (place->gpu < 0) return RONDO_SUCCESS;
    rondo_result result = RD_GPU(place->gpu, cuCtxSynchronize);
    rd_gpu_driver()->cuCtxPopCurrent(NULL);
    return result;
}

rondo_result rd_place_check(const rd_place *place, const char *where, const char *what, const float *ptr)
{
    if (place->gpu < 0 && !rd_gpu_in_use()) return RONDO_SUCCESS;
    struct rd_gpu_place at = rd_gpu_locate(ptr);
    if (place->gpu < 0 ? !at.device : at.known && (!at.device || at.gpu == place->gpu)) return RONDO_SUCCESS;
    char is[64] = "plain memory of the host, or none", needs[64] = "memory of the host";
    if (at.known) snprintf(is, sizeof is, "memory of GPU %d", at.gpu);
    if (place->gpu >= 0) snprintf(needs, sizeof needs, "memory that GPU %d reaches", place->gpu);
    return rd_fail(RONDO_INVALID_ARGUMENT, "%s: %s is %p, %s; it must be %s", where, what, (const void *)ptr, is,
                   needs);
}

rondo_result rd_place_alloc(const rd_place *place, float **ptr, size_t count)
{
    rd_cu_address made = 0;
    if (place->gpu < 0) {
        *ptr = malloc(count * sizeof **ptr);
        return *ptr ? RONDO_SUCCESS : rd_fail_errno("no memory for %zu floats", count);
    }
    RD_TRY(rd_place_enter(place));
    rondo_result result = RD_GPU(place->gpu, cuMemAlloc, &made, count * sizeof **ptr);
    rd_gpu_driver()->cuCtxPopCurrent(NULL);
    if (result == RONDO_SUCCESS) *ptr = (float *)(uintptr_t)made;
    return result;
}

void rd_place_free(const rd_place *place, float *ptr)
{
    if (place->gpu < 0) {
        free(ptr);
    } else if (ptr && rd_place_enter(place) == RONDO_SUCCESS) {
        rd_gpu_driver()->cuMemFree(address(ptr));
        rd_gpu_driver()->cuCtxPopCurrent(NULL);
    }
}

rondo_result rd_place_copy(const rd_place *place, float *to, const float *from, size_t count)
{
    if (place->gpu < 0) {
        memcpy(to, from, count * sizeof *to);
        return RONDO_SUCCESS;
    }
    RD_TRY(rd_place_enter(place));
    rondo_result result =
        RD_GPU(place->gpu, cuMemcpyAsync, address(to), address(from), count * sizeof *to, RD_CU_STREAM_LEGACY);
    rondo_result done = rd_place_leave(place);
    return result == RONDO_SUCCESS ? done : result;
}

rondo_result rd_place_zero(const rd_place *place, float *at, size_t count)
{
    if (place->gpu < 0) {
        memset(at, 0, count * sizeof *at);
        return RONDO_SUCCESS;
    }
    RD_TRY(rd_place_enter(place));
    rondo_result result = RD_GPU(place->gpu, cuMemsetD8Async, address(at), 0, count * sizeof *at, RD_CU_STREAM_LEGACY);
    rondo_result done = rd_place_leave(place);
    return result == RONDO_SUCCESS ? done : result;
}

static void add(float *to, const float *from, size_t count)
{
    for (size_t i = 0; i < count; i++) to[i] += from[i];
}

rondo_result rd_place_add(const rd_place *place, float *to, const float *from, size_t count)
{
    enum { PART = 1 << 16 };
    if (place->gpu < 0) {
        add(to, from, count);
        return RONDO_SUCCESS;
    }
    float *sums = malloc(2 * PART * sizeof *sums), *terms = sums + PART;
    rondo_result result = sums ? RONDO_SUCCESS : rd_fail_errno("no memory for %d floats", 2 * PART);
    for (size_t first = 0; first < count && result == RONDO_SUCCESS; first += PART) {
        size_t some = count - first < PART ? count - first : PART;
        result = rd_place_copy(place, sums, to + first, some);
        if (result == RONDO_SUCCESS) result = rd_place_copy(place, terms, from + first, some);
        if (result != RONDO_SUCCESS) break;
        add(sums, terms, some);
        result = rd_place_copy(place, to + first, sums, some);
    }
    free(sums);
    return result;
}
