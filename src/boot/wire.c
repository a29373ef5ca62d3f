/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/wire.h"

#include <string.h>

unsigned char *rd_write_room(rd_writer *w, size_t bytes)
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

void rd_write_bytes(rd_writer *w, const void *data, size_t bytes)
{
    unsigned char *place = rd_write_room(w, bytes);
    if (!place || bytes == 0) return; /* no bytes: data may be NULL */
    memcpy(place, data, bytes);
}

static void write_number(rd_writer *w, uint64_t value, size_t bytes)
{
    unsigned char *place = rd_write_room(w, bytes);
    for (size_t i = 0; place && i < bytes; i++) place[i] = (unsigned char)(value >> (8 * i));
}

void rd_write_u16(rd_writer *w, uint16_t value)
{
    write_number(w, value, 2);
}
void rd_write_u32(rd_writer *w, uint32_t value)
{
    write_number(w, value, 4);
}
void rd_write_u64(rd_writer *w, uint64_t value)
{
    write_number(w, value, 8);
}

void rd_write_text(rd_writer *w, const char *text, size_t field)
{
    unsigned char *place = rd_write_room(w, field);
    if (!place) return;
    memset(place, 0, field);
    memcpy(place, text, strnlen(text, field));
}

const unsigned char *rd_read_room(rd_reader *r, size_t bytes)
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

void rd_read_bytes(rd_reader *r, void *data, size_t bytes)
{
    const unsigned char *place = rd_read_room(r, bytes);
    if (place && bytes) memcpy(data, place, bytes);
}

static uint64_t read_number(rd_reader *r, size_t bytes)
{
    const unsigned char *place = rd_read_room(r, bytes);
    uint64_t value = 0;
    for (size_t i = 0; place && i < bytes; i++) value |= (uint64_t)place[i] << (8 * i);
    return value;
}

uint16_t rd_read_u16(rd_reader *r)
{
    return (uint16_t)read_number(r, 2);
}
uint32_t rd_read_u32(rd_reader *r)
{
    return (uint32_t)read_number(r, 4);
}
uint64_t rd_read_u64(rd_reader *r)
{
    return read_number(r, 8);
}

void rd_read_text(rd_reader *r, char *text, size_t room, size_t field)
{
    const unsigned char *place = rd_read_room(r, field);
    size_t length = 0;
    for (; place && length < field && length + 1 < room && place[length]; length++)
        text[length] = place[length] < 32 || place[length] == 127 ? '?' : (char)place[length];
    if (room) text[length] = 0;
}
