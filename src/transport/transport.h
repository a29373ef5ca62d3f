/* SPDX-License-Identifier: Apache-2.0
 *
 * transport.h - the transports there are, and what they share.
 *   registry.c  the list, best first, the choice with its reason, and small things that all share
 *   slots.c     a slot ring in memory that both ends can reach: what loop and shm have in common
 *   loop.c      slots on the heap, for ranks of one process
 *   shm.c       slots in a sealed memfd, for ranks of one host
 *   tcp.c       sockets, to and from the caller's memory
 *   fault.c     a wrapper that makes any link worse
 *   adapter.c   a link of one kind dressed as the other, by staging: for tests and for fault.c
 */
#ifndef RD_TRANSPORT_TRANSPORT_H
#define RD_TRANSPORT_TRANSPORT_H

#include "base/bell.h"
#include "rondo_transport.h"

extern const rondo_transport rd_transport_loop, rd_transport_shm, rd_transport_tcp;

/* All transports, best first, NULL-terminated. */
extern const rondo_transport *const rd_transports[];

/* The cheapest transport that reaches as far as `reach` says is needed, or the one named `forced` (NULL: none forced).
 * NULL when that one does not reach. `why` gets a sentence either way. */
const rondo_transport *rd_transport_choose(rondo_reach reach, const char *forced, char *why, size_t bytes);

/* ---- What transports share ---- */

enum { RD_SENDER = 0, RD_RECEIVER = 1 };

/* Refuses numbers of slots and sizes that no link can have. */
rondo_result rd_spec_check(const rondo_link_spec *spec);
/* Closes the descriptors of an offer. */
void rd_offer_close(const rondo_offer *offer);

#endif
