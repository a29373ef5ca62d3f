/* SPDX-License-Identifier: Apache-2.0
 *
 * The two cores of a virtual machine are moved about within seconds, and figures from different placements differ 2 to
 * 10 times. A flag that goes back and forth tells the placement; so every block of a measurement has one before and
 * one after.
 */
#include "base/clock.h"
#include "cli/limits.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { RALLIES = 15, SHOTS = 40 };
enum { POLLS = 2000, POLLS_CROWDED = 20 }; /* before a rank that waits lets others run */
#define PATIENCE_S 600.0

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void await(const rd_meeting *meeting, const rd_flag *flag, uint64_t count)
{
    int polls = meeting->crowded ? POLLS_CROWDED : POLLS;
    int64_t until = 0;
    while (atomic_load_explicit(&flag->count, memory_order_acquire) < count) {
        if (polls > 0) {
            polls--;
            relax();
            continue;
        }
        sched_yield();
        if (!until) until = rd_deadline(PATIENCE_S);
        if (rd_now() < until) continue;
        fprintf(stderr, "rank %d: another rank has not come for %.0f s; ending\n", meeting->rank, PATIENCE_S);
        exit(1);
    }
}

void rd_meet(rd_meeting *meeting)
{
    uint64_t count = ++meeting->met;
    atomic_store_explicit(&meeting->pages[meeting->rank]->arrived.count, count, memory_order_release);
    for (int r = 0; r < meeting->size; r++)
        if (r != meeting->rank) await(meeting, &meeting->pages[r]->arrived, count);
}

int rd_by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of short rallies, so that an interruption does not count. */
static double rally(const rd_meeting *meeting, uint64_t shots, int peer, bool serves)
{
    double times[RALLIES];
    rd_flag *mine = &meeting->pages[meeting->rank]->ball;
    const rd_flag *other = &meeting->pages[peer]->ball;
    for (int i = 0; i < RALLIES; i++) {
        int64_t begin = rd_now();
        for (int k = 0; k < SHOTS; k++) {
            shots++;
            if (!serves) await(meeting, other, shots);
            atomic_store_explicit(&mine->count, shots, memory_order_release);
            if (serves) await(meeting, other, shots);
        }
        times[i] = (double)(rd_now() - begin) / SHOTS;
    }
    qsort(times, RALLIES, sizeof *times, rd_by_value);
    return times[RALLIES / 2];
}

double rd_round_trip(rd_meeting *meeting)
{
    double slowest = 0;
    int pairs = meeting->size < 3 ? meeting->size - 1 : meeting->size;
    for (int server = 0; server < pairs; server++) { /* one pair at a time */
        int peer = (server + 1) % meeting->size;
        rd_meet(meeting);
        if (meeting->rank == server)
            meeting->pages[server]->round_trip_ns = rally(meeting, meeting->shots, peer, true);
        else if (meeting->rank == peer)
            rally(meeting, meeting->shots, server, false);
        meeting->shots += RALLIES * SHOTS; /* on every rank, so that each pair's counts begin alike */
    }
    rd_meet(meeting);
    for (int r = 0; r < pairs; r++)
        if (meeting->pages[r]->round_trip_ns > slowest) slowest = meeting->pages[r]->round_trip_ns;
    rd_meet(meeting); /* nobody measures anew before all have read */
    return slowest;
}

const char *rd_placement_name(double round_trip_ns)
{
    static const struct {
        double below_ns;
        const char *name;
    } places[] = {{80, "core"}, {185, "L3"}, {1000, "host"}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (round_trip_ns < places[i].below_ns) return places[i].name;
    return "busy";
}
