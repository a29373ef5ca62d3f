/* SPDX-License-Identifier: Apache-2.0 */
#include "core/device.h"
#include "core/pool.h"

#include "base/dtype.h"
#include "base/log.h"
#include "base/process.h"
#include "reduce/device.h"
#include "reduce/image.h"
#include "transport/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Which ---- */

rondo_result rd_device_choose(const char *function, rd_settings *settings)
{
    if (settings->device == RONDO_DEVICE_AUTO) {
        int current = rd_kernel_image_is_remark() ? -1 : rd_device_current();
        settings->device = current >= 0 ? current : RONDO_DEVICE_HOST;
    }
    if (settings->device == RONDO_DEVICE_HOST) return RONDO_SUCCESS;
    const char *why = rd_gpu_absent();
    if (why)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "%s: device is %ld, but there is no GPU: %s; use RONDO_DEVICE_AUTO (-1) or RONDO_DEVICE_HOST "
                       "(-2), or RONDO_DEVICE=auto or host where that is set",
                       function, settings->device, why);
    int count = rd_gpu_count();
    if (settings->device < count) return RONDO_SUCCESS;
    return rd_fail(
        RONDO_INVALID_ARGUMENT,
        "%s: device is %ld; this process sees %d GPU%s, numbered from 0 (CUDA_VISIBLE_DEVICES hides others); "
        "RONDO_DEVICE_HOST (-2) uses none",
        function, settings->device, count, count == 1 ? "" : "s");
}

rondo_result rd_comm_open_device(rondo_comm *comm)
{
    comm->cuda = comm->settings.device >= 0 || rd_gpu_in_use();
    if (comm->settings.device < 0) return RONDO_SUCCESS;
    comm->on_gpus = true;
    RD_TRY(rd_device_open(&comm->device, (int)comm->settings.device));
    if (comm->size > 1) RD_TRY(rd_device_open(&comm->messenger, (int)comm->settings.device));
    rd_log(RD_LOG_INFO, "rank %d: uses GPU %ld", comm->rank, comm->settings.device);
    return RONDO_SUCCESS;
}

void rd_comm_close_device(rondo_comm *comm)
{
    for (int lane = 0; lane < RD_LANES; lane++) {
        rd_staging *stage = &comm->stage[lane];
        while (stage->outgrown.count) rd_device_free_host(comm->device, stage->outgrown.memory[--stage->outgrown.count]);
        if (comm->device) rd_device_free_host(comm->device, stage->memory);
        free(stage->results);
    }
    rd_device_close(comm->messenger);
    rd_device_close(comm->device);
}

/* ---- Links ---- */

/* Long slices into the GPU's own memory, where the link's device reaches that. */
static void use_gpu_memory(rondo_comm *comm, rondo_link *link, int side)
{
    char how[512];
    int gpu = rd_device_ordinal(comm->device);
    if (!comm->settings.rdma_gpu) return;
    bool there = rd_stage_in_gpu(link, gpu, how, sizeof how);
    rd_log(RD_LOG_INFO, "rank %d %s rank %d: %s has its long slices in %s: %s", comm->rank,
           side == RD_SENDER ? "->" : "<-", link->peer, link->ops->name,
           there ? "this GPU's memory" : "host memory that this GPU reaches", how);
}

rondo_result rd_comm_adopt_link(rondo_comm *comm, rondo_link **link, int side, bool early)
{
    void *base;
    size_t bytes;
    RD_TRY(rd_link_check(*link));
    if (!comm->device || ((*link)->caps & RONDO_LINK_DEVICE)) return RONDO_SUCCESS;
    if (!((*link)->caps & RONDO_LINK_SLOTS)) {
        rondo_link *staged = rd_stage_wrap(*link, side);
        if (!staged) return RONDO_SYSTEM_ERROR;
        *link = staged;
        if (early) use_gpu_memory(comm, staged, side);
    }
    if (rd_link_memory(*link, &base, &bytes)) return rd_device_pin(comm->device, base, bytes);
    return rd_fail(RONDO_INVALID_USAGE,
                   "rank %d uses GPU %d, which does not reach the slots of its %s link with rank %d; use another "
                   "RONDO_TRANSPORT, or RONDO_DEVICE=host",
                   comm->rank, rd_device_ordinal(comm->device), (*link)->ops->name, (*link)->peer);
}

void rd_comm_close_link(rondo_comm *comm, rondo_link *link)
{
    void *base;
    size_t bytes;
    if (!link) return;
    if (comm->device && rd_link_memory(link, &base, &bytes)) rd_device_unpin(base);
    int place = rd_pool_place_of(comm, link);
    link->ops->close(link);
    rd_pool_give_back(comm, place);
}

/* ---- Where buffers lie ---- */

static rondo_result locate(const rondo_comm *comm, const rd_call *call, const char *name, const void *ptr, size_t bytes,
                           bool *on_gpu)
{
    int ordinal = comm->device ? rd_device_ordinal(comm->device) : -1, owner = -1;
    *on_gpu = false;
    if (!bytes) return RONDO_SUCCESS;
    rd_reach reach = rd_device_reach(ordinal, ptr, bytes, &owner);
    *on_gpu = reach == RD_REACH_GPU;
    if (comm->device && reach == RD_REACH_HOST && !rd_is_readable(ptr, bytes))
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "%s: %s is %p, and [%p, +%zu) is memory neither of a GPU nor of the host; was it freed?",
                       call->name, name, ptr, ptr, bytes);
    if (reach != RD_REACH_OTHER) return RONDO_SUCCESS;
    char uses[64] = "host memory";
    if (ordinal >= 0) snprintf(uses, sizeof uses, "GPU %d", ordinal);
    return rd_fail(RONDO_INVALID_ARGUMENT,
                   "%s: %s is %p, memory of GPU %d, and rank %d of this communicator uses %s; make one with "
                   "config.device = %d",
                   call->name, name, ptr, owner, comm->rank, uses, owner);
}

rondo_result rd_call_locate(const rondo_comm *comm, rd_call *call)
{
    size_t sends, receives;
    rd_call_ranges(comm, call, &sends, &receives);
    RD_TRY(locate(comm, call, "send", call->send, sends, &call->send_on_gpu));
    return locate(comm, call, "recv", call->recv, receives, &call->recv_on_gpu);
}

rondo_result rd_task_order(rd_task *task)
{
    rondo_comm *comm = task->comm;
    bool any = false;
    if (!comm->device) return RONDO_SUCCESS;
    for (int i = 0; i < task->count; i++) any = any || task->calls[i].send_on_gpu || task->calls[i].recv_on_gpu;
    return any ? rd_gpu_mark_set(&comm->device->legacy, RD_CU_STREAM_LEGACY, &task->mark) : RONDO_SUCCESS;
}

static bool is_busy(rd_device *device)
{
    rd_engine *engine = device ? rd_device_engine(device) : NULL;
    return engine && !rd_engine_done(engine, engine->given);
}

bool rd_task_on_gpu(const rd_task *task)
{
    if (!task->started) return task->mark && rd_task_is_next(task);
    return is_busy(task->comm->device) || is_busy(task->comm->messenger);
}

/* With passes, or with a kernel that need not wait for a peer now. */
static bool is_busy_alone(rd_device *device, const rd_op *op)
{
    bool waits = op->kernel_ticket && !(op->by == RD_BY_PEERS && rd_peers_kernel_goes_on(op));
    return !waits && is_busy(device);
}

bool rd_task_on_gpu_alone(const rd_task *task)
{
    const rondo_comm *comm = task->comm;
    if (!task->started) return rd_task_on_gpu(task);
    return is_busy_alone(comm->device, &comm->op) || is_busy_alone(comm->messenger, &comm->messages);
}

/* ---- Staging ---- */

/* Room for `bytes` that the GPU reaches. */
static rondo_result make_room(rondo_comm *comm, rd_staging *stage, size_t bytes)
{
    stage->used = 0;
    stage->count = 0;
    if (bytes <= stage->room) return RONDO_SUCCESS;
    void *larger;
    size_t room = bytes > 2 * stage->room ? bytes : 2 * stage->room;
    RD_TRY(rd_device_alloc_host(comm->device, room, &larger));
    if (stage->memory) stage->outgrown.memory[stage->outgrown.count++] = stage->memory;
    stage->memory = larger;
    stage->room = room;
    return RONDO_SUCCESS;
}

static void *take(rd_staging *stage, size_t bytes)
{
    void *at = (unsigned char *)stage->memory + stage->used;
    stage->used += (bytes + 63) / 64 * 64;
    return at;
}

static void *stage_input(rd_staging *stage, const void *from, size_t bytes)
{
    return memcpy(take(stage, bytes), from, bytes);
}

static void *stage_output(rd_staging *stage, void *to, size_t bytes)
{
    void *at = take(stage, bytes);
    stage->results[stage->count++] = (rd_staged){.to = to, .from = at, .bytes = bytes};
    return at;
}

static rondo_result room_for_results(rd_staging *stage, int count)
{
    if (count <= stage->results_room) return RONDO_SUCCESS;
    rd_staged *results = realloc(stage->results, (size_t)count * sizeof *results);
    if (!results) return rd_fail_errno("no memory for a list of %d staged results", count);
    stage->results = results;
    stage->results_room = count;
    return RONDO_SUCCESS;
}

/* Whether some link of the ring has any of these capabilities. */
static bool ring_has(const rondo_comm *comm, uint32_t caps)
{
    const rd_wiring *wiring = &comm->wiring;
    for (int ch = 0; comm->size > 1 && ch < wiring->channels; ch++)
        if ((wiring->ring_out[ch]->link->caps | wiring->ring_in[ch]->link->caps) & caps) return true;
    return false;
}

static bool transfers_have(const rd_op *op, uint32_t caps)
{
    for (int i = 0; i < op->transfer_count; i++)
        if (op->transfers[i].wire->link && op->transfers[i].wire->link->caps & caps) return true;
    return false;
}

bool rd_task_beside_kernels(const rd_task *task)
{
    const rondo_comm *comm = task->comm;
    if (!comm->device) return false;
    if (task->running && (ring_has(comm, RONDO_LINK_DEVICE) ||
                          (comm->op.by == RD_BY_PEERS && transfers_have(&comm->op, RONDO_LINK_DEVICE))))
        return true;
    return task->passing && transfers_have(&comm->messages, RONDO_LINK_DEVICE);
}

/* Where a GPU reaches neither buffer the CPU carries it out, if it reaches all slots. */
rondo_result rd_place_call(rondo_comm *comm, const rd_call *call)
{
    rd_op *op = &comm->op;
    rd_staging *stage = &comm->stage[RD_LANE_COLLECTIVES];
    size_t sends, receives;
    stage->count = 0;
    bool slots_on_gpu =
        op->plan.algo == RONDO_ALGO_PEERS ? rd_pool_any(comm) : ring_has(comm, RONDO_LINK_DEVICE | RONDO_LINK_FAR);
    bool by_gpu = call->send_on_gpu || call->recv_on_gpu || slots_on_gpu;
    op->engine = by_gpu ? rd_device_engine(comm->device) : NULL;
    if (!op->engine) return RONDO_SUCCESS;
    rd_call_ranges(comm, call, &sends, &receives);
    if (call->send_on_gpu) sends = 0;
    if (call->recv_on_gpu) receives = 0;
    if (!sends && !receives) return RONDO_SUCCESS;
    RD_TRY(room_for_results(stage, 1));
    RD_TRY(make_room(comm, stage, sends + receives + 128));
    if (sends) op->buffers.input = stage_input(stage, call->send, sends);
    if (receives) op->buffers.output = stage_output(stage, call->recv, receives);
    return RONDO_SUCCESS;
}

/* The slots lie in GPU memory, or may do when there is a link. */
static bool goes_by_gpu(const rondo_comm *comm, const rd_transfer *t)
{
    if (t->wire->link) return t->wire->link->caps & RONDO_LINK_DEVICE;
    return t->sends ? rd_pool_out(comm, t->peer) : rd_pool_in(comm, t->peer);
}

rondo_result rd_place_messages(rondo_comm *comm, const rd_call *calls)
{
    rd_op *op = &comm->messages;
    rd_staging *stage = &comm->stage[RD_LANE_MESSAGES];
    size_t plain = 0;
    bool any = false;
    stage->count = 0;
    for (int i = 0; i < op->transfer_count; i++) {
        const rd_call *call = &calls[op->transfers[i].step];
        bool on_gpu = call->send_on_gpu || call->recv_on_gpu;
        any = any || on_gpu || goes_by_gpu(comm, &op->transfers[i]);
        if (!on_gpu) plain += op->transfers[i].bytes + 64;
    }
    op->engine = any ? rd_device_engine(comm->messenger) : NULL;
    if (!any || !plain) return RONDO_SUCCESS;
    RD_TRY(room_for_results(stage, op->transfer_count));
    RD_TRY(make_room(comm, stage, plain));
    for (int i = 0; i < op->transfer_count; i++) {
        rd_transfer *t = &op->transfers[i];
        const rd_call *call = &calls[t->step];
        if (call->send_on_gpu || call->recv_on_gpu || !t->bytes) continue;
        t->at = t->sends ? stage_input(stage, t->at, t->bytes) : stage_output(stage, t->at, t->bytes);
    }
    return RONDO_SUCCESS;
}

void rd_place_back(rondo_comm *comm, rd_lane lane)
{
    rd_staging *stage = &comm->stage[lane];
    for (int i = 0; i < stage->count; i++)
        memcpy(stage->results[i].to, stage->results[i].from, stage->results[i].bytes);
    stage->count = 0;
}
