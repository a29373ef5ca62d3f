/* SPDX-License-Identifier: Apache-2.0
 *
 * process.h - what becomes of this process's things in a child that it forks.
 */
#ifndef RD_BASE_PROCESS_H
#define RD_BASE_PROCESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* A number that differs between a process and its forked children. Costs a load. */
extern int rd_generation_now;
static inline int rd_generation(void) { return rd_generation_now; }

/* Whether this process can read the first and the last of so many bytes, at least 1; where the kernel will not say, yes. */
bool rd_is_readable(const void *ptr, size_t bytes);

/* From now on the lock is held while the process forks, so that a child finds it free and what it guards whole. For locks
 * that are held together with no other of these; the service thread's lock comes before them. */
void rd_hold_at_fork(pthread_mutex_t *lock);
#define RD_HOLD_AT_FORK(lock)                                              \
    __attribute__((constructor)) static void hold_##lock##_at_fork(void) \
    {                                                                      \
        rd_hold_at_fork(&(lock));                                          \
    }

#endif
