/* SPDX-License-Identifier: Apache-2.0
 *
 * device.h - a GPU as one rank uses it: an engine that carries out passes and copies by kernels, on a stream of its
 * own. device.c         opening it: what ranks of this process share of a GPU, and what each has for itself
 *   device_engine.c  the engine
 *   device_ring.c    ring kernels
 *   device_peers.c   transfers as one kernel
 *   device_memory.c  what memory is, and making it reachable for the GPU
 *
 * Any thread may use it, one at a time. All kernels are loaded when it is opened, and nothing that an engine does waits
 * for the GPU.
 */
#ifndef RD_REDUCE_DEVICE_H
#define RD_REDUCE_DEVICE_H

#include "base/gpu_mark.h"
#include "reduce/engine.h"

#include <stdatomic.h>

typedef struct rd_device rd_device;

/* A GPU by its number in this process. RONDO_INVALID_USAGE: it cannot serve (no such GPU, no kernels in this build). */
rondo_result rd_device_open(rd_device **device, int ordinal);
/* Waits for what it was given. NULL is fine. */
void rd_device_close(rd_device *device);
int rd_device_ordinal(const rd_device *device);
rd_engine *rd_device_engine(rd_device *device);
/* The number of the GPU whose context is current in this thread; -1: none, and the driver need not even be loaded. */
int rd_device_current(void);

/* ---- Memory ---- */

typedef enum rd_reach {
    RD_REACH_HOST = 0, /* plain memory: the CPU alone */
    RD_REACH_GPU,      /* the GPU; the CPU perhaps too, which nobody asks */
    RD_REACH_OTHER     /* another GPU's memory */
} rd_reach;

/* What lies at [ptr, ptr + bytes), as seen from a GPU, or with ordinal -1 from the host; *owner: the GPU that has it,
 * where RD_REACH_OTHER. Pinned memory that ends within the range counts as plain. */
rd_reach rd_device_reach(int ordinal, const void *ptr, size_t bytes, int *owner);

/* Makes host memory reachable for every GPU of this process, at the same address, whole pages of it; undone as often as
 * done. The pages must be nobody else's. */
rondo_result rd_device_pin(rd_device *device, void *base, size_t bytes);
void rd_device_unpin(void *base);

/* `bytes` of memory: the GPU's, zeroed; or the host's, that the GPU reaches. */
rondo_result rd_device_alloc(rd_device *device, size_t bytes, void **ptr);
rondo_result rd_device_free(int ordinal, void *ptr);
rondo_result rd_device_alloc_host(rd_device *device, size_t bytes, void **ptr);
void rd_device_free_host(rd_device *device, void *ptr);

/* Copies between any two kinds of memory, and waits until it is done. */
rondo_result rd_device_move(rd_device *device, void *to, const void *from, size_t bytes);

/* ---- Of this layer ---- */

/* What the ranks of a process share: the primary context, and the kernels in it. */
typedef struct rd_gpu {
    struct rd_gpu *next;
    int ordinal, users; /* ranks, and memory that they have */
    rd_cu_context context;
    rd_cu_module module;
    rd_cu_function reduce[RONDO_DTYPES];
    int threads[RONDO_DTYPES]; /* of a block */
    rd_cu_function ring[RONDO_DTYPES];
    int ring_threads[RONDO_DTYPES];
    rd_cu_function peers;
    int peers_threads;
    int resident;     /* blocks that are so at the same time, of any kernel that waits for peers */
    atomic_int taken; /* of them, by ranks */
    int multiprocessors;
    bool counts; /* its streams can write to memory */
} rd_gpu;

enum { RD_MARKS = 64 };

struct rd_device {
    rd_engine engine;
    rd_gpu *gpu;
    rd_cu_stream stream;
    uint64_t *counter; /* the latest ticket that is done: the stream stores it there */
    /* Where streams cannot store: events behind some tickets, oldest first. */
    rd_cu_event events[RD_MARKS];
    uint64_t marks[RD_MARKS]; /* their tickets */
    uint64_t marked, passed;  /* so many were set, and have come */
    struct rd_device_ring *ring;   /* host memory that ring kernels reach */
    struct rd_device_peers *peers; /* ... and those of transfers */
    int taken;                     /* resident blocks that it has taken */
    rd_gpu_marks legacy;      /* for the legacy stream of its context, where the caller's work may be */
};

extern const struct rd_engine_ops rd_device_engine_ops;

/* Takes resident blocks, `blocks` in all, which stay its until it is closed. Ranks of this process that share the GPU share
 * what is resident, in the order in which they come; those of other processes take turns with it. Half is left to the
 * user's kernels. */
bool rd_device_take(rd_device *device, int blocks);
void rd_device_drop(rd_device *device);

/* Ring kernels (device_ring.c). */
rondo_result rd_gpu_load_ring(rd_gpu *gpu);
struct rd_ring_args *rd_device_ring_room(rd_engine *engine);
rondo_result rd_device_ring(rd_engine *engine, rondo_dtype type, int count, int threads);
bool rd_device_ring_take(rd_engine *engine, int channels, int ranks);
size_t rd_device_ring_bytes(void);

/* Transfers (device_peers.c). Loaded after the ring's. */
rondo_result rd_gpu_load_peers(rd_gpu *gpu);
struct rd_peers_args *rd_device_peers_room(rd_engine *engine, int wires, int transfers);
rondo_result rd_device_peers(rd_engine *engine, int wires, int threads);
size_t rd_device_peers_bytes(void);

/* The engine's next work (device_engine.c). stop: of one that waits for peers the word at which it gives up; else NULL. */
rondo_result rd_device_launch(rd_device *device, rd_cu_function kernel, int blocks, int threads, void *args,
                              uint32_t *stop);

/* Another user of a GPU, which is opened by the first and closed by the last. */
rondo_result rd_gpu_take(rd_gpu **gpu, int ordinal);
void rd_gpu_drop(rd_gpu *gpu);
/* Makes its context current in this thread, and back. */
rondo_result rd_gpu_push(const rd_gpu *gpu);
void rd_gpu_pop(void);

#endif
