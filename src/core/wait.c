/* SPDX-License-Identifier: Apache-2.0
 *
 * wait.c - driving an operation to its end. While there is something to do, do it. When there is not: poll for a
 * while, then let others run, then sleep on the doorbell, which a peer's slice, a socket, the service thread or an
 * abort rings. A call never waits for the service thread; it reads one word that the service thread may set.
 */
#include "core/comm.h"

#include "base/clock.h"
#include "base/dtype.h"
#include "base/log.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#define YIELDS 64                        /* after the spinning, before the first sleep */
#define REASON_NS 1000000000             /* how long a broken link waits for the control plane to say why */
#define LOOK_MOVES 4096                  /* a busy call looks at the clock once in so many moves */
#define LOOK_NS 1000000000               /* a sleep's longest: a lost wake-up would cost this, not the job */

void rd_stop_init(rd_stop *stop)
{
    atomic_init(&stop->word, 0);
    pthread_mutex_init(&stop->lock, NULL);
    stop->text[0] = 0;
}

void rd_stop_destroy(rd_stop *stop) { pthread_mutex_destroy(&stop->lock); }

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
}

#define RD_CALL_TEXT 160

/* "rondo_all_reduce of 8 float32, sum (call 7 on rank 2)" */
static void describe(const rondo_comm *comm, const rd_call *call, char text[RD_CALL_TEXT])
{
    char root[24] = "";
    bool rooted = call->collective == RONDO_COLL_BROADCAST || call->collective == RONDO_COLL_REDUCE;
    if (rooted) snprintf(root, sizeof root, ", root %d", call->root);
    snprintf(text, RD_CALL_TEXT, "%s of %zu %s%s%s%s (call %llu on rank %d)", call->name, call->count,
             rd_dtype_name(call->dtype), call->reduces ? ", " : "", call->reduces ? rd_op_name(call->op) : "", root,
             (unsigned long long)comm->calls, comm->rank);
}

static rondo_result stopped(const rondo_comm *comm)
{
    return (rondo_result)atomic_load_explicit(&comm->stop.word, memory_order_acquire);
}

/* Fails this call and all later ones on comm, and tells the other ranks. */
static rondo_result end(rondo_comm *comm, rondo_result result, const char *text)
{
    rd_comm_stop(comm, result, text);
    rd_member_announce(comm->member, result, text);
    return stopped(comm); /* someone may have come first */
}

static rondo_result report_failure(rondo_comm *comm, const rd_call *call)
{
    char what[RD_CALL_TEXT];
    describe(comm, call, what);
    const rd_op *op = &comm->op;
    char text[RD_ERROR_BYTES], peer[256];
    if (!op->failed) return end(comm, RONDO_INTERNAL_ERROR, "the executor's counters broke their inequality");
    rondo_link *link = op->failed->link;
    rd_member_peer_name(comm->member, link->peer, peer, sizeof peer);
    if (op->failure == RONDO_LINK_MISMATCH) {
        snprintf(text, sizeof text, "%s does not match what %s called: the ranks must make the same calls in the same order, "
                 "with the same type, operator, root and count", what, peer);
        return end(comm, RONDO_MISMATCH, text);
    }
    char reason[512];
    snprintf(reason, sizeof reason, "%s", op->failure == RONDO_LINK_BROKEN ? rd_last_error() : "the link was closed");
    /* The data link often hears of a death first; the control plane knows who died and how. */
    for (int64_t until = rd_now() + REASON_NS; !stopped(comm) && rd_now() < until;) {
        char left[512];
        if (rd_member_left(comm->member, comm->calls - 1, left, sizeof left)) {
            snprintf(text, sizeof text, "%s cannot complete: %s", what, left);
            return end(comm, RONDO_REMOTE_ERROR, text);
        }
        rd_bell_arm(&comm->bell);
        rd_bell_sleep(&comm->bell, 10000000);
    }
    if (stopped(comm)) return stopped(comm);
    snprintf(text, sizeof text, "%s: lost the %s link with %s: %s", what, link->ops->name, peer, reason);
    return end(comm, RONDO_REMOTE_ERROR, text);
}

static rondo_result report_timeout(rondo_comm *comm, const rd_call *call)
{
    char what[RD_CALL_TEXT];
    describe(comm, call, what);
    char text[RD_ERROR_BYTES], peer[256] = "another rank";
    bool to_receive = true;
    int rank = rd_op_waits_for(&comm->op, &to_receive);
    if (rank >= 0) rd_member_peer_name(comm->member, rank, peer, sizeof peer);
    snprintf(text, sizeof text, "%s did not complete in %.3g s: still waiting %s %s. Is every rank alive and making the "
             "same calls? RONDO_TIMEOUT sets the limit", what, comm->settings.timeout_s, to_receive ? "for data from" : "for room to send to", peer);
    return end(comm, RONDO_TIMEOUT, text);
}

/* One sleep, unless something came: RD_FAILED when a link cannot be waited for. */
static rd_progress sleep_on_bell(rondo_comm *comm, int64_t until)
{
    rd_bell_arm(&comm->bell);
    int64_t left = until - rd_now();
    rd_progress progress = left > 0 ? rd_op_arm(&comm->op, &comm->bell) : RD_MOVED;
    if (progress != RD_IDLE || stopped(comm) || atomic_load(&comm->woken)) {
        rd_bell_disarm(&comm->bell);
        return progress;
    }
    int64_t asleep = rd_now();
    rd_bell_sleep(&comm->bell, left < LOOK_NS ? left : LOOK_NS);
    comm->overslept = left > LOOK_NS && rd_now() - asleep >= LOOK_NS;
    return RD_IDLE;
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Warns once when the call has become slow. */
static void warn_if_slow(rondo_comm *comm, const rd_call *call, int64_t now, int64_t *warn_at)
{
    char peer[256] = "another rank";
    bool to_receive = true;
    if (now < *warn_at) return;
    *warn_at = INT64_MAX;
    char what[RD_CALL_TEXT];
    describe(comm, call, what);
    int rank = rd_op_waits_for(&comm->op, &to_receive);
    if (rank >= 0) rd_member_peer_name(comm->member, rank, peer, sizeof peer);
    rd_log(RD_LOG_WARN, "%s has waited %.3g s %s %s", what, comm->settings.slow_warning_s,
           to_receive ? "for data from" : "for room to send to", peer);
}

/* Nothing could be done for a while: is there a reason to give up? RONDO_IN_PROGRESS: no. */
static rondo_result reason_to_end(rondo_comm *comm, const rd_call *call, int64_t deadline, int64_t *warn_at)
{
    char left[512], text[RD_ERROR_BYTES];
    int64_t now = rd_now();
    if (now >= deadline) return report_timeout(comm, call);
    warn_if_slow(comm, call, now, warn_at);
    if (!atomic_exchange(&comm->woken, 0)) return RONDO_IN_PROGRESS;
    if (!rd_member_left(comm->member, comm->calls - 1, left, sizeof left)) return RONDO_IN_PROGRESS;
    char what[RD_CALL_TEXT];
    describe(comm, call, what);
    snprintf(text, sizeof text, "%s cannot complete: %s", what, left);
    return end(comm, RONDO_REMOTE_ERROR, text);
}

/* Nothing happened for a while, or much did for long: look at the clock, at the control plane; let others run; sleep. */
static rondo_result wait_turn(rondo_comm *comm, const rd_call *call, long idle, int64_t deadline, int64_t *warn_at)
{
    if (idle <= comm->spin) {
        relax();
        return RONDO_IN_PROGRESS;
    }
    if (idle <= comm->spin + YIELDS) {
        sched_yield();
        return RONDO_IN_PROGRESS;
    }
    rondo_result result = reason_to_end(comm, call, deadline, warn_at);
    if (result != RONDO_IN_PROGRESS) return result;
    return sleep_on_bell(comm, *warn_at < deadline ? *warn_at : deadline) == RD_FAILED ? report_failure(comm, call)
                                                                                     : RONDO_IN_PROGRESS;
}

/* A sleep that nobody ended, and then there was something to do: a wake-up was lost, or it came that very moment. */
static void note_overslept(rondo_comm *comm, rd_progress progress)
{
    if (comm->overslept && progress != RD_IDLE) {
        comm->missed_bells++;
        rd_log(RD_LOG_INFO, "rank %d: slept %.3g s beside something to do", comm->rank, LOOK_NS * 1e-9);
    }
    comm->overslept = false;
}

static rondo_result drive(rondo_comm *comm, const rd_call *call)
{
    long idle = 0, moved = 0;
    int64_t deadline = 0, warn_at = 0;
    atomic_store(&comm->woken, 1); /* who left before this call matters, too */
    for (;;) {
        rd_progress progress = rd_op_advance(&comm->op);
        rondo_result stop = stopped(comm), result = RONDO_IN_PROGRESS;
        if (stop == RONDO_ABORTED) return stop;
        if (progress == RD_DONE) return RONDO_SUCCESS;
        /* A peer may die after it has done its part: what it sent is used up before its end counts. */
        if (stop && progress != RD_MOVED) return stop;
        if (progress == RD_FAILED) return report_failure(comm, call);
        if (!deadline) {
            deadline = rd_deadline(comm->settings.timeout_s);
            warn_at = rd_deadline(comm->settings.slow_warning_s);
        }
        if (comm->overslept) note_overslept(comm, progress);
        if (progress == RD_IDLE) result = wait_turn(comm, call, ++idle, deadline, &warn_at);
        else if (idle = 0, ++moved % LOOK_MOVES == 0) result = reason_to_end(comm, call, deadline, &warn_at);
        if (result != RONDO_IN_PROGRESS) return result;
    }
}

/* The caller's buffers are the caller's again when the call returns, also when it failed. A peer is inside them for no
 * longer than a slice takes; one that was stopped there is not waited for. */
static void take_back(rondo_comm *comm)
{
    int64_t until = rd_now() + REASON_NS;
    while (!rd_op_withdraw(&comm->op)) {
        if (rd_now() > until) {
            rd_log(RD_LOG_WARN, "rank %d: a peer that stands still may yet write to the buffers of the failed call", comm->rank);
            return;
        }
        sched_yield();
    }
}

rondo_result rd_comm_drive(rondo_comm *comm, const rd_call *call)
{
    rondo_result result = drive(comm, call);
    if (result != RONDO_SUCCESS) take_back(comm);
    return result;
}
