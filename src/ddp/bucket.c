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
} layout;

static void free_layout(layout *l)
{
    free(l->bucket);
    free(l->of_place);
    free(l->members);
    free(l->offset);
    free(l->narrow);
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
    size_t wide = 0, narrow = 0;
    for (int b = 0; b < l->buckets; b++) {
        size_t elements = l->bucket[b].count + l->bucket[b].marks;
        wide += whole_lines(elements * rd_dtype_bytes(l->bucket[b].dtype));
        if (is_compressed(ddp, l->bucket[b].dtype)) narrow += whole_lines(elements * rd_dtype_bytes(compressed(ddp)));
    }
    void *slab = NULL;
    RD_TRY(rondo_mem_alloc(&slab, wide, NULL));
    l->slab = slab;
    if (narrow && !(l->narrow = calloc(1, narrow)))
        return rd_fail_errno("no memory for %zu bytes of compressed gradients", narrow);
    wide = narrow = 0;
    for (int b = 0; b < l->buckets; b++) {
        rd_ddp_bucket *bucket = &l->bucket[b];
        size_t elements = bucket->count + bucket->marks;
        bucket->data = l->slab + wide;
        wide += whole_lines(elements * rd_dtype_bytes(bucket->dtype));
        if (!is_compressed(ddp, bucket->dtype)) continue;
        bucket->narrow = l->narrow + narrow;
        narrow += whole_lines(elements * rd_dtype_bytes(compressed(ddp)));
    }
    return RONDO_SUCCESS;
}

static void move_views(rondo_ddp *ddp, const layout *l)
{
    for (int b = 0; b < l->buckets; b++)
        for (int m = 0; m < l->bucket[b].members; m++) {
            rd_ddp_param *p = &ddp->param[l->bucket[b].member[m]];
            size_t bytes = rd_dtype_bytes(p->of.dtype), offset = l->offset[l->bucket[b].member[m]];
            unsigned char *view = l->bucket[b].data + offset * bytes;
            bool is_view = p->view ? rd_ddp_is_view(p) : !*p->of.gradient;
            if (p->view && is_view) memcpy(view, p->view, p->of.count * bytes);
            if (is_view) *p->of.gradient = view;
            p->view = view;
            p->bucket = b;
        }
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
    move_views(ddp, &l);
    rd_ddp_free_buckets(ddp);
    memmove(ddp->order, order, params * sizeof *order);
    ddp->bucket = l.bucket;
    ddp->buckets = l.buckets;
    ddp->members = l.members;
    ddp->slab = l.slab;
    ddp->narrow = l.narrow;
    l = (layout){.of_place = l.of_place, .offset = l.offset};
free_layout:
    free_layout(&l);
    return result;
}

void rd_ddp_free_buckets(rondo_ddp *ddp)
{
    for (int b = 0; b < ddp->buckets; b++) rondo_work_free(ddp->bucket[b].work);
    free(ddp->bucket);
    free(ddp->members);
    free(ddp->narrow);
    rondo_mem_free(ddp->slab, ddp->comm);
    ddp->bucket = NULL;
    ddp->members = NULL;
    ddp->slab = ddp->narrow = NULL;
    ddp->buckets = 0;
}
