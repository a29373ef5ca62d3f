/* SPDX-License-Identifier: Apache-2.0
 *
 * group.c - calls between rondo_group_start and rondo_group_end. They are checked when they are made, kept, and run
 * together at the end: first the communicators that are to be started, then, for each communicator that was used, its
 * calls as one task, and at last the children of splits. Tasks without a stream are driven here, all at once; those on
 * a stream are given to it as one work.
 *
 * If one of the calls was refused, nothing of the group runs, so that this rank may begin it again.
 */
#include "core/group.h"

#include <stdlib.h>
#include <string.h>

/* A communicator and its calls. */
typedef struct rd_party {
    rondo_comm *comm;
    rondo_stream *stream;
    rd_call *calls;
    int count, room;
    const rd_task *task; /* that carries them out, where this thread drives it */
} rd_party;

typedef struct rd_group {
    int depth;
    rd_party *parties;
    int count, room;
    rd_start *starts;
    int start_count, start_room;
    rd_split **splits;
    int split_count, split_room;
    rondo_result refused;
    char *why;
} rd_group;

/* NULL: this thread has no group open. Every call looks, so it must be found without a call. */
static _Thread_local rd_group *group __attribute__((tls_model("initial-exec")));

/* ---- Keeping ---- */

bool rd_group_is_open(void)
{
    return group != NULL;
}

rondo_result rd_group_note(rondo_result result)
{
    if (!group || group->refused != RONDO_SUCCESS) return result;
    if (result == RONDO_SUCCESS || result == RONDO_IN_PROGRESS) return result;
    group->refused = result;
    group->why = strdup(rd_last_error());
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

static rd_party *party_of(const rondo_comm *comm)
{
    for (int i = group->count - 1; i >= 0; i--)
        if (group->parties[i].comm == comm) return &group->parties[i];
    return NULL;
}

rondo_result rd_group_add_call(rondo_comm *comm, const rd_call *call, rondo_stream *stream)
{
    rd_party *party = party_of(comm);
    if (!party) {
        RD_TRY(grow((void **)&group->parties, group->count, &group->room, sizeof *group->parties));
        party = &group->parties[group->count++];
        *party = (rd_party){.comm = comm, .stream = stream};
    }
    if (party->stream != stream)
        return rd_fail(
            RONDO_INVALID_USAGE,
            "%s: in one group the calls of a communicator run together, so they must name one stream; this one "
            "is %p, an earlier one %p",
            call->name, (void *)stream, (void *)party->stream);
    RD_TRY(grow((void **)&party->calls, party->count, &party->room, sizeof *party->calls));
    party->calls[party->count++] = *call;
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
    if (result == RONDO_SUCCESS)
        group->splits[group->split_count++] = split;
    else
        rd_split_free(split);
    return result;
}

static void forget_all(void)
{
    for (int i = 0; i < group->split_count; i++) rd_split_free(group->splits[i]);
    for (int i = 0; i < group->count; i++) free(group->parties[i].calls);
    free(group->splits);
    free(group->parties);
    free(group->starts);
    free(group->why);
    free(group);
    group = NULL;
}

/* ---- Running ---- */

/* One task for each communicator whose calls name this stream. NULL: no memory. */
static rondo_work *gather(const rondo_stream *stream)
{
    int tasks = 0, calls = 0, at = 0;
    for (int i = 0; i < group->count; i++) {
        if (group->parties[i].stream != stream) continue;
        calls += group->parties[i].count;
        tasks++;
    }
    rondo_work *work = rd_work_new(tasks, calls);
    if (!work) return NULL;
    for (int i = 0; i < group->count; i++) {
        rd_party *party = &group->parties[i];
        if (party->stream != stream) continue;
        memcpy(work->calls + at, party->calls, (size_t)party->count * sizeof *party->calls);
        rd_task *task = &work->tasks[work->task_count++];
        rd_task_init(task, party->comm, work->calls + at, party->count);
        at += party->count;
        if (!stream) party->task = task;
    }
    return work;
}

static rondo_result carry_out_here(rondo_work *work)
{
    RD_TRY(rd_work_order(work));
    for (int i = 0; i < work->task_count; i++) {
        work->tasks[i].keeps_error = true;
        rd_task_take_ticket(&work->tasks[i]);
    }
    rd_work_carry_out(work);
    return rondo_work_test(work);
}

static void leave(int n)
{
    for (int i = 0; i < n; i++) rd_comm_leave(group->parties[i].comm);
}

/* This thread is inside a call of all communicators of the group, or of none. */
static rondo_result enter_all(void)
{
    for (int i = 0; i < group->count; i++) {
        const rd_party *party = &group->parties[i];
        rondo_result result = rd_check_apart(party->comm, party->calls, party->count);
        if (result == RONDO_SUCCESS && !party->stream) result = rd_check_may_wait(party->comm, "rondo_group_end");
        if (result == RONDO_SUCCESS) result = rd_comm_enter(party->comm, "rondo_group_end");
        if (result == RONDO_SUCCESS) continue;
        leave(i);
        return result;
    }
    return RONDO_SUCCESS;
}

static bool is_first_on(int i, const rondo_stream *stream)
{
    for (int before = 0; before < i; before++)
        if (group->parties[before].stream == stream) return false;
    return true;
}

/* A work for each stream, NULL being the one that is driven here. All before any of them runs: with no memory for one,
 * none does. Returns how many; -1: no memory. */
static int gather_all(rondo_work **works)
{
    int n = 0;
    for (int i = 0; i < group->count; i++) {
        if (!is_first_on(i, group->parties[i].stream)) continue;
        works[n] = gather(group->parties[i].stream);
        if (works[n++]) continue;
        while (--n > 0) rd_work_drop(works[n - 1]);
        return -1;
    }
    return n;
}

/* What the splits' all-gathers brought, where they succeeded: the others of those communicators count on this rank. */
static rondo_result make_children(void)
{
    rd_child *children = calloc((size_t)group->split_count, sizeof *children);
    if (!children) return rd_fail_errno("rondo_group_end: no memory for %d splits", group->split_count);
    int n = 0;
    rondo_result result = RONDO_SUCCESS;
    for (int i = 0; i < group->split_count && result == RONDO_SUCCESS; i++) {
        const rd_party *party = party_of(group->splits[i]->parent);
        if (party->task->result != RONDO_SUCCESS) continue;
        result = rd_split_child(group->splits[i], &children[n]);
        if (children[n].count) n++;
    }
    if (result == RONDO_SUCCESS && n) result = rd_children_make(children, n);
    for (int i = 0; i < n; i++) rd_child_free(&children[i]);
    free(children);
    return result;
}

static rondo_result run_calls(void)
{
    rondo_result result = RONDO_SUCCESS;
    rondo_work **works = calloc((size_t)group->count + 1, sizeof *works), *here = NULL;
    if (!works) return rd_fail_errno("rondo_group_end: no memory for %d communicators", group->count);
    int n = gather_all(works);
    for (int i = 0, at = 0; i < group->count && n > 0; i++) {
        rondo_stream *stream = group->parties[i].stream;
        if (!is_first_on(i, stream)) continue;
        rondo_work *work = works[at++];
        if (!stream) {
            here = work;
            continue;
        }
        if (result == RONDO_SUCCESS) result = rd_stream_submit(stream, work);
        rd_work_drop(work);
    }
    free(works);
    if (n < 0) return RONDO_SYSTEM_ERROR;
    if (here && result == RONDO_SUCCESS) result = carry_out_here(here);
    if (here && group->split_count) {
        rondo_result made = make_children();
        if (result == RONDO_SUCCESS)
            result = made;
        else
            result = rondo_work_test(here); /* the first failure is the one to tell */
    }
    if (here) rd_work_drop(here);
    return result;
}

static rondo_result run_all(void)
{
    if (group->refused != RONDO_SUCCESS)
        return rd_fail(group->refused,
                       "rondo_group_end: nothing of the group was started, since a call in it was refused: %s",
                       group->why);
    if (group->start_count) RD_TRY(rd_start_all(group->starts, group->start_count, NULL));
    RD_TRY(enter_all());
    rondo_result result = run_calls();
    leave(group->count);
    return result;
}

static rondo_result run(void)
{
    rondo_result result = run_all();
    for (int i = 0; i < group->count && result != RONDO_SUCCESS; i++) rd_comm_tell(group->parties[i].comm, rd_last_error());
    return result;
}

rondo_result rondo_group_start(void)
{
    if (!group) group = calloc(1, sizeof *group);
    if (!group) return rd_fail_errno("rondo_group_start: no memory");
    group->depth++;
    return RONDO_SUCCESS;
}

rondo_result rondo_group_cancel(void)
{
    if (!group)
        return rd_fail(RONDO_INVALID_USAGE,
                       "rondo_group_cancel: this thread has no open group; call rondo_group_start first");
    forget_all();
    return RONDO_SUCCESS;
}

rondo_result rondo_group_estimate(double *seconds)
{
    double longest = 0;
    if (!group)
        return rd_fail(RONDO_INVALID_USAGE,
                       "rondo_group_estimate: this thread has no open group; call rondo_group_start first");
    if (!seconds)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "rondo_group_estimate: seconds is NULL; it must point to where the time goes");
    rondo_result refused = group->refused;
    if (refused != RONDO_SUCCESS)
        rd_fail(refused, "rondo_group_estimate: a call in the group was refused: %s", group->why);
    for (int i = 0; i < group->count; i++) {
        const rd_party *party = &group->parties[i];
        double one = rd_estimate(party->comm, party->calls, party->count);
        if (one > longest) longest = one;
    }
    forget_all();
    if (refused == RONDO_SUCCESS) *seconds = longest;
    return refused;
}

rondo_result rondo_group_end(void)
{
    if (!group)
        return rd_fail(RONDO_INVALID_USAGE,
                       "rondo_group_end: this thread has no open group; call rondo_group_start first");
    if (--group->depth) return RONDO_SUCCESS;
    rondo_result result = run();
    forget_all();
    return result;
}
