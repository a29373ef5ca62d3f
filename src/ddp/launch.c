/* SPDX-License-Identifier: Apache-2.0
 *
 * launch.c - a bucket on its way: scaled, compressed, given to the stream; and back.
 */
#include "base/clock.h"
#include "base/dtype.h"
#include "base/status.h"
#include "ddp/ddp.h"

#include <string.h>

static void note_done(void *context, rondo_result result)
{
    rd_ddp_bucket *bucket = context;
    (void)result;
    atomic_store(&bucket->done_ns, rd_now());
}

static rondo_dtype narrow_type(const rondo_ddp *ddp)
{
    return ddp->config.compression == RONDO_DDP_AS_FLOAT16 ? RONDO_FLOAT16 : RONDO_BFLOAT16;
}

/* An average adds up with care for what overflows. */
static rondo_op operator_of(const rondo_ddp *ddp)
{
    return ddp->config.reduce == RONDO_DDP_AVERAGE ? RONDO_AVG : RONDO_SUM;
}

static rondo_ddp_bucket shown(const rondo_ddp *ddp, int index)
{
    const rd_ddp_bucket *b = &ddp->bucket[index];
    return (rondo_ddp_bucket){sizeof(rondo_ddp_bucket), index, ddp->buckets, b->data, b->count, b->dtype};
}

/* The bucket by the user's function, its marks by a call of their own. */
static rondo_result send_by_hook(rondo_ddp *ddp, int index)
{
    rd_ddp_bucket *b = &ddp->bucket[index];
    rondo_ddp_bucket bucket = shown(ddp, index);
    RD_TRY(ddp->hook.start(ddp->hook.context, &bucket, ddp->comm, ddp->stream));
    return rondo_all_reduce(b->mark, b->mark, b->marks, b->dtype, RONDO_SUM, ddp->comm, ddp->stream);
}

/* ---- Gradients and marks as one message ---- */

typedef struct narrowing {
    unsigned char *narrow;
    rondo_dtype dtype;
} narrowing;

static void narrow_part(void *part, size_t first, size_t count, rondo_dtype dtype, void *context)
{
    const narrowing *n = context;
    rd_ddp_convert(part, dtype, n->narrow + first * rd_dtype_bytes(n->dtype), n->dtype, count);
}

static void widen_part(void *part, size_t first, size_t count, rondo_dtype dtype, void *context)
{
    const narrowing *n = context;
    rd_ddp_convert(n->narrow + first * rd_dtype_bytes(n->dtype), n->dtype, part, dtype, count);
}

/* Marks go behind the gradients, and everything is compressed where that was asked for. */
static rondo_result message_out(const rondo_ddp *ddp, rd_ddp_bucket *b)
{
    narrowing n = {b->narrow, narrow_type(ddp)};
    unsigned char *behind = b->data + b->count * rd_dtype_bytes(b->dtype);
    if (!b->narrow)
        return behind == b->mark ? RONDO_SUCCESS
                                 : rd_ddp_copy_later(ddp, behind, b->mark, b->marks * rd_dtype_bytes(b->dtype));
    RD_TRY(rd_ddp_pass(ddp, b->data, b->count, b->dtype, RD_DDP_READ, narrow_part, &n));
    narrow_part(b->mark, b->count, b->marks, b->dtype, &n);
    return RONDO_SUCCESS;
}

static rondo_result message_in(const rondo_ddp *ddp, rd_ddp_bucket *b)
{
    narrowing n = {b->narrow, narrow_type(ddp)};
    const unsigned char *behind = b->data + b->count * rd_dtype_bytes(b->dtype);
    if (ddp->config.hook) return RONDO_SUCCESS;
    if (!b->narrow)
        return behind == b->mark ? RONDO_SUCCESS
                                 : rd_ddp_copy(ddp, b->mark, behind, b->marks * rd_dtype_bytes(b->dtype));
    RD_TRY(rd_ddp_pass(ddp, b->data, b->count, b->dtype, RD_DDP_WRITE, widen_part, &n));
    widen_part(b->mark, b->count, b->marks, b->dtype, &n);
    return RONDO_SUCCESS;
}

static rondo_result send(rondo_ddp *ddp, int index)
{
    rd_ddp_bucket *b = &ddp->bucket[index];
    size_t elements = b->count + b->marks;
    void *data = b->narrow ? b->narrow : b->data;
    rondo_dtype dtype = b->narrow ? narrow_type(ddp) : b->dtype;
    ddp->report.bytes += elements * rd_dtype_bytes(dtype);
    if (ddp->config.hook) return send_by_hook(ddp, index);
    RD_TRY(message_out(ddp, b));
    return rondo_all_reduce(data, data, elements, dtype, operator_of(ddp), ddp->comm, ddp->stream);
}

rondo_result rd_ddp_launch(rondo_ddp *ddp, int index)
{
    rd_ddp_bucket *b = &ddp->bucket[index];
    rd_ddp_mark(ddp, b);
    if (ddp->config.reduce == RONDO_DDP_WEIGHTED)
        RD_TRY(rd_ddp_scale_tensor(ddp, b->data, b->count, b->dtype, ddp->words[ddp->rank].samples / ddp->total));
    rondo_work_free(b->work);
    b->work = NULL;
    b->launched = true;
    b->started_ns = rd_now();
    RD_TRY(send(ddp, index));
    RD_TRY(rondo_stream_work(ddp->stream, &b->work));
    return rondo_work_then(b->work, note_done, b);
}

rondo_result rd_ddp_land(rondo_ddp *ddp, int index)
{
    rd_ddp_bucket *b = &ddp->bucket[index];
    RD_TRY(rondo_work_wait(b->work, -1));
    if (ddp->config.hook && ddp->hook.finish) {
        rondo_ddp_bucket bucket = shown(ddp, index);
        RD_TRY(ddp->hook.finish(ddp->hook.context, &bucket));
    }
    RD_TRY(message_in(ddp, b));
    if (ddp->config.join != RONDO_DDP_JOIN_ACTIVE || ddp->config.reduce != RONDO_DDP_AVERAGE) return RONDO_SUCCESS;
    return rd_ddp_scale_tensor(ddp, b->data, b->count, b->dtype, (double)ddp->size / ddp->active);
}
