/* SPDX-License-Identifier: Apache-2.0
 *
 * task.c - what runs on a communicator as one unit, and whose turn it is. Tasks of one communicator run one at a time,
 * in the order in which they were made, whichever threads drive them.
 */
#include "core/device.h"

#include "base/dtype.h"
#include "base/hot.h"

#include <sched.h>
#include <string.h>

/* Field by field: every call pays for this, and gcc clears a structure of this size as a whole by the slowest way. */
void rd_task_init(rd_task *task, rondo_comm *comm, const rd_call *calls, int count)
{
    task->comm = comm;
    task->calls = calls;
    task->count = count;
    task->result = RONDO_IN_PROGRESS;
    task->started = task->mixed = task->running = task->passing = false;
    task->bereft = task->warned = task->queued = task->keeps_error = false;
    task->at = task->fused = task->messages = 0;
    task->ticket = task->entry = task->first_message = 0;
    task->deadline = task->warn_at = 0;
    task->moved = 0;
    task->error = NULL;
    task->mark = NULL;
    task->next = NULL;
    atomic_init(&task->claimed, RD_CLAIM_NONE);
}

/* ---- Turns ---- */

/* Of a call that is inside: nobody else can be, so no task comes after it, and nobody waits for one. */
static void pass_turn(rd_task *task)
{
    atomic_store_explicit(&task->comm->line.turn, task->ticket + 1, memory_order_release);
}

/* A queued task does not keep the communicator in being: as soon as the turn is passed, whoever destroys the
 * communicator may go on; so it is passed, and all is done, under the lock that that one needs. */
static void pass_queued_turn(rd_line *line)
{
    pthread_mutex_lock(&line->lock);
    atomic_fetch_add(&line->turn, 1);
    pthread_cond_broadcast(&line->moved);
    pthread_mutex_unlock(&line->lock);
}

void rd_line_wake(rd_line *line)
{
    pthread_mutex_lock(&line->lock);
    pthread_cond_broadcast(&line->moved);
    pthread_mutex_unlock(&line->lock);
}

/* The task whose turn it is, if it is queued and its stream has not come to it. Under the lock. */
static rd_task *claim_idle(rd_line *line)
{
    rd_task *task = line->first;
    int none = RD_CLAIM_NONE;
    if (!task || task->ticket != atomic_load(&line->turn)) return NULL;
    if (!atomic_compare_exchange_strong(&task->claimed, &none, RD_CLAIM_ENDING)) return NULL;
    line->first = task->next;
    if (!line->first) line->last = NULL;
    return task;
}

static void end_idle(rd_task *task, rondo_result stop)
{
    rd_line *line = &task->comm->line;
    task->error = strdup(task->comm->stop.text);
    rd_gpu_mark_drop(task->mark);
    task->result = stop;
    atomic_store_explicit(&task->claimed, RD_CLAIM_ENDED, memory_order_release);
    pass_queued_turn(line);
}

/* On a communicator that has ended, tasks that wait behind something else on their streams are ended on the way. */
static void wait_until_turn(rondo_comm *comm, uint64_t ticket)
{
    rd_line *line = &comm->line;
    pthread_mutex_lock(&line->lock);
    while (atomic_load(&line->turn) != ticket) {
        rondo_result stop = rd_comm_stopped(comm);
        rd_task *idle = stop ? claim_idle(line) : NULL;
        if (!idle) {
            pthread_cond_wait(&line->moved, &line->lock);
            continue;
        }
        pthread_mutex_unlock(&line->lock);
        end_idle(idle, stop);
        pthread_mutex_lock(&line->lock);
    }
    pthread_mutex_unlock(&line->lock);
}

void rd_task_wait_turn(rd_task *task)
{
    if (!rd_task_is_next(task)) wait_until_turn(task->comm, task->ticket);
}

void rd_tasks_drain(rondo_comm *comm)
{
    wait_until_turn(comm, comm->line.tickets);
}

void rd_task_queue(rd_task *task)
{
    rd_line *line = &task->comm->line;
    task->queued = task->keeps_error = true;
    task->next = NULL;
    pthread_mutex_lock(&line->lock);
    rd_task_take_ticket(task);
    if (line->last)
        line->last->next = task;
    else
        line->first = task;
    line->last = task;
    pthread_mutex_unlock(&line->lock);
}

bool rd_task_claim(rd_task *task)
{
    int none = RD_CLAIM_NONE;
    if (!atomic_compare_exchange_strong(&task->claimed, &none, RD_CLAIM_STREAM)) {
        while (atomic_load_explicit(&task->claimed, memory_order_acquire) != RD_CLAIM_ENDED) sched_yield();
        return false;
    }
    /* It is ours, and so the communicator stays until it is finished. */
    rd_line *line = &task->comm->line;
    pthread_mutex_lock(&line->lock);
    rd_task **at = &line->first, *before = NULL;
    while (*at != task) before = *at, at = &(*at)->next;
    *at = task->next;
    if (line->last == task) line->last = before;
    pthread_mutex_unlock(&line->lock);
    return true;
}

/* ---- Collectives ---- */

static rondo_result fail(rd_task *task, rondo_result result)
{
    return task->result = rd_comm_end(task->comm, result, rd_last_error());
}

/* The next collective among the calls, or their end. */
static void skip_messages(rd_task *task)
{
    while (task->mixed && task->at < task->count && rd_is_message(&task->calls[task->at])) task->at++;
}

/* It looks at the clock when it has sent what it can, and would only wait. Not where a GPU may take its time before
 * that. */
static bool is_short(const rondo_comm *comm, const rd_call *calls, int fused)
{
    return fused == 1 && !comm->device && !calls->scaled && calls->collective == RONDO_COLL_ALL_REDUCE &&
           calls->count * rd_dtype_bytes(calls->dtype) <= RD_BRIEF_BYTES;
}

/* Calls of one launch have an entry each in the flight record, those that are fused one for all. */
static bool is_launch(const rd_task *task)
{
    return task->fused > 1 && task->comm->on_gpus;
}

RD_APART void begin_launch(rd_task *task, const rd_call *calls)
{
    rondo_comm *comm = task->comm;
    for (int i = 0; i < task->fused; i++) {
        uint64_t entry = rd_record_begin(comm->recorder, &calls[i], 1, comm->calls + (uint64_t)i + 1);
        if (i == 0) task->entry = entry; /* the others' follow */
        rd_record_time(comm->recorder, entry);
    }
}

static void begin_entry(rd_task *task, const rd_call *calls)
{
    rondo_comm *comm = task->comm;
    if (is_launch(task)) {
        begin_launch(task, calls);
        return;
    }
    task->entry = rd_record_begin(comm->recorder, calls, task->fused, comm->calls + (uint64_t)task->fused);
    if (!is_short(comm, calls, task->fused)) rd_record_time(comm->recorder, task->entry);
}

static void end_entry(rd_task *task, rondo_result result, bool at_once)
{
    int others = is_launch(task) ? task->fused - 1 : 0;
    for (int i = 0; i <= others; i++)
        rd_record_end(task->comm->recorder, task->entry + (uint64_t)i, result, at_once);
}

void rd_task_take_over(rd_task *task, uint64_t entry, long moved)
{
    task->started = task->running = true;
    task->fused = 1;
    task->entry = entry;
    task->moved = moved;
    atomic_store_explicit(&task->comm->woken, 1, memory_order_relaxed); /* who left before this call matters, too */
}

static rd_progress start_next(rd_task *task)
{
    rondo_comm *comm = task->comm;
    const rd_call *calls = task->calls + task->at;
    int fused = task->count == 1 ? 1 : rd_fusable(comm, calls, task->count - task->at);
    task->fused = fused;
    if (!task->passing) task->deadline = 0;                       /* messages have waited all along */
    atomic_store_explicit(&comm->woken, 1, memory_order_relaxed); /* who left before this call matters, too */
    /* First, since it may take a while to reach a peer: until then this rank would pass for one that has not called. */
    begin_entry(task, calls);
    rondo_result result = rd_prepare(comm, calls, fused);
    if (result != RONDO_SUCCESS) { /* the others have begun a call that this rank cannot make */
        end_entry(task, fail(task, result), false);
        return RD_FAILED;
    }
    rd_op_start(&comm->op);
    task->running = true;
    return RD_MOVED;
}

RD_HOT void end_running(rd_task *task, rondo_result result)
{
    rondo_comm *comm = task->comm;
    end_entry(task, result, result == RONDO_SUCCESS && !task->deadline && task->moved < RD_FEW_MOVES);
    if (comm->trace) rd_trace_end(comm->trace, result);
    task->running = false;
}

/* Receiving ends that peers have made meanwhile. */
static bool take_links(rondo_comm *comm, rd_op *op, rd_lane lane)
{
    bool taken = false;
    for (int i = 0; i < op->transfer_count && op->peers.unlinked; i++) {
        rd_transfer *t = &op->transfers[i];
        if (t->sends || !rd_links_take(comm, lane, t->peer)) continue;
        rd_op_linked(op, t->wire);
        taken = true;
    }
    return taken;
}

static bool awaits_links(const rd_op *op)
{
    return op->by == RD_BY_PEERS && op->peers.unlinked;
}

/* An operation is done. */
RD_APART rd_progress go_on_strictly(rd_task *task)
{
    rondo_comm *comm = task->comm;
    bool more = comm->spreads;
    if (more && comm->trace) rd_trace_end(comm->trace, RONDO_SUCCESS);
    rondo_result result = more ? rd_prepare_spread(comm) : rd_strict_take(comm, task->calls + task->at);
    if (result != RONDO_SUCCESS) {
        task->result = more ? fail(task, result) : rd_explain_gpu(task); /* who takes moves from host to GPU at most */
        return RD_FAILED;
    }
    if (!more) return RD_DONE;
    rd_op_start(&comm->op);
    return RD_MOVED;
}

static rd_progress advance_collectives(rd_task *task)
{
    rondo_comm *comm = task->comm;
    bool begins = !task->running;
    if (begins) {
        skip_messages(task);
        if (task->at == task->count) return RD_DONE;
        if (start_next(task) == RD_FAILED) return RD_FAILED;
    }
    if (awaits_links(&comm->op)) take_links(comm, &comm->op, RD_LANE_COLLECTIVES);
    rd_progress progress = rd_op_advance(&comm->op);
    if (begins && is_short(comm, task->calls + task->at, task->fused)) rd_record_time(comm->recorder, task->entry);
    if (progress != RD_DONE) return progress;
    if (comm->device) rd_place_back(comm, RD_LANE_COLLECTIVES);
    if (comm->strict && (progress = go_on_strictly(task)) != RD_DONE) return progress;
    if (task->fused > 1 && !is_launch(task)) rd_unfuse(comm, task->calls + task->at, task->fused);
    rd_member_completed(comm->member, comm->calls);
    end_running(task, RONDO_SUCCESS);
    task->at += task->fused;
    skip_messages(task);
    return task->at == task->count ? RD_DONE : RD_MOVED;
}

/* ---- Messages ---- */

static bool has_messages(const rd_task *task)
{
    int i = 0;
    do
        if (rd_is_message(&task->calls[i])) return true;
    while (++i < task->count);
    return false;
}

static void end_messages(rd_task *task, rondo_result result)
{
    for (int i = 0; i < task->messages; i++)
        rd_record_end(task->comm->recorder, task->first_message + (uint64_t)i, result, false);
    task->passing = false;
}

static rd_progress start_messages(rd_task *task)
{
    rondo_comm *comm = task->comm;
    rondo_result result = rd_prepare_messages(comm, task->calls, task->count, &task->messages, &task->first_message);
    if (result != RONDO_SUCCESS) {
        fail(task, result);
        return RD_FAILED;
    }
    task->passing = task->messages > 0;
    result = rd_link_messages(comm, task->messages);
    if (result != RONDO_SUCCESS) {
        end_messages(task, fail(task, result));
        return RD_FAILED;
    }
    rd_op_start(&comm->messages);
    return RD_MOVED;
}

static rd_progress advance_messages(rd_task *task)
{
    rondo_comm *comm = task->comm;
    if (awaits_links(&comm->messages)) take_links(comm, &comm->messages, RD_LANE_MESSAGES);
    rd_progress progress = rd_op_advance(&comm->messages);
    if (progress == RD_DONE && comm->device) rd_place_back(comm, RD_LANE_MESSAGES);
    if (progress == RD_DONE) end_messages(task, RONDO_SUCCESS);
    return progress;
}

int rd_task_bereft(const rd_task *task)
{
    const rondo_comm *comm = task->comm;
    for (int i = 0; task->passing && i < task->messages; i++) {
        const rd_transfer *t = &comm->messages.transfers[i];
        /* What is still in a socket arrives before its end does, which the link tells. */
        if (t->wire->link && (t->wire->link->caps & (RONDO_LINK_SLOTS | RONDO_LINK_STAGED)) != RONDO_LINK_SLOTS)
            continue;
        if (t->done < t->slices && rd_member_is_gone(comm->member, t->peer)) return t->peer;
    }
    return -1;
}

/* ---- Both ---- */

rd_progress rd_task_advance(rd_task *task)
{
    rd_progress messages = RD_DONE;
    if (!task->started) {
        task->started = true;
        task->mixed = has_messages(task);
        if (task->mixed && start_messages(task) == RD_FAILED) return RD_FAILED;
    }
    if (task->passing && (messages = advance_messages(task)) == RD_FAILED) return RD_FAILED;
    rd_progress collectives = advance_collectives(task);
    if (messages == RD_DONE || collectives == RD_FAILED) return collectives;
    return collectives == RD_DONE || messages == RD_MOVED ? messages : collectives;
}

rd_progress rd_task_arm(rd_task *task)
{
    rondo_comm *comm = task->comm;
    rd_progress progress = RD_IDLE;
    if (task->running) {
        if (awaits_links(&comm->op) && take_links(comm, &comm->op, RD_LANE_COLLECTIVES)) return RD_MOVED;
        progress = rd_op_arm(&comm->op, &comm->bell);
    }
    if (!task->passing || progress != RD_IDLE) return progress;
    if (awaits_links(&comm->messages) && take_links(comm, &comm->messages, RD_LANE_MESSAGES)) return RD_MOVED;
    return rd_op_arm(&comm->messages, &comm->bell);
}

rd_progress rd_task_look(rd_task *task)
{
    return task->running ? rd_op_look(&task->comm->op) : RD_IDLE;
}

const rd_op *rd_task_stuck(const rd_task *task, const rd_call **call)
{
    const rondo_comm *comm = task->comm;
    bool messages = task->passing && (!task->running || comm->messages.failure != RONDO_LINK_OK);
    *call = &task->calls[task->at < task->count ? task->at : task->count - 1];
    if (!messages) return &comm->op;
    for (int i = task->messages - 1; i >= 0; i--) {
        const rd_transfer *t = &comm->messages.transfers[i];
        bool failed = comm->messages.failure == RONDO_LINK_OK || t->wire == comm->messages.failed;
        if (failed && t->done < t->slices) *call = &task->calls[t->step];
    }
    return &comm->messages;
}

void rd_task_finish(rd_task *task, rondo_result result)
{
    if (task->running) end_running(task, result);
    if (task->passing) end_messages(task, result);
    if (task->mark) rd_gpu_mark_drop(task->mark);
    if (result != RONDO_SUCCESS) rd_record_write(task->comm);
    if (result != RONDO_SUCCESS && task->keeps_error) task->error = strdup(task->comm->stop.text);
    task->result = result;
    if (task->queued) pass_queued_turn(&task->comm->line);
    else pass_turn(task);
}

rondo_result rd_task_result(const rd_task *task)
{
    return task->result == RONDO_SUCCESS ? RONDO_SUCCESS : rd_fail(task->result, "%s", task->comm->stop.text);
}
