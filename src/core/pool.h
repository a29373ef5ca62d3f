/* SPDX-License-Identifier: Apache-2.0
 *
 * pool.h - GPU memory for the slots of links on demand. Such a link is made while other calls run, and nothing may take
 * or map GPU memory then: the driver may wait for all that the GPU was given, and so for a kernel that waits for this
 * rank. So each rank on a GPU makes some when the communicator starts, places for a few links (RONDO_GPU_LINKS), and all
 * others on GPUs of its host map it. A link to it takes a place as long as there is one; further ones have their slots in
 * host memory.
 *
 * Only by descriptor (base/gpu_shared.h): then the memory stays for as long as anyone has it mapped, in whatever order
 * ranks end.
 */
#ifndef RD_CORE_POOL_H
#define RD_CORE_POOL_H

#include "base/gpu_shared.h"
#include "core/edges.h"

/* A place, and the slots in it. */
enum { RD_POOL_SLOTS = 4, RD_POOL_SLOT_BYTES = 65536, RD_POOL_PLACE_BYTES = RD_POOL_SLOTS * RD_POOL_SLOT_BYTES };

typedef struct rd_pool rd_pool;

/* Whether this rank's settings and GPU allow for places, and for how many: what its card says. */
uint32_t rd_pool_places(const rd_settings *settings);

/* Makes this rank's, if its card says so, and exchanges it with those of its host whose cards do. No memory is no
 * failure: then it has none. */
rondo_result rd_pool_open(const rd_edges *edges);
/* When no link is left. */
void rd_pool_close(rondo_comm *comm);

/* Links to the peer, or from it, may have their slots in GPU memory. */
bool rd_pool_out(const rondo_comm *comm, int peer);
bool rd_pool_in(const rondo_comm *comm, int peer);
bool rd_pool_any(const rondo_comm *comm); /* some link may */

/* The memory of a link that is to be made, in its spec: the peer's, if this rank reaches it; or a place of this rank's,
 * on the service thread. false: there is none. */
bool rd_pool_lend_out(const rondo_comm *comm, rondo_link_spec *spec);
bool rd_pool_lend_in(rondo_comm *comm, rondo_link_spec *spec);
/* The peer has no place left: from now on links to it have host memory. */
void rd_pool_exhausted(rondo_comm *comm, int peer);

/* The place that a receiving end has, -1: none; to be given back when it is closed. */
int rd_pool_place_of(const rondo_comm *comm, rondo_link *link);
void rd_pool_give_back(rondo_comm *comm, int place);

#endif
