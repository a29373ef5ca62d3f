/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of different ranks must not mix, so a line is passed on when it is whole. And the launcher must stay able to
 * hear Ctrl-C while nobody reads its output, so it never blocks in write: it asks poll first and then writes no more
 * than PIPE_BUF, which a writable pipe takes at once. (O_NONBLOCK would change the shell's terminal as well.)
 */
#include "cli/run.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    READ_BYTES = 65536,
    LONGEST_LINE = 1 << 20 /* a longer one goes out in pieces */
};

static char *grow(char *data, size_t *capacity, size_t needed)
{
    if (needed <= *capacity) return data;
    size_t larger = *capacity * 2 > needed ? *capacity * 2 : needed;
    char *moved = realloc(data, larger);
    if (!moved) abort(); /* a launcher without memory for a line cannot keep its promises; its workers die with it */
    *capacity = larger;
    return moved;
}

void rd_sink_put(rd_sink *sink, const char *data, size_t bytes)
{
    if (sink->error || bytes == 0) return;
    if (sink->head > 0 && sink->head + sink->length + bytes > sink->capacity) {
        memmove(sink->data, sink->data + sink->head, sink->length);
        sink->head = 0;
    }
    sink->data = grow(sink->data, &sink->capacity, sink->head + sink->length + bytes);
    memcpy(sink->data + sink->head + sink->length, data, bytes);
    sink->length += bytes;
}

bool rd_sink_flush(rd_sink *sink)
{
    while (sink->length > 0) {
        size_t piece = sink->length;
        if (sink->waitable) {
            struct pollfd ready = {.fd = sink->fd, .events = POLLOUT};
            if (poll(&ready, 1, 0) <= 0) return false;
            if (piece > PIPE_BUF) piece = PIPE_BUF;
        }
        ssize_t wrote = write(sink->fd, sink->data + sink->head, piece);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0 && errno == EAGAIN) return false;
        if (wrote < 0) {
            sink->error = errno;
            sink->length = 0;
            break;
        }
        sink->head += (size_t)wrote;
        sink->length -= (size_t)wrote;
    }
    sink->head = 0;
    return true;
}

void rd_sink_free(rd_sink *sink)
{
    free(sink->data);
    *sink = (rd_sink){.fd = -1};
}

static void remember(rd_tail *tail, const char *data, size_t bytes)
{
    const size_t room = sizeof tail->data;
    if (bytes >= room) {
        memcpy(tail->data, data + bytes - room, room);
        tail->length = room;
        return;
    }
    size_t keep = tail->length < room - bytes ? tail->length : room - bytes;
    memmove(tail->data, tail->data + tail->length - keep, keep);
    memcpy(tail->data + keep, data, bytes);
    tail->length = keep + bytes;
}

/* With prefixes every piece ends its line, so that the next rank's begins at the margin; without, bytes stay as
 * they came. */
static void pass_on(rd_stream *stream, rd_tail *tail, const char *piece, size_t bytes, bool ended)
{
    rd_sink_put(stream->sink, stream->prefix, strlen(stream->prefix));
    rd_sink_put(stream->sink, piece, bytes);
    if (!ended && stream->prefix[0]) rd_sink_put(stream->sink, "\n", 1);
    remember(tail, piece, bytes);
    if (!ended) remember(tail, "\n", 1);
}

/* Bytes of the first whole line, its end included; 0: none is whole. A lone carriage return ends one too, so that
 * progress bars move; the last byte cannot be told from the first half of "\r\n". */
static size_t line_bytes(const char *data, size_t bytes)
{
    const char *end = memchr(data, '\n', bytes);
    size_t within = end ? (size_t)(end - data) : bytes;
    const char *back = memchr(data, '\r', within);
    if (back && back + 1 < data + within) return (size_t)(back - data) + 1;
    return end ? within + 1 : 0;
}

bool rd_stream_read(rd_stream *stream, rd_tail *tail)
{
    if (stream->fd < 0) return false;
    stream->data = grow(stream->data, &stream->capacity, stream->length + READ_BYTES);
    ssize_t got = read(stream->fd, stream->data + stream->length, READ_BYTES);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got > 0) stream->length += (size_t)got;

    size_t from = 0, bytes;
    while ((bytes = line_bytes(stream->data + from, stream->length - from)) > 0) {
        pass_on(stream, tail, stream->data + from, bytes, true);
        from += bytes;
    }
    if (stream->length > from && (got <= 0 || stream->length - from >= LONGEST_LINE)) {
        pass_on(stream, tail, stream->data + from, stream->length - from, false);
        from = stream->length;
    }
    memmove(stream->data, stream->data + from, stream->length - from);
    stream->length -= from;
    if (got > 0) return true;
    close(stream->fd); /* which also takes it out of epoll */
    stream->fd = -1;
    free(stream->data);
    stream->data = NULL;
    stream->capacity = 0;
    return false;
}
