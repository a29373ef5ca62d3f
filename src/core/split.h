/* SPDX-License-Identifier: Apache-2.0
 *
 * split.h - communicators of some of a communicator's ranks.
 */
#ifndef RD_CORE_SPLIT_H
#define RD_CORE_SPLIT_H

#include "core/start.h"

/* A communicator that is being made of some ranks of a parent. */
typedef struct rd_child {
    rd_start start;
    rondo_comm *parent;
    int32_t *members; /* its ranks' ranks in the parent, in order */
    int count;
    bool outlives_parent; /* made of one that may have ended; else it is given up when that ends */
} rd_child;

/* Makes all of them, or none. One whose members go meanwhile, as the parent's control plane tells, is given up at once.
 */
rondo_result rd_children_make(rd_child *children, int n);
void rd_child_free(rd_child *child);

/* A split under way: what all ranks say travels as an all-gather on the parent, and then the children are made. */
typedef struct rd_split {
    rondo_comm *parent;
    rondo_comm **out;
    rd_settings settings;
    int32_t mine[2]; /* colour, key */
    int32_t *all;    /* of all ranks, by rank */
} rd_split;

/* After the all-gather: this rank's child, if it has one; count is 0 otherwise. */
rondo_result rd_split_child(rd_split *split, rd_child *child);
void rd_split_free(rd_split *split);

#endif
