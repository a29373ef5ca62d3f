/* SPDX-License-Identifier: Apache-2.0 */
#include "base/gpu_mark.h"

#include "base/status.h"

#include <stdatomic.h>
#include <stdlib.h>

struct rd_gpu_mark {
    rd_gpu_marks *marks;
    rd_cu_event event;
    _Atomic int users;
    rd_gpu_mark *next; /* idle */
};

static rondo_result push(const rd_gpu_marks *marks)
{
    return rd_gpu_enter(marks->device, marks->context);
}

void rd_gpu_marks_init(rd_gpu_marks *marks, rd_cu_context context, int device)
{
    *marks = (rd_gpu_marks){.context = context, .device = device};
    pthread_mutex_init(&marks->lock, NULL);
}

void rd_gpu_marks_destroy(rd_gpu_marks *marks)
{
    bool pushed = marks->idle && push(marks) == RONDO_SUCCESS;
    while (marks->idle) {
        rd_gpu_mark *mark = marks->idle;
        marks->idle = mark->next;
        if (pushed) rd_gpu_driver()->cuEventDestroy(mark->event);
        free(mark);
    }
    if (pushed) rd_gpu_leave();
    pthread_mutex_destroy(&marks->lock);
}

static void put_back(rd_gpu_mark *mark)
{
    rd_gpu_marks *marks = mark->marks;
    pthread_mutex_lock(&marks->lock);
    mark->next = marks->idle;
    marks->idle = mark;
    pthread_mutex_unlock(&marks->lock);
}

/* In the context. */
static rondo_result make(rd_gpu_marks *marks, rd_gpu_mark **made)
{
    rd_gpu_mark *mark = calloc(1, sizeof *mark);
    if (!mark) return rd_fail_errno("no memory for a mark in a stream of GPU %d", marks->device);
    mark->marks = marks;
    rondo_result result = RD_GPU(marks->device, cuEventCreate, &mark->event, RD_CU_EVENT_DISABLE_TIMING);
    if (result == RONDO_SUCCESS)
        *made = mark;
    else
        free(mark);
    return result;
}

rondo_result rd_gpu_mark_set(rd_gpu_marks *marks, rd_cu_stream stream, rd_gpu_mark **mark)
{
    rondo_result result = RONDO_SUCCESS;
    pthread_mutex_lock(&marks->lock);
    rd_gpu_mark *found = marks->idle;
    if (found) marks->idle = found->next;
    pthread_mutex_unlock(&marks->lock);
    if ((result = push(marks)) != RONDO_SUCCESS) goto back;
    result = rd_gpu_refuse_capture(marks->device, stream);
    if (result == RONDO_SUCCESS && !found) result = make(marks, &found);
    if (result == RONDO_SUCCESS) result = RD_GPU(marks->device, cuEventRecord, found->event, stream);
    rd_gpu_leave();
    if (result != RONDO_SUCCESS) goto back;
    atomic_init(&found->users, 1);
    *mark = found;
    return RONDO_SUCCESS;

back:
    if (found) put_back(found);
    return result;
}

bool rd_gpu_mark_passed(const rd_gpu_mark *mark)
{
    if (push(mark->marks) != RONDO_SUCCESS) return true;
    rd_cu_result result = rd_gpu_driver()->cuEventQuery(mark->event);
    rd_gpu_leave();
    return result != RD_CU_ERROR_NOT_READY;
}

rd_gpu_mark *rd_gpu_mark_share(rd_gpu_mark *mark)
{
    atomic_fetch_add(&mark->users, 1);
    return mark;
}

void rd_gpu_mark_drop(rd_gpu_mark *mark)
{
    if (mark && atomic_fetch_sub(&mark->users, 1) == 1) put_back(mark);
}
