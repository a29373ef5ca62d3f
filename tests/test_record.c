/* SPDX-License-Identifier: Apache-2.0
 *
 * test_record.c - flight records of real jobs: what ranks that failed leave behind, what a process that runs tells, and
 * what `rondo doctor` makes of them. Ranks are processes.
 */
#include "test_record.h"

#include <signal.h>

/* ---- Ranks ---- */

/* `calls` all-reduces of 100 + i numbers, each checked. */
static void sum_up(rondo_comm *comm, int rank, int n, int calls)
{
    for (int i = 0; i < calls; i++) {
        int32_t x[128];
        int count = 100 + i;
        for (int k = 0; k < count; k++) x[k] = (rank + 1) * (k + i + 1);
        CHECK(rondo_all_reduce(x, x, (size_t)count, RONDO_INT32, RONDO_SUM, comm, NULL) == RONDO_SUCCESS, "%s",
              rondo_last_error(comm));
        for (int k = 0; k < count; k++) CHECK(x[k] == n * (n + 1) / 2 * (k + i + 1), "sum %d of call %d", k, i);
    }
}

static rondo_result sum_once(rondo_comm *comm)
{
    float x[5] = {1, 2, 3, 4, 5};
    return rondo_all_reduce(x, x, 5, RONDO_FLOAT32, RONDO_MAX, comm, NULL);
}

/* Until the other ranks are in their next call: who calls after the communicator has ended writes no record. */
static void let_others_call(void)
{
    usleep((useconds_t)(300000 * test_slowness()));
}

static void another_call(rondo_comm *comm, int rank, int n, void *context)
{
    int16_t x[64] = {0};
    (void)context;
    sum_up(comm, rank, n, 6);
    if (rank == 2) let_others_call();
    rondo_result result = rank == 2 ? rondo_broadcast(x, x, 20, RONDO_FLOAT16, 1, comm, NULL) : sum_once(comm);
    CHECK(result != RONDO_SUCCESS, "rank %d", rank);
}

/* (a) One rank calls something else; the directory is made. */
static void differs(void **state)
{
    char output[OUTPUT];
    struct stat made;
    (void)state;
    assert_int_equal(rmdir(directory), 0);
    ranks_run(4, NULL, NULL, another_call, NULL);
    assert_int_equal(stat(directory, &made), 0);
    assert_int_equal(made.st_mode & 0777, 0700);
    assert_int_equal(count_records(), 4);
    merge("", 0, output);
    if (strstr(output, "verdict")) fail_msg("the verdict is said twice:\n%s", output);
    expect_first(output,
                 "the ranks' calls differ from call 7 on: rank 0 called rondo_all_reduce of 5 float32, max, and rank 2 "
                 "rondo_broadcast of 20 float16, root 1");
    expect(output, "\n  call 7 differs:\n    ranks 0-1, 3 called rondo_all_reduce of 5 float32, max\n"
                   "    rank 2 called rondo_broadcast of 20 float16, root 1\n");
    expect(output, "does not match: all ranks");
    merge("--json", 0, output);
    expect_json(output, "\"differs\":{\"number\":7,\"calls\":[");
    expect_json(output, "\"ranks\":[0,1,3]}");
    expect_json(output, "\"ranks\":[2]}");
}

static void stop_calling(rondo_comm *comm, int rank, int n, void *context)
{
    (void)context;
    sum_up(comm, rank, n, 6);
    if (rank == 1)
        usleep((useconds_t)(2500000 * test_slowness()));
    else
        CHECK(sum_once(comm) == RONDO_TIMEOUT, "rank %d: %s", rank, rondo_last_error(comm));
}

/* (b) One rank calls nothing more, so it never learns that the others ran into their timeout; they say what it did. */
static void silent(void **state)
{
    char output[OUTPUT];
    rondo_config config = RONDO_CONFIG_INIT;
    (void)state;
    config.timeout_s = test_slowness();
    ranks_run(3, &config, NULL, stop_calling, NULL);
    assert_int_equal(count_records(), 2);
    merge("", 0, output);
    expect_first(output, "rank 1 left no record; the others say: rank 1 (pid ");
    expect_first(output, ") has not called it (its last: rondo_all_reduce of 105 int32, sum, call 6, done ");
    expect_first(output, "; the others got to call 7\n");
    expect(output, "    call 7, rondo_all_reduce of 5 float32, max: begun ");
    expect(output, " ended: timed out: "); /* each by itself, or one heard of the other */
    expect(output, "rondo_all_reduce of 5 float32, max (call 7 on rank ");
    expect(output, " has not called it (its last: rondo_all_reduce of 105 int32, sum, call 6, done ");
}

static void be_killed(rondo_comm *comm, int rank, int n, void *context)
{
    (void)context;
    sum_up(comm, rank, n, 4);
    if (rank == 3) let_others_call();
    if (rank == 3) raise(SIGKILL);
    CHECK(sum_once(comm) == RONDO_REMOTE_ERROR, "rank %d: %s", rank, rondo_last_error(comm));
}

/* (c) One rank is killed. */
static void killed(void **state)
{
    char output[OUTPUT];
    ranks all;
    (void)state;
    ranks_start(&all, 4, NULL, NULL, be_killed, NULL);
    ranks_wait(&all, 30 * test_slowness());
    for (int r = 0; r < 4; r++) assert_int_equal(all.status[r], r == 3 ? SIGKILL : 0);
    assert_int_equal(count_records(), 3);
    merge("", 0, output);
    expect_first(output, "rank 3 left no record; the others say: rank 3 (pid ");
    expect_first(output, ") was killed or crashed; the others got to call 5\n");
    expect_first(output, "; the others got to call 5\n");
    expect(output, "4 ranks, records of 3\n");
    expect(output, "another rank failed or left: ");
    merge("--json", 0, output);
    expect_json(output, "\"missing\":[3],\"late\":[],\"ahead\":0,\"differs\":null,\"messages\":[]");
}

static void lose_message(rondo_comm *comm, int rank, int n, void *context)
{
    int32_t x[7] = {rank, 2, 3};
    (void)context;
    sum_up(comm, rank, n, 2);
    rondo_result result = RONDO_SUCCESS;
    if (rank == 0) result = rondo_send(x, 7, RONDO_INT32, 1, comm, NULL);
    if (rank == 1) result = rondo_recv(x, 7, RONDO_INT32, 0, comm, NULL);
    CHECK(result == RONDO_SUCCESS, "rank %d: %s", rank, rondo_last_error(comm));
    if (rank == 1) CHECK(x[0] == 0 && x[2] == 3, "%d", x[0]);
    if (rank == 1)
        result = rondo_recv(x, 5, RONDO_INT32, 0, comm, NULL); /* which nobody sends */
    else
        result = sum_once(comm);
    CHECK(result == RONDO_TIMEOUT, "rank %d: %s", rank, rondo_last_error(comm));
}

/* A rank waits for a message that nobody sends, and the others for that rank. */
static void lonely(void **state)
{
    char output[OUTPUT];
    rondo_config config = RONDO_CONFIG_INIT;
    (void)state;
    config.timeout_s = test_slowness();
    ranks_run(3, &config, NULL, lose_message, NULL);
    merge("", 0, output);
    expect_first(output, "rank 1 is late: its last is call 2 ");
    expect(output,
           "  message 2 from rank 0 to rank 1: rank 1 called rondo_recv of 5 int32 from rank 0 (timed out), and rank 0 "
           "has not called rondo_send for it\n");
    if (strstr(output, "message 1 from")) fail_msg("a message that arrived:\n%s", output);
    merge("--json", 0, output);
    expect_json(output, "\"from\":0,\"to\":1,\"number\":2,");
    expect_json(output, "\"late\":[1],\"ahead\":1,");
}

/* ---- A process that runs ---- */

static void wait_for_others(rondo_comm *comm, int rank, int n, void *context)
{
    volatile int *go = context;
    sum_up(comm, rank, n, 12);
    if (rank == 1)
        while (!*go) usleep(10000);
    CHECK(sum_once(comm) == RONDO_SUCCESS, "rank %d: %s", rank, rondo_last_error(comm));
}

/* Asks until the rank waits in its 13th call. */
static void ask_until(pid_t pid, const char *more, const char *text, char output[OUTPUT])
{
    char arguments[256];
    int status = -1;
    snprintf(arguments, sizeof arguments, "--pid %d %s", (int)pid, more);
    for (double end = test_seconds() + 20 * test_slowness(); test_seconds() < end; usleep(50000)) {
        status = doctor(arguments, output);
        if (status == 0 && strstr(output, text)) return;
    }
    fail_msg("%s: status %d, and nothing says '%s' in:\n%s", arguments, status, text, output);
}

static void running(void **state)
{
    char output[OUTPUT], more[256];
    volatile int *go = test_shared(sizeof *go);
    ranks all;
    (void)state;
    ranks_start(&all, 3, NULL, NULL, wait_for_others, (void *)go);
    ask_until(all.pid[0], "", "call 13 ", output);
    expect(output, ": 1 communicator\n");
    expect(output, ": rank 0 of 3, running\n  ... 3 more before\n  call 4 ");
    expect(output, "rondo_all_reduce of 111 int32, sum ");
    expect(output, "rondo_all_reduce of 5 float32, max ");
    expect(strstr(output, "call 13"), " running\n");
    ask_until(all.pid[1], "--calls 1 --json", "\"number\": 12,", output);
    expect(output, "\"rank\": 1,");
    expect(output, "\"state\": \"done\"");
    if (strstr(output, "\"number\": 11,")) fail_msg("--calls 1:\n%s", output);
    /* --save, and they can be merged */
    for (int r = 0; r < 3; r++) {
        snprintf(more, sizeof more, "--save %s/%d.rec", directory, r);
        ask_until(all.pid[r], more, r == 1 ? "call 12 " : "call 13 ", output);
    }
    merge("", 0, output);
    expect_first(output, "rank 1 is late: its last is call 12 (rondo_all_reduce of 111 int32, sum, ");
    snprintf(more, sizeof more, "--pid %d --save %s/no/such", (int)all.pid[0], directory);
    assert_int_equal(doctor(more, output), 1);
    expect(output, "no/such: No such file or directory");
    *go = 1;
    ranks_wait(&all, 30 * test_slowness());
    for (int r = 0; r < 3; r++) assert_int_equal(all.status[r], 0);
}

static void stopped(void **state)
{
    char output[OUTPUT], more[64];
    volatile int *go = test_shared(sizeof *go);
    ranks all;
    (void)state;
    ranks_start(&all, 2, NULL, NULL, wait_for_others, (void *)go);
    ask_until(all.pid[0], "", "call 13 ", output);
    kill(all.pid[0], SIGSTOP);
    snprintf(more, sizeof more, "--pid %d", (int)all.pid[0]);
    assert_int_equal(doctor(more, output), 1);
    expect(output, "does not answer within 5 s: it is stopped");
    kill(all.pid[0], SIGCONT);
    *go = 1;
    ranks_wait(&all, 30 * test_slowness());
    for (int r = 0; r < 2; r++) assert_int_equal(all.status[r], 0);
}

static void other_user(void **state)
{
    volatile int *go = test_shared(sizeof *go);
    int status;
    ranks all;
    (void)state;
    if (geteuid() != 0) skip();
    ranks_start(&all, 2, NULL, NULL, wait_for_others, (void *)go);
    char output[OUTPUT], more[64];
    ask_until(all.pid[0], "", "call 13 ", output);
    pid_t pid = fork();
    if (pid == 0) {
        if (setuid(65534)) _exit(2);
        if (access(tool, X_OK)) _exit(0); /* a build directory that is closed to others */
        snprintf(more, sizeof more, "--pid %d", (int)all.pid[0]);
        _exit(doctor(more, output) != 1 || !strstr(output, " is user 0's, and you are user 65534"));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    *go = 1;
    ranks_wait(&all, 30 * test_slowness());
}

/* Nobody, and somebody who knows nothing of Rondo. */
static void strangers(void **state)
{
    char output[OUTPUT], more[64];
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    snprintf(more, sizeof more, "--pid %d", (int)pid);
    assert_int_equal(doctor(more, output), 1);
    expect(output, "cannot be asked: it has made no communicator, or uses an older Rondo, or none");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_int_equal(doctor(more, output), 1);
    expect(output, "there is no process ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(differs, each),    cmocka_unit_test_setup(silent, each),
        cmocka_unit_test_setup(killed, each),     cmocka_unit_test_setup(lonely, each),
        cmocka_unit_test_setup(running, each),    cmocka_unit_test_setup(stopped, each),
        cmocka_unit_test_setup(other_user, each), cmocka_unit_test_setup(strangers, each),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
