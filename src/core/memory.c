/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c - memory that neighbours can reach, and what is registered.
 */
#include "base/memory.h"
#include "base/process.h"
#include "core/comm.h"
#include "reduce/device.h"

#include <stdlib.h>

typedef struct rd_registration {
    struct rd_registration *next;
    const rondo_comm *comm;
    void *address;
    size_t bytes;
} rd_registration;

/* Memory of a GPU that rondo_mem_alloc returned. */
typedef struct rd_on_gpu {
    struct rd_on_gpu *next;
    void *address;
    int ordinal;
} rd_on_gpu;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
RD_HOLD_AT_FORK(lock)
static rd_registration *registrations;
static rd_on_gpu *on_gpus;

static rondo_result alloc_on_gpu(void **ptr, size_t bytes, rd_device *device)
{
    rd_on_gpu *made = malloc(sizeof *made);
    if (!made) return rd_fail_errno("rondo_mem_alloc: no memory for its own list");
    rondo_result result = rd_device_alloc(device, bytes, ptr);
    if (result != RONDO_SUCCESS) {
        free(made);
        return result;
    }
    pthread_mutex_lock(&lock);
    *made = (rd_on_gpu){on_gpus, *ptr, rd_device_ordinal(device)};
    on_gpus = made;
    pthread_mutex_unlock(&lock);
    return RONDO_SUCCESS;
}

/* NULL: it is none. */
static rd_on_gpu *take_on_gpu(const void *ptr)
{
    pthread_mutex_lock(&lock);
    rd_on_gpu **at = &on_gpus;
    while (*at && (*at)->address != ptr) at = &(*at)->next;
    rd_on_gpu *found = *at;
    if (found) *at = found->next;
    pthread_mutex_unlock(&lock);
    return found;
}

static rondo_result mem_free(void *ptr)
{
    rd_on_gpu *found = take_on_gpu(ptr);
    if (!found) return rd_memory_free(ptr);
    rondo_result result = rd_device_free(found->ordinal, ptr);
    free(found);
    return result;
}

static rondo_result mem_alloc(void **ptr, size_t bytes, rondo_comm *comm)
{
    if (!ptr)
        return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_mem_alloc: ptr is NULL; it must point to where the address goes");
    if (bytes > (size_t)PTRDIFF_MAX - 65536)
        return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_mem_alloc: bytes is %zu; it must be 0 to %zu", bytes,
                       (size_t)PTRDIFF_MAX - 65536);
    return comm && comm->device ? alloc_on_gpu(ptr, bytes, comm->device) : rd_memory_alloc(bytes, ptr);
}

rondo_result rondo_mem_alloc(void **ptr, size_t bytes, rondo_comm *comm)
{
    return rd_comm_note(comm, mem_alloc(ptr, bytes, comm));
}

rondo_result rondo_mem_free(void *ptr, rondo_comm *comm)
{
    return rd_comm_note(comm, ptr ? mem_free(ptr) : RONDO_SUCCESS);
}

/* Private pages cannot be shared on one host, and no other link there is can register memory yet: what is registered is
 * remembered for those that will. */
rondo_result rondo_register(void *ptr, size_t bytes, rondo_comm *comm)
{
    if (!comm)
        return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_register: comm is NULL; it must come from a rondo_init call");
    if (!ptr || !bytes || bytes > UINTPTR_MAX - (uintptr_t)ptr)
        return rd_comm_note(comm, rd_fail(RONDO_INVALID_ARGUMENT,
                                          "rondo_register: [%p, +%zu) is no memory; ptr must not be "
                                          "NULL, bytes not 0, and the range within the address space",
                                          ptr, bytes));
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
    if (!comm)
        return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_deregister: comm is NULL; it must come from a rondo_init call");
    pthread_mutex_lock(&lock);
    rd_registration **at = &registrations;
    while (*at && ((*at)->address != ptr || (*at)->comm != comm)) at = &(*at)->next;
    rd_registration *entry = *at;
    if (entry) *at = entry->next;
    pthread_mutex_unlock(&lock);
    if (!entry)
        return rd_comm_note(comm, rd_fail(RONDO_INVALID_ARGUMENT,
                                          "rondo_deregister: ptr is %p, which is not registered with "
                                          "this communicator",
                                          ptr));
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
