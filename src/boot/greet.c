/* SPDX-License-Identifier: Apache-2.0
 *
 * greet.c - links made on demand. Whoever needs one connects and says what for; the peer may be in the middle of
 * anything, so its service thread reads the greeting, and hands both to the member's owner.
 */
#include "boot/member.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define GREETING_SECONDS 5.0

enum { HEAD = 8, MOST_BYTES = sizeof((rd_greeting *)0)->data };

typedef struct rd_greeter {
    rd_watch watch; /* first */
    rd_timer timer;
    rd_member *member;
    int from, index, fd; /* fd: -1 until the greeting is complete */
    size_t have;
    unsigned char bytes[HEAD + MOST_BYTES];
    int fds[RD_SOCK_FDS], fd_count;
    struct rd_greeter *next;
} rd_greeter;

/* ---- Leaving the list ---- */

static void unlink_greeter(rd_greeter *greeter)
{
    rd_greeter **place = &greeter->member->greeters;
    while (*place != greeter) place = &(*place)->next;
    *place = greeter->next;
    rd_timer_clear(&greeter->timer);
}

static void drop(rd_greeter *greeter)
{
    unlink_greeter(greeter);
    for (int i = 0; i < greeter->fd_count; i++) rd_close_owned(greeter->fds[i]);
    rd_close_owned(greeter->fd);
    rd_watch_bury(&greeter->watch);
}

static void too_slow(rd_timer *timer)
{
    rd_greeter *greeter = RD_CONTAINER(timer, rd_greeter, timer);
    rd_log(RD_LOG_INFO, "rank %d: rank %d connected and said nothing", greeter->member->job.rank, greeter->from);
    drop(greeter);
}

static void hand_on(rd_greeter *greeter)
{
    rd_member *member = greeter->member;
    rd_greeting greeting;
    if (!member->ops->greeted) {
        drop(greeter);
        return;
    }
    memset(&greeting, 0, sizeof greeting);
    greeting.bytes = (uint32_t)(greeter->have - HEAD);
    memcpy(greeting.data, greeter->bytes + HEAD, greeting.bytes);
    greeting.fd_count = greeter->fd_count;
    for (int i = 0; i < greeter->fd_count; i++) {
        greeting.fds[i] = greeter->fds[i];
        rd_disown(greeter->fds[i]);
    }
    int fd = greeter->fd, from = greeter->from, index = greeter->index;
    rd_disown(fd);
    unlink_greeter(greeter);
    rd_watch_bury(&greeter->watch);
    member->ops->greeted(member->context, from, index, fd, &greeting);
}

/* ---- Reading ---- */

/* What is known of the greeting's length; 0: it breaks the rules. */
static size_t whole_length(const rd_greeter *greeter)
{
    rd_reader r = {greeter->bytes, HEAD, false};
    if (greeter->have < HEAD) return HEAD;
    uint32_t bytes = rd_read_u32(&r), fd_count = rd_read_u32(&r);
    return bytes <= MOST_BYTES && fd_count == (uint32_t)greeter->fd_count ? HEAD + bytes : 0;
}

static void ready(rd_watch *watch, uint32_t events)
{
    rd_greeter *greeter = RD_CONTAINER(watch, rd_greeter, watch);
    size_t whole;
    (void)events;
    /* Exactly the greeting and no byte more: what follows belongs to whoever gets the connection. */
    while ((whole = whole_length(greeter)) > greeter->have) {
        int fds[RD_SOCK_FDS], count = greeter->have ? 0 : RD_SOCK_FDS;
        size_t got = 0;
        rondo_result result =
            rd_sock_read(watch->fd, greeter->bytes + greeter->have, whole - greeter->have, &got, fds, &count);
        if (result == RONDO_IN_PROGRESS) return;
        if (result != RONDO_SUCCESS) {
            drop(greeter);
            return;
        }
        for (int i = 0; i < count; i++) {
            rd_own(fds[i]);
            greeter->fds[greeter->fd_count++] = fds[i];
        }
        greeter->have += got;
    }
    if (!whole) {
        drop(greeter);
        return;
    }
    greeter->fd = rd_watch_take(watch);
    rd_timer_clear(&greeter->timer);
    if (greeter->member->contacts) hand_on(greeter);
}

void rd_greet_open(rd_member *member, int from, int index, int fd)
{
    rd_greeter *greeter = calloc(1, sizeof *greeter), **place = &member->greeters;
    if (!greeter) {
        rd_close_owned(fd);
        return;
    }
    greeter->watch.ready = ready;
    greeter->member = member;
    greeter->from = from;
    greeter->index = index;
    greeter->fd = -1;
    if (rd_watch_open(&greeter->watch, fd, EPOLLIN) != RONDO_SUCCESS) {
        free(greeter);
        return;
    }
    while (*place) place = &(*place)->next;
    *place = greeter;
    rd_timer_set(&greeter->timer, rd_deadline(GREETING_SECONDS), too_slow);
}

void rd_greet_ready(rd_member *member)
{
    for (rd_greeter *greeter = member->greeters, *next; greeter; greeter = next) {
        next = greeter->next;
        if (greeter->fd >= 0) hand_on(greeter);
    }
}

void rd_greet_close(rd_member *member, bool forked)
{
    while (member->greeters) {
        rd_greeter *greeter = member->greeters;
        if (!forked) {
            drop(greeter);
            continue;
        }
        member->greeters = greeter->next; /* the descriptors are closed already */
        free(greeter);
    }
}

/* ---- Greeting ---- */

rondo_result rd_member_visit(rd_member *member, int peer, int index, int over, int64_t deadline, int *fd)
{
    int connected;
    RD_TRY(rd_member_check_peer(member, peer, 0, index));
    RD_TRY(rd_member_dial(member, peer, RD_PURPOSE_GREETING, index, over, deadline, &connected));
    rd_service_lock();
    rd_disown(connected);
    rd_service_unlock();
    *fd = connected;
    return RONDO_SUCCESS;
}

rondo_result rd_greeting_send(int fd, const rd_greeting *greeting, int64_t deadline)
{
    unsigned char bytes[HEAD + MOST_BYTES];
    rd_writer w = {bytes, sizeof bytes, false};
    if (greeting->bytes > MOST_BYTES || greeting->fd_count < 0 || greeting->fd_count > RD_SOCK_FDS)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "a greeting has 0 to %d bytes and 0 to %d descriptors; this one has %u and %d", MOST_BYTES,
                       RD_SOCK_FDS, greeting->bytes, greeting->fd_count);
    rd_write_u32(&w, greeting->bytes);
    rd_write_u32(&w, (uint32_t)greeting->fd_count);
    rd_write_bytes(&w, greeting->data, greeting->bytes);
    return rd_sock_send_fds(fd, bytes, sizeof bytes - w.left, greeting->fds, greeting->fd_count, deadline);
}
