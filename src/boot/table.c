/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/boot.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "boot/dial.h"
#include "boot/frames.h"
#include "boot/table.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLICE_SECONDS 0.05
#define GRACE_SECONDS 0.5 /* the server knows more about a gather that is overdue than we: wait for its words */

struct rd_table {
    int fd;
    int rank, world;
    double timeout_s;
    const _Atomic int *stop;
    uint64_t starved; /* rd_door_starved() when the call began */
    char where[RD_ADDRESS_TEXT];
};

/* ---- Waiting ---- */

static rondo_result go_on(void *context)
{
    const rd_table *table = context;
    if (table->stop && *table->stop) return rd_fail(RONDO_ABORTED, "the start of rank %d was cancelled", table->rank);
    rd_service_lock();
    rondo_result result = rd_door_check(table->starved);
    rd_service_unlock();
    return result;
}

static void begin(rd_table *table)
{
    rd_service_lock();
    table->starved = rd_door_starved();
    rd_service_unlock();
}

/* In short sleeps, to look at what may end it. */
static rondo_result wait_for(rd_table *table, short events, int64_t deadline)
{
    struct pollfd p = {.fd = table->fd, .events = events};
    for (;;) {
        RD_TRY(go_on(table));
        int64_t slice = rd_deadline(SLICE_SECONDS);
        if (poll(&p, 1, rd_until_ms(slice < deadline ? slice : deadline)) > 0) return RONDO_SUCCESS;
        if (rd_now() >= deadline) return RONDO_TIMEOUT;
    }
}

static rondo_result send_all(rd_table *table, const void *data, size_t bytes, int64_t deadline)
{
    rondo_result result;
    for (size_t done = 0, put; done < bytes; done += put) {
        while ((result = rd_sock_write(table->fd, (const char *)data + done, bytes - done, &put, NULL, 0)) ==
               RONDO_IN_PROGRESS)
            RD_TRY(wait_for(table, POLLOUT, deadline));
        RD_TRY(result);
    }
    return RONDO_SUCCESS;
}

static rondo_result receive_all(rd_table *table, void *data, size_t bytes, int64_t deadline)
{
    rondo_result result;
    for (size_t done = 0, got; done < bytes; done += got) {
        while ((result = rd_sock_read(table->fd, (char *)data + done, bytes - done, &got, NULL, NULL)) ==
               RONDO_IN_PROGRESS)
            RD_TRY(wait_for(table, POLLIN, deadline));
        RD_TRY(result);
    }
    return RONDO_SUCCESS;
}

/* ---- Joining ---- */

typedef struct search {
    rd_dialing dialing;
    rd_table *table;
    rondo_result result;
    char reasons[RD_ROOTS][192]; /* the last for each of the job's addresses */
} search;

/* One address, and all ports that it stands for. */
static enum rd_dialed try_root(search *s, const rd_job *job, int root)
{
    bool range = strncmp(job->root[root], "unix:", 5) != 0 && job->root_ports > 0;
    rd_address at;
    for (int i = 0; i < (range ? job->root_ports : 1); i++) {
        char where[RD_ADDRESS_TEXT], reason[192] = "";
        snprintf(where, sizeof where, "%s", job->root[root]);
        if (range && rd_address_parse(&at, where) == RONDO_SUCCESS) {
            rd_address_set_port(&at, job->root_port + i);
            rd_address_print(&at, where);
        }
        enum rd_dialed dialed = rd_dial(&s->dialing, where, &s->table->fd, &s->result, reason, sizeof reason);
        if (dialed == RD_DIALED) snprintf(s->table->where, sizeof s->table->where, "%s", where);
        if (dialed == RD_DIALED || dialed == RD_DIAL_FAILED) return dialed;
        if (strstr(reason, where))
            snprintf(s->reasons[root], sizeof s->reasons[root], "%s", reason);
        else
            snprintf(s->reasons[root], sizeof s->reasons[root], "%s: %.120s", where, reason);
        if (rd_now() >= s->dialing.deadline) break;
    }
    return RD_DIAL_ELSEWHERE;
}

#define TRIED_BYTES (RD_ERROR_BYTES - 256)

static void say_tried(const search *s, const rd_job *job, char tried[TRIED_BYTES])
{
    tried[0] = 0;
    for (int i = 0; i < job->roots; i++) {
        size_t have = strlen(tried);
        snprintf(tried + have, TRIED_BYTES - have, "%s%s", i ? "; " : "",
                 s->reasons[i][0] ? s->reasons[i] : job->root[i]);
    }
}

static rondo_result not_found(const search *s, const rd_job *job, double seconds)
{
    char tried[TRIED_BYTES];
    say_tried(s, job, tried);
    return rd_fail(RONDO_TIMEOUT, "rank %d did not reach rank 0 within %.3g s, at any of its addresses: %s", job->rank,
                   seconds, tried);
}

/* Round and round, until one of the addresses answers or the time, which was so many seconds, is up. */
static enum rd_dialed find_root(search *s, const rd_job *job, const rd_settings *settings, double seconds)
{
    int64_t warn_at = rd_deadline(settings->slow_warning_s);
    for (int round = 0;; round++) {
        enum rd_dialed dialed = RD_DIAL_ELSEWHERE;
        for (int root = 0; root < job->roots && dialed == RD_DIAL_ELSEWHERE; root++) dialed = try_root(s, job, root);
        if (dialed != RD_DIAL_ELSEWHERE) return dialed;
        s->result = rd_dial_pause(&s->dialing, round);
        if (s->result == RONDO_TIMEOUT) s->result = not_found(s, job, seconds);
        if (s->result != RONDO_SUCCESS) return RD_DIAL_FAILED;
        if (rd_now() < warn_at) continue;
        char tried[TRIED_BYTES];
        say_tried(s, job, tried);
        rd_log(RD_LOG_WARN, "rank %d has not reached rank 0 in %.3g s, at any of its addresses: %s", job->rank,
               settings->slow_warning_s, tried);
        warn_at = INT64_MAX;
    }
}

rondo_result rd_table_open(rd_table **table, const rd_job *job, const rd_settings *settings, int64_t deadline,
                           const _Atomic int *stop)
{
    double seconds = (double)(deadline - rd_now()) * 1e-9;
    RD_TRY(rd_service_start(settings));
    if (job->is_root) RD_TRY(rd_serve_environment_job(job, settings));
    if (job->roots < 1) return rd_fail(RONDO_INVALID_ARGUMENT, "the job names no address of its rank 0");
    search *s = calloc(1, sizeof *s);
    rd_table *t = calloc(1, sizeof *t);
    if (!s || !t) {
        free(s);
        free(t);
        return rd_fail(RONDO_SYSTEM_ERROR, "no memory for the rendezvous table");
    }
    rd_dialing_init(&s->dialing, job, settings, deadline);
    s->dialing.request.purpose = RD_PURPOSE_TABLE;
    s->table = t;
    t->rank = job->rank;
    t->world = job->world;
    t->timeout_s = settings->timeout_s;
    t->stop = stop;
    begin(t);
    s->dialing.go_on = go_on;
    s->dialing.context = t;
    rondo_result result = find_root(s, job, settings, seconds) == RD_DIALED ? RONDO_SUCCESS : s->result;
    free(s);
    if (result != RONDO_SUCCESS) {
        free(t);
        return result;
    }
    *table = t;
    return RONDO_SUCCESS;
}

void rd_table_close(rd_table *table)
{
    if (!table) return;
    unsigned char leave[RD_FRAME_HEAD];
    rd_writer w = {leave, sizeof leave, false};
    rd_write_u32(&w, 0);
    rd_write_u16(&w, RD_TABLE_LEAVE);
    rd_write_u16(&w, 0);
    /* Not by rd_sock_write: the last error, which may be why the table closes, stays. */
    if (table->fd >= 0) (void)!send(table->fd, leave, sizeof leave, MSG_DONTWAIT | MSG_NOSIGNAL);
    rd_service_lock();
    rd_close_owned(table->fd);
    rd_service_unlock();
    free(table);
}

/* ---- Requests ---- */

static rondo_result table_lost(const rd_table *table, rondo_result result)
{
    if (result == RONDO_ABORTED || result == RONDO_SYSTEM_ERROR) return result;
    if (result == RONDO_TIMEOUT)
        return rd_fail(result, "the rendezvous at %s does not answer: the process of rank 0 is stopped or cut off",
                       table->where);
    return rd_fail(RONDO_REMOTE_ERROR, "the rendezvous at %s is gone: the process of rank 0 died or left (%s)",
                   table->where, rd_last_error());
}

static rondo_result request(rd_table *table, uint16_t kind, const void *head, size_t head_bytes, const void *value,
                            size_t bytes, int64_t deadline)
{
    unsigned char frame[RD_FRAME_HEAD + 10 + RD_TABLE_KEY];
    rd_writer w = {frame, sizeof frame, false};
    rd_write_u32(&w, (uint32_t)(head_bytes + bytes));
    rd_write_u16(&w, kind);
    rd_write_u16(&w, 0);
    rd_write_bytes(&w, head, head_bytes);
    begin(table);
    rondo_result result = send_all(table, frame, sizeof frame - w.left, deadline);
    if (result == RONDO_SUCCESS && bytes) result = send_all(table, value, bytes, deadline);
    return result == RONDO_SUCCESS ? result : table_lost(table, result);
}

/* The answer to the last request: a value of exactly `bytes` bytes, or the failure. */
static rondo_result response(rd_table *table, uint16_t expected, void *value, size_t bytes, int64_t deadline)
{
    unsigned char head[RD_FRAME_HEAD], failure[4 + RD_TABLE_TEXT];
    char text[RD_TABLE_TEXT + 1];
    rondo_result result = receive_all(table, head, sizeof head, deadline);
    if (result != RONDO_SUCCESS) return table_lost(table, result);
    rd_reader r = {head, sizeof head, false};
    size_t length = rd_read_u32(&r);
    uint16_t kind = rd_read_u16(&r);
    if (kind == RD_TABLE_FAILED && length >= 4 && length <= sizeof failure) {
        result = receive_all(table, failure, length, deadline);
        if (result != RONDO_SUCCESS) return table_lost(table, result);
        rd_reader f = {failure, length, false};
        result = rd_result_from_wire(rd_read_u32(&f));
        rd_read_text(&f, text, sizeof text, length - 4);
        return rd_fail(result, "%s", text);
    }
    if (kind != expected || length != bytes) {
        shutdown(table->fd, SHUT_RDWR); /* what follows could not be told from a head */
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "the rendezvous answered with %zu bytes of kind %d where %zu of kind %d belong", length, kind,
                       bytes, expected);
    }
    result = bytes ? receive_all(table, value, bytes, deadline) : RONDO_SUCCESS;
    return result == RONDO_SUCCESS ? result : table_lost(table, result);
}

static rondo_result check_key(const char *key, size_t bytes)
{
    size_t length = strlen(key);
    if (length < 1 || length > RD_TABLE_KEY)
        return rd_fail(RONDO_INVALID_ARGUMENT, "a key of the table has 1 to %d bytes; this one has %zu: %.80s",
                       RD_TABLE_KEY, length, key);
    if (bytes > RD_TABLE_VALUE_BYTES)
        return rd_fail(RONDO_INVALID_ARGUMENT, "a value in the table has at most %d bytes; that of %s has %zu",
                       RD_TABLE_VALUE_BYTES, key, bytes);
    return RONDO_SUCCESS;
}

rondo_result rd_table_put(rd_table *table, const char *key, const void *value, size_t bytes)
{
    int64_t deadline = rd_deadline(table->timeout_s);
    unsigned char head[2 + RD_TABLE_KEY];
    rd_writer w = {head, sizeof head, false};
    RD_TRY(check_key(key, bytes));
    rd_write_u16(&w, (uint16_t)strlen(key));
    rd_write_bytes(&w, key, strlen(key));
    RD_TRY(request(table, RD_TABLE_PUT, head, sizeof head - w.left, value, bytes, deadline));
    return response(table, RD_TABLE_OK, NULL, 0, deadline);
}

rondo_result rd_table_get(rd_table *table, const char *key, void *value, size_t bytes)
{
    int64_t deadline = rd_deadline(table->timeout_s);
    RD_TRY(check_key(key, bytes));
    RD_TRY(request(table, RD_TABLE_GET, key, strlen(key), NULL, 0, deadline));
    return response(table, RD_TABLE_VALUE, value, bytes, deadline);
}

rondo_result rd_table_exchange(rd_table *table, const char *name, const void *mine, size_t bytes, void *all,
                               int64_t deadline)
{
    unsigned char head[10 + RD_TABLE_KEY];
    rd_writer w = {head, sizeof head, false};
    RD_TRY(check_key(name, bytes));
    if (bytes * (size_t)table->world > RD_TABLE_GATHER_BYTES)
        return rd_fail(RONDO_INVALID_ARGUMENT, "an exchange moves at most %d bytes; %s has %zu from each of %d ranks",
                       RD_TABLE_GATHER_BYTES, name, bytes, table->world);
    int64_t left = deadline - rd_now();
    rd_write_u64(&w, left > 0 ? (uint64_t)left / 1000000 + 1 : 0);
    rd_write_u16(&w, (uint16_t)strlen(name));
    rd_write_bytes(&w, name, strlen(name));
    int64_t patience = deadline > INT64_MAX / 2 ? deadline : deadline + (int64_t)(GRACE_SECONDS * 1e9);
    RD_TRY(request(table, RD_TABLE_GATHER, head, sizeof head - w.left, mine, bytes, patience));
    return response(table, RD_TABLE_VALUE, all, bytes * (size_t)table->world, patience);
}

rondo_result rd_table_fence(rd_table *table, int64_t deadline)
{
    return rd_table_exchange(table, "fence", NULL, 0, NULL, deadline);
}
