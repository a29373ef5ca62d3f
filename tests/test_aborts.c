/* SPDX-License-Identifier: Apache-2.0
 *
 * test_aborts.c - rondo_comm_abort (case 19), whatever it interrupts. The timeout is ten minutes.
 */
#include "test.h"

#include "core/comm.h"
#include "ranks.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define FLOATS (1 << 20)

static const char *const ways[][2] = {{"shm", NULL}, {"shm", "ring"}, {"tcp", NULL}};

static void over(int way)
{
    test_env("RONDO_TRANSPORT", way < 0 ? NULL : ways[way][0]);
    test_env("RONDO_ALGO", way < 0 ? NULL : ways[way][1]);
}

static rondo_config patient(void)
{
    rondo_config config = RONDO_CONFIG_INIT;
    config.timeout_s = 600;
    return config;
}

static void run(int n, rank_fn f, void *context)
{
    rondo_config config = patient();
    ranks_run(n, &config, NULL, f, context);
}

/* ---- One who aborts, after a while ---- */

typedef struct aborter {
    pthread_t thread;
    rondo_comm *comms[3];
    int n;
    double at; /* when it began */
} aborter;

static void *abort_soon(void *argument)
{
    aborter *a = argument;
    usleep(300000);
    a->at = test_seconds();
    for (int twice = 0; twice < 2; twice++)
        for (int i = 0; i < a->n; i++) {
            double before = test_seconds();
            CHECK(rondo_comm_abort(a->comms[i]) == RONDO_SUCCESS, "abort");
            CHECK(test_seconds() - before < 1 * test_slowness(), "abort took %g s", test_seconds() - before);
        }
    return NULL;
}

static void start_aborter(aborter *a, rondo_comm *comm)
{
    a->n = 1;
    a->comms[0] = comm;
    CHECK(pthread_create(&a->thread, NULL, abort_soon, a) == 0, "no thread");
}

/* What the interrupted call gave. */
static void check_aborted(aborter *a, rondo_result result, const char *text)
{
    pthread_join(a->thread, NULL);
    CHECK(result == RONDO_ABORTED, "%s: %s", rondo_result_string(result), text);
    CHECK(strstr(text, "rondo_comm_abort"), "%s", text);
    CHECK(test_seconds() - a->at < 1 * test_slowness(), "aborted, but only after %g s", test_seconds() - a->at);
}

/* The others are told within 2 s. */
static void hear_of_it(rondo_comm *comm, double since)
{
    rondo_result state = RONDO_SUCCESS;
    while (state == RONDO_SUCCESS && test_seconds() - since < 2 * test_slowness()) {
        usleep(10000);
        CHECK(rondo_comm_error(comm, &state) == RONDO_SUCCESS, "%s", rondo_last_error(NULL));
    }
    CHECK(state == RONDO_REMOTE_ERROR, "%s: %s", rondo_result_string(state), rondo_last_error(comm));
    CHECK(strstr(rondo_last_error(comm), "rank 0") && strstr(rondo_last_error(comm), "rondo_comm_abort"), "%s",
          rondo_last_error(comm));
}

/* ---- In a call ---- */

static void in_a_call(rondo_comm *comm, int rank, int n, void *context)
{
    bool large = *(bool *)context;
    float *a = calloc(FLOATS, sizeof *a);
    aborter one;
    (void)n;
    CHECK(rondo_barrier(comm, NULL) == RONDO_SUCCESS, "%s", rondo_last_error(comm));
    if (rank == 3) {
        hear_of_it(comm, test_seconds() + 0.3);
        CHECK(rondo_barrier(comm, NULL) == RONDO_REMOTE_ERROR, "a call after it");
    } else {
        if (rank == 0) start_aborter(&one, comm);
        rondo_result result = rondo_all_reduce(a, a, large ? FLOATS : 1, RONDO_FLOAT32, RONDO_SUM, comm, NULL);
        if (rank == 0)
            check_aborted(&one, result, rondo_last_error(comm));
        else
            hear_of_it(comm, test_seconds());
        CHECK(rondo_barrier(comm, NULL) == result, "a call after it");
    }
    free(a);
    double before = test_seconds();
    CHECK(rondo_comm_destroy(comm) == RONDO_SUCCESS, "destroy");
    CHECK(test_seconds() - before < 1 * test_slowness(), "destroy took %g s", test_seconds() - before);
}

static void case_19(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++)
        for (int large = 0; large < 2; large++) {
            over(way);
            run(4, in_a_call, &(bool){large});
        }
    over(-1);
}

/* ---- Three at once ---- */

typedef struct stuck {
    pthread_t thread;
    rondo_comm *comm;
    rondo_stream *stream;
    rondo_result result;
    char text[512];
} stuck;

static void *get_stuck(void *argument)
{
    stuck *s = argument;
    int32_t x = 1;
    if (s->stream) {
        CHECK(rondo_all_reduce(&x, &x, 1, RONDO_INT32, RONDO_SUM, s->comm, s->stream) == RONDO_SUCCESS, "%s",
              rondo_last_error(s->comm));
        CHECK(rondo_barrier(s->comm, s->stream) == RONDO_SUCCESS, "%s", rondo_last_error(s->comm));
        s->result = rondo_stream_synchronize(s->stream);
    } else {
        s->result = rondo_all_reduce(&x, &x, 1, RONDO_INT32, RONDO_SUM, s->comm, NULL);
    }
    snprintf(s->text, sizeof s->text, "%s", rondo_last_error(NULL));
    return NULL;
}

static void three_stuck(rondo_comm *comm, int rank, int n, void *context)
{
    bool streams = *(bool *)context;
    stuck s[3] = {0};
    aborter one;
    (void)n;
    s[0].comm = comm;
    for (int i = 1; i < 3; i++)
        CHECK(rondo_comm_split(comm, 0, 0, &s[i].comm, NULL) == RONDO_SUCCESS, "%s", rondo_last_error(comm));
    if (rank == 0) {
        for (int i = 0; i < 3; i++) {
            if (streams)
                CHECK(rondo_stream_create(&s[i].stream, s[i].comm) == RONDO_SUCCESS, "%s", rondo_last_error(NULL));
            CHECK(pthread_create(&s[i].thread, NULL, get_stuck, &s[i]) == 0, "no thread");
        }
        one.n = 3;
        for (int i = 0; i < 3; i++) one.comms[i] = s[i].comm;
        abort_soon(&one);
        for (int i = 0; i < 3; i++) {
            pthread_join(s[i].thread, NULL);
            CHECK(s[i].result == RONDO_ABORTED, "%s: %s", rondo_result_string(s[i].result), s[i].text);
        }
        CHECK(test_seconds() - one.at < 1 * test_slowness(), "after %g s", test_seconds() - one.at);
        for (int i = 0; i < 3; i++) rondo_stream_destroy(s[i].stream);
    } else {
        for (int i = 0; i < 3; i++) hear_of_it(s[i].comm, test_seconds() + 0.3);
    }
    for (int i = 0; i < 3; i++) CHECK(rondo_comm_destroy(s[i].comm) == RONDO_SUCCESS, "destroy");
}

static void three_at_once(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way += 2)
        for (int streams = 0; streams < 2; streams++) {
            over(way);
            run(2, three_stuck, &(bool){streams});
        }
    over(-1);
}

/* Destroy while a stream has calls that cannot end: they end, and it returns. */
static void destroy_stuck(rondo_comm *comm, int rank, int n, void *context)
{
    rondo_stream *stream;
    (void)n, (void)context;
    if (rank == 1) {
        hear_of_it(comm, test_seconds() + 0.3);
        rondo_comm_destroy(comm);
        return;
    }
    CHECK(rondo_stream_create(&stream, NULL) == RONDO_SUCCESS, "%s", rondo_last_error(NULL));
    CHECK(rondo_barrier(comm, stream) == RONDO_SUCCESS, "%s", rondo_last_error(comm));
    usleep(200000);
    double before = test_seconds();
    CHECK(rondo_comm_destroy(comm) == RONDO_SUCCESS, "destroy");
    CHECK(test_seconds() - before < 1 * test_slowness(), "destroy took %g s", test_seconds() - before);
    CHECK(rondo_stream_synchronize(stream) == RONDO_ABORTED, "%s", rondo_last_error(NULL));
    CHECK(rondo_stream_destroy(stream) == RONDO_SUCCESS, "%s", rondo_last_error(NULL));
}

static void destroyed_with_calls(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way += 2) {
        over(way);
        run(2, destroy_stuck, NULL);
    }
    over(-1);
}

/* ---- While a communicator is made ---- */

static void in_the_background(const rondo_unique_id *id, int rank, int n, void *context)
{
    rondo_config config = patient();
    rondo_comm *comm;
    rondo_result state;
    (void)context;
    config.background = 1;
    if (rank == 2) return;
    CHECK(rondo_init_rank(&comm, n, *id, rank, &config) == RONDO_IN_PROGRESS, "%s", rondo_last_error(NULL));
    usleep(300000);
    CHECK(rondo_comm_error(comm, &state) == RONDO_SUCCESS && state == RONDO_IN_PROGRESS, "%s", rondo_last_error(comm));
    double before = test_seconds();
    CHECK(rondo_comm_abort(comm) == RONDO_SUCCESS, "abort");
    CHECK(test_seconds() - before < 1 * test_slowness(), "abort took %g s", test_seconds() - before);
    do {
        usleep(1000);
        CHECK(rondo_comm_error(comm, &state) == RONDO_SUCCESS, "%s", rondo_last_error(NULL));
        CHECK(test_seconds() - before < 2 * test_slowness(), "still %s", rondo_result_string(state));
    } while (state == RONDO_IN_PROGRESS);
    CHECK(state == RONDO_ABORTED, "%s: %s", rondo_result_string(state), rondo_last_error(comm));
    CHECK(rondo_comm_abort(comm) == RONDO_SUCCESS && rondo_comm_destroy(comm) == RONDO_SUCCESS, "harmless");
}

static void while_it_is_made(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way += 2) {
        over(way);
        ranks_run_bare(3, in_the_background, NULL);
    }
    over(-1);
}

/* ---- In a split: rank 2 has not called it; or it has, and does not come to the child's start ---- */

static void in_a_split(rondo_comm *comm, int rank, int n, void *context)
{
    bool half = *(bool *)context;
    rondo_comm *child = comm;
    aborter one;
    (void)n;
    if (rank == 2) {
        int32_t mine[2] = {0, rank}, all[6];
        rd_call call = {"rondo_comm_split", RONDO_COLL_ALL_GATHER, mine, all, 2, RONDO_INT32, RONDO_SUM, 0, false,
                        RD_KIND_SPLIT, 0, false, false};
        if (half) CHECK(rd_call_run(comm, &call, NULL) == RONDO_SUCCESS, "%s", rondo_last_error(comm));
        hear_of_it(comm, test_seconds() + 0.3);
        sleep((unsigned)(4 * test_slowness())); /* its end would be another reason */
        return;
    }
    if (rank == 0) start_aborter(&one, comm);
    double start = test_seconds();
    rondo_result result = rondo_comm_split(comm, 0, 1 - rank, &child, NULL); /* rank 1 serves the child's table */
    if (rank == 0)
        check_aborted(&one, result, rondo_last_error(comm));
    else
        CHECK(result == RONDO_REMOTE_ERROR && strstr(rondo_last_error(comm), "rank 0"), "%s: %s",
              rondo_result_string(result), rondo_last_error(comm));
    CHECK(test_seconds() - start < 0.3 + 2 * test_slowness(), "took %g s", test_seconds() - start);
    CHECK(child == comm, "the output was written");
}

static void while_it_splits(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way += 2)
        for (int half = 0; half < 2; half++) {
            over(way);
            run(3, in_a_split, &(bool){half});
        }
    over(-1);
}

/* In a shrink that rank 2 does not come to, of a communicator that runs or has been aborted before. */
static void in_a_shrink(rondo_comm *comm, int rank, int n, void *context)
{
    bool ended = *(bool *)context;
    rondo_comm *rest = comm;
    aborter one;
    (void)n;
    if (rank != 0) {
        hear_of_it(comm, test_seconds() + 0.3);
        sleep((unsigned)(2 * test_slowness()));
        return;
    }
    if (ended) CHECK(rondo_comm_abort(comm) == RONDO_SUCCESS, "abort");
    start_aborter(&one, comm);
    rondo_result result = rondo_comm_shrink(comm, NULL, 0, &rest, NULL);
    pthread_join(one.thread, NULL);
    CHECK(result == RONDO_ABORTED, "%s: %s", rondo_result_string(result), rondo_last_error(NULL));
    CHECK(test_seconds() - one.at < 1 * test_slowness(), "aborted, but only after %g s", test_seconds() - one.at);
    CHECK(rest == comm, "the output was written");
}

static void while_it_shrinks(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way += 2)
        for (int ended = 0; ended < 2; ended++) {
            over(way);
            run(2, in_a_shrink, &(bool){ended});
        }
    over(-1);
}

/* ---- While a link is made to a peer that is stopped ---- */

typedef struct meeting {
    _Atomic int stopped, over;
} meeting;

static void to_a_stopped_rank(rondo_comm *comm, int rank, int n, void *context)
{
    meeting *m = context;
    aborter one;
    int32_t x = rank;
    (void)n;
    CHECK(rondo_barrier(comm, NULL) == RONDO_SUCCESS, "%s", rondo_last_error(comm));
    if (rank == 1) {
        raise(SIGSTOP);
        hear_of_it(comm, test_seconds());
        return;
    }
    while (!m->stopped) usleep(1000);
    if (rank == 0) start_aborter(&one, comm);
    rondo_result result =
        rank == 0 ? rondo_send(&x, 1, RONDO_INT32, 1, comm, NULL) : rondo_recv(&x, 1, RONDO_INT32, 0, comm, NULL);
    if (rank == 0)
        check_aborted(&one, result, rondo_last_error(comm));
    else
        hear_of_it(comm, test_seconds());
    m->over++;
    CHECK(rondo_comm_destroy(comm) == RONDO_SUCCESS, "destroy");
}

static void while_a_link_is_made(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way += 2) {
        rondo_config config = patient();
        meeting *m = test_shared(sizeof *m);
        ranks all;
        int status;
        over(way);
        ranks_start(&all, 3, &config, NULL, to_a_stopped_rank, m);
        assert_int_equal(waitpid(all.pid[1], &status, WUNTRACED), all.pid[1]);
        assert_true(WIFSTOPPED(status));
        m->stopped = 1;
        for (double end = test_seconds() + 5 * test_slowness(); m->over < 2 && test_seconds() < end;) usleep(1000);
        kill(all.pid[1], SIGCONT);
        ranks_wait(&all, 20 * test_slowness());
        for (int r = 0; r < 3; r++) assert_int_equal(all.status[r], 0);
    }
    over(-1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_19),
        cmocka_unit_test(three_at_once),
        cmocka_unit_test(destroyed_with_calls),
        cmocka_unit_test(while_it_is_made),
        cmocka_unit_test(while_it_splits),
        cmocka_unit_test(while_it_shrinks),
        cmocka_unit_test(while_a_link_is_made),
    };
    alarm((unsigned)(250 * (test_slowness() > 1 ? 4 : 1)));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
