/* SPDX-License-Identifier: Apache-2.0
 *
 * explain.c - what is said of calls, and of their failures: what failed, where, who else is concerned, what to do.
 */
#include "core/comm.h"

#include "base/clock.h"
#include "base/dtype.h"
#include "base/log.h"

#include <stdio.h>

#define REASON_NS 1000000000 /* how long a broken link waits for the control plane to say why */

void rd_describe_call(const rondo_comm *comm, const rd_call *call, char text[RD_CALL_TEXT])
{
    char root[24] = "";
    bool rooted = call->collective == RONDO_COLL_BROADCAST || call->collective == RONDO_COLL_REDUCE;
    if (rooted) snprintf(root, sizeof root, ", root %d", call->root);
    snprintf(text, RD_CALL_TEXT, "%s of %zu %s%s%s%s (call %llu on rank %d)", call->name, call->count,
             rd_dtype_name(call->dtype), call->reduces ? ", " : "", call->reduces ? rd_op_name(call->op) : "", root,
             (unsigned long long)comm->calls, comm->rank);
}

rondo_result rd_explain_left(rd_task *task, const char *left)
{
    char what[RD_CALL_TEXT], text[RD_ERROR_BYTES];
    rd_describe_call(task->comm, rd_task_call(task), what);
    snprintf(text, sizeof text, "%s cannot complete: %s", what, left);
    return rd_comm_end(task->comm, RONDO_REMOTE_ERROR, text);
}

static rondo_result lost_link(rd_task *task, const char *what, const char *peer)
{
    rondo_comm *comm = task->comm;
    const rondo_link *link = comm->op.failed->link;
    char text[RD_ERROR_BYTES], reason[512];
    snprintf(reason, sizeof reason, "%s", comm->op.failure == RONDO_LINK_BROKEN ? rd_last_error() : "the link was closed");
    /* The data link often hears of a death first; the control plane knows who died and how. */
    for (int64_t until = rd_now() + REASON_NS; !rd_comm_stopped(comm) && rd_now() < until;) {
        char left[512];
        if (rd_member_left(comm->member, comm->calls - 1, left, sizeof left)) return rd_explain_left(task, left);
        rd_bell_arm(&comm->bell);
        rd_bell_sleep(&comm->bell, 10000000);
    }
    if (rd_comm_stopped(comm)) return rd_comm_stopped(comm);
    snprintf(text, sizeof text, "%s: lost the %s link with %s: %s", what, link->ops->name, peer, reason);
    return rd_comm_end(comm, RONDO_REMOTE_ERROR, text);
}

rondo_result rd_explain_failure(rd_task *task)
{
    rondo_comm *comm = task->comm;
    char what[RD_CALL_TEXT], text[RD_ERROR_BYTES], peer[256];
    rd_describe_call(comm, rd_task_call(task), what);
    if (!comm->op.failed) return rd_comm_end(comm, RONDO_INTERNAL_ERROR, "the executor's counters broke their inequality");
    rd_member_peer_name(comm->member, comm->op.failed->link->peer, peer, sizeof peer);
    if (comm->op.failure != RONDO_LINK_MISMATCH) return lost_link(task, what, peer);
    snprintf(text, sizeof text, "%s does not match what %s called: the ranks must make the same calls in the same order, "
             "with the same type, operator, root and count", what, peer);
    return rd_comm_end(comm, RONDO_MISMATCH, text);
}

rondo_result rd_explain_timeout(rd_task *task)
{
    rondo_comm *comm = task->comm;
    char what[RD_CALL_TEXT], text[RD_ERROR_BYTES], peer[256] = "another rank";
    bool to_receive = true;
    rd_describe_call(comm, rd_task_call(task), what);
    int rank = rd_op_waits_for(&comm->op, &to_receive);
    if (rank >= 0) rd_member_peer_name(comm->member, rank, peer, sizeof peer);
    snprintf(text, sizeof text, "%s did not complete in %.3g s: still waiting %s %s. Is every rank alive and making the "
             "same calls? RONDO_TIMEOUT sets the limit", what, comm->settings.timeout_s, to_receive ? "for data from" : "for room to send to", peer);
    return rd_comm_end(comm, RONDO_TIMEOUT, text);
}

void rd_explain_slow(rd_task *task)
{
    rondo_comm *comm = task->comm;
    char what[RD_CALL_TEXT], peer[256] = "another rank";
    bool to_receive = true;
    rd_describe_call(comm, rd_task_call(task), what);
    int rank = rd_op_waits_for(&comm->op, &to_receive);
    if (rank >= 0) rd_member_peer_name(comm->member, rank, peer, sizeof peer);
    rd_log(RD_LOG_WARN, "%s has waited %.3g s %s %s", what, comm->settings.slow_warning_s,
           to_receive ? "for data from" : "for room to send to", peer);
}
