/* SPDX-License-Identifier: Apache-2.0
 *
 * Which algorithm the library takes for each size is its own affair, and it tells in its trace. So every size is called
 * once on a communicator that is traced, apart from the one that is timed.
 */
#include "base/env.h"
#include "base/status.h"
#include "cli/bench.h"
#include "rondo_plan.h"
#include "rondo_trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *name_of(unsigned algo)
{
    static const char *const names[] = {
        [RONDO_ALGO_RING] = "ring", [RONDO_ALGO_FLAT] = "flat", [RONDO_ALGO_EXCHANGE] = "exchange",
        [RONDO_ALGO_PEERS] = "peers", [RONDO_ALGO_HIER] = "hier"};
    return algo < sizeof names / sizeof *names ? names[algo] : "unknown";
}

/* A communicator of the same ranks whose calls leave records in `file`. */
static rondo_result init_traced(rondo_comm **comm, int device, int file)
{
    char path[64];
    const char *own = rd_env("RONDO_TRACE");
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    char *kept = own ? strdup(own) : NULL;
    setenv("RONDO_TRACE", path, 1);
    rondo_config config = RONDO_CONFIG_INIT;
    config.device = device;
    rondo_result result = rondo_init_env(comm, &config);
    if (kept)
        setenv("RONDO_TRACE", kept, 1);
    else
        unsetenv("RONDO_TRACE");
    free(kept);
    return result;
}

/* The calls' records, in order, become the rows' algorithms. */
static void read_trace(int file, rd_row *rows, int count)
{
    rondo_trace_record record;
    int row = 0;
    off_t at = 0;
    for (; row < count && pread(file, &record, sizeof record, at) == (ssize_t)sizeof record; at += (off_t)sizeof record)
        if (record.version == RONDO_TRACE_VERSION && record.kind == RONDO_TRACE_CALL)
            rows[row++].algorithm = name_of(record.of.made.algo);
    while (row < count) rows[row++].algorithm = "unknown";
}

rondo_result rd_bench_find_algorithms(const rd_bench *b, const size_t *sizes, rd_row *rows)
{
    rd_bench traced = *b;
    if (b->options->collective == RD_BENCH_SENDRECV) { /* which has no plan, nor records of one */
        for (int row = 0; row < b->rows; row++) rows[row].algorithm = "messages";
        return RONDO_SUCCESS;
    }
    int file = memfd_create("rondo bench trace", MFD_CLOEXEC);
    if (file < 0) return rd_fail_errno("memfd_create");
    rondo_result result = init_traced(&traced.comm, b->twins.device, file);
    if (result == RONDO_SUCCESS) {
        for (int row = 0; row < b->rows && result == RONDO_SUCCESS; row++)
            result = rd_bench_call_once(&traced, sizes[row]);
        if (result == RONDO_SUCCESS) result = rondo_barrier(traced.comm, NULL);
        read_trace(file, rows, b->rows);
        rondo_comm_destroy(traced.comm);
    }
    close(file);
    return result;
}
