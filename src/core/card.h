/* SPDX-License-Identifier: Apache-2.0
 *
 * card.h - what ranks tell one another before they have links, and what each concludes from all of it.
 */
#ifndef RD_CORE_CARD_H
#define RD_CORE_CARD_H

#include "core/comm.h"

#define RD_LINK_VERSION 2

/* What a rank tells all others; its bytes: docs/wire.md. */
typedef struct rd_card {
    uint32_t wire_version, channels, sockets, transport, algo, numerics, flat_ranks;
    uint64_t slice_bytes;
    rd_place place;
    rd_contact contact;
} rd_card;

/* Everybody's cards, by rank (room for comm->size). */
rondo_result rd_cards_exchange(rondo_comm *comm, rd_table *table, const rd_contact *contact, rd_card *cards,
                               int64_t deadline);

/* Settings that shape the wire, from all cards: the smaller of two sizes serves both, a different choice is
 * RONDO_INVALID_USAGE. Sets comm's slice size, channels, sockets and limit of flat. */
rondo_result rd_cards_agree(rondo_comm *comm, const rd_card *cards);

/* The ring (comm->order), and whether the ranks of this host are more than its processors (comm->crowded). */
rondo_result rd_cards_order_ring(rondo_comm *comm, rd_card *cards);

/* One process; and perhaps one host, which mapping a page will prove. */
bool rd_cards_share_process(const rd_card *a, const rd_card *b);
bool rd_cards_may_share_host(const rd_card *a, const rd_card *b);

#endif
