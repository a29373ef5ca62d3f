/* SPDX-License-Identifier: Apache-2.0
 *
 * stream.c - where a call runs. Without a GPU here, to its end. With one: a stream of ours stands in each CUDA stream
 * that was named, and NULL names the legacy one, unless both buffers are plain memory of the host.
 *
 * A stream of ours has a thread, so it is kept for the next call: for a CUDA stream, known by its handle and its GPU,
 * as long as a communicator has used it that still is there. All communicators share it: what one thread gives to
 * several in a group must run together.
 */
#include "shim/shim.h"

#include "base/gpu.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

struct rd_standing {
    rd_standing *next;
    cudaStream_t handle;
    const void *thread; /* whose it is, if every thread has one of its own; NULL: all threads' */
    int device;
    rondo_stream *stream;
    int users; /* communicators */
};

/* That a communicator uses one of them. */
struct rd_use {
    rd_use *next;
    rd_standing *of;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static rd_standing *standing;

/* ---- Which GPU ---- */

/* The runtime has a current device before any context is; where the program has it as a library it can be asked. */
static int runtimes_device(void)
{
    int (*ask)(int *) = NULL, device = 0;
    *(void **)&ask = dlsym(RTLD_DEFAULT, "cudaGetDevice");
    return ask && ask(&device) == 0 ? device : 0;
}

/* As NCCL has it: the caller's current one, which is number 0 if nobody said otherwise. */
int rd_shim_current_device(void)
{
    const struct rd_gpu_driver *cu = rd_gpu_driver();
    rd_cu_device device;
    if (!cu || rd_gpu_count() == 0) return RONDO_DEVICE_AUTO;
    if (cu->cuCtxGetDevice(&device) == RD_CU_SUCCESS) return device;
    return runtimes_device();
}

/* ---- The streams of the communicators ---- */

static rondo_result add_use(ncclComm_t comm, rd_standing *of)
{
    rd_use *use = malloc(sizeof *use);
    if (!use) return rd_fail_errno("no memory for a stream");
    *use = (rd_use){comm->uses, of};
    comm->uses = use;
    of->users++;
    return RONDO_SUCCESS;
}

/* Those that every context has are meant to be of the communicator's GPU, whatever is current. */
static rondo_result open_standing(rondo_stream **stream, cudaStream_t handle, ncclComm_t comm)
{
    rd_cu_context context;
    bool named = (uintptr_t)handle > 2;
    if (named) return rondo_stream_from_cuda(stream, handle, comm->inner);
    RD_TRY(RD_GPU(comm->device, cuDevicePrimaryCtxRetain, &context, comm->device));
    rondo_result result = RD_GPU(comm->device, cuCtxPushCurrent, context);
    if (result == RONDO_SUCCESS) {
        result = rondo_stream_from_cuda(stream, handle, comm->inner);
        rd_gpu_driver()->cuCtxPopCurrent(&context);
    }
    rd_gpu_driver()->cuDevicePrimaryCtxRelease(comm->device);
    return result;
}

/* cudaStreamPerThread is another stream in each thread. */
static const void *owner(cudaStream_t handle)
{
    static _Thread_local char here;
    return (rd_cu_stream)handle == RD_CU_STREAM_PER_THREAD ? &here : NULL;
}

static rondo_result find_or_open(cudaStream_t handle, ncclComm_t comm, rd_standing **found)
{
    rd_standing *s = standing;
    while (s && (s->handle != handle || s->thread != owner(handle) || s->device != comm->device)) s = s->next;
    if (!s) {
        s = malloc(sizeof *s);
        if (!s) return rd_fail_errno("no memory for a stream");
        *s = (rd_standing){standing, handle, owner(handle), comm->device, NULL, 0};
        rondo_result result = open_standing(&s->stream, handle, comm);
        if (result != RONDO_SUCCESS) {
            free(s);
            return result;
        }
        standing = s;
    }
    *found = s;
    return RONDO_SUCCESS;
}

static rondo_result stand_in(cudaStream_t handle, ncclComm_t comm, rondo_stream **on)
{
    rondo_result result = RONDO_SUCCESS;
    rd_standing *s = NULL;
    pthread_mutex_lock(&lock);
    for (rd_use *use = comm->uses; use && !s; use = use->next)
        if (use->of->handle == handle && use->of->thread == owner(handle)) s = use->of;
    if (!s) {
        result = find_or_open(handle, comm, &s);
        if (result == RONDO_SUCCESS) result = add_use(comm, s);
    }
    if (result == RONDO_SUCCESS) *on = s->stream;
    pthread_mutex_unlock(&lock);
    return result;
}

/* Those that nobody else uses end, which waits for what they were given. */
void rd_shim_forget_streams(ncclComm_t comm)
{
    rd_standing *unused = NULL;
    pthread_mutex_lock(&lock);
    for (rd_use *next; comm->uses; comm->uses = next) {
        rd_standing *s = comm->uses->of, **at = &standing;
        next = comm->uses->next;
        free(comm->uses);
        if (--s->users) continue;
        while (*at != s) at = &(*at)->next;
        *at = s->next;
        s->next = unused;
        unused = s;
    }
    pthread_mutex_unlock(&lock);
    for (rd_standing *next; unused; unused = next) {
        next = unused->next;
        rondo_stream_destroy(unused->stream);
        free(unused);
    }
}

/* ---- A call's ---- */

/* Memory that the driver knows: a GPU's, managed or pinned. */
static bool is_cudas(const void *buffer)
{
    unsigned type = 0, what[] = {RD_CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    void *values[] = {&type};
    return buffer && rd_gpu_driver() &&
           rd_gpu_driver()->cuPointerGetAttributes(1, what, values, (rd_cu_address)(uintptr_t)buffer) ==
               RD_CU_SUCCESS &&
           type != 0;
}

static rondo_result follow(const struct rd_gpu_driver *cu, int device, cudaStream_t stream, cudaStream_t other)
{
    rd_cu_event event;
    RD_TRY(rd_gpu_refuse_capture(device, other)); /* which would draw in the stream that follows */
    RD_TRY(rd_gpu_refuse_capture(device, stream));
    RD_TRY(RD_GPU(device, cuEventCreate, &event, RD_CU_EVENT_DISABLE_TIMING));
    rondo_result result = RD_GPU(device, cuEventRecord, event, other);
    if (result == RONDO_SUCCESS) result = RD_GPU(device, cuStreamWaitEvent, stream, event, 0);
    cu->cuEventDestroy(event); /* when it has come */
    return result;
}

rondo_result rd_shim_follow(int device, cudaStream_t stream, cudaStream_t other)
{
    const struct rd_gpu_driver *cu = rd_gpu_driver();
    rd_cu_context context;
    RD_TRY(RD_GPU(device, cuDevicePrimaryCtxRetain, &context, device));
    rondo_result result = rd_gpu_enter(device, context);
    if (result == RONDO_SUCCESS) {
        result = follow(cu, device, stream, other);
        rd_gpu_leave();
    }
    cu->cuDevicePrimaryCtxRelease(device);
    return result;
}

bool rd_shim_on_gpu(ncclComm_t comm)
{
    return comm->device >= 0 && rd_gpu_driver();
}

rondo_result rd_shim_stream(cudaStream_t stream, ncclComm_t comm, const void *send, const void *recv, rondo_stream **on)
{
    bool on_gpu = rd_shim_on_gpu(comm);
    *on = NULL;
    if (!stream && on_gpu && (is_cudas(send) || is_cudas(recv))) stream = (cudaStream_t)RD_CU_STREAM_LEGACY;
    if (rd_shim_grouped()) RD_TRY(rd_shim_keep_party(comm, &stream));
    if (!stream) return RONDO_SUCCESS;
    if (on_gpu) return stand_in(stream, comm, on);
    const char *why = rd_gpu_absent();
    return rd_fail(
        RONDO_INVALID_USAGE,
        "stream is %p, but this communicator uses no GPU (%s); with NULL the call runs on host memory, to its end",
        (void *)stream, why ? why : "RONDO_DEVICE=host");
}
