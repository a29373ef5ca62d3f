/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks.c - all-reduces among ranks that are threads of this process, each with a stream of its own, on one GPU or on
 * several.
 *
 * On one GPU the ring is held against the driver's copies: every byte that ranks move crosses the same memory. In a
 * ring of N a rank reads and writes, for each of its N parts of the message: the first part 2 times that part's bytes
 * (its own in, the next slot out), the N-2 sums that go on 3 times, the last sum 4 times (out here, too), N-2 parts of
 * the way back 3 times, and the last part 2 times: 6N-4 parts, which is 6N-4 messages for all N ranks. A copy moves 2
 * messages, so the least time is that of 3N-2 copies.
 */
#include "gpu.h"
#include "rondo.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 16 };

typedef struct world {
    const gpu_effort *effort;
    int ranks, gpus, size_count;
    const char *link; /* NULL: what there is */
    rondo_unique_id id;
    size_t sizes[GPU_SIZES];
    pthread_barrier_t meeting;
    double copy;                          /* of the largest, microseconds */
    double *times[GPU_SIZES][MOST_RANKS]; /* of each run, for one call, by the GPU */
    double *waited[MOST_RANKS];           /* of each call of the shortest, by the host */
} world;

typedef struct rank {
    world *world;
    int number, device;
    pthread_t thread;
    rondo_comm *comm;
    rondo_stream *stream;
    gpu_timer timer;
    void *send, *recv;
} rank;

static void call(const rank *r, size_t bytes)
{
    MUST(rondo_all_reduce(r->send, r->recv, bytes / sizeof(float), RONDO_FLOAT32, RONDO_SUM, r->comm, r->stream));
}

static void copy_now(const rank *r, void *to, const void *from, size_t bytes)
{
    CU(r->device, cuMemcpyAsync, (rd_cu_address)(uintptr_t)to, (rd_cu_address)(uintptr_t)from, bytes, r->timer.stream);
    CU(r->device, cuStreamSynchronize, r->timer.stream);
}

/* The first call of a size, whose result is looked at. */
static void check(const rank *r, size_t bytes)
{
    size_t count = bytes / sizeof(float);
    float *host = malloc(bytes);
    if (!host) gpu_fail("no memory for %zu bytes", bytes);
    for (size_t i = 0; i < count; i++) host[i] = gpu_term(r->number, i);
    copy_now(r, r->send, host, bytes);
    memset(host, 0xa5, bytes);
    copy_now(r, r->recv, host, bytes);
    call(r, bytes);
    copy_now(r, host, r->recv, bytes);
    MUST(rondo_stream_synchronize(r->stream));
    for (size_t i = 0; i < count; i++)
        if (host[i] != gpu_sum(r->world->ranks, i))
            gpu_fail("rank %d of %d, %zu bytes: sum %zu is %g, not %g", r->number, r->world->ranks, bytes, i,
                     (double)host[i], (double)gpu_sum(r->world->ranks, i));
    free(host);
}

static void measure(rank *r, int size)
{
    world *w = r->world;
    size_t bytes = w->sizes[size];
    int calls = gpu_calls(w->effort, bytes);
    check(r, bytes);
    for (int run = 0; run < w->effort->runs; run++) {
        pthread_barrier_wait(&w->meeting);
        gpu_timer_start(&r->timer);
        for (int i = 0; i < calls; i++) call(r, bytes);
        w->times[size][r->number][run] = gpu_timer_stop(&r->timer) / calls;
        MUST(rondo_stream_synchronize(r->stream));
    }
}

/* Call and wait, as a program does that needs the result. */
static void measure_waiting(rank *r)
{
    world *w = r->world;
    pthread_barrier_wait(&w->meeting);
    for (int i = 0; i < w->effort->calls; i++) {
        double start = gpu_now();
        call(r, w->sizes[0]);
        MUST(rondo_stream_synchronize(r->stream));
        w->waited[r->number][i] = gpu_now() - start;
    }
}

static void *be_rank(void *argument)
{
    rank *r = argument;
    world *w = r->world;
    rondo_config config = RONDO_CONFIG_INIT;
    rd_cu_context context;
    rd_cu_stream cuda;
    config.device = r->device;
    config.transport = w->link;
    config.timeout_s = 60;
    CU(r->device, cuDevicePrimaryCtxRetain, &context, r->device);
    CU(r->device, cuCtxSetCurrent, context);
    CU(r->device, cuStreamCreateWithPriority, &cuda, RD_CU_STREAM_NON_BLOCKING, 0);
    gpu_timer_open(&r->timer, r->device, cuda);
    MUST(rondo_init_rank(&r->comm, w->ranks, w->id, r->number, &config));
    MUST(rondo_mem_alloc(&r->send, w->sizes[w->size_count - 1], r->comm));
    MUST(rondo_mem_alloc(&r->recv, w->sizes[w->size_count - 1], r->comm));
    MUST(rondo_stream_from_cuda(&r->stream, cuda, r->comm));
    if (r->number == 0) w->copy = gpu_copy_time(&r->timer, w->effort, w->sizes[w->size_count - 1]);
    pthread_barrier_wait(&w->meeting);
    for (int size = 0; size < w->size_count; size++) measure(r, size);
    measure_waiting(r);
    MUST(rondo_stream_destroy(r->stream));
    MUST(rondo_mem_free(r->send, r->comm));
    MUST(rondo_mem_free(r->recv, r->comm));
    rondo_comm_destroy(r->comm);
    gpu_timer_close(&r->timer);
    CU(r->device, cuStreamDestroy, cuda);
    CU(r->device, cuDevicePrimaryCtxRelease, r->device);
    return NULL;
}

/* The median of each run's slowest rank. */
static double slowest(double *times[], int ranks, int runs)
{
    double most[runs];
    for (int i = 0; i < runs; i++) {
        most[i] = 0;
        for (int k = 0; k < ranks; k++)
            if (times[k][i] > most[i]) most[i] = times[k][i];
    }
    return gpu_median(most, runs);
}

static void report(world *w)
{
    char what[128], size[24], of[48], where[48];
    const gpu_effort *effort = w->effort;
    snprintf(where, sizeof where, "%d ranks on %d GPU%s%s%s", w->ranks, w->gpus, w->gpus == 1 ? "" : "s",
             w->link ? ", " : "", w->link ? w->link : "");
    for (int s = 0; s < w->size_count; s++) {
        double time = slowest(w->times[s], w->ranks, effort->runs);
        int copies = 3 * w->ranks - 2;
        snprintf(what, sizeof what, "all-reduce of %s, %s", gpu_size(size, w->sizes[s]), where);
        snprintf(of, sizeof of, "the speed of %d copies", copies);
        bool compares = s == w->size_count - 1 && w->gpus == 1 && !w->link; /* below, launches count */
        gpu_row(what, time, "us", compares ? 100 * copies * w->copy / time : -1, of);
    }
    snprintf(what, sizeof what, "all-reduce of 8 B, %s: call and wait, by the host's clock", where);
    gpu_row(what, slowest(w->waited, w->ranks, effort->calls), "us", -1, NULL);
}

static double *times(int count)
{
    double *list = calloc((size_t)count, sizeof *list);
    if (!list) gpu_fail("no memory for %d times", count);
    return list;
}

void gpu_ranks(const gpu_effort *effort, int argc, char **argv)
{
    static world w;
    static rank all[MOST_RANKS];
    w.effort = effort;
    w.ranks = argc > 2 ? atoi(argv[1]) : 0;
    w.gpus = argc > 2 ? atoi(argv[2]) : 0;
    w.link = argc > 3 ? argv[3] : NULL;
    if (w.ranks < 2 || w.ranks > MOST_RANKS || w.gpus < 1 || w.gpus > w.ranks)
        gpu_fail("gpu ranks: 2 to %d ranks, on 1 GPU or more, not more than there are ranks", MOST_RANKS);
    if (w.gpus > rd_gpu_count()) gpu_cannot("all-reduce among several GPUs: fewer are here");
    w.size_count = gpu_sizes(effort, w.sizes);
    for (int s = 0; s < w.size_count; s++)
        for (int k = 0; k < w.ranks; k++) w.times[s][k] = times(effort->runs);
    for (int k = 0; k < w.ranks; k++) w.waited[k] = times(effort->calls);
    MUST(rondo_get_unique_id(&w.id));
    pthread_barrier_init(&w.meeting, NULL, (unsigned)w.ranks);
    for (int k = 0; k < w.ranks; k++) {
        all[k] = (rank){.world = &w, .number = k, .device = k % w.gpus};
        if (pthread_create(&all[k].thread, NULL, be_rank, &all[k]) != 0) gpu_fail("no thread for rank %d", k);
    }
    for (int k = 0; k < w.ranks; k++) pthread_join(all[k].thread, NULL);
    report(&w);
}
