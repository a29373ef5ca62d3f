/* SPDX-License-Identifier: Apache-2.0
 *
 * explain.c - what is said of calls, and of their failures: what failed, where, who else is concerned, what to do.
 *
 * Where the cause lies elsewhere, all ranks are asked what they do. They answer within milliseconds, the service thread
 * of a neighbour for one that is stopped; whoever stays silent is named after a second.
 */
#include "core/report.h"

#include "base/clock.h"
#include "base/dtype.h"
#include "base/log.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define REASON_NS     1000000000 /* how long a broken link waits for the control plane to say why */
#define ANSWER_S      1.0        /* how long a failed call waits for the others' reports */
#define SLOW_ANSWER_S 0.2        /* ... one that is only slow, and might go on */
#define LATE_S        0.5        /* how long a mismatch waits for ranks that may be about to call */
#define LATE_LOOK_NS  5000000

/* ---- Calls ---- */

static const char *name_of(const rondo_record_call *call)
{
    static const char *const names[] = {"rondo_all_reduce", "rondo_reduce_scatter", "rondo_all_gather",
                                        "rondo_broadcast",  "rondo_reduce",         "rondo_gather",
                                        "rondo_scatter",    "rondo_all_to_all"};
    _Static_assert(sizeof names / sizeof *names == RONDO_COLLECTIVES, "a name for each");
    if (call->kind == RD_KIND_SEND) return "rondo_send";
    if (call->kind == RD_KIND_RECV) return "rondo_recv";
    if (call->kind == RD_KIND_SPLIT) return "rondo_comm_split";
    if (call->kind == RD_KIND_BARRIER) return "rondo_barrier";
    return call->collective < RONDO_COLLECTIVES ? names[call->collective] : "an unknown call";
}

static bool reduces(const rondo_record_call *call)
{
    return call->kind == RD_KIND_COLLECTIVE &&
           (call->collective == RONDO_COLL_ALL_REDUCE || call->collective == RONDO_COLL_REDUCE_SCATTER ||
            call->collective == RONDO_COLL_REDUCE);
}

static bool has_root(const rondo_record_call *call)
{
    return call->collective == RONDO_COLL_BROADCAST || call->collective == RONDO_COLL_REDUCE ||
           call->collective == RONDO_COLL_GATHER || call->collective == RONDO_COLL_SCATTER;
}

/* "rondo_all_reduce of 8 float32, sum", and without what is no part of the call */
static void say_call(rd_text *text, const rondo_record_call *call, const char *name)
{
    const char *type = call->dtype < RONDO_DTYPES ? rd_dtype_name((rondo_dtype)call->dtype) : "unknown";
    if (call->kind == RD_KIND_SPLIT || call->kind == RD_KIND_BARRIER) {
        rd_text_add(text, "%s", name);
        return;
    }
    if (call->together > 1) rd_text_add(text, "%u calls of ", call->together);
    rd_text_add(text, "%s of %llu %s", name, (unsigned long long)call->count, type);
    if (reduces(call) && call->op < RONDO_OPS) rd_text_add(text, ", %s", rd_op_name((rondo_op)call->op));
    if (call->kind == RD_KIND_SEND)
        rd_text_add(text, " to rank %d", call->root);
    else if (call->kind == RD_KIND_RECV)
        rd_text_add(text, " from rank %d", call->root);
    else if (has_root(call))
        rd_text_add(text, ", root %d", call->root);
}

static rondo_record_call as_record(const rd_call *call)
{
    return (rondo_record_call){.count = call->count,
                               .root = call->root,
                               .kind = call->kind,
                               .collective = (uint8_t)call->collective,
                               .dtype = (uint8_t)call->dtype,
                               .op = (uint8_t)call->op,
                               .together = 1};
}

void rd_describe_call(const rondo_comm *comm, const rd_call *call, char description[RD_CALL_TEXT])
{
    rd_text text = {description, RD_CALL_TEXT};
    rondo_record_call record = as_record(call);
    say_call(&text, &record, call->name);
    if (call->kind == RD_KIND_SEND || call->kind == RD_KIND_RECV)
        rd_text_add(&text, " (on rank %d)", comm->rank);
    else
        rd_text_add(&text, " (call %llu on rank %d)", (unsigned long long)comm->calls, comm->rank);
}

/* The call that fails or waits, and its operation. */
static const rd_op *describe_stuck(const rd_task *task, char what[RD_CALL_TEXT])
{
    const rd_call *call;
    const rd_op *op = rd_task_stuck(task, &call);
    rd_describe_call(task->comm, call, what);
    return op;
}

/* ---- Ranks ---- */

static void say_rank(rd_text *text, const rondo_comm *comm, int rank)
{
    char name[256];
    rd_member_peer_name(comm->member, rank, name, sizeof name);
    rd_text_add(text, "%s", name);
}

static void say_age(rd_text *text, uint64_t ns)
{
    rd_text_add(text, "%.3g s", (double)ns * 1e-9);
}

/* NULL: no memory; last error set. */
static rd_answer *ask_all(rondo_comm *comm, double seconds)
{
    rd_answer *answers = calloc((size_t)comm->size, sizeof *answers);
    if (answers && rd_member_collect(comm->member, rd_deadline(seconds), answers) == RONDO_SUCCESS) return answers;
    free(answers);
    return NULL;
}

/* ---- Calls that don't match ---- */

/* What a rank is at, without times, so that equal ones can be found. */
static void describe_state(const rd_answer *answer, char *description, size_t bytes)
{
    rd_text text = {description, bytes};
    rd_report report;
    if (answer->state == RD_SILENT)
        rd_text_add(&text, "no answer");
    else if (answer->state == RD_IS_DEAD)
        rd_text_add(&text, "dead");
    else if (answer->state == RD_IS_LEFT)
        rd_text_add(&text, "left");
    else if (!rd_report_unpack(answer->report, &report) || (!report.called && !report.passes))
        rd_text_add(&text, answer->state == RD_IS_STOPPED ? "stopped" : "has not called anything yet");
    else if (!report.called) {
        rd_text_add(&text, "in ");
        say_call(&text, &report.message, name_of(&report.message));
    } else {
        rd_text_add(&text, "call %llu, ", (unsigned long long)report.call.number);
        say_call(&text, &report.call, name_of(&report.call));
        if (report.call.ended_ns) rd_text_add(&text, ", which is done, and no call since");
        if (report.passes) {
            rd_text_add(&text, ", and in ");
            say_call(&text, &report.message, name_of(&report.message));
        }
        if (answer->state == RD_IS_STOPPED) rd_text_add(&text, "; stopped");
    }
}

/* Ranks that are at the same. */
typedef struct rd_alike {
    char state[2 * RD_CALL_TEXT + 64];
    int first, ranks;
} rd_alike;

enum { MOST_ALIKE = 12 };

/* Sorts the ranks by what they are at; of[rank]: which kind, MOST_ALIKE for those beyond. Returns how many kinds. */
static int sort_out(const rondo_comm *comm, const rd_answer *answers, rd_alike kinds[MOST_ALIKE], int *of)
{
    int n = 0;
    for (int rank = 0; rank < comm->size; rank++) {
        char state[sizeof kinds->state];
        int kind = 0;
        describe_state(&answers[rank], state, sizeof state);
        while (kind < n && strcmp(kinds[kind].state, state)) kind++;
        of[rank] = kind;
        if (kind == MOST_ALIKE) continue;
        if (kind == n) {
            kinds[n] = (rd_alike){.first = rank};
            memcpy(kinds[n++].state, state, sizeof state);
        }
        kinds[kind].ranks++;
    }
    return n;
}

/* "; ranks 0, 1, 3-6: ...", or for one "; rank 2 (pid 7 on h): ..." */
static void say_kind(rd_text *text, const rondo_comm *comm, const rd_alike *kinds, const int *of, int kind)
{
    if (kinds[kind].ranks == 1) {
        rd_text_add(text, "; ");
        say_rank(text, comm, kinds[kind].first);
    } else {
        rd_text_add(text, "; ranks ");
    }
    for (int rank = 0; rank < comm->size && kinds[kind].ranks > 1; rank++) {
        int last = rank;
        if (of[rank] != kind) continue;
        while (last + 1 < comm->size && of[last + 1] == kind) last++;
        rd_text_add(text, "%s%d", rank == kinds[kind].first ? "" : ", ", rank);
        if (last > rank) rd_text_add(text, "-%d", last);
        rank = last;
    }
    rd_text_add(text, ": %s", kinds[kind].state);
}

/* The fewest first: who differs from most is most likely the one to look at. */
static void say_all_states(rd_text *text, const rondo_comm *comm, const rd_answer *answers)
{
    rd_alike *kinds = calloc(MOST_ALIKE, sizeof *kinds);
    int *of = calloc((size_t)comm->size, sizeof *of);
    int n = kinds && of ? sort_out(comm, answers, kinds, of) : 0;
    for (int ranks = 1; ranks <= comm->size; ranks++)
        for (int kind = 0; kind < n; kind++)
            if (kinds[kind].ranks == ranks) say_kind(text, comm, kinds, of, kind);
    if (n == MOST_ALIKE) rd_text_add(text, "; and perhaps others");
    free(kinds);
    free(of);
}

/* Not yet, but perhaps in a moment, at call `number` or beyond. */
static bool is_late(const rd_answer *answer, uint64_t number)
{
    rd_report report;
    return answer->state == RD_ANSWERS && rd_report_unpack(answer->report, &report) && !report.passes &&
           (!report.called || report.call.ended_ns || report.call.number < number);
}

/* A rank that is a moment late would be reported as one that has not called. */
static rd_answer *ask_when_all_have_called(const rd_task *task)
{
    rondo_comm *comm = task->comm;
    uint64_t number = task->running ? comm->calls - (uint64_t)task->fused + 1 : 0;
    for (int64_t until = rd_deadline(LATE_S);;) {
        rd_answer *answers = ask_all(comm, ANSWER_S);
        int rank = 0;
        while (answers && rank < comm->size && !is_late(&answers[rank], number)) rank++;
        if (!answers || rank == comm->size || rd_comm_stopped(comm) || rd_now() >= until) return answers;
        free(answers);
        nanosleep(&(struct timespec){0, LATE_LOOK_NS}, NULL);
    }
}

static rondo_result explain_mismatch(rd_task *task, const rd_op *op, const char *what)
{
    rondo_comm *comm = task->comm;
    char message[RD_ERROR_BYTES];
    rd_text text = {message, sizeof message};
    rd_answer *answers = ask_when_all_have_called(task);
    if (rd_comm_stopped(comm)) { /* who was faster tells the same */
        free(answers);
        return rd_comm_stopped(comm);
    }
    rd_text_add(
        &text,
        "%s does not match: all ranks must make the same calls in the same order, with the same type, operator, root "
        "and count",
        what);
    if (!answers) {
        rd_text_add(&text, "; other than this was what came from ");
        say_rank(&text, comm, op->failed->link->peer);
    }
    if (answers) say_all_states(&text, comm, answers);
    free(answers);
    return rd_comm_end(comm, RONDO_MISMATCH, message);
}

/* ---- Ends of others ---- */

rondo_result rd_explain_left(rd_task *task, const char *left)
{
    char what[RD_CALL_TEXT], message[RD_ERROR_BYTES];
    describe_stuck(task, what);
    snprintf(message, sizeof message, "%s cannot complete: %s", what, left);
    return rd_comm_end(task->comm, RONDO_REMOTE_ERROR, message);
}

static rondo_result lost_link(rd_task *task, const rd_op *op, const char *what)
{
    rondo_comm *comm = task->comm;
    const rondo_link *link = op->failed->link;
    char message[RD_ERROR_BYTES], peer[256], reason[512];
    snprintf(reason, sizeof reason, "%s", op->failure == RONDO_LINK_BROKEN ? rd_last_error() : "the link was closed");
    /* The data link often hears of a death first; the control plane knows who died and how. */
    for (int64_t until = rd_now() + REASON_NS; !rd_comm_stopped(comm) && rd_now() < until;) {
        char left[512];
        if (task->running && rd_member_left(comm->member, comm->calls - 1, left, sizeof left))
            return rd_explain_left(task, left);
        if (rd_member_is_gone(comm->member, link->peer)) break;
        rd_bell_arm(&comm->bell);
        rd_bell_sleep(&comm->bell, 10000000);
    }
    if (rd_comm_stopped(comm)) return rd_comm_stopped(comm);
    rd_member_peer_name(comm->member, link->peer, peer, sizeof peer);
    snprintf(message, sizeof message, "%s: lost the %s link with %s: %s", what, link->ops->name, peer, reason);
    return rd_comm_end(comm, RONDO_REMOTE_ERROR, message);
}

rondo_result rd_explain_gpu(rd_task *task)
{
    char what[RD_CALL_TEXT], message[RD_ERROR_BYTES];
    describe_stuck(task, what);
    snprintf(message, sizeof message, "%s failed: %.1600s", what, rd_last_error());
    return rd_comm_end(task->comm, RONDO_UNHANDLED_CUDA_ERROR, message);
}

rondo_result rd_explain_failure(rd_task *task)
{
    char what[RD_CALL_TEXT];
    const rd_op *op = describe_stuck(task, what);
    if (op->engine_failed) return rd_explain_gpu(task);
    if (!op->failed)
        return rd_comm_end(task->comm, RONDO_INTERNAL_ERROR, "the executor's counters broke their inequality");
    return op->failure == RONDO_LINK_MISMATCH ? explain_mismatch(task, op, what) : lost_link(task, op, what);
}

rondo_result rd_explain_bereft(rd_task *task)
{
    char what[RD_CALL_TEXT], message[RD_ERROR_BYTES], peer[256];
    describe_stuck(task, what);
    rd_member_peer_name(task->comm->member, rd_task_bereft(task), peer, sizeof peer);
    snprintf(message, sizeof message, "%s cannot complete: %s is gone", what, peer);
    return rd_comm_end(task->comm, RONDO_REMOTE_ERROR, message);
}

/* ---- Calls that take long ---- */

/* What keeps this rank from completing call `number`, and for how long: "; rank 2 (...) has not called it (its last:
 * ..., done 3 s ago)". Says nothing, and returns false, of a rank that is where it should be. */
static bool say_hindrance(rd_text *text, rondo_comm *comm, int rank, const rd_answer *answer, uint64_t number)
{
    rd_report report;
    bool known = rd_report_unpack(answer->report, &report), stopped = answer->state == RD_IS_STOPPED;
    bool late = !known || !report.called || report.call.number < number;
    if (answer->state == RD_ANSWERS && !late) return false;
    rd_text_add(text, "; ");
    say_rank(text, comm, rank);
    if (answer->state == RD_IS_DEAD)
        rd_text_add(text, " died");
    else if (answer->state == RD_IS_LEFT)
        rd_text_add(text, " has left");
    else if (answer->state == RD_SILENT)
        rd_text_add(text, " does not answer");
    else if (stopped)
        rd_text_add(text, " is stopped (SIGSTOP, or a debugger)");
    if (answer->state != RD_ANSWERS && !stopped) return true;
    if (stopped && (!known || !report.called)) return true;
    rd_text_add(text, stopped ? ", its last call was " : late ? " has not called it" : "");
    if (stopped) {
        say_call(text, &report.call, name_of(&report.call));
        return true;
    }
    if (!report.called && !report.passes) {
        rd_text_add(text, ", nor anything else");
        return true;
    }
    const rondo_record_call *last = report.passes ? &report.message : &report.call;
    rd_text_add(text, report.passes ? ": it is in " : " (its last: ");
    say_call(text, last, name_of(last));
    if (!report.passes) rd_text_add(text, ", call %llu", (unsigned long long)last->number);
    rd_text_add(text, last->ended_ns ? ", done " : ", begun ");
    say_age(text, last->ended_ns ? last->ended_ns : last->begun_ns);
    rd_text_add(text, report.passes ? " ago" : " ago)");
    return true;
}

/* What the peer of a message does; and who is stopped, since the peer may wait for that one. */
static void say_partner(rd_text *text, rondo_comm *comm, int peer, const rd_answer *answers)
{
    char state[2 * RD_CALL_TEXT + 64];
    rd_text_add(text, "; ");
    say_rank(text, comm, peer);
    if (!answers) return;
    describe_state(&answers[peer], state, sizeof state);
    rd_text_add(text, ": %s", state);
    for (int rank = 0; rank < comm->size; rank++) {
        if (rank == peer || answers[rank].state != RD_IS_STOPPED) continue;
        rd_text_add(text, "; ");
        say_rank(text, comm, rank);
        rd_text_add(text, " is stopped (SIGSTOP, or a debugger)");
    }
}

/* Who keeps the call from completing; who all is where it should be, what this rank waits for. */
static void say_hindrances(rd_text *text, rd_task *task, double seconds)
{
    rondo_comm *comm = task->comm;
    enum { MOST = 8 };
    int hindrances = 0;
    const rd_call *call;
    const rd_op *op = rd_task_stuck(task, &call);
    rd_answer *answers = ask_all(comm, seconds);
    if (rd_is_message(call)) {
        say_partner(text, comm, call->root, answers);
        free(answers);
        return;
    }
    for (int rank = 0; answers && rank < comm->size; rank++) {
        if (rank == comm->rank) continue;
        if (hindrances < MOST) hindrances += say_hindrance(text, comm, rank, &answers[rank], comm->calls);
    }
    if (hindrances == MOST) rd_text_add(text, "; and perhaps more");
    free(answers);
    if (hindrances) return;
    bool to_receive = true;
    int rank = rd_op_waits_for(op, &to_receive);
    rd_text_add(text, "; all ranks have called it, and this one waits for %s ",
                to_receive ? "data from" : "room to send to");
    if (rank >= 0)
        say_rank(text, comm, rank);
    else
        rd_text_add(text, "another");
}

rondo_result rd_explain_timeout(rd_task *task)
{
    rondo_comm *comm = task->comm;
    char what[RD_CALL_TEXT], message[RD_ERROR_BYTES];
    rd_text text = {message, sizeof message};
    describe_stuck(task, what);
    rd_text_add(&text, "%s did not complete in %.3g s (RONDO_TIMEOUT sets the limit)", what, comm->settings.timeout_s);
    say_hindrances(&text, task, ANSWER_S);
    return rd_comm_end(comm, RONDO_TIMEOUT, message);
}

void rd_explain_slow(rd_task *task)
{
    rondo_comm *comm = task->comm;
    char what[RD_CALL_TEXT], message[RD_ERROR_BYTES];
    rd_text text = {message, sizeof message};
    describe_stuck(task, what);
    rd_text_add(&text, "%s has not completed in %.3g s", what, comm->settings.slow_warning_s);
    say_hindrances(&text, task, SLOW_ANSWER_S);
    rd_log(RD_LOG_WARN, "%s", message);
}

bool rd_explain_stopped(rd_task *task)
{
    rondo_comm *comm = task->comm;
    char what[RD_CALL_TEXT], name[256];
    for (int rank = 0; rank < comm->size; rank++) {
        double since;
        if (rank == comm->rank || !rd_member_is_stopped(comm->member, rank, &since)) continue;
        describe_stuck(task, what);
        rd_member_peer_name(comm->member, rank, name, sizeof name);
        rd_log(RD_LOG_WARN, "%s waits, and %s is stopped (SIGSTOP, or a debugger)", what, name);
        return true;
    }
    return false;
}
