/* SPDX-License-Identifier: Apache-2.0
 *
 * stream.h - calls that run later, on a thread.
 *   stream.c  a stream: a line of works and the thread that drives them; cuda_stream.h: one in a CUDA stream
 *   work.c    a work: what was given to a stream in one go, until nobody asks for it any more
 */
#ifndef RD_CORE_STREAM_H
#define RD_CORE_STREAM_H

#include "core/comm.h"

struct rondo_work {
    _Atomic int users; /* the stream while it is queued, and whoever holds the handle */
    rondo_work *next;
    rd_task *tasks; /* in one block with the arrays below */
    int task_count;
    rd_task **mine; /* room for driving them */
    rondo_bell **bells;
    rd_call *calls; /* of all tasks, one after the other */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    rondo_result result; /* RONDO_IN_PROGRESS until it is done */
    char *error;
    rondo_work_fn then;
    void *then_context;
};

/* ---- work.c ---- */

/* A work of no tasks with room for some. NULL: no memory, last error set. */
rondo_work *rd_work_new(int tasks, int calls);
/* On the stream's thread: drives its tasks to their end, says so to all who wait for it. */
void rd_work_carry_out(rondo_work *work);
void rd_work_drop(rondo_work *work);
/* Its tasks shall begin after what their GPUs' legacy streams have been given, where that matters. */
rondo_result rd_work_order(rondo_work *work);
/* The caller is the function of a work: it must not wait for what the same stream would have to do first. */
bool rd_work_in_then(void);

/* ---- stream.c ---- */

/* RONDO_INVALID_ARGUMENT unless it came from rondo_stream_create and lives. NULL is fine. */
rondo_result rd_stream_check(const rondo_stream *stream, const char *function);
/* Gives its tasks their tickets and appends it. The caller keeps its own use of the work, and is inside a call of all
 * communicators concerned. On failure nothing was appended. */
rondo_result rd_stream_submit(rondo_stream *stream, rondo_work *work);

#endif
