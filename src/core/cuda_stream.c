/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cuda_stream.h"

#include "reduce/device.h"

#include <stdlib.h>

struct rd_cuda_stream {
    rd_cu_stream handle;
    rd_gpu_marks marks;
    uint64_t *done;   /* the CUDA stream waits for this number in memory */
    rd_cu_event last; /* behind the last such wait */
};

static rondo_result push(const rd_cuda_stream *stream)
{
    return rd_gpu_enter(stream->marks.device, stream->marks.context);
}

/* Streams that every context has are those of the current one; where none is, of the communicator's GPU. */
static rondo_result find_context(rd_cu_stream handle, const rondo_comm *comm, rd_cu_context *context, int *device)
{
    rd_cu_context current = NULL;
    RD_TRY(rd_gpu_require());
    RD_TRY(RD_GPU(-1, cuCtxGetCurrent, &current));
    if (!current && comm && comm->device) current = comm->device->gpu->context;
    if (!current)
        return rd_fail(RONDO_INVALID_USAGE,
                       "rondo_stream_from_cuda: no CUDA context is current in this thread, and comm names no GPU: call "
                       "cudaSetDevice (or cuCtxSetCurrent) first");
    RD_TRY(rd_gpu_enter(-1, current));
    rondo_result result = RD_GPU(-1, cuStreamGetCtx, handle, context);
    rd_gpu_leave();
    if (result == RONDO_SUCCESS) result = rd_gpu_enter(-1, *context);
    if (result != RONDO_SUCCESS) return result;
    result = RD_GPU(-1, cuCtxGetDevice, device);
    if (result == RONDO_SUCCESS) result = rd_gpu_refuse_capture(*device, handle);
    rd_gpu_leave();
    if (result != RONDO_SUCCESS || !comm || !comm->device || rd_device_ordinal(comm->device) == *device) return result;
    return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_stream_from_cuda: the CUDA stream is of GPU %d, and comm uses GPU %d",
                   *device, rd_device_ordinal(comm->device));
}

static rondo_result make_word(rd_cuda_stream *stream)
{
    int device = stream->marks.device, can;
    void *word;
    RD_TRY(RD_GPU(device, cuDeviceGetAttribute, &can, RD_CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, device));
    if (!can)
        return rd_fail(RONDO_INVALID_USAGE,
                       "rondo_stream_from_cuda: streams of GPU %d cannot wait for a value in memory; use "
                       "rondo_stream_create, and synchronise with the CUDA stream yourself",
                       device);
    RD_TRY(RD_GPU(device, cuMemHostAlloc, &word, sizeof *stream->done,
                  RD_CU_MEMHOSTALLOC_PORTABLE | RD_CU_MEMHOSTALLOC_DEVICEMAP));
    stream->done = word;
    *stream->done = 0;
    return RD_GPU(device, cuEventCreate, &stream->last, RD_CU_EVENT_DISABLE_TIMING);
}

rondo_result rd_cuda_stream_open(rd_cuda_stream **stream, void *handle, const rondo_comm *comm)
{
    rd_cu_stream cuda = handle ? (rd_cu_stream)handle : RD_CU_STREAM_LEGACY;
    rd_cu_context context;
    int device;
    RD_TRY(find_context(cuda, comm, &context, &device));
    rd_cuda_stream *made = calloc(1, sizeof *made);
    if (!made) return rd_fail_errno("rondo_stream_from_cuda: no memory");
    made->handle = cuda;
    rd_gpu_marks_init(&made->marks, context, device);
    rondo_result result = push(made);
    if (result == RONDO_SUCCESS) {
        result = make_word(made);
        rd_gpu_leave();
    }
    if (result == RONDO_SUCCESS)
        *stream = made;
    else
        rd_cuda_stream_close(made);
    return result;
}

/* Who frees the word must know that the CUDA stream has passed its waits. It has come as far as the last one, since
 * what was given then has begun, so this takes no longer than the GPU takes to look at the word. */
void rd_cuda_stream_close(rd_cuda_stream *stream)
{
    const struct rd_gpu_driver *driver = rd_gpu_driver();
    if (driver && push(stream) == RONDO_SUCCESS) {
        if (stream->last) {
            driver->cuEventSynchronize(stream->last);
            driver->cuEventDestroy(stream->last);
        }
        if (stream->done) driver->cuMemFreeHost(stream->done);
        rd_gpu_leave();
    }
    rd_gpu_marks_destroy(&stream->marks);
    free(stream);
}

/* In its context. */
static rondo_result wait_for(rd_cuda_stream *stream, uint64_t number)
{
    int device = stream->marks.device;
    RD_TRY(RD_GPU(device, cuStreamWaitValue64, stream->handle, (rd_cu_address)(uintptr_t)stream->done, number,
                  RD_CU_STREAM_WAIT_VALUE_GEQ));
    return RD_GPU(device, cuEventRecord, stream->last, stream->handle);
}

rondo_result rd_cuda_stream_order(rd_cuda_stream *stream, rondo_work *work, uint64_t number)
{
    rd_gpu_mark *mark;
    RD_TRY(rd_gpu_mark_set(&stream->marks, stream->handle, &mark));
    rondo_result result = push(stream);
    if (result == RONDO_SUCCESS) {
        result = wait_for(stream, number);
        rd_gpu_leave();
    }
    for (int i = 0; i < work->task_count && result == RONDO_SUCCESS; i++) work->tasks[i].mark = rd_gpu_mark_share(mark);
    rd_gpu_mark_drop(mark);
    return result;
}

void rd_cuda_stream_done(rd_cuda_stream *stream, uint64_t number)
{
    __atomic_store_n(stream->done, number, __ATOMIC_RELEASE);
}
