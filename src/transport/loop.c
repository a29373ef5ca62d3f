/* SPDX-License-Identifier: Apache-2.0
 *
 * loop.c - slots on the heap, for two ranks of one process.
 *
 * An offer names its memory by a number that only this process can look up, not by address: an offer that came from
 * elsewhere, twice, or too late is refused and not followed.
 */
#include "base/status.h"
#include "transport/slots.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* What both ends share; freed by the one that closes last. */
struct shared {
    void *memory;
    rd_ringer ringers[2]; /* of the bells of sender and receiver */
    _Atomic int ends;
    uint64_t number;      /* while its offer is open: of the list below */
    struct shared *next;
};

struct end {
    rd_slots slots;
    struct shared *shared;
};

struct wire_offer {
    uint32_t version, slots;
    uint64_t slot_bytes;
    uint64_t process[2]; /* random, of the process */
    uint64_t number;
};
enum { VERSION = 5, PAGE = 4096 };

static struct {
    pthread_mutex_t mutex;
    struct shared *open; /* offers that nobody has accepted */
    uint64_t numbers;
} offers = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void enlist(struct shared *shared)
{
    pthread_mutex_lock(&offers.mutex);
    shared->number = ++offers.numbers;
    shared->next = offers.open;
    offers.open = shared;
    pthread_mutex_unlock(&offers.mutex);
}

/* Takes the offer out of the list. A receiver becomes one of its ends in the same breath, before the sender can go. */
static struct shared *delist(uint64_t number, int new_ends)
{
    struct shared *found = NULL;
    pthread_mutex_lock(&offers.mutex);
    for (struct shared **at = &offers.open; *at; at = &(*at)->next) {
        if ((*at)->number != number) continue;
        found = *at;
        *at = found->next;
        atomic_fetch_add_explicit(&found->ends, new_ends, memory_order_relaxed);
        break;
    }
    pthread_mutex_unlock(&offers.mutex);
    return found;
}

static void leave(struct shared *shared)
{
    if (atomic_fetch_sub_explicit(&shared->ends, 1, memory_order_acq_rel) > 1) return;
    rd_ringer_close(&shared->ringers[RD_SENDER]);
    rd_ringer_close(&shared->ringers[RD_RECEIVER]);
    free(shared->memory);
    free(shared);
}

static void close_end(rondo_link *link)
{
    struct end *end = (struct end *)link;
    rd_slots_leave(&end->slots);
    if (end->slots.side == RD_SENDER) delist(end->shared->number, 0);
    leave(end->shared);
    free(end);
}

/* Within a process every address is everyone's. */
static rondo_link_result loop_register(rondo_link *link, void *ptr, size_t bytes, unsigned char descriptor[128])
{
    (void)link;
    memcpy(descriptor, &ptr, sizeof ptr);
    memcpy(descriptor + sizeof ptr, &bytes, sizeof bytes);
    return RONDO_LINK_OK;
}

static rondo_link_result loop_import(rondo_link *link, const unsigned char descriptor[128], size_t bytes,
                                     void **address)
{
    size_t all;
    void *ptr;
    memcpy(&ptr, descriptor, sizeof ptr);
    memcpy(&all, descriptor + sizeof ptr, sizeof all);
    if (bytes > all) {
        rd_fail(RONDO_REMOTE_ERROR, "rank %d named %zu bytes of its memory where %zu are used", link->peer, all, bytes);
        return RONDO_LINK_BROKEN;
    }
    *address = ptr;
    return RONDO_LINK_OK;
}

static const rondo_link_ops loop_ops = RD_SLOTS_OPS("loop", loop_register, loop_import, rd_slots_arm, close_end);

static rondo_result loop_offer(const rondo_link_spec *spec, rondo_link **sender, rondo_offer *offer)
{
    RD_TRY(rd_spec_check(spec));
    struct wire_offer wire = {.version = VERSION, .slots = spec->slots, .slot_bytes = spec->slot_bytes};
    const uint64_t no_token[2] = {0};
    rondo_result result;
    size_t bytes = rd_slots_memory(spec);
    struct end *end = calloc(1, sizeof *end);
    struct shared *shared = calloc(1, sizeof *shared);
    /* Whole pages of its own: a GPU's driver makes pages reachable, and each once. */
    void *memory = aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE);
    if (!end || !shared || !memory) {
        result = rd_fail(RONDO_SYSTEM_ERROR, "no memory for a link of %zu bytes to rank %d", bytes, spec->peer);
        goto free_all;
    }
    shared->memory = memory;
    shared->ends = 1;
    if ((result = rd_ringer_local(&shared->ringers[RD_SENDER], spec->bell)) != RONDO_SUCCESS) goto free_all;
    rd_slots_prepare(memory, spec, no_token);
    rd_slots_init(&end->slots, memory, spec, RD_SENDER, &loop_ops);
    end->shared = shared;
    if ((result = rd_slots_process(wire.process)) != RONDO_SUCCESS) goto close_ringer;
    enlist(shared);

    wire.number = shared->number;
    *offer = (rondo_offer){.bytes = sizeof wire};
    memcpy(offer->data, &wire, sizeof wire);
    *sender = &end->slots.link;
    return RONDO_SUCCESS;

close_ringer:
    rd_ringer_close(&shared->ringers[RD_SENDER]);
free_all:
    free(memory);
    free(shared);
    free(end);
    return result;
}

static rondo_result loop_accept(const rondo_link_spec *spec, const rondo_offer *offer, rondo_link **receiver,
                                rondo_offer *answer)
{
    struct wire_offer wire;
    rd_offer_close(offer);
    RD_TRY(rd_spec_check(spec));
    if (offer->bytes != sizeof wire)
        return rd_fail(RONDO_MISMATCH, "rank %d offers a loop link in %u bytes where %zu are expected", spec->peer,
                       offer->bytes, sizeof wire);
    memcpy(&wire, offer->data, sizeof wire);
    RD_TRY(rd_slots_agree(spec, "loop", VERSION, wire.version, wire.slots, wire.slot_bytes));
    struct end *end = calloc(1, sizeof *end);
    if (!end) return rd_fail(RONDO_SYSTEM_ERROR, "no memory for a link from rank %d", spec->peer);
    uint64_t process[2];
    rondo_result result = rd_slots_process(process);
    if (result != RONDO_SUCCESS) goto free_end;
    struct shared *shared = memcmp(process, wire.process, sizeof process) ? NULL : delist(wire.number, 1);
    if (!shared) {
        result = rd_fail(RONDO_SYSTEM_ERROR, "rank %d offers a link within this process, but made none here: the ranks "
                         "are in two processes, or it has closed the link", spec->peer);
        goto free_end;
    }
    if ((result = rd_ringer_local(&shared->ringers[RD_RECEIVER], spec->bell)) != RONDO_SUCCESS) goto leave;
    rd_slots_init(&end->slots, shared->memory, spec, RD_RECEIVER, &loop_ops);
    end->slots.ringer = shared->ringers[RD_SENDER];
    end->shared = shared;
    *answer = (rondo_offer){0};
    *receiver = &end->slots.link;
    return RONDO_SUCCESS;

leave:
    leave(shared);
free_end:
    free(end);
    return result;
}

static rondo_result loop_complete(rondo_link *sender, const rondo_offer *answer)
{
    struct end *end = (struct end *)sender;
    rd_offer_close(answer);
    end->slots.ringer = end->shared->ringers[RD_RECEIVER];
    return RONDO_SUCCESS;
}

const rondo_transport rd_transport_loop = {
    .size = sizeof(rondo_transport),
    .name = "loop",
    .reach = RONDO_REACH_PROCESS,
    .cost = 100,
    .offer = loop_offer,
    .accept = loop_accept,
    .complete = loop_complete,
};
