/* SPDX-License-Identifier: Apache-2.0
 *
 * connect.c - who is where, the ring's order, and the links.
 *
 *   1. every rank puts its card (contact, place, settings that shape the wire) on the table and reads all the others
 *   2. the same cards give every rank the same ring
 *   3. links are made in three rounds, so that nobody waits for one who waits: offer to all, accept from all, complete
 *   4. a second exchange says what came of it, and is the barrier after which every rank may send
 */
#include "core/card.h"
#include "core/hello.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/sock.h"
#include "boot/wire.h"
#include "transport/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RING_SLOTS   4          /* of a link with a neighbour; more than RD_BLOCK */
#define FLAT_SLOTS   2          /* of the other links: one slice is collected while the next is reduced */
#define HOST_BYTES   (2l << 20) /* what the slots of one rank's flat links may take together, about */
#define SOCKET_SLICE 131072 /* longest slice where the ring has sockets (bench/RESULTS.md: 256 and 64 KiB are slower)  \
                             */
#define FLAT_LEAST 16384    /* smaller slots cost more than they save */

enum { PURPOSE_LINK = 1, PURPOSE_SOCKET = 2 };

/* What came of making links: two numbers of 32 bits on the wire. */
typedef struct rd_outcome {
    uint32_t flat;   /* every link that flat needs is there */
    uint32_t staged; /* some link of the ring has no slots */
} rd_outcome;

typedef struct rd_connecting {
    rondo_comm *comm;
    rd_card *cards;
    int *open;     /* connections whose answer is awaited, as wires are numbered; -1 */
    bool *unix_ok; /* by rank: a unix connection can be tried, and none has failed */
    int64_t deadline;
    int next, previous;
    bool flat;
    size_t flat_bytes;
} rd_connecting;

/* ---- 3: links ---- */

static rd_wire *wire_out(rondo_comm *comm, int peer, int channel)
{
    return &comm->out[channel * comm->size + peer];
}
static rd_wire *wire_in(rondo_comm *comm, int peer, int channel)
{
    return &comm->in[channel * comm->size + peer];
}

/* Channels of the link to (or, with the previous rank as neighbour, from) peer. */
static int links_with(const rd_connecting *c, int peer, int neighbour)
{
    if (peer == c->comm->rank) return 0;
    if (peer == neighbour) return c->comm->wiring.channels;
    return c->flat ? 1 : 0;
}

/* The best transport that reaches peer, and a connection to it. */
static rondo_result reach(rd_connecting *c, int peer, int channel, const rondo_transport **transport, int *fd)
{
    rondo_comm *comm = c->comm;
    const rd_card *mine = &c->cards[comm->rank], *theirs = &c->cards[peer];
    char why[256], lost[512] = "";
    rondo_reach far = rd_cards_share_process(mine, theirs) ? RONDO_REACH_PROCESS
                      : c->unix_ok[peer]                   ? RONDO_REACH_HOST
                                                           : RONDO_REACH_NETWORK;
    for (;; far = RONDO_REACH_NETWORK) {
        *transport = rd_transport_choose(far, rd_forced_transport(comm), why, sizeof why);
        if (!*transport)
            return rd_fail(lost[0] ? RONDO_REMOTE_ERROR : RONDO_INVALID_USAGE,
                           "no link from rank %d to rank %d: %s%s%s", comm->rank, peer, why,
                           lost[0] ? "; tried as one host: " : "", lost);
        bool over_unix = (*transport)->reach != RONDO_REACH_NETWORK;
        rondo_result result = rd_member_connect(comm->member, peer, PURPOSE_LINK, channel,
                                                over_unix ? RD_OVER_UNIX : channel, c->deadline, fd);
        if (result == RONDO_SUCCESS) break;
        if (!over_unix || far == RONDO_REACH_PROCESS || result != RONDO_REMOTE_ERROR || rd_comm_stopped(comm))
            return result;
        c->unix_ok[peer] = false;
        snprintf(lost, sizeof lost, "%s", rd_last_error());
    }
    rd_log(RD_LOG_INFO, "rank %d -> rank %d: %s", comm->rank, peer, why);
    return RONDO_SUCCESS;
}

static rondo_link_spec spec_for(const rd_connecting *c, int peer, bool neighbour)
{
    rondo_link_spec spec = {.me = c->comm->rank, .peer = peer, .bell = &c->comm->bell};
    spec.slots = neighbour ? RING_SLOTS : FLAT_SLOTS; /* no more than are used: they share the caches */
    spec.slot_bytes = neighbour ? c->comm->wiring.slice_bytes : c->flat_bytes;
    return spec;
}

/* The further sockets of a link whose first one is spec->sockets[0]; on failure all of them are closed. */
static rondo_result more_sockets(rd_connecting *c, int peer, int channel, int total, bool offering,
                                 rondo_link_spec *spec)
{
    rd_member *member = c->comm->member;
    while (spec->socket_count < total) {
        int index = channel * RD_MAX_CHANNELS + spec->socket_count, *fd = &spec->sockets[spec->socket_count];
        rondo_result result = offering
                                  ? rd_member_connect(member, peer, PURPOSE_SOCKET, index, channel, c->deadline, fd)
                                  : rd_member_accept(member, peer, PURPOSE_SOCKET, index, c->deadline, fd);
        if (result != RONDO_SUCCESS) {
            while (spec->socket_count) close(spec->sockets[--spec->socket_count]);
            return result;
        }
        spec->socket_count++;
    }
    return RONDO_SUCCESS;
}

static rondo_result offer_link(rd_connecting *c, int peer, int channel)
{
    rondo_comm *comm = c->comm;
    const rondo_transport *transport;
    rondo_offer offer = {0};
    int fd;
    RD_TRY(reach(c, peer, channel, &transport, &fd));
    rondo_link_spec spec = spec_for(c, peer, peer == c->next);
    if (transport->sockets) {
        spec.sockets[spec.socket_count++] = fd;
        int total = transport->reach == RONDO_REACH_NETWORK ? (int)comm->settings.sockets : transport->sockets;
        RD_TRY(more_sockets(c, peer, channel, total, true, &spec));
    }
    rondo_result result = transport->offer(&spec, &wire_out(comm, peer, channel)->link, &offer);
    if (result != RONDO_SUCCESS) {
        if (!transport->sockets) close(fd);
        return result;
    }
    result = rd_hello_send(fd, transport, &spec, &offer, c->deadline);
    rd_offer_close(&offer);
    c->open[channel * comm->size + peer] = fd;
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

static rondo_result accept_link(rd_connecting *c, int peer, int channel)
{
    rd_wire *wire = wire_in(c->comm, peer, channel);
    rondo_offer offer = {0}, answer = {0};
    rondo_link_spec spec = spec_for(c, peer, peer == c->previous);
    const rondo_transport *transport;
    rd_link_hello hello;
    int fd;
    RD_TRY(rd_member_accept(c->comm->member, peer, PURPOSE_LINK, channel, c->deadline, &fd));
    rondo_result result = rd_hello_await(c->comm, fd, c->deadline);
    if (result == RONDO_SUCCESS) result = rd_hello_recv(fd, &hello, &offer, c->deadline);
    if (result == RONDO_SUCCESS) result = check_offer(peer, &hello, &spec, &transport);
    if (result != RONDO_SUCCESS) {
        rd_offer_close(&offer);
        close(fd);
        return result;
    }
    if (transport->sockets) {
        spec.sockets[spec.socket_count++] = fd;
        result = more_sockets(c, peer, channel, (int)hello.sockets, false, &spec);
        if (result != RONDO_SUCCESS) {
            rd_offer_close(&offer);
            return result;
        }
    }
    result = transport->accept(&spec, &offer, &wire->link, &answer);
    if (result == RONDO_SUCCESS) result = rd_hello_send(fd, transport, &spec, &answer, c->deadline);
    rd_offer_close(&answer);
    if (!transport->sockets) close(fd);
    if (result == RONDO_SUCCESS && transport->reach == RONDO_REACH_HOST)
        rd_log(RD_LOG_INFO,
               "rank %d <- rank %d: %s, and one host for certain: a page that rank %d made is mapped here, and holds "
               "the random token that it said",
               c->comm->rank, peer, transport->name, peer);
    return result;
}

static rondo_result complete_link(rd_connecting *c, int peer, int channel)
{
    rondo_link *link = wire_out(c->comm, peer, channel)->link;
    int *fd = &c->open[channel * c->comm->size + peer];
    const rondo_transport *transport = rd_transport_named(link->ops->name);
    rd_link_hello hello;
    rondo_offer answer = {0};
    rondo_result result = rd_hello_await(c->comm, *fd, c->deadline);
    if (result == RONDO_SUCCESS) result = rd_hello_recv(*fd, &hello, &answer, c->deadline);
    if (result == RONDO_SUCCESS) result = transport->complete(link, &answer);
    if (!transport->sockets) close(*fd);
    *fd = -1;
    return result;
}

static rondo_result for_links(rd_connecting *c, int neighbour, rondo_result (*round)(rd_connecting *, int, int))
{
    rondo_comm *comm = c->comm;
    for (int away = 1; away < comm->size; away++) {
        int peer = (comm->rank + away) % comm->size;
        for (int channel = 0; channel < links_with(c, peer, neighbour); channel++) RD_TRY(round(c, peer, channel));
    }
    return RONDO_SUCCESS;
}

static void close_unanswered(rd_connecting *c)
{
    for (int i = 0; i < c->comm->size * RD_MAX_CHANNELS; i++) {
        const rondo_link *link = c->comm->out[i].link;
        if (c->open[i] >= 0 && !(link && rd_transport_named(link->ops->name)->sockets)) close(c->open[i]);
    }
}

/* ---- 4: what came of it ---- */

static bool has(const rd_wire *wire, uint32_t caps)
{
    return (wire->link->caps & caps) == caps;
}

static void shorten_slices(rondo_comm *comm)
{
    if (comm->settings.slice_given && comm->rank == 0) /* once for all ranks */
        rd_log(RD_LOG_WARN,
               "slices of %zu bytes were asked for (RONDO_SLICE), but a link of the ring is a socket, over "
               "which %d is the most: using that",
               comm->wiring.slice_bytes, SOCKET_SLICE);
    comm->wiring.slice_bytes = SOCKET_SLICE;
}

/* Says what keeps this rank from the links that flat and exchange need, or that it is another. */
static rondo_result refuse_flat(const rd_connecting *c)
{
    rondo_comm *comm = c->comm;
    const rd_settings *s = &comm->settings;
    const char *algo = s->algo == RD_ALGO_FLAT ? "flat" : "exchange";
    char name[256], why[320] = "one between other ranks is not";
    long most = s->flat_ranks < RD_MAX_FLAT ? s->flat_ranks : RD_MAX_FLAT;
    if (comm->size > most)
        return rd_fail(
            RONDO_INVALID_USAGE,
            "RONDO_ALGO=%s is for at most %ld ranks (RONDO_FLAT_RANKS), and there are %d: raise that, to %d at "
            "most, or unset RONDO_ALGO",
            algo, most, comm->size, RD_MAX_FLAT);
    for (int r = 0; r < comm->size; r++) {
        bool asked = c->cards[r].transport == RD_TRANSPORT_TCP;
        bool lacks = c->flat && r != comm->rank && !has(wire_out(comm, r, 0), RONDO_LINK_SLOTS | RONDO_LINK_RETURN);
        if (!asked && c->unix_ok[r] && !lacks) continue;
        rd_member_peer_name(comm->member, r, name, sizeof name);
        snprintf(why, sizeof why,
                 asked ? "they are over tcp (RONDO_TRANSPORT asks for it)" : "that with %s is over tcp", name);
        break;
    }
    return rd_fail(RONDO_INVALID_USAGE,
                   "RONDO_ALGO=%s needs links of shared memory (shm or loop) between all ranks: %s; unset RONDO_ALGO",
                   algo, why);
}

static rondo_result conclude(rd_connecting *c, rd_table *table)
{
    rondo_comm *comm = c->comm;
    rd_wiring *wiring = &comm->wiring;
    rd_outcome mine = {.flat = c->flat}, *all = calloc((size_t)comm->size, sizeof *all);
    if (!all) return rd_fail_errno("no memory for %d ranks' outcomes", comm->size);
    for (int ch = 0; ch < wiring->channels; ch++) {
        wiring->ring_out[ch] = wire_out(comm, c->next, ch);
        wiring->ring_in[ch] = wire_in(comm, c->previous, ch);
        bool slots = has(wiring->ring_out[ch], RONDO_LINK_SLOTS) && has(wiring->ring_in[ch], RONDO_LINK_SLOTS);
        mine.staged |= !slots;
        if (!slots && !(wiring->scratch[ch] = aligned_alloc(4096, (wiring->slice_bytes + 4095) / 4096 * 4096))) {
            free(all);
            return rd_fail_errno("no memory for %zu bytes of scratch", wiring->slice_bytes);
        }
    }
    for (int peer = 0; c->flat && peer < comm->size; peer++)
        if (peer != comm->rank && !has(wire_out(comm, peer, 0), RONDO_LINK_SLOTS | RONDO_LINK_RETURN)) mine.flat = 0;
    rondo_result result = rd_table_exchange(table, "outcome", &mine, sizeof mine, all, c->deadline);
    if (result != RONDO_SUCCESS) goto out;
    bool flat = true;
    for (int r = 0; r < comm->size; r++) {
        flat = flat && all[r].flat;
        wiring->staged = wiring->staged || all[r].staged;
    }
    if (wiring->staged && wiring->slice_bytes > SOCKET_SLICE) shorten_slices(comm);
    if (flat) {
        wiring->flat_out = comm->out;
        wiring->flat_in = comm->in;
        wiring->flat_bytes = c->flat_bytes;
    } else if (comm->settings.algo == RD_ALGO_FLAT || (comm->settings.algo == RD_ALGO_EXCHANGE && comm->size > 2)) {
        result = refuse_flat(c);
    }
out:
    free(all);
    return result;
}

/* Before a wait yields. More ranks than processors: whoever spins keeps from running the one it waits for. That may
 * run on another processor just now where all meet all, but hardly where each waits for the one before it, and a poll
 * of a socket is a system call. */
static void set_polls(rondo_comm *comm)
{
    bool crowded = comm->crowded;
    long set = comm->settings.spin;
    comm->spin = set >= 0 ? set : crowded ? 2 : 1000;
    comm->ring_spin = set >= 0 ? set : crowded ? 0 : 1000;
}

static void log_ring(const rondo_comm *comm)
{
    char text[1024];
    size_t at = 0;
    if (comm->rank != 0 || !rd_log_wants(RD_LOG_INFO)) return;
    for (int i = 0; i < comm->size && at < sizeof text - 16; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%d -> ", comm->order[i]);
    rd_log(RD_LOG_INFO, "ring: %s%d, %d channel%s, slices of %zu bytes, all-reduce %s", text, comm->order[0],
           comm->wiring.channels, comm->wiring.channels == 1 ? "" : "s", comm->wiring.slice_bytes,
           comm->wiring.flat_out ? "flat" : "ring");
}

static rondo_result make_links(rd_connecting *c, rd_table *table)
{
    rondo_comm *comm = c->comm;
    int position = 0;
    while (comm->order[position] != comm->rank) position++;
    c->next = comm->order[(position + 1) % comm->size];
    c->previous = comm->order[(position + comm->size - 1) % comm->size];
    const rd_settings *s = &comm->settings;
    c->flat = s->algo != RD_ALGO_RING && comm->size <= s->flat_ranks && comm->size <= RD_MAX_FLAT;
    for (int r = 0; r < comm->size; r++) {
        c->unix_ok[r] = rd_cards_may_share_host(&c->cards[r], &c->cards[comm->rank]);
        comm->links.reach[r] =
            (unsigned char)(rd_cards_share_process(&c->cards[r], &c->cards[comm->rank]) ? RONDO_REACH_PROCESS
                            : c->unix_ok[r]                                             ? RONDO_REACH_HOST
                                                                                        : RONDO_REACH_NETWORK);
        c->flat = c->flat && c->unix_ok[r] && c->cards[r].transport != RD_TRANSPORT_TCP;
    }
    long each = HOST_BYTES / FLAT_SLOTS / (comm->size - 1) / 4096 * 4096;
    c->flat_bytes = each < FLAT_LEAST ? FLAT_LEAST : (size_t)each;
    if (c->flat_bytes > comm->wiring.slice_bytes) c->flat_bytes = comm->wiring.slice_bytes;
    /* First the control plane, so that a death while links are made is noticed at once. */
    RD_TRY(rd_member_start_control(comm->member, c->unix_ok, c->deadline));
    RD_TRY(for_links(c, c->next, offer_link));
    RD_TRY(for_links(c, c->previous, accept_link));
    RD_TRY(for_links(c, c->next, complete_link));
    return conclude(c, table);
}

rondo_result rd_comm_connect(rondo_comm *comm, rd_table *table, const rd_contact *contact, int64_t deadline)
{
    size_t n = (size_t)comm->size;
    rd_connecting c = {.comm = comm, .deadline = deadline};
    rd_contact *contacts = calloc(n, sizeof *contacts);
    rondo_result result = RONDO_SUCCESS;
    c.cards = calloc(n, sizeof *c.cards);
    c.open = malloc(n * RD_MAX_CHANNELS * sizeof *c.open);
    c.unix_ok = calloc(n, sizeof *c.unix_ok);
    if (!contacts || !c.cards || !c.open || !c.unix_ok) {
        result = rd_fail_errno("no memory for %d ranks' cards", comm->size);
        goto out;
    }
    memset(c.open, -1, n * RD_MAX_CHANNELS * sizeof *c.open);
    if ((result = rd_cards_exchange(comm, table, contact, c.cards, deadline)) != RONDO_SUCCESS) goto out;
    for (size_t r = 0; r < n; r++) contacts[r] = c.cards[r].contact;
    if ((result = rd_member_set_contacts(comm->member, contacts)) != RONDO_SUCCESS) goto out;
    if ((result = rd_cards_agree(comm, c.cards)) != RONDO_SUCCESS) goto out;
    if ((result = rd_cards_order_ring(comm, c.cards)) != RONDO_SUCCESS) goto out;
    if (comm->size > 1) result = make_links(&c, table);
    close_unanswered(&c);
    set_polls(comm);
    if (result == RONDO_SUCCESS) log_ring(comm);
out:
    free(c.unix_ok);
    free(c.open);
    free(c.cards);
    free(contacts);
    return result;
}

void rd_comm_disconnect(rondo_comm *comm)
{
    for (int i = 0; i < comm->size * RD_MAX_CHANNELS; i++) {
        if (comm->out && comm->out[i].link) comm->out[i].link->ops->close(comm->out[i].link);
        if (comm->in && comm->in[i].link) comm->in[i].link->ops->close(comm->in[i].link);
    }
    for (int ch = 0; ch < RD_MAX_CHANNELS; ch++) free(comm->wiring.scratch[ch]);
}
