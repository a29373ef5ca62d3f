/* SPDX-License-Identifier: Apache-2.0
 *
 * api.c - the collectives: each is a description of the call and one line.
 */
#include "core/comm.h"

rondo_result rondo_all_reduce(const void *send, void *recv, size_t count, rondo_dtype dtype, rondo_op op,
                              rondo_comm *comm, rondo_stream *stream)
{
    rd_call call = {"rondo_all_reduce", RONDO_COLL_ALL_REDUCE, send, recv, count, dtype, op, 0, true,
                    RD_KIND_COLLECTIVE, 0, false, false};
    return rd_call_run(comm, &call, stream);
}

rondo_result rondo_reduce_scatter(const void *send, void *recv, size_t recv_count, rondo_dtype dtype, rondo_op op,
                                  rondo_comm *comm, rondo_stream *stream)
{
    rd_call call = {"rondo_reduce_scatter", RONDO_COLL_REDUCE_SCATTER, send, recv, recv_count, dtype, op, 0, true,
                    RD_KIND_COLLECTIVE, 0, false, false};
    return rd_call_run(comm, &call, stream);
}

rondo_result rondo_all_gather(const void *send, void *recv, size_t send_count, rondo_dtype dtype, rondo_comm *comm,
                              rondo_stream *stream)
{
    rd_call call = {"rondo_all_gather", RONDO_COLL_ALL_GATHER, send, recv, send_count, dtype, RONDO_SUM, 0, false,
                    RD_KIND_COLLECTIVE, 0, false, false};
    return rd_call_run(comm, &call, stream);
}

rondo_result rondo_broadcast(const void *send, void *recv, size_t count, rondo_dtype dtype, int root, rondo_comm *comm,
                             rondo_stream *stream)
{
    rd_call call = {"rondo_broadcast", RONDO_COLL_BROADCAST, send, recv, count, dtype, RONDO_SUM, root, false,
                    RD_KIND_COLLECTIVE, 0, false, false};
    return rd_call_run(comm, &call, stream);
}

rondo_result rondo_reduce(const void *send, void *recv, size_t count, rondo_dtype dtype, rondo_op op, int root,
                          rondo_comm *comm, rondo_stream *stream)
{
    rd_call call = {"rondo_reduce", RONDO_COLL_REDUCE, send, recv, count, dtype, op, root, true,
                    RD_KIND_COLLECTIVE, 0, false, false};
    return rd_call_run(comm, &call, stream);
}

rondo_result rondo_gather(const void *send, void *recv, size_t count, rondo_dtype dtype, int root, rondo_comm *comm,
                          rondo_stream *stream)
{
    rd_call call = {"rondo_gather", RONDO_COLL_GATHER, send, recv,  count,
                    dtype,          RONDO_SUM,         root, false, RD_KIND_COLLECTIVE, 0, false, false};
    return rd_call_run(comm, &call, stream);
}

rondo_result rondo_scatter(const void *send, void *recv, size_t count, rondo_dtype dtype, int root, rondo_comm *comm,
                           rondo_stream *stream)
{
    rd_call call = {"rondo_scatter", RONDO_COLL_SCATTER, send, recv,  count,
                    dtype,           RONDO_SUM,          root, false, RD_KIND_COLLECTIVE, 0, false, false};
    return rd_call_run(comm, &call, stream);
}

rondo_result rondo_all_to_all(const void *send, void *recv, size_t count_per_rank, rondo_dtype dtype, rondo_comm *comm,
                              rondo_stream *stream)
{
    rd_call call = {"rondo_all_to_all", RONDO_COLL_ALL_TO_ALL, send, recv, count_per_rank, dtype, RONDO_SUM, 0, false,
                    RD_KIND_COLLECTIVE, 0, false, false};
    return rd_call_run(comm, &call, stream);
}

rondo_result rondo_send(const void *send, size_t count, rondo_dtype dtype, int peer, rondo_comm *comm,
                        rondo_stream *stream)
{
    rd_call call = {"rondo_send", RONDO_COLLECTIVES, send, NULL, count, dtype, RONDO_SUM, peer, false,
                    RD_KIND_SEND, 0, false, false};
    return rd_call_run(comm, &call, stream);
}

rondo_result rondo_recv(void *recv, size_t count, rondo_dtype dtype, int peer, rondo_comm *comm, rondo_stream *stream)
{
    rd_call call = {"rondo_recv", RONDO_COLLECTIVES, NULL, recv, count, dtype, RONDO_SUM, peer, false,
                    RD_KIND_RECV, 0, false, false};
    return rd_call_run(comm, &call, stream);
}

/* An all-reduce of nothing: its empty slices return only when all have called. */
rondo_result rondo_barrier(rondo_comm *comm, rondo_stream *stream)
{
    rd_call call = {"rondo_barrier", RONDO_COLL_ALL_REDUCE, NULL, NULL, 0, RONDO_UINT8, RONDO_SUM, 0, true,
                    RD_KIND_BARRIER, 0, false, false};
    return rd_call_run(comm, &call, stream);
}
