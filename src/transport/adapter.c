/* SPDX-License-Identifier: Apache-2.0
 *
 * adapter.c - a link of one kind dressed as the other, by staging.
 *
 *   slots_*   reserve/commit and peek/release over a MEMORY link: the slots are staging buffers here
 *   memory_*  send and recv over a SLOTS link: a copy into a slot, a copy out of one
 *
 * Every step of it costs a copy that the native face does not, so it serves tests: one suite drives both faces of
 * every transport. A receiving end over a MEMORY link counts a slice only after peek has said what it expects, since
 * that is when the inner link learns it.
 */
#include "base/status.h"
#include "transport/transport.h"

#include <stdlib.h>
#include <string.h>

/* A slice that was committed and not yet sent, or that recv waits for. */
struct staged {
    unsigned char *memory; /* where its payload is or shall lie */
    size_t bytes;
    uint64_t signature;
};

struct adapter {
    rondo_link link;
    rondo_link *inner;
    int side;
    unsigned char *stage;  /* slots_*: one buffer a slot */
    struct staged *queue;  /* slice n in queue[n % slots] */
    uint64_t reserved;     /* slots_*, sender */
    uint64_t given;        /* committed, or posted by recv or by peek */
    uint64_t taken;        /* of those: sent by the inner link, or released */
    uint64_t counted;      /* as poll said last */
    rondo_link_result ended;
};

static struct adapter *adapter_of(rondo_link *link) { return (struct adapter *)link; }
static struct staged *staged_of(struct adapter *a, uint64_t slice) { return &a->queue[slice % a->link.slots]; }

/* ---- Slots over memory ---- */

static unsigned char *stage_of(struct adapter *a, uint64_t slice)
{
    return a->stage + (slice % a->link.slots) * a->link.slot_bytes;
}

/* Hands on what was committed. */
static void push(struct adapter *a)
{
    rondo_link_result result = a->ended;
    if (a->side == RD_RECEIVER) return;
    while (result == RONDO_LINK_OK && a->taken < a->given) {
        const struct staged *next = staged_of(a, a->taken);
        result = a->inner->ops->send(a->inner, next->memory, next->bytes, next->signature);
        if (result == RONDO_LINK_OK) a->taken++;
    }
    a->link.bytes_sent = a->inner->bytes_sent;
    if (result != RONDO_LINK_AGAIN) a->ended = result;
}

static rondo_link_result slots_poll(rondo_link *link, uint64_t *count)
{
    struct adapter *a = adapter_of(link);
    push(a);
    rondo_link_result result = a->inner->ops->poll(a->inner, &a->counted);
    *count = a->counted;
    return result != RONDO_LINK_OK ? result : a->ended;
}

static rondo_link_result slots_reserve(rondo_link *link, size_t bytes, void **place)
{
    (void)bytes; /* a stage has room for any slice */
    struct adapter *a = adapter_of(link);
    if (a->reserved - a->counted >= link->slots) {
        uint64_t count;
        rondo_link_result result = slots_poll(link, &count);
        if (a->reserved - count >= link->slots) return result == RONDO_LINK_OK ? RONDO_LINK_AGAIN : result;
    }
    *place = stage_of(a, a->reserved++);
    return RONDO_LINK_OK;
}

static rondo_link_result slots_commit(rondo_link *link, size_t bytes, uint64_t signature)
{
    struct adapter *a = adapter_of(link);
    *staged_of(a, a->given) = (struct staged){stage_of(a, a->given), bytes, signature};
    a->given++;
    push(a);
    return a->ended;
}

/* The receiving end posts one slice at a time: it does not know what comes next before it is told. */
static rondo_link_result slots_peek(rondo_link *link, size_t bytes, uint64_t signature, void **place)
{
    struct adapter *a = adapter_of(link);
    if (a->given == a->taken) {
        rondo_link_result result = a->inner->ops->recv(a->inner, stage_of(a, a->taken), bytes, signature);
        if (result != RONDO_LINK_OK) return result;
        a->given++;
    }
    if (a->counted <= a->taken) {
        rondo_link_result result = a->inner->ops->poll(a->inner, &a->counted);
        if (a->counted <= a->taken) return result == RONDO_LINK_OK ? RONDO_LINK_AGAIN : result;
    }
    *place = stage_of(a, a->taken);
    return RONDO_LINK_OK;
}

static rondo_link_result slots_release(rondo_link *link)
{
    struct adapter *a = adapter_of(link);
    a->taken++;
    return RONDO_LINK_OK;
}

static rondo_link_result slots_arm(rondo_link *link, rondo_bell *bell, uint64_t seen)
{
    struct adapter *a = adapter_of(link);
    push(a);
    return a->ended != RONDO_LINK_OK ? RONDO_LINK_OK : a->inner->ops->arm(a->inner, bell, seen);
}

/* ---- Memory over slots ---- */

/* Done means that the receiver released the slot: later than need be, but so AGAIN always has a count to wait for. */
static rondo_link_result memory_send(rondo_link *link, const void *from, size_t bytes, uint64_t signature)
{
    struct adapter *a = adapter_of(link);
    void *place;
    rondo_link_result result = a->inner->ops->reserve(a->inner, bytes, &place);
    if (result != RONDO_LINK_OK) return result;
    memcpy(place, from, bytes);
    result = a->inner->ops->commit(a->inner, bytes, signature);
    link->bytes_sent = a->inner->bytes_sent;
    return result;
}

/* Copies out what has come of what was posted. */
static void pull(struct adapter *a)
{
    rondo_link_result result = a->ended;
    while (result == RONDO_LINK_OK && a->taken < a->given) {
        const struct staged *next = staged_of(a, a->taken);
        void *place;
        result = a->inner->ops->peek(a->inner, next->bytes, next->signature, &place);
        if (result != RONDO_LINK_OK) break;
        memcpy(next->memory, place, next->bytes);
        result = a->inner->ops->release(a->inner);
        a->taken++;
    }
    if (result != RONDO_LINK_AGAIN) a->ended = result;
}

static rondo_link_result memory_recv(rondo_link *link, void *to, size_t bytes, uint64_t signature)
{
    struct adapter *a = adapter_of(link);
    if (a->given - a->taken >= link->slots) return RONDO_LINK_AGAIN;
    *staged_of(a, a->given) = (struct staged){to, bytes, signature};
    a->given++;
    return RONDO_LINK_OK;
}

static rondo_link_result memory_poll(rondo_link *link, uint64_t *count)
{
    struct adapter *a = adapter_of(link);
    if (a->side == RD_SENDER) return a->inner->ops->poll(a->inner, count);
    pull(a);
    *count = a->taken;
    return a->ended;
}

static rondo_link_result memory_arm(rondo_link *link, rondo_bell *bell, uint64_t seen)
{
    struct adapter *a = adapter_of(link);
    if (a->side == RD_SENDER) return a->inner->ops->arm(a->inner, bell, seen);
    pull(a);
    if (a->ended != RONDO_LINK_OK || a->taken > seen) return RONDO_LINK_OK;
    return a->taken == a->given ? RONDO_LINK_AGAIN : a->inner->ops->arm(a->inner, bell, a->taken);
}

/* ---- Both ---- */

static void adapter_seen(const rondo_link *link, uint64_t *signature, uint64_t *bytes)
{
    const rondo_link *inner = ((const struct adapter *)link)->inner;
    inner->ops->seen(inner, signature, bytes);
}

static void adapter_close(rondo_link *link)
{
    struct adapter *a = adapter_of(link);
    a->inner->ops->close(a->inner);
    free(a->queue);
    free(a->stage);
    free(a);
}

static const rondo_link_ops slots_ops = {
    .size = sizeof(rondo_link_ops), .name = "adapter", .reserve = slots_reserve, .commit = slots_commit,
    .peek = slots_peek, .release = slots_release, .poll = slots_poll, .arm = slots_arm, .seen = adapter_seen,
    .close = adapter_close,
};

static const rondo_link_ops memory_ops = {
    .size = sizeof(rondo_link_ops), .name = "adapter", .send = memory_send, .recv = memory_recv, .poll = memory_poll,
    .arm = memory_arm, .seen = adapter_seen, .close = adapter_close,
};

rondo_link *rd_adapter_wrap(rondo_link *inner, int side)
{
    bool over_memory = !(inner->caps & RONDO_LINK_SLOTS);
    struct adapter *a = calloc(1, sizeof *a);
    if (!a) goto no_memory;
    a->queue = calloc(inner->slots, sizeof *a->queue);
    if (!a->queue) goto free_adapter;
    if (over_memory && !(a->stage = aligned_alloc(64, inner->slots * inner->slot_bytes))) goto free_queue;
    a->inner = inner;
    a->side = side;
    a->link = *inner;
    a->link.ops = over_memory ? &slots_ops : &memory_ops;
    a->link.caps = over_memory ? RONDO_LINK_SLOTS : RONDO_LINK_MEMORY;
    return &a->link;

free_queue:
    free(a->queue);
free_adapter:
    free(a);
no_memory:
    rd_fail(RONDO_SYSTEM_ERROR, "no memory to adapt the link with rank %d", inner->peer);
    return NULL;
}
