/* SPDX-License-Identifier: Apache-2.0
 *
 * flight_merge.c - the records of all ranks side by side. Collectives have numbers that are the same on all ranks, so
 * the first number at which two ranks have different calls is where a program went wrong, and a rank whose last number
 * is lower is what the others wait for. Messages have numbers for each pair and direction: the n-th send belongs to the
 * n-th receive.
 */
#include "cli/flight.h"

#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Calls that differ ---- */

/* Of calls that ran as one the first number; it is what the ranks agree on when they group differently. */
static uint64_t first_number(const rondo_record_call *call)
{
    uint64_t before = call->together > 1 ? call->together - 1u : 0;
    return call->number > before ? call->number - before : call->number;
}

static bool same_call(const rondo_record_call *a, const rondo_record_call *b)
{
    if (a->kind != b->kind) return false;
    if (a->kind != RONDO_RECORD_COLLECTIVE) return true;
    return a->collective == b->collective && a->dtype == b->dtype && a->count == b->count &&
           a->together == b->together && (!rd_flight_reduces(a) || a->op == b->op) &&
           (!rd_flight_has_root(a) || a->root == b->root);
}

/* The next collective from entry *i on; NULL: there is none. */
static const rondo_record_call *next_collective(const rd_flight *flight, uint32_t *i)
{
    while (*i < flight->header.calls && rd_flight_is_message(&flight->calls[*i])) ++*i;
    return *i < flight->header.calls ? &flight->calls[*i] : NULL;
}

/* The number of the first call that two ranks both have, and not alike; 0: none. Both go up with their entries. */
static uint64_t first_difference(const rd_flight *a, const rd_flight *b)
{
    uint32_t i = 0, j = 0;
    for (;;) {
        const rondo_record_call *x = next_collective(a, &i), *y = next_collective(b, &j);
        if (!x || !y) return 0;
        uint64_t nx = first_number(x), ny = first_number(y);
        if (nx == ny && !same_call(x, y)) return nx;
        i += nx <= ny;
        j += ny <= nx;
    }
}

static const rondo_record_call *call_at(const rd_flight *flight, uint64_t number)
{
    for (uint32_t i = 0;; i++) {
        const rondo_record_call *call = next_collective(flight, &i);
        if (!call || first_number(call) == number) return call;
    }
}

/* Compares all with the one that has got furthest. */
static void find_difference(rd_merged *m)
{
    const rd_flight *furthest = NULL;
    for (int r = 0; r < m->size && !furthest; r++)
        if (m->last[r] && m->last[r]->number == m->most) furthest = m->of[r];
    for (int r = 0; furthest && r < m->size; r++) {
        if (!m->of[r] || m->of[r] == furthest) continue;
        uint64_t number = first_difference(furthest, m->of[r]);
        if (number && (!m->differs || number < m->differs)) m->differs = number;
    }
    for (int r = 0; m->differs && r < m->size; r++)
        if (m->of[r]) m->at[r] = call_at(m->of[r], m->differs);
}

/* ---- Who is late ---- */

static bool is_full(const rd_flight *flight)
{
    return flight->header.calls == RONDO_RECORD_CALLS;
}

/* Whether it is known how far a rank got: its collectives may all have been written over by messages. */
static bool is_known(const rd_merged *m, int rank)
{
    return m->of[rank] && (m->last[rank] || !is_full(m->of[rank]));
}

static void find_latest(rd_merged *m)
{
    m->least = UINT64_MAX;
    for (int r = 0; r < m->size; r++) {
        const rd_flight *flight = m->of[r];
        for (uint32_t i = flight ? flight->header.calls : 0; i > 0 && !m->last[r]; i--)
            if (!rd_flight_is_message(&flight->calls[i - 1])) m->last[r] = &flight->calls[i - 1];
        if (!is_known(m, r)) continue;
        uint64_t number = m->last[r] ? m->last[r]->number : 0;
        if (number > m->most) m->most = number;
        if (number < m->least) m->least = number;
    }
    if (m->least == UINT64_MAX) m->least = m->most;
}

bool rd_merged_is_late(const rd_merged *m, int rank, const void *unused)
{
    (void)unused;
    return is_known(m, rank) && m->least < m->most && (m->last[rank] ? m->last[rank]->number : 0) == m->least;
}

/* ---- Messages ---- */

typedef struct message {
    int from, to;
    bool sends;
    const rondo_record_call *call;
} message;

static int by_pair(const void *a, const void *b)
{
    const message *x = a, *y = b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    if (x->to != y->to) return x->to < y->to ? -1 : 1;
    if (x->sends != y->sends) return x->sends ? -1 : 1;
    return x->call->number == y->call->number ? 0 : x->call->number < y->call->number ? -1 : 1;
}

static int list_messages(const rd_merged *m, message *list)
{
    int count = 0;
    for (int r = 0; r < m->size; r++)
        for (uint32_t i = 0; m->of[r] && i < m->of[r]->header.calls; i++) {
            const rondo_record_call *call = &m->of[r]->calls[i];
            bool sends = call->kind == RONDO_RECORD_SEND;
            if (!rd_flight_is_message(call) || call->root < 0 || call->root >= m->size) continue;
            if (list) list[count] = (message){sends ? r : call->root, sends ? call->root : r, sends, call};
            count++;
        }
    if (list) qsort(list, (size_t)count, sizeof *list, by_pair);
    return count;
}

/* Whether no other one of the list has its number: those of a group may share that of the group's last. */
static bool is_single(const message *list, int count, int i)
{
    uint64_t number = list[i].call->number;
    return (i == 0 || list[i - 1].call->number != number) && (i + 1 == count || list[i + 1].call->number != number);
}

/* Those of one pair and direction, in order, `sends` of them sends: adds what has no partner, or not one like it. An
 * older partner may have been written over, a newer one not; and where the other rank has no record, who knows. */
static void match_pair(rd_merged *m, const message *list, int sends, int count)
{
    const rd_flight *from = m->of[list->from], *to = m->of[list->to];
    for (int i = 0, k = 0; i < count; i++) {
        bool mine = i < sends; /* its receives are looked through, else sends; both in order */
        const rd_flight *there = mine ? to : from;
        const message *others = mine ? list + sends : list;
        int n = mine ? count - sends : sends;
        if (i == sends) k = 0;
        while (k < n && others[k].call->number < list[i].call->number) k++;
        bool found = k < n && others[k].call->number == list[i].call->number;
        const rondo_record_call *a = list[i].call, *b = found ? others[k].call : NULL;
        bool unlike = mine && found && (a->count != b->count || a->dtype != b->dtype) && is_single(list, sends, i) &&
                      is_single(others, n, k);
        bool alone = there && k == n && (n > 0 || !is_full(there));
        if (unlike || alone) m->lonely[m->lonely_count++] = (rd_lonely){list->from, list->to, a, unlike ? b : NULL};
    }
}

static bool match_messages(rd_merged *m)
{
    int count = list_messages(m, NULL);
    message *list = malloc(((size_t)count + 1) * sizeof *list);
    m->lonely = malloc(((size_t)count + 1) * sizeof *m->lonely);
    bool good = list && m->lonely;
    if (good) list_messages(m, list);
    for (int at = 0, end; good && at < count; at = end) {
        int sends = 0;
        for (end = at; end < count && list[end].from == list[at].from && list[end].to == list[at].to; end++)
            sends += list[end].sends;
        match_pair(m, list + at, sends, end - at);
    }
    free(list);
    return good;
}

void rd_lonely_text(const rd_lonely *lonely, char text[3 * RD_FLIGHT_TEXT])
{
    char what[RD_FLIGHT_TEXT], other[RD_FLIGHT_TEXT];
    bool sends = lonely->call->kind == RONDO_RECORD_SEND;
    int here = sends ? lonely->from : lonely->to, there = sends ? lonely->to : lonely->from;
    rd_flight_call_text(lonely->call, what);
    if (lonely->other)
        rd_flight_call_text(lonely->other, other);
    else
        snprintf(other, sizeof other, "not called rondo_%s for it", sends ? "recv" : "send");
    snprintf(text, 3 * RD_FLIGHT_TEXT,
             "message %llu from rank %d to rank %d: rank %d called %s (%s), and rank %d has %s%s",
             (unsigned long long)lonely->call->number, lonely->from, lonely->to, here, what,
             rd_flight_state(lonely->call), there, lonely->other ? "called " : "", other);
}

/* ---- The verdict ---- */

int rd_merged_say_ranks(FILE *to, const rd_merged *m, rd_merged_test *holds, const void *context)
{
    int count = 0, said = 0;
    for (int r = 0; r < m->size; r++) count += holds(m, r, context);
    fprintf(to, count == 1 ? "rank " : "ranks ");
    for (int r = 0; r < m->size; r++) {
        int first = r;
        if (!holds(m, r, context)) continue;
        while (r + 1 < m->size && holds(m, r + 1, context)) r++;
        fprintf(to, "%s%d", said++ ? ", " : "", first);
        if (r > first) fprintf(to, "-%d", r);
    }
    return count;
}

bool rd_merged_is_missing(const rd_merged *m, int rank, const void *unused)
{
    (void)unused;
    return !m->of[rank];
}

bool rd_merged_calls_alike(const rd_merged *m, int rank, const void *call)
{
    return m->at[rank] && same_call(m->at[rank], call);
}

static void say_difference(FILE *to, const rd_merged *m)
{
    char what[RD_FLIGHT_TEXT], other[RD_FLIGHT_TEXT];
    int first = 0, odd;
    while (!m->at[first]) first++;
    rd_flight_call_text(m->at[first], what);
    fprintf(to, "the ranks' calls differ from call %llu on: rank %d called %s", (unsigned long long)m->differs, first,
            what);
    for (odd = first + 1; odd < m->size && (!m->at[odd] || same_call(m->at[first], m->at[odd])); odd++) {
    }
    if (odd == m->size) return; /* only in records that are damaged */
    rd_flight_call_text(m->at[odd], other);
    fprintf(to, ", and rank %d %s", odd, other);
}

static void say_where(FILE *to, const rd_merged *m, int rank)
{
    const rondo_record_call *last = m->last[rank];
    char what[RD_FLIGHT_TEXT], number[RD_FLIGHT_TEXT];
    if (!last) {
        fprintf(to, "no call");
        return;
    }
    rd_flight_call_text(last, what);
    rd_flight_number_text(last, number);
    fprintf(to, "%s (%s, begun %.3g s before its record, %s)", number, what, rd_flight_age(m->of[rank], last),
            rd_flight_state(last));
}

static void say_late(FILE *to, const rd_merged *m)
{
    int rank = 0;
    unsigned long long ahead = m->most - m->least;
    while (!rd_merged_is_late(m, rank, NULL)) rank++;
    int count = rd_merged_say_ranks(to, m, rd_merged_is_late, NULL);
    fprintf(to, count == 1 ? " is late: its last is " : " are late: their last is ");
    say_where(to, m, rank);
    fprintf(to, ", and others are %llu call%s further", ahead, ahead == 1 ? "" : "s");
}

/* The clause about this rank in an error, "rank 1 (pid 7 on h) is stopped, ...", and how long it is; NULL: none. */
static const char *find_clause(const char *error, int rank, size_t *length)
{
    char name[32];
    snprintf(name, sizeof name, "rank %d (", rank);
    for (const char *at = error; (at = strstr(at, name)); at++) {
        const char *end = strchr(at, ')');
        if (!end) return NULL;                             /* cut off */
        if (strncmp(end + 1, " called", 7) == 0) continue; /* whom a call was compared with */
        *length = strcspn(at, ";");
        return at;
    }
    return NULL;
}

/* What became of a rank as the errors of the others have it; they asked all when they failed. */
static bool say_what_others_say(FILE *to, const rd_merged *m, int rank, bool again)
{
    for (int r = 0; r < m->size; r++) {
        size_t length;
        const rondo_record_header *header = m->of[r] ? &m->of[r]->header : NULL;
        const char *clause = header && header->result ? find_clause(header->error, rank, &length) : NULL;
        if (!clause) continue;
        fprintf(to, "; %s%.*s", again ? "" : "the others say: ", (int)length, clause);
        return true;
    }
    return false;
}

static void say_missing(FILE *to, const rd_merged *m)
{
    enum { MOST = 4 };
    int count = rd_merged_say_ranks(to, m, rd_merged_is_missing, NULL), said = 0;
    fprintf(to, " left no record");
    for (int r = 0; r < m->size && said < MOST; r++)
        if (!m->of[r]) said += say_what_others_say(to, m, r, said > 0);
    if (!said)
        fprintf(to, ": killed, or in no call since the others failed, or %s file%s not here",
                count == 1 ? "its" : "their", count == 1 ? " is" : "s are");
    if (m->least < m->most) {
        fprintf(to, "; of the others ");
        say_late(to, m);
    } else if (m->most) {
        fprintf(to, "; the others got to call %llu", (unsigned long long)m->most);
    }
}

static void say_ended(FILE *to, const rd_merged *m)
{
    for (int r = 0; r < m->size; r++)
        if (m->of[r] && m->of[r]->header.result) {
            fprintf(to, "all ranks got to call %llu alike; rank %d ended with: %s", (unsigned long long)m->most, r,
                    m->of[r]->header.error);
            return;
        }
}

static bool judge(rd_merged *m)
{
    size_t bytes;
    char text[3 * RD_FLIGHT_TEXT];
    FILE *to = open_memstream(&m->verdict, &bytes);
    if (!to) return false;
    bool ended = false;
    for (int r = 0; r < m->size; r++) ended = ended || (m->of[r] && m->of[r]->header.result);
    m->trouble = m->differs             ? RD_TROUBLE_DIFFERS
                 : m->records < m->size ? RD_TROUBLE_MISSING
                 : m->least < m->most   ? RD_TROUBLE_LATE
                 : m->lonely_count      ? RD_TROUBLE_MESSAGE
                 : ended                ? RD_TROUBLE_ENDED
                                        : RD_TROUBLE_NONE;
    switch (m->trouble) {
    case RD_TROUBLE_DIFFERS: say_difference(to, m); break;
    case RD_TROUBLE_MISSING: say_missing(to, m); break;
    case RD_TROUBLE_LATE: say_late(to, m); break;
    case RD_TROUBLE_MESSAGE:
        rd_lonely_text(m->lonely, text);
        fputs(text, to);
        break;
    case RD_TROUBLE_ENDED: say_ended(to, m); break;
    default: fprintf(to, "nothing is wrong: all ranks got to call %llu alike", (unsigned long long)m->most);
    }
    return fclose(to) == 0;
}

/* ---- All of it ---- */

static int same_communicator(const rd_flight *a, const rd_flight *b)
{
    int order = memcmp(a->header.job, b->header.job, sizeof a->header.job);
    if (order) return order;
    if (a->header.comm_number != b->header.comm_number) return a->header.comm_number < b->header.comm_number ? -1 : 1;
    return (a->header.size > b->header.size) - (a->header.size < b->header.size);
}

/* By communicator, by rank, and what was written last first. */
static int by_place(const void *a, const void *b)
{
    const rd_flight *x = a, *y = b;
    int order = same_communicator(x, y);
    if (order) return order;
    if (x->header.rank != y->header.rank) return x->header.rank < y->header.rank ? -1 : 1;
    return (x->header.written_ns < y->header.written_ns) - (x->header.written_ns > y->header.written_ns);
}

static bool merge_one(rd_merged *m, const rd_flight *list, int count)
{
    size_t ranks = (size_t)list->header.size;
    *m = (rd_merged){.size = list->header.size, .any = list};
    m->of = calloc(ranks, sizeof *m->of);
    m->last = calloc(ranks, sizeof *m->last);
    m->at = calloc(ranks, sizeof *m->at);
    if (!m->of || !m->last || !m->at) return false;
    for (int i = 0; i < count; i++) {
        const rd_flight **place = &m->of[list[i].header.rank];
        if (!*place) m->records++;
        if (!*place) *place = &list[i];
    }
    find_latest(m);
    find_difference(m);
    return match_messages(m) && judge(m);
}

void rd_merged_free(rd_merged *merged, int count)
{
    for (int i = 0; i < count; i++) {
        free(merged[i].of);
        free(merged[i].last);
        free(merged[i].at);
        free(merged[i].lonely);
        free(merged[i].verdict);
    }
    free(merged);
}

rondo_result rd_flights_merge(rd_flights *flights, rd_merged **merged, int *count)
{
    int made = 0;
    rd_merged *list = calloc((size_t)flights->count + 1, sizeof *list);
    bool good = list;
    if (flights->count) qsort(flights->list, (size_t)flights->count, sizeof *flights->list, by_place);
    for (int at = 0, end; good && at < flights->count; at = end) {
        const rd_flight *first = &flights->list[at];
        for (end = at + 1; end < flights->count && !same_communicator(first, &flights->list[end]);) end++;
        good = merge_one(&list[made++], first, end - at);
    }
    if (!good) {
        rd_merged_free(list, made);
        return rd_fail(RONDO_SYSTEM_ERROR, "no memory to compare %d records", flights->count);
    }
    *merged = list;
    *count = made;
    return RONDO_SUCCESS;
}
