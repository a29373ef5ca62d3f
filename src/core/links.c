/* SPDX-License-Identifier: Apache-2.0 */
#include "core/device.h"
#include "core/hello.h"
#include "core/pool.h"
#include "core/reach.h"

#include "base/clock.h"
#include "base/log.h"
#include "transport/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SLOTS        RD_POOL_SLOTS
#define SLOT_BYTES   RD_POOL_SLOT_BYTES /* 256 KiB a link: N-1 of them are made for an all-to-all */
#define SOCKET_SLICE 131072 /* of links that have no slots of their own */
#define MOST_SLOTS   64
#define LOOK_S       0.05 /* how often a wait for a peer's answer looks whether the peer is stopped */
#define ANSWER_S     1.0  /* an answer's few bytes fit into any socket */
#define REASON_S     1.0  /* how long a broken connection waits for the control plane to say why */

_Static_assert(RD_HELLO_BYTES <= sizeof((rd_greeting *)0)->data, "a greeting holds a hello");

rondo_result rd_links_open(rondo_comm *comm)
{
    rd_links *links = &comm->links;
    size_t n = (size_t)comm->size;
    links->out = calloc(n * RD_LANES, sizeof *links->out);
    links->in = calloc(n * RD_LANES, sizeof *links->in);
    links->arrived = calloc(n * RD_LANES, sizeof *links->arrived);
    links->sent = calloc(n, sizeof *links->sent);
    links->received = calloc(n, sizeof *links->received);
    links->reach = calloc(n, sizeof *links->reach);
    links->lacking = calloc(n, sizeof *links->lacking);
    links->rail = malloc(n);
    if (links->rail) memset(links->rail, -1, n);
    if (links->out && links->in && links->arrived && links->sent && links->received && links->reach && links->lacking &&
        links->rail)
        return RONDO_SUCCESS;
    return rd_fail_errno("no memory for the links of %d ranks", comm->size);
}

/* After the member is closed: nothing arrives any more. */
void rd_links_close(rondo_comm *comm)
{
    rd_links *links = &comm->links;
    for (int i = 0; i < comm->size * RD_LANES; i++) {
        if (links->out) rd_comm_close_link(comm, links->out[i].link);
        if (links->in) rd_comm_close_link(comm, links->in[i].link);
        if (links->arrived) rd_comm_close_link(comm, atomic_load(&links->arrived[i]));
    }
    free(links->out);
    free(links->in);
    free(links->arrived);
    free(links->sent);
    free(links->received);
    free(links->reach);
    free(links->lacking);
    free(links->rails);
    free(links->rail);
}

/* ---- The sending end ---- */

static rondo_result no_answer(const rondo_comm *comm, int peer)
{
    char name[256];
    rd_member_peer_name(comm->member, peer, name, sizeof name);
    return rd_fail(RONDO_TIMEOUT, "no link from rank %d to %s in %.3g s (RONDO_TIMEOUT sets the limit): it %s",
                   comm->rank, name, comm->settings.timeout_s,
                   rd_member_is_stopped(comm->member, peer, NULL) ? "is stopped (SIGSTOP, or a debugger)"
                                                                  : "does not answer");
}

/* A transport, and a connection to the peer by which to make a link. */
static rondo_result reach(rondo_comm *comm, rd_lane lane, int peer, int64_t deadline, const rondo_transport **transport,
                          int *fd)
{
    rd_reaching attempt = {.comm = comm, .peer = peer};
    rondo_result result;
    do {
        if (comm->links.reach[peer] != RONDO_REACH_NETWORK && rd_pool_out(comm, peer)) {
            *transport = &rd_transport_cuda_ipc;
            snprintf(attempt.why, sizeof attempt.why, "cuda_ipc, in GPU memory that it has ready for such links");
        } else {
            RD_TRY(rd_reach_choose(&attempt, transport));
        }
        int over = rd_reach_over(*transport, comm->rank + peer); /* spread over NICs */
        result = rd_member_visit(comm->member, peer, (int)lane, over, deadline, fd);
    } while (rd_reach_farther(&attempt, *transport, result));
    if (result == RONDO_TIMEOUT) return no_answer(comm, peer);
    if (result == RONDO_SUCCESS)
        rd_log(RD_LOG_INFO, "rank %d -> rank %d, on demand: %s", comm->rank, peer, attempt.why);
    return result;
}

static rondo_result greet(int fd, const rondo_transport *transport, const rondo_link_spec *spec,
                          const rondo_offer *offer, int64_t deadline)
{
    rd_greeting greeting = {.bytes = RD_HELLO_BYTES, .fd_count = offer->fd_count};
    rd_hello_pack(greeting.data, transport, spec, offer);
    memcpy(greeting.fds, offer->fds, sizeof greeting.fds);
    return rd_greeting_send(fd, &greeting, deadline);
}

/* The peer's service thread answers within a moment, unless its process is stopped. */
static rondo_result await_answer(rondo_comm *comm, int fd, int peer, rd_link_hello *hello, rondo_offer *answer,
                                 int64_t deadline)
{
    char name[256];
    for (bool warned = false;;) {
        int64_t look = rd_deadline(LOOK_S);
        rondo_result result = rd_hello_await(comm, fd, look < deadline ? look : deadline);
        if (result == RONDO_SUCCESS) break;
        if (rd_comm_stopped(comm)) return result;
        if (rd_now() >= deadline) return no_answer(comm, peer);
        if (warned || !rd_member_is_stopped(comm->member, peer, NULL)) continue;
        warned = true;
        rd_member_peer_name(comm->member, peer, name, sizeof name);
        rd_log(RD_LOG_WARN, "rank %d waits for a link to %s, which is stopped (SIGSTOP, or a debugger)", comm->rank,
               name);
    }
    return rd_hello_recv(comm, fd, hello, answer, rd_deadline(ANSWER_S));
}

/* The connection often hears of a peer's end first; the control plane knows who ended and how. */
static rondo_result reason_why(rondo_comm *comm, int peer, rondo_result result)
{
    char own[RD_ERROR_BYTES], name[256];
    snprintf(own, sizeof own, "%s", rd_last_error());
    for (int64_t until = rd_deadline(REASON_S); rd_now() < until && !rd_member_is_gone(comm->member, peer);) {
        if (rd_comm_stopped(comm)) break;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    rondo_result stop = rd_comm_stopped(comm);
    if (stop) return rd_fail(stop, "%s", comm->stop.text);
    rd_member_peer_name(comm->member, peer, name, sizeof name);
    if (rd_member_is_gone(comm->member, peer))
        return rd_fail(RONDO_REMOTE_ERROR, "%s left while a link to it was being made", name);
    return rd_fail(result, "no link from rank %d to %s: %s", comm->rank, name, own);
}

/* Over a connection to the peer, which it takes over. RONDO_SUCCESS and no link: the peer has no place left for one by
 * this transport. */
static rondo_result make_by(rondo_comm *comm, const rondo_transport *transport, int fd, rondo_link_spec *spec,
                            int64_t deadline, rondo_link **made)
{
    rondo_offer offer = {0}, answer = {0};
    rd_link_hello hello = {.slots = 0};
    rondo_link *link;
    if (transport->sockets) spec->sockets[spec->socket_count++] = fd;
    rondo_result result = transport->offer(spec, &link, &offer);
    if (result != RONDO_SUCCESS) {
        if (!transport->sockets) close(fd);
        return result;
    }
    result = greet(fd, transport, spec, &offer, deadline);
    rd_offer_close(&offer);
    if (result == RONDO_SUCCESS) result = await_answer(comm, fd, spec->peer, &hello, &answer, deadline);
    if (result == RONDO_SUCCESS && !hello.slots) {
        rd_offer_close(&answer);
        if (!transport->sockets) close(fd);
        link->ops->close(link);
        return RONDO_SUCCESS;
    }
    if (result == RONDO_SUCCESS) result = transport->complete(link, &answer);
    if (!transport->sockets) close(fd);
    if (result == RONDO_SUCCESS) result = rd_comm_adopt_link(comm, &link, RD_SENDER, false);
    if (result == RONDO_SUCCESS) {
        *made = link;
        return RONDO_SUCCESS;
    }
    link->ops->close(link);
    return result == RONDO_TIMEOUT ? result : reason_why(comm, spec->peer, result);
}

rondo_result rd_links_make(rondo_comm *comm, rd_lane lane, int peer, int64_t deadline)
{
    rd_wire *wire = rd_links_out(&comm->links, comm->size, lane, peer);
    while (!wire->link) {
        const rondo_transport *transport;
        int fd;
        RD_TRY(reach(comm, lane, peer, deadline, &transport, &fd));
        rondo_link_spec spec = rd_link_spec(comm, peer, comm->links.rail[peer], SLOTS,
                                            transport->reach == RONDO_REACH_NETWORK ? SOCKET_SLICE : SLOT_BYTES);
        bool lent = transport == &rd_transport_cuda_ipc && rd_pool_lend_out(comm, &spec);
        RD_TRY(make_by(comm, transport, fd, &spec, deadline, &wire->link));
        if (wire->link) break;
        if (!lent)
            return rd_fail(RONDO_REMOTE_ERROR, "rank %d answers a link by %s with no slots", peer, transport->name);
        rd_pool_exhausted(comm, peer);
    }
    return RONDO_SUCCESS;
}

/* ---- The receiving end ---- */

static rondo_result check(const rd_link_hello *hello, int peer, const rondo_transport **transport)
{
    RD_TRY(rd_hello_transport(hello, peer, transport));
    if (hello->slots < 1 || hello->slots > MOST_SLOTS || (hello->slots & (hello->slots - 1)) ||
        hello->slot_bytes < 4096 || hello->slot_bytes > 262144 || hello->slot_bytes % 64 ||
        hello->sockets != ((*transport)->sockets ? 1u : 0u))
        return rd_fail(RONDO_REMOTE_ERROR,
                       "rank %d offers a link of %u slots of %llu bytes on %u sockets, which is none", peer,
                       hello->slots, (unsigned long long)hello->slot_bytes, hello->sockets);
    return RONDO_SUCCESS;
}

/* All places in this rank's GPU memory are taken. The peer hears of no slots, and comes again for some in host memory.
 */
static rondo_result refuse(rondo_comm *comm, int fd, const rondo_link_spec *spec)
{
    const rondo_link_spec none = {.slot_bytes = spec->slot_bytes};
    const rondo_offer nothing = {0};
    rd_log(RD_LOG_INFO,
           "rank %d <- rank %d, on demand: through host memory, since all places for links in this GPU's memory are "
           "taken (RONDO_GPU_LINKS is %ld)",
           comm->rank, spec->peer, comm->settings.gpu_links);
    rondo_result result = rd_hello_send(fd, &rd_transport_cuda_ipc, &none, &nothing, rd_now());
    close(fd);
    return result;
}

/* Takes over fd and the offer's descriptors. RONDO_SUCCESS and no link: there was no place for it. */
static rondo_result accept_link(rondo_comm *comm, int peer, int fd, const rd_greeting *greeting, rondo_link **link)
{
    const rondo_transport *transport;
    rondo_offer offer = {.fd_count = greeting->fd_count};
    rd_link_hello hello;
    memcpy(offer.fds, greeting->fds, sizeof offer.fds);
    rondo_result result = greeting->bytes == RD_HELLO_BYTES
                              ? rd_hello_unpack(greeting->data, &hello, &offer)
                              : rd_fail(RONDO_REMOTE_ERROR, "a greeting of %u bytes", greeting->bytes);
    if (result == RONDO_SUCCESS) result = check(&hello, peer, &transport);
    if (result != RONDO_SUCCESS) {
        rd_offer_close(&offer);
        close(fd);
        return result;
    }
    rondo_link_spec spec = rd_link_spec(comm, peer, comm->links.rail[peer], hello.slots, hello.slot_bytes);
    if (transport->sockets) spec.sockets[spec.socket_count++] = fd;
    if (transport == &rd_transport_cuda_ipc && !rd_pool_lend_in(comm, &spec)) {
        rd_offer_close(&offer);
        return refuse(comm, fd, &spec);
    }
    int place = spec.shared ? (int)(spec.shared_at / RD_POOL_PLACE_BYTES) : -1;
    result = rd_link_answer(transport, &spec, &offer, fd, rd_now(), link); /* an empty socket has room for it */
    if (result == RONDO_SUCCESS) result = rd_comm_adopt_link(comm, link, RD_RECEIVER, false);
    if (result != RONDO_SUCCESS) {
        if (*link) (*link)->ops->close(*link);
        rd_pool_give_back(comm, place);
        *link = NULL;
    }
    return result;
}

void rd_links_greeted(void *context, int peer, int index, int fd, const rd_greeting *greeting)
{
    rondo_comm *comm = context;
    rondo_link *link = NULL;
    if (index < 0 || index >= RD_LANES) {
        for (int i = 0; i < greeting->fd_count; i++) close(greeting->fds[i]);
        close(fd);
        return;
    }
    if (accept_link(comm, peer, fd, greeting, &link) != RONDO_SUCCESS) {
        rd_log(RD_LOG_WARN, "rank %d: no link from rank %d: %s", comm->rank, peer, rd_last_error());
        return;
    }
    if (!link) return;
    rd_comm_close_link(comm, atomic_exchange(&comm->links.arrived[index * comm->size + peer], link));
    atomic_store(&comm->woken, 1);
    rd_bell_ring(&comm->bell);
}

bool rd_links_take(rondo_comm *comm, rd_lane lane, int peer)
{
    rd_wire *wire = rd_links_in(&comm->links, comm->size, lane, peer);
    if (wire->link) return false;
    wire->link = atomic_exchange(&comm->links.arrived[(int)lane * comm->size + peer], NULL);
    return wire->link != NULL;
}
