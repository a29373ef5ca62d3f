/* SPDX-License-Identifier: Apache-2.0
 *
 * teach_draw.c - one step on 80 columns: what moves, what becomes of it, what each rank holds then.
 *
 *   the ring      ranks in a circle, on each edge the chunk that passes it and the value it has; others: no picture
 *   the moves     who to whom, which chunk, and the sum
 *   the table     a row for each rank, a column for each chunk: the value of the chunk's first element. A rank's terms
 *                 have a decimal place of their own, and the places of those that are missing are dots.
 *   the bytes     sent so far, against the 2(N-1)/N of the message that a ring needs
 */
#include "cli/teach.h"

#include "rondo_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { BOX = 6 /* "rank 0" */, SHORTEST = 14, LABEL = 7, WIDEST = 12, LEFT = 4, BAR = 24 };

/* Columns of a table cell with what follows it; of the whole table; of an arrow, so that the ring is about as wide. */
static int cell_width(int ranks)
{
    int width = (RD_TEACH_COLUMNS - 1 - LABEL) / ranks;
    return width < WIDEST ? width : WIDEST;
}

/* The column after the value of table column c. */
static int cell_end(const rd_lesson *lesson, int c) { return LABEL + cell_width(lesson->ranks) * (c + 1) - 1; }

static int table_width(int ranks) { return LABEL + ranks * cell_width(ranks); }

static int arrow_width(int ranks, int top)
{
    int width = (table_width(ranks) - LEFT - 3 - top * BOX) / (top - 1);
    return width > SHORTEST ? width : SHORTEST;
}

static int colour_of(int chunk) { return chunk < 0 ? 0 : chunk % RD_TEACH_RANKS + 1; }

/* ---- The ring ---- */

static const rd_move *move_on_edge(const rd_move *moves, int count, int from, int to)
{
    for (int m = 0; m < count; m++)
        if (moves[m].from == from && moves[m].to == to && moves[m].sent_chunk >= 0) return &moves[m];
    return NULL;
}

static int label(const rd_move *move, char *text, size_t bytes)
{
    if (!move) *text = '\0';
    else if (move->sent_count) snprintf(text, bytes, "c%d:%" PRIu32, move->sent_chunk, move->carried[0].value);
    else snprintf(text, bytes, "c%d", move->sent_chunk);
    return rd_columns(text);
}

/* An arrow with its label in the middle over [from, to), pointing right or left. */
static void arrow(rd_canvas *canvas, int row, int from, int to, bool right, const rd_move *move)
{
    char text[32];
    int length = label(move, text, sizeof text), line = to - from - 1, start = from + (right ? 0 : 1);
    rd_canvas_fill(canvas, row, start, start + line, 0, "─");
    if (right) rd_canvas_put(canvas, row, to - 1, 0, "▶");
    else rd_canvas_put(canvas, row, from, 0, "◀");
    int middle = start + (line - length) / 2;
    if (length && line - length >= 4) rd_canvas_fill(canvas, row, middle - 1, middle + length + 1, 0, " ");
    if (length) rd_canvas_put(canvas, row, middle, RD_BOLD | colour_of(move->sent_chunk), "%s", text);
}

static void box(rd_canvas *canvas, int row, int column, int rank)
{
    rd_canvas_put(canvas, row, column, RD_BOLD, "rank %d", rank);
}

/* Clockwise: the first ranks of the ring above from left to right, the others below from right to left. */
static int draw_ring(rd_canvas *canvas, const rd_lesson *lesson, int row, const rd_move *moves, int count)
{
    const int *order = lesson->order;
    int n = lesson->ranks, top = n == 2 ? 2 : (n + 1) / 2, below = n - top, pitch = BOX + arrow_width(n, top);
    int right = LEFT + (top - 1) * pitch + BOX + 2, start, length;
    char text[32];
    const rd_move *down = move_on_edge(moves, count, order[top - 1], order[top % n]);
    const rd_move *up = move_on_edge(moves, count, order[n - 1], order[0]);

    rd_canvas_put(canvas, row, 0, 0, "╭─▶");
    for (int i = 0; i < top; i++) {
        box(canvas, row, LEFT + i * pitch, order[i]);
        if (i + 1 < top)
            arrow(canvas, row, LEFT + i * pitch + BOX + 1, LEFT + (i + 1) * pitch - 1, true,
                  move_on_edge(moves, count, order[i], order[i + 1]));
    }
    rd_canvas_put(canvas, row, right - 1, 0, "─╮");
    rd_canvas_put(canvas, row + 1, 0, 0, "│");
    rd_canvas_put(canvas, row + 1, right, 0, "│");
    rd_canvas_put(canvas, row + 2, 0, 0, "╰");
    rd_canvas_put(canvas, row + 2, right, 0, "╯");
    if (!below) {
        rd_canvas_fill(canvas, row + 2, 1, right, 0, "─");
        arrow(canvas, row + 2, LEFT + 2, right - 5, false, up);
        return row + 3;
    }
    if ((length = label(up, text, sizeof text)))
        rd_canvas_put(canvas, row + 1, 2, RD_BOLD | colour_of(up->sent_chunk), "%s", text);
    if ((length = label(down, text, sizeof text)))
        rd_canvas_put(canvas, row + 1, right - 1 - length, RD_BOLD | colour_of(down->sent_chunk), "%s", text);
    start = LEFT + (top - below) * pitch / 2;
    rd_canvas_fill(canvas, row + 2, 1, start - 1, 0, "─");
    for (int i = 0; i < below; i++) { /* from the left: the last of the ring first */
        int column = start + i * pitch, rank = order[n - 1 - i];
        box(canvas, row + 2, column, rank);
        if (i + 1 < below)
            arrow(canvas, row + 2, column + BOX + 1, column + pitch - 1, false,
                  move_on_edge(moves, count, order[n - 2 - i], rank));
        else arrow(canvas, row + 2, column + BOX + 1, right, false, NULL);
    }
    return row + 3;
}

/* ---- The moves ---- */

static void what_happens(const rd_lesson *lesson, const rd_move *m, char *text, size_t bytes)
{
    uint32_t own = rd_teach_input(m->to, m->got_first);
    if (m->got_chunk < 0 || m->sent_chunk < 0) snprintf(text, bytes, "?");
    else if (!m->sent_count || !m->got_count) snprintf(text, bytes, "empty");
    else if (m->action == RONDO_REPLACE)
        snprintf(text, bytes, "%" PRIu32 " replaces %" PRIu32, m->arrived.value, m->before.value);
    else if (lesson->algo == RONDO_ALGO_RING)
        snprintf(text, bytes, "%" PRIu32 " + %" PRIu32 " = %" PRIu32, m->arrived.value, m->before.value,
                 m->after.value);
    else if (m->first_term && m->action == RONDO_FINISH)
        snprintf(text, bytes, "%" PRIu32 " + own %" PRIu32 " = %" PRIu32, m->arrived.value, own, m->after.value);
    else if (m->first_term) snprintf(text, bytes, "%" PRIu32 " is the first", m->arrived.value);
    else if (m->action == RONDO_FINISH)
        snprintf(text, bytes, "%" PRIu32 " + %" PRIu32 " + own %" PRIu32 " = %" PRIu32, m->before.value,
                 m->arrived.value, own, m->after.value);
    else
        snprintf(text, bytes, "%" PRIu32 " + %" PRIu32 " = %" PRIu32, m->before.value, m->arrived.value,
                 m->after.value);
}

static int draw_moves(rd_canvas *canvas, const rd_lesson *lesson, int row, const rd_move *moves, int count)
{
    char text[96];
    bool two = lesson->algo == RONDO_ALGO_RING && lesson->ranks > 4;
    int lines = two ? (count + 1) / 2 : count, end = row + lines;
    for (int m = 0; m < count; m++) {
        const rd_move *move = &moves[m];
        int at = row + m % lines, column = m / lines * 40;
        int chunk = move->got_chunk >= 0 ? move->got_chunk : move->sent_chunk;
        what_happens(lesson, move, text, sizeof text);
        if (two) column = rd_canvas_put(canvas, at, column, 0, "%d─▶%d ", move->from, move->to);
        else column = rd_canvas_put(canvas, at, column, 0, "rank %d ─▶ rank %d   ", move->from, move->to);
        if (chunk == RONDO_WHOLE) column = rd_canvas_put(canvas, at, column, RD_BOLD, "message");
        else column = rd_canvas_put(canvas, at, column, RD_BOLD | colour_of(chunk), two ? "c%d" : "chunk %d", chunk);
        column = rd_canvas_put(canvas, at, column, 0, two ? "  %s" : "   %s", text);
        if (!two && move->after.finished && move->action == RONDO_FINISH)
            rd_canvas_put(canvas, at, column, RD_BOLD | colour_of(chunk), " ✓");
    }
    for (int m = 0; m < count; m++)
        if (rd_move_wrong(lesson, &moves[m], text, sizeof text))
            rd_canvas_put(canvas, end++, 0, RD_BOLD | RD_BAD, "! %s", text);
    return end;
}

/* ---- The table ---- */

/* A value with dots for the ranks whose terms are not in it; as it is when its digits do not agree with its terms. */
static void cell_text(const rd_lesson *lesson, rd_cell cell, char *text, size_t bytes)
{
    uint32_t rest = cell.value;
    char digits[RD_TEACH_RANKS];
    bool agree = true;
    for (int r = 0; r < lesson->ranks; r++, rest /= 10) {
        digits[r] = (char)('0' + rest % 10);
        agree = agree && (rest % 10 != 0) == (cell.terms >> r & 1);
    }
    *text = '\0';
    if (rest || !agree) {
        snprintf(text, bytes, "%" PRIu32, cell.value);
        return;
    }
    for (int r = lesson->ranks - 1, used = 0; r >= 0; r--)
        used += snprintf(text + used, bytes - (size_t)used, cell.terms >> r & 1 ? "%c" : "·", digits[r]);
}

static void draw_cell(rd_canvas *canvas, const rd_lesson *lesson, int row, int chunk, int rank)
{
    char text[64];
    int end = cell_end(lesson, chunk), style = colour_of(chunk);
    uint64_t first = lesson->chunk[chunk].first;
    if (!lesson->chunk[chunk].known || !lesson->chunk[chunk].count) {
        rd_canvas_put(canvas, row, end - 1, RD_DIM, "%s", lesson->chunk[chunk].known ? "-" : "?");
        return;
    }
    rd_cell cell = lesson->cell[rank][first];
    bool now = lesson->done && lesson->touched[rank][first] == lesson->done;
    if (cell.finished) style |= RD_BOLD;
    else if (!lesson->touched[rank][first]) style |= RD_DIM;
    if (now) style |= RD_REVERSE;
    cell_text(lesson, cell, text, sizeof text);
    rd_canvas_put(canvas, row, end - rd_columns(text), style, "%s", text);
    if (cell.finished || now) rd_canvas_put(canvas, row, end, style & ~RD_REVERSE, cell.finished ? "✓" : "+");
}

static int draw_table(rd_canvas *canvas, const rd_lesson *lesson, int row)
{
    bool one_each = true;
    char text[64];
    for (int c = 0; c < lesson->columns; c++) {
        snprintf(text, sizeof text, lesson->whole ? "number %d" : "chunk %d", c);
        rd_canvas_put(canvas, row, cell_end(lesson, c) - rd_columns(text),
                      RD_BOLD | colour_of(c), "%s", text);
        one_each = one_each && lesson->chunk[c].count == 1;
    }
    row++;
    for (int c = 0; !one_each && c < lesson->columns; c++) {
        uint64_t first = lesson->chunk[c].first, count = lesson->chunk[c].count;
        if (!count) snprintf(text, sizeof text, "empty");
        else if (count == 1) snprintf(text, sizeof text, "[%" PRIu64 "]", first);
        else snprintf(text, sizeof text, "[%" PRIu64 "-%" PRIu64 "]", first, first + count - 1);
        rd_canvas_put(canvas, row, cell_end(lesson, c) - rd_columns(text), RD_DIM, "%s",
                      text);
    }
    row += !one_each;
    for (int p = 0; p < lesson->ranks; p++, row++) {
        rd_canvas_put(canvas, row, 0, RD_BOLD, "rank %d", lesson->order[p]);
        for (int c = 0; c < lesson->columns; c++) draw_cell(canvas, lesson, row, c, lesson->order[p]);
    }
    return row;
}

/* ---- The bytes ---- */

static void draw_bytes(rd_canvas *canvas, const rd_lesson *lesson, int row)
{
    uint64_t least = lesson->sent[0], most = lesson->sent[0], all = 0, message = lesson->count * sizeof(int32_t);
    double law = 2.0 * (lesson->ranks - 1) / lesson->ranks * (double)message;
    char sent[48];
    for (int r = 0; r < lesson->ranks; r++) {
        all += lesson->sent[r];
        if (lesson->sent[r] < least) least = lesson->sent[r];
        if (lesson->sent[r] > most) most = lesson->sent[r];
    }
    if (least == most) snprintf(sent, sizeof sent, "%" PRIu64, most);
    else snprintf(sent, sizeof sent, "%" PRIu64 " to %" PRIu64, least, most);
    int full = law > 0 ? (int)((double)all / lesson->ranks / law * BAR + 0.5) : BAR;
    if (full > BAR) full = BAR;
    int column = rd_canvas_put(canvas, row, 0, 0, "sent by each rank: ");
    column = rd_canvas_put(canvas, row, column, RD_BOLD, "%s bytes ", sent);
    rd_canvas_fill(canvas, row, column, column + full, RD_BOLD, "█");
    rd_canvas_fill(canvas, row, column + full, column + BAR, RD_DIM, "░");
    rd_canvas_put(canvas, row, column + BAR, 0, " %.4g = 2(N-1)/N × %" PRIu64, law, message);
    double more = (double)all / lesson->ranks - law;
    if (lesson->whole && more >= 1)
        rd_canvas_put(canvas, row + 1, column, 0, "%.4g bytes more than the least, for one hop less", more);
}

/* ---- The page ---- */

static void draw_legend(rd_canvas *canvas, const rd_lesson *lesson, int row)
{
    rd_canvas_put(canvas, row++, 0, 0, "Each rank's numbers have one digit, in a decimal place of its own: rank 0 the");
    rd_canvas_put(canvas, row++, 0, 0,
                  "ones, rank 1 the tens, and so on. So a sum shows whose terms it has; a dot is a");
    rd_canvas_put(canvas, row++, 0, 0, "term that is missing.   + added to in this step   ✓ finished");
    if (lesson->count > (size_t)lesson->ranks)
        rd_canvas_put(canvas, row, 0, 0,
                      lesson->whole ? "The first numbers of a message are shown."
                                    : "A chunk is several numbers here; what is shown is its first.");
}

static const char *what_kind(const rd_lesson *lesson, const rd_move *moves, int count)
{
    bool adds = false, replaces = false;
    if (lesson->whole) return "all to all: what arrives is added";
    for (int m = 0; m < count; m++) *(moves[m].action == RONDO_REPLACE ? &replaces : &adds) = true;
    if (adds && replaces) return "some of what arrives is added, some replaces what is there";
    return adds ? "reduce-scatter: what arrives is added" : "all-gather: what arrives replaces";
}

static void draw_title(rd_canvas *canvas, const rd_lesson *lesson, int step, const char *kind)
{
    int column = step < 0 ? rd_canvas_put(canvas, 0, 0, RD_BOLD, "Before step 1 of %d", lesson->steps)
                          : rd_canvas_put(canvas, 0, 0, RD_BOLD, "Step %d of %d", step + 1, lesson->steps);
    column = rd_canvas_put(canvas, 0, column, 0, " · %s ", kind);
    rd_canvas_fill(canvas, 0, column, RD_TEACH_COLUMNS - 1, RD_DIM, "─");
}

void rd_teach_draw(rd_lesson *lesson, int step, rd_canvas *canvas)
{
    int count = 0, row = 2;
    rd_lesson_go(lesson, step + 1);
    const rd_move *moves = rd_lesson_moves(lesson, step, &count);
    rd_canvas_clear(canvas);
    draw_title(canvas, lesson, step, step < 0 ? "each rank has its own numbers" : what_kind(lesson, moves, count));
    if (lesson->algo == RONDO_ALGO_RING) row = draw_ring(canvas, lesson, row, moves, count) + 1;
    if (step >= 0) row = draw_moves(canvas, lesson, row, moves, count) + 1;
    row = draw_table(canvas, lesson, row) + 1;
    draw_bytes(canvas, lesson, row);
    if (step < 0) draw_legend(canvas, lesson, row + 2);
}
