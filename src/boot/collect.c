/* SPDX-License-Identifier: Apache-2.0
 *
 * collect.c - what every rank does now. A question floods; each rank answers the neighbour by whom it came first, who
 * passes the answer on to the one by whom it came to him, and so back to the asker: every answer goes a shortest way,
 * log2 of the world size at most, instead of flooding.
 *
 * A stopped rank cannot answer: its neighbours do, before they answer for themselves. So once all others have answered,
 * nothing more is to be said about the stopped.
 */
#include "boot/control.h"

#include "base/clock.h"
#include "base/status.h"

#include <string.h>

enum { REPORT_PAYLOAD = 20 + RD_REPORT_BYTES };

#define AGAIN_SECONDS 0.05

struct rd_collection {
    uint64_t first; /* questions from this number on are its own */
    bool again;     /* ... is to be asked again, */
    int64_t next;   /* but not before this time: many may leave at once */
    rd_answer *answers;
};

/* ---- Answering ---- */

static rd_blob *report_of(int asker, uint64_t id, int about, uint32_t state, const unsigned char *report)
{
    rd_blob *blob = rd_blob_new(RD_SAY_REPORT, REPORT_PAYLOAD);
    if (!blob) return NULL;
    rd_writer w = {blob->data + RD_FRAME_HEAD, REPORT_PAYLOAD, false};
    rd_write_u32(&w, (uint32_t)asker);
    rd_write_u64(&w, id);
    rd_write_u32(&w, (uint32_t)about);
    rd_write_u32(&w, state);
    rd_write_bytes(&w, report, RD_REPORT_BYTES);
    return blob;
}

static void own_report(rd_member *member, unsigned char report[RD_REPORT_BYTES])
{
    memset(report, 0, RD_REPORT_BYTES);
    if (member->ops->report) member->ops->report(member->context, report);
}

void rd_collect_heard_ask(rd_control *control, rd_reader *r, int *fd)
{
    rd_member *member = control->member;
    unsigned char report[RD_REPORT_BYTES];
    uint32_t asker = rd_read_u32(r);
    uint64_t id = rd_read_u64(r);
    (void)fd;
    if (r->bad || asker >= (uint32_t)member->job.world || asker == (uint32_t)member->job.rank) return;
    rd_rank *who = &member->ranks[asker];
    if (id <= who->ask) return;
    who->ask = id;
    who->ask_from = control->peer;
    rd_blob *question = rd_blob_new(RD_SAY_ASK, 12);
    if (question) {
        rd_writer w = {question->data + RD_FRAME_HEAD, 12, false};
        rd_write_u32(&w, asker);
        rd_write_u64(&w, id);
    }
    rd_control_flood(member, question, control);
    for (const rd_control *c = member->controls; c; c = c->next)
        if (member->ranks[c->peer].is_stopped)
            rd_frames_send(&control->frames, report_of((int)asker, id, c->peer, RD_IS_STOPPED, c->report), -1);
    own_report(member, report);
    rd_frames_send(&control->frames, report_of((int)asker, id, member->job.rank, RD_ANSWERS, report), -1);
}

/* ---- Asking ---- */

static const unsigned char nothing[RD_REPORT_BYTES];

static void note(rd_member *member, uint64_t id, int about, uint32_t state, const unsigned char *report)
{
    struct rd_collection *collection = member->collection;
    if (!collection || id < collection->first) return;
    rd_answer *answer = &collection->answers[about];
    if (answer->state == RD_ANSWERS || (state != RD_ANSWERS && state != RD_IS_STOPPED)) return;
    answer->state = state == RD_ANSWERS ? RD_ANSWERS : RD_IS_STOPPED;
    /* Of a stopped rank one neighbour may have a report and another none. */
    if (state == RD_ANSWERS || memcmp(report, nothing, sizeof nothing)) memcpy(answer->report, report, RD_REPORT_BYTES);
    pthread_cond_broadcast(&member->changed);
}

void rd_collect_heard_report(rd_control *control, rd_reader *r, int *fd)
{
    rd_member *member = control->member;
    uint32_t asker = rd_read_u32(r);
    uint64_t id = rd_read_u64(r);
    uint32_t about = rd_read_u32(r), state = rd_read_u32(r), world = (uint32_t)member->job.world;
    const unsigned char *report = rd_read_room(r, RD_REPORT_BYTES);
    (void)fd;
    if (!report || asker >= world || about >= world) return;
    rd_control *subject = state == RD_ANSWERS ? rd_control_to(member, (int)about) : NULL;
    if (subject) memcpy(subject->report, report, RD_REPORT_BYTES);
    if (asker == (uint32_t)member->job.rank) {
        note(member, id, (int)about, state, report);
        return;
    }
    if (id != member->ranks[asker].ask) return; /* the asker has asked again since, or given up */
    rd_control *back = rd_control_to(member, member->ranks[asker].ask_from);
    if (back) rd_frames_send(&back->frames, report_of((int)asker, id, (int)about, state, report), -1);
}

static void ask(rd_member *member)
{
    rd_blob *question = rd_blob_new(RD_SAY_ASK, 12);
    member->asked++;
    member->collection->again = false;
    member->collection->next = rd_deadline(AGAIN_SECONDS);
    if (!question) return;
    rd_writer w = {question->data + RD_FRAME_HEAD, 12, false};
    rd_write_u32(&w, (uint32_t)member->job.rank);
    rd_write_u64(&w, member->asked);
    rd_control_flood(member, question, NULL);
}

void rd_collect_again(rd_member *member)
{
    if (member->collection) member->collection->again = true;
}

/* Those that will not answer are accounted for. true: all are. */
static bool account(const rd_member *member, rd_answer *answers)
{
    bool all = true;
    for (int rank = 0; rank < member->job.world; rank++) {
        const rd_rank *r = &member->ranks[rank];
        rd_answer *answer = &answers[rank];
        if (answer->state == RD_ANSWERS) continue;
        if (r->gone)
            answer->state = r->died ? RD_IS_DEAD : RD_IS_LEFT;
        else if (r->is_stopped)
            answer->state = RD_IS_STOPPED;
        else
            all = all && answer->state != RD_SILENT;
    }
    return all;
}

/* What this rank itself has of its stopped neighbours. */
static void note_neighbours(rd_member *member)
{
    for (const rd_control *c = member->controls; c; c = c->next)
        if (member->ranks[c->peer].is_stopped) note(member, member->asked, c->peer, RD_IS_STOPPED, c->report);
}

rondo_result rd_member_collect(rd_member *member, int64_t deadline, rd_answer *answers)
{
    struct rd_collection collection = {.answers = answers};
    rondo_result result = RONDO_SUCCESS;
    rd_service_lock();
    while (member->service == rd_service && member->collection && rd_now() < deadline) rd_member_wait(member, deadline);
    if (member->service != rd_service)
        result = rd_fail(RONDO_INVALID_USAGE,
                         "this process was forked after the communicator was made: it stays with the parent");
    else if (member->collection)
        result = rd_fail(RONDO_TIMEOUT, "another thread of rank %d still asks all ranks for their reports",
                         member->job.rank);
    if (result == RONDO_SUCCESS) {
        memset(answers, 0, (size_t)member->job.world * sizeof *answers);
        answers[member->job.rank].state = RD_ANSWERS;
        own_report(member, answers[member->job.rank].report);
        collection.first = member->asked + 1;
        member->collection = &collection;
        ask(member);
        note_neighbours(member);
        while (!account(member, answers) && rd_now() < deadline) {
            if (collection.again && rd_now() >= collection.next) ask(member);
            rd_member_wait(member, collection.again && collection.next < deadline ? collection.next : deadline);
        }
        member->collection = NULL;
        pthread_cond_broadcast(&member->changed);
    }
    rd_service_unlock();
    return result;
}
