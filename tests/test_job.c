/* SPDX-License-Identifier: Apache-2.0
 *
 * test_job.c - what a launcher's environment says: job, rank, world, key, and where the root is.
 * Each environment is tried in a child of its own.
 */
#include "asserts.h"

#include "base/hash.h"
#include "boot/internal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* ---- Environments ---- */

struct answer {
    rondo_result result;
    rd_job job;
    char error[RD_ERROR_BYTES];
};

/* rd_job_from_env in a child that has these variables ("NAME=value", NULL at the end) and PATH. */
static struct answer from(const char *const *variables)
{
    static struct answer a;
    int ends[2], status;
    size_t used = 0;
    ssize_t got;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        rd_settings settings;
        alarm(20); /* a child that hangs is a failure */
        clearenv();
        for (; *variables; variables++) putenv((char *)(uintptr_t)*variables);
        memset(&a, 0xa5, sizeof a);
        a.result = rd_settings_load(&settings, NULL);
        if (a.result == RONDO_SUCCESS) a.result = rd_job_from_env(&a.job, &settings);
        snprintf(a.error, sizeof a.error, "%s", rd_last_error());
        _exit(write(ends[1], &a, sizeof a) != sizeof a);
    }
    close(ends[1]);
    while (used < sizeof a && (got = read(ends[0], (char *)&a + used, sizeof a - used)) > 0) used += (size_t)got;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    return a;
}

#define FROM(...) from((const char *const[]){__VA_ARGS__, NULL})

static struct answer good(struct answer a)
{
    if (a.result != RONDO_SUCCESS) fail_msg("%s: %s", rondo_result_string(a.result), a.error);
    return a;
}

static bool same_job(struct answer a, struct answer b)
{
    return memcmp(good(a).job.id, good(b).job.id, 16) == 0 && strcmp(a.job.root[0], b.job.root[0]) == 0;
}

static void assert_refused(struct answer a, rondo_result result, const char *const *parts)
{
    assert_int_equal(a.result, result);
    for (; *parts; parts++) assert_contains(a.error, *parts);
    for (size_t i = 0; i < sizeof a.job; i++) assert_int_equal(((unsigned char *)&a.job)[i], 0xa5);
}

#define REFUSED(answer, ...) assert_refused(answer, RONDO_INVALID_ARGUMENT, (const char *const[]){__VA_ARGS__, NULL})

static void no_launcher(void **state)
{
    (void)state;
    static const char *const parts[] = {"no launcher's environment found", "`rondo run -n N -- program`", "torchrun",
                                        "RANK and WORLD_SIZE", NULL};
    assert_refused(FROM("A=1"), RONDO_INVALID_USAGE, parts);
    assert_refused(FROM("RANK=", "WORLD_SIZE=", "MASTER_ADDR=10.0.0.1"), RONDO_INVALID_USAGE, parts);
}

/* By hand on one host, nothing but rank and world. */
static void rank_and_world(void **state)
{
    (void)state;
    struct answer a = good(FROM("RANK=1", "WORLD_SIZE=4")), root = good(FROM("RANK=0", "WORLD_SIZE=4"));
    char name[RD_ADDRESS_TEXT], digits[33];
    assert_int_equal(a.job.rank, 1);
    assert_int_equal(a.job.world, 4);
    assert_int_equal(a.job.comm_number, 0);
    assert_false(a.job.is_root);
    assert_true(root.job.is_root);
    assert_false(a.job.has_key);
    assert_int_equal(a.job.roots, 1);
    assert_int_equal(a.job.root_ports, 0);
    rd_hex(digits, a.job.id, 16);
    snprintf(name, sizeof name, "unix:rondo-%u-%s", (unsigned)geteuid(), digits);
    assert_string_equal(a.job.root[0], name);
    assert_string_equal(a.job.launcher, "environment");
    assert_true(same_job(a, root)); /* one parent: us */
    assert_false(same_job(a, FROM("RANK=1", "WORLD_SIZE=5")));
    assert_false(same_job(a, FROM("RANK=1", "WORLD_SIZE=4", "RONDO_JOB=a")));
}

/* Ranks that were started by another process are another job, even where nothing names them. */
static void the_parent_names_the_job(void **state)
{
    (void)state;
    struct answer here = good(FROM("RANK=0", "WORLD_SIZE=2"));
    int ends[2], status;
    unsigned char id[16];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        struct answer a = from((const char *const[]){"RANK=0", "WORLD_SIZE=2", NULL});
        _exit(write(ends[1], a.job.id, 16) != 16);
    }
    assert_int_equal(read(ends[0], id, 16), 16);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_memory_not_equal(id, here.job.id, 16);
    /* With an address that names it, the parent does not count: ranks may be started from anywhere. */
    struct answer named = good(FROM("RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=10.0.0.1", "MASTER_PORT=2"));
    pid_t second = fork();
    if (second == 0) {
        struct answer a =
            from((const char *const[]){"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=10.0.0.1", "MASTER_PORT=2", NULL});
        _exit(memcmp(a.job.id, named.job.id, 16) != 0);
    }
    assert_int_equal(waitpid(second, &status, 0), second);
    assert_int_equal(status, 0);
}

static void rondo_run(void **state)
{
    (void)state;
    static const char key[] = "RONDO_KEY=000102030405060708090a0b0c0d0e0fF0F1F2F3F4F5F6F7F8F9FAFBFCFDFEFF";
    struct answer a =
        good(FROM("RONDO_JOB=17-abc", "RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", key));
    assert_string_equal(a.job.launcher, "rondo run");
    assert_true(a.job.has_key);
    assert_int_equal(a.job.key[1], 1);
    assert_int_equal(a.job.key[16], 0xf0);
    assert_int_equal(a.job.roots, 1);
    assert_int_equal(a.job.root_ports, 0);
    assert_true(same_job(a, FROM("RONDO_JOB=17-abc", "RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2")));
    assert_false(same_job(a, FROM("RONDO_JOB=17-abd", "RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2")));
    /* A port that is asked for is listened on, whether or not anyone needs it. */
    a = good(
        FROM("RONDO_JOB=17-abc", "RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2", "RONDO_PORT=4000"));
    assert_int_equal(a.job.root_port, 4000);
    assert_int_equal(a.job.root_ports, 1);
    /* The job of a launcher within another's is the inner one's. */
    a = good(FROM("RONDO_JOB=17-abc", "RANK=1", "WORLD_SIZE=2", "SLURM_PROCID=0", "SLURM_NTASKS=1", "SLURM_JOB_ID=5"));
    assert_int_equal(a.job.world, 2);
}

#define TORCH(rank)                                                                                                    \
    "RANK=" rank, "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4", "MASTER_ADDR=10.3.2.1", "MASTER_PORT=29500",   \
        "TORCHELASTIC_RUN_ID=none", "TORCHELASTIC_RESTART_COUNT=0"
#define TORCHRUN(rank) TORCH(rank), "TORCHELASTIC_USE_AGENT_STORE=True"

static void torchrun(void **state)
{
    (void)state;
    struct answer a = good(FROM(TORCHRUN("5"))), root = good(FROM(TORCHRUN("0")));
    assert_string_equal(a.job.launcher, "torchrun");
    assert_int_equal(a.job.rank, 5);
    assert_int_equal(a.job.world, 8);
    assert_int_equal(a.job.roots, 2);
    assert_string_equal(a.job.root[1], "10.3.2.1:29501");
    assert_int_equal(a.job.root_port, 29501); /* the agent's store has 29500 */
    assert_int_equal(a.job.root_ports, 16);
    assert_int_equal(root.job.root_port, 29501);
    assert_int_equal(root.job.root_ports, 16);
    assert_true(same_job(a, root));
    a = good(FROM(TORCH("5"), "TORCHELASTIC_USE_AGENT_STORE=False"));
    assert_string_equal(a.job.root[1], "10.3.2.1:29500");
    assert_int_equal(a.job.root_port, 29500);
    assert_int_equal(a.job.root_ports, 17);
    assert_true(same_job(a, root));
    a = good(FROM(TORCHRUN("5"), "RONDO_PORT=777"));
    assert_string_equal(a.job.root[1], "10.3.2.1:777");
    assert_int_equal(a.job.root_ports, 1);
    /* Another run, address, port or restart is another job. */
    a = good(FROM(TORCHRUN("5")));
    assert_false(same_job(a, FROM(TORCHRUN("5"), "TORCHELASTIC_RUN_ID=x")));
    assert_false(same_job(a, FROM(TORCHRUN("5"), "MASTER_ADDR=10.3.2.2")));
    assert_false(same_job(a, FROM(TORCHRUN("5"), "MASTER_PORT=29501")));
    assert_false(same_job(a, FROM(TORCHRUN("5"), "TORCHELASTIC_RESTART_COUNT=1")));
    assert_false(same_job(a, FROM(TORCHRUN("5"), "WORLD_SIZE=12")));
    assert_true(same_job(a, FROM(TORCHRUN("6"), "LOCAL_RANK=2")));
    /* Known to be one host: nobody has to ask a resolver. */
    a = good(FROM("RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=no-such-host.invalid",
                  "MASTER_PORT=29500", "TORCHELASTIC_RUN_ID=x", "TORCHELASTIC_USE_AGENT_STORE=True"));
    assert_int_equal(a.job.roots, 1);
    assert_int_equal(a.job.root_ports, 0);
}

static void ports(void **state)
{
    (void)state;
    struct answer a = good(FROM("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=10.0.0.1", "MASTER_PORT=65530"));
    assert_int_equal(a.job.root_port, 65530);
    assert_int_equal(a.job.root_ports, 6);
    a = good(FROM("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=10.0.0.1", "MASTER_PORT=65534",
                  "TORCHELASTIC_USE_AGENT_STORE=true"));
    assert_int_equal(a.job.root_port, 65535);
    assert_int_equal(a.job.root_ports, 1);
    a = good(FROM("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=fd00::9", "RONDO_PORT=99"));
    assert_string_equal(a.job.root[1], "[fd00::9]:99");
    REFUSED(FROM("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=10.0.0.1"), "MASTER_ADDR=10.0.0.1", "MASTER_PORT is unset",
            "RONDO_PORT");
    REFUSED(FROM("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=10.0.0.1", "MASTER_PORT=http"), "MASTER_PORT=http",
            "1 to 65535");
    REFUSED(FROM("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=10.0.0.1", "MASTER_PORT=0"), "MASTER_PORT=0", "1 to 65535");
    REFUSED(FROM("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=10.0.0.1", "MASTER_PORT=65535",
                 "TORCHELASTIC_USE_AGENT_STORE=True"),
            "MASTER_PORT=65535", "1 to 65534");
    /* A root listens; only its peers have to find it. */
    a = good(FROM("RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=no-such-host.invalid", "MASTER_PORT=5"));
    assert_int_equal(a.job.roots, 1);
    assert_int_equal(a.job.root_port, 5);
}

static void bad_environments(void **state)
{
    (void)state;
    REFUSED(FROM("RANK=1"), "RANK and WORLD_SIZE belong together", "RANK=1", "WORLD_SIZE unset");
    REFUSED(FROM("WORLD_SIZE=4"), "RANK unset", "WORLD_SIZE=4");
    REFUSED(FROM("RANK=4", "WORLD_SIZE=4"), "0 to 3", "RANK=4, WORLD_SIZE=4");
    REFUSED(FROM("RANK=-1", "WORLD_SIZE=4"), "0 to 3", "RANK=-1");
    REFUSED(FROM("RANK=one", "WORLD_SIZE=4"), "0 to 3", "RANK=one");
    REFUSED(FROM("RANK=1x", "WORLD_SIZE=4"), "RANK=1x");
    REFUSED(FROM("RANK= 1", "WORLD_SIZE=4"), "RANK= 1");
    REFUSED(FROM("RANK=0", "WORLD_SIZE=0"), "1 to 65536", "WORLD_SIZE=0");
    REFUSED(FROM("RANK=0", "WORLD_SIZE=99999999999999999999"), "1 to 65536");
    REFUSED(FROM("RANK=0", "WORLD_SIZE=65537"), "1 to 65536");
    REFUSED(FROM("RANK=0", "WORLD_SIZE=4", "LOCAL_RANK=2", "LOCAL_WORLD_SIZE=2"), "local rank",
            "LOCAL_RANK=2, LOCAL_WORLD_SIZE=2");
    REFUSED(FROM("RANK=0", "WORLD_SIZE=4", "LOCAL_RANK=4"), "local rank", "LOCAL_RANK=4");
    REFUSED(FROM("RANK=0", "WORLD_SIZE=4", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=5"), "local world size",
            "LOCAL_WORLD_SIZE=5");
    REFUSED(FROM("RANK=0", "WORLD_SIZE=4", "LOCAL_RANK=x"), "LOCAL_RANK=x");
    REFUSED(FROM("RANK=0", "WORLD_SIZE=4", "LOCAL_WORLD_SIZE=2"), "several hosts", "MASTER_ADDR", "LOCAL_WORLD_SIZE=2");
}

static void case_37_launchers(void **state)
{
    (void)state;
    struct answer a = good(FROM("SLURM_PROCID=3", "SLURM_NTASKS=4", "SLURM_JOB_ID=99", "SLURM_STEP_ID=0"));
    struct answer root =
        good(FROM("SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_JOB_ID=99", "SLURM_STEP_ID=0", "SLURM_LOCALID=0"));
    assert_string_equal(a.job.launcher, "Slurm");
    assert_int_equal(a.job.rank, 3);
    assert_int_equal(a.job.world, 4);
    assert_int_equal(a.job.root_ports, 0);
    assert_true(same_job(a, root));
    assert_false(same_job(a, FROM("SLURM_PROCID=3", "SLURM_NTASKS=4", "SLURM_JOB_ID=99", "SLURM_STEP_ID=1")));
    assert_false(same_job(a, FROM("SLURM_PROCID=3", "SLURM_NTASKS=4", "SLURM_JOB_ID=98", "SLURM_STEP_ID=0")));
    a = good(FROM("OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=4"));
    assert_string_equal(a.job.launcher, "Open MPI");
    assert_int_equal(a.job.rank, 2);
    assert_true(same_job(a, FROM("OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=4")));
    /* Two that agree are fine, two that do not are an error that lists both. */
    good(FROM("SLURM_PROCID=3", "SLURM_NTASKS=4", "RANK=3", "WORLD_SIZE=4"));
    REFUSED(FROM("SLURM_PROCID=3", "SLURM_NTASKS=4", "RANK=2", "WORLD_SIZE=4"), "RANK=2, WORLD_SIZE=4",
            "SLURM_PROCID=3, SLURM_NTASKS=4");
    REFUSED(FROM("SLURM_PROCID=1", "SLURM_NTASKS=4", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2"),
            "SLURM_NTASKS=4", "OMPI_COMM_WORLD_SIZE=2", "disagree");
    REFUSED(FROM("SLURM_NTASKS=4"), "SLURM_PROCID unset", "SLURM_NTASKS=4", "srun");
    REFUSED(FROM("SLURM_PROCID=0", "SLURM_JOB_ID=9"), "SLURM_PROCID=0", "SLURM_NTASKS unset");
    REFUSED(FROM("OMPI_COMM_WORLD_SIZE=4"), "OMPI_COMM_WORLD_RANK unset", "mpirun");
    REFUSED(FROM("SLURM_PROCID=3", "SLURM_NTASKS=4", "RANK=3"), "WORLD_SIZE unset");
    good(FROM("SLURM_NTASKS=4", "RANK=1", "WORLD_SIZE=2")); /* in an allocation, started by hand */
    /* Several hosts need an address. */
    REFUSED(FROM("SLURM_PROCID=3", "SLURM_NTASKS=4", "SLURM_NNODES=2"), "several hosts", "MASTER_ADDR",
            "SLURM_NNODES=2");
    REFUSED(FROM("OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_SIZE=2"), "several hosts",
            "MASTER_ADDR");
    a = good(FROM("SLURM_PROCID=3", "SLURM_NTASKS=4", "SLURM_NNODES=2", "MASTER_ADDR=10.0.0.1", "MASTER_PORT=30000"));
    assert_string_equal(a.job.root[1], "10.0.0.1:30000");
    good(FROM("SLURM_PROCID=3", "SLURM_NTASKS=4", "SLURM_NNODES=1"));
}

/* ---- Keys ---- */

#define DIGITS "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF"

static void keys_from_the_environment(void **state)
{
    (void)state;
    struct answer a = good(FROM("RANK=0", "WORLD_SIZE=2", "RONDO_KEY=" DIGITS, "RONDO_REQUIRE_KEY=1"));
    assert_true(a.job.has_key);
    assert_int_equal(a.job.key[31], 0xff);
    static const char *const bad[] = {"RONDO_KEY=0011",
                                      "RONDO_KEY=" DIGITS "0",
                                      "RONDO_KEY=" DIGITS DIGITS,
                                      "RONDO_KEY=0x112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF",
                                      "RONDO_KEY=0011223344556677 899aabbccddeeff00112233445566778899AABBCCDDEEFF",
                                      "RONDO_KEY=0000000000000000000000000000000000000000000000000000000000000000"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        a = from((const char *const[]){"RANK=0", "WORLD_SIZE=2", bad[i], NULL});
        REFUSED(a, "RONDO_KEY", "openssl rand -hex 32");
        assert_null(strstr(a.error, "1122")); /* a key is not for the log */
    }
    a = FROM("RANK=0", "WORLD_SIZE=2", "RONDO_REQUIRE_KEY=1");
    assert_refused(a, RONDO_INVALID_USAGE, (const char *const[]){"RONDO_REQUIRE_KEY", "RONDO_KEY_FILE", NULL});
    assert_false(good(FROM("RANK=0", "WORLD_SIZE=2", "RONDO_REQUIRE_KEY=0")).job.has_key);
}

static void write_key(const char *path, const char *text, mode_t mode)
{
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static void keys_from_files(void **state)
{
    (void)state;
    char folder[] = "/tmp/rondo-test-job-XXXXXX", path[64], variable[96], command[96];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/key", folder);
    snprintf(variable, sizeof variable, "RONDO_KEY_FILE=%s", path);
    snprintf(command, sizeof command, "chmod 600 %s", path);
#define WITH_FILE FROM("RANK=0", "WORLD_SIZE=2", variable, "RONDO_REQUIRE_KEY=1")
    static const char *const texts[] = {DIGITS, DIGITS "\n", DIGITS " \r\n\n"};
    static const mode_t modes[] = {0600, 0400, 0700};
    for (int i = 0; i < 3; i++) {
        write_key(path, texts[i], modes[i]);
        assert_int_equal(good(WITH_FILE).job.key[1], 0x11);
    }
    /* The file wins over the variable. */
    assert_int_equal(good(FROM("RANK=0", "WORLD_SIZE=2", variable, "RONDO_KEY=ff" DIGITS)).job.key[1], 0x11);
    static const mode_t open_modes[] = {0640, 0604, 0620, 0666, 0601};
    for (int i = 0; i < 5; i++) {
        char octal[16];
        snprintf(octal, sizeof octal, "%04o", (unsigned)open_modes[i]);
        write_key(path, DIGITS, open_modes[i]);
        REFUSED(WITH_FILE, path, octal, command);
    }
    static const char *const bad[] = {"", "\n", "0011\n", "\n" DIGITS, DIGITS "\n" DIGITS};
    for (int i = 0; i < 5; i++) {
        write_key(path, bad[i], 0600);
        REFUSED(WITH_FILE, path, "64 hexadecimal digits");
    }
    if (geteuid() == 0) {
        write_key(path, DIGITS, 0600);
        assert_int_equal(chown(path, 12345, 12345), 0);
        REFUSED(WITH_FILE, path, "belongs to user 12345");
    }
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0); /* must not wait for a writer */
    REFUSED(WITH_FILE, path, "not a regular file");
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    REFUSED(WITH_FILE, path, "not a regular file");
    rmdir(path);
    struct answer a = WITH_FILE;
    assert_refused(a, RONDO_SYSTEM_ERROR, (const char *const[]){path, "No such file", NULL});
    rmdir(folder);
}

static void each_communicator_counts(void **state)
{
    (void)state;
    int status;
    pid_t child = fork();
    if (child == 0) {
        rd_settings settings;
        rd_job job;
        alarm(20); /* a child that hangs is a failure */
        clearenv();
        setenv("RANK", "0", 1);
        setenv("WORLD_SIZE", "2", 1);
        int bad = rd_settings_load(&settings, NULL) != RONDO_SUCCESS;
        for (uint32_t i = 0; i < 3; i++)
            bad |= rd_job_from_env(&job, &settings) != RONDO_SUCCESS || job.comm_number != i;
        setenv("RONDO_KEY", "bad", 1); /* a refused call takes no number */
        bad |= rd_settings_load(&settings, NULL) != RONDO_SUCCESS;
        bad |= rd_job_from_env(&job, &settings) == RONDO_SUCCESS;
        unsetenv("RONDO_KEY");
        bad |= rd_settings_load(&settings, NULL) != RONDO_SUCCESS;
        bad |= rd_job_from_env(&job, &settings) != RONDO_SUCCESS || job.comm_number != 3;
        setenv("RONDO_JOB", "another", 1);
        bad |= rd_job_from_env(&job, &settings) != RONDO_SUCCESS || job.comm_number != 0;
        _exit(bad);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_launcher),
        cmocka_unit_test(rank_and_world),
        cmocka_unit_test(the_parent_names_the_job),
        cmocka_unit_test(rondo_run),
        cmocka_unit_test(torchrun),
        cmocka_unit_test(ports),
        cmocka_unit_test(bad_environments),
        cmocka_unit_test(case_37_launchers),
        cmocka_unit_test(keys_from_the_environment),
        cmocka_unit_test(keys_from_files),
        cmocka_unit_test(each_communicator_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
