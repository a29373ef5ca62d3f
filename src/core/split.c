/* SPDX-License-Identifier: Apache-2.0
 *
 * split.c - communicators from communicators. Their ranks know one another already: the child's job is made from the
 * parent's, its table is served by the child's first rank, and the rest is a start like any other.
 */
#include "core/split.h"

#include "base/clock.h"
#include "core/device.h"
#include "core/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- What is common ---- */

/* NULL: the parent's settings. */
static rondo_result settings_for(rd_settings *settings, const rondo_comm *parent, const rondo_config *config,
                                 const char *function)
{
    if (!config) {
        *settings = parent->settings;
        return RONDO_SUCCESS;
    }
    RD_TRY(rd_settings_load(settings, config));
    return rd_device_choose(function, settings);
}

static rondo_result derive(rd_child *child, const uint64_t salt[3])
{
    int rank = 0;
    while (child->members[rank] != child->parent->rank) rank++;
    return rd_job_derive(&child->start.job, child->parent->member, salt, 3 * sizeof *salt, child->members[0], rank,
                         child->count, &child->start.settings);
}

void rd_child_free(rd_child *child)
{
    free(child->members);
    child->members = NULL;
}

static void give_up_if_bereft(const rd_child *child, rondo_comm *comm)
{
    char name[256], text[320];
    for (int i = 0; i < child->count && !rd_comm_stopped(comm); i++) {
        if (!rd_member_is_gone(child->parent->member, child->members[i])) continue;
        rd_member_peer_name(child->parent->member, child->members[i], name, sizeof name);
        snprintf(text, sizeof text, "%s went while the communicator was being made", name);
        rd_comm_give_up(comm, RONDO_REMOTE_ERROR, text);
    }
}

/* An abort of the parent ends the calls on it, and a split or shrink is one. */
static void give_up_with_parent(const rd_child *child, rondo_comm *comm)
{
    rondo_result stop = child->outlives_parent ? RONDO_SUCCESS : rd_comm_stopped(child->parent);
    if (rd_comm_stopped(comm)) return;
    if (stop)
        rd_comm_give_up(comm, stop, child->parent->stop.text);
    else if (child->outlives_parent && atomic_load(&child->parent->stop.aborted))
        rd_comm_give_up(comm, RONDO_ABORTED, "rondo_comm_abort was called while the communicator shrank");
}

static void look(void *context, int i, rondo_comm *comm, bool closely)
{
    const rd_child *child = &((const rd_child *)context)[i];
    give_up_with_parent(child, comm);
    if (closely) give_up_if_bereft(child, comm);
}

rondo_result rd_children_make(rd_child *children, int n)
{
    rd_watch_starts watch = {look, children};
    rd_start *starts = calloc((size_t)n, sizeof *starts);
    rondo_result result = starts ? RONDO_SUCCESS : rd_fail_errno("no memory for %d communicators", n);
    for (int i = 0; i < n && starts; i++) starts[i] = children[i].start;
    if (starts) result = rd_start_all(starts, n, &watch);
    for (int i = 0; i < n; i++) rd_job_undo(&children[i].start.job);
    free(starts);
    return result;
}

enum { SALT_SPLIT = 1, SALT_SHRINK = 2 };

/* ---- Split ---- */

void rd_split_free(rd_split *split)
{
    if (!split) return;
    free(split->all);
    free(split);
}

/* Is rank a before rank b in the child? By key, then by old rank. */
static bool before(const int32_t *all, int32_t a, int32_t b)
{
    return all[2 * a + 1] != all[2 * b + 1] ? all[2 * a + 1] < all[2 * b + 1] : a < b;
}

rondo_result rd_split_child(rd_split *split, rd_child *child)
{
    rondo_comm *parent = split->parent;
    int32_t color = split->mine[0];
    uint64_t salt[3] = {SALT_SPLIT, ++parent->splits, (uint64_t)(uint32_t)color};
    *child = (rd_child){.start = {.out = split->out, .settings = split->settings}, .parent = parent};
    if (color == RONDO_NO_COLOR) {
        *split->out = NULL;
        return RONDO_SUCCESS;
    }
    int32_t *members = child->members = calloc((size_t)parent->size, sizeof *members);
    if (!members) return rd_fail_errno("rondo_comm_split: no memory for %d ranks", parent->size);
    for (int32_t r = 0; r < parent->size; r++) {
        if (split->all[2 * r] != color) continue;
        int at = child->count++;
        for (; at > 0 && before(split->all, r, members[at - 1]); at--) members[at] = members[at - 1];
        members[at] = r;
    }
    return derive(child, salt);
}

static rondo_result new_split(rd_split **made, rondo_comm *comm, int color, int key, rondo_comm **out,
                              const rondo_config *config)
{
    rd_settings settings;
    if (!out)
        return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_comm_split: out is NULL; it must point to where the handle goes");
    if (color < RONDO_NO_COLOR)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "rondo_comm_split: color is %d; it must be 0 or more, or RONDO_NO_COLOR (%d)", color,
                       RONDO_NO_COLOR);
    RD_TRY(settings_for(&settings, comm, config, "rondo_comm_split"));
    rd_split *split = calloc(1, sizeof *split);
    if (split) split->all = calloc(2 * (size_t)comm->size, sizeof *split->all);
    if (!split || !split->all) {
        free(split);
        return rd_fail_errno("rondo_comm_split: no memory for %d ranks", comm->size);
    }
    split->parent = comm;
    split->out = out;
    split->settings = settings;
    split->mine[0] = color;
    split->mine[1] = key;
    *made = split;
    return RONDO_SUCCESS;
}

static rondo_result split_now(rd_split *split)
{
    rd_child child;
    rondo_result result = rd_split_child(split, &child);
    if (result == RONDO_SUCCESS && child.count) result = rd_children_make(&child, 1);
    rd_child_free(&child);
    return result;
}

rondo_result rondo_comm_split(rondo_comm *comm, int color, int key, rondo_comm **out, const rondo_config *config)
{
    rd_split *split = NULL;
    if (!comm)
        return rd_group_note(
            rd_fail(RONDO_INVALID_ARGUMENT, "rondo_comm_split: comm is NULL; it must come from a rondo_init call"));
    rondo_result result = new_split(&split, comm, color, key, out, config);
    if (result != RONDO_SUCCESS) return rd_group_note(rd_comm_note(comm, result));
    rd_call call = {"rondo_comm_split", RONDO_COLL_ALL_GATHER, split->mine, split->all, 2, RONDO_INT32, RONDO_SUM, 0, false,
                    RD_KIND_SPLIT, 0, false, false};
    bool kept = rd_group_is_open();
    result = rd_call_run(comm, &call, NULL);
    if (result == RONDO_SUCCESS && kept) return rd_group_note(rd_group_add_split(split));
    if (result == RONDO_SUCCESS) result = rd_comm_note(comm, split_now(split));
    rd_split_free(split);
    return result;
}

/* ---- Shrink ---- */

static rondo_result check_excluded(const rondo_comm *comm, const int *exclude, int n, bool *excluded)
{
    if (n < 0 || n >= comm->size || (!exclude && n))
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "rondo_comm_shrink: n is %d and exclude %p; with %d ranks n must be 0 to %d, and exclude "
                       "list as many",
                       n, (const void *)exclude, comm->size, comm->size - 1);
    for (int i = 0; i < n; i++) {
        if (exclude[i] < 0 || exclude[i] >= comm->size)
            return rd_fail(RONDO_INVALID_ARGUMENT,
                           "rondo_comm_shrink: exclude[%d] is %d; with %d ranks it must be 0 to %d", i, exclude[i],
                           comm->size, comm->size - 1);
        if (exclude[i] == comm->rank)
            return rd_fail(RONDO_INVALID_ARGUMENT,
                           "rondo_comm_shrink: exclude[%d] is %d, which is this rank; who is left out does not call", i,
                           exclude[i]);
        excluded[exclude[i]] = true;
    }
    return RONDO_SUCCESS;
}

static rondo_result make_survivors(rondo_comm *comm, const bool *excluded, rd_child *child)
{
    uint64_t salt[3] = {SALT_SHRINK};
    bool present[comm->size];
    child->members = calloc((size_t)comm->size, sizeof *child->members);
    if (!child->members) return rd_fail_errno("rondo_comm_shrink: no memory for %d ranks", comm->size);
    RD_TRY(rd_member_agree(comm->member, excluded, rd_deadline(child->start.settings.timeout_s), &comm->stop.aborted,
                           present, &salt[1]));
    for (int32_t r = 0; r < comm->size; r++)
        if (present[r]) child->members[child->count++] = r;
    RD_TRY(derive(child, salt));
    return rd_children_make(child, 1);
}

static rondo_result shrink(rondo_comm *comm, const int *exclude, int n, rondo_comm **out, const rondo_config *config)
{
    rd_child child = {.start.out = out, .parent = comm, .outlives_parent = true};
    bool excluded[comm->size];
    memset(excluded, 0, sizeof excluded);
    if (!out)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "rondo_comm_shrink: out is NULL; it must point to where the handle goes");
    if (rd_group_is_open())
        return rd_fail(RONDO_INVALID_USAGE, "rondo_comm_shrink: not inside a group; call rondo_group_end first");
    RD_TRY(settings_for(&child.start.settings, comm, config, "rondo_comm_shrink"));
    RD_TRY(check_excluded(comm, exclude, n, excluded));
    rd_tasks_drain(comm);
    atomic_store(&comm->stop.aborted, 0); /* an abort before concerned the calls before */
    rondo_result result = make_survivors(comm, n ? excluded : NULL, &child);
    rd_child_free(&child);
    return result;
}

rondo_result rondo_comm_shrink(rondo_comm *comm, const int *exclude, int n, rondo_comm **out,
                               const rondo_config *config)
{
    if (!comm)
        return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_comm_shrink: comm is NULL; it must come from a rondo_init call");
    RD_TRY(rd_check_may_wait(comm, "rondo_comm_shrink"));
    RD_TRY(rd_comm_enter(comm, "rondo_comm_shrink"));
    if (!comm->made) {
        rd_comm_leave(comm);
        return rd_fail(RONDO_INVALID_USAGE, "rondo_comm_shrink: this communicator was never made: %s", comm->stop.text);
    }
    rondo_result result = rd_comm_note(comm, shrink(comm, exclude, n, out, config));
    rd_comm_leave(comm);
    return result;
}
