/* SPDX-License-Identifier: Apache-2.0
 *
 * derive.c - jobs of some of a job's ranks: for a split, or for those who go on without the dead.
 */
#include "boot/member.h"

#include "base/hash.h"
#include "base/status.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rondo_result check(const rd_member *parent, int root, int rank, int world)
{
    int ranks = parent->job.world;
    if (parent->service != rd_service)
        return rd_fail(RONDO_INVALID_USAGE,
                       "this process was forked after the communicator was made: it stays with the parent");
    if (!parent->contacts) return rd_fail(RONDO_INTERNAL_ERROR, "rd_job_derive comes after rd_member_set_contacts");
    if (world < 1 || world > ranks || rank < 0 || rank >= world || root < 0 || root >= ranks)
        return rd_fail(
            RONDO_INVALID_ARGUMENT,
            "rank %d of %d, with root %d of the parent: the world is 1 to %d, ranks lie below it, and the root "
            "is 0 to %d",
            rank, world, root, ranks, ranks - 1);
    return RONDO_SUCCESS;
}

static rondo_result make_id(rd_job *child, const rd_job *parent, const void *salt, size_t salt_bytes)
{
    size_t bytes = sizeof parent->id + 4 + salt_bytes;
    unsigned char *said = malloc(bytes);
    if (!said) return rd_fail(RONDO_SYSTEM_ERROR, "no memory for the name of a job (%zu bytes)", bytes);
    rd_writer w = {said, bytes, false};
    rd_write_bytes(&w, parent->id, sizeof parent->id);
    rd_write_u32(&w, parent->comm_number);
    rd_write_bytes(&w, salt, salt_bytes);
    rd_hash(child->id, sizeof child->id, "rondo derived job", said, bytes);
    free(said);
    return RONDO_SUCCESS;
}

/* All of a process's addresses share its port. */
static void list_roots(rd_job *child, const rd_contact *root, const rd_contact *here)
{
    if (memcmp(root->host, here->host, sizeof root->host) == 0)
        snprintf(child->root[child->roots++], sizeof child->root[0], "unix:%.40s", root->unix_name);
    for (int i = 0; i < root->interfaces && child->roots < RD_ROOTS; i++) {
        child->root_port = rd_address_port(&root->interface[i].at);
        child->root_ports = 1;
        rd_address_print(&root->interface[i].at, child->root[child->roots++]);
    }
}

rondo_result rd_job_derive(rd_job *child, const rd_member *parent, const void *salt, size_t salt_bytes, int root,
                           int rank, int world, const rd_settings *settings)
{
    rd_job job;
    (void)settings; /* as with an id: the parent says it all */
    memset(&job, 0, sizeof job);
    rd_service_lock();
    rondo_result result = check(parent, root, rank, world);
    if (result == RONDO_SUCCESS) result = make_id(&job, &parent->job, salt, salt_bytes);
    if (result == RONDO_SUCCESS) {
        memcpy(job.key, parent->job.key, sizeof job.key);
        job.has_key = parent->job.has_key;
        job.rank = rank;
        job.world = world;
        list_roots(&job, &parent->contacts[root], &parent->contacts[parent->job.rank]);
        if (root == parent->job.rank) result = rd_serve_job_once(&job);
    }
    rd_service_unlock();
    if (result == RONDO_SUCCESS) *child = job;
    sodium_memzero(job.key, sizeof job.key);
    return result;
}

void rd_job_undo(const rd_job *child)
{
    rd_service_lock();
    if (rd_service) rd_served_job_end(child->id);
    rd_service_unlock();
}
