/* SPDX-License-Identifier: Apache-2.0
 *
 * trial.h - one collective call whose result is known, in guarded buffers; and the ways to carry it out on one host.
 */
#ifndef RONDO_TEST_TRIAL_H
#define RONDO_TEST_TRIAL_H

#include "rondo_plan.h"
#include "ranks.h"

/* In a rank: the call succeeds. */
#define SUCCEEDS(call, comm) CHECK((call) == RONDO_SUCCESS, "%s", rondo_last_error(comm))

/* Transport and algorithm, by the environment of ranks started from now on. */
struct way {
    const char *name, *transport, *algo;
};
enum { WAY_FLAT, WAY_RING, WAY_TCP, WAY_AUTO, WAY_EXCHANGE, WAYS };
extern const struct way ways[WAYS];
void way_take(const struct way *way);

/* Memory between two guards, `skew` bytes off a cache line; shared: from rondo_mem_alloc. Free by guard_end, which is
 * false when a guard was hurt. */
unsigned char *guard_begin(size_t bytes, size_t skew, bool shared);
bool guard_end(unsigned char *memory, size_t bytes);

/* What trials can call: the collectives that come first. */
#define TRIAL_COLLECTIVES (RONDO_COLL_REDUCE + 1)

typedef struct trial {
    rondo_collective collective;
    rondo_dtype dtype;
    rondo_op op;
    int root;
    size_t count; /* as the call has it */
    bool in_place;
    size_t skew;
    uint64_t shared; /* seed of which buffers on which ranks are shared; 0: none */
    uint64_t seed;   /* of the data */
} trial;

/* Any collective, type, operator, root and memory, drawn from a seed; the count is the caller's. */
trial trial_draw(uint64_t seed, int n, size_t count);

/* Elements in each buffer, and where in the larger one the smaller one lies in place. */
size_t trial_sends(const trial *t, int n);
size_t trial_receives(const trial *t, int n);

void trial_fill(const trial *t, int rank, int n, void *send);
/* Does recv hold what it must after the call? If not, text says what is wrong. */
bool trial_holds(const trial *t, int rank, int n, const void *recv, char *text, size_t bytes);
rondo_result trial_call(const trial *t, const void *send, void *recv, rondo_comm *comm);

/* All of it, in a rank: the call succeeds, its result is exact, nothing else was written. */
void trial_run(const trial *t, rondo_comm *comm);

/* An all-reduce of a few numbers: the communicator works. */
void trial_still_works(rondo_comm *comm, uint64_t seed);

const char *trial_name(const trial *t, char *text, size_t bytes);

#endif
