/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cudasim_ring.c - kernels that wait for one another, on the simulated driver: ranks of one process and of
 * several, in any order of threads. And what it is for: bugs planted in that kernel are found.
 */
#include "cudasim/trial_ring.h"
#include "gpu_kit.h"
#include "on_cudasim.h"
#include "ranks.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_RANKS = 8, DEVICES = 4 };

struct rank {
    int device;
    rd_cu_context context;
    rd_cu_stream stream;
    rd_cu_function kernel;
    struct ring_args args;
    rd_cu_address link, words;
};

static float value(int rank, uint64_t i, int launch)
{
    return (float)((rank + 1) * 3 + (int)(i % 11) + launch);
}

/* What a rank has of its own. The kernel's variant: "ring", or "ring_PLANT". */
static void rank_begin(struct rank *r, int rank, int n, uint64_t count, const char *variant)
{
    static const uint64_t zeros[8];
    uint64_t room = (count / (uint64_t)n + 4) / 4 * 4;
    size_t link_bytes = sizeof(struct ring_link) + 2 * room * sizeof(float);
    r->device = rank % DEVICES;
    r->context = gpu_enter(r->device);
    r->stream = gpu_stream(RD_CU_STREAM_NON_BLOCKING);
    r->kernel = gpu_trial(variant, "trial_ring");
    r->link = gpu_alloc(link_bytes);
    r->words = gpu_alloc(64);
    gpu_put(r->link, zeros, sizeof(struct ring_link));
    gpu_put(r->words, zeros, 64);
    r->args = (struct ring_args){
        .data = (float *)(uintptr_t)gpu_alloc(count * sizeof(float)),
        .in = (struct ring_link *)(uintptr_t)r->link,
        .launches = (uint64_t *)(uintptr_t)r->words,
        .abort = (uint32_t *)(uintptr_t)(r->words + 8),
        .gave_up = (uint32_t *)(uintptr_t)(r->words + 16),
        .count = count,
        .room = room,
        .rank = rank,
        .n = n,
    };
    CU(cuCtxPopCurrent, NULL);
}

static void rank_fill(struct rank *r, int launch)
{
    float *values = malloc(r->args.count * sizeof *values);
    for (uint64_t i = 0; i < r->args.count; i++) values[i] = value(r->args.rank, i, launch);
    CU(cuCtxPushCurrent, r->context);
    gpu_put((uintptr_t)r->args.data, values, r->args.count * sizeof *values);
    CU(cuCtxPopCurrent, NULL);
    free(values);
}

static void rank_launch(struct rank *r)
{
    int threads;
    CU(cuCtxPushCurrent, r->context);
    CU(cuFuncGetAttribute, &threads, RD_CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, r->kernel);
    gpu_launch(r->kernel, 1, (unsigned)threads, r->stream, &r->args);
    CU(cuCtxPopCurrent, NULL);
}

/* Whether this rank has the sum. */
static bool rank_check(struct rank *r, int launch)
{
    float *values = malloc(r->args.count * sizeof *values);
    bool right = true;
    CU(cuCtxPushCurrent, r->context);
    CU(cuStreamSynchronize, r->stream);
    gpu_get(values, (uintptr_t)r->args.data, r->args.count * sizeof *values);
    for (uint64_t i = 0; i < r->args.count && right; i++) {
        float sum = 0;
        for (int k = 0; k < r->args.n; k++) sum += value(k, i, launch);
        right = values[i] == sum;
    }
    CU(cuCtxPopCurrent, NULL);
    free(values);
    return right;
}

static void rank_end(struct rank *r)
{
    CU(cuCtxPushCurrent, r->context);
    CU(cuMemFree, (uintptr_t)r->args.data);
    CU(cuMemFree, r->link);
    CU(cuMemFree, r->words);
    CU(cuStreamDestroy, r->stream);
    gpu_leave(r->device);
}

/* Whether all come to their end; a rank that dies leaves the others waiting. */
static bool all_end(struct rank *rank, int n)
{
    for (int ended = 0; ended < n; usleep(200)) {
        ended = 0;
        for (int i = 0; i < n; i++) {
            rd_cu_result result = rd_gpu_driver()->cuStreamQuery(rank[i].stream);
            if (result != RD_CU_SUCCESS && result != RD_CU_ERROR_NOT_READY) return false;
            ended += result == RD_CU_SUCCESS;
        }
    }
    return true;
}

/* n ranks in this process, on DEVICES devices. */
static bool ring_in_one_process(int n, uint64_t count, int launches, const char *variant)
{
    struct rank rank[MOST_RANKS];
    bool right = true;
    for (int i = 0; i < n; i++) rank_begin(&rank[i], i, n, count, variant);
    for (int i = 0; i < n; i++) {
        struct rank *next = &rank[(i + 1) % n];
        rank[i].args.out = next->args.in;
        CU(cuCtxPushCurrent, rank[i].context);
        if (next->device != rank[i].device) {
            rd_cu_result result = rd_gpu_driver()->cuCtxEnablePeerAccess(next->context, 0);
            assert_true(result == RD_CU_SUCCESS || result == RD_CU_ERROR_PEER_ACCESS_ALREADY_ENABLED);
        }
        CU(cuCtxPopCurrent, NULL);
    }
    for (int launch = 0; launch < launches; launch++) {
        for (int i = 0; i < n; i++) rank_fill(&rank[i], launch);
        for (int i = 0; i < n; i++) rank_launch(&rank[i]);
        if (!all_end(rank, n)) return false;
        for (int i = 0; i < n; i++) right = rank_check(&rank[i], launch) && right;
    }
    for (int i = 0; i < n; i++) rank_end(&rank[i]);
    return right;
}

static void test_one_process(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1, 7, 64, 1000, 10007};
    for (int n = 2; n <= MOST_RANKS; n *= 2)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            assert_true(ring_in_one_process(n, counts[c], 3, "ring"));
}

static void test_any_order_of_threads(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 20; seed++) {
        cudasim_seed(seed);
        assert_true(ring_in_one_process(2 + (int)seed % 3, 1003, 2, "ring"));
    }
    cudasim_seed(0);
}

/* ---- Several processes --------------------------------------------------------------------------------------------
 */

struct meeting {
    atomic_int arrived;
    rd_cu_ipc_memory handle[MOST_RANKS];
};

static void meet(struct meeting *meeting, int until)
{
    atomic_fetch_add(&meeting->arrived, 1);
    while (atomic_load(&meeting->arrived) < until) usleep(200);
}

static int one_rank(struct meeting *meeting, int i, int n, uint64_t count)
{
    struct rank rank;
    rd_cu_address next;
    bool right = true;
    rank_begin(&rank, i, n, count, "ring");
    CU(cuCtxPushCurrent, rank.context);
    CU(cuIpcGetMemHandle, &meeting->handle[i], rank.link);
    meet(meeting, n);
    CU(cuIpcOpenMemHandle, &next, meeting->handle[(i + 1) % n], RD_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    CU(cuCtxPopCurrent, NULL);
    rank.args.out = (struct ring_link *)(uintptr_t)next;
    for (int launch = 0; launch < 3; launch++) {
        rank_fill(&rank, launch);
        rank_launch(&rank);
        right = rank_check(&rank, launch) && right;
    }
    meet(meeting, 2 * n);
    CU(cuCtxPushCurrent, rank.context);
    CU(cuIpcCloseMemHandle, next);
    CU(cuCtxPopCurrent, NULL);
    rank_end(&rank);
    return right ? 0 : 1;
}

/* Before this process uses the driver: its children could not. */
static void test_processes(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n += 2) {
        struct meeting *meeting = test_shared(sizeof *meeting);
        pid_t child[MOST_RANKS];
        for (int i = 0; i < n; i++) {
            child[i] = fork();
            assert_true(child[i] >= 0);
            if (child[i] == 0) {
                alarm(60);
                test_env("CMOCKA_TEST_ABORT", "1"); /* what fails here ends this process */
                _exit(one_rank(meeting, i, n, 5003));
            }
        }
        for (int i = 0; i < n; i++) {
            int status;
            assert_int_equal(waitpid(child[i], &status, 0), child[i]);
            assert_int_equal(status, 0);
        }
        munmap(meeting, sizeof *meeting);
    }
}

/* ---- Planted bugs -------------------------------------------------------------------------------------------------
 */

/* This program again, with a ring that has the bug; as it ends: 0, right; 1, wrong; else killed, by itself or a
 * sanitizer. */
static int run_plant(const char *plant, int seed)
{
    char number[16], variant[64];
    int status;
    snprintf(number, sizeof number, "%d", seed);
    snprintf(variant, sizeof variant, "ring%s%s", plant[0] != '\0' ? "_" : "", plant);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (freopen("/dev/null", "w", stdout) == NULL) _exit(126);
        execl("/proc/self/exe", "test_cudasim_ring", variant, number, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) return 100 + WTERMSIG(status);
    assert_true(WEXITSTATUS(status) != 127);
    return WEXITSTATUS(status);
}

/* How it ends for the first of these seeds for which it does not end well; 0: for none. */
static int sweep(const char *plant, int seeds)
{
    for (int seed = 0; seed < seeds; seed++) {
        int ended = run_plant(plant, seed);
        if (ended != 0) return ended;
    }
    return 0;
}

static void test_without_a_bug_nothing_is_found(void **state)
{
    (void)state;
    assert_int_equal(sweep("", 5), 0);
}

static void test_missing_barrier(void **state)
{
    (void)state;
    assert_int_not_equal(sweep("no_barrier", 20), 0);
}

/* The processor's own order hides these; the thread sanitizer goes by what is promised. */
static void test_relaxed_flag(void **state)
{
    (void)state;
    if (!built_with("tsan")) skip();
    assert_int_equal(sweep("relaxed_store", 3), 99);
    assert_int_equal(sweep("relaxed_load", 3), 99);
}

static void test_lost_counter(void **state)
{
    (void)state;
    assert_int_not_equal(sweep("lost_counter", 20), 0);
}

static void test_one_element_too_far(void **state)
{
    (void)state;
    assert_int_not_equal(sweep("one_too_far", 1), 0);
}

static void test_misaligned_vector(void **state)
{
    (void)state;
    if (!built_with("ubsan")) skip();
    assert_int_not_equal(sweep("misaligned", 1), 0);
}

/* What a planted run does: test_cudasim_ring VARIANT SEED. A ring that hangs is killed by its alarm. */
static int planted(const char *variant, const char *seed)
{
    alarm((unsigned)(20 * test_slowness()));
    cudasim_seed((unsigned)atoi(seed));
    return ring_in_one_process(3, 1003, 2, variant) ? 0 : 1;
}

int main(int argc, char **argv)
{
    on_cudasim(argv, "devices=4");
    if (argc == 3) return planted(argv[1], argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes), /* first: see there */
        cmocka_unit_test(test_without_a_bug_nothing_is_found),
        cmocka_unit_test(test_missing_barrier),
        cmocka_unit_test(test_relaxed_flag),
        cmocka_unit_test(test_lost_counter),
        cmocka_unit_test(test_one_element_too_far),
        cmocka_unit_test(test_misaligned_vector),
        cmocka_unit_test(test_one_process),
        cmocka_unit_test(test_any_order_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
