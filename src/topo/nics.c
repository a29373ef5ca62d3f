/* SPDX-License-Identifier: Apache-2.0
 *
 * nics.c - which network cards a ring crosses from one host to the next by.
 *
 * Of all pairs of cards that reach each other, the ring takes the one that is least loaded with it: rings on a card,
 * over its speed. So equal cards are used in turns, and a slow one beside a fast one not at all. Among equals, in this
 * order:
 *   - the card by which the ring came into the host: each ring keeps to one rail where it can
 *   - rail-aligned, cards at the same place among those of their host: switches are wired that way
 *   - the ones that have ranks near them
 *   - the first ones
 */
#include "topo/nics.h"

#include <stdbool.h>
#include <stdlib.h>

static uint32_t speed(const rd_nic *nic)
{
    return rd_link_network(nic->mbit).mbs;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static bool reach(const rd_nic *a, const rd_nic *b)
{
    if (!a->up || !b->up) return false;
    if (!a->networks[0] || !b->networks[0]) return !a->networks[0] && !b->networks[0];
    for (int i = 0; i < RD_MAX_NETWORKS && a->networks[i]; i++)
        for (int j = 0; j < RD_MAX_NETWORKS && b->networks[j]; j++)
            if (a->networks[i] == b->networks[j]) return true;
    return false;
}

/* Rings on card i, or on another interface of the same function; users by card. */
static int sharers(const rd_around *around, const int *users, int i)
{
    int sum = users[i];
    for (int k = 0; k < around->nics; k++)
        if (k != i && around->nic[i].bus && around->nic[k].bus == around->nic[i].bus) sum += users[k];
    return sum;
}

void rd_nics_count_rank(rd_nic_use *use, const rd_around *around)
{
    for (int i = 0; i < around->nics; i++) {
        uint32_t cost = rd_link_cost(around->nic[i].link, 1) + 1; /* 0 is what is not known */
        if (!use->nearest[i] || cost < use->nearest[i]) use->nearest[i] = cost;
    }
}

/* The cost of a card with one ring more. */
static uint64_t load(const rd_around *around, const int *users, int i)
{
    return (uint64_t)(sharers(around, users, i) + 1) * 1000000000 / speed(&around->nic[i]);
}

void rd_nics_choose(const rd_around *here, rd_nic_use *use_here, const rd_around *there, rd_nic_use *use_there,
                    int entered, int32_t *nic, int32_t *nic_there)
{
    uint64_t lightest = UINT64_MAX, shortest = 0;
    int best = -1, best_there = -1, rank = 0;
    for (int i = 0; i < here->nics; i++) {
        for (int j = 0; j < there->nics; j++) {
            if (!reach(&here->nic[i], &there->nic[j])) continue;
            uint64_t out = load(here, use_here->out, i), in = load(there, use_there->in, j);
            uint64_t more = out > in ? out : in, way = (uint64_t)use_here->nearest[i] + use_there->nearest[j];
            int wish = 2 * (i == entered) + (i == j);
            if (more > lightest || (more == lightest && wish < rank)) continue;
            if (more == lightest && wish == rank && way >= shortest) continue;
            lightest = more;
            rank = wish;
            shortest = way;
            best = i;
            best_there = j;
        }
    }
    *nic = best;
    *nic_there = best_there;
    if (best < 0) return;
    use_here->out[best]++;
    use_there->in[best_there]++;
}

void rd_nics_pair(const rd_around *here, const rd_around *there, int32_t *nic, int32_t *nic_there)
{
    rd_nic_use use_here = {0}, use_there = {0};
    rd_nics_count_rank(&use_here, here);
    rd_nics_count_rank(&use_there, there);
    rd_nics_choose(here, &use_here, there, &use_there, -1, nic, nic_there);
}

/* The fastest pair: of the slower of its two cards. */
static uint32_t fastest(const rd_around *here, const rd_around *there)
{
    uint32_t most = 0;
    for (int i = 0; i < here->nics; i++) {
        for (int j = 0; j < there->nics; j++) {
            if (!reach(&here->nic[i], &there->nic[j])) continue;
            uint32_t both = least(speed(&here->nic[i]), speed(&there->nic[j]));
            if (both > most) most = both;
        }
    }
    return most;
}

/* Rings are laid over the pairs one after the other for as long as none must share a card, and each has one that is as
 * fast as the fastest. */
int rd_nics_rings(const rd_around *here, const rd_around *there)
{
    rd_nic_use out = {0}, in = {0};
    uint32_t needed = fastest(here, there);
    int rings = 0;
    for (; rings < RD_MAX_RINGS; rings++) {
        int32_t i, j;
        rd_nics_choose(here, &out, there, &in, -1, &i, &j);
        if (i < 0 || sharers(here, out.out, i) > 1 || sharers(there, in.in, j) > 1) break;
        if (speed(&here->nic[i]) < needed || speed(&there->nic[j]) < needed) break;
    }
    return rings ? rings : 1;
}

uint32_t rd_nics_cost(const rd_around *here, const rd_around *there)
{
    rd_link link = rd_link_network(0);
    uint32_t mbs = fastest(here, there);
    if (mbs) link.mbs = mbs;
    return rd_link_cost(link, 1);
}

/* To the card, over the network, from the card: latencies add up, the least bandwidth holds. */
rd_link rd_nics_link(const rd_around *here, int nic, const rd_around *there, int nic_there)
{
    rd_link link = rd_link_network(0);
    if (nic < 0 || nic_there < 0) return link;
    const rd_nic *a = &here->nic[nic], *b = &there->nic[nic_there];
    link.ns += a->link.ns + b->link.ns;
    link.mbs = least(least(speed(a), speed(b)), least(a->link.mbs, b->link.mbs));
    return link;
}
