/* SPDX-License-Identifier: Apache-2.0 */
#include "boot_ranks.h"

#include "base/clock.h"
#include "base/status.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#if UNDER_TSAN
/* It waits a second at each exit for races yet to come; with hundreds of processes that adds up. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "atexit_sleep_ms=50";
}
#endif

void sleep_s(double seconds)
{
    int64_t ns = (int64_t)(seconds * 1e9);
    nanosleep(&(struct timespec){ns / 1000000000, ns % 1000000000}, NULL);
}

bool wait_for_int(_Atomic int *word, int at_least, double seconds)
{
    for (int64_t deadline = rd_deadline(seconds); *word < at_least; sleep_s(0.001))
        if (rd_now() > deadline) return false;
    return true;
}

/* ---- Runs ---- */

struct run *run_new(int world, double timeout_s)
{
    struct run *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(r != MAP_FAILED);
    r->world = world;
    r->timeout_s = timeout_s;
    for (int i = 0; i < MOST_RANKS; i++) r->rank[i].result = RONDO_INTERNAL_ERROR; /* until noted */
    return r;
}

void run_free(struct run *r)
{
    munmap(r, sizeof *r);
}

void run_make_id(struct run *r, const rd_settings *settings)
{
    if (rd_job_new_id(&r->id, settings) != RONDO_SUCCESS)
        fprintf(stderr, "new id: %s\n", rd_last_error());
    else
        r->id_ready = 1;
}

typedef struct start {
    struct run *run;
    int me;
    rank_fn fn;
} start;

static void *as_thread(void *argument)
{
    start *s = argument;
    rank *r = rank_new(s->run, s->me);
    s->fn(r);
    rank_free(r);
    return NULL;
}

void run_threads(struct run *run, rank_fn fn)
{
    pthread_t threads[MOST_RANKS];
    start starts[MOST_RANKS];
    for (int i = 0; i < run->world; i++) {
        starts[i] = (start){run, i, fn};
        assert_int_equal(pthread_create(&threads[i], NULL, as_thread, &starts[i]), 0);
    }
    for (int i = 0; i < run->world; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
}

void run_fork(struct run *run, int me, rank_fn fn)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid) {
        run->rank[me].pid = pid;
        return;
    }
    alarm((unsigned)(2 * LIMIT_S));
    start s = {run, me, fn};
    as_thread(&s);
    exit(0);
}

int run_wait(struct run *run, int me)
{
    int status = 0;
    pid_t pid = run->rank[me].pid;
    for (int64_t deadline = rd_deadline(LIMIT_S); waitpid(pid, &status, WNOHANG) == 0; sleep_s(0.001))
        if (rd_now() > deadline) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            fail_msg("rank %d (pid %d) hangs", me, pid);
        }
    return status;
}

void run_processes(struct run *run, rank_fn fn)
{
    for (int i = 0; i < run->world; i++) run_fork(run, i, fn);
    for (int i = 0; i < run->world; i++) assert_int_equal(run_wait(run, i), 0);
}

/* ---- Ranks ---- */

rank *rank_new(struct run *run, int me)
{
    rank *r = calloc(1, sizeof *r);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    r->run = run;
    r->me = me;
    if (rd_settings_load(&r->settings, NULL) != RONDO_SUCCESS) abort();
    r->settings.timeout_s = run->timeout_s;
    return r;
}

void rank_free(rank *r)
{
    rd_table_close(r->table);
    rd_member_close(r->member);
    free(r->contacts);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

void rank_note(rank *r, rondo_result result)
{
    r->run->rank[r->me].result = result;
    snprintf(r->run->rank[r->me].text, TEXT, "%s", result == RONDO_SUCCESS ? "" : rd_last_error());
    r->run->rank[r->me].at = (double)rd_now() * 1e-9;
}

static void on_stop(void *context, rondo_result result, const char *text)
{
    rank *r = context;
    pthread_mutex_lock(&r->lock);
    if (r->stops++ == 0) {
        r->stopped = result;
        snprintf(r->stop_text, sizeof r->stop_text, "%s", text);
    }
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

static void on_wake(void *context)
{
    rank *r = context;
    pthread_mutex_lock(&r->lock);
    r->wakes++;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

unsigned char rank_report_byte(int me, int i)
{
    return (unsigned char)(me * 31 + i * 7 + 5);
}

static void on_report(void *context, unsigned char report[RD_REPORT_BYTES])
{
    rank *r = context;
    for (int i = 0; i < RD_REPORT_BYTES; i++) report[i] = rank_report_byte(r->me, i);
    r->reports++;
}

static void on_greeted(void *context, int peer, int index, int fd, const rd_greeting *greeting)
{
    rank *r = context;
    pthread_mutex_lock(&r->lock);
    if (r->greetings >= MOST_GREETINGS) abort();
    r->greeted[r->greetings].peer = peer;
    r->greeted[r->greetings].index = index;
    r->greeted[r->greetings].fd = fd;
    r->greeted[r->greetings++].greeting = *greeting;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

static const rd_member_ops ops = {.stop = on_stop, .wake = on_wake, .report = on_report, .greeted = on_greeted};

static bool wait_counter(rank *r, const _Atomic int *counter, int times, double seconds)
{
    int64_t deadline = rd_deadline(seconds);
    struct timespec at = {deadline / 1000000000, deadline % 1000000000};
    pthread_mutex_lock(&r->lock);
    while (*counter < times && pthread_cond_timedwait(&r->changed, &r->lock, &at) == 0) {
    }
    bool enough = *counter >= times;
    pthread_mutex_unlock(&r->lock);
    return enough;
}

bool rank_wait_stop(rank *r, double seconds)
{
    return wait_counter(r, &r->stops, 1, seconds);
}
bool rank_wait_wakes(rank *r, int times, double seconds)
{
    return wait_counter(r, &r->wakes, times, seconds);
}
bool rank_wait_greetings(rank *r, int times, double seconds)
{
    return wait_counter(r, &r->greetings, times, seconds);
}

rondo_result rank_enter(rank *r)
{
    RD_TRY(rd_member_open(&r->member, &r->job, &r->settings, &r->contacts[r->me], &ops, r));
    return rd_table_open(&r->table, &r->job, &r->settings, rd_deadline(r->run->timeout_s), NULL);
}

rondo_result rank_join(rank *r)
{
    rondo_result result;
    if (r->me == 0 && !r->run->id_ready) run_make_id(r->run, &r->settings);
    if (!wait_for_int(&r->run->id_ready, 1, LIMIT_S)) return RONDO_INTERNAL_ERROR;
    r->contacts = calloc((size_t)r->run->world, sizeof *r->contacts);
    result = rd_job_from_id(&r->job, &r->run->id, r->me, r->run->world, &r->settings);
    if (result == RONDO_SUCCESS) result = rank_enter(r);
    rank_note(r, result);
    return result;
}

rondo_result rank_meet(rank *r)
{
    int world = r->run->world;
    unsigned char mine[RD_CONTACT_BYTES], *all = malloc((size_t)world * RD_CONTACT_BYTES);
    bool *over_unix = malloc((size_t)world * sizeof *over_unix);
    int64_t deadline = rd_deadline(r->run->timeout_s);
    rd_contact_pack(&r->contacts[r->me], mine);
    rondo_result result = rd_table_exchange(r->table, "contact", mine, sizeof mine, all, deadline);
    for (int i = 0; i < world && result == RONDO_SUCCESS; i++) {
        over_unix[i] = r->run->argument == 0; /* else over TCP */
        result = rd_contact_unpack(&r->contacts[i], all + i * RD_CONTACT_BYTES);
    }
    if (result == RONDO_SUCCESS) result = rd_member_set_contacts(r->member, r->contacts);
    if (result == RONDO_SUCCESS) result = rd_table_fence(r->table, deadline);
    if (result == RONDO_SUCCESS) result = rd_member_start_control(r->member, over_unix, deadline);
    if (result == RONDO_SUCCESS) result = rd_table_fence(r->table, deadline);
    free(all);
    free(over_unix);
    rd_table_close(r->table);
    r->table = NULL;
    rank_note(r, result);
    return result;
}

rondo_result rank_start(rank *r)
{
    rondo_result result = rank_join(r);
    return result == RONDO_SUCCESS ? rank_meet(r) : result;
}
