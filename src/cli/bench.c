/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench.h"

#include "base/dtype.h"
#include "base/env.h"
#include "base/status.h"
#include "cli/cli.h"
#include "cli/dp_vs_ddp.h"
#include "cli/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 64, MOST_ROWS = 4096 };

/* ---- Starting ranks ---- */

/* Whether a launcher made this process one of several; whether it can be joined is the library's to say. */
static bool is_rank(void)
{
    const char *step = rd_env("SLURM_STEP_NUM_TASKS"); /* of srun, not of a batch script */
    return rd_env("RANK") || rd_env("WORLD_SIZE") || rd_env("OMPI_COMM_WORLD_RANK") || rd_env("PMI_RANK") ||
           (step && atoi(step) > 1);
}

/* Runs this very command as the ranks of a job. */
static int start_ranks(const rd_bench_options *options, int argc, char **argv)
{
    char **program = calloc((size_t)argc + 3, sizeof *program);
    if (!program) return 1;
    program[0] = "/proc/self/exe";
    program[1] = "bench";
    program[2] = isatty(STDERR_FILENO) ? "--progress" : "--limits";
    memcpy(program + 3, argv + 1, ((size_t)argc - 1) * sizeof *program);
    int ranks = options->ranks ? options->ranks : 2;
    rd_run_options run = {.workers = ranks, .nodes = 1, .grace_s = 5, .program = program};
    int status = rd_watch(&run);
    free(program);
    return status;
}

/* ---- Setting up ---- */

/* Whether ranks must take turns, and in words where they are bound. */
static rondo_result look_at_cpus(rd_bench *b, char *text, size_t bytes)
{
    int32_t *cpus = malloc((size_t)b->size * sizeof *cpus);
    size_t used = 0;
    bool bound = true;
    if (!cpus) return rd_fail_errno("no memory for a list of %d ranks", b->size);
    cpus[b->rank] = rd_bench_cpu();
    rondo_result result = rondo_all_gather(&cpus[b->rank], cpus, 1, RONDO_INT32, b->comm, NULL);
    b->crowded = b->one_host && b->size > sysconf(_SC_NPROCESSORS_ONLN);
    for (int r = 0; r < b->size; r++) {
        bound = bound && cpus[r] >= 0;
        for (int s = 0; s < r && b->one_host; s++) b->crowded = b->crowded || (cpus[r] >= 0 && cpus[r] == cpus[s]);
    }
    if (bound && b->one_host && !b->crowded) b->topo_place = rd_bench_topo_place(cpus, b->size);
    snprintf(text, bytes, "ranks on whichever processors are free");
    if (bound) used = (size_t)snprintf(text, bytes, "ranks bound to processors");
    for (int r = 0; bound && r < b->size && used < bytes; r++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%d", r ? ", " : " ", (int)cpus[r]);
    free(cpus);
    return result;
}

/* What the slowest links of the ring are made of, for which all the others wait. */
static rondo_result look_at_links(rd_bench *b)
{
    static const char *const slower[] = {"shm", "cuda_ipc", "verbs", "tcp"};
    const char *mine = rondo_comm_transport(b->comm);
    int32_t slowest = 0, count = (int32_t)(sizeof slower / sizeof *slower);
    for (int32_t i = 0; mine && i < count; i++)
        if (strcmp(mine, slower[i]) == 0) slowest = i;
    RD_TRY(rondo_all_reduce(&slowest, &slowest, 1, RONDO_INT32, RONDO_MAX, b->comm, NULL));
    if (slowest < 0 || slowest >= count) return rd_fail(RONDO_INTERNAL_ERROR, "links of kind %d", slowest);
    b->transport = slower[slowest];
    return RONDO_SUCCESS;
}

/* Whether every rank finds room for as much on its host; else the kernel would end processes, not refuse. */
static rondo_result ask_for_memory(const rd_bench *b, size_t each, bool *fits)
{
    size_t here = b->one_host ? (size_t)b->size : 1;
    int32_t good = each < rd_bench_free_bytes() / 10 * 9 / here;
    RD_TRY(rondo_all_reduce(&good, &good, 1, RONDO_INT32, RONDO_MIN, b->comm, NULL));
    *fits = good;
    return RONDO_SUCCESS;
}

static rondo_result allocate(rd_bench *b, unsigned char **memory, size_t bytes)
{
    const rd_bench_options *o = b->options;
    size_t shift = o->misalign * rd_dtype_bytes(o->dtype);
    void *made = NULL;
    if (o->shareable)
        RD_TRY(rondo_mem_alloc(&made, bytes + shift, b->comm));
    else
        made = malloc(bytes + shift);
    if (!made) return rd_fail_errno("no memory for a buffer of %zu bytes", bytes + shift);
    *memory = (unsigned char *)made + shift;
    memset(*memory, 0, bytes);
    return RONDO_SUCCESS;
}

static void release(rd_bench *b, unsigned char *memory)
{
    if (!memory) return;
    memory -= b->options->misalign * rd_dtype_bytes(b->options->dtype);
    if (b->options->shareable)
        rondo_mem_free(memory, b->comm);
    else
        free(memory);
}

/* The buffers of the zero-copy bound, if memory allows; without them rows have no limit. */
static rondo_result share_buffers(rd_bench *b, size_t most)
{
    size_t lines = (most + LINE - 1) / LINE * LINE, buffers = b->options->out_of_place ? 2 : 1;
    size_t ranks = (size_t)b->size;
    bool fits = false;
    RD_TRY(ask_for_memory(b, lines * buffers, &fits));
    if (!fits || rd_commons_open(&b->shared, lines * buffers, b->comm) != RONDO_SUCCESS) {
        b->shared.of = NULL;
        if (b->rank == 0) fprintf(stderr, "rondo bench: not enough memory to measure the zero-copy bound as well\n");
        return RONDO_SUCCESS;
    }
    b->from = calloc(2 * ranks, sizeof *b->from);
    if (!b->from) return rd_fail_errno("no memory for a list of %d ranks", b->size);
    b->to = b->from + ranks;
    for (size_t r = 0; r < ranks; r++) {
        b->from[r] = b->shared.of[r];
        b->to[r] = b->from[r] + lines * (buffers - 1);
    }
    return RONDO_SUCCESS;
}

static rondo_result open_limits(rd_bench *b, size_t most)
{
    if (!b->options->limits || b->size == 1 || strcmp(b->transport, "verbs") == 0) return RONDO_SUCCESS;
    if (strcmp(b->transport, "tcp") != 0)
        return rd_bench_has_bound(b->options->collective) ? share_buffers(b, most) : RONDO_SUCCESS;
    b->streams.crowded = b->crowded;
    RD_TRY(rd_streams_open(&b->streams, b->comm, false));
    b->has_streams = true;
    return RONDO_SUCCESS;
}

static rondo_result open_meeting(rd_bench *b)
{
    b->one_host = rd_commons_open(&b->pages, sizeof(rd_page), b->comm) == RONDO_SUCCESS;
    if (!b->one_host) return RONDO_SUCCESS;
    b->meeting = (rd_meeting){.pages = (rd_page **)b->pages.of, .rank = b->rank, .size = b->size};
    return RONDO_SUCCESS;
}

static rondo_result open_bench(rd_bench *b, char *cpus, size_t cpus_bytes)
{
    const rd_bench_options *o = b->options;
    if (o->transport) setenv("RONDO_TRANSPORT", o->transport, 1);
    if (o->algo) setenv("RONDO_ALGO", o->algo, 1);
    rondo_config config = RONDO_CONFIG_INIT;
    RD_TRY(rd_twins_choose(b, &config));
    RD_TRY(rondo_init_env(&b->comm, &config));
    b->rank = rondo_comm_rank(b->comm);
    b->size = rondo_comm_size(b->comm);
    if (o->ranks && o->ranks != b->size)
        return rd_fail(RONDO_INVALID_USAGE,
                       "-n %d, but %d rank%s started; leave -n out when a launcher starts the "
                       "ranks",
                       o->ranks, b->size, b->size == 1 ? " was" : "s were");
    if (o->root >= b->size)
        return rd_fail(RONDO_INVALID_USAGE, "--root %d: with %d ranks it must be from 0 to %d", o->root, b->size,
                       b->size - 1);
    RD_TRY(open_meeting(b));
    RD_TRY(look_at_cpus(b, cpus, cpus_bytes));
    b->meeting.crowded = b->crowded;
    RD_TRY(look_at_links(b));
    return rd_data_open(&b->data, o->dtype, o->op, b->rank, b->size);
}

static rondo_result open_buffers(rd_bench *b, size_t most)
{
    bool two = b->options->out_of_place || b->options->limits, fits = false;
    /* What crosses a link of the ring is at most twice the message. */
    size_t bytes = (strcmp(b->transport, "tcp") == 0 ? 2 * most : most) + LINE;
    RD_TRY(ask_for_memory(b, (two + 1) * bytes, &fits));
    if (!fits)
        return rd_fail(RONDO_INVALID_USAGE,
                       "buffers of %zu bytes for each of %d ranks are more than the memory that is "
                       "free; lower --max-bytes or -n",
                       (two + 1) * bytes, b->size);
    RD_TRY(allocate(b, &b->main, bytes));
    if (two) RD_TRY(allocate(b, &b->spare, bytes));
    if (b->options->cuda) RD_TRY(rd_twins_open(b, bytes));
    return open_limits(b, most);
}

static void close_bench(rd_bench *b)
{
    if (b->has_streams) rd_streams_close(&b->streams);
    rd_twins_close(b);
    release(b, b->main);
    release(b, b->spare);
    rd_data_close(&b->data);
    free(b->from);
    rd_commons_close(&b->shared);
    rd_commons_close(&b->pages);
    rondo_comm_destroy(b->comm);
}

/* ---- Rows ---- */

/* Sizes that hold a whole number of elements for every rank, each once. Returns how many. */
static int list_sizes(const rd_bench *b, size_t *sizes)
{
    const rd_bench_options *o = b->options;
    size_t unit = rd_dtype_bytes(o->dtype) * (rd_bench_gathers(o->collective) ? (size_t)b->size : 1);
    int count = 0;
    if (o->collective == RD_BENCH_BARRIER) {
        sizes[0] = 0;
        return 1;
    }
    for (double bytes = (double)o->least; bytes <= (double)o->most && count < MOST_ROWS; bytes *= o->factor) {
        size_t size = (size_t)bytes / unit * unit;
        if (size < unit) size = unit;
        if (count == 0 || size > sizes[count - 1]) sizes[count++] = size;
    }
    return count;
}

static rondo_result measure_all(rd_bench *b, const char *cpus, rd_row *rows, const size_t *sizes, bool *good)
{
    const char *json = b->options->json;
    RD_TRY(open_buffers(b, sizes[b->rows - 1]));
    RD_TRY(rd_bench_find_algorithms(b, sizes, rows));
    if (b->rank == 0) rd_bench_print_head(b, cpus);
    for (b->row = 1; b->row <= b->rows; b->row++) {
        rd_row *row = &rows[b->row - 1];
        RD_TRY(rd_bench_measure(b, sizes[b->row - 1], row));
        if (b->rank == 0) rd_bench_print_row(b, row);
        *good = *good && (b->rank || row->wrong == 0); /* one rank says so with its exit status */
    }
    if (b->rank == 0) rd_bench_print_foot(b, rows, b->rows);
    if (b->rank == 0 && json && !rd_json_write(b, rows, b->rows)) *good = false;
    return rondo_barrier(b->comm, NULL); /* nobody leaves while another one is still at it */
}

static int run_rank(const rd_bench_options *options)
{
    rd_bench b = {.options = options};
    char cpus[512] = "";
    bool good = true;
    size_t *sizes = calloc(MOST_ROWS, sizeof *sizes);
    rd_row *rows = calloc(MOST_ROWS, sizeof *rows);
    if (!sizes || !rows) return 1;
    if (options->pin) rd_bench_pin();
    rondo_result result = open_bench(&b, cpus, sizeof cpus);
    if (result == RONDO_SUCCESS) {
        b.rows = list_sizes(&b, sizes);
        result = measure_all(&b, cpus, rows, sizes, &good);
    }
    bool common = result == RONDO_INVALID_USAGE && b.rank > 0; /* all ranks fail alike, and one says why */
    if (result != RONDO_SUCCESS && !common)
        fprintf(stderr, "rondo bench: rank %d: %s\n", b.rank, rondo_last_error(NULL));
    close_bench(&b);
    free(sizes);
    free(rows);
    return result != RONDO_SUCCESS || !good;
}

int rd_cli_bench(int argc, char **argv)
{
    rd_bench_options options;
    if (argc > 1 && strcmp(argv[1], "dp-vs-ddp") == 0) return rd_bench_dp_vs_ddp(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "limits") == 0) return rd_bench_limits(argc - 1, argv + 1);
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--startup") == 0) return rd_bench_startup(argc, argv);
    int status = rd_bench_parse(&options, argc, argv);
    if (status >= 0) return status;
    if (options.json && rd_bench_is_first() && !rd_json_check(options.json)) return 1;
    return is_rank() ? run_rank(&options) : start_ranks(&options, argc, argv);
}
