/* SPDX-License-Identifier: Apache-2.0
 *
 * door.c - whoever connects comes in here: listeners, and the server's side of the handshake (auth.h).
 *
 * Until its proof fits, a connection is a guest: it costs one descriptor and one small structure, has a few seconds,
 * and nothing it sends is looked at beyond the fixed fields of the handshake. When too many come, the oldest goes.
 */
#include "boot/service.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define GUEST_SECONDS 5.0
#define DAWDLE_SECONDS 0.2 /* a handshake takes less */
#define PAUSE_SECONDS 0.05

typedef struct rd_listener {
    rd_watch watch;
    int port;                   /* TCP */
    char name[RD_ADDRESS_TEXT]; /* abstract socket; "" for TCP */
    struct rd_listener *next;
} rd_listener;

enum guest_state { EXPECT_HELLO, EXPECT_REQUEST };

typedef struct rd_guest {
    rd_watch watch;
    rd_timer timer;
    enum guest_state state;
    bool over_unix;
    size_t have; /* bytes of the message that is expected */
    unsigned char job_id[16];
    rd_handshake handshake;
    struct rd_guest *next, *before;
} rd_guest;

void rd_warn_keyless(void)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&warned))
        rd_log(RD_LOG_WARN, "connections over TCP are unauthenticated: set RONDO_KEY or RONDO_KEY_FILE on all ranks "
                            "(RONDO_REQUIRE_KEY=1 refuses to run without)");
}

/* ---- Guests ---- */

/* The guest leaves the list; its descriptor is closed unless it was taken before. */
static void forget(rd_guest *guest)
{
    struct rd_service *s = rd_service;
    rd_timer_clear(&guest->timer);
    if (guest->before)
        guest->before->next = guest->next;
    else
        s->guests = guest->next;
    if (guest->next)
        guest->next->before = guest->before;
    else
        s->last_guest = guest->before;
    s->guest_count--;
    memset(&guest->handshake, 0, sizeof guest->handshake);
    rd_watch_bury(&guest->watch);
}

static void turn_away(rd_guest *guest, const char *why)
{
    rd_service->strangers++;
    rd_log(RD_LOG_INFO, "dropped a connection from a stranger: %s", why);
    forget(guest);
}

static void too_slow(rd_timer *timer)
{
    turn_away(RD_CONTAINER(timer, rd_guest, timer), "it did not say what it wants in time");
}

/* The messages of a handshake are small and the socket's buffer is empty: a write takes all or the guest is odd. */
static bool say(rd_guest *guest, const void *data, size_t bytes)
{
    size_t put = 0;
    return rd_sock_write(guest->watch.fd, data, bytes, &put, NULL, 0) == RONDO_SUCCESS && put == bytes;
}

/* The key that fits the job, or why there is none for this guest. */
static enum rd_challenge_status find_key(rd_guest *guest)
{
    const rd_served_job *served = rd_served_job_find(guest->job_id);
    const rd_job *job = served ? NULL : rd_member_job_find(guest->job_id);
    if (!served && !job) return RD_CHALLENGE_UNKNOWN;
    memcpy(guest->handshake.key, served ? served->key : job->key, sizeof guest->handshake.key);
    if (served ? served->has_key : job->has_key) return RD_CHALLENGE_OK;
    if (guest->over_unix) {
        uid_t user;
        bool same = rd_sock_peer_process(guest->watch.fd, &user, NULL) == RONDO_SUCCESS && user == geteuid();
        return same ? RD_CHALLENGE_OK : RD_CHALLENGE_USER;
    }
    if (rd_service->require_key) return RD_CHALLENGE_KEYLESS;
    rd_warn_keyless();
    return RD_CHALLENGE_OK;
}

static void hear_hello(rd_guest *guest)
{
    uint32_t version;
    if (!rd_auth_read_hello(&guest->handshake, &version, guest->job_id)) {
        turn_away(guest, "it does not speak Rondo");
        return;
    }
    enum rd_challenge_status status = find_key(guest);
    if (status != RD_CHALLENGE_UNKNOWN && version != RD_WIRE_VERSION) status = RD_CHALLENGE_VERSION;
    rd_auth_write_challenge(&guest->handshake, status);
    bool said = say(guest, guest->handshake.challenge, RD_CHALLENGE_BYTES);
    guest->state = EXPECT_REQUEST;
    guest->have = 0;
    if (status == RD_CHALLENGE_OK && said) return;
    rd_log(RD_LOG_TRACE, "refused a connection: %s", rd_challenge_status_name(status));
    forget(guest);
}

static void hear_request(rd_guest *guest)
{
    rd_request request;
    rd_verdict verdict = {RD_ACCEPTED, RONDO_SUCCESS, ""};
    unsigned char bytes[RD_VERDICT_BYTES + RD_VERDICT_TEXT_BYTES];
    if (!rd_auth_read_request(&guest->handshake, &request)) {
        turn_away(guest, "its proof of the job's key is wrong");
        return;
    }
    rd_served_job *job = request.purpose == RD_PURPOSE_TABLE ? rd_served_job_find(guest->job_id) : NULL;
    if (job)
        rd_board_admit(job, &request, &verdict);
    else if (request.purpose == RD_PURPOSE_TABLE)
        verdict.kind = RD_NOT_YET;
    else
        rd_member_admit(guest->job_id, &request, &verdict);

    bool said = say(guest, bytes, rd_auth_write_verdict(bytes, &verdict));
    if (said && verdict.kind == RD_ACCEPTED) {
        int fd = rd_watch_take(&guest->watch);
        if (job)
            rd_board_seat(job, &request, fd);
        else
            rd_member_take(guest->job_id, &request, fd);
    }
    forget(guest);
}

static void guest_ready(rd_watch *watch, uint32_t events)
{
    rd_guest *guest = RD_CONTAINER(watch, rd_guest, watch);
    rd_handshake *h = &guest->handshake;
    (void)events;
    /* Exactly the message and no byte more: what follows belongs to whoever gets the connection. */
    while (!watch->dead) {
        bool hello = guest->state == EXPECT_HELLO;
        size_t whole = hello ? RD_HELLO_BYTES : RD_REQUEST_BYTES, got = 0;
        rondo_result result = rd_sock_read(watch->fd, (hello ? h->hello : h->request) + guest->have,
                                           whole - guest->have, &got, NULL, NULL);
        if (result == RONDO_IN_PROGRESS) return;
        if (result != RONDO_SUCCESS) {
            /* After a challenge it is one of ours that gave up, because the keys differ, say. */
            if (hello || guest->have)
                turn_away(guest, "it left before it said what it wants");
            else
                forget(guest);
            return;
        }
        guest->have += got;
        if (guest->have < whole) continue;
        if (hello)
            hear_hello(guest);
        else
            hear_request(guest);
    }
}

static void receive(rd_listener *listener, int fd)
{
    struct rd_service *s = rd_service;
    if (s->guest_count >= s->guest_limit) turn_away(s->guests, "too many at the door, and it was there longest");
    rd_guest *guest = calloc(1, sizeof *guest);
    if (!guest) {
        close(fd);
        return;
    }
    guest->watch.ready = guest_ready;
    guest->over_unix = listener->name[0] != 0;
    if (rd_watch_open(&guest->watch, fd, EPOLLIN) != RONDO_SUCCESS) {
        free(guest);
        return;
    }
    guest->before = s->last_guest;
    if (guest->before)
        guest->before->next = guest;
    else
        s->guests = guest;
    s->last_guest = guest;
    s->guest_count++;
    rd_timer_set(&guest->timer, rd_deadline(GUEST_SECONDS), too_slow);
}

/* ---- Listeners ---- */

uint64_t rd_door_starved(void)
{
    return rd_service ? rd_service->starved : 0;
}

rondo_result rd_door_check(uint64_t noted)
{
    if (rd_door_starved() <= noted) return RONDO_SUCCESS;
    return rd_fail(RONDO_SYSTEM_ERROR, "a peer's connection cannot come in: %s%s", strerror(EMFILE),
                   rd_errno_remedy(EMFILE));
}

static void set_listeners(uint32_t events)
{
    for (rd_listener *listener = rd_service->listeners; listener; listener = listener->next)
        rd_watch_events(&listener->watch, events);
}

static void open_again(rd_timer *timer)
{
    (void)timer;
    set_listeners(EPOLLIN);
}

/* Out of descriptors, most likely. Makes room, if somebody dawdles at the door, and does not spin on the listener. */
static void starve(void)
{
    rd_guest *oldest = rd_service->guests;
    if (oldest && rd_deadline(GUEST_SECONDS - DAWDLE_SECONDS) > oldest->timer.at) {
        turn_away(oldest, "this process has no descriptors left");
    } else if (!oldest) {
        rd_service->starved++;
        rd_members_wake();
    }
    set_listeners(0);
    rd_timer_set(&rd_service->door_pause, rd_deadline(PAUSE_SECONDS), open_again);
}

static void listener_ready(rd_watch *watch, uint32_t events)
{
    rd_listener *listener = RD_CONTAINER(watch, rd_listener, watch);
    (void)events;
    for (int i = 0; i < 64; i++) {
        int fd;
        rondo_result result = rd_sock_accept(watch->fd, &fd);
        if (result == RONDO_IN_PROGRESS) return;
        if (result != RONDO_SUCCESS) {
            /* The kernel looks for a free descriptor before it looks for somebody who waits. */
            if (poll(&(struct pollfd){.fd = watch->fd, .events = POLLIN}, 1, 0) > 0) starve();
            return;
        }
        receive(listener, fd);
    }
}

static void free_listener(rd_watch *watch)
{
    free(RD_CONTAINER(watch, rd_listener, watch));
}

static rondo_result open_socket(const char *name, int port, int *fd, int *bound)
{
    if (name) return rd_sock_listen_unix(fd, name);
    rondo_result result = rd_sock_listen_tcp(fd, port, bound);
    if (result == RONDO_SUCCESS || errno != EADDRINUSE) return result;
    rd_fail(result, "TCP port %d is taken by another process; free it, or choose another with RONDO_PORT", port);
    errno = EADDRINUSE; /* the caller may know of others */
    return result;
}

rondo_result rd_door_listen(const char *name, int port, int *bound)
{
    struct rd_service *s = rd_service;
    int fd, got = 0;
    for (rd_listener *listener = s->listeners; listener; listener = listener->next)
        if (name ? strcmp(listener->name, name) == 0 : port && listener->port == port) {
            if (bound) *bound = port;
            return RONDO_SUCCESS;
        }
    RD_TRY(open_socket(name, port, &fd, &got));
    rd_listener *listener = calloc(1, sizeof *listener);
    if (!listener) {
        close(fd);
        return rd_fail(RONDO_SYSTEM_ERROR, "no memory for a listener");
    }
    listener->port = got;
    if (name) snprintf(listener->name, sizeof listener->name, "%s", name);
    listener->watch.ready = listener_ready;
    listener->watch.destroy = free_listener;
    rondo_result result = rd_watch_open(&listener->watch, fd, EPOLLIN);
    if (result != RONDO_SUCCESS) {
        free(listener);
        return result;
    }
    listener->next = s->listeners;
    s->listeners = listener;
    if (bound) *bound = got;
    return RONDO_SUCCESS;
}

void rd_door_close(void)
{
    while (rd_service->listeners) {
        rd_listener *listener = rd_service->listeners;
        rd_service->listeners = listener->next;
        rd_watch_bury(&listener->watch);
    }
}
