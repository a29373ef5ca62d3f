/* SPDX-License-Identifier: Apache-2.0
 *
 * call.h - a call from the moment it is made until it has a result.
 *
 *   call.c     one thread at a time, checked; then run at once, put into a group, or given to a stream
 *   repeat.c   ... or run at once, as the one before
 *   check.c    every argument error, in words
 *   prepare.c  the plan, the buffers and the signature of what is to run
 *   task.c     one or several calls on a communicator as the unit that waits for its turn and runs
 *   wait.c     driving tasks to their ends: spinning, sleeping, giving up
 *   scaled.c   operators made at run time
 *   estimate.c how long calls may take
 *   explain.c  what is said of calls and of their failures
 *   report.c   what ranks tell one another about their calls then
 *   record.c   the last calls, for those who ask later
 */
#ifndef RD_CORE_CALL_H
#define RD_CORE_CALL_H

#include "ring/exec.h"
#include "rondo.h"
#include "rondo_record.h"

#include <stdatomic.h>
#include <stdbool.h>

struct rd_line;
struct rd_room;

/* An all-reduce of so few bytes has sent all within a microsecond, so that its record may look at the clock after that. */
#define RD_BRIEF_BYTES 4096
/* Advances that did something: an operation of fewer, and without a look at the clock, has moved little and not slept. */
#define RD_FEW_MOVES 4

/* What calls are, beyond the collective that carries them out. Part of the signature. */
enum rd_kind {
    RD_KIND_COLLECTIVE = RONDO_RECORD_COLLECTIVE,
    RD_KIND_SPLIT = RONDO_RECORD_SPLIT,     /* an all-gather */
    RD_KIND_BARRIER = RONDO_RECORD_BARRIER, /* an all-reduce of nothing */
    RD_KIND_SEND = RONDO_RECORD_SEND,
    RD_KIND_RECV = RONDO_RECORD_RECV
};

/* A call as the user made it. */
typedef struct rd_call {
    const char *name;
    rondo_collective collective; /* not of send and recv */
    const void *send;
    void *recv;
    size_t count; /* as the caller gave it */
    rondo_dtype dtype;
    rondo_op op;
    int root; /* or the peer of send and recv */
    bool reduces;
    uint8_t kind;
    uint16_t scaled; /* of an operator made at run time: which; 0: op is a built-in one */
    bool send_on_gpu, recv_on_gpu; /* the rank's GPU reaches it */
} rd_call;

/* The calls of one communicator that run together: one call, or all of a group. Its collectives run one after the
 * other, beside them all its sends and receives at once. */
typedef struct rd_task {
    rondo_comm *comm;
    const rd_call *calls;
    int count;
    rondo_result result; /* RONDO_IN_PROGRESS until it has one */
    uint64_t ticket;     /* tasks of a communicator run in the order of their tickets */
    bool started;
    bool mixed;           /* there are sends and receives among the calls */
    bool running;         /* comm->op carries out the `fused` calls from calls[at] on */
    bool passing;         /* comm->messages carries out the sends and receives among the calls */
    bool bereft;          /* nothing could be done, and a message's peer was gone: if that is so again, it is over */
    bool warned;          /* that a rank is stopped */
    bool queued;          /* a stream has it: nobody is inside a call while it runs */
    bool keeps_error;     /* nor can they ask the communicator what failed */
    int at, fused, messages;
    uint64_t entry, first_message; /* in the flight record, of what runs */
    int64_t deadline, warn_at;     /* of what runs now; 0: not yet looked at the clock */
    long moved;                    /* advances that did something */
    struct rd_gpu_mark *mark;      /* it begins when this is passed; NULL: at once */
    char *error;          /* where it keeps its error; whoever has the task frees it */
    struct rd_task *next; /* queued on the same communicator, and not claimed */
    _Atomic int claimed;  /* RD_CLAIM_*: of a queued one, who carries it out */
} rd_task;

/* A queued task is carried out by its stream, unless its communicator has ended and somebody needs it out of the way
 * before the stream comes to it. */
enum { RD_CLAIM_NONE, RD_CLAIM_STREAM, RD_CLAIM_ENDING, RD_CLAIM_ENDED };

static inline bool rd_is_message(const rd_call *call)
{
    return call->kind == RD_KIND_SEND || call->kind == RD_KIND_RECV;
}

/* Two buffers of so many bytes that are the same or apart, as most calls have them, need no other look. */
static inline bool rd_buffers_are_usual(const rd_call *call, size_t bytes)
{
    uintptr_t send = (uintptr_t)call->send, recv = (uintptr_t)call->recv;
    if (!send || !recv) return false;
    return send == recv || send + bytes <= recv || recv + bytes <= send;
}

/* ---- call.c ---- */

rondo_result rd_call_run(rondo_comm *comm, rd_call *call, rondo_stream *stream);
/* Leaves this thread's last error where rondo_last_error(comm) finds it, if result is one; returns result. */
rondo_result rd_comm_note(rondo_comm *comm, rondo_result result);

/* ---- repeat.c ---- */

/* A call that is not for a stream or a group, and no other than an all-reduce that differs from the last operation in
 * buffers and signature only, and can run now. By who is inside a call. */
bool rd_repeats(const rondo_comm *comm, const rd_call *call);
rondo_result rd_repeat(rondo_comm *comm, const rd_call *call);

/* ---- check.c ---- */

/* RONDO_INVALID_ARGUMENT unless everything is in range. An operator made at run time is then the call's (scaled.h). */
rondo_result rd_check_call(rondo_comm *comm, rd_call *call);
/* RONDO_INVALID_USAGE in a forked child: the communicator stays with the process that made it. */
rondo_result rd_check_process(const rondo_comm *comm, const char *function);
rondo_result rd_check_world(const char *function, int world_size, int rank);
/* Calls of a group may run in any order, or as one: RONDO_INVALID_ARGUMENT when one writes what another uses. */
rondo_result rd_check_apart(const rondo_comm *comm, const rd_call *calls, int count);
/* RONDO_INVALID_USAGE in the function of a work, which its stream waits for, when the communicator has tasks queued. */
rondo_result rd_check_may_wait(const rondo_comm *comm, const char *function);
/* The larger buffer of a call holds so many times its count, on the rank that has it. */
size_t rd_call_parts(const rondo_comm *comm, const rd_call *call);
/* How much of send is read, and of recv written, on this rank. */
void rd_call_ranges(const rondo_comm *comm, const rd_call *call, size_t *send_bytes, size_t *recv_bytes);

/* ---- estimate.c ---- */

/* Seconds that these calls on a communicator may take. */
double rd_estimate(const rondo_comm *comm, const rd_call *calls, int count);

/* ---- prepare.c ---- */

/* comm->op for `count` calls, which are one or can be fused. Numbers them. */
rondo_result rd_prepare(rondo_comm *comm, const rd_call *calls, int count);
/* The same for a call that rd_repeats. */
void rd_prepare_again(rondo_comm *comm, const rd_call *call);
/* How many calls from the first on run as one operation: small all-reduces of one type and operator, or, on GPUs,
 * collectives of one type that are one launch. */
int rd_fusable(const rondo_comm *comm, const rd_call *calls, int count);
/* After comm->op is done: hands out the results of fused calls. */
void rd_unfuse(rondo_comm *comm, const rd_call *calls, int count);
/* comm->messages for the sends and receives among the calls; those to the rank itself are done here. Returns how many
 * there are in *messages, and *first is the entry of the first in the flight record; the others' follow. */
rondo_result rd_prepare_messages(rondo_comm *comm, const rd_call *calls, int count, int *messages, uint64_t *first);
/* Then the links of those that this rank sends. Waits for peers. */
rondo_result rd_link_messages(rondo_comm *comm, int messages);

/* comm->op for what comes after it (comm->spread), as a part of the same call. */
rondo_result rd_prepare_spread(rondo_comm *comm);
/* Room in host memory for so many bytes, kept for later calls; what was in it is lost if it must grow. what: of which the
 * bytes are. */
rondo_result rd_room_hold(struct rd_room *room, size_t bytes, const char *what);

/* ---- strict.c ---- */

/* It takes another way than usual, so that every element is added in the order of ranks: that is asked for, and shows. */
bool rd_is_strict(const rondo_comm *comm, const rd_call *call);
/* Only where comm->strict. *first is what is to be done for a call: itself, or what strict sums begin with. */
rondo_result rd_strict_first(rondo_comm *comm, const rd_call *call, rd_call *first);
/* After the last of it: this rank's part of the result to where it belongs. */
rondo_result rd_strict_take(rondo_comm *comm, const rd_call *call);

/* ---- task.c ---- */

void rd_task_init(rd_task *task, rondo_comm *comm, const rd_call *calls, int count);
void rd_task_wait_turn(rd_task *task);
/* Waits for all tasks of the communicator. By a thread that is inside a call. */
void rd_tasks_drain(rondo_comm *comm);
/* The same for one that a stream will drive. */
void rd_task_queue(rd_task *task);
/* By the stream: false: it has been ended, and so may have been its communicator. */
bool rd_task_claim(rd_task *task);
/* Somebody may wait for a turn on a communicator that has ended now. */
void rd_line_wake(struct rd_line *line);

/* It is its communicator's only call, and comm->op carries it out, which has moved so often. entry: in the flight record. */
void rd_task_take_over(rd_task *task, uint64_t entry, long moved);
/* Does what can be done. RD_DONE: all its calls are done; RD_FAILED: task->result is set, or the operation that
 * rd_task_stuck gives says how. */
rd_progress rd_task_advance(rd_task *task);
rd_progress rd_task_arm(rd_task *task);
/* After arm: RD_FAILED if a peer makes another call. */
rd_progress rd_task_look(rd_task *task);
/* The operation that failed or is not done, and, for messages, the call. */
const rd_op *rd_task_stuck(const rd_task *task, const rd_call **call);
/* A rank that is gone, and with which a message is not done; it never will be, if nothing can be done now. -1: none. */
int rd_task_bereft(const rd_task *task);
/* What the call that it is shall return; a failure is then this thread's last error, too. */
rondo_result rd_task_result(const rd_task *task);
/* The task has its result; the next one on its communicator may go. */
void rd_task_finish(rd_task *task, rondo_result result);

/* ---- wait.c ---- */

/* Drives n tasks, on n communicators, until each has a result. bells: room for as many; NULL for one task. */
void rd_drive(rd_task *const *tasks, int n, rondo_bell **bells);

/* The same for one that runs (rd_task_take_over), and whose last advance returned `progress`. */
void rd_drive_on(rd_task *task, rd_progress progress);

/* ---- explain.c ---- */

#define RD_CALL_TEXT 192

/* "rondo_all_reduce of 8 float32, sum (call 7 on rank 2)" */
void rd_describe_call(const rondo_comm *comm, const rd_call *call, char text[RD_CALL_TEXT]);
/* Fails the task's call and all later ones on its communicator, tells the other ranks, and returns what all are told.
 */
rondo_result rd_explain_failure(rd_task *task);
rondo_result rd_explain_timeout(rd_task *task);
rondo_result rd_explain_left(rd_task *task, const char *left);
rondo_result rd_explain_bereft(rd_task *task);
/* Its GPU fails; this thread's last error says how. */
rondo_result rd_explain_gpu(rd_task *task);
/* Warnings: the call has become slow; it waits while a rank is stopped (false: none is). */
void rd_explain_slow(rd_task *task);
bool rd_explain_stopped(rd_task *task);

#endif
