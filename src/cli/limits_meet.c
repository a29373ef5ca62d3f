/* SPDX-License-Identifier: Apache-2.0
 *
 * The two cores of a virtual machine are moved about within seconds, and figures from different placements differ 2 to
 * 10 times. So every block of a measurement asks for the placement before and after. A flag that goes back and forth
 * tells cores that share a cache from those that don't. It does not tell two threads of one core from two cores of one
 * cache (61 and 55 ns on Zen 4, which changes with the clock's frequency besides); but work that fills a core takes two
 * threads of it twice as long as one.
 */
#include "base/clock.h"
#include "base/hot.h"
#include "cli/limits.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { RALLIES = 15, SHOTS = 40 };
enum { TRIES = 9, ADDITIONS = 4000 };
enum { POLLS = 2000, POLLS_CROWDED = 20 }; /* before a rank that waits lets others run */
#define PATIENCE_S 600.0

static void await(const rd_meeting *meeting, const rd_flag *flag, uint64_t count)
{
    int polls = meeting->crowded ? POLLS_CROWDED : POLLS;
    int64_t until = 0;
    while (atomic_load_explicit(&flag->count, memory_order_acquire) < count) {
        if (polls > 0) {
            polls--;
            rd_relax();
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

/* Nanoseconds that rounds of eight independent additions take: as many as a core can begin in two cycles. */
static double fill_core(void)
{
    uint64_t a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;
    int64_t begin = rd_now();
    for (int i = 0; i < ADDITIONS; i++) {
        a += 3, b += 3, c += 3, d += 3, e += 3, f += 3, g += 3, h += 3;
        __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f), "+r"(g), "+r"(h));
    }
    return (double)(rd_now() - begin);
}

/* 0: none yet. */
static double shorter(double a, double b)
{
    return a > 0 && a < b ? a : b;
}

/* For the server: whether it and its peer slow each other down. All ranks call it. */
static bool shares_core(rd_meeting *meeting, bool serves, bool returns)
{
    double alone = 0, both = 0;
    for (int i = 0; i < TRIES; i++) {
        rd_meet(meeting);
        if (serves) alone = shorter(alone, fill_core());
        rd_meet(meeting);
        if (serves || returns) both = shorter(both, fill_core());
    }
    return both > 1.5 * alone;
}

rd_placement rd_find_placement(rd_meeting *meeting)
{
    rd_placement place = {.one_core = true};
    int pairs = meeting->size < 3 ? meeting->size - 1 : meeting->size;
    for (int server = 0; server < pairs; server++) { /* one pair at a time */
        int peer = (server + 1) % meeting->size;
        bool serves = meeting->rank == server, returns = meeting->rank == peer;
        bool one_core = shares_core(meeting, serves, returns);
        rd_meet(meeting);
        if (serves)
            meeting->pages[server]->place = (rd_placement){rally(meeting, meeting->shots, peer, true), one_core};
        else if (returns)
            rally(meeting, meeting->shots, server, false);
        meeting->shots += RALLIES * SHOTS; /* on every rank, so that each pair's counts begin alike */
    }
    rd_meet(meeting);
    for (int r = 0; r < pairs; r++) {
        const rd_placement *pair = &meeting->pages[r]->place;
        if (pair->round_trip_ns > place.round_trip_ns) place.round_trip_ns = pair->round_trip_ns;
        place.one_core = place.one_core && pair->one_core;
    }
    rd_meet(meeting); /* nobody measures anew before all have read */
    return place;
}

const char *rd_placement_name(rd_placement place)
{
    if (place.round_trip_ns >= 1000) return "busy";
    return place.one_core ? "core" : place.round_trip_ns < 185 ? "L3" : "host";
}
