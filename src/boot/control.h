/* SPDX-License-Identifier: Apache-2.0
 *
 * control.h - the control connections of a rank: what control.c (who is there), pulse.c (who is stopped), collect.c
 * (what each one does) and agree.c (who goes on) share. All [locked].
 */
#ifndef RD_BOOT_CONTROL_H
#define RD_BOOT_CONTROL_H

#include "boot/member.h"

typedef struct rd_control rd_control;
struct rd_control {
    rd_frames frames;  /* first */
    rd_member *member; /* NULL: it is closed, and this connection says its last words */
    int peer;
    struct rd_pid_watch *pid;
    rd_control *next;
    /* pulse.c */
    pid_t process; /* the peer's, 0: not to be seen from here */
    int64_t heard_at;
    bool seen_stopped; /* what this connection alone says */
    /* collect.c */
    unsigned char report[RD_REPORT_BYTES]; /* the peer's last that came by here */
};

/* Payloads: docs/wire.md. */
enum rd_message {
    RD_SAY_HELLO = 1,
    RD_SAY_GOODBYE, /* floods */
    RD_SAY_NEWS,    /* floods */
    RD_SAY_HEARTBEAT,
    RD_SAY_STOPPED, /* floods */
    RD_SAY_ASK,     /* floods */
    RD_SAY_REPORT,
    RD_SAY_SHRINK, /* floods */
    RD_MESSAGES
};

/* To all neighbours but one (NULL: to all). Takes over one use of the blob; NULL is fine. */
void rd_control_flood(rd_member *member, rd_blob *blob, const rd_control *except);
/* NULL: no connection. */
rd_control *rd_control_to(const rd_member *member, int peer);
/* Something has changed that whoever waits for this rank should look at. */
void rd_control_changed(rd_member *member);

/* ---- pulse.c ---- */

/* The connection stands. */
void rd_pulse_watch(rd_control *control);
/* The other end is this process, or -1. */
void rd_pulse_process(rd_control *control, int pidfd);
void rd_pulse_heard_stopped(rd_control *control, rd_reader *r, int *fd);
/* What is known of a rank that is stopped, for a new neighbour; NULL: it runs. */
rd_blob *rd_pulse_known(const rd_member *member, int rank);

/* ---- collect.c ---- */

void rd_collect_heard_ask(rd_control *control, rd_reader *r, int *fd);
void rd_collect_heard_report(rd_control *control, rd_reader *r, int *fd);
/* What is known of some rank has changed: answers may have gone lost with it. */
void rd_collect_again(rd_member *member);

/* ---- agree.c ---- */

void rd_agree_heard(rd_control *control, rd_reader *r, int *fd);
/* This rank is gone. */
void rd_agree_gone(rd_member *member, int rank);

#endif
