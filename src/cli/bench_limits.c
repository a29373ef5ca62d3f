/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_limits.c - `rondo bench limits`: what this machine allows, without Rondo in between. The yardsticks of `rondo
 * bench` in one table, and others that say what a link of another kind could give.
 */
#include "base/clock.h"
#include "base/status.h"
#include "cli/bench.h"
#include "cli/cli.h"
#include "cli/option.h"
#include "cli/team.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { MOST_ROWS = 32, LEAST_CALLS = 5, MOST_CALLS = 200, WARM_UP = 2, ATTEMPTS = 5, LEAST = 64, LARGEST = 1 << 28 };
#define BUDGET_S 0.05 /* for the calls of a column */

static const char who[] = "rondo bench limits";
static const char help[] =
    "usage: rondo bench limits [-n RANKS] [-b BYTES] [-e BYTES] [-f FACTOR] [--json FILE]\n"
    "\n"
    "Measures what this machine allows between RANKS processes, without Rondo: medians of the slowest rank's times, in\n"
    "microseconds. Buffers are written by their owners before each call.\n"
    "\n"
    "  copy        memcpy of so many bytes, on every rank at once\n"
    "  triad       a = b + 3 c, each of so many bytes, likewise\n"
    "  zero-copy   an all-reduce whose buffers all ranks can read and write: two meetings, and the work between them\n"
    "  vm_readv    so many bytes of the next rank's private memory, by process_vm_readv\n"
    "  unix, tcp   so many bytes to the next rank and from the one before at once, over sockets; the best of 1, 2 and 4\n"
    "\n"
    "  -n, --ranks RANKS       2 to 8 (2)\n"
    "  -b, --min-bytes BYTES   first row, 64 to 268435456 (64)\n"
    "  -e, --max-bytes BYTES   last row (67108864)\n"
    "  -f, --factor FACTOR     from one row to the next, 2 to 1024 (4)\n"
    "      --json FILE         write the results as JSON, too\n"
    "  -h, --help              this text\n";

typedef enum column { COPY, TRIAD, ZERO_COPY, VM_READV, UNIX, TCP, COLUMNS } column;

static const struct {
    const char *title, *key;
    double moved; /* bytes through the memory of a rank, for each byte of the row: for GB/s */
} columns[COLUMNS] = {{"copy", "copy_us", 2},          {"triad", "triad_us", 3}, {"zero-copy", "zero_copy_us", 0},
                      {"vm_readv", "vm_readv_us", 0},  {"unix", "unix_us", 0},   {"tcp", "tcp_us", 0}};

typedef struct limit_row {
    size_t bytes;
    double us[COLUMNS]; /* 0: cannot be measured here */
    rd_placement place;
    bool mixed; /* the cores were moved meanwhile, however often it was measured */
} limit_row;

typedef struct limits {
    int ranks, least, most, factor;
    const char *json;
    int rows;
    limit_row *row; /* shared with the ranks */
} limits;

/* One rank. */
typedef struct site {
    rondo_comm *comm;
    int rank, size;
    rd_commons pages, shared;
    rd_meeting meeting;
    rd_streams unix_streams, tcp_streams;
    unsigned char *a, *b, *c;  /* private */
    struct {
        int64_t pid;
        uint64_t address;
    } next; /* of the next rank's b */
    bool may_read; /* process_vm_readv is allowed */
    double times[MOST_CALLS];
} site;

/* ---- The columns ---- */

static rondo_result work(site *s, column what, size_t bytes, int sockets)
{
    struct iovec here = {s->a, bytes}, there = {(void *)(uintptr_t)s->next.address, bytes};
    switch (what) {
    case COPY: memcpy(s->a, s->b, bytes); return RONDO_SUCCESS;
    case TRIAD:
        rd_triad((double *)(void *)s->a, (double *)(void *)s->b, (double *)(void *)s->c, bytes / sizeof(double));
        return RONDO_SUCCESS;
    case ZERO_COPY:
        rd_meet(&s->meeting);
        rd_bound_work(RD_BOUND_ALL_REDUCE, (unsigned char *const *)s->shared.of, (unsigned char *const *)s->shared.of,
                      s->rank, s->size, 0, bytes);
        rd_meet(&s->meeting);
        return RONDO_SUCCESS;
    case VM_READV:
        if (process_vm_readv((pid_t)s->next.pid, &here, 1, &there, 1, 0) == (ssize_t)bytes) return RONDO_SUCCESS;
        return rd_fail_errno("process_vm_readv of process %d", (int)s->next.pid);
    case UNIX: return rd_streams_exchange(&s->unix_streams, sockets, SIZE_MAX, s->b, bytes, s->a, bytes);
    case TCP: return rd_streams_exchange(&s->tcp_streams, sockets, SIZE_MAX, s->b, bytes, s->a, bytes);
    case COLUMNS: break;
    }
    return RONDO_SUCCESS;
}

/* The median of the slowest rank's times. */
static rondo_result time_column(site *s, column what, size_t bytes, int sockets, double *us)
{
    int calls = MOST_CALLS;
    double each = 0;
    for (int i = -WARM_UP; i < calls; i++) {
        memset(s->b, i & 127, bytes);
        memset(s->c, i & 127, bytes);
        memset(s->shared.of[s->rank], i & 127, bytes);
        rd_meet(&s->meeting);
        int64_t begin = rd_now();
        RD_TRY(work(s, what, bytes, sockets));
        double took = (double)(rd_now() - begin) * 1e-3;
        if (i >= 0) s->times[i] = took;
        rd_meet(&s->meeting); /* what is read elsewhere is not written yet */
        if (i != -1) continue;
        each = took;
        RD_TRY(rondo_all_reduce(&each, &each, 1, RONDO_FLOAT64, RONDO_MAX, s->comm, NULL));
        double fit = BUDGET_S * 1e6 / (each + 1e-3);
        calls = fit < LEAST_CALLS ? LEAST_CALLS : fit > MOST_CALLS ? MOST_CALLS : (int)fit;
    }
    RD_TRY(rondo_all_reduce(s->times, s->times, (size_t)calls, RONDO_FLOAT64, RONDO_MAX, s->comm, NULL));
    qsort(s->times, (size_t)calls, sizeof *s->times, rd_by_value);
    *us = s->times[calls / 2];
    return RONDO_SUCCESS;
}

static rondo_result measure_once(site *s, limit_row *row)
{
    for (column what = COPY; what < COLUMNS; what++) {
        row->us[what] = 0;
        if (what == VM_READV && !s->may_read) continue;
        for (int sockets = 1; sockets <= (what >= UNIX ? RD_STREAMS : 1); sockets *= 2) {
            double us;
            RD_TRY(time_column(s, what, row->bytes, sockets, &us));
            if (sockets == 1 || us < row->us[what]) row->us[what] = us;
        }
    }
    return RONDO_SUCCESS;
}

/* Until the cores sat still. */
static rondo_result measure_row(site *s, limit_row *row)
{
    row->mixed = true;
    for (int i = 0; i < ATTEMPTS && row->mixed; i++) {
        const char *before = rd_placement_name(rd_find_placement(&s->meeting));
        RD_TRY(measure_once(s, row));
        row->place = rd_find_placement(&s->meeting);
        row->mixed = !s->meeting.crowded && strcmp(before, rd_placement_name(row->place)) != 0;
    }
    return RONDO_SUCCESS;
}

/* ---- A rank ---- */

/* Where the next rank's memory is, and whether all may read it. */
static rondo_result look_round(site *s)
{
    int64_t own[2] = {getpid(), (int64_t)(uintptr_t)s->b}, *all = calloc(2 * (size_t)s->size, sizeof *all);
    if (!all) return rd_fail_errno("no memory for a list of %d ranks", s->size);
    rondo_result result = rondo_all_gather(own, all, 2, RONDO_INT64, s->comm, NULL);
    int next = (s->rank + 1) % s->size;
    s->next.pid = all[2 * next];
    s->next.address = (uint64_t)all[2 * next + 1];
    free(all);
    int32_t may = result == RONDO_SUCCESS && work(s, VM_READV, 1, 0) == RONDO_SUCCESS;
    if (result == RONDO_SUCCESS) result = rondo_all_reduce(&may, &may, 1, RONDO_INT32, RONDO_MIN, s->comm, NULL);
    s->may_read = may;
    return result;
}

static rondo_result open_site(site *s, size_t most)
{
    size_t room = (most + 4095) / 4096 * 4096;
    s->a = aligned_alloc(4096, room);
    s->b = aligned_alloc(4096, room);
    s->c = aligned_alloc(4096, room);
    if (!s->a || !s->b || !s->c) return rd_fail_errno("no memory for three buffers of %zu bytes", room);
    memset(s->a, 0, room);
    memset(s->b, 0, room);
    RD_TRY(rd_commons_open(&s->pages, sizeof(rd_page), s->comm));
    RD_TRY(rd_commons_open(&s->shared, room, s->comm));
    s->meeting = (rd_meeting){.pages = (rd_page **)s->pages.of, .rank = s->rank, .size = s->size};
    s->meeting.crowded = s->size > sysconf(_SC_NPROCESSORS_ONLN);
    RD_TRY(rd_streams_open(&s->unix_streams, s->comm, true));
    RD_TRY(rd_streams_open(&s->tcp_streams, s->comm, false));
    s->unix_streams.crowded = s->tcp_streams.crowded = s->meeting.crowded;
    return look_round(s);
}

static void close_site(site *s)
{
    rd_streams_close(&s->tcp_streams);
    rd_streams_close(&s->unix_streams);
    rd_commons_close(&s->shared);
    rd_commons_close(&s->pages);
    free(s->c);
    free(s->b);
    free(s->a);
}

static void print_row(const limit_row *row)
{
    printf("%10zu", row->bytes);
    for (column what = COPY; what < COLUMNS; what++) {
        if (row->us[what] > 0) printf(" %10.2f", row->us[what]);
        else printf(" %10s", "-");
    }
    for (column what = COPY; what < COLUMNS; what++)
        if (columns[what].moved > 0) printf(" %8.1f", columns[what].moved * (double)row->bytes / row->us[what] * 1e-3);
    printf(" %8.0f  %s\n", row->place.round_trip_ns / 2, row->mixed ? "mixed" : rd_placement_name(row->place));
    fflush(stdout);
}

static rondo_result run_rank(rondo_comm *comm, int rank, void *context)
{
    limits *l = context;
    site s = {.comm = comm, .rank = rank, .size = l->ranks};
    s.unix_streams = s.tcp_streams = (rd_streams)RD_STREAMS_NONE;
    rd_bench_pin_to(rank, l->ranks);
    rondo_result result = open_site(&s, l->row[l->rows - 1].bytes);
    for (int i = 0; i < l->rows && result == RONDO_SUCCESS; i++) {
        limit_row row = l->row[i];
        result = measure_row(&s, &row);
        if (result != RONDO_SUCCESS || rank != 0) continue;
        l->row[i] = row;
        print_row(&row);
    }
    if (result == RONDO_SUCCESS) result = rondo_barrier(comm, NULL); /* nobody leaves while another is still at it */
    close_site(&s);
    return result;
}

/* ---- The table ---- */

static void print_head(const limits *l)
{
    char machine[512], pages[128];
    rd_bench_machine(machine, sizeof machine);
    rd_bench_pages(pages, sizeof pages);
    printf("# what this machine allows, %d ranks, without Rondo, in us; %s\n# %s\n", l->ranks, pages, machine);
    printf("%10s", "size (B)");
    for (column what = COPY; what < COLUMNS; what++) printf(" %10s", columns[what].title);
    printf(" %8s %8s %8s  %s\n%10s", "copy", "triad", "one way", "place", "");
    for (column what = COPY; what < COLUMNS; what++) printf(" %10s", "us");
    printf(" %8s %8s %8s\n", "GB/s", "GB/s", "ns");
    fflush(stdout);
}

static bool write_json(const limits *l)
{
    char machine[512];
    json_object *all = json_object_new_object(), *list = json_object_new_array();
    rd_bench_machine(machine, sizeof machine);
    json_object_object_add(all, "ranks", json_object_new_int(l->ranks));
    json_object_object_add(all, "machine", json_object_new_string(machine));
    for (int i = 0; i < l->rows; i++) {
        const limit_row *row = &l->row[i];
        json_object *one = json_object_new_object();
        json_object_object_add(one, "bytes", json_object_new_int64((int64_t)row->bytes));
        for (column what = COPY; what < COLUMNS; what++)
            if (row->us[what] > 0) json_object_object_add(one, columns[what].key, json_object_new_double(row->us[what]));
        json_object_object_add(one, "one_way_ns", json_object_new_double(row->place.round_trip_ns / 2));
        const char *placement = row->mixed ? "mixed" : rd_placement_name(row->place);
        json_object_object_add(one, "placement", json_object_new_string(placement));
        json_object_array_add(list, one);
    }
    json_object_object_add(all, "limits", list);
    bool good = json_object_to_file_ext(l->json, all, JSON_C_TO_STRING_PRETTY) == 0;
    if (!good) fprintf(stderr, "%s: --json %s: cannot be written: %s\n", who, l->json, strerror(errno));
    json_object_put(all);
    return good;
}

static int measure(limits *l)
{
    char why[RD_ERROR_BYTES + 64];
    size_t room = MOST_ROWS * sizeof *l->row;
    rd_team team = {.ranks = l->ranks, .timeout_s = 600, .run = run_rank, .context = l};
    if (!(l->row = rd_team_memory(room))) {
        fprintf(stderr, "%s: no memory to share with the ranks: %s\n", who, strerror(errno));
        return 1;
    }
    for (size_t bytes = (size_t)l->least; bytes <= (size_t)l->most && l->rows < MOST_ROWS; bytes *= (size_t)l->factor)
        l->row[l->rows++].bytes = bytes / LEAST * LEAST;
    print_head(l);
    bool good = rd_team_run(&team, why, sizeof why);
    if (!good) fprintf(stderr, "%s: %s\n", who, why);
    if (good && l->json) good = write_json(l);
    rd_team_memory_free(l->row, room);
    return !good;
}

int rd_bench_limits(int argc, char **argv)
{
    static const struct option known[] = {
        {"ranks", required_argument, NULL, 'n'}, {"min-bytes", required_argument, NULL, 'b'},
        {"max-bytes", required_argument, NULL, 'e'}, {"factor", required_argument, NULL, 'f'},
        {"json", required_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    limits l = {.ranks = 2, .least = LEAST, .most = 1 << 26, .factor = 4};
    int id, status = 0;
    optind = 1;
    opterr = 0;
    while (status == 0 && (id = getopt_long(argc, argv, ":n:b:e:f:h", known, NULL)) != -1) {
        switch (id) {
        case 'n': status = rd_option_number(who, "-n", optarg, 2, RD_TEAM_RANKS, &l.ranks); break;
        case 'b': status = rd_option_number(who, "-b", optarg, LEAST, LARGEST, &l.least); break;
        case 'e': status = rd_option_number(who, "-e", optarg, LEAST, LARGEST, &l.most); break;
        case 'f': status = rd_option_number(who, "-f", optarg, 2, 1024, &l.factor); break;
        case 'j': l.json = optarg; break;
        case 'h': fputs(help, stdout); return 0;
        default: status = rd_option_wrong(who, id, argv, "nbefh", known); break;
        }
    }
    if (status == 0) status = rd_option_no_words(who, argc, argv);
    if (status == 0 && l.most < l.least) {
        fprintf(stderr, "%s: -e %d is less than -b %d; the last row is the larger one\n", who, l.most, l.least);
        status = RD_EXIT_USAGE;
    }
    if (status == 0 && l.json && !rd_json_check(l.json)) return 1;
    return status ? status : measure(&l);
}
