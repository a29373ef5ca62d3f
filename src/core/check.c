/* SPDX-License-Identifier: Apache-2.0 */
#include "core/group.h"

#include "base/dtype.h"
#include "base/process.h"

#define MOST_BYTES ((size_t)PTRDIFF_MAX)

rondo_result rd_check_world(const char *function, int world_size, int rank)
{
    if (world_size < 1)
        return rd_fail(RONDO_INVALID_ARGUMENT, "%s: world_size is %d; it must be at least 1", function, world_size);
    if (rank < 0 || rank >= world_size)
        return rd_fail(RONDO_INVALID_ARGUMENT, "%s: rank is %d; with world_size %d it must be 0 to %d", function, rank,
                       world_size, world_size - 1);
    return RONDO_SUCCESS;
}

rondo_result rd_check_process(const rondo_comm *comm, const char *function)
{
    if (comm->generation == rd_generation()) return RONDO_SUCCESS;
    return rd_fail(RONDO_INVALID_USAGE, "%s: this process was forked after the communicator was made, which stays with the "
                   "parent; make one of its own here", function);
}

static rondo_result check_pointer(const rd_call *call, const char *name, const void *pointer)
{
    if (pointer) return RONDO_SUCCESS;
    return rd_fail(RONDO_INVALID_ARGUMENT, "%s: %s is NULL, with count %zu it must point to memory", call->name, name,
                   call->count);
}

static rondo_result check_overlap(const rd_call *call, size_t send_bytes, size_t recv_bytes, size_t send_at,
                                  size_t recv_at, const char *form)
{
    uintptr_t send = (uintptr_t)call->send, recv = (uintptr_t)call->recv;
    if (send + send_at == recv + recv_at) return RONDO_SUCCESS;
    if (send + send_bytes <= recv || recv + recv_bytes <= send) return RONDO_SUCCESS;
    return rd_fail(RONDO_INVALID_ARGUMENT,
                   "%s: send [%p, %p) and recv [%p, %p) overlap; they must be apart, or in place: %s", call->name,
                   call->send, (const void *)((const char *)call->send + send_bytes), call->recv,
                   (const void *)((char *)call->recv + recv_bytes), form);
}

/* Which buffers this rank uses, how long they are, and how they may coincide. */
static rondo_result check_buffers(const rondo_comm *comm, const rd_call *call)
{
    size_t part = call->count * rd_dtype_bytes(call->dtype), all = part * (size_t)comm->size;
    size_t mine = part * (size_t)comm->rank;
    bool at_root = comm->rank == call->root;
    bool sends = call->kind == RD_KIND_SEND ||
                 (call->kind != RD_KIND_RECV && ((call->collective != RONDO_COLL_BROADCAST && call->collective != RONDO_COLL_SCATTER) || at_root));
    bool receives = call->kind == RD_KIND_RECV ||
                    (call->kind != RD_KIND_SEND && ((call->collective != RONDO_COLL_REDUCE && call->collective != RONDO_COLL_GATHER) || at_root));
    if (sends) RD_TRY(check_pointer(call, "send", call->send));
    if (receives) RD_TRY(check_pointer(call, "recv", call->recv));
    if (!sends || !receives) return RONDO_SUCCESS;
    switch (call->collective) {
    case RONDO_COLL_REDUCE_SCATTER:
        return check_overlap(call, all, part, mine, 0, "recv == send + rank * recv_count");
    case RONDO_COLL_ALL_GATHER: return check_overlap(call, part, all, 0, mine, "send == recv + rank * send_count");
    case RONDO_COLL_GATHER: return check_overlap(call, part, all, 0, mine, "send == recv + rank * count");
    case RONDO_COLL_SCATTER: return check_overlap(call, all, part, mine, 0, "recv == send + rank * count");
    case RONDO_COLL_ALL_TO_ALL: return check_overlap(call, all, all, SIZE_MAX, 0, "there is no such form of an all-to-all");
    default: return check_overlap(call, part, part, 0, 0, "recv == send");
    }
}

rondo_result rd_check_call(const rondo_comm *comm, const rd_call *call)
{
    size_t bytes = rd_dtype_bytes(call->dtype);
    if (!bytes)
        return rd_fail(RONDO_INVALID_ARGUMENT, "%s: dtype is %d; the types are 0 to %d (RONDO_INT8 to RONDO_FLOAT8E5M2)",
                       call->name, (int)call->dtype, RONDO_DTYPES - 1);
    if (call->reduces && ((int)call->op < 0 || (int)call->op >= RONDO_OPS))
        return rd_fail(RONDO_INVALID_ARGUMENT, "%s: op is %d; the operators are 0 to %d (RONDO_SUM to RONDO_AVG)",
                       call->name, (int)call->op, RONDO_OPS - 1);
    if (call->root < 0 || call->root >= comm->size)
        return rd_fail(RONDO_INVALID_ARGUMENT, "%s: %s is %d; with %d ranks it must be 0 to %d", call->name,
                       rd_is_message(call) ? "peer" : "root", call->root, comm->size, comm->size - 1);
    if (rd_is_message(call) && call->root == comm->rank && !rd_group_is_open())
        return rd_fail(RONDO_INVALID_USAGE, "%s: peer is %d, which is this rank; to send to itself a rank sends and receives in one "
                       "group", call->name, call->root);
    bool once = rd_is_message(call) || call->collective == RONDO_COLL_ALL_REDUCE || rondo_is_chain((int32_t)call->collective);
    size_t most = MOST_BYTES / bytes / (once ? 1 : (size_t)comm->size);
    if (call->count > most)
        return rd_fail(RONDO_INVALID_ARGUMENT, "%s: count is %zu; with %zu-byte elements%s it must be 0 to %zu",
                       call->name, call->count, bytes, once ? "" : " on every rank", most);
    return call->count ? check_buffers(comm, call) : RONDO_SUCCESS;
}
