/* SPDX-License-Identifier: Apache-2.0
 *
 * member.h - a rank of a communicator in this process: what member.c, control.c and contact.c share. All [locked].
 */
#ifndef RD_BOOT_MEMBER_H
#define RD_BOOT_MEMBER_H

#include "boot/frames.h"
#include "boot/service.h"

#include <stdatomic.h>

/* What this rank knows of another. It never comes back from LEFT or LOST. */
enum rd_rank_state {
    RD_PRESENT,
    RD_LEFT, /* in order: it said how many calls it had completed, and how it left */
    RD_LOST  /* it died, or it ended the communicator for all; in the latter case it lives until it is `gone` */
};

enum rd_left_how { RD_LEFT_DESTROYED, RD_LEFT_EXITED };

typedef struct rd_rank {
    enum rd_rank_state state;
    enum rd_left_how how; /* LEFT */
    uint64_t calls;       /* LEFT */
    rondo_result result;  /* LOST */
    char *text;           /* LOST */
    bool gone, died;      /* gone: it will never be heard of again, whether it LEFT or was LOST */
    bool is_stopped;
    uint64_t observed;  /* CLOCK_REALTIME ns, or later: of the newest word on whether it is stopped */
    int64_t stopped_at; /* when this rank heard of it */
    uint64_t ask;       /* the number of its last question, from 1 */
    int ask_from;       /* the neighbour by whom that came first: answers go back there */
} rd_rank;

typedef struct rd_arrival {
    int peer, purpose, index, fd;
    struct rd_arrival *next;
} rd_arrival;

struct rd_control;
struct rd_collection;
struct rd_greeter;
struct rd_agreement;
struct rd_proposal;

struct rd_member {
    struct rd_member *next, *before;
    struct rd_service *service; /* another one than rd_service: this process was forked since */
    rd_job job;
    rd_settings settings;
    rd_contact *contacts; /* by rank; NULL until set */
    rd_rank *ranks;
    const rd_member_ops *ops;
    void *context;
    pthread_cond_t changed; /* something arrived, or somebody is no longer there */
    rd_arrival *arrivals;
    struct rd_greeter *greeters; /* whose greeting is not complete, or came before the contacts */
    struct rd_control *controls;
    struct rd_collection *collection;     /* in progress */
    uint64_t asked;                       /* questions so far */
    struct rd_agreement *agreement;       /* in progress */
    struct rd_proposal *proposals;        /* by rank: its last word; NULL before the first */
    uint64_t spoken;                      /* words of this rank so far */
    uint64_t last_agreement, last_agreed; /* numbers: of the last that was tried, of the last that came about */
    _Atomic uint64_t completed;
    _Atomic bool someone_left;
    rondo_result stopped; /* by others; the first reason */
    char stopped_text[RD_VERDICT_TEXT_BYTES];
    _Atomic uint32_t vain; /* bit i: some connection from this rank's interface[i] has come to nothing */
    bool announced, said_goodbye;
};

/* RONDO_SUCCESS while connections to `peer` (-1: to any, all must be there) can be hoped for. */
rondo_result rd_member_check(const rd_member *member, int peer);
/* Are these in range? */
rondo_result rd_member_check_peer(const rd_member *member, int peer, int purpose, int index);
void rd_member_name(const rd_member *member, int rank, char *text, size_t bytes);
/* Sleeps until something about the member changes, or the deadline; the lock is free meanwhile. */
void rd_member_wait(rd_member *member, int64_t deadline);

/* A connection to `peer`, owned. Ends early when the communicator does. */
rondo_result rd_member_dial(rd_member *member, int peer, uint32_t purpose, int index, int over, int64_t deadline,
                            int *fd);

/* ---- Greetings (greet.c) ---- */

/* Takes over an authenticated connection. */
void rd_greet_open(rd_member *member, int from, int index, int fd);
/* Contacts are set: hands on what came before. */
void rd_greet_ready(rd_member *member);
void rd_greet_close(rd_member *member, bool forked);

/* ---- Control plane (control.c) ---- */

/* Takes over an authenticated connection. */
void rd_control_open(rd_member *member, int peer, int fd);
/* Does this rank dial that one? Every two at a distance of a power of two share one connection. */
bool rd_control_dials(int from, int to, int world);
/* Goodbye on all connections, once. */
void rd_control_goodbye(rd_member *member, enum rd_left_how how);
bool rd_control_flush(rd_member *member); /* true: nothing waits to be sent */
void rd_control_close(rd_member *member, bool forked);
/* "rank 1 (pid 77 on h) left: it destroyed its communicator after 3 calls" */
void rd_control_describe_left(const rd_member *member, int rank, char *text, size_t bytes);

void rd_agree_free(rd_member *member); /* (agree.c) */

/* ---- Contacts (contact.c) ---- */

rondo_result rd_contact_here(rd_contact *contact, const rd_settings *settings, int tcp_port,
                             const unsigned char token[16]);
/* A contact that came from elsewhere without rd_contact_unpack: every text ends, every number is in range. */
void rd_contact_restrain(rd_contact *contact);
/* The routes to all of the peer's addresses in the order to try them: the networks that both are on, from number
 * `first` on and round; the other addresses; and last those that are this machine's own, which lead here. On one host
 * these are as good as any. Returns how many; of them the first *networks are such networks. */
int rd_contact_routes(const rd_contact *here, const rd_contact *there, int first, rd_route routes[RD_INTERFACES],
                      int *networks);

#endif
