/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c - what tensors lie in, and passes and copies over it. Without a GPU these are memcpy and a plain loop. With
 * one, copies are given to CUDA's legacy stream, behind the caller's kernels; and what the library works out itself, it
 * works out on the host, over parts that it fetches and brings back, with the same bits as on the host.
 */
#include "base/dtype.h"
#include "base/process.h"
#include "base/status.h"
#include "ddp/ddp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STAGE = 1 << 20 };

static rd_cu_address address(const void *ptr)
{
    return (rd_cu_address)(uintptr_t)ptr;
}

/* In a forked child there is no driver, and the GPU is the parent's. */
static rondo_result push(const rd_ddp_gpu *gpu)
{
    RD_TRY(rd_gpu_require());
    return rd_gpu_enter(gpu->ordinal, gpu->context);
}

/* ---- Which GPU ---- */

/* Memory made for comm tells where comm is. */
static rondo_result find_ordinal(rondo_comm *comm, int *ordinal)
{
    void *probe;
    RD_TRY(rondo_mem_alloc(&probe, 1, comm));
    struct rd_gpu_place place = rd_gpu_locate(probe);
    *ordinal = place.device ? place.gpu : -1;
    return rondo_mem_free(probe, comm);
}

rondo_result rd_ddp_open_gpu(rondo_ddp *ddp)
{
    rd_ddp_gpu *gpu = &ddp->gpu;
    gpu->cuda = rd_gpu_in_use() && rd_gpu_driver();
    if (!gpu->cuda) return RONDO_SUCCESS;
    int ordinal;
    RD_TRY(find_ordinal(ddp->comm, &ordinal));
    if (ordinal < 0) return RONDO_SUCCESS;
    RD_TRY(RD_GPU(ordinal, cuDevicePrimaryCtxRetain, &gpu->context, ordinal));
    gpu->ordinal = ordinal;
    return rd_ddp_alloc_host(ddp, STAGE, &gpu->stage);
}

void rd_ddp_close_gpu(rondo_ddp *ddp)
{
    if (ddp->gpu.ordinal < 0 || !ddp->gpu.context) return;
    rd_ddp_free_host(ddp, ddp->gpu.stage);
    if (rd_gpu_driver()) rd_gpu_driver()->cuDevicePrimaryCtxRelease(ddp->gpu.ordinal);
}

/* Where there is a GPU, pinned: so a copy from there to the GPU waits for nobody. */
rondo_result rd_ddp_alloc_host(const rondo_ddp *ddp, size_t bytes, void **ptr)
{
    if (ddp->gpu.ordinal < 0) {
        void *made = calloc(1, bytes + 1);
        if (!made) return rd_fail_errno("no memory for %zu bytes beside gradients", bytes);
        *ptr = made;
        return RONDO_SUCCESS;
    }
    RD_TRY(push(&ddp->gpu));
    rondo_result result = RD_GPU(ddp->gpu.ordinal, cuMemHostAlloc, ptr, bytes + 1,
                                 RD_CU_MEMHOSTALLOC_PORTABLE | RD_CU_MEMHOSTALLOC_DEVICEMAP);
    rd_gpu_leave();
    return result;
}

void rd_ddp_free_host(const rondo_ddp *ddp, void *ptr)
{
    if (ddp->gpu.ordinal < 0) {
        free(ptr);
    } else if (ptr && push(&ddp->gpu) == RONDO_SUCCESS) {
        rd_gpu_driver()->cuMemFreeHost(ptr);
        rd_gpu_leave();
    }
}

/* ---- What memory is ---- */

bool rd_ddp_is_device(const rondo_ddp *ddp, const void *ptr)
{
    return ddp->gpu.cuda && rd_gpu_locate(ptr).device;
}

rondo_result rd_ddp_check_memory(const rondo_ddp *ddp, const char *where, const char *kind, int index, const char *name,
                                 const char *what, const void *ptr)
{
    char uses[64] = "host memory";
    if (!ddp->gpu.cuda || !ptr) return RONDO_SUCCESS;
    struct rd_gpu_place place = rd_gpu_locate(ptr);
    if (!place.known && !rd_is_readable(ptr, 1))
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "%s: %s %d '%s': %s is %p, which is memory neither of a GPU nor of the host; was it freed? (on "
                       "rank %d)",
                       where, kind, index, name, what, ptr, ddp->rank);
    if (!place.device || place.gpu == ddp->gpu.ordinal) return RONDO_SUCCESS;
    if (ddp->gpu.ordinal >= 0) snprintf(uses, sizeof uses, "GPU %d", ddp->gpu.ordinal);
    return rd_fail(
        RONDO_INVALID_ARGUMENT,
        "%s: %s %d '%s': %s is %p, memory of GPU %d, and rank %d of this communicator uses %s; make one with "
        "config.device = %d",
        where, kind, index, name, what, ptr, place.gpu, ddp->rank, uses, place.gpu);
}

/* Plain memory, where no kernel has been. */
static bool is_plain(const rondo_ddp *ddp, const void *ptr)
{
    return ddp->gpu.ordinal < 0 || !rd_gpu_locate(ptr).known;
}

/* ---- Copies ---- */

static rondo_result copy(const rondo_ddp *ddp, void *to, const void *from, size_t bytes, bool waits)
{
    int ordinal = ddp->gpu.ordinal;
    if (!bytes) return RONDO_SUCCESS;
    if (is_plain(ddp, to) && is_plain(ddp, from)) {
        memcpy(to, from, bytes);
        return RONDO_SUCCESS;
    }
    RD_TRY(push(&ddp->gpu));
    rondo_result result = RD_GPU(ordinal, cuMemcpyAsync, address(to), address(from), bytes, RD_CU_STREAM_LEGACY);
    if (result == RONDO_SUCCESS && waits) result = RD_GPU(ordinal, cuStreamSynchronize, RD_CU_STREAM_LEGACY);
    rd_gpu_leave();
    return result;
}

rondo_result rd_ddp_copy(const rondo_ddp *ddp, void *to, const void *from, size_t bytes)
{
    return copy(ddp, to, from, bytes, true);
}

rondo_result rd_ddp_copy_later(const rondo_ddp *ddp, void *to, const void *from, size_t bytes)
{
    return copy(ddp, to, from, bytes, false);
}

rondo_result rd_ddp_zero(const rondo_ddp *ddp, void *at, size_t bytes)
{
    int ordinal = ddp->gpu.ordinal;
    if (!bytes) return RONDO_SUCCESS;
    if (is_plain(ddp, at)) {
        memset(at, 0, bytes);
        return RONDO_SUCCESS;
    }
    RD_TRY(push(&ddp->gpu));
    rondo_result result = RD_GPU(ordinal, cuMemsetD8Async, address(at), 0, bytes, RD_CU_STREAM_LEGACY);
    rd_gpu_leave();
    return result;
}

rondo_result rd_ddp_copied(const rondo_ddp *ddp)
{
    if (ddp->gpu.ordinal < 0) return RONDO_SUCCESS;
    RD_TRY(push(&ddp->gpu));
    rondo_result result = RD_GPU(ddp->gpu.ordinal, cuStreamSynchronize, RD_CU_STREAM_LEGACY);
    rd_gpu_leave();
    return result;
}

/* ---- Passes ---- */

rondo_result rd_ddp_pass(const rondo_ddp *ddp, void *data, size_t count, rondo_dtype dtype, rd_ddp_touch touch,
                         rd_ddp_work *work, void *context)
{
    size_t size = rd_dtype_bytes(dtype), most = STAGE / size;
    if (is_plain(ddp, data)) {
        work(data, 0, count, dtype, context);
        return RONDO_SUCCESS;
    }
    for (size_t first = 0; first < count; first += most) {
        size_t some = count - first < most ? count - first : most;
        unsigned char *at = (unsigned char *)data + first * size;
        if (touch & RD_DDP_READ) RD_TRY(rd_ddp_copy(ddp, ddp->gpu.stage, at, some * size));
        work(ddp->gpu.stage, first, some, dtype, context);
        if (touch & RD_DDP_WRITE) RD_TRY(rd_ddp_copy(ddp, at, ddp->gpu.stage, some * size));
    }
    return RONDO_SUCCESS;
}

static void scale(void *part, size_t first, size_t count, rondo_dtype dtype, void *context)
{
    (void)first;
    rd_ddp_scale(part, count, dtype, *(const double *)context);
}

rondo_result rd_ddp_scale_tensor(const rondo_ddp *ddp, void *data, size_t count, rondo_dtype dtype, double factor)
{
    if (factor == 1) return RONDO_SUCCESS;
    return rd_ddp_pass(ddp, data, count, dtype, RD_DDP_BOTH, scale, &factor);
}
