/* SPDX-License-Identifier: Apache-2.0
 *
 * direct.h - the user's memory, reached directly by another process of the host: register_memory and import_memory of
 * shm. An allocation's descriptor travels once, over the socket on which the link was made, ahead of the slice that
 * first names the allocation; so whoever has read that slice finds it there.
 */
#ifndef RD_TRANSPORT_DIRECT_H
#define RD_TRANSPORT_DIRECT_H

#include "base/memory.h"
#include "rondo_transport.h"

typedef struct rd_direct_map {
    rd_memory_id id;
    void *address; /* mapped here (receiving end); NULL on the sending end */
} rd_direct_map;

typedef struct rd_direct {
    int socket; /* -1: none, nothing can be reached directly */
    rd_direct_map *known; /* what the peer was sent, or what was mapped */
    int count, room;
} rd_direct;

/* Sending end. AGAIN: this memory cannot be reached by the peer, now or at all; use slots. */
rondo_link_result rd_direct_register(rd_direct *direct, const void *ptr, size_t bytes, unsigned char descriptor[128]);
/* Receiving end. */
rondo_link_result rd_direct_import(rd_direct *direct, const unsigned char descriptor[128], size_t bytes,
                                     void **address);
/* Receiving end: unmaps what its owner has freed. */
void rd_direct_sweep(rd_direct *direct);
void rd_direct_close(rd_direct *direct);

#endif
