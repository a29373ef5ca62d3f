/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cudasim_capture.c - the simulated driver's rules for streams that are captured into graphs, as the driver's
 * documentation has them: what is forbidden meanwhile, to whom, and that it spoils the capture.
 */
#include "gpu_kit.h"
#include "on_cudasim.h"

#include <pthread.h>

static rd_cu_stream stream, blocking;
static rd_cu_address memory;

static int set_up(void **state)
{
    (void)state;
    gpu_enter(0);
    stream = gpu_stream(RD_CU_STREAM_NON_BLOCKING);
    blocking = gpu_stream(RD_CU_STREAM_DEFAULT);
    memory = gpu_alloc(64);
    return 0;
}

static int tear_down(void **state)
{
    struct cudasim_held held;
    (void)state;
    CU(cuMemFree, memory);
    CU(cuStreamDestroy, stream);
    CU(cuStreamDestroy, blocking);
    gpu_leave(0);
    cudasim_held(&held);
    assert_int_equal(held.contexts + held.streams + held.events + held.device_memory, 0);
    return 0;
}

static unsigned status_of(rd_cu_stream s)
{
    unsigned status = 99;
    CU(cuStreamIsCapturing, s, &status);
    return status;
}

static void ends_spoiled(rd_cu_stream s)
{
    rd_cu_graph graph;
    assert_int_equal(status_of(s), RD_CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    CU_FAILS(ERROR_STREAM_CAPTURE_INVALIDATED, cuMemsetD8Async, memory, 1, 8, s);
    CU_FAILS(ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture, s, &graph);
    assert_null(graph);
    assert_int_equal(status_of(s), RD_CU_STREAM_CAPTURE_STATUS_NONE);
}

static void ends_with(rd_cu_stream s, size_t nodes)
{
    rd_cu_graph graph;
    size_t count = 99;
    assert_int_equal(status_of(s), RD_CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CU(cuStreamEndCapture, s, &graph);
    CU(cuGraphGetNodes, graph, NULL, &count);
    assert_int_equal(count, nodes);
    CU(cuGraphDestroy, graph);
    CU_FAILS(ERROR_INVALID_VALUE, cuGraphDestroy, graph);
    assert_int_equal(status_of(s), RD_CU_STREAM_CAPTURE_STATUS_NONE);
}

static void is_recorded_and_not_done(void **state)
{
    unsigned char bytes[8];
    rd_cu_graph graph;
    (void)state;
    CU(cuMemsetD8Async, memory, 1, 8, stream);
    CU(cuStreamSynchronize, stream);
    CU_FAILS(ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture, NULL, RD_CU_STREAM_CAPTURE_MODE_GLOBAL);
    CU_FAILS(ERROR_ILLEGAL_STATE, cuStreamEndCapture, stream, &graph);
    CU(cuStreamBeginCapture, stream, RD_CU_STREAM_CAPTURE_MODE_GLOBAL);
    CU_FAILS(ERROR_ILLEGAL_STATE, cuStreamBeginCapture, stream, RD_CU_STREAM_CAPTURE_MODE_GLOBAL);
    CU(cuMemsetD8Async, memory, 2, 8, stream);
    CU(cuMemsetD8Async, memory, 3, 8, stream);
    ends_with(stream, 2);
    CU(cuStreamSynchronize, stream);
    gpu_get(bytes, memory, 8);
    for (int i = 0; i < 8; i++) assert_int_equal(bytes[i], 1);
}

static void is_not_waited_for(void **state)
{
    (void)state;
    CU(cuStreamBeginCapture, stream, RD_CU_STREAM_CAPTURE_MODE_RELAXED);
    CU_FAILS(ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery, stream);
    ends_spoiled(stream);
    CU(cuStreamBeginCapture, stream, RD_CU_STREAM_CAPTURE_MODE_RELAXED);
    CU_FAILS(ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize, stream);
    ends_spoiled(stream);
}

static void the_legacy_stream_waits_for_blocking_ones(void **state)
{
    unsigned status;
    (void)state;
    CU(cuStreamBeginCapture, blocking, RD_CU_STREAM_CAPTURE_MODE_RELAXED);
    CU_FAILS(ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing, NULL, &status);
    assert_int_equal(status_of(blocking), RD_CU_STREAM_CAPTURE_STATUS_ACTIVE); /* to ask does no harm */
    CU_FAILS(ERROR_STREAM_CAPTURE_IMPLICIT, cuMemsetD8Async, memory, 1, 8, NULL);
    ends_spoiled(blocking);
    CU(cuStreamBeginCapture, stream, RD_CU_STREAM_CAPTURE_MODE_RELAXED);
    CU(cuMemsetD8Async, memory, 1, 8, NULL);
    ends_with(stream, 0);
}

static void events_draw_streams_in(void **state)
{
    rd_cu_event event;
    (void)state;
    CU(cuEventCreate, &event, RD_CU_EVENT_DISABLE_TIMING);
    CU(cuStreamBeginCapture, stream, RD_CU_STREAM_CAPTURE_MODE_RELAXED);
    CU(cuEventRecord, event, stream);
    CU_FAILS(ERROR_CAPTURED_EVENT, cuEventQuery, event);
    CU_FAILS(ERROR_CAPTURED_EVENT, cuEventSynchronize, event);
    CU(cuStreamWaitEvent, blocking, event, 0);
    assert_int_equal(status_of(blocking), RD_CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CU(cuMemsetD8Async, memory, 1, 8, blocking);
    ends_with(stream, 3);
    assert_int_equal(status_of(blocking), RD_CU_STREAM_CAPTURE_STATUS_NONE);
    CU_FAILS(ERROR_CAPTURED_EVENT, cuStreamWaitEvent, blocking, event, 0);
    CU(cuEventRecord, event, stream);
    CU(cuEventSynchronize, event);
    CU(cuEventDestroy, event);
}

/* ---- What might wait: by this thread and by another, in each mode of theirs ---- */

static rd_cu_result alloc_as(unsigned mode)
{
    rd_cu_address more;
    unsigned mine = mode, relaxed = RD_CU_STREAM_CAPTURE_MODE_RELAXED;
    CU(cuThreadExchangeStreamCaptureMode, &mine);
    rd_cu_result result = rd_gpu_driver()->cuMemAlloc(&more, 64);
    CU(cuThreadExchangeStreamCaptureMode, &relaxed);
    assert_int_equal(relaxed, mode);
    if (result == RD_CU_SUCCESS) CU(cuMemFree, more);
    CU(cuThreadExchangeStreamCaptureMode, &mine);
    return result;
}

static void *alloc_elsewhere(void *mode)
{
    gpu_enter(0);
    rd_cu_result result = alloc_as(*(unsigned *)mode);
    gpu_leave(0);
    *(unsigned *)mode = result;
    return NULL;
}

static void modes_forbid(void **state)
{
    enum { GLOBAL, LOCAL, RELAXED };
    static const struct {
        unsigned capture, thread;
        bool elsewhere, allowed;
    } cases[] = {
        {GLOBAL, GLOBAL, false, false}, {GLOBAL, LOCAL, false, false},  {GLOBAL, RELAXED, false, true},
        {LOCAL, GLOBAL, false, false},  {RELAXED, GLOBAL, false, true}, {GLOBAL, GLOBAL, true, false},
        {GLOBAL, LOCAL, true, true},    {GLOBAL, RELAXED, true, true},  {LOCAL, GLOBAL, true, true},
        {RELAXED, GLOBAL, true, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned mode_or_result = cases[i].thread;
        pthread_t thread;
        CU(cuStreamBeginCapture, stream, cases[i].capture);
        if (cases[i].elsewhere) {
            assert_int_equal(pthread_create(&thread, NULL, alloc_elsewhere, &mode_or_result), 0);
            pthread_join(thread, NULL);
        } else {
            mode_or_result = alloc_as(mode_or_result);
        }
        assert_int_equal(mode_or_result, cases[i].allowed ? RD_CU_SUCCESS : RD_CU_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        if (cases[i].allowed)
            ends_with(stream, 0);
        else
            ends_spoiled(stream);
    }
}

static void *end_here(void *argument)
{
    rd_cu_graph graph;
    gpu_enter(0);
    CU_FAILS(ERROR_STREAM_CAPTURE_WRONG_THREAD, cuStreamEndCapture, stream, &graph);
    gpu_leave(0);
    return argument;
}

static void ends_where_it_began(void **state)
{
    pthread_t thread;
    (void)state;
    CU(cuStreamBeginCapture, stream, RD_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    assert_int_equal(pthread_create(&thread, NULL, end_here, NULL), 0);
    pthread_join(thread, NULL);
    ends_with(stream, 0);
}

int main(int argc, char **argv)
{
    (void)argc;
    on_cudasim(argv, "devices=1");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(is_recorded_and_not_done, set_up, tear_down),
        cmocka_unit_test_setup_teardown(is_not_waited_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_legacy_stream_waits_for_blocking_ones, set_up, tear_down),
        cmocka_unit_test_setup_teardown(events_draw_streams_in, set_up, tear_down),
        cmocka_unit_test_setup_teardown(modes_forbid, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ends_where_it_began, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
