/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_shared.h - GPU memory that another rank of the host reaches, in the same process or another one. One rank makes
 * it on its GPU; the other opens it for its own GPU, the same or one with a way to it.
 *
 *   by descriptor  memory of cuMemCreate, exported as a file descriptor. It stays as long as anyone has it mapped, and
 *                  works across containers: whatever order the two close in, and whoever dies, nobody's kernel
 *                  writes to memory that has become somebody else's.
 *   by handle      memory of cuMemAlloc and its IPC handle, where a GPU has no descriptors; for two processes only.
 *   by address     the same within one process, with peer access.
 *
 * The latter two belong to the maker: he may close them only after the opener has (rd_gpu_shared_outlives).
 */
#ifndef RD_BASE_GPU_SHARED_H
#define RD_BASE_GPU_SHARED_H

#include "base/gpu.h"

enum { RD_GPU_BY_DESCRIPTOR = 1, RD_GPU_BY_HANDLE = 2, RD_GPU_BY_ADDRESS = 4 };

typedef struct rd_gpu_shared {
    rd_cu_address address;
    size_t bytes;
    int device;
    unsigned way;
    bool made; /* here; else opened */
} rd_gpu_shared;

/* What the maker tells the opener; a descriptor goes with it where that is the way. Plain data. */
typedef struct rd_gpu_ticket {
    uint64_t bytes;
    uint32_t way;
    char uuid[16]; /* of the maker's GPU */
    union {
        rd_cu_address address;
        rd_cu_ipc_memory handle;
    } where;
} rd_gpu_ticket;

/* The ways that a GPU can go, both as maker and as opener. */
unsigned rd_gpu_shared_ways(int device, bool one_process);

/* At least `bytes` bytes, 256-aligned and zero, by the best of `ways`. *fd: the descriptor for the opener, or -1. */
rondo_result rd_gpu_shared_make(int device, size_t bytes, unsigned ways, rd_gpu_shared *made, rd_gpu_ticket *ticket,
                                int *fd);
/* For kernels and copies of `device`. Refuses a ticket of less than `least` bytes. fd stays the caller's. */
rondo_result rd_gpu_shared_open(int device, const rd_gpu_ticket *ticket, int fd, size_t least, rd_gpu_shared *opened);
/* What uses it must be done. By handle and by address the driver waits for all else that the GPU was given, too, which
 * may be a kernel of another communicator that waits for this rank: one more reason for descriptors. */
void rd_gpu_shared_close(rd_gpu_shared *memory);

/* Whether memory that was made here stays until the opener has closed it, too. */
static inline bool rd_gpu_shared_outlives(const rd_gpu_shared *memory)
{
    return memory->way == RD_GPU_BY_DESCRIPTOR;
}

/* The GPU of this process with that uuid; -1: none that it sees. */
int rd_gpu_by_uuid(const char uuid[16]);

/* Host memory, whole pages, for kernels of every GPU of this process, at the same address. */
rondo_result rd_gpu_pin(int device, void *address, size_t bytes);
void rd_gpu_unpin(int device, void *address);

#endif
