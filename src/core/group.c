/* SPDX-License-Identifier: Apache-2.0
 *
 * group->c - calls between rondo_group_start and rondo_group_end. They are checked when they are made, kept, and run
 * together at the end: first the communicators that are to be started, then, for each communicator that was used, its
 * calls as one task, and at last the children of splits. Tasks without a stream are driven here, all at once; those on a stream are given to it as one work.
 *
 * If one of the calls was refused, nothing of the group runs, so that this rank may begin it again.
 */
#include "core/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct rd_grouped {
    rondo_comm *comm;
    rondo_stream *stream;
    rd_call call;
} rd_grouped;

typedef struct rd_group {
    int depth;
    rd_grouped *calls;
    int count, room;
    rd_start *starts;
    int start_count, start_room;
    rd_split **splits;
    int split_count, split_room;
    rondo_result refused;
    char why[RD_ERROR_BYTES];
} rd_group;

/* NULL: this thread has no group open. Every call looks, so it must be found without a call. */
static _Thread_local rd_group *group __attribute__((tls_model("initial-exec")));

/* ---- Keeping ---- */

bool rd_group_is_open(void) { return group != NULL; }

rondo_result rd_group_note(rondo_result result)
{
    if (!group || group->refused != RONDO_SUCCESS || result == RONDO_SUCCESS) return result;
    group->refused = result;
    snprintf(group->why, sizeof group->why, "%s", rd_last_error());
    return result;
}

/* Room for one more at the end of a list. */
static rondo_result grow(void **list, int count, int *room, size_t size)
{
    if (count < *room) return RONDO_SUCCESS;
    int more = *room ? 2 * *room : 16;
    void *longer = realloc(*list, (size_t)more * size);
    if (!longer) return rd_fail_errno("no memory for %d calls of a group", more);
    *list = longer;
    *room = more;
    return RONDO_SUCCESS;
}

rondo_result rd_group_add_call(rondo_comm *comm, const rd_call *call, rondo_stream *stream)
{
    for (int i = 0; i < group->count; i++)
        if (group->calls[i].comm == comm && group->calls[i].stream != stream)
            return rd_fail(RONDO_INVALID_USAGE, "%s: in one group the calls of a communicator run together, so they must name "
                           "one stream; this one is %p, an earlier one %p", call->name, (void *)stream,
                           (void *)group->calls[i].stream);
    RD_TRY(grow((void **)&group->calls, group->count, &group->room, sizeof *group->calls));
    group->calls[group->count++] = (rd_grouped){comm, stream, *call};
    return RONDO_SUCCESS;
}

rondo_result rd_group_add_start(const rd_start *start)
{
    RD_TRY(grow((void **)&group->starts, group->start_count, &group->start_room, sizeof *group->starts));
    group->starts[group->start_count++] = *start;
    return RONDO_SUCCESS;
}

rondo_result rd_group_add_split(rd_split *split)
{
    rondo_result result = grow((void **)&group->splits, group->split_count, &group->split_room, sizeof *group->splits);
    if (result == RONDO_SUCCESS) group->splits[group->split_count++] = split;
    else rd_split_free(split);
    return result;
}

static void forget_all(void)
{
    for (int i = 0; i < group->split_count; i++) rd_split_free(group->splits[i]);
    free(group->splits);
    free(group->calls);
    free(group->starts);
    free(group);
    group = NULL;
}

/* ---- Running ---- */

static int members(const rondo_comm *comm)
{
    int n = 0;
    for (int i = 0; i < group->count; i++) n += group->calls[i].comm == comm;
    return n;
}

static bool is_first_of(int i, const rondo_comm *comm)
{
    for (int before = 0; before < i; before++)
        if (group->calls[before].comm == comm) return false;
    return true;
}

/* One task for each communicator whose calls name this stream. NULL: no memory. */
static rondo_work *gather(const rondo_stream *stream)
{
    int tasks = 0, calls = 0, at = 0;
    for (int i = 0; i < group->count; i++) {
        if (group->calls[i].stream != stream) continue;
        calls++;
        tasks += is_first_of(i, group->calls[i].comm);
    }
    rondo_work *work = rd_work_new(tasks, calls);
    if (!work) return NULL;
    for (int i = 0; i < group->count; i++) {
        rondo_comm *comm = group->calls[i].comm;
        if (group->calls[i].stream != stream || !is_first_of(i, comm)) continue;
        rd_task_init(&work->tasks[work->task_count++], comm, work->calls + at, members(comm));
        for (int k = i; k < group->count; k++)
            if (group->calls[k].comm == comm) work->calls[at++] = group->calls[k].call;
    }
    return work;
}

/* What is not driven by a stream, by this thread. */
static rondo_result carry_out(rondo_work *work)
{
    for (int i = 0; i < work->task_count; i++) {
        work->tasks[i].queued = true; /* for its error's text */
        rd_task_take_ticket(&work->tasks[i]);
    }
    rd_work_carry_out(work);
    return rondo_work_test(work);
}

/* This thread is inside a call of all communicators of the group, or of none. */
static rondo_result enter_all(void)
{
    for (int i = 0; i < group->count; i++) {
        rondo_comm *comm = group->calls[i].comm;
        if (!is_first_of(i, comm)) continue;
        rondo_result result = rd_comm_enter(comm, "rondo_group_end");
        if (result == RONDO_SUCCESS) continue;
        while (i-- > 0)
            if (is_first_of(i, group->calls[i].comm)) rd_comm_leave(group->calls[i].comm);
        return result;
    }
    return RONDO_SUCCESS;
}

static void leave_all(void)
{
    for (int i = 0; i < group->count; i++)
        if (is_first_of(i, group->calls[i].comm)) rd_comm_leave(group->calls[i].comm);
}

static bool is_first_on(int i, const rondo_stream *stream)
{
    for (int before = 0; before < i; before++)
        if (group->calls[before].stream == stream) return false;
    return true;
}

/* All works before any of them runs: with no memory for one, none does. */
static rondo_result run_calls(void)
{
    rondo_work *works[group->count + 1], *here = NULL;
    rondo_stream *streams[group->count + 1];
    rondo_result result = RONDO_SUCCESS;
    int n = 0;
    for (int i = 0; i < group->count; i++) {
        if (!is_first_on(i, group->calls[i].stream)) continue;
        rondo_work *work = gather(group->calls[i].stream);
        if (!work) {
            while (n-- > 0) rd_work_drop(works[n]);
            if (here) rd_work_drop(here);
            return RONDO_SYSTEM_ERROR;
        }
        if (!group->calls[i].stream) {
            here = work;
            continue;
        }
        streams[n] = group->calls[i].stream;
        works[n++] = work;
    }
    for (int i = 0; i < n; i++) {
        rd_stream_submit(streams[i], works[i]);
        rd_work_drop(works[i]);
    }
    if (here) {
        result = carry_out(here);
        rd_work_drop(here);
    }
    return result;
}

/* What the splits' all-gathers brought. */
static rondo_result make_children(void)
{
    rd_child children[group->split_count];
    int n = 0;
    rondo_result result = RONDO_SUCCESS;
    for (int i = 0; i < group->split_count && result == RONDO_SUCCESS; i++) {
        result = rd_split_child(group->splits[i], &children[n]);
        if (children[n].count) n++;
    }
    if (result == RONDO_SUCCESS && n) result = rd_children_make(children, n);
    for (int i = 0; i < n; i++) rd_child_free(&children[i]);
    return result;
}

static rondo_result run(void)
{
    if (group->refused != RONDO_SUCCESS)
        return rd_fail(group->refused, "rondo_group_end: nothing of the group was started, since a call in it was refused: %s",
                       group->why);
    if (group->start_count) RD_TRY(rd_start_all(group->starts, group->start_count));
    RD_TRY(enter_all());
    rondo_result result = run_calls();
    if (result == RONDO_SUCCESS && group->split_count) result = make_children();
    for (int i = 0; i < group->count; i++) rd_comm_note(group->calls[i].comm, result);
    leave_all();
    return result;
}

rondo_result rondo_group_start(void)
{
    if (!group) group = calloc(1, sizeof *group);
    if (!group) return rd_fail_errno("rondo_group_start: no memory");
    group->depth++;
    return RONDO_SUCCESS;
}

rondo_result rondo_group_end(void)
{
    if (!group) return rd_fail(RONDO_INVALID_USAGE, "rondo_group_end: this thread has no open group; call rondo_group_start first");
    if (--group->depth) return RONDO_SUCCESS;
    rondo_result result = run();
    forget_all();
    return result;
}
