/* SPDX-License-Identifier: Apache-2.0
 *
 * stream.c - a stream has a thread of its own, which does what the caller's thread does without one: waits for the
 * task's turn on its communicator and drives it to its end. So communicators and streams do not wait for one another,
 * and one stream's calls run in order.
 *
 * What is appended gets its tickets and its place in the stream in one go, so the order in streams and the order on
 * communicators never contradict one another.
 */
#include "core/stream.h"

#include "core/cuda_stream.h"
#include "core/device.h"

#include "base/process.h"
#include "base/thread.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rondo_stream {
    rondo_stream *next; /* of all that live */
    rd_cuda_stream *cuda; /* in whose order it stands; NULL: in nobody's */
    int generation;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    rondo_work *first, *last; /* first: the one that runs */
    rondo_work *latest;       /* given last, kept for rondo_stream_work */
    uint64_t given, done;
    bool closing;
    rondo_result failed; /* the first failure since it was last told */
    char error[RD_ERROR_BYTES];
};

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
RD_HOLD_AT_FORK(all_lock)
static rondo_stream *all;

rondo_result rd_stream_check(const rondo_stream *stream, const char *function)
{
    if (!stream) return RONDO_SUCCESS;
    pthread_mutex_lock(&all_lock);
    const rondo_stream *s = all;
    while (s && s != stream) s = s->next;
    pthread_mutex_unlock(&all_lock);
    if (!s)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "%s: stream is %p, which is no stream; it must be NULL or come from "
                       "rondo_stream_create",
                       function, (const void *)stream);
    if (s->generation == rd_generation()) return RONDO_SUCCESS;
    return rd_fail(RONDO_INVALID_USAGE,
                   "%s: this process was forked after the stream was made, whose thread stays with the "
                   "parent; make one of its own here",
                   function);
}

static rondo_result check_handle(const rondo_stream *stream, const char *function)
{
    if (!stream)
        return rd_fail(RONDO_INVALID_ARGUMENT, "%s: stream is NULL; it must come from rondo_stream_create", function);
    return rd_stream_check(stream, function);
}

/* A work's function runs on the stream's thread. */
static rondo_result check_not_own(const rondo_stream *stream, const char *function)
{
    if (!pthread_equal(stream->thread, pthread_self())) return RONDO_SUCCESS;
    return rd_fail(RONDO_INVALID_USAGE,
                   "%s: called by the function of a work of this stream, which would wait for itself", function);
}

/* ---- Its thread ---- */

static void *run(void *argument)
{
    rondo_stream *stream = argument;
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        while (!stream->first && !stream->closing) pthread_cond_wait(&stream->changed, &stream->lock);
        rondo_work *work = stream->first;
        if (!work) break;
        pthread_mutex_unlock(&stream->lock);
        rd_work_carry_out(work);
        pthread_mutex_lock(&stream->lock);
        if (work->result != RONDO_SUCCESS && stream->failed == RONDO_SUCCESS) {
            stream->failed = work->result;
            snprintf(stream->error, sizeof stream->error, "%s", work->error ? work->error : "");
        }
        stream->first = work->next;
        if (!stream->first) stream->last = NULL;
        stream->done++;
        if (stream->cuda) rd_cuda_stream_done(stream->cuda, stream->done);
        pthread_cond_broadcast(&stream->changed);
        rd_work_drop(work);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

/* ---- What users do with it ---- */

static rondo_result check_new(rondo_stream *const *stream, const rondo_comm *comm, const char *function)
{
    if (!stream)
        return rd_fail(RONDO_INVALID_ARGUMENT, "%s: stream is NULL; it must point to where the handle goes", function);
    return comm ? rd_check_process(comm, function) : RONDO_SUCCESS;
}

/* Takes cuda over when it succeeds. */
static rondo_result create(rondo_stream **stream, rd_cuda_stream *cuda, const char *function)
{
    rondo_stream *made = calloc(1, sizeof *made);
    if (!made) return rd_fail_errno("%s: no memory", function);
    made->generation = rd_generation();
    made->cuda = cuda;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    if ((errno = rd_thread_start(&made->thread, "rondo-stream", run, made))) {
        rondo_result result = rd_fail_errno("%s: no thread for a stream", function);
        pthread_cond_destroy(&made->changed);
        pthread_mutex_destroy(&made->lock);
        free(made);
        return result;
    }
    pthread_mutex_lock(&all_lock);
    made->next = all;
    all = made;
    pthread_mutex_unlock(&all_lock);
    *stream = made;
    return RONDO_SUCCESS;
}

rondo_result rondo_stream_create(rondo_stream **stream, rondo_comm *comm)
{
    RD_TRY(check_new(stream, comm, "rondo_stream_create"));
    return create(stream, NULL, "rondo_stream_create");
}

rondo_result rondo_stream_from_cuda(rondo_stream **stream, void *cuda_stream, rondo_comm *comm)
{
    rd_cuda_stream *cuda;
    RD_TRY(check_new(stream, comm, "rondo_stream_from_cuda"));
    RD_TRY(rd_cuda_stream_open(&cuda, cuda_stream, comm));
    rondo_result result = create(stream, cuda, "rondo_stream_from_cuda");
    if (result != RONDO_SUCCESS) rd_cuda_stream_close(cuda);
    return result;
}

/* Its place among what GPUs are given. Under the lock. */
static rondo_result order(rondo_stream *stream, rondo_work *work)
{
    return stream->cuda ? rd_cuda_stream_order(stream->cuda, work, stream->given + 1) : rd_work_order(work);
}

rondo_result rd_stream_submit(rondo_stream *stream, rondo_work *work)
{
    pthread_mutex_lock(&stream->lock);
    rondo_result result = order(stream, work);
    if (result != RONDO_SUCCESS) {
        pthread_mutex_unlock(&stream->lock);
        return result;
    }
    for (int i = 0; i < work->task_count; i++) rd_task_queue(&work->tasks[i]);
    if (stream->last)
        stream->last->next = work;
    else
        stream->first = work;
    stream->last = work;
    atomic_fetch_add(&work->users, 2); /* in the line, and as the latest */
    rondo_work *before = stream->latest;
    stream->latest = work;
    stream->given++;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    if (before) rd_work_drop(before);
    return RONDO_SUCCESS;
}

/* Tells of a failure once. Under the lock. */
static rondo_result tell(rondo_stream *stream)
{
    rondo_result result = stream->failed;
    stream->failed = RONDO_SUCCESS;
    return result == RONDO_SUCCESS ? result : rd_fail(result, "%s", stream->error);
}

rondo_result rondo_stream_query(rondo_stream *stream)
{
    RD_TRY(check_handle(stream, "rondo_stream_query"));
    pthread_mutex_lock(&stream->lock);
    rondo_result result = stream->done < stream->given ? RONDO_IN_PROGRESS : tell(stream);
    pthread_mutex_unlock(&stream->lock);
    return result;
}

rondo_result rondo_stream_synchronize(rondo_stream *stream)
{
    RD_TRY(check_handle(stream, "rondo_stream_synchronize"));
    RD_TRY(check_not_own(stream, "rondo_stream_synchronize"));
    pthread_mutex_lock(&stream->lock);
    uint64_t until = stream->given;
    while (stream->done < until) pthread_cond_wait(&stream->changed, &stream->lock);
    rondo_result result = tell(stream);
    pthread_mutex_unlock(&stream->lock);
    return result;
}

rondo_result rondo_stream_work(rondo_stream *stream, rondo_work **work)
{
    RD_TRY(check_handle(stream, "rondo_stream_work"));
    if (!work)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "rondo_stream_work: work is NULL; it must point to where the handle goes");
    pthread_mutex_lock(&stream->lock);
    rondo_work *latest = stream->latest;
    if (latest) atomic_fetch_add(&latest->users, 1);
    pthread_mutex_unlock(&stream->lock);
    if (!latest) return rd_fail(RONDO_INVALID_USAGE, "rondo_stream_work: nothing was given to this stream yet");
    *work = latest;
    return RONDO_SUCCESS;
}

static void unlist(const rondo_stream *stream)
{
    pthread_mutex_lock(&all_lock);
    rondo_stream **at = &all;
    while (*at != stream) at = &(*at)->next;
    *at = stream->next;
    pthread_mutex_unlock(&all_lock);
}

rondo_result rondo_stream_destroy(rondo_stream *stream)
{
    if (!stream) return RONDO_SUCCESS;
    rondo_result result = rd_stream_check(stream, "rondo_stream_destroy");
    /* In a forked child the thread is missing, and its lock may be held for ever: what is left goes with the child. */
    if (result == RONDO_INVALID_USAGE) return RONDO_SUCCESS;
    RD_TRY(result);
    RD_TRY(check_not_own(stream, "rondo_stream_destroy"));
    unlist(stream);
    pthread_mutex_lock(&stream->lock);
    stream->closing = true;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->thread, NULL);
    if (stream->latest) rd_work_drop(stream->latest);
    if (stream->cuda) rd_cuda_stream_close(stream->cuda);
    result = tell(stream);
    pthread_cond_destroy(&stream->changed);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
    return result;
}
