/* SPDX-License-Identifier: Apache-2.0
 *
 * split.h - communicators of some of a communicator's ranks.
 */
#ifndef RD_CORE_SPLIT_H
#define RD_CORE_SPLIT_H

#include "core/start.h"

/* A split under way: what all ranks say travels as an all-gather on the parent, and then the children are started. */
typedef struct rd_split {
    rondo_comm *parent;
    rondo_comm **out;
    rd_settings settings;
    int32_t mine[2]; /* colour, key */
    int32_t *all;    /* of all ranks, by rank */
} rd_split;

/* After the all-gather: the child's start, if this rank has a child. */
rondo_result rd_split_start(rd_split *split, rd_start *start, bool *has_child);
void rd_split_free(rd_split *split);

#endif
