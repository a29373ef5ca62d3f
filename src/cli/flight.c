/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/flight.h"

#include "base/dtype.h"
#include "base/status.h"
#include "rondo_plan.h"

#include <byteswap.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_RANKS = 1 << 20 };
#define MOST_BYTES (1ll << 30)

/* ---- Reading ---- */

static rondo_result read_all(int fd, const char *name, unsigned char **data, size_t *bytes)
{
    struct stat about;
    if (fstat(fd, &about)) return rd_fail_errno("%s", name);
    if (!S_ISREG(about.st_mode) || about.st_size > MOST_BYTES)
        return rd_fail(RONDO_INVALID_ARGUMENT, "%s is no record: it must be a file of at most %lld bytes", name,
                       MOST_BYTES);
    size_t size = (size_t)about.st_size, got = 0;
    unsigned char *made = malloc(size + 1);
    if (!made) return rd_fail_errno("no memory for the %zu bytes of %s", size, name);
    while (got < size) { /* by place: whoever made the descriptor stands at its end */
        ssize_t more = pread(fd, made + got, size - got, (off_t)got);
        if (more < 0 && errno == EINTR) continue;
        if (more < 0) {
            free(made);
            return rd_fail_errno("reading %s", name);
        }
        if (more == 0) break;
        got += (size_t)more;
    }
    *data = made;
    *bytes = got;
    return RONDO_SUCCESS;
}

static void make_printable(char *text, size_t bytes)
{
    text[bytes - 1] = '\0';
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f) *text = *text == '\n' ? ' ' : '?';
}

static rondo_result check_header(const rondo_record_header *h, const char *name, size_t at, size_t left)
{
    if (left < offsetof(rondo_record_header, job) || memcmp(h->magic, RONDO_RECORD_MAGIC, sizeof h->magic) != 0)
        return rd_fail(RONDO_INVALID_ARGUMENT, "%s is no record of Rondo, or is damaged, at byte %zu", name, at);
    if (h->version != RONDO_RECORD_VERSION && bswap_32(h->version) == RONDO_RECORD_VERSION)
        return rd_fail(RONDO_INVALID_ARGUMENT, "%s is of a machine with another byte order: read it there", name);
    if (h->version != RONDO_RECORD_VERSION)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "%s has records of version %u, and this tool reads version %d: use the tool "
                       "of the same build as the program's library",
                       name, h->version, RONDO_RECORD_VERSION);
    if (h->bytes != sizeof *h || h->call_bytes != sizeof(rondo_record_call) || h->calls > RONDO_RECORD_CALLS)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "%s is damaged at byte %zu: %u calls of %u bytes after %u, where up to %d of "
                       "%zu after %zu are valid",
                       name, at, h->calls, h->call_bytes, h->bytes, RONDO_RECORD_CALLS, sizeof(rondo_record_call),
                       sizeof *h);
    if (left < sizeof *h + h->calls * sizeof(rondo_record_call))
        return rd_fail(RONDO_INVALID_ARGUMENT, "%s is cut off: %zu bytes are missing at its end", name,
                       sizeof *h + h->calls * sizeof(rondo_record_call) - left);
    if (h->size < 1 || h->size > MOST_RANKS || h->rank < 0 || h->rank >= h->size)
        return rd_fail(RONDO_INVALID_ARGUMENT, "%s is damaged at byte %zu: rank %d of %d", name, at, h->rank, h->size);
    return RONDO_SUCCESS;
}

static rondo_result add(rd_flights *flights, const rondo_record_header *header, const unsigned char *calls)
{
    rd_flight flight = {.header = *header};
    size_t bytes = header->calls * sizeof *flight.calls;
    rd_flight *list = realloc(flights->list, ((size_t)flights->count + 1) * sizeof *list);
    if (list) flights->list = list;
    flight.calls = malloc(bytes + 1);
    if (!list || !flight.calls) {
        free(flight.calls);
        return rd_fail(RONDO_SYSTEM_ERROR, "no memory for %d records", flights->count + 1);
    }
    memcpy(flight.calls, calls, bytes);
    make_printable(flight.header.host, sizeof flight.header.host);
    make_printable(flight.header.error, sizeof flight.header.error);
    flights->list[flights->count++] = flight;
    return RONDO_SUCCESS;
}

rondo_result rd_flights_load(rd_flights *flights, int fd, const char *name)
{
    unsigned char *data = NULL;
    size_t bytes = 0, at = 0;
    RD_TRY(read_all(fd, name, &data, &bytes));
    rondo_result result = RONDO_SUCCESS;
    while (result == RONDO_SUCCESS && at < bytes) {
        rondo_record_header header = {.version = 0};
        size_t left = bytes - at;
        memcpy(&header, data + at, left < sizeof header ? left : sizeof header);
        result = check_header(&header, name, at, left);
        if (result != RONDO_SUCCESS) break;
        result = add(flights, &header, data + at + sizeof header);
        at += sizeof header + header.calls * sizeof(rondo_record_call);
    }
    free(data);
    return result;
}

void rd_flights_free(rd_flights *flights)
{
    for (int i = 0; i < flights->count; i++) free(flights->list[i].calls);
    free(flights->list);
    *flights = (rd_flights){.count = 0};
}

/* ---- Words ---- */

bool rd_flight_is_message(const rondo_record_call *call)
{
    return call->kind == RONDO_RECORD_SEND || call->kind == RONDO_RECORD_RECV;
}

bool rd_flight_reduces(const rondo_record_call *call)
{
    return call->kind == RONDO_RECORD_COLLECTIVE &&
           (call->collective == RONDO_COLL_ALL_REDUCE || call->collective == RONDO_COLL_REDUCE_SCATTER ||
            call->collective == RONDO_COLL_REDUCE);
}

bool rd_flight_has_root(const rondo_record_call *call)
{
    return call->kind == RONDO_RECORD_COLLECTIVE &&
           (rondo_is_chain(call->collective) || call->collective == RONDO_COLL_GATHER ||
            call->collective == RONDO_COLL_SCATTER);
}

static const char *name_of(const rondo_record_call *call)
{
    static const char *const names[] = {"rondo_all_reduce", "rondo_reduce_scatter", "rondo_all_gather",
                                        "rondo_broadcast",  "rondo_reduce",         "rondo_gather",
                                        "rondo_scatter",    "rondo_all_to_all"};
    _Static_assert(sizeof names / sizeof *names == RONDO_COLLECTIVES, "a name for each");
    switch (call->kind) {
    case RONDO_RECORD_SPLIT: return "rondo_comm_split";
    case RONDO_RECORD_SEND: return "rondo_send";
    case RONDO_RECORD_RECV: return "rondo_recv";
    case RONDO_RECORD_BARRIER: return "rondo_barrier";
    default: return call->kind || call->collective >= RONDO_COLLECTIVES ? "an unknown call" : names[call->collective];
    }
}

static const char *type_of(const rondo_record_call *call)
{
    return call->dtype < RONDO_DTYPES ? rd_dtype_name((rondo_dtype)call->dtype) : "elements";
}

static const char *op_of(const rondo_record_call *call)
{
    return call->op < RONDO_OPS ? rd_op_name((rondo_op)call->op) : "its own operator";
}

void rd_flight_call_text(const rondo_record_call *call, char text[RD_FLIGHT_TEXT])
{
    char several[32] = "", rest[48] = "";
    if (call->kind == RONDO_RECORD_SPLIT || call->kind == RONDO_RECORD_BARRIER) {
        snprintf(text, RD_FLIGHT_TEXT, "%s", name_of(call));
        return;
    }
    if (call->together > 1) snprintf(several, sizeof several, "%u calls of ", call->together);
    if (rd_flight_is_message(call))
        snprintf(rest, sizeof rest, " %s rank %d", call->kind == RONDO_RECORD_SEND ? "to" : "from", call->root);
    else if (rd_flight_has_root(call))
        snprintf(rest, sizeof rest, ", root %d", call->root);
    snprintf(text, RD_FLIGHT_TEXT, "%s%s of %llu %s%s%s%s", several, name_of(call), (unsigned long long)call->count,
             type_of(call), rd_flight_reduces(call) ? ", " : "", rd_flight_reduces(call) ? op_of(call) : "", rest);
}

void rd_flight_number_text(const rondo_record_call *call, char text[RD_FLIGHT_TEXT])
{
    unsigned long long number = call->number;
    if (rd_flight_is_message(call))
        snprintf(text, RD_FLIGHT_TEXT, "message %llu", number);
    else if (call->together > 1)
        snprintf(text, RD_FLIGHT_TEXT, "calls %llu-%llu", number - call->together + 1, number);
    else
        snprintf(text, RD_FLIGHT_TEXT, "call %llu", number);
}

const char *rd_flight_state(const rondo_record_call *call)
{
    if (call->result == RONDO_IN_PROGRESS) return "running";
    return call->result == RONDO_SUCCESS ? "done" : rondo_result_string((rondo_result)call->result);
}

/* The two clocks behind them agree to some microseconds only. */
static double seconds_between(uint64_t early, uint64_t late)
{
    return late > early ? (double)(late - early) * 1e-9 : 0;
}

double rd_flight_age(const rd_flight *flight, const rondo_record_call *call)
{
    return seconds_between(call->begun_ns, flight->header.written_ns);
}

double rd_flight_took(const rd_flight *flight, const rondo_record_call *call)
{
    return seconds_between(call->begun_ns, call->ended_ns ? call->ended_ns : flight->header.written_ns);
}

/* What does not wait has no second look at the clock: its end is put at its beginning. */
static bool is_short(const rondo_record_call *call)
{
    enum { NEAR_NS = 1000 };
    return call->ended_ns && call->ended_ns < call->begun_ns + NEAR_NS;
}

void rd_flight_took_text(const rd_flight *flight, const rondo_record_call *call, char text[32])
{
    if (is_short(call))
        snprintf(text, 32, "short");
    else
        snprintf(text, 32, "%.3g s", rd_flight_took(flight, call));
}

void rd_flight_job_text(const unsigned char job[16], char text[9])
{
    snprintf(text, 9, "%02x%02x%02x%02x", job[0], job[1], job[2], job[3]);
}

/* ---- For programs ---- */

static void put_text(json_object *to, const char *key, const char *text)
{
    json_object_object_add(to, key, text ? json_object_new_string(text) : NULL);
}

/* Microseconds are all that is known. */
static void put_seconds(json_object *to, const char *key, double seconds)
{
    char text[32];
    snprintf(text, sizeof text, "%.6f", seconds);
    json_object_object_add(to, key, json_object_new_double_s(seconds, text));
}

json_object *rd_flight_call_json(const rd_flight *flight, const rondo_record_call *call)
{
    json_object *one = json_object_new_object();
    char text[RD_FLIGHT_TEXT];
    bool message = rd_flight_is_message(call),
         bare = call->kind == RONDO_RECORD_SPLIT || call->kind == RONDO_RECORD_BARRIER;
    rd_flight_call_text(call, text);
    json_object_object_add(one, "number", json_object_new_uint64(call->number));
    put_text(one, "call", name_of(call));
    put_text(one, "text", text);
    json_object_object_add(one, "count", bare ? NULL : json_object_new_uint64(call->count));
    put_text(one, "dtype", bare ? NULL : type_of(call));
    put_text(one, "op", rd_flight_reduces(call) ? op_of(call) : NULL);
    json_object_object_add(one, "root", rd_flight_has_root(call) ? json_object_new_int(call->root) : NULL);
    json_object_object_add(one, "peer", message ? json_object_new_int(call->root) : NULL);
    json_object_object_add(one, "together", json_object_new_int64(call->together));
    put_seconds(one, "age_s", rd_flight_age(flight, call));
    if (is_short(call))
        json_object_object_add(one, "took_s", NULL);
    else
        put_seconds(one, "took_s", rd_flight_took(flight, call));
    put_text(one, "state", rd_flight_state(call));
    return one;
}

json_object *rd_flight_json(const rondo_record_header *header)
{
    json_object *one = json_object_new_object();
    char job[33];
    for (int i = 0; i < 16; i++) snprintf(job + 2 * i, 3, "%02x", header->job[i]);
    put_text(one, "job", job);
    json_object_object_add(one, "number", json_object_new_int64(header->comm_number));
    json_object_object_add(one, "size", json_object_new_int(header->size));
    return one;
}
