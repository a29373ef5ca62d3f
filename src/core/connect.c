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
#include "core/device.h"
#include "core/hierarchy.h"
#include "core/pool.h"

#include "base/log.h"
#include "base/sock.h"
#include "boot/wire.h"
#include "reduce/device.h"
#include "transport/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RING_SLOTS   4          /* of a link with a neighbour; more than RD_BLOCK */
#define FLAT_SLOTS   2          /* of the other links: one slice is collected while the next is reduced */
#define HOST_BYTES   (2l << 20) /* what the slots of one rank's flat links may take together, about; */
#define TURNS_BYTES  (1l << 20) /* ... where ranks take turns on processors, and on their caches */
#define TURNS_ALL    (8l << 20) /* ... and those of all ranks together, then: they pass through one last cache */
#define FLAT_LEAST 16384    /* smaller slots cost more than they save */

/* What came of making links: numbers of 32 bits on the wire. */
typedef struct rd_outcome {
    uint32_t flat;          /* every link that flat needs is there */
    uint32_t staged;        /* some link of the ring has no slots */
    uint32_t hier[RD_OPEN]; /* ... of each stage of hierarchical operations */
    uint32_t kernel;        /* rd_wiring has it */
} rd_outcome;

typedef struct rd_connecting {
    rondo_comm *comm;
    rd_card *cards;
    int64_t deadline;
    rd_neighbours near;
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

static rd_edge ring_edge(const rd_connecting *c, int peer, int channel, int rail, rd_wire *wire)
{
    return (rd_edge){.peer = peer,
                     .index = channel,
                     .network = c->near.network[channel],
                     .rail = rail,
                     .slots = RING_SLOTS,
                     .slot_bytes = c->comm->wiring.slice_bytes,
                     .wire = wire};
}

/* With a neighbour on the first ring, flat shares the ring's link. */
static rd_edge flat_edge(const rd_connecting *c, int peer, rd_wire *wire)
{
    return (rd_edge){.peer = peer, .rail = -1, .slots = FLAT_SLOTS, .slot_bytes = c->flat_bytes, .wire = wire};
}

static rondo_result make_edges(rd_connecting *c)
{
    rondo_comm *comm = c->comm;
    size_t most = (size_t)comm->size + RD_MAX_CHANNELS + RD_HIERARCHY_EDGES;
    rd_edges edges = {.comm = comm, .cards = c->cards, .deadline = c->deadline};
    edges.out = calloc(2 * most, sizeof *edges.out);
    if (!edges.out) return rd_fail_errno("no memory for the links of %d ranks", comm->size);
    edges.in = edges.out + most;
    for (int ch = 0; ch < comm->wiring.channels; ch++) {
        int next = c->near.next[ch], previous = c->near.previous[ch];
        edges.out[edges.outs++] = ring_edge(c, next, ch, c->near.rail_out[ch], wire_out(comm, next, ch));
        edges.in[edges.ins++] = ring_edge(c, previous, ch, c->near.rail_in[ch], wire_in(comm, previous, ch));
    }
    for (int away = 1; c->flat && away < comm->size; away++) {
        int peer = (comm->rank + away) % comm->size;
        if (peer != c->near.next[0]) edges.out[edges.outs++] = flat_edge(c, peer, wire_out(comm, peer, 0));
        if (peer != c->near.previous[0]) edges.in[edges.ins++] = flat_edge(c, peer, wire_in(comm, peer, 0));
    }
    int of_hierarchy = rd_hierarchy_edges(comm, edges.out + edges.outs, edges.in + edges.ins);
    edges.outs += of_hierarchy;
    edges.ins += of_hierarchy;
    rondo_result result = rd_edges_make(&edges);
    if (result == RONDO_SUCCESS) result = rd_pool_open(&edges);
    free(edges.out);
    return result;
}

/* ---- 4: what came of it ---- */

static bool has(const rd_wire *wire, uint32_t caps)
{
    return (wire->link->caps & caps) == caps;
}

/* What was asked for is for ranks of several hosts. */
static bool is_remote(uint32_t transport)
{
    return transport == RD_TRANSPORT_TCP || transport == RD_TRANSPORT_VERBS;
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
        if (c->cards[r].on_gpu) {
            snprintf(why, sizeof why, "rank %d uses a GPU", r);
            break;
        }
        bool asked = is_remote(c->cards[r].transport);
        bool lacks = c->flat && r != comm->rank && !has(wire_out(comm, r, 0), RONDO_LINK_SLOTS | RONDO_LINK_RETURN);
        if (!asked && comm->links.reach[r] != RONDO_REACH_NETWORK && !lacks) continue;
        rd_member_peer_name(comm->member, r, name, sizeof name);
        snprintf(why, sizeof why,
                 asked ? "they are over %s (RONDO_TRANSPORT asks for it)" : "that with %s is over the network",
                 !asked                                          ? name
                 : c->cards[r].transport == RD_TRANSPORT_VERBS ? "verbs"
                                                                 : "tcp");
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
        wiring->ring_out[ch] = wire_out(comm, c->near.next[ch], ch);
        wiring->ring_in[ch] = wire_in(comm, c->near.previous[ch], ch);
        bool slots = has(wiring->ring_out[ch], RONDO_LINK_SLOTS) && has(wiring->ring_in[ch], RONDO_LINK_SLOTS);
        mine.staged |= !slots;
        if (!slots && !(wiring->scratch[ch] = aligned_alloc(4096, (wiring->slice_bytes + 4095) / 4096 * 4096))) {
            free(all);
            return rd_fail_errno("no memory for %zu bytes of scratch", wiring->slice_bytes);
        }
    }
    for (int peer = 0; c->flat && peer < comm->size; peer++)
        if (peer != comm->rank && !has(wire_out(comm, peer, 0), RONDO_LINK_SLOTS | RONDO_LINK_RETURN)) mine.flat = 0;
    for (int s = 0; s < RD_OPEN; s++) mine.hier[s] = rd_hierarchy_staged(comm, s);
    rd_kernel_wire(wiring, comm->device && !comm->trace ? rd_device_engine(comm->device) : NULL, comm->size);
    mine.kernel = wiring->kernel;
    rondo_result result = rd_table_exchange(table, "outcome", &mine, sizeof mine, all, c->deadline);
    if (result != RONDO_SUCCESS) goto out;
    bool flat = true, hier[RD_OPEN] = {false};
    for (int r = 0; r < comm->size; r++) {
        for (int s = 0; s < RD_OPEN; s++) hier[s] = hier[s] || all[r].hier[s];
        flat = flat && all[r].flat;
        wiring->staged = wiring->staged || all[r].staged;
        wiring->kernels &= all[r].kernel;
    }
    if (flat) {
        wiring->flat_out = comm->out;
        wiring->flat_in = comm->in;
        wiring->flat_bytes = c->flat_bytes;
    } else if (comm->settings.algo == RD_ALGO_FLAT || (comm->settings.algo == RD_ALGO_EXCHANGE && comm->size > 2)) {
        result = refuse_flat(c);
    }
    if (result == RONDO_SUCCESS) result = rd_hierarchy_wire(comm, hier);
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
    const rd_hierarchy *h = comm->hierarchy;
    if (comm->rank != 0 || !rd_log_wants(RD_LOG_INFO)) return;
    for (int i = 0; i < comm->size && at < sizeof text - 16; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%d -> ", comm->order[i]);
    rd_log(RD_LOG_INFO, "ring: %s%d, %d channel%s, slices of %zu bytes, all-reduce %s", text, comm->order[0],
           comm->wiring.channels, comm->wiring.channels == 1 ? "" : "s", comm->wiring.slice_bytes,
           comm->wiring.flat_out ? "flat" : h && h->most == SIZE_MAX ? "hier" : "ring");
    if (h && h->most == SIZE_MAX)
        rd_log(RD_LOG_INFO, "hierarchical all-reduces: %d hosts of %d ranks, at any size", h->hosts, h->local);
    else if (h)
        rd_log(RD_LOG_INFO, "hierarchical all-reduces: %d hosts of %d ranks, up to %zu bytes", h->hosts, h->local, h->most);
}

static rondo_result start_control(rd_connecting *c)
{
    rondo_comm *comm = c->comm;
    bool *over_unix = calloc((size_t)comm->size, sizeof *over_unix);
    if (!over_unix) return rd_fail_errno("no memory for %d ranks' connections", comm->size);
    for (int r = 0; r < comm->size; r++) over_unix[r] = comm->links.reach[r] != RONDO_REACH_NETWORK;
    rondo_result result = rd_member_start_control(comm->member, over_unix, c->deadline);
    free(over_unix);
    return result;
}

static rondo_result make_links(rd_connecting *c, rd_table *table)
{
    rondo_comm *comm = c->comm;
    const rd_settings *s = &comm->settings;
    const rd_card *mine = &c->cards[comm->rank];
    c->flat = s->algo != RD_ALGO_RING && comm->size <= s->flat_ranks && comm->size <= RD_MAX_FLAT;
    for (int r = 0; r < comm->size; r++) {
        bool near = rd_cards_may_share_host(&c->cards[r], mine);
        comm->links.reach[r] = (unsigned char)(rd_cards_share_process(&c->cards[r], mine) ? RONDO_REACH_PROCESS
                                               : near                                     ? RONDO_REACH_HOST
                                                                                          : RONDO_REACH_NETWORK);
        comm->links.lacking[r] = mine->lacking | c->cards[r].lacking;
        comm->on_gpus = comm->on_gpus || c->cards[r].on_gpu;
        c->flat = c->flat && near && !is_remote(c->cards[r].transport) && !c->cards[r].on_gpu;
    }
    long turns = TURNS_ALL / comm->size < TURNS_BYTES ? TURNS_ALL / comm->size : TURNS_BYTES;
    long each = (comm->crowded ? turns : HOST_BYTES) / FLAT_SLOTS / (comm->size - 1) / 4096 * 4096;
    c->flat_bytes = each < FLAT_LEAST ? FLAT_LEAST : (size_t)each;
    if (c->flat_bytes > comm->wiring.slice_bytes) c->flat_bytes = comm->wiring.slice_bytes;
    /* First the control plane, so that a death while links are made is noticed at once. */
    RD_TRY(start_control(c));
    comm->fast = s->numerics == RD_NUMERICS_FAST || (s->numerics == RD_NUMERICS_AUTO && comm->on_gpus);
    RD_TRY(rd_comm_open_device(comm)); /* if that fails, the others can be told */
    RD_TRY(make_edges(c));
    return conclude(c, table);
}

rondo_result rd_comm_connect(rondo_comm *comm, rd_table *table, const rd_contact *contact, int64_t deadline)
{
    size_t n = (size_t)comm->size;
    rd_connecting c = {.comm = comm, .deadline = deadline};
    rd_contact *contacts = calloc(n, sizeof *contacts);
    rondo_result result = RONDO_SUCCESS;
    comm->strict = comm->settings.numerics == RD_NUMERICS_STRICT && n > 2; /* of two terms either comes first */
    c.cards = calloc(n, sizeof *c.cards);
    if (!contacts || !c.cards) {
        result = rd_fail_errno("no memory for %d ranks' cards", comm->size);
        goto out;
    }
    if ((result = rd_cards_exchange(comm, table, contact, c.cards, deadline)) != RONDO_SUCCESS) goto out;
    for (size_t r = 0; r < n; r++) contacts[r] = c.cards[r].contact;
    if ((result = rd_member_set_contacts(comm->member, contacts)) != RONDO_SUCCESS) goto out;
    if ((result = rd_cards_agree(comm, c.cards)) != RONDO_SUCCESS) goto out;
    if ((result = rd_cards_order_rings(comm, table, c.cards, &c.near, deadline)) != RONDO_SUCCESS) goto out;
    if ((result = rd_hierarchy_open(comm, c.cards, &c.near)) != RONDO_SUCCESS) goto out;
    result = comm->size > 1 ? make_links(&c, table) : rd_comm_open_device(comm);
    set_polls(comm);
    if (result == RONDO_SUCCESS) log_ring(comm);
out:
    free(c.cards);
    free(contacts);
    return result;
}

void rd_comm_disconnect(rondo_comm *comm)
{
    for (int i = 0; i < comm->size * RD_MAX_CHANNELS; i++) {
        if (comm->out) rd_comm_close_link(comm, comm->out[i].link);
        if (comm->in) rd_comm_close_link(comm, comm->in[i].link);
    }
    for (int ch = 0; ch < RD_MAX_CHANNELS; ch++) free(comm->wiring.scratch[ch]);
}
