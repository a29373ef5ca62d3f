/* SPDX-License-Identifier: Apache-2.0
 *
 * test_forked.c - children of ranks that have streams and links on demand: however they end, the parent goes on, and
 * one that outlives its parent does not hide its death.
 */
#include "test.h"

#include "ranks.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT 5000

static const char *const transports[] = {"shm", "tcp"};

/* Something over a stream, over every link on demand, over the ring. */
static void use_all(rondo_comm *comm, rondo_stream *stream, int rank, int n)
{
    int32_t a[4 * COUNT], b[4 * COUNT], c[COUNT];
    for (int i = 0; i < n * COUNT; i++) a[i] = 1000 * rank + i % 991;
    CHECK(rondo_all_to_all(a, b, COUNT, RONDO_INT32, comm, stream) == RONDO_SUCCESS, "%s", rondo_last_error(comm));
    rondo_group_start();
    rondo_send(a, COUNT, RONDO_INT32, (rank + 1) % n, comm, stream);
    rondo_recv(c, COUNT, RONDO_INT32, (rank + n - 1) % n, comm, stream);
    CHECK(rondo_group_end() == RONDO_SUCCESS, "%s", rondo_last_error(comm));
    CHECK(rondo_stream_synchronize(stream) == RONDO_SUCCESS, "%s", rondo_last_error(comm));
    for (int r = 0; r < n; r++)
        for (int i = 0; i < COUNT; i++)
            CHECK(b[r * COUNT + i] == 1000 * r + (rank * COUNT + i) % 991, "part %d, element %d: %d", r, i,
                  b[r * COUNT + i]);
    for (int i = 0; i < COUNT; i++) CHECK(c[i] == 1000 * ((rank + n - 1) % n) + i % 991, "element %d: %d", i, c[i]);
    CHECK(rondo_all_reduce(a, b, COUNT, RONDO_INT32, RONDO_SUM, comm, NULL) == RONDO_SUCCESS, "%s",
          rondo_last_error(comm));
    for (int i = 0; i < COUNT; i++) CHECK(b[i] == 500 * n * (n - 1) + n * (i % 991), "element %d: %d", i, b[i]);
}

/* One child for each way to end; all are there at once, while the parent works. */
static void with_children(rondo_comm *comm, int rank, int n, void *context)
{
    enum { CHILDREN = 5 };
    rondo_stream *stream;
    pid_t children[CHILDREN];
    int32_t x = 1;
    (void)context;
    CHECK(rondo_stream_create(&stream, comm) == RONDO_SUCCESS, "%s", rondo_last_error(NULL));
    use_all(comm, stream, rank, n);
    for (int k = 0; k < CHILDREN; k++) {
        children[k] = fork();
        CHECK(children[k] >= 0, "fork");
        if (children[k]) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        usleep(20000);
        if (k == 0) exit(0);
        if (k == 1) raise(SIGKILL);
        if (k == 2) { /* the stream is the parent's */
            CHECK(rondo_barrier(comm, stream) == RONDO_INVALID_USAGE, "a call in a child");
            CHECK(rondo_stream_synchronize(stream) == RONDO_INVALID_USAGE, "a wait in a child");
            CHECK(rondo_stream_destroy(stream) == RONDO_SUCCESS && rondo_comm_destroy(comm) == RONDO_SUCCESS,
                  "destroy");
            exit(0);
        }
        if (k == 3)
            CHECK(rondo_send(&x, 1, RONDO_INT32, (rank + 1) % n, comm, NULL) == RONDO_INVALID_USAGE,
                  "a message of a child");
        if (k == 4) abort();
        _exit(0);
    }
    for (int i = 0; i < 5; i++) use_all(comm, stream, rank, n);
    for (int k = 0; k < CHILDREN; k++) {
        int status;
        CHECK(waitpid(children[k], &status, 0) == children[k], "child %d", k);
        CHECK(k == 1 || k == 4 ? WIFSIGNALED(status) : status == 0, "child %d ended with %#x", k, (unsigned)status);
    }
    use_all(comm, stream, rank, n);
    CHECK(rondo_stream_destroy(stream) == RONDO_SUCCESS, "%s", rondo_last_error(NULL));
}

static void children_end(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        test_env("RONDO_TRANSPORT", transports[t]);
        ranks_run(3, NULL, NULL, with_children, NULL);
    }
    test_env("RONDO_TRANSPORT", NULL);
}

static void killed_with_a_child(rondo_comm *comm, int rank, int n, void *context)
{
    _Atomic pid_t *child = context;
    rondo_stream *stream;
    CHECK(rondo_stream_create(&stream, comm) == RONDO_SUCCESS, "%s", rondo_last_error(NULL));
    use_all(comm, stream, rank, n);
    if (rank == 1) {
        pid_t pid = fork();
        if (!pid)
            for (;;) pause();
        *child = pid;
        raise(SIGKILL);
    }
    double start = test_seconds();
    rondo_result result = rondo_barrier(comm, NULL);
    const char *text = rondo_last_error(comm);
    CHECK(result == RONDO_REMOTE_ERROR, "%s: %s", rondo_result_string(result), text);
    CHECK(test_seconds() - start < 5 * test_slowness(), "known after %g s", test_seconds() - start);
    CHECK(strstr(text, "rank 1") && strstr(text, "killed or crashed"), "%s", text);
    CHECK(kill(*child, 0) == 0, "the child was not there any more");
}

static void a_child_hides_nothing(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        _Atomic pid_t *child = test_shared(sizeof *child);
        rondo_config config = RONDO_CONFIG_INIT;
        ranks all;
        config.timeout_s = 600;
        test_env("RONDO_TRANSPORT", transports[t]);
        ranks_start(&all, 3, &config, NULL, killed_with_a_child, child);
        ranks_wait(&all, 20 * test_slowness());
        if (*child > 0) kill(*child, SIGKILL);
        for (int r = 0; r < 3; r++)
            if (r == 1)
                assert_true(WIFSIGNALED(all.status[r]));
            else
                assert_int_equal(all.status[r], 0);
    }
    test_env("RONDO_TRANSPORT", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(children_end), cmocka_unit_test(a_child_hides_nothing)};
    alarm((unsigned)(120 * (test_slowness() > 1 ? 2 : 1)));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
