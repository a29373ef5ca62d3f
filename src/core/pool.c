/* SPDX-License-Identifier: Apache-2.0 */
#include "core/pool.h"

#include "base/log.h"
#include "boot/wire.h"
#include "core/hello.h"
#include "reduce/device.h"
#include "transport/transport.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PURPOSE_POOL = 3 };

_Static_assert(sizeof(rd_gpu_ticket) <= sizeof((rondo_offer *)0)->data, "an offer holds a ticket");

struct rd_pool {
    int places;
    rd_gpu_shared mine;     /* all zero: there is none */
    _Atomic uint64_t taken; /* places of it, bit by bit */
    rd_gpu_shared *theirs;  /* by rank; all zero: none, or this rank does not reach it */
    bool *told;             /* by rank: of this rank's */
    bool *exhausted;        /* by rank: theirs */
};

uint32_t rd_pool_places(const rd_settings *settings)
{
    bool by_gpu = settings->transport == RD_TRANSPORT_AUTO || settings->transport == RD_TRANSPORT_CUDA_IPC;
    if (settings->device < 0 || !by_gpu || !settings->gpu_peer || !rd_gpu_driver()) return 0;
    return rd_gpu_shared_ways((int)settings->device, false) & RD_GPU_BY_DESCRIPTOR ? (uint32_t)settings->gpu_links : 0;
}

/* ---- When the communicator starts ---- */

static bool exchanges(const rd_edges *c, int peer)
{
    const rd_card *mine = &c->cards[c->comm->rank], *theirs = &c->cards[peer];
    return peer != c->comm->rank && mine->gpu_links && theirs->gpu_links && rd_cards_may_share_host(mine, theirs);
}

static rondo_result new_pool(rondo_comm *comm)
{
    size_t n = (size_t)comm->size;
    rd_pool *pool = calloc(1, sizeof *pool);
    if (pool) {
        pool->places = (int)comm->settings.gpu_links;
        pool->theirs = calloc(n, sizeof *pool->theirs);
        pool->told = calloc(n, sizeof *pool->told);
        pool->exhausted = calloc(n, sizeof *pool->exhausted);
    }
    comm->pool = pool;
    if (pool && pool->theirs && pool->told && pool->exhausted) return RONDO_SUCCESS;
    return rd_fail_errno("no memory for what is known of %d ranks' GPU memory", comm->size);
}

static bool reaches(const rd_edges *c, int peer)
{
    char why[256];
    const rd_card *mine = &c->cards[c->comm->rank], *theirs = &c->cards[peer];
    return rd_cuda_ipc_reaches(rd_device_ordinal(c->comm->device), theirs->gpu, rd_cards_share_process(mine, theirs),
                               why, sizeof why);
}

/* A peer that no unix connection reaches shares no GPU memory, but waits to hear that. */
static rondo_result tell(const rd_edges *c, int peer, const rd_gpu_ticket *ticket, int memory)
{
    rondo_comm *comm = c->comm;
    rondo_link_spec spec = {.slots = RD_POOL_SLOTS, .slot_bytes = RD_POOL_SLOT_BYTES};
    rondo_offer says = {0};
    rondo_result result = RONDO_REMOTE_ERROR;
    int fd;
    if (comm->links.reach[peer] != RONDO_REACH_NETWORK)
        result = rd_member_connect(comm->member, peer, PURPOSE_POOL, 0, RD_OVER_UNIX, c->deadline, &fd);
    bool near = result == RONDO_SUCCESS;
    if (result == RONDO_REMOTE_ERROR && !rd_comm_stopped(comm)) {
        comm->links.reach[peer] = RONDO_REACH_NETWORK;
        result = rd_member_connect(comm->member, peer, PURPOSE_POOL, 0, 0, c->deadline, &fd);
    }
    if (result != RONDO_SUCCESS) return result;
    if (near && memory >= 0 && reaches(c, peer)) {
        says.bytes = sizeof *ticket;
        memcpy(says.data, ticket, sizeof *ticket);
        says.fds[says.fd_count++] = memory;
        comm->pool->told[peer] = true;
    }
    result = rd_hello_send(fd, &rd_transport_cuda_ipc, &spec, &says, c->deadline);
    close(fd);
    return result;
}

/* What the peer has. */
static rondo_result hear(const rd_edges *c, int peer)
{
    rondo_comm *comm = c->comm;
    int fd, gpu = rd_device_ordinal(comm->device);
    rd_link_hello hello;
    rd_gpu_ticket ticket;
    rondo_offer says = {0};
    RD_TRY(rd_member_accept(comm->member, peer, PURPOSE_POOL, 0, c->deadline, &fd));
    rondo_result result = rd_hello_recv(comm, fd, &hello, &says, c->deadline);
    close(fd);
    if (result != RONDO_SUCCESS) {
        rd_offer_close(&says);
        return result;
    }
    if (says.bytes == sizeof ticket && says.fd_count == 1 && reaches(c, peer)) {
        memcpy(&ticket, says.data, sizeof ticket);
        if (rd_gpu_shared_open(gpu, &ticket, says.fds[0], RD_POOL_PLACE_BYTES, &comm->pool->theirs[peer]) != RONDO_SUCCESS)
            rd_log(RD_LOG_INFO, "rank %d -> rank %d: links on demand go through host memory: %s", comm->rank, peer,
                   rd_last_error());
    }
    rd_offer_close(&says);
    return RONDO_SUCCESS;
}

rondo_result rd_pool_open(const rd_edges *c)
{
    rondo_comm *comm = c->comm;
    rondo_result result = RONDO_SUCCESS;
    rd_gpu_ticket ticket;
    int memory = -1, peers = 0;
    for (int r = 0; r < comm->size; r++) peers += exchanges(c, r);
    if (!peers) return RONDO_SUCCESS;
    RD_TRY(new_pool(comm));
    if (rd_gpu_shared_make(rd_device_ordinal(comm->device), (size_t)comm->pool->places * RD_POOL_PLACE_BYTES,
                           RD_GPU_BY_DESCRIPTOR, &comm->pool->mine, &ticket, &memory) != RONDO_SUCCESS)
        rd_log(RD_LOG_INFO, "rank %d: links on demand to it go through host memory, since there is no GPU memory: %s",
               comm->rank, rd_last_error());
    for (int r = 0; r < comm->size && result == RONDO_SUCCESS; r++)
        if (exchanges(c, r)) result = tell(c, r, &ticket, memory);
    for (int r = 0; r < comm->size && result == RONDO_SUCCESS; r++)
        if (exchanges(c, r)) result = hear(c, r);
    if (memory >= 0) close(memory);
    return result;
}

void rd_pool_close(rondo_comm *comm)
{
    rd_pool *pool = comm->pool;
    if (!pool) return;
    for (int r = 0; pool->theirs && r < comm->size; r++) rd_gpu_shared_close(&pool->theirs[r]);
    rd_gpu_shared_close(&pool->mine);
    free(pool->theirs);
    free(pool->told);
    free(pool->exhausted);
    free(pool);
    comm->pool = NULL;
}

/* ---- Links ---- */

bool rd_pool_out(const rondo_comm *comm, int peer)
{
    return comm->pool && comm->pool->theirs[peer].bytes && !comm->pool->exhausted[peer];
}

bool rd_pool_in(const rondo_comm *comm, int peer)
{
    return comm->pool && comm->pool->told[peer];
}

bool rd_pool_any(const rondo_comm *comm)
{
    for (int r = 0; comm->pool && r < comm->size; r++)
        if (comm->pool->theirs[r].bytes || comm->pool->told[r]) return true;
    return false;
}

bool rd_pool_lend_out(const rondo_comm *comm, rondo_link_spec *spec)
{
    if (!rd_pool_out(comm, spec->peer)) return false;
    const rd_gpu_shared *theirs = &comm->pool->theirs[spec->peer];
    spec->device = theirs->device;
    spec->shared = (unsigned char *)(uintptr_t)theirs->address;
    spec->shared_bytes = theirs->bytes;
    return true;
}

bool rd_pool_lend_in(rondo_comm *comm, rondo_link_spec *spec)
{
    rd_pool *pool = comm->pool;
    int place = 0;
    if (!pool || !pool->mine.bytes || spec->slots * spec->slot_bytes > RD_POOL_PLACE_BYTES) return false;
    while (place < pool->places && atomic_fetch_or(&pool->taken, UINT64_C(1) << place) >> place & 1) place++;
    if (place == pool->places) return false;
    spec->device = pool->mine.device;
    spec->shared = (unsigned char *)(uintptr_t)pool->mine.address;
    spec->shared_bytes = pool->mine.bytes;
    spec->shared_at = (size_t)place * RD_POOL_PLACE_BYTES;
    return true;
}

void rd_pool_exhausted(rondo_comm *comm, int peer)
{
    comm->pool->exhausted[peer] = true;
}

int rd_pool_place_of(const rondo_comm *comm, rondo_link *link)
{
    const rd_pool *pool = comm->pool;
    rondo_view view;
    if (!pool || !(link->caps & RONDO_LINK_DEVICE) || link->ops->view(link, &view) != RONDO_LINK_OK) return -1;
    uintptr_t at = (uintptr_t)view.payloads - (uintptr_t)pool->mine.address;
    return at < pool->mine.bytes ? (int)(at / RD_POOL_PLACE_BYTES) : -1;
}

void rd_pool_give_back(rondo_comm *comm, int place)
{
    if (place >= 0) atomic_fetch_and(&comm->pool->taken, ~(UINT64_C(1) << place));
}
