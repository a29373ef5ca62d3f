/* SPDX-License-Identifier: Apache-2.0
 *
 * thread.c - the lock that guards everything, the threads that run streams and blocks, and which handles are alive.
 */
#include "sanitize.h"
#include "sim.h"

#include <signal.h>
#include <stdlib.h>

struct job {
    struct job *next;
    void (*run)(void *);
    void *argument;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t signal_moved = PTHREAD_COND_INITIALIZER, signal_job = PTHREAD_COND_INITIALIZER;
static struct job *jobs;         /* that no thread has taken yet */
static unsigned job_count, idle; /* threads that wait for a job */
static struct sim_handle *handles;

/* The order of these locks is no order that CUDA promises: sanitize.h. */
void sim_lock(void)
{
    SIM_HIDE_BEGIN();
    pthread_mutex_lock(&lock);
    SIM_HIDE_END();
}

void sim_unlock(void)
{
    SIM_HIDE_BEGIN();
    pthread_mutex_unlock(&lock);
    SIM_HIDE_END();
}

void sim_moved(void)
{
    pthread_cond_broadcast(&signal_moved);
}

void sim_await_one(pthread_cond_t *signal)
{
    SIM_HIDE_BEGIN();
    pthread_cond_wait(signal, &lock);
    SIM_HIDE_END();
}

void sim_await(void)
{
    sim_await_one(&signal_moved);
}

/* ---- Threads ------------------------------------------------------------------------------------------------------
 */

static void *thread_main(void *unused)
{
    (void)unused;
    sim_lock();
    for (;;) {
        while (jobs == NULL) {
            idle++;
            sim_await_one(&signal_job);
            idle--;
        }
        struct job *job = jobs;
        jobs = job->next;
        job_count--;
        SIM_ACQUIRE(job);
        job->run(job->argument);
        free(job);
    }
    return NULL;
}

/* The application's signals are for its own threads; those of a crash are for who crashes. */
static void thread_start(void)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, &attributes, thread_main, NULL) != 0) abort();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

void sim_thread_run(void (*run)(void *), void *argument)
{
    struct job *job = malloc(sizeof *job);
    if (job == NULL) abort();
    *job = (struct job){jobs, run, argument};
    jobs = job;
    SIM_RELEASE(job);
    if (++job_count > idle)
        thread_start();
    else
        pthread_cond_signal(&signal_job);
}

/* ---- Handles ------------------------------------------------------------------------------------------------------
 */

void sim_handle_add(struct sim_handle *handle, enum sim_kind kind)
{
    handle->kind = kind;
    handle->next = handles;
    handles = handle;
}

void sim_handle_remove(struct sim_handle *handle)
{
    for (struct sim_handle **at = &handles; *at != NULL; at = &(*at)->next) {
        if (*at != handle) continue;
        *at = handle->next;
        return;
    }
}

void *sim_handle_find(const void *handle, enum sim_kind kind)
{
    for (struct sim_handle *at = handles; at != NULL; at = at->next)
        if (at == handle && at->kind == kind) return at;
    return NULL;
}

struct sim_handle *sim_handle_next(struct sim_handle *handle)
{
    return handle == NULL ? handles : handle->next;
}

int sim_handle_count(enum sim_kind kind)
{
    int count = 0;
    for (struct sim_handle *at = handles; at != NULL; at = at->next) count += at->kind == kind;
    return count;
}
