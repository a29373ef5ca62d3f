/* SPDX-License-Identifier: Apache-2.0
 *
 * boot.h - finding each other: jobs, the rendezvous table, authenticated connections, and the service thread.
 *
 *   launch_env.c  rank, world and meeting point from the launcher's environment
 *   job.c         what a unique id or an environment names: job id, key, root's addresses
 *   derive.c      jobs of some of a job's ranks
 *   key.c         the job's key, where the environment names one
 *   auth.c        proof of the key, both ways, before any other byte is parsed; dial.c is its client's side
 *   table.c       the rendezvous table (put, get, fence), seen from a rank
 *   rendezvous.c  its server, run by the service thread of the root
 *   served.c      the jobs whose tables are served here
 *   service.c     the one thread of the process: what it watches, timers, fork and exit
 *   door.c        its listeners, strangers, and the server's side of the handshake
 *   dump.c        whoever asks what this process does
 *   frames.c      its connections that carry messages
 *   member.c      a rank of a communicator, as the service thread sees it: connections to it
 *   routes.c      ... and from it: by which of the other's addresses, from which interface
 *   greet.c       links made on demand: who comes with a greeting is handed on
 *   control.c     the rank's control plane: deaths, goodbyes and other news
 *   pulse.c       ... who is stopped
 *   collect.c     ... what every rank does now
 *   agree.c       ... who goes on without the others
 *   contact.c     what a rank tells the others about reaching it
 *
 * Knows nothing of links, plans or memory. Bytes on the wire: docs/wire.md.
 */
#ifndef RD_BOOT_BOOT_H
#define RD_BOOT_BOOT_H

#include "base/env.h"
#include "base/interface.h"
#include "rondo.h"

#include <stdbool.h>

/* ---- Jobs ---- */

#define RD_ROOTS 12

typedef struct rd_job {
    unsigned char id[16];       /* random (unique id) or a hash of what the environment says */
    unsigned char key[32];      /* all zero: unauthenticated */
    bool has_key;
    uint32_t comm_number;       /* the how-many-th communicator of this job in this process, from 0 */
    int rank, world;
    bool is_root;               /* this process serves the table and has yet to open it (environment jobs) */
    char root[RD_ROOTS][64];    /* where the table may be: "unix:<abstract name>" or "<ip>:<port>", best first */
    int roots;
    int root_port, root_ports;  /* an "<ip>:<port>" stands for root_ports ports from root_port on; the root takes the
                                   first that is free. root_ports 0: no TCP, all ranks are on one host */
    char launcher[16];          /* who said so: "torchrun", "rondo run", ..., "" for a unique id; for messages */
} rd_job;

/* A new unique id, served by this process from now on (starts the service thread). */
rondo_result rd_job_new_id(rondo_unique_id *id, const rd_settings *settings);
/* The id that every process makes of this address ("10.0.0.1:5000"), where rank 0 will serve the table. Its key, if any,
 * is the environment's. */
rondo_result rd_job_id_at(rondo_unique_id *id, const char *address, const rd_settings *settings);
/* RONDO_INVALID_ARGUMENT for a damaged id, one of another version, or a rank out of range. */
rondo_result rd_job_from_id(rd_job *job, const rondo_unique_id *id, int rank, int world, const rd_settings *settings);
/* From the launcher's environment (launch_env.c has the table of those it knows). comm_number counts up per process,
 * job and rank, for ids too. */
rondo_result rd_job_from_env(rd_job *job, const rd_settings *settings);

/* Whether no launcher says that this is another than its host's first rank. */
bool rd_launch_is_first(void);

/* ---- A rank of a communicator, known to the service thread ---- */

typedef struct rd_member rd_member;

#define RD_INTERFACES 8

/* What a rank tells all others about reaching it. Travels in the table, packed. */
typedef struct rd_contact {
    unsigned char process[16];  /* random, one per process (fresh after fork) */
    unsigned char host[32];     /* hint that two ranks may share a host: hash of boot id and network namespace */
    char unix_name[40];         /* abstract socket of the process */
    rd_interface
        interface[RD_INTERFACES]; /* its addresses, in the order of rd_interface_list, with the port of its listener */
    int32_t interfaces;
    int32_t pid;
    char hostname[64];
} rd_contact;

#define RD_CONTACT_BYTES 484
void rd_contact_pack(const rd_contact *contact, unsigned char bytes[RD_CONTACT_BYTES]);
/* RONDO_REMOTE_ERROR when these bytes are no contact. */
rondo_result rd_contact_unpack(rd_contact *contact, const unsigned char bytes[RD_CONTACT_BYTES]);

/* From one rank's process to another's: an address of theirs, and the interface of ours that is on its network. */
typedef struct rd_route {
    int from; /* of the one's interface; -1: whichever the kernel takes */
    int to;   /* of the other's */
    bool own; /* this machine has the same address, so it leads here and not there */
} rd_route;

/* The networks that both are on, as routes, and of these no two with an interface or a network in common: the fastest
 * first, else in the order of there->interface. All who look on find the same. Returns how many. */
int rd_contact_networks(const rd_contact *here, const rd_contact *there, rd_route networks[RD_INTERFACES]);

/* What a rank does now, for the others: opaque here. */
#define RD_REPORT_BYTES 128

/* The first words on a connection that is made on demand. fds travel over unix sockets only. */
typedef struct rd_greeting {
    uint32_t bytes;
    unsigned char data[256];
    int fd_count;
    int fds[4];
} rd_greeting;

/* Called under the service's lock: must not block, nor call anything of this header. NULL: of no interest. The table
 * must outlive the member. */
typedef struct rd_member_ops {
    /* Something ended this communicator for us. result is RONDO_REMOTE_ERROR, RONDO_ABORTED...; text names rank and
     * pid. Once per event: the first says why, others may follow. */
    void (*stop)(void *context, rondo_result result, const char *text);
    /* Somebody left, was stopped, or goes on; whoever waits should ask rd_member_left and rd_member_is_stopped. */
    void (*wake)(void *context);
    /* What this rank does now; the report comes zeroed. */
    void (*report)(void *context, unsigned char report[RD_REPORT_BYTES]);
    /* A peer made this connection by rd_member_visit. Takes over fd, which is non-blocking, and greeting's descriptors.
     * Never before rd_member_set_contacts. */
    void (*greeted)(void *context, int peer, int index, int fd, const rd_greeting *greeting);
} rd_member_ops;

/* Registers this rank with the service thread (started if need be), so that peers can connect to it from now on. */
rondo_result rd_member_open(rd_member **member, const rd_job *job, const rd_settings *settings, rd_contact *contact,
                            const rd_member_ops *ops, void *context);
/* All ranks' contacts, by rank; the member keeps a copy. Before any connect. */
rondo_result rd_member_set_contacts(rd_member *member, const rd_contact *contacts);
/* "rank 2 (pid 1234 on host h)", for messages; "rank 2" as long as no more is known. */
void rd_member_peer_name(const rd_member *member, int rank, char *text, size_t bytes);

/* Over what a connection is made: RD_OVER_UNIX, the peer's abstract socket (same host), or TCP, and then n says which
 * of the networks that both are on is tried first, counted from 0 round and round. */
enum { RD_OVER_UNIX = -1 };

/* An authenticated connection to `peer` for `purpose` (the caller's number, below 65536) and `index`; matched there by
 * rd_member_accept with our rank. Does not wait for the peer's rd_member_accept. The socket is non-blocking and the
 * caller's.
 * RONDO_REMOTE_ERROR as soon as a death is known, RONDO_ABORTED after rd_member_announce; also for accept. */
rondo_result rd_member_connect(rd_member *member, int peer, int purpose, int index, int over, int64_t deadline,
                               int *fd);
/* Waits for the connection that `peer` makes with the same purpose and index. */
rondo_result rd_member_accept(rd_member *member, int peer, int purpose, int index, int64_t deadline, int *fd);

/* Connects as rd_member_connect does, but nobody need wait at the peer: as soon as the greeting, the first bytes on this
 * connection, is there, its service thread hands both to ops->greeted. */
rondo_result rd_member_visit(rd_member *member, int peer, int index, int over, int64_t deadline, int *fd);
/* Takes over none of its descriptors. */
rondo_result rd_greeting_send(int fd, const rd_greeting *greeting, int64_t deadline);

/* Makes the control connections: to ranks at distances of powers of two (both directions, over unix sockets where
 * over_unix[peer], else TCP), each with the other's pidfd on one host. From then on a peer's death reaches `stop`
 * within 2 s, and news of it floods. Collective over the communicator; RONDO_REMOTE_ERROR when a rank dies or leaves
 * meanwhile. */
rondo_result rd_member_start_control(rd_member *member, const bool *over_unix, int64_t deadline);

/* Tells the others, by flooding, that this rank ended the communicator: result and text, with this rank's name before
 * it, reach their `stop`. Any thread; only the first call counts. */
void rd_member_announce(rd_member *member, rondo_result result, const char *text);

/* How many calls this rank has completed; goes out with its goodbye. A peer that left in order after n calls is
 * an error only for call n and later: see rd_member_left. */
void rd_member_completed(rd_member *member, uint64_t calls);
/* true, with who and how, when some rank left in order (destroyed or exited) having completed no more than `calls`
 * calls. */
bool rd_member_left(rd_member *member, uint64_t calls, char *text, size_t bytes);

/* true: this rank died, exited, or destroyed its communicator. One that only ended the communicator for all (by
 * rd_member_announce) lives. */
bool rd_member_is_gone(const rd_member *member, int rank);
/* true: the process of this rank is stopped (SIGSTOP, a debugger), which all ranks know within 2 s; *since_s, which may
 * be NULL: seconds since this rank knows. Not an end: it may go on. */
bool rd_member_is_stopped(rd_member *member, int rank, double *since_s);

typedef struct rd_answer {
    enum { RD_SILENT, RD_ANSWERS, RD_IS_STOPPED, RD_IS_LEFT, RD_IS_DEAD } state;
    unsigned char report[RD_REPORT_BYTES]; /* of a stopped rank the last that a neighbour of it has seen; else zeros */
} rd_answer;

/* Asks every rank for its report (ops->report) and waits until all are accounted for or the deadline, when some are
 * silent: no failure. answers: by rank, `world` of them. Works after the communicator has ended, too. One call at a
 * time asks; another on the same member waits for it. RONDO_INVALID_USAGE in a forked child. */
rondo_result rd_member_collect(rd_member *member, int64_t deadline, rd_answer *answers);

/* Agrees with the surviving ranks on who goes on without the others; works on a communicator that has ended. exclude,
 * by rank: who is left out, whether dead or not, the same on all that take part; NULL: those whom the survivors agree
 * to be gone, also those that go meanwhile. *present, by rank, and *number, which grows with each agreement of this
 * communicator, are the same on all.
 * RONDO_ABORTED within 0.1 s once *stop (NULL: never) is not 0; to the others this rank has not come then.
 * RONDO_TIMEOUT names who did not come, RONDO_MISMATCH two ranks whose lists differ. RONDO_REMOTE_ERROR on all when a
 * rank that is not in the list is gone. One that dies once somebody knows of the agreement is still present on all, and
 * rd_member_is_gone soon. */
rondo_result rd_member_agree(rd_member *member, const bool *exclude, int64_t deadline, const _Atomic int *stop,
                             bool *present, uint64_t *number);

/* Says goodbye, forgets the member. Never waits for a peer. NULL is fine. */
void rd_member_close(rd_member *member);

/* ---- Jobs within jobs ---- */

/* A job of some of the parent's ranks, without new words from outside: its id is made from the parent's and the salt,
 * the same on all and another for each job; its key is the parent's. rank, world: in the child. root: the parent's rank
 * that serves the child's table. Where that is this one, the service thread serves it from now on, until all of the
 * child's ranks have left the table or rd_job_undo. Comes after rd_member_set_contacts; the parent may have ended. */
rondo_result rd_job_derive(rd_job *child, const rd_member *parent, const void *salt, size_t salt_bytes, int root,
                           int rank, int world, const rd_settings *settings);
/* The child will not start, or has: this process no longer serves its table. No harm where it never did. */
void rd_job_undo(const rd_job *child);

/* ---- The table ---- */

typedef struct rd_table rd_table;

/* Joins the job's table (rank 0 of an environment job opens it first). *stop (NULL: never): once it is not 0 this call,
 * and any later one on the table that waits, ends within 0.1 s with RONDO_ABORTED; then only rd_table_close is left.
 * RONDO_SYSTEM_ERROR when this process runs out of descriptors, also while others want to connect to it. */
rondo_result rd_table_open(rd_table **table, const rd_job *job, const rd_settings *settings, int64_t deadline,
                           const _Atomic int *stop);
rondo_result rd_table_put(rd_table *table, const char *key, const void *value, size_t bytes);
/* Returns when all `world` ranks have come to the same fence, or RONDO_TIMEOUT: "2 of 3 joined; missing: rank 2". */
rondo_result rd_table_fence(rd_table *table, int64_t deadline);
/* A value that some rank put before the last fence. */
rondo_result rd_table_get(rd_table *table, const char *key, void *value, size_t bytes);
/* put "<name>/<rank>", fence, get all: all + r * bytes is rank r's. */
rondo_result rd_table_exchange(rd_table *table, const char *name, const void *mine, size_t bytes, void *all,
                               int64_t deadline);
void rd_table_close(rd_table *table);

/* ---- For reports ---- */

/* Whoever connects to the abstract socket "rondo-dump-<pid>" of this process, as our user or as root, gets a descriptor
 * that dump() returned, which is then closed here; -1: none. Where the name is taken it is "rondo-dump-<pid>-1", -2 and
 * so on, to 9. dump is called under the service's lock: it must not block, nor call anything of this header. NULL:
 * none. */
void rd_service_set_dump(int (*dump)(void));

/* Connections from strangers that the service thread has dropped. */
uint64_t rd_service_strangers(void);

#endif
