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
#include <sys/wait.h>
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
    int calls;       /* 0: all */
    uint64_t sum[4]; /* by rank */
};

/* Each call's output, and all that lay around it, goes into the sum. */
static void every_call(rondo_comm *comm, int rank, int n, void *context)
{
    struct outputs *out = context;
    size_t count = out->count, whole = count * (size_t)n, bytes = whole * sizeof(float);
    float *from = malloc(bytes + 4), *to = malloc(bytes + 4);
    for (int call = 0; call < (out->calls ? out->calls : 10); call++) {
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
    rondo_comm_destroy(comm); /* the network may lose what a process that merely exits has sent last */
}

/* The last of the transports says what is right. */
static void compare(int n, size_t count, int calls, const char *const transports[], int many)
{
    struct outputs *out = test_shared(3 * sizeof *out);
    test_env("RONDO_ALGO", "ring");
    for (int t = 0; t < many; t++) {
        out[t].count = count;
        out[t].calls = calls;
        test_env("RONDO_TRANSPORT", transports[t]);
        const rondo_config config = {.size = sizeof config, .timeout_s = 60, .slow_warning_s = 30, .device = RONDO_DEVICE_HOST};
        ranks_run(n, &config, on_device, every_call, &out[t]);
    }
    for (int rank = 0; rank < n; rank++)
        for (int t = 0; t + 1 < many; t++)
            if (out[t].sum[rank] != out[many - 1].sum[rank])
                fail_msg("rank %d of %d, %zu elements: other bytes over %s than over %s", rank, n, count, transports[t],
                         transports[many - 1]);
}

static const char *const all_three[] = {"verbs", "tcp", "shm"};

/* Short slices, long ones, several to a chunk, and nothing. */
static void test_two(void **state)
{
    (void)state;
    static const size_t counts[] = {0, 5, 3001, 100000};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) compare(2, counts[i], 0, all_three, 3);
}

static void test_four(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 30011};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) compare(4, counts[i], 0, all_three, 3);
}

/* For a network that is made worse meanwhile: messages to 1 MiB, over the transport that RONDO_TEST_OVER names. */
static void test_noise(void **state)
{
    (void)state;
    const char *over[] = {getenv("RONDO_TEST_OVER"), "shm"};
    if (!over[0]) skip();
    compare(2, 5, 0, over, 2);
    compare(2, 262144, 3, over, 2);
}

/* ---- Waiting, and failing ---- */

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Returns the text of the failure that ends a row of calls. */
static const char *until_it_fails(rondo_comm *comm, size_t count, rondo_result *result, double *took)
{
    float *data = calloc(count, sizeof *data);
    for (int i = 0; i < 10000 && (*result = rondo_all_reduce(data, data, count, RONDO_FLOAT32, RONDO_SUM, comm, NULL)) == RONDO_SUCCESS; i++)
        *took = seconds(CLOCK_MONOTONIC);
    *took = seconds(CLOCK_MONOTONIC) - *took;
    free(data);
    return rondo_last_error(comm);
}

static void late(rondo_comm *comm, int rank, int n, void *context)
{
    (void)n, (void)context;
    float one = 1;
    for (int i = 0; i < 2; i++) {
        if (rank == 1) sleep(1);
        double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
        CHECK(rondo_all_reduce(&one, &one, 1, RONDO_FLOAT32, RONDO_SUM, comm, NULL) == RONDO_SUCCESS, "%s", rondo_last_error(comm));
        cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
        CHECK(cpu < 0.5, "a rank that waited for a second was busy for %.2f s of it", cpu);
    }
}

/* A rank that waits sleeps: the completion queue's event wakes it. */
static void test_sleeps(void **state)
{
    (void)state;
    test_env("RONDO_TRANSPORT", "verbs");
    ranks_run(2, NULL, on_device, late, NULL);
}

static void killed(rondo_comm *comm, int rank, int n, void *context)
{
    (void)n, (void)context;
    rondo_result result = RONDO_SUCCESS;
    double took = seconds(CLOCK_MONOTONIC);
    float one = 1;
    if (rank == 1) {
        for (int i = 0; i < 20; i++) rondo_all_reduce(&one, &one, 1, RONDO_FLOAT32, RONDO_SUM, comm, NULL);
        raise(SIGKILL);
    }
    const char *text = until_it_fails(comm, 1, &result, &took);
    CHECK(result == RONDO_REMOTE_ERROR && took < 10, "result %d after %.1f s: %s", result, took, text);
    CHECK(strstr(text, "rank 1"), "%s", text);
}

static void test_killed_peer(void **state)
{
    (void)state;
    ranks all;
    test_env("RONDO_TRANSPORT", "verbs");
    ranks_start(&all, 2, NULL, on_device, killed, NULL);
    ranks_wait(&all, 60);
    assert_int_equal(all.status[0], 0);
    assert_true(WIFSIGNALED(all.status[1]));
}

static void unplugged(rondo_comm *comm, int rank, int n, void *context)
{
    (void)n, (void)context;
    rondo_result result = RONDO_SUCCESS;
    double took = seconds(CLOCK_MONOTONIC);
    float one = 1;
    for (int i = 0; i < 20; i++)
        CHECK(rondo_all_reduce(&one, &one, 1, RONDO_FLOAT32, RONDO_SUM, comm, NULL) == RONDO_SUCCESS, "%s", rondo_last_error(comm));
    if (rank == 0) CHECK(system("sleep 0.5; ip link set rdma0 down") == 0, "ip link set");
    const char *text = until_it_fails(comm, 65536, &result, &took);
    CHECK(result != RONDO_SUCCESS && result != RONDO_TIMEOUT && took < 15, "result %d after %.1f s: %s", result, took, text);
    fprintf(stderr, "rank %d after %.1f s: %s\n", rank, took, text);
}

/* In mid-call; and when the cable is back, new communicators work. */
static void test_link_down(void **state)
{
    (void)state;
    if (!getenv("RONDO_TEST_GUEST")) skip(); /* nobody's real cable */
    struct outputs out = {.count = 1000};
    test_env("RONDO_TRANSPORT", "verbs");
    test_env("RONDO_RDMA_TIMEOUT", "14");
    ranks_run(2, NULL, on_device, unplugged, NULL);
    assert_int_equal(system("ip link set rdma0 up; for n in $(seq 50); do grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state "
                            "&& [ -s /sys/class/infiniband/rxe0/ports/1/gid_attrs/ndevs/1 ] && break; sleep 0.1; done"), 0);
    test_env("RONDO_RDMA_TIMEOUT", NULL);
    ranks_run(2, NULL, on_device, every_call, &out);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two),
        cmocka_unit_test(test_four),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_sleeps),
        cmocka_unit_test(test_killed_peer),
        cmocka_unit_test(test_link_down),
    };
    if (!getenv("RONDO_TEST_RDMA")) return fputs("RONDO_TEST_RDMA names no RDMA device\n", stderr), 1;
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL); /* a pattern of names */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
