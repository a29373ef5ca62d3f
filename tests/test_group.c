/* SPDX-License-Identifier: Apache-2.0
 *
 * test_group.c - groups of calls, starts in groups and in the background, finalize.
 */
#include "core/comm.h"
#include "ranks.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OK(call) CHECK((call) == RONDO_SUCCESS, "%s", rondo_last_error(NULL))

/* ---- One thread, all ranks ---- */

enum { RANKS = 4, COUNT = 70001 };

static void run_rounds(rondo_comm **comms)
{
    static float data[RANKS][COUNT];
    for (int round = 0; round < 5; round++) {
        size_t count = (size_t[]){1, 100, 5000, COUNT, 3}[round];
        for (int r = 0; r < RANKS; r++)
            for (size_t i = 0; i < count; i++) data[r][i] = (float)(r + (int)(i % 97));
        assert_int_equal(rondo_group_start(), RONDO_SUCCESS);
        for (int r = 0; r < RANKS; r++)
            assert_int_equal(rondo_all_reduce(data[r], data[r], count, RONDO_FLOAT32, RONDO_SUM, comms[r], NULL),
                             RONDO_SUCCESS);
        assert_int_equal(rondo_group_end(), RONDO_SUCCESS);
        for (int r = 0; r < RANKS; r++)
            for (size_t i = 0; i < count; i++) assert_true(data[r][i] == (float)(RANKS * (int)(i % 97) + 6));
    }
}

static void one_thread_drives_all_ranks(void **state)
{
    (void)state;
    rondo_comm *comms[RANKS];
    assert_int_equal(rondo_init_all(comms, RANKS, NULL), RONDO_SUCCESS);
    run_rounds(comms);
    for (int r = 0; r < RANKS; r++) rondo_comm_destroy(comms[r]);
    test_env("RONDO_TRANSPORT", "tcp"); /* their bells sleep in epoll */
    assert_int_equal(rondo_init_all(comms, RANKS, NULL), RONDO_SUCCESS);
    run_rounds(comms);
    for (int r = 0; r < RANKS; r++) rondo_comm_destroy(comms[r]);
    test_env("RONDO_TRANSPORT", NULL);
}

static void communicators_start_in_a_group(void **state)
{
    (void)state;
    rondo_comm *comms[2][RANKS];
    rondo_unique_id id[2];
    for (int k = 0; k < 2; k++) assert_int_equal(rondo_get_unique_id(&id[k]), RONDO_SUCCESS);
    rondo_group_start();
    for (int r = 0; r < RANKS; r++)
        for (int k = 0; k < 2; k++)
            assert_int_equal(rondo_init_rank(&comms[k][r], RANKS, id[k], r, NULL), RONDO_SUCCESS);
    assert_int_equal(rondo_group_end(), RONDO_SUCCESS);
    run_rounds(comms[0]);
    run_rounds(comms[1]);
    for (int r = 0; r < RANKS; r++)
        for (int k = 0; k < 2; k++) rondo_comm_destroy(comms[k][r]);
}

/* ---- One rank, many calls ---- */

static uint64_t slices_sent(const rondo_comm *comm)
{
    uint64_t slices = 0;
    for (int i = 0; i < comm->size * RD_MAX_CHANNELS; i++) slices += comm->out[i].used;
    return slices;
}

static void many(rondo_comm *comm, int rank, int n, void *context)
{
    enum { CALLS = 100, EACH = 37 };
    static int32_t data[CALLS][EACH];
    static double other[CALLS], told[2];
    rondo_stream *stream = NULL;
    if (context) OK(rondo_stream_create(&stream, comm));
    for (int c = 0; c < CALLS; c++)
        for (int i = 0; i < EACH; i++) data[c][i] = c * 1000 + i + rank;
    for (int c = 0; c < CALLS; c++) other[c] = rank + c;
    uint64_t before = slices_sent(comm);
    OK(rondo_group_start());
    OK(rondo_group_start());
    for (int c = 0; c < CALLS; c++) OK(rondo_all_reduce(data[c], data[c], EACH, RONDO_INT32, RONDO_SUM, comm, stream));
    OK(rondo_group_end());
    for (int c = 0; c < CALLS; c++)
        OK(rondo_all_reduce(&other[c], &other[c], 1, RONDO_FLOAT64, RONDO_MAX, comm, stream));
    told[0] = told[1] = rank;
    OK(rondo_broadcast(told, told, 2, RONDO_FLOAT64, n - 1, comm, stream));
    CHECK(data[1][1] == 1001 + rank, "the group ran before its end");
    OK(rondo_group_end());
    if (stream) OK(rondo_stream_synchronize(stream));
    for (int c = 0; c < CALLS; c++) {
        for (int i = 0; i < EACH; i++)
            CHECK(data[c][i] == n * (c * 1000 + i) + n * (n - 1) / 2, "call %d element %d: %d", c, i, data[c][i]);
        CHECK(other[c] == n - 1 + c, "call %d: %g", c, other[c]);
    }
    CHECK(told[0] == n - 1 && told[1] == n - 1, "%g %g", told[0], told[1]);
    uint64_t slices = slices_sent(comm) - before;
    CHECK(slices < 30, "%lu slices for what fits into three passes", (unsigned long)slices);
    OK(rondo_stream_destroy(stream));
}

static void small_all_reduces_become_one_pass(void **state)
{
    (void)state;
    ranks_run(3, NULL, NULL, many, NULL);
    ranks_run(2, NULL, NULL, many, (void *)1);
}

static void refused(rondo_comm *comm, int rank, int n, void *context)
{
    int32_t x = rank, y = 5;
    rondo_stream *stream;
    (void)context;
    CHECK(rondo_group_end() == RONDO_INVALID_USAGE, "an end without a start");
    OK(rondo_group_start());
    OK(rondo_all_reduce(&x, &x, 1, RONDO_INT32, RONDO_SUM, comm, NULL));
    CHECK(rondo_all_reduce(&y, NULL, 1, RONDO_INT32, RONDO_SUM, comm, NULL) == RONDO_INVALID_ARGUMENT, "recv NULL");
    CHECK(rondo_group_end() == RONDO_INVALID_ARGUMENT, "the end of a group with a refused call");
    CHECK(strstr(rondo_last_error(NULL), "recv"), "%s", rondo_last_error(NULL));
    CHECK(x == rank, "a refused group ran");
    OK(rondo_stream_create(&stream, comm));
    OK(rondo_group_start());
    OK(rondo_all_reduce(&x, &x, 1, RONDO_INT32, RONDO_SUM, comm, NULL));
    CHECK(rondo_all_reduce(&y, &y, 1, RONDO_INT32, RONDO_SUM, comm, stream) == RONDO_INVALID_USAGE, "two streams");
    CHECK(rondo_group_end() == RONDO_INVALID_USAGE, "the end of a group with two streams");
    OK(rondo_group_start());
    OK(rondo_group_end());
    OK(rondo_all_reduce(&x, &x, 1, RONDO_INT32, RONDO_SUM, comm, NULL));
    CHECK(x == n * (n - 1) / 2, "%d", x);
    OK(rondo_stream_destroy(stream));
}

static void a_refused_group_runs_nothing(void **state)
{
    (void)state;
    ranks_run(2, NULL, NULL, refused, NULL);
}

/* No call of a group may write what another uses: such groups run on no rank, whatever the sizes. */
static void tangled(rondo_comm *comm, int rank, int n, void *context)
{
    static float a[8], b[8], c[8];
    (void)context;
    const struct {
        const float *send[2];
        float *recv[2];
        bool apart;
    } groups[] = {
        {{a, b}, {b, c}, false},     /* the second reads what the first writes */
        {{a, c}, {b, a}, false},     /* ... writes what the first reads */
        {{a, a}, {b, b}, false},     /* both write */
        {{a, a + 3}, {b, c}, true},  /* both read */
        {{a, b}, {a, b}, true},      /* in place, each its own */
        {{a, b + 3}, {b, c}, false}, /* in part */
        {{a, b + 4}, {b, c}, true},
    };
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        for (int i = 0; i < 8; i++) a[i] = b[i] = c[i] = (float)(rank + 1);
        OK(rondo_group_start());
        for (int k = 0; k < 2; k++)
            OK(rondo_all_reduce(groups[g].send[k], groups[g].recv[k], 4, RONDO_FLOAT32, RONDO_SUM, comm, NULL));
        rondo_result result = rondo_group_end();
        CHECK(result == (groups[g].apart ? RONDO_SUCCESS : RONDO_INVALID_ARGUMENT), "group %zu: %d: %s", g, result,
              rondo_last_error(NULL));
        float expected = groups[g].apart ? (float)(n * (n + 1) / 2) : (float)(rank + 1);
        CHECK(groups[g].recv[1][0] == expected && groups[g].recv[1][3] == expected, "group %zu: %g", g,
              (double)groups[g].recv[1][0]);
    }
}

static void calls_of_a_group_are_apart(void **state)
{
    (void)state;
    ranks_run(2, NULL, NULL, tangled, NULL);
}

/* Beside a call on a stream that waits for another rank, a group on another communicator goes on. */
static void mixed(rondo_comm *comm, int rank, int n, void *context)
{
    rondo_comm *other;
    rondo_stream *stream;
    int32_t a = rank, b = rank, c = rank;
    rondo_config config = RONDO_CONFIG_INIT;
    config.timeout_s = 10 * test_slowness();
    OK(rondo_init_rank(&other, n, *(const rondo_unique_id *)context, rank, &config));
    OK(rondo_stream_create(&stream, comm));
    if (rank == 0) OK(rondo_all_reduce(&a, &a, 1, RONDO_INT32, RONDO_SUM, comm, stream));
    OK(rondo_group_start());
    if (rank == 0) OK(rondo_all_reduce(&b, &b, 1, RONDO_INT32, RONDO_SUM, comm, NULL)); /* after the stream's */
    OK(rondo_all_reduce(&c, &c, 1, RONDO_INT32, RONDO_SUM, other, NULL));
    if (rank != 0) {
        OK(rondo_group_end());
        OK(rondo_all_reduce(&a, &a, 1, RONDO_INT32, RONDO_SUM, comm, stream));
        OK(rondo_all_reduce(&b, &b, 1, RONDO_INT32, RONDO_SUM, comm, NULL));
    } else {
        OK(rondo_group_end());
    }
    OK(rondo_stream_destroy(stream));
    CHECK(a == 1 && b == 1 && c == 1, "%d %d %d", a, b, c);
    OK(rondo_comm_destroy(other));
}

static void a_group_waits_for_turns_without_standing_still(void **state)
{
    (void)state;
    ranks server = {0};
    rondo_unique_id id = ranks_unique_id(&server);
    ranks_run(2, NULL, NULL, mixed, &id);
    ranks_forget_id(&server);
}

/* ---- In the background ---- */

static void starts_in_the_background(void **state)
{
    (void)state;
    rondo_comm *comms[2];
    rondo_unique_id id;
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_result state_of = RONDO_IN_PROGRESS;
    int32_t x = 1;
    config.background = 1;
    assert_int_equal(rondo_get_unique_id(&id), RONDO_SUCCESS);
    assert_int_equal(rondo_init_rank(&comms[0], 2, id, 0, &config), RONDO_IN_PROGRESS);
    assert_int_equal(rondo_comm_error(comms[0], &state_of), RONDO_SUCCESS);
    assert_int_equal(state_of, RONDO_IN_PROGRESS);
    assert_int_equal(rondo_all_reduce(&x, &x, 1, RONDO_INT32, RONDO_SUM, comms[0], NULL), RONDO_INVALID_USAGE);
    assert_int_equal(rondo_init_rank(&comms[1], 2, id, 1, &config), RONDO_IN_PROGRESS);
    for (int r = 0; r < 2; r++)
        for (state_of = RONDO_IN_PROGRESS; state_of == RONDO_IN_PROGRESS; usleep(1000))
            assert_int_equal(rondo_comm_error(comms[r], &state_of), RONDO_SUCCESS);
    assert_int_equal(state_of, RONDO_SUCCESS);
    rondo_group_start();
    for (int r = 0; r < 2; r++) rondo_barrier(comms[r], NULL);
    assert_int_equal(rondo_group_end(), RONDO_SUCCESS);
    for (int r = 0; r < 2; r++) assert_int_equal(rondo_comm_destroy(comms[r]), RONDO_SUCCESS);
}

static void a_background_start_can_fail_or_be_given_up(void **state)
{
    (void)state;
    rondo_comm *comm;
    rondo_unique_id id;
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_result state_of = RONDO_IN_PROGRESS;
    config.background = 1;
    config.timeout_s = 0.3;
    assert_int_equal(rondo_get_unique_id(&id), RONDO_SUCCESS);
    assert_int_equal(rondo_init_rank(&comm, 2, id, 0, &config), RONDO_IN_PROGRESS);
    for (; state_of == RONDO_IN_PROGRESS; usleep(1000))
        assert_int_equal(rondo_comm_error(comm, &state_of), RONDO_SUCCESS);
    assert_int_equal(state_of, RONDO_TIMEOUT);
    assert_non_null(strstr(rondo_last_error(comm), "missing: rank 1"));
    rondo_comm_destroy(comm);
    config.timeout_s = 600;
    assert_int_equal(rondo_init_rank(&comm, 2, id, 1, &config), RONDO_IN_PROGRESS);
    double before = test_seconds();
    usleep(50000);
    assert_int_equal(rondo_comm_destroy(comm), RONDO_SUCCESS);
    assert_true(test_seconds() - before < 1 * test_slowness());
}

/* In a group, too, it begins at once; whoever gives it up says why. */
static void a_background_start_can_be_aborted_in_words(void **state)
{
    (void)state;
    rondo_comm *comm;
    rondo_unique_id id;
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_result state_of = RONDO_IN_PROGRESS;
    config.background = 1;
    assert_int_equal(rondo_get_unique_id(&id), RONDO_SUCCESS);
    rondo_group_start();
    assert_int_equal(rondo_init_rank(&comm, 2, id, 0, &config), RONDO_IN_PROGRESS);
    assert_int_equal(rondo_group_end(), RONDO_SUCCESS);
    usleep(50000);
    double before = test_seconds();
    assert_int_equal(rondo_comm_abort_because(comm, NULL), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_comm_abort_because(NULL, "nobody comes"), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_comm_abort_because(comm, "nobody comes"), RONDO_SUCCESS);
    for (; state_of == RONDO_IN_PROGRESS; usleep(1000))
        assert_int_equal(rondo_comm_error(comm, &state_of), RONDO_SUCCESS);
    assert_true(test_seconds() - before < 1 * test_slowness());
    assert_int_equal(state_of, RONDO_ABORTED);
    assert_string_equal(rondo_last_error(comm), "nobody comes");
    assert_int_equal(rondo_comm_destroy(comm), RONDO_SUCCESS);
}

static void a_cancelled_group_runs_nothing(void **state)
{
    (void)state;
    rondo_comm *comm, *child = NULL;
    int32_t x = 1, y = 0;
    assert_int_equal(rondo_init_all(&comm, 1, NULL), RONDO_SUCCESS);
    assert_int_equal(rondo_group_cancel(), RONDO_INVALID_USAGE);
    rondo_group_start();
    rondo_group_start();
    assert_int_equal(rondo_all_reduce(&x, &y, 1, RONDO_INT32, RONDO_SUM, comm, NULL), RONDO_SUCCESS);
    assert_int_equal(rondo_comm_split(comm, 0, 0, &child, NULL), RONDO_SUCCESS);
    assert_int_equal(rondo_group_cancel(), RONDO_SUCCESS);
    assert_int_equal(y, 0);
    assert_null(child);
    assert_int_equal(rondo_group_end(), RONDO_INVALID_USAGE);
    assert_int_equal(rondo_all_reduce(&x, &y, 1, RONDO_INT32, RONDO_SUM, comm, NULL), RONDO_SUCCESS);
    assert_int_equal(y, 1);
    rondo_comm_destroy(comm);
}

static void a_group_can_be_estimated(void **state)
{
    (void)state;
    rondo_comm *comm;
    int32_t x = 1, y = 0;
    double seconds = -1;
    assert_int_equal(rondo_init_all(&comm, 1, NULL), RONDO_SUCCESS);
    assert_int_equal(rondo_group_estimate(&seconds), RONDO_INVALID_USAGE);
    rondo_group_start();
    assert_int_equal(rondo_group_estimate(NULL), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_all_reduce(&x, &y, 1, RONDO_INT32, RONDO_SUM, comm, NULL), RONDO_SUCCESS);
    assert_int_equal(rondo_group_estimate(&seconds), RONDO_SUCCESS);
    assert_true(seconds == 0); /* one rank sends nothing */
    assert_int_equal(y, 0);
    assert_int_equal(rondo_group_end(), RONDO_INVALID_USAGE);
    rondo_comm_destroy(comm);
}

static void overlaps_may_be_allowed(void **state)
{
    (void)state;
    for (int allowed = 0; allowed < 2; allowed++) {
        rondo_comm *comm;
        rondo_unique_id id;
        rondo_config config = RONDO_CONFIG_INIT;
        rondo_result expected = allowed ? RONDO_SUCCESS : RONDO_INVALID_ARGUMENT;
        int32_t x[8] = {0};
        config.allow_overlap = allowed;
        assert_int_equal(rondo_get_unique_id(&id), RONDO_SUCCESS);
        assert_int_equal(rondo_init_rank(&comm, 1, id, 0, &config), RONDO_SUCCESS);
        assert_int_equal(rondo_all_reduce(x, x + 1, 4, RONDO_INT32, RONDO_SUM, comm, NULL), expected);
        assert_int_equal(rondo_all_to_all(x, x, 4, RONDO_INT32, comm, NULL), expected);
        rondo_group_start();
        rondo_send(x, 4, RONDO_INT32, 0, comm, NULL);
        rondo_recv(x, 4, RONDO_INT32, 0, comm, NULL);
        assert_int_equal(rondo_group_end(), expected);
        rondo_comm_destroy(comm);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* those that fork first: this process has no threads until then */
        cmocka_unit_test(small_all_reduces_become_one_pass),
        cmocka_unit_test(a_refused_group_runs_nothing),
        cmocka_unit_test(calls_of_a_group_are_apart),
        cmocka_unit_test(a_group_waits_for_turns_without_standing_still),
        cmocka_unit_test(one_thread_drives_all_ranks),
        cmocka_unit_test(communicators_start_in_a_group),
        cmocka_unit_test(starts_in_the_background),
        cmocka_unit_test(a_background_start_can_fail_or_be_given_up),
        cmocka_unit_test(a_background_start_can_be_aborted_in_words),
        cmocka_unit_test(a_cancelled_group_runs_nothing),
        cmocka_unit_test(a_group_can_be_estimated),
        cmocka_unit_test(overlaps_may_be_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
