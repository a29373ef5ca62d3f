/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/frames.h"

#include "base/clock.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define LINGER_SECONDS 5.0

struct rd_outgoing {
    rd_blob *blob;
    int fd;
    rd_outgoing *next;
};

rd_blob *rd_blob_new(uint16_t kind, size_t payload_bytes)
{
    rd_blob *blob = calloc(1, sizeof *blob + RD_FRAME_HEAD + payload_bytes);
    if (!blob) return NULL;
    blob->users = 1;
    blob->bytes = RD_FRAME_HEAD + payload_bytes;
    rd_writer w = {blob->data, RD_FRAME_HEAD, false};
    rd_write_u32(&w, (uint32_t)payload_bytes);
    rd_write_u16(&w, kind);
    rd_write_u16(&w, 0);
    return blob;
}

void rd_blob_drop(rd_blob *blob)
{
    if (blob && --blob->users == 0) free(blob);
}

static void drop_outgoing(rd_frames *frames)
{
    while (frames->out) {
        rd_outgoing *item = frames->out;
        frames->out = item->next;
        rd_blob_drop(item->blob);
        rd_close_owned(item->fd);
        free(item);
    }
    frames->out_end = &frames->out;
    frames->out_done = 0;
}

static void destroy(rd_watch *watch)
{
    rd_frames *frames = RD_CONTAINER(watch, rd_frames, watch);
    free(frames->in);
    free(frames);
}

static void ready(rd_watch *watch, uint32_t events)
{
    rd_frames *frames = RD_CONTAINER(watch, rd_frames, watch);
    if (events & EPOLLOUT) rd_frames_flush(frames);
    if (events & ~(uint32_t)EPOLLOUT) rd_frames_read(frames);
}

rondo_result rd_frames_open(rd_frames *frames, int fd, size_t limit, void (*frame)(rd_frames *, const rd_frame *),
                            void (*end)(rd_frames *))
{
    rd_address peer;
    frames->limit = limit;
    frames->frame = frame;
    frames->end = end;
    frames->fd_in = -1;
    frames->out_end = &frames->out;
    frames->over_unix = rd_sock_peer_address(fd, &peer) == RONDO_SUCCESS && peer.at.ss_family == AF_UNIX;
    frames->watch.ready = ready;
    frames->watch.destroy = destroy;
    return rd_watch_open(&frames->watch, fd, EPOLLIN);
}

void rd_frames_bury(rd_frames *frames)
{
    rd_timer_clear(&frames->timer);
    drop_outgoing(frames);
    rd_close_owned(frames->fd_in);
    frames->fd_in = -1;
    rd_watch_bury(&frames->watch);
}

static void ended(rd_frames *frames)
{
    if (frames->ended) return;
    frames->ended = true;
    if (frames->lingers || !frames->end)
        rd_frames_bury(frames);
    else
        frames->end(frames);
}

/* ---- Receiving ---- */

static bool make_room(rd_frames *frames, size_t bytes)
{
    if (frames->in_room >= bytes) return true;
    size_t room = bytes < 4096 ? 4096 : bytes;
    unsigned char *more = realloc(frames->in, room);
    if (!more) return false;
    frames->in = more;
    frames->in_room = room;
    return true;
}

/* Hands out the whole frames that are there. false: the other end does not keep to the protocol. */
static bool hand_out(rd_frames *frames)
{
    size_t at = 0;
    while (!frames->watch.dead && frames->in_have - at >= RD_FRAME_HEAD) {
        rd_reader r = {frames->in + at, RD_FRAME_HEAD, false};
        size_t payload = rd_read_u32(&r);
        uint16_t kind = rd_read_u16(&r);
        if (payload > frames->limit) return false;
        if (frames->in_have - at < RD_FRAME_HEAD + payload) {
            if (at == 0) return make_room(frames, RD_FRAME_HEAD + payload);
            break;
        }
        rd_frame frame = {kind, frames->in + at + RD_FRAME_HEAD, payload, &frames->fd_in};
        at += RD_FRAME_HEAD + payload;
        if (!frames->lingers) frames->frame(frames, &frame);
    }
    memmove(frames->in, frames->in + at, frames->in_have - at);
    frames->in_have -= at;
    return true;
}

void rd_frames_read(rd_frames *frames)
{
    /* Bounded, so that one connection cannot keep the thread from the others. */
    for (int i = 0; i < 64 && !frames->watch.dead && !frames->ended; i++) {
        if (!make_room(frames, frames->in_have + 1)) break;
        int fds[RD_SOCK_FDS], count = 1;
        size_t got = 0;
        rondo_result result =
            rd_sock_read(frames->watch.fd, frames->in + frames->in_have, frames->in_room - frames->in_have, &got, fds,
                         frames->over_unix ? &count : &(int){0});
        if (result == RONDO_IN_PROGRESS) return;
        if (result == RONDO_SUCCESS && frames->over_unix && count == 1) {
            rd_close_owned(frames->fd_in);
            frames->fd_in = fds[0];
            rd_own(fds[0]);
        }
        if (result == RONDO_SYSTEM_ERROR && got > 0) result = RONDO_SUCCESS; /* the frame does without its descriptor */
        if (result == RONDO_SUCCESS) frames->in_have += got;
        if (result != RONDO_SUCCESS || !hand_out(frames)) {
            if (!frames->watch.dead) ended(frames);
            return;
        }
    }
}

/* ---- Sending ---- */

bool rd_frames_unsent(const rd_frames *frames)
{
    return frames->out != NULL;
}

static void after_flush(rd_frames *frames)
{
    rd_watch_events(&frames->watch, frames->out ? EPOLLIN | EPOLLOUT : EPOLLIN);
    if (!frames->out && frames->lingers) shutdown(frames->watch.fd, SHUT_WR);
}

void rd_frames_flush(rd_frames *frames)
{
    while (frames->out) {
        rd_outgoing *item = frames->out;
        size_t put = 0;
        int count = item->fd >= 0 && frames->out_done == 0 ? 1 : 0;
        rondo_result result = rd_sock_write(frames->watch.fd, item->blob->data + frames->out_done,
                                            item->blob->bytes - frames->out_done, &put, &item->fd, count);
        if (result == RONDO_IN_PROGRESS) break;
        if (result != RONDO_SUCCESS && count) { /* too many descriptors under way, perhaps: it does without */
            rd_close_owned(item->fd);
            item->fd = -1;
            continue;
        }
        if (result != RONDO_SUCCESS) {
            drop_outgoing(frames); /* reading will find the end, and what was said before it */
            shutdown(frames->watch.fd, SHUT_WR); /* and nothing more follows half a frame */
            break;
        }
        frames->out_done += put;
        if (frames->out_done < item->blob->bytes) continue;
        frames->out = item->next;
        if (!frames->out) frames->out_end = &frames->out;
        frames->out_done = 0;
        rd_blob_drop(item->blob);
        rd_close_owned(item->fd);
        free(item);
    }
    after_flush(frames);
}

void rd_frames_send(rd_frames *frames, rd_blob *blob, int fd)
{
    rd_outgoing *item = blob && !frames->watch.dead ? calloc(1, sizeof *item) : NULL;
    if (!item) {
        rd_blob_drop(blob);
        rd_close_owned(fd);
        return;
    }
    bool idle = !frames->out;
    item->blob = blob;
    item->fd = fd;
    *frames->out_end = item;
    frames->out_end = &item->next;
    if (idle) rd_frames_flush(frames);
}

static void lingered(rd_timer *timer)
{
    rd_frames_bury(RD_CONTAINER(timer, rd_frames, timer));
}

void rd_frames_linger(rd_frames *frames)
{
    if (frames->watch.dead) return;
    if (frames->ended) {
        rd_frames_bury(frames);
        return;
    }
    frames->lingers = true;
    rd_timer_set(&frames->timer, rd_deadline(LINGER_SECONDS), lingered);
    after_flush(frames);
}
