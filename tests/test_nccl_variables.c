/* SPDX-License-Identifier: Apache-2.0
 *
 * test_nccl_variables.c - NCCL_ variables: what is honoured has its effect, what is not is said once. Each in a process
 * of its own, which has not looked at them yet.
 */
#include "nccl/kit.h"

#include <sys/wait.h>
#include <unistd.h>

static char said[65536]; /* by the process on standard error */

/* Runs f with these variables ("NAME=value", NULL at the end); it must return 0. */
static void run(int (*f)(void), const char *const *variables)
{
    int errors[2], status;
    size_t used = 0;
    ssize_t got;
    assert_int_equal(pipe(errors), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(errors[1], STDERR_FILENO);
        close(errors[1]);
        alarm(60);
        unsetenv("RONDO_DEBUG");
        for (; *variables; variables++) putenv((char *)(uintptr_t)*variables);
        _exit(f());
    }
    close(errors[1]);
    while (used < sizeof said - 1 && (got = read(errors[0], said + used, sizeof said - 1 - used)) > 0)
        used += (size_t)got;
    said[used] = 0;
    close(errors[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status) print_error("status %x: %s\n", (unsigned)status, said);
    assert_int_equal(status, 0);
}

#define RUN(f, ...) run(f, (const char *const[]){__VA_ARGS__, NULL})

static void expect_said(const char *part, int times)
{
    int count = 0;
    for (const char *at = said; (at = strstr(at, part)); at++) count++;
    if (count != times) print_error("\"%s\" %d times, not %d, in: %s\n", part, count, times, said);
    assert_int_equal(count, times);
}

/* ---- What the processes do ---- */

static int two_ranks(void)
{
    ncclComm_t comms[2];
    int value[2] = {3, 4};
    if (ncclCommInitAll(comms, 2, NULL)) return 1;
    if (ncclGroupStart()) return 2;
    for (int r = 0; r < 2; r++)
        if (ncclAllReduce(&value[r], &value[r], 1, ncclInt, ncclSum, comms[r], NULL)) return 3;
    if (ncclGroupEnd() || value[0] != 7 || value[1] != 7) return 4;
    for (int r = 0; r < 2; r++)
        if (ncclCommDestroy(comms[r])) return 5;
    return 0;
}

static int twice(void)
{
    int failed = two_ranks();
    return failed ? failed : two_ranks();
}

static int in_the_background(void)
{
    ncclUniqueId id;
    ncclComm_t comm;
    ncclResult_t state = ncclInProgress;
    if (ncclGetUniqueId(&id) || ncclCommInitRank(&comm, 1, id, 0) != ncclInProgress) return 1;
    for (int i = 0; i < 1000 && state == ncclInProgress; i++, pause_ms(5))
        if (ncclCommGetAsyncError(comm, &state)) return 2;
    return state || ncclCommDestroy(comm);
}

/* Ranks `from` to `to` of 4 begin; nobody else comes, and so they give up after half a second. */
static int some_of_4(int from, int to)
{
    ncclUniqueId id;
    ncclComm_t comms[4];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (ncclGetUniqueId(&id)) return 1;
    for (int r = from; r <= to; r++)
        if (ncclCommInitRankConfig(&comms[r], 4, id, r, &config) != ncclInProgress) return 2;
    pause_ms(500);
    for (int r = from; r <= to; r++)
        if (ncclCommAbort(comms[r])) return 3;
    return 0;
}
static int first_and_second_of_4(void)
{
    return some_of_4(0, 1);
}
static int last_of_4(void)
{
    return some_of_4(3, 3);
}

static int no_interface(void)
{
    ncclUniqueId id;
    if (ncclGetUniqueId(&id) == ncclSuccess) return 1;
    return strstr(ncclGetLastError(NULL), "NCCL_SOCKET_IFNAME==no-such-card") ? 0 : 2;
}

/* It needs shared memory, which there is not: for a reason that the user gave under the other name. */
static int no_flat(void)
{
    ncclComm_t comms[2];
    if (ncclCommInitAll(comms, 2, NULL) == ncclSuccess) return 1;
    const char *why = ncclGetLastError(NULL), *set = "(RONDO_TRANSPORT: as NCCL_SHM_DISABLE=1 has it)";
    fprintf(stderr, "%s\n", why);
    const char *at = strstr(why, set);
    return at && !strstr(at + 1, set) ? 0 : 2;
}

static int another_level(void)
{
    int failed = two_ranks();
    if (failed) return failed;
    fprintf(stderr, "-- changed\n");
    setenv("NCCL_DEBUG", "INFO", 1);
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    ncclResetDebugInit();
    return two_ranks();
}

/* ---- The tests ---- */

static void nothing_is_said_of_nothing(void **state)
{
    (void)state;
    RUN(two_ranks, "NCCL_VERSION=2.28.9-1", "NCCL_DEBUG=WARN", "NCCL_P2P_DISABLE=1", "NCCL_IB_DISABLE=1",
        "NCCL_NET=Socket");
    assert_string_equal(said, "");
}

static void what_means_nothing_here_is_said_once(void **state)
{
    (void)state;
    RUN(twice, "NCCL_NTHREADS=256", "NCCL_ALGO=Tree", "NCCL_NET=MyNet", "NCCL_P2P_LEVEL=SYS");
    expect_said("NCCL_NTHREADS=256", 1);
    expect_said("NCCL_ALGO=Tree", 1);
    expect_said("NCCL_NET=MyNet", 1);
    expect_said("NCCL_P2P_LEVEL=SYS", 1);
    expect_said("\n", 1);
    RUN(two_ranks, "NCCL_NTHREADS=256", "RONDO_DEBUG=NONE");
    assert_string_equal(said, "");
}

static void debug_levels(void **state)
{
    (void)state;
    RUN(two_ranks, "NCCL_DEBUG=INFO");
    assert_non_null(strstr(said, " INFO: "));
    RUN(two_ranks, "NCCL_DEBUG=INFO", "RONDO_DEBUG=WARN");
    assert_null(strstr(said, " INFO: "));
    RUN(another_level, "NCCL_DEBUG=WARN");
    const char *changed = strstr(said, "-- changed");
    assert_non_null(changed);
    const char *first = strstr(said, " INFO: ");
    assert_true(first && first > changed);
}

static void the_version_is_told(void **state)
{
    (void)state;
    RUN(twice, "NCCL_DEBUG=VERSION");
    expect_said("]: NCCL version 2.28.9, as Rondo 0.1.0 has it\n", 1);
    expect_said("\n", 1);
    RUN(two_ranks, "NCCL_DEBUG=INFO");
    expect_said(" INFO: NCCL version 2.28.9", 1);
}

/* What a process writes goes to the file that is named for its host and its number. */
static int into_a_file(void)
{
    char host[65] = "", name[256], text[256] = "";
    if (two_ranks() || gethostname(host, sizeof host - 1)) return 1;
    host[strcspn(host, ".")] = 0;
    snprintf(name, sizeof name, "%s/of-%s-%d-%%x.log", getenv("TEST_FOLDER"), host, (int)getpid());
    FILE *log = fopen(name, "r");
    if (!log || !fgets(text, sizeof text, log) || fclose(log) || unlink(name)) return 2;
    return strstr(text, "NCCL version 2.28.9") ? 0 : 3;
}

static void a_log_in_a_file(void **state)
{
    char folder[] = "/tmp/nccl-log-XXXXXX", name[128], where[64];
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(name, sizeof name, "NCCL_DEBUG_FILE=%s/of-%%h-%%p-%%x.log", folder);
    snprintf(where, sizeof where, "TEST_FOLDER=%s", folder);
    RUN(into_a_file, name, where, "NCCL_DEBUG=VERSION");
    assert_string_equal(said, "");
    assert_int_equal(rmdir(folder), 0);
    RUN(two_ranks, "NCCL_DEBUG_FILE=/no/such/folder/log");
    expect_said("WARN: NCCL_DEBUG_FILE: /no/such/folder/log: No such file or directory", 1);
    RUN(two_ranks, "NCCL_DEBUG_FILE=/no/such/folder/log", "RONDO_DEBUG=NONE");
    assert_string_equal(said, "");
    RUN(two_ranks, "NCCL_DEBUG=VERSION", "NCCL_DEBUG_FILE=stderr", "NCCL_DEBUG_SUBSYS=INIT,NET");
    expect_said("NCCL version", 1);
    expect_said("NCCL_DEBUG_SUBSYS=INIT,NET", 1);
}

static void ways_and_algorithms(void **state)
{
    (void)state;
    RUN(two_ranks, "NCCL_SHM_DISABLE=1", "NCCL_DEBUG=INFO");
    assert_non_null(strstr(said, "tcp"));
    RUN(two_ranks, "NCCL_ALGO=Ring", "NCCL_MIN_NCHANNELS=4", "NCCL_SOCKET_NTHREADS=2", "NCCL_NSOCKS_PERTHREAD=2",
        "NCCL_DEBUG=INFO");
    assert_null(strstr(said, "mean nothing"));
    assert_non_null(strstr(said, "4 channels"));
}

/* What the library made of them; it names a setting that it leaves a device out by. */
static void rdma(void **state)
{
    (void)state;
    RUN(two_ranks, "NCCL_IB_HCA=^=mlx5_3:1", "NCCL_IB_GID_INDEX=-1", "NCCL_IB_TC=106", "NCCL_IB_SL=1", "NCCL_IB_PKEY=0",
        "NCCL_IB_TIMEOUT=20", "NCCL_IB_DISABLE=0");
    assert_string_equal(said, "");
    RUN(two_ranks, "NCCL_IB_TIMEOUT=99", "NCCL_IB_SL=1");
    expect_said("NCCL_IB_TIMEOUT=99", 1);
    expect_said("NCCL_IB_SL", 0);
}

static int refused_address(void)
{
    ncclUniqueId id;
    return ncclGetUniqueId(&id) == ncclInvalidArgument && strstr(ncclGetLastError(NULL), "here:there") ? 0 : 1;
}

static void a_meeting_point(void **state)
{
    (void)state;
    RUN(refused_address, "NCCL_COMM_ID=here:there");
}

static void blocking_and_interfaces(void **state)
{
    (void)state;
    RUN(in_the_background, "NCCL_COMM_BLOCKING=0");
    RUN(no_interface, "NCCL_SOCKET_IFNAME==no-such-card");
    RUN(two_ranks, "NCCL_SOCKET_IFNAME==no-such-card", "RONDO_INTERFACE=lo");
    RUN(no_flat, "NCCL_SHM_DISABLE=1", "RONDO_ALGO=flat");
}

/* By the process that they come to, or by who does not find it, once each. */
static void a_start_that_waits_says_for_whom(void **state)
{
    (void)state;
    RUN(first_and_second_of_4, "RONDO_SLOW_WARNING=0.2");
    expect_said("WARN: the start has not completed in 0.2 s: 2 of 4 joined; missing: ranks 2, 3; ", 1);
    expect_said("\n", 1);
    RUN(last_of_4, "RONDO_SLOW_WARNING=0.2", "NCCL_COMM_ID=127.0.0.1:9"); /* where nobody listens */
    expect_said("WARN: rank 3 has not reached rank 0 in 0.2 s, at any of its addresses: ", 1);
    expect_said("127.0.0.1:9: Connection refused", 1);
    expect_said("\n", 1);
    RUN(two_ranks, "RONDO_SLOW_WARNING=0.2");
    assert_string_equal(said, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_said_of_nothing),
        cmocka_unit_test(what_means_nothing_here_is_said_once),
        cmocka_unit_test(debug_levels),
        cmocka_unit_test(the_version_is_told),
        cmocka_unit_test(a_log_in_a_file),
        cmocka_unit_test(ways_and_algorithms),
        cmocka_unit_test(blocking_and_interfaces),
        cmocka_unit_test(rdma),
        cmocka_unit_test(a_meeting_point),
        cmocka_unit_test(a_start_that_waits_says_for_whom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
