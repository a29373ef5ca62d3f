/* SPDX-License-Identifier: Apache-2.0
 *
 * flight.h - `rondo doctor` on flight records (include/rondo_record.h): what ranks called last.
 *
 *   flight.c        reading records, which may be damaged, and saying a call in words
 *   flight_ask.c    asking a running process: rondo doctor --pid
 *   flight_merge.c  those of all ranks side by side: who differs, who is late, whose message nobody takes
 *   flight_said.c   the same as text and as JSON: rondo doctor --merge
 */
#ifndef RD_CLI_FLIGHT_H
#define RD_CLI_FLIGHT_H

#include "rondo.h"
#include "rondo_record.h"

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* ---- Records ---- */

/* One rank's record of one communicator. */
typedef struct rd_flight {
    rondo_record_header header; /* its texts have an end, and nothing in them that a terminal would obey */
    rondo_record_call *calls;
} rd_flight;

typedef struct rd_flights {
    rd_flight *list;
    int count;
} rd_flights;

/* Adds the blocks of a file, which may be none. On error those before the damage are there; rd_last_error() says what
 * is wrong with `name`. */
rondo_result rd_flights_load(rd_flights *flights, int fd, const char *name);
void rd_flights_free(rd_flights *flights);

/* ---- Calls in words ---- */

enum { RD_FLIGHT_TEXT = 192 };

/* "rondo_all_reduce of 8 float32, sum" */
void rd_flight_call_text(const rondo_record_call *call, char text[RD_FLIGHT_TEXT]);
/* "call 7", "calls 5-7", "message 2" */
void rd_flight_number_text(const rondo_record_call *call, char text[RD_FLIGHT_TEXT]);
/* "running", "done", or the error. */
const char *rd_flight_state(const rondo_record_call *call);
bool rd_flight_is_message(const rondo_record_call *call);
bool rd_flight_reduces(const rondo_record_call *call);
bool rd_flight_has_root(const rondo_record_call *call);
/* When it began, before the record was written; how long it took, or has taken by then. Seconds. */
double rd_flight_age(const rd_flight *flight, const rondo_record_call *call);
double rd_flight_took(const rd_flight *flight, const rondo_record_call *call);
/* "0.00055 s"; "short" where it had nothing to wait for, which the library does not measure. */
void rd_flight_took_text(const rd_flight *flight, const rondo_record_call *call, char text[32]);
json_object *rd_flight_call_json(const rd_flight *flight, const rondo_record_call *call);
/* The first four bytes of the job's name, as file names have them. */
void rd_flight_job_text(const unsigned char job[16], char text[9]);
/* An object with the job's whole name, the communicator's number, and its size. */
json_object *rd_flight_json(const rondo_record_header *header);

/* ---- Of all ranks ---- */

/* A send without its receive, or the reverse, or two that do not match. */
typedef struct rd_lonely {
    int from, to;
    const rondo_record_call *call, *other; /* other: the partner, of another count or type; NULL: there is none */
} rd_lonely;

typedef enum rd_trouble {
    RD_TROUBLE_NONE,
    RD_TROUBLE_ENDED,
    RD_TROUBLE_MESSAGE,
    RD_TROUBLE_LATE,
    RD_TROUBLE_MISSING,
    RD_TROUBLE_DIFFERS
} rd_trouble;

/* One communicator. Points into the flights. */
typedef struct rd_merged {
    const rd_flight **of;           /* by rank; NULL: there is no record */
    const rondo_record_call **last; /* by rank: its latest collective; NULL: none is in its record */
    const rondo_record_call **at;   /* by rank: its call number `differs`; NULL: not in its record */
    const rd_flight *any;
    int size, records;
    uint64_t differs;     /* the first call that is not the same everywhere; 0: none */
    uint64_t least, most; /* numbers of the ranks' latest collectives */
    rd_lonely *lonely;
    int lonely_count;
    rd_trouble trouble; /* the worst */
    char *verdict;      /* in a sentence */
} rd_merged;

/* Sorts the flights, and makes one of each communicator. RONDO_SYSTEM_ERROR: no memory. */
rondo_result rd_flights_merge(rd_flights *flights, rd_merged **merged, int *count);
void rd_merged_free(rd_merged *merged, int count);
/* Tests of a rank: whether its latest collective lies before another one's; whether it has no record; whether it has
 * the call `context` (a rondo_record_call) where they differ. */
typedef bool rd_merged_test(const rd_merged *merged, int rank, const void *context);
rd_merged_test rd_merged_is_late, rd_merged_is_missing, rd_merged_calls_alike;
/* "rank 3", "ranks 0, 2-4": those that pass. Returns how many. */
int rd_merged_say_ranks(FILE *to, const rd_merged *merged, rd_merged_test *test, const void *context);
/* What another rank would have to do for this message: "rank 1 has not called rondo_recv for it". */
void rd_lonely_text(const rd_lonely *lonely, char text[3 * RD_FLIGHT_TEXT]);

/* ---- Ways in: the exit status ---- */

int rd_flight_ask(int pid, int calls, const char *save, bool json);
int rd_flight_merge(const char *directory, bool json);

#endif
