/* SPDX-License-Identifier: Apache-2.0
 *
 * call.c - a call on a communicator: one thread at a time, checked, numbered, planned, driven to its end.
 */
#include "core/comm.h"

#include "base/dtype.h"

#include <stdio.h>
#include <stdlib.h>

#define EXCHANGE_MOST 1024 /* bytes that a rank sends in an exchange, up to which one hop beats two */

/* Leaves the text of a failed call where rondo_last_error(comm) finds it. */
static rondo_result note(rondo_comm *comm, rondo_result result, const char *text)
{
    snprintf(comm->error, sizeof comm->error, "%s", text);
    return rd_fail(result, "%s", comm->error);
}

rondo_result rd_comm_note(rondo_comm *comm, rondo_result result)
{
    return comm && result != RONDO_SUCCESS ? note(comm, result, rd_last_error()) : result;
}

/* 64 bits that differ, for all practical purposes, when calls differ (mixing steps of SplitMix64: Steele, Lea, Flood
 * 2014). Every slice carries them. */
static uint64_t signature_of(uint64_t number, const rd_call *call)
{
    uint64_t words[] = {number, (uint64_t)call->collective, (uint64_t)call->dtype, (uint64_t)call->op,
                        (uint64_t)call->root, call->count};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        hash += words[i] + 0x9e3779b97f4a7c15u;
        hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
        hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
        hash ^= hash >> 31;
    }
    return hash;
}

/* On one host flat, and for a short message exchange; else, and where it is asked for, the ring. */
static rondo_algo algorithm(const rondo_comm *comm, const rd_call *call)
{
    if (call->collective != RONDO_COLL_ALL_REDUCE || !comm->wiring.flat_out) return RONDO_ALGO_RING;
    size_t bytes = call->count * rd_dtype_bytes(call->dtype);
    bool brief = comm->settings.algo == RD_ALGO_EXCHANGE ? bytes <= comm->wiring.flat_bytes
                                                         : bytes * (size_t)(comm->size - 1) <= EXCHANGE_MOST;
    return brief && comm->settings.algo != RD_ALGO_FLAT ? RONDO_ALGO_EXCHANGE : RONDO_ALGO_FLAT;
}

/* The plan's steps, computed at its first use. */
static rondo_result look_up_steps(rondo_comm *comm, const rondo_plan *plan, const rondo_step **steps)
{
    rd_schedule *kept = &comm->schedules[plan->algo][plan->collective][plan->wide];
    if (!kept->steps || kept->root != plan->root) {
        free(kept->steps);
        kept->root = plan->root;
        kept->steps = malloc(((size_t)plan->steps + 1) * sizeof *kept->steps);
        if (!kept->steps) return rd_fail_errno("no memory for a plan of %d steps", plan->steps);
        for (int32_t s = 0; s < plan->steps; s++) kept->steps[s] = rondo_plan_step(plan, s);
    }
    *steps = kept->steps;
    return RONDO_SUCCESS;
}

static rondo_result prepare(rondo_comm *comm, const rd_call *call)
{
    rd_op *op = &comm->op;
    rd_reduction *reduction = &comm->reductions[call->dtype][call->op];
    if (!reduction->run)
        RD_TRY(rd_reduction_init(reduction, call->dtype, call->op, comm->size, (int)comm->settings.cpu));
    bool gathers = call->collective == RONDO_COLL_REDUCE_SCATTER || call->collective == RONDO_COLL_ALL_GATHER;
    size_t whole = call->count * (gathers ? (size_t)comm->size : 1);
    /* Narrow types are added up in float32 along the whole path: on a ring the partial sums travel so. */
    bool wide = call->reduces && reduction->wide_bytes > reduction->bytes;
    rondo_plan_init(&op->plan, call->collective, algorithm(comm, call), comm->size, comm->rank, call->root,
                    whole, comm->order, NULL, wide);
    RD_TRY(look_up_steps(comm, &op->plan, &op->steps));
    op->reduction = reduction;
    op->wiring = &comm->wiring;
    op->buffers.input = call->send;
    op->buffers.output = call->collective == RONDO_COLL_REDUCE && comm->rank != call->root ? NULL : call->recv;
    op->buffers.input_whole = call->collective != RONDO_COLL_ALL_GATHER;
    op->buffers.output_whole = call->collective != RONDO_COLL_REDUCE_SCATTER && call->collective != RONDO_COLL_REDUCE;
    op->signature = signature_of(comm->calls, call);
    return RONDO_SUCCESS;
}

static rondo_result run(rondo_comm *comm, const rd_call *call, const rondo_stream *stream)
{
    rondo_result result = (rondo_result)atomic_load_explicit(&comm->stop.word, memory_order_acquire);
    if (result) return note(comm, result, comm->stop.text);
    if (rd_check_call(comm, call, stream) != RONDO_SUCCESS) return note(comm, RONDO_INVALID_ARGUMENT, rd_last_error());
    comm->calls++;
    result = prepare(comm, call);
    if (result) { /* the others have begun a call that this rank cannot make */
        rd_comm_stop(comm, result, rd_last_error());
        rd_member_announce(comm->member, result, comm->stop.text);
        return note(comm, result, comm->stop.text);
    }
    comm->op.trace = comm->trace;
    if (comm->trace)
        rd_trace_call(comm->trace, comm->calls, &comm->op.plan, call->dtype, call->op, comm->wiring.channels);
    rd_op_start(&comm->op);
    unsigned floats = rd_fp_enter();
    result = rd_comm_drive(comm, call);
    rd_fp_leave(floats);
    if (comm->trace) rd_trace_end(comm->trace, result);
    if (result) return note(comm, result, comm->stop.text);
    rd_member_completed(comm->member, comm->calls);
    return RONDO_SUCCESS;
}

/* One thread at a time. */
rondo_result rd_call_run(rondo_comm *comm, const rd_call *call, const rondo_stream *stream)
{
    if (!comm) return rd_fail(RONDO_INVALID_ARGUMENT, "%s: comm is NULL; it must come from a rondo_init call", call->name);
    if (rd_check_process(comm, call->name) != RONDO_SUCCESS) return rd_comm_note(comm, RONDO_INVALID_USAGE);
    if (atomic_exchange_explicit(&comm->busy, 1, memory_order_acquire))
        return rd_fail(RONDO_INVALID_USAGE, "%s: another thread is inside a call on this communicator; one at a time, or "
                       "a communicator for each", call->name);
    rondo_result result = run(comm, call, stream);
    atomic_store_explicit(&comm->busy, 0, memory_order_release);
    return result;
}
