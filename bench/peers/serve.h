/* SPDX-License-Identifier: Apache-2.0
 *
 * serve.h - one way of measuring for all: ranks of a contestant that wait, asleep, to be told what to time. So several
 * libraries can take turns within milliseconds, on the same two cores, while the others use no processor.
 *
 * A program's arguments are PAGE, a file in memory that its ranks share, and CPUS, the processors to bind them to
 * ("0,1"; "-" binds none). Rank 0 reads lines "KIND BYTES CALLS" and answers each with one line "MIN MEDIAN MAX BEFORE
 * AFTER TRIP WRONG": microseconds of the slowest rank, what the ranks shared before and after (limits.h), a flag's
 * round trip in nanoseconds, and how many elements of the last result were wrong on all ranks.
 *
 * Kinds that every contestant knows: "call", in place in private memory with 4 KiB pages, 16 bytes behind a page's
 * beginning, where malloc's large buffers are; "aligned" and "odd", 0 and 4 bytes behind it; "out", from one buffer
 * like that of "call" to another; "huge", in place in memory with 2 MiB pages (madvise), where the kernel gives them.
 */
#ifndef PEERS_SERVE_H
#define PEERS_SERVE_H

#include <stdbool.h>
#include <stddef.h>

/* What a block of calls of one kind is about. */
typedef struct peers_block {
    float *from, *to; /* equal: in place */
    /* What a rank writes over its buffer before each call, again and again, and what all have as often afterwards:
     * PEERS_PERIOD elements. By default whole numbers in float32, and their sums. */
    const void *mine, *result; /* no result: the call makes none (limits only move the bytes) */
    size_t element;            /* bytes */
} peers_block;

typedef struct contestant {
    /* Calls of this kind follow; the block has what serve.c knows of it, which is all for the kinds above. Without
     * buffers there is no such kind. NULL: the contestant has no others. */
    void (*choose)(const char *kind, peers_block *block);
    /* A float32 sum over all ranks, unless the kind is another, of so many times four bytes. False when it failed,
     * which it says. */
    bool (*call)(const float *from, float *to, size_t count);
    /* Its own threads do the work, so a rank that waits for the others must let them run: it sleeps, and the flag's
     * round trip is not measured. */
    bool has_threads;
} contestant;

enum { PEERS_MOST_BYTES = 64 << 20, PEERS_PERIOD = 1021 };

/* Binds this process, before its library starts: by the local rank that the launcher gave it. */
void peers_bind(int argc, char **argv);
/* Serves until the input ends. The exit status. */
int peers_serve(int argc, char **argv, int rank, int size, const contestant *who);
/* Memory like that of "call". */
float *peers_private_buffer(size_t bytes);
/* Where ranks meet: valid while peers_serve() runs. */
struct rd_meeting *peers_meeting(void);

#endif
