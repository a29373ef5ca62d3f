/* SPDX-License-Identifier: Apache-2.0
 *
 * service.h - the one service thread of the process, and what its files share.
 *
 * Everything the thread serves (listeners, guests at the door, tables, members, control connections) is guarded by one
 * lock. The thread holds it except while it sleeps in epoll_wait; it never blocks while holding it. Other threads
 * take it for moments and then act on the same structures themselves, so there is no queue of commands and no
 * waiting for the thread to carry them out. Callbacks of a member run under the lock.
 *
 * Threads come and go, the service stays: it starts at first need, and thread and listeners live as long as the
 * process. A forked child has the memory but not the thread: there all descriptors are closed and `rd_service` is NULL,
 * until the child needs a service of its own.
 */
#ifndef RD_BOOT_SERVICE_H
#define RD_BOOT_SERVICE_H

#include "base/sock.h"
#include "boot/auth.h"
#include "boot/internal.h"

#include <pthread.h>

/* ---- The lock. Functions below marked [locked] are to be called with it held. ---- */

void rd_service_lock(void);
void rd_service_unlock(void);
pthread_mutex_t *rd_service_mutex(void); /* to wait with, on a condition */

/* ---- A descriptor that the thread waits for ---- */

typedef struct rd_watch rd_watch;
struct rd_watch {
    int fd;
    bool dead;
    void (*ready)(rd_watch *watch, uint32_t events); /* [locked], on the service thread */
    void (*destroy)(rd_watch *watch);                /* frees it; NULL: free() */
    rd_watch *next_dead;
};

/* [locked] Takes over fd, also on failure. */
rondo_result rd_watch_open(rd_watch *watch, int fd, uint32_t events);
/* [locked] */
void rd_watch_events(rd_watch *watch, uint32_t events);
/* [locked] Ends the watch without closing its descriptor, which is the caller's now. */
int rd_watch_take(rd_watch *watch);
/* [locked] Closes the descriptor. The thread may hold an event for the watch already, so the memory goes later, when it
 * certainly does not. */
void rd_watch_bury(rd_watch *watch);

/* ---- A moment that the thread waits for ---- */

typedef struct rd_timer rd_timer;
struct rd_timer {
    int64_t at;
    bool set;
    void (*fire)(rd_timer *timer); /* [locked], on the service thread */
    rd_timer *next, *before;
};

void rd_timer_set(rd_timer *timer, int64_t at, void (*fire)(rd_timer *timer)); /* [locked] may be set already */
void rd_timer_clear(rd_timer *timer);                                          /* [locked] may be clear already */

#define RD_CONTAINER(pointer, type, field) ((type *)(void *)((char *)(pointer) - offsetof(type, field)))

/* ---- Descriptors of this process's control plane ---- */

/* [locked] A child that is forked closes those that are owned, so that the death of this process is seen by its
 * peers. rd_disown before the descriptor is closed or given away. */
void rd_own(int fd);
void rd_disown(int fd);
void rd_close_owned(int fd);

/* ---- The service ---- */

struct rd_board;
struct rd_guest;
struct rd_listener;

typedef struct rd_served_job {
    unsigned char id[16], key[32];
    bool has_key;
    int world; /* 0: known with the first that joins */
    bool once; /* for one communicator: goes with its board */
    struct rd_board *boards;
    struct rd_served_job *next;
} rd_served_job;

struct rd_service {
    pthread_t thread;
    int epoll_fd;
    rd_watch wake;
    rd_watch *dead;
    rd_timer *timers;
    int64_t sleeping_until;
    unsigned char *owned; /* by descriptor number */
    int owned_room;

    unsigned char token[16]; /* random: this process, from here on */
    char unix_name[RD_UNIX_NAME];
    int tcp_port;
    bool require_key;
    double slow_warning_s; /* after which a start that waits for ranks says for which; of the latest settings */
    struct rd_listener *listeners;
    rd_timer door_pause;
    rd_watch dump; /* -1: no listener */
    rd_timer dump_pause;
    struct rd_guest *guests, *last_guest; /* connections that have yet to say who they are, oldest first */
    int guest_count, guest_limit;
    uint64_t strangers;
    uint64_t starved; /* times that a connection could not come in for want of a descriptor */

    rd_served_job *jobs;
    struct rd_member *members;
    rd_timer pulse; /* set while control connections stand */
    int64_t look_at;
    struct rd_service *before_fork; /* of the process this one was forked from; keeps its memory in reach */
};

extern struct rd_service *rd_service; /* [locked] NULL until started */

/* Starts the thread and the two listeners if that has not happened. [not locked] */
rondo_result rd_service_start(const rd_settings *settings);
/* The same, with the first or a further TCP listener on this port (0: any). */
rondo_result rd_service_start_at(const rd_settings *settings, int port);

/* ---- The door: listeners and the server's side of the handshake (door.c) ---- */

/* [locked] name: an abstract socket, or NULL for TCP `port`. *bound: the port it got; NULL if of no interest. */
rondo_result rd_door_listen(const char *name, int port, int *bound);
void rd_door_close(void); /* [locked] all listeners */

/* [locked] Whoever waits for a peer notes rd_door_starved() first, and gives up when this fails: RONDO_SYSTEM_ERROR
 * when a connection could not come in since for want of a descriptor, perhaps the very one. */
uint64_t rd_door_starved(void);
rondo_result rd_door_check(uint64_t noted);

/* [locked] Listens for those who want a dump, if it can (dump.c). */
void rd_dump_listen(void);

/* Warns, once a process, that a connection over TCP goes without a key. */
void rd_warn_keyless(void);

/* ---- Tables that are served here (served.c, rendezvous.c) ---- */

/* [locked] NULL when this process does not serve the job's table. */
rd_served_job *rd_served_job_find(const unsigned char id[16]);
/* [locked] May the one who asks sit down at the table? And then: the connection is its. */
void rd_board_admit(rd_served_job *job, const rd_request *request, rd_verdict *verdict);
void rd_board_seat(rd_served_job *job, const rd_request *request, int fd);
/* [locked] Serves the table of one communicator, until all have left it or rd_served_job_end. */
rondo_result rd_serve_job_once(const rd_job *job);
void rd_served_job_end(const unsigned char id[16]); /* [locked] only of such a job */
void rd_served_job_forget(rd_served_job *job);      /* [locked] without boards */
void rd_boards_end(rd_served_job *job);             /* [locked] */
/* The root of an environment's job: opens the meeting point that the environment names, and the table. */
rondo_result rd_serve_environment_job(const rd_job *job, const rd_settings *settings);

/* ---- Members (member.c) ---- */

/* [locked] */
const rd_job *rd_member_job_find(const unsigned char id[16]);
void rd_member_admit(const unsigned char job_id[16], const rd_request *request, rd_verdict *verdict);
void rd_member_take(const unsigned char job_id[16], const rd_request *request, int fd);
/* [locked] Wakes all who wait for a peer. */
void rd_members_wake(void);
/* At exit(): every member says goodbye. [locked] */
void rd_members_exit(int64_t deadline);

#endif
