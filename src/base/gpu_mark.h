/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_mark.h - a point in a CUDA stream: everything that the stream had been given when it was set. Whoever waits for
 * it looks now and then, so that the wait can be given up, and nothing of ours ever stands in a queue of the GPU behind
 * what may not end.
 */
#ifndef RD_BASE_GPU_MARK_H
#define RD_BASE_GPU_MARK_H

#include "base/gpu.h"

#include <pthread.h>

typedef struct rd_gpu_mark rd_gpu_mark;

/* Where marks of one context come from and go to. */
typedef struct rd_gpu_marks {
    rd_cu_context context;
    int device;
    pthread_mutex_t lock;
    rd_gpu_mark *idle;
} rd_gpu_marks;

void rd_gpu_marks_init(rd_gpu_marks *marks, rd_cu_context context, int device);
/* When no mark of theirs is in use. */
void rd_gpu_marks_destroy(rd_gpu_marks *marks);

/* A mark in a stream of the context, with one user. RONDO_INVALID_USAGE: that stream is being captured. */
rondo_result rd_gpu_mark_set(rd_gpu_marks *marks, rd_cu_stream stream, rd_gpu_mark **mark);
/* True also when the GPU is lost: nothing more will come. */
bool rd_gpu_mark_passed(const rd_gpu_mark *mark);
rd_gpu_mark *rd_gpu_mark_share(rd_gpu_mark *mark);
void rd_gpu_mark_drop(rd_gpu_mark *mark); /* NULL is fine */

#endif
