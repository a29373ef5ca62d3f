/* SPDX-License-Identifier: Apache-2.0 */
#include "base/dtype.h"
#include "base/status.h"
#include "ddp/ddp.h"

#include <stdlib.h>
#include <string.h>

/* ---- Arguments ---- */

static rondo_result check_config(const rondo_ddp_config *c)
{
    static const char *const where = "rondo_ddp_create: config";
    if (c->size != sizeof *c)
        return rd_fail(RONDO_INVALID_ARGUMENT, "%s->size is %zu; it must be %zu: start from RONDO_DDP_CONFIG_INIT",
                       where, c->size, sizeof *c);
    if (!c->first_bucket_bytes || !c->bucket_bytes)
        return rd_fail(RONDO_INVALID_ARGUMENT, "%s->%s is 0; it must be 1 or more bytes", where,
                       c->bucket_bytes ? "first_bucket_bytes" : "bucket_bytes");
    const struct {
        const char *name;
        int value, most;
    } choices[] = {{"reduce", (int)c->reduce, RONDO_DDP_WEIGHTED},
                   {"buffers", (int)c->buffers, RONDO_DDP_BUFFERS_OWN},
                   {"join", (int)c->join, RONDO_DDP_JOIN_STOP},
                   {"compression", (int)c->compression, RONDO_DDP_AS_FLOAT16}};
    for (size_t k = 0; k < sizeof choices / sizeof *choices; k++)
        if (choices[k].value < 0 || choices[k].value > choices[k].most)
            return rd_fail(RONDO_INVALID_ARGUMENT, "%s->%s is %d; it must be from 0 to %d", where, choices[k].name,
                           choices[k].value, choices[k].most);
    if (!c->hook) return RONDO_SUCCESS;
    if (c->hook->size != sizeof *c->hook || !c->hook->start)
        return rd_fail(RONDO_INVALID_ARGUMENT, "%s->hook: size is %zu, which must be %zu, and start must not be NULL",
                       where, c->hook->size, sizeof *c->hook);
    if (c->compression != RONDO_DDP_AS_IS)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "%s->hook with compression; it must be one of them: a hook compresses for itself", where);
    return RONDO_SUCCESS;
}

static bool trains(rondo_dtype dtype)
{
    return dtype == RONDO_FLOAT16 || dtype == RONDO_BFLOAT16 || dtype == RONDO_FLOAT32 || dtype == RONDO_FLOAT64;
}

static rondo_result check_tensors(const char *kind, const rondo_ddp_tensor *list, int count, bool parameters)
{
    if (count < (parameters ? 1 : 0) || (count && !list))
        return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_ddp_create: %d %ss at %p; there must be %s, and a list of them",
                       count, kind, (const void *)list, parameters ? "1 or more" : "0 or more");
    for (int i = 0; i < count; i++) {
        const rondo_ddp_tensor *t = &list[i];
        if (!t->name || !t->name[0])
            return rd_fail(RONDO_INVALID_ARGUMENT,
                           "rondo_ddp_create: %s %d has no name; errors and checkpoints need one", kind, i);
        if (!t->data && t->count)
            return rd_fail(RONDO_INVALID_ARGUMENT,
                           "rondo_ddp_create: %s %d '%s': data is NULL; it must point to %zu elements", kind, i,
                           t->name, t->count);
        if (!rd_dtype_bytes(t->dtype) || (parameters && !trains(t->dtype)))
            return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_ddp_create: %s %d '%s': type %d; it must be %s", kind, i,
                           t->name, (int)t->dtype,
                           parameters ? "float16, bfloat16, float32 or float64" : "a rondo_dtype");
        if (t->count > (SIZE_MAX >> 8) / rd_dtype_bytes(t->dtype))
            return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_ddp_create: %s %d '%s': count is %zu; it must be at most %zu",
                           kind, i, t->name, t->count, (SIZE_MAX >> 8) / rd_dtype_bytes(t->dtype));
        if (parameters && !t->gradient)
            return rd_fail(RONDO_INVALID_ARGUMENT,
                           "rondo_ddp_create: %s %d '%s': gradient is NULL; it must point to the pointer "
                           "to its gradient",
                           kind, i, t->name);
    }
    return RONDO_SUCCESS;
}

/* ---- Parts ---- */

static rondo_result copy_name(rondo_ddp_tensor *to, const rondo_ddp_tensor *from)
{
    *to = *from;
    to->name = strdup(from->name);
    return to->name ? RONDO_SUCCESS : rd_fail_errno("rondo_ddp_create: no memory for names");
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static rondo_result check_names(const rondo_ddp *ddp)
{
    size_t count = (size_t)(ddp->params + ddp->buffers);
    const char **names = malloc(count * sizeof *names), *twice = NULL;
    if (!names) return rd_fail_errno("rondo_ddp_create: no memory for %zu names", count);
    for (size_t i = 0; i < count; i++) rondo_ddp_name(ddp, (int)i, &names[i]);
    qsort(names, count, sizeof *names, by_name);
    for (size_t i = 1; i < count && !twice; i++)
        if (strcmp(names[i - 1], names[i]) == 0) twice = names[i];
    free(names);
    if (!twice) return RONDO_SUCCESS;
    return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_ddp_create: two tensors are named '%s'; names must differ", twice);
}

static rondo_result copy_tensors(rondo_ddp *ddp, const rondo_ddp_tensor *parameters, int params,
                                 const rondo_ddp_tensor *buffers, int count)
{
    ddp->param = calloc((size_t)params, sizeof *ddp->param);
    ddp->buffer = calloc((size_t)count + 1, sizeof *ddp->buffer);
    ddp->arrival = calloc((size_t)params, sizeof *ddp->arrival);
    ddp->order = calloc((size_t)params, sizeof *ddp->order);
    ddp->words = calloc((size_t)ddp->size + 1, sizeof *ddp->words);
    if (!ddp->param || !ddp->buffer || !ddp->arrival || !ddp->order || !ddp->words)
        return rd_fail_errno("rondo_ddp_create: no memory for %d parameters", params);
    for (; ddp->params < params; ddp->params++)
        RD_TRY(copy_name(&ddp->param[ddp->params].of, &parameters[ddp->params]));
    for (; ddp->buffers < count; ddp->buffers++) RD_TRY(copy_name(&ddp->buffer[ddp->buffers], &buffers[ddp->buffers]));
    for (int k = 0; k < params; k++) ddp->order[k] = params - 1 - k;
    return check_names(ddp);
}

static void take_config(rondo_ddp *ddp, const rondo_ddp_config *config)
{
    ddp->config = *config;
    if (!config->hook) return;
    ddp->hook = *config->hook;
    ddp->config.hook = &ddp->hook;
}

/* Where everything lies, and with it where buckets will. */
static rondo_result check_places(rondo_ddp *ddp)
{
    static const char where[] = "rondo_ddp_create";
    for (int i = 0; i < ddp->params; i++) {
        const rondo_ddp_tensor *t = &ddp->param[i].of;
        if (!t->count) continue;
        RD_TRY(rd_ddp_check_memory(ddp, where, "parameter", i, t->name, "data", t->data));
        RD_TRY(rd_ddp_check_memory(ddp, where, "parameter", i, t->name, "gradient", *t->gradient));
        ddp->on_gpu = ddp->on_gpu || rd_ddp_is_device(ddp, t->data);
    }
    return rd_ddp_check_buffers(ddp, where);
}

/* All that can go wrong on one rank alone. */
static rondo_result prepare(rondo_ddp *ddp, const rondo_ddp_tensor *parameters, int params,
                            const rondo_ddp_tensor *buffers, int count, const rondo_ddp_config *config)
{
    RD_TRY(check_config(config));
    take_config(ddp, config);
    RD_TRY(check_tensors("parameter", parameters, params, true));
    RD_TRY(check_tensors("buffer", buffers, count, false));
    RD_TRY(copy_tensors(ddp, parameters, params, buffers, count));
    RD_TRY(rd_ddp_open_gpu(ddp));
    RD_TRY(check_places(ddp));
    RD_TRY(rondo_stream_create(&ddp->stream, ddp->comm));
    return rd_ddp_make_buckets(ddp, ddp->order);
}

/* Pointers to views that won't be there any more. */
static void take_views_back(rondo_ddp *ddp)
{
    for (int i = 0; i < ddp->params; i++)
        if (ddp->param[i].view && rd_ddp_is_view(&ddp->param[i])) *ddp->param[i].of.gradient = NULL;
}

static rondo_result free_all(rondo_ddp *ddp)
{
    rondo_result result = rondo_stream_destroy(ddp->stream); /* waits for what is under way */
    take_views_back(ddp);
    rd_ddp_free_buckets(ddp);
    for (int i = 0; i < ddp->params; i++) {
        free(ddp->param[i].kept);
        free((char *)ddp->param[i].of.name);
    }
    for (int i = 0; i < ddp->buffers; i++) free((char *)ddp->buffer[i].name);
    rd_ddp_close_gpu(ddp);
    free(ddp->param);
    free(ddp->buffer);
    free(ddp->arrival);
    free(ddp->order);
    free(ddp->words);
    free(ddp->error);
    free(ddp);
    return result;
}

rondo_result rondo_ddp_create(rondo_ddp **ddp, const rondo_ddp_tensor *parameters, int parameter_count,
                              const rondo_ddp_tensor *buffers, int buffer_count, rondo_comm *comm,
                              const rondo_ddp_config *config)
{
    const rondo_ddp_config standard = RONDO_DDP_CONFIG_INIT;
    if (!ddp || !comm) return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_ddp_create: %s is NULL", ddp ? "comm" : "ddp");
    rondo_ddp *made = calloc(1, sizeof *made);
    if (!made) return rd_fail_errno("rondo_ddp_create: no memory");
    made->comm = comm;
    made->gpu.ordinal = -1;
    made->rank = rondo_comm_rank(comm);
    made->active = made->size = rondo_comm_size(comm);
    rondo_result result =
        prepare(made, parameters, parameter_count, buffers, buffer_count, config ? config : &standard);
    result = rd_ddp_agree(made, result);
    if (result == RONDO_SUCCESS) result = rd_ddp_start_alike(made);
    if (result == RONDO_SUCCESS)
        *ddp = made;
    else
        free_all(made);
    return result;
}

rondo_result rondo_ddp_destroy(rondo_ddp *ddp)
{
    return ddp ? free_all(ddp) : RONDO_SUCCESS;
}
