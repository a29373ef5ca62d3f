/* SPDX-License-Identifier: Apache-2.0
 *
 * wire.h - packing and unpacking of what crosses a socket: little-endian, byte by byte, every length checked.
 * What the bytes mean: docs/wire.md.
 *
 * Writer and reader go bad once something does not fit, and stay bad; so a whole message is packed or unpacked and
 * asked once at its end.
 */
#ifndef RD_BOOT_WIRE_H
#define RD_BOOT_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct rd_writer {
    unsigned char *at;
    size_t left;
    bool bad;
} rd_writer;

typedef struct rd_reader {
    const unsigned char *at;
    size_t left;
    bool bad;
} rd_reader;

/* The place of the next `bytes` bytes, NULL (and bad) when there is no room. */
unsigned char *rd_write_room(rd_writer *w, size_t bytes);
void rd_write_bytes(rd_writer *w, const void *data, size_t bytes);
void rd_write_u16(rd_writer *w, uint16_t value);
void rd_write_u32(rd_writer *w, uint32_t value);
void rd_write_u64(rd_writer *w, uint64_t value);
/* Text in a field of fixed size, filled up with zeros; what does not fit is cut. */
void rd_write_text(rd_writer *w, const char *text, size_t field);

/* The next `bytes` bytes in place, NULL (and bad) when there are not so many. Numbers are 0 then, text is "". */
const unsigned char *rd_read_room(rd_reader *r, size_t bytes);
void rd_read_bytes(rd_reader *r, void *data, size_t bytes);
uint16_t rd_read_u16(rd_reader *r);
uint32_t rd_read_u32(rd_reader *r);
uint64_t rd_read_u64(rd_reader *r);
/* Text may come from anywhere and goes into messages for people: what is not printable becomes '?'. */
void rd_read_text(rd_reader *r, char *text, size_t room, size_t field);

#endif
