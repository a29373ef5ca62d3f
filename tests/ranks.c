/* SPDX-License-Identifier: Apache-2.0 */
#include "test.h"

#include "ranks.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void rank_failed(const char *file, int line, const char *condition, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "ERROR: %s:%d: process %d: %s: %s\n", file, line, (int)getpid(), condition, text);
    _exit(1);
}

static double clock_seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double test_seconds(void)
{
    return clock_seconds(CLOCK_MONOTONIC);
}

double test_processor_seconds(void)
{
    return clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
}

double test_slowness(void)
{
#if defined(__SANITIZE_THREAD__)
    return 8;
#elif defined(__SANITIZE_ADDRESS__)
    return 3;
#else
    return 1;
#endif
}

void *test_shared(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(p, MAP_FAILED);
    return p;
}

void test_env(const char *name, const char *value)
{
    if (value) setenv(name, value, 1);
    else unsetenv(name);
}

static void be_a_child(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* CMocka's handlers would take a crash for the test's and go on with the next test, here. */
    const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGSYS};
    for (size_t k = 0; k < sizeof crashes / sizeof *crashes; k++) signal(crashes[k], SIG_DFL);
}

static void child(int n, int rank, rondo_unique_id id, const rondo_config *config, setup_fn setup, rank_fn f,
                  void *context)
{
    rondo_config standard = RONDO_CONFIG_INIT;
    rondo_comm *comm = NULL;
    be_a_child();
    standard.timeout_s = 20 * test_slowness();
    if (setup) setup(rank, context);
    rondo_result r = rondo_init_rank(&comm, n, id, rank, config ? config : &standard);
    CHECK(r == RONDO_SUCCESS, "rank %d of %d: %s: %s", rank, n, rondo_result_string(r), rondo_last_error(NULL));
    f(comm, rank, n, context);
    exit(0);
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
typedef struct served {
    rondo_unique_id id;
    volatile int ready;
} served;

/* The thread sanitizer forbids threads in the child of a process that has some, as one that made a unique id does; the
 * address sanitizer's allocator may be forked with a lock taken. So another process makes the id here, and serves it
 * until it is killed. */
rondo_unique_id ranks_unique_id(ranks *all)
{
    served *shared = test_shared(sizeof *shared);
    fflush(NULL);
    all->server = fork();
    assert_true(all->server >= 0);
    if (!all->server) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        shared->ready = rondo_get_unique_id(&shared->id) == RONDO_SUCCESS ? 1 : -1;
        for (;;) pause();
    }
    while (!shared->ready) usleep(1000);
    assert_int_equal(shared->ready, 1);
    rondo_unique_id id = shared->id;
    munmap(shared, sizeof *shared);
    return id;
}
#else
rondo_unique_id ranks_unique_id(ranks *all)
{
    rondo_unique_id id;
    all->server = 0;
    assert_int_equal(rondo_get_unique_id(&id), RONDO_SUCCESS);
    return id;
}
#endif

/* Returns the rank in each of them, and -1 in the parent. */
static int fork_all(ranks *all, int n, rondo_unique_id *id)
{
    assert_true(n <= RANKS_MAX);
    *id = ranks_unique_id(all);
    all->n = n;
    all->started = test_seconds();
    fflush(NULL);
    for (int r = 0; r < n; r++) {
        all->status[r] = -1;
        all->pid[r] = fork();
        assert_true(all->pid[r] >= 0);
        if (!all->pid[r]) return r;
    }
    return -1;
}

void ranks_start(ranks *all, int n, const rondo_config *config, setup_fn setup, rank_fn f, void *context)
{
    rondo_unique_id id;
    int rank = fork_all(all, n, &id);
    if (rank >= 0) child(n, rank, id, config, setup, f, context);
}

void ranks_start_bare(ranks *all, int n, starter_fn f, void *context)
{
    rondo_unique_id id;
    int rank = fork_all(all, n, &id);
    if (rank < 0) return;
    be_a_child();
    f(&id, rank, n, context);
    exit(0);
}

void ranks_forget_id(ranks *all)
{
    if (all->server <= 0) return;
    kill(all->server, SIGKILL);
    waitpid(all->server, NULL, 0);
    all->server = 0;
}

void ranks_wait(ranks *all, double seconds)
{
    int left = 0;
    double end = test_seconds() + seconds;
    for (int r = 0; r < all->n; r++) left += all->status[r] == -1;
    while (left) {
        for (int r = 0; r < all->n; r++) {
            int status;
            if (all->status[r] != -1 || waitpid(all->pid[r], &status, WNOHANG) != all->pid[r]) continue;
            all->status[r] = status;
            all->ended_s[r] = test_seconds() - all->started;
            left--;
        }
        if (left && test_seconds() > end) {
            for (int r = 0; r < all->n; r++)
                if (all->status[r] == -1) {
                    kill(all->pid[r], SIGKILL);
                    waitpid(all->pid[r], NULL, 0);
                    fprintf(stderr, "ERROR: rank %d (process %d) was still running\n", r, (int)all->pid[r]);
                }
            fail_msg("%d of %d ranks did not end within %g s", left, all->n, seconds);
        }
        if (left) usleep(2000);
    }
    ranks_forget_id(all);
}

static void wait_for_success(ranks *all)
{
    ranks_wait(all, 60 * test_slowness());
    for (int r = 0; r < all->n; r++)
        if (all->status[r]) fail_msg("rank %d of %d ended with status %#x", r, all->n, (unsigned)all->status[r]);
}

void ranks_run(int n, const rondo_config *config, setup_fn setup, rank_fn f, void *context)
{
    ranks all;
    ranks_start(&all, n, config, setup, f, context);
    wait_for_success(&all);
}

void ranks_run_bare(int n, starter_fn f, void *context)
{
    ranks all;
    ranks_start_bare(&all, n, f, context);
    wait_for_success(&all);
}
