/* SPDX-License-Identifier: Apache-2.0 */
#include "core/edges.h"

#include "base/log.h"
#include "core/device.h"
#include "core/hello.h"
#include "core/reach.h"
#include "reduce/device.h"
#include "transport/transport.h"

#include <stdio.h>
#include <unistd.h>

enum { PURPOSE_LINK = 1, PURPOSE_SOCKET = 2, MOST_SOCKETS = 8 };

/* Between two ranks of a host that both use a GPU: cuda_ipc, where the one GPU reaches the other's memory. *transport
 * stays NULL where it is not for them; a failure only where cuda_ipc was asked for. */
static rondo_result by_gpu(const rd_edges *c, int peer, const rondo_transport **transport, char *why, size_t bytes)
{
    rondo_comm *comm = c->comm;
    const rd_card *mine = &c->cards[comm->rank], *theirs = &c->cards[peer];
    rondo_reach far = (rondo_reach)comm->links.reach[peer];
    long asked = comm->settings.transport;
    *transport = NULL;
    if (asked != RD_TRANSPORT_AUTO && asked != RD_TRANSPORT_CUDA_IPC) return RONDO_SUCCESS;
    if (!mine->on_gpu || !theirs->on_gpu)
        snprintf(why, bytes, "rank %d uses no GPU", mine->on_gpu ? peer : comm->rank);
    else if (far == RONDO_REACH_NETWORK)
        snprintf(why, bytes, "the ranks are on two hosts");
    else if (!comm->settings.gpu_peer)
        snprintf(why, bytes, "RONDO_GPU_PEER is 0");
    else if (rd_cuda_ipc_reaches(rd_device_ordinal(comm->device), theirs->gpu, far == RONDO_REACH_PROCESS, why, bytes))
        *transport = &rd_transport_cuda_ipc;
    if (*transport) {
        snprintf(why, bytes, "cuda_ipc, since both ranks use GPUs of one host");
        return RONDO_SUCCESS;
    }
    if (asked == RD_TRANSPORT_CUDA_IPC)
        return rd_fail(RONDO_INVALID_USAGE,
                       "no link from rank %d to rank %d: cuda_ipc was asked for (RONDO_TRANSPORT), but %s; unset it",
                       comm->rank, peer, why);
    if (mine->on_gpu && theirs->on_gpu && far != RONDO_REACH_NETWORK)
        rd_log(RD_LOG_INFO, "rank %d -> rank %d: through host memory, since %s", comm->rank, peer, why);
    return RONDO_SUCCESS;
}

/* The best transport that reaches the edge's peer, and a connection to it. */
static rondo_result reach(rd_edges *c, const rd_edge *edge, const rondo_transport **transport, int *fd)
{
    rondo_comm *comm = c->comm;
    rd_reaching attempt = {.comm = comm, .peer = edge->peer};
    rondo_result result;
    do {
        RD_TRY(by_gpu(c, edge->peer, transport, attempt.why, sizeof attempt.why));
        if (!*transport) RD_TRY(rd_reach_choose(&attempt, transport));
        result = rd_member_connect(comm->member, edge->peer, PURPOSE_LINK, edge->index,
                                   rd_reach_over(*transport, edge->network), c->deadline, fd);
    } while (rd_reach_farther(&attempt, *transport, result));
    if (result == RONDO_SUCCESS) rd_log(RD_LOG_INFO, "rank %d -> rank %d: %s", comm->rank, edge->peer, attempt.why);
    return result;
}

static rondo_link_spec spec_for(const rd_edges *c, const rd_edge *edge)
{
    rondo_link_spec spec = rd_link_spec(c->comm, edge->peer, edge->rail, edge->slots, edge->slot_bytes);
    if (c->comm->device) spec.device = rd_device_ordinal(c->comm->device);
    return spec;
}

/* The further sockets of a link whose first one is spec->sockets[0]; on failure all of them are closed. */
static rondo_result more_sockets(rd_edges *c, const rd_edge *edge, int total, bool offering, rondo_link_spec *spec)
{
    rd_member *member = c->comm->member;
    while (spec->socket_count < total) {
        int index = edge->index * MOST_SOCKETS + spec->socket_count, *fd = &spec->sockets[spec->socket_count];
        rondo_result result =
            offering ? rd_member_connect(member, edge->peer, PURPOSE_SOCKET, index, edge->network, c->deadline, fd)
                     : rd_member_accept(member, edge->peer, PURPOSE_SOCKET, index, c->deadline, fd);
        if (result != RONDO_SUCCESS) {
            while (spec->socket_count) close(spec->sockets[--spec->socket_count]);
            return result;
        }
        spec->socket_count++;
    }
    return RONDO_SUCCESS;
}

static rondo_result offer_link(rd_edges *c, rd_edge *edge)
{
    rondo_comm *comm = c->comm;
    const rondo_transport *transport;
    rondo_offer offer = {0};
    int fd;
    RD_TRY(reach(c, edge, &transport, &fd));
    rondo_link_spec spec = spec_for(c, edge);
    if (transport->sockets) {
        spec.sockets[spec.socket_count++] = fd;
        bool asked = transport->reach == RONDO_REACH_NETWORK && comm->settings.sockets;
        int total = asked ? (int)comm->settings.sockets : transport->sockets;
        RD_TRY(more_sockets(c, edge, total, true, &spec));
    }
    rondo_result result = transport->offer(&spec, &edge->wire->link, &offer);
    if (result != RONDO_SUCCESS) {
        if (!transport->sockets) close(fd);
        return result;
    }
    result = rd_hello_send(fd, transport, &spec, &offer, c->deadline);
    rd_offer_close(&offer);
    edge->fd = fd;
    return result;
}

/* What a peer offers must be what this rank is about to make. */
static rondo_result check_offer(int peer, const rd_link_hello *hello, const rondo_link_spec *spec,
                                const rondo_transport **transport)
{
    RD_TRY(rd_hello_transport(hello, peer, transport));
    if (hello->slot_bytes != spec->slot_bytes || hello->slots != spec->slots ||
        !hello->sockets != !(*transport)->sockets)
        return rd_fail(RONDO_REMOTE_ERROR,
                       "rank %d offers a link of %u slots of %llu bytes on %u sockets, expected were "
                       "%u of %zu",
                       peer, hello->slots, (unsigned long long)hello->slot_bytes, hello->sockets, spec->slots,
                       spec->slot_bytes);
    return RONDO_SUCCESS;
}

static rondo_result accept_link(rd_edges *c, rd_edge *edge)
{
    rondo_offer offer = {0};
    rondo_link_spec spec = spec_for(c, edge);
    const rondo_transport *transport;
    rd_link_hello hello;
    int fd;
    RD_TRY(rd_member_accept(c->comm->member, edge->peer, PURPOSE_LINK, edge->index, c->deadline, &fd));
    rondo_result result = rd_hello_recv(c->comm, fd, &hello, &offer, c->deadline);
    if (result == RONDO_SUCCESS) result = check_offer(edge->peer, &hello, &spec, &transport);
    if (result != RONDO_SUCCESS) {
        rd_offer_close(&offer);
        close(fd);
        return result;
    }
    if (transport->sockets) {
        spec.sockets[spec.socket_count++] = fd;
        result = more_sockets(c, edge, (int)hello.sockets, false, &spec);
        if (result != RONDO_SUCCESS) {
            rd_offer_close(&offer);
            return result;
        }
    }
    result = rd_link_answer(transport, &spec, &offer, fd, c->deadline, &edge->wire->link);
    if (result == RONDO_SUCCESS && transport->reach == RONDO_REACH_HOST)
        rd_log(RD_LOG_INFO,
               "rank %d <- rank %d: %s, and one host for certain: a page that rank %d made is mapped here, and holds "
               "the random token that it said",
               c->comm->rank, edge->peer, transport->name, edge->peer);
    return result;
}

static rondo_result complete_link(rd_edges *c, rd_edge *edge)
{
    rondo_link *link = edge->wire->link;
    const rondo_transport *transport = rd_transport_named(link->ops->name);
    rd_link_hello hello;
    rondo_offer answer = {0};
    rondo_result result = rd_hello_recv(c->comm, edge->fd, &hello, &answer, c->deadline);
    if (result == RONDO_SUCCESS) result = transport->complete(link, &answer);
    if (!transport->sockets) close(edge->fd);
    edge->fd = -1;
    return result;
}

/* Links that take over their sockets close them themselves. */
static void close_unanswered(rd_edges *c)
{
    for (int i = 0; i < c->outs; i++) {
        const rondo_link *link = c->out[i].wire->link;
        if (c->out[i].fd >= 0 && !(link && rd_transport_named(link->ops->name)->sockets)) close(c->out[i].fd);
    }
}

rondo_result rd_edges_make(rd_edges *c)
{
    rondo_result result = RONDO_SUCCESS;
    for (int i = 0; i < c->outs; i++) c->out[i].fd = -1;
    for (int i = 0; i < c->outs && result == RONDO_SUCCESS; i++) result = offer_link(c, &c->out[i]);
    for (int i = 0; i < c->ins && result == RONDO_SUCCESS; i++) result = accept_link(c, &c->in[i]);
    for (int i = 0; i < c->outs && result == RONDO_SUCCESS; i++) result = complete_link(c, &c->out[i]);
    close_unanswered(c);
    for (int i = 0; i < c->outs && result == RONDO_SUCCESS; i++)
        result = rd_comm_adopt_link(c->comm, &c->out[i].wire->link, RD_SENDER, true);
    for (int i = 0; i < c->ins && result == RONDO_SUCCESS; i++)
        result = rd_comm_adopt_link(c->comm, &c->in[i].wire->link, RD_RECEIVER, true);
    return result;
}
