/* SPDX-License-Identifier: Apache-2.0
 *
 * mapped.h - a slot ring in a sealed memfd that two processes map: what shm and cuda_ipc have in common.
 *
 * The sender makes the memory and passes its descriptor, so nothing has a name that could be left behind. That the
 * ranks share a host is not guessed from names: the receiver maps the memory and finds a random token in it. Both pass
 * copies of their bells.
 */
#ifndef RD_TRANSPORT_MAPPED_H
#define RD_TRANSPORT_MAPPED_H

#include "transport/slots.h"

/* One end; the first member of each transport's own. */
typedef struct rd_mapped {
    rd_slots slots;
    void *memory;
    size_t bytes;
} rd_mapped;

/* How an offer begins. */
typedef struct rd_mapped_offer {
    uint32_t version, slots;
    uint64_t slot_bytes;
    uint64_t token[2];
} rd_mapped_offer;

/* Descriptors of an offer and of an answer; an answer may have more. */
enum {
    RD_MAPPED_BELL_PAGE,
    RD_MAPPED_BELL_EVENT,
    RD_MAPPED_MEMORY,
    RD_MAPPED_FDS,
    RD_MAPPED_ANSWER_FDS = RD_MAPPED_MEMORY
};

typedef struct rd_mapped_kind {
    const rondo_link_ops *ops;
    uint32_t version;
    size_t offer_bytes; /* rd_mapped_offer, and what the transport says beyond it */
    bool heads_only;    /* the payloads lie elsewhere */
} rd_mapped_kind;

/* The three steps of making a link, as in rondo_transport.h. offer and accept fill in an end that is all zero, and
 * leave nothing of it on failure; accept takes over the offer's descriptors, complete those of the bell. What an offer
 * says is checked as far as rd_mapped_offer goes. */
rondo_result rd_mapped_make(const rd_mapped_kind *kind, const rondo_link_spec *spec, rd_mapped *end,
                            rondo_offer *offer);
rondo_result rd_mapped_accept(const rd_mapped_kind *kind, const rondo_link_spec *spec, const rondo_offer *offer,
                              rd_mapped *end, rondo_offer *answer);
rondo_result rd_mapped_complete(rd_mapped *end, const rondo_offer *answer);

/* Tells the peer that this end is closed; the memory stays. */
void rd_mapped_leave(rd_mapped *end);
void rd_mapped_free(rd_mapped *end);

/* Closes the sockets of a link that is not made. */
void rd_mapped_give_up(const rondo_link_spec *spec);

#endif
