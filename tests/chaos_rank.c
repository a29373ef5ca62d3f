/* SPDX-License-Identifier: Apache-2.0 */
#include "chaos.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

typedef struct rank_state {
    chaos_round *round;
    rondo_comm *comm;
    int rank;
    pthread_t thread; /* of who aborts or exits in mid-call */
    bool has_thread;
} rank_state;

/* ---- Faults that a rank does to itself ---- */

static void *exit_or_abort(void *argument)
{
    rank_state *s = argument;
    usleep((useconds_t)s->round->delay_us);
    if (s->round->fault == FAULT_EXIT) exit(0);
    double start = test_seconds();
    CHECK(rondo_comm_abort(s->comm) == RONDO_SUCCESS, "abort");
    CHECK(test_seconds() - start < 1 * test_slowness(), "abort took %.3g s", test_seconds() - start);
    return NULL;
}

/* Before call number i. */
static void maybe_do_harm(rank_state *s, int i)
{
    const chaos_round *round = s->round;
    if (s->rank != round->victim || i != round->at) return;
    if (round->fault == FAULT_DELAY) usleep((useconds_t)round->delay_us);
    if (round->fault == FAULT_EXIT && !round->inside) exit(0);
    if (round->fault != FAULT_EXIT && round->fault != FAULT_ABORT) return;
    CHECK(pthread_create(&s->thread, NULL, exit_or_abort, s) == 0, "no thread");
    s->has_thread = true;
}

/* The victim has done its calls before the fault came. */
static void await_end(rank_state *s)
{
    if (s->rank != s->round->victim) return;
    if (s->round->fault == FAULT_ABORT) pthread_join(s->thread, NULL);
    if (s->round->fault == FAULT_STOP_10)
        while (!s->round->shared->struck) usleep(1000);
    if (s->round->fault == FAULT_KILL || s->round->fault == FAULT_EXIT)
        for (;;) pause();
}

/* ---- What must be ---- */

static bool everything_completes(fault f)
{
    return f == FAULT_NONE || f == FAULT_STOP_1 || f == FAULT_DELAY;
}

static void check_error(const rank_state *s, rondo_result result, bool on_child, const char *text)
{
    const chaos_round *round = s->round;
    bool victim = s->rank == round->victim;
    char name[24];
    CHECK(!everything_completes(round->fault), "%s: %s", rondo_result_string(result), text);
    /* Who failed on a child makes other calls on its parent than the others: that, too, is found out then. */
    if (on_child) round->shared->child_failed = 1;
    if (round->shared->child_failed && result == RONDO_MISMATCH) return;
    CHECK(result == RONDO_REMOTE_ERROR || result == RONDO_TIMEOUT || result == RONDO_ABORTED, "%s: %s",
          rondo_result_string(result), text);
    if (round->shared->child_failed) return;
    snprintf(name, sizeof name, "rank %d ", round->victim);
    if (round->fault == FAULT_STOP_10) {
        CHECK(result == RONDO_TIMEOUT || victim, "beside a stopped rank: %s: %s", rondo_result_string(result), text);
        CHECK(victim || (strstr(text, name) && strstr(text, "stopped")), "does not say that %sis stopped: %s", name,
              text);
        return;
    }
    CHECK(result == (round->fault == FAULT_ABORT && victim ? RONDO_ABORTED : RONDO_REMOTE_ERROR), "%s: %s",
          rondo_result_string(result), text);
    CHECK(victim || strstr(text, name), "does not name %s: %s", name, text);
    if (round->fault == FAULT_EXIT)
        CHECK(!strstr(text, "killed") && !strstr(text, "crash"), "calls it a crash: %s", text);
    if (round->fault == FAULT_ABORT) CHECK(strstr(text, "rondo_comm_abort"), "says nothing of an abort: %s", text);
}

static rondo_result timed_barrier(rondo_comm *comm)
{
    double start = test_seconds();
    rondo_result result = rondo_barrier(comm, NULL);
    CHECK(test_seconds() - start < chaos_limit(), "a barrier took %.3g s: %s", test_seconds() - start,
          rondo_last_error(comm));
    return result;
}

/* The communicator has ended, or its next call shows that it must: the victim never makes it. */
static void check_that_it_stays(rank_state *s)
{
    char text[2048];
    rondo_result result = timed_barrier(s->comm), state;
    /* To one who was stopped the others' parts of their last call have come, and it may complete here. */
    if (s->round->fault == FAULT_STOP_10 && s->rank == s->round->victim && result == RONDO_SUCCESS)
        result = timed_barrier(s->comm);
    snprintf(text, sizeof text, "%s", rondo_last_error(s->comm));
    CHECK(result != RONDO_SUCCESS, "a barrier succeeded after the fault");
    check_error(s, result, false, text);
    CHECK(rondo_comm_error(s->comm, &state) == RONDO_SUCCESS && state == result, "%s, then %s",
          rondo_result_string(result), rondo_result_string(state));
    for (int i = 0; i < 2; i++) {
        double start = test_seconds();
        CHECK(rondo_barrier(s->comm, NULL) == result, "later: %s", rondo_last_error(s->comm));
        CHECK(!strcmp(text, rondo_last_error(s->comm)), "was \"%s\", is \"%s\"", text, rondo_last_error(s->comm));
        CHECK(test_seconds() - start < chaos_moment(), "a later call took %.3g s", test_seconds() - start);
    }
    s->round->shared->failed[s->rank] = 1 + (int)result;
}

/* Those who are left go on; who was stopped comes to it late. */
static void go_on(rank_state *s)
{
    const chaos_round *round = s->round;
    bool gone = round->fault == FAULT_KILL || round->fault == FAULT_EXIT;
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_comm *rest = NULL;
    rondo_result result = RONDO_REMOTE_ERROR;
    config.timeout_s = 15 * test_slowness();
    for (int tries = 0; tries < 3 && result == RONDO_REMOTE_ERROR; tries++)
        result = rondo_comm_shrink(s->comm, NULL, 0, &rest, &config);
    CHECK(result == RONDO_SUCCESS, "shrink: %s: %s", rondo_result_string(result), rondo_last_error(s->comm));
    CHECK(rondo_comm_size(rest) == round->n - gone, "%d of %d survived", rondo_comm_size(rest), round->n);
    chaos_must_work(rest, 1000);
    CHECK(rondo_comm_destroy(rest) == RONDO_SUCCESS, "destroy");
}

/* ---- The round ---- */

static void make_calls(rank_state *s)
{
    const chaos_round *round = s->round;
    chaos_shared *shared = round->shared;
    for (int i = 0; i < round->calls; i++) {
        bool on_child;
        shared->progress[s->rank] = i + 1;
        maybe_do_harm(s, i);
        rondo_result result = chaos_make(s->comm, &round->call[i], i, &on_child);
        shared->slowest[s->rank] = chaos_slowest();
        if (result != RONDO_SUCCESS) {
            check_error(s, result, on_child, rondo_last_error(on_child ? NULL : s->comm));
            break;
        }
        shared->completed[s->rank]++;
    }
    shared->progress[s->rank] = round->calls + 1;
}

static void become_a_rank(const chaos_round *round)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    test_env("RONDO_TRANSPORT", round->transport);
    test_env("RONDO_ALGO", round->algo);
}

void chaos_be_rank(chaos_round *round, int rank)
{
    static rank_state s; /* a leak checker shall find what it holds */
    s = (rank_state){.round = round, .rank = rank};
    rondo_config config = RONDO_CONFIG_INIT;
    become_a_rank(round);
    if (rank == round->victim && round->fault == FAULT_STOP_1) chaos_allow(1.5);
    if (rank == round->victim && round->fault == FAULT_STOP_10) chaos_allow(10 * test_slowness() + 1);
    config.timeout_s = CHAOS_TIMEOUT_S * test_slowness();
    double start = test_seconds();
    rondo_result result = rondo_init_rank(&s.comm, round->n, round->id, rank, &config);
    if (round->fault == FAULT_KILL_START && result != RONDO_SUCCESS) {
        CHECK(result == RONDO_REMOTE_ERROR || result == RONDO_TIMEOUT, "%s: %s", rondo_result_string(result),
              rondo_last_error(NULL));
        CHECK(test_seconds() - start < chaos_limit(), "a start took %.3g s", test_seconds() - start);
        exit(0);
    }
    CHECK(result == RONDO_SUCCESS, "start: %s: %s", rondo_result_string(result), rondo_last_error(NULL));
    if (round->fault == FAULT_KILL_START && rank == round->victim)
        for (;;) pause();
    make_calls(&s);
    await_end(&s);
    if (!everything_completes(round->fault)) check_that_it_stays(&s);
    if (!everything_completes(round->fault) && round->fault != FAULT_KILL_START) go_on(&s);
    start = test_seconds();
    CHECK(rondo_comm_destroy(s.comm) == RONDO_SUCCESS, "destroy");
    CHECK(test_seconds() - start < chaos_moment(), "destroy took %.3g s", test_seconds() - start);
    chaos_calls_end();
    exit(0);
}
