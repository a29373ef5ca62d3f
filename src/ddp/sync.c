/* SPDX-License-Identifier: Apache-2.0
 *
 * sync.c - what ranks do together outside of gradients: values that become one rank's, buffers, and the word of each
 * before a step: whether it takes part, and with how many samples.
 */
#include "base/dtype.h"
#include "base/status.h"
#include "ddp/ddp.h"

#include <stdlib.h>

/* ---- Values of one rank for all ---- */

/* Small tensors travel together, as bytes; those above PACK go by themselves, from where they are. */
enum { PACK = 64 << 10 };

typedef struct pack {
    unsigned char bytes[PACK];
    const rondo_ddp_tensor *held[PACK]; /* each has one byte or more */
    size_t used, count;
} pack;

static size_t bytes_of(const rondo_ddp_tensor *t)
{
    return t->count * rd_dtype_bytes(t->dtype);
}

static rondo_result send_pack(const rondo_ddp *ddp, int root, pack *p)
{
    size_t at = 0;
    RD_TRY(rondo_broadcast(p->bytes, p->bytes, p->used, RONDO_UINT8, root, ddp->comm, NULL));
    for (size_t k = 0; k < p->count; at += bytes_of(p->held[k++]))
        if (ddp->rank != root) RD_TRY(rd_ddp_copy(ddp, p->held[k]->data, p->bytes + at, bytes_of(p->held[k])));
    p->used = p->count = 0;
    return RONDO_SUCCESS;
}

static rondo_result send_tensor(const rondo_ddp *ddp, int root, const rondo_ddp_tensor *t, pack *p)
{
    size_t bytes = bytes_of(t);
    if (bytes == 0) return RONDO_SUCCESS;
    if (bytes > PACK) return rondo_broadcast(t->data, t->data, t->count, t->dtype, root, ddp->comm, NULL);
    if (p->used + bytes > PACK) RD_TRY(send_pack(ddp, root, p));
    if (ddp->rank == root) RD_TRY(rd_ddp_copy(ddp, p->bytes + p->used, t->data, bytes));
    p->held[p->count++] = t;
    p->used += bytes;
    return RONDO_SUCCESS;
}

static bool is_float(const rondo_ddp_tensor *t)
{
    return t->dtype == RONDO_FLOAT16 || t->dtype == RONDO_BFLOAT16 || t->dtype == RONDO_FLOAT32 ||
           t->dtype == RONDO_FLOAT64;
}

typedef enum which { PARAMETERS = 1, FLOAT_BUFFERS = 2, OTHER_BUFFERS = 4, BUFFERS = 6 } which;

static rondo_result broadcast(rondo_ddp *ddp, int root, int what)
{
    rondo_result result = RONDO_SUCCESS;
    pack *p = malloc(sizeof *p);
    if (!p) return rd_fail_errno("no memory for %zu bytes of parameters", sizeof *p);
    p->used = p->count = 0;
    for (int i = 0; i < ddp->params && (what & PARAMETERS) && result == RONDO_SUCCESS; i++)
        result = send_tensor(ddp, root, &ddp->param[i].of, p);
    for (int i = 0; i < ddp->buffers && result == RONDO_SUCCESS; i++)
        if (what & (is_float(&ddp->buffer[i]) ? FLOAT_BUFFERS : OTHER_BUFFERS))
            result = send_tensor(ddp, root, &ddp->buffer[i], p);
    if (result == RONDO_SUCCESS && p->used) result = send_pack(ddp, root, p);
    free(p);
    return result;
}

rondo_result rd_ddp_start_alike(rondo_ddp *ddp)
{
    return broadcast(ddp, 0, PARAMETERS | BUFFERS);
}

/* ---- Buffers ---- */

typedef struct sums {
    double *at; /* of the buffer that has its turn */
    double share;
} sums;

static void add_share(void *part, size_t first, size_t count, rondo_dtype dtype, void *context)
{
    const sums *s = context;
    for (size_t k = 0; k < count; k++) s->at[first + k] = s->share > 0 ? s->share * rd_ddp_get(part, k, dtype) : 0;
}

static void take_mean(void *part, size_t first, size_t count, rondo_dtype dtype, void *context)
{
    const sums *s = context;
    for (size_t k = 0; k < count; k++) rd_ddp_put(part, k, dtype, s->at[first + k]);
}

static rondo_result each_float_buffer(const rondo_ddp *ddp, double *all, double share, rd_ddp_touch touch,
                                      rd_ddp_work *work)
{
    sums s = {all, share};
    for (int i = 0; i < ddp->buffers; i++) {
        const rondo_ddp_tensor *t = &ddp->buffer[i];
        if (!is_float(t)) continue;
        RD_TRY(rd_ddp_pass(ddp, t->data, t->count, t->dtype, touch, work, &s));
        s.at += t->count;
    }
    return RONDO_SUCCESS;
}

/* Each rank's floats by its share of the samples, added up in float64 in one call. */
static rondo_result mean_of_buffers(rondo_ddp *ddp, double total)
{
    size_t count = 0;
    for (int i = 0; i < ddp->buffers; i++) count += is_float(&ddp->buffer[i]) ? ddp->buffer[i].count : 0;
    if (count == 0) return RONDO_SUCCESS;
    double *all = malloc(count * sizeof *all), share = ddp->words[ddp->rank].since_buffers / total;
    if (!all) return rd_fail_errno("no memory for the mean of %zu elements of buffers", count);
    rondo_result result = each_float_buffer(ddp, all, share, RD_DDP_READ, add_share);
    if (result == RONDO_SUCCESS) result = rondo_all_reduce(all, all, count, RONDO_FLOAT64, RONDO_SUM, ddp->comm, NULL);
    if (result == RONDO_SUCCESS) result = each_float_buffer(ddp, all, share, RD_DDP_WRITE, take_mean);
    free(all);
    return result;
}

rondo_result rd_ddp_check_buffers(const rondo_ddp *ddp, const char *function)
{
    for (int i = 0; i < ddp->buffers && ddp->gpu.cuda; i++) {
        const rondo_ddp_tensor *t = &ddp->buffer[i];
        if (t->count) RD_TRY(rd_ddp_check_memory(ddp, function, "buffer", i, t->name, "data", t->data));
    }
    return RONDO_SUCCESS;
}

static rondo_result sync_buffers(rondo_ddp *ddp)
{
    double total = 0;
    if (ddp->buffers == 0 || ddp->config.buffers == RONDO_DDP_BUFFERS_OWN) return RONDO_SUCCESS;
    if (ddp->config.buffers == RONDO_DDP_BUFFERS_FIRST) return broadcast(ddp, ddp->first_active, BUFFERS);
    for (int r = 0; r < ddp->size; r++) total += ddp->words[r].since_buffers;
    if (total > 0) RD_TRY(mean_of_buffers(ddp, total)); /* else nobody has touched them */
    ddp->since_buffers = 0;
    return broadcast(ddp, ddp->first_active, OTHER_BUFFERS);
}

/* ---- Before a step ---- */

static rondo_result exchange(rondo_ddp *ddp, bool active)
{
    rd_ddp_word *mine = &ddp->words[ddp->size];
    *mine = (rd_ddp_word){active, ddp->samples, ddp->since_buffers};
    RD_TRY(rondo_all_gather(mine, ddp->words, sizeof *mine / sizeof(double), RONDO_FLOAT64, ddp->comm, NULL));
    ddp->active = 0;
    ddp->total = 0;
    for (int r = ddp->size - 1; r >= 0; r--) {
        ddp->total += ddp->words[r].samples;
        if (!(ddp->words[r].active > 0)) continue;
        ddp->active++;
        ddp->first_active = r; /* of those of the last step, where there is none now */
    }
    return RONDO_SUCCESS;
}

static bool exchanges(const rondo_ddp *ddp)
{
    return ddp->config.join != RONDO_DDP_JOIN_NONE || ddp->config.reduce == RONDO_DDP_WEIGHTED ||
           (ddp->config.buffers == RONDO_DDP_BUFFERS_MEAN && ddp->buffers > 0);
}

static rondo_result check_between_steps(const rondo_ddp *ddp, const char *function)
{
    RD_TRY(rd_ddp_check(ddp, function));
    for (int i = 0; i < ddp->params && ddp->in_step; i++)
        if (!ddp->param[i].ready)
            return rd_fail(RONDO_INVALID_USAGE,
                           "%s: the step before was not ended by rondo_ddp_wait, and its parameter %d '%s' got "
                           "no gradient on rank %d",
                           function, i, ddp->param[i].of.name, ddp->rank);
    if (!ddp->in_step && !ddp->forwarded) return RONDO_SUCCESS;
    return rd_fail(RONDO_INVALID_USAGE,
                   "%s: the step before was not ended by rondo_ddp_wait; call it after the last ready", function);
}

static rondo_result begin_step(rondo_ddp *ddp)
{
    if (exchanges(ddp)) RD_TRY(exchange(ddp, true));
    if (ddp->config.join == RONDO_DDP_JOIN_STOP && ddp->active < ddp->size) {
        ddp->stopped = true;
        ddp->active = 0;
        return RONDO_SUCCESS;
    }
    RD_TRY(sync_buffers(ddp));
    ddp->forwarded = true;
    return RONDO_SUCCESS;
}

rondo_result rondo_ddp_forward(rondo_ddp *ddp, size_t samples, int *active)
{
    RD_TRY(check_between_steps(ddp, "rondo_ddp_forward"));
    if (samples == 0)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "rondo_ddp_forward: samples is 0; a batch has 1 or more, and a rank without one "
                       "calls rondo_ddp_join");
    if (!active && ddp->config.join == RONDO_DDP_JOIN_STOP)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "rondo_ddp_forward: active is NULL; with JOIN_STOP it says when to stop");
    RD_TRY(rd_ddp_check_buffers(ddp, "rondo_ddp_forward"));
    ddp->samples += (double)samples;
    if (!ddp->no_sync) RD_TRY(rd_ddp_failed(ddp, begin_step(ddp)));
    if (!ddp->stopped) ddp->since_buffers += (double)samples;
    if (active) *active = ddp->active;
    return RONDO_SUCCESS;
}

rondo_result rondo_ddp_sync_buffers(rondo_ddp *ddp)
{
    RD_TRY(check_between_steps(ddp, "rondo_ddp_sync_buffers"));
    RD_TRY(rd_ddp_check_buffers(ddp, "rondo_ddp_sync_buffers"));
    if (exchanges(ddp)) RD_TRY(rd_ddp_failed(ddp, exchange(ddp, true)));
    return rd_ddp_failed(ddp, sync_buffers(ddp));
}

/* ---- Uneven inputs ---- */

/* The others' steps, up to the exchange in which nobody takes part any more, or all have been told to stop. */
static rondo_result follow(rondo_ddp *ddp)
{
    while (!ddp->stopped) {
        RD_TRY(exchange(ddp, false));
        if (ddp->active == 0 || ddp->config.join == RONDO_DDP_JOIN_STOP) break;
        RD_TRY(sync_buffers(ddp));
        RD_TRY(rd_ddp_finish(ddp));
    }
    int last = ddp->first_active;
    RD_TRY(exchange(ddp, false)); /* the samples since buffers were made alike */
    RD_TRY(sync_buffers(ddp));
    return broadcast(ddp, last, PARAMETERS);
}

rondo_result rondo_ddp_join(rondo_ddp *ddp)
{
    RD_TRY(check_between_steps(ddp, "rondo_ddp_join"));
    if (ddp->config.join == RONDO_DDP_JOIN_NONE || ddp->no_sync)
        return rd_fail(RONDO_INVALID_USAGE, "rondo_ddp_join: %s",
                       ddp->no_sync ? "within no_sync; end it first"
                                    : "config->join is RONDO_DDP_JOIN_NONE; on all ranks it must be another one");
    ddp->joined = true;
    ddp->samples = 0;
    for (int i = 0; i < ddp->params; i++) ddp->param[i].used = false; /* accumulated, but never sent */
    rondo_result result = follow(ddp);
    ddp->joined = ddp->stopped = false;
    ddp->active = ddp->size;
    ddp->samples = ddp->since_buffers = 0;
    return rd_ddp_failed(ddp, result);
}
