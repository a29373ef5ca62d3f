/* SPDX-License-Identifier: Apache-2.0
 *
 * text.h - a text that grows, in room that does not: what is beyond its end is cut off.
 */
#ifndef RD_BASE_TEXT_H
#define RD_BASE_TEXT_H

#include <stddef.h>

/* rd_text text = {room, sizeof room}, of at least a byte. */
typedef struct rd_text {
    char *at; /* its end */
    size_t left;
} rd_text;

void rd_text_add(rd_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
