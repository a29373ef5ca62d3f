/* SPDX-License-Identifier: Apache-2.0
 *
 * teach.h - `rondo teach`: a real all-reduce, stepped through from its trace (include/rondo_trace.h).
 *
 *   teach.c         the command; runs the call in ranks of its own, and tells how it ended
 *   teach_replay.c  the trace -> what each rank holds after each step
 *   teach_draw.c    a step as a picture
 *   teach_canvas.c  80 columns of text, in colour or not
 *   teach_step.c    one step after the other, by keys
 *
 * What is shown comes from the trace alone: which chunk lies where, who sends what to whom at which step, and what
 * becomes of it. Nothing here knows the schedule, so a mistake in it is seen.
 */
#ifndef RD_CLI_TEACH_H
#define RD_CLI_TEACH_H

#include "rondo_trace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RD_TEACH_RANKS = 8, RD_TEACH_COUNT = 1000, RD_TEACH_COLUMNS = 80, RD_TEACH_ROWS = 48 };

/* ---- Replay ---- */

/* An element at a rank: its value, and the ranks whose terms are in it, as bits. */
typedef struct rd_cell {
    uint32_t value, terms;
    bool finished;
} rd_cell;

/* A slice on its way. One of the two records may be missing: then the chunk of that half is -1. */
typedef struct rd_move {
    int step, from, to;
    int sent_chunk, got_chunk;
    uint64_t sent_first, got_first;
    uint32_t sent_count, got_count, bytes, slice;
    uint16_t channel;
    uint8_t action; /* rondo_action */
    bool own;       /* the sender's input, not what it received */
    /* Of its first element, once replayed. */
    rd_cell arrived, before, after; /* before: what it was added to or replaced */
    bool first_term;                /* flat: it was the first to arrive */
    rd_cell *carried;               /* what was sent; within the lesson's memory */
} rd_move;

typedef struct rd_lesson {
    int ranks, algo, steps;
    bool whole;                     /* no chunks: every message goes as a whole */
    int columns;                    /* of the table: chunks, or, of a whole message, its first numbers */
    size_t count;
    int order[RD_TEACH_RANKS];      /* rank at each position of the ring */
    int result[RD_TEACH_RANKS];     /* rondo_result of the call */
    struct { uint64_t first, count; bool known; } chunk[RD_TEACH_RANKS];
    rd_move *moves;                 /* by step, then by the sender's position */
    int move_count;
    rd_cell *carried;
    /* after `done` steps */
    int done;
    uint64_t sent[RD_TEACH_RANKS];  /* bytes */
    rd_cell cell[RD_TEACH_RANKS][RD_TEACH_COUNT];
    bool begun[RD_TEACH_RANKS][RD_TEACH_COUNT];  /* a sum is being built */
    int touched[RD_TEACH_RANKS][RD_TEACH_COUNT]; /* step + 1 that changed it last; 0: none */
} rd_lesson;

/* What rank r gives as element i: a digit in the rank's own place, so that a sum shows whose terms it has. */
uint32_t rd_teach_input(int rank, size_t i);

/* Reads a trace. Returns NULL, and why in text, when it does not hold one all-reduce of one world. */
rd_lesson *rd_lesson_read(const rondo_trace_record *records, size_t count, char *text, size_t bytes);
void rd_lesson_free(rd_lesson *lesson);
/* The state after `steps` steps. */
void rd_lesson_go(rd_lesson *lesson, int steps);
/* The moves of a step: the first and how many. */
const rd_move *rd_lesson_moves(const rd_lesson *lesson, int step, int *count);
/* What is wrong with a replayed move, in words; false when nothing is. */
bool rd_move_wrong(const rd_lesson *lesson, const rd_move *move, char *text, size_t bytes);

/* ---- Drawing ---- */

/* Styles: a chunk's colour (0: none, chunk + 1), and how. */
enum { RD_BOLD = 16, RD_DIM = 32, RD_REVERSE = 64, RD_GOOD = 9, RD_BAD = 10, RD_COLOUR = 15 };

typedef struct rd_canvas {
    bool colour, unicode;
    int rows;
    struct { char text[4]; uint8_t style; } at[RD_TEACH_ROWS][RD_TEACH_COLUMNS];
} rd_canvas;

void rd_canvas_clear(rd_canvas *canvas);
/* Writes text (UTF-8; what is not ASCII is replaced on a canvas without unicode). Cut off at the edges. Returns the
 * column after it. */
int rd_canvas_put(rd_canvas *canvas, int row, int column, int style, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Fills [from, to) with one character. */
void rd_canvas_fill(rd_canvas *canvas, int row, int from, int to, int style, const char *character);
/* Columns that text takes. */
int rd_columns(const char *text);
/* To standard output; end: after each line. */
void rd_canvas_print(const rd_canvas *canvas, const char *end);

/* The state before the first step (step -1), or a step and the state after it. */
void rd_teach_draw(rd_lesson *lesson, int step, rd_canvas *canvas);

/* ---- Stepping ---- */

/* Shows step after step, as the keys say, on the terminal that standard input and output are. False when it cannot.
 * The terminal is as it was when this returns, or a signal ends the process. */
bool rd_teach_step(rd_lesson *lesson, rd_canvas *canvas);

#endif
