/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cudasim_share.c - memory and events of the simulated driver in two processes: IPC handles, and memory that is
 * made, exported as a descriptor and mapped.
 */
#include "base/clock.h"
#include "base/sock.h"
#include "base/status.h"
#include "gpu_kit.h"
#include "on_cudasim.h"
#include "ranks.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 1000, GRANULE = 2 << 20 };

/* What two processes tell each other; they go on together. */
struct table {
    atomic_int steps;
    rd_cu_ipc_memory memory;
    rd_cu_ipc_event event;
    atomic_int gate;
    int sockets[2];
};

static void meet(struct table *table, int step)
{
    atomic_fetch_add(&table->steps, 1);
    while (atomic_load(&table->steps) < 2 * step) usleep(200);
}

/* Runs both as children: the driver is for processes that have not been forked since they began to use it. */
static void run_both(const char *settings, const char *visible, void (*first)(struct table *),
                     void (*second)(struct table *))
{
    struct table *table = test_shared(sizeof *table);
    void (*part[2])(struct table *) = {first, second};
    pid_t child[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, table->sockets), 0);
    for (int i = 0; i < 2; i++) {
        child[i] = fork();
        assert_true(child[i] >= 0);
        if (child[i] != 0) continue;
        alarm(30);
        test_env("CMOCKA_TEST_ABORT", "1"); /* what fails here ends this process */
        test_env("CUDASIM", settings);
        if (i == 1) test_env("CUDA_VISIBLE_DEVICES", visible);
        part[i](table);
        _exit(0);
    }
    for (int i = 0; i < 2; i++) {
        int status;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_int_equal(status, 0);
    }
    close(table->sockets[0]);
    close(table->sockets[1]);
    munmap(table, sizeof *table);
}

/* ---- IPC handles --------------------------------------------------------------------------------------------------
 */

static void export_memory(struct table *table)
{
    static uint32_t values[COUNT];
    rd_cu_address again;
    gpu_enter(0);
    rd_cu_address memory = gpu_alloc(sizeof values);
    for (uint32_t i = 0; i < COUNT; i++) values[i] = 3 * i;
    gpu_put(memory, values, sizeof values);
    CU(cuIpcGetMemHandle, &table->memory, memory + 40); /* of the allocation that holds it */
    CU_FAILS(ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle, &again, table->memory, RD_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    CU_FAILS(ERROR_INVALID_VALUE, cuIpcGetMemHandle, &table->memory, (uintptr_t)values);
    meet(table, 1);
    meet(table, 2);
    gpu_get(values, memory, sizeof values);
    for (uint32_t i = 0; i < COUNT; i++) CHECK(values[i] == (i < 10 ? 0x11111111 : 3 * i), "%u: %u", i, values[i]);
    gpu_leave(0);
    meet(table, 3);
}

static void import_memory(struct table *table)
{
    static uint32_t values[COUNT];
    rd_cu_address a, b, start;
    size_t bytes;
    rd_cu_ipc_memory wrong;
    gpu_enter(0);
    meet(table, 1);
    memset(&wrong, 0, sizeof wrong);
    CU_FAILS(ERROR_INVALID_VALUE, cuIpcOpenMemHandle, &a, wrong, RD_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    CU_FAILS(ERROR_INVALID_VALUE, cuIpcOpenMemHandle, &a, table->memory, 0);
    CU(cuIpcOpenMemHandle, &a, table->memory, RD_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    CU(cuIpcOpenMemHandle, &b, table->memory, RD_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    CHECK(a == b, "one address for one handle");
    CU(cuMemGetAddressRange, &start, &bytes, a + 100);
    CHECK(start == a && bytes == sizeof values, "%zu bytes", bytes);
    gpu_get(values, a, sizeof values);
    for (uint32_t i = 0; i < COUNT; i++) CHECK(values[i] == 3 * i, "%u: %u", i, values[i]);
    CU(cuMemsetD8Async, a, 0x11, 40, NULL);
    CU(cuStreamSynchronize, NULL);
    meet(table, 2);
    meet(table, 3);
    CU(cuIpcCloseMemHandle, a);
    CU(cuIpcCloseMemHandle, a);
    CU_FAILS(ERROR_INVALID_VALUE, cuIpcCloseMemHandle, a);
    gpu_leave(0);
}

static void test_memory_of_another_process(void **state)
{
    (void)state;
    run_both("devices=2", NULL, export_memory, import_memory);
    run_both("devices=2", "1,0", export_memory, import_memory); /* its GPU 0 is our GPU 1 */
    run_both("devices=2", "1", export_memory, import_memory);   /* and this one does not see ours */
}

static void offer_memory(struct table *table)
{
    gpu_enter(0);
    rd_cu_result result = rd_gpu_driver()->cuIpcGetMemHandle(&table->memory, gpu_alloc(8));
    CHECK(result == RD_CU_SUCCESS || result == RD_CU_ERROR_NOT_SUPPORTED, "%u", result);
    meet(table, 1);
    meet(table, 2);
}

static void is_not_let_in(struct table *table)
{
    rd_cu_address a;
    gpu_enter(1);
    meet(table, 1);
    rd_cu_result result = rd_gpu_driver()->cuIpcOpenMemHandle(&a, table->memory, RD_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    CHECK(result == RD_CU_ERROR_PEER_ACCESS_UNSUPPORTED || result == RD_CU_ERROR_INVALID_VALUE, "%u", result);
    meet(table, 2);
}

static void opens_what_is_gone(struct table *table)
{
    rd_cu_address a;
    gpu_enter(0);
    meet(table, 1);
    meet(table, 2);
    usleep(100000); /* the other process ends */
    CU_FAILS(ERROR_INVALID_VALUE, cuIpcOpenMemHandle, &a, table->memory, RD_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

static void test_memory_that_cannot_be_reached(void **state)
{
    (void)state;
    run_both("devices=2 p2p=none", NULL, offer_memory, is_not_let_in);
    run_both("devices=2 no_ipc", NULL, offer_memory, is_not_let_in);
    run_both("devices=2", NULL, offer_memory, opens_what_is_gone);
}

static void hold(void *gate)
{
    while (atomic_load((atomic_int *)gate) == 0) usleep(100);
}

static void record_event(struct table *table)
{
    rd_cu_event event;
    gpu_enter(0);
    rd_cu_stream s = gpu_stream(RD_CU_STREAM_NON_BLOCKING);
    CU_FAILS(ERROR_INVALID_VALUE, cuEventCreate, &event, RD_CU_EVENT_INTERPROCESS);
    CU(cuEventCreate, &event, RD_CU_EVENT_INTERPROCESS | RD_CU_EVENT_DISABLE_TIMING);
    CU(cuIpcGetEventHandle, &table->event, event);
    CU(cuLaunchHostFunc, s, hold, &table->gate);
    CU(cuEventRecord, event, s);
    meet(table, 1);
    meet(table, 2);
    CU(cuStreamSynchronize, s);
    CU(cuEventDestroy, event);
    gpu_leave(0);
}

static void wait_for_event(struct table *table)
{
    rd_cu_event event;
    gpu_enter(0);
    rd_cu_stream s = gpu_stream(RD_CU_STREAM_NON_BLOCKING);
    meet(table, 1);
    CU(cuIpcOpenEventHandle, &event, table->event);
    CU(cuStreamWaitEvent, s, event, 0);
    CU_FAILS(ERROR_NOT_READY, cuEventQuery, event);
    usleep(2000);
    CU_FAILS(ERROR_NOT_READY, cuStreamQuery, s);
    atomic_store(&table->gate, 1);
    CU(cuStreamSynchronize, s);
    CU(cuEventSynchronize, event);
    meet(table, 2);
    CU(cuEventDestroy, event);
    gpu_leave(0);
}

static void test_event_of_another_process(void **state)
{
    (void)state;
    run_both("devices=1", NULL, record_event, wait_for_event);
}

/* ---- Made, exported, mapped ----------------------------------------------------------------------------------------
 */

static const rd_cu_properties on_device_0 = {
    .type = RD_CU_MEM_ALLOCATION_TYPE_PINNED,
    .handle_types = RD_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    .location = {RD_CU_MEM_LOCATION_TYPE_DEVICE, 0},
};

/* Reserves, maps, and lets `device` in. */
static rd_cu_address map(rd_cu_allocation allocation, int device)
{
    rd_cu_address address;
    rd_cu_access access = {{RD_CU_MEM_LOCATION_TYPE_DEVICE, device}, RD_CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CU(cuMemAddressReserve, &address, GRANULE, 0, 0, 0);
    CU(cuMemMap, address, GRANULE, 0, allocation, 0);
    CU(cuMemSetAccess, address, GRANULE, &access, 1);
    return address;
}

static void unmap(rd_cu_address address)
{
    CU_FAILS(ERROR_INVALID_VALUE, cuMemAddressFree, address, GRANULE);
    CU(cuMemUnmap, address, GRANULE);
    CU(cuMemAddressFree, address, GRANULE);
}

static int64_t soon(void)
{
    return rd_deadline(20);
}

static void export_descriptor(struct table *table)
{
    rd_cu_allocation allocation, again;
    rd_cu_ipc_memory handle;
    struct cudasim_held held;
    size_t granule;
    uint32_t word = 77;
    int fd;
    gpu_enter(0);
    CU(cuMemGetAllocationGranularity, &granule, &on_device_0, RD_CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    CHECK(granule == GRANULE, "%zu", granule);
    CU_FAILS(ERROR_INVALID_VALUE, cuMemCreate, &allocation, GRANULE + 1, &on_device_0, 0);
    CU(cuMemCreate, &allocation, GRANULE, &on_device_0, 0);
    rd_cu_address address = map(allocation, 0);
    CU(cuMemRetainAllocationHandle, &again, (void *)(uintptr_t)(address + 8));
    CU(cuMemRelease, again);
    CU_FAILS(ERROR_INVALID_VALUE, cuIpcGetMemHandle, &handle, address); /* the one kind is not the other */
    CU(cuMemExportToShareableHandle, &fd, allocation, RD_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    CU(cuMemRelease, allocation); /* what is mapped stays */
    gpu_put(address, &word, sizeof word);
    CHECK(rd_sock_send_fds(table->sockets[0], "", 1, &fd, 1, soon()) == RONDO_SUCCESS, "%s", rd_last_error());
    close(fd);
    meet(table, 1);
    gpu_get(&word, address, sizeof word);
    CHECK(word == 78, "%u", word);
    unmap(address);
    cudasim_held(&held);
    CHECK(held.mapped == 0 && held.allocations == 0, "%d %d", held.mapped, held.allocations);
    gpu_leave(0);
}

static void import_descriptor(struct table *table)
{
    rd_cu_allocation allocation;
    uint32_t word = 0;
    char byte;
    int fd = -1;
    gpu_enter(1);
    CHECK(rd_sock_recv_fds(table->sockets[1], &byte, 1, &fd, 1, soon()) == RONDO_SUCCESS, "%s", rd_last_error());
    CU_FAILS(ERROR_INVALID_VALUE, cuMemImportFromShareableHandle, &allocation, (void *)(intptr_t)STDIN_FILENO,
             RD_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CU(cuMemImportFromShareableHandle, &allocation, (void *)(intptr_t)fd, RD_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(fd);
    rd_cu_address address = map(allocation, 1);
    CU(cuMemRelease, allocation);
    gpu_get(&word, address, sizeof word);
    CHECK(word == 77, "%u", word);
    word++;
    gpu_put(address, &word, sizeof word);
    meet(table, 1);
    unmap(address);
    gpu_leave(1);
}

static void test_memory_as_a_descriptor(void **state)
{
    (void)state;
    run_both("devices=2", NULL, export_descriptor, import_descriptor);
}

int main(int argc, char **argv)
{
    (void)argc;
    on_cudasim(argv, "devices=2");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_of_another_process),
        cmocka_unit_test(test_memory_that_cannot_be_reached),
        cmocka_unit_test(test_event_of_another_process),
        cmocka_unit_test(test_memory_as_a_descriptor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
