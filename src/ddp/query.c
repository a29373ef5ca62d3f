/* SPDX-License-Identifier: Apache-2.0
 *
 * query.c - names, the norm of the gradients, the report.
 */
#include "base/status.h"
#include "ddp/ddp.h"

#include <math.h>
#include <string.h>

static const char *name_of(const rondo_ddp *ddp, int number)
{
    return number < ddp->params ? ddp->param[number].of.name : ddp->buffer[number - ddp->params].name;
}

rondo_result rondo_ddp_name(const rondo_ddp *ddp, int number, const char **name)
{
    if (!ddp || !name) return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_ddp_name: %s is NULL", ddp ? "name" : "ddp");
    if (number < 0 || number >= ddp->params + ddp->buffers)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "rondo_ddp_name: number is %d; there are %d parameters and %d buffers, numbered from 0", number,
                       ddp->params, ddp->buffers);
    *name = name_of(ddp, number);
    return RONDO_SUCCESS;
}

static int find(const rondo_ddp *ddp, const char *name)
{
    for (int i = 0; i < ddp->params + ddp->buffers; i++)
        if (strcmp(name_of(ddp, i), name) == 0) return i;
    return -1;
}

rondo_result rondo_ddp_find(const rondo_ddp *ddp, const char *name, int *number)
{
    static const char wrapper[] = "module.";
    if (!ddp || !name || !number)
        return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_ddp_find: %s is NULL", !ddp ? "ddp" : !name ? "name" : "number");
    const char *rest = name;
    int found = find(ddp, rest);
    while (found < 0 && strncmp(rest, wrapper, sizeof wrapper - 1) == 0) {
        rest += sizeof wrapper - 1;
        found = find(ddp, rest);
    }
    if (found < 0)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "rondo_ddp_find: no parameter or buffer '%s' among %d; the first is '%s'", name,
                       ddp->params + ddp->buffers, ddp->param[0].of.name);
    *number = found;
    return RONDO_SUCCESS;
}

/* Of one tensor, as its own sum: the others' are added to it. */
static void add_squares(void *part, size_t first, size_t count, rondo_dtype dtype, void *context)
{
    (void)first;
    rd_ddp_add_squares(part, count, dtype, context);
}

static rondo_result norm_of(const rondo_ddp *ddp, double *norm)
{
    double squares = 0;
    for (int i = 0; i < ddp->params; i++) {
        const rondo_ddp_tensor *t = &ddp->param[i].of;
        double own = 0;
        if (!*t->gradient) continue;
        RD_TRY(rd_ddp_check_memory(ddp, "rondo_ddp_clip", "parameter", i, t->name, "gradient", *t->gradient));
        RD_TRY(rd_ddp_pass(ddp, *t->gradient, t->count, t->dtype, RD_DDP_READ, add_squares, &own));
        squares += own;
    }
    *norm = sqrt(squares);
    return RONDO_SUCCESS;
}

rondo_result rondo_ddp_clip(rondo_ddp *ddp, double max_norm, double *norm)
{
    double all = 0;
    RD_TRY(rd_ddp_check(ddp, "rondo_ddp_clip"));
    if (!(max_norm > 0))
        return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_ddp_clip: max_norm is %g; it must be above 0", max_norm);
    if (ddp->in_step)
        return rd_fail(RONDO_INVALID_USAGE, "rondo_ddp_clip: gradients are under way; call rondo_ddp_wait first");
    RD_TRY(norm_of(ddp, &all));
    for (int i = 0; i < ddp->params && isfinite(all) && all > max_norm; i++) {
        const rondo_ddp_tensor *t = &ddp->param[i].of;
        if (*t->gradient) RD_TRY(rd_ddp_scale_tensor(ddp, *t->gradient, t->count, t->dtype, max_norm / all));
    }
    if (norm) *norm = all;
    return RONDO_SUCCESS;
}

rondo_result rondo_ddp_get_report(const rondo_ddp *ddp, rondo_ddp_report *report)
{
    RD_TRY(rd_ddp_check(ddp, "rondo_ddp_get_report"));
    if (!report || report->size != sizeof *report)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "rondo_ddp_get_report: report is %s; its size must be set to sizeof(rondo_ddp_report), "
                       "%zu",
                       report ? "of another size" : "NULL", sizeof *report);
    *report = ddp->report;
    report->size = sizeof *report;
    return RONDO_SUCCESS;
}
