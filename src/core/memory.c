/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c - memory that neighbours can reach. One list for the process: memory may serve any communicator.
 */
#include "base/shared.h"
#include "core/comm.h"

#include <stdlib.h>
#include <unistd.h>

typedef struct rd_memory {
    struct rd_memory *next;
    void *address;
    size_t bytes;
    int fd; /* what a link hands to a peer that shall map it */
} rd_memory;

typedef struct rd_registration {
    struct rd_registration *next;
    const rondo_comm *comm;
    void *address;
    size_t bytes;
} rd_registration;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static rd_memory *allocations;
static rd_registration *registrations;

static size_t whole_pages(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return bytes ? (bytes + page - 1) / page * page : page;
}

rondo_result rondo_mem_alloc(void **ptr, size_t bytes, rondo_comm *comm)
{
    (void)comm;
    if (!ptr) return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_mem_alloc: ptr is NULL; it must point to where the address goes");
    if (bytes > (size_t)PTRDIFF_MAX - 65536)
        return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_mem_alloc: bytes is %zu; it must be 0 to %zu", bytes,
                       (size_t)PTRDIFF_MAX - 65536);
    rd_memory *memory = malloc(sizeof *memory);
    if (!memory) return rd_fail_errno("rondo_mem_alloc: no memory for its own list");
    memory->bytes = whole_pages(bytes);
    rondo_result result = rd_shared_create("rondo memory", memory->bytes, &memory->address, &memory->fd);
    if (result != RONDO_SUCCESS) {
        free(memory);
        return result;
    }
    pthread_mutex_lock(&lock);
    memory->next = allocations;
    allocations = memory;
    pthread_mutex_unlock(&lock);
    *ptr = memory->address;
    return RONDO_SUCCESS;
}

rondo_result rondo_mem_free(void *ptr, rondo_comm *comm)
{
    (void)comm;
    if (!ptr) return RONDO_SUCCESS;
    pthread_mutex_lock(&lock);
    rd_memory **at = &allocations;
    while (*at && (*at)->address != ptr) at = &(*at)->next;
    rd_memory *memory = *at;
    if (memory) *at = memory->next;
    pthread_mutex_unlock(&lock);
    if (!memory)
        return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_mem_free: ptr is %p, which rondo_mem_alloc did not return or which "
                       "was freed already", ptr);
    rd_shared_unmap(memory->address, memory->bytes);
    close(memory->fd);
    free(memory);
    return RONDO_SUCCESS;
}

/* No link there is can register memory yet; what is registered is remembered for those that will. */
rondo_result rondo_register(void *ptr, size_t bytes, rondo_comm *comm)
{
    if (!comm) return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_register: comm is NULL; it must come from a rondo_init call");
    if (!ptr || !bytes)
        return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_register: [%p, +%zu) is no memory; ptr must not be NULL, bytes not 0",
                       ptr, bytes);
    rd_registration *entry = malloc(sizeof *entry);
    if (!entry) return rd_fail_errno("rondo_register: no memory for its own list");
    pthread_mutex_lock(&lock);
    *entry = (rd_registration){registrations, comm, ptr, bytes};
    registrations = entry;
    pthread_mutex_unlock(&lock);
    return RONDO_SUCCESS;
}

rondo_result rondo_deregister(void *ptr, rondo_comm *comm)
{
    if (!comm) return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_deregister: comm is NULL; it must come from a rondo_init call");
    pthread_mutex_lock(&lock);
    rd_registration **at = &registrations;
    while (*at && ((*at)->address != ptr || (*at)->comm != comm)) at = &(*at)->next;
    rd_registration *entry = *at;
    if (entry) *at = entry->next;
    pthread_mutex_unlock(&lock);
    if (!entry)
        return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_deregister: ptr is %p, which is not registered with this communicator", ptr);
    free(entry);
    return RONDO_SUCCESS;
}

void rd_comm_forget_memory(const rondo_comm *comm)
{
    pthread_mutex_lock(&lock);
    for (rd_registration **at = &registrations; *at;) {
        rd_registration *entry = *at;
        if (entry->comm != comm) {
            at = &entry->next;
            continue;
        }
        *at = entry->next;
        free(entry);
    }
    pthread_mutex_unlock(&lock);
}
