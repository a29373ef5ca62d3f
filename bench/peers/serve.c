/* SPDX-License-Identifier: Apache-2.0 */
#include "serve.h"

#include "base/clock.h"
#include "cli/limits.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PERIOD = 1021, MOST_CALLS = 5000, MOST_RANKS = 64, WARM_UP = 3 };

/* What the ranks of one program share, in the file PAGE. */
typedef struct board {
    rd_page pages[MOST_RANKS];
    _Atomic uint32_t bell; /* counts commands: a futex that the other ranks sleep on */
    char kind[32];
    size_t bytes, calls;
    bool ended;
    size_t wrong[MOST_RANKS];
    double times[MOST_RANKS][MOST_CALLS];
} board;

typedef struct player {
    board *board;
    int rank, size;
    float period[PERIOD], sums[PERIOD];
    rd_page *pages[MOST_RANKS];
    rd_meeting meeting;
} player;

static player me;

struct rd_meeting *peers_meeting(void)
{
    return &me.meeting;
}

float *peers_private_buffer(size_t bytes)
{
    float *data = malloc(bytes);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (!data) return NULL;
    uintptr_t first = ((uintptr_t)data + page - 1) & ~(page - 1), last = ((uintptr_t)data + bytes) & ~(page - 1);
    if (last > first) madvise((void *)first, last - first, MADV_NOHUGEPAGE);
    memset(data, 0, bytes);
    return data;
}

void peers_bind(int argc, char **argv)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "LOCAL_RANK"};
    const char *rank = NULL, *cpus = argc > 2 ? argv[2] : "-";
    cpu_set_t set;
    for (size_t i = 0; i < sizeof names / sizeof *names && !rank; i++) rank = getenv(names[i]);
    if (!rank || *cpus == '-') return;
    for (int skip = atoi(rank); skip > 0 && cpus; skip--)
        if ((cpus = strchr(cpus, ','))) cpus++;
    if (!cpus) return;
    CPU_ZERO(&set);
    CPU_SET((size_t)atoi(cpus), &set);
    if (sched_setaffinity(0, sizeof set, &set)) perror("sched_setaffinity");
}

/* ---- Values: small whole numbers, whose sums are exact ---- */

static float value(int rank, size_t i)
{
    return (float)((i * 7 + (size_t)rank * 13) % 1000);
}

static void make_values(void)
{
    for (size_t i = 0; i < PERIOD; i++) {
        me.period[i] = value(me.rank, i);
        me.sums[i] = 0;
        for (int r = 0; r < me.size; r++) me.sums[i] += value(r, i);
    }
}

static void rewrite(float *data, size_t count)
{
    for (size_t i = 0; i < count; i += PERIOD)
        memcpy(data + i, me.period, (count - i < PERIOD ? count - i : PERIOD) * sizeof *data);
}

static size_t count_wrong(const float *data, size_t count)
{
    size_t wrong = 0;
    for (size_t i = 0, k = 0; i < count; i++, k = k + 1 < PERIOD ? k + 1 : 0) wrong += data[i] != me.sums[k];
    return wrong;
}

/* ---- Commands ---- */

static void sleep_on_bell(uint32_t seen)
{
    while (atomic_load(&me.board->bell) == seen) syscall(SYS_futex, &me.board->bell, FUTEX_WAIT, seen, NULL, NULL, 0);
}

/* Rank 0 reads one and wakes the others. */
static void next_command(uint32_t seen)
{
    board *b = me.board;
    char line[128];
    if (me.rank) {
        sleep_on_bell(seen);
        return;
    }
    b->ended = !fgets(line, sizeof line, stdin) || sscanf(line, "%31s %zu %zu", b->kind, &b->bytes, &b->calls) != 3;
    if (b->calls > MOST_CALLS) b->calls = MOST_CALLS;
    if (b->bytes > PEERS_MOST_BYTES) b->bytes = PEERS_MOST_BYTES;
    atomic_fetch_add(&b->bell, 1);
    syscall(SYS_futex, &b->bell, FUTEX_WAKE, MOST_RANKS, NULL, NULL, 0);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void answer(double before, double after)
{
    board *b = me.board;
    double *slowest = b->times[0];
    size_t wrong = b->wrong[0];
    for (int r = 1; r < me.size; r++) {
        wrong += b->wrong[r];
        for (size_t i = 0; i < b->calls; i++)
            if (b->times[r][i] > slowest[i]) slowest[i] = b->times[r][i];
    }
    qsort(slowest, b->calls, sizeof *slowest, by_value);
    printf("%.4f %.4f %.4f %.1f %.1f %zu\n", slowest[0], slowest[b->calls / 2], slowest[b->calls - 1], before, after,
           wrong);
    fflush(stdout);
}

static bool block(const contestant *who)
{
    board *b = me.board;
    size_t count = b->bytes / sizeof(float);
    float *data = who->buffer(b->kind, b->bytes);
    double before = 0, after = 0;
    if (!data) {
        fprintf(stderr, "no kind of call '%s'\n", b->kind);
        return false;
    }
    if (!me.meeting.crowded) before = rd_round_trip(&me.meeting);
    for (size_t i = 0; i < b->calls + WARM_UP; i++) {
        rewrite(data, count);
        rd_meet(&me.meeting);
        int64_t begin = rd_now();
        if (!who->call(b->kind, data, count)) return false;
        if (i >= WARM_UP) b->times[me.rank][i - WARM_UP] = (double)(rd_now() - begin) * 1e-3;
    }
    if (!me.meeting.crowded) after = rd_round_trip(&me.meeting);
    b->wrong[me.rank] = who->sums(b->kind) ? count_wrong(data, count) : 0;
    rd_meet(&me.meeting);
    if (me.rank == 0) answer(before, after);
    rd_meet(&me.meeting); /* the next block writes where rank 0 has just read */
    return true;
}

static bool open_board(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || ftruncate(fd, sizeof *me.board)) {
        perror(path);
        return false;
    }
    me.board = mmap(NULL, sizeof *me.board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return me.board != MAP_FAILED;
}

int peers_serve(int argc, char **argv, int rank, int size, const contestant *who)
{
    me = (player){.rank = rank, .size = size};
    if (argc != 3 || size > MOST_RANKS || !open_board(argv[1])) {
        fprintf(stderr, "usage: %s PAGE CPUS\n", argv[0]);
        return 2;
    }
    for (int r = 0; r < size; r++) me.pages[r] = &me.board->pages[r];
    me.meeting =
        (rd_meeting){.pages = me.pages, .rank = rank, .size = size, .crowded = size > sysconf(_SC_NPROCESSORS_ONLN)};
    make_values();
    for (uint32_t seen = 0;; seen++) {
        next_command(seen);
        if (me.board->ended) return 0;
        if (!block(who)) return 1;
    }
}
