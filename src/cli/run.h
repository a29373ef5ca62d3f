/* SPDX-License-Identifier: Apache-2.0
 *
 * run.h - `rondo run`: starts the ranks of this node, relays what they print, and sees all of them to their end.
 *
 *   run.c     options
 *   spawn.c   one worker: its environment, its process group, its death when the launcher dies
 *   relay.c   lines from the workers' pipes to standard output and error, without ever blocking
 *   watch.c   the event loop: exits, signals, deadlines, and the end of everyone when one fails
 *   report.c  what is said about the workers
 */
#ifndef RD_CLI_RUN_H
#define RD_CLI_RUN_H

#include "cli/bind.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

enum { RD_MAX_WORKERS = 4096 };

typedef struct rd_run_options {
    int workers;             /* on this node */
    int nodes, node;
    const char *address;     /* MASTER_ADDR; NULL: not given */
    int port;                /* MASTER_PORT; 0: not given */
    double grace_s;          /* from SIGTERM to SIGKILL */
    double timeout_s;        /* of the whole run; 0: none */
    bool prefix;             /* "[rank] " before every line */
    bool keep_going;         /* a rank that fails ends nobody else */
    const char *bind;        /* which CPUs each rank may use; NULL: all */
    bool bind_given;         /* or: none on purpose */
    const rd_bindings *bindings; /* what follows from bind */
    const char *output_dir;  /* files instead of standard output and error; NULL: no */
    char **program;          /* argv of the workers */
} rd_run_options;

/* ---- Output ---- */

/* A place that output goes to, with what waits to be written there. */
typedef struct rd_sink {
    int fd;
    bool waitable;  /* poll can tell when it takes more; regular files always do */
    bool watched;   /* in epoll now */
    bool reported;  /* the user knows of `error` */
    int error;      /* errno of the write that failed; from then on all is dropped */
    char *data;
    size_t head, length, capacity; /* data[head ... head + length) waits */
} rd_sink;

void rd_sink_put(rd_sink *sink, const char *data, size_t bytes);
/* Writes what can be written without blocking. Returns true when nothing is left. */
bool rd_sink_flush(rd_sink *sink);
void rd_sink_free(rd_sink *sink);

/* The last that a worker said, for the report of its failure. */
typedef struct rd_tail {
    char data[4096];
    size_t length;
} rd_tail;

/* One pipe from a worker. */
typedef struct rd_stream {
    int fd;          /* -1 after its end */
    rd_sink *sink;
    char prefix[24]; /* "" for none */
    char *data;      /* the line that has begun */
    size_t length, capacity;
} rd_stream;

/* Reads once and passes on whole lines; at the end of the stream also the last one, and closes. Returns false when
 * there was nothing to read (yet, or any more). */
bool rd_stream_read(rd_stream *stream, rd_tail *tail);

/* ---- Workers ---- */

typedef struct rd_worker {
    int rank, local_rank;
    pid_t pid;           /* also its process group */
    int pidfd;
    bool running;
    bool group_left;     /* its process group may still have members */
    int64_t started, ended;
    siginfo_t how;       /* it ended, when it has */
    rd_stream out[2];    /* its standard output and error */
    rd_tail tail;
} rd_worker;

/* What every worker of a run is started with. */
typedef struct rd_launch {
    const rd_run_options *options;
    pid_t launcher;
    sigset_t mask;            /* the launcher's own, before it blocked its signals */
    struct rlimit files;      /* likewise */
    char job[33], key[65];    /* RONDO_JOB, RONDO_KEY; "": leave what is there */
    int port;                 /* MASTER_PORT; 0: not set */
} rd_launch;

/* Job, key and port, and open files enough; 0, or -1 after saying why not. */
int rd_launch_open(rd_launch *launch, const rd_run_options *options);

/* Starts the worker of this local rank. Returns 0, or an exit status for the launcher after saying why not. */
int rd_spawn(const rd_launch *launch, int local_rank, rd_worker *worker);

/* A process that outlives a killed launcher for as long as it takes to kill the groups in `groups` (0: none), which is
 * memory that it shares with the launcher. *fd: it acts when this closes. Returns its pid, -1 on failure. */
pid_t rd_guard_start(const pid_t *groups, int count, int *fd);

/* ---- The run ---- */

/* Returns the exit status: 0, that of the first worker to fail, 128 + signal, 124 over the time limit; with keep_going
 * what rd_report_survivors says. */
int rd_watch(const rd_run_options *options);

/* ---- Reports: lines "rondo run: ..." put into `err` ---- */

void rd_say(rd_sink *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* `above`: what it printed last can be read there, just before. */
void rd_report_failure(rd_sink *err, const rd_worker *worker, bool above);
/* It failed, and nobody is ended for it. */
void rd_report_loss(rd_sink *err, const rd_worker *worker);
/* At the end, of those that nobody was ended for: lists the failed. Returns the highest status of those that no signal
 * ended, or, when all were, 128 + the first one's signal. */
int rd_report_survivors(rd_sink *err, const rd_worker *workers, int count);
/* "SIGTERM", or "signal 35". */
const char *rd_signal_name(int number, char *text, size_t bytes);

#endif
