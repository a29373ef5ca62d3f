/* SPDX-License-Identifier: Apache-2.0
 *
 * test_device_capture.c - calls of the library while CUDA streams are captured into graphs: refused where they would have to
 * be part of one, with the capture none the worse; carried out where they have nothing to do with it, in whichever mode and
 * thread it was begun. Two ranks are threads of this process. Over the simulated driver, or with CUDASIM=off on a GPU.
 */
#include "test.h"

#include "gpu_kit.h"
#include "on_cudasim.h"
#include "ranks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

enum { RANKS = 2, COUNT = 5003 };

typedef struct member {
    int number, device;
    rondo_unique_id id;
    rondo_comm *comm;
    rd_cu_stream cuda, other; /* both do not block; what the legacy stream waits for: */
    rd_cu_stream blocking;
    rondo_stream *stream, *second;
    float *send, *recv;
    void (*work)(struct member *m);
    pthread_t thread;
} member;

static pthread_barrier_t meeting;
static atomic_int gate;

static rd_cu_address at(const void *pointer) { return (rd_cu_address)(uintptr_t)pointer; }
static size_t bytes(void) { return COUNT * sizeof(float); }

static rondo_result add(member *m, rondo_stream *stream)
{
    return rondo_all_reduce(m->send, m->recv, COUNT, RONDO_FLOAT32, RONDO_SUM, m->comm, stream);
}

static float term(int number, int i) { return (float)((number + 1) * (i % 100)); }

static void fill(member *m, rd_cu_stream stream)
{
    float host[COUNT];
    for (int i = 0; i < COUNT; i++) host[i] = term(m->number, i);
    GPU(cuMemcpyAsync, at(m->send), at(host), bytes(), stream);
}

static void check(member *m)
{
    float host[COUNT];
    GPU(cuMemcpyAsync, at(host), at(m->recv), bytes(), m->cuda);
    GPU(cuStreamSynchronize, m->cuda);
    for (int i = 0; i < COUNT; i++)
        CHECK(host[i] == term(0, i) + term(1, i), "rank %d: element %d is %g", m->number, i, (double)host[i]);
}

/* The calls before a capture and after it work; fresh data, so that it is this call that worked. */
static void works(member *m)
{
    GPU(cuMemsetD8Async, at(m->recv), 0, bytes(), m->cuda);
    fill(m, m->cuda);
    OK(add(m, m->stream));
    OK(rondo_stream_synchronize(m->stream));
    check(m);
}

/* Nobody may allocate in the strictest mode: both ranks have what they need, before one begins. */
static void begin(rd_cu_stream stream, unsigned mode)
{
    pthread_barrier_wait(&meeting);
    GPU(cuStreamBeginCapture, stream, mode);
}

/* Nothing of the library's is in the graph. */
static void end(member *m, rd_cu_stream stream, size_t nodes)
{
    rd_cu_graph graph;
    size_t count = 99;
    GPU(cuStreamEndCapture, stream, &graph);
    GPU(cuGraphGetNodes, graph, NULL, &count);
    CHECK(count == nodes, "rank %d: %zu nodes in the graph, not %zu", m->number, count, nodes);
    GPU(cuGraphDestroy, graph);
    pthread_barrier_wait(&meeting);
}

static void refuses(rondo_result result, const char *why)
{
    CHECK(result == RONDO_INVALID_USAGE, "%s", rondo_result_string(result));
    CHECK(strstr(rondo_last_error(NULL), why), "does not say \"%s\": %s", why, rondo_last_error(NULL));
}

static const char captured[] = "the CUDA stream is being captured into a graph";

/* ---- Calls on a stream that is captured ---- */

static void on_it(member *m)
{
    static const unsigned modes[] = {RD_CU_STREAM_CAPTURE_MODE_GLOBAL, RD_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                     RD_CU_STREAM_CAPTURE_MODE_RELAXED};
    works(m);
    for (int i = 0; i < 3; i++) {
        rondo_stream *none = NULL;
        begin(m->cuda, modes[i]);
        GPU(cuMemsetD8Async, at(m->send), 0, bytes(), m->cuda);
        refuses(add(m, m->stream), captured);
        refuses(rondo_barrier(m->comm, m->stream), captured);
        refuses(rondo_stream_from_cuda(&none, m->cuda, m->comm), captured);
        CHECK(!none, "a handle in spite of the failure");
        OK(rondo_group_start());
        add(m, m->stream);
        refuses(rondo_group_end(), captured);
        end(m, m->cuda, 1);
        works(m);
    }
}

/* Drawn in by an event, as in programs that fork a capture. */
static void on_one_that_was_drawn_in(member *m)
{
    rd_cu_event event;
    GPU(cuEventCreate, &event, RD_CU_EVENT_DISABLE_TIMING);
    begin(m->other, RD_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    GPU(cuEventRecord, event, m->other);
    GPU(cuStreamWaitEvent, m->cuda, event, 0);
    refuses(add(m, m->stream), captured);
    GPU(cuMemsetD8Async, at(m->send), 0, bytes(), m->cuda);
    GPU(cuEventRecord, event, m->cuda);
    GPU(cuStreamWaitEvent, m->other, event, 0);
    rd_cu_graph graph;
    GPU(cuStreamEndCapture, m->other, &graph);
    GPU(cuGraphDestroy, graph);
    GPU(cuEventDestroy, event);
    pthread_barrier_wait(&meeting);
    works(m);
}

/* ---- The legacy stream, in whose order calls without a CUDA stream are ---- */

static void after_the_legacy_stream(member *m)
{
    static const char legacy[] = "nothing may use CUDA's legacy stream";
    rondo_stream *plain, *none = NULL;
    OK(rondo_stream_create(&plain, m->comm));
    works(m);
    begin(m->blocking, RD_CU_STREAM_CAPTURE_MODE_RELAXED);
    refuses(add(m, NULL), legacy);
    refuses(add(m, plain), legacy);
    refuses(rondo_stream_from_cuda(&none, NULL, m->comm), legacy);
    end(m, m->blocking, 0);
    OK(add(m, plain));
    OK(rondo_stream_destroy(plain));
    check(m);
}

/* ---- Calls that have nothing to do with it ---- */

static void beside_it(member *m)
{
    unsigned mode = RD_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    works(m);
    GPU(cuThreadExchangeStreamCaptureMode, &mode);
    fill(m, m->cuda);
    GPU(cuStreamSynchronize, m->cuda);
    begin(m->other, RD_CU_STREAM_CAPTURE_MODE_GLOBAL);
    GPU(cuMemsetD8Async, at(m->send), 0, bytes(), m->other);
    OK(add(m, m->stream)); /* on another stream */
    OK(rondo_stream_synchronize(m->stream));
    OK(rondo_all_gather(m->recv, m->send, 0, RONDO_FLOAT32, m->comm, m->second));
    OK(rondo_stream_synchronize(m->second));
    OK(add(m, NULL)); /* after the legacy stream, which a capture of this kind leaves alone */
    void *memory = NULL;
    OK(rondo_mem_alloc(&memory, 4096, m->comm));
    OK(rondo_mem_free(memory, m->comm));
    end(m, m->other, 1);
    check(m);
    GPU(cuThreadExchangeStreamCaptureMode, &mode);
    CHECK(mode == RD_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, "the thread's own mode has become %u", mode);
}

static void hold(void *unused)
{
    (void)unused;
    while (!atomic_load(&gate)) nanosleep(&(struct timespec){0, 100000}, NULL);
}

/* A call that was given before has begun to wait for its turn on the GPU: the thread that looks after it neither spoils the
 * capture that another one begins, nor takes the driver's refusal for the turn. */
static void while_one_waits(member *m)
{
    works(m);
    pthread_barrier_wait(&meeting);
    atomic_store(&gate, 0);
    GPU(cuMemsetD8Async, at(m->send), 0, bytes(), m->cuda);
    GPU(cuMemsetD8Async, at(m->recv), 0, bytes(), m->cuda);
    pthread_barrier_wait(&meeting);
    GPU(cuLaunchHostFunc, m->cuda, hold, NULL);
    float host[COUNT];
    for (int i = 0; i < COUNT; i++) host[i] = term(m->number, i);
    GPU(cuMemcpyAsync, at(m->send), at(host), bytes(), m->cuda);
    OK(add(m, m->stream));
    begin(m->other, RD_CU_STREAM_CAPTURE_MODE_GLOBAL);
    nanosleep(&(struct timespec){0, 30000000}, NULL);
    CHECK(rondo_stream_query(m->stream) == RONDO_IN_PROGRESS, "the call did not wait for what was before it");
    end(m, m->other, 0);
    atomic_store(&gate, 1);
    OK(rondo_stream_synchronize(m->stream));
    check(m);
}

/* ---- Ranks ---- */

static void *be_rank(void *argument)
{
    member *m = argument;
    rondo_config config = RONDO_CONFIG_INIT;
    rd_cu_context context;
    void *memory[2];
    config.timeout_s = 20 * test_slowness();
    config.slice_bytes = 4096;
    config.device = m->device;
    GPU(cuDevicePrimaryCtxRetain, &context, m->device);
    GPU(cuCtxSetCurrent, context);
    OK(rondo_init_rank(&m->comm, RANKS, m->id, m->number, &config));
    for (int i = 0; i < 2; i++) OK(rondo_mem_alloc(&memory[i], bytes(), m->comm));
    m->send = memory[0], m->recv = memory[1];
    GPU(cuStreamCreateWithPriority, &m->cuda, RD_CU_STREAM_NON_BLOCKING, 0);
    GPU(cuStreamCreateWithPriority, &m->other, RD_CU_STREAM_NON_BLOCKING, 0);
    GPU(cuStreamCreateWithPriority, &m->blocking, RD_CU_STREAM_DEFAULT, 0);
    OK(rondo_stream_from_cuda(&m->stream, m->cuda, m->comm));
    OK(rondo_stream_create(&m->second, m->comm));
    m->work(m);
    OK(rondo_stream_destroy(m->stream));
    OK(rondo_stream_destroy(m->second));
    GPU(cuStreamDestroy, m->cuda);
    GPU(cuStreamDestroy, m->other);
    GPU(cuStreamDestroy, m->blocking);
    for (int i = 0; i < 2; i++) OK(rondo_mem_free(memory[i], m->comm));
    rondo_comm_destroy(m->comm);
    GPU(cuDevicePrimaryCtxRelease, m->device);
    return NULL;
}

static void run(void (*work)(member *))
{
    static member all[RANKS];
    rondo_unique_id id;
    assert_int_equal(rondo_get_unique_id(&id), RONDO_SUCCESS);
    pthread_barrier_init(&meeting, NULL, RANKS);
    for (int k = 0; k < RANKS; k++) {
        all[k] = (member){.number = k, .device = k % rd_gpu_count(), .id = id, .work = work};
        assert_int_equal(pthread_create(&all[k].thread, NULL, be_rank, &all[k]), 0);
    }
    for (int k = 0; k < RANKS; k++) pthread_join(all[k].thread, NULL);
    pthread_barrier_destroy(&meeting);
}

static void test_on_a_captured_stream(void **state)
{
    (void)state;
    run(on_it);
    run(on_one_that_was_drawn_in);
}

static void test_after_the_legacy_stream(void **state)
{
    (void)state;
    run(after_the_legacy_stream);
}

static void test_beside_a_capture(void **state)
{
    (void)state;
    run(beside_it);
    run(while_one_waits);
}

int main(int argc, char **argv)
{
    (void)argc;
    on_cudasim(argv, "devices=2");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_on_a_captured_stream),
        cmocka_unit_test(test_after_the_legacy_stream),
        cmocka_unit_test(test_beside_a_capture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
