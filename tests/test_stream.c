/* SPDX-License-Identifier: Apache-2.0
 *
 * test_stream.c - streams and works: order, independence, timeouts, failures, forks. Ranks are processes.
 */
#include "ranks.h"
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OK(call) CHECK((call) == RONDO_SUCCESS, "%s", rondo_last_error(NULL))

static void nap(double seconds)
{
    usleep((useconds_t)(seconds * 1e6));
}

static rondo_result sum(const int64_t *from, int64_t *to, size_t count, rondo_comm *comm, rondo_stream *stream)
{
    return rondo_all_reduce(from, to, count, RONDO_INT64, RONDO_SUM, comm, stream);
}

/* Each call's input is the one before's output, and then a call without a stream takes the last one's. */
static void chain(rondo_comm *comm, int rank, int n, void *context)
{
    enum { LINKS = 20, COUNT = 1001 };
    static int64_t data[LINKS + 2][COUNT];
    rondo_stream *streams[2];
    (void)context;
    OK(rondo_stream_create(&streams[0], comm));
    OK(rondo_stream_create(&streams[1], NULL));
    for (int i = 0; i < COUNT; i++) data[0][i] = rank + i;
    for (int k = 0; k < LINKS; k++) OK(sum(data[k], data[k + 1], COUNT, comm, streams[k % 2]));
    OK(sum(data[LINKS], data[LINKS + 1], COUNT, comm, NULL));
    for (int k = 1; k <= LINKS + 1; k++)
        for (int i = 0; i < COUNT; i++) {
            int64_t expected = n * (n - 1) / 2 + (int64_t)n * i;
            for (int times = 1; times < k; times++) expected *= n;
            CHECK(data[k][i] == expected, "call %d element %d is %ld", k, i, (long)data[k][i]);
        }
    for (int i = 0; i < 2; i++) {
        OK(rondo_stream_synchronize(streams[i]));
        OK(rondo_stream_query(streams[i]));
        OK(rondo_stream_destroy(streams[i]));
    }
}

static void calls_run_in_order(void **state)
{
    (void)state;
    ranks_run(3, NULL, NULL, chain, NULL);
}

/* Case 16: the order between two communicators is each rank's own affair. */
static void crosswise(rondo_comm *comm, int rank, int n, void *context)
{
    rondo_comm *comms[2] = {comm, NULL};
    rondo_stream *streams[2];
    int64_t in[2] = {rank + 1, 10 * (rank + 1)}, out[2];
    rondo_config config = RONDO_CONFIG_INIT;
    config.timeout_s = 20 * test_slowness();
    OK(rondo_init_rank(&comms[1], n, *(const rondo_unique_id *)context, rank, &config));
    for (int i = 0; i < 2; i++) OK(rondo_stream_create(&streams[i], comms[i]));
    for (int round = 0; round < 1000; round++) {
        int first = rank == 0 ? 0 : 1;
        OK(sum(&in[first], &out[first], 1, comms[first], streams[first]));
        OK(sum(&in[!first], &out[!first], 1, comms[!first], streams[!first]));
        for (int i = 0; i < 2; i++) OK(rondo_stream_synchronize(streams[i]));
        CHECK(out[0] == 3 && out[1] == 30, "round %d: %ld and %ld", round, (long)out[0], (long)out[1]);
        in[0] = out[0] - 2 + rank, in[1] = out[1] - 20 + 10 * rank;
    }
    for (int i = 0; i < 2; i++) OK(rondo_stream_destroy(streams[i]));
    OK(rondo_comm_destroy(comms[1]));
}

static void case_16(void **state)
{
    (void)state;
    ranks server = {0};
    rondo_unique_id id = ranks_unique_id(&server);
    ranks_run(2, NULL, NULL, crosswise, &id);
    ranks_forget_id(&server);
}

/* ---- Works ---- */

static _Atomic int then_calls;
static void then(void *context, rondo_result result)
{
    atomic_fetch_add(&then_calls, result == RONDO_SUCCESS ? 1 : 100);
    *(_Atomic int *)context = 1;
}

static void handles(rondo_comm *comm, int rank, int n, void *context)
{
    (void)n, (void)context;
    rondo_stream *stream;
    rondo_work *work, *last;
    int64_t in = rank + 1, out = 0;
    _Atomic int seen = 0;
    OK(rondo_stream_create(&stream, comm));
    CHECK(rondo_stream_work(stream, &work) == RONDO_INVALID_USAGE, "a work of nothing");
    if (rank == 1) nap(0.5);
    OK(sum(&in, &out, 1, comm, stream));
    OK(rondo_stream_work(stream, &work));
    OK(rondo_work_then(work, then, &seen));
    CHECK(rondo_work_then(work, then, &seen) == RONDO_INVALID_USAGE, "a second function");
    if (rank == 0) {
        CHECK(rondo_work_test(work) == RONDO_IN_PROGRESS, "done before rank 1 called");
        CHECK(rondo_stream_query(stream) == RONDO_IN_PROGRESS, "done before rank 1 called");
        CHECK(rondo_work_wait(work, 0.02) == RONDO_IN_PROGRESS, "done before rank 1 called");
    }
    OK(rondo_work_wait(work, -1));
    CHECK(out == 3, "%ld", (long)out);
    OK(rondo_work_test(work));
    OK(rondo_stream_work(stream, &last));
    CHECK(last == work, "the last work is another");
    OK(rondo_stream_synchronize(stream));
    CHECK(seen == 1 && then_calls == 1, "%d calls", then_calls);
    rondo_work_free(last);
    OK(rondo_stream_destroy(stream));
    OK(rondo_work_wait(work, 0));
    rondo_work_free(work);
}

static void works_tell_when_they_are_done(void **state)
{
    (void)state;
    ranks_run(2, NULL, NULL, handles, NULL);
}

/* ---- Time, ends ---- */

/* Four calls, each of which waits 0.5 s for rank 1: with a timeout of 1.2 s only because each has its own. */
static void late(rondo_comm *comm, int rank, int n, void *context)
{
    (void)n, (void)context;
    rondo_stream *stream;
    int64_t in[4] = {rank, rank, rank, rank}, out[4];
    OK(rondo_stream_create(&stream, comm));
    for (int i = 0; i < 4; i++) {
        if (rank == 1) nap(0.5);
        OK(sum(&in[i], &out[i], 1, comm, stream));
        if (rank == 1) OK(rondo_stream_synchronize(stream));
    }
    OK(rondo_stream_destroy(stream));
}

static void a_timeout_starts_with_the_call(void **state)
{
    (void)state;
    rondo_config config = RONDO_CONFIG_INIT;
    config.timeout_s = 1.2 * test_slowness();
    ranks_run(2, &config, NULL, late, NULL);
}

static void aborted(rondo_comm *comm, int rank, int n, void *context)
{
    (void)n, (void)context;
    rondo_stream *stream;
    rondo_work *work;
    int64_t in = rank, out[3];
    if (rank == 1) {
        nap(0.5);
        return;
    }
    OK(rondo_stream_create(&stream, comm));
    for (int i = 0; i < 3; i++) OK(sum(&in, &out[i], 1, comm, stream));
    OK(rondo_stream_work(stream, &work));
    nap(0.1);
    double before = test_seconds();
    OK(rondo_comm_abort(comm));
    CHECK(rondo_work_wait(work, 5) == RONDO_ABORTED, "%s", rondo_last_error(NULL));
    CHECK(strstr(rondo_last_error(NULL), "rondo_comm_abort"), "%s", rondo_last_error(NULL));
    CHECK(rondo_stream_synchronize(stream) == RONDO_ABORTED, "the failure is not told");
    CHECK(test_seconds() - before < 1 * test_slowness(), "%g s", test_seconds() - before);
    OK(rondo_stream_query(stream));
    CHECK(sum(&in, &out[0], 1, comm, stream) == RONDO_ABORTED, "a call after the abort");
    rondo_work_free(work);
    OK(rondo_stream_destroy(stream));
}

static void an_abort_ends_what_is_queued(void **state)
{
    (void)state;
    ranks_run(2, NULL, NULL, aborted, NULL);
}

/* A communicator may be destroyed under its stream, and streams outlive communicators. */
static void destroyed(rondo_comm *comm, int rank, int n, void *context)
{
    (void)context;
    rondo_stream *stream;
    rondo_comm *other;
    int64_t in = rank, out[8];
    rondo_unique_id id;
    CHECK(n == 2, "%d ranks", n);
    OK(rondo_stream_create(&stream, comm));
    OK(rondo_get_unique_id(&id));
    OK(rondo_init_rank(&other, 1, id, 0, NULL));
    for (int i = 0; i < 8; i++) OK(sum(&in, &out[i], 1, other, stream));
    OK(rondo_comm_finalize(other));
    CHECK(out[7] == rank, "%ld", (long)out[7]);
    CHECK(sum(&in, out, 1, other, stream) == RONDO_INVALID_USAGE, "a call after finalize");
    OK(rondo_comm_destroy(other));
    OK(rondo_get_unique_id(&id));
    OK(rondo_init_rank(&other, 1, id, 0, NULL));
    for (int i = 0; i < 8; i++) OK(sum(&in, &out[i], 1, other, stream));
    OK(rondo_comm_destroy(other));
    rondo_result ended = rondo_stream_synchronize(stream);
    CHECK(ended == RONDO_SUCCESS || ended == RONDO_ABORTED, "%d", ended);
    OK(sum(&in, &out[0], 1, comm, stream));
    OK(rondo_stream_synchronize(stream));
    CHECK(out[0] == 1, "%ld", (long)out[0]);
    OK(rondo_stream_destroy(stream));
}

static void communicators_end_before_streams(void **state)
{
    (void)state;
    ranks_run(2, NULL, NULL, destroyed, NULL);
}

/* What waits on a stream behind another communicator's call holds up neither abort nor destroy, nor the call after it.
 */
static void behind(rondo_comm *comm, int rank, int n, void *context)
{
    rondo_stream *stream;
    rondo_work *work;
    rondo_comm *other;
    int64_t in = rank, out[3];
    rondo_config config = RONDO_CONFIG_INIT;
    config.timeout_s = 8 * test_slowness();
    OK(rondo_init_rank(&other, n, *(const rondo_unique_id *)context, rank, &config));
    if (rank == 1) {
        nap(3);
        OK(sum(&in, &out[0], 1, comm, NULL));
        return;
    }
    OK(rondo_stream_create(&stream, NULL));
    OK(sum(&in, &out[0], 1, comm, stream)); /* waits for rank 1, 3 s */
    OK(sum(&in, &out[1], 1, other, stream));
    OK(rondo_stream_work(stream, &work));
    double before = test_seconds();
    OK(rondo_comm_abort(other));
    CHECK(sum(&in, &out[2], 1, other, NULL) == RONDO_ABORTED, "%s", rondo_last_error(NULL));
    OK(rondo_comm_destroy(other));
    CHECK(test_seconds() - before < 1, "%g s", test_seconds() - before);
    CHECK(rondo_work_wait(work, -1) == RONDO_ABORTED, "the work of the communicator that is gone");
    rondo_work_free(work);
    CHECK(rondo_stream_destroy(stream) == RONDO_ABORTED, "the stream does not tell");
    CHECK(out[0] == 1, "%ld", (long)out[0]);
}

static void what_is_queued_behind_another_is_no_hindrance(void **state)
{
    (void)state;
    ranks server = {0};
    rondo_unique_id id = ranks_unique_id(&server);
    ranks_run(2, NULL, NULL, behind, &id);
    ranks_forget_id(&server);
}

/* The function of a work cannot wait for its own stream. */
typedef struct waits {
    rondo_comm *comm;
    rondo_stream *stream;
    rondo_result call, finalize, destroy, synchronize, end, later;
    int64_t out;
    _Atomic int done;
} waits;

static void tries_to_wait(void *context, rondo_result result)
{
    waits *w = context;
    static const int64_t in = 1; /* read when this function has long returned */
    int64_t out;
    CHECK(result == RONDO_SUCCESS, "%d", result);
    w->call = sum(&in, &out, 1, w->comm, NULL);
    w->finalize = rondo_comm_finalize(w->comm);
    w->destroy = rondo_comm_destroy(w->comm);
    w->synchronize = rondo_stream_synchronize(w->stream);
    w->end = rondo_stream_destroy(w->stream);
    w->later = sum(&in, &w->out, 1, w->comm, w->stream);
    w->done = 1;
}

static void waiting(rondo_comm *comm, int rank, int n, void *context)
{
    int64_t in = rank, out[2];
    rondo_work *work;
    waits w = {.comm = comm};
    (void)context;
    OK(rondo_stream_create(&w.stream, comm));
    if (rank == 0) { /* late, so that rank 1's function is set in time */
        nap(0.3);
        for (int i = 0; i < 2; i++) OK(sum(&in, &out[i], 1, comm, w.stream));
        OK(rondo_stream_synchronize(w.stream));
        in = 1;
        OK(sum(&in, &out[0], 1, comm, w.stream));
        OK(rondo_stream_destroy(w.stream));
        return;
    }
    OK(sum(&in, &out[0], 1, comm, w.stream));
    OK(rondo_stream_work(w.stream, &work));
    OK(sum(&in, &out[1], 1, comm, w.stream));
    OK(rondo_work_then(work, tries_to_wait, &w));
    OK(rondo_work_wait(work, -1));
    while (!w.done) nap(0.001);
    OK(rondo_stream_synchronize(w.stream));
    const rondo_result refused[] = {w.call, w.finalize, w.destroy, w.synchronize, w.end};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        CHECK(refused[i] == RONDO_INVALID_USAGE, "wait %zu: %d", i, refused[i]);
    CHECK(w.later == RONDO_SUCCESS && w.out == n, "%d, %ld", w.later, (long)w.out);
    rondo_work_free(work);
    OK(rondo_stream_destroy(w.stream));
}

static void a_works_function_does_not_wait(void **state)
{
    (void)state;
    ranks_run(2, NULL, NULL, waiting, NULL);
}

static void forked(rondo_comm *comm, int rank, int n, void *context)
{
    (void)n, (void)context;
    rondo_stream *stream;
    int64_t in = rank, out;
    int status;
    OK(rondo_stream_create(&stream, comm));
    OK(sum(&in, &out, 1, comm, stream));
    pid_t child = fork();
    if (child == 0) {
        bool told = rondo_stream_synchronize(stream) == RONDO_INVALID_USAGE && strstr(rondo_last_error(NULL), "forked");
        _exit(told && rondo_stream_destroy(stream) == RONDO_SUCCESS ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "the child ended with %d", status);
    OK(rondo_stream_synchronize(stream));
    OK(rondo_stream_destroy(stream));
}

static void a_forked_child_is_told(void **state)
{
    (void)state;
    ranks_run(2, NULL, NULL, forked, NULL);
}

/* Forked at any moment of another thread's calls, a child can make calls of its own. */
static _Atomic int stop_calling;

static void *calls(void *argument)
{
    rondo_stream *stream = argument;
    void *memory;
    while (!stop_calling) {
        rondo_stream_query(stream);
        if (rondo_mem_alloc(&memory, 4096, NULL) == RONDO_SUCCESS) rondo_mem_free(memory, NULL);
    }
    return NULL;
}

static void forks_often(rondo_comm *comm, int rank, int n, void *context)
{
    rondo_stream *stream;
    pthread_t thread;
    (void)rank, (void)n, (void)context;
    OK(rondo_stream_create(&stream, comm));
    CHECK(pthread_create(&thread, NULL, calls, stream) == 0, "no thread");
    for (int i = 0; i < 100; i++) {
        int status = -1;
        pid_t child = fork();
        if (child == 0) {
            void *memory;
            alarm(5);
            rondo_stream_query(stream);
            _exit(rondo_mem_alloc(&memory, 4096, NULL) == RONDO_SUCCESS && rondo_mem_free(memory, NULL) == RONDO_SUCCESS
                      ? 0
                      : 1);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0, "child %d ended with %d", i, status);
    }
    stop_calling = 1;
    pthread_join(thread, NULL);
    OK(rondo_stream_destroy(stream));
}

static void children_find_no_lock_held(void **state)
{
    (void)state;
    if (test_slowness() > 1) skip(); /* a sanitizer's own locks are held at forks, too */
    ranks_run(1, NULL, NULL, forks_often, NULL);
}

static void bad_arguments(void **state)
{
    (void)state;
    rondo_work *work;
    int64_t memory[64] = {0};
    assert_int_equal(rondo_stream_create(NULL, NULL), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_stream_query(NULL), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_stream_synchronize(NULL), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_stream_synchronize((rondo_stream *)(void *)memory), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_stream_destroy(NULL), RONDO_SUCCESS);
    assert_int_equal(rondo_stream_destroy((rondo_stream *)(void *)memory), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_stream_work(NULL, &work), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_work_test(NULL), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_work_wait(NULL, 1), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_work_then(NULL, then, NULL), RONDO_INVALID_ARGUMENT);
    rondo_work_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_run_in_order),
        cmocka_unit_test(case_16),
        cmocka_unit_test(works_tell_when_they_are_done),
        cmocka_unit_test(a_timeout_starts_with_the_call),
        cmocka_unit_test(an_abort_ends_what_is_queued),
        cmocka_unit_test(communicators_end_before_streams),
        cmocka_unit_test(what_is_queued_behind_another_is_no_hindrance),
        cmocka_unit_test(a_works_function_does_not_wait),
        cmocka_unit_test(a_forked_child_is_told),
        cmocka_unit_test(children_find_no_lock_held),
        cmocka_unit_test(bad_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
