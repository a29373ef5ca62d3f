/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/verbs_memory.h"

#include "base/log.h"
#include "base/process.h"
#include "base/status.h"
#include "base/unmap.h"

#include <unistd.h>

enum { REGIONS = 64 };

/* A place of the table is free (no device), in use (users), kept (an mr, no users), or dead (unmapped: not found any
 * more, and freed when its last user has put it back). */
struct rd_verbs_region {
    const rd_verbs_device *device;
    uintptr_t from, to;
    struct ibv_mr *mr; /* NULL while it is being registered */
    bool written, dead;
    int users;
    uint64_t last_used;
};

/* Held while nothing is allocated, freed or unmapped (base/unmap.h). A forked child has a new one. */
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
static rd_verbs_region regions[REGIONS];
static uint64_t uses, registrations;
static int devices, generation; /* these by who holds the lock of the list of devices */
static bool watching;

static void unmapped(uintptr_t from, uintptr_t to)
{
    for (int i = 0; i < REGIONS; i++)
        if (regions[i].device && regions[i].from < to && from < regions[i].to) regions[i].dead = true;
}

static bool is_watched_by_another(const rd_verbs_region *one)
{
    for (int i = 0; i < REGIONS; i++)
        if (&regions[i] != one && regions[i].device && !regions[i].dead && regions[i].from < one->to &&
            one->from < regions[i].to)
            return true;
    return false;
}

/* Frees a place that nobody uses; what it had registered is for the caller to deregister, without the lock. */
static struct ibv_mr *empty(rd_verbs_region *region)
{
    struct ibv_mr *mr = region->mr;
    if (!region->dead && !is_watched_by_another(region)) rd_unmap_forget(region->from, region->to);
    *region = (rd_verbs_region){0};
    return mr;
}

/* A free place, or the dead or longest unused one, emptied; NULL when all are in use. */
static rd_verbs_region *make_room(struct ibv_mr **old)
{
    rd_verbs_region *best = NULL;
    *old = NULL;
    for (int i = 0; i < REGIONS; i++) {
        rd_verbs_region *one = &regions[i];
        if (!one->device) return one;
        if (one->users) continue;
        if (!best || (one->dead && !best->dead) || (one->dead == best->dead && one->last_used < best->last_used)) best = one;
    }
    if (best) *old = empty(best);
    return best;
}

static rd_verbs_region *find(const rd_verbs_device *device, uintptr_t from, uintptr_t to, bool written)
{
    for (int i = 0; i < REGIONS; i++) {
        rd_verbs_region *one = &regions[i];
        if (one->device == device && one->mr && !one->dead && one->from <= from && to <= one->to &&
            (one->written || !written))
            return one;
    }
    return NULL;
}

/* Everything that nobody uses, of one device or (NULL) of all. Returns how many went. */
static int drop(const rd_verbs_device *device)
{
    struct ibv_mr *old[REGIONS];
    int count = 0;
    pthread_mutex_lock(&table);
    for (int i = 0; i < REGIONS; i++)
        if (regions[i].device && !regions[i].users && (!device || regions[i].device == device)) {
            struct ibv_mr *mr = empty(&regions[i]);
            if (mr) old[count++] = mr;
        }
    pthread_mutex_unlock(&table);
    for (int i = 0; i < count; i++) rd_verbs_lib()->dereg_mr(old[i]);
    return count;
}

/* Memory that may only be read is registered for reading. */
static struct ibv_mr *do_register(const rd_verbs_device *device, uintptr_t from, uintptr_t to, bool *written)
{
    const rd_verbs_calls *ibv = rd_verbs_lib();
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_mr *mr = ibv->reg_mr(device->pd, (void *)from, to - from, access);
    if (!mr && drop(NULL)) mr = ibv->reg_mr(device->pd, (void *)from, to - from, access); /* what is kept may be too much */
    if (mr || *written) {
        *written = true;
        return mr;
    }
    return ibv->reg_mr(device->pd, (void *)from, to - from, 0);
}

static rd_verbs_region *add(rd_verbs_device *device, uintptr_t from, uintptr_t to, bool written)
{
    struct ibv_mr *old = NULL, *mr = NULL;
    pthread_mutex_lock(&table);
    rd_verbs_region *place = watching ? make_room(&old) : NULL;
    if (place) *place = (rd_verbs_region){.device = device, .from = from, .to = to, .users = 1, .last_used = ++uses};
    pthread_mutex_unlock(&table);
    if (old) rd_verbs_lib()->dereg_mr(old);
    if (!place) return NULL;
    if (rd_unmap_watch(from, to)) mr = do_register(device, from, to, &written);
    pthread_mutex_lock(&table);
    place->mr = mr;
    place->written = written;
    registrations += mr != NULL;
    if (!mr) {
        place->users = 0;
        empty(place);
        place = NULL;
    }
    pthread_mutex_unlock(&table);
    return place;
}

const rd_verbs_region *rd_verbs_region_get(rd_verbs_device *device, const void *at, size_t bytes, bool written)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)at, to = from + bytes;
    pthread_mutex_lock(&table);
    rd_verbs_region *region = find(device, from, to, written);
    if (region) {
        region->users++;
        region->last_used = ++uses;
    }
    pthread_mutex_unlock(&table);
    return region ? region : add(device, from / page * page, (to + page - 1) / page * page, written);
}

void rd_verbs_region_put(const rd_verbs_region *given)
{
    rd_verbs_region *region = &regions[given - regions];
    struct ibv_mr *old = NULL;
    pthread_mutex_lock(&table);
    if (!--region->users && region->dead) old = empty(region);
    pthread_mutex_unlock(&table);
    if (old) rd_verbs_lib()->dereg_mr(old);
}

const struct ibv_mr *rd_verbs_region_mr(const rd_verbs_region *region)
{
    return region->mr;
}
uint64_t rd_verbs_registrations(void)
{
    return registrations;
}

void rd_verbs_memory_open(void)
{
    if (generation != rd_generation()) { /* the parent's table, thread and registrations are not this child's */
        pthread_mutex_init(&table, NULL);
        for (int i = 0; i < REGIONS; i++) regions[i] = (rd_verbs_region){0};
        devices = 0;
        generation = rd_generation();
    }
    if (devices++) return;
    if (!rd_verbs_fork_safe()) {
        watching = false;
        rd_log(RD_LOG_INFO, "RDMA copies all slices: before Linux 5.12 a fork moves pages away from under the device");
        return;
    }
    watching = rd_unmap_open(&table, unmapped);
    if (!watching) rd_log(RD_LOG_INFO, "RDMA copies all slices: %s", rd_last_error());
}

void rd_verbs_memory_close(const rd_verbs_device *device)
{
    drop(device);
    if (--devices) return;
    watching = false;
    rd_unmap_close();
}
