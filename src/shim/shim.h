/* SPDX-License-Identifier: Apache-2.0
 *
 * shim.h - NCCL's interface over Rondo's: libnccl.so.2 for programs that were written for the other one.
 *
 *   comm.c       handles: which there are, who is inside a call on one, what state they are in; results and errors
 *   make.c       communicators by an id, by a split, by a shrink: now, with a group, or in the background
 *   end.c        finalize, destroy, abort, revoke
 *   group.c      what a group keeps until it ends
 *   calls.c      collectives and messages
 *   memory.c     memory, registrations, windows, operators
 *   stream.c     which stream of ours stands for a CUDA stream
 *   variables.c  NCCL_ environment variables
 *   words.c      our names in errors are NCCL's
 *
 * A user of the public headers, and of base for errors, settings and the GPU.
 */
#ifndef RD_SHIM_SHIM_H
#define RD_SHIM_SHIM_H

#include "base/status.h"
#include "rondo.h"

#pragma GCC visibility push(default)
#include "compat/nccl.h"
#pragma GCC visibility pop

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Before a function's definition: its name is weak, and the name with a p is the function's, too. So a profiler may
 * define the first and call the second. */
#define RD_NCCL(name)                                                                                                  \
    extern __typeof__(name) name __attribute__((weak));                                                                \
    extern __typeof__(name) p##name __attribute__((alias(#name)))

/* ---- comm.c ---- */

typedef struct rd_registered rd_registered;
typedef struct rd_standing rd_standing;
typedef struct rd_use rd_use;

struct ncclComm {
    struct ncclComm *next; /* of all that there are */
    int users;             /* threads inside a call on it */
    rondo_comm *inner;     /* NULL: it is not made yet, or could not be */
    int rank, size, device, blocking;
    bool finalized;
    _Atomic bool revoked; /* also while another thread is inside a call */
    bool abandoned;            /* its maker is to free it */
    _Atomic int making;        /* RONDO_IN_PROGRESS while a thread of ours makes it; then that thread's result */
    _Atomic int children;      /* that threads of ours make of it */
    char why[RD_ERROR_BYTES];  /* it could not be made */
    rd_registered *registered; /* memory.c */
    rd_use *uses;              /* stream.c */
};

/* What a call returns: NCCL's result for ours. A failure's text names `function` and is the last error of this thread
 * and of the process; a group that is open will not run. */
ncclResult_t rd_shim_result(const char *function, rondo_result result);

/* A new handle, known from now on, and held by its maker; NULL: no memory, last error set. */
ncclComm_t rd_shim_new(int rank, int size, int blocking, int device);
/* Frees one that nobody is inside and that has no communicator. */
void rd_shim_free(ncclComm_t comm);
/* By its maker, instead of leaving: no handle any more, and freed with its communicator; unless someone has taken it. */
void rd_shim_withdraw(ncclComm_t comm);
/* RONDO_INVALID_ARGUMENT: this is no handle. Until rd_shim_leave it stays. */
rondo_result rd_shim_hold(ncclComm_t comm);
/* The same, and it is ready for calls. */
rondo_result rd_shim_enter(ncclComm_t comm);
void rd_shim_leave(ncclComm_t comm);
/* Ends the calls on it, here and elsewhere with these words; when this returns all others that held it have left. By one
 * who holds it. */
rondo_result rd_shim_interrupt(ncclComm_t comm, const char *why);
/* Makes the handle unknown; `aborts` ends the calls on it. The caller owns it then, when all others have left; false: a
 * thread that makes it does. */
rondo_result rd_shim_take(ncclComm_t comm, bool aborts, bool *taken);
/* RONDO_IN_PROGRESS, RONDO_SUCCESS, or why it cannot be used. */
rondo_result rd_shim_state(ncclComm_t comm);
/* By the thread that made it: false: it was abandoned. */
bool rd_shim_made(ncclComm_t comm, rondo_comm *inner, rondo_result result);

rondo_result rd_shim_null(const char *what);

/* ---- make.c ---- */

/* A communicator that is to be made. */
typedef struct rd_making {
    enum { RD_MAKE_JOIN, RD_MAKE_SPLIT, RD_MAKE_SHRINK } how;
    struct rd_making *next; /* in a group */
    ncclComm_t comm;        /* NULL: a split without a colour */
    ncclComm_t *out;
    ncclComm_t parent; /* held */
    rondo_config config;
    rondo_unique_id id;
    int color, key;
    int *exclude, excluded;
    bool aborts; /* the calls on the parent, first */
    bool blocking;
    pthread_t thread;
    bool threaded;
    rondo_result result;
    char why[RD_ERROR_BYTES];
} rd_making;

/* All of them, and frees them. RONDO_IN_PROGRESS: some go on in the background. */
rondo_result rd_makings_run(rd_making *list);
/* Without having made anything. */
void rd_makings_drop(rd_making *list);

/* ---- end.c ---- */

typedef struct rd_ending {
    struct rd_ending *next;
    ncclComm_t comm;
    bool aborts;
} rd_ending;
rondo_result rd_shim_end(ncclComm_t comm, bool aborts);

/* ---- group.c ---- */

bool rd_shim_grouped(void);
/* A call of the group was refused: nothing of it will run. */
void rd_shim_refuse(ncclResult_t result);
/* A communicator with a call in the group, and the CUDA stream of that call (NULL: none): it is held while the group
 * runs. *stream becomes that of its first call, in whose order all run; another one waits for them. */
rondo_result rd_shim_keep_party(ncclComm_t comm, cudaStream_t *stream);
/* Kept until the group ends. */
void rd_shim_keep_making(rd_making *making);
rondo_result rd_shim_keep_ending(ncclComm_t comm, bool aborts);

/* ---- memory.c ---- */

void rd_shim_forget_memory(ncclComm_t comm);

/* ---- stream.c ---- */

bool rd_shim_on_gpu(ncclComm_t comm);
/* For a call with these buffers; NULL: it runs here. */
rondo_result rd_shim_stream(cudaStream_t stream, ncclComm_t comm, const void *send, const void *recv,
                            rondo_stream **on);
/* What comes on a CUDA stream waits for what is on another one, of the same GPU. */
rondo_result rd_shim_follow(int device, cudaStream_t stream, cudaStream_t other);
/* After its end. */
void rd_shim_forget_streams(ncclComm_t comm);
/* The GPU that a communicator made now belongs to; RONDO_DEVICE_AUTO where there is none. */
int rd_shim_current_device(void);

/* ---- variables.c ---- */

/* Once: passes on what NCCL_ variables ask for, and says which mean nothing here. */
void rd_shim_variables(void);
/* Once, where NCCL_DEBUG asks for it. */
void rd_shim_tell_version(void);
/* NCCL_COMM_BLOCKING. */
int rd_shim_blocks(void);
/* NCCL_COMM_ID: where rank 0 listens; NULL: it is not set. */
const char *rd_shim_meeting_point(void);
/* The next NCCL_ variable from the *i-th on, which it moves on, that gave one of our settings its value: its name. NULL:
 * no further one. value: NULL where the two have one notation, else what it is set to. */
const char *rd_shim_followed(int *i, const char **ours, const char **value);
/* NCCL_DEBUG, read again. */
void rd_shim_debug(void);

/* ---- words.c ---- */

void rd_shim_translate(char text[RD_ERROR_BYTES]);

#endif
