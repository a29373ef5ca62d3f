/* SPDX-License-Identifier: Apache-2.0
 *
 * unmap.h - to be told when this process gives up memory that others still know by address: munmap, mremap, madvise, and
 * what free does of them.
 *
 * A kernel facility made for others (userfaultfd) does this without taking over any function of the C library: a range
 * is watched, and who unmaps a part of it waits until a thread of ours has read that. The thread reads while it holds
 * the caller's lock. So whoever takes the lock after an munmap has returned finds what the munmap meant already done.
 * Whoever holds the lock must therefore not unmap, allocate or free anything: he would wait for himself.
 */
#ifndef RD_BASE_UNMAP_H
#define RD_BASE_UNMAP_H

#include "rondo.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* [from, to) is no longer what it was. Called with the lock held. */
typedef void (*rd_unmap_fn)(uintptr_t from, uintptr_t to);

/* One at a time in a process. False: this kernel or container does not allow it (this thread's last error). */
bool rd_unmap_open(pthread_mutex_t *lock, rd_unmap_fn unmapped);
void rd_unmap_close(void);

/* Whole pages. False: this kind of memory cannot be watched. */
bool rd_unmap_watch(uintptr_t from, uintptr_t to);
/* Harmless for what is not watched. */
void rd_unmap_forget(uintptr_t from, uintptr_t to);

#endif
