/* SPDX-License-Identifier: Apache-2.0
 *
 * Agreements: the survivors say the same about who goes on, whoever dies when; lists that differ; ranks that never
 * come.
 */
#include "base/clock.h"
#include "base/status.h"
#include "boot_ranks.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a rank found out: a bit for each that is present, and the agreement's number above. */
static long outcome(const struct run *run, const bool *present, uint64_t number)
{
    long bits = (long)number << 32;
    for (int i = 0; i < run->world; i++) bits |= (long)present[i] << i;
    return bits;
}

static long all_but(int world, uint64_t number, unsigned excluded)
{
    return (long)number << 32 | (long)(((1u << world) - 1) & ~excluded);
}

static rondo_result agree(rank *r, const bool *exclude, double seconds)
{
    bool present[MOST_RANKS];
    uint64_t number = 0;
    rondo_result result = rd_member_agree(r->member, exclude, rd_deadline(seconds), NULL, present, &number);
    r->run->rank[r->me].note = result == RONDO_SUCCESS ? outcome(r->run, present, number) : -1;
    return result;
}

static void check(const struct run *run, int me, rondo_result result, long note, const char *words)
{
    if (run->rank[me].result != result || run->rank[me].note != note || !strstr(run->rank[me].text, words))
        fail_msg("rank %d: %s: %s; %lx, not %lx", me, rondo_result_string(run->rank[me].result), run->rank[me].text,
                 run->rank[me].note, note);
}

/* ---- Deaths ---- */

enum { WORLD = 7 };

/* Rank 2 dies before, rank 4 at the time that the run's argument says; the others agree, though rank 5 ended the
 * communicator and rank 6 destroyed it. */
static void survive(rank *r)
{
    struct run *run = r->run;
    rondo_result result = rank_start(r);
    run->step++;
    wait_for_int(&run->step, WORLD, LIMIT_S);
    if (r->me == 6) return;
    if (r->me == 5) rd_member_announce(r->member, RONDO_TIMEOUT, "too slow");
    if (r->me == 2) raise(SIGKILL);
    if (result == RONDO_SUCCESS && r->me != 5 && !rank_wait_stop(r, 5))
        result = rd_fail(RONDO_TIMEOUT, "nothing stopped it");
    if (result == RONDO_SUCCESS) result = agree(r, NULL, 10);
    rank_note(r, result);
    run->step++;
    wait_for_int(&run->step, 1000, LIMIT_S);
}

static void check_survivors(int delay_us)
{
    struct run *run = run_new(WORLD, LIMIT_S);
    for (int i = 0; i < WORLD; i++) run_fork(run, i, survive);
    assert_true(wait_for_int(&run->step, WORLD, LIMIT_S));
    if (delay_us >= 0) {
        sleep_s(delay_us * 1e-6);
        kill(run->rank[4].pid, SIGKILL);
        run_wait(run, 4);
    }
    assert_true(wait_for_int(&run->step, WORLD + (delay_us < 0 ? 5 : 4), LIMIT_S));
    run->step += 1000;
    for (int i = 0; i < WORLD; i++)
        if (i != 4 || delay_us < 0) run_wait(run, i);
    for (int i = 0; i < WORLD; i++) {
        if (i == 2 || i == 6 || (i == 4 && delay_us >= 0)) continue;
        /* Whoever dies late may be present still, but then for all. */
        long late = all_but(WORLD, 1, 1 << 2 | 1 << 6), early = late & ~(1L << 4);
        long expected = delay_us >= 0 && run->rank[0].note == early ? early : late;
        check(run, i, RONDO_SUCCESS, expected, "");
    }
    run_free(run);
}

static void test_survivors(void **state)
{
    (void)state;
    check_survivors(-1);
    for (int delay_us = 0; delay_us < 3000; delay_us += 211) check_survivors(delay_us);
}

/* Rank 3 does not call; while the others wait for it, it is killed. And once more without rank 1. */
static void survive_two(rank *r)
{
    struct run *run = r->run;
    rondo_result result = rank_start(r);
    run->step++;
    wait_for_int(&run->step, run->world, LIMIT_S);
    if (r->me == 3) pause();
    if (result == RONDO_SUCCESS) result = agree(r, NULL, 10);
    rank_note(r, result);
    run->step++;
    wait_for_int(&run->step, 100, LIMIT_S);
    if (r->me == 1) raise(SIGKILL);
    if (result == RONDO_SUCCESS) result = agree(r, NULL, 10);
    /* It may be agreed before the death is known; then the next excludes it. */
    if (result == RONDO_SUCCESS && run->rank[r->me].note == all_but(run->world, 2, 1 << 3)) result = agree(r, NULL, 10);
    rank_note(r, result);
    run->step++;
    wait_for_int(&run->step, 200, LIMIT_S);
}

static void test_death_meanwhile(void **state)
{
    (void)state;
    for (int tcp = 0; tcp < 2; tcp++) {
        struct run *run = run_new(6, LIMIT_S);
        run->argument = tcp;
        for (int i = 0; i < 6; i++) run_fork(run, i, survive_two);
        assert_true(wait_for_int(&run->step, 6, LIMIT_S));
        sleep_s(0.3);
        assert_int_equal(run->step, 6); /* they wait */
        kill(run->rank[3].pid, SIGKILL);
        assert_true(wait_for_int(&run->step, 11, LIMIT_S));
        for (int i = 0; i < 6; i++)
            if (i != 3) check(run, i, RONDO_SUCCESS, all_but(6, 1, 1 << 3), "");
        run->step += 100;
        assert_true(wait_for_int(&run->step, 115, LIMIT_S));
        run->step += 100;
        for (int i = 0; i < 6; i++) run_wait(run, i);
        for (int i = 0; i < 6; i++)
            if (i != 3 && i != 1) check(run, i, RONDO_SUCCESS, all_but(6, 2, 1 << 3 | 1 << 1), "");
        run_free(run);
    }
}

/* ---- Who never comes ---- */

/* Rank 2 does not call in time; later all call again, rank 2 for the first time. */
static void come_late(rank *r)
{
    struct run *run = r->run;
    rondo_result result = rank_start(r);
    run->step++;
    wait_for_int(&run->step, run->world, LIMIT_S);
    if (r->me != 2 && result == RONDO_SUCCESS) result = agree(r, NULL, 0.3);
    rank_note(r, result);
    run->step++;
    wait_for_int(&run->step, 100, LIMIT_S);
    sleep_s(r->me == 0 ? 0 : r->me == 2 ? 0.1 : 0.2);
    rank_note(r, agree(r, NULL, 5));
    run->step++;
    wait_for_int(&run->step, 100 + 3 * run->world, LIMIT_S);
}

static void test_never_called(void **state)
{
    (void)state;
    char words[64];
    struct run *run = run_new(4, LIMIT_S);
    for (int i = 0; i < 4; i++) run_fork(run, i, come_late);
    assert_true(wait_for_int(&run->step, 8, LIMIT_S));
    snprintf(words, sizeof words, "rank 2 (pid %d on ", run->rank[2].pid);
    for (int i = 0; i < 4; i++) {
        if (i == 2) continue;
        check(run, i, RONDO_TIMEOUT, -1, words);
        check(run, i, RONDO_TIMEOUT, -1, ") did not call it");
        for (int other = 0; other < 4; other++) {
            snprintf(words, sizeof words, "rank %d (", other);
            if (other != 2) assert_null(strstr(run->rank[i].text, words));
        }
        snprintf(words, sizeof words, "rank 2 (pid %d on ", run->rank[2].pid);
    }
    run->step += 100;
    for (int i = 0; i < 4; i++) assert_int_equal(run_wait(run, i), 0);
    for (int i = 0; i < 4; i++) check(run, i, RONDO_SUCCESS, all_but(4, 2, 0), "");
    run_free(run);
}

/* ---- Lists ---- */

/* What the ranks are given. */
enum scenario { SAME_LISTS, OTHER_LIST, LIST_AND_NONE, NOT_IN_LIST };
static enum scenario scenario; /* set before the ranks are forked */

static void with_lists(rank *r)
{
    struct run *run = r->run;
    bool list[MOST_RANKS] = {false};
    rondo_result result = rank_start(r);
    run->step++;
    wait_for_int(&run->step, run->world, LIMIT_S);
    list[scenario == OTHER_LIST && r->me == 3 ? 2 : 1] = true;
    if (scenario == NOT_IN_LIST && r->me == 4) raise(SIGKILL);
    if (r->me == 0) sleep_s(0.2); /* comes when others may have failed already */
    if (r->me == 1) {
        if (agree(r, list, 1) != RONDO_INVALID_ARGUMENT) result = RONDO_INTERNAL_ERROR;
    } else if (result == RONDO_SUCCESS) {
        result = agree(r, scenario == LIST_AND_NONE && r->me == 3 ? NULL : list, 5);
    }
    rank_note(r, result);
    run->step++;
    wait_for_int(&run->step, 2 * run->world - (scenario == NOT_IN_LIST), LIMIT_S);
}

static void check_lists(enum scenario s, rondo_result result, long note, const char *words, const char *words_of_3)
{
    struct run *run = run_new(5, LIMIT_S);
    scenario = s;
    for (int i = 0; i < 5; i++) run_fork(run, i, with_lists);
    for (int i = 0; i < 5; i++) run_wait(run, i);
    check(run, 1, RONDO_SUCCESS, -1, "");
    for (int i = 0; i < 5; i++)
        if (i != 1 && (i != 4 || s != NOT_IN_LIST)) check(run, i, result, note, i == 3 ? words_of_3 : words);
    run_free(run);
}

static void test_lists(void **state)
{
    (void)state;
    check_lists(SAME_LISTS, RONDO_SUCCESS, all_but(5, 1, 1 << 1), "", "");
    check_lists(OTHER_LIST, RONDO_MISMATCH, -1, "leaves out rank 2; all must give the same list",
                "leaves out rank 2, rank ");
    check_lists(LIST_AND_NONE, RONDO_MISMATCH, -1, "leaves out those that are gone; all must",
                "leaves out those that are gone, rank ");
    check_lists(NOT_IN_LIST, RONDO_REMOTE_ERROR, -1, "rank 4 (pid ", "not in the list of those to leave out");
}

/* ---- Alone ---- */

static void alone(rank *r)
{
    bool list[1] = {true};
    rondo_result result = rank_start(r);
    if (result == RONDO_SUCCESS && agree(r, list, 1) != RONDO_INVALID_ARGUMENT) result = RONDO_INTERNAL_ERROR;
    if (result == RONDO_SUCCESS) result = agree(r, NULL, 1);
    rank_note(r, result);
}

static void test_alone(void **state)
{
    (void)state;
    struct run *run = run_new(1, LIMIT_S);
    run_processes(run, alone);
    check(run, 0, RONDO_SUCCESS, all_but(1, 1, 0), "");
    run_free(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_survivors), cmocka_unit_test(test_death_meanwhile), cmocka_unit_test(test_never_called),
        cmocka_unit_test(test_lists),     cmocka_unit_test(test_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
