/* SPDX-License-Identifier: Apache-2.0
 *
 * case 30: starting and stopping leaves nothing behind, with few descriptors allowed.
 */
#include "test.h"

#include "ranks.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct usage {
    int fds, tasks, mappings;
} usage;

static int entries(const char *directory)
{
    int n = 0;
    DIR *d = opendir(directory);
    CHECK(d, "%s", directory);
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

static usage in_use(void)
{
    usage u = {entries("/proc/self/fd"), entries("/proc/self/task"), 0};
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps, "no maps");
    for (int c; (c = getc(maps)) != EOF;) u.mappings += c == '\n';
    fclose(maps);
    return u;
}

static void cycle(int rank, int id_pipe[2], int back_pipe[2])
{
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_comm *comm;
    rondo_unique_id id;
    char token = 0;
    config.timeout_s = 20 * test_slowness();
    if (rank == 0) {
        CHECK(rondo_get_unique_id(&id) == RONDO_SUCCESS, "%s", rondo_last_error(NULL));
        CHECK(write(id_pipe[1], &id, sizeof id) == sizeof id, "pipe");
    } else {
        CHECK(read(id_pipe[0], &id, sizeof id) == sizeof id, "pipe");
    }
    CHECK(rondo_init_rank(&comm, 2, id, rank, &config) == RONDO_SUCCESS, "%s", rondo_last_error(NULL));
    float x[33];
    for (int i = 0; i < 33; i++) x[i] = (float)(i * (rank + 1));
    CHECK(rondo_all_reduce(x, x, 33, RONDO_FLOAT32, RONDO_SUM, comm, NULL) == RONDO_SUCCESS, "%s", rondo_last_error(comm));
    for (int i = 0; i < 33; i++) CHECK(x[i] == (float)(3 * i), "element %d is %g", i, (double)x[i]);
    CHECK(rondo_comm_destroy(comm) == RONDO_SUCCESS, "destroy");
    if (rank == 1) CHECK(write(back_pipe[1], &token, 1) == 1, "pipe");
    else CHECK(read(back_pipe[0], &token, 1) == 1, "pipe");
}

/* Before and after are compared once things have settled: connections of the last cycle may still be lingering. */
static void many_cycles(int rank, int cycles, int id_pipe[2], int back_pipe[2])
{
    struct rlimit few = {256, 256};
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0, "setrlimit");
    for (int i = 0; i < 20; i++) cycle(rank, id_pipe, back_pipe);
    usleep(500000);
    usage before = in_use(), after = before;
    for (int i = 0; i < cycles; i++) cycle(rank, id_pipe, back_pipe);
    for (int wait = 0; wait < 60; wait++) {
        after = in_use();
        if (after.fds <= before.fds && after.tasks <= before.tasks && after.mappings <= before.mappings + 4) break;
        usleep(100000);
    }
    CHECK(after.fds <= before.fds, "%d descriptors, before %d", after.fds, before.fds);
    CHECK(after.tasks <= before.tasks, "%d threads, before %d", after.tasks, before.tasks);
    /* The allocator may map a little more; each cycle maps several. The thread sanitizer's own mappings are most there. */
    if (test_slowness() < 8) CHECK(after.mappings <= before.mappings + cycles / 10 + 4, "%d mappings, before %d", after.mappings, before.mappings);
}

static void run(const char *transport, int cycles)
{
    int id_pipe[2], back_pipe[2], status;
    pid_t pids[2];
    test_env("RONDO_TRANSPORT", transport);
    assert_int_equal(pipe(id_pipe) | pipe(back_pipe), 0);
    for (int r = 0; r < 2; r++)
        if (!(pids[r] = fork())) {
            many_cycles(r, cycles, id_pipe, back_pipe);
            exit(0);
        }
    for (int r = 0; r < 2; r++) {
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        assert_int_equal(status, 0);
    }
    close(id_pipe[0]), close(id_pipe[1]), close(back_pipe[0]), close(back_pipe[1]);
    test_env("RONDO_TRANSPORT", NULL);
}

static void case_30(void **state)
{
    (void)state;
    int times = getenv("RONDO_TEST_LONG") ? 10 : 1; /* make check-long */
    run("shm", times * (test_slowness() > 1 ? 100 : 2000));
    run("tcp", times * (test_slowness() > 1 ? 50 : 300));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(case_30)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
