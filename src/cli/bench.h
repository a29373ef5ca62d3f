/* SPDX-License-Identifier: Apache-2.0
 *
 * bench.h - `rondo bench`: what a collective costs per size, beside what the machine allows.
 *
 *   bench.c          starts the ranks or joins them; sets them up; row after row
 *   bench_options.c  the command line
 *   bench_machine.c  processors, and words about the machine
 *   bench_data.c     what the buffers hold, and what they must hold afterwards
 *   bench_algo.c     which algorithm each row runs
 *   bench_measure.c  one row
 *   bench_device.c   buffers in GPU memory
 *   bench_report.c   the table
 *   bench_json.c     the same for programs
 *   bench_startup.c  --startup: how long ranks take to be there, and what they hold
 *   bench_limits.c   limits: what the machine allows, without Rondo
 */
#ifndef RD_CLI_BENCH_H
#define RD_CLI_BENCH_H

#include "cli/limits.h"
#include "rondo.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- Options ---- */

typedef enum rd_bench_collective {
    RD_BENCH_ALL_REDUCE,
    RD_BENCH_REDUCE_SCATTER,
    RD_BENCH_ALL_GATHER,
    RD_BENCH_BROADCAST,
    RD_BENCH_REDUCE,
    RD_BENCH_GATHER,
    RD_BENCH_SCATTER,
    RD_BENCH_ALL_TO_ALL,
    RD_BENCH_SENDRECV, /* each rank sends to the next and receives from the one before, in a group */
    RD_BENCH_BARRIER,
    RD_BENCH_COLLECTIVES
} rd_bench_collective;

extern const char *const rd_bench_names[RD_BENCH_COLLECTIVES];

typedef enum rd_bench_check { RD_CHECK_NONE, RD_CHECK_ONCE, RD_CHECK_EVERY } rd_bench_check;

typedef struct rd_bench_options {
    rd_bench_collective collective;
    int ranks;          /* 0: not said */
    size_t least, most; /* bytes */
    double factor;
    rondo_dtype dtype;
    rondo_op op;
    int root;
    const char *transport, *algo; /* NULL: as the environment or the library says */
    int iterations, warm_up;      /* iterations 0: by time */
    rd_bench_check check;
    const char *json; /* file; NULL: none */
    size_t misalign;  /* elements */
    bool out_of_place, reuse, shareable, pin, limits;
    bool cuda; /* buffers are in the memory of GPUs */
    bool progress; /* standard error of whoever started this is a terminal */
    size_t plant;  /* wrong elements to put into the last rank's result: shows that the check can fail */
} rd_bench_options;

/* -1: go on; else the exit status (after --help, or saying what is wrong). */
int rd_bench_parse(rd_bench_options *options, int argc, char **argv);

bool rd_bench_reduces(rd_bench_collective collective);
/* Whether `bytes`, the size of a row, is that of all ranks' parts together. */
bool rd_bench_gathers(rd_bench_collective collective);
/* Whether there is a zero-copy bound of it: of those that are messages between ranks there is none. */
bool rd_bench_has_bound(rd_bench_collective collective);

/* ---- The machine ---- */

/* Binds this rank to a core if there is a processor for each rank on this host: cores in order, then their siblings.
 * To be called before a communicator is made, which looks at bindings. */
void rd_bench_pin(void);
/* The same for one of the `ranks` of this host, by its number. */
void rd_bench_pin_to(int rank, int ranks);
/* The processor that this process is bound to, whoever did it; -1: to none in particular. */
int rd_bench_cpu(void);
/* "core", "L3" or "host": the least that two neighbours of these processors share, by hwloc; NULL: not known. */
const char *rd_bench_topo_place(const int32_t *cpus, int count);
/* Whether this is rank 0, or no rank. */
bool rd_bench_is_first(void);
/* "AMD EPYC ..., 2 processors, Linux 6.1.0" */
void rd_bench_machine(char *text, size_t bytes);
/* What pages large private allocations have: "4 KiB pages". */
void rd_bench_pages(char *text, size_t bytes);
size_t rd_bench_free_bytes(void);

/* ---- Data ---- */

/* Element i of rank r is value(r, i), which repeats after a prime number of elements. Small whole numbers: every
 * reduction is exact in every type. */
typedef struct rd_bench_data {
    rondo_dtype dtype;
    rondo_op op;
    int rank, size;
    unsigned char *own, *result, *other; /* one period each: this rank's, the reduction's, any rank's */
} rd_bench_data;

rondo_result rd_data_open(rd_bench_data *data, rondo_dtype dtype, rondo_op op, int rank, int size);
void rd_data_close(rd_bench_data *data);
/* Writes this rank's elements 0 ... count-1. */
void rd_data_fill(const rd_bench_data *data, void *buffer, size_t count);
/* How many of `count` elements differ from the reduction's elements from `first` on, or from rank `rank`'s. */
size_t rd_data_wrong_result(const rd_bench_data *data, const void *buffer, size_t count, size_t first);
size_t rd_data_wrong_copy(rd_bench_data *data, const void *buffer, size_t count, size_t first, int rank);

/* ---- Measuring ---- */

/* What stands for main and spare in a GPU's memory. */
typedef struct rd_twins {
    void *main, *spare;
    int device;
    bool retained;
} rd_twins;

/* One rank of a run; its buffers are made once, for the largest row. */
typedef struct rd_bench {
    const rd_bench_options *options;
    rondo_comm *comm;
    int rank, size;
    bool one_host;
    bool crowded; /* ranks take turns on processors */
    const char *topo_place; /* what the processors share at least, as rd_row's placement; NULL: not known */
    const char *transport;
    rd_commons pages;
    rd_meeting meeting;         /* on one host */
    rd_commons shared;          /* the zero-copy bound's buffers; of NULL: none */
    unsigned char **from, **to; /* by rank, in shared */
    rd_streams streams;
    bool has_streams;
    rd_bench_data data;
    unsigned char *main, *spare; /* spare: results out of place, and copies; may be NULL without either */
    rd_twins twins;              /* with options->cuda */
    int row, rows;               /* for progress */
} rd_bench;

/* Which device the rank uses: the host, or of its GPUs, which the ranks of a host take in turn, one. */
rondo_result rd_twins_choose(rd_bench *bench, rondo_config *config);
rondo_result rd_twins_open(rd_bench *bench, size_t bytes);
void rd_twins_close(rd_bench *bench);
/* What a call is given for an address in main or spare (whose rows have `room` bytes): it, or its twin. */
void *rd_twin(const rd_bench *bench, unsigned char *at, size_t room);
/* `bytes` of both buffers, to their twins and back. */
rondo_result rd_twins_put(const rd_bench *bench, size_t bytes);
rondo_result rd_twins_get(const rd_bench *bench, size_t bytes);

typedef struct rd_row {
    size_t bytes, count;
    const char *algorithm;
    int calls, attempts;
    double min_us, median_us, max_us, p99_us;
    double algbw, busbw; /* GB/s, by the median */
    bool checked;
    uint64_t wrong;
    double limit_us, copy_us; /* 0: none */
    const char *limit_name;
    bool limit_is_wrong;
    const char *placement;
    double round_trip_ns; /* the last one; 0: none */
} rd_row;

enum { RD_BENCH_MOST_CALLS = 100000 };

/* Bytes on a link per byte of message (2(N-1)/N of an all-reduce): busbw is algbw times this. */
double rd_bench_factor(rd_bench_collective collective, int size);
/* The collective once, on whatever the buffers hold. */
rondo_result rd_bench_call_once(rd_bench *bench, size_t bytes);
/* The algorithm of every row, by one untimed call of each. Every rank calls it. */
rondo_result rd_bench_find_algorithms(const rd_bench *bench, const size_t *sizes, rd_row *rows);
/* Every rank calls it and gets the same row. Leaves row->algorithm as it is. */
rondo_result rd_bench_measure(rd_bench *bench, size_t bytes, rd_row *row);

/* ---- Reporting ---- */

void rd_bench_print_head(const rd_bench *bench, const char *cpus);
void rd_bench_print_row(const rd_bench *bench, const rd_row *row);
void rd_bench_print_foot(const rd_bench *bench, const rd_row *rows, int count);
/* False when the file cannot be written, which it says. */
bool rd_json_check(const char *path);
bool rd_json_write(const rd_bench *bench, const rd_row *rows, int count);

/* ---- Starting ---- */

/* `rondo bench --startup`, whose options are its own. Returns the exit status. */
int rd_bench_startup(int argc, char **argv);
/* `rondo bench limits`; argv[0] is that word. */
int rd_bench_limits(int argc, char **argv);

#endif
