/* SPDX-License-Identifier: Apache-2.0
 *
 * card.h - what ranks tell one another before they have links, and what each concludes from all of it.
 */
#ifndef RD_CORE_CARD_H
#define RD_CORE_CARD_H

#include "boot/wire.h"
#include "core/comm.h"
#include "topo/ring.h"

#define RD_LINK_VERSION 8

/* What a rank tells all others; its bytes: docs/wire.md. */
typedef struct rd_card {
    uint32_t wire_version, channels, sockets, transport, algo, numerics, flat_ranks, lacking, on_gpu;
    uint32_t gpu_links; /* places for links on demand in its GPU's memory */
    char gpu[16]; /* its uuid */
    uint64_t slice_bytes;
    rd_place place;
    unsigned char near[RD_INTERFACES]; /* rd_place_interface of each of the contact's */
    rd_contact contact;
} rd_card;

/* Everybody's cards, by rank (room for comm->size). */
rondo_result rd_cards_exchange(rondo_comm *comm, rd_table *table, const rd_contact *contact, rd_card *cards,
                               int64_t deadline);

/* Settings that shape the wire, from all cards: the smaller of two sizes serves both, a different choice is
 * RONDO_INVALID_USAGE. Sets comm's slice size, channels, sockets and limit of flat. */
rondo_result rd_cards_agree(rondo_comm *comm, const rd_card *cards);

/* This rank on the rings, by channel: who is before it and after it, which of the networks that it shares with the next
 * (rd_contact_networks) the link to that one takes, and which of its RDMA ports the two links do (-1: none is named). */
typedef struct rd_neighbours {
    int next[RD_MAX_CHANNELS], previous[RD_MAX_CHANNELS], network[RD_MAX_CHANNELS];
    int rail_out[RD_MAX_CHANNELS], rail_in[RD_MAX_CHANNELS];
    rd_link inside, outside; /* the slowest hop of any host, and between hosts, of all channels together */
} rd_neighbours;

/* The rings (comm->order, and where nobody asked for a number of channels, that), and whether the ranks of this host
 * are more than its processors (comm->crowded). */
rondo_result rd_cards_order_rings(rondo_comm *comm, rd_table *table, rd_card *cards, rd_neighbours *near,
                                  int64_t deadline);

/* What the cards say of networks, by rank; places[].host are filled in, each the number of the host's first rank.
 * *around is the caller's to free. (around.c) */
rondo_result rd_cards_around(const rd_card *cards, const rd_place *places, int n, rd_around **around);
/* Where some rank is on a GPU, each tells how far it is from the GPUs and cards of its host: completes around[], by rank,
 * which tells of nothing but cards so far. (ways.c) */
rondo_result rd_cards_ways(rondo_comm *comm, rd_table *table, const rd_card *cards, rd_around *around,
                           int64_t deadline);
/* Where some rank has RDMA and links will be over it, each tells of its ports: comm->links has which of them links take,
 * and around[] (NULL: one host) tells of them instead of other cards, if that is possible for all. (rails.c) */
rondo_result rd_cards_rails(rondo_comm *comm, rd_table *table, const rd_card *cards, const rd_place *places,
                            rd_around *around, int64_t deadline);
/* The bus address of this rank's GPU; RD_NO_GPU. (ways.c) */
uint32_t rd_card_bus(const rondo_comm *comm, const rd_card *mine);
/* Links in what ranks tell. (ways.c) */
#define RD_LINK_BYTES 12
void rd_write_link(rd_writer *w, rd_link link);
rd_link rd_read_link(rd_reader *r);
/* Which of the networks that two ranks share (rd_contact_networks) these two of their cards are on; `otherwise` where
 * they are on none, or nothing is known of them (NULL). */
int rd_cards_network(const rd_card *from, const rd_nic *nic, const rd_card *to, const rd_nic *nic_there, int otherwise);

/* One process; and perhaps one host, which mapping a page will prove. */
bool rd_cards_share_process(const rd_card *a, const rd_card *b);
bool rd_cards_may_share_host(const rd_card *a, const rd_card *b);

#endif
