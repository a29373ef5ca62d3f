/* SPDX-License-Identifier: Apache-2.0
 *
 * test_peers.c - messages between any two ranks, gather, scatter, all-to-all: exact, in any order that may complete,
 * and failing as they should. Ranks are processes; over shared memory and over TCP.
 */
#include "core/comm.h"
#include "ranks.h"
#include "test.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OK(call) CHECK((call) == RONDO_SUCCESS, "%s", rondo_last_error(NULL))

static const char *const transports[] = {"shm", "tcp"};

static void on_each(int n, double timeout_s, rank_fn f, void *context)
{
    rondo_config config = RONDO_CONFIG_INIT;
    config.timeout_s = timeout_s * test_slowness();
    for (size_t t = 0; t < 2; t++) {
        test_env("RONDO_TRANSPORT", transports[t]);
        ranks_run(n, &config, NULL, f, context);
    }
    test_env("RONDO_TRANSPORT", NULL);
}

static int32_t value(int from, int to, size_t i)
{
    return (int32_t)(from * 1000003 + to * 1009 + (int)(i % 9973));
}

static int32_t *numbers(size_t count)
{
    int32_t *p = malloc(count * sizeof *p + 1);
    CHECK(p, "no memory");
    return p;
}

/* ---- Collectives ---- */

static void collectives(rondo_comm *comm, int rank, int n, void *context)
{
    static const size_t counts[] = {1, 0, 5, 1000, 33333, 200001, 2};
    (void)context;
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        size_t count = counts[c], all = count * (size_t)n;
        int root = (int)c % n;
        int32_t *a = numbers(all), *b = numbers(all);
        for (int r = 0; r < n; r++)
            for (size_t i = 0; i < count; i++) a[(size_t)r * count + i] = value(rank, r, i);
        OK(rondo_all_to_all(a, b, count, RONDO_INT32, comm, NULL));
        for (int r = 0; r < n; r++)
            for (size_t i = 0; i < count; i++)
                CHECK(b[(size_t)r * count + i] == value(r, rank, i), "all-to-all %zu", count);
        /* each rank's part for the root, from where it lies; at the root in place */
        memset(b, 0, all * sizeof *b);
        int32_t *part = rank == root ? b + (size_t)rank * count : a;
        for (size_t i = 0; i < count; i++) part[i] = value(rank, root, i);
        OK(rondo_gather(part, rank == root ? b : NULL, count, RONDO_INT32, root, comm, NULL));
        for (int r = 0; rank == root && r < n; r++)
            for (size_t i = 0; i < count; i++)
                CHECK(b[(size_t)r * count + i] == value(r, root, i), "gather %zu", count);
        OK(rondo_scatter(rank == root ? b : NULL, a, count, RONDO_INT32, root, comm, NULL));
        for (size_t i = 0; i < count; i++) CHECK(a[i] == value(rank, root, i), "scatter %zu", count);
        int32_t sum = rank;
        OK(rondo_all_reduce(&sum, &sum, 1, RONDO_INT32, RONDO_SUM, comm, NULL));
        CHECK(sum == n * (n - 1) / 2, "%d", sum);
        free(a);
        free(b);
    }
}

static void gather_scatter_all_to_all(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n++) on_each(n, 20, collectives, NULL);
}

/* ---- Messages ---- */

/* Everyone sends to everyone, itself too, in one group, several messages a pair, beside an all-reduce. */
static void everyone(rondo_comm *comm, int rank, int n, void *context)
{
    static const size_t counts[] = {3, 0, 70001, 1};
    enum { KINDS = sizeof counts / sizeof *counts };
    int32_t *out[8][KINDS], *in[8][KINDS], sum = rank;
    (void)context;
    OK(rondo_group_start());
    for (int r = 0; r < n; r++)
        for (int k = 0; k < KINDS; k++) {
            out[r][k] = numbers(counts[k]);
            in[r][k] = numbers(counts[k]);
            for (size_t i = 0; i < counts[k]; i++) out[r][k][i] = value(rank, r, i) + k;
            OK(rondo_send(out[r][k], counts[k], RONDO_INT32, r, comm, NULL));
            OK(rondo_recv(in[r][k], counts[k], RONDO_INT32, r, comm, NULL));
        }
    OK(rondo_all_reduce(&sum, &sum, 1, RONDO_INT32, RONDO_SUM, comm, NULL));
    OK(rondo_group_end());
    CHECK(sum == n * (n - 1) / 2, "%d", sum);
    for (int r = 0; r < n; r++)
        for (int k = 0; k < KINDS; k++)
            for (size_t i = 0; i < counts[k]; i++)
                CHECK(in[r][k][i] == value(r, rank, i) + k, "from %d, message %d, element %zu: %d", r, k, i,
                      in[r][k][i]);
    for (int r = 0; r < n; r++)
        for (int k = 0; k < KINDS; k++) {
            free(out[r][k]);
            free(in[r][k]);
        }
}

static void everyone_sends_to_everyone(void **state)
{
    (void)state;
    on_each(2, 20, everyone, NULL);
    on_each(5, 20, everyone, NULL);
}

/* A short message waits for nobody: its receiver is busy with a collective that needs the sender. */
static void eager(rondo_comm *comm, int rank, int n, void *context)
{
    int32_t x = rank, got = 0;
    (void)context;
    for (int round = 0; round < 50; round++) {
        int32_t sent = value(rank, 1, (size_t)round);
        x = 1;
        if (rank == 0) OK(rondo_send(&sent, 1, RONDO_INT32, n - 1, comm, NULL));
        OK(rondo_all_reduce(&x, &x, 1, RONDO_INT32, RONDO_SUM, comm, NULL));
        if (rank == n - 1) OK(rondo_recv(&got, 1, RONDO_INT32, 0, comm, NULL));
        CHECK(rank != n - 1 || got == value(0, 1, (size_t)round), "round %d: %d", round, got);
    }
}

static void a_short_message_waits_for_nobody(void **state)
{
    (void)state;
    on_each(4, 20, eager, NULL);
}

/* Round the ranks, each waiting for the one before: the group's send goes although its receive has no link yet. */
static void relay(rondo_comm *comm, int rank, int n, void *context)
{
    int32_t token = 7, back = 0;
    (void)context;
    if (rank == 0) {
        OK(rondo_group_start());
        OK(rondo_recv(&back, 1, RONDO_INT32, n - 1, comm, NULL));
        OK(rondo_send(&token, 1, RONDO_INT32, 1, comm, NULL));
        OK(rondo_group_end());
        CHECK(back == 7 + n - 1, "%d", back);
        return;
    }
    OK(rondo_recv(&token, 1, RONDO_INT32, rank - 1, comm, NULL));
    token++;
    OK(rondo_send(&token, 1, RONDO_INT32, (rank + 1) % n, comm, NULL));
}

static void a_token_goes_round(void **state)
{
    (void)state;
    on_each(4, 10, relay, NULL);
}

/* Case 17: both send 8 MiB and then receive. */
static void both_send_first(rondo_comm *comm, int rank, int n, void *context)
{
    enum { COUNT = 2 << 20 };
    int32_t *out = numbers(COUNT), *in = numbers(COUNT);
    (void)n;
    for (size_t i = 0; i < COUNT; i++) out[i] = value(rank, !rank, i);
    if (context) OK(rondo_group_start());
    rondo_result sent = rondo_send(out, COUNT, RONDO_INT32, !rank, comm, NULL);
    if (sent == RONDO_SUCCESS) {
        OK(rondo_recv(in, COUNT, RONDO_INT32, !rank, comm, NULL));
        if (context) OK(rondo_group_end());
        for (size_t i = 0; i < COUNT; i++) CHECK(in[i] == value(!rank, rank, i), "element %zu", i);
        free(out);
        free(in);
        return;
    }
    CHECK(!context, "%s", rondo_last_error(comm));
    const char *text = rondo_last_error(comm);
    CHECK(sent == RONDO_TIMEOUT && strstr(text, "rondo_send of 2097152 int32 to rank"), "%d: %s", sent, text);
    free(out);
    free(in);
}

static void case_17(void **state)
{
    (void)state;
    on_each(2, 1, both_send_first, NULL);
    on_each(2, 20, both_send_first, (void *)1);
}

/* ---- Failures ---- */

static void other_count(rondo_comm *comm, int rank, int n, void *context)
{
    int32_t x[12] = {0};
    (void)n, (void)context;
    rondo_result result;
    if (rank == 0) {
        OK(rondo_send(x, 10, RONDO_INT32, 1, comm, NULL));
        result = rondo_barrier(comm, NULL);
    } else {
        result = rondo_recv(x, 12, RONDO_INT32, 0, comm, NULL);
    }
    const char *text = rondo_last_error(comm);
    CHECK(result == RONDO_MISMATCH && strstr(text, "rondo_recv of 12 int32 from rank 0"), "%d: %s", result, text);
    CHECK(rondo_barrier(comm, NULL) == RONDO_MISMATCH, "a call after it");
}

static void other_counts_do_not_match(void **state)
{
    (void)state;
    on_each(2, 600, other_count, NULL);
}

static void gone(rondo_comm *comm, int rank, int n, void *context)
{
    int32_t x = rank;
    (void)n;
    OK(rondo_barrier(comm, NULL));
    if (rank == 1) {
        if (context) OK(rondo_send(&x, 1, RONDO_INT32, 0, comm, NULL));
        return;
    }
    if (rank > 1) {
        usleep(500000);
        return;
    }
    if (context) {
        OK(rondo_recv(&x, 1, RONDO_INT32, 1, comm, NULL));
        CHECK(x == 1, "%d", x);
    }
    double before = test_seconds();
    rondo_result result = rondo_recv(&x, 1, RONDO_INT32, 1, comm, NULL);
    const char *text = rondo_last_error(comm);
    CHECK(result == RONDO_REMOTE_ERROR && strstr(text, "rank 1"), "%d: %s", result, text);
    CHECK(test_seconds() - before < 4 * test_slowness(), "%g s", test_seconds() - before);
}

static void a_peer_that_left_is_told(void **state)
{
    (void)state;
    on_each(3, 600, gone, NULL);
    on_each(3, 600, gone, (void *)1);
}

static void bad(rondo_comm *comm, int rank, int n, void *context)
{
    int32_t x[64] = {0};
    (void)context;
    CHECK(rondo_send(x, 1, RONDO_INT32, n, comm, NULL) == RONDO_INVALID_ARGUMENT &&
              strstr(rondo_last_error(comm), "peer is"),
          "%s", rondo_last_error(comm));
    CHECK(rondo_recv(x, 1, RONDO_INT32, -1, comm, NULL) == RONDO_INVALID_ARGUMENT, "peer -1");
    CHECK(rondo_send(NULL, 1, RONDO_INT32, !rank, comm, NULL) == RONDO_INVALID_ARGUMENT, "send NULL");
    CHECK(rondo_recv(NULL, 1, RONDO_INT32, !rank, comm, NULL) == RONDO_INVALID_ARGUMENT, "recv NULL");
    CHECK(rondo_send(x, 1, (rondo_dtype)77, !rank, comm, NULL) == RONDO_INVALID_ARGUMENT, "type 77");
    CHECK(rondo_send(x, (size_t)-4, RONDO_INT32, !rank, comm, NULL) == RONDO_INVALID_ARGUMENT, "count -4");
    CHECK(rondo_send(x, 1, RONDO_INT32, rank, comm, NULL) == RONDO_INVALID_USAGE, "to itself, alone");
    CHECK(rondo_all_to_all(x, x, 2, RONDO_INT32, comm, NULL) == RONDO_INVALID_ARGUMENT, "in place");
    CHECK(rondo_all_to_all(x, x + 3, 2, RONDO_INT32, comm, NULL) == RONDO_INVALID_ARGUMENT, "overlap");
    for (int off = -3; off <= 3; off++)
        CHECK(rondo_all_to_all(x + 8, (char *)(x + 8) + off, 2, RONDO_INT32, comm, NULL) == RONDO_INVALID_ARGUMENT,
              "%d bytes off", off);
    CHECK(rondo_gather(x, x, 2, RONDO_INT32, 9, comm, NULL) == RONDO_INVALID_ARGUMENT, "root 9");
    OK(rondo_barrier(comm, NULL));
}

static void bad_arguments(void **state)
{
    (void)state;
    on_each(2, 20, bad, NULL);
}

/* ---- Connections ---- */

static int descriptors(void)
{
    int n = 0;
    DIR *list = opendir("/proc/self/fd");
    while (list && readdir(list)) n++;
    if (list) closedir(list);
    return n;
}

/* What a rank holds open grows with the logarithm of the world, as long as there is no all-to-all. */
static void frugal(rondo_comm *comm, int rank, int n, void *context)
{
    int32_t x = rank, *most = context;
    OK(rondo_all_reduce(&x, &x, 1, RONDO_INT32, RONDO_SUM, comm, NULL));
    if (rank == 0) OK(rondo_send(&x, 1, RONDO_INT32, n / 2, comm, NULL));
    if (rank == n / 2) OK(rondo_recv(&x, 1, RONDO_INT32, 0, comm, NULL));
    int mine = descriptors();
    OK(rondo_all_reduce(&mine, &mine, 1, RONDO_INT32, RONDO_MAX, comm, NULL));
    if (rank == 0) *most = mine;
}

static void connections_stay_few(void **state)
{
    (void)state;
    int32_t *most = test_shared(sizeof *most), eight;
    rondo_config config = RONDO_CONFIG_INIT;
    config.timeout_s = 30 * test_slowness();
    config.transport = "tcp";
    ranks_run(8, &config, NULL, frugal, most);
    eight = *most;
    ranks_run(32, &config, NULL, frugal, most);
    /* 2 more distances, each way one connection and one pidfd */
    assert_in_range(*most, eight, eight + 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gather_scatter_all_to_all),
        cmocka_unit_test(everyone_sends_to_everyone),
        cmocka_unit_test(a_short_message_waits_for_nobody),
        cmocka_unit_test(a_token_goes_round),
        cmocka_unit_test(case_17),
        cmocka_unit_test(other_counts_do_not_match),
        cmocka_unit_test(a_peer_that_left_is_told),
        cmocka_unit_test(bad_arguments),
        cmocka_unit_test(connections_stay_few),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
