/* SPDX-License-Identifier: Apache-2.0
 *
 * test_split.c - communicators from communicators: split and shrink. Ranks are processes.
 */
#include "ranks.h"
#include "test.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OK(call) CHECK((call) == RONDO_SUCCESS, "%s", rondo_last_error(NULL))

static const char *const transports[] = {"shm", "tcp"};

static int32_t sum_of(rondo_comm *comm, int32_t x)
{
    OK(rondo_all_reduce(&x, &x, 1, RONDO_INT32, RONDO_SUM, comm, NULL));
    return x;
}

/* Case 32. */
static void colours(rondo_comm *comm, int rank, int n, void *context)
{
    static const int color[] = {0, 0, RONDO_NO_COLOR, 1}, key[] = {5, 1, 0, 0}, size[] = {2, 2, 0, 1},
                     place[] = {1, 0, 0, 0};
    rondo_comm *child = comm;
    (void)n, (void)context;
    OK(rondo_comm_split(comm, color[rank], key[rank], &child, NULL));
    if (rank == 2) {
        CHECK(!child, "a rank without a colour has a communicator");
        CHECK(rondo_barrier(child, NULL) == RONDO_INVALID_ARGUMENT, "a call on NULL");
    } else {
        CHECK(rondo_comm_size(child) == size[rank] && rondo_comm_rank(child) == place[rank], "rank %d of %d",
              rondo_comm_rank(child), rondo_comm_size(child));
        CHECK(sum_of(child, 1 << rank) == (rank == 3 ? 8 : 3), "sum");
    }
    CHECK(sum_of(comm, 1 << rank) == 15, "the parent");
    OK(rondo_comm_destroy(child));
    /* both go on when the parent is gone; equal keys go by rank */
    OK(rondo_comm_split(comm, rank % 2, 0, &child, NULL));
    OK(rondo_comm_destroy(comm));
    CHECK(rondo_comm_rank(child) == rank / 2, "%d", rondo_comm_rank(child));
    CHECK(sum_of(child, 1 << rank) == (rank % 2 ? 10 : 5), "after the parent");
    OK(rondo_comm_destroy(child));
    exit(0); /* the parent is destroyed */
}

static void case_32(void **state)
{
    (void)state;
    for (size_t t = 0; t < 2; t++) {
        test_env("RONDO_TRANSPORT", transports[t]);
        ranks_run(4, NULL, NULL, colours, NULL);
    }
    test_env("RONDO_TRANSPORT", NULL);
}

static void bad(rondo_comm *comm, int rank, int n, void *context)
{
    rondo_comm *child = comm;
    int excluded[] = {rank, 9};
    (void)context;
    CHECK(rondo_comm_split(comm, -2, 0, &child, NULL) == RONDO_INVALID_ARGUMENT &&
              strstr(rondo_last_error(comm), "color is -2"),
          "%s", rondo_last_error(comm));
    CHECK(rondo_comm_split(comm, 0, 0, NULL, NULL) == RONDO_INVALID_ARGUMENT, "out NULL");
    CHECK(rondo_comm_split(NULL, 0, 0, &child, NULL) == RONDO_INVALID_ARGUMENT, "comm NULL");
    CHECK(rondo_comm_shrink(comm, excluded, 1, &child, NULL) == RONDO_INVALID_ARGUMENT, "itself");
    CHECK(rondo_comm_shrink(comm, excluded + 1, 1, &child, NULL) == RONDO_INVALID_ARGUMENT, "rank 9");
    CHECK(rondo_comm_shrink(comm, NULL, 1, &child, NULL) == RONDO_INVALID_ARGUMENT, "no list");
    CHECK(rondo_comm_shrink(comm, excluded, n, &child, NULL) == RONDO_INVALID_ARGUMENT, "all");
    CHECK(child == comm, "out was written");
    CHECK(sum_of(comm, 1) == n, "the parent");
}

static void bad_arguments(void **state)
{
    (void)state;
    ranks_run(2, NULL, NULL, bad, NULL);
}

/* One rank splits, the others reduce: all are told. */
static void differ(rondo_comm *comm, int rank, int n, void *context)
{
    rondo_comm *child = NULL;
    int32_t x = rank;
    (void)n, (void)context;
    rondo_result result = rank == 1 ? rondo_comm_split(comm, 0, 0, &child, NULL)
                                    : rondo_all_gather(&x, (int32_t[3]){0}, 1, RONDO_INT32, comm, NULL);
    CHECK(result == RONDO_MISMATCH, "%d: %s", result, rondo_last_error(comm));
    CHECK(strstr(rondo_last_error(comm), "rondo_comm_split") && strstr(rondo_last_error(comm), "rondo_all_gather"),
          "%s", rondo_last_error(comm));
}

static void a_split_must_match(void **state)
{
    (void)state;
    ranks_run(3, NULL, NULL, differ, NULL);
}

/* ---- Groups ---- */

static void splits_in_a_group(void **state)
{
    enum { N = 4 };
    rondo_comm *comms[N], *children[N] = {0}, *others[N] = {0};
    (void)state;
    assert_int_equal(rondo_init_all(comms, N, NULL), RONDO_SUCCESS);
    rondo_group_start();
    for (int r = 0; r < N; r++) {
        assert_int_equal(rondo_comm_split(comms[r], r / 2, -r, &children[r], NULL), RONDO_SUCCESS);
        assert_int_equal(rondo_comm_split(comms[r], 0, r, &others[r], NULL), RONDO_SUCCESS);
        assert_null(children[r]);
    }
    assert_int_equal(rondo_group_end(), RONDO_SUCCESS);
    int32_t x[N] = {1, 10, 100, 1000}, y[N] = {1, 10, 100, 1000};
    rondo_group_start();
    for (int r = 0; r < N; r++) {
        rondo_all_reduce(&x[r], &x[r], 1, RONDO_INT32, RONDO_SUM, children[r], NULL);
        rondo_all_reduce(&y[r], &y[r], 1, RONDO_INT32, RONDO_SUM, others[r], NULL);
    }
    assert_int_equal(rondo_group_end(), RONDO_SUCCESS);
    for (int r = 0; r < N; r++) {
        assert_int_equal(x[r], r < 2 ? 11 : 1100);
        assert_int_equal(y[r], 1111);
        assert_int_equal(rondo_comm_rank(children[r]), !(r % 2));
        rondo_comm_destroy(children[r]);
        rondo_comm_destroy(others[r]);
        rondo_comm_destroy(comms[r]);
    }
}

/* ---- Shrink ---- */

static void killed(rondo_comm *comm, int rank, int n, void *context)
{
    rondo_comm *rest = NULL;
    int32_t x = rank;
    (void)context;
    for (int i = 0; i < 10; i++) sum_of(comm, 1);
    if (rank == 1) { /* not while another is still in the last of those calls, which that would end */
        usleep((useconds_t)(200000 * test_slowness()));
        raise(SIGKILL);
    }
    rondo_result result = RONDO_SUCCESS;
    for (int i = 0; result == RONDO_SUCCESS && i < 100000; i++)
        result = rondo_all_reduce(&x, &x, 1, RONDO_INT32, RONDO_SUM, comm, NULL);
    CHECK(result == RONDO_REMOTE_ERROR && strstr(rondo_last_error(comm), "rank 1"), "%d: %s", result,
          rondo_last_error(comm));
    OK(rondo_comm_shrink(comm, NULL, 0, &rest, NULL));
    CHECK(rondo_comm_size(rest) == n - 1 && rondo_comm_rank(rest) == rank - (rank > 1), "%d of %d",
          rondo_comm_rank(rest), rondo_comm_size(rest));
    for (int i = 0; i < 10; i++) CHECK(sum_of(rest, 1 << rank) == (1 << n) - 1 - 2, "sum of the rest");
    CHECK(rondo_barrier(comm, NULL) == RONDO_REMOTE_ERROR, "the old one");
    OK(rondo_comm_destroy(rest));
}

static void survivors_go_on(void **state)
{
    (void)state;
    for (size_t t = 0; t < 2; t++) {
        test_env("RONDO_TRANSPORT", transports[t]);
        ranks all;
        rondo_config config = RONDO_CONFIG_INIT;
        config.timeout_s = 20 * test_slowness();
        ranks_start(&all, 5, &config, NULL, killed, NULL);
        ranks_wait(&all, 40 * test_slowness());
        for (int r = 0; r < 5; r++) assert_int_equal(all.status[r], r == 1 ? SIGKILL : 0);
    }
    test_env("RONDO_TRANSPORT", NULL);
}

/* A list of those to leave out, of ranks that live. */
static void listed(rondo_comm *comm, int rank, int n, void *context)
{
    rondo_comm *rest = NULL;
    const int exclude[] = {3, 0};
    (void)context;
    if (rank != 0 && rank != 3) {
        OK(rondo_comm_shrink(comm, exclude, 2, &rest, NULL));
        CHECK(sum_of(rest, 1) == n - 2, "the rest");
        OK(rondo_comm_destroy(rest));
    }
    CHECK(sum_of(comm, 1) == n, "the parent");
}

static void a_list_leaves_out(void **state)
{
    (void)state;
    ranks_run(5, NULL, NULL, listed, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_32),
        cmocka_unit_test(bad_arguments),
        cmocka_unit_test(a_split_must_match),
        cmocka_unit_test(survivors_go_on),
        cmocka_unit_test(a_list_leaves_out),
        /* threads in this process, so after those that fork */
        cmocka_unit_test(splits_in_a_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
