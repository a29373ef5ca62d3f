/* SPDX-License-Identifier: Apache-2.0
 *
 * estimate.c - how long calls may take, by the model of Hockney ("The communication challenge for MPP", 1994): a step takes
 * the link's latency, and its bytes' time at the link's bandwidth. All links are taken for the ring's slowest, since its
 * steps wait for that one. With N ranks, latency a, b seconds a byte, and B bytes where the caller counts them:
 *
 *   all-reduce                     2(N-1) (a + B b / N)   the ring's steps, each with a chunk
 *   barrier                        2(N-1) a               an all-reduce of nothing
 *   reduce-scatter, all-gather     (N-1) (a + B b)        likewise; B is a chunk
 *   broadcast, reduce              (N-1) a + B b          slices follow one another along the ring
 *   gather, scatter, all-to-all    a + (N-1) B b          one rank has a part for each of the others, or from them
 *   messages of a group            a + max(sent, received) b
 *   strict sums (strict.c)         the whole message's all-reduce, or 2 ((N-1) a + B b) of it along the ring and back
 */
#include "core/comm.h"

#include "base/dtype.h"

static double collective_time(rondo_collective collective, double n, double bytes, double a, double b)
{
    switch (collective) {
    case RONDO_COLL_ALL_REDUCE: return 2 * (n - 1) * (a + bytes * b / n);
    case RONDO_COLL_REDUCE_SCATTER:
    case RONDO_COLL_ALL_GATHER: return (n - 1) * (a + bytes * b);
    case RONDO_COLL_BROADCAST:
    case RONDO_COLL_REDUCE: return (n - 1) * a + bytes * b;
    case RONDO_COLL_GATHER:
    case RONDO_COLL_SCATTER:
    case RONDO_COLL_ALL_TO_ALL: return a + (n - 1) * bytes * b;
    case RONDO_COLLECTIVES: break;
    }
    return 0;
}

static double call_time(const rondo_comm *comm, const rd_call *call, double bytes, double a, double b)
{
    if (!rd_is_strict(comm, call)) return collective_time(call->collective, comm->size, bytes, a, b);
    double whole = bytes * (double)rd_call_parts(comm, call);
    if (rd_is_flat(comm)) return collective_time(RONDO_COLL_ALL_REDUCE, comm->size, whole, a, b);
    return 2 * collective_time(RONDO_COLL_REDUCE, comm->size, whole, a, b);
}

/* Its collectives run one after the other, its messages beside them. */
double rd_estimate(const rondo_comm *comm, const rd_call *calls, int count)
{
    double a = comm->slowest.ns * 1e-9, b = 1e-6 / comm->slowest.mbs, collectives = 0, sent = 0, received = 0;
    bool messages = false;
    if (comm->size == 1) return 0;
    for (int i = 0; i < count; i++) {
        const rd_call *call = &calls[i];
        double bytes = (double)call->count * (double)rd_dtype_bytes(call->dtype);
        messages = messages || rd_is_message(call);
        if (call->kind == RD_KIND_SEND)
            sent += bytes;
        else if (call->kind == RD_KIND_RECV)
            received += bytes;
        else
            collectives += call_time(comm, call, bytes, a, b);
    }
    double beside = messages ? a + (sent > received ? sent : received) * b : 0;
    return collectives > beside ? collectives : beside;
}
