/* SPDX-License-Identifier: Apache-2.0
 *
 * served.c - the jobs whose tables this process serves, and where: rendezvous.c has the tables.
 */
#include "boot/service.h"

#include "base/status.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

rd_served_job *rd_served_job_find(const unsigned char id[16])
{
    for (rd_served_job *job = rd_service ? rd_service->jobs : NULL; job; job = job->next)
        if (memcmp(job->id, id, 16) == 0) return job;
    return NULL;
}

static rondo_result add_job(const unsigned char id[16], const unsigned char key[32], bool has_key, int world, bool once)
{
    if (rd_served_job_find(id)) return RONDO_SUCCESS;
    rd_served_job *job = calloc(1, sizeof *job);
    if (!job) return rd_fail(RONDO_SYSTEM_ERROR, "no memory to serve a job's table");
    memcpy(job->id, id, 16);
    if (has_key) memcpy(job->key, key, 32);
    job->has_key = has_key;
    job->world = world;
    job->once = once;
    job->next = rd_service->jobs;
    rd_service->jobs = job;
    return RONDO_SUCCESS;
}

rondo_result rd_service_serve_job(const unsigned char id[16], const unsigned char key[32], bool has_key, int world,
                                  const rd_settings *settings, int *tcp_port, unsigned char token[16])
{
    RD_TRY(rd_service_start_at(settings, (int)settings->port));
    rd_service_lock();
    rondo_result result = add_job(id, key, has_key, world, false);
    if (result == RONDO_SUCCESS) {
        *tcp_port = settings->port ? (int)settings->port : rd_service->tcp_port;
        memcpy(token, rd_service->token, 16);
    }
    rd_service_unlock();
    return result;
}

rondo_result rd_serve_job_once(const rd_job *job)
{
    return add_job(job->id, job->key, job->has_key, job->world, true);
}

void rd_served_job_forget(rd_served_job *job)
{
    rd_served_job **place = &rd_service->jobs;
    while (*place != job) place = &(*place)->next;
    *place = job->next;
    memset(job->key, 0, sizeof job->key);
    free(job);
}

void rd_served_job_end(const unsigned char id[16])
{
    rd_served_job *job = rd_served_job_find(id);
    if (!job || !job->once) return;
    job->once = false; /* it goes here, not with its last board */
    rd_boards_end(job);
    rd_served_job_forget(job);
}

/* The first free port of the range that the others look through. */
static rondo_result listen_in_range(const rd_job *job)
{
    for (int i = 0; i < job->root_ports; i++) {
        rondo_result result = rd_door_listen(NULL, job->root_port + i, NULL);
        if (result == RONDO_SUCCESS || errno != EADDRINUSE) return result; /* rd_door_listen sets it last */
    }
    if (job->root_ports == 1) return RONDO_SYSTEM_ERROR; /* the door has said which port is taken */
    return rd_fail(RONDO_SYSTEM_ERROR,
                   "all TCP ports from %d to %d are taken; set RONDO_PORT on all ranks to one that is free",
                   job->root_port, job->root_port + job->root_ports - 1);
}

rondo_result rd_serve_environment_job(const rd_job *job, const rd_settings *settings)
{
    rondo_result result = RONDO_SUCCESS;
    RD_TRY(rd_service_start(settings));
    rd_service_lock();
    if (rd_served_job_find(job->id)) goto unlock;
    for (int i = 0; i < job->roots && result == RONDO_SUCCESS; i++) {
        if (strncmp(job->root[i], "unix:", 5)) continue;
        result = rd_door_listen(job->root[i] + 5, 0, NULL);
        if (result != RONDO_SUCCESS && errno == EADDRINUSE)
            result = rd_fail(RONDO_INVALID_USAGE, "%s is taken: another process of this job says that it is rank 0",
                             job->root[i]);
    }
    if (result == RONDO_SUCCESS && job->root_ports > 0) result = listen_in_range(job);
    if (result == RONDO_SUCCESS) result = add_job(job->id, job->key, job->has_key, job->world, false);
unlock:
    rd_service_unlock();
    return result;
}
