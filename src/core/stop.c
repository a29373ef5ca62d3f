/* SPDX-License-Identifier: Apache-2.0 */
#include "core/comm.h"

#include <stdio.h>

void rd_stop_init(rd_stop *stop)
{
    atomic_init(&stop->word, 0);
    atomic_init(&stop->aborted, 0);
    pthread_mutex_init(&stop->lock, NULL);
    stop->text[0] = 0;
}

void rd_stop_destroy(rd_stop *stop)
{
    pthread_mutex_destroy(&stop->lock);
}

void rd_comm_stop(rondo_comm *comm, rondo_result result, const char *text)
{
    rd_stop *stop = &comm->stop;
    pthread_mutex_lock(&stop->lock);
    if (!atomic_load_explicit(&stop->word, memory_order_relaxed)) {
        snprintf(stop->text, sizeof stop->text, "%s", text);
        atomic_store_explicit(&stop->word, (int)result, memory_order_release);
    }
    pthread_mutex_unlock(&stop->lock);
    rd_bell_ring(&comm->bell);
    rd_line_wake(&comm->line);
}

rondo_result rd_comm_end(rondo_comm *comm, rondo_result result, const char *text)
{
    rd_comm_stop(comm, result, text);
    rd_member_announce(comm->member, result, text);
    return rd_comm_stopped(comm);
}

void rd_comm_set_member(rondo_comm *comm, rd_member *member)
{
    pthread_mutex_lock(&comm->stop.lock);
    comm->member = member;
    pthread_mutex_unlock(&comm->stop.lock);
}

/* What this rank says of itself, and what the others hear. */
static void end_while_it_may_start(rondo_comm *comm, rondo_result here, const char *text, rondo_result elsewhere,
                                   const char *news)
{
    rd_comm_stop(comm, here, text);
    pthread_mutex_lock(&comm->stop.lock);
    rd_member *member = comm->member;
    pthread_mutex_unlock(&comm->stop.lock);
    if (member) rd_member_announce(member, elsewhere, news);
}

void rd_comm_abort(rondo_comm *comm)
{
    char news[128];
    atomic_store(&comm->stop.aborted, 1);
    snprintf(news, sizeof news, "rank %d called rondo_comm_abort", comm->rank);
    end_while_it_may_start(comm, RONDO_ABORTED, "rondo_comm_abort was called on this communicator", RONDO_REMOTE_ERROR,
                           news);
}

void rd_comm_abort_because(rondo_comm *comm, const char *why)
{
    atomic_store(&comm->stop.aborted, 1);
    rd_comm_give_up(comm, RONDO_ABORTED, why);
}

void rd_comm_give_up(rondo_comm *comm, rondo_result result, const char *text)
{
    end_while_it_may_start(comm, result, text, result == RONDO_ABORTED ? RONDO_REMOTE_ERROR : result, text);
}
