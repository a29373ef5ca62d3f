/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/flight.h"

#include "base/status.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WHO "rondo doctor"

enum { MOST_MESSAGES = 8 };

/* ---- The directory ---- */

typedef struct skipped {
    char **list;
    int count;
} skipped;

static void skip(skipped *skips, const char *why)
{
    char **list = realloc(skips->list, ((size_t)skips->count + 1) * sizeof *list);
    fprintf(stderr, WHO ": skipped: %s\n", why);
    if (!list) return;
    skips->list = list;
    skips->list[skips->count] = strdup(why);
    skips->count += skips->list[skips->count] != NULL;
}

static int is_record(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    return length > 4 && strcmp(entry->d_name + length - 4, ".rec") == 0;
}

static void load_file(rd_flights *flights, const char *path, skipped *skips)
{
    char why[RD_ERROR_BYTES];
    int before = flights->count, fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    rondo_result result = fd < 0 ? rd_fail_errno("%s", path) : rd_flights_load(flights, fd, path);
    if (fd >= 0) close(fd);
    if (result == RONDO_SUCCESS && flights->count == before)
        result = rd_fail(RONDO_INVALID_ARGUMENT, "%s has no record in it", path);
    snprintf(why, sizeof why, "%s", rd_last_error());
    if (result != RONDO_SUCCESS) skip(skips, why);
}

static rondo_result load_directory(rd_flights *flights, const char *directory, skipped *skips)
{
    struct dirent **names;
    int count = scandir(directory, &names, is_record, alphasort);
    if (count < 0) return rd_fail_errno("--merge %s", directory);
    for (int i = 0; i < count; i++) {
        char *path = NULL;
        if (asprintf(&path, "%s/%s", directory, names[i]->d_name) >= 0) load_file(flights, path, skips);
        free(path);
        free(names[i]);
    }
    free(names);
    if (!count)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "--merge %s: there is no record (*.rec) in it; they come there when a "
                       "communicator ends by an error and RONDO_RECORD=%s is set, or by --pid with --save",
                       directory, directory);
    if (!flights->count)
        return rd_fail(RONDO_INVALID_ARGUMENT, "--merge %s: none of %d records can be read", directory, count);
    return RONDO_SUCCESS;
}

/* ---- For people ---- */

static void print_difference(const rd_merged *m)
{
    char what[RD_FLIGHT_TEXT];
    printf("  call %llu differs:\n", (unsigned long long)m->differs);
    for (int r = 0; r < m->size; r++) {
        bool said = false;
        if (!m->at[r]) continue;
        for (int before = 0; before < r && !said; before++) said = rd_merged_calls_alike(m, before, m->at[r]);
        if (said) continue;
        rd_flight_call_text(m->at[r], what);
        printf("    ");
        rd_merged_say_ranks(stdout, m, rd_merged_calls_alike, m->at[r]);
        printf(" called %s\n", what);
    }
}

static void print_call(const rd_flight *flight, const rondo_record_call *call)
{
    char what[RD_FLIGHT_TEXT], number[RD_FLIGHT_TEXT], took[32];
    rd_flight_call_text(call, what);
    rd_flight_number_text(call, number);
    rd_flight_took_text(flight, call, took);
    printf("    %s, %s: begun %.3g s before, took %s, %s\n", number, what, rd_flight_age(flight, call), took,
           rd_flight_state(call));
}

/* Without "rank 3 (pid 7 on h): " before it, which says whose error it was that this rank heard of. */
static const char *bare_error(const rondo_record_header *header)
{
    const char *end = strncmp(header->error, "rank ", 5) ? NULL : strchr(header->error, ')');
    return end && end[1] == ':' && end[2] == ' ' ? end + 3 : header->error;
}

static bool is_cut(const rondo_record_header *header)
{
    return strlen(header->error) == sizeof header->error - 1;
}

static bool ends_alike(const rd_merged *m, int rank, const void *header)
{
    const rondo_record_header *a = header, *b = m->of[rank] ? &m->of[rank]->header : NULL;
    if (!b || a->result != b->result) return false;
    const char *x = bare_error(a), *y = bare_error(b);
    size_t nx = strlen(x), ny = strlen(y);
    return strncmp(x, y, nx < ny ? nx : ny) == 0 && (nx == ny || is_cut(nx < ny ? a : b));
}

static int count_alike(const rd_merged *m, int rank)
{
    int count = 0;
    for (int r = 0; r < m->size; r++) count += ends_alike(m, r, &m->of[rank]->header);
    return count;
}

/* Its last collective, the messages that are not done, and why it ended. */
static void print_rank(const rd_merged *m, int rank)
{
    const rd_flight *flight = m->of[rank];
    if (!flight) return;
    const rondo_record_header *h = &flight->header;
    printf("  rank %d (pid %d on %s)%s\n", rank, h->pid, h->host, rd_merged_is_late(m, rank, NULL) ? ", late" : "");
    if (m->last[rank])
        print_call(flight, m->last[rank]);
    else
        printf("    no collective\n");
    for (uint32_t i = 0; i < h->calls; i++)
        if (rd_flight_is_message(&flight->calls[i]) && flight->calls[i].result != RONDO_SUCCESS)
            print_call(flight, &flight->calls[i]);
    if (h->result && count_alike(m, rank) == 1)
        printf("    ended: %s: %s\n", rondo_result_string((rondo_result)h->result), h->error);
}

/* What several ended with, once. */
static void print_common_ends(const rd_merged *m)
{
    for (int r = 0; r < m->size; r++) {
        bool said = false;
        if (!m->of[r] || !m->of[r]->header.result || count_alike(m, r) == 1) continue;
        for (int before = 0; before < r && !said; before++) said = ends_alike(m, before, &m->of[r]->header);
        if (said) continue;
        printf("  ");
        rd_merged_say_ranks(stdout, m, ends_alike, &m->of[r]->header);
        printf(" ended: %s: %s\n", rondo_result_string((rondo_result)m->of[r]->header.result),
               bare_error(&m->of[r]->header));
    }
}

/* said: its verdict is above. */
static void print_one(const rd_merged *m, bool said)
{
    char job[9], text[3 * RD_FLIGHT_TEXT];
    rd_flight_job_text(m->any->header.job, job);
    printf("\ncommunicator %u of job %s: %d rank%s, records of %d\n", m->any->header.comm_number, job, m->size,
           m->size == 1 ? "" : "s", m->records);
    if (!said) printf("  verdict: %s\n", m->verdict);
    if (m->records < m->size && m->trouble != RD_TROUBLE_MISSING) {
        printf("  no record of ");
        rd_merged_say_ranks(stdout, m, rd_merged_is_missing, NULL);
        printf("\n");
    }
    if (m->differs) print_difference(m);
    for (int i = 0; i < m->lonely_count && i < MOST_MESSAGES; i++) {
        rd_lonely_text(&m->lonely[i], text);
        printf("  %s\n", text);
    }
    if (m->lonely_count > MOST_MESSAGES) printf("  and %d messages more like these\n", m->lonely_count - MOST_MESSAGES);
    for (int r = 0; r < m->size; r++) print_rank(m, r);
    print_common_ends(m);
}

static int find_worst(const rd_merged *merged, int count)
{
    int worst = 0;
    for (int i = 1; i < count; i++)
        if (merged[i].trouble > merged[worst].trouble) worst = i;
    return worst;
}

/* The worst of several is the verdict on all. */
static char *overall(const rd_merged *merged, int count)
{
    const rd_merged *worst = &merged[find_worst(merged, count)];
    char *text = NULL, job[9];
    rd_flight_job_text(worst->any->header.job, job);
    if (count == 1) return strdup(worst->verdict);
    if (asprintf(&text, "communicator %u of job %s: %s", worst->any->header.comm_number, job, worst->verdict) < 0)
        return NULL;
    return text;
}

/* ---- For programs ---- */

static json_object *ranks_json(const rd_merged *m, rd_merged_test *test, const void *context)
{
    json_object *list = json_object_new_array();
    for (int r = 0; r < m->size; r++)
        if (test(m, r, context)) json_object_array_add(list, json_object_new_int(r));
    return list;
}

static json_object *difference_json(const rd_merged *m)
{
    if (!m->differs) return NULL;
    json_object *one = json_object_new_object(), *calls = json_object_new_array();
    json_object_object_add(one, "number", json_object_new_uint64(m->differs));
    for (int r = 0; r < m->size; r++) {
        bool said = false;
        if (!m->at[r]) continue;
        for (int before = 0; before < r && !said; before++) said = rd_merged_calls_alike(m, before, m->at[r]);
        if (said) continue;
        json_object *call = rd_flight_call_json(m->of[r], m->at[r]);
        json_object_object_add(call, "ranks", ranks_json(m, rd_merged_calls_alike, m->at[r]));
        json_object_array_add(calls, call);
    }
    json_object_object_add(one, "calls", calls);
    return one;
}

static json_object *message_json(const rd_lonely *lonely)
{
    json_object *one = json_object_new_object();
    char text[3 * RD_FLIGHT_TEXT];
    rd_lonely_text(lonely, text);
    json_object_object_add(one, "from", json_object_new_int(lonely->from));
    json_object_object_add(one, "to", json_object_new_int(lonely->to));
    json_object_object_add(one, "number", json_object_new_uint64(lonely->call->number));
    json_object_object_add(one, "text", json_object_new_string(text));
    return one;
}

static json_object *rank_json(const rd_merged *m, int rank)
{
    const rd_flight *flight = m->of[rank];
    const rondo_record_header *h = &flight->header;
    json_object *one = json_object_new_object(), *open = json_object_new_array();
    json_object_object_add(one, "rank", json_object_new_int(rank));
    json_object_object_add(one, "host", json_object_new_string(h->host));
    json_object_object_add(one, "pid", json_object_new_int(h->pid));
    json_object_object_add(one, "error", h->result ? json_object_new_string(h->error) : NULL);
    json_object_object_add(one, "last", m->last[rank] ? rd_flight_call_json(flight, m->last[rank]) : NULL);
    for (uint32_t i = 0; i < h->calls; i++)
        if (rd_flight_is_message(&flight->calls[i]) && flight->calls[i].result != RONDO_SUCCESS)
            json_object_array_add(open, rd_flight_call_json(flight, &flight->calls[i]));
    json_object_object_add(one, "messages", open);
    return one;
}

static json_object *one_json(const rd_merged *m)
{
    json_object *one = rd_flight_json(&m->any->header), *messages = json_object_new_array(),
                *ranks = json_object_new_array();
    json_object_object_add(one, "verdict", json_object_new_string(m->verdict));
    json_object_object_add(one, "missing", ranks_json(m, rd_merged_is_missing, NULL));
    json_object_object_add(one, "late", ranks_json(m, rd_merged_is_late, NULL));
    json_object_object_add(one, "ahead", json_object_new_uint64(m->most - m->least));
    json_object_object_add(one, "differs", difference_json(m));
    for (int i = 0; i < m->lonely_count; i++) json_object_array_add(messages, message_json(&m->lonely[i]));
    json_object_object_add(one, "messages", messages);
    for (int r = 0; r < m->size; r++)
        if (m->of[r]) json_object_array_add(ranks, rank_json(m, r));
    json_object_object_add(one, "ranks", ranks);
    return one;
}

static void print_json(const rd_merged *merged, int count, const char *verdict, const skipped *skips)
{
    json_object *all = json_object_new_object(), *list = json_object_new_array(), *left = json_object_new_array();
    for (int i = 0; i < count; i++) json_object_array_add(list, one_json(&merged[i]));
    for (int i = 0; i < skips->count; i++) json_object_array_add(left, json_object_new_string(skips->list[i]));
    json_object_object_add(all, "verdict", json_object_new_string(verdict));
    json_object_object_add(all, "communicators", list);
    json_object_object_add(all, "skipped", left);
    puts(json_object_to_json_string_ext(all, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED |
                                                 JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(all);
}

/* ---- The command ---- */

int rd_flight_merge(const char *directory, bool json)
{
    rd_flights flights = {.count = 0};
    rd_merged *merged = NULL;
    skipped skips = {.count = 0};
    int count = 0;
    char *verdict = NULL;
    rondo_result result = load_directory(&flights, directory, &skips);
    if (result == RONDO_SUCCESS) result = rd_flights_merge(&flights, &merged, &count);
    if (result == RONDO_SUCCESS && !(verdict = overall(merged, count)))
        result = rd_fail_errno("no memory for the verdict");
    if (result != RONDO_SUCCESS) {
        fprintf(stderr, WHO ": %s\n", rd_last_error());
    } else if (json) {
        print_json(merged, count, verdict, &skips);
    } else {
        printf("%s\n", verdict);
        for (int i = 0; i < count; i++) print_one(&merged[i], i == find_worst(merged, count));
    }
    for (int i = 0; i < skips.count; i++) free(skips.list[i]);
    free(skips.list);
    free(verdict);
    rd_merged_free(merged, count);
    rd_flights_free(&flights);
    return result != RONDO_SUCCESS || skips.count;
}
