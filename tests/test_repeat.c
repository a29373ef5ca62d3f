/* SPDX-License-Identifier: Apache-2.0
 *
 * test_repeat.c - calls like the one before, which core/repeat.c makes without a task: they give, refuse, fail and leave
 * behind what other calls do.
 */
#include "test.h"

#include "core/comm.h"
#include "trial.h"

#include <pthread.h>
#include <unistd.h>
#ifdef __x86_64__
#include <xmmintrin.h>
#endif

#define MOST_COUNT 70000

static const size_t counts[] = {1, 5, 64, 1024, 4000, MOST_COUNT}; /* exchange, flat, several slices */
enum { COUNTS = sizeof counts / sizeof *counts };

static float value(int rank, int call, size_t i)
{
    return (float)((i * 7 + (size_t)rank * 13 + (size_t)call * 5) % 251);
}

static void fill(float *x, size_t count, int rank, int call)
{
    for (size_t i = 0; i < count; i++) x[i] = value(rank, call, i);
}

static void check_sums(const float *x, size_t count, int n, int call)
{
    for (size_t i = 0; i < count; i++) {
        float sum = 0;
        for (int r = 0; r < n; r++) sum += value(r, call, i);
        CHECK(x[i] == sum, "element %zu of %zu of call %d is %g, not %g", i, count, call, (double)x[i], (double)sum);
    }
}

static rondo_result sum_in(rondo_comm *comm, float *x, size_t count)
{
    return rondo_all_reduce(x, x, count, RONDO_FLOAT32, RONDO_SUM, comm, NULL);
}

/* A call, and its sums. */
static void sum_up(rondo_comm *comm, float *from, float *to, size_t count, int call)
{
    int rank = rondo_comm_rank(comm), n = rondo_comm_size(comm);
    fill(from, count, rank, call);
    SUCCEEDS(rondo_all_reduce(from, to, count, RONDO_FLOAT32, RONDO_SUM, comm, NULL), comm);
    check_sums(to, count, n, call);
}

static uint64_t tasks_of(const rondo_comm *comm) { return atomic_load(&comm->line.tickets); }

/* Ranks that have warmed up; shared by all of them. */
static _Atomic int *warm;

static void by_each_way(int least_ranks, int most_ranks, const rondo_config *config, rank_fn f, void *context)
{
    for (int w = 0; w < WAYS; w++)
        for (int n = least_ranks; n <= most_ranks; n++) {
            way_take(&ways[w]);
            atomic_store(warm, 0);
            ranks_run(n, config, NULL, f, context);
        }
    way_take(&ways[WAY_AUTO]);
}

/* ---- What they give ---- */

static float memory[3][MOST_COUNT + 16], *const x = memory[0], *const y = memory[1], *const z = memory[2];

static void many(rondo_comm *comm, int rank, int n, void *context)
{
    uint64_t before = tasks_of(comm);
    int call = 0;
    (void)rank, (void)n, (void)context;
    for (int c = 0; c < COUNTS; c++)
        for (int k = 0; k < 20; k++, call++) {
            if (k % 4 == 0) sum_up(comm, x, x, counts[c], call);
            else if (k % 4 == 1) sum_up(comm, y + 3, z + 1, counts[c], call);
            else sum_up(comm, x + k % 5, y, counts[c], call);
        }
    CHECK(tasks_of(comm) - before >= COUNTS, "the first of each count is a task");
    CHECK(rondo_barrier(comm, NULL) == RONDO_SUCCESS && rondo_barrier(comm, NULL) == RONDO_SUCCESS, "barriers");
}

static void right_sums(void **state)
{
    (void)state;
    by_each_way(2, 4, NULL, many, NULL);
}

/* What differs in one thing from the call before is not taken for one like it. */
static void one_like_none(rondo_comm *comm, int rank, int n, void *context)
{
    int32_t a[8];
    double d[8];
    float f[8];
    (void)context;
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 8; i++) a[i] = rank + i + round, f[i] = (float)(rank + i), d[i] = rank * i;
        SUCCEEDS(rondo_all_reduce(f, f, 8, RONDO_FLOAT32, RONDO_SUM, comm, NULL), comm);
        SUCCEEDS(rondo_all_reduce(a, a, 8, RONDO_INT32, RONDO_SUM, comm, NULL), comm);
        SUCCEEDS(rondo_all_reduce(d, d, 8, RONDO_FLOAT64, RONDO_MAX, comm, NULL), comm);
        for (int i = 0; i < 8; i++) {
            CHECK(a[i] == n * (i + round) + n * (n - 1) / 2, "int32 sum");
            CHECK(f[i] == (float)(n * i + n * (n - 1) / 2), "float32 sum");
            CHECK(d[i] == (n - 1) * i, "float64 maximum");
        }
        for (int i = 0; i < 8; i++) f[i] = (float)(rank + 1);
        SUCCEEDS(rondo_all_reduce(f, f, 8, RONDO_FLOAT32, RONDO_PROD, comm, NULL), comm);
        CHECK(f[3] == (float)(n == 2 ? 2 : 6), "product %g", (double)f[3]);
        for (int i = 0; i < 8; i++) f[i] = (float)rank;
        SUCCEEDS(rondo_broadcast(f, f, 8, RONDO_FLOAT32, round % n, comm, NULL), comm);
        CHECK(f[7] == (float)(round % n), "broadcast");
    }
}

static void others_between(void **state)
{
    (void)state;
    by_each_way(2, 3, NULL, one_like_none, NULL);
}

/* On streams and in groups they wait for their turn. */
static void by_turns(rondo_comm *comm, int rank, int n, void *context)
{
    rondo_stream *stream;
    (void)context;
    SUCCEEDS(rondo_stream_create(&stream, comm), comm);
    for (int k = 0; k < 10; k++) {
        sum_up(comm, x, x, 100, k);
        fill(x, 100, rank, k);
        fill(y, 100, rank, k + 1);
        fill(z, 100, rank, k + 2);
        SUCCEEDS(rondo_all_reduce(x, x, 100, RONDO_FLOAT32, RONDO_SUM, comm, stream), comm);
        SUCCEEDS(rondo_all_reduce(x, y, 100, RONDO_FLOAT32, RONDO_SUM, comm, NULL), comm); /* after it: sums of sums */
        SUCCEEDS(rondo_stream_synchronize(stream), comm);
        check_sums(x, 100, n, k);
        for (int i = 0; i < 100; i++) CHECK(y[i] == (float)n * x[i], "element %d of a sum of sums", i);
        SUCCEEDS(rondo_group_start(), comm);
        SUCCEEDS(sum_in(comm, z, 100), comm);
        CHECK(z[1] == value(rank, k + 2, 1), "a group's call has run before its end");
        SUCCEEDS(rondo_group_end(), comm);
        check_sums(z, 100, n, k + 2);
    }
    /* What a stream does may be of another shape, which takes the place of the last one while this thread calls. */
    for (int k = 0; k < 200; k++) {
        size_t count = 5000 + (size_t)k % 3;
        sum_up(comm, x, x, 100, k);
        fill(y, count, rank, k);
        fill(x, 100, rank, k + 1);
        SUCCEEDS(rondo_all_reduce(y, y, count, RONDO_FLOAT32, RONDO_MAX, comm, stream), comm);
        SUCCEEDS(sum_in(comm, x, 100), comm);
        check_sums(x, 100, n, k + 1);
        SUCCEEDS(rondo_stream_synchronize(stream), comm);
        for (size_t i = 0; i < count; i++) {
            float most = 0;
            for (int r = 0; r < n; r++) most = value(r, k, i) > most ? value(r, k, i) : most;
            CHECK(y[i] == most, "element %zu of a stream's maximum", i);
        }
    }
    SUCCEEDS(rondo_stream_destroy(stream), comm);
}

static void streams_and_groups(void **state)
{
    (void)state;
    by_each_way(2, 3, NULL, by_turns, NULL);
}

/* In a world of one nobody is waited for, so none of them needs a task. */
static void without_tasks(rondo_comm *comm, int rank, int n, void *context)
{
    (void)rank, (void)n, (void)context;
    sum_up(comm, x, x, 1000, 0);
    uint64_t before = tasks_of(comm);
    for (int k = 1; k < 100; k++) sum_up(comm, k % 2 ? x : y, y, 1000, k);
    CHECK(tasks_of(comm) == before, "%d tasks", (int)(tasks_of(comm) - before));
    sum_up(comm, x, x, 1001, 0);
    CHECK(tasks_of(comm) == before + 1, "a call of another count is a task");
}

static void no_tasks(void **state)
{
    (void)state;
    ranks_run(1, NULL, NULL, without_tasks, NULL);
}

#ifdef __x86_64__
/* A caller who flushes subnormals gets them, and finds his state as it was. */
static void flushing(rondo_comm *comm, int rank, int n, void *context)
{
    const unsigned usual = _mm_getcsr(), flushes = usual | 0x8040;
    const float least = 1e-45f;
    (void)rank, (void)context;
    for (int k = 0; k < 10; k++) {
        for (int i = 0; i < 600; i++) x[i] = least;
        _mm_setcsr(flushes);
        rondo_result result = sum_in(comm, x, 600);
        unsigned after = _mm_getcsr();
        _mm_setcsr(usual);
        SUCCEEDS(result, comm);
        CHECK(after == flushes, "MXCSR is %#x, and was %#x", after, flushes);
        for (int i = 0; i < 600; i++) CHECK(x[i] == (float)n * least, "call %d, element %d is %g", k, i, (double)x[i]);
    }
}

static void subnormals(void **state)
{
    (void)state;
    by_each_way(2, 2, NULL, flushing, NULL);
}
#endif

/* ---- What they refuse ---- */

static void bad_arguments(rondo_comm *comm, int rank, int n, void *context)
{
    (void)rank, (void)n, (void)context;
    for (int k = 0; k < 3; k++) {
        sum_up(comm, x, y, 50, k);
        CHECK(rondo_all_reduce(NULL, y, 50, RONDO_FLOAT32, RONDO_SUM, comm, NULL) == RONDO_INVALID_ARGUMENT, "NULL");
        CHECK(strstr(rondo_last_error(comm), "send is NULL"), "%s", rondo_last_error(comm));
        CHECK(rondo_all_reduce(x, NULL, 50, RONDO_FLOAT32, RONDO_SUM, comm, NULL) == RONDO_INVALID_ARGUMENT, "NULL");
        CHECK(rondo_all_reduce(x, x + 49, 50, RONDO_FLOAT32, RONDO_SUM, comm, NULL) == RONDO_INVALID_ARGUMENT, "overlap");
        CHECK(strstr(rondo_last_error(comm), "overlap"), "%s", rondo_last_error(comm));
        sum_up(comm, x, x + 50, 50, k);
    }
    SUCCEEDS(rondo_comm_finalize(comm), comm);
    CHECK(sum_in(comm, x, 50) == RONDO_INVALID_USAGE, "after rondo_comm_finalize");
}

static void refused(void **state)
{
    (void)state;
    by_each_way(2, 2, NULL, bad_arguments, NULL);
}

/* ---- How they wait and fail ---- */

/* Calls to be repeated. No rank goes on before all are through with them: what ends a communicator also ends a call that
 * another rank has done. */
static void warm_up(rondo_comm *comm, int n)
{
    for (int k = 0; k < 5; k++) sum_up(comm, x, x, 100, k);
    atomic_fetch_add(warm, 1);
    while (atomic_load(warm) < n) usleep(1000);
}

/* Waits 0.1 s for the last rank; the record tells. */
static void one_is_late(rondo_comm *comm, int rank, int n, void *context)
{
    size_t count = *(size_t *)context;
    rondo_record_call last;
    for (int k = 0; k < 2; k++) {
        sum_up(comm, x, x, count, k);
        if (rank == n - 1) usleep(100000);
        sum_up(comm, x, x, count, k + 1);
        CHECK(rd_record_latest(comm->recorder, true, &last), "no record");
        CHECK(last.number == comm->calls && last.count == count && last.result == RONDO_SUCCESS, "another record");
        if (rank != n - 1)
            CHECK(last.ended_ns - last.begun_ns > 50000000, "%g s recorded",
                  (double)(last.ended_ns - last.begun_ns) * 1e-9);
    }
}

static void late(void **state)
{
    (void)state;
    for (int c = 0; c < COUNTS; c += 2) by_each_way(3, 3, NULL, one_is_late, (void *)(uintptr_t)&counts[c]);
}

static void other_call(rondo_comm *comm, int rank, int n, void *context)
{
    (void)context;
    warm_up(comm, n);
    rondo_result result = rank ? sum_in(comm, x, 100)
                               : rondo_all_reduce(x, x, 100, RONDO_FLOAT32, RONDO_MAX, comm, NULL);
    CHECK(result == RONDO_MISMATCH || result == RONDO_REMOTE_ERROR, "%s", rondo_result_string(result));
    CHECK(strstr(rondo_last_error(comm), "max") || strstr(rondo_last_error(comm), "sum"), "%s", rondo_last_error(comm));
    CHECK(sum_in(comm, x, 100) == result, "a call after it");
}

static void mismatch(void **state)
{
    (void)state;
    by_each_way(3, 3, NULL, other_call, NULL);
}

static void one_dies(rondo_comm *comm, int rank, int n, void *context)
{
    (void)context;
    warm_up(comm, n);
    if (rank == n - 1) _exit(0);
    rondo_result result = sum_in(comm, x, 100);
    CHECK(result == RONDO_REMOTE_ERROR, "%s: %s", rondo_result_string(result), rondo_last_error(comm));
}

static void death(void **state)
{
    (void)state;
    by_each_way(3, 3, NULL, one_dies, NULL);
}

static void one_never_calls(rondo_comm *comm, int rank, int n, void *context)
{
    (void)context;
    warm_up(comm, n);
    if (rank == 0) {
        rondo_result state = RONDO_SUCCESS;
        for (double from = test_seconds(); state == RONDO_SUCCESS && test_seconds() - from < 10 * test_slowness();) {
            usleep(10000);
            SUCCEEDS(rondo_comm_error(comm, &state), comm);
        }
        CHECK(state == RONDO_REMOTE_ERROR || state == RONDO_TIMEOUT, "%s", rondo_result_string(state));
        return;
    }
    rondo_result result = sum_in(comm, x, 100);
    CHECK(result == RONDO_TIMEOUT || result == RONDO_REMOTE_ERROR, "%s", rondo_result_string(result));
    CHECK(strstr(rondo_last_error(comm), "rank 0"), "%s", rondo_last_error(comm));
}

static void timeout(void **state)
{
    rondo_config config = RONDO_CONFIG_INIT;
    (void)state;
    config.timeout_s = 1;
    by_each_way(2, 2, &config, one_never_calls, NULL);
}

static void *abort_it(void *comm)
{
    usleep(100000);
    CHECK(rondo_comm_abort(comm) == RONDO_SUCCESS, "abort");
    return NULL;
}

static void aborted(rondo_comm *comm, int rank, int n, void *context)
{
    pthread_t thread;
    (void)context;
    warm_up(comm, n);
    if (rank) {
        usleep(300000);
        return;
    }
    CHECK(pthread_create(&thread, NULL, abort_it, comm) == 0, "no thread");
    rondo_result result = sum_in(comm, x, 100);
    pthread_join(thread, NULL);
    CHECK(result == RONDO_ABORTED, "%s: %s", rondo_result_string(result), rondo_last_error(comm));
}

/* One that needs nobody, and would be done before it could look again: it has been aborted all the same. */
static void aborted_alone(rondo_comm *comm, int rank, int n, void *context)
{
    enum { BYTES = 64 << 20 };
    pthread_t thread;
    char *from = calloc(1, BYTES), *to = calloc(1, BYTES);
    rondo_result result = RONDO_SUCCESS;
    (void)rank, (void)n, (void)context;
    CHECK(from && to && pthread_create(&thread, NULL, abort_it, comm) == 0, "no memory, or no thread");
    while (result == RONDO_SUCCESS && !rd_comm_stopped(comm))
        result = rondo_all_reduce(from, to, BYTES, RONDO_UINT8, RONDO_SUM, comm, NULL);
    CHECK(result == RONDO_ABORTED, "the call that was in progress gave %s", rondo_result_string(result));
    pthread_join(thread, NULL);
    free(from);
    free(to);
}

static void aborts(void **state)
{
    (void)state;
    by_each_way(2, 2, NULL, aborted, NULL);
    ranks_run(1, NULL, NULL, aborted_alone, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_sums),
        cmocka_unit_test(others_between),
        cmocka_unit_test(streams_and_groups),
        cmocka_unit_test(no_tasks),
#ifdef __x86_64__
        cmocka_unit_test(subnormals),
#endif
        cmocka_unit_test(refused),
        cmocka_unit_test(late),
        cmocka_unit_test(mismatch),
        cmocka_unit_test(death),
        cmocka_unit_test(timeout),
        cmocka_unit_test(aborts),
    };
    warm = test_shared(sizeof *warm);
    return cmocka_run_group_tests_name("repeat", tests, NULL, NULL);
}
