/* SPDX-License-Identifier: Apache-2.0
 *
 * agree.c - who goes on without the others: an agreement among the ranks that survive.
 *
 * Each takes those for lost whom it knows to be gone, and floods that set. When all ranks outside its own set have said
 * that very set, it is agreed. A death that is heard meanwhile enlarges the set, and the new one floods.
 *
 * Why two ranks never agree on different sets: sets only grow, and each who is done had heard its set from the other.
 * So of two who are done, each one's last set is a set that the other had said, at the end or earlier: each lies within
 * the other. And why nobody waits for one who is done and no longer answers: who is done says so, and his set is then
 * everybody's, even if a death was heard since.
 *
 * Ranks count their agreements. One that gave up (a deadline) is ahead of the others then: the highest number counts,
 * and who waits with a lower one moves up. Words of one rank arrive everywhere in their order: each hop keeps it.
 */
#include "boot/control.h"

#include "base/clock.h"
#include "base/status.h"
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMED = 8, SHRINK_HEAD = 28 };
#define LOOK_S 0.05 /* how often a wait looks whether it is to end */

enum word { PROPOSES, IS_DONE, GAVE_UP, REFUSES, WORDS };

typedef struct rd_proposal {
    uint64_t sequence; /* 0: it has not said anything */
    uint64_t number;
    enum word word;
    bool listed;        /* it was given a list */
    unsigned char *set; /* bits, and after them those of the list */
} rd_proposal;

typedef struct rd_agreement {
    uint64_t number;
    bool listed;
    unsigned char *set, *list;
    rondo_result result; /* RONDO_IN_PROGRESS until it is decided */
    char text[RD_VERDICT_TEXT_BYTES];
} rd_agreement;

static size_t set_bytes(const rd_member *member)
{
    return ((size_t)member->job.world + 7) / 8;
}
static bool has(const unsigned char *set, int rank)
{
    return set[rank / 8] >> rank % 8 & 1;
}
static void put(unsigned char *set, int rank)
{
    set[rank / 8] = (unsigned char)(set[rank / 8] | 1 << rank % 8);
}

/* ---- Words ---- */

/* "those that are gone", "nobody", "2, 5 and 7" */
static void add_list(const rd_member *member, rd_text *text, bool listed, const unsigned char *list)
{
    int count = 0, named = 0;
    for (int rank = 0; rank < member->job.world; rank++) count += has(list, rank);
    if (!listed || !count) rd_text_add(text, "%s", listed ? "nobody" : "those that are gone");
    for (int rank = 0; listed && rank < member->job.world && named <= NAMED; rank++) {
        if (!has(list, rank)) continue;
        if (named == NAMED)
            rd_text_add(text, " and %d more", count - named);
        else
            rd_text_add(text, "%s%d", named ? ", " : count == 1 ? "rank " : "ranks ", rank);
        named++;
    }
}

static bool has_come(const rd_member *member, int rank)
{
    const rd_proposal *p = &member->proposals[rank];
    return p->sequence && p->number == member->agreement->number && (p->word == PROPOSES || p->word == IS_DONE);
}

/* It has not said a word on this agreement; others have, and gave up for want of it. */
static bool is_absent(const rd_member *member, int rank)
{
    const rd_agreement *a = member->agreement;
    return rank != member->job.rank && !has(a->set, rank) && member->proposals[rank].number < a->number;
}

static rondo_result timed_out(const rd_member *member)
{
    char name[192], room[RD_VERDICT_TEXT_BYTES] = "";
    rd_text text = {room, sizeof room};
    int missing = 0;
    for (int rank = 0; rank < member->job.world; rank++) {
        if (!is_absent(member, rank) || missing++ >= NAMED) continue;
        rd_member_name(member, rank, name, sizeof name);
        rd_text_add(&text, "%s%s %s", missing > 1 ? "; " : "", name,
                    member->ranks[rank].is_stopped ? "is stopped" : "did not call it");
    }
    if (missing > NAMED) rd_text_add(&text, "; and %d more", missing - NAMED);
    return rd_fail(RONDO_TIMEOUT, "shrink: the ranks did not agree in time on who goes on: %s",
                   missing ? room : "some gave up before others had called it");
}

/* ---- Speaking ---- */

static void say(rd_member *member, enum word word)
{
    const rd_agreement *a = member->agreement;
    size_t bytes = set_bytes(member), payload = SHRINK_HEAD + 2 * bytes;
    rd_blob *blob = rd_blob_new(RD_SAY_SHRINK, payload);
    member->spoken++;
    if (!blob) return;
    rd_writer w = {blob->data + RD_FRAME_HEAD, payload, false};
    rd_write_u32(&w, (uint32_t)member->job.rank);
    rd_write_u64(&w, member->spoken);
    rd_write_u64(&w, a->number);
    rd_write_u32(&w, word);
    rd_write_u32(&w, a->listed);
    rd_write_bytes(&w, a->set, bytes);
    rd_write_bytes(&w, a->list, bytes);
    rd_control_flood(member, blob, NULL);
}

/* ---- Deciding ---- */

static void decide(rd_member *member, rondo_result result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void decide(rd_member *member, rondo_result result, const char *format, ...)
{
    rd_agreement *a = member->agreement;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(a->text, sizeof a->text, format, arguments);
    va_end(arguments);
    a->result = result;
    pthread_cond_broadcast(&member->changed);
}

/* The set is everybody's. With a list it must be no more than that. */
static void agree(rd_member *member)
{
    rd_agreement *a = member->agreement;
    char name[192];
    member->last_agreed = a->number;
    say(member, IS_DONE);
    for (int rank = 0; rank < member->job.world && a->listed; rank++) {
        if (has(a->set, rank) == has(a->list, rank)) continue;
        rd_member_name(member, rank, name, sizeof name);
        decide(member, RONDO_REMOTE_ERROR, "shrink: %s is gone, too, and not in the list of those to leave out", name);
        return;
    }
    decide(member, RONDO_SUCCESS, "%s", "");
}

static bool same_list(const rd_member *member, const rd_proposal *p)
{
    const rd_agreement *a = member->agreement;
    return p->listed == a->listed &&
           (!a->listed || memcmp(p->set + set_bytes(member), a->list, set_bytes(member)) == 0);
}

static void differ(rd_member *member, int rank)
{
    const rd_agreement *a = member->agreement;
    const rd_proposal *p = &member->proposals[rank];
    char name[192], room[RD_VERDICT_TEXT_BYTES];
    rd_text text = {room, sizeof room};
    rd_member_name(member, member->job.rank, name, sizeof name);
    rd_text_add(&text, "shrink: %s leaves out ", name);
    add_list(member, &text, a->listed, a->list);
    rd_member_name(member, rank, name, sizeof name);
    rd_text_add(&text, ", %s leaves out ", name);
    add_list(member, &text, p->listed, p->set + set_bytes(member));
    decide(member, RONDO_MISMATCH, "%s; all must give the same list", room);
}

/* Is there a last word on this agreement, or one that forbids it? */
static bool is_decided_by(rd_member *member, int rank, uint64_t highest)
{
    rd_agreement *a = member->agreement;
    const rd_proposal *p = &member->proposals[rank];
    char name[192];
    bool is_done = p->word == IS_DONE && p->number == highest && p->number > member->last_agreed;
    if (!is_done && (p->number != a->number || p->word == GAVE_UP || has(a->set, rank))) return false;
    if (!same_list(member, p)) {
        differ(member, rank);
    } else if (has(p->set, member->job.rank)) {
        rd_member_name(member, rank, name, sizeof name);
        decide(member, RONDO_REMOTE_ERROR, "shrink: %s takes this rank for dead, and goes on without it", name);
    } else if (is_done) {
        a->number = p->number;
        memcpy(a->set, p->set, set_bytes(member));
        agree(member);
    }
    return a->result != RONDO_IN_PROGRESS;
}

static void consider(rd_member *member)
{
    rd_agreement *a = member->agreement;
    uint64_t highest = 0;
    bool all = true;
    if (!a || a->result != RONDO_IN_PROGRESS) return;
    for (int rank = 0; rank < member->job.world; rank++)
        if (member->proposals[rank].number > highest && !has(a->set, rank)) highest = member->proposals[rank].number;
    for (int rank = 0; rank < member->job.world; rank++)
        if (member->proposals[rank].sequence && is_decided_by(member, rank, highest)) {
            if (a->result != RONDO_SUCCESS && member->last_agreed != a->number) say(member, REFUSES);
            return;
        }
    if (highest > a->number) {
        a->number = highest;
        say(member, PROPOSES);
    }
    for (int rank = 0; rank < member->job.world; rank++)
        if (rank != member->job.rank && !has(a->set, rank))
            all = all && has_come(member, rank) && memcmp(member->proposals[rank].set, a->set, set_bytes(member)) == 0;
    if (all) agree(member);
}

void rd_agree_gone(rd_member *member, int rank)
{
    rd_agreement *a = member->agreement;
    if (!a || a->result != RONDO_IN_PROGRESS || has(a->set, rank)) return;
    put(a->set, rank);
    say(member, PROPOSES);
    consider(member);
}

/* ---- Hearing ---- */

static bool make_proposals(rd_member *member)
{
    if (!member->proposals) member->proposals = calloc((size_t)member->job.world, sizeof *member->proposals);
    return member->proposals != NULL;
}

void rd_agree_free(rd_member *member)
{
    for (int rank = 0; member->proposals && rank < member->job.world; rank++) free(member->proposals[rank].set);
    free(member->proposals);
}

void rd_agree_heard(rd_control *control, rd_reader *r, int *fd)
{
    rd_member *member = control->member;
    const unsigned char *whole = r->at;
    size_t bytes = set_bytes(member), payload = r->left;
    uint32_t rank = rd_read_u32(r);
    uint64_t sequence = rd_read_u64(r), number = rd_read_u64(r);
    uint32_t word = rd_read_u32(r), listed = rd_read_u32(r);
    const unsigned char *sets = rd_read_room(r, 2 * bytes);
    (void)fd;
    if (!sets || rank >= (uint32_t)member->job.world || rank == (uint32_t)member->job.rank || word >= WORDS) return;
    if (!make_proposals(member) || sequence <= member->proposals[rank].sequence) return;
    rd_proposal *p = &member->proposals[rank];
    unsigned char *copy = p->set ? p->set : malloc(2 * bytes);
    if (!copy) return;
    *p = (rd_proposal){sequence, number, (enum word)word, listed != 0, copy};
    memcpy(copy, sets, 2 * bytes);
    rd_blob *blob = rd_blob_new(RD_SAY_SHRINK, payload);
    if (blob) memcpy(blob->data + RD_FRAME_HEAD, whole, payload);
    rd_control_flood(member, blob, control);
    consider(member);
}

/* ---- The call ---- */

static rondo_result check_call(rd_member *member, const bool *exclude)
{
    if (member->service != rd_service)
        return rd_fail(RONDO_INVALID_USAGE,
                       "this process was forked after the communicator was made: it stays with the parent");
    if (member->agreement)
        return rd_fail(RONDO_INVALID_USAGE, "another thread of rank %d is in shrink; one at a time", member->job.rank);
    if (exclude && exclude[member->job.rank])
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "shrink: rank %d is in its own list of those to leave out; only ranks that go on call it",
                       member->job.rank);
    if (!make_proposals(member))
        return rd_fail(RONDO_SYSTEM_ERROR, "no memory for an agreement of %d ranks", member->job.world);
    return RONDO_SUCCESS;
}

static bool is_stopped(const _Atomic int *stop)
{
    return stop && *stop;
}

static rondo_result reach_agreement(rd_member *member, const bool *exclude, int64_t deadline, const _Atomic int *stop)
{
    rd_agreement *a = member->agreement;
    a->listed = exclude != NULL;
    a->number = member->last_agreement + 1;
    for (int rank = 0; rank < member->job.world; rank++) {
        if (exclude && exclude[rank]) put(a->list, rank);
        if ((exclude && exclude[rank]) || member->ranks[rank].gone) put(a->set, rank);
    }
    for (int rank = 0; rank < member->job.world; rank++)
        if (!has(a->set, rank) && member->proposals[rank].number > a->number)
            a->number = member->proposals[rank].number;
    say(member, PROPOSES);
    consider(member);
    while (a->result == RONDO_IN_PROGRESS && rd_now() < deadline && !is_stopped(stop)) {
        int64_t look = rd_deadline(LOOK_S);
        rd_member_wait(member, look < deadline ? look : deadline);
    }
    member->last_agreement = a->number > member->last_agreement ? a->number : member->last_agreement;
    if (a->result == RONDO_IN_PROGRESS) {
        say(member, GAVE_UP);
        return is_stopped(stop) ? rd_fail(RONDO_ABORTED, "shrink: rondo_comm_abort was called meanwhile")
                                : timed_out(member);
    }
    return a->result == RONDO_SUCCESS ? RONDO_SUCCESS : rd_fail(a->result, "%s", a->text);
}

rondo_result rd_member_agree(rd_member *member, const bool *exclude, int64_t deadline, const _Atomic int *stop,
                             bool *present, uint64_t *number)
{
    rd_agreement agreement = {.result = RONDO_IN_PROGRESS};
    size_t bytes = set_bytes(member);
    agreement.set = calloc(2, bytes);
    if (!agreement.set) return rd_fail(RONDO_SYSTEM_ERROR, "no memory for an agreement of %d ranks", member->job.world);
    agreement.list = agreement.set + bytes;
    rd_service_lock();
    rondo_result result = check_call(member, exclude);
    if (result == RONDO_SUCCESS) {
        member->agreement = &agreement;
        result = reach_agreement(member, exclude, deadline, stop);
        member->agreement = NULL;
    }
    rd_service_unlock();
    for (int rank = 0; rank < member->job.world && result == RONDO_SUCCESS; rank++)
        present[rank] = !has(agreement.set, rank);
    if (result == RONDO_SUCCESS) *number = agreement.number;
    free(agreement.set);
    return result;
}
