/* SPDX-License-Identifier: Apache-2.0
 *
 * comm.h - a communicator, the only place where the parts meet.
 *   start.c    making it
 *   split.c    ... from another one
 *   comm.c     asking, aborting, finalizing, destroying
 *   card.c     what ranks tell one another first; the ring's order
 *   around.c   ... and their networks
 *   connect.c  the links that a communicator starts with
 *   edges.c    ... and how they are made
 *   hierarchy.c  the links and the choice of hierarchical all-reduces
 *   api.c      the collectives, each a description of the call and one line
 *   reach.c    what making a link takes, then and later
 *   hello.c    the first bytes of a link
 *   links.c    links beyond the ring's neighbours, made on demand
 *   pool.c     ... and the GPU memory for their slots
 *   stop.c     how a communicator ends, once
 *   scaled.c   operators made at run time
 *   memory.c   rondo_mem_alloc and registration
 *   ways.c     how far ranks are from GPUs and network cards
 *   device.c   the rank's GPU
 * and call.h has the files through which a call goes.
 */
#ifndef RD_CORE_COMM_H
#define RD_CORE_COMM_H

#include "base/bell.h"
#include "base/env.h"
#include "base/gpu_mark.h"
#include "base/status.h"
#include "boot/boot.h"
#include "core/call.h"
#include "core/links.h"
#include "core/record.h"
#include "reduce/reduce.h"
#include "topo/topo.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct rd_scaled rd_scaled;

typedef struct rd_room {
    void *memory;
    size_t bytes;
} rd_room;

/* The steps of a plan, kept for the next call. */
typedef struct rd_schedule {
    rondo_step *steps;
    int root;
} rd_schedule;

/* The calls whose operations differ in buffers and signature only. */
typedef struct rd_shape {
    bool known;
    bool keeps; /* this rank has a result */
    bool repeats; /* plain calls like it may begin without a task */
    rondo_collective collective;
    rondo_dtype dtype;
    rondo_op op;
    int root;
    size_t count, bytes;
} rd_shape;

static inline bool rd_is_shape(const rd_shape *shape, const rd_call *call)
{
    return shape->known && shape->count == call->count && shape->collective == call->collective &&
           shape->dtype == call->dtype && shape->op == call->op && shape->root == call->root;
}

/* Why a communicator has ended; set once, by whoever comes first, in any thread. */
typedef struct rd_stop {
    _Atomic int word;    /* 0: it runs; else a rondo_result, stored with release after text */
    _Atomic int aborted; /* by rondo_comm_abort, whatever the word says: a shrink runs on what has ended */
    pthread_mutex_t lock;
    char text[RD_ERROR_BYTES];
} rd_stop;

/* Tasks run one at a time, in the order in which they were made. */
typedef struct rd_line {
    _Atomic uint64_t tickets; /* handed out; by the thread that is inside a call */
    _Atomic uint64_t turn;    /* of the task that may run */
    rd_task *first, *last; /* queued, and not claimed */
    pthread_mutex_t lock;
    pthread_cond_t moved;
} rd_line;

/* All tasks so far are done. For who is inside a call; for others it may change at once. */
static inline bool rd_line_is_free(const rd_line *line)
{
    return atomic_load_explicit(&line->turn, memory_order_acquire) ==
           atomic_load_explicit(&line->tickets, memory_order_relaxed);
}

/* Host memory that a GPU reaches, where what lies elsewhere stands for as long as an operation takes. */
typedef struct rd_staged {
    void *to, *from;
    size_t bytes;
} rd_staged;

/* Memory that was too small. To free it would wait for the GPU, where another rank's kernel may wait for this rank: so it
 * stays as long as the communicator. Each is at most half of the next, so that all are no more than the one in use. */
typedef struct rd_outgrown {
    void *memory[64];
    int count;
} rd_outgrown;

typedef struct rd_staging {
    void *memory;
    size_t room, used;
    rd_outgrown outgrown;
    rd_staged *results; /* to be copied when it is done */
    int count, results_room;
} rd_staging;

enum { RD_STARTING = 1, RD_STARTED = 2 };

struct rondo_comm {
    int rank, size;
    int generation; /* rd_generation() of the process that made it */
    rd_settings settings;

    _Atomic int
        starting; /* RD_STARTING until the thread `starter` has made it, RD_STARTED then; 0: it was never there */
    pthread_t starter;
    bool made; /* its ranks know one another */
    bool finalized;

    struct rd_device *device; /* the GPU that this rank uses; NULL: none */
    struct rd_device *messenger; /* ... for messages: on a stream of their own, since a kernel that does a collective may
                                    wait for a rank that waits for a message of the same group */
    struct rd_pool *pool;     /* GPU memory for links on demand; NULL: none */
    bool cuda;                /* somebody in this process uses GPUs: pointers are looked at */
    bool on_gpus;             /* some rank of this communicator uses one */
    bool fast;                /* partial sums of narrow types are rounded to the type at each hop of a ring */
    bool strict;              /* every element's terms are added in the order of ranks, which is the ring's */
    rd_staging stage[RD_LANES];

    rd_member *member;
    rondo_bell bell;
    rd_stop stop;
    _Atomic int busy;  /* a call is inside */
    _Atomic int woken; /* the control plane has news that a waiting call should look at */
    rd_line line;
    uint64_t calls;        /* begun so far; by the task that runs */
    uint64_t splits;       /* so far; the same on all ranks */
    bool overslept;        /* the last sleep ended by itself */
    uint64_t missed_bells; /* ... and there was something to do */
    bool crowded;          /* the ranks of this host take turns on its processors */
    long spin, ring_spin;  /* polls before a wait yields: of operations in which all meet all, and of the others */

    int32_t *order;    /* [channel * size + position on its ring]: rank */
    bool one_order;    /* of all channels */
    rd_link slowest;   /* hop of the first ring; zero where there is none */
    rd_wire *out, *in; /* [channel * size + rank]; no link where the plans need none */
    rd_wiring wiring;  /* which of them the executor uses */
    struct rd_hierarchy *hierarchy; /* NULL: no hierarchical all-reduces */
    rd_reduction reductions[RONDO_DTYPES][RONDO_OPS];
    rd_schedule schedules[RONDO_ALGOS][RONDO_COLLECTIVES][2]; /* [algo][collective][wide] */
    rd_schedule ring_schedules[RD_MAX_CHANNELS][RONDO_COLLECTIVES]
                              [2]; /* likewise, where channels differ in their order */
    rd_course courses[RD_MAX_CHANNELS];
    rd_op op;                                                 /* the collective in progress */
    rd_shape shape;                                           /* of op */
    rd_call spread;                                           /* strict.c: what follows op, if ... */
    bool spreads;                                             /* ... something does; then op is call ... */
    uint64_t strict_call;                                     /* ... number so */
    rd_links links;                                           /* beyond the ring */
    rd_op messages;                                           /* the sends and receives in progress */
    rd_transfer *transfers[RD_LANES];                         /* of messages, of op */
    int transfer_room[RD_LANES];
    rd_room together; /* where small all-reduces lie one after the other, to run as one; or what a strict sum has beyond
                         what its rank asked for */
    rd_scaled *scaled;                   /* operators made at run time */
    rd_room scaled_here, scaled_on_gpu;  /* for a message that one of them scales */
    rd_outgrown scaled_outgrown;         /* of the latter */
    void *scaled_factor;                 /* on the GPU: repeated */
    rd_recorder *recorder;
    rondo_comm *next_recorded;
    _Atomic int recorded;  /* its record has been written */
    unsigned char job[16]; /* with number: which communicator this is, the same on all ranks */
    uint32_t number;
    rd_trace *trace; /* NULL unless RONDO_TRACE asks for one */

    char error[RD_ERROR_BYTES];
};

/* Its place in the order of tasks on its communicator. By the thread that is inside the call. */
static inline void rd_task_take_ticket(rd_task *task)
{
    rd_line *line = &task->comm->line;
    task->ticket = atomic_load_explicit(&line->tickets, memory_order_relaxed);
    atomic_store_explicit(&line->tickets, task->ticket + 1, memory_order_relaxed); /* nobody else is inside */
}
static inline bool rd_task_is_next(const rd_task *task)
{
    return atomic_load_explicit(&task->comm->line.turn, memory_order_acquire) == task->ticket;
}

/* All its ranks share a host, and all-reduces go straight to whom they concern. */
static inline bool rd_is_flat(const rondo_comm *comm)
{
    return comm->wiring.flat_out && !comm->on_gpus;
}

/* ---- comm.c ---- */

static inline bool rd_comm_is_starting(const rondo_comm *comm)
{
    return atomic_load_explicit(&comm->starting, memory_order_acquire) == RD_STARTING;
}
/* RONDO_INVALID_USAGE when another thread is inside a call on it, or it is not started yet. */
rondo_result rd_comm_enter(rondo_comm *comm, const char *function);
static inline void rd_comm_leave(rondo_comm *comm)
{
    atomic_store_explicit(&comm->busy, 0, memory_order_release);
}
/* Leaves a text where rondo_last_error(comm) finds it, unless a thread is inside. */
void rd_comm_tell(rondo_comm *comm, const char *text);
/* Frees what there is of it; whatever is not there is zero. */
void rd_comm_discard(rondo_comm *comm);

/* ---- connect.c ---- */

/* Exchanges what ranks must know of one another, orders the ring, makes the links. */
rondo_result rd_comm_connect(rondo_comm *comm, rd_table *table, const rd_contact *contact, int64_t deadline);
void rd_comm_disconnect(rondo_comm *comm);

/* ---- stop.c ---- */

void rd_stop_init(rd_stop *stop);
void rd_stop_destroy(rd_stop *stop);
/* Ends the communicator unless it has ended already; wakes whoever sleeps in a call. Any thread. */
void rd_comm_stop(rondo_comm *comm, rondo_result result, const char *text);
/* Why it has ended; RONDO_SUCCESS while it runs. */
static inline rondo_result rd_comm_stopped(const rondo_comm *comm)
{
    return (rondo_result)atomic_load_explicit(&comm->stop.word, memory_order_acquire);
}
/* Ends it, tells the other ranks, and returns the result that it ended with: someone may have come first. */
rondo_result rd_comm_end(rondo_comm *comm, rondo_result result, const char *text);
/* Ends it with RONDO_ABORTED here and RONDO_REMOTE_ERROR elsewhere. Any thread, also while another makes it: that one
 * sets the member, and then looks whether the communicator still runs. */
void rd_comm_abort(rondo_comm *comm);
/* ... in words of the caller's. */
void rd_comm_abort_because(rondo_comm *comm, const char *why);
/* As rd_comm_end, for one that may be being made by another thread. Who aborts does so here: RONDO_ABORTED is
 * RONDO_REMOTE_ERROR elsewhere. */
void rd_comm_give_up(rondo_comm *comm, rondo_result result, const char *text);
void rd_comm_set_member(rondo_comm *comm, rd_member *member);

/* ---- memory.c ---- */

void rd_comm_forget_memory(const rondo_comm *comm);

#endif
