/* SPDX-License-Identifier: Apache-2.0
 *
 * The rendezvous table: put, get, fence, exchange; ranks as threads and as processes, few and many; late roots,
 * missing, dying and doubled ranks.
 */
#include "base/clock.h"
#include "base/status.h"
#include "boot_ranks.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LONGEST_KEY = 64 };

static void check_all(struct run *run)
{
    for (int i = 0; i < run->world; i++)
        if (run->rank[i].result != RONDO_SUCCESS) fail_msg("rank %d: %s", i, run->rank[i].text);
}

/* ---- What it is for ---- */

static void use_table(rank *r)
{
    int world = r->run->world;
    char key[32], text[32], got[32];
    int64_t begin = rd_now();
    rondo_result result = rank_join(r);
    snprintf(key, sizeof key, "name/%d", r->me);
    snprintf(text, sizeof text, "value of %d", r->me);
    if (result == RONDO_SUCCESS) result = rd_table_put(r->table, key, text, sizeof text);
    if (result == RONDO_SUCCESS) result = rd_table_fence(r->table, rd_deadline(r->run->timeout_s));
    for (int i = 0; i < world && result == RONDO_SUCCESS; i += world > 8 ? 7 : 1) {
        snprintf(key, sizeof key, "name/%d", i);
        snprintf(text, sizeof text, "value of %d", i);
        result = rd_table_get(r->table, key, got, sizeof got);
        if (result == RONDO_SUCCESS && strcmp(text, got)) result = rd_fail(RONDO_INTERNAL_ERROR, "%s is %s", key, got);
    }
    enum { EACH = 1024 };
    unsigned char mine[EACH], *all = malloc((size_t)world * EACH);
    for (int i = 0; i < EACH; i++) mine[i] = (unsigned char)(r->me * 7 + i * 3);
    for (int round = 0; round < 3 && result == RONDO_SUCCESS; round++) {
        mine[0] = (unsigned char)(r->me + round);
        result = rd_table_exchange(r->table, "all", mine, EACH, all, rd_deadline(r->run->timeout_s));
        for (int k = 0; k < world * EACH && result == RONDO_SUCCESS; k++) {
            int from = k / EACH, i = k % EACH;
            if (all[k] != (unsigned char)(i ? from * 7 + i * 3 : from + round))
                result = rd_fail(RONDO_INTERNAL_ERROR, "byte %d of rank %d is %d", i, from, all[k]);
        }
    }
    free(all);
    rank_note(r, result);
    r->run->rank[r->me].seconds = (double)(rd_now() - begin) * 1e-9;
}

static void in_world(int world, bool threads)
{
    struct run *run = run_new(world, LIMIT_S);
    int64_t begin = rd_now();
    if (threads)
        run_threads(run, use_table);
    else
        run_processes(run, use_table);
    check_all(run);
    print_message("%d ranks as %s: %.1f ms\n", world, threads ? "threads" : "processes",
                  (double)(rd_now() - begin) * 1e-6);
    if (!UNDER_TSAN) assert_true(rd_now() - begin < 5000000000);
    run_free(run);
}

static void test_processes(void **state)
{
    (void)state;
    in_world(1, false);
    in_world(2, false);
    in_world(8, false);
    in_world(MANY, false);
}

static void test_threads(void **state)
{
    (void)state;
    in_world(2, true);
    in_world(8, true);
    in_world(64, true);
}

/* ---- What goes wrong ---- */

static void check_rank(struct run *run, int me, rondo_result result, const char *words, double least, double most)
{
    double seconds = run->rank[me].seconds;
    if (run->rank[me].result != result || !strstr(run->rank[me].text, words))
        fail_msg("rank %d: %s: %s", me, rondo_result_string(run->rank[me].result), run->rank[me].text);
    if (seconds < least || seconds > most * (UNDER_TSAN ? 5 : 1)) fail_msg("rank %d took %.3f s", me, seconds);
}

/* Joins and waits for all. */
static void fence(rank *r)
{
    int64_t begin = rd_now();
    rondo_result result = rank_join(r);
    r->run->step++;
    if (result == RONDO_SUCCESS) result = rd_table_fence(r->table, begin + (int64_t)(r->run->timeout_s * 1e9));
    rank_note(r, result);
    r->run->rank[r->me].seconds = (double)(rd_now() - begin) * 1e-9;
    if (result != RONDO_SUCCESS) sleep_s(0.1); /* the root lives until all have heard */
}

static void test_missing(void **state)
{
    (void)state;
    struct run *run = run_new(3, 1.0);
    for (int i = 0; i < 2; i++) run_fork(run, i, fence);
    for (int i = 0; i < 2; i++) assert_int_equal(run_wait(run, i), 0);
    for (int i = 0; i < 2; i++) check_rank(run, i, RONDO_TIMEOUT, "2 of 3 joined; missing: rank 2", 0.9, 1.4);
    run_free(run);

    run = run_new(40, 1.0);
    const int present[] = {0, 3, 4, 9, 20, 22, 24, 26, 28, 30, 39};
    for (int i = 0; i < 11; i++) run_fork(run, present[i], fence);
    for (int i = 0; i < 11; i++) assert_int_equal(run_wait(run, present[i]), 0);
    check_rank(run, 0, RONDO_TIMEOUT, "11 of 40 joined; missing: ranks 1, 2, 5-8, 10-19, 21, 23, 25, 27, 29 and 8 more",
               0.9, 1.6);
    run_free(run);
}

/* Joins, but stays away from the fence. */
static void dawdle(rank *r)
{
    rondo_result result = rank_join(r);
    rank_note(r, result);
    r->run->step++;
    wait_for_int(&r->run->step, 10, LIMIT_S);
}

static void test_late_for_the_fence(void **state)
{
    (void)state;
    struct run *run = run_new(2, 1.0);
    run_fork(run, 0, fence);
    run_fork(run, 1, dawdle);
    assert_int_equal(run_wait(run, 0), 0);
    run->step += 10;
    assert_int_equal(run_wait(run, 1), 0);
    check_rank(run, 0, RONDO_TIMEOUT, "2 of 2 joined; waiting at \"fence\" for rank 1", 0.9, 1.4);
    run_free(run);
}

static void test_death_in_fence(void **state)
{
    (void)state;
    char words[64];
    struct run *run = run_new(3, LIMIT_S);
    run_fork(run, 0, fence);
    run_fork(run, 1, fence);
    run_fork(run, 2, dawdle);
    assert_true(wait_for_int(&run->step, 3, LIMIT_S));
    sleep_s(0.1);
    kill(run->rank[2].pid, SIGKILL);
    for (int i = 0; i < 3; i++) run_wait(run, i);
    snprintf(words, sizeof words, "rank 2 (pid %d on ", run->rank[2].pid);
    for (int i = 0; i < 2; i++) {
        check_rank(run, i, RONDO_REMOTE_ERROR, words, 0, 2);
        check_rank(run, i, RONDO_REMOTE_ERROR, "died or exited during the start-up", 0, 2);
    }
    run_free(run);
}

static void test_root_dies_in_fence(void **state)
{
    (void)state;
    struct run *run = run_new(3, LIMIT_S);
    run_fork(run, 0, dawdle);
    run_fork(run, 1, fence);
    run_fork(run, 2, fence);
    assert_true(wait_for_int(&run->step, 3, LIMIT_S));
    sleep_s(0.1);
    kill(run->rank[0].pid, SIGKILL);
    for (int i = 0; i < 3; i++) run_wait(run, i);
    for (int i = 1; i < 3; i++) check_rank(run, i, RONDO_REMOTE_ERROR, "the process of rank 0 died or left", 0, 2);
    run_free(run);
}

/* One rank goes before the others are there: what they wait for will not be. */
static void leave(rank *r)
{
    rank_note(r, rank_join(r));
    r->run->step++;
    wait_for_int(&r->run->step, 3, LIMIT_S);
    sleep_s(0.1);
}

static void test_rank_leaves_fence(void **state)
{
    (void)state;
    struct run *run = run_new(3, LIMIT_S);
    run_fork(run, 0, fence);
    run_fork(run, 1, fence);
    run_fork(run, 2, leave);
    for (int i = 0; i < 3; i++) assert_int_equal(run_wait(run, i), 0);
    for (int i = 0; i < 2; i++) check_rank(run, i, RONDO_REMOTE_ERROR, ") left the start-up", 0, 2);
    run_free(run);
}

/* The second that claims a rank is told about the first; the first goes on. */
static void claim(rank *r)
{
    wait_for_int(&r->run->step, r->run->argument, LIMIT_S);
    int slot = r->me, twin = r->me == 2;
    if (twin) { /* a process of its own with a number of its own, but it says that it is rank 1 */
        rd_job job;
        rd_table *table;
        wait_for_int(&r->run->step, 2, LIMIT_S);
        rondo_result result = rd_job_from_id(&job, &r->run->id, 1, 2, &r->settings);
        if (result == RONDO_SUCCESS) result = rd_table_open(&table, &job, &r->settings, rd_deadline(5), NULL);
        r->me = slot;
        rank_note(r, result);
        r->run->step++;
        return;
    }
    rondo_result result = rank_join(r);
    r->run->step++;
    wait_for_int(&r->run->step, 3, LIMIT_S);
    if (result == RONDO_SUCCESS) result = rd_table_fence(r->table, rd_deadline(5));
    rank_note(r, result);
}

static void test_two_say_one_rank(void **state)
{
    (void)state;
    char words[2][64];
    struct run *run = run_new(2, LIMIT_S);
    for (int i = 0; i < 3; i++) run_fork(run, i, claim);
    for (int i = 0; i < 3; i++) assert_int_equal(run_wait(run, i), 0);
    for (int i = 0; i < 2; i++) check_rank(run, i, RONDO_SUCCESS, "", 0, 5);
    check_rank(run, 2, RONDO_INVALID_USAGE, "two processes say that they are rank 1: pid ", 0, 5);
    for (int i = 0; i < 2; i++) {
        snprintf(words[i], sizeof words[i], "pid %d on ", run->rank[i + 1].pid);
        assert_non_null(strstr(run->rank[2].text, words[i]));
    }
    run_free(run);
}

/* ---- Roots that come late, or never ---- */

static void environment_job(rank *r, bool unix_only)
{
    r->job = (rd_job){.comm_number = 0, .rank = r->me, .world = r->run->world, .is_root = r->me == 0};
    memcpy(r->job.id, r->run->id.bytes, 16); /* random enough: the test's pid */
    snprintf(r->job.root[0], sizeof r->job.root[0], "unix:rondo-test-%d", r->run->argument);
    r->job.roots = 1;
    if (!unix_only) {
        snprintf(r->job.root[1], sizeof r->job.root[1], "127.0.0.1:0");
        r->job.roots = 2;
        r->job.root_port = 20000 + r->run->argument % 20000;
        r->job.root_ports = 3;
    }
}

static void join_environment(rank *r)
{
    int64_t begin = rd_now();
    if (r->me == 0) sleep_s(0.5);
    environment_job(r, true);
    rondo_result result = rd_table_open(&r->table, &r->job, &r->settings, rd_deadline(r->run->timeout_s), NULL);
    if (result == RONDO_SUCCESS) result = rd_table_fence(r->table, rd_deadline(5));
    rank_note(r, result);
    r->run->rank[r->me].seconds = (double)(rd_now() - begin) * 1e-9;
}

static void test_root_late(void **state)
{
    (void)state;
    struct run *run = run_new(3, LIMIT_S);
    run->argument = getpid();
    memcpy(run->id.bytes, &run->argument, sizeof run->argument);
    run_processes(run, join_environment);
    for (int i = 0; i < 3; i++) check_rank(run, i, RONDO_SUCCESS, "", 0.4, 1);
    run_free(run);
}

static void join_nobody(rank *r)
{
    int64_t begin = rd_now();
    environment_job(r, false);
    rondo_result result = rd_table_open(&r->table, &r->job, &r->settings, rd_deadline(r->run->timeout_s), NULL);
    rank_note(r, result);
    r->run->rank[r->me].seconds = (double)(rd_now() - begin) * 1e-9;
}

static void test_no_root(void **state)
{
    (void)state;
    struct run *run = run_new(2, 0.7);
    run->argument = getpid();
    run_fork(run, 1, join_nobody);
    assert_int_equal(run_wait(run, 1), 0);
    check_rank(run, 1, RONDO_TIMEOUT, "rank 1 did not reach rank 0 within 0.7 s", 0.65, 1.2);
    check_rank(run, 1, RONDO_TIMEOUT, "unix:rondo-test-", 0.65, 1.2);
    check_rank(run, 1, RONDO_TIMEOUT, "127.0.0.1:", 0.65, 1.2);
    check_rank(run, 1, RONDO_TIMEOUT, "refused", 0.65, 1.2);
    run_free(run);
}

/* The limits, from one rank alone. */
static void limits(rank *r)
{
    char key[LONGEST_KEY + 2];
    static unsigned char big[65537], got[65536];
    rondo_result result = rank_join(r);
    for (size_t i = 0; i < sizeof big; i++) big[i] = (unsigned char)(i * 13 + i / 256);
    memset(key, 'k', sizeof key);
    key[LONGEST_KEY + 1] = 0;
    rank_note(r, RONDO_INTERNAL_ERROR);
    if (result != RONDO_SUCCESS) return;
    if (rd_table_put(r->table, key, big, 1) != RONDO_INVALID_ARGUMENT) return;
    key[LONGEST_KEY] = 0;
    if (rd_table_put(r->table, key, big, 65537) != RONDO_INVALID_ARGUMENT) return;
    if (rd_table_put(r->table, key, big, 65536) != RONDO_SUCCESS) return;
    if (rd_table_get(r->table, "absent", got, 3) != RONDO_INVALID_ARGUMENT) return;
    if (rd_table_get(r->table, key, got, 65536) != RONDO_SUCCESS || memcmp(got, big, 65536)) return;
    if (rd_table_put(r->table, key, "new", 3) != RONDO_SUCCESS) return;
    if (rd_table_get(r->table, key, got, 3) != RONDO_SUCCESS || memcmp(got, "new", 3)) return;
    if (rd_table_exchange(r->table, "x", big, 65536, got, rd_deadline(5)) != RONDO_SUCCESS || memcmp(got, big, 65536))
        return;
    rank_note(r, RONDO_SUCCESS);
}

static void test_limits(void **state)
{
    (void)state;
    struct run *run = run_new(1, LIMIT_S);
    run_processes(run, limits);
    check_all(run);
    run_free(run);
}

int main(void)
{
    /* Processes first: they are forked while this one has no threads. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes),
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_late_for_the_fence),
        cmocka_unit_test(test_death_in_fence),
        cmocka_unit_test(test_root_dies_in_fence),
        cmocka_unit_test(test_rank_leaves_fence),
        cmocka_unit_test(test_two_say_one_rank),
        cmocka_unit_test(test_root_late),
        cmocka_unit_test(test_no_root),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
