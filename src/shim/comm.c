/* SPDX-License-Identifier: Apache-2.0
 *
 * comm.c - the handles that programs hold. A list says which there are, so that one that was destroyed, or never was,
 * is an error and not a crash; and counts who is inside a call, so that an abort from another thread frees nothing
 * under them.
 */
#include "shim/shim.h"

#include "base/process.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
RD_HOLD_AT_FORK(lock)
static pthread_cond_t left = PTHREAD_COND_INITIALIZER;
static ncclComm_t comms;

static char latest[RD_ERROR_BYTES]; /* of the process: some programs ask from another thread than failed */

/* ---- Results ---- */

/* Beyond NCCL's eight; the text says more. */
static ncclResult_t translated(rondo_result result)
{
    switch (result) {
    case RONDO_TIMEOUT: return ncclRemoteError;
    case RONDO_MISMATCH:
    case RONDO_ABORTED: return ncclInvalidUsage;
    default: return (ncclResult_t)result;
    }
}

/* "rondo_all_reduce: count is ..." is for a reader who wrote ncclAllReduce. */
static void rename_caller(const char *function, rondo_result result)
{
    const char *text = rd_last_error();
    size_t name = strspn(text, "abcdefghijklmnopqrstuvwxyz_");
    bool named = strncmp(text, "rondo_", 6) == 0 && text[name] == ':';
    char kept[RD_ERROR_BYTES];
    snprintf(kept, sizeof kept, "%s", named ? text + name + 2 : text);
    rd_shim_translate(kept);
    if (strncmp(kept, function, strlen(function)) != 0)
        rd_fail(result, "%s: %s", function, kept);
    else
        rd_fail(result, "%s", kept);
}

ncclResult_t rd_shim_result(const char *function, rondo_result result)
{
    if (result == RONDO_SUCCESS || result == RONDO_IN_PROGRESS) return (ncclResult_t)result;
    rename_caller(function, result);
    pthread_mutex_lock(&lock);
    memcpy(latest, rd_last_error(), sizeof latest);
    pthread_mutex_unlock(&lock);
    rd_shim_refuse(translated(result));
    return translated(result);
}

rondo_result rd_shim_null(const char *what)
{
    return rd_fail(RONDO_INVALID_ARGUMENT, "%s is NULL", what);
}

/* ---- Handles ---- */

ncclComm_t rd_shim_new(int rank, int size, int blocking, int device)
{
    ncclComm_t comm = calloc(1, sizeof *comm);
    if (!comm) {
        rd_fail_errno("no memory for a communicator");
        return NULL;
    }
    comm->rank = rank;
    comm->size = size;
    comm->device = device;
    comm->blocking = blocking;
    comm->users = 1;
    atomic_init(&comm->making, RONDO_IN_PROGRESS);
    pthread_mutex_lock(&lock);
    comm->next = comms;
    comms = comm;
    pthread_mutex_unlock(&lock);
    return comm;
}

/* Where the list points to it; to NULL: it is not there. */
static ncclComm_t *find(const struct ncclComm *comm)
{
    ncclComm_t *at = &comms;
    while (*at && *at != comm) at = &(*at)->next;
    return at;
}

static void forget(ncclComm_t comm)
{
    ncclComm_t *at = find(comm);
    if (*at) *at = comm->next;
}

void rd_shim_free(ncclComm_t comm)
{
    if (!comm) return;
    pthread_mutex_lock(&lock);
    forget(comm);
    pthread_mutex_unlock(&lock);
    rd_shim_forget_memory(comm);
    rd_shim_forget_streams(comm);
    free(comm);
}

static rondo_result no_handle(ncclComm_t comm)
{
    return rd_fail(RONDO_INVALID_ARGUMENT,
                   "comm is %p, which is no communicator of this process: it was destroyed or aborted, or never made",
                   (void *)comm);
}

rondo_result rd_shim_hold(ncclComm_t comm)
{
    if (!comm) return rd_fail(RONDO_INVALID_ARGUMENT, "comm is NULL; it must come from an ncclCommInit call");
    pthread_mutex_lock(&lock);
    bool there = *find(comm) != NULL;
    if (there) comm->users++;
    pthread_mutex_unlock(&lock);
    return there ? RONDO_SUCCESS : no_handle(comm);
}

void rd_shim_leave(ncclComm_t comm)
{
    pthread_mutex_lock(&lock);
    comm->users--;
    pthread_cond_broadcast(&left);
    pthread_mutex_unlock(&lock);
}

void rd_shim_withdraw(ncclComm_t comm)
{
    pthread_mutex_lock(&lock);
    bool ours = *find(comm) || comm->abandoned;
    forget(comm);
    comm->users--;
    pthread_cond_broadcast(&left);
    while (ours && comm->users) pthread_cond_wait(&left, &lock);
    pthread_mutex_unlock(&lock);
    if (!ours) return;
    rondo_comm_destroy(comm->inner);
    rd_shim_free(comm);
}

rondo_result rd_shim_interrupt(ncclComm_t comm, const char *why)
{
    RD_TRY(rondo_comm_abort_because(comm->inner, why));
    pthread_mutex_lock(&lock);
    while (comm->users > 1) pthread_cond_wait(&left, &lock);
    pthread_mutex_unlock(&lock);
    return RONDO_SUCCESS;
}

rondo_result rd_shim_state(ncclComm_t comm)
{
    rondo_result state = (rondo_result)atomic_load_explicit(&comm->making, memory_order_acquire);
    if (state != RONDO_SUCCESS) return state;
    RD_TRY(rondo_comm_error(comm->inner, &state));
    return state;
}

static rondo_result not_ready(ncclComm_t comm, rondo_result state)
{
    if (state == RONDO_IN_PROGRESS)
        return rd_fail(RONDO_INVALID_ARGUMENT, "the communicator is still being made; call ncclCommGetAsyncError until "
                                               "it no longer says ncclInProgress");
    return rd_fail(state, "%s", comm->inner ? rondo_last_error(comm->inner) : comm->why);
}

rondo_result rd_shim_enter(ncclComm_t comm)
{
    RD_TRY(rd_shim_hold(comm));
    rondo_result result = RONDO_SUCCESS, making = (rondo_result)atomic_load(&comm->making);
    if (comm->revoked)
        result = rd_fail(RONDO_INVALID_USAGE, "the communicator was revoked; it can be split, shrunk or destroyed");
    else if (making != RONDO_SUCCESS || (!comm->blocking && rd_shim_state(comm) == RONDO_IN_PROGRESS))
        result = not_ready(comm, making != RONDO_SUCCESS ? making : RONDO_IN_PROGRESS);
    if (result != RONDO_SUCCESS) rd_shim_leave(comm);
    return result;
}

rondo_result rd_shim_take(ncclComm_t comm, bool aborts, bool *taken)
{
    pthread_mutex_lock(&lock);
    bool there = *find(comm) != NULL;
    *taken = there && !(!comm->inner && atomic_load(&comm->making) == RONDO_IN_PROGRESS);
    if (there) forget(comm);
    if (there && !*taken) comm->abandoned = true;
    pthread_mutex_unlock(&lock);
    if (*taken && aborts && comm->inner) rondo_comm_abort_because(comm->inner, "ncclCommAbort was called");
    pthread_mutex_lock(&lock);
    while (*taken && comm->users) pthread_cond_wait(&left, &lock);
    pthread_mutex_unlock(&lock);
    return there ? RONDO_SUCCESS : no_handle(comm);
}

bool rd_shim_made(ncclComm_t comm, rondo_comm *inner, rondo_result result)
{
    pthread_mutex_lock(&lock);
    bool wanted = !comm->abandoned;
    comm->inner = inner;
    if (inner) {
        comm->rank = rondo_comm_rank(inner);
        comm->size = rondo_comm_size(inner);
    }
    if (result != RONDO_SUCCESS) snprintf(comm->why, sizeof comm->why, "%s", rd_last_error());
    atomic_store_explicit(&comm->making, (int)result, memory_order_release);
    pthread_mutex_unlock(&lock);
    return wanted;
}

/* ---- What they can be asked ---- */

/* One of the numbers of a communicator, by where it lies in it. */
static ncclResult_t tell(const char *function, const ncclComm_t comm, size_t number, const char *name, int *to)
{
    rondo_result result = rd_shim_enter(comm);
    if (result != RONDO_SUCCESS) return rd_shim_result(function, result);
    if (to)
        *to = *(const int *)((const char *)comm + number);
    else
        result = rd_shim_null(name);
    rd_shim_leave(comm);
    return rd_shim_result(function, result);
}

RD_NCCL(ncclCommCount);
ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    return tell("ncclCommCount", comm, offsetof(struct ncclComm, size), "count", count);
}

RD_NCCL(ncclCommUserRank);
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    return tell("ncclCommUserRank", comm, offsetof(struct ncclComm, rank), "rank", rank);
}

RD_NCCL(ncclCommCuDevice);
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    return tell("ncclCommCuDevice", comm, offsetof(struct ncclComm, device), "device", device);
}

RD_NCCL(ncclCommGetAsyncError);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
    rondo_result result = rd_shim_hold(comm);
    if (result != RONDO_SUCCESS) return rd_shim_result("ncclCommGetAsyncError", result);
    if (!asyncError) {
        result = rd_shim_null("asyncError");
    } else if (atomic_load(&comm->children)) {
        *asyncError = ncclInProgress;
    } else {
        *asyncError = comm->revoked ? ncclSuccess : translated(rd_shim_state(comm));
    }
    rd_shim_leave(comm);
    return rd_shim_result("ncclCommGetAsyncError", result);
}

/* ---- Errors in words ---- */

RD_NCCL(ncclGetErrorString);
const char *ncclGetErrorString(ncclResult_t result)
{
    return rondo_result_string((int)result >= 0 && result < ncclNumResults ? (rondo_result)result : (rondo_result)-1);
}

RD_NCCL(ncclGetLastError);
const char *ncclGetLastError(ncclComm_t comm)
{
    char *text = rd_kept_text(""); /* for this thread, since the one that it is copied from may fail again */
    if (comm && rd_shim_hold(comm) == RONDO_SUCCESS) {
        rondo_result state = rd_shim_state(comm);
        if (state != RONDO_SUCCESS && state != RONDO_IN_PROGRESS) {
            text = rd_kept_text(comm->inner ? rondo_last_error(comm->inner) : comm->why);
            rd_shim_translate(text);
        }
        rd_shim_leave(comm);
    }
    if (!*text) {
        pthread_mutex_lock(&lock);
        text = rd_kept_text(latest);
        pthread_mutex_unlock(&lock);
    }
    return text;
}

RD_NCCL(ncclResetDebugInit);
void ncclResetDebugInit(void)
{
    rd_shim_debug();
}

RD_NCCL(ncclGetVersion);
ncclResult_t ncclGetVersion(int *version)
{
    if (!version) return rd_shim_result("ncclGetVersion", rd_shim_null("version"));
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}
