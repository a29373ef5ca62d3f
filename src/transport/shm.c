/* SPDX-License-Identifier: Apache-2.0
 *
 * shm.c - slots in memory that both processes map (mapped.h), for two ranks of one host.
 */
#include "base/status.h"
#include "transport/direct.h"
#include "transport/mapped.h"

#include <stdlib.h>

struct end {
    rd_mapped mapped;
    rd_direct direct;
};

static rondo_link_result shm_register(rondo_link *link, void *ptr, size_t bytes, unsigned char descriptor[128])
{
    return rd_direct_register(&((struct end *)link)->direct, ptr, bytes, descriptor);
}

static rondo_link_result shm_import(rondo_link *link, const unsigned char descriptor[128], size_t bytes, void **address)
{
    return rd_direct_import(&((struct end *)link)->direct, descriptor, bytes, address);
}

/* About to sleep: time to let go of memory that its owner has freed. */
static rondo_link_result shm_arm(rondo_link *link, rondo_bell *bell, uint64_t seen)
{
    struct end *end = (struct end *)link;
    if (end->mapped.slots.side == RD_RECEIVER) rd_direct_sweep(&end->direct);
    return rd_slots_arm(link, bell, seen);
}

static void close_end(rondo_link *link)
{
    struct end *end = (struct end *)link;
    rd_direct_close(&end->direct);
    rd_mapped_leave(&end->mapped);
    rd_mapped_free(&end->mapped);
    free(end);
}

static const rondo_link_ops shm_ops = RD_SLOTS_OPS("shm", shm_register, shm_import, shm_arm, close_end);
static const rd_mapped_kind shm_kind = {.ops = &shm_ops, .version = 5, .offer_bytes = sizeof(rd_mapped_offer)};

/* The socket on which the link is made, if there is one, carries the descriptors of memory. */
static rd_direct direct_of(const rondo_link_spec *spec)
{
    return (rd_direct){.socket = spec->socket_count ? spec->sockets[0] : -1};
}

/* An end of a link that can be. */
static rondo_result new_end(const rondo_link_spec *spec, struct end **end)
{
    RD_TRY(rd_spec_check(spec));
    *end = calloc(1, sizeof **end);
    return *end ? RONDO_SUCCESS
                : rd_fail(RONDO_SYSTEM_ERROR, "no memory for a link between ranks %d and %d", spec->me, spec->peer);
}

static rondo_result shm_offer(const rondo_link_spec *spec, rondo_link **sender, rondo_offer *offer)
{
    struct end *end = NULL;
    rondo_result result = new_end(spec, &end);
    if (result == RONDO_SUCCESS) result = rd_mapped_make(&shm_kind, spec, &end->mapped, offer);
    if (result != RONDO_SUCCESS) {
        free(end);
        rd_mapped_give_up(spec);
        return result;
    }
    end->direct = direct_of(spec);
    *sender = &end->mapped.slots.link;
    return RONDO_SUCCESS;
}

static rondo_result shm_accept(const rondo_link_spec *spec, const rondo_offer *offer, rondo_link **receiver,
                               rondo_offer *answer)
{
    struct end *end = NULL;
    rondo_result result = new_end(spec, &end);
    if (result == RONDO_SUCCESS)
        result = rd_mapped_accept(&shm_kind, spec, offer, &end->mapped, answer);
    else
        rd_offer_close(offer);
    if (result != RONDO_SUCCESS) {
        free(end);
        rd_mapped_give_up(spec);
        return result;
    }
    end->direct = direct_of(spec);
    *receiver = &end->mapped.slots.link;
    return RONDO_SUCCESS;
}

static rondo_result shm_complete(rondo_link *sender, const rondo_offer *answer)
{
    if (answer->fd_count == RD_MAPPED_ANSWER_FDS) return rd_mapped_complete((rd_mapped *)sender, answer);
    rd_offer_close(answer);
    return rd_fail(RONDO_MISMATCH, "rank %d answers a shm link with %d descriptors where %d are expected", sender->peer,
                   answer->fd_count, RD_MAPPED_ANSWER_FDS);
}

const rondo_transport rd_transport_shm = {
    .size = sizeof(rondo_transport),
    .name = "shm",
    .reach = RONDO_REACH_HOST,
    .cost = 110,
    .sockets = 1,
    .offer = shm_offer,
    .accept = shm_accept,
    .complete = shm_complete,
};
