/* SPDX-License-Identifier: Apache-2.0
 *
 * rondo_record.h - the flight record: what a rank called last.
 *
 * Every communicator keeps its last RONDO_RECORD_CALLS calls in memory. They are written when the communicator ends by an
 * error and RONDO_RECORD names a directory (one file for each rank: HOST.PID.JOB.NUMBER.RANK.rec), and when `rondo doctor
 * --pid PID` asks. `rondo doctor --merge DIR` reads those of all ranks and says who is late, or wrong, and where.
 *
 * The form: one or more blocks, each a rondo_record_header and `calls` rondo_record_call, oldest first; numbers in the
 * byte order of the machine that wrote them.
 */
#ifndef RONDO_RECORD_H
#define RONDO_RECORD_H

#include <stdint.h>

#define RONDO_RECORD_MAGIC "rndo rec"
#define RONDO_RECORD_VERSION 1
#define RONDO_RECORD_CALLS 1024

typedef struct rondo_record_header {
    char magic[8];           /* RONDO_RECORD_MAGIC, without a zero */
    uint32_t version;        /* RONDO_RECORD_VERSION */
    uint32_t bytes;          /* of this header */
    uint32_t call_bytes;     /* sizeof(rondo_record_call) */
    uint32_t calls;          /* that follow */
    uint8_t job[16];         /* with comm_number: which communicator; the same on all its ranks */
    uint32_t comm_number;
    int32_t rank, size, pid;
    int32_t result;          /* rondo_result that ended the communicator, or 0 */
    uint32_t unused;
    uint64_t written_ns;     /* CLOCK_REALTIME */
    char host[64];
    char error[512];         /* why it has ended */
} rondo_record_header;

/* What kind of call. */
enum {
    RONDO_RECORD_COLLECTIVE = 0, /* a rondo_collective of rondo_plan.h */
    RONDO_RECORD_SPLIT = 1,
    RONDO_RECORD_SEND = 2,
    RONDO_RECORD_RECV = 3,
    RONDO_RECORD_BARRIER = 4
};

typedef struct rondo_record_call {
    uint64_t number;      /* of the call on this communicator; of send and recv: of the message between the two, from 1 */
    uint64_t begun_ns;    /* CLOCK_REALTIME when it began to run, exact to some microseconds */
    uint64_t ended_ns;    /* 0: it has not ended; of the shortest calls just after begun_ns */
    uint64_t count;       /* as the caller gave it; of several that ran as one the sum */
    uint64_t bytes;       /* of these elements */
    int32_t root;         /* or the peer of send and recv */
    int32_t result;       /* rondo_result; RONDO_IN_PROGRESS until it has ended */
    uint8_t kind, collective, dtype, op;
    uint32_t together;    /* calls that ran as one */
    uint64_t unused;
} rondo_record_call;

#endif
