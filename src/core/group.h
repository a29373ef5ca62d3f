/* SPDX-License-Identifier: Apache-2.0
 *
 * group.h - calls of one thread that are to run together.
 */
#ifndef RD_CORE_GROUP_H
#define RD_CORE_GROUP_H

#include "core/split.h"
#include "core/stream.h"

/* Is this thread inside a group? Then its calls are kept for the end of it. */
bool rd_group_is_open(void);
rondo_result rd_group_add_call(rondo_comm *comm, const rd_call *call, rondo_stream *stream);
/* A split whose all-gather is among the group's calls; the group's now, unless this fails. */
rondo_result rd_group_add_split(rd_split *split);
/* A communicator to be started with the others of the group. */
rondo_result rd_group_add_start(const rd_start *start);
/* The result of a call: if it was refused inside a group, nothing of the group will run. Returns it. */
rondo_result rd_group_note(rondo_result result);

#endif
