/* SPDX-License-Identifier: Apache-2.0
 *
 * ddp.h - what the files of this folder share.
 *
 *   create.c   checks what it is given, makes all parts, frees them
 *   agree.c    whether all ranks were given the same; what to say where one fails
 *   plan.c     which parameter goes into which bucket: integers only
 *   bucket.c   their memory, and the views in it
 *   step.c     ready, wait, no_sync: the life of a bucket
 *   launch.c   what becomes of a full bucket: scaled, compressed, sent, taken back
 *   unused.c   gradients that did not come
 *   sync.c     before a step: who takes part, buffers; join
 *   query.c    names, clipping, report
 *   memory.c   GPU memory: what a pointer is, copies, passes over parts
 *   convert.c  element types
 *
 * sampler.c and data_parallel.c with devices.c and places.c are by themselves.
 */
#ifndef RD_DDP_DDP_H
#define RD_DDP_DDP_H

#include "base/gpu.h"
#include "rondo_ddp.h"

#include <stdatomic.h>
#include <stdbool.h>

typedef struct rd_ddp_param {
    rondo_ddp_tensor of; /* its name is a copy */
    int bucket;
    unsigned char *view; /* into the bucket's memory */
    bool ready;          /* in this step */
    bool used;           /* ready since the last synchronised step */
    unsigned char *kept; /* a view that is lent out as zeros, until it is known whether any rank used it */
} rd_ddp_param;

typedef struct rd_ddp_bucket {
    rondo_dtype dtype;
    const int *member; /* parameters, in the order of their places */
    int members;
    size_t count;          /* elements of gradients */
    size_t marks;          /* elements behind them: see unused.c */
    unsigned char *data;   /* count + marks */
    unsigned char *mark;   /* the marks as the CPU reads them: in data; of a bucket in GPU memory, beside it */
    unsigned char *narrow; /* the same as data, compressed, on the host; NULL where it travels as it is */
    int missing;           /* gradients that this step still lacks */
    bool launched;
    rondo_work *work;        /* the last of its calls on the stream */
    int64_t started_ns;      /* when it was given to the stream */
    _Atomic int64_t done_ns; /* by the stream's thread */
} rd_ddp_bucket;

/* What ranks tell one another before a step. */
typedef struct rd_ddp_word {
    double active, samples, since_buffers;
} rd_ddp_word;

/* The GPU that the communicator uses. */
typedef struct rd_ddp_gpu {
    bool cuda;   /* this process uses CUDA: a pointer may be memory of some GPU */
    int ordinal; /* -1: the communicator uses host memory */
    rd_cu_context context;
    void *stage; /* for passes: pinned */
} rd_ddp_gpu;

struct rondo_ddp {
    rondo_ddp_config config;
    rondo_ddp_hook hook;
    rondo_comm *comm;
    int rank, size;
    rondo_stream *stream;
    rd_ddp_param *param;
    rondo_ddp_tensor *buffer;
    int params, buffers;
    rd_ddp_bucket *bucket;
    unsigned char *slab;    /* the memory of all of them: one allocation is one descriptor */
    unsigned char *narrow;  /* the same, compressed; NULL without */
    void *marks;            /* beside it, where it is GPU memory; else NULL */
    rd_ddp_gpu gpu;
    bool on_gpu;            /* buckets lie in GPU memory: some parameter does */
    int *members;           /* of all of them, one after the other */
    int *order;             /* of the parameters, by which the buckets were made */
    int buckets, next;      /* next: the first bucket that has not been launched; they go in order */
    int *arrival, arrivals; /* in the first synchronised step */
    bool rebuilt, no_sync, in_step, forwarded, joined, stopped;
    double samples, since_buffers; /* since the last synchronised step, and since buffers were made alike */
    rd_ddp_word *words;            /* of all ranks, as of the last exchange; words[size]: what this rank says */
    int first_active, active;      /* ranks of this step */
    double total;                  /* of samples */
    uint64_t steps;
    rondo_ddp_report report;
    rondo_result failed; /* stays */
    char *error;
};

/* ---- agree.c ---- */

/* Whether everybody was given the same; names the first difference. All ranks call it; `mine` is what this rank found
 * wrong with its own arguments, whose text is this thread's last error. */
rondo_result rd_ddp_agree(const rondo_ddp *ddp, rondo_result mine);
/* Every rank's text, of RD_DDP_TEXT bytes each; "" where there is nothing to say. RONDO_SUCCESS when nobody has: else
 * the first one is this thread's last error, and `result` is returned. */
enum { RD_DDP_TEXT = 1024 };
rondo_result rd_ddp_tell(const rondo_ddp *ddp, rondo_result result, const char *mine);

/* ---- plan.c ---- */

/* Puts the parameters, taken in the given order, into buckets: of_place[k] is the bucket of parameter order[k]. Buckets
 * are numbered in the order in which they are complete. Returns how many there are. */
int rd_ddp_plan(const rd_ddp_param *param, const int *order, int params, size_t first_bytes, size_t bytes,
                int *of_place);

/* ---- bucket.c ---- */

/* Buckets for that order in place of those that there are; views, and the pointers to them, move with their contents.
 * On failure everything is as before. */
rondo_result rd_ddp_make_buckets(rondo_ddp *ddp, const int *order);
void rd_ddp_free_buckets(rondo_ddp *ddp);
bool rd_ddp_is_view(const rd_ddp_param *param);

/* ---- launch.c ---- */

rondo_result rd_ddp_launch(rondo_ddp *ddp, int index);
/* Waits for it, and takes back what came. */
rondo_result rd_ddp_land(rondo_ddp *ddp, int index);

/* ---- unused.c ---- */

/* Makes a gradient that did not come count as zero. */
rondo_result rd_ddp_lend_zeros(rondo_ddp *ddp, rd_ddp_param *param);
/* Writes the marks of this rank, before the bucket leaves. */
void rd_ddp_mark(rondo_ddp *ddp, rd_ddp_bucket *bucket);
bool rd_ddp_marked(const rd_ddp_bucket *bucket, size_t mark);
/* Gives gradients that no rank had back to whom they belong. Not all copies may be done: see rd_ddp_copied. */
rondo_result rd_ddp_settle(rondo_ddp *ddp, rd_ddp_bucket *bucket);
/* Some rank lacked a gradient that it must have had: says which. All ranks call it. */
rondo_result rd_ddp_say_missing(rondo_ddp *ddp);

/* ---- step.c ---- */

rondo_result rd_ddp_check(const rondo_ddp *ddp, const char *function);
/* Remembers a failure that stays. */
rondo_result rd_ddp_failed(rondo_ddp *ddp, rondo_result result);
/* From the first ready on. */
void rd_ddp_begin(rondo_ddp *ddp);
/* Sends what has not been sent, waits for all, settles, makes new buckets after the first. */
rondo_result rd_ddp_finish(rondo_ddp *ddp);

/* ---- sync.c ---- */

/* Parameters and buffers become those of rank 0. */
rondo_result rd_ddp_start_alike(rondo_ddp *ddp);
rondo_result rd_ddp_check_buffers(const rondo_ddp *ddp, const char *function);

/* ---- memory.c ---- */

rondo_result rd_ddp_open_gpu(rondo_ddp *ddp);
void rd_ddp_close_gpu(rondo_ddp *ddp);
/* Host memory, zeroed or to be written; freed by rd_ddp_free_host, NULL is fine. */
rondo_result rd_ddp_alloc_host(const rondo_ddp *ddp, size_t bytes, void **ptr);
void rd_ddp_free_host(const rondo_ddp *ddp, void *ptr);
bool rd_ddp_is_device(const rondo_ddp *ddp, const void *ptr);
/* Whether this rank can use it; else names it: "FUNCTION: parameter 3 'w': data is ...". NULL is fine. */
rondo_result rd_ddp_check_memory(const rondo_ddp *ddp, const char *where, const char *kind, int index, const char *name,
                                 const char *what, const void *ptr);
/* Behind what CUDA's legacy stream was given; later: perhaps done only when rd_ddp_copied returns, or when what comes
 * behind it there begins. */
rondo_result rd_ddp_copy(const rondo_ddp *ddp, void *to, const void *from, size_t bytes);
rondo_result rd_ddp_copy_later(const rondo_ddp *ddp, void *to, const void *from, size_t bytes);
rondo_result rd_ddp_zero(const rondo_ddp *ddp, void *at, size_t bytes); /* later */
rondo_result rd_ddp_copied(const rondo_ddp *ddp);

/* work is called for one part of the elements after the other, `count` of them from number `first` on, where the CPU
 * reaches them. touch: what it does to them. */
typedef enum rd_ddp_touch { RD_DDP_READ = 1, RD_DDP_WRITE = 2, RD_DDP_BOTH = 3 } rd_ddp_touch;
typedef void rd_ddp_work(void *part, size_t first, size_t count, rondo_dtype dtype, void *context);
rondo_result rd_ddp_pass(const rondo_ddp *ddp, void *data, size_t count, rondo_dtype dtype, rd_ddp_touch touch,
                         rd_ddp_work *work, void *context);
rondo_result rd_ddp_scale_tensor(const rondo_ddp *ddp, void *data, size_t count, rondo_dtype dtype, double factor);

/* ---- convert.c: in memory that the CPU reaches ---- */

void rd_ddp_scale(void *data, size_t count, rondo_dtype dtype, double factor);
/* Adds the squares to sum. */
void rd_ddp_add_squares(const void *data, size_t count, rondo_dtype dtype, double *sum);
double rd_ddp_get(const void *data, size_t index, rondo_dtype dtype);
void rd_ddp_put(void *data, size_t index, rondo_dtype dtype, double value);
/* From one float type to another, rounded to nearest, ties to even. */
void rd_ddp_convert(const void *from, rondo_dtype from_type, void *to, rondo_dtype to_type, size_t count);

#endif
