/* SPDX-License-Identifier: Apache-2.0
 *
 * record.h - the flight record of a communicator, in memory (include/rondo_record.h has its written form).
 *
 * Written by the thread whose task runs, read by any other at any time: every word is an atomic of its own, so a reader
 * may see an entry half old and half new, once in 1,024 calls, and nothing worse.
 */
#ifndef RD_CORE_RECORD_H
#define RD_CORE_RECORD_H

#include "core/call.h"
#include "rondo_record.h"

#include <stdatomic.h>

typedef struct rd_entry {
    _Atomic uint64_t number; /* 0: none */
    _Atomic uint8_t kind, collective, dtype, op;
    _Atomic uint32_t together;
    _Atomic int32_t root, result;
    _Atomic uint64_t count;
    _Atomic uint64_t begun, ended; /* ticks; 0: not yet looked at the clock, not ended */
    _Atomic uint64_t unused[2];    /* a line to each */
} rd_entry;

typedef struct rd_recorder {
    _Atomic uint64_t begun; /* entries so far */
    uint64_t ticks;         /* when it was made, by two clocks */
    int64_t ns;
    rd_entry entries[RONDO_RECORD_CALLS];
} rd_recorder;

rondo_result rd_recorder_open(rd_recorder **recorder);
/* Returns the entry's index, from 0, to be ended. Until rd_record_time it begins when it is read: a look at the clock
 * takes 10 ns, so who is in a hurry leaves it until there is something to wait for. */
uint64_t rd_record_begin(rd_recorder *recorder, const rd_call *calls, int together, uint64_t number);
void rd_record_time(rd_recorder *recorder, uint64_t index);
/* at_once: it took some microseconds at most, and looking at the clock again would be a good part of that. */
void rd_record_end(rd_recorder *recorder, uint64_t index, rondo_result result, bool at_once);

/* The latest collective (RD_KIND_SPLIT too), or the latest send or recv that has not ended. false: none. */
bool rd_record_latest(const rd_recorder *recorder, bool collective, rondo_record_call *call);
/* As they are now, oldest first; room for RONDO_RECORD_CALLS. Returns how many. */
int rd_record_read(const rd_recorder *recorder, rondo_record_call *calls);

/* ---- Of all communicators of the process ---- */

/* From now on it is among those that rd_records_dump writes; makes RONDO_RECORD's directory, or warns. */
void rd_record_enlist(rondo_comm *comm);
void rd_record_delist(rondo_comm *comm);
/* A memfd that holds the records of all communicators; -1: none could be made. */
int rd_records_dump(void);
/* Writes the communicator's record into the directory that RONDO_RECORD names, once. */
void rd_record_write(rondo_comm *comm);

#endif
