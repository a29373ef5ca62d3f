/* SPDX-License-Identifier: Apache-2.0
 *
 * calls.c - collectives and messages. Types, operators and in-place rules are ours; so each is a look at the
 * communicator and the stream, and the call.
 */
#include "shim/shim.h"

#include "base/process.h"

/* To ask the kernel takes longer than a short call. Programs call with the same buffers: so pages where there was memory
 * are remembered, which one that was never there cannot be. */
static bool is_memory(const void *buffer)
{
    enum { PAGE_BITS = 12, REMEMBERED = 256 };
    static _Atomic uintptr_t pages[REMEMBERED]; /* of all threads: theirs alone must be small, for dlopen */
    uintptr_t page = (uintptr_t)buffer >> PAGE_BITS;
    _Atomic uintptr_t *known = &pages[page % REMEMBERED];
    if (page && atomic_load_explicit(known, memory_order_relaxed) == page) return true;
    if (!rd_is_readable(buffer, 1)) return false;
    atomic_store_explicit(known, page, memory_order_relaxed);
    return true;
}

/* No memory at all, where a host's call would crash; of GPUs' memory the library knows. count 0: nothing is touched. */
static rondo_result check_buffer(const char *name, const void *buffer, size_t count)
{
    if (!buffer || !count || is_memory(buffer)) return RONDO_SUCCESS; /* the library knows when NULL is wrong */
    return rd_fail(RONDO_INVALID_ARGUMENT, "%s is %p, where there is no memory; was it freed?", name, buffer);
}

/* NULL: a buffer that this rank does not use. */
static rondo_result prepare(ncclComm_t comm, cudaStream_t stream, const void *send, const void *recv, size_t count,
                            rondo_stream **on)
{
    if (!rd_shim_on_gpu(comm)) {
        RD_TRY(check_buffer("sendbuff", send, count));
        RD_TRY(check_buffer("recvbuff", recv, count));
    }
    return rd_shim_stream(stream, comm, send, recv, on);
}

static ncclResult_t finish(const char *function, ncclComm_t comm, rondo_result result)
{
    rd_shim_leave(comm);
    return rd_shim_result(function, result);
}

/* Makes `call`, which may use `inner` and `on`; send and recv, NULL where this rank does not use them, may ask for its
 * `rank`. */
#define RD_CALL(function, send, recv, count, comm, stream, call)                                                       \
    do {                                                                                                               \
        rondo_stream *on = NULL;                                                                                       \
        rondo_result begun = rd_shim_enter(comm);                                                                      \
        if (begun != RONDO_SUCCESS) return rd_shim_result(function, begun);                                            \
        rondo_comm *inner = (comm)->inner;                                                                             \
        int rank = (comm)->rank;                                                                                       \
        (void)rank;                                                                                                    \
        begun = prepare(comm, stream, send, recv, count, &on);                                                         \
        return finish(function, comm, begun == RONDO_SUCCESS ? (call) : begun);                                        \
    } while (0)

RD_NCCL(ncclAllReduce);
ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream)
{
    RD_CALL("ncclAllReduce", sendbuff, recvbuff, count, comm, stream,
            rondo_all_reduce(sendbuff, recvbuff, count, (rondo_dtype)datatype, (rondo_op)op, inner, on));
}

RD_NCCL(ncclReduceScatter);
ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    RD_CALL("ncclReduceScatter", sendbuff, recvbuff, recvcount, comm, stream,
            rondo_reduce_scatter(sendbuff, recvbuff, recvcount, (rondo_dtype)datatype, (rondo_op)op, inner, on));
}

RD_NCCL(ncclAllGather);
ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream)
{
    RD_CALL("ncclAllGather", sendbuff, recvbuff, sendcount, comm, stream,
            rondo_all_gather(sendbuff, recvbuff, sendcount, (rondo_dtype)datatype, inner, on));
}

RD_NCCL(ncclBroadcast);
ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    RD_CALL("ncclBroadcast", rank == root ? sendbuff : NULL, recvbuff, count, comm, stream,
            rondo_broadcast(sendbuff, recvbuff, count, (rondo_dtype)datatype, root, inner, on));
}

RD_NCCL(ncclBcast);
ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream)
{
    RD_CALL("ncclBcast", buff, buff, count, comm, stream,
            rondo_broadcast(buff, buff, count, (rondo_dtype)datatype, root, inner, on));
}

RD_NCCL(ncclReduce);
ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream)
{
    RD_CALL("ncclReduce", sendbuff, rank == root ? recvbuff : NULL, count, comm, stream,
            rondo_reduce(sendbuff, recvbuff, count, (rondo_dtype)datatype, (rondo_op)op, root, inner, on));
}

RD_NCCL(ncclGather);
ncclResult_t ncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, cudaStream_t stream)
{
    RD_CALL("ncclGather", sendbuff, rank == root ? recvbuff : NULL, count, comm, stream,
            rondo_gather(sendbuff, recvbuff, count, (rondo_dtype)datatype, root, inner, on));
}

RD_NCCL(ncclScatter);
ncclResult_t ncclScatter(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                         ncclComm_t comm, cudaStream_t stream)
{
    RD_CALL("ncclScatter", rank == root ? sendbuff : NULL, recvbuff, count, comm, stream,
            rondo_scatter(sendbuff, recvbuff, count, (rondo_dtype)datatype, root, inner, on));
}

RD_NCCL(ncclAlltoAll);
ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
                          cudaStream_t stream)
{
    RD_CALL("ncclAlltoAll", sendbuff, recvbuff, count, comm, stream,
            rondo_all_to_all(sendbuff, recvbuff, count, (rondo_dtype)datatype, inner, on));
}

/* ---- What cannot be had ---- */

static ncclResult_t no_device_api(const char *function)
{
    return rd_shim_result(function,
                          rd_fail(RONDO_INVALID_USAGE,
                                  "kernels of a program's own cannot communicate through this library; its calls "
                                  "from the host are all there is"));
}

RD_NCCL(ncclDevCommCreate);
ncclResult_t ncclDevCommCreate(ncclComm_t comm, const struct ncclDevCommRequirements *requirements,
                               struct ncclDevComm *outDevComm)
{
    (void)comm;
    (void)requirements;
    (void)outDevComm;
    return no_device_api("ncclDevCommCreate");
}

RD_NCCL(ncclDevCommDestroy);
ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const struct ncclDevComm *devComm)
{
    (void)comm;
    (void)devComm;
    return no_device_api("ncclDevCommDestroy");
}

/* ---- Messages ---- */

RD_NCCL(ncclSend);
ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    RD_CALL("ncclSend", sendbuff, NULL, count, comm, stream,
            rondo_send(sendbuff, count, (rondo_dtype)datatype, peer, inner, on));
}

RD_NCCL(ncclRecv);
ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    RD_CALL("ncclRecv", NULL, recvbuff, count, comm, stream,
            rondo_recv(recvbuff, count, (rondo_dtype)datatype, peer, inner, on));
}
