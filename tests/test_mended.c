/* SPDX-License-Identifier: Apache-2.0
 *
 * Situations in which the library once did wrong.
 */
#include "test.h"

#include "core/comm.h"
#include "ranks.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void over(const char *transport) { test_env("RONDO_TRANSPORT", transport); }

/* ---- case 31: children that are forked after the start ---- */

/* Ends with 0 when the child saw what it should. */
static void in_a_child(rondo_comm *comm, int what)
{
    int32_t x = 1, status;
    pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (!child) {
        if (what == 0) {
            rondo_result r = rondo_all_reduce(&x, &x, 1, RONDO_INT32, RONDO_SUM, comm, NULL);
            if (r != RONDO_INVALID_USAGE || !strstr(rondo_last_error(NULL), "forked")) _exit(1);
        } else if (what == 1) {
            if (rondo_comm_abort(comm) != RONDO_INVALID_USAGE) _exit(2);
        } else if (what == 2) {
            if (rondo_comm_destroy(comm) != RONDO_SUCCESS) _exit(3);
        }
        if (what == 3) exit(0);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "child %d ended with %#x", what, status);
}

static void with_children(rondo_comm *comm, int rank, int n, void *context)
{
    float *memory;
    (void)context;
    CHECK(rondo_mem_alloc((void **)&memory, 65536, comm) == RONDO_SUCCESS, "%s", rondo_last_error(NULL));
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 16384; i++) memory[i] = (float)(i % 13 + rank);
        in_a_child(comm, round);
        pid_t child = fork(); /* one that only touches memory and exits */
        if (!child) {
            memset(malloc(100000), 1, 100000);
            _exit(memory[5] == (float)(5 + rank) ? 0 : 1);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0, "a child could not read its parent's memory");
        CHECK(rondo_all_reduce(memory, memory, 16384, RONDO_FLOAT32, RONDO_SUM, comm, NULL) == RONDO_SUCCESS, "round %d: %s",
              round, rondo_last_error(comm));
        for (int i = 0; i < 16384; i++)
            CHECK(memory[i] == (float)(n * (i % 13) + n * (n - 1) / 2), "round %d, element %d: %g", round, i, (double)memory[i]);
    }
    CHECK(rondo_mem_free(memory, comm) == RONDO_SUCCESS, "%s", rondo_last_error(NULL));
}

static void case_31(void **state)
{
    (void)state;
    over("shm");
    ranks_run(2, NULL, NULL, with_children, NULL);
    over("tcp");
    ranks_run(2, NULL, NULL, with_children, NULL);
    over(NULL);
}

/* ---- a rank that is stopped and goes on, again and again: nobody sleeps beside something to do ---- */

static void reduce_some(rondo_comm *comm, int rank, int n, void *context)
{
    volatile int *ready = context;
    const size_t count = 4 << 20;
    float *send = malloc(count * sizeof *send), *recv = malloc(count * sizeof *recv);
    for (size_t i = 0; i < count; i++) send[i] = (float)(i % 7 + (size_t)rank);
    CHECK(rondo_barrier(comm, NULL) == RONDO_SUCCESS, "%s", rondo_last_error(comm));
    if (rank == 0) *ready = 1;
    for (int k = 0; k < 4; k++) {
        CHECK(rondo_reduce(send, recv, count, RONDO_FLOAT32, RONDO_SUM, 0, comm, NULL) == RONDO_SUCCESS, "%s", rondo_last_error(comm));
        CHECK(rondo_barrier(comm, NULL) == RONDO_SUCCESS, "%s", rondo_last_error(comm));
        if (rank) continue;
        for (size_t i = 0; i < count; i += 1009)
            CHECK(recv[i] == (float)(n * (int)(i % 7) + n * (n - 1) / 2), "element %zu is %g", i, (double)recv[i]);
    }
    free(send);
    free(recv);
    CHECK(comm->missed_bells == 0, "rank %d slept %llu times beside something to do", rank, (unsigned long long)comm->missed_bells);
}

static void test_stop_and_go(void **state)
{
    (void)state;
    const char *transports[] = {"tcp", "shm"};
    for (int t = 0; t < 2; t++) {
        int *ready = test_shared(sizeof *ready);
        ranks all;
        over(transports[t]);
        ranks_start(&all, 3, NULL, NULL, reduce_some, ready);
        double end = test_seconds() + 60;
        while (!*(volatile int *)ready && test_seconds() < end) usleep(1000);
        for (int k = 0; k < 8; k++) {
            kill(all.pid[0], SIGSTOP);
            usleep(20000);
            kill(all.pid[0], SIGCONT);
            usleep(20000);
        }
        ranks_wait(&all, 60 * test_slowness());
        for (int r = 0; r < 3; r++) assert_int_equal(all.status[r], 0);
    }
    over(NULL);
}

/* ---- memory that peers reach directly is the caller's again when the call has failed ---- */

typedef struct driver {
    pthread_t thread;
    rondo_comm *comm;
    unsigned char *memory;
    rondo_result result;
} driver;

#define DIRECT_BYTES ((size_t)192 << 20)

static void *reduce_then_unmap(void *argument)
{
    driver *d = argument;
    d->result = rondo_all_reduce(d->memory, d->memory, DIRECT_BYTES / 4, RONDO_FLOAT32, RONDO_SUM, d->comm, NULL);
    munmap(d->memory, DIRECT_BYTES); /* a late access would be the end of the test */
    return NULL;
}

static void test_abort_in_direct(void **state)
{
    (void)state;
    rondo_comm *comms[2];
    driver d[2];
    assert_int_equal(rondo_init_all(comms, 2, NULL), RONDO_SUCCESS);
    for (int r = 0; r < 2; r++) {
        d[r].comm = comms[r];
        d[r].memory = mmap(NULL, DIRECT_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(d[r].memory, MAP_FAILED);
        memset(d[r].memory, r, DIRECT_BYTES);
    }
    for (int r = 0; r < 2; r++) assert_int_equal(pthread_create(&d[r].thread, NULL, reduce_then_unmap, &d[r]), 0);
    usleep(5000);
    double start = test_seconds();
    assert_int_equal(rondo_comm_abort(comms[0]), RONDO_SUCCESS);
    for (int r = 0; r < 2; r++) pthread_join(d[r].thread, NULL);
    assert_true(test_seconds() - start < 1 * test_slowness());
    assert_true(d[0].result == RONDO_ABORTED || d[0].result == RONDO_SUCCESS);
    for (int r = 0; r < 2; r++) rondo_comm_destroy(comms[r]);
}

/* ---- settings that shape the wiring differ ---- */

static void other_limit(int rank, void *context)
{
    (void)context;
    if (rank == 1) test_env("RONDO_FLAT_RANKS", "2");
    if (rank == 2) test_env("RONDO_SLICE", "8K");
}

static void sum_of_ones(rondo_comm *comm, int rank, int n, void *context)
{
    (void)rank, (void)context;
    int32_t x[5000];
    for (int i = 0; i < 5000; i++) x[i] = 1;
    CHECK(rondo_all_reduce(x, x, 5000, RONDO_INT32, RONDO_SUM, comm, NULL) == RONDO_SUCCESS, "%s", rondo_last_error(comm));
    for (int i = 0; i < 5000; i++) CHECK(x[i] == n, "element %d is %d", i, x[i]);
}

static void test_settings_agree(void **state)
{
    (void)state;
    ranks_run(3, NULL, other_limit, sum_of_ones, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_31), cmocka_unit_test(test_stop_and_go), cmocka_unit_test(test_settings_agree),
        cmocka_unit_test(test_abort_in_direct), /* last: it leaves threads in this process */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
