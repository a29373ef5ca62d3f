/* SPDX-License-Identifier: Apache-2.0
 *
 * control.c - the control plane of a rank: who is there, who left, who died.
 *
 * Every rank has a connection to the ranks at distances 1, 2, 4, ... in both directions. What one learns (a death, a
 * goodbye, an abort) it passes to all its neighbours, once for each rank concerned, so news reaches everyone in at
 * most log2(world size) hops, or a few more around those that are gone.
 *
 * A rank that ends in order says goodbye first. So the end of a connection, or of the process behind it (its pidfd),
 * without a goodbye is a death. What was sent before is always read first.
 */
#include "boot/control.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LONGEST_MESSAGE = 65536 };

typedef struct rd_pid_watch {
    rd_watch watch;
    rd_control *control;
} pid_watch;

/* ---- Speaking ---- */

static rd_blob *goodbye_of(int rank, const rd_rank *r)
{
    rd_blob *blob = rd_blob_new(RD_SAY_GOODBYE, 16);
    if (!blob) return NULL;
    rd_writer w = {blob->data + RD_FRAME_HEAD, 16, false};
    rd_write_u32(&w, (uint32_t)rank);
    rd_write_u32(&w, (uint32_t)r->how);
    rd_write_u64(&w, r->calls);
    return blob;
}

static rd_blob *news_of(int rank, const rd_rank *r)
{
    const char *text = r->text ? r->text : "";
    size_t length = strlen(text);
    rd_blob *blob = rd_blob_new(RD_SAY_NEWS, 12 + length);
    if (!blob) return NULL;
    rd_writer w = {blob->data + RD_FRAME_HEAD, 12 + length, false};
    rd_write_u32(&w, (uint32_t)rank);
    rd_write_u32(&w, (uint32_t)r->result);
    rd_write_u32(&w, r->gone);
    rd_write_bytes(&w, text, length);
    return blob;
}

/* What is known of a rank that is not as it should be; NULL while it is. */
static rd_blob *state_of(const rd_member *member, int rank)
{
    const rd_rank *r = &member->ranks[rank];
    switch (r->state) {
    case RD_LEFT: return goodbye_of(rank, r);
    case RD_LOST: return news_of(rank, r);
    case RD_PRESENT: break;
    }
    return rd_pulse_known(member, rank);
}

void rd_control_flood(rd_member *member, rd_blob *blob, const rd_control *except)
{
    if (!blob) return;
    for (rd_control *c = member->controls; c; c = c->next) {
        if (c == except) continue;
        blob->users++;
        rd_frames_send(&c->frames, blob, -1);
    }
    rd_blob_drop(blob);
}

/* ---- Learning ---- */

void rd_control_changed(rd_member *member)
{
    rd_collect_again(member);
    pthread_cond_broadcast(&member->changed);
    if (member->ops->wake) member->ops->wake(member->context);
}

/* A rank that ended the communicator, and was alive then, is no more. */
static void bury(rd_member *member, int rank, bool died, rd_blob *word, const rd_control *from)
{
    rd_rank *r = &member->ranks[rank];
    r->gone = true;
    r->died = died;
    rd_control_flood(member, word ? word : news_of(rank, r), from);
    rd_agree_gone(member, rank);
    rd_control_changed(member);
}

/* died: else it lives, and has ended the communicator. */
static void lose(rd_member *member, int rank, bool died, rondo_result result, const char *text, const rd_control *from)
{
    rd_rank *r = &member->ranks[rank];
    if (rank == member->job.rank || r->gone) return;
    if (r->state != RD_PRESENT) {
        if (died) bury(member, rank, true, NULL, from);
        return;
    }
    r->state = RD_LOST;
    r->gone = r->died = died;
    r->result = result;
    r->text = strdup(text);
    if (member->stopped == RONDO_SUCCESS) {
        member->stopped = result;
        snprintf(member->stopped_text, sizeof member->stopped_text, "%s", text);
    }
    rd_log(RD_LOG_INFO, "rank %d: %s", member->job.rank, text);
    rd_control_flood(member, state_of(member, rank), from);
    if (died) rd_agree_gone(member, rank);
    rd_collect_again(member);
    pthread_cond_broadcast(&member->changed);
    if (member->ops->stop) member->ops->stop(member->context, result, text);
}

static void let_go(rd_member *member, int rank, enum rd_left_how how, uint64_t calls, const rd_control *from)
{
    rd_rank *r = &member->ranks[rank];
    if (rank == member->job.rank || r->gone) return;
    r->how = how;
    r->calls = calls;
    if (r->state != RD_PRESENT) {
        bury(member, rank, false, goodbye_of(rank, r), from);
        return;
    }
    r->state = RD_LEFT;
    r->gone = true;
    member->someone_left = true;
    rd_control_flood(member, state_of(member, rank), from);
    rd_agree_gone(member, rank);
    rd_control_changed(member);
}

void rd_control_describe_left(const rd_member *member, int rank, char *text, size_t bytes)
{
    char name[192];
    const rd_rank *r = &member->ranks[rank];
    rd_member_name(member, rank, name, sizeof name);
    snprintf(text, bytes, "%s left: %s after %llu call%s", name,
             r->how == RD_LEFT_EXITED ? "its process exited" : "it destroyed its communicator",
             (unsigned long long)r->calls, r->calls == 1 ? "" : "s");
}

/* ---- The end of a connection ---- */

static void drop_pid(rd_control *control)
{
    if (!control->pid) return;
    control->pid->control = NULL;
    rd_watch_bury(&control->pid->watch);
    control->pid = NULL;
}

static void detach(rd_control *control)
{
    rd_control **place = &control->member->controls;
    while (*place != control) place = &(*place)->next;
    *place = control->next;
    control->member = NULL;
    drop_pid(control);
}

/* Nothing more will come from there. If it did not say goodbye before, that is news. */
static void over(rd_control *control, const char *what)
{
    rd_member *member = control->member;
    int peer = control->peer;
    char name[192], text[320];
    detach(control);
    rd_frames_bury(&control->frames);
    rd_member_name(member, peer, name, sizeof name);
    snprintf(text, sizeof text, "%s %s", name, what);
    lose(member, peer, true, RONDO_REMOTE_ERROR, text, NULL);
}

static void connection_ended(rd_frames *frames)
{
    rd_control *control = (rd_control *)frames;
    over(control, frames->over_unix ? "was killed or crashed" : "was killed or crashed, or the network to it failed");
}

static void process_ended(rd_watch *watch, uint32_t events)
{
    rd_control *control = RD_CONTAINER(watch, pid_watch, watch)->control;
    (void)events;
    rd_frames_read(&control->frames); /* its goodbye may lie there */
    if (!control->frames.watch.dead) over(control, "was killed or crashed");
}

/* ---- Hearing ---- */

static void heard_hello(rd_control *control, rd_reader *r, int *fd)
{
    (void)r;
    if (*fd < 0 || control->pid) return;
    pid_watch *pid = calloc(1, sizeof *pid);
    if (!pid) return; /* the end of the connection says the same, unless a child of the peer holds it */
    pid->watch.ready = process_ended;
    pid->control = control;
    int pidfd = *fd;
    *fd = -1;
    rd_pulse_process(control, pidfd);
    if (rd_watch_open(&pid->watch, pidfd, EPOLLIN) == RONDO_SUCCESS)
        control->pid = pid;
    else
        free(pid);
}

static void heard_goodbye(rd_control *control, rd_reader *r, int *fd)
{
    uint32_t rank = rd_read_u32(r), how = rd_read_u32(r);
    uint64_t calls = rd_read_u64(r);
    (void)fd;
    if (r->bad || rank >= (uint32_t)control->member->job.world) return;
    let_go(control->member, (int)rank, how == RD_LEFT_DESTROYED ? RD_LEFT_DESTROYED : RD_LEFT_EXITED, calls, control);
}

static void heard_news(rd_control *control, rd_reader *r, int *fd)
{
    char text[RD_VERDICT_TEXT_BYTES];
    uint32_t rank = rd_read_u32(r), result = rd_read_u32(r), died = rd_read_u32(r);
    (void)fd;
    if (r->bad || rank >= (uint32_t)control->member->job.world) return;
    rd_read_text(r, text, sizeof text, r->left);
    lose(control->member, (int)rank, died != 0, rd_result_from_wire(result), text, control);
}

/* That it came says it all. */
static void heard_heartbeat(rd_control *control, rd_reader *r, int *fd)
{
    (void)control;
    (void)r;
    (void)fd;
}

static const struct {
    const char *name;
    void (*heard)(rd_control *control, rd_reader *payload, int *fd);
} messages[RD_MESSAGES] = {
    [RD_SAY_HELLO] = {"hello", heard_hello},
    [RD_SAY_GOODBYE] = {"goodbye", heard_goodbye},
    [RD_SAY_NEWS] = {"news", heard_news},
    [RD_SAY_HEARTBEAT] = {"a heartbeat", heard_heartbeat},
    [RD_SAY_STOPPED] = {"who is stopped", rd_pulse_heard_stopped},
    [RD_SAY_ASK] = {"a question", rd_collect_heard_ask},
    [RD_SAY_REPORT] = {"a report", rd_collect_heard_report},
    [RD_SAY_SHRINK] = {"who goes on", rd_agree_heard},
};

static void heard(rd_frames *frames, const rd_frame *frame)
{
    rd_control *control = (rd_control *)frames;
    control->heard_at = rd_now();
    if (frame->kind >= RD_MESSAGES || !messages[frame->kind].heard) return; /* of a later version: not for us */
    rd_log(RD_LOG_TRACE, "rank %d hears %s from rank %d", control->member->job.rank, messages[frame->kind].name,
           control->peer);
    rd_reader r = {frame->payload, frame->bytes, false};
    messages[frame->kind].heard(control, &r, frame->fd);
}

/* ---- Connections ---- */

static bool is_power_of_two(int n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

bool rd_control_dials(int from, int to, int world)
{
    int there = (to - from + world) % world, back = (from - to + world) % world;
    return is_power_of_two(there) && (!is_power_of_two(back) || from < to);
}

rd_control *rd_control_to(const rd_member *member, int peer)
{
    rd_control *c = member->controls;
    while (c && c->peer != peer) c = c->next;
    return c;
}

/* This process as a descriptor, for a peer on this host that is another process. */
static int own_pidfd(const rd_member *member, const rd_control *control)
{
    if (!control->frames.over_unix) return -1;
    if (member->contacts && memcmp(member->contacts[control->peer].process, rd_service->token, 16) == 0) return -1;
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (fd >= 0) rd_own(fd);
    return fd; /* -1 in a kernel without: the end of the connection has to do */
}

void rd_control_open(rd_member *member, int peer, int fd)
{
    rd_control *control = rd_control_to(member, peer) ? NULL : calloc(1, sizeof *control);
    if (!control) {
        rd_close_owned(fd);
        return;
    }
    if (rd_frames_open(&control->frames, fd, LONGEST_MESSAGE, heard, connection_ended) != RONDO_SUCCESS) {
        free(control);
        return;
    }
    control->member = member;
    control->peer = peer;
    control->next = member->controls;
    member->controls = control;
    rd_frames_send(&control->frames, rd_blob_new(RD_SAY_HELLO, 0), own_pidfd(member, control));
    for (int rank = 0; rank < member->job.world; rank++) {
        rd_blob *known = state_of(member, rank); /* what it would have heard from us, had it been here */
        if (known) rd_frames_send(&control->frames, known, -1);
    }
    rd_pulse_watch(control);
    pthread_cond_broadcast(&member->changed);
}

/* ---- What this rank has to say ---- */

void rd_member_announce(rd_member *member, rondo_result result, const char *text)
{
    char name[192], line[RD_VERDICT_TEXT_BYTES];
    rd_service_lock();
    rd_rank *self = &member->ranks[member->job.rank];
    if (member->service == rd_service && !member->announced && self->state == RD_PRESENT) {
        rd_member_name(member, member->job.rank, name, sizeof name);
        snprintf(line, sizeof line, "%s reports: %s", name, text);
        member->announced = true;
        self->state = RD_LOST;
        self->result = result;
        self->text = strdup(line);
        rd_control_flood(member, state_of(member, member->job.rank), NULL);
        pthread_cond_broadcast(&member->changed);
    }
    rd_service_unlock();
}

void rd_control_goodbye(rd_member *member, enum rd_left_how how)
{
    rd_rank *self = &member->ranks[member->job.rank];
    if (member->said_goodbye) return;
    member->said_goodbye = true;
    if (self->state != RD_PRESENT) { /* it announced its end; the goodbye only keeps it from looking like a crash */
        rd_rank last = {.how = how, .calls = member->completed};
        for (rd_control *c = member->controls; c; c = c->next)
            rd_frames_send(&c->frames, goodbye_of(member->job.rank, &last), -1);
        return;
    }
    self->state = RD_LEFT;
    self->how = how;
    self->calls = member->completed;
    rd_control_flood(member, state_of(member, member->job.rank), NULL);
}

bool rd_control_flush(rd_member *member)
{
    bool sent = true;
    for (rd_control *c = member->controls; c; c = c->next) {
        if (rd_frames_unsent(&c->frames)) rd_frames_flush(&c->frames);
        sent = sent && !rd_frames_unsent(&c->frames);
    }
    return sent;
}

void rd_control_close(rd_member *member, bool forked)
{
    while (member->controls) {
        rd_control *control = member->controls;
        if (forked) { /* the descriptors are closed, the service that watched them is the parent's: memory only */
            member->controls = control->next;
            free(control->pid);
            free(control->frames.in);
            free(control);
            continue;
        }
        detach(control);
        rd_frames_linger(&control->frames);
    }
}
