/* SPDX-License-Identifier: Apache-2.0 */
#include "core/device.h"
#include "core/group.h"
#include "core/scaled.h"

#include "base/dtype.h"
#include "base/hot.h"
#include "base/process.h"

#include <stdlib.h>

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
    return rd_fail(RONDO_INVALID_USAGE,
                   "%s: this process was forked after the communicator was made, which stays with the "
                   "parent; make one of its own here",
                   function);
}

rondo_result rd_check_may_wait(const rondo_comm *comm, const char *function)
{
    if (!rd_work_in_then() || rd_line_is_free(&comm->line)) return RONDO_SUCCESS;
    return rd_fail(RONDO_INVALID_USAGE,
                   "%s: called by the function of a work, and this communicator has calls on streams that are not "
                   "done; it might wait for the stream that it runs on",
                   function);
}

static rondo_result no_memory(const rd_call *call, const char *name)
{
    return rd_fail(RONDO_INVALID_ARGUMENT, "%s: %s is NULL, with count %zu it must point to memory", call->name, name,
                   call->count);
}

/* form: when send + send_at == recv + recv_at; NULL: there is none. */
static rondo_result check_in_place(const rd_call *call, size_t send_bytes, size_t recv_bytes, size_t send_at,
                                  size_t recv_at, const char *form)
{
    uintptr_t send = (uintptr_t)call->send, recv = (uintptr_t)call->recv;
    if (form && send + send_at == recv + recv_at) return RONDO_SUCCESS;
    return rd_fail(RONDO_INVALID_ARGUMENT, "%s: send [%p, %p) and recv [%p, %p) overlap; they must be apart%s%s",
                   call->name, call->send, (const void *)((const char *)call->send + send_bytes), call->recv,
                   (const void *)((char *)call->recv + recv_bytes), form ? ", or in place: " : "", form ? form : "");
}

/* One of its buffers holds `count` elements for each rank. */
static bool has_parts(const rd_call *call)
{
    return !rd_is_message(call) && call->collective != RONDO_COLL_ALL_REDUCE &&
           !rondo_is_chain((int32_t)call->collective);
}

size_t rd_call_parts(const rondo_comm *comm, const rd_call *call)
{
    return has_parts(call) ? (size_t)comm->size : 1;
}

void rd_call_ranges(const rondo_comm *comm, const rd_call *call, size_t *send_bytes, size_t *recv_bytes)
{
    size_t part = call->count * rd_dtype_bytes(call->dtype);
    *send_bytes = *recv_bytes = part;
    if (call->collective == RONDO_COLL_ALL_REDUCE) return;
    size_t all = part * (size_t)comm->size;
    bool at_root = comm->rank == call->root;
    if (call->kind == RD_KIND_SEND) *recv_bytes = 0;
    if (call->kind == RD_KIND_RECV) *send_bytes = 0;
    if (rd_is_message(call)) return;
    switch (call->collective) {
    case RONDO_COLL_REDUCE_SCATTER: *send_bytes = all; break;
    case RONDO_COLL_ALL_GATHER: *recv_bytes = all; break;
    case RONDO_COLL_BROADCAST: *send_bytes = at_root ? part : 0; break;
    case RONDO_COLL_REDUCE: *recv_bytes = at_root ? part : 0; break;
    case RONDO_COLL_GATHER: *recv_bytes = at_root ? all : 0; break;
    case RONDO_COLL_SCATTER: *send_bytes = at_root ? all : 0; break;
    case RONDO_COLL_ALL_TO_ALL: *send_bytes = *recv_bytes = all; break;
    case RONDO_COLL_ALL_REDUCE:
    case RONDO_COLLECTIVES: break;
    }
}

/* They overlap: is it one of the ways that are allowed? */
static rondo_result check_form(const rondo_comm *comm, const rd_call *call, size_t sends, size_t receives)
{
    size_t mine = call->count * rd_dtype_bytes(call->dtype) * (size_t)comm->rank;
    switch (call->collective) {
    case RONDO_COLL_REDUCE_SCATTER:
        return check_in_place(call, sends, receives, mine, 0, "recv == send + rank * recv_count");
    case RONDO_COLL_ALL_GATHER:
        return check_in_place(call, sends, receives, 0, mine, "send == recv + rank * send_count");
    case RONDO_COLL_GATHER: return check_in_place(call, sends, receives, 0, mine, "send == recv + rank * count");
    case RONDO_COLL_SCATTER: return check_in_place(call, sends, receives, mine, 0, "recv == send + rank * count");
    case RONDO_COLL_ALL_TO_ALL: return check_in_place(call, sends, receives, 0, 0, NULL);
    default: return check_in_place(call, sends, receives, 0, 0, "recv == send");
    }
}

/* Which buffers this rank uses, and whether they are apart. */
RD_APART rondo_result check_buffers(const rondo_comm *comm, const rd_call *call)
{
    size_t sends, receives;
    uintptr_t send = (uintptr_t)call->send, recv = (uintptr_t)call->recv;
    rd_call_ranges(comm, call, &sends, &receives);
    if (sends && !send) return no_memory(call, "send");
    if (receives && !recv) return no_memory(call, "recv");
    if (send + sends <= recv || recv + receives <= send) return RONDO_SUCCESS;
    if (!sends || !receives || comm->settings.allow_overlap) return RONDO_SUCCESS;
    return check_form(comm, call, sends, receives);
}

static bool are_usual(const rd_call *call, size_t bytes)
{
    return call->collective == RONDO_COLL_ALL_REDUCE && rd_buffers_are_usual(call, bytes);
}

RD_APART rondo_result no_type(const rd_call *call)
{
    return rd_fail(RONDO_INVALID_ARGUMENT,
                   "%s: dtype is %d; the types are 0 to %d (RONDO_INT8 to RONDO_FLOAT8E5M2)", call->name,
                   (int)call->dtype, RONDO_DTYPES - 1);
}

RD_APART rondo_result no_rank(const rondo_comm *comm, const rd_call *call)
{
    return rd_fail(RONDO_INVALID_ARGUMENT, "%s: %s is %d; with %d ranks it must be 0 to %d", call->name,
                   rd_is_message(call) ? "peer" : "root", call->root, comm->size, comm->size - 1);
}

RD_APART rondo_result too_many(const rd_call *call, size_t each)
{
    return rd_fail(RONDO_INVALID_ARGUMENT, "%s: count is %zu; with %zu-byte elements%s it must be 0 to %zu", call->name,
                   call->count, rd_dtype_bytes(call->dtype), has_parts(call) ? " on every rank" : "",
                   MOST_BYTES / each);
}

/* What is usual is one branch each; the words stand above. */
rondo_result rd_check_call(rondo_comm *comm, rd_call *call)
{
    size_t bytes = rd_dtype_bytes(call->dtype), each, all;
    if (!bytes) return no_type(call);
    if (call->root < 0 || call->root >= comm->size) return no_rank(comm, call);
    if (rd_is_message(call) && call->root == comm->rank && !rd_group_is_open())
        return rd_fail(RONDO_INVALID_USAGE,
                       "%s: peer is %d, which is this rank; to send to itself a rank sends and receives in one "
                       "group",
                       call->name, call->root);
    each = bytes * rd_call_parts(comm, call);
    if (__builtin_mul_overflow(call->count, each, &all) || all > MOST_BYTES) return too_many(call, each);
    if (all && !are_usual(call, all)) RD_TRY(check_buffers(comm, call));
    if (all && comm->cuda) RD_TRY(rd_call_locate(comm, call));
    bool built_in = !call->reduces || (unsigned)call->op < RONDO_OPS;
    return built_in ? RONDO_SUCCESS : rd_scaled_take(comm, call);
}

/* ---- Groups ---- */

/* A range of memory that call number `call` of a group uses. */
typedef struct rd_used {
    uintptr_t from, to;
    int call;
    bool written;
} rd_used;

static int by_start(const void *a, const void *b)
{
    uintptr_t x = ((const rd_used *)a)->from, y = ((const rd_used *)b)->from;
    return (x > y) - (x < y);
}

static rondo_result in_each_others_way(const rd_call *calls, const rd_used *a, const rd_used *b)
{
    return rd_fail(
        RONDO_INVALID_ARGUMENT,
        "rondo_group_end: call %d of the group (%s) uses [%p, %p) and call %d (%s) [%p, %p), and one of them writes "
        "there; the calls of a group run together, so none may write what another uses",
        a->call + 1, calls[a->call].name, (void *)a->from, (void *)a->to, b->call + 1, calls[b->call].name,
        (void *)b->from, (void *)b->to);
}

/* The two ranges, of different calls, that reach furthest so far. */
typedef struct rd_furthest {
    const rd_used *first, *second;
} rd_furthest;

static void reach(rd_furthest *furthest, const rd_used *used)
{
    if (furthest->first && furthest->first->call == used->call) {
        if (used->to > furthest->first->to) furthest->first = used;
    } else if (!furthest->first || used->to > furthest->first->to) {
        furthest->second = furthest->first;
        furthest->first = used;
    } else if (!furthest->second || used->to > furthest->second->to) {
        furthest->second = used;
    }
}

/* Of another call, and reaching into this range. */
static const rd_used *in_the_way(const rd_furthest *furthest, const rd_used *used)
{
    const rd_used *other = furthest->first && furthest->first->call != used->call ? furthest->first : furthest->second;
    return other && other->call != used->call && other->to > used->from ? other : NULL;
}

rondo_result rd_check_apart(const rondo_comm *comm, const rd_call *calls, int count)
{
    rondo_result result = RONDO_SUCCESS;
    rd_furthest written = {0}, any = {0};
    size_t n = 0;
    if (count < 2 || comm->settings.allow_overlap) return RONDO_SUCCESS;
    rd_used *used = malloc(2 * (size_t)count * sizeof *used);
    if (!used) return rd_fail_errno("rondo_group_end: no memory to look at %d calls", count);
    for (int i = 0; i < count; i++) {
        size_t sends, receives;
        rd_call_ranges(comm, &calls[i], &sends, &receives);
        uintptr_t send = (uintptr_t)calls[i].send, recv = (uintptr_t)calls[i].recv;
        if (sends) used[n++] = (rd_used){send, send + sends, i, false};
        if (receives) used[n++] = (rd_used){recv, recv + receives, i, true};
    }
    qsort(used, n, sizeof *used, by_start);
    for (size_t i = 0; i < n && result == RONDO_SUCCESS; i++) {
        const rd_used *other = in_the_way(used[i].written ? &any : &written, &used[i]);
        if (other) result = in_each_others_way(calls, other, &used[i]);
        reach(&any, &used[i]);
        if (used[i].written) reach(&written, &used[i]);
    }
    free(used);
    return result;
}
