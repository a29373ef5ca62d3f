/* SPDX-License-Identifier: Apache-2.0
 *
 * test_waits.c - what is said when a call takes long: who is stopped, who is late, and what he did last.
 */
#include "test.h"

#include "ranks.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const ways[][2] = {{"shm", "flat"}, {"shm", "ring"}, {"tcp", NULL}};

static void over(int way)
{
    test_env("RONDO_TRANSPORT", way < 0 ? NULL : ways[way][0]);
    test_env("RONDO_ALGO", way < 0 ? NULL : ways[way][1]);
}

/* What this process says on standard error from now on goes to memory that the test reads. */
typedef struct overheard {
    char path[64];
    char text[8192];
} overheard;

static void overhear(overheard *o)
{
    snprintf(o->path, sizeof o->path, "/tmp/rondo-test-%d", (int)getpid());
    int fd = open(o->path, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && dup2(fd, 2) == 2, "no file for standard error");
    unlink(o->path);
}

static const char *heard(overheard *o)
{
    ssize_t n = pread(2, o->text, sizeof o->text - 1, 0);
    o->text[n > 0 ? n : 0] = 0;
    return o->text;
}

static int32_t sum_of(rondo_comm *comm, int32_t x)
{
    CHECK(rondo_all_reduce(&x, &x, 1, RONDO_INT32, RONDO_SUM, comm, NULL) == RONDO_SUCCESS, "%s",
          rondo_last_error(comm));
    return x;
}

/* ---- A rank that is stopped ---- */

typedef struct stopping {
    double for_s; /* how long rank 1 of 3 is stopped */
    bool large, to_all;
    _Atomic int over;
} stopping;

static void beside_a_stopped_rank(rondo_comm *comm, int rank, int n, void *context)
{
    stopping *s = context;
    const size_t count = s->large ? 1 << 20 : 100;
    static int32_t a[3 << 20], b[3 << 20];
    overheard o;
    for (size_t i = 0; i < 3 * count; i++) a[i] = (int32_t)(i % 1009) * (rank + 1);
    CHECK(sum_of(comm, rank) == n * (n - 1) / 2, "sum");
    if (rank == 1)
        raise(SIGSTOP);
    else
        overhear(&o);
    double start = test_seconds();
    rondo_result result = s->to_all ? rondo_all_to_all(a, b, count, RONDO_INT32, comm, NULL)
                                    : rondo_all_reduce(a, b, count, RONDO_INT32, RONDO_SUM, comm, NULL);
    double took = test_seconds() - start;
    const char *text = rondo_last_error(comm);
    s->over += rank != 1;
    if (s->for_s > 3) { /* the timeout */
        if (rank == 1) {
            CHECK(result != RONDO_SUCCESS, "succeeded without the others");
            return;
        }
        const char *said = heard(&o);
        dup2(1, 2);
        CHECK(result == RONDO_TIMEOUT, "rank %d: %s: %s", rank, rondo_result_string(result), text);
        CHECK(strstr(text, "rank 1 ") && strstr(text, "stopped"), "does not say who is stopped: %s", text);
        CHECK(took > 2.9 && took < 5 * test_slowness(), "took %g s", took);
        CHECK(strstr(said, "rank 1 ") && strstr(said, "is stopped"), "warned of nothing: %s", said);
        return;
    }
    if (rank != 1) dup2(1, 2);
    CHECK(result == RONDO_SUCCESS, "rank %d: %s: %s", rank, rondo_result_string(result), text);
    CHECK(rank == 1 || took > s->for_s * 0.8, "did not wait: %g s", took);
    for (size_t i = 0; i < count; i++) {
        if (s->to_all)
            for (int r = 0; r < 3; r++)
                CHECK(b[(size_t)r * count + i] == (int32_t)(((size_t)rank * count + i) % 1009) * (r + 1),
                      "element %zu of %d", i, r);
        else
            CHECK(b[i] == 6 * (int32_t)(i % 1009), "element %zu is %d", i, b[i]);
    }
}

static void stop_rank_1(int way, double for_s, bool large, bool to_all)
{
    stopping *s = test_shared(sizeof *s);
    rondo_config config = RONDO_CONFIG_INIT;
    ranks all;
    int status;
    *s = (stopping){.for_s = for_s, .large = large, .to_all = to_all};
    config.timeout_s = for_s > 3 ? 3 : 60;
    over(way);
    ranks_start(&all, 3, &config, NULL, beside_a_stopped_rank, s);
    assert_int_equal(waitpid(all.pid[1], &status, WUNTRACED), all.pid[1]);
    assert_true(WIFSTOPPED(status));
    double end = test_seconds() + for_s;
    while (test_seconds() < end && s->over < 2) usleep(1000);
    kill(all.pid[1], SIGCONT);
    ranks_wait(&all, 30 * test_slowness());
    for (int r = 0; r < 3; r++) assert_int_equal(all.status[r], 0);
    over(-1);
}

static void a_stop_of_a_second(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++)
        for (int large = 0; large < 2; large++) stop_rank_1(way, 1, large, false);
    for (int way = 0; way < 3; way += 2) stop_rank_1(way, 1.5, false, true); /* the links are made meanwhile */
}

static void a_stop_for_too_long(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) stop_rank_1(way, 20, way == 1, false);
    for (int way = 0; way < 3; way += 2) stop_rank_1(way, 20, false, true);
}

/* ---- A rank that has not called ---- */

static void one_is_late(rondo_comm *comm, int rank, int n, void *context)
{
    (void)context;
    for (int i = 0; i < 4; i++) CHECK(sum_of(comm, rank) == n * (n - 1) / 2, "sum");
    int32_t x[50];
    for (int i = 0; i < 50; i++) x[i] = rank + i;
    CHECK(rondo_broadcast(x, x, 50, RONDO_INT32, 1, comm, NULL) == RONDO_SUCCESS, "%s", rondo_last_error(comm));
    if (rank == 2) {
        sleep(3);
        CHECK(rondo_barrier(comm, NULL) == RONDO_TIMEOUT, "%s", rondo_last_error(comm));
        return;
    }
    rondo_result result = rondo_barrier(comm, NULL);
    const char *text = rondo_last_error(comm), *found = strstr(text, "; rank 2 (");
    double age = 0;
    CHECK(result == RONDO_TIMEOUT, "%s: %s", rondo_result_string(result), text);
    CHECK(found && strstr(found, "has not called it (its last: rondo_broadcast of 50 int32, root 1, call 5, done "),
          "%s", text);
    CHECK(sscanf(strstr(found, "done ") + 5, "%lf s ago", &age) == 1 && age > 1.2 && age < 4 * test_slowness(), "%s",
          text);
    for (int r = 0; r < n; r++) {
        char innocent[32];
        snprintf(innocent, sizeof innocent, "; rank %d (", r);
        CHECK(r == 2 || !strstr(text, innocent), "blames rank %d: %s", r, text);
    }
}

static void who_has_not_called(void **state)
{
    rondo_config config = RONDO_CONFIG_INIT;
    (void)state;
    config.timeout_s = 1.5;
    for (int way = 0; way < 3; way++) {
        over(way);
        ranks_run(4, &config, NULL, one_is_late, NULL);
    }
    over(-1);
}

/* Rank 0 has called, too, and makes a link to rank 1, which is stopped; rank 2, whose patience ends first, waits for
 * it. */
static void own_timeout(int rank, void *context)
{
    (void)context;
    test_env("RONDO_TIMEOUT", rank == 2 ? "1.5" : "60");
}

static void one_makes_a_link(rondo_comm *comm, int rank, int n, void *context)
{
    bool message = *(bool *)context;
    int32_t x[3] = {rank, rank, rank}, y = 0;
    rondo_result result = RONDO_SUCCESS;
    CHECK(sum_of(comm, rank) == n * (n - 1) / 2, "sum");
    if (rank == 1) raise(SIGSTOP);
    usleep(300000);
    if (!message)
        result = rondo_scatter(x, &y, 1, RONDO_INT32, 0, comm, NULL);
    else if (rank == 0)
        result = rondo_send(x, 1, RONDO_INT32, 1, comm, NULL);
    else if (rank == 2)
        result = rondo_recv(x, 1, RONDO_INT32, 0, comm, NULL);
    if (rank == 1) return;
    const char *text = rondo_last_error(comm), *said = strstr(text, "; rank 0 (");
    CHECK(result == RONDO_TIMEOUT, "%s: %s", rondo_result_string(result), text);
    if (message)
        CHECK(said && strstr(said, "in rondo_send of 1 int32 to rank 1"), "%s", text);
    else
        CHECK(!said, "%s", text);
    CHECK(strstr(text, "; rank 1 (") && strstr(strstr(text, "; rank 1 ("), "stopped"), "%s", text);
}

static void who_makes_a_link(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way += 2)
        for (int message = 0; message < 2; message++) {
            ranks all;
            int status;
            over(way);
            ranks_start(&all, 3, NULL, own_timeout, one_makes_a_link, &(bool){message});
            assert_int_equal(waitpid(all.pid[1], &status, WUNTRACED), all.pid[1]);
            sleep(3);
            kill(all.pid[1], SIGCONT);
            ranks_wait(&all, 10 * test_slowness());
            for (int r = 0; r < 3; r++) assert_int_equal(all.status[r], 0);
        }
    over(-1);
}

/* ---- The warning of a slow call ---- */

static void slow(rondo_comm *comm, int rank, int n, void *context)
{
    overheard o;
    (void)context;
    for (int i = 0; i < 2; i++) CHECK(sum_of(comm, rank) == n * (n - 1) / 2, "sum");
    int32_t x = rank, all[4] = {-1, -1, -1, -1};
    CHECK(rondo_all_gather(&x, all, 1, RONDO_INT32, comm, NULL) == RONDO_SUCCESS && all[3] == 3, "%s",
          rondo_last_error(comm));
    if (rank == 3) {
        usleep(1500000);
        CHECK(sum_of(comm, rank) == n * (n - 1) / 2, "sum");
        return;
    }
    overhear(&o);
    int32_t sum = sum_of(comm, rank);
    const char *said = heard(&o), *found = strstr(said, "rank 3 (");
    dup2(1, 2);
    CHECK(sum == n * (n - 1) / 2, "sum %d", sum);
    CHECK(found && strstr(said, "has not completed in 0.5 s") &&
              strstr(found, "(its last: rondo_all_gather of 1 int32, call 3, done "),
          "%s", said);
    CHECK(!strstr(strstr(said, "has not completed") + 1, "has not completed"), "warns more than once: %s", said);
}

static void a_slow_call(void **state)
{
    rondo_config config = RONDO_CONFIG_INIT;
    (void)state;
    config.slow_warning_s = 0.5;
    for (int way = 0; way < 3; way++) {
        over(way);
        ranks_run(4, &config, NULL, slow, NULL);
    }
    over(-1);
}

/* ---- Case 20 ---- */

static void two_of_three(const rondo_unique_id *id, int rank, int n, void *context)
{
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_comm *comm = NULL;
    (void)context;
    if (rank == 2) return;
    config.timeout_s = 2;
    double start = test_seconds();
    rondo_result result = rondo_init_rank(&comm, n, *id, rank, &config);
    CHECK(result == RONDO_TIMEOUT && strstr(rondo_last_error(NULL), "2 of 3 joined; missing: rank 2"), "%s",
          rondo_last_error(NULL));
    CHECK(test_seconds() - start > 1.9 && test_seconds() - start < 2 + 2 * test_slowness(), "took %g s",
          test_seconds() - start);
    CHECK(!comm, "the output was written");
}

static void case_20(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way += 2) {
        over(way);
        ranks_run_bare(3, two_of_three, NULL);
    }
    over(-1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stop_of_a_second), cmocka_unit_test(a_stop_for_too_long),
        cmocka_unit_test(who_has_not_called), cmocka_unit_test(who_makes_a_link),
        cmocka_unit_test(a_slow_call),        cmocka_unit_test(case_20),
    };
    alarm((unsigned)(250 * (test_slowness() > 1 ? 4 : 1)));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
