/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c - which parameter goes into which bucket. All ranks must come to the same, so it depends on what they have
 * agreed on only: sizes, types, the order, and the two limits.
 */
#include "base/dtype.h"
#include "ddp/ddp.h"

/* A parameter joins the open bucket of its type; what reaches its limit is closed, so a bucket holds at most its limit
 * and one parameter. Buckets that are still open at the end are closed in the order of their first parameters. */
int rd_ddp_plan(const rd_ddp_param *param, const int *order, int params, size_t first_bytes, size_t bytes,
                int *of_place)
{
    size_t filled[RONDO_DTYPES] = {0};
    bool had[RONDO_DTYPES] = {false};
    int buckets = 0;
    for (int k = 0; k < params; k++) of_place[k] = -1;
    for (int k = 0; k < params; k++) {
        const rondo_ddp_tensor *p = &param[order[k]].of;
        filled[p->dtype] += p->count * rd_dtype_bytes(p->dtype);
        if (filled[p->dtype] < (had[p->dtype] ? bytes : first_bytes)) continue;
        for (int j = 0; j <= k; j++)
            if (of_place[j] < 0 && param[order[j]].of.dtype == p->dtype) of_place[j] = buckets;
        buckets++;
        filled[p->dtype] = 0;
        had[p->dtype] = true;
    }
    for (int k = 0; k < params; k++) {
        if (of_place[k] >= 0) continue;
        for (int j = k; j < params; j++)
            if (of_place[j] < 0 && param[order[j]].of.dtype == param[order[k]].of.dtype) of_place[j] = buckets;
        buckets++;
    }
    return buckets;
}
