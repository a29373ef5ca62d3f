/* SPDX-License-Identifier: Apache-2.0
 *
 * test_at_once.c - streams, works, splits, messages and aborts, all at once in one process: nothing races (the thread
 * sanitizer runs this, too), nothing hangs, nothing is left.
 */
#include "ranks.h"
#include "rondo.h"
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 3, COUNT = 5000 };

static void *watch(void *seconds)
{
    usleep((useconds_t)(*(const double *)seconds * 1e6));
    fprintf(stderr, "ERROR: still at it after %g s\n", *(const double *)seconds);
    abort();
}

/* What a rank does until its communicator has ended, or it has done it all. */
typedef struct rank {
    pthread_t thread;
    rondo_comm *comm;
    int rounds;
    _Atomic int done;
    rondo_result result;
} rank;

static void *busy(void *argument)
{
    rank *r = argument;
    int me = rondo_comm_rank(r->comm);
    rondo_stream *streams[2];
    float *x = calloc(COUNT, sizeof *x), *y = calloc(COUNT, sizeof *y), note = (float)me, heard = 0;
    rondo_result result = RONDO_SUCCESS;
    for (int i = 0; i < 2; i++) assert_int_equal(rondo_stream_create(&streams[i], NULL), RONDO_SUCCESS);
    for (; result == RONDO_SUCCESS && r->done < r->rounds; r->done++) {
        rondo_comm *child = NULL;
        for (int i = 0; i < COUNT; i++) x[i] = (float)(me + i % 7), y[i] = 1;
        result = rondo_all_reduce(x, x, COUNT, RONDO_FLOAT32, RONDO_SUM, r->comm, streams[0]);
        if (result == RONDO_SUCCESS) result = rondo_comm_split(r->comm, me > 0, me, &child, NULL);
        if (result == RONDO_SUCCESS)
            result = rondo_all_reduce(y, y, COUNT, RONDO_FLOAT32, RONDO_SUM, child, streams[1]);
        rondo_group_start();
        if (result == RONDO_SUCCESS) result = rondo_send(&note, 1, RONDO_FLOAT32, (me + 1) % RANKS, r->comm, NULL);
        if (result == RONDO_SUCCESS)
            result = rondo_recv(&heard, 1, RONDO_FLOAT32, (me + RANKS - 1) % RANKS, r->comm, NULL);
        rondo_result ended = rondo_group_end();
        if (result == RONDO_SUCCESS) result = ended;
        for (int i = 0; i < 2; i++) {
            ended = rondo_stream_synchronize(streams[i]);
            if (result == RONDO_SUCCESS) result = ended;
        }
        rondo_comm_destroy(child);
        if (result != RONDO_SUCCESS) break;
        for (int i = 0; i < COUNT; i++) assert_true(x[i] == (float)(3 + 3 * (i % 7)) && y[i] == (me ? 2.0f : 1.0f));
        assert_true(heard == (float)((me + RANKS - 1) % RANKS));
    }
    for (int i = 0; i < 2; i++) rondo_stream_destroy(streams[i]);
    free(x);
    free(y);
    r->result = result;
    return NULL;
}

static void run(int rounds, double abort_after)
{
    rondo_comm *comms[RANKS];
    rank all[RANKS] = {0};
    pthread_t watcher;
    double limit = 60 * test_slowness();
    assert_int_equal(pthread_create(&watcher, NULL, watch, &limit), 0);
    assert_int_equal(rondo_init_all(comms, RANKS, NULL), RONDO_SUCCESS);
    for (int r = 0; r < RANKS; r++) {
        all[r].comm = comms[r];
        all[r].rounds = rounds;
        assert_int_equal(pthread_create(&all[r].thread, NULL, busy, &all[r]), 0);
    }
    if (abort_after > 0) {
        usleep((useconds_t)(abort_after * 1e6));
        rondo_comm_abort(comms[1]);
        rondo_comm_abort(comms[1]);
    }
    for (int r = 0; r < RANKS; r++) pthread_join(all[r].thread, NULL);
    for (int r = 0; r < RANKS; r++) {
        if (abort_after <= 0)
            assert_int_equal(all[r].result, RONDO_SUCCESS);
        else
            assert_true(all[r].result == RONDO_SUCCESS || all[r].result == RONDO_ABORTED ||
                        all[r].result == RONDO_REMOTE_ERROR);
        assert_int_equal(rondo_comm_destroy(comms[r]), RONDO_SUCCESS);
    }
    pthread_cancel(watcher);
    pthread_join(watcher, NULL);
}

static void all_at_once(void **state)
{
    (void)state;
    run(20, 0);
    test_env("RONDO_TRANSPORT", "tcp");
    run(10, 0);
    test_env("RONDO_TRANSPORT", NULL);
}

static void aborted_at_any_moment(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        test_env("RONDO_TRANSPORT", i % 3 ? NULL : "tcp");
        run(1000000, 0.003 * (i + 1) * (i + 1));
    }
    test_env("RONDO_TRANSPORT", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_at_once), cmocka_unit_test(aborted_at_any_moment)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
