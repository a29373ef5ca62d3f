/* SPDX-License-Identifier: Apache-2.0
 *
 * bell.h - the doorbell of a rank: how a rank sleeps, and how whoever has something for it wakes it.
 *
 * One word in shared memory says how the rank sleeps: 0 it is awake, 1 in a futex on the word, 2 in epoll. With
 * memory links only it is the futex; as soon as a descriptor takes part, epoll on the descriptors and an eventfd.
 *
 *   sleeper                              waker
 *   rd_bell_arm: word = 1 (or 2)         store the data
 *   fence                                fence                      <- rd_bell_ring does this and the rest
 *   look again at every link             read the word; not 0: set it to 0 and wake
 *   rd_bell_sleep                        (tests/model has this as a Spin model, with what breaks without each line)
 */
#ifndef RD_BASE_BELL_H
#define RD_BASE_BELL_H

#include "rondo_transport.h"

#include <stdatomic.h>
#include <stdbool.h>

/* A rank's own bell. Its word lives in a sealed memfd page of its own. */
struct rondo_bell {
    _Atomic uint32_t *word;
    int page_fd;  /* handed to peers on this host, so that they can ring */
    int event_fd; /* likewise */
    int epoll_fd; /* holds event_fd; -1 until a descriptor takes part */
};

rondo_result rd_bell_open(rondo_bell *bell);
/* NULL is fine, and so is a bell that is closed already or all zero. */
void rd_bell_close(rondo_bell *bell);

/* A peer's bell, seen from here. */
typedef struct rd_ringer {
    _Atomic uint32_t *word; /* mapped here, or the bell's own word in one process */
    int event_fd;
    bool mapped;
} rd_ringer;

/* Rings nobody: for a link whose peer is not known yet. */
extern _Atomic uint32_t rd_always_awake;
#define RD_RINGER_NOBODY ((rd_ringer){.word = &rd_always_awake, .event_fd = -1})

/* From the descriptors of a peer's bell, which it takes over, also when it fails. */
rondo_result rd_ringer_open(rd_ringer *ringer, int page_fd, int event_fd);
/* For a bell of this process: keeps a duplicate of its eventfd and a mapping of its page, so that the bell's owner
 * may close it first. */
rondo_result rd_ringer_local(rd_ringer *ringer, const rondo_bell *bell);
void rd_ringer_close(rd_ringer *ringer);

/* A full fence that the thread sanitizer understands too: it knows exchanges, not fences. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RD_THREAD_SANITIZER 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define RD_THREAD_SANITIZER 1
#endif
static inline void rd_fence(void)
{
#ifdef RD_THREAD_SANITIZER
    static _Atomic int exchanged;
    atomic_exchange_explicit(&exchanged, 1, memory_order_seq_cst);
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Wakes the rank if it sleeps. Call it after the store that it shall see. One fence and one load when it is awake. */
void rd_bell_wake(_Atomic uint32_t *word, int event_fd);
static inline void rd_ringer_ring(const rd_ringer *ringer)
{
    rd_fence();
    if (atomic_load_explicit(ringer->word, memory_order_relaxed)) rd_bell_wake(ringer->word, ringer->event_fd);
}
static inline void rd_bell_ring(const rondo_bell *bell) /* own bell, from another thread of this process */
{
    rd_fence();
    if (atomic_load_explicit(bell->word, memory_order_relaxed)) rd_bell_wake(bell->word, bell->event_fd);
}

/* Sleeping: arm, look at everything once more, then sleep or disarm. */
void rd_bell_arm(rondo_bell *bell);
void rd_bell_disarm(rondo_bell *bell);
void rd_bell_sleep(rondo_bell *bell, int64_t timeout_ns); /* returns when rung, at the timeout, or for no reason */

/* Several bells: each sleeps in epoll from its next rd_bell_arm on, so that one sleep can wait for all. */
rondo_result rd_bell_use_epoll(rondo_bell *bell);
/* All of them use epoll and are armed. */
void rd_bells_sleep(rondo_bell *const *bells, int n, int64_t timeout_ns);

/* fd shall wake the next sleep once, on `events` (EPOLLIN, EPOLLOUT), and not again until it is watched again. May
 * come before rd_bell_arm or between arm and sleep. rd_bell_forget it before it is closed. */
rondo_result rd_bell_watch(rondo_bell *bell, int fd, uint32_t events);
void rd_bell_forget(rondo_bell *bell, int fd);

#endif
