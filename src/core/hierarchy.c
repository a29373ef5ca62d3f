/* SPDX-License-Identifier: Apache-2.0 */
#include "core/hierarchy.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>

#define RING_SLOTS 4 /* as on the ring */

/* ---- The shape ---- */

static bool share_host(const rd_card *cards, const rondo_comm *comm, int a, int b)
{
    int n = comm->size;
    return rd_cards_may_share_host(&cards[comm->order[(a + n) % n]], &cards[comm->order[(b + n) % n]]);
}

/* Where on the ring a host begins; -1: there is but one host. */
static int find_begin(const rondo_comm *comm, const rd_card *cards)
{
    for (int at = 0; at < comm->size; at++)
        if (!share_host(cards, comm, at - 1, at)) return at;
    return -1;
}

/* How many ranks each host has; 0, and why, when that is not one number, and 1 when there is nothing to gain. */
static int ranks_of_each(const rondo_comm *comm, const rd_card *cards, int begin, char *why, size_t bytes)
{
    int n = comm->size, each = 0;
    for (int at = begin; at < begin + n;) {
        int ranks = 1;
        while (at + ranks < begin + n && share_host(cards, comm, at, at + ranks)) ranks++;
        if (each && ranks != each) {
            snprintf(why, bytes, "host %.60s has %d rank%s, and %.60s has %d",
                     cards[comm->order[begin % n]].contact.hostname, each, each == 1 ? "" : "s",
                     cards[comm->order[at % n]].contact.hostname, ranks);
            return 0;
        }
        each = ranks;
        at += ranks;
    }
    snprintf(why, bytes, "each host has one rank");
    return each;
}

/* ---- The model: rondo_plan_hier.h has the formulas ---- */

static size_t faster_up_to(int hosts, int local, rd_link inside, rd_link outside)
{
    double n = hosts * local, h = hosts, l = local;
    double near_ns = inside.ns, far_ns = outside.ns;
    double near_byte = 1e3 / inside.mbs, far_byte = 1e3 / outside.mbs, slower = near_byte > far_byte ? near_byte : far_byte;
    double ring = 2 * (n - 1) / n * (h * far_ns + (n - h) * near_ns), ring_byte = 2 * (n - 1) / n * slower;
    double hier = 2 * (h - 1) * far_ns + 2 * (l - 1) * near_ns;
    double hier_byte = 2 * (h - 1) / h * far_byte + 2 * (l - 1) / l * near_byte;
    if (hier_byte <= ring_byte) return hier <= ring ? SIZE_MAX : 0;
    return ring <= hier ? 0 : (size_t)((ring - hier) / (hier_byte - ring_byte));
}

/* ---- Opening ---- */

/* Children of splits have shapes of their own: so it is said, and goes on. */
static void say_why_not(const rondo_comm *comm, const char *why)
{
    bool asked = comm->settings.algo == RD_ALGO_HIER;
    if (comm->rank != 0) return;
    rd_log(asked ? RD_LOG_WARN : RD_LOG_INFO, "all-reduces are not hierarchical%s: %s",
           asked ? ", though RONDO_ALGO=hier asks for it; that is for several hosts with the same number of ranks, two at "
                   "least"
                 : "",
           why);
}

static rondo_result make(rondo_comm *comm, int begin, int local, const rd_neighbours *near)
{
    int n = comm->size;
    rd_hierarchy *h = calloc(1, sizeof *h);
    if (!h || !(h->order = calloc((size_t)n, sizeof *h->order))) {
        free(h);
        return rd_fail_errno("no memory for a hierarchy of %d ranks", n);
    }
    for (int at = 0; at < n; at++) h->order[at] = comm->order[(begin + at) % n];
    h->local = h->hier.local = local;
    h->hosts = n / local;
    h->most = comm->settings.algo == RD_ALGO_HIER ? SIZE_MAX : faster_up_to(h->hosts, local, near->inside, near->outside);
    comm->hierarchy = h;
    return RONDO_SUCCESS;
}

rondo_result rd_hierarchy_open(rondo_comm *comm, const rd_card *cards, const rd_neighbours *near)
{
    char why[256] = "all ranks share one host";
    bool asked = comm->settings.algo == RD_ALGO_HIER;
    int begin = find_begin(comm, cards), local = 0;
    if (comm->settings.algo != RD_ALGO_AUTO && !asked) return RONDO_SUCCESS;
    if (comm->strict) {
        if (comm->rank == 0 && (asked || begin >= 0))
            rd_log(asked ? RD_LOG_WARN : RD_LOG_INFO,
                   "all-reduces are not hierarchical: RONDO_NUMERICS=strict adds in the order of ranks");
        return RONDO_SUCCESS;
    }
    if (begin >= 0) local = ranks_of_each(comm, cards, begin, why, sizeof why);
    for (int r = 0; r < comm->size && local >= 2; r++) {
        if (!cards[r].on_gpu) continue;
        snprintf(why, sizeof why, "rank %d uses a GPU, whose sums are made on the flat ring", r);
        local = 0;
    }
    if (local >= 2) return make(comm, begin, local, near);
    if (asked || begin >= 0) say_why_not(comm, why);
    return RONDO_SUCCESS;
}

void rd_hierarchy_close(rondo_comm *comm)
{
    rd_hierarchy *h = comm->hierarchy;
    if (!h) return;
    for (int stage = 0; stage < RD_OPEN; stage++)
        for (int ch = 0; ch < RD_MAX_CHANNELS; ch++) {
            if (h->out[stage][ch].link) h->out[stage][ch].link->ops->close(h->out[stage][ch].link);
            if (h->in[stage][ch].link) h->in[stage][ch].link->ops->close(h->in[stage][ch].link);
            free(h->hier.wiring[stage].scratch[ch]);
        }
    free(h->hier.shelf);
    free(h->order);
    free(h);
}

/* ---- Links ---- */

/* Inside hosts one channel is enough. Where the rails come out even over the cards, each has its own; else each has all. */
static int channels_of(const rondo_comm *comm, int stage)
{
    int channels = comm->wiring.channels;
    return stage != RD_RAIL || comm->hierarchy->local % channels == 0 ? 1 : channels;
}

/* This rank's place in h->order. */
static int place_of(const rondo_comm *comm)
{
    int at = 0;
    while (comm->hierarchy->order[at] != comm->rank) at++;
    return at;
}

/* The rank `steps` further on this rank's ring of a stage. */
static int along(const rondo_comm *comm, int stage, int steps)
{
    const rd_hierarchy *h = comm->hierarchy;
    int host = place_of(comm) / h->local, i = place_of(comm) % h->local;
    if (stage == RD_RAIL) return h->order[(host + steps + h->hosts) % h->hosts * h->local + i];
    return h->order[host * h->local + (i + steps + h->local) % h->local];
}

int rd_hierarchy_edges(rondo_comm *comm, rd_edge *out, rd_edge *in)
{
    rd_hierarchy *h = comm->hierarchy;
    int count = 0;
    for (int stage = 0; h && stage < RD_OPEN; stage++)
        for (int ch = 0; ch < channels_of(comm, stage); ch++) {
            rd_edge edge = {.index = RD_MAX_CHANNELS * (1 + stage) + ch,
                            .network = place_of(comm) % h->local + ch,
                            .slots = RING_SLOTS,
                            .slot_bytes = comm->wiring.slice_bytes};
            out[count] = in[count] = edge;
            out[count].peer = along(comm, stage, 1);
            out[count].rail = comm->links.rail[out[count].peer];
            out[count].wire = &h->out[stage][ch];
            in[count].peer = along(comm, stage, -1);
            in[count].rail = comm->links.rail[in[count].peer];
            in[count++].wire = &h->in[stage][ch];
        }
    return count;
}

bool rd_hierarchy_staged(const rondo_comm *comm, int stage)
{
    const rd_hierarchy *h = comm->hierarchy;
    for (int ch = 0; h && ch < channels_of(comm, stage); ch++)
        if (!(h->out[stage][ch].link->caps & h->in[stage][ch].link->caps & RONDO_LINK_SLOTS)) return true;
    return false;
}

rondo_result rd_hierarchy_wire(rondo_comm *comm, const bool staged[RD_OPEN])
{
    rd_hierarchy *h = comm->hierarchy;
    for (int stage = 0; h && stage < RD_OPEN; stage++) {
        rd_wiring *wiring = &h->hier.wiring[stage];
        wiring->channels = channels_of(comm, stage);
        wiring->slice_bytes = comm->wiring.slice_bytes;
        wiring->staged = staged[stage];
        for (int ch = 0; ch < wiring->channels; ch++) {
            wiring->ring_out[ch] = &h->out[stage][ch];
            wiring->ring_in[ch] = &h->in[stage][ch];
            if (!rd_hierarchy_staged(comm, stage)) continue;
            wiring->scratch[ch] = aligned_alloc(4096, (wiring->slice_bytes + 4095) / 4096 * 4096);
            if (!wiring->scratch[ch]) return rd_fail_errno("no memory for %zu bytes of scratch", wiring->slice_bytes);
        }
    }
    return RONDO_SUCCESS;
}
