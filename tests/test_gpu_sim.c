/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gpu_sim.c - src/base/gpu over the simulated driver: what it says of GPUs, of errors, and of drivers that will
 * not do.
 */
#include "base/gpu.h"
#include "base/status.h"
#include "gpu_kit.h"
#include "on_cudasim.h"
#include "reduce/device.h"
#include "reduce/image.h"

#include <sys/wait.h>
#include <unistd.h>

/* What this program, started with these settings and a role, writes to its standard output. */
static void run_as(const char *role, const char *settings, const char *visible, char *said, size_t room)
{
    int out[2], status;
    size_t used = 0;
    assert_int_equal(pipe(out), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(out[1], STDOUT_FILENO);
        setenv("CUDASIM", settings, 1);
        if (visible != NULL) setenv("CUDA_VISIBLE_DEVICES", visible, 1);
        execl("/proc/self/exe", "test_gpu_sim", role, (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    for (ssize_t n; (n = read(out[0], said + used, room - 1 - used)) > 0;) used += (size_t)n;
    said[used] = '\0';
    close(out[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* Role "absent": why there is no GPU, or "present". */
static int role_absent(void)
{
    const char *why = rd_gpu_absent();
    printf("%s", why != NULL ? why : "present");
    return (rd_gpu_driver() == NULL) == (why != NULL) && (rd_gpu_count() == 0) == (why != NULL) ? 0 : 1;
}

/* Role "list": PCI address and uuid's last byte of each GPU, and who reaches whom. */
static int role_list(void)
{
    int count = rd_gpu_count();
    for (int i = 0; i < count; i++) {
        struct rd_gpu_info info;
        if (rd_gpu_describe(i, &info) != RONDO_SUCCESS) return 1;
        printf("%s sm_%d %d\n", info.pci, info.capability, info.uuid[15]);
    }
    for (int i = 0; i < count; i++)
        for (int k = 0; k < count; k++) {
            struct rd_gpu_reach reach;
            if (rd_gpu_reach(i, k, &reach) != RONDO_SUCCESS) return 1;
            printf("%c%s", reach.access ? (reach.atomics ? 'A' : 'a') + reach.rank : '-', k + 1 == count ? "\n" : "");
        }
    return 0;
}

static void test_drivers_that_will_not_do(void **state)
{
    (void)state;
    static const struct {
        const char *settings, *visible, *says;
    } cases[] = {
        {"devices=2", NULL, "present"},
        {"devices=0", NULL, "cuInit says CUDA_ERROR_NO_DEVICE"},
        {"devices=2", "", "cuInit says CUDA_ERROR_NO_DEVICE"},
        {"devices=2", "5", "cuInit says CUDA_ERROR_NO_DEVICE"},
        {"devices=2 lacks=cuMemCreate", NULL,
         "libcuda.so.1 has no cuMemCreate; a driver of CUDA 12.0 or later is needed"},
        {"devices=2 driver=11060", NULL, "cuMemGetHandleForAddressRange"},
        {"devices=2 fail=cuInit:1:802", NULL, "cuInit says CUDA_ERROR_SYSTEM_NOT_READY"},
        {"devices=2 fail=cuInit:1:803", NULL, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
        {"devices=2 fail=cuDeviceGetCount:1:999", NULL, "cuDeviceGetCount says CUDA_ERROR_UNKNOWN"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char said[512];
        run_as("absent", cases[i].settings, cases[i].visible, said, sizeof said);
        if (strstr(said, cases[i].says) == NULL) fail_msg("%s: says \"%s\"", cases[i].settings, said);
    }
}

static void test_devices_and_who_reaches_whom(void **state)
{
    (void)state;
    static const struct {
        const char *settings, *visible, *says;
    } cases[] = {
        {"devices=2 p2p=switch", NULL, "0000:10:00.0 sm_90 0\n0000:11:00.0 sm_90 1\nAA\nAA\n"},
        {"devices=2 p2p=none capability=75", NULL, "0000:10:00.0 sm_75 0\n0000:11:00.0 sm_75 1\nA-\n-A\n"},
        {"devices=3 p2p=pairs", NULL,
         "0000:10:00.0 sm_90 0\n0000:11:00.0 sm_90 1\n0000:12:00.0 sm_90 2\nAAb\nAAb\nbbA\n"},
        {"devices=2 p2p=pcie pci=0000:1b:00.0,0001:Ca:03.0", NULL,
         "0000:1b:00.0 sm_90 0\n0001:ca:03.0 sm_90 1\nAb\nbA\n"},
        /* The same GPU has another number where others are hidden. */
        {"devices=4 p2p=pairs", "3,2", "0000:13:00.0 sm_90 3\n0000:12:00.0 sm_90 2\nAA\nAA\n"},
        {"devices=4 p2p=pairs", "1,7,2", "0000:11:00.0 sm_90 1\nA\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char said[1024];
        run_as("list", cases[i].settings, cases[i].visible, said, sizeof said);
        assert_string_equal(said, cases[i].says);
    }
}

static void test_no_such_device(void **state)
{
    (void)state;
    struct rd_gpu_info info = {.capability = -1};
    struct rd_gpu_reach reach;
    assert_int_equal(rd_gpu_describe(4, &info), RONDO_INVALID_ARGUMENT);
    assert_string_equal(rd_last_error(), "there is no GPU 4: this process sees 4, numbered from 0");
    assert_int_equal(rd_gpu_describe(-1, &info), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rd_gpu_reach(0, 4, &reach), RONDO_INVALID_ARGUMENT);
    assert_int_equal(info.capability, -1);
}

static void test_what_the_driver_says_of_a_device(void **state)
{
    (void)state;
    struct rd_gpu_info info = {.capability = -1};
    assert_int_equal(rd_gpu_describe(2, &info), RONDO_SUCCESS);
    assert_string_equal(info.name, "Simulated GPU");
    assert_int_equal(info.multiprocessors, 8);
    assert_true(info.memory_bytes == (size_t)4 << 30);
    assert_true(info.managed_by_host && info.exports_fds);
    info.capability = -1;
    cudasim_fail("cuDeviceTotalMem", 1, RD_CU_ERROR_ECC_UNCORRECTABLE, 0);
    assert_int_equal(rd_gpu_describe(2, &info), RONDO_UNHANDLED_CUDA_ERROR);
    assert_int_equal(info.capability, -1);
}

static void test_errors_name_call_device_and_remedy(void **state)
{
    (void)state;
    rd_cu_address address;
    assert_int_equal(RD_GPU(1, cuMemAlloc, &address, 64), RONDO_UNHANDLED_CUDA_ERROR);
    assert_non_null(strstr(rd_last_error(), "cuMemAlloc on GPU 1 failed: CUDA_ERROR_INVALID_CONTEXT (201): "));
    assert_int_equal(rd_gpu_check(RD_CU_ERROR_OUT_OF_MEMORY, "cuMemAlloc", 0), RONDO_UNHANDLED_CUDA_ERROR);
    assert_non_null(strstr(rd_last_error(), "nvidia-smi shows who has it"));
    assert_int_equal(rd_gpu_check(RD_CU_ERROR_NO_BINARY_FOR_GPU, "cuModuleLoadData", 0), RONDO_UNHANDLED_CUDA_ERROR);
    assert_non_null(strstr(rd_last_error(), "make release"));
    assert_int_equal(rd_gpu_check(12345, "cuSomething", -1), RONDO_UNHANDLED_CUDA_ERROR);
    assert_non_null(strstr(rd_last_error(), "cuSomething failed: unknown error (12345): no text"));
    assert_int_equal(rd_gpu_check(RD_CU_SUCCESS, "cuMemAlloc", 0), RONDO_SUCCESS);
}

/* What a driver says that has no use for the image. */
static void test_no_kernels_for_this_gpu(void **state)
{
    (void)state;
    rd_device *device = NULL;
    struct cudasim_held held;
    cudasim_fail("cuModuleLoadData", 1, RD_CU_ERROR_NO_BINARY_FOR_GPU, 0);
    assert_true(rd_device_open(&device, 1) != RONDO_SUCCESS);
    assert_null(device);
    const char *says = rd_kernel_image_is_remark() ? "GPU 1 cannot be used: this librondo was built without nvcc"
                                                   : "cuModuleLoadData on GPU 1 failed: CUDA_ERROR_NO_BINARY_FOR_GPU";
    assert_non_null(strstr(rd_last_error(), says));
    cudasim_held(&held);
    assert_int_equal(held.contexts, 0);
}

/* A child of a process that has used the driver cannot; one whose parent has not can. */
static void test_forked(void **state)
{
    (void)state;
    char said[64];
    int status;
    assert_non_null(rd_gpu_driver());
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        rd_cu_context context;
        struct rd_gpu_info info;
        bool right = rd_gpu_driver() == NULL && rd_gpu_count() == 0 && rd_gpu_require() == RONDO_INVALID_USAGE &&
                     strstr(rd_last_error(), "forked") != NULL && rd_gpu_describe(0, &info) == RONDO_INVALID_USAGE;
        (void)context;
        _exit(right ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    run_as("forks", "devices=2", NULL, said, sizeof said);
    assert_string_equal(said, "child: 2\n");
}

static int role_forks(void)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        printf("child: %d\n", rd_gpu_count());
        fflush(stdout);
        _exit(0);
    }
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    on_cudasim(argv, "devices=4");
    if (argc == 2 && strcmp(argv[1], "absent") == 0) return role_absent();
    if (argc == 2 && strcmp(argv[1], "list") == 0) return role_list();
    if (argc == 2 && strcmp(argv[1], "forks") == 0) return role_forks();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drivers_that_will_not_do),
        cmocka_unit_test(test_devices_and_who_reaches_whom),
        cmocka_unit_test(test_no_such_device),
        cmocka_unit_test(test_what_the_driver_says_of_a_device),
        cmocka_unit_test(test_errors_name_call_device_and_remedy),
        cmocka_unit_test(test_no_kernels_for_this_gpu),
        cmocka_unit_test(test_forked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
