/* SPDX-License-Identifier: Apache-2.0
 *
 * teach_canvas.c - a page of text, written in any order and printed line by line.
 */
#include "cli/teach.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* What stands for the signs of the pictures on a terminal without them. All take one column. */
static const char *const plain[][2] = {
    {"─", "-"}, {"│", "|"}, {"╭", "+"}, {"╮", "+"}, {"╯", "+"}, {"╰", "+"}, {"▶", ">"}, {"◀", "<"},
    {"·", "."}, {"✓", "*"}, {"✗", "x"}, {"█", "#"}, {"░", "."}, {"→", ">"}, {"×", "x"},
};

static size_t length_of(const char *text)
{
    unsigned char c = (unsigned char)*text;
    size_t length = c < 0x80 ? 1 : c < 0xe0 ? 2 : 3;
    return strnlen(text, length);
}

int rd_columns(const char *text)
{
    int columns = 0;
    for (; *text; text += length_of(text)) columns++;
    return columns;
}

void rd_canvas_clear(rd_canvas *canvas)
{
    canvas->rows = 0;
    memset(canvas->at, 0, sizeof canvas->at);
}

static void put_one(rd_canvas *canvas, int row, int column, int style, const char *character, size_t length)
{
    if (row < 0 || row >= RD_TEACH_ROWS || column < 0 || column >= RD_TEACH_COLUMNS) return;
    for (size_t i = 0; !canvas->unicode && length > 1 && i < sizeof plain / sizeof *plain; i++)
        if (strlen(plain[i][0]) == length && memcmp(plain[i][0], character, length) == 0) {
            character = plain[i][1];
            length = 1;
        }
    memset(canvas->at[row][column].text, 0, sizeof canvas->at[row][column].text);
    memcpy(canvas->at[row][column].text, character, length);
    canvas->at[row][column].style = (uint8_t)style;
    if (row >= canvas->rows) canvas->rows = row + 1;
}

int rd_canvas_put(rd_canvas *canvas, int row, int column, int style, const char *format, ...)
{
    char text[4 * RD_TEACH_COLUMNS];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (const char *c = text; *c; c += length_of(c)) put_one(canvas, row, column++, style, c, length_of(c));
    return column;
}

void rd_canvas_fill(rd_canvas *canvas, int row, int from, int to, int style, const char *character)
{
    for (int column = from; column < to; column++) put_one(canvas, row, column, style, character, length_of(character));
}

/* Colours that can be told apart on light and dark ground; the first eight are the chunks'. */
static void set_style(int style)
{
    static const int palette[] = {0, 203, 37, 172, 69, 71, 170, 137, 105, 71, 203};
    fputs("\033[0", stdout);
    if (style & RD_BOLD) fputs(";1", stdout);
    if (style & RD_DIM) fputs(";2", stdout);
    if (style & RD_REVERSE) fputs(";7", stdout);
    if (style & RD_COLOUR) printf(";38;5;%d", palette[style & RD_COLOUR]);
    putchar('m');
}

void rd_canvas_print(const rd_canvas *canvas, const char *end)
{
    for (int row = 0; row < canvas->rows; row++) {
        int last = RD_TEACH_COLUMNS, style = 0;
        while (last > 0 && (!canvas->at[row][last - 1].text[0] ||
                            (canvas->at[row][last - 1].text[0] == ' ' && !canvas->at[row][last - 1].style)))
            last--;
        for (int column = 0; column < last; column++) {
            int wanted = canvas->at[row][column].style;
            if (canvas->colour && wanted != style) set_style(style = wanted);
            if (canvas->at[row][column].text[0]) printf("%.4s", canvas->at[row][column].text);
            else putchar(' ');
        }
        if (style) set_style(0);
        fputs(end, stdout);
    }
}
