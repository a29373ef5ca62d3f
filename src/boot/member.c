/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/member.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "boot/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Words and state ---- */

void rd_member_name(const rd_member *member, int rank, char *text, size_t bytes)
{
    const rd_contact *contact = member->contacts ? &member->contacts[rank] : NULL;
    if (contact)
        snprintf(text, bytes, "rank %d (pid %d on %s)", rank, contact->pid, contact->hostname);
    else
        snprintf(text, bytes, "rank %d", rank);
}

void rd_member_peer_name(const rd_member *member, int rank, char *text, size_t bytes)
{
    rd_service_lock();
    rd_member_name(member, rank, text, bytes);
    rd_service_unlock();
}

rondo_result rd_member_check(const rd_member *member, int peer)
{
    char text[256];
    if (member->service != rd_service)
        return rd_fail(RONDO_INVALID_USAGE,
                       "this process was forked after the communicator was made: it stays with the parent");
    if (member->announced) return rd_fail(RONDO_ABORTED, "this rank has aborted the communicator");
    if (member->stopped != RONDO_SUCCESS) return rd_fail(member->stopped, "%s", member->stopped_text);
    if (!member->someone_left) return RONDO_SUCCESS;
    for (int rank = 0; rank < member->job.world; rank++) {
        if ((peer >= 0 && rank != peer) || member->ranks[rank].state != RD_LEFT) continue;
        rd_control_describe_left(member, rank, text, sizeof text);
        return rd_fail(RONDO_REMOTE_ERROR, "%s", text);
    }
    return RONDO_SUCCESS;
}

rondo_result rd_member_check_peer(const rd_member *member, int peer, int purpose, int index)
{
    if (peer < 0 || peer >= member->job.world)
        return rd_fail(RONDO_INVALID_ARGUMENT, "peer is %d; the ranks are 0 to %d", peer, member->job.world - 1);
    if (purpose < 0 || purpose >= RD_PURPOSES || index < 0)
        return rd_fail(RONDO_INVALID_ARGUMENT, "purpose is %d and index %d; 0 to %d, and 0 or more, are valid", purpose,
                       index, RD_PURPOSES - 1);
    return RONDO_SUCCESS;
}

static rd_member *find(const unsigned char job_id[16], uint32_t comm_number, uint32_t rank)
{
    for (rd_member *m = rd_service->members; m; m = m->next)
        if ((uint32_t)m->job.rank == rank && m->job.comm_number == comm_number && memcmp(m->job.id, job_id, 16) == 0)
            return m;
    return NULL;
}

const rd_job *rd_member_job_find(const unsigned char id[16])
{
    for (const rd_member *m = rd_service->members; m; m = m->next)
        if (memcmp(m->job.id, id, 16) == 0) return &m->job;
    return NULL;
}

/* ---- Open and close ---- */

static void free_member(rd_member *member)
{
    for (int rank = 0; member->ranks && rank < member->job.world; rank++) free(member->ranks[rank].text);
    free(member->ranks);
    free(member->contacts);
    rd_agree_free(member);
    pthread_cond_destroy(&member->changed);
    free(member);
}

static rondo_result new_member(rd_member **member, const rd_job *job, const rd_settings *settings)
{
    rd_member *m = calloc(1, sizeof *m);
    if (!m) return rd_fail(RONDO_SYSTEM_ERROR, "no memory for rank %d of %d", job->rank, job->world);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&m->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    m->job = *job;
    m->settings = *settings;
    m->ranks = calloc((size_t)job->world, sizeof *m->ranks);
    if (!m->ranks) {
        free_member(m);
        return rd_fail(RONDO_SYSTEM_ERROR, "no memory for rank %d of %d", job->rank, job->world);
    }
    *member = m;
    return RONDO_SUCCESS;
}

rondo_result rd_member_open(rd_member **member, const rd_job *job, const rd_settings *settings, rd_contact *contact,
                            const rd_member_ops *ops, void *context)
{
    rd_member *m = NULL;
    rd_contact here;
    unsigned char token[16];
    if (job->world < 1 || job->rank < 0 || job->rank >= job->world)
        return rd_fail(RONDO_INVALID_ARGUMENT, "rank %d of %d: ranks are 0 to world size - 1", job->rank, job->world);
    RD_TRY(rd_service_start(settings));
    RD_TRY(new_member(&m, job, settings));
    m->ops = ops;
    m->context = context;

    rd_service_lock();
    int port = rd_service->tcp_port;
    memcpy(token, rd_service->token, sizeof token);
    rondo_result result = RONDO_SUCCESS;
    if (find(job->id, job->comm_number, (uint32_t)job->rank))
        result = rd_fail(RONDO_INVALID_USAGE,
                         "two communicators of this process say that they are rank %d of the same job", job->rank);
    else {
        m->service = rd_service;
        m->next = rd_service->members;
        if (m->next) m->next->before = m;
        rd_service->members = m;
    }
    rd_service_unlock();
    if (result != RONDO_SUCCESS) {
        free_member(m);
        return result;
    }
    result = rd_contact_here(&here, settings, port, token);
    if (result != RONDO_SUCCESS) {
        rd_member_close(m);
        return result;
    }
    *contact = here;
    *member = m;
    return RONDO_SUCCESS;
}

rondo_result rd_member_set_contacts(rd_member *member, const rd_contact *contacts)
{
    size_t bytes = (size_t)member->job.world * sizeof *contacts;
    rd_contact *copy = malloc(bytes);
    if (!copy) return rd_fail(RONDO_SYSTEM_ERROR, "no memory for the contacts of %d ranks", member->job.world);
    memcpy(copy, contacts, bytes);
    for (int rank = 0; rank < member->job.world; rank++) rd_contact_restrain(&copy[rank]);
    rd_service_lock();
    free(member->contacts);
    member->contacts = copy;
    if (member->service == rd_service) rd_greet_ready(member);
    rd_service_unlock();
    return RONDO_SUCCESS;
}

void rd_member_close(rd_member *member)
{
    if (!member) return;
    rd_service_lock();
    bool forked = member->service != rd_service;
    if (!forked) {
        rd_control_goodbye(member, RD_LEFT_DESTROYED);
        if (member->before)
            member->before->next = member->next;
        else
            rd_service->members = member->next;
        if (member->next) member->next->before = member->before;
    }
    rd_control_close(member, forked);
    rd_greet_close(member, forked);
    while (member->arrivals) {
        rd_arrival *arrival = member->arrivals;
        member->arrivals = arrival->next;
        if (!forked) rd_close_owned(arrival->fd);
        free(arrival);
    }
    rd_service_unlock();
    free_member(member);
}

/* ---- Connections that come in ---- */

void rd_member_admit(const unsigned char job_id[16], const rd_request *request, rd_verdict *verdict)
{
    const rd_member *member = find(job_id, request->comm_number, request->to);
    if (!member) {
        verdict->kind = RD_NOT_YET;
        snprintf(verdict->text, sizeof verdict->text, "rank %u is not there (yet)", request->to);
    } else if (request->world != (uint32_t)member->job.world) {
        verdict->kind = RD_REFUSED;
        verdict->result = RONDO_INVALID_USAGE;
        snprintf(verdict->text, sizeof verdict->text,
                 "world sizes differ: rank %u (pid %d on %s) says %u, rank %u says %d", request->from, request->pid,
                 request->host, request->world, request->to, member->job.world);
    } else if (request->from >= request->world || request->purpose > RD_PURPOSE_GREETING) {
        verdict->kind = RD_REFUSED;
        verdict->result = RONDO_INTERNAL_ERROR;
        snprintf(verdict->text, sizeof verdict->text,
                 "rank %u does not understand the request of rank %u for purpose %u", request->to, request->from,
                 request->purpose);
    }
}

void rd_member_take(const unsigned char job_id[16], const rd_request *request, int fd)
{
    rd_member *member = find(job_id, request->comm_number, request->to);
    if (request->purpose == RD_PURPOSE_CONTROL) {
        rd_control_open(member, (int)request->from, fd);
        return;
    }
    if (request->purpose == RD_PURPOSE_GREETING) {
        rd_greet_open(member, (int)request->from, (int)request->index, fd);
        return;
    }
    rd_arrival **place = &member->arrivals, *arrival = malloc(sizeof *arrival);
    if (!arrival) {
        rd_close_owned(fd);
        return;
    }
    *arrival = (rd_arrival){(int)request->from, (int)request->purpose, (int)request->index, fd, NULL};
    while (*place) place = &(*place)->next;
    *place = arrival;
    pthread_cond_broadcast(&member->changed);
}

void rd_member_wait(rd_member *member, int64_t deadline)
{
    int64_t latest = rd_deadline(3600);
    if (deadline > latest) deadline = latest;
    struct timespec at = {deadline / 1000000000, deadline % 1000000000};
    pthread_cond_timedwait(&member->changed, rd_service_mutex(), &at);
}

rondo_result rd_member_accept(rd_member *member, int peer, int purpose, int index, int64_t deadline, int *fd)
{
    char name[192];
    RD_TRY(rd_member_check_peer(member, peer, purpose, index));
    rondo_result result;
    rd_service_lock();
    uint64_t starved = rd_door_starved();
    for (;;) {
        rd_arrival **place = &member->arrivals;
        while (*place && ((*place)->peer != peer || (*place)->purpose != purpose || (*place)->index != index))
            place = &(*place)->next;
        result = rd_member_check(member, peer);
        if (*place && result == RONDO_SUCCESS) {
            rd_arrival *arrival = *place;
            *place = arrival->next;
            rd_disown(arrival->fd);
            *fd = arrival->fd;
            free(arrival);
            break;
        }
        if (result == RONDO_SUCCESS) result = rd_door_check(starved);
        if (result != RONDO_SUCCESS) break;
        if (rd_now() >= deadline) {
            rd_member_name(member, peer, name, sizeof name);
            result = rd_fail(RONDO_TIMEOUT, "%s did not connect to rank %d in time (purpose %d, index %d)", name,
                             member->job.rank, purpose, index);
            break;
        }
        rd_member_wait(member, deadline);
    }
    rd_service_unlock();
    return result;
}

/* ---- Connections that go out ---- */

rondo_result rd_member_connect(rd_member *member, int peer, int purpose, int index, int over, int64_t deadline, int *fd)
{
    int connected;
    RD_TRY(rd_member_check_peer(member, peer, purpose, index));
    RD_TRY(rd_member_dial(member, peer, (uint32_t)purpose, index, over, deadline, &connected));
    rd_service_lock();
    rd_disown(connected);
    rd_service_unlock();
    *fd = connected;
    return RONDO_SUCCESS;
}

/* ---- Control connections ---- */

/* A neighbour without a connection, -1 when all have one. */
static int first_missing(const rd_member *member)
{
    int world = member->job.world, me = member->job.rank;
    for (int distance = 1; distance < world; distance *= 2) {
        int after = (me + distance) % world, before = (me - distance + world) % world;
        if (!rd_control_to(member, after)) return after;
        if (!rd_control_to(member, before)) return before;
    }
    return -1;
}

rondo_result rd_member_start_control(rd_member *member, const bool *over_unix, int64_t deadline)
{
    int world = member->job.world, me = member->job.rank;
    for (int distance = 1; distance < world; distance *= 2) {
        int peer = (me + distance) % world, fd;
        if (!rd_control_dials(me, peer, world)) continue;
        RD_TRY(rd_member_dial(member, peer, RD_PURPOSE_CONTROL, 0, over_unix[peer] ? RD_OVER_UNIX : 0, deadline, &fd));
        rd_service_lock();
        rd_control_open(member, peer, fd);
        rd_service_unlock();
    }
    char name[192];
    rondo_result result;
    rd_service_lock();
    uint64_t starved = rd_door_starved();
    for (int missing;
         (result = rd_member_check(member, -1)) == RONDO_SUCCESS && (missing = first_missing(member)) >= 0;) {
        if ((result = rd_door_check(starved)) != RONDO_SUCCESS) break;
        if (rd_now() >= deadline) {
            rd_member_name(member, missing, name, sizeof name);
            result = rd_fail(RONDO_TIMEOUT, "%s did not make its control connection to rank %d in time", name, me);
            break;
        }
        rd_member_wait(member, deadline);
    }
    rd_service_unlock();
    return result;
}

/* ---- Leaving ---- */

void rd_member_completed(rd_member *member, uint64_t calls)
{
    member->completed = calls;
}

bool rd_member_left(rd_member *member, uint64_t calls, char *text, size_t bytes)
{
    int first = -1;
    if (!member->someone_left) return false;
    rd_service_lock();
    for (int rank = 0; rank < member->job.world; rank++) {
        const rd_rank *r = &member->ranks[rank];
        if (r->state == RD_LEFT && r->calls <= calls && (first < 0 || r->calls < member->ranks[first].calls))
            first = rank;
    }
    if (first >= 0) rd_control_describe_left(member, first, text, bytes);
    rd_service_unlock();
    return first >= 0;
}

bool rd_member_is_gone(const rd_member *member, int rank)
{
    rd_service_lock();
    bool gone = rank >= 0 && rank < member->job.world && member->ranks[rank].gone;
    rd_service_unlock();
    return gone;
}

bool rd_member_is_stopped(rd_member *member, int rank, double *since_s)
{
    rd_service_lock();
    const rd_rank *r = rank >= 0 && rank < member->job.world ? &member->ranks[rank] : NULL;
    bool is_stopped = r && r->is_stopped && !r->gone;
    if (is_stopped && since_s) *since_s = (double)(rd_now() - r->stopped_at) * 1e-9;
    rd_service_unlock();
    return is_stopped;
}

void rd_members_wake(void)
{
    for (rd_member *m = rd_service->members; m; m = m->next) pthread_cond_broadcast(&m->changed);
}

void rd_members_exit(int64_t deadline)
{
    for (rd_member *m = rd_service->members; m; m = m->next) rd_control_goodbye(m, RD_LEFT_EXITED);
    for (bool sent = false; !sent && rd_now() < deadline;) {
        sent = true;
        for (rd_member *m = rd_service->members; m; m = m->next) sent = rd_control_flush(m) && sent;
        if (!sent) nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    /* The thread reads them to their end while the process ends: unread data would have the kernel reset them, and a
     * goodbye that is still on its way would be lost. */
    for (rd_member *m = rd_service->members; m; m = m->next) rd_control_close(m, false);
}
