/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cudasim.c - the simulated driver keeps the rules of the real one: memory, pointers, streams, events, and who may
 * call.
 */
#include "gpu_kit.h"
#include "on_cudasim.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

static void assert_nothing_held(void)
{
    struct cudasim_held held;
    static const struct cudasim_held nothing;
    cudasim_held(&held);
    assert_memory_equal(&held, &nothing, sizeof held);
}

/* ---- Memory -------------------------------------------------------------------------------------------------------
 */

static void test_fresh_memory_and_its_end(void **state)
{
    (void)state;
    unsigned char bytes[1000];
    size_t before, after, total;
    gpu_enter(0);
    CU(cuMemGetInfo, &before, &total);
    rd_cu_address a = gpu_alloc(1000), b = gpu_alloc(1000);
    assert_int_equal(a % 256, 0);
    CU(cuMemGetInfo, &after, &total);
    assert_true(total == (size_t)64 << 20 && before - after >= 2000);
    gpu_get(bytes, a, sizeof bytes);
    for (int i = 0; i < 1000; i++) assert_int_equal(bytes[i], 0xFB);
    CU_FAILS(ERROR_INVALID_VALUE, cuMemcpyAsync, a, b, 1001, NULL);
    CU_FAILS(ERROR_INVALID_VALUE, cuMemcpyAsync, a + 1, b, 1000, NULL);
    CU_FAILS(ERROR_INVALID_VALUE, cuMemsetD8Async, a + 999, 1, 2, NULL);
    CU_FAILS(ERROR_INVALID_VALUE, cuMemFree, a + 8);
    CU(cuMemFree, a);
    CU_FAILS(ERROR_INVALID_VALUE, cuMemFree, a);
    CU_FAILS(ERROR_INVALID_VALUE, cuMemcpyAsync, b, a, 8, NULL);
    CU(cuMemFree, b);
    CU(cuMemFree, 0);
    CU(cuMemGetInfo, &after, &total);
    assert_int_equal(after, before);
    gpu_leave(0);
    assert_nothing_held();
}

static void test_memory_ends(void **state)
{
    (void)state;
    rd_cu_address a = 0, b = 0;
    gpu_enter(0);
    CU_FAILS(ERROR_OUT_OF_MEMORY, cuMemAlloc, &a, (size_t)65 << 20);
    CU_FAILS(ERROR_INVALID_VALUE, cuMemAlloc, &a, 0);
    CU(cuMemAlloc, &a, (size_t)40 << 20);
    CU_FAILS(ERROR_OUT_OF_MEMORY, cuMemAlloc, &b, (size_t)40 << 20);
    assert_int_equal(b, 0);
    gpu_enter(1); /* every device has its own */
    CU(cuMemAlloc, &b, (size_t)40 << 20);
    CU(cuMemFree, b);
    gpu_leave(1);
    CU(cuMemFree, a);
    /* Addresses come round. */
    for (int i = 0; i < 20; i++) {
        CU(cuMemAlloc, &a, (size_t)20 << 20);
        CU(cuMemFree, a);
    }
    gpu_leave(0);
}

/* A write past the end of an allocation, by a program that could: the driver says so when the memory is freed. */
static void test_watched_ends(void **state)
{
    (void)state;
    int status;
    char said[512];
    hear_errors();
    pid_t child = fork(); /* of a process that has not begun to use the driver: see main */
    if (child == 0) {
        alarm(20);
        gpu_enter(0);
        rd_cu_address a = gpu_alloc(100);
        ((volatile char *)(uintptr_t)a)[100] = 1;
        CU(cuMemFree, a);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    heard(said, sizeof said);
    assert_true(status != 0);
    if (strstr(said, "wrote 1 bytes past the end of an allocation of 100 bytes") == NULL &&
        strstr(said, "use-after-poison") == NULL)
        fail_msg("says \"%s\"", said);
}

/* What cuPointerGetAttributes says. */
struct pointer {
    unsigned type, managed, mapped;
    int device;
    rd_cu_address start, address;
    size_t bytes;
    rd_cu_context context;
    void *host;
};

static struct pointer pointer_of(rd_cu_address address)
{
    struct pointer p;
    memset(&p, 0x55, sizeof p);
    unsigned which[] = {RD_CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      RD_CU_POINTER_ATTRIBUTE_IS_MANAGED,
                        RD_CU_POINTER_ATTRIBUTE_MAPPED,           RD_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                        RD_CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, RD_CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                        RD_CU_POINTER_ATTRIBUTE_RANGE_SIZE,       RD_CU_POINTER_ATTRIBUTE_CONTEXT,
                        RD_CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void *values[] = {&p.type, &p.managed, &p.mapped, &p.device, &p.start, &p.address, &p.bytes, &p.context, &p.host};
    CU(cuPointerGetAttributes, sizeof which / sizeof *which, which, values, address);
    return p;
}

static void test_what_a_pointer_is(void **state)
{
    (void)state;
    static char plain[8192];
    void *pinned;
    rd_cu_address managed, there;
    rd_cu_context context = gpu_enter(1);
    rd_cu_address device = gpu_alloc(100);
    struct pointer p = pointer_of(device + 99);
    assert_true(p.type == RD_CU_MEMORYTYPE_DEVICE && p.device == 1 && p.start == device && p.bytes == 100);
    assert_true(p.context == context && p.host == NULL && p.address == device + 99 && p.managed == 0);
    p = pointer_of(device + 100);
    assert_true(p.type == 0 && p.context == NULL && p.start == 0);
    CU(cuMemHostAlloc, &pinned, 100, RD_CU_MEMHOSTALLOC_PORTABLE);
    p = pointer_of((uintptr_t)pinned);
    assert_true(p.type == RD_CU_MEMORYTYPE_HOST && p.host == pinned && p.managed == 0);
    CU(cuMemHostGetDevicePointer, &there, pinned, 0);
    assert_true(p.address == there);
    CU(cuMemAllocManaged, &managed, 100, RD_CU_MEM_ATTACH_GLOBAL);
    assert_int_equal(pointer_of(managed).managed, 1);
    assert_int_equal(pointer_of((uintptr_t)plain).type, 0);
    CU_FAILS(ERROR_INVALID_VALUE, cuMemHostGetDevicePointer, &there, plain, 0);
    CU(cuMemHostRegister, plain, 100, RD_CU_MEMHOSTREGISTER_PORTABLE);
    assert_int_equal(pointer_of((uintptr_t)plain + 99).type, RD_CU_MEMORYTYPE_HOST);
    assert_int_equal(pointer_of((uintptr_t)plain + 100).type, 0);
    /* Pages are pinned, and only once. */
    CU_FAILS(ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister, plain + 100, 100, 0);
    CU_FAILS(ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister, plain + 1);
    CU(cuMemHostUnregister, plain);
    CU_FAILS(ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister, plain);
    CU(cuMemFreeHost, pinned);
    CU(cuMemFree, managed);
    CU(cuMemFree, device);
    gpu_leave(1);
    assert_nothing_held();
}

/* ---- Streams ------------------------------------------------------------------------------------------------------
 */

static atomic_int gate, order, seen[8];

static void hold(void *unused)
{
    (void)unused;
    while (atomic_load(&gate) == 0) usleep(100);
}

static void take_number(void *place)
{
    atomic_store((atomic_int *)place, atomic_fetch_add(&order, 1) + 1);
}

static void streams_begin(void)
{
    atomic_store(&gate, 0);
    atomic_store(&order, 0);
    for (int i = 0; i < 8; i++) atomic_store(&seen[i], 0);
}

static void test_a_stream_is_in_order_and_asynchronous(void **state)
{
    (void)state;
    streams_begin();
    gpu_enter(0);
    rd_cu_stream s = gpu_stream(RD_CU_STREAM_NON_BLOCKING);
    CU(cuStreamQuery, s);
    CU(cuLaunchHostFunc, s, hold, NULL);
    for (int i = 0; i < 3; i++) CU(cuLaunchHostFunc, s, take_number, &seen[i]);
    CU_FAILS(ERROR_NOT_READY, cuStreamQuery, s);
    assert_int_equal(atomic_load(&order), 0);
    atomic_store(&gate, 1);
    CU(cuStreamSynchronize, s);
    CU(cuStreamQuery, s);
    for (int i = 0; i < 3; i++) assert_int_equal(atomic_load(&seen[i]), i + 1);
    CU(cuStreamDestroy, s);
    CU_FAILS(ERROR_INVALID_HANDLE, cuStreamQuery, s);
    CU_FAILS(ERROR_INVALID_HANDLE, cuStreamDestroy, s);
    gpu_leave(0);
    assert_nothing_held();
}

/* blocking: held; legacy: 0, waits for it; blocking: 1, waits for that; non-blocking: waits for nobody. */
static void test_legacy_order(void **state)
{
    (void)state;
    streams_begin();
    gpu_enter(0);
    rd_cu_stream held = gpu_stream(RD_CU_STREAM_DEFAULT), later = gpu_stream(RD_CU_STREAM_DEFAULT);
    rd_cu_stream apart = gpu_stream(RD_CU_STREAM_NON_BLOCKING);
    CU(cuLaunchHostFunc, held, hold, NULL);
    CU(cuLaunchHostFunc, NULL, take_number, &seen[0]);
    CU(cuLaunchHostFunc, later, take_number, &seen[1]);
    CU(cuLaunchHostFunc, RD_CU_STREAM_PER_THREAD, take_number, &seen[2]);
    CU(cuLaunchHostFunc, apart, take_number, &seen[3]);
    CU(cuStreamSynchronize, apart);
    assert_int_equal(atomic_load(&seen[3]), 1);
    assert_int_equal(atomic_load(&order), 1);
    atomic_store(&gate, 1);
    CU(cuCtxSynchronize);
    assert_int_equal(atomic_load(&seen[0]), 2);
    assert_int_equal(atomic_load(&seen[1]) + atomic_load(&seen[2]), 3 + 4);
    CU(cuStreamDestroy, held);
    CU(cuStreamDestroy, later);
    CU(cuStreamDestroy, apart);
    gpu_leave(0);
}

static void test_events(void **state)
{
    (void)state;
    rd_cu_event event;
    streams_begin();
    gpu_enter(0);
    rd_cu_stream a = gpu_stream(RD_CU_STREAM_NON_BLOCKING), b = gpu_stream(RD_CU_STREAM_NON_BLOCKING);
    CU(cuEventCreate, &event, RD_CU_EVENT_DISABLE_TIMING);
    CU(cuEventQuery, event);
    CU(cuStreamWaitEvent, b, event, 0); /* never recorded: holds up nobody */
    CU(cuStreamSynchronize, b);
    CU(cuLaunchHostFunc, a, hold, NULL);
    CU(cuEventRecord, event, a);
    CU(cuStreamWaitEvent, b, event, 0);
    CU(cuLaunchHostFunc, b, take_number, &seen[0]);
    CU_FAILS(ERROR_NOT_READY, cuEventQuery, event);
    CU_FAILS(ERROR_NOT_READY, cuStreamQuery, b);
    atomic_store(&gate, 1);
    CU(cuEventSynchronize, event);
    CU(cuStreamSynchronize, b);
    assert_int_equal(atomic_load(&seen[0]), 1);
    gpu_enter(1); /* an event is recorded in its own context, and waited for in any */
    CU_FAILS(ERROR_INVALID_HANDLE, cuEventRecord, event, NULL);
    CU(cuStreamWaitEvent, NULL, event, 0);
    gpu_leave(1);
    CU(cuEventDestroy, event);
    CU_FAILS(ERROR_INVALID_HANDLE, cuEventQuery, event);
    CU(cuStreamDestroy, a);
    CU(cuStreamDestroy, b);
    gpu_leave(0);
    assert_nothing_held();
}

/* What lies between two events, on a clock of half microseconds. */
static void test_events_tell_time(void **state)
{
    (void)state;
    rd_cu_event from, to, untimed;
    float ms = -1;
    streams_begin();
    gpu_enter(0);
    rd_cu_stream s = gpu_stream(RD_CU_STREAM_NON_BLOCKING);
    CU(cuEventCreate, &from, RD_CU_EVENT_DEFAULT);
    CU(cuEventCreate, &to, RD_CU_EVENT_DEFAULT);
    CU(cuEventCreate, &untimed, RD_CU_EVENT_DISABLE_TIMING);
    CU_FAILS(ERROR_INVALID_HANDLE, cuEventElapsedTime, &ms, from, to); /* not recorded */
    CU(cuEventRecord, from, s);
    CU(cuEventRecord, untimed, s);
    CU(cuLaunchHostFunc, s, hold, NULL);
    CU(cuEventRecord, to, s);
    CU_FAILS(ERROR_NOT_READY, cuEventElapsedTime, &ms, from, to);
    usleep(3000);
    atomic_store(&gate, 1);
    CU(cuStreamSynchronize, s);
    CU_FAILS(ERROR_INVALID_HANDLE, cuEventElapsedTime, &ms, from, untimed);
    CU(cuEventElapsedTime, &ms, from, to);
    assert_true(ms >= 1 && ms < 10000);
    CU(cuEventDestroy, from);
    CU(cuEventDestroy, to);
    CU(cuEventDestroy, untimed);
    CU(cuStreamDestroy, s);
    gpu_leave(0);
    assert_nothing_held();
}

static void test_words_that_streams_write_and_wait_for(void **state)
{
    (void)state;
    uint32_t *words;
    gpu_enter(0);
    rd_cu_stream a = gpu_stream(RD_CU_STREAM_NON_BLOCKING), b = gpu_stream(RD_CU_STREAM_NON_BLOCKING);
    CU(cuMemHostAlloc, (void **)&words, 64, 0);
    rd_cu_address at = (uintptr_t)words;
    memset(words, 0, 64);
    CU(cuStreamWaitValue32, a, at, 5, RD_CU_STREAM_WAIT_VALUE_GEQ);
    CU(cuStreamWriteValue32, a, at + 4, 7, RD_CU_STREAM_WRITE_VALUE_DEFAULT);
    CU(cuStreamWaitValue64, b, at + 8, 3, RD_CU_STREAM_WAIT_VALUE_EQ);
    CU_FAILS(ERROR_NOT_READY, cuStreamQuery, a);
    CU(cuStreamWriteValue64, a, at + 8, 3, RD_CU_STREAM_WRITE_VALUE_DEFAULT);
    usleep(2000);
    assert_int_equal(__atomic_load_n(&words[1], __ATOMIC_ACQUIRE), 0);
    __atomic_store_n(&words[0], 6, __ATOMIC_RELEASE);
    CU(cuStreamSynchronize, b);
    assert_int_equal(words[1], 7);
    /* Cyclic: a counter that has wrapped is beyond one that has not. */
    words[0] = 2;
    CU(cuStreamWaitValue32, a, at, UINT32_MAX - 3, RD_CU_STREAM_WAIT_VALUE_GEQ);
    CU(cuStreamSynchronize, a);
    CU_FAILS(ERROR_INVALID_VALUE, cuStreamWriteValue32, a, at + 2, 7, 0);
    CU_FAILS(ERROR_INVALID_VALUE, cuStreamWriteValue32, a, at + 64, 7, 0);
    CU(cuStreamDestroy, a);
    CU(cuStreamDestroy, b);
    CU(cuMemFreeHost, words);
    gpu_leave(0);
}

/* Small copies from pageable memory are taken at the call, large ones and those to it are done when the call returns.
 */
static void test_pageable_copies(void **state)
{
    (void)state;
    static unsigned char source[100 << 10], back[100 << 10];
    streams_begin();
    gpu_enter(0);
    rd_cu_stream s = gpu_stream(RD_CU_STREAM_NON_BLOCKING);
    rd_cu_address device = gpu_alloc(sizeof source);
    for (size_t i = 0; i < sizeof source; i++) source[i] = (unsigned char)(i * 7);
    CU(cuMemcpyAsync, device, (uintptr_t)source, sizeof source, s);
    CU(cuStreamQuery, s);
    CU(cuLaunchHostFunc, s, hold, NULL);
    CU(cuMemcpyAsync, device, (uintptr_t)source, 1000, s);
    memset(source, 0, 1000);
    atomic_store(&gate, 1);
    CU(cuMemcpyAsync, (uintptr_t)back, device, sizeof back, s);
    for (size_t i = 0; i < sizeof back; i++) assert_int_equal(back[i], (unsigned char)(i * 7));
    CU(cuMemFree, device);
    CU(cuStreamDestroy, s);
    gpu_leave(0);
}

/* ---- Who may call, and what is lost
 * ----------------------------------------------------------------------------------- */

static atomic_int called;

static void call_the_driver(void *stream)
{
    atomic_store(&called, (int)rd_gpu_driver()->cuStreamQuery(stream));
}

static void test_host_functions_must_not_call(void **state)
{
    (void)state;
    char said[256];
    gpu_enter(0);
    rd_cu_stream s = gpu_stream(RD_CU_STREAM_NON_BLOCKING);
    hear_errors();
    CU(cuLaunchHostFunc, s, call_the_driver, s);
    CU(cuStreamSynchronize, s);
    heard(said, sizeof said);
    assert_int_equal(atomic_load(&called), RD_CU_ERROR_NOT_PERMITTED);
    assert_non_null(strstr(said, "cuStreamQuery is called by a host function"));
    CU(cuStreamDestroy, s);
    gpu_leave(0);
}

static void test_contexts(void **state)
{
    (void)state;
    rd_cu_context a, b, current;
    rd_cu_address address;
    int device;
    CU_FAILS(ERROR_INVALID_CONTEXT, cuMemAlloc, &address, 8);
    CU_FAILS(ERROR_INVALID_CONTEXT, cuStreamSynchronize, NULL);
    CU_FAILS(ERROR_INVALID_DEVICE, cuDevicePrimaryCtxRetain, &a, 4);
    CU(cuDevicePrimaryCtxRetain, &a, 0);
    CU(cuDevicePrimaryCtxRetain, &b, 0);
    assert_ptr_equal(a, b);
    CU(cuCtxGetCurrent, &current);
    assert_null(current);
    CU(cuCtxSetCurrent, a);
    b = gpu_enter(1);
    CU(cuCtxGetDevice, &device);
    assert_int_equal(device, 1);
    CU_FAILS(ERROR_INVALID_DEVICE, cuCtxEnablePeerAccess, b, 0);
    CU(cuCtxEnablePeerAccess, a, 0);
    CU_FAILS(ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess, a, 0);
    gpu_leave(1);
    CU(cuDevicePrimaryCtxRelease, 0);
    CU(cuCtxGetDevice, &device);
    CU(cuDevicePrimaryCtxRelease, 0);
    CU(cuCtxSetCurrent, NULL);
    CU_FAILS(ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease, 0);
    CU_FAILS(ERROR_INVALID_CONTEXT, cuCtxPushCurrent, a);
    assert_nothing_held();
}

static void test_failures_that_are_asked_for(void **state)
{
    (void)state;
    rd_cu_address address;
    struct cudasim_held held;
    gpu_enter(0);
    unsigned long before = cudasim_calls("cuMemAlloc");
    assert_int_equal(cudasim_fail("cuMemAlloc", 2, RD_CU_ERROR_OUT_OF_MEMORY, 0), 0);
    assert_int_equal(cudasim_fail("cuNothing", 1, 2, 0), -1);
    address = gpu_alloc(8);
    CU_FAILS(ERROR_OUT_OF_MEMORY, cuMemAlloc, &address, 8);
    gpu_alloc(8);
    assert_int_equal(cudasim_calls("cuMemAlloc") - before, 3);
    cudasim_held(&held);
    assert_true(held.device_memory == 2 && held.contexts == 1);
    gpu_leave(0); /* what was left in the context goes with it */
    assert_nothing_held();
}

/* A device that is lost while streams wait: nothing of them is done any more, and every call says so. */
static void test_lost_device(void **state)
{
    (void)state;
    uint32_t *word;
    gpu_enter(0);
    rd_cu_stream s = gpu_stream(RD_CU_STREAM_NON_BLOCKING);
    CU(cuMemHostAlloc, (void **)&word, 64, 0);
    *word = 0;
    CU(cuStreamWaitValue32, s, (uintptr_t)word, 1, RD_CU_STREAM_WAIT_VALUE_GEQ);
    CU(cuStreamWriteValue32, s, (uintptr_t)word + 4, 1, 0);
    cudasim_fail("cuEventCreate", 1, RD_CU_ERROR_ECC_UNCORRECTABLE, 1);
    rd_cu_event event;
    CU_FAILS(ERROR_ECC_UNCORRECTABLE, cuEventCreate, &event, 0);
    CU_FAILS(ERROR_ECC_UNCORRECTABLE, cuStreamSynchronize, s);
    CU_FAILS(ERROR_ECC_UNCORRECTABLE, cuStreamQuery, s);
    CU_FAILS(ERROR_ECC_UNCORRECTABLE, cuLaunchHostFunc, s, hold, NULL);
    gpu_enter(1); /* other devices go on */
    CU(cuMemFree, gpu_alloc(8));
    gpu_leave(1);
    gpu_leave(0);
    assert_nothing_held();
}

int main(int argc, char **argv)
{
    (void)argc;
    on_cudasim(argv, "devices=4 memory=64M");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_watched_ends), /* first: its child has to be the first to use the driver */
        cmocka_unit_test(test_fresh_memory_and_its_end),
        cmocka_unit_test(test_memory_ends),
        cmocka_unit_test(test_what_a_pointer_is),
        cmocka_unit_test(test_a_stream_is_in_order_and_asynchronous),
        cmocka_unit_test(test_legacy_order),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_events_tell_time),
        cmocka_unit_test(test_words_that_streams_write_and_wait_for),
        cmocka_unit_test(test_pageable_copies),
        cmocka_unit_test(test_host_functions_must_not_call),
        cmocka_unit_test(test_contexts),
        cmocka_unit_test(test_failures_that_are_asked_for),
        cmocka_unit_test(test_lost_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
