/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gpu_face.c - src/base/gpu as a process without a GPU sees it, and that a communicator on the host never asks for
 * one. Over the simulated driver: test_cudasim.c.
 */
#include "base/gpu.h"
#include "base/status.h"
#include "rondo.h"
#include "test.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static bool is_loaded(const char *library)
{
    char line[512];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps) != NULL) found = found || strstr(line, library) != NULL;
    fclose(maps);
    return found;
}

/* First in this file: nothing has asked for the driver yet. */
static void test_the_host_pays_nothing(void **state)
{
    (void)state;
    rondo_unique_id id;
    rondo_comm *comm;
    float in[3] = {1, 2, 3}, out[3] = {0};
    assert_int_equal(rondo_get_unique_id(&id), RONDO_SUCCESS);
    assert_int_equal(rondo_init_rank(&comm, 1, id, 0, NULL), RONDO_SUCCESS);
    assert_int_equal(rondo_all_reduce(in, out, 3, RONDO_FLOAT32, RONDO_SUM, comm, NULL), RONDO_SUCCESS);
    assert_memory_equal(in, out, sizeof in);
    assert_int_equal(rondo_comm_destroy(comm), RONDO_SUCCESS);
    assert_false(rd_gpu_in_use());
    assert_false(is_loaded("libcuda.so"));
}

static void *ask(void *seen)
{
    *(const struct rd_gpu_driver **)seen = rd_gpu_driver();
    return NULL;
}

static void test_all_threads_see_the_same(void **state)
{
    (void)state;
    enum { THREADS = 8 };
    pthread_t thread[THREADS];
    const struct rd_gpu_driver *seen[THREADS];
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&thread[i], NULL, ask, &seen[i]), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < THREADS; i++) assert_ptr_equal(seen[i], rd_gpu_driver());
}

static void test_absence_is_said_and_no_error(void **state)
{
    (void)state;
    struct rd_gpu_info info;
    struct rd_gpu_reach reach;
    if (rd_gpu_driver() != NULL) {
        assert_null(rd_gpu_absent());
        assert_true(rd_gpu_in_use());
        assert_true(rd_gpu_count() > 0);
        skip();
    }
    assert_non_null(rd_gpu_absent());
    assert_true(strlen(rd_gpu_absent()) > 10);
    assert_int_equal(rd_gpu_count(), 0);
    assert_int_equal(rd_gpu_require(), RONDO_INVALID_USAGE);
    assert_non_null(strstr(rd_last_error(), rd_gpu_absent()));
    assert_int_equal(rd_gpu_describe(0, &info), RONDO_INVALID_USAGE);
    assert_int_equal(rd_gpu_reach(0, 1, &reach), RONDO_INVALID_USAGE);
}

/* What is absent stays so in a child; where there is a driver the child may not use it. */
static void test_forked(void **state)
{
    (void)state;
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(rd_gpu_driver() == NULL && rd_gpu_absent() != NULL && rd_gpu_count() == 0 ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_host_pays_nothing),
        cmocka_unit_test(test_all_threads_see_the_same),
        cmocka_unit_test(test_absence_is_said_and_no_error),
        cmocka_unit_test(test_forked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
