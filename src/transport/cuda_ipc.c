/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_ipc.c - slots whose payloads lie in the memory of the receiver's GPU, for two ranks of one host that both have
 * one: the sender's kernels and copies push over NVLink or PCIe, the receiver's read their own memory. The GPU may be
 * the same.
 *
 * Heads are host memory that both processes map and pin, so that either rank may move slices by CPU (reserve, commit:
 * an engine does the payload) or by a kernel, and the two need not know which the other does. A brief slice lies in its
 * head as on every other link: a kernel that has polled the head has its line anyway, and one rule serves all.
 * Behind the payloads, in GPU memory, too, lies the room for packets, by which two kernels do without looking at heads.
 *
 * The payloads may also be lent: a part of memory that the two ranks share already, without room for packets. Such a
 * link can be made while kernels wait for one another, for it neither takes nor maps GPU memory.
 *
 * Who frees what, and when. An end is closed when nothing of its rank moves slices any more: core waits for what the
 * GPU was given, also after a failure. The receiver's GPU memory goes back when both ends are closed, whichever goes
 * first: by descriptor the driver counts the mappings; otherwise the receiver's end waits in a list until the sender
 * has said that he is gone. A sender that dies says nothing. Then the memory stays until this process ends, which is
 * the price of GPUs without descriptors: nobody here can know whether his kernels still run. A child of fork has no
 * driver, and frees nothing that is the GPU's.
 */
#include "base/gpu_shared.h"
#include "base/process.h"
#include "base/status.h"
#include "transport/mapped.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct end {
    rd_mapped mapped;
    int device;
    rd_gpu_shared payloads; /* lent: the address alone */
    bool lent;
    size_t lent_bytes; /* sender: of all that is shared, where the payloads' address points until it is told more */
    bool pinned;      /* the heads */
    struct end *next; /* of those that wait for their sender */
};

struct wire_offer {
    rd_mapped_offer mapped;
    uint64_t process[2]; /* random, of the process */
    uint32_t ways;       /* of rd_gpu_shared that the sender's GPU can go between processes, and within one; or LENT */
    uint32_t ways_within;
};
struct wire_answer {
    rd_gpu_ticket payloads;
    uint64_t process[2];
};
enum { FD_PAYLOADS = RD_MAPPED_ANSWER_FDS };
enum { LENT = 8 }; /* beside the ways of rd_gpu_shared; the ticket's address is where in the shared memory they lie */

_Static_assert(sizeof(struct wire_offer) <= sizeof((rondo_offer *)0)->data, "an offer holds it");
_Static_assert(sizeof(struct wire_answer) <= sizeof((rondo_offer *)0)->data, "an answer holds it");

/* ---- Slots ---- */

static void *place_of(const struct end *end, uint64_t slice, size_t bytes, void *in_head)
{
    if (bytes <= RONDO_SLOT_BRIEF) return in_head;
    uint64_t slot = slice & end->mapped.slots.mask;
    return (unsigned char *)(uintptr_t)end->payloads.address + slot * end->mapped.slots.link.slot_bytes;
}

static rondo_link_result ipc_reserve(rondo_link *link, size_t bytes, void **place)
{
    struct end *end = (struct end *)link;
    rondo_link_result result = rd_slots_reserve(link, bytes, place);
    if (result == RONDO_LINK_OK) *place = place_of(end, end->mapped.slots.reserved - 1, bytes, *place);
    return result;
}

static rondo_link_result ipc_peek_ahead(rondo_link *link, uint32_t ahead, size_t bytes, uint64_t signature,
                                        void **place)
{
    struct end *end = (struct end *)link;
    rondo_link_result result = rd_slots_peek_ahead(link, ahead, bytes, signature, place);
    if (result == RONDO_LINK_OK) *place = place_of(end, end->mapped.slots.finished + ahead, bytes, *place);
    return result;
}

static rondo_link_result ipc_peek(rondo_link *link, size_t bytes, uint64_t signature, void **place)
{
    return ipc_peek_ahead(link, 0, bytes, signature, place);
}

static rondo_link_result ipc_view(rondo_link *link, rondo_view *view)
{
    const struct end *end = (const struct end *)link;
    rd_slots_view(link, view);
    view->payloads = (unsigned char *)(uintptr_t)end->payloads.address;
    view->payload_stride = link->slot_bytes;
    view->packets = end->lent ? NULL : view->payloads + link->slots * link->slot_bytes;
    return RONDO_LINK_OK;
}

/* ---- The end ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
RD_HOLD_AT_FORK(lock)
static struct end *waiting; /* receiving ends that are closed, and whose sender has not said that he is gone */
static int generation;      /* whose they are */

static bool sender_is_gone(const struct end *end)
{
    return atomic_load_explicit(&end->mapped.slots.control->closed[RD_SENDER], memory_order_acquire);
}

static void free_end(struct end *end)
{
    rd_gpu_shared_close(&end->payloads);
    if (end->pinned) rd_gpu_unpin(end->device, end->mapped.memory);
    rd_mapped_free(&end->mapped);
    free(end);
}

static void free_waiting(void)
{
    struct end *gone = NULL;
    pthread_mutex_lock(&lock);
    if (generation != rd_generation()) waiting = NULL;
    generation = rd_generation();
    for (struct end **at = &waiting, *end; (end = *at);) {
        if (sender_is_gone(end)) {
            *at = end->next;
            end->next = gone;
            gone = end;
        } else {
            at = &end->next;
        }
    }
    pthread_mutex_unlock(&lock);
    for (struct end *next; gone; gone = next) {
        next = gone->next;
        free_end(gone);
    }
}

static void close_end(rondo_link *link)
{
    struct end *end = (struct end *)link;
    if (end->mapped.slots.side == RD_SENDER || end->lent || rd_gpu_shared_outlives(&end->payloads)) {
        rd_gpu_shared_close(&end->payloads); /* before the receiver hears of it, who may free them */
        rd_mapped_leave(&end->mapped);
        free_end(end);
    } else {
        rd_mapped_leave(&end->mapped);
        pthread_mutex_lock(&lock);
        end->next = waiting;
        waiting = end;
        pthread_mutex_unlock(&lock);
    }
    free_waiting();
}

static const rondo_link_ops ipc_ops = {
    .size = sizeof(rondo_link_ops),
    .name = "cuda_ipc",
    .reserve = ipc_reserve,
    .commit = rd_slots_commit,
    .peek = ipc_peek,
    .release = rd_slots_release,
    .peek_ahead = ipc_peek_ahead,
    .poll = rd_slots_poll,
    .arm = rd_slots_arm,
    .view = ipc_view,
    .moved = rd_slots_moved,
    .seen = rd_slots_seen,
    .close = close_end,
};
static const rd_mapped_kind ipc_kind = {
    .ops = &ipc_ops, .version = 6, .offer_bytes = sizeof(struct wire_offer), .heads_only = true};

/* ---- Making a link ---- */

static rondo_result new_end(const rondo_link_spec *spec, struct end **end)
{
    RD_TRY(rd_spec_check(spec));
    RD_TRY(rd_gpu_require());
    *end = calloc(1, sizeof **end);
    if (!*end) return rd_fail(RONDO_SYSTEM_ERROR, "no memory for a link between ranks %d and %d", spec->me, spec->peer);
    (*end)->device = spec->device;
    (*end)->lent = spec->shared != NULL;
    return RONDO_SUCCESS;
}

/* The payloads are there: a whole end. */
static rondo_result begin(struct end *end)
{
    rondo_link *link = &end->mapped.slots.link;
    link->caps = RONDO_LINK_SLOTS | RONDO_LINK_RETURN | RONDO_LINK_VIEW | RONDO_LINK_DEVICE;
    if (!end->lent) link->caps |= RONDO_LINK_PACKETS;
    rondo_result result = rd_gpu_pin(end->device, end->mapped.memory, end->mapped.bytes);
    if (result != RONDO_SUCCESS)
        return rd_fail(result, "the heads of a link with rank %d cannot be pinned: %s", link->peer, rd_last_error());
    end->pinned = true;
    return RONDO_SUCCESS;
}

/* Of the payloads and the packets. */
static size_t payload_bytes(const rondo_link *link)
{
    return link->slots * (link->slot_bytes + 2 * RONDO_PACKED_MOST);
}

/* Whether the slots of a link lie at `at` in shared memory of `bytes`. */
static bool fit(const rondo_link *link, uint64_t at, size_t bytes)
{
    size_t slots = link->slots * link->slot_bytes;
    return at % 64 == 0 && slots <= bytes && at <= bytes - slots;
}

static rondo_result ipc_offer(const rondo_link_spec *spec, rondo_link **sender, rondo_offer *offer)
{
    struct end *end = NULL;
    struct wire_offer wire = {0};
    rondo_result result = rd_slots_process(wire.process);
    if (result == RONDO_SUCCESS) result = new_end(spec, &end);
    if (result == RONDO_SUCCESS) result = rd_mapped_make(&ipc_kind, spec, &end->mapped, offer);
    if (result != RONDO_SUCCESS) {
        free(end);
        rd_mapped_give_up(spec);
        return result;
    }
    wire.ways = end->lent ? LENT : rd_gpu_shared_ways(spec->device, false);
    wire.ways_within = end->lent ? LENT : rd_gpu_shared_ways(spec->device, true);
    end->payloads.address = (uintptr_t)spec->shared;
    end->lent_bytes = spec->shared_bytes;
    memcpy(offer->data + sizeof wire.mapped, (unsigned char *)&wire + sizeof wire.mapped,
           sizeof wire - sizeof wire.mapped);
    *sender = &end->mapped.slots.link;
    return RONDO_SUCCESS;
}

/* The payloads in memory that is shared already, and in the answer where in it. */
static rondo_result lend_payloads(struct end *end, const rondo_link_spec *spec, const struct wire_offer *wire,
                                  rondo_offer *answer)
{
    const rondo_link *link = &end->mapped.slots.link;
    struct wire_answer says = {.payloads = {.bytes = link->slots * link->slot_bytes, .way = LENT}};
    if (!(wire->ways & LENT) || !fit(link, spec->shared_at, spec->shared_bytes))
        return rd_fail(RONDO_INVALID_USAGE,
                       "rank %d does not know of the GPU memory that this rank has for the link, or %u slots of %zu "
                       "bytes do not lie in it",
                       link->peer, link->slots, link->slot_bytes);
    RD_TRY(rd_slots_process(says.process));
    end->payloads.address = (uintptr_t)spec->shared + spec->shared_at;
    says.payloads.where.address = spec->shared_at;
    answer->bytes = sizeof says;
    memcpy(answer->data, &says, sizeof says);
    return RONDO_SUCCESS;
}

/* The payloads, and in the answer where they are. */
static rondo_result make_payloads(struct end *end, const struct wire_offer *wire, rondo_offer *answer)
{
    struct wire_answer says = {0};
    int fd, peer = end->mapped.slots.link.peer;
    RD_TRY(rd_slots_process(says.process));
    bool within = !memcmp(says.process, wire->process, sizeof says.process);
    unsigned ways = rd_gpu_shared_ways(end->device, within) & (within ? wire->ways_within : wire->ways);
    if (!ways)
        return rd_fail(RONDO_INVALID_USAGE,
                       "GPU %d and that of rank %d have no way in common to share memory between "
                       "processes (descriptors, IPC handles); use RONDO_TRANSPORT=shm",
                       end->device, peer);
    rondo_result result = rd_gpu_shared_make(end->device, payload_bytes(&end->mapped.slots.link), ways, &end->payloads,
                                             &says.payloads, &fd);
    if (result != RONDO_SUCCESS)
        return rd_fail(result, "no GPU memory for a link from rank %d: %s", peer, rd_last_error());
    answer->bytes = sizeof says;
    memcpy(answer->data, &says, sizeof says);
    if (fd >= 0) answer->fds[answer->fd_count++] = fd;
    return RONDO_SUCCESS;
}

static rondo_result ipc_accept(const rondo_link_spec *spec, const rondo_offer *offer, rondo_link **receiver,
                               rondo_offer *answer)
{
    struct end *end = NULL;
    struct wire_offer wire;
    rondo_offer made;
    rondo_result result = new_end(spec, &end);
    free_waiting();
    if (result != RONDO_SUCCESS) {
        rd_offer_close(offer);
        goto give_up;
    }
    if ((result = rd_mapped_accept(&ipc_kind, spec, offer, &end->mapped, &made)) != RONDO_SUCCESS) goto free_end;
    memcpy(&wire, offer->data, sizeof wire);
    result = end->lent ? lend_payloads(end, spec, &wire, &made) : make_payloads(end, &wire, &made);
    if (result == RONDO_SUCCESS) result = begin(end);
    if (result != RONDO_SUCCESS) goto leave;
    *answer = made;
    *receiver = &end->mapped.slots.link;
    return RONDO_SUCCESS;

leave:
    rd_offer_close(&made);
    rd_gpu_shared_close(&end->payloads); /* nobody has been told of them */
    rd_mapped_leave(&end->mapped);
    rd_mapped_free(&end->mapped);
free_end:
    free(end);
give_up:
    rd_mapped_give_up(spec);
    return result;
}

static rondo_result open_payloads(struct end *end, const struct wire_answer *says, int fd)
{
    uint64_t process[2];
    int peer = end->mapped.slots.link.peer;
    if (end->lent && (says->payloads.way != LENT ||
                      !fit(&end->mapped.slots.link, says->payloads.where.address, end->lent_bytes)))
        return rd_fail(RONDO_REMOTE_ERROR,
                       "rank %d names slots that do not lie in the GPU memory which it shares with this rank", peer);
    if (end->lent) {
        end->payloads.address += says->payloads.where.address;
        return RONDO_SUCCESS;
    }
    RD_TRY(rd_slots_process(process));
    if (says->payloads.way == RD_GPU_BY_ADDRESS && memcmp(process, says->process, sizeof process))
        return rd_fail(RONDO_REMOTE_ERROR, "rank %d names GPU memory by its address, but is in another process", peer);
    rondo_result result =
        rd_gpu_shared_open(end->device, &says->payloads, fd, payload_bytes(&end->mapped.slots.link), &end->payloads);
    if (result == RONDO_SUCCESS) return result;
    return rd_fail(result,
                   "GPU %d cannot reach the memory of rank %d's GPU: %s; RONDO_TRANSPORT=shm goes through host "
                   "memory",
                   end->device, peer, rd_last_error());
}

static rondo_result ipc_complete(rondo_link *sender, const rondo_offer *answer)
{
    struct end *end = (struct end *)sender;
    struct wire_answer says;
    bool with_fd = answer->fd_count == FD_PAYLOADS + 1;
    if (answer->bytes != sizeof says || (answer->fd_count != FD_PAYLOADS && !with_fd)) {
        rd_offer_close(answer);
        return rd_fail(RONDO_MISMATCH,
                       "rank %d answers a cuda_ipc link in %u bytes and %d descriptors where %zu and %d "
                       "or %d are expected",
                       sender->peer, answer->bytes, answer->fd_count, sizeof says, FD_PAYLOADS, FD_PAYLOADS + 1);
    }
    memcpy(&says, answer->data, sizeof says);
    int fd = with_fd ? answer->fds[FD_PAYLOADS] : -1;
    rondo_result result = rd_mapped_complete(&end->mapped, answer);
    if (result == RONDO_SUCCESS) result = open_payloads(end, &says, fd);
    if (with_fd) close(fd);
    return result == RONDO_SUCCESS ? begin(end) : result;
}

bool rd_cuda_ipc_reaches(int device, const char peer_uuid[16], bool one_process, char *why, size_t bytes)
{
    struct rd_gpu_reach reach;
    int peer = rd_gpu_by_uuid(peer_uuid);
    if (!rd_gpu_shared_ways(device, one_process)) {
        snprintf(why, bytes, "GPU %d can share memory with other processes neither by descriptor nor by IPC handle",
                 device);
        return false;
    }
    if (peer < 0)
        return true; /* CUDA_VISIBLE_DEVICES hides it, and the driver tells nothing of it: opening will show */
    if (rd_gpu_reach(device, peer, &reach) != RONDO_SUCCESS) {
        snprintf(why, bytes, "%s", rd_last_error());
        return false;
    }
    if (!reach.access) snprintf(why, bytes, "GPU %d has no peer-to-peer access to the memory of GPU %d", device, peer);
    return reach.access;
}

const rondo_transport rd_transport_cuda_ipc = {
    .size = sizeof(rondo_transport),
    .name = "cuda_ipc",
    .reach = RONDO_REACH_HOST,
    .cost = 1000,
    .offer = ipc_offer,
    .accept = ipc_accept,
    .complete = ipc_complete,
};
