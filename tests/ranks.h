/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks.h - ranks as processes: n forked children, each with a communicator, and what becomes of them.
 */
#ifndef RONDO_TEST_RANKS_H
#define RONDO_TEST_RANKS_H

#include "rondo.h"

#include <stdbool.h>
#include <sys/types.h>

#define RANKS_MAX 64

/* In a child: says what is wrong and ends it with status 1. */
#define CHECK(condition, ...)                                                       \
    do {                                                                            \
        if (!(condition)) rank_failed(__FILE__, __LINE__, #condition, __VA_ARGS__); \
    } while (0)
void rank_failed(const char *file, int line, const char *condition, const char *format, ...)
    __attribute__((noreturn, format(printf, 4, 5)));

/* What a rank does; returning ends the child with status 0, by exit(). */
typedef void (*rank_fn)(rondo_comm *comm, int rank, int n, void *context);

/* What a rank does before it has a communicator; NULL: nothing. */
typedef void (*setup_fn)(int rank, void *context);

typedef struct ranks {
    int n;
    pid_t pid[RANKS_MAX];
    int status[RANKS_MAX]; /* as waitpid gives it; -1 while it runs */
    double ended_s[RANKS_MAX]; /* since start */
    double started;
    pid_t server; /* of the unique id, where it is not this process; else 0 */
} ranks;

/* Forks n ranks that run f. config: NULL for one with a timeout of 20 s. */
void ranks_start(ranks *all, int n, const rondo_config *config, setup_fn setup, rank_fn f, void *context);
/* The same without communicators: f starts its own, or doesn't. */
typedef void (*starter_fn)(const rondo_unique_id *id, int rank, int n, void *context);
void ranks_start_bare(ranks *all, int n, starter_fn f, void *context);
/* Waits until all have ended, at most `seconds`; then kills the rest and fails the test. */
void ranks_wait(ranks *all, double seconds);
/* Both, and every rank must have ended with status 0. */
void ranks_run(int n, const rondo_config *config, setup_fn setup, rank_fn f, void *context);
void ranks_run_bare(int n, starter_fn f, void *context);

/* What start and wait do about the id: made, and at last no longer served, by this process or another. */
rondo_unique_id ranks_unique_id(ranks *all);
void ranks_forget_id(ranks *all);

/* A test that uses time scales it by this: 1, or more under a sanitizer. */
double test_slowness(void);
double test_seconds(void);
double test_processor_seconds(void); /* that this process has used */

/* Memory shared by the test and its ranks. */
void *test_shared(size_t bytes);

/* Sets an environment variable in this process for what follows; NULL unsets. */
void test_env(const char *name, const char *value);

#endif
