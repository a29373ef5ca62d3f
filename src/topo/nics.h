/* SPDX-License-Identifier: Apache-2.0
 *
 * nics.h - how often each host's cards are used so far, and the next choice.
 */
#ifndef RD_TOPO_NICS_H
#define RD_TOPO_NICS_H

#include "topo/ring.h"

/* Rings that leave and enter a host by each of its cards. */
typedef struct rd_nic_use {
    int out[RD_MAX_NICS], in[RD_MAX_NICS];
} rd_nic_use;

/* From one host to the next: a card there that a card here reaches, both -1 when there is none. `entered`: the card by
 * which the ring came into this host, -1 none. Counts them as used. */
void rd_nics_choose(const rd_around *here, rd_nic_use *use_here, const rd_around *there, rd_nic_use *use_there,
                    int entered, int32_t *nic, int32_t *nic_there);

/* How many rings the cards between two hosts carry, each as fast as the fastest pair does; 1 at least. */
int rd_nics_rings(const rd_around *here, const rd_around *there);

/* Nanoseconds of 64 KiB over the best pair. */
uint32_t rd_nics_cost(const rd_around *here, const rd_around *there);

/* The link from a rank to another by two cards of theirs (-1: not known). */
rd_link rd_nics_link(const rd_around *here, int nic, const rd_around *there, int nic_there);

#endif
