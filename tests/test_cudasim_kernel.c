/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cudasim_kernel.c - the simulated driver runs kernels: blocks, barriers, warps, and blocks that wait for one
 * another.
 */
#include "gpu_kit.h"
#include "kernels/reduce.h"
#include "on_cudasim.h"
#include "reduce/image.h"

struct vector_args {
    rd_cu_address a, b, sum;
    unsigned long count;
};

static void test_vector(void **state)
{
    (void)state;
    enum { COUNT = 100003 };
    float *a = malloc(sizeof *a * COUNT), *b = malloc(sizeof *b * COUNT);
    gpu_enter(0);
    rd_cu_function add = gpu_trial("vector", "trial_vector");
    struct vector_args args = {gpu_alloc(sizeof *a * COUNT), gpu_alloc(sizeof *a * COUNT), gpu_alloc(sizeof *a * COUNT),
                               COUNT};
    int threads;
    CU(cuFuncGetAttribute, &threads, RD_CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, add);
    for (int i = 0; i < COUNT; i++) a[i] = (float)i, b[i] = (float)(2 * i + 1);
    gpu_put(args.a, a, sizeof *a * COUNT);
    gpu_put(args.b, b, sizeof *b * COUNT);
    gpu_launch(add, 7, (unsigned)threads, NULL, &args);
    memset(&args.count, 0, sizeof args.count); /* arguments are copied at the launch */
    gpu_get(a, args.sum, sizeof *a * COUNT);
    for (int i = 0; i < COUNT; i++) assert_true(a[i] == (float)(3 * i + 1));
    CU(cuMemFree, args.a);
    CU(cuMemFree, args.b);
    CU(cuMemFree, args.sum);
    gpu_leave(0);
    free(a);
    free(b);
}

/* The image in the library, as it is shipped. */
static void test_the_librarys_own_kernels(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    static int32_t terms[2][COUNT], sum[COUNT];
    rd_cu_module module;
    rd_cu_function reduce;
    int threads;
    gpu_enter(1);
    CU(cuModuleLoadData, &module, rd_kernel_image);
    CU_FAILS(ERROR_NOT_FOUND, cuModuleGetFunction, &reduce, module, "rd_reduce_nothing");
    CU(cuModuleGetFunction, &reduce, module, "rd_reduce_int32");
    CU(cuFuncGetAttribute, &threads, RD_CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, reduce);
    rd_cu_address device[2] = {gpu_alloc(sizeof sum), gpu_alloc(sizeof sum)};
    rd_reduce_args args = {.count = COUNT, .op = RONDO_SUM, .ranks = 2, .sources = 2, .outputs = 1};
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < COUNT; i++) terms[k][i] = 1000 * k + i * (k + 1);
        gpu_put(device[k], terms[k], sizeof terms[k]);
        args.source[k] = (void *)(uintptr_t)device[k];
    }
    args.output[0] = (void *)(uintptr_t)device[1];
    gpu_launch(reduce, 3, (unsigned)threads, NULL, &args);
    gpu_get(sum, device[1], sizeof sum);
    for (int i = 0; i < COUNT; i++) assert_int_equal(sum[i], 1000 + 3 * i);
    gpu_leave(1); /* frees what is left in the context */
}

static int threads_of(rd_cu_function function)
{
    int threads;
    CU(cuFuncGetAttribute, &threads, RD_CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function);
    return threads;
}

static void test_warps(void **state)
{
    (void)state;
    enum { BLOCKS = 3, MOST = BLOCKS * 256 };
    static uint32_t out[MOST][6];
    gpu_enter(0);
    rd_cu_function warp = gpu_trial("ring", "trial_warp");
    uint32_t threads = (uint32_t)threads_of(warp), all = BLOCKS * threads;
    rd_cu_address device = gpu_alloc(sizeof out);
    for (unsigned seed = 0; seed < 5; seed++) {
        cudasim_seed(seed);
        gpu_launch(warp, BLOCKS, threads, NULL, &device);
        gpu_get(out, device, all * sizeof *out);
        for (uint32_t t = 0; t < all; t++) {
            uint32_t lane = t % 32, first = t - lane;
            assert_int_equal(out[t][0], first + 5);
            assert_int_equal(out[t][1], t ^ 3);
            assert_int_equal(out[t][2], lane == 0 ? t : t - 1);
            assert_int_equal(out[t][3], 0x49249249);
            assert_int_equal(out[t][4], lane >= 16 ? first + 31 : lane < 14 ? t + 2 : t);
            assert_int_equal(out[t][5], 31 * 32 / 2);
        }
    }
    cudasim_seed(0);
    gpu_leave(0);
}

struct reverse_args {
    rd_cu_address data;
    int32_t divergent;
};

static void test_barriers_and_dynamic_shared_memory(void **state)
{
    (void)state;
    enum { BLOCKS = 40, MOST = BLOCKS * 1024 };
    static uint32_t data[MOST];
    gpu_enter(0);
    rd_cu_function reverse = gpu_trial("ring", "trial_reverse");
    uint32_t threads = (uint32_t)threads_of(reverse);
    struct reverse_args args = {gpu_alloc(sizeof data), 0};
    void *parameters[] = {&args};
    for (uint32_t i = 0; i < MOST; i++) data[i] = i;
    gpu_put(args.data, data, sizeof data);
    CU(cuLaunchKernel, reverse, BLOCKS, 1, 1, threads, 1, 1, threads * 4, NULL, parameters, NULL);
    gpu_get(data, args.data, sizeof data);
    for (uint32_t i = 0; i < BLOCKS * threads; i++)
        assert_int_equal(data[i], i / threads * threads + threads - 1 - i % threads);
    gpu_leave(0);
}

/* Three lanes wait for a fourth in a warp operation, the others at the barrier; a message names them, and the context
 * is lost. */
static void test_threads_that_wait_for_one_another(void **state)
{
    (void)state;
    char said[1024];
    gpu_enter(2);
    rd_cu_function reverse = gpu_trial("ring", "trial_reverse");
    struct reverse_args args = {gpu_alloc(64 * 4), 1};
    void *parameters[] = {&args};
    hear_errors();
    CU(cuLaunchKernel, reverse, 1, 1, 1, 32, 1, 1, 128, NULL, parameters, NULL);
    CU_FAILS(ERROR_LAUNCH_FAILED, cuStreamSynchronize, NULL);
    heard(said, sizeof said);
    assert_non_null(strstr(said, "kernel trial_reverse, block (0, 0, 0)"));
    assert_non_null(strstr(said, "29 in __syncthreads (3, 4, 5, "));
    assert_non_null(strstr(said, "3 in a warp operation (0, 1, 2)"));
    CU_FAILS(ERROR_LAUNCH_FAILED, cuMemAlloc, &args.data, 4);
    gpu_leave(2);
    gpu_enter(2); /* as good as new */
    args.data = gpu_alloc(4);
    gpu_leave(2);
}

/* Blocks that wait for others run beside them, as many as the device holds: 8 multiprocessors of 2048 threads and 32
 * blocks. */
static void test_blocks_that_wait_for_one_another(void **state)
{
    (void)state;
    static const uint32_t zeros[256];
    uint32_t flags[256] = {0};
    int blocks;
    gpu_enter(1);
    rd_cu_function chain = gpu_trial("ring", "trial_chain");
    uint32_t threads = (uint32_t)threads_of(chain);
    CU(cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, chain, (int)threads, 0);
    assert_int_equal(blocks, 2048 / threads < 32 ? 2048 / threads : 32);
    rd_cu_address device = gpu_alloc(sizeof flags);
    gpu_put(device, zeros, sizeof zeros);
    gpu_launch(chain, 24, threads, NULL, &device);
    gpu_get(flags, device, sizeof flags);
    for (int i = 0; i < 24; i++) assert_int_equal(flags[i], 1);
    gpu_leave(1);
}

static void test_launches_that_are_refused(void **state)
{
    (void)state;
    rd_cu_address word = 0;
    void *parameters[] = {&word};
    gpu_enter(0);
    rd_cu_function chain = gpu_trial("ring", "trial_chain");
    uint32_t threads = (uint32_t)threads_of(chain);
    CU_FAILS(ERROR_INVALID_VALUE, cuLaunchKernel, chain, 0, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL);
    CU_FAILS(ERROR_INVALID_VALUE, cuLaunchKernel, chain, 1, 1, 1, threads + 1, 1, 1, 0, NULL, parameters, NULL);
    CU_FAILS(ERROR_INVALID_VALUE, cuLaunchKernel, chain, 1, 70000, 1, 32, 1, 1, 0, NULL, parameters, NULL);
    CU_FAILS(ERROR_INVALID_VALUE, cuLaunchKernel, chain, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
    CU_FAILS(ERROR_INVALID_VALUE, cuLaunchKernel, chain, 1, 1, 1, 32, 1, 1, 50 << 10, NULL, parameters, NULL);
    CU_FAILS(ERROR_INVALID_HANDLE, cuLaunchKernel, (rd_cu_function)&word, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL);
    gpu_enter(1); /* its legacy stream is not one of the kernel's device */
    CU_FAILS(ERROR_INVALID_HANDLE, cuLaunchKernel, chain, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL);
    gpu_leave(1);
    gpu_leave(0);
}

/* What a kernel may not follow, though this process can. */
static void refused_pointer(rd_cu_address pointer, const char *why)
{
    char said[1024];
    hear_errors();
    gpu_launch(gpu_trial("ring", "trial_chain"), 1, 32, NULL, &pointer);
    CU_FAILS(ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize, NULL);
    heard(said, sizeof said);
    if (strstr(said, why) == NULL) fail_msg("says \"%s\"", said);
}

static void test_pointers_that_a_kernel_must_not_follow(void **state)
{
    (void)state;
    uint32_t *plain = calloc(1, 64 << 10);
    gpu_enter(0);
    refused_pointer((uintptr_t)(plain + 2048), "host memory that is not pinned");
    gpu_leave(0);
    free(plain);

    gpu_enter(0);
    rd_cu_address freed = gpu_alloc(64);
    CU(cuMemFree, freed);
    refused_pointer(freed, "memory that has been freed");
    gpu_leave(0);

    gpu_enter(1);
    rd_cu_address there = gpu_alloc(64);
    gpu_enter(0);
    refused_pointer(there, "another device's memory, without peer access");
    gpu_leave(0);
    gpu_leave(1);
}

/* Where the kernel asks before every access (tests/cudasim/sanitize.h), one element too far is an error of the device.
 */
static void test_accesses_past_the_end(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    char said[1024];
    gpu_enter(0);
    struct vector_args args = {gpu_alloc(400), gpu_alloc(400), gpu_alloc(404), 101};
    hear_errors();
    gpu_launch(gpu_trial("vector", "trial_vector"), 1, 32, NULL, &args);
    CU_FAILS(ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize, NULL);
    heard(said, sizeof said);
    if (strstr(said, "block (0, 0, 0), thread (4, 0, 0) touches 4 bytes") == NULL ||
        strstr(said, "past the end of an allocation") == NULL)
        fail_msg("says \"%s\"", said);
    gpu_leave(0);
#else
    skip();
#endif
}

int main(int argc, char **argv)
{
    (void)argc;
    on_cudasim(argv, "devices=4");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vector),
        cmocka_unit_test(test_the_librarys_own_kernels),
        cmocka_unit_test(test_warps),
        cmocka_unit_test(test_barriers_and_dynamic_shared_memory),
        cmocka_unit_test(test_threads_that_wait_for_one_another),
        cmocka_unit_test(test_blocks_that_wait_for_one_another),
        cmocka_unit_test(test_launches_that_are_refused),
        cmocka_unit_test(test_pointers_that_a_kernel_must_not_follow),
        cmocka_unit_test(test_accesses_past_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
