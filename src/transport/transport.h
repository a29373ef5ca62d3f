/* SPDX-License-Identifier: Apache-2.0
 *
 * transport.h - the transports there are, and what they share.
 *   registry.c  the list, best first, the choice with its reason, and small things that all share
 *   slots.c     a slot ring in memory that both ends can reach: what loop and shm have in common
 *   loop.c      slots on the heap, for ranks of one process
 *   mapped.c    slots in a sealed memfd that two processes map
 *   shm.c       such slots, for ranks of one host
 *   cuda_ipc.c  slots whose payloads lie in GPU memory, for ranks of one host that both have a GPU
 *   direct.c    the user's memory reached by a peer of the host: for shm.c
 *   tcp.c       sockets, to and from the caller's memory
 *   verbs.c     RDMA, likewise (verbs_link.h lists its files); where rdma-core's headers are there
 *   fault.c     a wrapper that makes any link worse
 *   stage.c     slots for a link that moves memory
 *   adapter.c   a link of one kind dressed as the other: for tests
 */
#ifndef RD_TRANSPORT_TRANSPORT_H
#define RD_TRANSPORT_TRANSPORT_H

#include "base/bell.h"
#include "rondo_transport.h"

extern const rondo_transport rd_transport_loop, rd_transport_shm, rd_transport_tcp, rd_transport_verbs,
    rd_transport_cuda_ipc;

/* All transports, best first, NULL-terminated. */
extern const rondo_transport *const rd_transports[];

/* The cheapest transport that reaches as far as `reach` says is needed, or the one named `forced` (NULL: none forced);
 * none of those that either rank lacks (`lacking`), and not cuda_ipc, which has a question of its own (below). NULL when that one does not reach. `why` gets a sentence either way. */
const rondo_transport *rd_transport_choose(rondo_reach reach, const char *forced, uint32_t lacking, char *why,
                                           size_t bytes);
/* The bits of the transports that this process cannot use. Each that is wanted is tried out once; why not, says a line of
 * the log, or `why` of the one that is forced ("": it can be used). */
uint32_t rd_transports_lacking(const char *forced, char *why, size_t bytes);
enum { RD_LACKS_VERBS = 1 };

/* Whether a cuda_ipc link from this rank's GPU to a peer's of the host can be made, as far as the driver can tell; false:
 * `why` has a sentence. There is a driver. */
bool rd_cuda_ipc_reaches(int device, const char peer_uuid[16], bool one_process, char *why, size_t bytes);

/* ---- Links around links ----
 * They take over `inner`, unless they return NULL and leave the reason as this thread's last error. */

/* What shall be worse; all zero: nothing. */
enum { RD_FAULT_DELAY = 64 };
struct rd_fault {
    uint64_t seed;
    double again;                /* how often a call that might go on says AGAIN, from 0 to below 1 */
    uint32_t delay;              /* looks (poll, reserve, send, peek) before what has come is seen, to RD_FAULT_DELAY */
    uint64_t bytes_per_second;   /* 0: no limit */
    uint64_t fail_at;            /* this call and all later ones fail, from 1; 0: none */
    rondo_link_result fail_with; /* RONDO_LINK_BROKEN or RONDO_LINK_CLOSED */
};
rondo_link *rd_fault_wrap(rondo_link *inner, const struct rd_fault *fault);
/* Short writes, and so short reads, before sockets become a link: send buffers of about `bytes`. (Receive buffers are
 * left alone: TCP with a window below its segment size does not go in parts, it stalls.) */
rondo_result rd_fault_shorten(const rondo_link_spec *spec, int bytes);

/* Slots for one end (RD_SENDER or RD_RECEIVER) of a MEMORY link, which sends from them and receives into them. */
rondo_link *rd_stage_wrap(rondo_link *inner, int side);
/* Puts the long slices of such an end, which has moved none yet, into memory of a GPU of this process, if the inner
 * link can. False: nothing has changed. `how` gets a sentence either way. */
bool rd_stage_in_gpu(rondo_link *staged, int device, char *how, size_t bytes);
/* Where a link's slots lie in host memory, heads included; false: none that can be told. */
bool rd_link_memory(rondo_link *link, void **base, size_t *bytes);

/* The other face of one end of a link: slots for a link that moves memory, send and recv for
 * one that has slots. For tests. */
rondo_link *rd_adapter_wrap(rondo_link *inner, int side);

/* ---- What transports share ---- */

enum { RD_SENDER = 0, RD_RECEIVER = 1 };

/* Refuses numbers of slots and sizes that no link can have. */
rondo_result rd_spec_check(const rondo_link_spec *spec);
/* Whether a link's capabilities and operations go together, as the contract says. */
rondo_result rd_link_check(const rondo_link *link);
/* Closes the descriptors of an offer. */
void rd_offer_close(const rondo_offer *offer);

#endif
