/* SPDX-License-Identifier: Apache-2.0
 *
 * repeat.c - an all-reduce like the last, as training loops make them, in host memory. What was checked and planned then
 * stands, and it begins without a task, which is for what waits: it becomes one if it takes long.
 *
 * Nothing that could be done later comes before its first slices are under way: the peers wait for these.
 */
#include "core/comm.h"

#include "base/hot.h"

#define POLLS 200 /* before it becomes a task, of ranks that would not yield sooner; in shared memory some microseconds */

bool rd_repeats(const rondo_comm *comm, const rd_call *call)
{
    const rd_shape *shape = &comm->shape;
    /* First: the shape is of whoever has the turn. A line that is free stays so, since nobody else is inside. */
    if (!rd_line_is_free(&comm->line)) return false;
    return rd_is_shape(shape, call) && shape->repeats && (!shape->count || rd_buffers_are_usual(call, shape->bytes)) &&
           !rd_comm_stopped(comm);
}

static uint64_t begin_record(const rondo_comm *comm, const rd_call *call)
{
    uint64_t entry = rd_record_begin(comm->recorder, call, 1, comm->calls);
    rd_record_time(comm->recorder, entry);
    return entry;
}

/* It runs, and `progress` is what its last advance returned. */
RD_APART rondo_result go_on(rondo_comm *comm, const rd_call *call, uint64_t entry, rd_progress progress, long moved)
{
    rd_task task;
    rd_task_init(&task, comm, call, 1);
    rd_task_take_ticket(&task);
    rd_task_take_over(&task, entry, moved);
    rd_drive_on(&task, progress);
    return rd_task_result(&task);
}

rondo_result rd_repeat(rondo_comm *comm, const rd_call *call)
{
    rd_op *op = &comm->op;
    bool brief = comm->shape.bytes <= RD_BRIEF_BYTES;
    long moved = 0, idle = comm->spin < POLLS ? POLLS : 0;
    uint64_t entry = 0;
    rd_prepare_again(comm, call);
    if (!brief) entry = begin_record(comm, call);
    rd_op_start_again(op);
    unsigned floats = rd_fp_enter();
    rd_progress progress = rd_op_advance(op);
    if (brief) entry = begin_record(comm, call);
    while (progress == RD_MOVED || progress == RD_IDLE) {
        if (progress == RD_MOVED ? ++moved == RD_FEW_MOVES : ++idle >= POLLS) break;
        if (progress == RD_IDLE) rd_relax();
        progress = rd_op_advance(op);
    }
    rd_fp_leave(floats);
    if (progress != RD_DONE || rd_comm_stopped(comm) == RONDO_ABORTED) return go_on(comm, call, entry, progress, moved);
    rd_member_completed(comm->member, comm->calls);
    rd_record_end(comm->recorder, entry, RONDO_SUCCESS, true);
    return RONDO_SUCCESS;
}
