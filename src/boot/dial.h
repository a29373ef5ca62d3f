/* SPDX-License-Identifier: Apache-2.0
 *
 * dial.h - making an authenticated connection, in the caller's thread: the client's side of the handshake.
 */
#ifndef RD_BOOT_DIAL_H
#define RD_BOOT_DIAL_H

#include "boot/service.h"

typedef struct rd_dialing {
    const rd_job *job;      /* id and key */
    rd_request request;
    bool require_key;
    uint32_t version;       /* RD_WIRE_VERSION */
    int64_t deadline;
    double patience_s;      /* with one address, until its end has answered like a Rondo */
    /* Asked between waits, at least every 50 ms: RONDO_SUCCESS to go on, else the failure to end with. NULL: go on. */
    rondo_result (*go_on)(void *context);
    void *context;
} rd_dialing;

/* Fills in what describes this process. */
void rd_dialing_init(rd_dialing *dialing, const rd_job *job, const rd_settings *settings, int64_t deadline);

enum rd_dialed {
    RD_DIALED,         /* *fd is connected and authenticated, non-blocking, owned (rd_own) */
    RD_DIAL_ELSEWHERE, /* nobody there, or somebody else: `reason` says so; another address or a later time may do */
    RD_DIAL_SILENT,    /* likewise, but it may have been a lost packet */
    RD_DIAL_LATER,     /* the right one is there but not ready */
    RD_DIAL_FAILED     /* for good: *result and rd_last_error() */
};

/* One attempt at one address. */
enum rd_dialed rd_dial(const rd_dialing *dialing, const char *address, int *fd, rondo_result *result, char *reason,
                       size_t reason_bytes);

/* Sleeps between rounds of attempts: 5 ms at first, 50 ms at most. RONDO_TIMEOUT (without words) past the deadline. */
rondo_result rd_dial_pause(rd_dialing *dialing, int round);

#endif
