/* SPDX-License-Identifier: Apache-2.0
 *
 * unused.c - gradients that did not come. Behind its gradients each bucket carries *marks*, which are added up with
 * them, so that every rank learns at no extra call what the others had:
 *
 *   with find_unused     one for each of its parameters: above 0 where any rank had a gradient for it
 *   without              one in all: above 0 where any rank lacked a gradient; then all fail
 *
 * An average of zeros and ones is above 0, too, if any one was there.
 */
#include "base/dtype.h"
#include "base/status.h"
#include "ddp/ddp.h"

#include <stdio.h>
#include <stdlib.h>

rondo_result rd_ddp_lend_zeros(rondo_ddp *ddp, rd_ddp_param *param)
{
    size_t bytes = param->of.count * rd_dtype_bytes(param->of.dtype);
    if (rd_ddp_is_view(param) && !ddp->joined) {
        if (!(param->kept = malloc(bytes + 1)))
            return rd_fail_errno("no memory for %zu bytes of a gradient that is not used ('%s')", bytes,
                                 param->of.name);
        RD_TRY(rd_ddp_copy(ddp, param->kept, param->view, bytes));
    }
    return rd_ddp_zero(ddp, param->view, bytes);
}

void rd_ddp_mark(rondo_ddp *ddp, rd_ddp_bucket *bucket)
{
    bool all = ddp->config.find_unused;
    for (size_t m = 0; m < bucket->marks; m++) {
        bool used = all && ddp->param[bucket->member[m]].used;
        bool lacking = !all && bucket->missing > 0 && !ddp->joined;
        rd_ddp_put(bucket->mark, m, bucket->dtype, used || lacking);
    }
}

bool rd_ddp_marked(const rd_ddp_bucket *bucket, size_t mark)
{
    return rd_ddp_get(bucket->mark, mark, bucket->dtype) > 0;
}

rondo_result rd_ddp_settle(rondo_ddp *ddp, rd_ddp_bucket *bucket)
{
    for (int m = 0; m < bucket->members; m++) {
        rd_ddp_param *p = &ddp->param[bucket->member[m]];
        size_t bytes = p->of.count * rd_dtype_bytes(p->of.dtype);
        bool there = !ddp->config.find_unused || rd_ddp_marked(bucket, (size_t)m);
        if (!there && p->kept) RD_TRY(rd_ddp_copy(ddp, p->view, p->kept, bytes));
        free(p->kept);
        p->kept = NULL;
        if (!there || ddp->joined || rd_ddp_is_view(p)) continue;
        if (*p->of.gradient)
            RD_TRY(rd_ddp_copy_later(ddp, *p->of.gradient, p->view, bytes));
        else
            *p->of.gradient = p->view;
    }
    return RONDO_SUCCESS;
}

rondo_result rd_ddp_say_missing(rondo_ddp *ddp)
{
    char said[RD_DDP_TEXT] = "";
    int first = -1, more = 0;
    for (int i = 0; i < ddp->params && !ddp->joined; i++) {
        if (ddp->param[i].ready) continue;
        if (first < 0)
            first = i;
        else
            more++;
    }
    if (first >= 0)
        snprintf(said, sizeof said,
                 "rondo_ddp_wait: parameter %d '%.300s' got no gradient on rank %d (nor %d more there); every "
                 "parameter must be ready before wait, or find_unused be set",
                 first, ddp->param[first].of.name, ddp->rank, more);
    return rd_ddp_tell(ddp, RONDO_INVALID_USAGE, said);
}
