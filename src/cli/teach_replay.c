/* SPDX-License-Identifier: Apache-2.0
 *
 * teach_replay.c - what each rank holds after each step, by the trace.
 *
 * A SEND record says that a rank's elements left: its input (own), or what it holds of them by then. The RECEIVE record
 * of the other end says where they went, and what became of them: replaced, added to, finished (rondo_plan.h). The two
 * halves meet by step, slice, channel and the two ranks. They may disagree about which elements these are: then the
 * schedule is wrong, and the replay does what the ranks did: it takes what was sent and puts it where it went.
 */
#include "cli/teach.h"

#include "rondo_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t rd_teach_input(int rank, size_t i)
{
    uint32_t place = 1;
    while (rank-- > 0) place *= 10;
    return (uint32_t)(i % 9 + 1) * place;
}

static rd_cell input_cell(int rank, size_t i)
{
    return (rd_cell){rd_teach_input(rank, i), 1u << rank, false};
}

/* ---- Reading ---- */

static bool sane_call(const rondo_trace_call *made, int rank)
{
    return made->collective == RONDO_COLL_ALL_REDUCE && made->size >= 2 && made->size <= RD_TEACH_RANKS && rank >= 0 &&
           rank < made->size && made->count <= RD_TEACH_COUNT && made->position >= 0 && made->position < made->size;
}

/* Calls and ends: who took part, in which order, with what result. */
static const char *read_calls(rd_lesson *lesson, const rondo_trace_record *records, size_t count)
{
    int seen[RD_TEACH_RANKS] = {0};
    for (size_t i = 0; i < count; i++) {
        const rondo_trace_record *r = &records[i];
        if (r->version != RONDO_TRACE_VERSION) return "its records are of another version";
        if (r->kind != RONDO_TRACE_CALL && r->kind != RONDO_TRACE_END) continue;
        if (!sane_call(&r->of.made, r->rank)) return "it holds something else than an all-reduce of 2 to 8 ranks";
        if (lesson->ranks && lesson->ranks != r->of.made.size) return "its calls are of different worlds";
        lesson->ranks = r->of.made.size;
        lesson->columns = lesson->ranks;
        lesson->count = r->of.made.count;
        lesson->algo = r->of.made.algo;
        lesson->order[r->of.made.position] = r->rank;
        if (r->kind == RONDO_TRACE_END) lesson->result[r->rank] = r->of.made.result;
        else if (seen[r->rank]++) return "a rank called twice";
    }
    for (int r = 0; r < lesson->ranks; r++)
        if (!seen[r]) return "a rank is missing";
    return lesson->ranks ? NULL : "there is no call in it";
}

static bool sane_slice(const rd_lesson *lesson, const rondo_trace_record *r)
{
    const rondo_trace_slice *s = &r->of.slice;
    return r->rank >= 0 && r->rank < lesson->ranks && s->peer >= 0 && s->peer < lesson->ranks && s->step >= 0 &&
           s->step < 1 << 16 && (s->chunk == RONDO_WHOLE || (s->chunk >= 0 && s->chunk < lesson->ranks)) &&
           s->first <= lesson->count && s->count <= lesson->count - s->first && s->action <= RONDO_FINISH;
}

static void note_chunk(rd_lesson *lesson, const rondo_trace_slice *s)
{
    if (s->chunk == RONDO_WHOLE) return;
    uint64_t end = s->first + s->count, first = lesson->chunk[s->chunk].first, count = lesson->chunk[s->chunk].count;
    if (lesson->chunk[s->chunk].known) {
        /* The slices of a chunk follow one another; anything else is another rank's mistake, and is shown as one. */
        if (s->first == first + count) count = end - first;
        else if (end == first) first = s->first, count += s->count;
    } else {
        first = s->first, count = s->count;
    }
    lesson->chunk[s->chunk].first = first;
    lesson->chunk[s->chunk].count = count;
    lesson->chunk[s->chunk].known = true;
}

static rd_move *find_sent(rd_lesson *lesson, const rondo_trace_record *r)
{
    const rondo_trace_slice *s = &r->of.slice;
    for (int m = 0; m < lesson->move_count; m++) {
        rd_move *move = &lesson->moves[m];
        if (move->got_chunk < 0 && move->sent_chunk >= 0 && move->step == s->step && move->from == s->peer &&
            move->to == r->rank && move->slice == s->slice && move->channel == s->channel)
            return move;
    }
    return NULL;
}

static void add_sent(rd_lesson *lesson, const rondo_trace_record *r)
{
    const rondo_trace_slice *s = &r->of.slice;
    lesson->moves[lesson->move_count++] = (rd_move){
        .step = s->step, .from = r->rank, .to = s->peer, .sent_chunk = s->chunk, .got_chunk = -1, .slice = s->slice,
        .channel = s->channel, .sent_first = s->first, .sent_count = s->count, .bytes = s->bytes, .own = s->own};
}

static void add_received(rd_lesson *lesson, const rondo_trace_record *r)
{
    const rondo_trace_slice *s = &r->of.slice;
    rd_move *move = find_sent(lesson, r);
    if (!move) {
        move = &lesson->moves[lesson->move_count++];
        *move = (rd_move){.step = s->step, .from = s->peer, .to = r->rank, .sent_chunk = -1, .slice = s->slice,
                          .channel = s->channel};
    }
    move->got_chunk = s->chunk;
    move->got_first = s->first;
    move->got_count = s->count;
    move->action = s->action;
}

static const char *read_slices(rd_lesson *lesson, const rondo_trace_record *records, size_t count)
{
    for (int kind = RONDO_TRACE_SEND; kind <= RONDO_TRACE_RECEIVE; kind++)
        for (size_t i = 0; i < count; i++) {
            if (records[i].kind != kind) continue;
            if (!sane_slice(lesson, &records[i])) return "a record makes no sense";
            if (kind == RONDO_TRACE_SEND) {
                add_sent(lesson, &records[i]);
                if (records[i].of.slice.own) note_chunk(lesson, &records[i].of.slice);
            } else {
                add_received(lesson, &records[i]);
            }
            lesson->whole |= records[i].of.slice.chunk == RONDO_WHOLE;
            if (records[i].of.slice.step >= lesson->steps) lesson->steps = records[i].of.slice.step + 1;
        }
    /* A chunk that nobody says is his own to send: as whoever names it has it. */
    for (size_t i = 0; i < count; i++)
        if ((records[i].kind == RONDO_TRACE_SEND || records[i].kind == RONDO_TRACE_RECEIVE) &&
            records[i].of.slice.chunk != RONDO_WHOLE && !lesson->chunk[records[i].of.slice.chunk].known)
            note_chunk(lesson, &records[i].of.slice);
    return NULL;
}

/* A message that is not cut into chunks is shown by its first numbers. */
static void show_numbers(rd_lesson *lesson)
{
    lesson->columns = 0;
    for (size_t i = 0; i < lesson->count && lesson->columns < lesson->ranks; i++) {
        lesson->chunk[i].first = i;
        lesson->chunk[i].count = 1;
        lesson->chunk[i].known = true;
        lesson->columns++;
    }
}

static int position_of(const rd_lesson *lesson, int rank)
{
    int at = 0;
    while (at < lesson->ranks - 1 && lesson->order[at] != rank) at++;
    return at;
}

/* Insertion sort: stable, and the records come nearly in order. */
static void sort_moves(rd_lesson *lesson)
{
    for (int i = 1; i < lesson->move_count; i++) {
        rd_move move = lesson->moves[i];
        int at = position_of(lesson, move.from), j = i;
        for (; j > 0; j--) {
            const rd_move *before = &lesson->moves[j - 1];
            if (before->step < move.step || (before->step == move.step && position_of(lesson, before->from) <= at))
                break;
            lesson->moves[j] = *before;
        }
        lesson->moves[j] = move;
    }
}

static const char *make_room(rd_lesson *lesson)
{
    size_t cells = 0, at = 0;
    for (int m = 0; m < lesson->move_count; m++) cells += lesson->moves[m].sent_count;
    lesson->carried = calloc(cells + 1, sizeof *lesson->carried);
    if (!lesson->carried) return "there is no memory for it";
    for (int m = 0; m < lesson->move_count; m++) {
        lesson->moves[m].carried = lesson->carried + at;
        at += lesson->moves[m].sent_count;
    }
    return NULL;
}

rd_lesson *rd_lesson_read(const rondo_trace_record *records, size_t count, char *text, size_t bytes)
{
    rd_lesson *lesson = calloc(1, sizeof *lesson);
    const char *why = "there is no memory for it";
    if (lesson) lesson->moves = calloc(count + 1, sizeof *lesson->moves);
    if (lesson && lesson->moves) {
        why = read_calls(lesson, records, count);
        if (!why) why = read_slices(lesson, records, count);
        if (!why && lesson->whole) show_numbers(lesson);
        if (!why) sort_moves(lesson);
        if (!why) why = make_room(lesson);
    }
    if (!why) {
        rd_lesson_go(lesson, 0);
        return lesson;
    }
    snprintf(text, bytes, "the trace cannot be replayed: %s", why);
    rd_lesson_free(lesson);
    return NULL;
}

void rd_lesson_free(rd_lesson *lesson)
{
    if (!lesson) return;
    free(lesson->carried);
    free(lesson->moves);
    free(lesson);
}

const rd_move *rd_lesson_moves(const rd_lesson *lesson, int step, int *count)
{
    int first = 0;
    while (first < lesson->move_count && lesson->moves[first].step < step) first++;
    for (*count = 0; first + *count < lesson->move_count && lesson->moves[first + *count].step == step;) ++*count;
    return &lesson->moves[first];
}

/* ---- Replaying ---- */

static void leave(rd_lesson *lesson, rd_move *move)
{
    if (move->sent_chunk < 0) return;
    for (uint32_t i = 0; i < move->sent_count; i++) {
        size_t at = move->sent_first + i;
        move->carried[i] = move->own ? input_cell(move->from, at) : lesson->cell[move->from][at];
    }
    lesson->sent[move->from] += move->bytes;
}

/* What becomes of an element that holds `before` (a sum of flat: so far) and meets `arrived`. */
static rd_cell meet(const rd_lesson *lesson, const rd_move *move, rd_cell arrived, rd_cell own, rd_cell before,
                    bool begun)
{
    rd_cell after = arrived;
    if (move->action == RONDO_REPLACE) return after;
    bool flat = lesson->algo != RONDO_ALGO_RING;
    if (flat && begun) {
        after.value += before.value;
        after.terms |= before.terms;
    }
    if (!flat || move->action == RONDO_FINISH) {
        after.value += own.value;
        after.terms |= own.terms;
    }
    after.finished = move->action == RONDO_FINISH;
    return after;
}

static void arrive(rd_lesson *lesson, rd_move *move)
{
    if (move->got_chunk < 0 || move->sent_chunk < 0) return;
    uint32_t count = move->got_count < move->sent_count ? move->got_count : move->sent_count;
    for (uint32_t i = 0; i < count; i++) {
        size_t at = move->got_first + i;
        rd_cell *cell = &lesson->cell[move->to][at], own = input_cell(move->to, at), before = *cell;
        bool *begun = &lesson->begun[move->to][at];
        if (lesson->algo == RONDO_ALGO_RING && move->action != RONDO_REPLACE) before = own;
        *cell = meet(lesson, move, move->carried[i], own, before, *begun);
        if (i == 0) {
            move->first_term = !*begun;
            move->arrived = move->carried[i];
            move->before = before;
            move->after = *cell;
        }
        *begun = true;
        lesson->touched[move->to][at] = move->step + 1;
    }
}

void rd_lesson_go(rd_lesson *lesson, int steps)
{
    memset(lesson->sent, 0, sizeof lesson->sent);
    memset(lesson->begun, 0, sizeof lesson->begun);
    memset(lesson->touched, 0, sizeof lesson->touched);
    for (int r = 0; r < lesson->ranks; r++)
        for (size_t i = 0; i < lesson->count; i++) lesson->cell[r][i] = input_cell(r, i);
    /* All of a step leave before any arrives: it is one exchange. */
    for (int s = 0, first = 0, end; s < steps; s++, first = end) {
        for (end = first; end < lesson->move_count && lesson->moves[end].step == s; end++)
            leave(lesson, &lesson->moves[end]);
        for (int m = first; m < end; m++) arrive(lesson, &lesson->moves[m]);
    }
    lesson->done = steps;
}

/* ---- What is wrong ---- */

static void list_ranks(uint32_t ranks, char *text, size_t bytes)
{
    size_t used = 0;
    *text = '\0';
    for (int r = 0; ranks >> r; r++)
        if (ranks >> r & 1)
            used += (size_t)snprintf(text + used, used < bytes ? bytes - used : 0, "%s%d", used ? ", " : "", r);
}

static const char *name_of(int chunk, char text[24])
{
    if (chunk == RONDO_WHOLE) snprintf(text, 24, "the message");
    else snprintf(text, 24, "chunk %d", chunk);
    return text;
}

bool rd_move_wrong(const rd_lesson *lesson, const rd_move *m, char *text, size_t bytes)
{
    char ranks[32], sent[24], got[24];
    uint32_t all = (1u << lesson->ranks) - 1;
    bool any = m->sent_count && m->got_count, sum = lesson->algo == RONDO_ALGO_RING || !m->first_term;
    uint32_t twice = m->action != RONDO_REPLACE && sum ? m->arrived.terms & m->before.terms : 0;
    name_of(m->sent_chunk, sent);
    name_of(m->got_chunk, got);
    *text = '\0';
    if (m->sent_chunk < 0)
        snprintf(text, bytes, "rank %d took %s from rank %d, which did not send it", m->to, got, m->from);
    else if (m->got_chunk < 0)
        snprintf(text, bytes, "%s of rank %d did not arrive at rank %d", sent, m->from, m->to);
    else if (m->sent_chunk != m->got_chunk)
        snprintf(text, bytes, "rank %d sent %s, and rank %d took it for %s", m->from, sent, m->to, got);
    else if (m->sent_first != m->got_first || m->sent_count != m->got_count)
        snprintf(text, bytes, "%s is not the same numbers to rank %d and rank %d", sent, m->from, m->to);
    else if (any && twice) {
        list_ranks(twice, ranks, sizeof ranks);
        snprintf(text, bytes, "%s at rank %d now has the term of rank %s twice", got, m->to, ranks);
    } else if (any && m->after.finished && m->after.terms != all) {
        list_ranks(all & ~m->after.terms, ranks, sizeof ranks);
        snprintf(text, bytes, "%s at rank %d is called finished without rank %s", got, m->to, ranks);
    }
    return *text;
}
