/* SPDX-License-Identifier: Apache-2.0
 *
 * calls.c - every collective over RDMA, at 2 and 4 ranks, with the same bytes as over sockets and shared memory; and what
 * becomes of a call when a peer, a port or a limit fails. tests/vm/suite.sh runs it, where there are RDMA devices.
 *
 * The elements are floats whose sums are rounded, so that another order of additions would show.
 */
#include "../ranks.h"
#include "../test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Rank r uses device r % 2 of those that RONDO_TEST_RDMA names. */
static void on_device(int rank, void *context)
{
    (void)context;
    char names[128], *second = NULL;
    snprintf(names, sizeof names, "%s", getenv("RONDO_TEST_RDMA"));
    char *first = strtok_r(names, " ", &second);
    setenv("RONDO_RDMA_DEVICE", rank % 2 && *second ? second : first, 1);
}

/* ---- Every collective ---- */

static float value(int rank, size_t i) { return (float)((i * 7919 + (size_t)rank * 104729) % 10007) * 0.001F + 0.1F; }

static uint64_t digest(uint64_t sum, const void *at, size_t bytes)
{
    const unsigned char *byte = at;
    for (size_t i = 0; i < bytes; i++) sum = (sum ^ byte[i]) * 1099511628211U;
    return sum;
}

struct outputs {
    size_t count;
    uint64_t sum[4]; /* by rank */
};

/* Each call's output, and all that lay around it, goes into the sum. */
static void every_call(rondo_comm *comm, int rank, int n, void *context)
{
    struct outputs *out = context;
    size_t count = out->count, whole = count * (size_t)n, bytes = whole * sizeof(float);
    float *from = malloc(bytes + 4), *to = malloc(bytes + 4);
    for (int call = 0; call < 10; call++) {
        for (size_t i = 0; i < whole; i++) from[i] = value(rank, i + (size_t)call);
        memset(to, 0x55, bytes + 4);
        rondo_result r = RONDO_SUCCESS;
        int root = n - 1, peer = rank ^ 1;
        switch (call) {
        case 0: r = rondo_all_reduce(from, to, count, RONDO_FLOAT32, RONDO_SUM, comm, NULL); break;
        case 1: r = rondo_reduce_scatter(from, to, count, RONDO_FLOAT32, RONDO_AVG, comm, NULL); break;
        case 2: r = rondo_all_gather(from, to, count, RONDO_FLOAT32, comm, NULL); break;
        case 3: r = rondo_broadcast(from, to, count, RONDO_FLOAT32, root, comm, NULL); break;
        case 4: r = rondo_reduce(from, to, count, RONDO_FLOAT32, RONDO_MAX, root, comm, NULL); break;
        case 5: r = rondo_gather(from, to, count, RONDO_FLOAT32, root, comm, NULL); break;
        case 6: r = rondo_scatter(from, to, count, RONDO_FLOAT32, root, comm, NULL); break;
        case 7: r = rondo_all_to_all(from, to, count, RONDO_FLOAT32, comm, NULL); break;
        case 8: r = rondo_barrier(comm, NULL); break;
        default:
            rondo_group_start();
            r = rondo_send(from, count, RONDO_FLOAT32, peer, comm, NULL);
            if (r == RONDO_SUCCESS) r = rondo_recv(to, count, RONDO_FLOAT32, peer, comm, NULL);
            if (rondo_group_end() != RONDO_SUCCESS) r = RONDO_SYSTEM_ERROR;
        }
        CHECK(r == RONDO_SUCCESS, "call %d of %zu: %s", call, count, rondo_last_error(comm));
        out->sum[rank] = digest(out->sum[rank] + (uint64_t)call, to, bytes + 4);
    }
    free(to);
    free(from);
}

static void compare(int n, size_t count)
{
    static const char *const transports[] = {"verbs", "tcp", "shm"};
    struct outputs *out = test_shared(3 * sizeof *out);
    test_env("RONDO_ALGO", "ring");
    for (int t = 0; t < 3; t++) {
        out[t].count = count;
        test_env("RONDO_TRANSPORT", transports[t]);
        const rondo_config config = {.size = sizeof config, .timeout_s = 60, .slow_warning_s = 30, .device = RONDO_DEVICE_HOST};
        ranks_run(n, &config, on_device, every_call, &out[t]);
    }
    for (int rank = 0; rank < n; rank++)
        for (int t = 1; t < 3; t++)
            if (out[t].sum[rank] != out[0].sum[rank])
                fail_msg("rank %d of %d, %zu elements: other bytes over %s than over verbs", rank, n, count, transports[t]);
}

/* Short slices, long ones, several to a chunk, and nothing. */
static void test_two(void **state)
{
    (void)state;
    static const size_t counts[] = {0, 5, 3001, 262144};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) compare(2, counts[i]);
}

static void test_four(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 10007, 65536};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) compare(4, counts[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two),
        cmocka_unit_test(test_four),
    };
    if (!getenv("RONDO_TEST_RDMA")) return fputs("RONDO_TEST_RDMA names no RDMA device\n", stderr), 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
