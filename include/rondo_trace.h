/* SPDX-License-Identifier: Apache-2.0
 *
 * rondo_trace.h - what the executor did, slice by slice: the format of the file that RONDO_TRACE=FILE names.
 *
 * The file is a sequence of 64-byte records, little-endian, without a header. All ranks of a job (on one host, or on a
 * shared file system) append to the same file, many records at a time and whole ones only; records of one rank are in
 * the order in which it acted, those of different ranks interleave anyhow. `time_ns` (CLOCK_MONOTONIC) orders those of
 * one host. A file that exists is appended to: remove it first.
 *
 * A call of one rank is a CALL record, then a SEND record for each slice it sent and a RECEIVE record for each slice it
 * received, then an END record; a strict sum that is a reduce and a broadcast has both, with one number. A slice that is
 * passed on in the same pass gives a RECEIVE and a SEND with one time.
 */
#ifndef RONDO_TRACE_H
#define RONDO_TRACE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RONDO_TRACE_VERSION 1

typedef enum rondo_trace_kind {
    RONDO_TRACE_CALL = 1,
    RONDO_TRACE_SEND = 2,
    RONDO_TRACE_RECEIVE = 3,
    RONDO_TRACE_END = 4
} rondo_trace_kind;

/* SEND and RECEIVE: one slice at one step of the plan. */
typedef struct rondo_trace_slice {
    int32_t step;     /* of the plan, from 0; RONDO_OPENING (-1): its opening, and chunk is RONDO_EMPTY (rondo_plan.h) */
    int32_t peer;     /* the rank that it goes to or comes from */
    int32_t chunk;    /* which chunk it is a slice of */
    uint32_t slice;   /* its number within the chunk (and channel), from 0 */
    uint64_t first;   /* its first element, counted from the start of the message */
    uint32_t count;   /* its elements; 0 for an empty one, which travels all the same */
    uint32_t bytes;   /* that travelled; 0 when the peer's memory was used in place */
    uint16_t channel;
    uint8_t action;   /* RECEIVE: rondo_action (rondo_plan.h): replaced, reduced, finished */
    uint8_t wide;     /* 1: it travelled in the accumulation type */
    uint32_t own;     /* SEND: 1: this rank's own input, not passed on */
} rondo_trace_slice;

/* CALL: what was called. END repeats it. */
typedef struct rondo_trace_call {
    uint64_t count;   /* elements of the whole message */
    uint16_t collective, algo; /* rondo_collective, rondo_algo */
    uint16_t dtype, op;        /* rondo_dtype, rondo_op */
    int32_t size;     /* ranks */
    int32_t root;
    int32_t position; /* of this rank on the ring */
    uint16_t channels;
    uint16_t result;  /* END: rondo_result */
    uint64_t reserved;
} rondo_trace_call;

typedef struct rondo_trace_record {
    uint8_t version;  /* RONDO_TRACE_VERSION */
    uint8_t kind;     /* rondo_trace_kind */
    uint16_t comm;    /* distinguishes the communicators of a process, from 0 */
    int32_t rank;
    uint64_t call;    /* number of the call on this communicator, from 1 */
    uint64_t time_ns;
    union {
        rondo_trace_slice slice;
        rondo_trace_call made;
        unsigned char bytes[40];
    } of;
} rondo_trace_record;

#ifdef __cplusplus
}
#endif

#endif
