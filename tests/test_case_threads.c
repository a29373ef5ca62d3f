/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads: all ranks in one process, several communicators in one process, two threads on one communicator.
 */
#include "test.h"

#include "core/comm.h"
#include "trial.h"

#include <pthread.h>

#define MOST 8

typedef void (*thread_fn)(rondo_comm *comm, int number, void *context);

typedef struct worker {
    pthread_t thread;
    rondo_comm *comm;
    int number;
    thread_fn f;
    void *context;
} worker;

static void *work(void *argument)
{
    worker *w = argument;
    w->f(w->comm, w->number, w->context);
    return NULL;
}

/* One thread for each communicator; returns when all have returned. */
static void in_threads(rondo_comm **comms, int n, thread_fn f, void *context)
{
    worker workers[MOST];
    for (int i = 0; i < n; i++) {
        workers[i] = (worker){.comm = comms[i], .number = i, .f = f, .context = context};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < n; i++) assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
}

static void destroy(rondo_comm **comms, int n)
{
    for (int i = 0; i < n; i++) assert_int_equal(rondo_comm_destroy(comms[i]), RONDO_SUCCESS);
}

static void every_collective(rondo_comm *comm, int number, void *context)
{
    (void)context;
    CHECK(rondo_comm_rank(comm) == number, "rank %d is communicator %d", rondo_comm_rank(comm), number);
    for (uint64_t k = 0; k < 60 / (uint64_t)test_slowness() + 1; k++)
        for (int c = 0; c < TRIAL_COLLECTIVES; c++) {
            trial t = trial_draw(k * 8 + (uint64_t)c, rondo_comm_size(comm), k * 37);
            t.collective = (rondo_collective)c;
            trial_run(&t, comm);
        }
    SUCCEEDS(rondo_barrier(comm, NULL), comm);
}

static void case_init_all(void **state)
{
    static const struct way kinds[] = {{"auto", NULL, NULL}, {"loop ring", NULL, "ring"}, {"loop", "loop", NULL},
                                       {"shm", "shm", NULL}, {"shm ring", "shm", "ring"}, {"tcp", "tcp", NULL}};
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int n = 1; n <= 4; n++) {
            rondo_comm *comms[MOST];
            way_take(&kinds[k]);
            rondo_result r = rondo_init_all(comms, n, NULL);
            if (r != RONDO_SUCCESS) fail_msg("%s, %d ranks: %s", kinds[k].name, n, rondo_last_error(NULL));
            for (int i = 0; i < n; i++) {
                const rondo_link *link = n > 1 ? comms[i]->wiring.ring_out[0]->link : NULL;
                const char *wanted = kinds[k].transport ? kinds[k].transport : "loop";
                assert_int_equal(rondo_comm_size(comms[i]), n);
                if (link && strcmp(link->ops->name, wanted)) fail_msg("%s, not %s", link->ops->name, wanted);
            }
            in_threads(comms, n, every_collective, NULL);
            destroy(comms, n);
        }
    way_take(&kinds[0]);
}

/* ---- Communicators side by side ---- */

static void either_order(rondo_comm *comm, int number, void *context)
{
    rondo_comm **other = context;
    /* The second world has the ranks the other way round. */
    for (uint64_t k = 0; k < 40; k++) {
        trial_still_works(comm, k);
        trial_still_works(other[3 - number], k + 100);
    }
}

static void case_two_worlds_in_one_process(void **state)
{
    rondo_comm *first[4], *second[4];
    (void)state;
    assert_int_equal(rondo_init_all(first, 4, NULL), RONDO_SUCCESS);
    assert_int_equal(rondo_init_all(second, 4, NULL), RONDO_SUCCESS);
    in_threads(first, 4, either_order, second);
    destroy(first, 4);
    in_threads(second, 4, every_collective, NULL);
    destroy(second, 4);
}

static void second_communicator(rondo_comm *comm, int rank, int n, void *context)
{
    rondo_comm *other = NULL;
    rondo_unique_id id;
    (void)context;
    if (rank == 0) SUCCEEDS(rondo_get_unique_id(&id), NULL);
    SUCCEEDS(rondo_broadcast(&id, &id, sizeof id, RONDO_UINT8, 0, comm, NULL), comm);
    SUCCEEDS(rondo_init_rank(&other, n, id, n - 1 - rank, NULL), NULL);
    for (uint64_t k = 0; k < 20; k++) {
        trial_still_works(comm, k);
        trial_still_works(other, k + 7);
    }
    rondo_comm_destroy(comm);
    trial_still_works(other, 1);
    rondo_comm_destroy(other);
}

/* Two communicators over the same processes, not in the same roles; one outlives the other. */
static void case_two_communicators(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++) {
        way_take(&ways[w]);
        ranks_run(4, NULL, NULL, second_communicator, NULL);
    }
}

/* ---- Two threads on one communicator ---- */

static void one_call(rondo_comm *comm, int number, void *context)
{
    (void)number, (void)context;
    trial t = {.collective = RONDO_COLL_ALL_REDUCE, .dtype = RONDO_INT32, .op = RONDO_SUM, .count = 1000, .seed = 1};
    trial_run(&t, comm);
}

/* Rank 0's call waits for rank 1. Meanwhile every other call on rank 0 is refused, also one with bad arguments. */
static void case_second_thread_is_refused(void **state)
{
    static const struct way standard = {"auto", NULL, NULL};
    rondo_comm *comms[2];
    worker first = {0};
    float in[4] = {0}, out[4] = {7, 7, 7, 7};
    (void)state;
    way_take(&standard);
    assert_int_equal(rondo_init_all(comms, 2, NULL), RONDO_SUCCESS);
    first = (worker){.comm = comms[0], .f = one_call};
    assert_int_equal(pthread_create(&first.thread, NULL, work, &first), 0);
    double end = test_seconds() + 10;
    while (!atomic_load(&comms[0]->busy)) assert_true(test_seconds() < end);
    for (int k = 0; k < 100; k++) {
        assert_int_equal(rondo_all_reduce(in, out, 4, RONDO_FLOAT32, RONDO_SUM, comms[0], NULL), RONDO_INVALID_USAGE);
        assert_non_null(strstr(rondo_last_error(NULL), "thread"));
        assert_int_equal(rondo_barrier(comms[0], NULL), RONDO_INVALID_USAGE);
        assert_int_equal(rondo_broadcast(in, NULL, 4, (rondo_dtype)99, 5, comms[0], NULL), RONDO_INVALID_USAGE);
        assert_int_equal(rondo_reduce(in, out, 4, RONDO_FLOAT32, RONDO_SUM, 1, comms[0], NULL), RONDO_INVALID_USAGE);
    }
    for (int i = 0; i < 4; i++) assert_true(out[i] == 7);
    one_call(comms[1], 1, NULL);
    assert_int_equal(pthread_join(first.thread, NULL), 0);
    in_threads(comms, 2, every_collective, NULL);
    destroy(comms, 2);
}

/* Both threads of a rank make the same calls until each has made enough; so the calls match in whatever order. */
static void hammer(rondo_comm *comm, int number, void *context)
{
    int calls = 300 / (int)test_slowness();
    pthread_barrier_t *all = context;
    int32_t in[33], out[33];
    int n = rondo_comm_size(comm), rank = rondo_comm_rank(comm);
    (void)number;
    pthread_barrier_wait(all);
    for (int done = 0; done < calls;) {
        for (int i = 0; i < 33; i++) in[i] = i + rank, out[i] = -1;
        rondo_result r = rondo_all_reduce(in, out, 33, RONDO_INT32, RONDO_SUM, comm, NULL);
        CHECK(r == RONDO_SUCCESS || r == RONDO_INVALID_USAGE, "%s", rondo_last_error(NULL));
        for (int i = 0; i < 33; i++) {
            int want = r == RONDO_SUCCESS ? n * i + n * (n - 1) / 2 : -1;
            CHECK(out[i] == want, "rank %d, element %d: %d, not %d", rank, i, out[i], want);
        }
        done += r == RONDO_SUCCESS;
    }
}

static void case_two_threads_hammer(void **state)
{
    (void)state;
    for (int n = 1; n <= 2; n++) {
        rondo_comm *comms[4];
        pthread_barrier_t all;
        pthread_barrier_init(&all, NULL, (unsigned)(2 * n));
        assert_int_equal(rondo_init_all(comms, n, NULL), RONDO_SUCCESS);
        for (int i = 0; i < n; i++) comms[n + i] = comms[i];
        in_threads(comms, 2 * n, hammer, &all);
        destroy(comms, n);
        pthread_barrier_destroy(&all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_two_communicators), /* first: the others leave threads in this process */
        cmocka_unit_test(case_init_all),
        cmocka_unit_test(case_two_worlds_in_one_process),
        cmocka_unit_test(case_second_thread_is_refused),
        cmocka_unit_test(case_two_threads_hammer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
