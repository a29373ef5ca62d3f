/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_memory.h - user memory that is registered with a device, kept for the next time. To register costs more than to
 * copy, so it pays for memory that comes again. What the program unmaps is forgotten at once (base/unmap.h); where the
 * kernel does not tell of that, nothing is registered, and slices go through the link's own memory.
 */
#ifndef RD_TRANSPORT_VERBS_MEMORY_H
#define RD_TRANSPORT_VERBS_MEMORY_H

#include "transport/verbs_device.h"

typedef struct rd_verbs_region rd_verbs_region;

/* The keys to [at, at + bytes) on this device; NULL: it cannot be registered, so copy. `written`: the device will write
 * there. Stays valid until it is put back, whatever the program does. */
const rd_verbs_region *rd_verbs_region_get(rd_verbs_device *device, const void *at, size_t bytes, bool written);
void rd_verbs_region_put(const rd_verbs_region *region);
const struct ibv_mr *rd_verbs_region_mr(const rd_verbs_region *region);

/* A device was opened, or is about to be closed: its regions go. */
void rd_verbs_memory_open(void);
void rd_verbs_memory_close(const rd_verbs_device *device);

/* How often memory was registered, for tests. */
uint64_t rd_verbs_registrations(void);

#endif
