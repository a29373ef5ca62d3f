/* SPDX-License-Identifier: Apache-2.0
 *
 * group.c - a group is one of the library's, which keeps the calls; before it come the joins when the group ends, after
 * it splits and shrinks, and then ends.
 */
#include "shim/shim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A communicator with calls in the group, and a CUDA stream that they named. */
typedef struct rd_party {
    ncclComm_t comm;
    cudaStream_t stream;
    cudaStream_t follows; /* that of its first call, if this is another one */
} rd_party;

typedef struct rd_shim_group {
    int depth;
    rd_making *joins, **last_join;
    rd_making *makings, **last_making; /* splits and shrinks */
    rd_ending *endings, **last_ending;
    rd_party *parties;
    int party_count, party_room;
    ncclResult_t refused; /* ncclSuccess: no call in it was */
    char why[RD_ERROR_BYTES];
} rd_shim_group;

static _Thread_local rd_shim_group *group;

bool rd_shim_grouped(void)
{
    return group != NULL;
}

void rd_shim_refuse(ncclResult_t result)
{
    if (!group || group->refused != ncclSuccess) return;
    group->refused = result;
    snprintf(group->why, sizeof group->why, "%s", rd_last_error());
}

static rondo_result add_party(ncclComm_t comm, cudaStream_t stream)
{
    if (group->party_count == group->party_room) {
        int room = 2 * group->party_room + 8;
        rd_party *more = realloc(group->parties, (size_t)room * sizeof *more);
        if (!more) return rd_fail_errno("no memory for a group of %d communicators", room);
        group->parties = more;
        group->party_room = room;
    }
    group->parties[group->party_count++] = (rd_party){comm, stream, NULL};
    return RONDO_SUCCESS;
}

rondo_result rd_shim_keep_party(ncclComm_t comm, cudaStream_t *stream)
{
    rd_party *first = NULL;
    bool known = false;
    for (int i = group->party_count - 1; i >= 0; i--) {
        rd_party *party = &group->parties[i];
        if (party->comm != comm) continue;
        if (!party->follows) first = party;
        known = known || party->stream == *stream;
    }
    if (!first) return add_party(comm, *stream);
    cudaStream_t other = *stream;
    if (known || !other || !first->stream) { /* without a stream and with one: the library says that */
        if (other && first->stream) *stream = first->stream;
        return RONDO_SUCCESS;
    }
    *stream = first->stream;
    RD_TRY(rd_shim_follow(comm->device, *stream, other));
    RD_TRY(add_party(comm, other));
    group->parties[group->party_count - 1].follows = *stream;
    return RONDO_SUCCESS;
}

void rd_shim_keep_making(rd_making *making)
{
    rd_making ***last = making->how == RD_MAKE_JOIN ? &group->last_join : &group->last_making;
    **last = making;
    *last = &making->next;
}

rondo_result rd_shim_keep_ending(ncclComm_t comm, bool aborts)
{
    rd_ending *ending = malloc(sizeof *ending);
    if (!ending) return rd_fail_errno("no memory for a group");
    *ending = (rd_ending){NULL, comm, aborts};
    *group->last_ending = ending;
    group->last_ending = &ending->next;
    return RONDO_SUCCESS;
}

static rondo_result run_endings(rd_ending *list, bool wanted)
{
    rondo_result result = RONDO_SUCCESS;
    for (rd_ending *next; list; list = next) {
        next = list->next;
        rondo_result one = wanted ? rd_shim_end(list->comm, list->aborts) : RONDO_SUCCESS;
        if (result == RONDO_SUCCESS) result = one;
        free(list);
    }
    return result;
}

/* An abort, from another thread, may come between a call and the group's end; or while that runs, and then it waits. */
static rondo_result hold_parties(const rd_shim_group *g, int *held)
{
    rondo_result result = RONDO_SUCCESS;
    for (*held = 0; *held < g->party_count; ++*held)
        if ((result = rd_shim_hold(g->parties[*held].comm)) != RONDO_SUCCESS) break;
    return result;
}

static void leave_parties(const rd_shim_group *g, int held)
{
    while (held > 0) rd_shim_leave(g->parties[--held].comm);
}

static rondo_result run_calls(rd_shim_group *g)
{
    int held;
    rondo_result result = hold_parties(g, &held);
    if (result == RONDO_SUCCESS)
        result = rondo_group_end();
    else
        rondo_group_cancel();
    for (int i = 0; i < held; i++) {
        const rd_party *party = &g->parties[i];
        rondo_result after =
            party->follows ? rd_shim_follow(party->comm->device, party->stream, party->follows) : RONDO_SUCCESS;
        if (result == RONDO_SUCCESS) result = after;
    }
    leave_parties(g, held);
    return result;
}

static rondo_result refused(const rd_shim_group *g)
{
    return rd_fail((rondo_result)g->refused, "nothing of the group was started, since a call in it was refused: %s", g->why);
}

/* Nothing of it runs; the library's group has ended. */
static void drop(rd_shim_group *g)
{
    rd_makings_drop(g->joins);
    rd_makings_drop(g->makings);
    run_endings(g->endings, false);
}

/* RONDO_IN_PROGRESS: it succeeded, and something goes on. */
static bool is_failure(rondo_result result)
{
    return result != RONDO_SUCCESS && result != RONDO_IN_PROGRESS;
}

static rondo_result run(rd_shim_group *g)
{
    if (g->refused != ncclSuccess) {
        rondo_group_cancel();
        drop(g);
        return refused(g);
    }
    rondo_result joined = rd_makings_run(g->joins), result = joined;
    if (is_failure(joined))
        rondo_group_cancel();
    else
        result = run_calls(g);
    if (result == RONDO_SUCCESS)
        result = rd_makings_run(g->makings);
    else
        rd_makings_drop(g->makings);
    rondo_result ended = run_endings(g->endings, true);
    if (is_failure(result)) return result;
    if (is_failure(ended)) return ended;
    return joined == RONDO_IN_PROGRESS ? joined : result;
}

static rondo_result start(void)
{
    if (group) {
        group->depth++;
        return RONDO_SUCCESS;
    }
    rd_shim_group *g = calloc(1, sizeof *g);
    if (!g) return rd_fail_errno("no memory for a group");
    rondo_result result = rondo_group_start();
    if (result != RONDO_SUCCESS) {
        free(g);
        return result;
    }
    g->depth = 1;
    g->last_join = &g->joins;
    g->last_making = &g->makings;
    g->last_ending = &g->endings;
    group = g;
    return RONDO_SUCCESS;
}

static void free_group(rd_shim_group *g)
{
    free(g->parties);
    free(g);
}

/* The outermost end's group; NULL: an inner end, or none is open, as *result says. */
static rd_shim_group *close_group(rondo_result *result)
{
    *result = group ? RONDO_SUCCESS
                    : rd_fail(RONDO_INVALID_USAGE, "this thread has no open group; call ncclGroupStart first");
    if (!group || --group->depth) return NULL;
    rd_shim_group *g = group;
    group = NULL;
    return g;
}

RD_NCCL(ncclGroupStart);
ncclResult_t ncclGroupStart(void)
{
    return rd_shim_result("ncclGroupStart", start());
}

RD_NCCL(ncclGroupEnd);
ncclResult_t ncclGroupEnd(void)
{
    rondo_result result;
    rd_shim_group *g = close_group(&result);
    if (g) {
        result = run(g);
        free_group(g);
    }
    return rd_shim_result("ncclGroupEnd", result);
}

/* As NCCL does, it takes no more of the structure than both know. */
static rondo_result read_info(const ncclSimInfo_t *from, ncclSimInfo_t *info, size_t *bytes)
{
    memcpy(bytes, &from->size, sizeof *bytes);
    if (*bytes > sizeof *info) *bytes = sizeof *info;
    memcpy(info, from, *bytes);
    if (*bytes == sizeof *info && info->magic == NCCL_SIM_INFO_MAGIC) return RONDO_SUCCESS;
    return rd_fail(RONDO_INVALID_ARGUMENT, "simInfo is not initialised (size %zu): start from NCCL_SIM_INFO_INITIALIZER",
                   *bytes);
}

/* The calls' time; nothing runs. */
static rondo_result simulate(rd_shim_group *g, ncclSimInfo_t *out)
{
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    size_t bytes = 0;
    double seconds = 0;
    int held = 0;
    rondo_result result = g->refused != ncclSuccess ? refused(g) : RONDO_SUCCESS;
    if (result == RONDO_SUCCESS && out) result = read_info(out, &info, &bytes);
    if (result == RONDO_SUCCESS) result = hold_parties(g, &held);
    if (result == RONDO_SUCCESS)
        result = rondo_group_estimate(&seconds);
    else
        rondo_group_cancel();
    leave_parties(g, held);
    drop(g);
    if (result != RONDO_SUCCESS) return result;
    info.estimatedTime = (float)(seconds * 1e6);
    if (out) memcpy(out, &info, bytes);
    return RONDO_SUCCESS;
}

RD_NCCL(ncclGroupSimulateEnd);
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *simInfo)
{
    rondo_result result;
    rd_shim_group *g = close_group(&result);
    if (g) {
        result = simulate(g, simInfo);
        free_group(g);
    }
    return rd_shim_result("ncclGroupSimulateEnd", result);
}
