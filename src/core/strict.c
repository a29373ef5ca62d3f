/* SPDX-License-Identifier: Apache-2.0
 *
 * strict.c - sums whose bits depend on the terms alone (RONDO_NUMERICS=strict): every element is added in the order of
 * ranks, ((x[0] + x[1]) + x[2]) + ..., wherever in a message it lies and however that is cut.
 *
 * Where all ranks share a host that is flat or an exchange whose owners take the terms in another order. Elsewhere the
 * ring follows the ranks, and the message goes once along it to the last rank, which is a reduce, and from there to all,
 * which is a broadcast: two operations of one call, of which the second begins when the first is done. A link carries the
 * message twice, N/(N-1) times what it carries for the ring's all-reduce.
 *
 * Reduce to another rank and reduce-scatter would end with the wrong one, so they are an all-reduce of the whole message,
 * of which each rank keeps what it asked for.
 */
#include "core/device.h"

#include "base/dtype.h"
#include "reduce/device.h"
#include "reduce/reduce.h"

#include <string.h>

bool rd_is_strict(const rondo_comm *comm, const rd_call *call)
{
    bool as_it_is = call->collective == RONDO_COLL_REDUCE && call->root == comm->size - 1; /* the chain goes by rank */
    return comm->strict && call->reduces && !as_it_is && rd_order_shows(call->dtype, call->op, comm->size);
}

/* The call's result is the whole sum, on this rank. */
static bool wants_all(const rondo_comm *comm, const rd_call *call)
{
    return call->collective == RONDO_COLL_ALL_REDUCE ||
           (call->collective == RONDO_COLL_REDUCE && comm->rank == call->root);
}

rondo_result rd_strict_first(rondo_comm *comm, const rd_call *call, rd_call *first)
{
    *first = *call;
    comm->spreads = false;
    if (!rd_is_strict(comm, call)) return RONDO_SUCCESS;
    first->collective = RONDO_COLL_ALL_REDUCE;
    first->root = 0;
    first->count = call->count * rd_call_parts(comm, call);
    if (!wants_all(comm, call)) {
        RD_TRY(rd_room_hold(&comm->together, first->count * rd_dtype_bytes(call->dtype), "a strict sum"));
        first->recv = comm->together.memory;
        first->recv_on_gpu = false;
    }
    if (rd_is_flat(comm)) return RONDO_SUCCESS;
    comm->spreads = true;
    comm->spread = *first;
    comm->spread.collective = RONDO_COLL_BROADCAST;
    comm->spread.reduces = false;
    comm->spread.op = RONDO_SUM;
    comm->spread.send = first->recv;
    comm->spread.send_on_gpu = first->recv_on_gpu;
    first->collective = RONDO_COLL_REDUCE;
    first->root = comm->spread.root = comm->size - 1;
    return RONDO_SUCCESS;
}

rondo_result rd_strict_take(rondo_comm *comm, const rd_call *call)
{
    size_t bytes = call->count * rd_dtype_bytes(call->dtype);
    if (call->collective != RONDO_COLL_REDUCE_SCATTER || !bytes || !rd_is_strict(comm, call)) return RONDO_SUCCESS;
    const unsigned char *mine = (const unsigned char *)comm->together.memory + (size_t)comm->rank * bytes;
    if (call->recv_on_gpu) return rd_device_move(comm->device, call->recv, mine, bytes);
    memcpy(call->recv, mine, bytes);
    return RONDO_SUCCESS;
}
