/* SPDX-License-Identifier: Apache-2.0
 *
 * overlap.c - what an all-reduce on streams costs a loop that computes meanwhile.
 *
 *   overlap [MIB] [ROUNDS]     (16, 30)
 *
 * Two ranks of one process, each with a stream; their threads share the first processor, and this thread computes on
 * the second, in a working set that its own caches hold. A block is: compute alone, compute while an all-reduce is
 * under way on both streams, compute alone. Blocks before or after which the two processors are threads of one core are
 * left out (limits.h), like those in which the lone computations differ by more than 3 %, since something else ran, and
 * those whose computing takes longer than the all-reduce or less than half of it. Prints the median of what computing
 * beside the all-reduce took, over what it took alone.
 */
#include "cli/limits.h"
#include "rondo.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_ROUNDS = 1000, WORDS = 4096, WARM_UP = 20 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void check(rondo_result result, const char *what)
{
    if (result == RONDO_SUCCESS) return;
    fprintf(stderr, "overlap: %s: %s\n", what, rondo_last_error(NULL));
    exit(1);
}

/* The n-th processor that this process may use. */
static void bind_to(int n)
{
    static cpu_set_t allowed;
    cpu_set_t one;
    if (!CPU_COUNT(&allowed)) sched_getaffinity(0, sizeof allowed, &allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed) || n-- > 0) continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        sched_setaffinity(0, sizeof one, &one);
        return;
    }
    fprintf(stderr, "overlap: needs two processors\n");
    exit(1);
}

/* ---- Where the two processors are ---- */

static rd_page board[2];

static rd_placement meet_as(int rank)
{
    rd_page *pages[] = {&board[0], &board[1]};
    rd_meeting meeting = {.pages = pages, .rank = rank, .size = 2};
    return rd_find_placement(&meeting);
}

static void *other_end(void *unused)
{
    bind_to(0);
    meet_as(1);
    return unused;
}

static rd_placement find_placement(void)
{
    pthread_t other;
    memset(board, 0, sizeof board);
    if (pthread_create(&other, NULL, other_end, NULL)) exit(1);
    rd_placement place = meet_as(0);
    pthread_join(other, NULL);
    return place;
}

/* Two processors of cores of their own, on which nothing else runs. */
static bool two_cores(rd_placement place)
{
    const char *name = rd_placement_name(place);
    return strcmp(name, "L3") == 0 || strcmp(name, "host") == 0;
}

/* ---- Computing ---- */

static float numbers[WORDS];

static double compute(int times)
{
    double begun = now_s();
    for (int t = 0; t < times; t++)
        for (int i = 0; i < WORDS; i++) numbers[i] = numbers[i] * 0.999f + 0.5f;
    __asm__ volatile("" ::: "memory");
    return now_s() - begun;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- Blocks ---- */

static rondo_comm *comms[2];
static rondo_stream *streams[2];
static float *data[2];

typedef struct block {
    double beside, alone, all; /* seconds: computing, and what the all-reduce took */
    bool under_way;            /* it still was when the computing was done */
    bool quiet;
} block;

static block run_block(size_t count, int times)
{
    rd_placement place = find_placement();
    double before = compute(times), begun = now_s();
    for (int r = 0; r < 2; r++)
        check(rondo_all_reduce(data[r], data[r], count, RONDO_FLOAT32, RONDO_SUM, comms[r], streams[r]), "all_reduce");
    block b = {.beside = compute(times), .under_way = rondo_stream_query(streams[0]) == RONDO_IN_PROGRESS};
    for (int r = 0; r < 2; r++) check(rondo_stream_synchronize(streams[r]), "rondo_stream_synchronize");
    b.all = now_s() - begun;
    double after = compute(times);
    b.alone = (before + after) / 2;
    b.quiet = before < 1.03 * after && after < 1.03 * before && two_cores(place) && two_cores(find_placement());
    return b;
}

static void open_ranks(size_t count)
{
    bind_to(0); /* threads stay where they were made */
    check(rondo_init_all(comms, 2, NULL), "rondo_init_all");
    for (int r = 0; r < 2; r++) {
        check(rondo_stream_create(&streams[r], comms[r]), "rondo_stream_create");
        data[r] = calloc(count, sizeof *data[r]);
        if (!data[r]) exit(1);
    }
    bind_to(1);
}

static void close_ranks(void)
{
    for (int r = 0; r < 2; r++) {
        free(data[r]);
        rondo_stream_destroy(streams[r]);
        rondo_comm_destroy(comms[r]);
    }
}

int main(int argc, char **argv)
{
    size_t count = (argc > 1 ? strtoul(argv[1], NULL, 10) : 16) << 18;
    int rounds = argc > 2 ? atoi(argv[2]) : 30, kept = 0, times = 64;
    static double ratios[MOST_ROUNDS], all[MOST_ROUNDS];
    if (!count || rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: overlap [MIB] [ROUNDS, 1 to %d]\n", MOST_ROUNDS);
        return 2;
    }
    open_ranks(count);
    for (int round = -WARM_UP; round < rounds; round++) {
        block b = run_block(count, times);
        bool long_enough = b.beside > b.all / 2;
        if (round >= 0 && b.quiet && b.under_way && long_enough) {
            ratios[kept] = b.beside / b.alone;
            all[kept++] = b.all;
        }
        if (!b.under_way)
            times = times * 3 / 4 + 1;
        else if (!long_enough)
            times = times * 3 / 2;
    }
    close_ranks();
    qsort(ratios, (size_t)kept, sizeof *ratios, by_size);
    qsort(all, (size_t)kept, sizeof *all, by_size);
    if (!kept)
        printf("no block of %d was quiet\n", rounds);
    else
        printf(
            "all-reduce of %zu MiB on two streams: %.2f ms; computing beside it takes %.3f of the time alone (medians "
            "of %d blocks, %.3f to %.3f; %d left out)\n",
            count >> 18, all[kept / 2] * 1e3, ratios[kept / 2], kept, ratios[0], ratios[kept - 1], rounds - kept);
    return kept ? 0 : 1;
}
