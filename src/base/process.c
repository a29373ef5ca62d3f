/* SPDX-License-Identifier: Apache-2.0 */
#include "base/process.h"

#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

enum { MOST_LOCKS = 16 };

int rd_generation_now;
static pthread_mutex_t *held[MOST_LOCKS];
static int held_count;

static void before(void)
{
    for (int i = 0; i < held_count; i++) pthread_mutex_lock(held[i]);
}

static void after(void)
{
    for (int i = held_count; i-- > 0;) pthread_mutex_unlock(held[i]);
}

static void in_child(void)
{
    rd_generation_now++;
    after();
}

/* When the library is loaded, and so before anything else asks to be told of forks: the last to ask is the first to be
 * told that one begins. */
__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(before, after, in_child); }

void rd_hold_at_fork(pthread_mutex_t *lock)
{
    if (held_count < MOST_LOCKS) held[held_count++] = lock;
}

bool rd_is_readable(const void *ptr, size_t bytes)
{
    char ends[2];
    struct iovec to = {ends, 2}, from[] = {{(void *)ptr, 1}, {(char *)ptr + bytes - 1, 1}};
    ssize_t read = process_vm_readv(getpid(), &to, 1, from, 2, 0);
    return read == 2 || (read < 0 && errno != EFAULT);
}
