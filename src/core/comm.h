/* SPDX-License-Identifier: Apache-2.0
 *
 * comm.h - a communicator, the only place where the parts meet.
 *   comm.c     making, asking, aborting, destroying
 *   card.c     what ranks tell one another first; the ring's order
 *   connect.c  the links
 *   api.c      the collectives, each a description of the call and one line
 *   call.c     a call: check, plan, run
 *   check.c    every argument error, in words
 *   wait.c     driving an operation to its end: spinning, sleeping, stopping
 *   memory.c   rondo_mem_alloc and registration
 */
#ifndef RD_CORE_COMM_H
#define RD_CORE_COMM_H

#include "base/bell.h"
#include "base/env.h"
#include "base/status.h"
#include "boot/boot.h"
#include "reduce/reduce.h"
#include "ring/exec.h"
#include "rondo.h"
#include "topo/topo.h"

#include <pthread.h>
#include <stdatomic.h>

/* The steps of a plan, kept for the next call. */
typedef struct rd_schedule {
    rondo_step *steps;
    int root;
} rd_schedule;

/* Why a communicator has ended; set once, by whoever comes first, in any thread. */
typedef struct rd_stop {
    _Atomic int word; /* 0: it runs; else a rondo_result, stored with release after text */
    pthread_mutex_t lock;
    char text[RD_ERROR_BYTES];
} rd_stop;

struct rondo_comm {
    int rank, size;
    int generation;       /* rd_generation() of the process that made it */
    rd_settings settings;

    rd_member *member;
    rondo_bell bell;
    rd_stop stop;
    _Atomic int busy;     /* a call is inside */
    _Atomic int woken;    /* the control plane has news that a waiting call should look at */
    uint64_t calls;       /* begun so far */
    bool overslept;       /* the last sleep ended by itself */
    uint64_t missed_bells; /* ... and there was something to do */
    long spin;            /* polls before a wait yields */

    int32_t *order;       /* ring position -> rank */
    rd_wire *out, *in;    /* [channel * size + rank]; no link where the plans need none */
    rd_wiring wiring;     /* which of them the executor uses */
    rd_reduction reductions[RONDO_DTYPES][RONDO_OPS];
    rd_schedule schedules[RONDO_ALGOS][RONDO_COLLECTIVES][2]; /* [algo][collective][wide] */
    rd_op op;             /* the call in progress */
    rd_trace *trace;      /* NULL unless RONDO_TRACE asks for one */

    char error[RD_ERROR_BYTES];
};

/* ---- connect.c ---- */

/* Exchanges what ranks must know of one another, orders the ring, makes the links. */
rondo_result rd_comm_connect(rondo_comm *comm, rd_table *table, const rd_contact *contact, int64_t deadline);
void rd_comm_disconnect(rondo_comm *comm);

/* A call as the user made it. */
typedef struct rd_call {
    const char *name;
    rondo_collective collective;
    const void *send;
    void *recv;
    size_t count; /* as the caller gave it */
    rondo_dtype dtype;
    rondo_op op;
    int root;
    bool reduces;
} rd_call;

/* ---- wait.c ---- */

void rd_stop_init(rd_stop *stop);
void rd_stop_destroy(rd_stop *stop);
/* Ends the communicator unless it has ended already; wakes whoever sleeps in a call. Any thread. */
void rd_comm_stop(rondo_comm *comm, rondo_result result, const char *text);
/* Drives comm->op, which is `call`, to its end. */
rondo_result rd_comm_drive(rondo_comm *comm, const rd_call *call);

/* ---- call.c ---- */

/* Leaves this thread's last error where rondo_last_error(comm) finds it, if result is one; returns result. */
rondo_result rd_comm_note(rondo_comm *comm, rondo_result result);

/* ---- memory.c ---- */

void rd_comm_forget_memory(const rondo_comm *comm);

/* ---- check.c ---- */

/* RONDO_INVALID_ARGUMENT unless everything is in range. */
rondo_result rd_check_call(const rondo_comm *comm, const rd_call *call, const rondo_stream *stream);
/* RONDO_INVALID_USAGE in a forked child: the communicator stays with the process that made it. */
rondo_result rd_check_process(const rondo_comm *comm, const char *function);
rondo_result rd_check_world(const char *function, int world_size, int rank);

/* ---- call.c ---- */

rondo_result rd_call_run(rondo_comm *comm, const rd_call *call, const rondo_stream *stream);

#endif
