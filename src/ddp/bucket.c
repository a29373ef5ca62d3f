/* SPDX-License-Identifier: Apache-2.0
 *
 * bucket.c - the buckets' memory, and the views in it. All lie in one allocation of the library's, which peers on the
 * host can be given access to, so that they add gradients where they are.
 */
#include "base/dtype.h"
#include "base/status.h"
#include "ddp/ddp.h"

#include <stdlib.h>
#include <string.h>

enum { LINE = 64 };

static size_t whole_lines(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

bool rd_ddp_is_view(const rd_ddp_param *param)
{
    return *param->of.gradient == param->view;
}

static rondo_dtype compressed(const rondo_ddp *ddp)
{
    return ddp->config.compression == RONDO_DDP_AS_FLOAT16 ? RONDO_FLOAT16 : RONDO_BFLOAT16;
}

static bool is_compressed(const rondo_ddp *ddp, rondo_dtype dtype)
{
    return ddp->config.compression != RONDO_DDP_AS_IS && rd_dtype_bytes(dtype) > rd_dtype_bytes(compressed(ddp));
}

/* What is made first and put into place at the end. */
typedef struct layout {
    rd_ddp_bucket *bucket;
    int buckets, *of_place, *members;
    size_t *offset; /* by parameter */
    unsigned char *slab, *narrow;
    void *marks; /* beside a slab of GPU memory */
} layout;

static void free_layout(const rondo_ddp *ddp, layout *l)
{
    free(l->bucket);
    free(l->of_place);
    free(l->members);
    free(l->offset);
    free(l->narrow);
    rd_ddp_free_host(ddp, l->marks);
    rondo_mem_free(l->slab, NULL);
}

/* Places within buckets: members are in the order of arrival, one bucket's behind the other's in one array. */
static void place(const rondo_ddp *ddp, layout *l, const int *order)
{
    int *end = l->members;
    for (int b = 0; b < l->buckets; b++) {
        rd_ddp_bucket *bucket = &l->bucket[b];
        bucket->member = end;
        for (int k = 0; k < ddp->params; k++) {
            if (l->of_place[k] != b) continue;
            *end++ = order[k];
            bucket->members++;
            bucket->dtype = ddp->param[order[k]].of.dtype;
            l->offset[order[k]] = bucket->count;
            bucket->count += ddp->param[order[k]].of.count;
        }
        bucket->marks = ddp->config.find_unused ? (size_t)bucket->members : 1;
    }
}

static rondo_result allocate(const rondo_ddp *ddp, layout *l)
{
    size_t wide = 0, narrow = 0, marks = 0;
    for (int b = 0; b < l->buckets; b++) {
        size_t elements = l->bucket[b].count + l->bucket[b].marks;
        wide += whole_lines(elements * rd_dtype_bytes(l->bucket[b].dtype));
        marks += whole_lines(l->bucket[b].marks * rd_dtype_bytes(l->bucket[b].dtype));
        if (is_compressed(ddp, l->bucket[b].dtype)) narrow += whole_lines(elements * rd_dtype_bytes(compressed(ddp)));
    }
    void *slab = NULL;
    RD_TRY(rondo_mem_alloc(&slab, wide, ddp->on_gpu ? ddp->comm : NULL));
    l->slab = slab;
    if (ddp->on_gpu) RD_TRY(rd_ddp_alloc_host(ddp, marks, &l->marks));
    if (narrow && !(l->narrow = calloc(1, narrow)))
        return rd_fail_errno("no memory for %zu bytes of compressed gradients", narrow);
    wide = narrow = marks = 0;
    for (int b = 0; b < l->buckets; b++) {
        rd_ddp_bucket *bucket = &l->bucket[b];
        size_t elements = bucket->count + bucket->marks;
        bucket->data = l->slab + wide;
        bucket->mark =
            l->marks ? (unsigned char *)l->marks + marks : bucket->data + bucket->count * rd_dtype_bytes(bucket->dtype);
        marks += whole_lines(bucket->marks * rd_dtype_bytes(bucket->dtype));
        wide += whole_lines(elements * rd_dtype_bytes(bucket->dtype));
        if (!is_compressed(ddp, bucket->dtype)) continue;
        bucket->narrow = l->narrow + narrow;
        narrow += whole_lines(elements * rd_dtype_bytes(compressed(ddp)));
    }
    return RONDO_SUCCESS;
}

static unsigned char *new_view(const layout *l, const rd_ddp_bucket *bucket, int param)
{
    return bucket->data + l->offset[param] * rd_dtype_bytes(bucket->dtype);
}

/* Contents first, which may fail; then pointers. */
static rondo_result move_views(rondo_ddp *ddp, const layout *l)
{
    for (int b = 0; b < l->buckets; b++)
        for (int m = 0; m < l->bucket[b].members; m++) {
            int i = l->bucket[b].member[m];
            rd_ddp_param *p = &ddp->param[i];
            size_t bytes = p->of.count * rd_dtype_bytes(p->of.dtype);
            if (p->view && rd_ddp_is_view(p))
                RD_TRY(rd_ddp_copy_later(ddp, new_view(l, &l->bucket[b], i), p->view, bytes));
        }
    RD_TRY(rd_ddp_copied(ddp));
    for (int b = 0; b < l->buckets; b++)
        for (int m = 0; m < l->bucket[b].members; m++) {
            int i = l->bucket[b].member[m];
            rd_ddp_param *p = &ddp->param[i];
            unsigned char *view = new_view(l, &l->bucket[b], i);
            if (p->view ? rd_ddp_is_view(p) : !*p->of.gradient) *p->of.gradient = view;
            p->view = view;
            p->bucket = b;
        }
    return RONDO_SUCCESS;
}

rondo_result rd_ddp_make_buckets(rondo_ddp *ddp, const int *order)
{
    rondo_result result = RONDO_SYSTEM_ERROR;
    size_t params = (size_t)ddp->params;
    layout l = {.of_place = calloc(params, sizeof *l.of_place)};
    l.members = calloc(params, sizeof *l.members);
    l.offset = calloc(params, sizeof *l.offset);
    if (l.of_place && l.members && l.offset)
        l.buckets = rd_ddp_plan(ddp->param, order, ddp->params, ddp->config.first_bucket_bytes,
                                ddp->config.bucket_bytes, l.of_place);
    l.bucket = calloc((size_t)l.buckets + 1, sizeof *l.bucket);
    if (!l.buckets || !l.bucket) {
        rd_fail_errno("no memory for the buckets of %d parameters", ddp->params);
        goto free_layout;
    }
    place(ddp, &l, order);
    result = allocate(ddp, &l);
    if (result != RONDO_SUCCESS) goto free_layout;
    result = move_views(ddp, &l);
    if (result != RONDO_SUCCESS) goto free_layout;
    rd_ddp_free_buckets(ddp);
    memmove(ddp->order, order, params * sizeof *order);
    ddp->bucket = l.bucket;
    ddp->buckets = l.buckets;
    ddp->members = l.members;
    ddp->slab = l.slab;
    ddp->narrow = l.narrow;
    ddp->marks = l.marks;
    l = (layout){.of_place = l.of_place, .offset = l.offset};
free_layout:
    free_layout(ddp, &l);
    return result;
}

void rd_ddp_free_buckets(rondo_ddp *ddp)
{
    for (int b = 0; b < ddp->buckets; b++) rondo_work_free(ddp->bucket[b].work);
    free(ddp->bucket);
    free(ddp->members);
    free(ddp->narrow);
    rd_ddp_free_host(ddp, ddp->marks);
    rondo_mem_free(ddp->slab, ddp->comm);
    ddp->bucket = NULL;
    ddp->members = NULL;
    ddp->slab = ddp->narrow = NULL;
    ddp->marks = NULL;
    ddp->buckets = 0;
}
