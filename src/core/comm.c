/* SPDX-License-Identifier: Apache-2.0 */
#include "core/device.h"
#include "core/hierarchy.h"
#include "core/pool.h"
#include "core/scaled.h"

#include "base/clock.h"
#include "base/process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the end ---- */

void rd_comm_discard(rondo_comm *comm)
{
    rd_record_delist(comm);
    rd_member_close(comm->member);
    rd_comm_disconnect(comm);
    rd_hierarchy_close(comm);
    rd_links_close(comm);
    rd_pool_close(comm);
    rd_scaled_forget(comm);
    rd_comm_close_device(comm);
    for (int lane = 0; lane < RD_LANES; lane++) free(comm->transfers[lane]);
    rd_comm_forget_memory(comm);
    free(comm->out);
    free(comm->in);
    free(comm->order);
    rd_trace_close(comm->trace);
    rd_schedule *schedules = &comm->schedules[0][0][0], *of_rings = &comm->ring_schedules[0][0][0];
    for (size_t i = 0; i < sizeof comm->schedules / sizeof *schedules; i++) free(schedules[i].steps);
    for (size_t i = 0; i < sizeof comm->ring_schedules / sizeof *of_rings; i++) free(of_rings[i].steps);
    free(comm->together.memory);
    free(comm->recorder);
    rd_bell_close(&comm->bell);
    pthread_cond_destroy(&comm->line.moved);
    pthread_mutex_destroy(&comm->line.lock);
    rd_stop_destroy(&comm->stop);
    free(comm);
}

/* ---- one thread at a time ---- */

static rondo_result in_child(rondo_comm *comm, const char *function)
{
    return rd_comm_note(comm, rd_check_process(comm, function));
}

rondo_result rd_comm_enter(rondo_comm *comm, const char *function)
{
    if (comm->generation != rd_generation()) return in_child(comm, function);
    if (rd_comm_is_starting(comm))
        return rd_fail(RONDO_INVALID_USAGE,
                       "%s: the communicator is still being made; call rondo_comm_error until it no longer "
                       "says RONDO_IN_PROGRESS",
                       function);
    if (atomic_exchange_explicit(&comm->busy, 1, memory_order_acquire))
        return rd_fail(RONDO_INVALID_USAGE,
                       "%s: another thread is inside a call on this communicator; one at a time, or "
                       "a communicator for each",
                       function);
    if (!comm->finalized) return RONDO_SUCCESS;
    rd_comm_leave(comm);
    return rd_fail(RONDO_INVALID_USAGE,
                   "%s: rondo_comm_finalize was called on this communicator; it can only be destroyed", function);
}

void rd_comm_tell(rondo_comm *comm, const char *text)
{
    if (atomic_exchange_explicit(&comm->busy, 1, memory_order_acquire)) return;
    snprintf(comm->error, sizeof comm->error, "%s", text);
    rd_comm_leave(comm);
}

/* ---- asking, aborting, destroying ---- */

int rondo_comm_rank(const rondo_comm *comm)
{
    return comm ? comm->rank : -1;
}
int rondo_comm_size(const rondo_comm *comm)
{
    return comm ? comm->size : -1;
}
const char *rondo_comm_transport(const rondo_comm *comm)
{
    bool linked = comm && comm->size > 1 && comm->wiring.ring_out[0] && comm->wiring.ring_out[0]->link;
    return linked ? comm->wiring.ring_out[0]->link->ops->name : NULL;
}

rondo_result rondo_comm_abort(rondo_comm *comm)
{
    if (!comm) return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_comm_abort: comm is NULL");
    RD_TRY(rd_check_process(comm, "rondo_comm_abort"));
    rd_comm_abort(comm);
    return RONDO_SUCCESS;
}

rondo_result rondo_comm_abort_because(rondo_comm *comm, const char *why)
{
    if (!comm) return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_comm_abort_because: comm is NULL");
    if (!why)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "rondo_comm_abort_because: why is NULL; it must be words for the errors of all ranks");
    RD_TRY(rd_check_process(comm, "rondo_comm_abort_because"));
    rd_comm_abort_because(comm, why);
    return RONDO_SUCCESS;
}

rondo_result rondo_comm_error(rondo_comm *comm, rondo_result *state)
{
    if (!comm)
        return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_comm_error: comm is NULL; it must come from a rondo_init call");
    if (!state)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "rondo_comm_error: state is NULL; it must point to where the result goes");
    RD_TRY(rd_check_process(comm, "rondo_comm_error"));
    *state = rd_comm_is_starting(comm) ? RONDO_IN_PROGRESS : rd_comm_stopped(comm);
    return RONDO_SUCCESS;
}

rondo_result rondo_comm_finalize(rondo_comm *comm)
{
    if (!comm)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "rondo_comm_finalize: comm is NULL; it must come from a rondo_init call");
    RD_TRY(rd_check_may_wait(comm, "rondo_comm_finalize"));
    RD_TRY(rd_comm_enter(comm, "rondo_comm_finalize"));
    rd_tasks_drain(comm);
    comm->finalized = true;
    rondo_result stop = rd_comm_stopped(comm);
    if (stop) rd_comm_note(comm, rd_fail(stop, "%s", comm->stop.text));
    rd_comm_leave(comm);
    return stop;
}

rondo_result rondo_comm_destroy(rondo_comm *comm)
{
    if (!comm) return RONDO_SUCCESS;
    /* In a forked child links and bell are the parent's: their memory is not even mapped here. What is left of the
     * handle goes with the child. */
    if (rd_check_process(comm, "rondo_comm_destroy") != RONDO_SUCCESS) return RONDO_SUCCESS;
    RD_TRY(rd_check_may_wait(comm, "rondo_comm_destroy"));
    if (atomic_load(&comm->starting)) {
        if (atomic_load(&comm->starting) == RD_STARTING) rd_comm_abort(comm);
        pthread_join(comm->starter, NULL);
    }
    if (atomic_load(&comm->busy)) rd_comm_abort(comm);
    while (atomic_exchange_explicit(&comm->busy, 1, memory_order_acquire))
        nanosleep(&(struct timespec){0, 100000}, NULL);
    if (!rd_line_is_free(&comm->line)) rd_comm_abort(comm);
    rd_tasks_drain(comm);
    rd_comm_discard(comm);
    return RONDO_SUCCESS;
}

rondo_result rondo_version(int *version)
{
    if (!version) return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_version: version is NULL; it must point to an int");
    *version = RONDO_VERSION;
    return RONDO_SUCCESS;
}

const char *rondo_last_error(const rondo_comm *comm)
{
    if (!comm) return rd_last_error();
    return rd_comm_stopped(comm) ? comm->stop.text : comm->error;
}
