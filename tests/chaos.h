/* SPDX-License-Identifier: Apache-2.0
 *
 * chaos.h - random calls with a random fault among them, as build/chaos makes them (`make chaos`). A round is known by
 * its seed: size, transport, calls, data and fault follow from it; only the very moment of the fault does not.
 *
 *   chaos.c        the rounds: starts ranks, does the fault to one, and ends who hangs
 *   chaos_rank.c   a rank of a round, and what it must have seen
 *   chaos_calls.c  the calls, and their results
 */
#ifndef RONDO_TEST_CHAOS_H
#define RONDO_TEST_CHAOS_H

#include "ranks.h"

#include <stdint.h>

#define CHAOS_RANKS     8
#define CHAOS_CALLS     24
#define CHAOS_TIMEOUT_S 3
#define CHAOS_GRACE_S   3 /* what a call may take beyond its timeout */

typedef enum fault {
    FAULT_NONE,
    FAULT_KILL,
    FAULT_KILL_START, /* while the communicator is made */
    FAULT_STOP_1,     /* a stop of one second: everything completes */
    FAULT_STOP_10,    /* for longer than the timeout */
    FAULT_EXIT,       /* exit() without destroy */
    FAULT_ABORT,
    FAULT_DELAY, /* up to a second: everything completes */
    FAULTS
} fault;

typedef enum deed {
    DEED_ALL_REDUCE,
    DEED_REDUCE_SCATTER,
    DEED_ALL_GATHER,
    DEED_BROADCAST,
    DEED_REDUCE,
    DEED_GATHER,
    DEED_SCATTER,
    DEED_ALL_TO_ALL,
    DEED_BARRIER,
    COLLECTIVE_DEEDS,
    DEED_MESSAGES = COLLECTIVE_DEEDS, /* everyone to some others, in a group */
    DEED_GROUP,                       /* several collectives in a group */
    DEED_STREAM,                      /* several on a stream */
    DEED_SPLIT,                       /* a split, and some on the child */
    DEEDS
} deed;

typedef struct chaos_call {
    deed deed;
    uint32_t bytes; /* of the larger buffer, about */
    uint32_t seed;  /* of the rest: root, operator, peers, colours */
} chaos_call;

/* What the ranks of a round share with who watches over them. */
typedef struct chaos_shared {
    _Atomic int progress[CHAOS_RANKS]; /* 1 + the call that it is in; 1 + the number of calls: at the end */
    _Atomic int failed[CHAOS_RANKS];   /* 1 + rondo_result: what the communicator ended with there */
    _Atomic int completed[CHAOS_RANKS];
    _Atomic int child_failed;    /* a call on a communicator that was split off */
    _Atomic int struck;          /* a stop is over */
    double slowest[CHAOS_RANKS]; /* call */
} chaos_shared;

typedef struct chaos_round {
    uint64_t seed;
    int n, calls, victim, at; /* at: the call in or before which the fault comes */
    fault fault;
    int delay_us; /* from the beginning of that call */
    bool inside;  /* exit: by another thread, while the call runs */
    const char *transport, *algo;
    chaos_call call[CHAOS_CALLS];
    rondo_unique_id id;
    chaos_shared *shared;
} chaos_round;

uint64_t chaos_random(uint64_t *state); /* and moves it on */
uint32_t chaos_below(uint64_t *state, uint32_t limit);

/* In a rank's process; ends it. */
void chaos_be_rank(chaos_round *round, int rank) __attribute__((noreturn));

/* ---- chaos_calls.c ---- */

/* Makes the call with this number and checks what it brought. *on_child: the error, if there is one, may be that of a
 * communicator made here. */
rondo_result chaos_make(rondo_comm *comm, const chaos_call *call, int number, bool *on_child);
/* Where a communicator must work: some calls, checked. */
void chaos_must_work(rondo_comm *comm, int number);
/* Frees what the calls left: buffers and the stream. */
void chaos_calls_end(void);
/* The longest that a call of the library took here. */
double chaos_slowest(void);
/* Who is stopped himself may take so much longer. */
void chaos_allow(double seconds);
/* The time for a call, and for what never waits. */
double chaos_limit(void);
double chaos_moment(void);

#endif
