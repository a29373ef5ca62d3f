/* SPDX-License-Identifier: Apache-2.0
 *
 * rings.c - the rings, from what all ranks have told. Every rank computes them for itself, and finds the same.
 *
 * Hosts come first, each once in a ring, so that as many links cross the network as there are hosts. They are in the
 * order of their first rank, unless they reach each other at different speeds; then that is a round trip of its own. A
 * ring enters a host by one card and leaves it by another (nics.c), or the same. Inside, it takes the cheapest way
 * through all ranks from the one nearest the inbound card to the one nearest the outbound one; with one host, the
 * cheapest round trip. Only the costs within a host are ever looked at together: 1,024 ranks on 64 hosts need 64 x 16 x
 * 16 of them.
 *
 * A further ring takes other links where there are any. Links that two GPUs have to themselves (NVLink) cost as many
 * times more as rings use them already, in this direction; so the next ring goes elsewhere, or the other way round.
 * Caches, switches and PCIe are shared by all pairs, and another order would not relieve them. Rings share a message
 * evenly, so k of them carry k times what the most divided link leaves to each: on direct links there are as many rings
 * as make the most of that, between hosts as many as there are fast cards.
 *
 * Where the rings shall go by rank, hosts and ways through them are taken as they come; cards are chosen all the same.
 */
#include "base/status.h"
#include "topo/nics.h"
#include "topo/ring.h"

#include <stdlib.h>
#include <string.h>

typedef struct host {
    int32_t *ranks; /* in ascending order */
    int count;
    const rd_around *around; /* its first rank's; NULL */
    rd_nic_use use;
    unsigned char *users; /* rings on the direct link from its a-th rank to its b-th: [a * count + b]; NULL: none are */
} host;

/* The last matrix that an order was found for: hosts are mostly alike. */
typedef struct solved {
    uint32_t *cost, *ends;
    int32_t *order;
    int count; /* 0: none yet */
} solved;

typedef struct maker {
    const rd_told *told;
    const rd_place *places; /* told's, as are the next two */
    const rd_around *around;
    int ranks, hosts;
    host *host;        /* by first rank */
    int32_t *ranks_of; /* what host[].ranks points into */
    int32_t *round;    /* hosts, in the order in which the rings visit them */
    int32_t *out, *in; /* of the host at each position: cards of this ring */
    solved last;
} maker;

rd_link rd_told_link(const rd_told *told, int a, int b)
{
    const rd_place *here = &told->places[a], *there = &told->places[b];
    if (told->links && here->host == there->host) return told->links[(size_t)a * (size_t)told->ranks + (size_t)b];
    if (!told->around || here->host != there->host) return rd_place_link(here, there);
    const rd_around *teller = &told->around[a];
    uint32_t bus = told->around[b].gpu;
    if (bus == RD_NO_GPU) { /* who has no GPU knows the way to the other's */
        bus = teller->gpu;
        teller = &told->around[b];
    }
    if (bus == RD_NO_GPU) return rd_place_link(here, there);
    for (int i = 0; i < teller->gpus; i++)
        if (teller->to_gpu[i].bus == bus) return teller->to_gpu[i].link;
    return rd_link_of(RD_LINK_PCI_HOST);
}

static const rd_around *around_of(const maker *m, int rank)
{
    return m->around ? &m->around[rank] : NULL;
}

/* ---- Hosts ---- */

static int by_host(const void *a, const void *b)
{
    const int32_t *x = a, *y = b; /* host, rank */
    if (x[0] != y[0]) return x[0] < y[0] ? -1 : 1;
    return x[1] < y[1] ? -1 : 1;
}

static int by_first_rank(const void *a, const void *b)
{
    const host *x = a, *y = b;
    return x->ranks[0] < y->ranks[0] ? -1 : 1;
}

static rondo_result find_hosts(maker *m)
{
    int32_t(*pairs)[2] = calloc((size_t)m->ranks, sizeof *pairs);
    m->ranks_of = calloc((size_t)m->ranks, sizeof *m->ranks_of);
    m->host = calloc((size_t)m->ranks, sizeof *m->host);
    if (!pairs || !m->ranks_of || !m->host) {
        free(pairs);
        return rd_fail(RONDO_SYSTEM_ERROR, "no memory for a ring of %d ranks", m->ranks);
    }
    for (int r = 0; r < m->ranks; r++) {
        pairs[r][0] = m->places[r].host;
        pairs[r][1] = r;
    }
    qsort(pairs, (size_t)m->ranks, sizeof *pairs, by_host);
    for (int i = 0; i < m->ranks; i++) {
        m->ranks_of[i] = pairs[i][1];
        if (i == 0 || pairs[i][0] != pairs[i - 1][0]) m->host[m->hosts++].ranks = &m->ranks_of[i];
        m->host[m->hosts - 1].count++;
    }
    free(pairs);
    qsort(m->host, (size_t)m->hosts, sizeof *m->host, by_first_rank);
    for (int h = 0; h < m->hosts; h++) {
        host *one = &m->host[h];
        one->around = around_of(m, one->ranks[0]);
        for (int i = 0; i < one->count && m->around; i++) rd_nics_count_rank(&one->use, around_of(m, one->ranks[i]));
    }
    return RONDO_SUCCESS;
}

static rondo_result order_hosts(maker *m)
{
    size_t n = (size_t)m->hosts;
    m->round = calloc(n, sizeof *m->round);
    m->out = calloc(n, sizeof *m->out);
    m->in = calloc(n, sizeof *m->in);
    if (!m->round || !m->out || !m->in)
        return rd_fail(RONDO_SYSTEM_ERROR, "no memory for a ring of %d hosts", m->hosts);
    for (int h = 0; h < m->hosts; h++) m->round[h] = h;
    if (!m->around || m->hosts < 4 || m->told->by_rank) return RONDO_SUCCESS; /* up to three there is but one ring */
    uint32_t *cost = calloc(n * n, sizeof *cost);
    if (!cost) return rd_fail(RONDO_SYSTEM_ERROR, "no memory for the ways between %d hosts", m->hosts);
    for (size_t a = 0; a < n; a++)
        for (size_t b = 0; b < n; b++)
            if (a != b) cost[a * n + b] = rd_nics_cost(m->host[a].around, m->host[b].around);
    rondo_result result = rd_ring_order(cost, m->hosts, m->round);
    free(cost);
    return result;
}

/* The cards of one ring. Position 0's inbound card is known last. */
static void choose_nics(maker *m)
{
    int n = m->hosts;
    for (int i = 0; i < n; i++) m->out[i] = m->in[i] = -1;
    for (int i = 0; i < n && m->around && n > 1; i++) {
        host *here = &m->host[m->round[i]], *there = &m->host[m->round[(i + 1) % n]];
        rd_nics_choose(here->around, &here->use, there->around, &there->use, m->in[i], &m->out[i], &m->in[(i + 1) % n]);
    }
}

/* ---- The way through a host ---- */

static bool is_direct(rd_link link)
{
    return link.kind == RD_LINK_NVLINK;
}

/* Rings on the direct link from the a-th to the b-th rank of a host. */
static int users_of(const host *h, int a, int b)
{
    return h->users ? h->users[a * h->count + b] : 0;
}

static void fill(const maker *m, const host *h, int in, int out, uint32_t *cost, uint32_t *ends)
{
    for (int a = 0; a < h->count; a++) {
        const rd_around *around = around_of(m, h->ranks[a]);
        ends[a] = in >= 0 && in < around->nics ? rd_link_cost(around->nic[in].link, 1) : 0;
        ends[h->count + a] = out >= 0 && out < around->nics ? rd_link_cost(around->nic[out].link, 1) : 0;
        for (int b = 0; b < h->count; b++)
            cost[a * h->count + b] =
                a == b ? 0 : rd_link_cost(rd_told_link(m->told, h->ranks[a], h->ranks[b]), users_of(h, a, b) + 1);
    }
}

static bool is_solved(const solved *s, int count, const uint32_t *cost, const uint32_t *ends)
{
    size_t n = (size_t)count;
    return s->count == count && memcmp(s->cost, cost, n * n * sizeof *cost) == 0 &&
           memcmp(s->ends, ends, 2 * n * sizeof *ends) == 0;
}

static void forget(solved *s)
{
    free(s->cost);
    free(s->ends);
    free(s->order);
    *s = (solved){0};
}

/* m->last.order: as positions in host->ranks. */
static rondo_result way_through(maker *m, const host *h, int in, int out)
{
    size_t n = (size_t)h->count;
    solved now = {.cost = calloc(n * n, sizeof *now.cost),
                  .ends = calloc(2 * n, sizeof *now.ends),
                  .order = calloc(n, sizeof *now.order),
                  .count = h->count};
    rondo_result result;
    if (!now.cost || !now.ends || !now.order) {
        forget(&now);
        return rd_fail(RONDO_SYSTEM_ERROR, "no memory for the costs between %d ranks", h->count);
    }
    fill(m, h, in, out, now.cost, now.ends);
    if (is_solved(&m->last, h->count, now.cost, now.ends)) {
        forget(&now);
        return RONDO_SUCCESS;
    }
    forget(&m->last);
    m->last = now;
    if (m->told->by_rank) {
        for (int i = 0; i < h->count; i++) now.order[i] = i;
        return RONDO_SUCCESS;
    }
    if (m->hosts == 1)
        result = rd_ring_order(now.cost, h->count, now.order);
    else
        result = rd_path_order(now.cost, h->count, now.ends, now.ends + n, now.order);
    if (result != RONDO_SUCCESS) m->last.count = 0;
    return result;
}

/* Counts the way just found on the host's direct links. */
static rondo_result count_users(const maker *m, host *h)
{
    size_t n = (size_t)h->count;
    for (int i = 0; i < h->count && n > 1; i++) {
        int a = m->last.order[i], b = m->last.order[(i + 1) % h->count];
        if (m->hosts > 1 && i + 1 == h->count) break;
        if (!is_direct(rd_told_link(m->told, h->ranks[a], h->ranks[b]))) continue;
        if (!h->users && !(h->users = calloc(n * n, sizeof *h->users)))
            return rd_fail(RONDO_SYSTEM_ERROR, "no memory for the links between %d ranks", h->count);
        h->users[(size_t)a * n + (size_t)b]++;
    }
    return RONDO_SUCCESS;
}

/* ---- One ring ---- */

/* Rank 0 first. */
static void rotate(rd_hop *hops, const int32_t *order, int n)
{
    int zero = 0;
    while (order[zero] != 0) zero++;
    for (int i = 0; i < n; i++)
        hops[i] = (rd_hop){.from = order[(zero + i) % n], .to = order[(zero + i + 1) % n], .nic = -1, .nic_there = -1};
}

static rondo_result make_ring(maker *m, rd_hop *hops)
{
    int at = 0;
    bool scattered = false; /* a ring by rank comes to some host more than once, and leaves it by no card that was chosen */
    int32_t *order = calloc((size_t)m->ranks, sizeof *order), *leave = calloc((size_t)m->ranks, sizeof *leave);
    rondo_result result = RONDO_SUCCESS;
    if (!order || !leave) {
        result = rd_fail(RONDO_SYSTEM_ERROR, "no memory for a ring of %d ranks", m->ranks);
        goto out;
    }
    choose_nics(m);
    for (int i = 0; i < m->hosts; i++) {
        host *h = &m->host[m->round[i]];
        if ((result = way_through(m, h, m->in[i], m->out[i])) != RONDO_SUCCESS) goto out;
        if ((result = count_users(m, h)) != RONDO_SUCCESS) goto out;
        for (int k = 0; k < h->count; k++, at++) {
            order[at] = h->ranks[m->last.order[k]];
            scattered = scattered || (m->told->by_rank && order[at] != at);
        }
        leave[order[at - 1]] = i; /* from here the ring goes on from the i-th host */
    }
    for (int i = 0; i < m->ranks && scattered; i++) order[i] = i;
    rotate(hops, order, m->ranks);
    for (int i = 0; i < m->ranks; i++) {
        rd_hop *hop = &hops[i];
        hop->link = rd_told_link(m->told, hop->from, hop->to);
        if (m->hosts == 1 || m->places[hop->from].host == m->places[hop->to].host || scattered) continue;
        int position = leave[hop->from];
        hop->nic = m->out[position];
        hop->nic_there = m->in[(position + 1) % m->hosts];
        if (m->around) hop->link = rd_nics_link(&m->around[hop->from], hop->nic, &m->around[hop->to], hop->nic_there);
    }
out:
    free(leave);
    free(order);
    return result;
}

const rd_hop *rd_rings_slowest(const rd_rings *rings, int channel)
{
    const rd_hop *hops = &rings->hops[(size_t)channel * (size_t)rings->ranks], *slowest = NULL;
    for (int i = 0; i < rings->ranks && rings->ranks > 1; i++)
        if (!slowest || rd_link_cost(hops[i].link, 1) > rd_link_cost(slowest->link, 1)) slowest = &hops[i];
    return slowest;
}

/* ---- All of them ---- */

/* What the cards allow. */
static int rings_by_nics(const maker *m)
{
    int least = RD_MAX_RINGS;
    for (int i = 0; i < m->hosts; i++) {
        int here = m->round[i], there = m->round[(i + 1) % m->hosts];
        int rings = rd_nics_rings(m->host[here].around, m->host[there].around);
        if (rings < least) least = rings;
    }
    return least;
}

/* What the rings made so far carry together on the direct links of one host, where ranks and positions are the same; 0
 * when the last one also takes other links. */
static uint64_t carried(const maker *m, const rd_rings *rings)
{
    const host *h = &m->host[0];
    uint32_t least = UINT32_MAX;
    for (int i = 0; i < rings->channels * rings->ranks; i++) {
        const rd_hop *hop = &rings->hops[i];
        if (!is_direct(hop->link)) return 0;
        uint32_t share = hop->link.mbs / (uint32_t)users_of(h, hop->from, hop->to);
        if (share < least) least = share;
    }
    return (uint64_t)least * (uint64_t)rings->channels;
}

/* As many as were asked for (most), or as are good. */
static rondo_result make_rings(maker *m, rd_rings *made, int most, bool by_links)
{
    uint64_t best = 0;
    int good = 1;
    while (made->channels < most) {
        RD_TRY(make_ring(m, made->hops + (size_t)made->channels * (size_t)made->ranks));
        made->channels++;
        if (!by_links) continue;
        uint64_t now = carried(m, made);
        if (now == 0) break;
        if (now > best) good = made->channels;
        if (now > best) best = now;
    }
    if (by_links) made->channels = good;
    return RONDO_SUCCESS;
}

rondo_result rd_rings_make(rd_rings *rings, const rd_told *told, int channels)
{
    int ranks = told->ranks;
    if (ranks < 1 || channels < 0 || channels > RD_MAX_RINGS)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "%d rings of %d ranks: 0 (as many as are good) to %d rings, and at least "
                       "1 rank",
                       channels, ranks, RD_MAX_RINGS);
    maker m = {.told = told, .places = told->places, .around = told->around, .ranks = ranks};
    rd_rings made = {.ranks = ranks};
    int most = channels ? channels : RD_MAX_RINGS;
    rondo_result result = RONDO_SYSTEM_ERROR;
    made.hops = calloc((size_t)most * (size_t)ranks, sizeof *made.hops);
    if (!made.hops) {
        rd_fail(RONDO_SYSTEM_ERROR, "no memory for %d rings of %d ranks", most, ranks);
        goto out;
    }
    if ((result = find_hosts(&m)) != RONDO_SUCCESS || (result = order_hosts(&m)) != RONDO_SUCCESS) goto out;
    made.hosts = m.hosts;
    bool by_links = !channels && m.hosts == 1 && ranks > 1 && told->around;
    if (!channels && !by_links) most = told->around && m.hosts > 1 ? rings_by_nics(&m) : 1;
    if ((result = make_rings(&m, &made, most, by_links)) != RONDO_SUCCESS) goto out;
    *rings = made;
    made.hops = NULL;
out:
    for (int h = 0; h < m.hosts; h++) free(m.host[h].users);
    forget(&m.last);
    free(m.in);
    free(m.out);
    free(m.round);
    free(m.host);
    free(m.ranks_of);
    free(made.hops);
    return result;
}

void rd_rings_free(rd_rings *rings)
{
    free(rings->hops);
    *rings = (rd_rings){0};
}
