/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/direct.h"

#include "base/sock.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What stands in a descriptor. Both ends are on one host. */
typedef struct place {
    rd_memory_id id;
    uint64_t offset, bytes;
} place;
_Static_assert(sizeof(place) <= 128, "a descriptor has 128 bytes");

static rd_direct_map *find(const rd_direct *direct, const rd_memory_id *id)
{
    for (int i = 0; i < direct->count; i++)
        if (!memcmp(&direct->known[i].id, id, sizeof *id)) return &direct->known[i];
    return NULL;
}

static rd_direct_map *add(rd_direct *direct, const rd_memory_id *id, void *address)
{
    if (direct->count == direct->room) {
        int room = direct->room ? 2 * direct->room : 8;
        rd_direct_map *more = realloc(direct->known, (size_t)room * sizeof *more);
        if (!more) return NULL;
        direct->known = more;
        direct->room = room;
    }
    direct->known[direct->count] = (rd_direct_map){*id, address};
    return &direct->known[direct->count++];
}

/* Sending end: what is no allocation any more will not be asked for again. */
static void forget_freed(rd_direct *direct)
{
    int kept = 0;
    for (int i = 0; i < direct->count; i++)
        if (rd_memory_exists(&direct->known[i].id)) direct->known[kept++] = direct->known[i];
    direct->count = kept;
}

rondo_link_result rd_direct_register(rd_direct *direct, const void *ptr, size_t bytes, unsigned char descriptor[128])
{
    place at = {.bytes = bytes};
    int fd;
    size_t put;
    if (direct->socket < 0 || !rd_memory_find(ptr, bytes, &at.id, &at.offset, &fd)) return RONDO_LINK_AGAIN;
    if (!find(direct, &at.id)) {
        forget_freed(direct);
        rd_direct_map *known = add(direct, &at.id, NULL);
        if (!known) return RONDO_LINK_AGAIN;
        /* A message of this size goes whole or not at all. */
        if (rd_sock_write(direct->socket, &at.id, sizeof at.id, &put, &fd, 1) != RONDO_SUCCESS || put != sizeof at.id) {
            direct->count--;
            return RONDO_LINK_AGAIN;
        }
    }
    memcpy(descriptor, &at, sizeof at);
    return RONDO_LINK_OK;
}

/* Takes in the descriptors that have come. */
static rondo_link_result take_in(rd_direct *direct)
{
    for (;;) {
        rd_memory_id id;
        size_t got;
        int fd, fds = 1;
        void *address;
        rondo_result result = rd_sock_read(direct->socket, &id, sizeof id, &got, &fd, &fds);
        if (result == RONDO_IN_PROGRESS) return RONDO_LINK_OK;
        if (result != RONDO_SUCCESS) return RONDO_LINK_BROKEN;
        if (got != sizeof id || fds != 1) {
            if (fds == 1) close(fd);
            rd_fail(RONDO_REMOTE_ERROR, "a peer named memory in %zu bytes and %d descriptors, expected were %zu and 1", got, fds,
                    sizeof id);
            return RONDO_LINK_BROKEN;
        }
        result = rd_memory_map(fd, &id, &address);
        close(fd);
        if (result == RONDO_REMOTE_ERROR) continue; /* freed before any slice named it */
        if (result != RONDO_SUCCESS) return RONDO_LINK_BROKEN;
        if (!add(direct, &id, address)) {
            rd_memory_unmap(address, &id);
            rd_fail_errno("no memory for the list of a peer's memory");
            return RONDO_LINK_BROKEN;
        }
    }
}

rondo_link_result rd_direct_import(rd_direct *direct, const unsigned char descriptor[128], size_t bytes,
                                     void **address)
{
    place at;
    memcpy(&at, descriptor, sizeof at);
    rd_direct_map *known = find(direct, &at.id);
    if (!known) {
        rd_direct_sweep(direct);
        rondo_link_result result = direct->socket < 0 ? RONDO_LINK_BROKEN : take_in(direct);
        if (result != RONDO_LINK_OK) return result;
        known = find(direct, &at.id);
    }
    if (!known || at.offset > at.id.bytes || at.bytes > at.id.bytes - at.offset || bytes > at.bytes) {
        rd_fail(RONDO_REMOTE_ERROR,
                "a peer named memory that it did not hand over, or too little: [%llu, +%llu) of %llu bytes where %zu are used",
                (unsigned long long)at.offset, (unsigned long long)at.bytes, (unsigned long long)at.id.bytes, bytes);
        return RONDO_LINK_BROKEN;
    }
    *address = (unsigned char *)known->address + at.offset;
    return RONDO_LINK_OK;
}

void rd_direct_sweep(rd_direct *direct)
{
    int kept = 0;
    for (int i = 0; i < direct->count; i++) {
        rd_direct_map *map = &direct->known[i];
        if (map->address && !rd_memory_alive(map->address, &map->id)) rd_memory_unmap(map->address, &map->id);
        else direct->known[kept++] = *map;
    }
    direct->count = kept;
}

void rd_direct_close(rd_direct *direct)
{
    for (int i = 0; i < direct->count; i++)
        if (direct->known[i].address) rd_memory_unmap(direct->known[i].address, &direct->known[i].id);
    free(direct->known);
    if (direct->socket >= 0) close(direct->socket);
    *direct = (rd_direct){.socket = -1};
}
