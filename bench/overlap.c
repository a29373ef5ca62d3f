/* SPDX-License-Identifier: Apache-2.0
 *
 * overlap.c - what an all-reduce on streams costs a loop that computes meanwhile.
 *
 *   overlap [MIB] [ROUNDS]     (16, 30)
 *
 * Two ranks of one process, each with a stream; their threads share the first processor, and this thread computes on
 * the second, in a working set that its own caches hold. A block is: compute alone, compute while an all-reduce is under
 * way on both streams, compute alone. Before and after it a flag goes to and fro between the two processors: blocks in
 * which that took less than 80 ns share a core and are left out, like those in which the lone computations differ by
 * more than 3 %, since something else ran. Prints the median of what computing beside the all-reduce took, over what it
 * took alone.
 */
#include "rondo.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST_ROUNDS = 1000, WORDS = 4096, PINGS = 2000 };

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

static _Atomic int ball;

static void *answer(void *unused)
{
    bind_to(0);
    for (int i = 0; i < PINGS; i++) {
        while (atomic_load_explicit(&ball, memory_order_acquire) != 2 * i + 1) continue;
        atomic_store_explicit(&ball, 2 * i + 2, memory_order_release);
    }
    return unused;
}

/* Nanoseconds for there and back. */
static double ping_pong(void)
{
    pthread_t other;
    atomic_store(&ball, 0);
    if (pthread_create(&other, NULL, answer, NULL)) exit(1);
    double begun = 0;
    for (int i = 0; i < PINGS; i++) {
        if (i == PINGS / 2) begun = now_s();
        atomic_store_explicit(&ball, 2 * i + 1, memory_order_release);
        while (atomic_load_explicit(&ball, memory_order_acquire) != 2 * i + 2) continue;
    }
    double took = now_s() - begun;
    pthread_join(other, NULL);
    return took * 1e9 / (PINGS / 2);
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

int main(int argc, char **argv)
{
    size_t count = (argc > 1 ? strtoul(argv[1], NULL, 10) : 16) << 18;
    int rounds = argc > 2 ? atoi(argv[2]) : 30, kept = 0, left_out = 0, times = 64;
    static double ratios[MOST_ROUNDS];
    rondo_comm *comms[2];
    rondo_stream *streams[2];
    float *data[2];
    if (!count || rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: overlap [MIB] [ROUNDS, 1 to %d]\n", MOST_ROUNDS);
        return 2;
    }
    bind_to(0); /* threads stay where they were made */
    check(rondo_init_all(comms, 2, NULL), "rondo_init_all");
    for (int r = 0; r < 2; r++) {
        check(rondo_stream_create(&streams[r], comms[r]), "rondo_stream_create");
        data[r] = calloc(count, sizeof *data[r]);
        if (!data[r]) return 1;
    }
    bind_to(1);
    for (int round = 0; round < rounds; round++) {
        double near = ping_pong(), before = compute(times);
        double begun = now_s();
        for (int r = 0; r < 2; r++)
            check(rondo_all_reduce(data[r], data[r], count, RONDO_FLOAT32, RONDO_SUM, comms[r], streams[r]), "all_reduce");
        double beside = compute(times);
        bool under_way = rondo_stream_query(streams[0]) == RONDO_IN_PROGRESS;
        for (int r = 0; r < 2; r++) check(rondo_stream_synchronize(streams[r]), "rondo_stream_synchronize");
        double all = now_s() - begun, after = compute(times), far = ping_pong();
        bool alone = before < 1.03 * after && after < 1.03 * before;
        if (!under_way) times = times > 8 ? times / 2 : times; /* it must be over before the all-reduce is */
        if (!under_way || !alone || near < 80 || far < 80) left_out++;
        else ratios[kept++] = 2 * beside / (before + after);
        if (round == 0) printf("all-reduce of %zu MiB on two streams: %.1f ms\n", count >> 18, all * 1e3);
    }
    qsort(ratios, (size_t)kept, sizeof *ratios, by_size);
    if (!kept) printf("no block of %d was quiet\n", rounds);
    else printf("computing beside it takes %.3f of the time alone (median of %d blocks, %.3f to %.3f; %d left out)\n",
                ratios[kept / 2], kept, ratios[0], ratios[kept - 1], left_out);
    for (int r = 0; r < 2; r++) {
        free(data[r]);
        rondo_stream_destroy(streams[r]);
        rondo_comm_destroy(comms[r]);
    }
    return kept ? 0 : 1;
}
