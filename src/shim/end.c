/* SPDX-License-Identifier: Apache-2.0
 *
 * end.c - communicators end. Here destroying and aborting both free the handle; ours only does in the first.
 */
#include "shim/shim.h"

#include <stdio.h>

/* Without an abort what was given to streams is done first. A failure of that is no failure of the end. */
rondo_result rd_shim_end(ncclComm_t comm, bool aborts)
{
    bool taken;
    RD_TRY(rd_shim_take(comm, aborts, &taken));
    if (!taken) return RONDO_SUCCESS; /* who makes it will find nobody wants it */
    if (!aborts && comm->inner && !comm->finalized && !comm->revoked) rondo_comm_finalize(comm->inner);
    rondo_result result = rondo_comm_destroy(comm->inner);
    rd_shim_free(comm);
    return result;
}

static ncclResult_t end(const char *function, ncclComm_t comm, bool aborts)
{
    if (!comm) return ncclSuccess;
    return rd_shim_result(function, rd_shim_grouped() ? rd_shim_keep_ending(comm, aborts) : rd_shim_end(comm, aborts));
}

RD_NCCL(ncclCommDestroy);
ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    return end("ncclCommDestroy", comm, false);
}

RD_NCCL(ncclCommAbort);
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    return end("ncclCommAbort", comm, true);
}

static rondo_result finalize(ncclComm_t comm)
{
    if (comm->finalized) return rd_fail(RONDO_INVALID_ARGUMENT, "the communicator was finalized already");
    comm->finalized = true;
    return rondo_comm_finalize(comm->inner);
}

RD_NCCL(ncclCommFinalize);
ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    rondo_result result = rd_shim_enter(comm);
    if (result == RONDO_SUCCESS) {
        result = finalize(comm);
        rd_shim_leave(comm);
    }
    return rd_shim_result("ncclCommFinalize", result);
}

/* Whoever is inside a call on it comes out with an error, here and on the other ranks. */
static rondo_result revoke(ncclComm_t comm, int flags)
{
    if (flags != NCCL_REVOKE_DEFAULT)
        return rd_fail(RONDO_INVALID_ARGUMENT, "revokeFlags is %#x; it must be NCCL_REVOKE_DEFAULT", (unsigned)flags);
    if (comm->finalized)
        return rd_fail(RONDO_INVALID_USAGE, "the communicator was finalized; it can only be destroyed");
    comm->revoked = true;
    return rd_shim_interrupt(comm, "ncclCommRevoke was called");
}

RD_NCCL(ncclCommRevoke);
ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags)
{
    rondo_result result = rd_shim_enter(comm);
    if (result == RONDO_SUCCESS) {
        result = revoke(comm, revokeFlags);
        rd_shim_leave(comm);
    }
    return rd_shim_result("ncclCommRevoke", result);
}
