/* SPDX-License-Identifier: Apache-2.0
 *
 * adapter.c - a link of one kind dressed as the other, so that one suite of tests drives both faces of every transport:
 * slots over a MEMORY link by stage.c, and here send and recv over a SLOTS link, by a copy into a slot and a copy out
 * of one. Nobody else has a use for that.
 */
#include "base/status.h"
#include "transport/transport.h"

#include <stdlib.h>
#include <string.h>

/* A slice that recv waits for. */
struct staged {
    unsigned char *memory; /* where its payload shall lie */
    size_t bytes;
    uint64_t signature;
};

struct adapter {
    rondo_link link;
    rondo_link *inner;
    int side;
    struct staged *queue;  /* slice n in queue[n % slots] */
    uint64_t given;        /* posted by recv */
    uint64_t taken;        /* of those that have come */
    rondo_link_result ended;
};

static struct adapter *adapter_of(rondo_link *link) { return (struct adapter *)link; }
static struct staged *staged_of(struct adapter *a, uint64_t slice) { return &a->queue[slice % a->link.slots]; }

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
    free(a);
}

static const rondo_link_ops memory_ops = {
    .size = sizeof(rondo_link_ops), .name = "adapter", .send = memory_send, .recv = memory_recv, .poll = memory_poll,
    .arm = memory_arm, .seen = adapter_seen, .close = adapter_close,
};

rondo_link *rd_adapter_wrap(rondo_link *inner, int side)
{
    if (!(inner->caps & RONDO_LINK_SLOTS)) return rd_stage_wrap(inner, side);
    struct adapter *a = calloc(1, sizeof *a);
    if (a) a->queue = calloc(inner->slots, sizeof *a->queue);
    if (!a || !a->queue) {
        free(a);
        rd_fail(RONDO_SYSTEM_ERROR, "no memory to adapt the link with rank %d", inner->peer);
        return NULL;
    }
    a->inner = inner;
    a->side = side;
    a->link = *inner;
    a->link.ops = &memory_ops;
    a->link.caps = RONDO_LINK_MEMORY;
    return &a->link;
}
