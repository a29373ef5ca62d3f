/* SPDX-License-Identifier: Apache-2.0
 *
 * test_run_shrink.c - `rondo run --keep-going`: a rank dies, the others shrink and go on, and the run is a success.
 * Started by itself as a rank, with the word "rank".
 */
#include "rondo.h"
#include "test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 3, VICTIM = 1, COUNT = 1000 };

static char self[4096];

static int value(int rank, int i)
{
    return (rank + 1) * 1000 + i % 97;
}

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, rondo_last_error(NULL));
    return 1;
}

static int be_rank(void)
{
    static int data[COUNT];
    rondo_comm *comm = NULL, *left = NULL;
    alarm(30);
    if (rondo_init_env(&comm, NULL)) return failed("init");
    int rank = rondo_comm_rank(comm);
    if (rondo_barrier(comm, NULL)) return failed("barrier");
    if (rank == VICTIM) raise(SIGKILL);
    if (rondo_barrier(comm, NULL) != RONDO_REMOTE_ERROR) return failed("the death was not noticed");
    if (rondo_comm_shrink(comm, NULL, 0, &left, NULL)) return failed("shrink");
    for (int i = 0; i < COUNT; i++) data[i] = value(rank, i);
    if (rondo_all_reduce(data, data, COUNT, RONDO_INT32, RONDO_SUM, left, NULL)) return failed("all-reduce");
    for (int i = 0; i < COUNT; i++)
        if (data[i] != value(0, i) + value(2, i)) return failed("a wrong sum");
    sleep(1); /* longer than others are given when a rank fails */
    printf("%d of %d ranks went on\n", rondo_comm_size(left), rondo_comm_size(comm));
    return rondo_comm_destroy(left) || rondo_comm_destroy(comm);
}

static void keeps_going(void **state)
{
    char command[3 * sizeof self], line[256];
    int went_on = 0;
    (void)state;
    alarm(60);
    snprintf(command, sizeof command, "'%.*s/../rondo' run -n %d --keep-going -- '%s' rank",
             (int)(strrchr(self, '/') - self), self, N, self);
    FILE *run = popen(command, "r");
    assert_non_null(run);
    while (fgets(line, sizeof line, run)) went_on += strstr(line, "2 of 3 ranks went on\n") != NULL;
    int status = pclose(run);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(went_on, N - 1);
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1) return be_rank();
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(keeps_going)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
