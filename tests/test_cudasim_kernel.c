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
    if (rd_kernel_image_end - rd_kernel_image == 0) skip(); /* built without nvcc */
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

int main(int argc, char **argv)
{
    (void)argc;
    on_cudasim(argv, "devices=4");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vector),
        cmocka_unit_test(test_the_librarys_own_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
