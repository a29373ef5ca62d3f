/* SPDX-License-Identifier: Apache-2.0
 *
 * step.c - the life of a step. A bucket is filled by ready, launched when it is full and all before it are, and landed
 * by wait. What never came is sent as zeros by wait, whatever that means for the step: a rank that sent nothing would
 * hold up all others.
 */
#include "base/clock.h"
#include "base/dtype.h"
#include "base/status.h"
#include "ddp/ddp.h"

#include <stdlib.h>
#include <string.h>

/* ---- Failures ---- */

rondo_result rd_ddp_check(const rondo_ddp *ddp, const char *function)
{
    if (!ddp) return rd_fail(RONDO_INVALID_ARGUMENT, "%s: ddp is NULL; it must come from rondo_ddp_create", function);
    if (ddp->failed != RONDO_SUCCESS)
        return rd_fail(ddp->failed, "%s", ddp->error ? ddp->error : rondo_result_string(ddp->failed));
    return RONDO_SUCCESS;
}

rondo_result rd_ddp_failed(rondo_ddp *ddp, rondo_result result)
{
    if (result == RONDO_SUCCESS || ddp->failed != RONDO_SUCCESS) return result;
    ddp->failed = result;
    ddp->error = strdup(rondo_last_error(NULL));
    return result;
}

static rondo_result check_index(const rondo_ddp *ddp, int index, const char *function)
{
    if (index >= 0 && index < ddp->params) return RONDO_SUCCESS;
    return rd_fail(RONDO_INVALID_ARGUMENT, "%s: index is %d; there are %d parameters, numbered from 0", function, index,
                   ddp->params);
}

/* ---- Filling ---- */

void rd_ddp_begin(rondo_ddp *ddp)
{
    if (ddp->in_step) return;
    ddp->in_step = true;
    ddp->next = 0;
    ddp->report.bytes = 0;
    for (int b = 0; b < ddp->buckets; b++) {
        ddp->bucket[b].missing = ddp->bucket[b].members;
        ddp->bucket[b].launched = false;
    }
}

/* The gradient's place in the bucket holds it from here on. */
static rondo_result take(const rondo_ddp *ddp, rd_ddp_param *p, int index)
{
    if (rd_ddp_is_view(p)) return RONDO_SUCCESS;
    if (!*p->of.gradient && p->of.count)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "rondo_ddp_ready: parameter %d '%s': its gradient's pointer is NULL; it must point "
                       "to %zu elements of %s, or to the view that rondo_ddp_view gives",
                       index, p->of.name, p->of.count, rd_dtype_name(p->of.dtype));
    size_t bytes = p->of.count * rd_dtype_bytes(p->of.dtype);
    if (bytes)
        RD_TRY(
            rd_ddp_check_memory(ddp, "rondo_ddp_ready", "parameter", index, p->of.name, "gradient", *p->of.gradient));
    /* What a GPU adds up is ordered behind the copy; the CPU has to wait for it. */
    return (ddp->on_gpu ? rd_ddp_copy_later : rd_ddp_copy)(ddp, p->view, *p->of.gradient, bytes);
}

static rondo_result launch_full(rondo_ddp *ddp)
{
    for (; ddp->next < ddp->buckets && !ddp->bucket[ddp->next].missing; ddp->next++)
        RD_TRY(rd_ddp_launch(ddp, ddp->next));
    return RONDO_SUCCESS;
}

static bool needs_forward(const rondo_ddp *ddp)
{
    return ddp->config.join != RONDO_DDP_JOIN_NONE || ddp->config.reduce == RONDO_DDP_WEIGHTED;
}

rondo_result rondo_ddp_ready(rondo_ddp *ddp, int index)
{
    RD_TRY(rd_ddp_check(ddp, "rondo_ddp_ready"));
    RD_TRY(check_index(ddp, index, "rondo_ddp_ready"));
    rd_ddp_param *p = &ddp->param[index];
    if (ddp->no_sync) {
        p->used = true;
        return RONDO_SUCCESS;
    }
    if (needs_forward(ddp) && !ddp->forwarded)
        return rd_fail(RONDO_INVALID_USAGE,
                       "rondo_ddp_ready: parameter %d '%s' without a forward before; with join or WEIGHTED "
                       "each step begins with rondo_ddp_forward",
                       index, p->of.name);
    if (p->ready)
        return rd_fail(RONDO_INVALID_USAGE,
                       "rondo_ddp_ready: parameter %d '%s' is ready for the second time in this step; call it "
                       "once, after the last addition to its gradient, and rondo_ddp_wait before the next step",
                       index, p->of.name);
    RD_TRY(take(ddp, p, index));
    rd_ddp_begin(ddp);
    p->ready = p->used = true;
    if (!ddp->rebuilt) ddp->arrival[ddp->arrivals++] = index;
    ddp->bucket[p->bucket].missing--;
    return rd_ddp_failed(ddp, launch_full(ddp));
}

/* ---- Ending ---- */

static rondo_result launch_rest(rondo_ddp *ddp)
{
    for (; ddp->next < ddp->buckets; ddp->next++) {
        rd_ddp_bucket *b = &ddp->bucket[ddp->next];
        for (int m = 0; m < b->members; m++) {
            rd_ddp_param *p = &ddp->param[b->member[m]];
            if (p->ready) continue;
            /* What came within no_sync counts, if it may be missing here. */
            if (p->used && ddp->config.find_unused && *p->of.gradient)
                RD_TRY(take(ddp, p, b->member[m]));
            else
                RD_TRY(rd_ddp_lend_zeros(ddp, p));
        }
        RD_TRY(rd_ddp_launch(ddp, ddp->next));
    }
    return RONDO_SUCCESS;
}

static rondo_result land_all(rondo_ddp *ddp, bool *complete)
{
    *complete = true;
    for (int b = 0; b < ddp->buckets; b++) {
        RD_TRY(rd_ddp_land(ddp, b));
        if (!ddp->config.find_unused && rd_ddp_marked(&ddp->bucket[b], 0)) *complete = false;
        RD_TRY(rd_ddp_settle(ddp, &ddp->bucket[b]));
    }
    RD_TRY(rd_ddp_copied(ddp));
    return rondo_stream_synchronize(ddp->stream); /* the times are written, too */
}

/* New buckets in the order of arrival on the first rank that is there; what did not come there is last. */
static rondo_result rebuild(rondo_ddp *ddp)
{
    int32_t *order = malloc((size_t)ddp->params * sizeof *order);
    if (!order) return rd_fail_errno("no memory for the order of %d parameters", ddp->params);
    int count = ddp->arrivals;
    for (int k = 0; k < count; k++) order[k] = ddp->arrival[k];
    for (int k = 0; k < ddp->params; k++)
        if (!ddp->param[ddp->order[k]].ready) order[count++] = ddp->order[k];
    rondo_result result =
        rondo_broadcast(order, order, (size_t)ddp->params, RONDO_INT32, ddp->first_active, ddp->comm, NULL);
    bool same = true;
    for (int k = 0; k < ddp->params; k++) same = same && order[k] == ddp->order[k];
    if (result == RONDO_SUCCESS && !same) {
        rondo_result made = rd_ddp_make_buckets(ddp, order);
        result = rd_ddp_tell(ddp, RONDO_SYSTEM_ERROR, made == RONDO_SUCCESS ? "" : rondo_last_error(NULL));
    }
    ddp->rebuilt = true;
    free(order);
    return result;
}

static void measure(rondo_ddp *ddp, int64_t waited_from)
{
    int64_t before = 0, under_way = 0, hidden = 0;
    for (int b = 0; b < ddp->buckets; b++) {
        const rd_ddp_bucket *bucket = &ddp->bucket[b];
        int64_t from = bucket->started_ns > before ? bucket->started_ns : before, to = atomic_load(&bucket->done_ns);
        if (to < from) to = from;
        under_way += to - from;
        if (from < waited_from) hidden += (to < waited_from ? to : waited_from) - from;
        before = to;
    }
    ddp->report.step = ++ddp->steps;
    ddp->report.buckets = ddp->buckets;
    ddp->report.communicating_s = (double)under_way * 1e-9;
    ddp->report.hidden_s = (double)hidden * 1e-9;
    ddp->report.waited_s = (double)(rd_now() - waited_from) * 1e-9;
}

rondo_result rd_ddp_finish(rondo_ddp *ddp)
{
    bool complete;
    int64_t from = rd_now();
    rd_ddp_begin(ddp);
    RD_TRY(launch_rest(ddp));
    RD_TRY(land_all(ddp, &complete));
    if (!complete) return rd_ddp_say_missing(ddp);
    measure(ddp, from);
    if (!ddp->rebuilt) RD_TRY(rebuild(ddp));
    for (int i = 0; i < ddp->params; i++) ddp->param[i].ready = ddp->param[i].used = false;
    ddp->in_step = ddp->forwarded = false;
    ddp->samples = 0;
    return RONDO_SUCCESS;
}

rondo_result rondo_ddp_wait(rondo_ddp *ddp)
{
    RD_TRY(rd_ddp_check(ddp, "rondo_ddp_wait"));
    if (ddp->no_sync) return RONDO_SUCCESS;
    if (needs_forward(ddp) && !ddp->forwarded)
        return rd_fail(RONDO_INVALID_USAGE,
                       "rondo_ddp_wait: no forward before; with join or WEIGHTED each step begins with "
                       "rondo_ddp_forward");
    return rd_ddp_failed(ddp, rd_ddp_finish(ddp));
}

static rondo_result set_no_sync(rondo_ddp *ddp, bool on, const char *function)
{
    RD_TRY(rd_ddp_check(ddp, function));
    if (ddp->no_sync == on)
        return rd_fail(RONDO_INVALID_USAGE, "%s: it is %s already; begin and end must alternate", function,
                       on ? "begun" : "ended");
    if (ddp->in_step)
        return rd_fail(RONDO_INVALID_USAGE, "%s: a step has gradients under way; call rondo_ddp_wait first", function);
    ddp->no_sync = on;
    return RONDO_SUCCESS;
}

rondo_result rondo_ddp_no_sync_begin(rondo_ddp *ddp)
{
    return set_no_sync(ddp, true, "rondo_ddp_no_sync_begin");
}

rondo_result rondo_ddp_no_sync_end(rondo_ddp *ddp)
{
    return set_no_sync(ddp, false, "rondo_ddp_no_sync_end");
}

rondo_result rondo_ddp_view(rondo_ddp *ddp, int index, void **view)
{
    RD_TRY(rd_ddp_check(ddp, "rondo_ddp_view"));
    RD_TRY(check_index(ddp, index, "rondo_ddp_view"));
    if (!view)
        return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_ddp_view: view is NULL; it must point to where the pointer goes");
    *view = ddp->param[index].view;
    return RONDO_SUCCESS;
}
