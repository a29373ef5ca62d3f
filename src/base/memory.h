/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.h - memory of the user's that other processes can be given access to. One list for the process: memory may
 * serve any communicator.
 *
 * An allocation is shared memory with a page of its own ahead of what the user gets. That page holds the id by which
 * others know it; when the allocation is freed its pages go back to the system at once, and whoever still maps it reads
 * zeros there and knows.
 */
#ifndef RD_BASE_MEMORY_H
#define RD_BASE_MEMORY_H

#include "rondo.h"

#include <stdbool.h>

#define RD_MEMORY_HEAD 4096 /* bytes ahead of the user's */

/* What a peer needs to know of an allocation. Plain data. */
typedef struct rd_memory_id {
    uint64_t words[2]; /* random, never zero */
    uint64_t bytes;    /* of the user's part */
} rd_memory_id;

rondo_result rd_memory_alloc(size_t bytes, void **address);
rondo_result rd_memory_free(void *address); /* RONDO_INVALID_ARGUMENT: not an allocation */

/* Whether [address, address + bytes) lies in one allocation; then its id, the offset in the user's part, and a
 * descriptor that is valid until the allocation is freed. */
bool rd_memory_find(const void *address, size_t bytes, rd_memory_id *id, uint64_t *offset, int *fd);

bool rd_memory_exists(const rd_memory_id *id); /* an allocation of this process, not freed */

/* Another process's allocation, from its descriptor (which stays the caller's). RONDO_REMOTE_ERROR: it was freed. */
rondo_result rd_memory_map(int fd, const rd_memory_id *id, void **address);
bool rd_memory_alive(const void *address, const rd_memory_id *id); /* mapped address; false: freed by its owner */
void rd_memory_unmap(void *address, const rd_memory_id *id);

#endif
