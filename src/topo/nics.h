/* SPDX-License-Identifier: Apache-2.0
 *
 * nics.h - how often each host's cards are used so far, and the next choice.
 */
#ifndef RD_TOPO_NICS_H
#define RD_TOPO_NICS_H

#include "topo/ring.h"

/* Of a host, by card: rings that leave and enter by it, and what it costs the rank that is nearest to it. All zero:
 * none yet, and nothing is known of ranks. */
typedef struct rd_nic_use {
    int out[RD_MAX_NICS], in[RD_MAX_NICS];
    uint32_t nearest[RD_MAX_NICS];
} rd_nic_use;

/* One rank more of the host. */
void rd_nics_count_rank(rd_nic_use *use, const rd_around *around);

/* From one host to the next: a card there that a card here reaches, both -1 when there is none. `entered`: the card by
 * which the ring came into this host, -1 none. Counts them as used. */
void rd_nics_choose(const rd_around *here, rd_nic_use *use_here, const rd_around *there, rd_nic_use *use_there,
                    int entered, int32_t *nic, int32_t *nic_there);

/* How many rings the cards between two hosts carry, each as fast as the fastest pair does; 1 at least. */
int rd_nics_rings(const rd_around *here, const rd_around *there);

/* By which of their cards two ranks reach each other best, if there were no others; both -1 when by none. Both ranks find
 * the same if they agree on who is `here`. */
void rd_nics_pair(const rd_around *here, const rd_around *there, int32_t *nic, int32_t *nic_there);

/* Nanoseconds of 64 KiB over the best pair. */
uint32_t rd_nics_cost(const rd_around *here, const rd_around *there);

/* The link from a rank to another by two cards of theirs (-1: not known). */
rd_link rd_nics_link(const rd_around *here, int nic, const rd_around *there, int nic_there);

#endif
