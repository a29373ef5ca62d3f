/* SPDX-License-Identifier: Apache-2.0
 *
 * start.h - making communicators: one, several at once, or in the background.
 */
#ifndef RD_CORE_START_H
#define RD_CORE_START_H

#include "core/comm.h"

/* A communicator that is to be started. */
typedef struct rd_start {
    rondo_comm **out;
    rd_job job;
    rd_settings settings;
    bool background; /* return at once, with RONDO_IN_PROGRESS */
} rd_start;

/* Settings and where the handle goes; the job is the caller's. */
rondo_result rd_start_prepare(rd_start *start, const rondo_config *config, const char *function, rondo_comm **comm);
/* Now, or with the group that is open, unless it is in the background anyway. */
rondo_result rd_start_run(const rd_start *start);
/* Called now and then while the i-th is being made: it may give it up (rd_comm_give_up). closely: rarely, for what costs
 * more to look at. */
typedef struct rd_watch_starts {
    void (*look)(void *context, int i, rondo_comm *comm, bool closely);
    void *context;
} rd_watch_starts;
/* All at once, since they may wait for one another: all start, or none is left. watch: NULL: nobody looks. */
rondo_result rd_start_all(const rd_start *starts, int n, const rd_watch_starts *watch);

#endif
