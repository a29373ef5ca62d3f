/* SPDX-License-Identifier: Apache-2.0
 *
 * task.c - what runs on a communicator as one unit, and whose turn it is. Tasks of one communicator run one at a time,
 * in the order in which they were made, whichever threads drive them.
 */
#include "core/comm.h"

#include <string.h>

void rd_task_init(rd_task *task, rondo_comm *comm, const rd_call *calls, int count)
{
    *task = (rd_task){.comm = comm, .calls = calls, .count = count, .result = RONDO_IN_PROGRESS};
}

/* ---- Turns ---- */

void rd_task_take_ticket(rd_task *task) { task->ticket = task->comm->line.tickets++; }

bool rd_task_is_next(const rd_task *task)
{
    return atomic_load_explicit(&task->comm->line.turn, memory_order_acquire) == task->ticket;
}

/* Dekker's pattern with pass_turn: who waits says so and looks again, who passes stores and looks who waits. */
static void wait_until_turn(rd_line *line, uint64_t ticket)
{
    pthread_mutex_lock(&line->lock);
    atomic_fetch_add(&line->waiting, 1);
    while (atomic_load(&line->turn) != ticket) pthread_cond_wait(&line->moved, &line->lock);
    atomic_fetch_sub(&line->waiting, 1);
    pthread_mutex_unlock(&line->lock);
}

/* A call that is inside keeps the communicator in being. A queued one does not: as soon as the turn is passed, whoever
 * destroys the communicator may go on; so it is passed, and all is done, under the lock that that one needs. */
static void pass_turn(rd_line *line, bool queued)
{
    if (!queued) atomic_fetch_add(&line->turn, 1);
    if (!queued && !atomic_load(&line->waiting)) return;
    pthread_mutex_lock(&line->lock);
    if (queued) atomic_fetch_add(&line->turn, 1);
    pthread_cond_broadcast(&line->moved);
    pthread_mutex_unlock(&line->lock);
}

void rd_task_wait_turn(rd_task *task)
{
    if (!rd_task_is_next(task)) wait_until_turn(&task->comm->line, task->ticket);
}

void rd_tasks_drain(rondo_comm *comm)
{
    wait_until_turn(&comm->line, comm->line.tickets);
}

/* ---- Running ---- */

const rd_call *rd_task_call(const rd_task *task) { return &task->calls[task->at < task->count ? task->at : task->count - 1]; }

static rd_progress start_next(rd_task *task)
{
    rondo_comm *comm = task->comm;
    task->fused = task->count == 1 ? 1 : rd_fusable(task->calls + task->at, task->count - task->at);
    task->deadline = 0;
    rondo_result result = rd_prepare(comm, task->calls + task->at, task->fused);
    if (result != RONDO_SUCCESS) { /* the others have begun a call that this rank cannot make */
        task->result = rd_comm_end(comm, result, rd_last_error());
        return RD_FAILED;
    }
    rd_op_start(&comm->op);
    task->entry = rd_record_begin(comm->recorder, task->calls + task->at, task->fused, comm->calls);
    task->running = true;
    return RD_MOVED;
}

static void end_running(rd_task *task, rondo_result result)
{
    rondo_comm *comm = task->comm;
    if (!task->running) return;
    rd_record_end(task->entry, result);
    if (comm->trace) rd_trace_end(comm->trace, result);
    task->running = false;
}

rd_progress rd_task_advance(rd_task *task)
{
    rondo_comm *comm = task->comm;
    if (!task->running) {
        if (task->at == task->count) return RD_DONE;
        if (start_next(task) == RD_FAILED) return RD_FAILED;
    }
    rd_progress progress = rd_op_advance(&comm->op);
    if (progress != RD_DONE) return progress;
    rd_unfuse(comm, task->calls + task->at, task->fused);
    rd_member_completed(comm->member, comm->calls);
    end_running(task, RONDO_SUCCESS);
    task->at += task->fused;
    return task->at == task->count ? RD_DONE : RD_MOVED;
}

rd_progress rd_task_arm(rd_task *task)
{
    return task->running ? rd_op_arm(&task->comm->op, &task->comm->bell) : RD_MOVED;
}

rd_progress rd_task_look(rd_task *task) { return task->running ? rd_op_look(&task->comm->op) : RD_IDLE; }

void rd_task_finish(rd_task *task, rondo_result result)
{
    end_running(task, result);
    if (result != RONDO_SUCCESS) rd_record_write(task->comm);
    if (result != RONDO_SUCCESS && task->queued) task->error = strdup(task->comm->stop.text);
    task->result = result;
    pass_turn(&task->comm->line, task->queued);
}
