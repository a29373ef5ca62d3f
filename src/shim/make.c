/* SPDX-License-Identifier: Apache-2.0
 *
 * make.c - communicators are made: each call checks its arguments, makes the handle, and describes what is to be done.
 * That is done at once; or, in a group, at its end; or, for a communicator that is not blocking, in the background.
 * Joins by an id always go on in the library's background, so that another thread can abort them; whoever blocks waits
 * for them here. Splits and shrinks, of which one thread may ask for several that wait for one another, have a thread
 * each then.
 */
#include "shim/shim.h"

#include "base/thread.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CALL_TIMEOUT_S 3600   /* NCCL waits for ever; here RONDO_TIMEOUT shortens or lengthens it */
#define LOOK_NS        200000 /* between two looks whether all are made */

/* ---- Configuration ---- */

static rondo_result bad_field(const char *field, int value, const char *range)
{
    return rd_fail(RONDO_INVALID_ARGUMENT, "config->%s is %d; it must be %s, or NCCL_CONFIG_UNDEF_INT", field, value,
                   range);
}

/* Fields up to which a program's own header goes; an older one's config is shorter. */
static rondo_result check_fields(const ncclConfig_t *c)
{
    const struct {
        const char *name;
        int value, least, most;
        const char *range;
    } fields[] = {
        {"blocking", c->blocking, 0, 1, "0 or 1"},
        {"cgaClusterSize", c->cgaClusterSize, 0, 8, "0 to 8"},
        {"minCTAs", c->minCTAs, 1, INT_MAX, "at least 1"},
        {"maxCTAs", c->maxCTAs, 1, INT_MAX, "at least 1"},
        {"splitShare", c->splitShare, 0, 1, "0 or 1"},
        {"collnetEnable", c->collnetEnable, 0, 1, "0 or 1"},
        {"CTAPolicy", c->CTAPolicy, NCCL_CTA_POLICY_DEFAULT, NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO,
         "NCCL_CTA_POLICY flags"},
        {"shrinkShare", c->shrinkShare, 0, 1, "0 or 1"},
        {"nvlsCTAs", c->nvlsCTAs, 1, INT_MAX, "at least 1"},
        {"nChannelsPerNetPeer", c->nChannelsPerNetPeer, 1, INT_MAX, "at least 1"},
        {"nvlinkCentricSched", c->nvlinkCentricSched, 0, 1, "0 or 1"},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (fields[i].value != NCCL_CONFIG_UNDEF_INT &&
            (fields[i].value < fields[i].least || fields[i].value > fields[i].most))
            return bad_field(fields[i].name, fields[i].value, fields[i].range);
    if (c->minCTAs != NCCL_CONFIG_UNDEF_INT && c->maxCTAs != NCCL_CONFIG_UNDEF_INT && c->minCTAs > c->maxCTAs)
        return rd_fail(RONDO_INVALID_ARGUMENT, "config->minCTAs is %d, more than maxCTAs, which is %d", c->minCTAs,
                       c->maxCTAs);
    if (c->netName && strcmp(c->netName, "Socket") != 0 && strcmp(c->netName, "IB") != 0)
        return rd_fail(
            RONDO_INVALID_USAGE,
            "config->netName is \"%.64s\"; network plugins cannot be loaded here: \"Socket\", \"IB\" or NULL",
            c->netName);
    return RONDO_SUCCESS;
}

/* The fields are those of 2.28; what of them means something here is whether calls block. NULL: the default. */
static rondo_result read_config(const ncclConfig_t *config, int inherited, int *blocking)
{
    ncclConfig_t c = NCCL_CONFIG_INITIALIZER;
    if (config && (config->magic != NCCL_CONFIG_MAGIC || config->size < offsetof(ncclConfig_t, cgaClusterSize)))
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "config is not initialised (size %zu, magic %#x): start from NCCL_CONFIG_INITIALIZER",
                       config->size, config->magic);
    if (config) memcpy(&c, config, config->size < sizeof c ? config->size : sizeof c);
    RD_TRY(check_fields(&c));
    *blocking = c.blocking == NCCL_CONFIG_UNDEF_INT ? inherited : c.blocking;
    return RONDO_SUCCESS;
}

/* ---- Doing it ---- */

/* A communicator that was revoked has ended for all its ranks; of those that are left another one can be split. */
static rondo_result split(rd_making *m, rondo_comm **inner)
{
    rondo_comm *parent = m->parent->inner, *again = NULL;
    if (m->parent->revoked) {
        RD_TRY(rondo_comm_shrink(parent, NULL, 0, &again, NULL));
        parent = again;
    }
    rondo_result result = rondo_comm_split(parent, m->color, m->key, inner, NULL);
    rondo_comm_destroy(again);
    return result;
}

static rondo_result carry_out(rd_making *m)
{
    rondo_comm *inner = NULL;
    rondo_result result = RONDO_INTERNAL_ERROR;
    switch (m->how) {
    case RD_MAKE_JOIN:
        result = rondo_init_rank(&inner, m->comm->size, m->id, m->comm->rank, &m->config);
        if (result == RONDO_IN_PROGRESS) result = RONDO_SUCCESS; /* as the inner one will tell */
        break;
    case RD_MAKE_SPLIT: result = split(m, &inner); break;
    case RD_MAKE_SHRINK:
        result = m->aborts ? rd_shim_interrupt(m->parent, "ncclCommShrink was called with NCCL_SHRINK_ABORT")
                           : RONDO_SUCCESS;
        if (result != RONDO_SUCCESS) break;
        result = rondo_comm_shrink(m->parent->inner, m->exclude, m->excluded, &inner, NULL);
        break;
    }
    if (m->comm && !rd_shim_made(m->comm, inner, result)) {
        rd_shim_withdraw(m->comm);
        m->comm = NULL;
        result = rd_fail(RONDO_ABORTED, "the communicator was aborted or destroyed while it was being made");
    }
    return result;
}

static void release(rd_making *m)
{
    if (m->comm) rd_shim_leave(m->comm);
    if (m->parent) rd_shim_leave(m->parent);
    free(m->exclude);
    free(m);
}

/* Without a communicator: its handle goes, too, unless who aborted it meanwhile frees it. */
static void give_up(rd_making *m)
{
    __atomic_store_n(m->out, NULL, __ATOMIC_RELEASE);
    if (m->comm) rd_shim_withdraw(m->comm);
    m->comm = NULL;
    release(m);
}

void rd_makings_drop(rd_making *list)
{
    for (rd_making *next; list; list = next) {
        next = list->next;
        give_up(list);
    }
}

/* Its result, with the words of a failure. */
static void note(rd_making *m, rondo_result result)
{
    m->result = result;
    if (result != RONDO_SUCCESS && result != RONDO_IN_PROGRESS) snprintf(m->why, sizeof m->why, "%s", rd_last_error());
}

static void *make_here(void *argument)
{
    rd_making *m = argument;
    note(m, carry_out(m));
    return NULL;
}

static void *make_in_background(void *argument)
{
    rd_making *m = argument;
    carry_out(m);
    atomic_fetch_sub(&m->parent->children, 1);
    release(m);
    return NULL;
}

static rondo_result begin_thread(rd_making *m)
{
    if (!m->blocking) atomic_fetch_add(&m->parent->children, 1);
    pthread_t thread;
    bool waits = m->blocking; /* else m may be gone when the thread has begun */
    ncclComm_t parent = m->parent;
    int error = rd_thread_start(&thread, "rondo-make", waits ? make_here : make_in_background, m);
    if (!error && !waits) pthread_detach(thread);
    if (!error && waits) {
        m->thread = thread;
        m->threaded = true;
    }
    if (!error) return RONDO_SUCCESS;
    if (!waits) atomic_fetch_sub(&parent->children, 1);
    return rd_fail(RONDO_SYSTEM_ERROR, "no thread to make a communicator with: %s", strerror(error));
}

/* Joins have their background, what is alone is done here; the others wait for one another, and get a thread. */
static rondo_result begin(rd_making *m, bool alone)
{
    if (m->how != RD_MAKE_JOIN && !(alone && m->blocking)) return begin_thread(m);
    return carry_out(m);
}

/* true: it is made, or has failed; once another one `failed` it has to. */
static bool look_at_join(rd_making *m, const rd_making *failed)
{
    if (m->result != RONDO_SUCCESS) return true;
    rondo_result state = rd_shim_state(m->comm);
    if (state == RONDO_IN_PROGRESS) {
        if (failed) rondo_comm_abort_because(m->comm->inner, failed->why);
        return false;
    }
    if (state != RONDO_SUCCESS) note(m, rd_fail(state, "%s", rondo_last_error(m->comm->inner)));
    return true;
}

/* Until all joins of the list are made, or one has failed and taken the others with it. */
static const rd_making *await_joins(rd_making *list, const rd_making *failed)
{
    for (bool left = true; left;) {
        left = false;
        for (rd_making *m = list; m; m = m->next) {
            if (m->how != RD_MAKE_JOIN) continue;
            left |= !look_at_join(m, failed);
            if (!failed && m->result != RONDO_SUCCESS) failed = m;
        }
        if (left) nanosleep(&(struct timespec){0, LOOK_NS}, NULL);
    }
    return failed;
}

/* What blocks is done, or has failed, when this returns. Of joins all handles go with one that failed. */
static rondo_result conclude(rd_making *list, const rd_making *failed)
{
    failed = await_joins(list, failed);
    for (rd_making *m = list; m; m = m->next) {
        if (m->threaded) pthread_join(m->thread, NULL);
        if (!failed && m->result != RONDO_SUCCESS) failed = m;
    }
    rondo_result result = failed ? rd_fail(failed->result, "%s", failed->why) : RONDO_SUCCESS;
    for (rd_making *next; list; list = next) {
        next = list->next;
        bool stays = list->result == RONDO_SUCCESS && !(failed && list->how == RD_MAKE_JOIN);
        if (stays)
            release(list);
        else
            give_up(list);
    }
    return result;
}

rondo_result rd_makings_run(rd_making *list)
{
    bool alone = list && !list->next, background = false;
    rd_making *ours = NULL; /* to conclude; what goes on in the background is not */
    const rd_making *failed = NULL;
    for (rd_making *next; list; list = next) {
        next = list->next;
        bool blocking = list->blocking, threads = !blocking && list->how != RD_MAKE_JOIN;
        rondo_result begun = failed ? failed->result : begin(list, alone);
        if (begun == RONDO_SUCCESS && !blocking) {
            background = true;
            if (!threads) release(list);
            continue;
        }
        if (!list->threaded) note(list, begun);
        if (!failed && begun != RONDO_SUCCESS) failed = list;
        list->next = ours;
        ours = list;
    }
    rondo_result result = conclude(ours, failed);
    return result == RONDO_SUCCESS && background ? RONDO_IN_PROGRESS : result;
}

/* ---- Joining ---- */

/* Handed over: kept by the group, or run now. */
static rondo_result submit(rd_making *m)
{
    __atomic_store_n(m->out, m->comm, __ATOMIC_RELEASE); /* another thread may abort it from now on */
    if (!rd_shim_grouped()) return rd_makings_run(m);
    rd_shim_keep_making(m);
    return RONDO_SUCCESS;
}

/* NULL: last error set. */
static rd_making *new_making(ncclComm_t *out)
{
    rd_making *m = out ? calloc(1, sizeof *m) : NULL;
    if (!out)
        rd_shim_null("the place for the communicator");
    else if (!m)
        rd_fail_errno("no memory for a communicator");
    else
        m->out = out;
    return m;
}

/* device: the rank's GPU; RONDO_DEVICE_AUTO: none. */
static rondo_result join(ncclComm_t *out, int size, const ncclUniqueId *id, int rank, const ncclConfig_t *config,
                         int device)
{
    int blocking;
    rd_shim_variables();
    if (size < 1 || rank < 0 || rank >= size)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "rank %d of %d: there must be at least 1 rank, and with %d ranks it is 0 to %d", rank, size,
                       size, size - 1);
    RD_TRY(read_config(config, rd_shim_blocks(), &blocking));
    if (rank == 0) rd_shim_tell_version();
    rd_making *m = new_making(out);
    if (!m) return out ? RONDO_SYSTEM_ERROR : RONDO_INVALID_ARGUMENT;
    m->how = RD_MAKE_JOIN;
    memcpy(m->id.bytes, id->internal, sizeof m->id.bytes);
    m->blocking = blocking;
    m->config = (rondo_config)RONDO_CONFIG_INIT;
    m->config.timeout_s = CALL_TIMEOUT_S;
    m->config.allow_overlap = 1;
    m->config.background = 1;
    m->config.device = device;
    m->comm = rd_shim_new(rank, size, blocking, device);
    if (m->comm) return submit(m);
    release(m);
    return RONDO_SYSTEM_ERROR;
}

RD_NCCL(ncclGetUniqueId);
ncclResult_t ncclGetUniqueId(ncclUniqueId *uniqueId)
{
    rondo_unique_id id;
    rd_shim_variables();
    const char *at = rd_shim_meeting_point();
    rondo_result result = !uniqueId ? rd_shim_null("uniqueId")
                          : at      ? rondo_unique_id_at(&id, at)
                                    : rondo_get_unique_id(&id);
    if (result == RONDO_SUCCESS) memcpy(uniqueId->internal, id.bytes, sizeof id.bytes);
    return rd_shim_result("ncclGetUniqueId", result);
}

RD_NCCL(ncclCommInitRank);
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank)
{
    return rd_shim_result("ncclCommInitRank", join(comm, nranks, &commId, rank, NULL, rd_shim_current_device()));
}

RD_NCCL(ncclCommInitRankConfig);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config)
{
    return rd_shim_result("ncclCommInitRankConfig",
                          join(comm, nranks, &commId, rank, config, rd_shim_current_device()));
}

/* One root serves any number of ranks here, so the first id is enough. */
RD_NCCL(ncclCommInitRankScalable);
ncclResult_t ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId, ncclUniqueId *commIds,
                                      ncclConfig_t *config)
{
    static const char who[] = "ncclCommInitRankScalable";
    if (!commIds || nId < 1 || nId > nranks)
        return rd_shim_result(who, rd_fail(RONDO_INVALID_ARGUMENT,
                                           "nId is %d and commIds %p; with %d ranks there are 1 to %d ids", nId,
                                           (void *)commIds, nranks, nranks));
    return rd_shim_result(who, join(newcomm, nranks, &commIds[0], myrank, config, rd_shim_current_device()));
}

/* Ranks may share a GPU. Without any, a list of them is but remembered for ncclCommCuDevice. */
static rondo_result join_all(ncclComm_t *comms, int n, const int *devices)
{
    ncclUniqueId id;
    bool on_gpus = rd_shim_current_device() >= 0;
    if (!comms) return rd_shim_null("comm");
    if (n < 0) return rd_fail(RONDO_INVALID_ARGUMENT, "ndev is %d; it must not be negative", n);
    for (int i = 0; devices && i < n; i++)
        if (devices[i] < 0)
            return rd_fail(RONDO_INVALID_ARGUMENT, "devlist[%d] is %d; devices count from 0", i, devices[i]);
    if (n == 0) return RONDO_SUCCESS;
    if (ncclGetUniqueId(&id) != ncclSuccess || ncclGroupStart() != ncclSuccess) return RONDO_SYSTEM_ERROR;
    for (int i = 0; i < n; i++) {
        int device = devices ? devices[i] : i;
        rondo_result result = join(&comms[i], n, &id, i, NULL, on_gpus ? device : RONDO_DEVICE_AUTO);
        if (rd_shim_result("ncclCommInitAll", result) == ncclSuccess) comms[i]->device = device;
    }
    return (rondo_result)ncclGroupEnd();
}

RD_NCCL(ncclCommInitAll);
ncclResult_t ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist)
{
    return rd_shim_result("ncclCommInitAll", join_all(comm, ndev, devlist));
}

/* ---- From another one ---- */

static rondo_result copy_excluded(rd_making *m, const int *list, int n)
{
    if (!list || n < 1)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "excludeRanksCount is %d and excludeRanksList %p; it must list at least one rank", n,
                       (const void *)list);
    m->exclude = malloc((size_t)n * sizeof *m->exclude);
    if (!m->exclude) return rd_fail_errno("no memory for a list of %d ranks", n);
    memcpy(m->exclude, list, (size_t)n * sizeof *m->exclude);
    m->excluded = n;
    return RONDO_SUCCESS;
}

/* The parent is held until the child is made. It need not be in a good state: what has ended can be shrunk. */
static rondo_result hold_parent(rd_making *m, ncclComm_t parent, const ncclConfig_t *config, int *blocking)
{
    RD_TRY(rd_shim_hold(parent));
    m->parent = parent;
    if (!parent->inner || rd_shim_state(parent) == RONDO_IN_PROGRESS)
        return rd_fail(RONDO_INVALID_ARGUMENT, "the communicator is still being made");
    RD_TRY(read_config(config, parent->blocking, blocking));
    m->blocking = *blocking;
    return RONDO_SUCCESS;
}

static rondo_result derive(ncclComm_t parent, ncclComm_t *out, const ncclConfig_t *config, const rd_making *what)
{
    int blocking;
    rd_making *m = new_making(out);
    if (!m) return out ? RONDO_SYSTEM_ERROR : RONDO_INVALID_ARGUMENT;
    m->how = what->how;
    m->color = what->color;
    m->key = what->key;
    m->aborts = what->aborts;
    rondo_result result = hold_parent(m, parent, config, &blocking);
    if (result == RONDO_SUCCESS && m->how == RD_MAKE_SHRINK) result = copy_excluded(m, what->exclude, what->excluded);
    bool member = m->how == RD_MAKE_SHRINK || m->color != NCCL_SPLIT_NOCOLOR;
    if (result == RONDO_SUCCESS && member) {
        m->comm = rd_shim_new(-1, 0, blocking, parent->device);
        if (!m->comm) result = RONDO_SYSTEM_ERROR;
    }
    if (result == RONDO_SUCCESS) return submit(m);
    release(m);
    return result;
}

RD_NCCL(ncclCommSplit);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config)
{
    rd_making what = {.how = RD_MAKE_SPLIT, .color = color, .key = key};
    rondo_result result =
        color < NCCL_SPLIT_NOCOLOR
            ? rd_fail(RONDO_INVALID_ARGUMENT, "color is %d; it must be 0 or more, or NCCL_SPLIT_NOCOLOR (%d)", color,
                      NCCL_SPLIT_NOCOLOR)
            : derive(comm, newcomm, config, &what);
    return rd_shim_result("ncclCommSplit", result);
}

RD_NCCL(ncclCommShrink);
ncclResult_t ncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm,
                            ncclConfig_t *config, int shrinkFlags)
{
    rd_making what = {.how = RD_MAKE_SHRINK, .exclude = excludeRanksList, .excluded = excludeRanksCount};
    if (shrinkFlags != NCCL_SHRINK_DEFAULT && shrinkFlags != NCCL_SHRINK_ABORT)
        return rd_shim_result("ncclCommShrink",
                              rd_fail(RONDO_INVALID_ARGUMENT,
                                      "shrinkFlags is %#x; it must be NCCL_SHRINK_DEFAULT or NCCL_SHRINK_ABORT",
                                      (unsigned)shrinkFlags));
    what.aborts = shrinkFlags == NCCL_SHRINK_ABORT;
    return rd_shim_result("ncclCommShrink", derive(comm, newcomm, config, &what));
}
