/* SPDX-License-Identifier: Apache-2.0
 *
 * One loop, one thread, four phases:
 *
 *   RUNNING   until a worker fails (not with keep_going), a signal or the time limit ends the run, or all have ended
 *   FAILED    one has failed; the others, who notice by the library, have a moment to say what they know of it
 *   ENDING    everyone left has SIGTERM (or the signal we got); at kill_at SIGKILL, again and again
 *   GONE      nobody is left; what they printed is still being written
 *
 * "Everyone left" includes what the workers started: members of their process groups, and, as the launcher is a
 * subreaper, processes that left the group and lost their parent. Exits are seen through pidfds: epoll reports them in
 * the order in which they happened, so the first of several failures is the one that is named.
 */
#include "base/clock.h"
#include "cli/run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum phase { RUNNING, FAILED, ENDING, GONE };
enum tag { TAG_SIGNAL, TAG_WORKER, TAG_STREAM, TAG_SINK };
enum {
    LAST_WORDS_MS = 200,       /* in FAILED: before the others have SIGTERM */
    TICK_MS = 100,             /* in ENDING: look who is left at least this often */
    SINK_FULL = 1 << 20,       /* stop reading from workers while this much waits to be written */
    SINK_READY = 1 << 18,
    MOST_STRAYS = 256,         /* the next ones have their turn when these are gone */
    UNKILLABLE_S = 10,         /* after SIGKILL: a process stuck in the kernel */
    EXIT_TIMEOUT = 124,
    EXIT_OUTPUT = 1
};

typedef struct rd_run {
    const rd_run_options *options;
    rd_launch launch;
    rd_worker *workers;
    pid_t *groups;             /* shared with the guard: process groups that may have members, 0 for none */
    pid_t guard;
    int guard_fd, epoll, signals;
    rd_sink out, err, *files;  /* files: two per worker with output_dir, else NULL */
    bool one_place;            /* standard output and error go to the same terminal, file or pipe */
    bool paused;               /* not reading from the workers: out or err is full */
    enum phase phase;
    int status;                /* what the launcher will exit with */
    int64_t limit_at;          /* of the run */
    int64_t end_at, kill_at;   /* of whoever is left: SIGTERM, SIGKILL */
    bool killed, hurried;      /* SIGKILL was sent; the user asked twice */
    pid_t told[MOST_STRAYS];   /* strays that have had their SIGTERM */
    int told_count;
} rd_run;

static int watch_fd(rd_run *run, int fd, enum tag tag, int index, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.u64 = (uint64_t)tag << 32 | (uint32_t)index};
    return epoll_ctl(run->epoll, EPOLL_CTL_ADD, fd, &event);
}

/* ---- Everyone who is left ---- */

/* Children that are neither workers nor the guard: they came to us when their parent died. */
static int strays(const rd_run *run, pid_t *pids, int most)
{
    char path[64];
    int count = 0, pid;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *children = fopen(path, "re");
    if (!children) return 0; /* a kernel without it: process groups only */
    while (count < most && fscanf(children, "%d", &pid) == 1) {
        bool known = pid == run->guard;
        for (int i = 0; i < run->options->workers && !known; i++)
            known = run->workers[i].running && run->workers[i].pid == pid;
        if (!known) pids[count++] = pid;
    }
    fclose(children);
    return count;
}

static void signal_group(const rd_worker *worker, int number)
{
    if (!worker->group_left) return;
    if (kill(-worker->pid, number) < 0 && worker->running) kill(worker->pid, number); /* it left its own group */
}

static void signal_groups(rd_run *run, int number)
{
    for (int i = 0; i < run->options->workers; i++) signal_group(&run->workers[i], number);
}

/* They come to us one by one, when their parents die; each is told once. */
static void end_strays(rd_run *run)
{
    pid_t pids[MOST_STRAYS];
    int count = strays(run, pids, MOST_STRAYS);
    for (int i = 0; i < count; i++) {
        bool known = false;
        for (int k = 0; k < run->told_count && !known; k++) known = run->told[k] == pids[i];
        if (known && !run->killed) continue;
        kill(pids[i], run->killed ? SIGKILL : SIGTERM);
        kill(pids[i], SIGCONT);
        if (!known && run->told_count < MOST_STRAYS) run->told[run->told_count++] = pids[i];
    }
}

/* A dead group's number may be given to someone else: forget it. */
static void forget_dead_groups(rd_run *run)
{
    for (int i = 0; i < run->options->workers; i++) {
        rd_worker *worker = &run->workers[i];
        if (!worker->group_left || worker->running || kill(-worker->pid, 0) == 0 || errno != ESRCH) continue;
        worker->group_left = false;
        run->groups[i] = 0;
    }
}

/* Reaps processes that came to us. A worker is left for its pidfd's event, which is on its way. */
static void reap_strays(rd_run *run)
{
    siginfo_t dead = {0};
    while (waitid(P_ALL, 0, &dead, WEXITED | WNOHANG | WNOWAIT) == 0 && dead.si_pid > 0) {
        for (int i = 0; i < run->options->workers; i++)
            if (run->workers[i].running && run->workers[i].pid == dead.si_pid) return;
        waitpid(dead.si_pid, NULL, WNOHANG);
        if (dead.si_pid == run->guard) run->guard = 0;
        dead.si_pid = 0;
    }
}

static int running_workers(const rd_run *run)
{
    int count = 0;
    for (int i = 0; i < run->options->workers; i++) count += run->workers[i].running;
    return count;
}

static bool anyone_left(rd_run *run)
{
    pid_t pid;
    for (int i = 0; i < run->options->workers; i++)
        if (run->workers[i].running || run->workers[i].group_left) return true;
    return strays(run, &pid, 1) > 0;
}

/* ---- The end ---- */

static void end_run(rd_run *run, int status, int number)
{
    if (run->phase >= ENDING) return;
    if (run->phase == RUNNING) run->status = status;
    run->phase = ENDING;
    run->kill_at = rd_deadline(run->options->grace_s);
    signal_groups(run, number);
    signal_groups(run, SIGCONT); /* a stopped process hears nothing else */
}

static void end_others(rd_run *run)
{
    int others = running_workers(run);
    char who[32] = "other rank";
    if (others > 1) snprintf(who, sizeof who, "%d other ranks", others);
    if (others > 0 && run->options->grace_s > 0)
        rd_say(&run->err, "ending the %s: SIGTERM, then SIGKILL after %g s", who, run->options->grace_s);
    end_run(run, run->status, SIGTERM);
}

static void kill_rest(rd_run *run)
{
    if (!run->killed) {
        for (int i = 0; i < run->options->workers; i++) {
            const rd_worker *worker = &run->workers[i];
            if (worker->running && !run->hurried && run->options->grace_s > 0)
                rd_say(&run->err, "rank %d (pid %d) is still there after %g s: SIGKILL", worker->rank,
                       (int)worker->pid, run->options->grace_s);
        }
        run->killed = true;
        run->kill_at = rd_now();
    }
    signal_groups(run, SIGKILL);
    if (rd_now() - run->kill_at < UNKILLABLE_S * INT64_C(1000000000)) return;
    for (int i = 0; i < run->options->workers; i++)
        if (run->workers[i].running)
            rd_say(&run->err, "rank %d (pid %d) does not even die of SIGKILL; leaving it behind",
                   run->workers[i].rank, (int)run->workers[i].pid);
    run->phase = GONE;
}

static void worker_ended(rd_run *run, rd_worker *worker)
{
    siginfo_t how = {0};
    if (!worker->running || waitid(P_PIDFD, (id_t)worker->pidfd, &how, WEXITED | WNOHANG) < 0) return;
    if (how.si_pid == 0) return;
    worker->running = false;
    close(worker->pidfd);
    worker->pidfd = -1;
    for (int i = 0; i < 2; i++)
        for (int reads = 0; reads < 16 && rd_stream_read(&worker->out[i], &worker->tail); reads++) continue;
    worker->ended = rd_now();
    worker->how = how;
    if (run->phase != RUNNING || (how.si_code == CLD_EXITED && how.si_status == 0)) return;

    rd_sink_flush(&run->out);
    if (run->options->keep_going) {
        if (running_workers(run) > 0) rd_report_loss(&run->err, worker);
        return;
    }
    rd_report_failure(&run->err, worker, run->one_place && run->options->prefix && !run->files);
    run->phase = FAILED;
    run->status = how.si_code == CLD_EXITED ? how.si_status : 128 + how.si_status;
    run->end_at = rd_deadline(LAST_WORDS_MS * 1e-3);
}

static void on_signal(rd_run *run, int number)
{
    char name[32];
    switch (number) {
    case SIGCHLD: break; /* strays are reaped after every batch of events */
    case SIGUSR1:
    case SIGUSR2:
    case SIGCONT: signal_groups(run, number); break;
    case SIGTSTP:
        signal_groups(run, SIGTSTP);
        kill(getpid(), SIGSTOP);
        break;
    default:
        if (run->phase < ENDING) {
            rd_say(&run->err, "%s: passed on to %d rank%s%s", rd_signal_name(number, name, sizeof name),
                   running_workers(run), running_workers(run) == 1 ? "" : "s",
                   number == SIGINT ? "; again to kill at once" : "");
            end_run(run, 128 + number, number);
        } else {
            run->hurried = true;
            run->kill_at = rd_now();
        }
    }
}

/* ---- Output ---- */

/* Nobody reads any more: the end, as for a program that writes there itself. */
static void check_sink(rd_run *run, rd_sink *sink, const char *name)
{
    if (!sink->error || sink->reported) return;
    sink->reported = true;
    rd_say(&run->err, "cannot write to %s: %s", name, strerror(sink->error));
    end_run(run, sink->error == EPIPE ? 128 + SIGPIPE : EXIT_OUTPUT, SIGTERM);
}

/* In epoll only while something waits: a closed pipe would be reported for ever. */
static void watch_sink(rd_run *run, rd_sink *sink, int index, bool wanted)
{
    if (!sink->waitable || wanted == sink->watched) return;
    if (wanted) watch_fd(run, sink->fd, TAG_SINK, index, EPOLLOUT);
    else epoll_ctl(run->epoll, EPOLL_CTL_DEL, sink->fd, NULL);
    sink->watched = wanted;
}

static void pause_streams(rd_run *run, bool pause)
{
    if (pause == run->paused) return;
    run->paused = pause;
    for (int i = 0; i < 2 * run->options->workers; i++) {
        int fd = run->workers[i / 2].out[i % 2].fd;
        if (fd >= 0 && pause) epoll_ctl(run->epoll, EPOLL_CTL_DEL, fd, NULL);
        if (fd >= 0 && !pause) watch_fd(run, fd, TAG_STREAM, i, EPOLLIN);
    }
}

/* Returns true when nothing waits. */
static bool flush_sinks(rd_run *run)
{
    bool out_empty = rd_sink_flush(&run->out), err_empty = rd_sink_flush(&run->err);
    watch_sink(run, &run->out, 0, !out_empty);
    watch_sink(run, &run->err, 1, !err_empty);
    check_sink(run, &run->out, "standard output");
    check_sink(run, &run->err, "standard error");
    for (int i = 0; run->files && i < 2 * run->options->workers; i++) {
        rd_sink_flush(&run->files[i]);
        check_sink(run, &run->files[i], "a file of --output-dir");
    }
    size_t most = run->out.length > run->err.length ? run->out.length : run->err.length;
    pause_streams(run, most > (run->paused ? SINK_READY : SINK_FULL));
    return out_empty && err_empty;
}

/* ---- The loop ---- */

static int wait_ms(const rd_run *run)
{
    if (run->phase == GONE) return -1;
    if (run->phase == RUNNING) return run->limit_at == INT64_MAX ? -1 : rd_until_ms(run->limit_at);
    if (run->phase == FAILED) return rd_until_ms(run->end_at);
    int left = rd_until_ms(run->kill_at);
    return run->killed || left > TICK_MS ? TICK_MS : left;
}

static void on_event(rd_run *run, const struct epoll_event *event)
{
    uint32_t index = (uint32_t)event->data.u64;
    struct signalfd_siginfo got;
    switch ((enum tag)(event->data.u64 >> 32)) {
    case TAG_SIGNAL:
        while (read(run->signals, &got, sizeof got) == sizeof got) on_signal(run, (int)got.ssi_signo);
        break;
    case TAG_WORKER: worker_ended(run, &run->workers[index]); break;
    case TAG_STREAM: rd_stream_read(&run->workers[index / 2].out[index % 2], &run->workers[index / 2].tail); break;
    case TAG_SINK: break; /* all are flushed after every batch of events */
    }
}

static void next_phase(rd_run *run)
{
    if (run->phase == RUNNING && rd_now() >= run->limit_at) {
        rd_say(&run->err, "over the time limit of %g s; ending %d rank%s", run->options->timeout_s,
               running_workers(run), running_workers(run) == 1 ? "" : "s");
        end_run(run, EXIT_TIMEOUT, SIGTERM);
    }
    if (run->phase == RUNNING && running_workers(run) == 0) { /* nobody but what they left behind */
        bool asked = run->options->keep_going;
        end_run(run, asked ? rd_report_survivors(&run->err, run->workers, run->options->workers) : 0, SIGTERM);
    }
    if (run->phase == FAILED && (running_workers(run) == 0 || rd_now() >= run->end_at)) end_others(run);
    if (run->phase != ENDING) return;
    if (!anyone_left(run)) run->phase = GONE;
    else if (run->killed || rd_now() >= run->kill_at) kill_rest(run);
    if (run->phase == ENDING) end_strays(run);
}

static void turn(rd_run *run)
{
    struct epoll_event events[64];
    int count = epoll_wait(run->epoll, events, 64, wait_ms(run));
    for (int i = 0; i < count; i++) on_event(run, &events[i]);
    reap_strays(run);
    forget_dead_groups(run);
    next_phase(run);
    flush_sinks(run);
}

static void read_rest(rd_run *run)
{
    for (int i = 0; i < 2 * run->options->workers; i++)
        while (rd_stream_read(&run->workers[i / 2].out[i % 2], &run->workers[i / 2].tail)) continue;
}

/* ---- Setting up ---- */

static int block_signals(rd_run *run)
{
    static const int wanted[] = {SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGCHLD};
    struct sigaction hangup;
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) sigaddset(&set, wanted[i]);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP); /* nohup */
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &set, &run->launch.mask);
    run->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return run->signals;
}

static struct stat open_sink(rd_sink *sink, int fd)
{
    struct stat status = {0};
    *sink = (rd_sink){.fd = fd, .waitable = fstat(fd, &status) == 0 && !S_ISREG(status.st_mode)};
    return status;
}

static int open_files(rd_run *run)
{
    const char *dir = run->options->output_dir;
    if (!dir) return 0;
    if (mkdir(dir, 0777) < 0 && errno != EEXIST) {
        fprintf(stderr, "rondo run: cannot make the directory %s: %s\n", dir, strerror(errno));
        return -1;
    }
    for (int i = 0; i < 2 * run->options->workers; i++) {
        char path[4200];
        int rank = run->options->node * run->options->workers + i / 2;
        snprintf(path, sizeof path, "%s/rank-%d.%s", dir, rank, i % 2 ? "err" : "out");
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (fd < 0) {
            fprintf(stderr, "rondo run: cannot write %s: %s\n", path, strerror(errno));
            return -1;
        }
        run->files[i].fd = fd;
    }
    return 0;
}

static int allocate(rd_run *run)
{
    size_t count = (size_t)run->options->workers, bytes = count * sizeof *run->groups;
    run->workers = calloc(count, sizeof *run->workers);
    if (run->options->output_dir) run->files = calloc(2 * count, sizeof *run->files);
    run->groups = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run->groups == MAP_FAILED) run->groups = NULL;
    if (!run->workers || !run->groups || (run->options->output_dir && !run->files)) {
        fprintf(stderr, "rondo run: out of memory for %zu ranks\n", count);
        return -1;
    }
    for (size_t i = 0; i < 2 * count; i++) {
        rd_stream *stream = &run->workers[i / 2].out[i % 2];
        stream->fd = run->workers[i / 2].pidfd = -1;
        stream->sink = run->files ? &run->files[i] : i % 2 ? &run->err : &run->out;
        if (run->files) run->files[i].fd = -1;
        if (run->options->prefix && !run->files)
            snprintf(stream->prefix, sizeof stream->prefix, "[%d] ",
                     run->options->node * run->options->workers + (int)(i / 2));
    }
    return 0;
}

static int open_run(rd_run *run, const rd_run_options *options)
{
    *run = (rd_run){.options = options, .epoll = -1, .signals = -1, .guard_fd = -1, .limit_at = INT64_MAX};
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) /* a closed one would be taken by a pipe */
        while (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) >= 0) continue;
    struct stat out = open_sink(&run->out, STDOUT_FILENO), err = open_sink(&run->err, STDERR_FILENO);
    run->one_place = out.st_dev == err.st_dev && out.st_ino == err.st_ino;
    if (rd_launch_open(&run->launch, options) < 0 || allocate(run) < 0 || open_files(run) < 0)
        return -1;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    run->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (run->epoll < 0 || block_signals(run) < 0 || watch_fd(run, run->signals, TAG_SIGNAL, 0, EPOLLIN) < 0) {
        fprintf(stderr, "rondo run: epoll or signalfd: %s\n", strerror(errno));
        return -1;
    }
    run->guard = rd_guard_start(run->groups, options->workers, &run->guard_fd);
    if (run->guard < 0) fprintf(stderr, "rondo run: cannot start the guard process: %s\n", strerror(errno));
    return run->guard < 0 ? -1 : 0;
}

static void start_workers(rd_run *run)
{
    for (int i = 0; i < run->options->workers; i++) {
        rd_worker *worker = &run->workers[i];
        int status = rd_spawn(&run->launch, i, worker);
        run->groups[i] = worker->pid;
        if (status) {
            end_run(run, status, SIGTERM);
            return;
        }
        watch_fd(run, worker->pidfd, TAG_WORKER, i, EPOLLIN);
        for (int k = 0; k < 2; k++) watch_fd(run, worker->out[k].fd, TAG_STREAM, 2 * i + k, EPOLLIN);
    }
    if (run->options->timeout_s > 0) run->limit_at = rd_deadline(run->options->timeout_s);
}

static void close_run(rd_run *run)
{
    if (run->guard_fd >= 0) close(run->guard_fd);
    if (run->guard > 0) waitpid(run->guard, NULL, 0);
    if (run->signals >= 0) close(run->signals);
    if (run->epoll >= 0) close(run->epoll);
    for (int i = 0; run->workers && i < 2 * run->options->workers; i++) {
        if (run->files && run->files[i].fd >= 0) close(run->files[i].fd);
        if (run->files) rd_sink_free(&run->files[i]);
        if (run->workers[i / 2].out[i % 2].fd >= 0) close(run->workers[i / 2].out[i % 2].fd);
        free(run->workers[i / 2].out[i % 2].data);
    }
    rd_sink_free(&run->out);
    rd_sink_free(&run->err);
    free(run->files);
    free(run->workers);
    if (run->groups) munmap(run->groups, (size_t)run->options->workers * sizeof *run->groups);
}

int rd_watch(const rd_run_options *options)
{
    rd_run run;
    if (open_run(&run, options) == 0) {
        start_workers(&run);
        while (run.phase != GONE) turn(&run);
        read_rest(&run);
        while (!flush_sinks(&run) && !run.hurried) turn(&run);
    } else {
        run.status = 1;
    }
    int status = run.status;
    close_run(&run);
    return status;
}
