/* SPDX-License-Identifier: Apache-2.0
 *
 * rails.c - where links are made over RDMA: which ports each rank has and how far they are from it, so that both ends of
 * a link take such as are near them and reach each other. Beyond what the cards say, since only such communicators look
 * for devices.
 */
#include "core/card.h"

#include "base/log.h"
#include "boot/wire.h"
#include "topo/nics.h"
#include "topo/rails.h"
#include "transport/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT_BYTES  (sizeof((rd_nic *)0)->name + 2 * 4 + 2 * 8 + RD_LINK_BYTES)
#define RAILS_BYTES (4 + RD_MAX_NICS * PORT_BYTES)

static void pack(const rd_around *told, unsigned char bytes[RAILS_BYTES])
{
    rd_writer w = {.at = bytes, .left = RAILS_BYTES};
    rd_write_u32(&w, (uint32_t)told->nics);
    for (int i = 0; i < RD_MAX_NICS; i++) {
        const rd_nic *nic = &told->nic[i];
        rd_write_text(&w, nic->name, sizeof nic->name);
        rd_write_u32(&w, nic->bus);
        rd_write_u32(&w, nic->mbit);
        for (int k = 0; k < 2; k++) rd_write_u64(&w, nic->networks[k]);
        rd_write_link(&w, nic->link);
    }
}

static rondo_result unpack(rd_around *told, int rank, const unsigned char bytes[RAILS_BYTES])
{
    rd_reader r = {.at = bytes, .left = RAILS_BYTES};
    uint32_t count = rd_read_u32(&r);
    if (count > RD_MAX_NICS)
        return rd_fail(RONDO_REMOTE_ERROR, "rank %d tells of %u RDMA ports; %d are the most", rank, count, RD_MAX_NICS);
    *told = (rd_around){.gpu = RD_NO_GPU, .nics = (int32_t)count};
    for (uint32_t i = 0; i < count; i++) {
        rd_nic *nic = &told->nic[i];
        rd_read_text(&r, nic->name, sizeof nic->name, sizeof nic->name);
        nic->bus = rd_read_u32(&r);
        nic->mbit = rd_read_u32(&r);
        for (int k = 0; k < 2; k++) nic->networks[k] = rd_read_u64(&r);
        nic->link = rd_read_link(&r);
    }
    return RONDO_SUCCESS;
}

static void log_ports(const rondo_comm *comm, const rd_rails *rails)
{
    char text[512] = "";
    if (!rd_log_wants(RD_LOG_INFO)) return;
    for (int i = 0; i < rails->told.nics; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s (%s)", used ? ", " : "", rails->port[i],
                 rd_rails_between(rails, i));
    }
    rd_log(RD_LOG_INFO, "rank %d: RDMA ports, and what lies between them and its %s: %s", comm->rank,
           rails->told.gpu == RD_NO_GPU ? "core" : "GPU", text);
}

static rondo_result look(rondo_comm *comm, const rd_card *mine)
{
    if (mine->lacking & RD_LACKS_VERBS) return RONDO_SUCCESS;
    rd_rails *rails = comm->links.rails = calloc(1, sizeof *rails);
    if (!rails) return rd_fail_errno("no memory for the RDMA ports of rank %d", comm->rank);
    RD_TRY(rd_rails_here(&comm->settings, &mine->place, rd_card_bus(comm, mine), rails));
    log_ports(comm, rails);
    return RONDO_SUCCESS;
}

/* Everybody's, by rank. */
static rondo_result exchange(rondo_comm *comm, rd_table *table, rd_around *told, int64_t deadline)
{
    static const rd_around none;
    unsigned char mine[RAILS_BYTES];
    pack(comm->links.rails ? &comm->links.rails->told : &none, mine);
    unsigned char *all = malloc((size_t)comm->size * RAILS_BYTES);
    if (!all) return rd_fail_errno("no memory for the RDMA ports of %d ranks", comm->size);
    rondo_result result = rd_table_exchange(table, "rails", mine, RAILS_BYTES, all, deadline);
    for (int r = 0; r < comm->size && result == RONDO_SUCCESS; r++)
        result = unpack(&told[r], r, all + (size_t)r * RAILS_BYTES);
    free(all);
    return result;
}

/* Whether all ranks have ports, and those of a host the same: then rings can cross by them. */
static bool are_alike(const rd_around *told, const rd_place *places, int n)
{
    for (int r = 0; r < n; r++) {
        const rd_around *first = &told[places[r].host]; /* hosts are numbered by their first ranks */
        if (!told[r].nics || told[r].nics != first->nics) return false;
        for (int i = 0; i < first->nics; i++)
            if (strcmp(told[r].nic[i].name, first->nic[i].name) != 0) return false;
    }
    return true;
}

/* A link that is no ring's takes the best port for these two ranks, at whichever end this one is. */
static void choose_for_peers(rondo_comm *comm, const rd_around *told)
{
    for (int peer = 0; peer < comm->size; peer++) {
        int32_t low, high;
        bool lower = comm->rank < peer;
        rd_nics_pair(&told[lower ? comm->rank : peer], &told[lower ? peer : comm->rank], &low, &high);
        comm->links.rail[peer] = (signed char)(lower ? low : high);
    }
}

rondo_result rd_cards_rails(rondo_comm *comm, rd_table *table, const rd_card *cards, const rd_place *places,
                            rd_around *around, int64_t deadline)
{
    int n = comm->size;
    bool some = false, asked = false;
    for (int r = 0; r < n; r++) {
        some = some || !(cards[r].lacking & RD_LACKS_VERBS);
        asked = asked || cards[r].transport == RD_TRANSPORT_VERBS || places[r].host != 0;
    }
    if (!some || !asked || n == 1) return RONDO_SUCCESS;
    RD_TRY(look(comm, &cards[comm->rank]));
    rd_around *told = calloc((size_t)n, sizeof *told);
    if (!told) return rd_fail_errno("no memory for the RDMA ports of %d ranks", n);
    rondo_result result = exchange(comm, table, told, deadline);
    if (result == RONDO_SUCCESS) {
        rd_rails_agree(told, n);
        choose_for_peers(comm, told);
        comm->links.on_rails = around && are_alike(told, places, n);
    }
    for (int r = 0; r < n && comm->links.on_rails; r++) {
        memcpy(around[r].nic, told[r].nic, sizeof around[r].nic);
        around[r].nics = told[r].nics;
    }
    free(told);
    return result;
}

const char *rd_links_port(const rd_links *links, int rail)
{
    return links->rails && rail >= 0 ? links->rails->port[rail] : NULL;
}
