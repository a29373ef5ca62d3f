/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memory.h"
#include "base/process.h"

#include "base/hash.h"
#include "base/shared.h"
#include "base/status.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct allocation {
    struct allocation *next;
    unsigned char *address; /* the user's */
    rd_memory_id id;
    int fd;
} allocation;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
RD_HOLD_AT_FORK(lock)
static allocation *allocations;

static size_t mapped_bytes(const rd_memory_id *id) { return RD_MEMORY_HEAD + id->bytes; }

rondo_result rd_memory_alloc(size_t bytes, void **address)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *head;
    allocation *made = malloc(sizeof *made);
    if (!made) return rd_fail_errno("no memory for the list of allocations");
    made->id.bytes = (bytes + page - 1) / page * page + (bytes ? 0 : page);
    rondo_result result = rd_shared_create("rondo memory", mapped_bytes(&made->id), &head, &made->fd);
    if (result != RONDO_SUCCESS) {
        free(made);
        return result;
    }
    madvise(head, mapped_bytes(&made->id), MADV_DOFORK); /* it is the user's: a forked child may read it */
    rd_random(made->id.words, sizeof made->id.words);
    made->id.words[0] |= 1;
    memcpy(head, made->id.words, sizeof made->id.words);
    *address = made->address = (unsigned char *)head + RD_MEMORY_HEAD;
    pthread_mutex_lock(&lock);
    made->next = allocations;
    allocations = made;
    pthread_mutex_unlock(&lock);
    return RONDO_SUCCESS;
}

rondo_result rd_memory_free(void *address)
{
    pthread_mutex_lock(&lock);
    allocation **at = &allocations;
    while (*at && (*at)->address != address) at = &(*at)->next;
    allocation *found = *at;
    if (found) *at = found->next;
    pthread_mutex_unlock(&lock);
    if (!found)
        return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_mem_free: ptr is %p, which rondo_mem_alloc did not return or which was "
                       "freed already", address);
    /* Peers may have it mapped: their mapping stays, its pages do not. */
    fallocate(found->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)mapped_bytes(&found->id));
    rd_shared_unmap(found->address - RD_MEMORY_HEAD, mapped_bytes(&found->id));
    close(found->fd);
    free(found);
    return RONDO_SUCCESS;
}

bool rd_memory_find(const void *address, size_t bytes, rd_memory_id *id, uint64_t *offset, int *fd)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (const allocation *a = allocations; a && !found; a = a->next) {
        uintptr_t from = (uintptr_t)a->address, at = (uintptr_t)address;
        if (at < from || at - from > a->id.bytes || bytes > a->id.bytes - (at - from)) continue;
        *id = a->id;
        *offset = at - from;
        *fd = a->fd;
        found = true;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

bool rd_memory_exists(const rd_memory_id *id)
{
    pthread_mutex_lock(&lock);
    const allocation *a = allocations;
    while (a && memcmp(&a->id, id, sizeof *id) != 0) a = a->next;
    pthread_mutex_unlock(&lock);
    return a != NULL;
}

rondo_result rd_memory_map(int fd, const rd_memory_id *id, void **address)
{
    void *head;
    RD_TRY(rd_shared_map(fd, mapped_bytes(id), &head));
    *address = (unsigned char *)head + RD_MEMORY_HEAD;
    if (rd_memory_alive(*address, id)) return RONDO_SUCCESS;
    rd_memory_unmap(*address, id);
    return rd_fail(RONDO_REMOTE_ERROR, "a peer's memory is not the one it named, or was freed while a call used it");
}

bool rd_memory_alive(const void *address, const rd_memory_id *id)
{
    const uint64_t *words = (const uint64_t *)(const void *)((const unsigned char *)address - RD_MEMORY_HEAD);
    return __atomic_load_n(&words[0], __ATOMIC_RELAXED) == id->words[0] &&
           __atomic_load_n(&words[1], __ATOMIC_RELAXED) == id->words[1];
}

void rd_memory_unmap(void *address, const rd_memory_id *id)
{
    rd_shared_unmap((unsigned char *)address - RD_MEMORY_HEAD, mapped_bytes(id));
}
