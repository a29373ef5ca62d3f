/* SPDX-License-Identifier: Apache-2.0 */
#include "core/device.h"
#include "core/stream.h"

#include "base/clock.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* This thread is a stream's and inside the function of a work. */
static _Thread_local bool in_then __attribute__((tls_model("initial-exec")));

rondo_work *rd_work_new(int tasks, int calls)
{
    pthread_condattr_t monotonic;
    size_t t = (size_t)tasks, c = (size_t)calls;
    rondo_work *work = calloc(1, sizeof *work);
    /* One block for all arrays, those of the strictest alignment first. */
    size_t each = sizeof *work->tasks + sizeof *work->mine + sizeof *work->bells;
    if (work) work->tasks = calloc(1, t * each + c * sizeof *work->calls);
    if (!work || !work->tasks) {
        free(work);
        rd_fail_errno("no memory for %d calls on a stream", calls);
        return NULL;
    }
    work->mine = (rd_task **)(work->tasks + t);
    work->bells = (rondo_bell **)(work->mine + t);
    work->calls = (rd_call *)(work->bells + t);
    atomic_init(&work->users, 1);
    work->result = RONDO_IN_PROGRESS;
    pthread_mutex_init(&work->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&work->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return work;
}

void rd_work_drop(rondo_work *work)
{
    if (atomic_fetch_sub(&work->users, 1) > 1) return;
    pthread_cond_destroy(&work->changed);
    pthread_mutex_destroy(&work->lock);
    free(work->error);
    free(work->tasks);
    free(work);
}

bool rd_work_in_then(void)
{
    return in_then;
}

rondo_result rd_work_order(rondo_work *work)
{
    rondo_result result = RONDO_SUCCESS;
    for (int i = 0; i < work->task_count && result == RONDO_SUCCESS; i++) result = rd_task_order(&work->tasks[i]);
    for (int i = 0; i < work->task_count && result != RONDO_SUCCESS; i++) {
        rd_gpu_mark_drop(work->tasks[i].mark);
        work->tasks[i].mark = NULL;
    }
    return result;
}

/* Those that are this thread's to drive, in the first places of `mine`. */
static int claim(rondo_work *work)
{
    int n = 0;
    for (int i = 0; i < work->task_count; i++)
        if (!work->tasks[i].queued || rd_task_claim(&work->tasks[i])) work->mine[n++] = &work->tasks[i];
    return n;
}

void rd_work_carry_out(rondo_work *work)
{
    rondo_result result = RONDO_SUCCESS;
    int n = claim(work);
    if (n == 1) rd_task_wait_turn(work->mine[0]);
    if (n) rd_drive(work->mine, n, work->bells);
    /* The communicators may be gone from here on. */
    for (int i = work->task_count - 1; i >= 0; i--) {
        if (work->tasks[i].result == RONDO_SUCCESS) continue;
        result = work->tasks[i].result;
        free(work->error);
        work->error = work->tasks[i].error; /* the first task's, in the end */
    }
    pthread_mutex_lock(&work->lock);
    work->result = result;
    rondo_work_fn then = work->then;
    void *context = work->then_context;
    pthread_cond_broadcast(&work->changed);
    pthread_mutex_unlock(&work->lock);
    if (!then) return;
    in_then = true;
    then(context, result);
    in_then = false;
}

/* ---- The handle ---- */

static rondo_result check(const rondo_work *work, const char *function)
{
    if (work) return RONDO_SUCCESS;
    return rd_fail(RONDO_INVALID_ARGUMENT, "%s: work is NULL; it must come from rondo_stream_work", function);
}

/* Under its lock. */
static rondo_result outcome(const rondo_work *work)
{
    if (work->result == RONDO_SUCCESS || work->result == RONDO_IN_PROGRESS) return work->result;
    return rd_fail(work->result, "%s", work->error ? work->error : rondo_result_string(work->result));
}

rondo_result rondo_work_test(rondo_work *work)
{
    RD_TRY(check(work, "rondo_work_test"));
    pthread_mutex_lock(&work->lock);
    rondo_result result = outcome(work);
    pthread_mutex_unlock(&work->lock);
    return result;
}

rondo_result rondo_work_wait(rondo_work *work, double timeout_s)
{
    RD_TRY(check(work, "rondo_work_wait"));
    if (isnan(timeout_s))
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "rondo_work_wait: timeout_s is not a number; it must be seconds, or below 0 for "
                       "as long as it takes");
    bool for_ever = timeout_s < 0 || timeout_s > 1e9;
    int64_t until = for_ever ? 0 : rd_deadline(timeout_s);
    struct timespec at = {until / 1000000000, until % 1000000000};
    pthread_mutex_lock(&work->lock);
    for (int error = 0; work->result == RONDO_IN_PROGRESS && error != ETIMEDOUT;)
        error = for_ever ? pthread_cond_wait(&work->changed, &work->lock)
                         : pthread_cond_timedwait(&work->changed, &work->lock, &at);
    rondo_result result = outcome(work);
    pthread_mutex_unlock(&work->lock);
    return result;
}

rondo_result rondo_work_then(rondo_work *work, rondo_work_fn then, void *context)
{
    RD_TRY(check(work, "rondo_work_then"));
    if (!then) return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_work_then: then is NULL; it must be a function");
    pthread_mutex_lock(&work->lock);
    rondo_result result = work->result;
    bool taken = work->then != NULL;
    if (!taken) {
        work->then = then;
        work->then_context = context;
    }
    pthread_mutex_unlock(&work->lock);
    if (taken)
        return rd_fail(RONDO_INVALID_USAGE, "rondo_work_then: this work has a function already; it can have one");
    if (result != RONDO_IN_PROGRESS) then(context, result);
    return RONDO_SUCCESS;
}

void rondo_work_free(rondo_work *work)
{
    if (work) rd_work_drop(work);
}
