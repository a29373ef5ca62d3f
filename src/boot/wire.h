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
#include <string.h>

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
static inline unsigned char *rd_write_room(rd_writer *w, size_t bytes)
{
    if (w->bad || w->left < bytes) {
        w->bad = true;
        return NULL;
    }
    unsigned char *place = w->at;
    w->at += bytes;
    w->left -= bytes;
    return place;
}

static inline void rd_write_bytes(rd_writer *w, const void *data, size_t bytes)
{
    unsigned char *place = rd_write_room(w, bytes);
    if (!place || bytes == 0) return; /* no bytes: data may be NULL */
    memcpy(place, data, bytes);
}

static inline void rd_write_number(rd_writer *w, uint64_t value, size_t bytes)
{
    unsigned char *place = rd_write_room(w, bytes);
    for (size_t i = 0; place && i < bytes; i++) place[i] = (unsigned char)(value >> (8 * i));
}

static inline void rd_write_u16(rd_writer *w, uint16_t value) { rd_write_number(w, value, 2); }
static inline void rd_write_u32(rd_writer *w, uint32_t value) { rd_write_number(w, value, 4); }
static inline void rd_write_u64(rd_writer *w, uint64_t value) { rd_write_number(w, value, 8); }

/* Text in a field of fixed size, filled up with zeros; what does not fit is cut. */
static inline void rd_write_text(rd_writer *w, const char *text, size_t field)
{
    unsigned char *place = rd_write_room(w, field);
    if (!place) return;
    memset(place, 0, field);
    memcpy(place, text, strnlen(text, field - 1));
}

static inline const unsigned char *rd_read_room(rd_reader *r, size_t bytes)
{
    if (r->bad || r->left < bytes) {
        r->bad = true;
        return NULL;
    }
    const unsigned char *place = r->at;
    r->at += bytes;
    r->left -= bytes;
    return place;
}

static inline void rd_read_bytes(rd_reader *r, void *data, size_t bytes)
{
    const unsigned char *place = rd_read_room(r, bytes);
    if (place && bytes) memcpy(data, place, bytes);
}

static inline uint64_t rd_read_number(rd_reader *r, size_t bytes)
{
    const unsigned char *place = rd_read_room(r, bytes);
    uint64_t value = 0;
    for (size_t i = 0; place && i < bytes; i++) value |= (uint64_t)place[i] << (8 * i);
    return value;
}

static inline uint16_t rd_read_u16(rd_reader *r) { return (uint16_t)rd_read_number(r, 2); }
static inline uint32_t rd_read_u32(rd_reader *r) { return (uint32_t)rd_read_number(r, 4); }
static inline uint64_t rd_read_u64(rd_reader *r) { return rd_read_number(r, 8); }

/* Text may come from anywhere and goes into messages for people: what is not printable becomes '?'. */
static inline void rd_read_text(rd_reader *r, char *text, size_t room, size_t field)
{
    const unsigned char *place = rd_read_room(r, field);
    size_t length = 0;
    for (; place && length < field && length + 1 < room && place[length]; length++)
        text[length] = place[length] < 32 || place[length] == 127 ? '?' : (char)place[length];
    if (room) text[length] = 0;
}

#endif
