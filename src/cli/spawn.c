/* SPDX-License-Identifier: Apache-2.0
 *
 * No orphans, three ways down: a worker leads its own process group, which can be killed whole; the kernel kills the
 * worker when the launcher dies (PR_SET_PDEATHSIG); and since that does not reach what the worker itself started, a
 * guard process then kills the groups.
 */
#include "base/clock.h"
#include "base/env.h"
#include "cli/cli.h"
#include "cli/run.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- What the workers of a run share ---- */

static int random_hex(char *text, size_t digits)
{
    unsigned char bytes[32];
    size_t count = digits / 2;
    if (getrandom(bytes, count, 0) != (ssize_t)count) return -1;
    for (size_t i = 0; i < count; i++) sprintf(text + 2 * i, "%02x", bytes[i]);
    return 0;
}

/* A port that was free just now, for programs that expect one; Rondo itself does not use it. */
static int free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = 0;
    if (fd < 0) return 0;
    if (bind(fd, (struct sockaddr *)&address, bytes) == 0 && getsockname(fd, (struct sockaddr *)&address, &bytes) == 0)
        port = ntohs(address.sin_port);
    close(fd);
    return port;
}

static int check_key(const rd_run_options *options)
{
    const char *key = rd_env("RONDO_KEY"), *file = rd_env("RONDO_KEY_FILE");
    struct stat status;
    if (key && (strlen(key) != 64 || strspn(key, "0123456789abcdefABCDEF") != 64)) {
        fprintf(stderr, "rondo run: RONDO_KEY must be 64 hexadecimal digits, it has %zu characters; make one with:  "
                        "openssl rand -hex 32\n", strlen(key));
        return -1;
    }
    if (!key && file && stat(file, &status) < 0) {
        fprintf(stderr, "rondo run: RONDO_KEY_FILE=%s: %s\n", file, strerror(errno));
        return -1;
    }
    if (!key && file && (status.st_mode & 077)) {
        fprintf(stderr, "rondo run: RONDO_KEY_FILE=%s can be read by others (mode %03o); try:  chmod 600 %s\n", file,
                status.st_mode & 0777, file);
        return -1;
    }
    if (!key && !file && options->nodes > 1) {
        fprintf(stderr, "rondo run: %d nodes need one key in common, in RONDO_KEY or in the file RONDO_KEY_FILE. Make "
                        "it once and bring it to every node:\n  (umask 077; openssl rand -hex 32 > rondo.key); export "
                        "RONDO_KEY_FILE=$PWD/rondo.key\n", options->nodes);
        return -1;
    }
    return 0;
}

/* Three descriptors a worker, two more with files. */
static int allow_files(rd_launch *launch)
{
    const rd_run_options *options = launch->options;
    rlim_t needed = (rlim_t)options->workers * (options->output_dir ? 5 : 3) + 64;
    if (getrlimit(RLIMIT_NOFILE, &launch->files) < 0) return -1;
    struct rlimit more = launch->files;
    if (more.rlim_cur >= needed) return 0;
    more.rlim_cur = needed;
    if (more.rlim_max >= needed && setrlimit(RLIMIT_NOFILE, &more) == 0) return 0;
    fprintf(stderr, "rondo run: %d ranks need %lu open files and the limit is %lu; start fewer, or see ulimit -Hn\n",
            options->workers, (unsigned long)needed, (unsigned long)more.rlim_max);
    return -1;
}

int rd_launch_open(rd_launch *launch, const rd_run_options *options)
{
    *launch = (rd_launch){.options = options, .launcher = getpid(), .port = options->port};
    if (check_key(options) < 0 || allow_files(launch) < 0) return -1;
    if (options->nodes > 1) return 0; /* the address names the job, the user's key protects it */
    if (random_hex(launch->job, 32) < 0) goto no_random;
    if (!rd_env("RONDO_KEY") && !rd_env("RONDO_KEY_FILE") && random_hex(launch->key, 64) < 0) goto no_random;
    if (launch->port == 0) launch->port = free_port();
    return 0;
no_random:
    fprintf(stderr, "rondo run: no random numbers for the job's key: %s\n", strerror(errno));
    return -1;
}

/* ---- One worker ---- */

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

static void set_environment(const rd_launch *launch, const rd_worker *worker)
{
    /* Another launcher above this one gave these to us, not to our workers. */
    static const char *const foreign[] = {
        "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "SLURM_PROCID",
        "SLURM_NTASKS", "SLURM_LOCALID", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_RANK", "PMI_SIZE", "PMI_FD", "PMIX_RANK",
        "PMIX_NAMESPACE"};
    const rd_run_options *options = launch->options;
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) unsetenv(foreign[i]);
    set_number("RANK", worker->rank);
    set_number("LOCAL_RANK", worker->local_rank);
    set_number("WORLD_SIZE", options->workers * options->nodes);
    set_number("LOCAL_WORLD_SIZE", options->workers);
    set_number("GROUP_RANK", options->node);
    set_number("NODE_RANK", options->node);
    setenv("MASTER_ADDR", options->address ? options->address : "127.0.0.1", 1);
    if (launch->port > 0) set_number("MASTER_PORT", launch->port);
    if (launch->job[0]) setenv("RONDO_JOB", launch->job, 1);
    if (launch->key[0]) setenv("RONDO_KEY", launch->key, 1);
}

static void reset_signals(const rd_launch *launch)
{
    static const int used[] = {SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGPIPE, SIGCHLD};
    for (size_t i = 0; i < sizeof used / sizeof *used; i++) signal(used[i], SIG_DFL);
    sigprocmask(SIG_SETMASK, &launch->mask, NULL);
}

/* A worker is in the background of the terminal and would be stopped for reading from it. */
static bool wants_stdin(const rd_worker *worker) { return worker->local_rank == 0 && !isatty(STDIN_FILENO); }

/* sched_setattr(2), for which there is no header that goes with sched.h. */
typedef struct scheduling {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
} scheduling;

/* A rank that takes turns with others yields while it waits, and may lose the rest of its time slice by that (Linux
 * 6.18): a busy process beside the ranks then runs for milliseconds at each wait of microseconds. So they ask for short
 * slices, which Linux has from 6.12 on. What only computes is not interrupted more often: for that there are ticks. */
static void take_short_turns(int workers)
{
    enum { SLICE_NS = 100000 };
    scheduling s;
    int cpus = rd_cpus_allowed();
    if (!cpus || workers <= cpus) return;
    if (syscall(SYS_sched_getattr, 0, &s, sizeof s, 0) || s.policy != SCHED_OTHER) return;
    s.runtime = SLICE_NS;
    syscall(SYS_sched_setattr, 0, &s, 0); /* where it cannot be, all works as before */
}

static _Noreturn void become_worker(const rd_launch *launch, const rd_worker *worker, const int *out, int report)
{
    int error;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launch->launcher) _exit(1); /* it died before the line above */
    reset_signals(launch);
    setrlimit(RLIMIT_NOFILE, &launch->files);
    if (!wants_stdin(worker)) {
        int null = open("/dev/null", O_RDONLY);
        if (null >= 0 && null != STDIN_FILENO) {
            dup2(null, STDIN_FILENO);
            close(null);
        }
    }
    dup2(out[0], STDOUT_FILENO);
    dup2(out[1], STDERR_FILENO);
    set_environment(launch, worker);
    take_short_turns(launch->options->workers);
    if (launch->options->bindings && !rd_bind_here(launch->options->bindings, worker->local_rank)) {
        error = -errno;
        goto failed;
    }
    execvp(launch->options->program[0], launch->options->program);
    error = errno;
failed:
    if (write(report, &error, sizeof error) < 0) _exit(1);
    _exit(RD_EXIT_NOT_FOUND);
}

/* error: of exec, or negative of binding. */
static int say_not_started(const rd_worker *worker, const char *program, int error)
{
    if (error < 0) {
        fprintf(stderr, "rondo run: cannot bind rank %d to its processors: %s; has a cgroup's cpuset changed?\n", worker->rank,
                strerror(-error));
        return 1;
    }
    const char *hint = "";
    const char *dot = strrchr(program, '.');
    if (error == ENOENT && !strchr(program, '/') && access(program, F_OK) == 0)
        hint = "; it is not in PATH, but in this directory: write ./ before it";
    else if (error == ENOENT && !strchr(program, '/'))
        hint = "; it is not in PATH";
    else if (error == ENOENT && access(program, F_OK) == 0)
        hint = "; the file is there, its interpreter (first line) or loader is not";
    else if (error == EACCES && dot && strcmp(dot, ".py") == 0)
        hint = "; a Python program runs as:  rondo run ... -- python3 program.py";
    fprintf(stderr, "rondo run: cannot run '%s': %s%s\n", program, strerror(error), hint);
    return error == ENOENT ? RD_EXIT_NOT_FOUND : RD_EXIT_NOT_EXECUTABLE;
}

/* Both pipes, read ends non-blocking for us, write ends in out. */
static int open_pipes(rd_worker *worker, int *out)
{
    for (int i = 0; i < 2; i++) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) < 0) return -1;
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
        worker->out[i].fd = ends[0];
        out[i] = ends[1];
    }
    return 0;
}

static void close_all(int *fds, int count)
{
    for (int i = 0; i < count; i++)
        if (fds[i] >= 0) close(fds[i]);
}

/* Waits for exec: end of file on the close-on-exec pipe, or the errno that stopped it (negative: before that). */
static int exec_error(int report)
{
    int error;
    ssize_t got;
    do got = read(report, &error, sizeof error);
    while (got < 0 && errno == EINTR);
    return got == sizeof error ? error : 0;
}

int rd_spawn(const rd_launch *launch, int local_rank, rd_worker *worker)
{
    int out[2] = {-1, -1}, report[2] = {-1, -1}, error;
    worker->local_rank = local_rank;
    worker->rank = launch->options->node * launch->options->workers + local_rank;
    if (open_pipes(worker, out) < 0 || pipe2(report, O_CLOEXEC) < 0) goto failed;
    worker->started = rd_now();
    worker->pid = fork();
    if (worker->pid < 0) goto failed;
    if (worker->pid == 0) become_worker(launch, worker, out, report[1]);
    setpgid(worker->pid, worker->pid); /* whoever of the two is first: the group exists before anyone needs it */
    close_all(out, 2);
    close(report[1]);
    error = exec_error(report[0]);
    close(report[0]);
    if (error) {
        waitpid(worker->pid, NULL, 0);
        worker->pid = 0;
        return say_not_started(worker, launch->options->program[0], error);
    }
    worker->running = worker->group_left = true;
    worker->pidfd = pidfd_open(worker->pid, 0);
    if (worker->pidfd >= 0) return 0;
    fprintf(stderr, "rondo run: pidfd_open: %s; Rondo needs Linux 5.3 or newer\n", strerror(errno));
    return 1;
failed:
    fprintf(stderr, "rondo run: cannot start rank %d (%d of %d on this node are started): %s; see ulimit -u and "
                    "ulimit -n\n", worker->rank, local_rank, launch->options->workers, strerror(errno));
    close_all(out, 2);
    close_all(report, 2);
    worker->pid = 0;
    return 1;
}

/* ---- The guard ---- */

static _Noreturn void guard(const pid_t *groups, int count, int fd)
{
    char byte;
    setsid(); /* away from the terminal's Ctrl-C and hang-up; all other signals stay blocked */
    prctl(PR_SET_NAME, "rondo-guard");
    dup2(fd, STDIN_FILENO);
    close_range(STDOUT_FILENO, ~0U, 0);
    if (chdir("/") < 0) _exit(1);
    while (read(STDIN_FILENO, &byte, 1) > 0) continue;
    for (int i = 0; i < count; i++)
        if (groups[i] > 0) kill(-groups[i], SIGKILL);
    _exit(0);
}

pid_t rd_guard_start(const pid_t *groups, int count, int *fd)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) return -1;
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[1]);
        guard(groups, count, ends[0]);
    }
    close(ends[0]);
    if (pid < 0) close(ends[1]);
    *fd = ends[1];
    return pid;
}
