/* SPDX-License-Identifier: Apache-2.0
 *
 * What fails on a GPU: at the start, in a call, on one rank and on all; and what is no GPU, or another one's memory.
 * Every rank hears of it, with the call and the device. Over the simulated driver, which fails when it is told to.
 */
#include "test.h"

#include "gpu_kit.h"
#include "on_cudasim.h"
#include "ranks.h"

#include <time.h>
#include <unistd.h>

#define SAYS(result, call, ...)                                                                                        \
    do {                                                                                                               \
        rondo_result says_result_ = (call);                                                                            \
        const char *says_words_[] = {__VA_ARGS__};                                                                     \
        CHECK(says_result_ == (result), "%s: %s", rondo_result_string(says_result_), rondo_last_error(NULL));          \
        for (size_t w_ = 0; w_ < sizeof says_words_ / sizeof *says_words_; w_++)                                       \
            CHECK(strstr(rondo_last_error(NULL), says_words_[w_]), "lacks \"%s\": %s", says_words_[w_],                \
                  rondo_last_error(NULL));                                                                             \
    } while (0)

enum { COUNT = 100000 };

static rondo_config on(int device)
{
    rondo_config config = RONDO_CONFIG_INIT;
    config.timeout_s = 10 * test_slowness();
    config.device = device;
    return config;
}

/* ---- At the start ---- */

typedef struct failure {
    const char *call; /* of the driver, on rank 1 */
    unsigned result;
    const char *name; /* of that */
    unsigned long after;
} failure;

/* Rank 1 cannot start, and the others learn why. */
static void start(const rondo_unique_id *id, int rank, int n, void *context)
{
    const failure *f = context;
    rondo_config config = on(rank);
    rondo_comm *comm = NULL;
    if (rank == 1) CHECK(cudasim_fail(f->call, f->after, f->result, 0) == 0, "%s is no call", f->call);
    rondo_result result = rondo_init_rank(&comm, n, *id, rank, &config);
    const char *text = rondo_last_error(NULL);
    CHECK(result != RONDO_SUCCESS && comm == NULL, "%s failed on rank 1, and rank %d started", f->call, rank);
    CHECK(strstr(text, f->call) && strstr(text, f->name) && strstr(text, "GPU 1"), "rank %d: %s", rank, text);
    struct cudasim_held held;
    if (rank != 1) return;
    cudasim_held(&held);
    CHECK(held.contexts + held.streams + held.events + held.modules + held.host_memory + held.registered == 0,
          "%s: %d contexts, %d streams, %d events, %d modules, %d host allocations, %d registrations are left", f->call,
          held.contexts, held.streams, held.events, held.modules, held.host_memory, held.registered);
}

static void a_start_that_fails(void **state)
{
    (void)state;
    static failure failures[] = {
        {"cuModuleLoadData", RD_CU_ERROR_NO_BINARY_FOR_GPU, "NO_BINARY_FOR_GPU", 1},
        {"cuDevicePrimaryCtxRetain", RD_CU_ERROR_OUT_OF_MEMORY, "OUT_OF_MEMORY", 1},
        {"cuModuleGetFunction", RD_CU_ERROR_NOT_FOUND, "NOT_FOUND", 3},
        {"cuMemHostAlloc", RD_CU_ERROR_OUT_OF_MEMORY, "OUT_OF_MEMORY", 1},
        {"cuStreamCreateWithPriority", RD_CU_ERROR_OUT_OF_MEMORY, "OUT_OF_MEMORY", 1},
        {"cuMemHostRegister", RD_CU_ERROR_OUT_OF_MEMORY, "OUT_OF_MEMORY", 2},
    };
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) ranks_run_bare(3, start, &failures[i]);
}

static void no_such_gpu(void **state)
{
    (void)state;
    rondo_unique_id id;
    rondo_comm *comm = NULL;
    rondo_config config = on(7);
    assert_int_equal(rondo_get_unique_id(&id), RONDO_SUCCESS);
    SAYS(RONDO_INVALID_ARGUMENT, rondo_init_rank(&comm, 1, id, 0, &config), "device is 7", "sees 3 GPUs",
         "RONDO_DEVICE_HOST");
    assert_null(comm);
}

/* ---- In a call ---- */

static void use(rondo_comm *comm, int device, void **memory)
{
    rd_cu_context context;
    CHECK(rd_gpu_driver()->cuDevicePrimaryCtxRetain(&context, device) == RD_CU_SUCCESS, "no context");
    CHECK(rd_gpu_driver()->cuCtxSetCurrent(context) == RD_CU_SUCCESS, "no context");
    if (memory) OK(rondo_mem_alloc(memory, COUNT * sizeof(float), comm));
}

static void fail_in_call(const rondo_unique_id *id, int rank, int n, void *context)
{
    const failure *f = context;
    rondo_config config = on(rank);
    rondo_comm *comm;
    void *memory;
    OK(rondo_init_rank(&comm, n, *id, rank, &config));
    use(comm, rank, &memory);
    OK(rondo_all_reduce(memory, memory, COUNT, RONDO_FLOAT32, RONDO_SUM, comm, NULL));
    if (rank == 1) { /* not while another is still in the first call, which it would end */
        nanosleep(&(struct timespec){0, (long)(100000000 * test_slowness())}, NULL);
        CHECK(cudasim_fail(f->call, f->after, f->result, 1) == 0, "%s is no call", f->call);
    }
    double began = test_seconds();
    rondo_result result = rondo_all_reduce(memory, memory, COUNT, RONDO_FLOAT32, RONDO_SUM, comm, NULL);
    /* The kernel that has the whole ring to do may be through before that fails: then the next call does. */
    bool launched = f->after == 1 && !strcmp(f->call, "cuStreamWriteValue64");
    if (launched && rank != 1 && result == RONDO_SUCCESS) result = rondo_barrier(comm, NULL);
    const char *text = rondo_last_error(comm);
    CHECK(result != RONDO_SUCCESS && result != RONDO_TIMEOUT, "rank %d: %s", rank, rondo_result_string(result));
    CHECK(rank != 1 || result == RONDO_UNHANDLED_CUDA_ERROR, "%s: %s", rondo_result_string(result), text);
    CHECK(strstr(text, "rondo_all_reduce of 100000 float32") && strstr(text, f->name) && strstr(text, "GPU 1"),
          "rank %d: %s", rank, text);
    CHECK(test_seconds() - began < 3 * test_slowness(), "it took %g s", test_seconds() - began);
    CHECK(rondo_barrier(comm, NULL) == result, "the next call has another result");
    rondo_comm_destroy(comm);
}

static void a_call_that_fails(void **state)
{
    (void)state;
    static failure failures[] = {
        {"cuLaunchKernel", RD_CU_ERROR_LAUNCH_FAILED, "LAUNCH_FAILED", 1},
        {"cuLaunchKernel", RD_CU_ERROR_LAUNCH_OUT_OF_RESOURCES, "LAUNCH_OUT_OF_RESOURCES", 3},
        {"cuStreamWriteValue64", RD_CU_ERROR_ILLEGAL_ADDRESS, "ILLEGAL_ADDRESS", 2},
        {"kernel", RD_CU_ERROR_ECC_UNCORRECTABLE, "ECC_UNCORRECTABLE", 2}, /* the device is lost in the middle */
    };
    test_env("RONDO_TRANSPORT", "shm"); /* slice by slice */
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) ranks_run_bare(3, fail_in_call, &failures[i]);
    test_env("RONDO_TRANSPORT", NULL); /* the whole ring in one kernel */
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        failures[i].after = 1;
        ranks_run_bare(3, fail_in_call, &failures[i]);
    }
}

/* A rank never calls: the GPUs of the others wait for it no longer than the timeout. */
static void late(const rondo_unique_id *id, int rank, int n, void *context)
{
    rondo_config config = on(rank % 2);
    rondo_comm *comm;
    void *memory;
    config.timeout_s = 2 * test_slowness();
    OK(rondo_init_rank(&comm, n, *id, rank, &config));
    use(comm, rank % 2, &memory);
    if (rank == 1) {
        sleep((unsigned)(4 * test_slowness()));
        return;
    }
    rondo_result result = rondo_all_reduce(memory, memory, *(size_t *)context, RONDO_FLOAT32, RONDO_SUM, comm, NULL);
    CHECK(result == RONDO_TIMEOUT, "%s: %s", rondo_result_string(result), rondo_last_error(comm));
    CHECK(strstr(rondo_last_error(comm), "rank 1"), "%s", rondo_last_error(comm));
    OK(rondo_mem_free(memory, comm));
    rondo_comm_destroy(comm);
}

static void a_rank_that_never_calls(void **state)
{
    (void)state;
    for (size_t count = COUNT; count; count /= 1000) ranks_run_bare(3, late, &count); /* in whole slices, in packets */
}

/* ---- Memory of others ---- */

static void wrong_memory(const rondo_unique_id *id, int rank, int n, void *context)
{
    rondo_config config = on(rank == 0 ? 0 : RONDO_DEVICE_HOST);
    rondo_comm *comm;
    rd_cu_address address;
    (void)context;
    CHECK(rd_gpu_driver() != NULL, "%s", rd_gpu_absent());
    OK(rondo_init_rank(&comm, n, *id, rank, &config));
    use(comm, 1, NULL);
    CHECK(rd_gpu_driver()->cuMemAlloc(&address, 4096) == RD_CU_SUCCESS, "no memory");
    void *other = (void *)(uintptr_t)address;
    float mine = 1;
    SAYS(RONDO_INVALID_ARGUMENT, rondo_all_reduce(other, other, 8, RONDO_FLOAT32, RONDO_SUM, comm, NULL), "send is ",
         "memory of GPU 1", rank == 0 ? "uses GPU 0" : "uses host memory", "config.device = 1");
    OK(rondo_all_reduce(&mine, &mine, 1, RONDO_FLOAT32, RONDO_SUM, comm, NULL)); /* it took no number */
    CHECK(mine == (float)n, "%g", (double)mine);
    SAYS(RONDO_INVALID_ARGUMENT, rondo_mem_free(other, comm), "did not return");
    OK(rondo_comm_destroy(comm));
}

static void memory_of_another_gpu(void **state)
{
    (void)state;
    ranks_run_bare(2, wrong_memory, NULL);
}

/* Memory that rondo_mem_alloc gave outlives the communicator. */
static void memory(const rondo_unique_id *id, int rank, int n, void *context)
{
    rondo_config config = on(0);
    rondo_comm *comm;
    void *at, *none;
    unsigned char byte = 1;
    struct cudasim_held held;
    (void)context;
    OK(rondo_init_rank(&comm, n, *id, rank, &config));
    OK(rondo_mem_alloc(&at, 1000, comm));
    OK(rondo_mem_alloc(&none, 0, comm));
    CHECK(cudasim_fail("cuMemAlloc", 1, RD_CU_ERROR_OUT_OF_MEMORY, 0) == 0, "no such call");
    SAYS(RONDO_UNHANDLED_CUDA_ERROR, rondo_mem_alloc(&none, 1 << 20, comm), "cuMemAlloc on GPU 0", "OUT_OF_MEMORY");
    OK(rondo_mem_free(none, comm));
    OK(rondo_comm_destroy(comm));
    use(NULL, 0, NULL);
    CHECK(rd_gpu_driver()->cuMemcpyAsync((uintptr_t)&byte, (uintptr_t)at + 999, 1, NULL) == RD_CU_SUCCESS, "gone");
    CHECK(rd_gpu_driver()->cuStreamSynchronize(NULL) == RD_CU_SUCCESS && byte == 0, "it is %d, not 0", byte);
    OK(rondo_mem_free(at, NULL));
    CHECK(rd_gpu_driver()->cuDevicePrimaryCtxRelease(0) == RD_CU_SUCCESS, "not retained");
    cudasim_held(&held);
    CHECK(held.contexts == 0 && held.device_memory == 0, "%d contexts and %d allocations are left", held.contexts,
          held.device_memory);
}

static void memory_on_the_gpu(void **state)
{
    (void)state;
    ranks_run_bare(1, memory, NULL);
}

int main(int argc, char **argv)
{
    (void)argc;
    on_cudasim(argv, "devices=3");
    needs_kernels();
    needs_cudasim("calls of the driver fail");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_start_that_fails),
        cmocka_unit_test(a_call_that_fails),
        cmocka_unit_test(a_rank_that_never_calls),
        cmocka_unit_test(memory_of_another_gpu),
        cmocka_unit_test(memory_on_the_gpu),
        cmocka_unit_test(no_such_gpu), /* last: this process is not to be forked after it */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
