/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/dial.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "boot/wire.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void rd_dialing_init(rd_dialing *dialing, const rd_job *job, const rd_settings *settings, int64_t deadline)
{
    memset(dialing, 0, sizeof *dialing);
    dialing->job = job;
    dialing->version = RD_WIRE_VERSION;
    dialing->deadline = deadline;
    dialing->patience_s = 1;
    dialing->require_key = settings->require_key;
    dialing->request.comm_number = job->comm_number;
    dialing->request.world = (uint32_t)job->world;
    dialing->request.from = (uint32_t)job->rank;
    dialing->request.pid = (int32_t)getpid();
    gethostname(dialing->request.host, sizeof dialing->request.host - 1);
}

rondo_result rd_dial_pause(rd_dialing *dialing, int round)
{
    dialing->patience_s = round < 4 ? 2 + round : 5; /* it may be there and busy: rather wait than knock often */
    int64_t at = rd_now() + (round < 10 ? 5 + 5 * round : 50) * INT64_C(1000000);
    if (dialing->go_on) RD_TRY(dialing->go_on(dialing->context));
    if (rd_now() >= dialing->deadline) return RONDO_TIMEOUT;
    poll(NULL, 0, rd_until_ms(at < dialing->deadline ? at : dialing->deadline));
    return RONDO_SUCCESS;
}

/* ---- One attempt ---- */

typedef struct attempt {
    const rd_dialing *dialing;
    const char *address;
    int fd;
    int64_t until;
    rondo_result result; /* once it has FAILED */
    char *reason;
    size_t reason_bytes;
} attempt;

static enum rd_dialed elsewhere(attempt *a, const char *why)
{
    snprintf(a->reason, a->reason_bytes, "%s", why);
    return RD_DIAL_ELSEWHERE;
}

static bool is_unix(const char *address)
{
    return strncmp(address, "unix:", 5) == 0;
}

/* The name of an abstract socket goes with its process: whoever is silent there is alive, and busy or stopped. */
static enum rd_dialed silent(attempt *a, const char *why)
{
    elsewhere(a, why);
    return is_unix(a->address) ? RD_DIAL_LATER : RD_DIAL_SILENT;
}

static enum rd_dialed failed(attempt *a, rondo_result result)
{
    a->result = result;
    return RD_DIAL_FAILED;
}

/* In short sleeps, so that news of the control plane ends it. */
static enum rd_dialed wait_for(attempt *a, short events)
{
    struct pollfd p = {.fd = a->fd, .events = events};
    for (;;) {
        if (a->dialing->go_on) {
            rondo_result result = a->dialing->go_on(a->dialing->context);
            if (result != RONDO_SUCCESS) return failed(a, result);
        }
        int64_t slice = rd_deadline(0.05);
        if (poll(&p, 1, rd_until_ms(slice < a->until ? slice : a->until)) > 0) return RD_DIALED;
        if (rd_now() >= a->until) return silent(a, "no answer");
    }
}

static enum rd_dialed send_all(attempt *a, const void *data, size_t bytes)
{
    for (size_t done = 0, put; done < bytes; done += put) {
        rondo_result result = rd_sock_write(a->fd, (const char *)data + done, bytes - done, &put, NULL, 0);
        if (result == RONDO_SUCCESS) continue;
        if (result != RONDO_IN_PROGRESS) return elsewhere(a, rd_last_error());
        put = 0;
        enum rd_dialed waited = wait_for(a, POLLOUT);
        if (waited != RD_DIALED) return waited;
    }
    return RD_DIALED;
}

static enum rd_dialed receive_all(attempt *a, void *data, size_t bytes)
{
    for (size_t done = 0, got; done < bytes; done += got) {
        rondo_result result = rd_sock_read(a->fd, (char *)data + done, bytes - done, &got, NULL, NULL);
        if (result == RONDO_SUCCESS) continue;
        if (result != RONDO_IN_PROGRESS) return elsewhere(a, "it closed the connection");
        got = 0;
        enum rd_dialed waited = wait_for(a, POLLIN);
        if (waited != RD_DIALED) return waited;
    }
    return RD_DIALED;
}

static enum rd_dialed connect_to(attempt *a)
{
    rd_address to;
    bool done = false;
    rondo_result result = rd_address_parse(&to, a->address);
    if (result != RONDO_SUCCESS) return failed(a, result);
    /* Made and owned in one go: a child forked right after closes its copy. */
    rd_service_lock();
    result = rd_sock_connect_start(&a->fd, &to, &done);
    int error = errno;
    if (result == RONDO_SUCCESS) rd_own(a->fd);
    rd_service_unlock();
    if (result == RONDO_IN_PROGRESS) return silent(a, "its queue is full");
    if (result == RONDO_SYSTEM_ERROR && (error == EMFILE || error == ENFILE)) return failed(a, result);
    if (result != RONDO_SUCCESS) return elsewhere(a, rd_last_error());
    if (done) return RD_DIALED;
    enum rd_dialed waited = wait_for(a, POLLOUT);
    if (waited != RD_DIALED) return waited;
    return rd_sock_connected(a->fd, &to) == RONDO_SUCCESS ? RD_DIALED : elsewhere(a, rd_last_error());
}

static enum rd_dialed check_key_required(attempt *a)
{
    if (a->dialing->job->has_key || !a->dialing->require_key || is_unix(a->address)) return RD_DIALED;
    return elsewhere(a, "not tried: RONDO_REQUIRE_KEY is set, and without RONDO_KEY or RONDO_KEY_FILE there is no key");
}

/* Without a key: on one host the kernel vouches for the user, between hosts nobody does. */
static enum rd_dialed check_keyless(attempt *a)
{
    uid_t user;
    char why[80];
    if (a->dialing->job->has_key) return RD_DIALED;
    if (!is_unix(a->address)) {
        rd_warn_keyless();
        return RD_DIALED;
    }
    if (rd_sock_peer_process(a->fd, &user, NULL) != RONDO_SUCCESS) return elsewhere(a, rd_last_error());
    if (user == geteuid()) return RD_DIALED;
    snprintf(why, sizeof why, "it belongs to user %u, and the job has no key", (unsigned)user);
    return elsewhere(a, why);
}

static enum rd_dialed hear_challenge(attempt *a, const rd_handshake *h)
{
    enum rd_challenge_status status;
    uint32_t version;
    bool proved;
    if (!rd_auth_read_challenge(h, &status, &version, &proved)) return elsewhere(a, "it does not speak Rondo");
    switch (status) {
    case RD_CHALLENGE_OK:
        if (proved) return RD_DIALED;
        return failed(a, rd_fail(RONDO_INVALID_USAGE,
                                 "%s refused: the keys differ, or only one side has one; give all ranks "
                                 "the same RONDO_KEY or RONDO_KEY_FILE",
                                 a->address));
    case RD_CHALLENGE_VERSION:
        return failed(a, rd_fail(RONDO_INVALID_USAGE,
                                 "%s refused: it speaks wire version %u and this process %u; run the same "
                                 "version of Rondo on all ranks",
                                 a->address, version, a->dialing->version));
    case RD_CHALLENGE_KEYLESS:
        return failed(a, rd_fail(RONDO_INVALID_USAGE, "%s refused: %s; set RONDO_KEY or RONDO_KEY_FILE on all ranks",
                                 a->address, rd_challenge_status_name(status)));
    default: return elsewhere(a, rd_challenge_status_name(status));
    }
}

static enum rd_dialed hear_verdict(attempt *a)
{
    unsigned char head[RD_VERDICT_BYTES], bytes[RD_VERDICT_TEXT_BYTES];
    rd_verdict verdict;
    size_t text_bytes;
    enum rd_dialed heard = receive_all(a, head, sizeof head);
    if (heard != RD_DIALED) return heard;
    if (!rd_auth_read_verdict(head, &verdict, &text_bytes)) return elsewhere(a, "it answers nonsense");
    heard = receive_all(a, bytes, text_bytes);
    if (heard != RD_DIALED) return heard;
    rd_reader r = {bytes, text_bytes, false};
    rd_read_text(&r, verdict.text, sizeof verdict.text, text_bytes);
    switch (verdict.kind) {
    case RD_ACCEPTED: return RD_DIALED;
    case RD_NOT_YET: elsewhere(a, verdict.text[0] ? verdict.text : "not there yet"); return RD_DIAL_LATER;
    default: return failed(a, rd_fail(verdict.result, "%s", verdict.text));
    }
}

static enum rd_dialed shake_hands(attempt *a)
{
    rd_handshake h;
    enum rd_dialed step;
    memcpy(h.key, a->dialing->job->key, sizeof h.key);
    rd_auth_write_hello(&h, a->dialing->job->id, a->dialing->version);
    if ((step = send_all(a, h.hello, sizeof h.hello)) != RD_DIALED) return step;
    if ((step = receive_all(a, h.challenge, sizeof h.challenge)) != RD_DIALED) return step;
    if ((step = hear_challenge(a, &h)) != RD_DIALED) return step;
    /* It is the right one: busy it may be, but there is nobody better to ask. */
    a->until = a->dialing->deadline;
    rd_auth_write_request(&h, &a->dialing->request);
    if ((step = send_all(a, h.request, sizeof h.request)) != RD_DIALED) return step;
    return hear_verdict(a);
}

enum rd_dialed rd_dial(const rd_dialing *dialing, const char *address, int *fd, rondo_result *result, char *reason,
                       size_t reason_bytes)
{
    int64_t until = rd_deadline(dialing->patience_s);
    attempt a = {.dialing = dialing,
                 .address = address,
                 .fd = -1,
                 .until = until < dialing->deadline ? until : dialing->deadline,
                 .reason = reason,
                 .reason_bytes = reason_bytes};
    enum rd_dialed dialed = check_key_required(&a);
    if (dialed == RD_DIALED) dialed = connect_to(&a);
    if (dialed == RD_DIALED) dialed = check_keyless(&a);
    if (dialed == RD_DIALED) dialed = shake_hands(&a);
    if (dialed == RD_DIALED) {
        *fd = a.fd;
        return RD_DIALED;
    }
    rd_service_lock();
    rd_close_owned(a.fd);
    rd_service_unlock();
    if (dialed == RD_DIAL_FAILED) *result = a.result;
    return dialed;
}
