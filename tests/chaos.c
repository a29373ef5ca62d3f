/* SPDX-License-Identifier: Apache-2.0
 *
 * chaos.c - SEED=1 ROUNDS=500 build/chaos: rounds of random calls with a random fault among them, several at a time.
 * ROUND=17 runs that one alone, with the library's warnings. Without SEED it is random; it is printed first.
 */
#include "chaos.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WATCH_S 60 /* longer than any round may take */

static const char *const fault_names[FAULTS] = {"none",      "kill", "kill at start", "stop 1 s",
                                                "stop 10 s", "exit", "abort",         "delay"};

/* SplitMix64 (Steele, Lea, Flood 2014). */
uint64_t chaos_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint32_t chaos_below(uint64_t *state, uint32_t limit)
{
    return (uint32_t)((chaos_random(state) >> 32) * limit >> 32);
}

/* ---- What happens in a round ---- */

/* 0 to 4 MiB, short ones more often. */
static uint32_t some_bytes(uint64_t *state)
{
    uint32_t most = 1u << chaos_below(state, 23);
    return most == 1 ? 0 : chaos_below(state, most + 1);
}

static chaos_round plan_round(uint64_t seed, int number)
{
    uint64_t state = seed ^ (uint64_t)number << 32;
    chaos_round round = {.seed = chaos_random(&state)};
    static const int often[] = {FAULT_NONE,   FAULT_KILL,   FAULT_KILL,    FAULT_KILL, FAULT_KILL_START,
                                FAULT_STOP_1, FAULT_STOP_1, FAULT_STOP_10, FAULT_EXIT, FAULT_EXIT,
                                FAULT_ABORT,  FAULT_ABORT,  FAULT_DELAY};
    state = round.seed;
    round.n = 2 + (int)chaos_below(&state, CHAOS_RANKS - 1);
    round.fault = (fault)often[chaos_below(&state, sizeof often / sizeof *often)];
    round.transport = chaos_below(&state, 2) ? "shm" : "tcp";
    round.algo = chaos_below(&state, 3) ? NULL : "ring";
    round.calls = 4 + (int)chaos_below(&state, CHAOS_CALLS - 3);
    round.victim = (int)chaos_below(&state, (uint32_t)round.n);
    round.at = (int)chaos_below(&state, (uint32_t)round.calls);
    round.delay_us = round.fault == FAULT_DELAY ? (int)chaos_below(&state, 1000000)
                                                : (int)chaos_below(&state, 1u << chaos_below(&state, 16));
    if (round.fault == FAULT_KILL_START) round.delay_us *= 3;
    round.inside = chaos_below(&state, 2);
    for (int i = 0; i < round.calls; i++) {
        round.call[i].deed = (deed)chaos_below(&state, DEEDS);
        round.call[i].bytes = some_bytes(&state);
        round.call[i].seed = (uint32_t)chaos_random(&state);
    }
    return round;
}

/* ---- Watching over one ---- */

typedef struct watched {
    chaos_round *round;
    pid_t pid[CHAOS_RANKS];
    int status[CHAOS_RANKS]; /* -1 while it runs */
    double began, until;
} watched;

/* Who has ended? Returns how many have not. */
static int reap(watched *w)
{
    int left = 0;
    for (int r = 0; r < w->round->n; r++) {
        int status;
        if (w->status[r] == -1 && waitpid(w->pid[r], &status, WNOHANG) == w->pid[r]) w->status[r] = status;
        left += w->status[r] == -1;
    }
    return left;
}

static bool someone_failed(const watched *w)
{
    for (int r = 0; r < w->round->n; r++)
        if (w->status[r] != -1 && w->status[r] != 0 && !WIFSIGNALED(w->status[r])) return true;
    return false;
}

static bool time_is_left(watched *w)
{
    usleep(200);
    reap(w);
    return test_seconds() < w->until && !someone_failed(w);
}

static bool all_others_failed(const watched *w)
{
    for (int r = 0; r < w->round->n; r++)
        if (r != w->round->victim && !w->round->shared->failed[r]) return false;
    return true;
}

/* The faults that come from outside. */
static void do_harm(watched *w)
{
    chaos_round *round = w->round;
    pid_t victim = w->pid[round->victim];
    bool stops = round->fault == FAULT_STOP_1 || round->fault == FAULT_STOP_10, kills = round->fault == FAULT_KILL;
    if (round->fault == FAULT_KILL_START) {
        usleep((useconds_t)round->delay_us);
        kill(victim, SIGKILL);
    }
    if (!stops && !kills) return;
    while (round->shared->progress[round->victim] <= round->at && time_is_left(w))
        ;
    usleep((useconds_t)round->delay_us);
    if (w->status[round->victim] != -1) return;
    kill(victim, kills ? SIGKILL : SIGSTOP);
    if (kills) return;
    double end = test_seconds() + (round->fault == FAULT_STOP_1 ? 1 : 10 * test_slowness());
    while (test_seconds() < end && time_is_left(w) && !(round->fault == FAULT_STOP_10 && all_others_failed(w)))
        ;
    round->shared->struck = 1;
    kill(victim, SIGCONT);
}

/* Ends those who hang; says what they were at. */
static bool end_all(watched *w)
{
    bool hung = false;
    for (int r = 0; r < w->round->n; r++) {
        if (w->status[r] != -1) continue;
        if (!someone_failed(w)) {
            hung = true;
            fprintf(stderr, "ERROR: rank %d (process %d) hangs in or after call %d of %d\n", r, (int)w->pid[r],
                    w->round->shared->progress[r] - 1, w->round->calls);
        }
    }
    for (int r = 0; r < w->round->n; r++) {
        if (w->status[r] != -1) continue;
        kill(w->pid[r], SIGKILL);
        waitpid(w->pid[r], NULL, 0);
    }
    return hung;
}

static bool ended_well(const watched *w, int r)
{
    bool killed = w->round->fault == FAULT_KILL || w->round->fault == FAULT_KILL_START;
    if (killed && r == w->round->victim)
        return (WIFSIGNALED(w->status[r]) && WTERMSIG(w->status[r]) == SIGKILL) || !w->status[r];
    return w->status[r] == 0;
}

/* In a process of its own. true: all was as it must be. */
static bool run_round(chaos_round *round)
{
    ranks id = {0};
    watched w = {.round = round};
    bool well = true;
    round->id = ranks_unique_id(&id);
    w.began = test_seconds();
    w.until = w.began + WATCH_S * test_slowness();
    for (int r = 0; r < round->n; r++) {
        w.status[r] = -1;
        w.pid[r] = fork();
        if (w.pid[r] < 0) return false;
        if (!w.pid[r]) chaos_be_rank(round, r);
    }
    do_harm(&w);
    while (reap(&w) && time_is_left(&w)) usleep(2000);
    if (reap(&w)) well = !end_all(&w) && !someone_failed(&w);
    for (int r = 0; r < round->n && well; r++) {
        well = ended_well(&w, r);
        if (!well) fprintf(stderr, "ERROR: rank %d ended with status %#x\n", r, (unsigned)w.status[r]);
    }
    ranks_forget_id(&id);
    return well;
}

/* ---- All of them ---- */

typedef struct sums {
    int rounds, bad, completed, errors;
    double slowest;
} sums;

static void add_up(sums *sum, const chaos_round *round, bool well)
{
    sum->rounds++;
    sum->bad += !well;
    for (int r = 0; r < round->n; r++) {
        sum->completed += round->shared->completed[r];
        sum->errors += round->shared->failed[r] != 0;
        if (round->shared->slowest[r] > sum->slowest) sum->slowest = round->shared->slowest[r];
    }
}

static void finish_one(chaos_round *rounds, const pid_t *pids, int begun, uint64_t seed, sums sum[FAULTS])
{
    int status;
    pid_t pid = wait(&status);
    for (int i = 0; i < begun; i++) {
        if (pids[i] != pid) continue;
        const chaos_round *round = &rounds[i];
        add_up(&sum[round->fault], round, status == 0);
        if (status)
            printf(
                "FAIL  round %d: %s of rank %d of %d in call %d of %d, %s%s%s; again: SEED=%llu ROUND=%d build/chaos\n",
                i, fault_names[round->fault], round->victim, round->n, round->at, round->calls, round->transport,
                round->algo ? ", " : "", round->algo ? round->algo : "", (unsigned long long)seed, i);
        fflush(stdout);
    }
}

static int run_all(uint64_t seed, int first, int end, int jobs)
{
    static chaos_round *rounds; /* static: ranks inherit them, and a leak checker shall find them */
    static pid_t *pids;
    rounds = calloc((size_t)end, sizeof *rounds);
    pids = calloc((size_t)end, sizeof *pids);
    sums sum[FAULTS] = {0};
    int bad = 0, running = 0;
    if (!rounds || !pids) return 1;
    for (int i = first; i < end; i++) {
        if (running == jobs) {
            finish_one(rounds, pids, i, seed, sum);
            running--;
        }
        rounds[i] = plan_round(seed, i);
        rounds[i].shared = test_shared(sizeof *rounds[i].shared);
        fflush(NULL);
        pids[i] = fork();
        if (pids[i] < 0) return 1;
        if (!pids[i]) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            _exit(!run_round(&rounds[i]));
        }
        running++;
    }
    for (; running; running--) finish_one(rounds, pids, end, seed, sum);
    printf("%-14s %7s %7s %10s %7s %15s\n", "fault", "rounds", "failed", "calls done", "errors", "longest call, s");
    for (int f = 0; f < FAULTS; f++) {
        printf("%-14s %7d %7d %10d %7d %15.3f\n", fault_names[f], sum[f].rounds, sum[f].bad, sum[f].completed,
               sum[f].errors, sum[f].slowest);
        bad += sum[f].bad;
    }
    free(pids);
    free(rounds);
    return bad != 0;
}

static uint64_t number_from(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

int main(void)
{
    uint64_t seed = number_from("SEED", (uint64_t)time(NULL) * 1000 + (uint64_t)getpid() % 1000);
    int rounds = (int)number_from("ROUNDS", 500), jobs = (int)number_from("ROUNDS_AT_ONCE", 6);
    const char *only = getenv("ROUND");
    int first = only && *only ? atoi(only) : 0, end = only && *only ? first + 1 : rounds;
    if (first < 0 || end < 1 || jobs < 1)
        return fprintf(stderr, "SEED, ROUNDS, ROUND, ROUNDS_AT_ONCE: numbers above 0\n"), 2;
    printf("SEED=%llu ROUNDS=%d\n", (unsigned long long)seed, rounds);
    if (first + 1 != end) setenv("RONDO_DEBUG", "NONE", 0);
    return run_all(seed, first, end, jobs);
}
