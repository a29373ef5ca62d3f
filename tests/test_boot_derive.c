/* SPDX-License-Identifier: Apache-2.0
 *
 * Derived jobs: some of a job's ranks meet again, by what they know of one another.
 */
#include "base/clock.h"
#include "base/status.h"
#include "boot/service.h"
#include "boot_ranks.h"

#include <dirent.h>
#include <malloc.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void check_all(const struct run *run, int except)
{
    for (int i = 0; i < run->world; i++)
        if (i != except && run->rank[i].result != RONDO_SUCCESS)
            fail_msg("rank %d: %s (%s)", i, rondo_result_string(run->rank[i].result), run->rank[i].text);
}

static int served_jobs(void)
{
    int count = 0;
    rd_service_lock();
    for (const rd_served_job *job = rd_service->jobs; job; job = job->next) count++;
    rd_service_unlock();
    return count;
}

/* ---- Split and shrink ---- */

/* The child as a rank of its own, with the parent's contacts forgotten. Nobody leaves it before the run's step says so.
 */
static rondo_result meet_in_child(rank *parent, const rd_job *job, int wanted_peer_pid, int until_step)
{
    struct run run = {.world = job->world, .timeout_s = parent->run->timeout_s};
    rank *child = rank_new(&run, job->rank);
    rd_answer answers[8];
    child->job = *job;
    child->contacts = calloc((size_t)job->world, sizeof *child->contacts);
    rondo_result result = rank_enter(child);
    if (result == RONDO_SUCCESS) result = rank_meet(child);
    if (result == RONDO_SUCCESS && child->contacts[(job->rank + 1) % job->world].pid != wanted_peer_pid)
        result = rd_fail(RONDO_INTERNAL_ERROR, "another peer than expected");
    if (result == RONDO_SUCCESS) result = rd_member_collect(child->member, rd_deadline(5), answers);
    for (int i = 0; i < job->world && result == RONDO_SUCCESS; i++)
        if (answers[i].state != RD_ANSWERS || answers[i].report[9] != rank_report_byte(i, 9))
            result = rd_fail(RONDO_INTERNAL_ERROR, "rank %d of the child: state %d", i, (int)answers[i].state);
    parent->run->step++;
    wait_for_int(&parent->run->step, until_step, LIMIT_S);
    rank_free(child);
    return result;
}

/* The even ranks meet in one job, the odd in another, each with its own root; then, rank 0 dead, the others in a third.
 */
static void split(rank *r)
{
    struct run *run = r->run;
    rd_job job;
    int world = run->world, odd = r->me % 2, count = odd ? world / 2 : (world + 1) / 2;
    rondo_result result = rank_start(r);
    for (int i = 0; i < world && result == RONDO_SUCCESS; i++)
        if (r->contacts[i].pid != run->rank[i].pid) result = rd_fail(RONDO_INTERNAL_ERROR, "pid of rank %d", i);
    run->step++;
    wait_for_int(&run->step, world, LIMIT_S);
    int salt = 100 + odd, next = (r->me + 2 < world ? r->me + 2 : odd);
    if (result == RONDO_SUCCESS)
        result = rd_job_derive(&job, r->member, &salt, sizeof salt, odd ? 3 : 2, r->me / 2, count, &r->settings);
    if (result == RONDO_SUCCESS) result = meet_in_child(r, &job, run->rank[next].pid, 2 * world);
    rd_job_undo(&job);
    if (r->me == 0) raise(SIGKILL);
    if (result == RONDO_SUCCESS && !rank_wait_stop(r, 5)) result = rd_fail(RONDO_TIMEOUT, "nothing stopped it");
    if (result == RONDO_SUCCESS) result = rd_job_derive(&job, r->member, "1", 1, 1, r->me - 1, world - 1, &r->settings);
    for (; result == RONDO_SUCCESS && run->argument && r->me != 1 && strncmp(job.root[0], "unix:", 5) == 0; job.roots--)
        memmove(job.root[0], job.root[1], sizeof job.root - sizeof job.root[0]);
    if (result == RONDO_SUCCESS)
        result = meet_in_child(r, &job, run->rank[r->me + 1 < world ? r->me + 1 : 1].pid, 3 * world - 1);
    if (result == RONDO_SUCCESS) {
        for (int64_t d = rd_deadline(2); served_jobs() > 0 && rd_now() < d;) sleep_s(0.005);
        if (served_jobs() > 0) result = rd_fail(RONDO_INTERNAL_ERROR, "%d jobs are served still", served_jobs());
    }
    rank_note(r, result);
    run->step++;
    wait_for_int(&run->step, 4 * world - 2, LIMIT_S);
}

static void test_split(void **state)
{
    (void)state;
    for (int tcp = 0; tcp < 2; tcp++) {
        struct run *run = run_new(5, LIMIT_S);
        run->argument = tcp;
        for (int i = 0; i < 5; i++) run_fork(run, i, split);
        for (int i = 0; i < 5; i++) run_wait(run, i);
        check_all(run, 0);
        run_free(run);
    }
}

/* ---- Given up ---- */

/* Rank 0 serves a child that rank 1 waits in; rank 0 gives it up, and rank 1 learns it at once. */
static void give_up(rank *r)
{
    struct run *run = r->run;
    rd_job job;
    rd_table *table = NULL;
    int64_t begin = 0;
    rondo_result result = rank_start(r);
    if (result == RONDO_SUCCESS) result = rd_job_derive(&job, r->member, "x", 1, 0, r->me, 2, &r->settings);
    run->step++;
    wait_for_int(&run->step, 2, LIMIT_S);
    if (r->me == 1 && result == RONDO_SUCCESS) {
        result = rd_table_open(&table, &job, &r->settings, rd_deadline(5), NULL);
        run->step++;
        begin = rd_now();
        if (result == RONDO_SUCCESS) result = rd_table_fence(table, rd_deadline(10));
        rd_table_close(table);
    } else if (result == RONDO_SUCCESS) {
        wait_for_int(&run->step, 3, LIMIT_S);
        sleep_s(0.1);
        if (served_jobs() != 2) result = rd_fail(RONDO_INTERNAL_ERROR, "%d jobs are served", served_jobs());
        rd_job_undo(&job);
        rd_job_undo(&job);
        if (served_jobs() != 1) result = rd_fail(RONDO_INTERNAL_ERROR, "%d jobs are served", served_jobs());
    }
    rank_note(r, result);
    r->run->rank[r->me].seconds = (double)(rd_now() - begin) * 1e-9;
    run->step++;
    wait_for_int(&run->step, 5, LIMIT_S);
}

static void test_given_up(void **state)
{
    (void)state;
    struct run *run = run_new(2, LIMIT_S);
    run_processes(run, give_up);
    assert_int_equal(run->rank[0].result, RONDO_SUCCESS);
    assert_int_equal(run->rank[1].result, RONDO_REMOTE_ERROR);
    assert_non_null(strstr(run->rank[1].text, "gave up the start"));
    assert_true(run->rank[1].seconds < 2);
    run_free(run);
}

/* ---- Limits ---- */

static void limits(rank *r)
{
    rd_job job, other;
    rondo_result result = rank_start(r);
    rank_note(r, RONDO_INTERNAL_ERROR);
    if (result != RONDO_SUCCESS) return;
    const rd_settings *s = &r->settings;
    if (rd_job_derive(&job, r->member, "a", 1, 0, 0, 3, s) != RONDO_INVALID_ARGUMENT) return;
    if (rd_job_derive(&job, r->member, "a", 1, 2, 0, 2, s) != RONDO_INVALID_ARGUMENT) return;
    if (rd_job_derive(&job, r->member, "a", 1, 0, 2, 2, s) != RONDO_INVALID_ARGUMENT) return;
    if (rd_job_derive(&job, r->member, "a", 1, 1 - r->me, 0, 1, s) != RONDO_SUCCESS) return;
    if (rd_job_derive(&other, r->member, "b", 1, 1 - r->me, 0, 1, s) != RONDO_SUCCESS) return;
    if (memcmp(job.id, other.id, 16) == 0 || memcmp(job.id, r->job.id, 16) == 0) return;
    if (memcmp(job.key, r->job.key, 32) || !job.has_key || served_jobs() != (r->me == 0)) return;
    memcpy(r->run->rank[r->me].text, job.id, 16);
    r->run->step++;
    if (!wait_for_int(&r->run->step, 2, LIMIT_S) || memcmp(r->run->rank[1 - r->me].text, job.id, 16)) return;
    r->run->step++;
    wait_for_int(&r->run->step, 4, LIMIT_S);
    rank_note(r, RONDO_SUCCESS);
}

static void test_limits(void **state)
{
    (void)state;
    struct run *run = run_new(2, LIMIT_S);
    run_processes(run, limits);
    check_all(run, -1);
    run_free(run);
}

/* ---- Nothing grows ---- */

static int count_fds(void)
{
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (directory && readdir(directory)) count++;
    if (directory) closedir(directory);
    return count;
}

/* One cycle: every third child never starts, every third is left half way. */
static rondo_result cycle(rank *r, int round)
{
    rd_job job;
    rd_contact contact;
    rd_member *member = NULL;
    rd_table *table = NULL;
    static const rd_member_ops none;
    RD_TRY(rd_job_derive(&job, r->member, &round, sizeof round, 0, 0, round % 3 == 1 ? 2 : 1, &r->settings));
    if (round % 3 != 0) RD_TRY(rd_member_open(&member, &job, &r->settings, &contact, &none, NULL));
    if (round % 3 != 0) RD_TRY(rd_table_open(&table, &job, &r->settings, rd_deadline(5), NULL));
    if (round % 3 == 2) RD_TRY(rd_table_fence(table, rd_deadline(5)));
    rd_table_close(table);
    if (round % 3 != 2) rd_job_undo(&job);
    rd_member_close(member);
    return RONDO_SUCCESS;
}

static void many(rank *r)
{
    int fds = 0, rounds = SANITIZED ? 300 : 2000;
    size_t bytes = 0;
    rondo_result result = rank_start(r);
    for (int round = 0; round < rounds && result == RONDO_SUCCESS && r->me == 0; round++) {
        result = cycle(r, round);
        if (round != rounds / 4 && round != rounds - 1) continue;
        sleep_s(0.3); /* the thread has freed what it had to */
        if (round == rounds / 4) {
            fds = count_fds();
            bytes = mallinfo2().uordblks;
        } else if (count_fds() > fds || served_jobs() > 1 || (!SANITIZED && mallinfo2().uordblks > bytes + 20000)) {
            result = rd_fail(RONDO_INTERNAL_ERROR, "%d fds, now %d; %zu bytes, now %zu; %d jobs", fds, count_fds(),
                             bytes, mallinfo2().uordblks, served_jobs());
        }
    }
    rank_note(r, result);
    r->run->step++;
    wait_for_int(&r->run->step, 2, 2 * LIMIT_S);
}

static void test_nothing_grows(void **state)
{
    (void)state;
    struct run *run = run_new(2, LIMIT_S);
    int64_t begin = rd_now();
    run_processes(run, many);
    print_message("%.0f ms\n", (double)(rd_now() - begin) * 1e-6);
    check_all(run, -1);
    run_free(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_nothing_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
