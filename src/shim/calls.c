/* SPDX-License-Identifier: Apache-2.0
 *
 * calls.c - collectives and messages. Types, operators and in-place rules are ours; so each is a look at the
 * communicator and the stream, and the call.
 */
#include "shim/shim.h"

/* After success the communicator is held until finish. */
static rondo_result begin(ncclComm_t comm, cudaStream_t stream, const void *send, const void *recv, rondo_stream **on)
{
    RD_TRY(rd_shim_enter(comm));
    rondo_result result = rd_shim_stream(stream, comm, send, recv, on);
    if (result != RONDO_SUCCESS) rd_shim_leave(comm);
    return result;
}

static ncclResult_t finish(const char *function, ncclComm_t comm, rondo_result result)
{
    rd_shim_leave(comm);
    return rd_shim_result(function, result);
}

/* Makes `call`, which may use `inner` and `on`. */
#define RD_CALL(function, send, recv, comm, stream, call)                                                              \
    do {                                                                                                               \
        rondo_stream *on = NULL;                                                                                       \
        rondo_result begun = begin(comm, stream, send, recv, &on);                                                     \
        if (begun != RONDO_SUCCESS) return rd_shim_result(function, begun);                                            \
        rondo_comm *inner = (comm)->inner;                                                                             \
        return finish(function, comm, call);                                                                           \
    } while (0)

RD_NCCL(ncclAllReduce);
ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream)
{
    RD_CALL("ncclAllReduce", sendbuff, recvbuff, comm, stream,
            rondo_all_reduce(sendbuff, recvbuff, count, (rondo_dtype)datatype, (rondo_op)op, inner, on));
}

RD_NCCL(ncclReduceScatter);
ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    RD_CALL("ncclReduceScatter", sendbuff, recvbuff, comm, stream,
            rondo_reduce_scatter(sendbuff, recvbuff, recvcount, (rondo_dtype)datatype, (rondo_op)op, inner, on));
}

RD_NCCL(ncclAllGather);
ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream)
{
    RD_CALL("ncclAllGather", sendbuff, recvbuff, comm, stream,
            rondo_all_gather(sendbuff, recvbuff, sendcount, (rondo_dtype)datatype, inner, on));
}

RD_NCCL(ncclBroadcast);
ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    RD_CALL("ncclBroadcast", sendbuff, recvbuff, comm, stream,
            rondo_broadcast(sendbuff, recvbuff, count, (rondo_dtype)datatype, root, inner, on));
}

RD_NCCL(ncclBcast);
ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream)
{
    RD_CALL("ncclBcast", buff, buff, comm, stream,
            rondo_broadcast(buff, buff, count, (rondo_dtype)datatype, root, inner, on));
}

RD_NCCL(ncclReduce);
ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream)
{
    RD_CALL("ncclReduce", sendbuff, recvbuff, comm, stream,
            rondo_reduce(sendbuff, recvbuff, count, (rondo_dtype)datatype, (rondo_op)op, root, inner, on));
}

RD_NCCL(ncclGather);
ncclResult_t ncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, cudaStream_t stream)
{
    RD_CALL("ncclGather", sendbuff, recvbuff, comm, stream,
            rondo_gather(sendbuff, recvbuff, count, (rondo_dtype)datatype, root, inner, on));
}

RD_NCCL(ncclScatter);
ncclResult_t ncclScatter(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                         ncclComm_t comm, cudaStream_t stream)
{
    RD_CALL("ncclScatter", sendbuff, recvbuff, comm, stream,
            rondo_scatter(sendbuff, recvbuff, count, (rondo_dtype)datatype, root, inner, on));
}

RD_NCCL(ncclAlltoAll);
ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
                          cudaStream_t stream)
{
    RD_CALL("ncclAlltoAll", sendbuff, recvbuff, comm, stream,
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
    RD_CALL("ncclSend", sendbuff, NULL, comm, stream,
            rondo_send(sendbuff, count, (rondo_dtype)datatype, peer, inner, on));
}

RD_NCCL(ncclRecv);
ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    RD_CALL("ncclRecv", NULL, recvbuff, comm, stream,
            rondo_recv(recvbuff, count, (rondo_dtype)datatype, peer, inner, on));
}
