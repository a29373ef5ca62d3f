/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_startup.c - `rondo bench --startup`: how long a job takes to be there, and what each rank holds then. The ranks
 * are this program again; what each has measured it writes into a file in memory of the process that started them.
 */
#include "base/clock.h"
#include "base/status.h"
#include "cli/bench.h"
#include "cli/option.h"
#include "cli/run.h"

#include <dirent.h>
#include <errno.h>
#include <json-c/json.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_RUNS = 16, COUNT = 2 /* elements of the first call */, GOAL_RANKS = 256, GOAL_S = 5 };

static const char who[] = "rondo bench --startup";
static const char help[] =
    "usage: rondo bench --startup [-n LIST] [--transport T] [--json FILE]\n"
    "\n"
    "Starts as many ranks as LIST says, one job after the other, and measures the time from the launch until the\n"
    "slowest rank has its communicator, then until all have done a first all-reduce of 8 bytes. What each rank holds\n"
    "at that time is given as `median / most` of all ranks: open descriptors, those of them that are connections,\n"
    "threads, resident memory, what of that is shared, and how much shared memory is mapped.\n"
    "\n"
    "  -n, --ranks LIST        numbers of ranks (2,16,64,256)\n"
    "      --transport T       auto, shm, tcp or verbs, as RONDO_TRANSPORT\n"
    "      --json FILE         write the results as JSON, too\n"
    "  -h, --help              this text\n";

/* What one rank writes. */
typedef enum figure { FILES, CONNECTIONS, THREADS, RESIDENT, SHARED, MAPPED, FIGURES } figure;

static const struct {
    const char *title, *key;
    double unit;
} figures[FIGURES] = {{"descriptors", "descriptors", 1},           {"connections", "connections", 1},
                      {"threads", "threads", 1},                   {"resident MiB", "resident_bytes", 1 << 20},
                      {"shared MiB", "shared_bytes", 1 << 20},     {"mapped MiB", "mapped_bytes", 1 << 20}};

typedef struct rank_report {
    int64_t ready, done; /* rd_now() */
    uint64_t held[FIGURES];
} rank_report;

typedef struct startup_row {
    int ranks;
    double ready_s, first_ms;
    double median[FIGURES], most[FIGURES];
} startup_row;

typedef struct startup_options {
    int ranks[MOST_RUNS], runs;
    const char *transport, *json;
    const char *reports; /* of a rank: where to write to */
} startup_options;

/* ---- A rank ---- */

static void count_files(uint64_t held[FIGURES])
{
    struct dirent *entry;
    DIR *open_files = opendir("/proc/self/fd");
    while (open_files && (entry = readdir(open_files))) {
        struct sockaddr_storage peer;
        socklen_t bytes = sizeof peer;
        int fd = atoi(entry->d_name);
        if (entry->d_name[0] == '.' || fd == dirfd(open_files)) continue;
        held[FILES]++;
        held[CONNECTIONS] += getpeername(fd, (struct sockaddr *)&peer, &bytes) == 0;
    }
    if (open_files) closedir(open_files);
}

static void read_status(uint64_t held[FIGURES])
{
    char line[256];
    unsigned long long n;
    FILE *status = fopen("/proc/self/status", "re");
    while (status && fgets(line, sizeof line, status)) {
        if (sscanf(line, "VmRSS: %llu", &n) == 1) held[RESIDENT] = n << 10;
        if (sscanf(line, "RssShmem: %llu", &n) == 1) held[SHARED] = n << 10;
        if (sscanf(line, "Threads: %llu", &n) == 1) held[THREADS] = n;
    }
    if (status) fclose(status);
}

static void read_maps(uint64_t held[FIGURES])
{
    char line[512];
    unsigned long long begin, end;
    char shared;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && fgets(line, sizeof line, maps))
        if (sscanf(line, "%llx-%llx %*3c%c", &begin, &end, &shared) == 3 && shared == 's') held[MAPPED] += end - begin;
    if (maps) fclose(maps);
}

static rondo_result write_report(const char *path, int rank, const rank_report *report)
{
    FILE *file = fopen(path, "r+e");
    bool good = file && fseek(file, (long)(sizeof *report * (size_t)rank), SEEK_SET) == 0 &&
                fwrite(report, sizeof *report, 1, file) == 1;
    if (file && fclose(file)) good = false;
    return good ? RONDO_SUCCESS : rd_fail_errno("%s: cannot write what was measured", path);
}

static rondo_result first_call(rondo_comm *comm)
{
    int rank = rondo_comm_rank(comm), size = rondo_comm_size(comm);
    float data[COUNT];
    for (int i = 0; i < COUNT; i++) data[i] = (float)(rank * (i + 1));
    RD_TRY(rondo_all_reduce(data, data, COUNT, RONDO_FLOAT32, RONDO_SUM, comm, NULL));
    for (int i = 0; i < COUNT; i++)
        if (data[i] != (float)(size * (size - 1) / 2 * (i + 1)))
            return rd_fail(RONDO_INTERNAL_ERROR, "element %d of the first all-reduce is %g", i, (double)data[i]);
    return RONDO_SUCCESS;
}

static rondo_result measure_rank(const startup_options *o, rondo_comm **comm)
{
    rank_report report = {0};
    RD_TRY(rondo_init_env(comm, NULL));
    report.ready = rd_now();
    RD_TRY(first_call(*comm));
    report.done = rd_now();
    RD_TRY(rondo_barrier(*comm, NULL)); /* looking takes time that others still measure */
    count_files(report.held);
    read_status(report.held);
    read_maps(report.held);
    RD_TRY(write_report(o->reports, rondo_comm_rank(*comm), &report));
    return rondo_barrier(*comm, NULL); /* who leaves closes connections that others count */
}

static int run_rank(const startup_options *o)
{
    rondo_comm *comm = NULL;
    rondo_result result = measure_rank(o, &comm);
    if (result != RONDO_SUCCESS) fprintf(stderr, "%s: %s\n", who, rondo_last_error(comm));
    rondo_comm_destroy(comm);
    return result != RONDO_SUCCESS;
}

/* ---- A run ---- */

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static bool sum_up(const rank_report *reports, int64_t launched, startup_row *row)
{
    int64_t ready = 0, done = 0;
    size_t n = (size_t)row->ranks;
    uint64_t *sorted = malloc(n * sizeof *sorted);
    if (!sorted) return false;
    for (size_t r = 0; r < n; r++) {
        if (reports[r].ready > ready) ready = reports[r].ready;
        if (reports[r].done > done) done = reports[r].done;
    }
    row->ready_s = (double)(ready - launched) * 1e-9;
    row->first_ms = (double)(done - ready) * 1e-6;
    for (int f = 0; f < FIGURES; f++) {
        for (size_t r = 0; r < n; r++) sorted[r] = reports[r].held[f];
        qsort(sorted, n, sizeof *sorted, by_value);
        row->median[f] = (double)sorted[n / 2];
        row->most[f] = (double)sorted[n - 1];
    }
    free(sorted);
    return true;
}

/* In a process of its own, which ends its ranks when this one ends: a launcher keeps its signals for good. */
static int launch(char **program, int ranks)
{
    rd_run_options run = {.workers = ranks, .nodes = 1, .grace_s = 5, .program = program};
    int status;
    fflush(NULL);
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        _exit(getppid() == parent ? rd_watch(&run) : 1);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    if (child < 0) fprintf(stderr, "%s: fork: %s\n", who, strerror(errno));
    return child < 0 ? 1 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* 0, or the exit status after something was said. */
static int measure_run(startup_row *row)
{
    size_t bytes = (size_t)row->ranks * sizeof(rank_report);
    char path[64];
    rank_report *reports = MAP_FAILED;
    int status = 1, fd = memfd_create("rondo-startup", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0) reports = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (reports == MAP_FAILED) {
        fprintf(stderr, "%s: no memory for the reports of %d ranks: %s\n", who, row->ranks, strerror(errno));
    } else {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), fd);
        char *program[] = {"/proc/self/exe", "bench", "--startup", "--reports", path, NULL};
        int64_t launched = rd_now();
        status = launch(program, row->ranks);
        if (status == 0 && !sum_up(reports, launched, row)) status = 1;
        munmap(reports, bytes);
    }
    if (fd >= 0) close(fd);
    return status;
}

/* ---- Reporting ---- */

static void print_head(void)
{
    char machine[512];
    rd_bench_machine(machine, sizeof machine);
    printf("# Rondo %d.%d.%d: starting ranks on %s\n", RONDO_VERSION_MAJOR, RONDO_VERSION_MINOR, RONDO_VERSION_PATCH,
           machine);
    printf("# per rank: median / most\n%6s %10s %13s", "ranks", "start-up s", "first call ms");
    for (int f = 0; f < FIGURES; f++) printf(" %13s", figures[f].title);
    printf("\n");
}

static void print_row(const startup_row *row)
{
    char text[32];
    printf("%6d %10.3f %13.2f", row->ranks, row->ready_s, row->first_ms);
    for (int f = 0; f < FIGURES; f++) {
        int digits = figures[f].unit > 1 ? 1 : 0;
        snprintf(text, sizeof text, "%.*f / %.*f", digits, row->median[f] / figures[f].unit, digits,
                 row->most[f] / figures[f].unit);
        printf(" %13s", text);
    }
    if (row->ranks == GOAL_RANKS) printf("  (goal: under %d s, %s)", GOAL_S, row->ready_s < GOAL_S ? "met" : "MISSED");
    printf("\n");
}

static json_object *row_object(const startup_row *row)
{
    json_object *object = json_object_new_object();
    json_object_object_add(object, "ranks", json_object_new_int(row->ranks));
    json_object_object_add(object, "startup_s", json_object_new_double(row->ready_s));
    json_object_object_add(object, "first_all_reduce_ms", json_object_new_double(row->first_ms));
    for (int f = 0; f < FIGURES; f++) {
        json_object *held = json_object_new_object();
        json_object_object_add(held, "median", json_object_new_int64((int64_t)row->median[f]));
        json_object_object_add(held, "most", json_object_new_int64((int64_t)row->most[f]));
        json_object_object_add(object, figures[f].key, held);
    }
    return object;
}

static bool write_json(const char *path, const startup_row *rows, int count)
{
    char machine[512];
    json_object *top = json_object_new_object(), *list = json_object_new_array();
    rd_bench_machine(machine, sizeof machine);
    json_object_object_add(top, "machine", json_object_new_string(machine));
    for (int i = 0; i < count; i++) json_object_array_add(list, row_object(&rows[i]));
    json_object_object_add(top, "startup", list);
    bool good = json_object_to_file_ext(path, top, JSON_C_TO_STRING_PRETTY) == 0;
    if (!good) fprintf(stderr, "%s: --json %s: %s\n", who, path, json_util_get_last_err());
    json_object_put(top);
    return good;
}

static int measure_all(const startup_options *o)
{
    startup_row rows[MOST_RUNS] = {0};
    if (o->transport) setenv("RONDO_TRANSPORT", o->transport, 1);
    if (o->json && !rd_json_check(o->json)) return 1;
    print_head();
    for (int i = 0; i < o->runs; i++) {
        rows[i].ranks = o->ranks[i];
        int status = measure_run(&rows[i]);
        if (status) return status;
        print_row(&rows[i]);
        fflush(stdout);
    }
    return o->json && !write_json(o->json, rows, o->runs);
}

/* ---- Options ---- */

static int transport_value(const char *text, const char **transport)
{
    int index, status = rd_option_choice(who, "--transport", text, "auto|shm|tcp|verbs", &index);
    if (status == 0) *transport = text;
    return status;
}

int rd_bench_startup(int argc, char **argv)
{
    static const struct option known[] = {
        {"startup", no_argument, NULL, 's'},   {"ranks", required_argument, NULL, 'n'},
        {"json", required_argument, NULL, 'j'}, {"transport", required_argument, NULL, 't'},
        {"help", no_argument, NULL, 'h'},      {"reports", required_argument, NULL, 'r'},
        {NULL, 0, NULL, 0},
    };
    startup_options o = {.ranks = {2, 16, 64, 256}, .runs = 4};
    int id, status = 0;
    optind = 1;
    opterr = 0;
    while (status == 0 && (id = getopt_long(argc, argv, ":n:h", known, NULL)) >= 0) {
        switch (id) {
        case 's': break;
        case 'n': status = rd_option_numbers(who, "-n", optarg, 1, RD_MAX_WORKERS, MOST_RUNS, o.ranks, &o.runs); break;
        case 't': status = transport_value(optarg, &o.transport); break;
        case 'j': o.json = optarg; break;
        case 'r': o.reports = optarg; break;
        case 'h': fputs(help, stdout); return 0;
        default: return rd_option_wrong(who, id, argv, "nh", known);
        }
    }
    if (status == 0) status = rd_option_no_words(who, argc, argv);
    if (status) return status;
    return o.reports ? run_rank(&o) : measure_all(&o);
}
