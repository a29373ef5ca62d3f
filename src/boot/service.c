/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/service.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/status.h"
#include "base/thread.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

struct rd_service *rd_service;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void rd_service_lock(void)
{
    pthread_mutex_lock(&lock);
}
void rd_service_unlock(void)
{
    pthread_mutex_unlock(&lock);
}
pthread_mutex_t *rd_service_mutex(void)
{
    return &lock;
}

/* ---- Owned descriptors ---- */

void rd_own(int fd)
{
    struct rd_service *s = rd_service;
    if (!s) return; /* a forked child without a service has no control plane to guard */
    if (fd >= s->owned_room) {
        int room = fd < 128 ? 256 : 2 * fd;
        unsigned char *more = realloc(s->owned, (size_t)room);
        if (!more) return; /* a forked child keeps this one open; no more than that */
        memset(more + s->owned_room, 0, (size_t)(room - s->owned_room));
        s->owned = more;
        s->owned_room = room;
    }
    s->owned[fd] = 1;
}

void rd_disown(int fd)
{
    if (rd_service && fd >= 0 && fd < rd_service->owned_room) rd_service->owned[fd] = 0;
}

void rd_close_owned(int fd)
{
    if (fd < 0) return;
    rd_disown(fd);
    close(fd);
}

/* ---- Watches ---- */

static int wake_up(void)
{
    uint64_t one = 1;
    return write(rd_service->wake.fd, &one, sizeof one) == sizeof one ? 0 : -1;
}

rondo_result rd_watch_open(rd_watch *watch, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};
    watch->fd = fd;
    rd_own(fd);
    if (epoll_ctl(rd_service->epoll_fd, EPOLL_CTL_ADD, fd, &event)) {
        rondo_result result = rd_fail_errno("cannot watch a descriptor of the control plane (epoll_ctl)");
        rd_close_owned(fd);
        watch->fd = -1;
        return result;
    }
    return RONDO_SUCCESS;
}

void rd_watch_events(rd_watch *watch, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};
    epoll_ctl(rd_service->epoll_fd, EPOLL_CTL_MOD, watch->fd, &event);
}

int rd_watch_take(rd_watch *watch)
{
    int fd = watch->fd;
    if (fd >= 0) epoll_ctl(rd_service->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    watch->fd = -1;
    return fd;
}

void rd_watch_bury(rd_watch *watch)
{
    if (watch->dead) return;
    rd_close_owned(rd_watch_take(watch));
    watch->dead = true;
    watch->next_dead = rd_service->dead;
    rd_service->dead = watch;
}

/* Only between handling one batch of events and asking for the next: no event can name these any more. */
static void free_dead(struct rd_service *s)
{
    while (s->dead) {
        rd_watch *watch = s->dead;
        s->dead = watch->next_dead;
        if (watch->destroy)
            watch->destroy(watch);
        else
            free(watch);
    }
}

/* ---- Timers: a short unsorted list ---- */

void rd_timer_set(rd_timer *timer, int64_t at, void (*fire)(rd_timer *timer))
{
    rd_timer_clear(timer);
    timer->at = at;
    timer->fire = fire;
    timer->set = true;
    timer->before = NULL;
    timer->next = rd_service->timers;
    if (timer->next) timer->next->before = timer;
    rd_service->timers = timer;
    if (at < rd_service->sleeping_until) wake_up();
}

void rd_timer_clear(rd_timer *timer)
{
    if (!timer->set) return;
    timer->set = false;
    if (timer->next) timer->next->before = timer->before;
    if (timer->before)
        timer->before->next = timer->next;
    else
        rd_service->timers = timer->next;
}

static int64_t next_time(const struct rd_service *s)
{
    int64_t at = INT64_MAX;
    for (const rd_timer *timer = s->timers; timer; timer = timer->next)
        if (timer->at < at) at = timer->at;
    return at;
}

static void fire_timers(struct rd_service *s)
{
    int64_t now = rd_now();
    for (rd_timer *timer = s->timers; timer;) {
        if (timer->at > now) {
            timer = timer->next;
            continue;
        }
        rd_timer_clear(timer);
        timer->fire(timer);
        timer = s->timers; /* firing may have changed the list anywhere */
    }
}

/* ---- The thread ---- */

static void *serve(void *argument)
{
    struct rd_service *s = argument;
    struct epoll_event events[64];
    rd_service_lock();
    for (;;) {
        free_dead(s);
        s->sleeping_until = next_time(s);
        int timeout = s->sleeping_until == INT64_MAX ? -1 : rd_until_ms(s->sleeping_until);
        rd_service_unlock();
        int count = epoll_wait(s->epoll_fd, events, 64, timeout);
        rd_service_lock();
        s->sleeping_until = 0;
        for (int i = 0; i < count; i++) {
            rd_watch *watch = events[i].data.ptr;
            if (!watch->dead && watch->fd >= 0) watch->ready(watch, events[i].events);
        }
        fire_timers(s);
    }
    return NULL;
}

static void woken(rd_watch *watch, uint32_t events)
{
    uint64_t count;
    (void)events;
    if (read(watch->fd, &count, sizeof count) < 0) return; /* another wake was faster */
}

static rondo_result start_thread(struct rd_service *s)
{
    int error = rd_thread_start(&s->thread, "rondo-service", serve, s);
    if (error) {
        errno = error;
        return rd_fail_errno("cannot start the service thread");
    }
    pthread_detach(s->thread);
    return RONDO_SUCCESS;
}

/* ---- Fork and exit ---- */

/* Under the lock, so that the child's copy is consistent: whole lists, and every owned descriptor known. */
static void before_fork(void)
{
    rd_service_lock();
}
static void after_fork_parent(void)
{
    rd_service_unlock();
}

static void after_fork_child(void)
{
    static struct rd_service *earlier; /* one of the parent's threads had it; freeing it piece by piece gains nothing */
    struct rd_service *s = rd_service;
    for (int fd = 0; s && fd < s->owned_room; fd++)
        if (s->owned[fd]) close(fd);
    if (s) {
        s->before_fork = earlier;
        earlier = s;
        rd_service = NULL;
    }
    rd_service_unlock();
}

/* exit() runs this: an orderly end is announced, so that the others do not take it for a crash. Never hangs: should
 * exit have been called with the lock held (from a signal handler), it does without. */
static void at_exit(void)
{
    int64_t deadline = rd_deadline(0.1);
    while (pthread_mutex_trylock(&lock)) {
        if (rd_now() > deadline) return;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    if (rd_service) rd_members_exit(deadline);
    rd_service_unlock();
}

static rondo_result prepared = RONDO_SUCCESS;

static void prepare_process(void)
{
    if (sodium_init() < 0) prepared = RONDO_SYSTEM_ERROR;
    if (pthread_atfork(before_fork, after_fork_parent, after_fork_child) || atexit(at_exit))
        prepared = RONDO_SYSTEM_ERROR;
}

/* ---- Start ---- */

static void free_service(struct rd_service *s)
{
    rd_door_close();
    for (int fd = 0; fd < s->owned_room; fd++)
        if (s->owned[fd]) close(fd);
    free_dead(s);
    free(s->owned);
    free(s);
}

static rondo_result open_service(int port)
{
    struct rd_service *s = rd_service;
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (s->epoll_fd < 0) return rd_fail_errno("epoll_create1 for the service thread");
    rd_own(s->epoll_fd);
    int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (event_fd < 0) return rd_fail_errno("eventfd for the service thread");
    s->wake.ready = woken;
    RD_TRY(rd_watch_open(&s->wake, event_fd, EPOLLIN));
    RD_TRY(rd_door_listen(s->unix_name, 0, NULL));
    RD_TRY(rd_door_listen(NULL, port, &s->tcp_port));
    rd_dump_listen();
    return start_thread(s);
}

rondo_result rd_service_start_at(const rd_settings *settings, int port)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    rondo_result result = RONDO_SUCCESS;
    pthread_once(&once, prepare_process);
    if (prepared != RONDO_SUCCESS)
        return rd_fail(prepared, "cannot prepare this process: libsodium, pthread_atfork or "
                                 "atexit failed");
    rd_service_lock();
    if (!rd_service) {
        struct rlimit files = {1024, 1024};
        getrlimit(RLIMIT_NOFILE, &files);
        struct rd_service *s = calloc(1, sizeof *s);
        if (!s) {
            result = rd_fail(RONDO_SYSTEM_ERROR, "no memory for the service thread");
            goto unlock;
        }
        /* Guests are strangers until they prove otherwise: they may not use up the descriptors. */
        s->guest_limit = files.rlim_cur > 4096 ? 1024 : files.rlim_cur < 64 ? 16 : (int)(files.rlim_cur / 4);
        rd_random(s->token, sizeof s->token);
        rd_process_unix_name(s->token, s->unix_name);
        rd_service = s;
        result = open_service(port);
        if (result != RONDO_SUCCESS) {
            free_service(s);
            rd_service = NULL;
            goto unlock;
        }
        rd_log(RD_LOG_INFO, "service thread: TCP port %d, unix:%s", s->tcp_port, s->unix_name);
    } else if (port && rd_service->tcp_port != port) {
        result = rd_door_listen(NULL, port, NULL);
    }
    if (result == RONDO_SUCCESS && settings->require_key) rd_service->require_key = true;
    if (result == RONDO_SUCCESS) rd_service->slow_warning_s = settings->slow_warning_s;
unlock:
    rd_service_unlock();
    return result;
}

rondo_result rd_service_start(const rd_settings *settings)
{
    return rd_service_start_at(settings, 0);
}

uint64_t rd_service_strangers(void)
{
    rd_service_lock();
    uint64_t count = rd_service ? rd_service->strangers : 0;
    rd_service_unlock();
    return count;
}
