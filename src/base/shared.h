/* SPDX-License-Identifier: Apache-2.0
 *
 * shared.h - memory that another process can map: sealed, allocated up front, without a name in any file system.
 */
#ifndef RD_BASE_SHARED_H
#define RD_BASE_SHARED_H

#include "rondo.h"

/* `bytes` of zeroed shared memory, and the descriptor that lets others map it (close-on-exec; size sealed). Pages are
 * allocated now, so that a full machine is an error here and not a SIGBUS later. Not inherited by forked children. */
rondo_result rd_shared_create(const char *label, size_t bytes, void **address, int *fd);
/* Maps what a peer created; an fd smaller than `bytes` or not sealed against shrinking is refused. Does not close
 * fd. */
rondo_result rd_shared_map(int fd, size_t bytes, void **address);
void rd_shared_unmap(void *address, size_t bytes);

#endif
