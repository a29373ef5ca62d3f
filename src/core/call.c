/* SPDX-License-Identifier: Apache-2.0
 *
 * call.c - a call is made: one thread at a time, checked, and then run.
 */
#include "core/device.h"
#include "core/group.h"

#include <stdio.h>

rondo_result rd_comm_note(rondo_comm *comm, rondo_result result)
{
    if (comm && result != RONDO_SUCCESS) snprintf(comm->error, sizeof comm->error, "%s", rd_last_error());
    return result;
}

static rondo_result run_here(rondo_comm *comm, const rd_call *call)
{
    rd_task task, *tasks[] = {&task};
    bool at_once = rd_line_is_free(&comm->line);
    if (!at_once) RD_TRY(rd_check_may_wait(comm, call->name));
    rd_task_init(&task, comm, call, 1);
    if (comm->device) RD_TRY(rd_task_order(&task));
    rd_task_take_ticket(&task);
    if (!at_once) rd_task_wait_turn(&task);
    rd_drive(tasks, 1, NULL);
    return rd_task_result(&task);
}

static rondo_result give_to(rondo_stream *stream, rondo_comm *comm, const rd_call *call)
{
    rondo_work *work = rd_work_new(1, 1);
    if (!work) return RONDO_SYSTEM_ERROR;
    work->calls[0] = *call;
    rd_task_init(&work->tasks[work->task_count++], comm, work->calls, 1);
    rondo_result result = rd_stream_submit(stream, work);
    rd_work_drop(work);
    return result;
}

static rondo_result run(rondo_comm *comm, rd_call *call, rondo_stream *stream)
{
    if (!stream && !rd_group_is_open() && rd_repeats(comm, call)) return rd_repeat(comm, call);
    rondo_result stop = rd_comm_stopped(comm);
    if (stop) {
        rd_record_write(comm); /* of one that was late, and learns it only now */
        return rd_fail(stop, "%s", comm->stop.text);
    }
    RD_TRY(rd_check_call(comm, call));
    if (stream) RD_TRY(rd_stream_check(stream, call->name));
    if (rd_group_is_open()) return rd_group_add_call(comm, call, stream);
    return stream ? give_to(stream, comm, call) : run_here(comm, call);
}

rondo_result rd_call_run(rondo_comm *comm, rd_call *call, rondo_stream *stream)
{
    rondo_result result;
    if (!comm)
        result = rd_fail(RONDO_INVALID_ARGUMENT, "%s: comm is NULL; it must come from a rondo_init call", call->name);
    else if ((result = rd_comm_enter(comm, call->name)) == RONDO_SUCCESS) {
        result = run(comm, call, stream);
        if (result != RONDO_SUCCESS) rd_comm_note(comm, result);
        rd_comm_leave(comm);
    }
    return result == RONDO_SUCCESS ? RONDO_SUCCESS : rd_group_note(result);
}
