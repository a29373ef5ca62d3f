/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bell.h"

#include "base/shared.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { AWAKE = 0, IN_FUTEX = 1, IN_EPOLL = 2 };
enum { PAGE_BYTES = 4096 };

/* Shared between processes, so not FUTEX_PRIVATE_FLAG. */
static void futex(_Atomic uint32_t *word, int operation, uint32_t value, const struct timespec *timeout)
{
    syscall(SYS_futex, (uint32_t *)word, operation, value, timeout, NULL, 0);
}

void rd_bell_wake(_Atomic uint32_t *word, int event_fd)
{
    /* The exchange decides: of several wakers one makes the system call, and it learns where the rank sleeps now. */
    uint32_t how = atomic_exchange_explicit(word, AWAKE, memory_order_seq_cst);
    if (how == IN_FUTEX) futex(word, FUTEX_WAKE, 1, NULL);
    if (how == IN_EPOLL) eventfd_write(event_fd, 1);
}

/* ---- The rank's own bell ---- */

rondo_result rd_bell_open(rondo_bell *bell)
{
    void *page;
    int page_fd;
    RD_TRY(rd_shared_create("rondo bell", PAGE_BYTES, &page, &page_fd));
    int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (event_fd < 0) {
        rondo_result result = rd_fail_errno("cannot create the eventfd of a doorbell");
        rd_shared_unmap(page, PAGE_BYTES);
        close(page_fd);
        return result;
    }
    *bell = (rondo_bell){.word = page, .page_fd = page_fd, .event_fd = event_fd, .epoll_fd = -1};
    return RONDO_SUCCESS;
}

void rd_bell_close(rondo_bell *bell)
{
    if (!bell || !bell->word) return;
    if (bell->epoll_fd >= 0) close(bell->epoll_fd);
    close(bell->event_fd);
    close(bell->page_fd);
    rd_shared_unmap((void *)bell->word, PAGE_BYTES);
    *bell = (rondo_bell){.page_fd = -1, .event_fd = -1, .epoll_fd = -1};
}

void rd_bell_arm(rondo_bell *bell)
{
    uint32_t how = bell->epoll_fd < 0 ? IN_FUTEX : IN_EPOLL;
    atomic_store_explicit(bell->word, how, memory_order_relaxed);
    rd_fence();
}

void rd_bell_disarm(rondo_bell *bell) { atomic_store_explicit(bell->word, AWAKE, memory_order_relaxed); }

static int until_ms(int64_t timeout_ns)
{
    int64_t ms = timeout_ns / 1000000 + (timeout_ns % 1000000 > 0);
    return ms < 0 ? 0 : ms > INT_MAX ? INT_MAX : (int)ms;
}

void rd_bell_sleep(rondo_bell *bell, int64_t timeout_ns)
{
    /* Where it sleeps is what a waker will read. AWAKE: somebody rang since arm. */
    uint32_t how = atomic_load_explicit(bell->word, memory_order_relaxed);
    if (timeout_ns < 0) timeout_ns = 0;
    if (how == IN_FUTEX) {
        struct timespec timeout = {timeout_ns / 1000000000, timeout_ns % 1000000000};
        futex(bell->word, FUTEX_WAIT, IN_FUTEX, &timeout);
    } else if (how == IN_EPOLL) {
        struct epoll_event events[16];
        epoll_wait(bell->epoll_fd, events, 16, until_ms(timeout_ns));
    }
    rd_bell_disarm(bell);
}

/* The eventfd is edge-triggered: each write wakes once, and nobody need read it empty. */
static rondo_result open_epoll(rondo_bell *bell)
{
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0) return rd_fail_errno("cannot create the epoll set of a doorbell");
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = bell->event_fd};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, bell->event_fd, &event)) {
        rondo_result result = rd_fail_errno("cannot watch the eventfd of a doorbell");
        close(epoll_fd);
        return result;
    }
    bell->epoll_fd = epoll_fd;
    /* Armed for the futex already? Then sleep in epoll instead. Wakers act on what they exchange, so either is safe. */
    uint32_t armed = IN_FUTEX;
    atomic_compare_exchange_strong_explicit(bell->word, &armed, IN_EPOLL, memory_order_seq_cst, memory_order_relaxed);
    return RONDO_SUCCESS;
}

rondo_result rd_bell_use_epoll(rondo_bell *bell) { return bell->epoll_fd < 0 ? open_epoll(bell) : RONDO_SUCCESS; }

/* An epoll set can be polled like any descriptor; what it holds is then taken, since the eventfd in it wakes by edges. */
void rd_bells_sleep(rondo_bell *const *bells, int n, int64_t timeout_ns)
{
    struct pollfd sets[n + 1]; /* n may be 0 */
    struct epoll_event events[16];
    for (int i = 0; i < n; i++) sets[i] = (struct pollfd){.fd = bells[i]->epoll_fd, .events = POLLIN};
    poll(sets, (nfds_t)n, until_ms(timeout_ns));
    for (int i = 0; i < n; i++)
        if (sets[i].revents) epoll_wait(bells[i]->epoll_fd, events, 16, 0);
}

/* One shot: an fd that stays readable but that nobody waits for must not wake every later sleep. */
rondo_result rd_bell_watch(rondo_bell *bell, int fd, uint32_t events)
{
    if (bell->epoll_fd < 0) RD_TRY(open_epoll(bell));
    struct epoll_event event = {.events = events | EPOLLONESHOT, .data.fd = fd};
    if (!epoll_ctl(bell->epoll_fd, EPOLL_CTL_MOD, fd, &event)) return RONDO_SUCCESS;
    if (errno == ENOENT && !epoll_ctl(bell->epoll_fd, EPOLL_CTL_ADD, fd, &event)) return RONDO_SUCCESS;
    return rd_fail_errno("cannot watch descriptor %d", fd);
}

void rd_bell_forget(rondo_bell *bell, int fd)
{
    if (bell->epoll_fd >= 0) epoll_ctl(bell->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

/* ---- A peer's bell ---- */

rondo_result rd_ringer_open(rd_ringer *ringer, int page_fd, int event_fd)
{
    void *page;
    rondo_result result = rd_shared_map(page_fd, PAGE_BYTES, &page);
    close(page_fd);
    if (result != RONDO_SUCCESS) {
        close(event_fd);
        return result;
    }
    *ringer = (rd_ringer){.word = page, .event_fd = event_fd, .mapped = true};
    return RONDO_SUCCESS;
}

rondo_result rd_ringer_local(rd_ringer *ringer, const rondo_bell *bell)
{
    void *page;
    int event_fd = fcntl(bell->event_fd, F_DUPFD_CLOEXEC, 0);
    if (event_fd < 0) return rd_fail_errno("cannot duplicate the eventfd of a doorbell");
    rondo_result result = rd_shared_map(bell->page_fd, PAGE_BYTES, &page);
    if (result != RONDO_SUCCESS) {
        close(event_fd);
        return result;
    }
    *ringer = (rd_ringer){.word = page, .event_fd = event_fd, .mapped = true};
    return RONDO_SUCCESS;
}

void rd_ringer_close(rd_ringer *ringer)
{
    if (!ringer->mapped) return;
    rd_shared_unmap((void *)ringer->word, PAGE_BYTES);
    close(ringer->event_fd);
    *ringer = RD_RINGER_NOBODY;
}

_Atomic uint32_t rd_always_awake;
