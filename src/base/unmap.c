/* SPDX-License-Identifier: Apache-2.0 */
#include "base/unmap.h"

#include "base/status.h"
#include "base/thread.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1 /* Linux 5.11: needs no privilege. Faults, which it would restrict, are not asked for */
#endif

static int faults = -1, stop = -1;
static pthread_t thread;
static pthread_mutex_t *guard;
static rd_unmap_fn tell;

static void read_events(void)
{
    struct uffd_msg message;
    pthread_mutex_lock(guard);
    while (read(faults, &message, sizeof message) == (ssize_t)sizeof message) {
        if (message.event == UFFD_EVENT_UNMAP || message.event == UFFD_EVENT_REMOVE)
            tell(message.arg.remove.start, message.arg.remove.end);
        else if (message.event == UFFD_EVENT_REMAP)
            tell(message.arg.remap.from, message.arg.remap.from + message.arg.remap.len);
    }
    pthread_mutex_unlock(guard);
}

static void *watch(void *unused)
{
    (void)unused;
    struct pollfd fds[] = {{.fd = faults, .events = POLLIN}, {.fd = stop, .events = POLLIN}};
    while (!fds[1].revents)
        if (poll(fds, 2, -1) > 0 && fds[0].revents) read_events();
    return NULL;
}

/* The mode is write protection, and nothing is ever protected: so no page fault comes this way, only what happens to
 * the mapping. */
bool rd_unmap_watch(uintptr_t from, uintptr_t to)
{
    struct uffdio_register range = {.range = {from, to - from}, .mode = UFFDIO_REGISTER_MODE_WP};
    return faults >= 0 && !ioctl(faults, UFFDIO_REGISTER, &range);
}

void rd_unmap_forget(uintptr_t from, uintptr_t to)
{
    struct uffdio_range range = {from, to - from};
    if (faults >= 0) ioctl(faults, UFFDIO_UNREGISTER, &range);
}

static void close_both(void)
{
    close(faults); /* lets go of whoever still waits */
    close(stop);
    faults = stop = -1;
}

bool rd_unmap_open(pthread_mutex_t *lock, rd_unmap_fn unmapped)
{
    struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_EVENT_UNMAP |
                                                          UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE};
    faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
    if (faults < 0) {
        rd_fail_errno("this process may not watch its own memory (userfaultfd)");
        return false;
    }
    stop = eventfd(0, EFD_CLOEXEC);
    guard = lock;
    tell = unmapped;
    if (stop >= 0 && !ioctl(faults, UFFDIO_API, &api) && !rd_thread_start(&thread, "rondo-unmap", watch, NULL)) return true;
    rd_fail_errno("this kernel does not tell of memory that is unmapped (userfaultfd)");
    close_both();
    return false;
}

void rd_unmap_close(void)
{
    if (faults < 0) return;
    eventfd_write(stop, 1);
    pthread_join(thread, NULL);
    close_both();
}
