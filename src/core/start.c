/* SPDX-License-Identifier: Apache-2.0
 *
 * start.c - making communicators. Ranks of one process that start together need a thread each for as long as it takes,
 * since each waits for all others: they start in the background, and the caller waits for all.
 */
#include "core/start.h"
#include "core/device.h"

#include "base/clock.h"
#include "base/process.h"
#include "base/thread.h"
#include "core/group.h"
#include "core/report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_NS    200000     /* between two looks whether all are made */
#define CLOSE_LOOK 100        /* every so many of them, one that costs a lock */
#define REASON_NS  1000000000 /* how long a failed start waits to hear why */

/* ---- what the service thread may call ---- */

static void on_stop(void *context, rondo_result result, const char *text)
{
    rd_comm_stop(context, result, text);
}

static void on_news(void *context)
{
    rondo_comm *comm = context;
    atomic_store(&comm->woken, 1);
    rd_bell_ring(&comm->bell);
}

static void report(void *context, unsigned char bytes[RD_REPORT_BYTES])
{
    rd_report_pack(context, bytes);
}

static const rd_member_ops member_ops = {
    .stop = on_stop, .wake = on_news, .report = report, .greeted = rd_links_greeted};

/* ---- one rank ---- */

static rondo_result allocate(rondo_comm **out, const rd_start *start)
{
    size_t n = (size_t)start->job.world;
    rondo_comm *comm = calloc(1, sizeof *comm);
    if (!comm) return rd_fail_errno("no memory for a communicator");
    comm->rank = start->job.rank;
    comm->size = start->job.world;
    comm->generation = rd_generation();
    comm->settings = start->settings;
    rd_stop_init(&comm->stop);
    pthread_mutex_init(&comm->line.lock, NULL);
    pthread_cond_init(&comm->line.moved, NULL);
    memcpy(comm->job, start->job.id, sizeof comm->job);
    comm->number = start->job.comm_number;
    comm->order = calloc(n * RD_MAX_CHANNELS, sizeof *comm->order);
    comm->one_order = true;
    comm->out = calloc(n * RD_MAX_CHANNELS, sizeof *comm->out);
    comm->in = calloc(n * RD_MAX_CHANNELS, sizeof *comm->in);
    rondo_result result = rd_bell_open(&comm->bell);
    if (!comm->order || !comm->out || !comm->in)
        result = rd_fail_errno("no memory for the links of %d ranks", comm->size);
    if (result == RONDO_SUCCESS && start->settings.trace)
        result = rd_trace_open(&comm->trace, start->settings.trace, comm->rank);
    if (result == RONDO_SUCCESS) result = rd_links_open(comm);
    if (result == RONDO_SUCCESS) result = rd_recorder_open(&comm->recorder);
    if (result != RONDO_SUCCESS) {
        rd_comm_discard(comm);
        return result;
    }
    rd_record_enlist(comm);
    rd_service_set_dump(rd_records_dump);
    *out = comm;
    return RONDO_SUCCESS;
}

/* The rendezvous and all that follows it, by one deadline. */
static rondo_result join(rondo_comm *comm, const rd_job *job)
{
    int64_t deadline = rd_deadline(comm->settings.timeout_s);
    rd_contact contact;
    rd_table *table;
    rd_member *member;
    RD_TRY(rd_member_open(&member, job, &comm->settings, &contact, &member_ops, comm));
    rd_comm_set_member(comm, member);
    if (rd_comm_stopped(comm)) return rd_fail(RONDO_ABORTED, "%s", comm->stop.text);
    RD_TRY(rd_table_open(&table, job, &comm->settings, deadline, &comm->stop.word));
    rondo_result result = rd_comm_connect(comm, table, &contact, deadline);
    rd_table_close(table);
    comm->made = result == RONDO_SUCCESS;
    return result;
}

/* A start fails on one rank, and then on the others, for want of it. Who failed by himself says why, to all; who only
 * lost a connection waits a moment for that. */
static rondo_result true_reason(rondo_comm *comm, rondo_result result)
{
    char own[RD_ERROR_BYTES];
    snprintf(own, sizeof own, "%s", rd_last_error());
    int64_t until = rd_now() + REASON_NS;
    while (result == RONDO_REMOTE_ERROR && comm->member && !rd_comm_stopped(comm) && rd_now() < until)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    rondo_result stop = rd_comm_stopped(comm);
    if (stop && (result == RONDO_REMOTE_ERROR || result == RONDO_ABORTED)) return rd_fail(stop, "%s", comm->stop.text);
    if (comm->member) rd_member_announce(comm->member, result, own);
    return rd_fail(result, "%s", own);
}

static rondo_result create(rondo_comm **out, const rd_start *start)
{
    rondo_comm *comm;
    RD_TRY(allocate(&comm, start));
    rondo_result result = join(comm, &start->job);
    if (result != RONDO_SUCCESS) {
        char why[RD_ERROR_BYTES];
        result = true_reason(comm, result);
        snprintf(why, sizeof why, "%s", rd_last_error());
        rd_comm_discard(comm); /* which may fail to say goodbye */
        return rd_fail(result, "%s", why);
    }
    *out = comm;
    return RONDO_SUCCESS;
}

/* ---- in the background ---- */

typedef struct rd_background {
    rondo_comm *comm;
    rd_job job;
} rd_background;

static void *start_in_background(void *argument)
{
    rd_background *b = argument;
    rondo_result result = join(b->comm, &b->job);
    if (result != RONDO_SUCCESS) {
        result = true_reason(b->comm, result);
        rd_comm_stop(b->comm, result, rd_last_error());
    }
    atomic_store(&b->comm->starting, RD_STARTED);
    free(b);
    return NULL;
}

/* In the background, into *out: RONDO_IN_PROGRESS, or why not even that. */
static rondo_result begin(const rd_start *start, rondo_comm **out)
{
    rondo_comm *comm;
    rd_background *b = malloc(sizeof *b);
    if (!b) return rd_fail_errno("no memory to start a communicator");
    rondo_result result = allocate(&comm, start);
    if (result != RONDO_SUCCESS) {
        free(b);
        return result;
    }
    *b = (rd_background){comm, start->job};
    atomic_store(&comm->starting, RD_STARTING);
    errno = rd_thread_start(&comm->starter, "rondo-start", start_in_background, b);
    if (errno) {
        result = rd_fail_errno("no thread to start a communicator in");
        atomic_store(&comm->starting, 0);
        rd_comm_discard(comm);
        free(b);
        return result;
    }
    *out = comm;
    return RONDO_IN_PROGRESS;
}

rondo_result rd_start_run(const rd_start *start)
{
    if (start->background) return begin(start, start->out);
    return rd_group_is_open() ? rd_group_add_start(start) : create(start->out, start);
}

/* ---- several ---- */

static bool is_made(const rondo_comm *comm)
{
    return atomic_load_explicit(&comm->starting, memory_order_acquire) != RD_STARTING;
}

/* Waits until all are made or have failed. One that fails takes those of its process with it. */
static rondo_result await_all(rondo_comm *const *comms, int n, const rd_watch_starts *watch)
{
    char failed[RD_ERROR_BYTES] = "";
    rondo_result result = RONDO_SUCCESS;
    for (int round = 0, left = n; left; round++) {
        left = 0;
        for (int i = 0; i < n; i++) {
            bool made = is_made(comms[i]);
            rondo_result stop = made ? rd_comm_stopped(comms[i]) : RONDO_SUCCESS;
            left += !made;
            if (stop && result == RONDO_SUCCESS) {
                result = stop;
                if (n > 1)
                    snprintf(failed, sizeof failed, "rank %d: %.2000s", comms[i]->rank, comms[i]->stop.text);
                else
                    snprintf(failed, sizeof failed, "%s", comms[i]->stop.text);
            }
            if (!made && result != RONDO_SUCCESS) rd_comm_give_up(comms[i], RONDO_ABORTED, failed);
            if (!made && watch) watch->look(watch->context, i, comms[i], round % CLOSE_LOOK == 0);
        }
        if (left) nanosleep(&(struct timespec){0, LOOK_NS}, NULL);
    }
    return result == RONDO_SUCCESS ? result : rd_fail(result, "%s", failed);
}

static rondo_result begin_all(const rd_start *starts, rondo_comm **comms, int n)
{
    for (int i = 0; i < n; i++) {
        rondo_result result = begin(&starts[i], &comms[i]);
        if (result == RONDO_IN_PROGRESS) continue;
        char why[RD_ERROR_BYTES];
        snprintf(why, sizeof why, "%s", rd_last_error());
        while (i-- > 0) rd_comm_give_up(comms[i], result, why); /* they would wait for it */
        return rd_fail(result, "%s", why);
    }
    return RONDO_SUCCESS;
}

rondo_result rd_start_all(const rd_start *starts, int n, const rd_watch_starts *watch)
{
    if (n == 1 && !watch) return create(starts[0].out, &starts[0]);
    rondo_comm **comms = calloc((size_t)n, sizeof *comms);
    if (!comms) return rd_fail_errno("no memory to start %d ranks", n);
    rondo_result result = begin_all(starts, comms, n);
    if (result == RONDO_SUCCESS) result = await_all(comms, n, watch);
    for (int i = 0; i < n; i++) {
        if (result == RONDO_SUCCESS)
            *starts[i].out = comms[i];
        else
            rondo_comm_destroy(comms[i]);
    }
    free(comms);
    return result;
}

/* ---- the calls ---- */

rondo_result rd_start_prepare(rd_start *start, const rondo_config *config, const char *function, rondo_comm **comm)
{
    if (!comm)
        return rd_fail(RONDO_INVALID_ARGUMENT, "%s: comm is NULL; it must point to where the handle goes", function);
    if (!rd_launch_is_first()) rd_settings_hush();
    RD_TRY(rd_settings_load(&start->settings, config));
    RD_TRY(rd_device_choose(function, &start->settings));
    start->out = comm;
    start->background = rd_config_background(config);
    rd_reduction probe; /* RONDO_CPU may ask for what this machine lacks: better now than in the first call */
    return rd_reduction_init(&probe, RONDO_FLOAT32, RONDO_SUM, 1, (int)start->settings.cpu);
}

rondo_result rondo_get_unique_id(rondo_unique_id *id)
{
    rd_settings settings;
    if (!id) return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_get_unique_id: id is NULL; it must point to 128 bytes");
    RD_TRY(rd_settings_load(&settings, NULL));
    return rd_job_new_id(id, &settings);
}

rondo_result rondo_unique_id_at(rondo_unique_id *id, const char *address)
{
    rd_settings settings;
    if (!id || !address)
        return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_unique_id_at: id is %p and address %p; neither may be NULL", (void *)id,
                       (const void *)address);
    RD_TRY(rd_settings_load(&settings, NULL));
    return rd_job_id_at(id, address, &settings);
}

static rondo_result start_rank(rondo_comm **comm, int world_size, const rondo_unique_id *id, int rank,
                               const rondo_config *config)
{
    rd_start start;
    RD_TRY(rd_start_prepare(&start, config, "rondo_init_rank", comm));
    RD_TRY(rd_check_world("rondo_init_rank", world_size, rank));
    RD_TRY(rd_job_from_id(&start.job, id, rank, world_size, &start.settings));
    return rd_start_run(&start);
}

rondo_result rondo_init_rank(rondo_comm **comm, int world_size, rondo_unique_id id, int rank,
                             const rondo_config *config)
{
    return rd_group_note(start_rank(comm, world_size, &id, rank, config));
}

static rondo_result start_from_env(rondo_comm **comm, const rondo_config *config)
{
    rd_start start;
    RD_TRY(rd_start_prepare(&start, config, "rondo_init_env", comm));
    RD_TRY(rd_job_from_env(&start.job, &start.settings));
    return rd_start_run(&start);
}

rondo_result rondo_init_env(rondo_comm **comm, const rondo_config *config)
{
    return rd_group_note(start_from_env(comm, config));
}

static rondo_result start_ranks(rondo_comm **comms, int n, const int *devices)
{
    rondo_unique_id id;
    if (!comms)
        return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_init_all: comms is NULL; it must point to room for n handles");
    RD_TRY(rd_check_world("rondo_init_all", n, 0));
    RD_TRY(rondo_get_unique_id(&id));
    RD_TRY(rondo_group_start());
    for (int r = 0; r < n; r++) {
        rondo_config config = RONDO_CONFIG_INIT;
        if (devices) config.device = devices[r];
        rondo_init_rank(&comms[r], n, id, r, &config); /* if refused, the end of the group says so */
    }
    return rondo_group_end();
}

rondo_result rondo_init_all(rondo_comm **comms, int n, const int *devices)
{
    return rd_group_note(start_ranks(comms, n, devices));
}
