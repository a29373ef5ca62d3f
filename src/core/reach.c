/* SPDX-License-Identifier: Apache-2.0 */
#include "core/reach.h"

#include "core/hello.h"
#include "transport/transport.h"

#include <stdio.h>
#include <unistd.h>

const char *rd_forced_transport(const rondo_comm *comm)
{
    static const char *const names[] = {NULL, "loop", "shm", "tcp", "verbs", "cuda_ipc"};
    return names[comm->settings.transport];
}

rondo_result rd_reach_choose(rd_reaching *attempt, const rondo_transport **transport)
{
    const rondo_comm *comm = attempt->comm;
    int peer = attempt->peer;
    *transport = rd_transport_choose((rondo_reach)comm->links.reach[peer], rd_forced_transport(comm),
                                     comm->links.lacking[peer], attempt->why, sizeof attempt->why);
    if (*transport) return RONDO_SUCCESS;
    bool was_near = attempt->lost[0];
    return rd_fail(was_near ? RONDO_REMOTE_ERROR : RONDO_INVALID_USAGE, "no link from rank %d to rank %d: %s%s%s",
                   comm->rank, peer, attempt->why, was_near ? "; tried as one host: " : "", attempt->lost);
}

int rd_reach_over(const rondo_transport *transport, int network)
{
    return transport->reach == RONDO_REACH_NETWORK ? network : RD_OVER_UNIX;
}

bool rd_reach_farther(rd_reaching *attempt, const rondo_transport *transport, rondo_result result)
{
    const rondo_comm *comm = attempt->comm;
    unsigned char *reach = &comm->links.reach[attempt->peer];
    if (result != RONDO_REMOTE_ERROR || *reach != RONDO_REACH_HOST || transport->reach == RONDO_REACH_NETWORK ||
        rd_comm_stopped(comm) || rd_member_is_gone(comm->member, attempt->peer))
        return false;
    *reach = RONDO_REACH_NETWORK;
    snprintf(attempt->lost, sizeof attempt->lost, "%s", rd_last_error());
    return true;
}

rondo_link_spec rd_link_spec(rondo_comm *comm, int peer, int rail, uint32_t slots, size_t slot_bytes)
{
    return (rondo_link_spec){.me = comm->rank,
                             .peer = peer,
                             .bell = &comm->bell,
                             .device = -1,
                             .slots = slots,
                             .slot_bytes = slot_bytes,
                             .port = rd_links_port(&comm->links, rail)};
}

rondo_result rd_link_answer(const rondo_transport *transport, const rondo_link_spec *spec, const rondo_offer *offer,
                            int fd, int64_t deadline, rondo_link **link)
{
    rondo_offer answer = {0};
    rondo_result result = transport->accept(spec, offer, link, &answer);
    if (result == RONDO_SUCCESS) result = rd_hello_send(fd, transport, spec, &answer, deadline);
    rd_offer_close(&answer);
    if (!transport->sockets) close(fd);
    return result;
}
