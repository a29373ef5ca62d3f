/* SPDX-License-Identifier: Apache-2.0
 *
 * capture.c - streams that are captured into graphs. What such a stream is given is counted and not done; a graph is
 * that number, and cannot be launched. What matters here is what a capture forbids to whom: what would have to wait for
 * it, the legacy stream, and calls that might wait, by the mode in which it was begun and that of the calling thread.
 * Who does so all the same gets an error and spoils the capture.
 */
#include "sim.h"

#include <stdatomic.h>
#include <stdlib.h>

struct rd_sim_graph {
    struct sim_handle handle;
    size_t nodes;
};

static __thread unsigned thread_mode = RD_CU_STREAM_CAPTURE_MODE_GLOBAL;
static atomic_int under_way; /* captures that have not ended */

static bool is_captured(const struct sim_stream *stream)
{
    return stream->capture.status != RD_CU_STREAM_CAPTURE_STATUS_NONE;
}

/* All streams that the capture has drawn in. The lock is held. */
static void spoil(struct sim_stream *stream)
{
    uint64_t id = stream->capture.id;
    for (struct sim_stream *s = stream->context->streams; s != NULL; s = s->next)
        if (is_captured(s) && s->capture.id == id) s->capture.status = RD_CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}

/* ---- What is forbidden meanwhile ---- */

static bool might_wait(enum sim_call call)
{
    switch (call) {
    case SIM_cuMemAlloc:
    case SIM_cuMemAllocManaged:
    case SIM_cuMemFree:
    case SIM_cuMemHostAlloc:
    case SIM_cuMemFreeHost:
    case SIM_cuMemHostRegister:
    case SIM_cuMemHostUnregister:
    case SIM_cuModuleLoadData:
    case SIM_cuModuleUnload:
    case SIM_cuEventQuery:
    case SIM_cuEventSynchronize:
    case SIM_cuStreamQuery:
    case SIM_cuStreamSynchronize:
    case SIM_cuCtxSynchronize: return true;
    default: return false;
    }
}

/* Whether a capture forbids this thread what might wait. */
static bool binds(const struct sim_stream *stream)
{
    if (!is_captured(stream) || thread_mode == RD_CU_STREAM_CAPTURE_MODE_RELAXED) return false;
    if (pthread_equal(stream->capture.by, pthread_self()))
        return stream->capture.mode != RD_CU_STREAM_CAPTURE_MODE_RELAXED;
    return thread_mode == RD_CU_STREAM_CAPTURE_MODE_GLOBAL && stream->capture.mode == RD_CU_STREAM_CAPTURE_MODE_GLOBAL;
}

rd_cu_result sim_capture_forbids(enum sim_call call)
{
    rd_cu_result result = RD_CU_SUCCESS;
    if (atomic_load(&under_way) == 0 || !might_wait(call)) return RD_CU_SUCCESS;
    sim_lock();
    for (struct sim_handle *handle = sim_handle_next(NULL); handle != NULL; handle = sim_handle_next(handle)) {
        if (handle->kind != SIM_CONTEXT) continue;
        for (struct sim_stream *s = ((struct sim_context *)handle)->streams; s != NULL; s = s->next) {
            if (!binds(s)) continue;
            spoil(s);
            result = RD_CU_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    sim_unlock();
    return result;
}

/* The legacy stream would have to wait for blocking ones that are captured. The lock is held. */
static rd_cu_result legacy_use(struct sim_stream *legacy, bool spoils)
{
    rd_cu_result result = RD_CU_SUCCESS;
    for (struct sim_stream *s = legacy->context->streams; s != NULL; s = s->next) {
        if (!is_captured(s) || s->nonblocking) continue;
        if (spoils) spoil(s);
        result = RD_CU_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    return result;
}

rd_cu_result sim_capture_work(struct sim_stream *stream)
{
    rd_cu_result result = RD_CU_SUCCESS;
    sim_lock();
    if (stream == stream->context->legacy) result = legacy_use(stream, true);
    if (stream->capture.status == RD_CU_STREAM_CAPTURE_STATUS_INVALIDATED)
        result = RD_CU_ERROR_STREAM_CAPTURE_INVALIDATED;
    sim_unlock();
    return result;
}

rd_cu_result sim_capture_wait(struct sim_stream *stream)
{
    rd_cu_result result = RD_CU_SUCCESS;
    sim_lock();
    if (stream == stream->context->legacy) result = legacy_use(stream, true);
    if (is_captured(stream)) {
        spoil(stream);
        result = RD_CU_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    sim_unlock();
    return result;
}

bool sim_capture_takes(struct sim_stream *stream)
{
    if (!is_captured(stream)) return false;
    for (struct sim_stream *s = stream->context->streams; s != NULL; s = s->next)
        if (is_captured(s) && s->capture.id == stream->capture.id) s->capture.nodes++;
    return true;
}

bool sim_capture_join(struct sim_stream *stream, uint64_t id)
{
    for (struct sim_stream *s = stream->context->streams; s != NULL; s = s->next) {
        if (!is_captured(s) || s->capture.id != id) continue;
        stream->capture = s->capture;
        return true;
    }
    return false;
}

/* ---- The calls ---- */

rd_cu_result cuThreadExchangeStreamCaptureMode(unsigned *mode)
{
    SIM_ENTER(cuThreadExchangeStreamCaptureMode);
    unsigned before = thread_mode;
    if (*mode > RD_CU_STREAM_CAPTURE_MODE_RELAXED) return RD_CU_ERROR_INVALID_VALUE;
    thread_mode = *mode;
    *mode = before;
    return RD_CU_SUCCESS;
}

rd_cu_result cuStreamIsCapturing(rd_cu_stream stream, unsigned *status)
{
    SIM_ENTER_STREAM(cuStreamIsCapturing, found, stream);
    sim_lock();
    rd_cu_result result = found == found->context->legacy ? legacy_use(found, false) : RD_CU_SUCCESS;
    *status = found->capture.status;
    sim_unlock();
    return result;
}

rd_cu_result cuStreamBeginCapture(rd_cu_stream stream, unsigned mode)
{
    static uint64_t last;
    SIM_ENTER_STREAM(cuStreamBeginCapture, found, stream);
    if (mode > RD_CU_STREAM_CAPTURE_MODE_RELAXED) return RD_CU_ERROR_INVALID_VALUE;
    if (found == found->context->legacy) return RD_CU_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    sim_lock();
    rd_cu_result result = is_captured(found) ? RD_CU_ERROR_ILLEGAL_STATE : RD_CU_SUCCESS;
    if (result == RD_CU_SUCCESS) {
        found->capture = (struct sim_capture){RD_CU_STREAM_CAPTURE_STATUS_ACTIVE, mode, ++last, 0, pthread_self()};
        atomic_fetch_add(&under_way, 1);
    }
    sim_unlock();
    return result;
}

rd_cu_result cuStreamEndCapture(rd_cu_stream stream, rd_cu_graph *graph)
{
    SIM_ENTER_STREAM(cuStreamEndCapture, found, stream);
    struct rd_sim_graph *made = calloc(1, sizeof *made);
    if (made == NULL) abort();
    sim_lock();
    struct sim_capture capture = found->capture;
    rd_cu_result result = RD_CU_SUCCESS;
    if (!is_captured(found))
        result = RD_CU_ERROR_ILLEGAL_STATE;
    else if (capture.mode != RD_CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(capture.by, pthread_self()))
        result = RD_CU_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    else if (capture.status == RD_CU_STREAM_CAPTURE_STATUS_INVALIDATED)
        result = RD_CU_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (result == RD_CU_SUCCESS || result == RD_CU_ERROR_STREAM_CAPTURE_INVALIDATED) {
        for (struct sim_stream *s = found->context->streams; s != NULL; s = s->next)
            if (is_captured(s) && s->capture.id == capture.id) s->capture.status = RD_CU_STREAM_CAPTURE_STATUS_NONE;
        atomic_fetch_sub(&under_way, 1);
    }
    made->nodes = capture.nodes;
    if (result == RD_CU_SUCCESS) sim_handle_add(&made->handle, SIM_GRAPH);
    sim_unlock();
    if (result != RD_CU_SUCCESS) free(made);
    if (result != RD_CU_ERROR_ILLEGAL_STATE) *graph = result == RD_CU_SUCCESS ? (rd_cu_graph)made : NULL;
    return result;
}

/* How many there are; which, nobody asks. */
rd_cu_result cuGraphGetNodes(rd_cu_graph graph, rd_cu_graph_node *nodes, size_t *count)
{
    SIM_ENTER(cuGraphGetNodes);
    sim_lock();
    const struct rd_sim_graph *found = sim_handle_find(graph, SIM_GRAPH);
    if (found != NULL) *count = found->nodes;
    sim_unlock();
    if (found == NULL) return RD_CU_ERROR_INVALID_VALUE;
    return nodes == NULL ? RD_CU_SUCCESS : RD_CU_ERROR_NOT_SUPPORTED;
}

rd_cu_result cuGraphDestroy(rd_cu_graph graph)
{
    SIM_ENTER(cuGraphDestroy);
    sim_lock();
    struct rd_sim_graph *found = sim_handle_find(graph, SIM_GRAPH);
    if (found != NULL) sim_handle_remove(&found->handle);
    sim_unlock();
    free(found);
    return found != NULL ? RD_CU_SUCCESS : RD_CU_ERROR_INVALID_VALUE;
}
