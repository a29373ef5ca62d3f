/* SPDX-License-Identifier: Apache-2.0
 *
 * stream.c - a stream is a thread with a line of works. Legacy order: a work of the legacy stream waits for all that
 * blocking streams of its context had been given before, and theirs for all that the legacy stream had.
 */
#include "sanitize.h"
#include "sim.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

struct sim_wait {
    struct sim_wait *next;
    struct sim_stream *stream;
    uint64_t number;
};

void sim_pause(unsigned *turn)
{
    unsigned n = (*turn)++;
    if (n < 64) {
        sched_yield();
        return;
    }
    struct timespec sleep = {0, n < 128 ? 20000 : 200000};
    nanosleep(&sleep, NULL);
}

/* ---- The line -----------------------------------------------------------------------------------------------------
 */

struct sim_work *sim_work_new(rd_cu_result (*run)(struct sim_work *))
{
    struct sim_work *work = calloc(1, sizeof *work);
    if (work == NULL) abort();
    work->run = run;
    return work;
}

static void work_free(struct sim_work *work)
{
    for (struct sim_wait *wait = work->waits, *next; wait != NULL; wait = next) {
        next = wait->next;
        free(wait);
    }
    if (work->discard != NULL) work->discard(work);
    free(work);
}

static void add_wait(struct sim_work *work, struct sim_stream *stream)
{
    if (stream->done == stream->queued) return;
    struct sim_wait *wait = malloc(sizeof *wait);
    if (wait == NULL) abort();
    *wait = (struct sim_wait){work->waits, stream, stream->queued};
    work->waits = wait;
}

/* Runs the first work of the line, whose turn has come. */
static void run_first(struct sim_stream *stream)
{
    struct sim_work *work = stream->first;
    struct sim_context *context = stream->context;
    rd_cu_result result = RD_CU_SUCCESS;
    SIM_ACQUIRE(work);
    for (struct sim_wait *wait = work->waits; wait != NULL; wait = wait->next)
        while (wait->stream->done < wait->number && context->lost == RD_CU_SUCCESS) sim_await();
    if (context->lost == RD_CU_SUCCESS) {
        sim_unlock();
        for (struct sim_wait *wait = work->waits; wait != NULL; wait = wait->next) SIM_ACQUIRE(wait->stream);
        result = work->run(work);
        SIM_RELEASE(stream);
        sim_lock();
    }
    if (result != RD_CU_SUCCESS && context->lost == RD_CU_SUCCESS) context->lost = result;
    stream->first = work->next;
    if (stream->first == NULL) stream->end = &stream->first;
    stream->done++;
    sim_moved();
    work_free(work);
}

/* The lock is held, but for while a work runs. */
static void stream_run(void *argument)
{
    struct sim_stream *stream = argument;
    while (!stream->destroyed || stream->first != NULL) {
        if (stream->first != NULL) {
            run_first(stream);
            continue;
        }
        sim_await_one(&stream->arrived);
    }
    stream->running = false;
    SIM_RELEASE(stream);
    sim_moved();
}

uint64_t sim_stream_put(struct sim_stream *stream, struct sim_work *work)
{
    struct sim_context *context = stream->context;
    work->stream = stream;
    if (sim_capture_takes(stream)) {
        work_free(work);
        return stream->done;
    }
    if (stream == context->legacy) {
        for (struct sim_stream *other = context->streams; other != NULL; other = other->next)
            if (other != stream && !other->nonblocking) add_wait(work, other);
    } else if (!stream->nonblocking) {
        add_wait(work, context->legacy);
    }
    SIM_RELEASE(work); /* its waits, too, were made before the stream's thread frees them */
    *stream->end = work;
    stream->end = &work->next;
    stream->queued++;
    if (!stream->running) {
        stream->running = true;
        sim_thread_run(stream_run, stream);
    }
    pthread_cond_signal(&stream->arrived);
    SIM_RELEASE(&stream->arrived);
    return stream->queued;
}

void sim_stream_await(struct sim_stream *stream, uint64_t number)
{
    while (stream->done < number && stream->context->lost == RD_CU_SUCCESS) sim_await();
}

void sim_context_await(struct sim_context *context)
{
    for (struct sim_stream *stream = context->streams; stream != NULL; stream = stream->next)
        sim_stream_await(stream, stream->queued);
}

/* ---- Streams ------------------------------------------------------------------------------------------------------
 */

static struct sim_stream *stream_new(struct sim_context *context, bool nonblocking)
{
    struct sim_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL) abort();
    stream->context = context;
    stream->nonblocking = nonblocking;
    stream->end = &stream->first;
    pthread_cond_init(&stream->arrived, NULL);
    stream->next = context->streams;
    context->streams = stream;
    return stream;
}

void sim_streams_open(struct sim_context *context)
{
    context->legacy = stream_new(context, false);
}

void sim_streams_close(struct sim_context *context)
{
    for (struct sim_stream *stream = context->streams, *next; stream != NULL; stream = next) {
        next = stream->next;
        if (!stream->destroyed) sim_handle_remove(&stream->handle);
        stream->destroyed = true;
        pthread_cond_signal(&stream->arrived);
        while (stream->running) sim_await();
        SIM_ACQUIRE(stream);
        SIM_ACQUIRE(&stream->arrived);
        pthread_cond_destroy(&stream->arrived);
        free(stream);
    }
    context->legacy = context->streams = NULL;
}

/* Each thread has one of its own in each context, made when it is first used. */
static struct sim_stream *own_stream(struct sim_context *context)
{
    for (struct sim_stream *stream = context->streams; stream != NULL; stream = stream->next)
        if (stream->owned && pthread_equal(stream->owner, pthread_self())) return stream;
    struct sim_stream *stream = stream_new(context, false);
    stream->owned = true;
    stream->owner = pthread_self();
    return stream;
}

struct sim_stream *sim_stream_find(rd_cu_stream handle, struct sim_context *context)
{
    if (handle == NULL || handle == RD_CU_STREAM_LEGACY) return context != NULL ? context->legacy : NULL;
    if (handle == RD_CU_STREAM_PER_THREAD) return context != NULL ? own_stream(context) : NULL;
    return sim_handle_find(handle, SIM_STREAM);
}

rd_cu_result cuStreamCreateWithPriority(rd_cu_stream *stream, unsigned flags, int priority)
{
    SIM_ENTER_CONTEXT(cuStreamCreateWithPriority, context);
    (void)priority; /* clamped by the driver to what there is: one */
    if (flags > RD_CU_STREAM_NON_BLOCKING) return RD_CU_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_stream *made = stream_new(context, flags == RD_CU_STREAM_NON_BLOCKING);
    sim_handle_add(&made->handle, SIM_STREAM);
    sim_unlock();
    *stream = (rd_cu_stream)made;
    return RD_CU_SUCCESS;
}

/* What is in line is still done. */
rd_cu_result cuStreamDestroy(rd_cu_stream stream)
{
    SIM_ENTER(cuStreamDestroy);
    sim_lock();
    struct sim_stream *found = sim_handle_find(stream, SIM_STREAM);
    if (found != NULL) {
        sim_handle_remove(&found->handle);
        found->destroyed = true;
        pthread_cond_signal(&found->arrived);
        SIM_RELEASE(&found->arrived);
    }
    sim_unlock();
    return found != NULL ? RD_CU_SUCCESS : RD_CU_ERROR_INVALID_HANDLE;
}

rd_cu_result cuStreamGetCtx(rd_cu_stream stream, rd_cu_context *context)
{
    SIM_ENTER_STREAM(cuStreamGetCtx, found, stream);
    *context = (rd_cu_context)found->context;
    return RD_CU_SUCCESS;
}

rd_cu_result cuStreamQuery(rd_cu_stream stream)
{
    SIM_ENTER_STREAM(cuStreamQuery, found, stream);
    rd_cu_result captured = sim_capture_wait(found);
    if (captured != RD_CU_SUCCESS) return captured;
    sim_lock();
    bool done = found->done == found->queued;
    sim_unlock();
    if (!done) return RD_CU_ERROR_NOT_READY;
    SIM_ACQUIRE(found);
    return sim_context_lost(found->context);
}

rd_cu_result cuStreamSynchronize(rd_cu_stream stream)
{
    SIM_ENTER_STREAM(cuStreamSynchronize, found, stream);
    rd_cu_result captured = sim_capture_wait(found);
    if (captured != RD_CU_SUCCESS) return captured;
    sim_lock();
    /* The legacy stream has done all when the blocking streams have, too. */
    if (found == found->context->legacy) {
        for (struct sim_stream *other = found->context->streams; other != NULL; other = other->next)
            if (!other->nonblocking) sim_stream_await(other, other->queued);
    }
    sim_stream_await(found, found->queued);
    sim_unlock();
    SIM_ACQUIRE(found);
    return sim_context_lost(found->context);
}
