/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/hash.h"
#include "base/interface.h"
#include "base/status.h"
#include "boot/internal.h"

#include <netinet/in.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(rondo_unique_id) == 128, "the size of a unique id is part of the interface");

/* ---- Names and numbers ---- */

void rd_process_unix_name(const unsigned char token[16], char name[RD_UNIX_NAME])
{
    char digits[33];
    rd_hex(digits, token, 16);
    snprintf(name, RD_UNIX_NAME, "rondo-%s", digits);
}

rondo_result rd_job_count(const unsigned char id[16], int rank, uint32_t *number)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct begun {
        unsigned char id[16];
        int rank;
        uint32_t next;
    } * all;
    static size_t count, room;
    static pid_t owner;
    rondo_result result = RONDO_SUCCESS;
    pthread_mutex_lock(&lock);
    if (owner != getpid()) { /* a forked child begins its own count, as its peers do */
        owner = getpid();
        count = 0;
    }
    size_t at = 0;
    while (at < count && (all[at].rank != rank || memcmp(all[at].id, id, sizeof all->id) != 0)) at++;
    if (at == room) {
        struct begun *more = realloc(all, (2 * room + 8) * sizeof *more);
        if (!more) {
            result = rd_fail(RONDO_SYSTEM_ERROR, "out of memory for the list of jobs (%zu)", room);
            goto unlock;
        }
        all = more;
        room = 2 * room + 8;
    }
    if (at == count) {
        memcpy(all[at].id, id, sizeof all->id);
        all[at].rank = rank;
        all[at].next = 0;
        count++;
    }
    *number = all[at].next++;
unlock:
    pthread_mutex_unlock(&lock);
    return result;
}

/* ---- The unique id ---- */

enum {
    AT_VERSION = 4,
    AT_PORT = 6,
    AT_JOB = 8,
    AT_KEY = 24,
    AT_TOKEN = 56,
    AT_COUNT = 72,
    AT_FLAGS = 73,
    AT_LIST = 74,
    AT_CHECK = 124
};

#define NAME_PATIENCE_S 30.0 /* for the name of rank 0's host to be known */

static const unsigned char magic[4] = {'r', 'n', 'd', 'o'};
static const int id_version = 1;
enum { AT_ADDRESS = 1 };

static void put_16(unsigned char *at, int value)
{
    at[0] = (unsigned char)(value & 255);
    at[1] = (unsigned char)(value >> 8 & 255);
}

static int get_16(const unsigned char *at)
{
    return at[0] | at[1] << 8;
}

static void check_of(const unsigned char *bytes, unsigned char check[4])
{
    rd_hash(check, 4, "rondo unique id", bytes, AT_CHECK);
}

void rd_id_encode(rondo_unique_id *id, const struct rd_id_parts *parts)
{
    unsigned char *b = id->bytes, *at = b + AT_LIST;
    memset(b, 0, sizeof id->bytes);
    memcpy(b, magic, sizeof magic);
    put_16(b + AT_VERSION, id_version);
    put_16(b + AT_PORT, parts->port);
    memcpy(b + AT_JOB, parts->job, sizeof parts->job);
    memcpy(b + AT_KEY, parts->key, sizeof parts->key);
    memcpy(b + AT_TOKEN, parts->token, sizeof parts->token);
    for (int i = 0; i < parts->addresses; i++) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)&parts->address[i].at;
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&parts->address[i].at;
        bool six = parts->address[i].at.ss_family == AF_INET6;
        int bytes = six ? 16 : 4;
        if (at + 1 + bytes > b + AT_CHECK) break;
        *at++ = six ? 6 : 4;
        memcpy(at, six ? (const void *)&v6->sin6_addr : (const void *)&v4->sin_addr, (size_t)bytes);
        at += bytes;
        b[AT_COUNT]++;
    }
    b[AT_FLAGS] = parts->at_address ? AT_ADDRESS : 0;
    check_of(b, b + AT_CHECK);
}

static bool decode_addresses(struct rd_id_parts *parts, const unsigned char *b)
{
    const unsigned char *at = b + AT_LIST;
    if (parts->addresses > RD_ID_ADDRESSES) return false;
    for (int i = 0; i < parts->addresses; i++) {
        rd_address *a = &parts->address[i];
        struct sockaddr_in *v4 = (struct sockaddr_in *)&a->at;
        struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&a->at;
        int bytes = *at == 4 ? 4 : *at == 6 ? 16 : -1;
        if (bytes < 0 || at + 1 + bytes > b + AT_CHECK) return false;
        a->at.ss_family = bytes == 4 ? AF_INET : AF_INET6;
        a->bytes = bytes == 4 ? sizeof *v4 : sizeof *v6;
        memcpy(bytes == 4 ? (void *)&v4->sin_addr : (void *)&v6->sin6_addr, at + 1, (size_t)bytes);
        rd_address_set_port(a, parts->port);
        at += 1 + bytes;
        if (i + 1 < parts->addresses && at == b + AT_CHECK) return false;
    }
    return true;
}

rondo_result rd_id_decode(struct rd_id_parts *parts, const rondo_unique_id *id)
{
    static const char remedy[] =
        "fill it with rondo_get_unique_id() in one process and carry all 128 bytes to the others";
    const unsigned char *b = id->bytes;
    struct rd_id_parts p;
    unsigned char check[4];
    if (sodium_is_zero(b, sizeof id->bytes))
        return rd_fail(RONDO_INVALID_ARGUMENT, "the unique id is all zero; %s", remedy);
    if (memcmp(b, magic, sizeof magic) != 0)
        return rd_fail(RONDO_INVALID_ARGUMENT, "these 128 bytes are no unique id; %s", remedy);
    if (get_16(b + AT_VERSION) != id_version)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "the unique id is of version %d, this library (%d.%d.%d) reads version %d; use one library in "
                       "all processes",
                       get_16(b + AT_VERSION), RONDO_VERSION_MAJOR, RONDO_VERSION_MINOR, RONDO_VERSION_PATCH,
                       id_version);
    memset(&p, 0, sizeof p);
    check_of(b, check);
    p.port = get_16(b + AT_PORT);
    p.addresses = b[AT_COUNT];
    p.at_address = b[AT_FLAGS] & AT_ADDRESS;
    if (memcmp(check, b + AT_CHECK, sizeof check) != 0 || !decode_addresses(&p, b))
        return rd_fail(RONDO_INVALID_ARGUMENT, "the unique id is damaged: its bytes and its check differ; %s", remedy);
    memcpy(p.job, b + AT_JOB, sizeof p.job);
    memcpy(p.key, b + AT_KEY, sizeof p.key);
    memcpy(p.token, b + AT_TOKEN, sizeof p.token);
    *parts = p;
    return RONDO_SUCCESS;
}

/* ---- Jobs of a unique id ---- */

rondo_result rd_job_new_id(rondo_unique_id *id, const rd_settings *settings)
{
    struct rd_id_parts parts;
    memset(&parts, 0, sizeof parts);
    rd_random(parts.job, sizeof parts.job);
    rd_random(parts.key, sizeof parts.key);
    rd_interface found[RD_ID_ADDRESSES];
    rondo_result result = rd_interface_list(settings->interface, found, RD_ID_ADDRESSES, &parts.addresses);
    for (int i = 0; result == RONDO_SUCCESS && i < parts.addresses; i++) parts.address[i] = found[i].at;
    if (result == RONDO_SUCCESS)
        result = rd_service_serve_job(parts.job, parts.key, true, 0, settings, &parts.port, parts.token);
    if (result == RONDO_SUCCESS) rd_id_encode(id, &parts);
    sodium_memzero(&parts, sizeof parts);
    return result;
}

rondo_result rd_job_id_at(rondo_unique_id *id, const char *address, const rd_settings *settings)
{
    struct rd_id_parts parts;
    char host[256], *end = NULL;
    memset(&parts, 0, sizeof parts);
    const char *colon = strrchr(address, ':');
    long port = colon ? strtol(colon + 1, &end, 10) : 0;
    if (!colon || end == colon + 1 || *end || port < 1 || port > 65535 || (size_t)(colon - address) >= sizeof host)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "the address is \"%.200s\"; it must be that of rank 0's host and a port that is free there: "
                       "10.0.0.1:5000, [fd00::1]:5000 or name:5000",
                       address);
    bool bracketed = *address == '[' && colon > address && colon[-1] == ']';
    snprintf(host, sizeof host, "%.*s", (int)(colon - address) - 2 * bracketed, address + bracketed);
    int64_t deadline = rd_deadline(settings->timeout_s < NAME_PATIENCE_S ? settings->timeout_s : NAME_PATIENCE_S);
    RD_TRY(rd_address_resolve(host, (int)port, deadline, parts.address, RD_ID_ADDRESSES, &parts.addresses));
    parts.port = (int)port;
    parts.at_address = true;
    rd_hash(parts.job, sizeof parts.job, "rondo job at an address", address, strlen(address));
    rd_id_encode(id, &parts);
    return RONDO_SUCCESS;
}

/* Found as a job that an environment describes: on rank 0's host by a name of the job, else at the address. */
static rondo_result find_at_address(rd_job *job, const rd_settings *settings)
{
    char digits[33];
    job->is_root = job->rank == 0;
    RD_TRY(rd_key_read(settings, job->key, &job->has_key));
    rd_hex(digits, job->id, sizeof job->id);
    snprintf(job->root[job->roots++], sizeof job->root[0], "unix:rondo-%u-%s", (unsigned)geteuid(), digits);
    return RONDO_SUCCESS;
}

rondo_result rd_job_from_id(rd_job *job, const rondo_unique_id *id, int rank, int world, const rd_settings *settings)
{
    struct rd_id_parts parts;
    char name[RD_UNIX_NAME];
    rd_job j;
    if (world < 1 || world > RD_LARGEST_WORLD)
        return rd_fail(RONDO_INVALID_ARGUMENT, "world_size is %d; valid: 1 to %d", world, RD_LARGEST_WORLD);
    if (rank < 0 || rank >= world)
        return rd_fail(RONDO_INVALID_ARGUMENT, "rank is %d; valid: 0 to %d", rank, world - 1);
    RD_TRY(rd_id_decode(&parts, id));
    memset(&j, 0, sizeof j);
    memcpy(j.id, parts.job, sizeof j.id);
    memcpy(j.key, parts.key, sizeof j.key);
    sodium_memzero(parts.key, sizeof parts.key);
    j.has_key = !parts.at_address;
    j.rank = rank;
    j.world = world;
    j.root_port = parts.port;
    j.root_ports = 1;
    rd_process_unix_name(parts.token, name);
    if (parts.at_address)
        RD_TRY(find_at_address(&j, settings));
    else
        snprintf(j.root[j.roots++], sizeof j.root[0], "unix:%s", name);
    for (int i = 0; i < parts.addresses && j.roots < RD_ROOTS; i++)
        rd_address_print(&parts.address[i], j.root[j.roots++]);
    RD_TRY(rd_job_count(j.id, rank, &j.comm_number));
    *job = j;
    return RONDO_SUCCESS;
}
