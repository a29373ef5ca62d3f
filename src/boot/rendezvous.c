/* SPDX-License-Identifier: Apache-2.0
 *
 * rendezvous.c - the table's server, run by the service thread of the root.
 *
 * A served job has a board for each of its communicators, made when the first rank sits down and freed when the last
 * one is gone. Ranks put and get values; a *gather* is where all meet: it ends when every rank has brought a value (a
 * fence is a gather of nothing). A gather that cannot end (a rank died, left, or does not come in time) fails the whole
 * board, for all with the same words.
 */
#include "boot/service.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include "boot/frames.h"
#include "boot/table.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 256, NAMED_RANKS = 8 };

enum seat_state { EMPTY, SEATED, LEFT };

typedef struct rd_client rd_client;
typedef struct rd_board rd_board;

struct rd_client {
    rd_frames frames; /* first */
    rd_board *board;
    int rank;
    int32_t pid;
    char host[64];
    bool waits; /* in the gather */
};

typedef struct entry {
    struct entry *next;
    size_t key_bytes, bytes;
    unsigned char data[]; /* key, value */
} entry;

struct rd_board {
    rd_served_job *job;
    rd_board *next;
    uint32_t comm_number;
    int world;
    rd_client **clients;  /* by rank */
    unsigned char *seats; /* enum seat_state, by rank */
    int seated, joined;   /* now; ever */
    entry *entries[BUCKETS];
    rd_timer timer; /* of the gather: the earliest deadline of those who wait */
    rd_timer slow;  /* of the gather: when to warn that it waits */
    bool gathering;
    char name[RD_TABLE_KEY + 1]; /* of the gather */
    size_t each;                 /* bytes a rank */
    int arrived;
    rd_blob *values;
    char gone[256];    /* the first who left before the end, in words */
    char refused[256]; /* the last who was refused a seat: worth knowing when ranks are missing */
    rondo_result failure;
    char text[RD_TABLE_TEXT];
};

/* ---- Words ---- */

static void name_client(const rd_client *client, char *text, size_t bytes)
{
    snprintf(text, bytes, "rank %d (pid %d on %s)", client->rank, client->pid, client->host);
}

/* "rank 2", "ranks 2, 5-7 and 9", cut after some ranges: the ranks for which `wanted` holds. */
static void list_ranks(const rd_board *board, bool (*wanted)(const rd_board *, int), rd_text *text)
{
    int count = 0, named = 0;
    for (int rank = 0; rank < board->world; rank++) count += wanted(board, rank);
    rd_text_add(text, count == 1 ? "rank " : "ranks ");
    for (int rank = 0, ranges = 0; rank < board->world && named < count; rank++) {
        if (!wanted(board, rank)) continue;
        int last = rank;
        while (last + 1 < board->world && wanted(board, last + 1)) last++;
        if (ranges++ == NAMED_RANKS) {
            rd_text_add(text, " and %d more", count - named);
            return;
        }
        rd_text_add(text, "%s%d", named ? ", " : "", rank);
        if (last > rank) rd_text_add(text, "%s%d", last > rank + 1 ? "-" : ", ", last);
        named += last - rank + 1;
        rank = last;
    }
}

static bool is_missing(const rd_board *board, int rank)
{
    return board->seats[rank] == EMPTY;
}
static bool is_late(const rd_board *board, int rank)
{
    return board->seats[rank] == SEATED && !board->clients[rank]->waits;
}

/* ---- Answers ---- */

static void answer(rd_client *client, uint16_t kind, const void *payload, size_t bytes)
{
    rd_blob *blob = rd_blob_new(kind, bytes);
    if (blob && bytes) memcpy(blob->data + RD_FRAME_HEAD, payload, bytes);
    rd_frames_send(&client->frames, blob, -1);
}

static void answer_failure(rd_client *client, rondo_result result, const char *text)
{
    unsigned char payload[4 + RD_TABLE_TEXT];
    rd_writer w = {payload, sizeof payload, false};
    rd_write_u32(&w, (uint32_t)result);
    rd_write_bytes(&w, text, strnlen(text, RD_TABLE_TEXT));
    answer(client, RD_TABLE_FAILED, payload, sizeof payload - w.left);
}

static void end_gather(rd_board *board)
{
    rd_timer_clear(&board->timer);
    rd_timer_clear(&board->slow);
    board->gathering = false;
    board->arrived = 0;
    rd_blob_drop(board->values);
    board->values = NULL;
    for (int rank = 0; rank < board->world; rank++)
        if (board->clients[rank]) board->clients[rank]->waits = false;
}

/* All who wait learn it now, the others with their next request. */
static void fail_board(rd_board *board, rondo_result result, const char *text)
{
    if (board->failure != RONDO_SUCCESS) return;
    board->failure = result;
    snprintf(board->text, sizeof board->text, "%s", text);
    rd_log(RD_LOG_INFO, "start-up failed: %s", text);
    for (int rank = 0; rank < board->world; rank++)
        if (board->clients[rank] && board->clients[rank]->waits) answer_failure(board->clients[rank], result, text);
    end_gather(board);
}

/* ---- Gathers ---- */

/* Which ranks the gather waits for. */
static void say_awaited(const rd_board *board, rd_text *text)
{
    rd_text_add(text, "%d of %d joined; ", board->joined, board->world);
    if (board->joined < board->world) {
        rd_text_add(text, "missing: ");
        list_ranks(board, is_missing, text);
        rd_text_add(text,
                    "; are they started, with the same key, and can they reach the root? RONDO_TIMEOUT sets the limit");
    } else {
        rd_text_add(text, "waiting at \"%s\" for ", board->name);
        list_ranks(board, is_late, text);
    }
    if (board->refused[0]) rd_text_add(text, " (%s)", board->refused);
}

static void gather_overdue(rd_timer *timer)
{
    rd_board *board = RD_CONTAINER(timer, rd_board, timer);
    char room[RD_TABLE_TEXT];
    rd_text text = {room, sizeof room};
    rd_text_add(&text, "the start timed out: ");
    say_awaited(board, &text);
    fail_board(board, RONDO_TIMEOUT, room);
}

static void gather_slow(rd_timer *timer)
{
    rd_board *board = RD_CONTAINER(timer, rd_board, slow);
    char room[RD_TABLE_TEXT];
    rd_text text = {room, sizeof room};
    say_awaited(board, &text);
    rd_log(RD_LOG_WARN, "the start has not completed in %.3g s: %s", rd_service->slow_warning_s, room);
}

static void check_same_gather(rd_board *board, const rd_client *client, const char *name, size_t each)
{
    char who[128], text[RD_TABLE_TEXT];
    if (strcmp(name, board->name) == 0 && each == board->each) return;
    name_client(client, who, sizeof who);
    snprintf(text, sizeof text,
             "the ranks start up differently: %s brings %zu bytes to \"%s\", others %zu to \"%s\"; all must "
             "run the same program with the same version of Rondo",
             who, each, name, board->each, board->name);
    fail_board(board, RONDO_INVALID_USAGE, text);
}

static void begin_gather(rd_board *board, const char *name, size_t each)
{
    size_t whole = each * (size_t)board->world;
    snprintf(board->name, sizeof board->name, "%s", name);
    board->each = each;
    board->gathering = true;
    board->values = whole <= RD_TABLE_GATHER_BYTES ? rd_blob_new(RD_TABLE_VALUE, whole) : NULL;
    if (!board->values) fail_board(board, RONDO_SYSTEM_ERROR, "the table has no memory for a gather of this size");
    rd_timer_set(&board->slow, rd_deadline(rd_service->slow_warning_s), gather_slow);
}

static void gather(rd_board *board, rd_client *client, uint64_t ms_left, const char *name, const unsigned char *value,
                   size_t each)
{
    client->waits = true;
    if (!board->gathering)
        begin_gather(board, name, each);
    else
        check_same_gather(board, client, name, each);
    if (board->failure == RONDO_SUCCESS && board->gone[0]) fail_board(board, RONDO_REMOTE_ERROR, board->gone);
    if (board->failure != RONDO_SUCCESS) return;

    if (each) memcpy(board->values->data + RD_FRAME_HEAD + (size_t)client->rank * each, value, each);
    board->arrived++;
    if (board->arrived == board->world) {
        for (int rank = 0; rank < board->world; rank++) {
            board->values->users++;
            rd_frames_send(&board->clients[rank]->frames, board->values, -1);
        }
        end_gather(board);
        return;
    }
    int64_t at = rd_now() + (int64_t)ms_left * 1000000;
    if (!board->timer.set || at < board->timer.at) rd_timer_set(&board->timer, at, gather_overdue);
}

/* ---- Values ---- */

static entry **find_entry(rd_board *board, const unsigned char *key, size_t bytes)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ key[i]) * 16777619u;
    entry **place = &board->entries[hash % BUCKETS];
    while (*place && ((*place)->key_bytes != bytes || memcmp((*place)->data, key, bytes))) place = &(*place)->next;
    return place;
}

static bool put(rd_board *board, const unsigned char *key, size_t key_bytes, const unsigned char *value, size_t bytes)
{
    entry *e = malloc(sizeof *e + key_bytes + bytes);
    if (!e) return false;
    entry **place = find_entry(board, key, key_bytes), *old = *place;
    e->next = old ? old->next : NULL;
    e->key_bytes = key_bytes;
    e->bytes = bytes;
    memcpy(e->data, key, key_bytes);
    if (bytes) memcpy(e->data + key_bytes, value, bytes);
    free(old);
    *place = e;
    return true;
}

/* ---- Seats ---- */

static void free_board(rd_board *board)
{
    rd_board **place = &board->job->boards;
    while (*place != board) place = &(*place)->next;
    *place = board->next;
    rd_timer_clear(&board->timer);
    rd_timer_clear(&board->slow);
    rd_blob_drop(board->values);
    for (int i = 0; i < BUCKETS; i++)
        while (board->entries[i]) {
            entry *e = board->entries[i];
            board->entries[i] = e->next;
            free(e);
        }
    bool all_came = board->joined == board->world;
    rd_served_job *job = board->job;
    free(board->clients);
    free(board->seats);
    free(board);
    if (job->once && all_came && !job->boards) rd_served_job_forget(job);
}

static void stand_up(rd_client *client, bool in_order)
{
    rd_board *board = client->board;
    char who[128];
    board->clients[client->rank] = NULL;
    board->seats[client->rank] = LEFT;
    board->seated--;
    if (!board->gone[0]) {
        name_client(client, who, sizeof who);
        snprintf(board->gone, sizeof board->gone,
                 in_order ? "%s left the start-up" : "%s died or exited during the start-up", who);
    }
    if (in_order)
        rd_frames_linger(&client->frames);
    else
        rd_frames_bury(&client->frames);
    if (board->gathering) fail_board(board, RONDO_REMOTE_ERROR, board->gone);
    if (board->seated == 0) free_board(board);
}

void rd_boards_end(rd_served_job *job)
{
    while (job->boards) {
        rd_board *board = job->boards;
        fail_board(board, RONDO_REMOTE_ERROR, "the rank that serves the table gave up the start");
        int rank = 0;
        while (!board->clients[rank]) rank++;
        stand_up(board->clients[rank], true); /* with the last one goes the board */
    }
}

static void client_ended(rd_frames *frames)
{
    stand_up((rd_client *)frames, false);
}

static void client_says(rd_frames *frames, const rd_frame *frame)
{
    rd_client *client = (rd_client *)frames;
    rd_board *board = client->board;
    rd_reader r = {frame->payload, frame->bytes, false};
    if (frame->kind == RD_TABLE_LEAVE) {
        stand_up(client, true);
        return;
    }
    if (board->failure != RONDO_SUCCESS) {
        answer_failure(client, board->failure, board->text);
        return;
    }
    switch (frame->kind) {
    case RD_TABLE_PUT: {
        size_t key_bytes = rd_read_u16(&r);
        const unsigned char *key = rd_read_room(&r, key_bytes);
        if (!key || key_bytes > RD_TABLE_KEY || r.left > RD_TABLE_VALUE_BYTES) break;
        if (put(board, key, key_bytes, r.at, r.left))
            answer(client, RD_TABLE_OK, NULL, 0);
        else
            answer_failure(client, RONDO_SYSTEM_ERROR, "the table's server is out of memory");
        return;
    }
    case RD_TABLE_GET: {
        const entry *e = *find_entry(board, frame->payload, frame->bytes);
        if (e)
            answer(client, RD_TABLE_VALUE, e->data + e->key_bytes, e->bytes);
        else
            answer_failure(client, RONDO_INVALID_ARGUMENT, "nobody has put this key");
        return;
    }
    case RD_TABLE_GATHER: {
        char name[RD_TABLE_KEY + 1];
        uint64_t ms_left = rd_read_u64(&r);
        size_t name_bytes = rd_read_u16(&r);
        if (name_bytes > RD_TABLE_KEY || client->waits) break;
        rd_read_text(&r, name, sizeof name, name_bytes);
        if (r.bad || r.left > RD_TABLE_VALUE_BYTES) break;
        gather(board, client, ms_left < 1000000000 ? ms_left : 1000000000, name, r.at, r.left);
        return;
    }
    default: break;
    }
    answer_failure(client, RONDO_INTERNAL_ERROR, "the table's server does not understand a request");
}

static rd_board *find_board(const rd_served_job *job, uint32_t comm_number)
{
    rd_board *board = job->boards;
    while (board && board->comm_number != comm_number) board = board->next;
    return board;
}

static void refuse(rd_board *board, rd_verdict *verdict, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void refuse(rd_board *board, rd_verdict *verdict, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(verdict->text, sizeof verdict->text, format, arguments);
    va_end(arguments);
    verdict->kind = RD_REFUSED;
    verdict->result = RONDO_INVALID_USAGE;
    if (board) snprintf(board->refused, sizeof board->refused, "%.255s", verdict->text);
}

void rd_board_admit(rd_served_job *job, const rd_request *request, rd_verdict *verdict)
{
    rd_board *board = find_board(job, request->comm_number);
    int world = board ? board->world : job->world;
    char who[128];
    snprintf(who, sizeof who, "rank %u (pid %d on %s)", request->from, request->pid, request->host);
    if (request->world < 1 || request->world > RD_LARGEST_WORLD || request->from >= request->world) {
        refuse(board, verdict, "%s of %u: a world has 1 to %d ranks, counted from 0", who, request->world,
               RD_LARGEST_WORLD);
    } else if (world && request->world != (uint32_t)world) {
        refuse(board, verdict, "world sizes differ: %s says %u, the others say %d", who, request->world, world);
        /* It has the key, so it is one of us, and will not come back with another size: nobody need wait. */
        if (board) fail_board(board, RONDO_INVALID_USAGE, verdict->text);
    } else if (board && board->seats[request->from] != EMPTY) {
        const rd_client *other = board->clients[request->from];
        if (other)
            refuse(board, verdict, "two processes say that they are rank %u: pid %d on %s and pid %d on %s",
                   request->from, other->pid, other->host, request->pid, request->host);
        else
            refuse(board, verdict, "rank %u had joined already: %s; start all ranks again", request->from, board->gone);
    } else if (board && board->failure != RONDO_SUCCESS) {
        verdict->kind = RD_REFUSED;
        verdict->result = board->failure;
        memcpy(verdict->text, board->text, sizeof board->text);
    }
}

static rd_board *new_board(rd_served_job *job, const rd_request *request)
{
    rd_board *board = calloc(1, sizeof *board);
    if (!board) return NULL;
    board->job = job;
    board->comm_number = request->comm_number;
    board->world = (int)request->world;
    board->clients = calloc(request->world, sizeof *board->clients);
    board->seats = calloc(request->world, 1);
    board->next = job->boards;
    job->boards = board;
    if (board->clients && board->seats) return board;
    free_board(board);
    return NULL;
}

void rd_board_seat(rd_served_job *job, const rd_request *request, int fd)
{
    rd_board *board = find_board(job, request->comm_number);
    if (!board) board = new_board(job, request);
    rd_client *client = board ? calloc(1, sizeof *client) : NULL;
    if (!client || rd_frames_open(&client->frames, fd, RD_TABLE_REQUEST, client_says, client_ended) != RONDO_SUCCESS) {
        if (!client) rd_close_owned(fd);
        free(client);
        if (board && board->seated == 0) free_board(board);
        return;
    }
    client->board = board;
    client->rank = (int)request->from;
    client->pid = request->pid;
    memcpy(client->host, request->host, sizeof client->host);
    board->clients[client->rank] = client;
    board->seats[client->rank] = SEATED;
    board->seated++;
    board->joined++;
}
