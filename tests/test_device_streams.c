/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls in the order of CUDA streams, groups and messages: ranks are threads of this process, on GPUs of their own or
 * on one. Over the simulated driver, or with CUDASIM=off on what GPUs there are.
 */
#include "test.h"

#include "gpu_kit.h"
#include "on_cudasim.h"
#include "ranks.h"

#include <pthread.h>
#include <time.h>


enum { MOST = 4, COUNT = 20011 };

/* ---- Ranks as threads ---- */

typedef struct member {
    int number, n, device;
    rondo_unique_id id;
    rondo_comm *comm;
    rd_cu_stream cuda;
    float *send, *recv, *host; /* the GPU's, the GPU's, and pinned */
    void (*work)(struct member *m);
    pthread_t thread;
} member;

static size_t bytes(void) { return COUNT * sizeof(float); }

/* The GPU is current in the thread, so RONDO_DEVICE_AUTO finds it. */
static void *be_rank(void *argument)
{
    member *r = argument;
    rondo_config config = RONDO_CONFIG_INIT;
    rd_cu_context context;
    rd_cu_address address;
    void *pinned, *device;
    config.timeout_s = 20 * test_slowness();
    config.slice_bytes = 4096;
    GPU(cuDevicePrimaryCtxRetain, &context, r->device);
    GPU(cuCtxSetCurrent, context);
    OK(rondo_init_rank(&r->comm, r->n, r->id, r->number, &config));
    GPU(cuMemAlloc, &address, bytes());
    r->send = (float *)(uintptr_t)address;
    OK(rondo_mem_alloc(&device, bytes(), r->comm));
    r->recv = device;
    GPU(cuMemHostAlloc, &pinned, bytes(), 0);
    r->host = pinned;
    GPU(cuStreamCreateWithPriority, &r->cuda, RD_CU_STREAM_NON_BLOCKING, 0);
    r->work(r);
    GPU(cuStreamDestroy, r->cuda);
    GPU(cuMemFreeHost, r->host);
    OK(rondo_mem_free(r->recv, r->comm));
    GPU(cuMemFree, address);
    rondo_comm_destroy(r->comm);
    GPU(cuDevicePrimaryCtxRelease, r->device);
    return NULL;
}

static void run(int n, int devices, void (*work)(member *))
{
    static member all[MOST];
    rondo_unique_id id;
    if (devices > rd_gpu_count()) skip();
    assert_int_equal(rondo_get_unique_id(&id), RONDO_SUCCESS);
    for (int k = 0; k < n; k++) {
        all[k] = (member){.number = k, .n = n, .device = k % devices, .id = id, .work = work};
        assert_int_equal(pthread_create(&all[k].thread, NULL, be_rank, &all[k]), 0);
    }
    for (int k = 0; k < n; k++) pthread_join(all[k].thread, NULL);
    struct cudasim_held held;
    if (!is_cudasim()) return;
    cudasim_held(&held);
    assert_int_equal(held.contexts + held.streams + held.events + held.modules, 0);
    assert_int_equal(held.device_memory + held.host_memory + held.registered, 0);
}

static float term(int number, int round, int i) { return (float)(number * 7 + round * 100 + i % 50); }

static void check(const member *r, const float *got, int round)
{
    for (int i = 0; i < COUNT; i++) {
        float want = 0;
        for (int k = 0; k < r->n; k++) want += term(k, round, i);
        CHECK(got[i] == want, "rank %d, round %d: element %d is %g, not %g", r->number, round, i, (double)got[i], (double)want);
    }
}

/* ---- Streams ---- */

static void a_while(void *unused)
{
    (void)unused;
    nanosleep(&(struct timespec){0, 30000000}, NULL);
}

/* On the CUDA stream alone: it takes a while, then the terms reach the GPU; the call; then the sum leaves it. Whoever does
 * not wait for the other has what was there before. */
static void in_the_order_of(member *r, rd_cu_stream cuda)
{
    rondo_stream *stream;
    OK(rondo_stream_from_cuda(&stream, cuda, r->comm));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < COUNT; i++) r->host[i] = term(r->number, round, i);
        if (is_cudasim()) GPU(cuLaunchHostFunc, cuda, a_while, NULL);
        GPU(cuMemcpyAsync, (uintptr_t)r->send, (uintptr_t)r->host, bytes(), cuda);
        OK(rondo_all_reduce(r->send, r->recv, COUNT, RONDO_FLOAT32, RONDO_SUM, r->comm, stream));
        CHECK(rondo_stream_query(stream) == RONDO_IN_PROGRESS || !is_cudasim(), "the call did not wait");
        GPU(cuMemcpyAsync, (uintptr_t)r->host, (uintptr_t)r->recv, bytes(), cuda);
        GPU(cuMemsetD8Async, (uintptr_t)r->send, 0, bytes(), cuda);
        GPU(cuStreamSynchronize, cuda);
        check(r, r->host, round);
        OK(rondo_stream_synchronize(stream));
    }
    OK(rondo_stream_destroy(stream));
}

static void on_a_stream(member *r) { in_the_order_of(r, r->cuda); }
static void on_the_legacy_stream(member *r) { in_the_order_of(r, NULL); }

static void cuda_streams(void **state)
{
    (void)state;
    run(2, 2, on_a_stream);
    run(3, 1, on_a_stream);
    run(2, 2, on_the_legacy_stream);
}

/* Plain memory on a CUDA stream: the CPU does it, and the order is the same. */
static void plain_memory(member *r)
{
    rondo_stream *stream;
    static float plain[MOST][COUNT];
    float *mine = plain[r->number];
    OK(rondo_stream_from_cuda(&stream, r->cuda, r->comm));
    for (int i = 0; i < COUNT; i++) mine[i] = -1, r->host[i] = term(r->number, 1, i);
    GPU(cuMemcpyAsync, (uintptr_t)r->send, (uintptr_t)r->host, bytes(), r->cuda);
    GPU(cuStreamSynchronize, r->cuda);
    if (is_cudasim()) GPU(cuLaunchHostFunc, r->cuda, a_while, NULL);
    GPU(cuMemcpyAsync, (uintptr_t)mine, (uintptr_t)r->send, bytes(), r->cuda);
    OK(rondo_all_reduce(mine, mine, COUNT, RONDO_FLOAT32, RONDO_SUM, r->comm, stream));
    OK(rondo_stream_synchronize(stream));
    check(r, mine, 1);
    OK(rondo_stream_destroy(stream));
}

static void plain_memory_on_a_cuda_stream(void **state)
{
    (void)state;
    run(2, 2, plain_memory);
}

/* A stream of the library's own, and none: after what the legacy stream was given. */
static void other_streams(member *r)
{
    rondo_stream *stream = NULL;
    for (int round = 0; round < 2; round++) {
        if (round) OK(rondo_stream_create(&stream, NULL));
        for (int i = 0; i < COUNT; i++) r->host[i] = term(r->number, round, i);
        if (is_cudasim()) GPU(cuLaunchHostFunc, NULL, a_while, NULL);
        GPU(cuMemcpyAsync, (uintptr_t)r->send, (uintptr_t)r->host, bytes(), NULL);
        OK(rondo_all_reduce(r->send, r->recv, COUNT, RONDO_FLOAT32, RONDO_SUM, r->comm, stream));
        if (stream) OK(rondo_stream_synchronize(stream));
        GPU(cuMemcpyAsync, (uintptr_t)r->host, (uintptr_t)r->recv, bytes(), NULL);
        GPU(cuStreamSynchronize, NULL);
        check(r, r->host, round);
    }
    OK(rondo_stream_destroy(stream));
}

static void after_the_legacy_stream(void **state)
{
    (void)state;
    run(2, 2, other_streams);
}

/* What follows on the CUDA stream goes on when the call fails, and the failure is told. */
static void failing(member *r)
{
    static _Atomic bool aborted;
    rondo_stream *stream;
    while (r->number == 1 && !aborted) nanosleep(&(struct timespec){0, 1000000}, NULL); /* and never calls */
    if (r->number == 1) return;
    OK(rondo_stream_from_cuda(&stream, r->cuda, r->comm));
    OK(rondo_all_reduce(r->send, r->recv, COUNT, RONDO_FLOAT32, RONDO_SUM, r->comm, stream));
    nanosleep(&(struct timespec){0, 50000000}, NULL);
    CHECK(rd_gpu_driver()->cuStreamQuery(r->cuda) == RD_CU_ERROR_NOT_READY, "the CUDA stream does not wait");
    OK(rondo_comm_abort(r->comm));
    GPU(cuStreamSynchronize, r->cuda);
    CHECK(rondo_stream_synchronize(stream) == RONDO_ABORTED, "%s", rondo_last_error(NULL));
    aborted = true;
    rondo_stream_destroy(stream);
}

static void a_failed_call_lets_the_stream_go_on(void **state)
{
    (void)state;
    run(2, 2, failing);
}

static void stream_arguments(member *r)
{
    rondo_stream *stream = NULL;
    CHECK(rondo_stream_from_cuda(NULL, r->cuda, r->comm) == RONDO_INVALID_ARGUMENT, "no place for the handle");
    GPU(cuCtxSetCurrent, NULL);
    CHECK(rondo_stream_from_cuda(&stream, NULL, NULL) == RONDO_INVALID_USAGE, "no context");
    CHECK(strstr(rondo_last_error(NULL), "no CUDA context is current"), "%s", rondo_last_error(NULL));
    rd_cu_context context;
    int next = (r->device + 1) % 2;
    GPU(cuDevicePrimaryCtxRetain, &context, next);
    GPU(cuCtxSetCurrent, context);
    CHECK(rondo_stream_from_cuda(&stream, NULL, r->comm) == RONDO_INVALID_ARGUMENT, "a stream of another GPU");
    CHECK(strstr(rondo_last_error(NULL), "and comm uses GPU"), "%s", rondo_last_error(NULL));
    CHECK(stream == NULL, "written in spite of a failure");
    GPU(cuDevicePrimaryCtxRelease, next);
    GPU(cuDevicePrimaryCtxRetain, &context, r->device);
    GPU(cuDevicePrimaryCtxRelease, r->device);
    GPU(cuCtxSetCurrent, context);
    OK(rondo_barrier(r->comm, NULL));
}

static void bad_stream_arguments(void **state)
{
    (void)state;
    run(2, 2, stream_arguments);
}

/* ---- Groups and messages ---- */

/* Everyone sends to everyone, itself too, from all kinds of memory; beside it two all-reduces, in one group. */
static void group(member *r)
{
    float *out[MOST], *in[MOST], *plain = calloc(COUNT, sizeof *plain);
    for (int k = 0; k < r->n; k++) {
        rd_cu_address address;
        void *pinned;
        GPU(cuMemAlloc, &address, bytes());
        out[k] = (float *)(uintptr_t)address;
        if (k % 2) in[k] = malloc(bytes());
        else {
            GPU(cuMemHostAlloc, &pinned, bytes(), 0);
            in[k] = pinned;
        }
        for (int i = 0; i < COUNT; i++) r->host[i] = term(r->number, k, i);
        GPU(cuMemcpyAsync, address, (uintptr_t)r->host, bytes(), NULL);
        GPU(cuStreamSynchronize, NULL);
    }
    for (int i = 0; i < COUNT; i++) r->host[i] = plain[i] = term(r->number, 9, i);
    GPU(cuMemcpyAsync, (uintptr_t)r->send, (uintptr_t)r->host, bytes(), NULL);
    OK(rondo_group_start());
    for (int k = 0; k < r->n; k++) OK(rondo_send(out[k], COUNT, RONDO_FLOAT32, k, r->comm, NULL));
    for (int k = 0; k < r->n; k++) OK(rondo_recv(in[k], COUNT, RONDO_FLOAT32, k, r->comm, NULL));
    OK(rondo_all_reduce(r->send, r->recv, 1000, RONDO_FLOAT32, RONDO_SUM, r->comm, NULL));
    OK(rondo_all_reduce(plain, plain, 1000, RONDO_FLOAT32, RONDO_SUM, r->comm, NULL));
    OK(rondo_group_end());
    GPU(cuMemcpyAsync, (uintptr_t)r->host, (uintptr_t)r->recv, bytes(), NULL);
    GPU(cuStreamSynchronize, NULL);
    for (int i = 0; i < 1000; i++) CHECK(plain[i] == r->host[i], "element %d: %g, on the GPU %g", i, (double)plain[i], (double)r->host[i]);
    for (int k = 0; k < r->n; k++) {
        for (int i = 0; i < COUNT; i++)
            CHECK(in[k][i] == term(k, r->number, i), "from %d, element %d: %g", k, i, (double)in[k][i]);
        GPU(cuMemFree, (uintptr_t)out[k]);
        if (k % 2) free(in[k]);
        else GPU(cuMemFreeHost, in[k]);
    }
    free(plain);
}

static void groups_and_messages(void **state)
{
    (void)state;
    run(1, 1, group);
    run(3, 1, group);
    run(4, 2, group);
    test_env("RONDO_TRANSPORT", "tcp");
    run(3, 2, group);
    test_env("RONDO_TRANSPORT", NULL);
}

int main(int argc, char **argv)
{
    (void)argc;
    on_cudasim(argv, "devices=2");
    needs_kernels();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuda_streams),
        cmocka_unit_test(plain_memory_on_a_cuda_stream),
        cmocka_unit_test(after_the_legacy_stream),
        cmocka_unit_test(a_failed_call_lets_the_stream_go_on),
        cmocka_unit_test(bad_stream_arguments),
        cmocka_unit_test(groups_and_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
