/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare.c - from a call to an operation: which algorithm, which plan, where the buffers are, what signature.
 */
#include "core/device.h"
#include "core/hierarchy.h"
#include "core/scaled.h"

#include "base/clock.h"
#include "base/dtype.h"
#include "base/hot.h"
#include "reduce/device.h"

#include <stdlib.h>
#include <string.h>

#define EXCHANGE_MOST 4096         /* bytes that a rank sends in an exchange, up to which one hop beats two */
#define EXCHANGE_TURNS (32 * 1024) /* ... where ranks take turns on processors, and each hop waits for all of them */
#define EXCHANGE_PAIR (256 * 1024) /* ... of two ranks over sockets */
#define FUSE_EACH     65536 /* bytes of an all-reduce up to which copying it costs less than a round of its own */
#define FUSE_ALL      (4u << 20)

/* 64 bits that differ, for all practical purposes, when calls differ (mixing steps of SplitMix64: Steele, Lea, Flood
 * 2014). Every slice carries them. */
static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash += word + 0x9e3779b97f4a7c15u;
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
    return hash ^ (hash >> 31);
}

/* Number and count are spread over all bits before the call's few are laid over them, so one step mixes all. */
static uint64_t signature_of(uint64_t number, const rd_call *calls, int count)
{
    uint64_t hash = number * 0x9e3779b97f4a7c15u;
    for (int i = 0; i < count; i++) {
        const rd_call *call = &calls[i];
        uint64_t what = (uint64_t)call->root << 32 | (uint64_t)call->kind << 24 | (uint64_t)call->collective << 16 |
                        (uint64_t)call->dtype << 8 | (uint64_t)call->op;
        hash = mix(hash ^ what, call->count * 0xd1b54a32d192ed03u);
    }
    return hash;
}

/* Two ranks that have no flat links: one hop instead of two for the same bytes, and twice the additions. */
static bool exchanges_by_ring(const rondo_comm *comm, size_t bytes)
{
    if (comm->size != 2 || comm->settings.algo == RD_ALGO_RING) return false;
    return comm->settings.algo == RD_ALGO_EXCHANGE || bytes <= EXCHANGE_PAIR;
}

/* On one host flat, and for a short message exchange; on several hosts hierarchical where that is faster; else, where some
 * rank uses a GPU, and where it is asked for, the ring. */
static rondo_algo algorithm(const rondo_comm *comm, rondo_collective collective, size_t bytes)
{
    if (collective >= RONDO_COLL_GATHER) return RONDO_ALGO_PEERS;
    if (collective != RONDO_COLL_ALL_REDUCE) return RONDO_ALGO_RING;
    if (comm->hierarchy && !comm->on_gpus && bytes <= comm->hierarchy->most) return RONDO_ALGO_HIER;
    if (!rd_is_flat(comm)) return exchanges_by_ring(comm, bytes) ? RONDO_ALGO_EXCHANGE : RONDO_ALGO_RING;
    size_t most = comm->crowded ? EXCHANGE_TURNS : EXCHANGE_MOST;
    bool brief = comm->settings.algo == RD_ALGO_EXCHANGE || bytes * (size_t)(comm->size - 1) <= most;
    return brief && bytes <= comm->wiring.flat_bytes && comm->settings.algo != RD_ALGO_FLAT ? RONDO_ALGO_EXCHANGE : RONDO_ALGO_FLAT;
}

/* The plan's steps, computed at its first use. */
static rondo_result look_up_steps(rd_schedule *kept, const rondo_plan *plan, const rondo_step **steps)
{
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

/* On rings that go round in different orders every channel has a plan of its own. */
static rondo_result plan_courses(rondo_comm *comm, rd_op *op)
{
    const rondo_plan *p = &op->plan;
    op->courses = NULL;
    if (comm->one_order || p->algo != RONDO_ALGO_RING) return RONDO_SUCCESS;
    for (int ch = 0; ch < comm->wiring.channels; ch++) {
        rd_course *course = &comm->courses[ch];
        rondo_plan_init(&course->plan, (rondo_collective)p->collective, RONDO_ALGO_RING, p->size, p->rank, p->root,
                        p->count, comm->order + (size_t)ch * (size_t)comm->size, NULL, p->wide);
        RD_TRY(look_up_steps(&comm->ring_schedules[ch][p->collective][p->wide], &course->plan, &course->steps));
    }
    op->courses = comm->courses;
    return RONDO_SUCCESS;
}

/* ---- Several as one ---- */

static bool is_small_all_reduce(const rd_call *call)
{
    return call->kind == RD_KIND_COLLECTIVE && call->collective == RONDO_COLL_ALL_REDUCE && call->count && !call->scaled &&
           call->count * rd_dtype_bytes(call->dtype) <= FUSE_EACH;
}

/* A ring kernel does it as it is: it is none of a stepwise rank, and no buffer has to be staged. */
static bool fits_launch(const rondo_comm *comm, const rd_call *call)
{
    size_t sends, receives;
    if (call->kind != RD_KIND_COLLECTIVE || call->collective > RONDO_COLL_REDUCE || call->scaled) return false;
    if (rd_is_strict(comm, call)) return false;
    rd_call_ranges(comm, call, &sends, &receives);
    return (!sends || call->send_on_gpu) && (!receives || call->recv_on_gpu);
}

/* Each rank as it can: on the wires it is the same as one after the other. With overlap allowed one might use what
 * another one writes. */
static int launchable(const rondo_comm *comm, const rd_call *calls, int count)
{
    int n = 0;
    if (!comm->device || !comm->wiring.kernel || !comm->one_order || comm->trace || comm->settings.allow_overlap)
        return 1;
    while (n < count && n < RD_KERNEL_CALLS && calls[n].dtype == calls->dtype && fits_launch(comm, &calls[n])) n++;
    return n > 1 ? n : 1;
}

int rd_fusable(const rondo_comm *comm, const rd_call *calls, int count)
{
    size_t bytes = 0;
    int n = 0;
    if (comm->on_gpus) return launchable(comm, calls, count);
    for (;
         n < count && is_small_all_reduce(&calls[n]) && calls[n].dtype == calls[0].dtype && calls[n].op == calls[0].op;
         n++)
        if ((bytes += calls[n].count * rd_dtype_bytes(calls[n].dtype)) > FUSE_ALL) break;
    return n > 1 ? n : 1;
}

static size_t bytes_of(const rd_call *calls, int count)
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++) bytes += calls[i].count * rd_dtype_bytes(calls[i].dtype);
    return bytes;
}

rondo_result rd_room_hold(rd_room *room, size_t bytes, const char *what)
{
    if (bytes <= room->bytes) return RONDO_SUCCESS;
    void *larger = realloc(room->memory, bytes);
    if (!larger) return rd_fail_errno("no memory for %zu bytes of %s", bytes, what);
    room->memory = larger;
    room->bytes = bytes;
    return RONDO_SUCCESS;
}

/* Lays the terms of several calls one after the other. */
static rondo_result fuse(rondo_comm *comm, const rd_call *calls, int count)
{
    RD_TRY(rd_room_hold(&comm->together, bytes_of(calls, count), "all-reduces that run as one"));
    unsigned char *at = comm->together.memory;
    for (int i = 0; i < count; i++) {
        size_t part = bytes_of(&calls[i], 1);
        memcpy(at, calls[i].send, part);
        at += part;
    }
    return RONDO_SUCCESS;
}

void rd_unfuse(rondo_comm *comm, const rd_call *calls, int count)
{
    const unsigned char *at = comm->together.memory;
    for (int i = 0; i < count; i++) {
        size_t part = bytes_of(&calls[i], 1);
        memcpy(calls[i].recv, at, part);
        at += part;
    }
}

/* ---- The operation ---- */

static rondo_result make_room(rondo_comm *comm, rd_lane lane, int transfers)
{
    if (transfers <= comm->transfer_room[lane]) return RONDO_SUCCESS;
    rd_transfer *list = realloc(comm->transfers[lane], (size_t)transfers * sizeof *list);
    if (!list) return rd_fail_errno("no memory for %d transfers", transfers);
    comm->transfers[lane] = list;
    comm->transfer_room[lane] = transfers;
    return RONDO_SUCCESS;
}

/* Links to all that this rank sends to; those from others arrive when they do. */
static rondo_result make_links(rondo_comm *comm, rd_lane lane, const rd_transfer *list, int count)
{
    int64_t deadline = rd_deadline(comm->settings.timeout_s);
    for (int i = 0; i < count; i++)
        if (list[i].sends)
            RD_TRY(rd_links_make(comm, lane, list[i].peer, deadline));
        else
            rd_links_take(comm, lane, list[i].peer);
    return RONDO_SUCCESS;
}

RD_APART rondo_result set_transfers(rondo_comm *comm, rd_op *op)
{
    rd_links *links = &comm->links;
    RD_TRY(make_room(comm, RD_LANE_COLLECTIVES, 2 * comm->size));
    op->transfers = comm->transfers[RD_LANE_COLLECTIVES];
    op->transfer_count = rd_peers_transfers(op, rd_links_out(links, comm->size, RD_LANE_COLLECTIVES, 0),
                                            rd_links_in(links, comm->size, RD_LANE_COLLECTIVES, 0), op->transfers);
    return make_links(comm, RD_LANE_COLLECTIVES, op->transfers, op->transfer_count);
}

static rondo_result reduction_of(rondo_comm *comm, const rd_call *call, const rd_reduction **found)
{
    rd_reduction *reduction = &comm->reductions[call->dtype][call->op];
    if (!reduction->run) {
        RD_TRY(rd_reduction_init(reduction, call->dtype, call->op, comm->size, (int)comm->settings.cpu));
        if (comm->fast) rd_reduction_in_type(reduction);
    }
    *found = reduction;
    return RONDO_SUCCESS;
}

static rondo_result make_plan(rondo_comm *comm, const rd_call *call)
{
    rd_op *op = &comm->op;
    size_t whole = call->count * rd_call_parts(comm, call);
    rondo_algo algo = algorithm(comm, call->collective, whole * op->reduction->bytes);
    /* Narrow types are added up in float32 along the whole path: on a ring the partial sums travel so, unless that shall
     * cost no more than the type does. Where terms meet at one rank it costs nothing. */
    bool wide = call->reduces && op->reduction->wide_bytes > op->reduction->bytes &&
                !(comm->fast && algo == RONDO_ALGO_RING);
    if (algo == RONDO_ALGO_HIER)
        rondo_plan_init_hier(&op->plan, comm->size, comm->rank, comm->hierarchy->local, whole, comm->hierarchy->order,
                             wide);
    else
        rondo_plan_init(&op->plan, call->collective, algo, comm->size, comm->rank, call->root, whole, comm->order, NULL,
                        wide);
    RD_TRY(look_up_steps(&comm->schedules[algo][call->collective][wide], &op->plan, &op->steps));
    RD_TRY(plan_courses(comm, op));
    if (algo != RONDO_ALGO_HIER) return RONDO_SUCCESS;
    op->hier = &comm->hierarchy->hier;
    return rd_hier_prepare(op->hier, op->reduction, whole, (int)comm->settings.cpu);
}

/* A training loop repeats its calls: what the operation of one is like, but for its buffers and its signature, is kept
 * for the next. */
RD_APART rondo_result take_shape(rondo_comm *comm, const rd_call *call)
{
    rd_op *op = &comm->op;
    rondo_collective c = call->collective;
    comm->shape.known = false;
    RD_TRY(reduction_of(comm, call, &op->reduction));
    RD_TRY(make_plan(comm, call));
    op->wiring = &comm->wiring;
    op->trace = comm->trace;
    op->in_rank_order = rd_is_strict(comm, call);
    op->buffers.input_whole = c != RONDO_COLL_ALL_GATHER && c != RONDO_COLL_GATHER;
    op->buffers.output_whole = c != RONDO_COLL_REDUCE_SCATTER && c != RONDO_COLL_REDUCE && c != RONDO_COLL_SCATTER;
    comm->shape = (rd_shape){
        .known = true,
        .keeps = (c != RONDO_COLL_REDUCE && c != RONDO_COLL_GATHER) || comm->rank == call->root,
        .repeats = c == RONDO_COLL_ALL_REDUCE && !comm->cuda && !comm->device && !comm->strict && !comm->trace,
        .collective = c,
        .dtype = call->dtype,
        .op = call->op,
        .root = call->root,
        .count = call->count,
        .bytes = call->count * op->reduction->bytes,
    };
    return RONDO_SUCCESS;
}

/* What calls of one shape differ in. */
RD_HOT void set_call(rondo_comm *comm, const rd_call *call, uint64_t signature)
{
    rd_op *op = &comm->op;
    op->buffers.input = call->send;
    op->buffers.output = comm->shape.keeps ? call->recv : NULL;
    op->signature = signature;
}

void rd_prepare_again(rondo_comm *comm, const rd_call *call)
{
    set_call(comm, call, signature_of(++comm->calls, call, 1));
}

RD_HOT rondo_result set_op(rondo_comm *comm, const rd_call *call, uint64_t number, uint64_t signature)
{
    rd_op *op = &comm->op;
    if (!rd_is_shape(&comm->shape, call)) RD_TRY(take_shape(comm, call));
    set_call(comm, call, signature);
    if (comm->device) RD_TRY(rd_place_call(comm, call));
    if (comm->trace) rd_trace_call(comm->trace, number, &op->plan, call->dtype, call->op, comm->wiring.channels);
    return op->plan.algo == RONDO_ALGO_PEERS ? set_transfers(comm, op) : RONDO_SUCCESS;
}

RD_APART rondo_result set_strict_op(rondo_comm *comm, const rd_call *call, uint64_t number, uint64_t signature)
{
    rd_call first;
    comm->strict_call = number;
    RD_TRY(rd_strict_first(comm, call, &first));
    return set_op(comm, &first, number, signature);
}

/* comm->op for `call`, which is what the `count` calls come to. */
RD_HOT rondo_result prepare(rondo_comm *comm, const rd_call *call, const rd_call *calls, int count)
{
    uint64_t number = comm->calls + 1, signature = signature_of(number, calls, count);
    comm->calls += (uint64_t)count;
    if (comm->strict) return set_strict_op(comm, call, number, signature);
    return set_op(comm, call, number, signature);
}

rondo_result rd_prepare_spread(rondo_comm *comm)
{
    comm->spreads = false;
    return set_op(comm, &comm->spread, comm->strict_call, mix(comm->op.signature, comm->op.signature));
}

/* Several calls, or one that is scaled first. */
RD_APART rondo_result prepare_as_one(rondo_comm *comm, const rd_call *calls, int count)
{
    rd_call as_one = *calls;
    if (calls->scaled) {
        RD_TRY(rd_scaled_terms(comm, calls, &as_one));
    } else {
        RD_TRY(fuse(comm, calls, count));
        as_one.send = as_one.recv = comm->together.memory;
        as_one.count = bytes_of(calls, count) / rd_dtype_bytes(calls->dtype);
    }
    return prepare(comm, &as_one, calls, count);
}

/* Several calls of one launch. comm->op is the last of them. */
RD_APART rondo_result prepare_launch(rondo_comm *comm, const rd_call *calls, int count)
{
    for (int i = 0;; i++) {
        RD_TRY(prepare(comm, &calls[i], &calls[i], 1));
        if (i + 1 == count) return RONDO_SUCCESS;
        rd_op_start(&comm->op);
        if (rd_kernel_wait(&comm->op) != RONDO_LINK_OK)
            return rd_fail(RONDO_REMOTE_ERROR, "%s: the GPU cannot be told where a link of the ring is", calls[i].name);
    }
}

rondo_result rd_prepare(rondo_comm *comm, const rd_call *calls, int count)
{
    if (count == 1 && !calls->scaled) return prepare(comm, calls, calls, 1);
    return comm->on_gpus && count > 1 ? prepare_launch(comm, calls, count) : prepare_as_one(comm, calls, count);
}

/* ---- Messages ---- */

/* The same at both ends: which message it is between the two, and what it holds. No tags yet: 0. */
static uint64_t message_signature(uint64_t number, const rd_call *call)
{
    uint64_t tag = 0;
    return mix(mix(mix(mix(0, RD_KIND_SEND), number), (uint64_t)call->dtype << 56 ^ call->count), tag);
}

/* A message to oneself: the n-th send and the n-th receive of a group belong together. */
static rondo_result copy_own(const rondo_comm *comm, const rd_call *calls, int count)
{
    int s = 0, r = 0;
    for (;; s++, r++) {
        while (s < count && (calls[s].kind != RD_KIND_SEND || calls[s].root != comm->rank)) s++;
        while (r < count && (calls[r].kind != RD_KIND_RECV || calls[r].root != comm->rank)) r++;
        if (s == count && r == count) return RONDO_SUCCESS;
        if (s == count || r == count)
            return rd_fail(RONDO_MISMATCH,
                           "%s of %zu elements: a rank sends to itself and receives from itself in one group, and "
                           "as often; the other half is missing",
                           calls[s < count ? s : r].name, calls[s < count ? s : r].count);
        if (calls[s].count != calls[r].count || calls[s].dtype != calls[r].dtype)
            return rd_fail(RONDO_MISMATCH, "rank %d sends itself %zu %s and receives %zu %s", comm->rank,
                           calls[s].count, rd_dtype_name(calls[s].dtype), calls[r].count,
                           rd_dtype_name(calls[r].dtype));
        if (!calls[s].count) continue;
        if (calls[s].send_on_gpu || calls[r].recv_on_gpu)
            RD_TRY(rd_device_move(comm->device, calls[r].recv, calls[s].send, bytes_of(&calls[s], 1)));
        else
            memmove(calls[r].recv, calls[s].send, bytes_of(&calls[s], 1));
    }
}

rondo_result rd_prepare_messages(rondo_comm *comm, const rd_call *calls, int count, int *messages, uint64_t *first)
{
    rd_links *links = &comm->links;
    int n = 0;
    RD_TRY(copy_own(comm, calls, count));
    RD_TRY(make_room(comm, RD_LANE_MESSAGES, count));
    for (int i = 0; i < count; i++) {
        const rd_call *call = &calls[i];
        if (!rd_is_message(call) || call->root == comm->rank) continue;
        bool sends = call->kind == RD_KIND_SEND;
        uint64_t number = sends ? ++links->sent[call->root] : ++links->received[call->root];
        uint64_t entry = rd_record_begin(comm->recorder, call, 1, number);
        rd_record_time(comm->recorder, entry);
        if (n == 0) *first = entry;
        comm->transfers[RD_LANE_MESSAGES][n++] = (rd_transfer){
            .wire = sends ? rd_links_out(links, comm->size, RD_LANE_MESSAGES, call->root)
                          : rd_links_in(links, comm->size, RD_LANE_MESSAGES, call->root),
            .sends = sends,
            .at = sends ? (unsigned char *)(uintptr_t)call->send : call->recv, /* what is sent is only read */
            .bytes = bytes_of(call, 1),
            .signature = message_signature(number, call),
            .step = i,
            .peer = call->root,
        };
    }
    *messages = n;
    rd_op_transfers(&comm->messages, comm->transfers[RD_LANE_MESSAGES], n);
    return comm->device ? rd_place_messages(comm, calls) : RONDO_SUCCESS;
}

rondo_result rd_link_messages(rondo_comm *comm, int messages)
{
    return make_links(comm, RD_LANE_MESSAGES, comm->transfers[RD_LANE_MESSAGES], messages);
}
