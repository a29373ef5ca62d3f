/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is stopped, and who is gone: known on every rank.
 */
#include "base/clock.h"
#include "base/status.h"
#include "boot_ranks.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT_OF_NEWS_S (SANITIZED ? 6.0 : 2.0)

static void check_all(const struct run *run, int except)
{
    for (int i = 0; i < run->world; i++)
        if (i != except && run->rank[i].result != RONDO_SUCCESS)
            fail_msg("rank %d: %s (%s)", i, rondo_result_string(run->rank[i].result), run->rank[i].text);
}

/* ---- Stopped ---- */

static bool wait_stopped(rank *r, int rank_number, bool wanted, double seconds)
{
    double since = -1;
    for (int64_t deadline = rd_deadline(seconds); rd_now() < deadline; sleep_s(0.005))
        if (rd_member_is_stopped(r->member, rank_number, &since) == wanted) return !wanted || since >= 0;
    return false;
}

enum { VICTIM = 2 };

/* Ranks see the victim stopped, and then going on, and nothing else. The victim sees nobody stopped. */
static void watch_victim(rank *r)
{
    int others = r->run->world - 1, wakes = 0;
    rondo_result result = rank_start(r);
    r->run->step++;
    if (result == RONDO_SUCCESS && r->me != VICTIM) {
        if (!wait_stopped(r, VICTIM, true, 10)) result = rd_fail(RONDO_TIMEOUT, "not seen to be stopped");
        r->run->rank[r->me].at = (double)rd_now() * 1e-9;
        wakes = r->wakes;
        if (!wait_stopped(r, VICTIM, false, 15)) result = rd_fail(RONDO_TIMEOUT, "not seen to go on");
        r->run->rank[r->me].seconds = (double)rd_now() * 1e-9;
        if (result == RONDO_SUCCESS && (wakes < 1 || r->wakes < 2 || r->stops))
            result = rd_fail(RONDO_INTERNAL_ERROR, "%d, then %d wakes, %d stops", wakes, r->wakes, r->stops);
    }
    for (int i = 0; i < r->run->world && result == RONDO_SUCCESS; i++)
        if (rd_member_is_stopped(r->member, i, NULL)) result = rd_fail(RONDO_INTERNAL_ERROR, "rank %d is stopped", i);
    double at = r->run->rank[r->me].at;
    rank_note(r, result);
    r->run->rank[r->me].at = at;
    r->run->step++;
    wait_for_int(&r->run->step, 2 * (others + 1), LIMIT_S);
}

static void check_stopped(int world, bool tcp)
{
    struct run *run = run_new(world, LIMIT_S);
    run->argument = tcp;
    for (int i = 0; i < world; i++) run_fork(run, i, watch_victim);
    assert_true(wait_for_int(&run->step, world, LIMIT_S));
    sleep_s(0.5);
    double stopped = (double)rd_now() * 1e-9;
    kill(run->rank[VICTIM].pid, SIGSTOP);
    sleep_s(LIMIT_OF_NEWS_S + 0.3);
    double resumed = (double)rd_now() * 1e-9;
    kill(run->rank[VICTIM].pid, SIGCONT);
    for (int i = 0; i < world; i++) assert_int_equal(run_wait(run, i), 0);
    check_all(run, -1);
    for (int i = 0; i < world; i++) {
        double learnt = run->rank[i].at - stopped, on = run->rank[i].seconds - resumed;
        if (i == VICTIM) continue;
        if (learnt < 0 || learnt > LIMIT_OF_NEWS_S) fail_msg("rank %d learnt it after %.3f s", i, learnt);
        if (on < 0 || on > LIMIT_OF_NEWS_S) fail_msg("rank %d learnt that it goes on after %.3f s", i, on);
    }
    run_free(run);
}

static void test_stopped(void **state)
{
    (void)state;
    check_stopped(3, false);
    check_stopped(11, false); /* most learn it from others */
    check_stopped(3, true);
    check_stopped(7, true);
}

/* Once nobody is stopped, looking costs next to nothing. */
static void idle(rank *r)
{
    struct rusage before, after;
    rondo_result result = rank_start(r);
    r->run->step++;
    wait_for_int(&r->run->step, r->run->world, LIMIT_S);
    getrusage(RUSAGE_SELF, &before);
    sleep(3);
    getrusage(RUSAGE_SELF, &after);
    double used =
        (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_stime.tv_sec) +
        (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_stime.tv_usec) *
            1e-6;
    r->run->rank[r->me].seconds = used / 3;
    rank_note(r, result);
    r->run->step++;
    wait_for_int(&r->run->step, 2 * r->run->world, LIMIT_S);
}

static void test_idle_is_cheap(void **state)
{
    (void)state;
    struct run *run = run_new(4, LIMIT_S);
    run_processes(run, idle);
    check_all(run, -1);
    print_message("%.3f %% of a core\n", run->rank[0].seconds * 100);
    if (!SANITIZED) assert_true(run->rank[0].seconds < 0.002);
    run_free(run);
}

/* ---- Gone ---- */

static bool wait_gone(rank *r, int rank_number, double seconds)
{
    for (int64_t deadline = rd_deadline(seconds); rd_now() < deadline; sleep_s(0.005))
        if (rd_member_is_gone(r->member, rank_number)) return true;
    return false;
}

/* Rank 1 ends the communicator and lives on; only when it is killed (argument 0) or destroys (2) is it gone. */
static void announce(rank *r)
{
    int world = r->run->world;
    rondo_result result = rank_start(r);
    r->run->step++;
    wait_for_int(&r->run->step, world, LIMIT_S);
    if (r->me == 1) {
        rd_member_announce(r->member, RONDO_TIMEOUT, "too slow");
        wait_for_int(&r->run->step, 2 * world - 1, LIMIT_S);
        if (r->run->argument == 2) return;
        raise(SIGKILL);
    }
    if (result == RONDO_SUCCESS && (!rank_wait_stop(r, 5) || r->stopped != RONDO_TIMEOUT))
        result = rd_fail(RONDO_INTERNAL_ERROR, "stopped by %s", r->stop_text);
    sleep_s(0.1);
    if (result == RONDO_SUCCESS && rd_member_is_gone(r->member, 1))
        result = rd_fail(RONDO_INTERNAL_ERROR, "gone already");
    r->run->step++;
    wait_for_int(&r->run->step, 2 * world - 1, LIMIT_S);
    if (result == RONDO_SUCCESS && !wait_gone(r, 1, 5)) result = rd_fail(RONDO_TIMEOUT, "it is not gone");
    for (int i = 0; i < world && result == RONDO_SUCCESS; i++)
        if (i != 1 && rd_member_is_gone(r->member, i))
            result = rd_fail(RONDO_INTERNAL_ERROR, "rank %d is gone, too", i);
    if (result == RONDO_SUCCESS && (r->stops != 1 || r->wakes < 1))
        result = rd_fail(RONDO_INTERNAL_ERROR, "%d stops, %d wakes", r->stops, r->wakes);
    rank_note(r, result);
    r->run->step++;
    wait_for_int(&r->run->step, 3 * world - 2, LIMIT_S);
}

static void check_gone(int argument)
{
    struct run *run = run_new(6, LIMIT_S);
    run->argument = argument == 2 ? 2 : 0;
    for (int i = 0; i < run->world; i++) run_fork(run, i, announce);
    for (int i = 0; i < run->world; i++) {
        int status = run_wait(run, i);
        if (i != 1) assert_int_equal(status, 0);
    }
    check_all(run, 1);
    run_free(run);
}

static void test_ended_is_not_gone(void **state)
{
    (void)state;
    check_gone(0);
    check_gone(2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_idle_is_cheap),
        cmocka_unit_test(test_ended_is_not_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
