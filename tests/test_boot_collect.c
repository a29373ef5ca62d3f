/* SPDX-License-Identifier: Apache-2.0
 *
 * Collections: what every rank does now; also of ranks that are stopped, dead or gone.
 */
#include "base/clock.h"
#include "base/status.h"
#include "boot_ranks.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void check_all(const struct run *run, int except)
{
    for (int i = 0; i < run->world; i++)
        if (i != except && run->rank[i].result != RONDO_SUCCESS)
            fail_msg("rank %d: %s (%s)", i, rondo_result_string(run->rank[i].result), run->rank[i].text);
}

/* zeros: a report that nobody has seen. */
static rondo_result check_answer(const rd_answer *answer, int about, int state, bool zeros)
{
    if ((int)answer->state != state)
        return rd_fail(RONDO_INTERNAL_ERROR, "rank %d is in state %d, not %d", about, (int)answer->state, state);
    for (int i = 0; i < RD_REPORT_BYTES; i++)
        if (answer->report[i] != (zeros ? 0 : rank_report_byte(about, i)))
            return rd_fail(RONDO_INTERNAL_ERROR, "byte %d of rank %d is %d", i, about, answer->report[i]);
    return RONDO_SUCCESS;
}

static rondo_result collect_all(rank *r, double seconds)
{
    rd_answer *answers = malloc((size_t)r->run->world * sizeof *answers);
    int64_t begin = rd_now();
    rondo_result result = rd_member_collect(r->member, rd_deadline(seconds), answers);
    for (int i = 0; i < r->run->world && result == RONDO_SUCCESS; i++)
        result = check_answer(&answers[i], i, RD_ANSWERS, false);
    if (result == RONDO_SUCCESS && rd_now() - begin > (int64_t)(seconds * 1e9))
        result = rd_fail(RONDO_TIMEOUT, "it waited for the deadline");
    free(answers);
    return result;
}

typedef struct twin {
    rank *r;
    rondo_result result;
    char text[TEXT];
} twin;

static void *collect_beside(void *argument)
{
    twin *t = argument;
    t->result = collect_all(t->r, 10);
    snprintf(t->text, TEXT, "%s", t->result == RONDO_SUCCESS ? "" : rd_last_error());
    return NULL;
}

/* All ranks at once, with two threads each, again and again; one has ended the communicator before. */
static void all_ask(rank *r)
{
    rondo_result result = rank_start(r);
    r->run->step++;
    wait_for_int(&r->run->step, r->run->world, LIMIT_S);
    for (int round = 0; round < 5 && result == RONDO_SUCCESS; round++) {
        pthread_t thread;
        twin beside = {r, RONDO_SUCCESS, ""};
        if (round == 2 && r->me == 0) rd_member_announce(r->member, RONDO_MISMATCH, "calls differ");
        if (pthread_create(&thread, NULL, collect_beside, &beside)) abort();
        result = collect_all(r, 10);
        pthread_join(thread, NULL);
        if (result == RONDO_SUCCESS && beside.result != RONDO_SUCCESS)
            result = rd_fail(beside.result, "%s", beside.text);
    }
    rank_note(r, result);
    r->run->step++;
    wait_for_int(&r->run->step, 2 * r->run->world, LIMIT_S);
    r->run->rank[r->me].note = r->reports;
}

static void check_ask(int world, bool tcp)
{
    struct run *run = run_new(world, LIMIT_S);
    run->argument = tcp;
    run_processes(run, all_ask);
    check_all(run, -1);
    for (int i = 0; i < world; i++) assert_true(run->rank[i].note >= 10 * world);
    run_free(run);
}

static void test_all_at_once(void **state)
{
    (void)state;
    check_ask(1, false);
    check_ask(2, false);
    check_ask(5, true);
    check_ask(13, false);
}

/* Rank 0 asks; rank 3 is alive, then stopped, goes on, and is killed; rank 5 leaves; rank 6 is stopped before it ever
 * said a word. */
enum { SUBJECT = 3, LEAVER = 5, MUTE = 6, SUBJECTS = 11 };

static rondo_result collect_states(rank *r, int subject, int leaver, int mute)
{
    rd_answer answers[SUBJECTS];
    int64_t begin = rd_now();
    rondo_result result = rd_member_collect(r->member, rd_deadline(8), answers);
    for (int i = 0; i < SUBJECTS && result == RONDO_SUCCESS; i++) {
        int state = i == SUBJECT ? subject : i == LEAVER ? leaver : i == MUTE ? mute : RD_ANSWERS;
        bool zeros = state == RD_IS_DEAD || state == RD_IS_LEFT || (i == MUTE && state == RD_IS_STOPPED);
        result = check_answer(&answers[i], i, state, zeros);
    }
    if (result == RONDO_SUCCESS && rd_now() - begin > 3000000000) result = rd_fail(RONDO_TIMEOUT, "too slow");
    return result;
}

/* Returns when it stands: a signal is on its way for a moment, in which it might still answer. */
static void stop(pid_t pid)
{
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    kill(pid, SIGSTOP);
    for (int64_t d = rd_deadline(5); state != 'T' && rd_now() < d; sleep_s(0.001)) {
        FILE *file = fopen(path, "re");
        if (!file || fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 0;
        if (file) fclose(file);
    }
}

static void ask_subjects(rank *r)
{
    rondo_result result = rank_start(r);
    struct run *run = r->run;
    run->step++;
    wait_for_int(&run->step, SUBJECTS, LIMIT_S);
    if (r->me == LEAVER) wait_for_int(&run->step, SUBJECTS + 1, LIMIT_S);
    if (r->me == 0) {
        stop(run->rank[MUTE].pid); /* not known yet when it asks: the answer comes when it is */
        if (result == RONDO_SUCCESS) result = collect_states(r, RD_ANSWERS, RD_ANSWERS, RD_IS_STOPPED);
        stop(run->rank[SUBJECT].pid);
        for (int64_t d = rd_deadline(5); rd_now() < d && !rd_member_is_stopped(r->member, SUBJECT, NULL);)
            sleep_s(0.01);
        run->step++;
        for (int64_t d = rd_deadline(5); rd_now() < d && !rd_member_is_gone(r->member, LEAVER);) sleep_s(0.01);
        if (result == RONDO_SUCCESS) result = collect_states(r, RD_IS_STOPPED, RD_IS_LEFT, RD_IS_STOPPED);
        kill(run->rank[SUBJECT].pid, SIGCONT);
        kill(run->rank[MUTE].pid, SIGCONT);
        for (int64_t d = rd_deadline(5); rd_now() < d && (rd_member_is_stopped(r->member, SUBJECT, NULL) ||
                                                          rd_member_is_stopped(r->member, MUTE, NULL));)
            sleep_s(0.01);
        if (result == RONDO_SUCCESS) result = collect_states(r, RD_ANSWERS, RD_IS_LEFT, RD_ANSWERS);
        kill(run->rank[SUBJECT].pid, SIGKILL);
        if (result == RONDO_SUCCESS) result = collect_states(r, RD_IS_DEAD, RD_IS_LEFT, RD_ANSWERS);
        rank_note(r, result);
        run->step += 100;
    } else if (r->me != LEAVER) {
        wait_for_int(&run->step, 100, LIMIT_S);
    }
}

static void test_stopped_and_gone(void **state)
{
    (void)state;
    struct run *run = run_new(SUBJECTS, LIMIT_S);
    for (int i = SUBJECTS - 1; i >= 0; i--) run_fork(run, i, ask_subjects);
    for (int i = 0; i < SUBJECTS; i++) run_wait(run, i);
    if (run->rank[0].result != RONDO_SUCCESS) fail_msg("%s", run->rank[0].text);
    run_free(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_at_once),
        cmocka_unit_test(test_stopped_and_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
