/* SPDX-License-Identifier: Apache-2.0
 *
 * frames.h - a connection of the service thread that carries frames: the table's clients and the control plane.
 *
 *   u32 payload bytes, u16 kind, u16 zero, payload
 *
 * Sending never blocks: what the socket does not take waits in a list. All [locked].
 */
#ifndef RD_BOOT_FRAMES_H
#define RD_BOOT_FRAMES_H

#include "boot/service.h"
#include "boot/wire.h"

enum { RD_FRAME_HEAD = 8 };

/* A whole frame; shared, because one answer may go to all ranks. */
typedef struct rd_blob {
    int users;
    size_t bytes;
    unsigned char data[];
} rd_blob;

/* One user, head filled in, payload zero; NULL without memory. The payload starts at data + RD_FRAME_HEAD. */
rd_blob *rd_blob_new(uint16_t kind, size_t payload_bytes);
void rd_blob_drop(rd_blob *blob);

typedef struct rd_frame {
    uint16_t kind;
    const unsigned char *payload;
    size_t bytes;
    int *fd; /* a descriptor that came along, or -1; whoever keeps it sets it to -1 */
} rd_frame;

typedef struct rd_outgoing rd_outgoing;
typedef struct rd_frames rd_frames;
struct rd_frames {
    rd_watch watch; /* first: the structure around this one is freed with it */
    rd_timer timer;
    size_t limit;   /* the longest payload that is accepted */
    unsigned char *in;
    size_t in_have, in_room;
    int fd_in;
    rd_outgoing *out, **out_end;
    size_t out_done; /* bytes of the first that the socket has taken */
    bool over_unix, lingers, ended;
    void (*frame)(rd_frames *frames, const rd_frame *frame);
    /* End of file or an error: nothing more will come. Called once. */
    void (*end)(rd_frames *frames);
};

/* Takes over fd, also on failure; the structure is the caller's (zeroed). */
rondo_result rd_frames_open(rd_frames *frames, int fd, size_t limit, void (*frame)(rd_frames *, const rd_frame *),
                            void (*end)(rd_frames *));
/* Reads and handles what is there now. */
void rd_frames_read(rd_frames *frames);

/* Takes over one use of the blob, and fd (-1: none), which travels with it over a unix socket. */
void rd_frames_send(rd_frames *frames, rd_blob *blob, int fd);
/* The bytes that still wait for the socket. */
bool rd_frames_unsent(const rd_frames *frames);
void rd_frames_flush(rd_frames *frames);

/* Closes at once, or in good order: sends what waits, then says that no more comes, then reads the other end's last
 * words (so that closing does not destroy ours on their way), for at most 5 s. The frames are gone for the caller. */
void rd_frames_bury(rd_frames *frames);
void rd_frames_linger(rd_frames *frames);

#endif
