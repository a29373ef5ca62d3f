/* SPDX-License-Identifier: Apache-2.0
 *
 * device.h - the GPU of a rank: which one, how it reaches the slots of links, and where the buffers of calls lie.
 */
#ifndef RD_CORE_DEVICE_H
#define RD_CORE_DEVICE_H

#include "core/comm.h"

/* From the setting to a GPU's number, or RONDO_DEVICE_HOST. In the thread that asks for a communicator: auto means the
 * GPU that is current there. */
rondo_result rd_device_choose(const char *function, rd_settings *settings);

/* Opens the GPU that was chosen, if any. */
rondo_result rd_comm_open_device(rondo_comm *comm);
void rd_comm_close_device(rondo_comm *comm);

/* Makes an end's slots reachable for the rank's GPU, and gives slots to an end that has none; nothing on the host.
 * After a failure it can still be closed by its own close; an end that was adopted by rd_comm_close_link (NULL is
 * fine). early: no call runs yet, so GPU memory may be allocated. */
rondo_result rd_comm_adopt_link(rondo_comm *comm, rondo_link **link, int side, bool early);
void rd_comm_close_link(rondo_comm *comm, rondo_link *link);

/* ---- Calls: only where comm->cuda ---- */

/* Where the buffers lie. RONDO_INVALID_ARGUMENT: where this rank cannot use them. */
rondo_result rd_call_locate(const rondo_comm *comm, rd_call *call);
/* The call shall begin after what the legacy stream has been given, if a GPU reaches its buffers. */
rondo_result rd_task_order(rd_task *task);

/* The buffers of comm->op: says who carries it out, and stages what that one does not reach. */
rondo_result rd_place_call(rondo_comm *comm, const rd_call *call);
/* The same for the transfers of comm->messages. */
rondo_result rd_place_messages(rondo_comm *comm, const rd_call *calls);
/* After it is done: staged results to where they belong. */
void rd_place_back(rondo_comm *comm, rd_lane lane);

/* It waits for its GPU, which rings no bell: for what was ahead of it, or for what it has given. */
bool rd_task_on_gpu(const rd_task *task);
/* A peer may be moving slices by a kernel, which rings no bell either. */
bool rd_task_beside_kernels(const rd_task *task);
/* As rd_task_on_gpu, and that goes on whatever becomes of peers: no kernel that waits for one now. */
bool rd_task_on_gpu_alone(const rd_task *task);

#endif
