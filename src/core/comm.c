/* SPDX-License-Identifier: Apache-2.0 */
#include "core/comm.h"

#include "base/clock.h"
#include "base/process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REASON_NS 1000000000 /* how long a failed start waits to hear why */

/* ---- what the service thread may call ---- */

static void on_stop(void *context, rondo_result result, const char *text) { rd_comm_stop(context, result, text); }

static void on_news(void *context)
{
    rondo_comm *comm = context;
    atomic_store(&comm->woken, 1);
    rd_bell_ring(&comm->bell);
}

static const rd_member_ops member_ops = {.stop = on_stop, .wake = on_news};

/* ---- making ---- */

/* Undoes whatever create has done; the caller has set all else to zero. */
static void discard(rondo_comm *comm)
{
    rd_member_close(comm->member);
    rd_comm_disconnect(comm);
    rd_comm_forget_memory(comm);
    free(comm->out);
    free(comm->in);
    free(comm->order);
    rd_trace_close(comm->trace);
    rd_schedule *schedules = &comm->schedules[0][0][0];
    for (size_t i = 0; i < sizeof comm->schedules / sizeof *schedules; i++) free(schedules[i].steps);
    rd_bell_close(&comm->bell);
    rd_stop_destroy(&comm->stop);
    free(comm);
}

static rondo_result check_device(int device)
{
    if (device == RONDO_DEVICE_AUTO || device == RONDO_DEVICE_HOST) return RONDO_SUCCESS;
    return rd_fail(RONDO_INVALID_ARGUMENT, "device is %d; this build runs on host memory only: RONDO_DEVICE_AUTO (-1) or "
                   "RONDO_DEVICE_HOST (-2)", device);
}

/* The rendezvous and all that follows it, by one deadline. */
static rondo_result join(rondo_comm *comm, const rd_job *job)
{
    int64_t deadline = rd_deadline(comm->settings.timeout_s);
    rd_contact contact;
    rd_table *table;
    RD_TRY(rd_member_open(&comm->member, job, &comm->settings, &contact, &member_ops, comm));
    RD_TRY(rd_table_open(&table, job, &comm->settings, deadline, &comm->stop.word));
    rondo_result result = rd_comm_connect(comm, table, &contact, deadline);
    rd_table_close(table);
    return result;
}

/* A start fails on one rank, and then on the others, for want of it. Who failed by himself says why, to all; who only
 * lost a connection waits a moment for that. */
static rondo_result true_reason(rondo_comm *comm, rondo_result result)
{
    char own[RD_ERROR_BYTES];
    snprintf(own, sizeof own, "%s", rd_last_error());
    int64_t until = rd_now() + REASON_NS;
    while (result == RONDO_REMOTE_ERROR && comm->member && !atomic_load(&comm->stop.word) && rd_now() < until)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    int stop = atomic_load_explicit(&comm->stop.word, memory_order_acquire);
    if ((result == RONDO_REMOTE_ERROR || result == RONDO_ABORTED) && stop) return rd_fail((rondo_result)stop, "%s", comm->stop.text);
    if (comm->member) rd_member_announce(comm->member, result, own);
    return rd_fail(result, "%s", own);
}

static rondo_result create(rondo_comm **out, const rd_job *job, const rd_settings *settings)
{
    size_t n = (size_t)job->world;
    rondo_comm *comm = calloc(1, sizeof *comm);
    if (!comm) return rd_fail_errno("no memory for a communicator");
    comm->rank = job->rank;
    comm->size = job->world;
    comm->generation = rd_generation();
    comm->settings = *settings;
    rd_stop_init(&comm->stop);
    rondo_result result = rd_bell_open(&comm->bell);
    if (result != RONDO_SUCCESS) {
        rd_stop_destroy(&comm->stop);
        free(comm);
        return result;
    }
    comm->order = calloc(n, sizeof *comm->order);
    comm->out = calloc(n * RD_MAX_CHANNELS, sizeof *comm->out);
    comm->in = calloc(n * RD_MAX_CHANNELS, sizeof *comm->in);
    if (!comm->order || !comm->out || !comm->in) result = rd_fail_errno("no memory for the links of %d ranks", comm->size);
    if (result == RONDO_SUCCESS && settings->trace) result = rd_trace_open(&comm->trace, settings->trace, comm->rank);
    if (result == RONDO_SUCCESS) result = join(comm, job);
    if (result != RONDO_SUCCESS) {
        result = true_reason(comm, result);
        discard(comm);
        return result;
    }
    *out = comm;
    return RONDO_SUCCESS;
}

static rondo_result load_settings(rd_settings *settings, const rondo_config *config, const char *function, rondo_comm **comm)
{
    if (!comm) return rd_fail(RONDO_INVALID_ARGUMENT, "%s: comm is NULL; it must point to where the handle goes", function);
    RD_TRY(rd_settings_load(settings, config));
    RD_TRY(check_device(config ? config->device : RONDO_DEVICE_AUTO));
    rd_reduction probe; /* RONDO_CPU may ask for what this machine lacks: better now than in the first call */
    return rd_reduction_init(&probe, RONDO_FLOAT32, RONDO_SUM, 1, (int)settings->cpu);
}

rondo_result rondo_get_unique_id(rondo_unique_id *id)
{
    rd_settings settings;
    if (!id) return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_get_unique_id: id is NULL; it must point to 128 bytes");
    RD_TRY(rd_settings_load(&settings, NULL));
    return rd_job_new_id(id, &settings);
}

rondo_result rondo_init_rank(rondo_comm **comm, int world_size, rondo_unique_id id, int rank, const rondo_config *config)
{
    rd_settings settings;
    rd_job job;
    RD_TRY(load_settings(&settings, config, "rondo_init_rank", comm));
    RD_TRY(rd_check_world("rondo_init_rank", world_size, rank));
    RD_TRY(rd_job_from_id(&job, &id, rank, world_size, &settings));
    return create(comm, &job, &settings);
}

rondo_result rondo_init_env(rondo_comm **comm, const rondo_config *config)
{
    rd_settings settings;
    rd_job job;
    RD_TRY(load_settings(&settings, config, "rondo_init_env", comm));
    RD_TRY(rd_job_from_env(&job, &settings));
    return create(comm, &job, &settings);
}

/* ---- all ranks in one process ---- */

typedef struct rd_starter {
    pthread_t thread;
    rondo_comm *comm;
    rondo_unique_id id;
    rondo_config config;
    int rank, n;
    rondo_result result;
    char error[RD_ERROR_BYTES];
} rd_starter;

static void *start_one(void *argument)
{
    rd_starter *s = argument;
    s->result = rondo_init_rank(&s->comm, s->n, s->id, s->rank, &s->config);
    if (s->result != RONDO_SUCCESS) snprintf(s->error, sizeof s->error, "%s", rd_last_error());
    return NULL;
}

/* Starting takes all ranks at once, so each has a thread for as long as that lasts. */
static rondo_result start_all(rondo_comm **comms, rd_starter *starters, int n)
{
    rondo_result result = RONDO_SUCCESS;
    int started = 0;
    for (; started < n; started++)
        if ((errno = pthread_create(&starters[started].thread, NULL, start_one, &starters[started]))) {
            result = rd_fail_errno("rondo_init_all: no thread to start rank %d in", started);
            break;
        }
    for (int r = 0; r < started; r++) pthread_join(starters[r].thread, NULL);
    for (int r = 0; r < started && result == RONDO_SUCCESS; r++)
        if (starters[r].result != RONDO_SUCCESS) result = rd_fail(starters[r].result, "rank %d: %s", r, starters[r].error);
    for (int r = 0; r < started; r++) {
        if (result == RONDO_SUCCESS) comms[r] = starters[r].comm;
        else rondo_comm_destroy(starters[r].comm);
    }
    return result;
}

rondo_result rondo_init_all(rondo_comm **comms, int n, const int *devices)
{
    rondo_unique_id id;
    if (!comms) return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_init_all: comms is NULL; it must point to room for n handles");
    RD_TRY(rd_check_world("rondo_init_all", n, 0));
    for (int r = 0; devices && r < n; r++) RD_TRY(check_device(devices[r]));
    RD_TRY(rondo_get_unique_id(&id));
    rd_starter *starters = calloc((size_t)n, sizeof *starters);
    if (!starters) return rd_fail_errno("rondo_init_all: no memory for %d ranks", n);
    for (int r = 0; r < n; r++) {
        starters[r].id = id;
        starters[r].rank = r;
        starters[r].n = n;
        starters[r].config = (rondo_config)RONDO_CONFIG_INIT;
        if (devices) starters[r].config.device = devices[r];
    }
    rondo_result result = start_all(comms, starters, n);
    free(starters);
    return result;
}

/* ---- asking, aborting, destroying ---- */

int rondo_comm_rank(const rondo_comm *comm) { return comm ? comm->rank : -1; }
int rondo_comm_size(const rondo_comm *comm) { return comm ? comm->size : -1; }

rondo_result rondo_comm_abort(rondo_comm *comm)
{
    char text[128];
    if (!comm) return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_comm_abort: comm is NULL");
    RD_TRY(rd_check_process(comm, "rondo_comm_abort"));
    rd_comm_stop(comm, RONDO_ABORTED, "rondo_comm_abort was called on this communicator");
    snprintf(text, sizeof text, "rank %d called rondo_comm_abort", comm->rank);
    rd_member_announce(comm->member, RONDO_REMOTE_ERROR, text);
    return RONDO_SUCCESS;
}

rondo_result rondo_comm_destroy(rondo_comm *comm)
{
    if (!comm) return RONDO_SUCCESS;
    /* In a forked child links and bell are the parent's: their memory is not even mapped here. What is left of the handle
     * goes with the child. */
    if (rd_check_process(comm, "rondo_comm_destroy") != RONDO_SUCCESS) return RONDO_SUCCESS;
    if (atomic_load(&comm->busy)) rondo_comm_abort(comm);
    while (atomic_exchange_explicit(&comm->busy, 1, memory_order_acquire)) nanosleep(&(struct timespec){0, 100000}, NULL);
    discard(comm);
    return RONDO_SUCCESS;
}

rondo_result rondo_version(int *version)
{
    if (!version) return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_version: version is NULL; it must point to an int");
    *version = RONDO_VERSION;
    return RONDO_SUCCESS;
}

const char *rondo_last_error(const rondo_comm *comm) { return comm ? comm->error : rd_last_error(); }
