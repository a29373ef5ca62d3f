/* SPDX-License-Identifier: Apache-2.0
 *
 * boot_ranks.h - ranks for the tests of src/boot: threads of this process, or forked processes that share a page.
 */
#ifndef RONDO_BOOT_RANKS_H
#define RONDO_BOOT_RANKS_H

#include "boot/boot.h"
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#ifndef __has_feature /* gcc says it with macros, clang with this */
#define __has_feature(feature) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#else
#define UNDER_TSAN 0
#endif
#if UNDER_TSAN || defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif
#define LIMIT_S (UNDER_TSAN ? 60.0 : 20.0) /* nothing here may take so long */

enum { MOST_RANKS = 64, MANY = UNDER_TSAN ? 12 : 64, TEXT = 2048, MOST_GREETINGS = 32 };

/* What the ranks of one run share. */
struct run {
    int world;
    double timeout_s;
    int argument;
    rondo_unique_id id;
    _Atomic int id_ready;
    _Atomic int step; /* for tests that need an order */
    struct {
        pid_t pid;
        rondo_result result;
        double seconds; /* spent in what the test measures */
        double at;      /* when that ended (rd_now) */
        char text[TEXT];
        long note;
    } rank[MOST_RANKS];
};

/* What a rank has in hand. */
typedef struct rank {
    struct run *run;
    int me;
    rd_settings settings;
    rd_job job;
    rd_table *table;
    rd_member *member;
    rd_contact *contacts;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    _Atomic int stops, wakes; /* read by tests without the lock */
    _Atomic int reports; /* times that this rank was asked */
    _Atomic int greetings;
    struct {
        int peer, index, fd;
        rd_greeting greeting;
    } greeted[MOST_GREETINGS];
    rondo_result stopped;
    char stop_text[TEXT];
} rank;

typedef void (*rank_fn)(rank *r);

struct run *run_new(int world, double timeout_s);
void run_free(struct run *run);
/* Makes the id here (a thread or process of the run calls it); others wait for it. */
void run_make_id(struct run *run, const rd_settings *settings);

/* Every rank as a thread; returns when all have ended. */
void run_threads(struct run *run, rank_fn fn);
/* Rank `me` as a forked process, which ends with exit(0) after fn. rank 0 makes the id. */
void run_fork(struct run *run, int me, rank_fn fn);
/* Waits for it; its wait status. Fails the test at the deadline. */
int run_wait(struct run *run, int me);
void run_processes(struct run *run, rank_fn fn);

rank *rank_new(struct run *run, int me);
void rank_free(rank *r);
void rank_note(rank *r, rondo_result result); /* result and last error into the struct run */

/* Steps of a start; each is RONDO_SUCCESS or noted. */
rondo_result rank_enter(rank *r); /* member and table of its job */
rondo_result rank_join(rank *r);  /* job, member, table */
rondo_result rank_meet(rank *r);  /* contacts of all, control plane; then the table is closed */
rondo_result rank_start(rank *r); /* both */
/* The i-th byte of what a rank reports. */
unsigned char rank_report_byte(int me, int i);
/* Waits until stop (or wake) was called `times` times; false at the deadline. */
bool rank_wait_stop(rank *r, double seconds);
bool rank_wait_wakes(rank *r, int times, double seconds);
bool rank_wait_greetings(rank *r, int times, double seconds);

/* Waits for `at_least` in *word. */
bool wait_for_int(_Atomic int *word, int at_least, double seconds);
void sleep_s(double seconds);

#endif
