/* SPDX-License-Identifier: Apache-2.0
 *
 * ways.c - where some rank is on a GPU: how far each is from the GPUs and cards of its host, so that the ring goes where
 * they are joined. Beyond what the cards say, since only such communicators look for devices, which takes a while.
 */
#include "core/card.h"

#include "base/gpu.h"
#include "topo/devices.h"

#include <stdlib.h>
#include <string.h>

#define WAYS_BYTES (4 + 4 + RD_MAX_GPUS * (4 + RD_LINK_BYTES) + 4 + RD_INTERFACES * (sizeof((rd_nic *)0)->name + RD_LINK_BYTES))

void rd_write_link(rd_writer *w, rd_link link)
{
    rd_write_u32(w, link.kind);
    rd_write_u32(w, link.ns);
    rd_write_u32(w, link.mbs);
}

/* A kind that is not known here is the network: far from everything. */
rd_link rd_read_link(rd_reader *r)
{
    rd_link link = {.kind = rd_read_u32(r)};
    link.ns = rd_read_u32(r);
    link.mbs = rd_read_u32(r);
    return link.kind < RD_LINK_KINDS && link.mbs ? link : rd_link_of(RD_LINK_NETWORK);
}

static void pack(const rd_around *around, unsigned char bytes[WAYS_BYTES])
{
    rd_writer w = {.at = bytes, .left = WAYS_BYTES};
    rd_write_u32(&w, around->gpu);
    rd_write_u32(&w, (uint32_t)around->gpus);
    for (int i = 0; i < RD_MAX_GPUS; i++) {
        rd_write_u32(&w, around->to_gpu[i].bus);
        rd_write_link(&w, around->to_gpu[i].link);
    }
    rd_write_u32(&w, (uint32_t)around->nics);
    for (int i = 0; i < RD_INTERFACES; i++) {
        rd_write_text(&w, around->nic[i].name, sizeof around->nic[i].name);
        rd_write_link(&w, around->nic[i].link);
    }
}

/* Takes what is told of GPUs, and how far the rank's own is from the cards that its contact has told of. */
static rondo_result unpack(rd_around *around, int rank, const unsigned char bytes[WAYS_BYTES])
{
    rd_reader r = {.at = bytes, .left = WAYS_BYTES};
    around->gpu = rd_read_u32(&r);
    uint32_t gpus = rd_read_u32(&r);
    for (int i = 0; i < RD_MAX_GPUS; i++) {
        around->to_gpu[i].bus = rd_read_u32(&r);
        around->to_gpu[i].link = rd_read_link(&r);
    }
    uint32_t nics = rd_read_u32(&r);
    if (gpus > RD_MAX_GPUS || nics > RD_INTERFACES)
        return rd_fail(RONDO_REMOTE_ERROR, "rank %d tells of %u GPUs and %u network cards; %d and %d are the most", rank,
                       gpus, nics, RD_MAX_GPUS, RD_INTERFACES);
    around->gpus = (int32_t)gpus;
    for (uint32_t i = 0; i < nics; i++) {
        char name[sizeof around->nic[0].name];
        rd_read_text(&r, name, sizeof name, sizeof name);
        rd_link link = rd_read_link(&r);
        for (int k = 0; k < around->nics; k++)
            if (strcmp(around->nic[k].name, name) == 0) around->nic[k].link = link;
    }
    return RONDO_SUCCESS;
}

uint32_t rd_card_bus(const rondo_comm *comm, const rd_card *mine)
{
    uint32_t bus;
    struct rd_gpu_info info; /* a GPU that is not what it should be is said when it is opened */
    bool known = mine->on_gpu && rd_gpu_describe((int)comm->settings.device, &info) == RONDO_SUCCESS &&
                 rd_bus_id_parse(&bus, info.pci);
    return known ? bus : RD_NO_GPU;
}

static rondo_result look(const rondo_comm *comm, const rd_card *mine, rd_around *around)
{
    rd_reached_by interfaces[RD_INTERFACES] = {0};
    for (int i = 0; i < mine->contact.interfaces; i++)
        memcpy(interfaces[i].name, mine->contact.interface[i].name, sizeof interfaces[i].name);
    return rd_around_here(&mine->place, rd_card_bus(comm, mine), interfaces, mine->contact.interfaces, around);
}

rondo_result rd_cards_ways(rondo_comm *comm, rd_table *table, const rd_card *cards, rd_around *around, int64_t deadline)
{
    unsigned char mine[WAYS_BYTES];
    rd_around here;
    RD_TRY(look(comm, &cards[comm->rank], &here));
    pack(&here, mine);
    unsigned char *all = malloc((size_t)comm->size * WAYS_BYTES);
    if (!all) return rd_fail_errno("no memory for the ways of %d ranks", comm->size);
    rondo_result result = rd_table_exchange(table, "ways", mine, WAYS_BYTES, all, deadline);
    for (int r = 0; r < comm->size && result == RONDO_SUCCESS; r++)
        result = unpack(&around[r], r, all + (size_t)r * WAYS_BYTES);
    free(all);
    return result;
}
