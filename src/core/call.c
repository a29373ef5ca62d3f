/* SPDX-License-Identifier: Apache-2.0
 *
 * call.c - a call is made: one thread at a time, checked, and then run.
 */
#include "core/comm.h"

#include <stdio.h>

rondo_result rd_comm_note(rondo_comm *comm, rondo_result result)
{
    if (comm && result != RONDO_SUCCESS) snprintf(comm->error, sizeof comm->error, "%s", rd_last_error());
    return result;
}

static rondo_result run(rondo_comm *comm, const rd_call *call)
{
    rondo_result result = rd_comm_stopped(comm);
    if (result) return rd_fail(result, "%s", comm->stop.text);
    RD_TRY(rd_check_call(comm, call));
    rd_task task, *tasks[] = {&task};
    rd_task_init(&task, comm, call, 1);
    rd_task_take_ticket(&task);
    rd_task_wait_turn(&task);
    rd_drive(tasks, 1);
    return task.result == RONDO_SUCCESS ? RONDO_SUCCESS : rd_fail(task.result, "%s", comm->stop.text);
}

rondo_result rd_call_run(rondo_comm *comm, const rd_call *call, rondo_stream *stream)
{
    (void)stream;
    if (!comm) return rd_fail(RONDO_INVALID_ARGUMENT, "%s: comm is NULL; it must come from a rondo_init call", call->name);
    if (rd_check_process(comm, call->name) != RONDO_SUCCESS) return rd_comm_note(comm, RONDO_INVALID_USAGE);
    if (atomic_exchange_explicit(&comm->busy, 1, memory_order_acquire))
        return rd_fail(RONDO_INVALID_USAGE, "%s: another thread is inside a call on this communicator; one at a time, or "
                       "a communicator for each", call->name);
    rondo_result result = rd_comm_note(comm, run(comm, call));
    atomic_store_explicit(&comm->busy, 0, memory_order_release);
    return result;
}
