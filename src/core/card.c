/* SPDX-License-Identifier: Apache-2.0 */
#include "core/card.h"

#include "base/gpu.h"
#include "base/log.h"
#include "core/pool.h"
#include "core/reach.h"
#include "transport/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* rd_place has nine numbers, all of them 32 bits wide. */
#define PLACE_WORDS (sizeof(rd_place) / sizeof(int32_t))
#define LACK_BYTES  320 /* the words for what a rank lacks */
#define CARD_BYTES  (10 * 4 + 8 + sizeof(rd_place) + RD_INTERFACES + RD_CONTACT_BYTES + 16)

/* ---- The bytes ---- */

static void pack(const rd_card *card, unsigned char bytes[CARD_BYTES])
{
    rd_writer w = {.at = bytes, .left = CARD_BYTES};
    const uint32_t words[] = {card->wire_version, card->channels, card->sockets,   card->transport,
                              card->algo,         card->numerics, card->flat_ranks, card->lacking,
                              card->on_gpu,       card->gpu_links};
    int32_t place[PLACE_WORDS];
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) rd_write_u32(&w, words[i]);
    rd_write_u64(&w, card->slice_bytes);
    memcpy(place, &card->place, sizeof place);
    for (size_t i = 0; i < PLACE_WORDS; i++) rd_write_u32(&w, (uint32_t)place[i]);
    rd_write_bytes(&w, card->near, RD_INTERFACES);
    rd_contact_pack(&card->contact, rd_write_room(&w, RD_CONTACT_BYTES));
    rd_write_bytes(&w, card->gpu, sizeof card->gpu);
}

static rondo_result unpack(rd_card *card, const unsigned char bytes[CARD_BYTES])
{
    rd_reader r = {.at = bytes, .left = CARD_BYTES};
    uint32_t *const words[] = {&card->wire_version, &card->channels, &card->sockets,   &card->transport,
                               &card->algo,         &card->numerics, &card->flat_ranks, &card->lacking,
                               &card->on_gpu,       &card->gpu_links};
    int32_t place[PLACE_WORDS] = {0};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) *words[i] = rd_read_u32(&r);
    card->slice_bytes = rd_read_u64(&r);
    for (size_t i = 0; i < PLACE_WORDS; i++) place[i] = (int32_t)rd_read_u32(&r);
    memcpy(&card->place, place, sizeof place);
    rd_read_bytes(&r, card->near, RD_INTERFACES);
    for (int i = 0; i < RD_INTERFACES; i++)
        if (card->near[i] >= RD_LINK_KINDS) card->near[i] = RD_LINK_HOST;
    RD_TRY(rd_contact_unpack(&card->contact, rd_read_room(&r, RD_CONTACT_BYTES)));
    rd_read_bytes(&r, card->gpu, sizeof card->gpu);
    return RONDO_SUCCESS;
}

static rondo_result make(const rondo_comm *comm, const rd_contact *contact, rd_card *card, char why[LACK_BYTES])
{
    const rd_settings *s = &comm->settings;
    *card = (rd_card){.wire_version = RD_LINK_VERSION,
                      .channels = (uint32_t)s->channels,
                      .sockets = (uint32_t)s->sockets,
                      .transport = (uint32_t)s->transport,
                      .algo = (uint32_t)s->algo,
                      .numerics = (uint32_t)s->numerics,
                      .flat_ranks = (uint32_t)s->flat_ranks,
                      .on_gpu = s->device >= 0,
                      .gpu_links = rd_pool_places(s),
                      .slice_bytes = (uint64_t)s->slice_bytes,
                      .contact = *contact};
    card->lacking = rd_transports_lacking(rd_forced_transport(comm), why, LACK_BYTES);
    struct rd_gpu_info info; /* a GPU that is not what it should be is said when it is opened */
    if (s->device >= 0 && rd_gpu_describe((int)s->device, &info) == RONDO_SUCCESS)
        memcpy(card->gpu, info.uuid, sizeof card->gpu);
    RD_TRY(rd_place_here(&card->place));
    for (int i = 0; i < contact->interfaces; i++)
        card->near[i] = (unsigned char)rd_place_interface(&card->place, contact->interface[i].name);
    return RONDO_SUCCESS;
}

/* A rank that lacks the transport that it is to use starts nowhere, and says why. All see from the cards that there is one, and
 * only then ask one another for the words. */
static rondo_result check_lacking(const rondo_comm *comm, rd_table *table, const rd_card *cards, const char *why,
                                  int64_t deadline)
{
    int first = 0;
    while (first < comm->size && !(cards[first].transport == RD_TRANSPORT_VERBS && cards[first].lacking & RD_LACKS_VERBS))
        first++;
    if (first == comm->size) return RONDO_SUCCESS;
    char *all = malloc((size_t)comm->size * LACK_BYTES);
    if (!all) return rd_fail_errno("no memory for what %d ranks say", comm->size);
    rondo_result result = rd_table_exchange(table, "lacking", why, LACK_BYTES, all, deadline);
    all[(size_t)(first + 1) * LACK_BYTES - 1] = '\0';
    if (result == RONDO_SUCCESS && *why)
        result = rd_fail(RONDO_SYSTEM_ERROR, "%s", why);
    else if (result == RONDO_SUCCESS)
        result = rd_fail(RONDO_SYSTEM_ERROR, "rank %d cannot use verbs, which was asked for (RONDO_TRANSPORT): %s", first,
                         all + (size_t)first * LACK_BYTES);
    free(all);
    return result;
}

rondo_result rd_cards_exchange(rondo_comm *comm, rd_table *table, const rd_contact *contact, rd_card *cards,
                               int64_t deadline)
{
    rd_card mine;
    char why[LACK_BYTES] = "";
    unsigned char bytes[CARD_BYTES];
    RD_TRY(make(comm, contact, &mine, why));
    pack(&mine, bytes);
    unsigned char *all = malloc((size_t)comm->size * CARD_BYTES);
    if (!all) return rd_fail_errno("no memory for %d ranks' cards", comm->size);
    rondo_result result = rd_table_exchange(table, "card", bytes, CARD_BYTES, all, deadline);
    for (int r = 0; r < comm->size && result == RONDO_SUCCESS; r++)
        result = unpack(&cards[r], all + (size_t)r * CARD_BYTES);
    free(all);
    return result == RONDO_SUCCESS ? check_lacking(comm, table, cards, why, deadline) : result;
}

/* ---- What follows from them ---- */

static rondo_result differ(const char *what, int rank, long theirs, long mine, int me)
{
    return rd_fail(RONDO_INVALID_USAGE,
                   "the ranks' settings differ: %s is %ld on rank %d and %ld on rank %d; it must be the "
                   "same on all",
                   what, theirs, rank, mine, me);
}

/* What comes from elsewhere is within bounds, or is no card. */
static rondo_result check_range(int rank, const rd_card *card)
{
    if (card->channels <= RD_MAX_CHANNELS && card->sockets <= 8 && card->slice_bytes >= 4096 &&
        card->slice_bytes <= 262144 && card->slice_bytes % 64 == 0)
        return RONDO_SUCCESS;
    return rd_fail(RONDO_REMOTE_ERROR,
                   "rank %d asks for %u channels, %u sockets and slices of %llu bytes, which are 0 to %d, "
                   "0 to 8, and 4096 to 262144 in multiples of 64",
                   rank, card->channels, card->sockets, (unsigned long long)card->slice_bytes, RD_MAX_CHANNELS);
}

rondo_result rd_cards_agree(rondo_comm *comm, const rd_card *cards)
{
    const rd_card *mine = &cards[comm->rank];
    rd_card least = *mine;
    for (int r = 0; r < comm->size; r++) {
        const rd_card *card = &cards[r];
        if (card->wire_version != mine->wire_version)
            return differ("the wire version (two builds of the library)", r, (long)card->wire_version,
                          (long)mine->wire_version, comm->rank);
        if (card->algo != mine->algo)
            return differ("RONDO_ALGO (0 auto, 1 ring, 2 flat, 3 exchange, 4 hier)", r, (long)card->algo, (long)mine->algo,
                          comm->rank);
        if (card->numerics != mine->numerics)
            return differ("RONDO_NUMERICS (0 auto, 1 accurate, 2 fast, 3 strict)", r, (long)card->numerics,
                          (long)mine->numerics, comm->rank);
        RD_TRY(check_range(r, card));
        if (card->slice_bytes < least.slice_bytes) least.slice_bytes = card->slice_bytes;
        /* 0: no wish of its own */
        if (card->channels && (!least.channels || card->channels < least.channels)) least.channels = card->channels;
        if (card->sockets < least.sockets) least.sockets = card->sockets;
        if (card->flat_ranks < least.flat_ranks) least.flat_ranks = card->flat_ranks;
    }
    comm->wiring.slice_bytes = least.slice_bytes;
    comm->wiring.channels = (int)least.channels;
    comm->settings.sockets = (long)least.sockets;
    comm->settings.flat_ranks = (long)least.flat_ranks;
    return RONDO_SUCCESS;
}

bool rd_cards_may_share_host(const rd_card *a, const rd_card *b)
{
    return memcmp(a->contact.host, b->contact.host, sizeof a->contact.host) == 0;
}

bool rd_cards_share_process(const rd_card *a, const rd_card *b)
{
    return memcmp(a->contact.process, b->contact.process, sizeof a->contact.process) == 0;
}

/* Why the ring is as it is: what its hops are, and the one that all others wait for. */
static void log_rings(const rondo_comm *comm, const rd_rings *rings)
{
    const rd_hop *slowest = rd_rings_slowest(rings, 0);
    int kinds[RD_LINK_KINDS] = {0};
    char text[256] = "";
    if (comm->rank != 0 || !slowest || !rd_log_wants(RD_LOG_INFO)) return;
    for (int i = 0; i < rings->ranks; i++) kinds[rings->hops[i].link.kind]++;
    for (uint32_t k = 0; k < RD_LINK_KINDS; k++)
        if (kinds[k])
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d by %s", *text ? ", " : "", kinds[k], rd_link_name(k));
    rd_log(RD_LOG_INFO, "hops of the ring: %s; the slowest, rank %d -> rank %d, by %s: %u ns, %u MB/s by the table of "
           "rondo topo", text, slowest->from, slowest->to, rd_link_name(slowest->link.kind), slowest->link.ns,
           slowest->link.mbs);
}

/* Of the first ring's hops inside hosts, or between them. */
static rd_link slowest(const rd_rings *rings, const rd_card *cards, bool inside)
{
    rd_link worst = rd_link_of(inside ? RD_LINK_CORE : RD_LINK_SELF);
    for (int i = 0; i < rings->ranks; i++) {
        const rd_hop *hop = &rings->hops[i];
        if (rd_cards_may_share_host(&cards[hop->from], &cards[hop->to]) != inside) continue;
        if (hop->link.mbs < worst.mbs) worst = hop->link;
    }
    return worst;
}

/* The rings as this rank sees them. */
static void take_rings(rondo_comm *comm, const rd_card *cards, const rd_around *around, const rd_rings *rings,
                       rd_neighbours *near)
{
    int n = comm->size;
    const rd_hop *last = rd_rings_slowest(rings, 0);
    comm->wiring.channels = rings->channels;
    if (last) comm->slowest = last->link;
    near->inside = slowest(rings, cards, true);
    near->outside = slowest(rings, cards, false);
    near->outside.mbs *= (uint32_t)rings->channels;
    for (int ch = 0; ch < rings->channels; ch++) {
        for (int i = 0; i < n; i++) {
            const rd_hop *hop = &rings->hops[ch * n + i];
            comm->order[ch * n + i] = hop->from;
            bool known = around && hop->nic >= 0, by_rail = known && comm->links.on_rails;
            if (hop->to == comm->rank) {
                near->previous[ch] = hop->from;
                near->rail_in[ch] = by_rail ? hop->nic_there : comm->links.rail[hop->from];
            }
            if (hop->from != comm->rank) continue;
            near->next[ch] = hop->to;
            near->rail_out[ch] = by_rail ? hop->nic : comm->links.rail[hop->to];
            near->network[ch] =
                rd_cards_network(&cards[hop->from], known ? &around[hop->from].nic[hop->nic] : NULL, &cards[hop->to],
                                 known ? &around[hop->to].nic[hop->nic_there] : NULL, ch);
        }
        comm->one_order =
            comm->one_order && memcmp(comm->order, comm->order + ch * n, (size_t)n * sizeof *comm->order) == 0;
    }
}

static bool any_on_gpu(const rd_card *cards, int n)
{
    for (int r = 0; r < n; r++)
        if (cards[r].on_gpu) return true;
    return false;
}

rondo_result rd_cards_order_rings(rondo_comm *comm, rd_table *table, rd_card *cards, rd_neighbours *near,
                                  int64_t deadline)
{
    int n = comm->size;
    bool gpus = n > 1 && any_on_gpu(cards, n);
    rondo_result result = RONDO_SUCCESS;
    rd_place *places = calloc((size_t)n, sizeof *places);
    rd_around *around = NULL;
    rd_rings rings = {0};
    bool one_host = true;
    if (!places) return rd_fail_errno("no memory for the places of %d ranks", n);
    for (int r = 0; r < n; r++) {
        places[r] = cards[r].place;
        for (places[r].host = 0; !rd_cards_may_share_host(&cards[places[r].host], &cards[r]);) places[r].host++;
        one_host = one_host && places[r].host == 0;
    }
    if (!one_host || gpus) result = rd_cards_around(cards, places, n, &around);
    if (result == RONDO_SUCCESS && gpus) result = rd_cards_ways(comm, table, cards, around, deadline);
    if (result == RONDO_SUCCESS) result = rd_cards_rails(comm, table, cards, places, one_host ? NULL : around, deadline);
    rd_told told = {.ranks = n, .places = places, .around = around, .by_rank = comm->strict};
    if (result == RONDO_SUCCESS) result = rd_rings_make(&rings, &told, comm->wiring.channels);
    if (result == RONDO_SUCCESS) {
        take_rings(comm, cards, around, &rings, near);
        log_rings(comm, &rings);
        comm->crowded = rd_crowded(places, n, places[comm->rank].host);
        rd_rings_free(&rings);
    }
    free(around);
    free(places);
    return result;
}
