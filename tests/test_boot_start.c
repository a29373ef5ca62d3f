/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts that do not come about: cancelled, or for want of descriptors.
 */
#include "base/clock.h"
#include "base/status.h"
#include "boot_ranks.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOON_S (SANITIZED ? 0.5 : 0.15) /* 0.1 s, and what the machine takes */

/* ---- Cancelled ---- */

typedef struct canceller {
    _Atomic int stop;
    int64_t at;
} canceller;

static void *cancel(void *argument)
{
    canceller *c = argument;
    sleep_s(0.3);
    c->at = rd_now();
    c->stop = RONDO_ABORTED;
    return NULL;
}

/* Argument 0: nobody serves the table; 1: rank 1 does not come to the fence; 2: nor to an exchange. */
static int what;

static void start_cancelled(rank *r)
{
    canceller c = {0, 0};
    pthread_t thread;
    unsigned char mine[64] = {1}, all[128];
    rd_table *table = NULL;
    rondo_result result;
    if (r->me == 0 && what > 0) run_make_id(r->run, &r->settings);
    if (r->me == 1 && what > 0) wait_for_int(&r->run->id_ready, 1, LIMIT_S);
    if (what == 0) {
        r->job = (rd_job){.id = {3, 1, 4}, .rank = 1, .world = 2, .roots = 2, .root_port = 9, .root_ports = 1};
        snprintf(r->job.root[0], sizeof r->job.root[0], "unix:rondo-test-nobody-%d", (int)getpid());
        snprintf(r->job.root[1], sizeof r->job.root[1], "127.0.0.1:9");
    } else if (rd_job_from_id(&r->job, &r->run->id, r->me, 2, &r->settings) != RONDO_SUCCESS) {
        abort();
    }
    if (r->me == 1 || what == 0) {
        if (what > 0 && rd_table_open(&table, &r->job, &r->settings, rd_deadline(5), NULL) != RONDO_SUCCESS) abort();
        r->run->step++;
        wait_for_int(&r->run->step, 2, LIMIT_S);
        rd_table_close(table);
        if (what > 0) return;
    }
    if (pthread_create(&thread, NULL, cancel, &c)) abort();
    result = rd_table_open(&table, &r->job, &r->settings, rd_deadline(10), &c.stop);
    if (result == RONDO_SUCCESS && what == 1) result = rd_table_fence(table, rd_deadline(10));
    if (result == RONDO_SUCCESS && what == 2)
        result = rd_table_exchange(table, "card", mine, sizeof mine, all, rd_deadline(10));
    double seconds = (double)(rd_now() - c.at) * 1e-9;
    rank_note(r, result);
    r->run->rank[r->me].seconds = seconds;
    pthread_join(thread, NULL);
    r->run->step++;
    rd_table_close(table);
}

static void test_cancelled(void **state)
{
    (void)state;
    for (what = 0; what < 3; what++) {
        int me = what == 0;
        struct run *run = run_new(2, LIMIT_S);
        if (what == 0) run->step = 1;
        for (int i = me; i < 2; i++) run_fork(run, i, start_cancelled);
        for (int i = me; i < 2; i++) assert_int_equal(run_wait(run, i), 0);
        if (run->rank[me].result != RONDO_ABORTED || !strstr(run->rank[me].text, "was cancelled"))
            fail_msg("%d: %s: %s", what, rondo_result_string(run->rank[me].result), run->rank[me].text);
        if (run->rank[me].seconds < 0 || run->rank[me].seconds > SOON_S) fail_msg("%.3f s", run->rank[me].seconds);
        run_free(run);
    }
}

/* ---- Too few descriptors ---- */

static int poor_rank, descriptors;

/* Of the descriptors that it may have, all but `descriptors` are in use. */
static void become_poor(void)
{
    struct rlimit few = {300, 300};
    int last = -1;
    if (setrlimit(RLIMIT_NOFILE, &few)) abort();
    for (int fd; (fd = open("/dev/null", O_RDONLY)) >= 0;) last = fd;
    for (int i = 0; i < descriptors && last - i > 2; i++) close(last - i);
}

static void start_poor(rank *r)
{
    if (r->me == 0) run_make_id(r->run, &r->settings);
    if (r->me == poor_rank) become_poor();
    int64_t begin = rd_now();
    rondo_result result = rank_start(r);
    r->run->rank[r->me].seconds = (double)(rd_now() - begin) * 1e-9;
    rank_note(r, result);
    r->run->step++;
    wait_for_int(&r->run->step, result == RONDO_SUCCESS ? 2 : 1, 1);
}

static void test_few_descriptors(void **state)
{
    int failures = 0, successes = 0;
    (void)state;
    for (int tcp = 0; tcp < 2; tcp++)
        for (poor_rank = 0; poor_rank < 2; poor_rank++)
            for (descriptors = 0; descriptors < 20; descriptors++) {
                struct run *run = run_new(2, 5);
                run->argument = tcp;
                for (int i = 0; i < 2; i++) run_fork(run, i, start_poor);
                run_wait(run, poor_rank);
                kill(run->rank[1 - poor_rank].pid, SIGKILL);
                run_wait(run, 1 - poor_rank);
                rondo_result result = run->rank[poor_rank].result;
                const char *text = run->rank[poor_rank].text;
                if (result == RONDO_SUCCESS) {
                    successes++;
                } else if (result != RONDO_SYSTEM_ERROR || !strstr(text, "ulimit -n") ||
                           run->rank[poor_rank].seconds > 2) {
                    fail_msg("rank %d with %d more descriptors, tcp %d: %s after %.3f s: %s", poor_rank, descriptors,
                             tcp, rondo_result_string(result), run->rank[poor_rank].seconds, text);
                } else {
                    failures++;
                }
                run_free(run);
            }
    print_message("%d starts succeed, %d fail for want of descriptors\n", successes, failures);
    assert_true(successes > 0 && failures > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_few_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
