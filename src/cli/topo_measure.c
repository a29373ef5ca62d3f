/* SPDX-License-Identifier: Apache-2.0
 *
 * topo_measure.c - latency and bandwidth between the processing units on which ranks sit, one pair after the other: two
 * threads, each bound to one of the two.
 *
 *   latency     half the round trip of a flag (the same as bench's, limits_meet.c)
 *   bandwidth   64 KiB go back and forth, and each side adds one to every number of it: the median of 15 ways. That is
 * what a ring's hop does, where whoever reads a line also writes it.
 *
 * A pair on one unit cannot be measured: the two would wait for each other's turn. It has the table's figures.
 */
#include "cli/topo.h"

#include "base/clock.h"
#include "base/status.h"
#include "cli/limits.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 64, BYTES = 64 << 10, WAYS = 15, WARM_UP = 3 };

typedef struct pair {
    rd_page pages[2];
    uint64_t data[BYTES / sizeof(uint64_t)];
    double round_trip_ns, way_ns;
    int cpu[2];
    _Atomic int failed; /* errno of binding a thread */
} pair;

typedef struct side {
    pair *pair;
    int rank;
} side;

static bool bind_to(int cpu)
{
    size_t bytes = CPU_ALLOC_SIZE(cpu + 1);
    cpu_set_t *set = CPU_ALLOC(cpu + 1);
    if (!set) return false;
    CPU_ZERO_S(bytes, set);
    CPU_SET_S(cpu, bytes, set);
    bool bound = sched_setaffinity(0, bytes, set) == 0;
    CPU_FREE(set);
    return bound;
}

/* Both sides take turns at the data; between two meetings one works. */
static double way_ns(pair *p, rd_meeting *meeting)
{
    double times[WAYS];
    for (int i = -WARM_UP; i < WAYS; i++) {
        for (int turn = 0; turn < 2; turn++) {
            rd_meet(meeting);
            if (turn != meeting->rank) continue;
            int64_t begin = rd_now();
            for (size_t k = 0; k < BYTES / sizeof *p->data; k++) p->data[k]++;
            if (i >= 0) times[i] = (double)(rd_now() - begin);
        }
    }
    rd_meet(meeting);
    qsort(times, WAYS, sizeof *times, rd_by_value);
    return times[WAYS / 2];
}

static void *run_side(void *argument)
{
    side *s = argument;
    pair *p = s->pair;
    rd_page *pages[2] = {&p->pages[0], &p->pages[1]};
    rd_meeting meeting = {.pages = pages, .rank = s->rank, .size = 2};
    if (!bind_to(p->cpu[s->rank])) atomic_store(&p->failed, errno);
    rd_meet(&meeting);
    if (atomic_load(&p->failed)) return NULL;
    double trip = rd_find_placement(&meeting).round_trip_ns, way = way_ns(p, &meeting);
    if (s->rank == 0) p->round_trip_ns = trip;
    if (s->rank == 1) p->way_ns = way;
    return NULL;
}

static rondo_result run_pair(pair *p)
{
    side sides[2] = {{p, 0}, {p, 1}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        int error = pthread_create(&threads[i], NULL, run_side, &sides[i]);
        if (!error) continue;
        /* The first would wait for the second for ever; it meets this thread instead. */
        atomic_store(&p->failed, error);
        if (i == 1) run_side(&sides[1]), pthread_join(threads[0], NULL);
        return rd_fail(RONDO_SYSTEM_ERROR, "--measure: cannot start a thread: %s", strerror(error));
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    if (!p->failed) return RONDO_SUCCESS;
    return rd_fail(RONDO_SYSTEM_ERROR, "--measure: cannot run on processing unit %d or %d: %s", p->cpu[0], p->cpu[1],
                   strerror(p->failed));
}

static rondo_result measure_pair(const rd_topo_view *v, int a, int b, rd_link *link)
{
    pair *p = aligned_alloc(128, (sizeof *p + 127) / 128 * 128);
    if (!p) return rd_fail(RONDO_SYSTEM_ERROR, "no memory to measure with");
    memset(p, 0, sizeof *p);
    p->cpu[0] = v->pus[v->seats[a].pu].os_index;
    p->cpu[1] = v->pus[v->seats[b].pu].os_index;
    rondo_result result = run_pair(p);
    if (result == RONDO_SUCCESS) {
        double mbs = BYTES * 1000.0 / (p->way_ns > 1 ? p->way_ns : 1);
        link->ns = (uint32_t)(p->round_trip_ns / 2 + 0.5);
        link->mbs = mbs < 1 ? 1 : (uint32_t)mbs;
    }
    free(p);
    return result;
}

rondo_result rd_topo_measure(rd_topo_view *v)
{
    size_t n = (size_t)v->ranks;
    if (v->ranks > MOST_RANKS)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "--measure: %d ranks are too many to measure each pair of them; %d at most", v->ranks,
                       MOST_RANKS);
    for (int r = 0; r < v->ranks; r++)
        if (v->seats[r].gpu >= 0)
            return rd_fail(RONDO_INVALID_ARGUMENT,
                           "--measure: rank %d has a GPU; between GPUs nothing is measured, say for "
                           "example --ranks core:all",
                           r);
    v->links = calloc(n * n, sizeof *v->links);
    if (!v->links) return rd_fail(RONDO_SYSTEM_ERROR, "no memory for the links between %d ranks", v->ranks);
    for (int a = 0; a < v->ranks; a++) {
        for (int b = a; b < v->ranks; b++) {
            rd_link *link = &v->links[(size_t)a * n + (size_t)b];
            *link = rd_place_link(&v->places[a], &v->places[b]);
            if (v->seats[a].pu != v->seats[b].pu) RD_TRY(measure_pair(v, a, b, link));
            v->links[(size_t)b * n + (size_t)a] = *link;
        }
    }
    return RONDO_SUCCESS;
}
