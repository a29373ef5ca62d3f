/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens when ranks die, leave, never come, or are aborted. Unless said otherwise the timeout is ten minutes, so
 * that whatever ends within seconds was noticed.
 */
#include "test.h"

#include "ranks.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define T   600.0
#define MIB (1024u * 1024u)

static rondo_config config_of(double timeout_s)
{
    rondo_config config = RONDO_CONFIG_INIT;
    config.timeout_s = timeout_s;
    return config;
}

static void over(const char *transport, const char *algo)
{
    test_env("RONDO_TRANSPORT", transport);
    test_env("RONDO_ALGO", algo);
}

/* ---- case 18: SIGKILL in mid-call ---- */

typedef struct killing {
    volatile int calls[4];
    volatile double killed_at;
    pid_t victim;
    size_t count;
} killing;

static void reduce_until_it_fails(rondo_comm *comm, int rank, int n, void *context)
{
    killing *k = context;
    char pid[32];
    float *data = malloc(k->count * sizeof *data);
    rondo_result result = RONDO_SUCCESS;
    while (result == RONDO_SUCCESS) {
        for (size_t i = 0; i < k->count; i++) data[i] = (float)((i % 97) + (size_t)rank);
        result = rondo_all_reduce(data, data, k->count, RONDO_FLOAT32, RONDO_SUM, comm, NULL);
        if (result == RONDO_SUCCESS) {
            for (size_t i = 0; i < k->count; i += 4099)
                CHECK(data[i] == (float)(n * (int)(i % 97) + n * (n - 1) / 2), "element %zu is %g", i, (double)data[i]);
            k->calls[rank]++;
        }
        CHECK(rank != 2 || k->calls[rank] < 100000, "was not killed");
    }
    double after = test_seconds() - k->killed_at;
    const char *text = rondo_last_error(comm);
    snprintf(pid, sizeof pid, "%d", (int)k->victim);
    CHECK(result == RONDO_REMOTE_ERROR, "rank %d got %s: %s", rank, rondo_result_string(result), text);
    CHECK(after < 2 * test_slowness(), "known only after %g s", after);
    CHECK(strstr(text, "rank 2") && strstr(text, pid), "does not name rank 2 and process %s: %s", pid, text);
    /* It stays that way, says so at once, and nothing spins on. */
    double busy = test_processor_seconds();
    usleep(300000);
    busy = test_processor_seconds() - busy;
    CHECK(busy < 0.05 * test_slowness(), "spun for %g s of 0.3 s after the error", busy);
    CHECK(rondo_barrier(comm, NULL) == RONDO_REMOTE_ERROR, "a later call on rank %d succeeded", rank);
    CHECK(strstr(rondo_last_error(comm), pid), "the text was lost: %s", rondo_last_error(comm));
    CHECK(rondo_comm_destroy(comm) == RONDO_SUCCESS, "destroy failed");
    free(data);
}

static void kill_rank_2(const char *transport, const char *algo, size_t count, double timeout_s)
{
    killing *k = test_shared(sizeof *k);
    rondo_config config = config_of(timeout_s);
    ranks all;
    k->count = count;
    over(transport, algo);
    ranks_start(&all, 4, &config, NULL, reduce_until_it_fails, k);
    double end = test_seconds() + 30 * test_slowness();
    while (k->calls[2] < 3 && test_seconds() < end) usleep(1000);
    usleep(7000);
    k->victim = all.pid[2];
    k->killed_at = test_seconds();
    kill(all.pid[2], SIGKILL);
    ranks_wait(&all, 20 * test_slowness());
    for (int r = 0; r < 4; r++)
        if (r == 2) assert_true(WIFSIGNALED(all.status[r]));
        else assert_int_equal(all.status[r], 0);
    over(NULL, NULL);
}

static void case_18(void **state)
{
    (void)state;
    kill_rank_2("shm", NULL, test_slowness() > 1 ? MIB : 16 * MIB, T);
    kill_rank_2("shm", "ring", MIB, T);
    kill_rank_2("shm", NULL, 16, T);
    kill_rank_2("tcp", NULL, test_slowness() > 1 ? MIB : 16 * MIB, T);
    kill_rank_2("tcp", NULL, MIB, T);
    kill_rank_2("tcp", NULL, 16, T);
}

/* ---- SIGKILL while another rank makes a link to the victim, which is stopped and so has not answered ---- */

static void send_to_the_victim(rondo_comm *comm, int rank, int n, void *context)
{
    const volatile pid_t *victim = context;
    char pid[32];
    int32_t x = rank;
    (void)n;
    CHECK(rondo_barrier(comm, NULL) == RONDO_SUCCESS, "%s", rondo_last_error(comm));
    if (rank == 1) raise(SIGSTOP);
    while (!*victim) usleep(1000);
    rondo_result result = rank == 0 ? rondo_send(&x, 1, RONDO_INT32, 1, comm, NULL)
                                    : rondo_gather(&x, NULL, 1, RONDO_INT32, 1, comm, NULL);
    const char *text = rondo_last_error(comm);
    snprintf(pid, sizeof pid, "%d", (int)*victim);
    CHECK(result == RONDO_REMOTE_ERROR, "%s: %s", rondo_result_string(result), text);
    CHECK(strstr(text, "rank 1 ") && strstr(text, pid) && strstr(text, "killed or crashed"), "%s", text);
}

static void test_killed_before_the_link(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        pid_t *victim = test_shared(sizeof *victim);
        rondo_config config = config_of(T);
        ranks all;
        int status;
        over(t ? "tcp" : "shm", NULL);
        ranks_start(&all, 3, &config, NULL, send_to_the_victim, victim);
        assert_int_equal(waitpid(all.pid[1], &status, WUNTRACED), all.pid[1]);
        *victim = all.pid[1];
        usleep(300000);
        kill(all.pid[1], SIGKILL);
        ranks_wait(&all, 10 * test_slowness());
        for (int r = 0; r < 3; r += 2) assert_int_equal(all.status[r], 0);
    }
    over(NULL, NULL);
}

/* ---- case 20: a rank that never comes ---- */

static void case_20(void **state)
{
    (void)state;
    ranks all;
    rondo_unique_id id = ranks_unique_id(&all);
    pid_t pids[2];
    double limit = 1.5 * test_slowness();
    for (int r = 0; r < 2; r++)
        if (!(pids[r] = fork())) {
            rondo_config config = config_of(limit);
            rondo_comm *comm = (rondo_comm *)&pids;
            double start = test_seconds();
            rondo_result result = rondo_init_rank(&comm, 3, id, r, &config);
            double took = test_seconds() - start;
            const char *text = rondo_last_error(NULL);
            CHECK(result == RONDO_TIMEOUT, "%s: %s", rondo_result_string(result), text);
            CHECK(strstr(text, "2 of 3 joined") && strstr(text, "rank 2"), "unclear: %s", text);
            CHECK(took > limit * 0.9 && took < limit + 2 * test_slowness(), "took %g s", took);
            CHECK(comm == (rondo_comm *)&pids, "the output was written on failure");
            exit(0);
        }
    for (int r = 0; r < 2; r++) {
        int status;
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        assert_int_equal(status, 0);
    }
    ranks_forget_id(&all);
}

/* ---- case 21: leaving in order ---- */

static void some_calls(rondo_comm *comm, int rank, int n)
{
    for (int call = 0; call < 3; call++) {
        int32_t x = rank + call;
        CHECK(rondo_all_reduce(&x, &x, 1, RONDO_INT32, RONDO_SUM, comm, NULL) == RONDO_SUCCESS, "%s", rondo_last_error(comm));
        CHECK(x == n * (n - 1) / 2 + n * call, "sum is %d", x);
    }
}

static void root_destroys(rondo_comm *comm, int rank, int n, void *context)
{
    bool reverse = *(int *)context;
    some_calls(comm, rank, n);
    if ((rank == 0) != reverse) CHECK(rondo_comm_destroy(comm) == RONDO_SUCCESS, "destroy");
}

/* One more call than the others make: they left, and nobody crashed. */
static void one_call_too_many(rondo_comm *comm, int rank, int n, void *context)
{
    (void)context;
    some_calls(comm, rank, n);
    if (rank == 1) exit(0);
    if (rank == 2) {
        rondo_comm_destroy(comm);
        usleep(300000);
        exit(0);
    }
    int32_t x = 1;
    double start = test_seconds();
    rondo_result result = rondo_all_reduce(&x, &x, 1, RONDO_INT32, RONDO_SUM, comm, NULL);
    const char *text = rondo_last_error(comm);
    CHECK(result == RONDO_REMOTE_ERROR, "%s: %s", rondo_result_string(result), text);
    CHECK(test_seconds() - start < 2 * test_slowness(), "took %g s", test_seconds() - start);
    CHECK(strstr(text, "rank 1") || strstr(text, "rank 2"), "names nobody: %s", text);
    CHECK(!strstr(text, "crash") && !strstr(text, "killed"), "calls it a crash: %s", text);
}

static void case_21(void **state)
{
    (void)state;
    rondo_config config = config_of(T);
    const char *ways[][2] = {{"shm", NULL}, {"shm", "ring"}, {"tcp", NULL}};
    for (int way = 0; way < 3; way++) {
        over(ways[way][0], ways[way][1]);
        for (int reverse = 0; reverse < 2; reverse++) ranks_run(4, &config, NULL, root_destroys, &reverse);
        ranks_run(3, &config, NULL, one_call_too_many, NULL);
    }
    over(NULL, NULL);
}

/* ---- abort ---- */

static void *abort_soon(void *comm)
{
    usleep(200000);
    for (int i = 0; i < 3; i++)
        if (rondo_comm_abort(comm) != RONDO_SUCCESS) _exit(1);
    return NULL;
}

static void abort_a_stuck_call(rondo_comm *comm, int rank, int n, void *context)
{
    (void)n, (void)context;
    pthread_t thread;
    double start = test_seconds();
    if (rank == 2) { /* never calls; hears of it */
        rondo_result result;
        do usleep(20000);
        while ((result = rondo_all_reduce(NULL, NULL, 0, RONDO_INT32, RONDO_OPS, comm, NULL)) == RONDO_INVALID_ARGUMENT &&
               test_seconds() - start < 5);
        CHECK(result == RONDO_REMOTE_ERROR, "%s", rondo_result_string(result));
        CHECK(strstr(rondo_last_error(comm), "rank 0"), "%s", rondo_last_error(comm));
        return;
    }
    if (rank == 0) CHECK(pthread_create(&thread, NULL, abort_soon, comm) == 0, "no thread");
    rondo_result result = rondo_barrier(comm, NULL);
    CHECK(result == (rank == 0 ? RONDO_ABORTED : RONDO_REMOTE_ERROR), "rank %d: %s", rank, rondo_result_string(result));
    CHECK(test_seconds() - start < 0.2 + 1 * test_slowness(), "took %g s", test_seconds() - start);
    if (rank == 0) pthread_join(thread, NULL);
    CHECK(rondo_comm_destroy(comm) == RONDO_SUCCESS, "destroy");
}

static void test_abort(void **state)
{
    (void)state;
    over("shm", NULL);
    ranks_run(3, NULL, NULL, abort_a_stuck_call, NULL);
    over("tcp", NULL);
    ranks_run(3, NULL, NULL, abort_a_stuck_call, NULL);
    over(NULL, NULL);
}

/* ---- a call that one rank never makes, and one that differs ---- */

static void wait_in_vain(rondo_comm *comm, int rank, int n, void *context)
{
    (void)n, (void)context;
    double start = test_seconds();
    if (rank == 1) {
        usleep(1500000);
        return;
    }
    int32_t x = 0;
    rondo_result result = rondo_all_reduce(&x, &x, 1, RONDO_INT32, RONDO_SUM, comm, NULL);
    double took = test_seconds() - start;
    CHECK(result == RONDO_TIMEOUT, "%s: %s", rondo_result_string(result), rondo_last_error(comm));
    CHECK(strstr(rondo_last_error(comm), "rank 1"), "does not name rank 1: %s", rondo_last_error(comm));
    CHECK(took > 0.9 && took < 1.5, "took %g s", took);
}

static void differ(rondo_comm *comm, int rank, int n, void *context)
{
    (void)n, (void)context;
    int32_t x[8] = {0};
    rondo_result result = rondo_all_reduce(x, x, rank == 1 ? 7 : 8, RONDO_INT32, RONDO_SUM, comm, NULL);
    CHECK(result == RONDO_MISMATCH, "%s: %s", rondo_result_string(result), rondo_last_error(comm));
    CHECK(rondo_barrier(comm, NULL) == RONDO_MISMATCH, "a later call succeeded");
}

static void test_others_calls(void **state)
{
    (void)state;
    rondo_config config = config_of(1.0);
    const char *ways[][2] = {{"shm", NULL}, {"shm", "ring"}, {"tcp", NULL}};
    for (int way = 0; way < 3; way++) {
        over(ways[way][0], ways[way][1]);
        if (test_slowness() < 2) ranks_run(2, &config, NULL, wait_in_vain, NULL);
        ranks_run(3, NULL, NULL, differ, NULL);
    }
    over(NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_18),    cmocka_unit_test(test_killed_before_the_link),
        cmocka_unit_test(case_20),    cmocka_unit_test(case_21),
        cmocka_unit_test(test_abort), cmocka_unit_test(test_others_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
