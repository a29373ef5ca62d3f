/* SPDX-License-Identifier: Apache-2.0
 *
 * team.h - a few ranks of the tool's own: forked processes that join one communicator as those of any job do.
 */
#ifndef RD_CLI_TEAM_H
#define RD_CLI_TEAM_H

#include "rondo.h"

#include <stdbool.h>
#include <sys/types.h>

enum { RD_TEAM_RANKS = 8 };

typedef struct rd_team {
    int ranks;
    double timeout_s;                      /* of start-up and of each call; a rank that is not done then is killed */
    const char *const (*environment)[2];   /* name and value (NULL: unset) for the ranks, up to a NULL name */
    /* What each rank does. What it finds out goes into memory of rd_team_memory(). */
    rondo_result (*run)(rondo_comm *comm, int rank, void *context);
    void *context;
} rd_team;

/* Runs them to their end. False when one fails; then text says which, and why. */
bool rd_team_run(const rd_team *team, char *text, size_t bytes);

/* Zeroed memory that the ranks share with the caller; NULL when there is none. */
void *rd_team_memory(size_t bytes);
void rd_team_memory_free(void *memory, size_t bytes);

#endif
