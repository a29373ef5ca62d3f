/* SPDX-License-Identifier: Apache-2.0
 *
 * bind.h - on which processing units the ranks of a node may run: `rondo run --bind`.
 */
#ifndef RD_CLI_BIND_H
#define RD_CLI_BIND_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

/* One set of CPUs (the system's numbers) for each rank of the node. */
typedef struct rd_bindings {
    int ranks;
    size_t bytes; /* of a set */
    cpu_set_t **sets;
} rd_bindings;

/* how: "core", "l3", "numa", "package", "gpu", or lists such as "0-3/4-7". With `explain` each rank's is told on
 * standard error. Returns 0, or the exit status after saying what is wrong; rd_bindings_free in any case. */
int rd_bind_plan(rd_bindings *bindings, const char *how, int ranks, bool explain);
void rd_bindings_free(rd_bindings *bindings);

/* How many CPUs this process may use; 0: that cannot be told. */
int rd_cpus_allowed(void);

/* The calling thread from now on; false + errno. */
bool rd_bind_here(const rd_bindings *bindings, int rank);

/* The --bind that gives each rank as much as there is one of for each: "numa", "l3", "core"; else, if as many ranks can
 * take turns on each core, "core"; NULL: neither. */
const char *rd_bind_suggest(int ranks, bool *each_its_own);

/* Adds a number to a list of ranges: "0-3,8". *last: -2 at first. */
void rd_cpulist_add(char *text, size_t room, int number, int *last);

#endif
