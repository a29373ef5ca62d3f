/* SPDX-License-Identifier: Apache-2.0
 *
 * flight_ask.c - asks a running process what it called last. Its service thread answers, whatever its ranks do, with a
 * descriptor of records (docs/wire.md); that it is this process that answers, the kernel says.
 */
#include "cli/flight.h"

#include "base/clock.h"
#include "base/sock.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WHO      "rondo doctor"
#define ANSWER_S 5.0

enum { NAMES = 10 };

/* ---- Asking ---- */

/* A socket of that process itself: others may have taken the name, or the number in another container. */
static rondo_result find_socket(int pid, int *found, uid_t *user)
{
    char name[RD_ADDRESS_TEXT];
    for (int i = 0; i < NAMES; i++) {
        rd_address to;
        pid_t who;
        int fd;
        snprintf(name, sizeof name, i ? "unix:rondo-dump-%d-%d" : "unix:rondo-dump-%d", pid, i);
        RD_TRY(rd_address_parse(&to, name));
        if (rd_sock_connect(&fd, &to, rd_deadline(ANSWER_S)) != RONDO_SUCCESS) continue;
        if (rd_sock_peer_process(fd, user, &who) == RONDO_SUCCESS && who == pid) {
            *found = fd;
            return RONDO_SUCCESS;
        }
        close(fd);
    }
    if (kill(pid, 0) && errno == ESRCH)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "there is no process %d here (a container has process numbers of its own: "
                       "ask inside of it)",
                       pid);
    return rd_fail(RONDO_INVALID_ARGUMENT,
                   "process %d cannot be asked: it has made no communicator, or uses an older "
                   "Rondo, or none, or is in another network namespace (ask there: nsenter -n -t %d)",
                   pid, pid);
}

static rondo_result ask(int pid, int *records)
{
    uid_t user = 0;
    char answer;
    int fd = -1;
    RD_TRY(find_socket(pid, &fd, &user));
    rondo_result result = RONDO_INVALID_USAGE;
    if (user != geteuid() && geteuid() != 0)
        rd_fail(result, "process %d is user %d's, and you are user %d: only its own user and root may ask it", pid,
                (int)user, (int)geteuid());
    else
        result = rd_sock_recv_fds(fd, &answer, 1, records, 1, rd_deadline(ANSWER_S));
    close(fd);
    if (result == RONDO_TIMEOUT)
        return rd_fail(result, "process %d does not answer within %g s: it is stopped (SIGSTOP, or a debugger)", pid,
                       ANSWER_S);
    if (result == RONDO_REMOTE_ERROR)
        return rd_fail(result, "process %d has nothing to tell: it has no communicator yet, or no memory to answer",
                       pid);
    return result;
}

/* ---- Saving ---- */

static rondo_result save_to(const char *path, int records)
{
    char part[65536];
    ssize_t got;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return rd_fail_errno("--save %s", path);
    for (off_t at = 0; (got = pread(records, part, sizeof part, at)) > 0; at += got)
        if (write(fd, part, (size_t)got) != got) break;
    if (close(fd) || got) return rd_fail_errno("--save %s", path);
    return RONDO_SUCCESS;
}

/* ---- Telling ---- */

static void print_one(const rd_flight *flight, int calls)
{
    const rondo_record_header *h = &flight->header;
    char job[9], number[RD_FLIGHT_TEXT], what[RD_FLIGHT_TEXT], age[32], took[32];
    int from = (int)h->calls > calls ? (int)h->calls - calls : 0;
    rd_flight_job_text(h->job, job);
    printf("\ncommunicator %u of job %s: rank %d of %d, %s\n", h->comm_number, job, h->rank, h->size,
           h->result ? "ended" : "running");
    if (h->result) printf("  %s: %s\n", rondo_result_string((rondo_result)h->result), h->error);
    if (!h->calls) printf("  it has called nothing yet\n");
    if (from) printf("  ... %d more before\n", from);
    for (int i = from; i < (int)h->calls; i++) {
        const rondo_record_call *call = &flight->calls[i];
        rd_flight_number_text(call, number);
        rd_flight_call_text(call, what);
        snprintf(age, sizeof age, "%.3g s ago", rd_flight_age(flight, call));
        rd_flight_took_text(flight, call, took);
        printf("  %-12s %-48s begun %-14s %-11s %s\n", number, what, age, took, rd_flight_state(call));
    }
}

static json_object *one_json(const rd_flight *flight, int calls)
{
    const rondo_record_header *h = &flight->header;
    json_object *one = rd_flight_json(h), *list = json_object_new_array();
    json_object_object_add(one, "rank", json_object_new_int(h->rank));
    json_object_object_add(one, "host", json_object_new_string(h->host));
    json_object_object_add(
        one, "state", json_object_new_string(h->result ? rondo_result_string((rondo_result)h->result) : "running"));
    json_object_object_add(one, "error", h->result ? json_object_new_string(h->error) : NULL);
    for (int i = (int)h->calls > calls ? (int)h->calls - calls : 0; i < (int)h->calls; i++)
        json_object_array_add(list, rd_flight_call_json(flight, &flight->calls[i]));
    json_object_object_add(one, "calls", list);
    return one;
}

static void tell(const rd_flights *flights, int pid, int calls, bool json)
{
    if (json) {
        json_object *all = json_object_new_object(), *list = json_object_new_array();
        for (int i = flights->count - 1; i >= 0; i--) json_object_array_add(list, one_json(&flights->list[i], calls));
        json_object_object_add(all, "pid", json_object_new_int(pid));
        json_object_object_add(all, "communicators", list);
        puts(json_object_to_json_string_ext(all, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED |
                                                     JSON_C_TO_STRING_NOSLASHESCAPE));
        json_object_put(all);
        return;
    }
    printf("process %d%s%s: ", pid, flights->count ? " on " : "", flights->count ? flights->list[0].header.host : "");
    if (flights->count)
        printf("%d communicator%s\n", flights->count, flights->count == 1 ? "" : "s");
    else
        printf("no communicator\n");
    for (int i = flights->count - 1; i >= 0; i--)
        print_one(&flights->list[i], calls); /* the newest comes first there */
}

int rd_flight_ask(int pid, int calls, const char *save, bool json)
{
    char name[64];
    rd_flights flights = {.count = 0};
    int records = -1;
    rondo_result result = ask(pid, &records);
    snprintf(name, sizeof name, "the answer of process %d", pid);
    if (result == RONDO_SUCCESS) result = rd_flights_load(&flights, records, name);
    if (result == RONDO_SUCCESS && save) result = save_to(save, records);
    if (result == RONDO_SUCCESS)
        tell(&flights, pid, calls, json);
    else
        fprintf(stderr, WHO ": %s\n", rd_last_error());
    if (records >= 0) close(records);
    rd_flights_free(&flights);
    return result != RONDO_SUCCESS;
}
