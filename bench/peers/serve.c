/* SPDX-License-Identifier: Apache-2.0 */
#include "serve.h"

#include "base/clock.h"
#include "cli/limits.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST_CALLS = 5000, MOST_RANKS = 64, WARM_UP = 3 };

/* What the ranks of one program share, in the file PAGE. */
typedef struct board {
    rd_page pages[MOST_RANKS];
    pthread_barrier_t barrier; /* for those who must sleep when they wait */
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
    float numbers[PEERS_PERIOD], sums[PEERS_PERIOD];
    rd_page *pages[MOST_RANKS];
    rd_meeting meeting;
    bool sleeps;
} player;

static player me;

struct rd_meeting *peers_meeting(void)
{
    return &me.meeting;
}

/* Beginning a few bytes behind a page's beginning. */
static float *private_buffer(size_t bytes, size_t behind)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (bytes + behind + page - 1) / page * page;
    char *data = aligned_alloc(page, room);
    if (!data) return NULL;
    madvise(data, room, MADV_NOHUGEPAGE);
    memset(data, 0, room);
    return (float *)(void *)(data + behind);
}

float *peers_private_buffer(size_t bytes)
{
    enum { BEHIND_HEADER = 16 };
    return private_buffer(bytes, BEHIND_HEADER);
}

/* Pages of 2 MiB, as far as the kernel has them. */
static float *huge_buffer(size_t bytes)
{
    enum { HUGE_PAGE = 2 << 20 };
    char line[128];
    size_t got = 0;
    void *data = aligned_alloc(HUGE_PAGE, bytes);
    if (!data) return NULL;
    madvise(data, bytes, MADV_HUGEPAGE);
    memset(data, 0, bytes);
    FILE *rollup = fopen("/proc/self/smaps_rollup", "re");
    while (rollup && fgets(line, sizeof line, rollup)) sscanf(line, "AnonHugePages: %zu", &got);
    if (rollup) fclose(rollup);
    if (got << 10 < bytes) fprintf(stderr, "rank %d: %zu of %zu MiB in huge pages\n", me.rank, got >> 10, bytes >> 20);
    return data;
}

/* Of the kinds that all know; made when first asked for. */
static float *buffer_of(const char *kind)
{
    static float *ordinary, *aligned, *odd, *huge;
    if (strcmp(kind, "call") == 0) return ordinary ? ordinary : (ordinary = peers_private_buffer(PEERS_MOST_BYTES));
    if (strcmp(kind, "aligned") == 0) return aligned ? aligned : (aligned = private_buffer(PEERS_MOST_BYTES, 0));
    if (strcmp(kind, "odd") == 0) return odd ? odd : (odd = private_buffer(PEERS_MOST_BYTES, sizeof *odd));
    if (strcmp(kind, "huge") == 0) return huge ? huge : (huge = huge_buffer(PEERS_MOST_BYTES));
    return NULL;
}

static peers_block choose(const contestant *who, const char *kind)
{
    static float *other;
    bool out = strcmp(kind, "out") == 0;
    if (out && !other) other = peers_private_buffer(PEERS_MOST_BYTES);
    peers_block block = {.mine = me.numbers, .result = me.sums, .element = sizeof *me.sums};
    block.from = buffer_of(out ? "call" : kind);
    block.to = out ? other : block.from;
    if (who->choose) who->choose(kind, &block);
    return block;
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
    for (size_t i = 0; i < PEERS_PERIOD; i++) {
        me.numbers[i] = value(me.rank, i);
        me.sums[i] = 0;
        for (int r = 0; r < me.size; r++) me.sums[i] += value(r, i);
    }
}

static void rewrite(const peers_block *block, size_t bytes)
{
    size_t period = PEERS_PERIOD * block->element;
    for (size_t at = 0; at < bytes; at += period)
        memcpy((char *)block->from + at, block->mine, bytes - at < period ? bytes - at : period);
}

static size_t count_wrong(const peers_block *block, size_t bytes)
{
    const char *data = (const char *)block->to, *result = block->result;
    size_t element = block->element, period = PEERS_PERIOD * element, wrong = 0;
    for (size_t at = 0; result && at < bytes; at += period) {
        size_t part = bytes - at < period ? bytes - at : period;
        if (memcmp(data + at, result, part) == 0) continue;
        for (size_t i = 0; i < part; i += element) wrong += memcmp(data + at + i, result + i, element) != 0;
    }
    return wrong;
}

/* ---- Commands ---- */

static void meet(void)
{
    if (me.sleeps) pthread_barrier_wait(&me.board->barrier);
    else rd_meet(&me.meeting);
}

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

/* Ranks that take turns, or whose threads do the work, are nowhere. */
static rd_placement find_place(void)
{
    return me.meeting.crowded || me.sleeps ? (rd_placement){0} : rd_find_placement(&me.meeting);
}

static const char *place_name(rd_placement place)
{
    return place.round_trip_ns > 0 ? rd_placement_name(place) : "turns";
}

static void answer(rd_placement before, rd_placement after)
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
    printf("%.4f %.4f %.4f %s %s %.1f %zu\n", slowest[0], slowest[b->calls / 2], slowest[b->calls - 1],
           place_name(before), place_name(after), (before.round_trip_ns + after.round_trip_ns) / 2, wrong);
    fflush(stdout);
}

static bool run_block(const contestant *who)
{
    board *b = me.board;
    size_t count = b->bytes / sizeof(float), bytes = count * sizeof(float);
    peers_block block = choose(who, b->kind);
    if (!block.from || !block.to) {
        fprintf(stderr, "no kind of call '%s', or no memory for it\n", b->kind);
        return false;
    }
    rd_placement before = find_place();
    for (size_t i = 0; i < b->calls + WARM_UP; i++) {
        rewrite(&block, bytes);
        meet();
        int64_t begin = rd_now();
        if (!who->call(block.from, block.to, count)) return false;
        if (i >= WARM_UP) b->times[me.rank][i - WARM_UP] = (double)(rd_now() - begin) * 1e-3;
    }
    rd_placement after = find_place();
    b->wrong[me.rank] = count_wrong(&block, bytes);
    meet();
    if (me.rank == 0) answer(before, after);
    meet(); /* the next block writes where rank 0 has just read */
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
    me = (player){.rank = rank, .size = size, .sleeps = who->has_threads};
    if (argc != 3 || size > MOST_RANKS || !open_board(argv[1])) {
        fprintf(stderr, "usage: %s PAGE CPUS\n", argv[0]);
        return 2;
    }
    for (int r = 0; r < size; r++) me.pages[r] = &me.board->pages[r];
    me.meeting =
        (rd_meeting){.pages = me.pages, .rank = rank, .size = size, .crowded = size > sysconf(_SC_NPROCESSORS_ONLN)};
    make_values();
    if (rank == 0 && me.sleeps) { /* the others sleep until the first command */
        pthread_barrierattr_t shared;
        pthread_barrierattr_init(&shared);
        pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
        pthread_barrier_init(&me.board->barrier, &shared, (unsigned)size);
        pthread_barrierattr_destroy(&shared);
    }
    for (uint32_t seen = 0;; seen++) {
        next_command(seen);
        if (me.board->ended) return 0;
        if (!run_block(who)) return 1;
    }
}
