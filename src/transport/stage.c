/* SPDX-License-Identifier: Apache-2.0
 *
 * stage.c - slots for a link that moves memory: the slots are buffers here, from which it sends and into which it
 * receives. For those who can only work in memory that was made ready beforehand, as a GPU does.
 *
 * Where the rank has a GPU whose memory the link's device reaches, long slices lie there: then no byte of them touches
 * host memory. Short ones stay in host memory, where a CPU can put them into the device's own queue.
 *
 * A receiving end does not know what comes before it is told: it posts what peek_ahead asks for, in that order.
 *
 *   sender      done <= sent <= committed <= reserved <= done + slots
 *   receiver    released <= arrived <= posted <= asked <= released + slots
 */
#include "base/gpu_shared.h"
#include "base/status.h"
#include "transport/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PAGE 4096

/* What was reserved, or asked for. */
typedef struct slice {
    void *at;
    size_t bytes;
    uint64_t signature;
} slice;

typedef struct stage {
    rondo_link link;
    rondo_link_ops ops; /* by the inner link's name */
    rondo_link *inner;
    int side;
    unsigned char *memory;
    size_t stride, least; /* slices longer than least lie in gpu; all in memory: SIZE_MAX */
    rd_gpu_shared gpu;    /* bytes 0: none */
    slice *queue;      /* slice n in queue[n % slots] */
    uint64_t reserved; /* sender */
    uint64_t known;    /* committed, or asked for */
    uint64_t passed;   /* of those the inner link has taken: sent, or posted */
    uint64_t counted;  /* done, or arrived, as poll said last */
    uint64_t released; /* receiver */
    rondo_link_result ended;
} stage;

static stage *stage_of(rondo_link *link)
{
    return (stage *)link;
}

static slice *slice_of(const stage *s, uint64_t n)
{
    return &s->queue[n % s->link.slots];
}

static void *slot_for(const stage *s, uint64_t n, size_t bytes)
{
    uint64_t slot = n % s->link.slots;
    if (bytes <= s->least) return s->memory + slot * s->stride;
    return (unsigned char *)(uintptr_t)s->gpu.address + slot * s->link.slot_bytes;
}

/* Hands the inner link what it has not had yet, and asks how far it is. */
static void move(stage *s)
{
    rondo_link *inner = s->inner;
    rondo_link_result result = s->ended;
    while (result == RONDO_LINK_OK && s->passed < s->known) {
        const slice *next = slice_of(s, s->passed);
        result = s->side == RD_SENDER ? inner->ops->send(inner, next->at, next->bytes, next->signature)
                                      : inner->ops->recv(inner, next->at, next->bytes, next->signature);
        s->passed += result == RONDO_LINK_OK;
    }
    s->link.bytes_sent = inner->bytes_sent;
    if (s->ended == RONDO_LINK_OK && result > RONDO_LINK_AGAIN) s->ended = result;
    result = inner->ops->poll(inner, &s->counted);
    if (s->ended == RONDO_LINK_OK) s->ended = result;
}

static rondo_link_result stage_poll(rondo_link *link, uint64_t *count)
{
    stage *s = stage_of(link);
    move(s);
    *count = s->counted;
    return s->ended;
}

static rondo_link_result stage_reserve(rondo_link *link, size_t bytes, void **place)
{
    stage *s = stage_of(link);
    if (s->reserved - s->counted >= link->slots) move(s);
    if (s->reserved - s->counted >= link->slots) return s->ended == RONDO_LINK_OK ? RONDO_LINK_AGAIN : s->ended;
    *place = slot_for(s, s->reserved, bytes);
    slice_of(s, s->reserved++)->at = *place;
    return RONDO_LINK_OK;
}

static rondo_link_result stage_commit(rondo_link *link, size_t bytes, uint64_t signature)
{
    stage *s = stage_of(link);
    slice *next = slice_of(s, s->known++);
    next->bytes = bytes;
    next->signature = signature;
    move(s);
    return s->ended;
}

static rondo_link_result stage_peek_ahead(rondo_link *link, uint32_t ahead, size_t bytes, uint64_t signature,
                                          void **place)
{
    stage *s = stage_of(link);
    uint64_t wanted = s->released + ahead;
    if (wanted == s->known) *slice_of(s, s->known++) = (slice){slot_for(s, wanted, bytes), bytes, signature};
    if (s->counted <= wanted) move(s);
    if (s->counted <= wanted) return s->ended == RONDO_LINK_OK ? RONDO_LINK_AGAIN : s->ended;
    *place = slice_of(s, wanted)->at;
    return RONDO_LINK_OK;
}

static rondo_link_result stage_peek(rondo_link *link, size_t bytes, uint64_t signature, void **place)
{
    return stage_peek_ahead(link, 0, bytes, signature, place);
}

static rondo_link_result stage_release(rondo_link *link)
{
    stage_of(link)->released++;
    return RONDO_LINK_OK;
}

static rondo_link_result stage_arm(rondo_link *link, rondo_bell *bell, uint64_t seen)
{
    stage *s = stage_of(link);
    move(s);
    if (s->ended != RONDO_LINK_OK || s->counted > seen) return RONDO_LINK_OK;
    return s->inner->ops->arm(s->inner, bell, s->counted);
}

static void stage_seen(const rondo_link *link, uint64_t *signature, uint64_t *bytes)
{
    const rondo_link *inner = ((const stage *)link)->inner;
    inner->ops->seen(inner, signature, bytes);
}

static void stage_close(rondo_link *link)
{
    stage *s = stage_of(link);
    s->inner->ops->close(s->inner);
    rd_gpu_shared_close(&s->gpu);
    free(s->memory);
    free(s->queue);
    free(s);
}

bool rd_link_memory(rondo_link *link, void **base, size_t *bytes)
{
    rondo_view view;
    if (link->ops->close == stage_close) {
        *base = stage_of(link)->memory;
        *bytes = link->slots * stage_of(link)->stride;
        return true;
    }
    if (!(link->caps & RONDO_LINK_VIEW) || (link->caps & RONDO_LINK_DEVICE) || link->ops->view(link, &view) != RONDO_LINK_OK) return false;
    *base = view.heads;
    *bytes = view.count * view.head_stride;
    return true;
}

static unsigned char *make_memory(size_t stride, uint32_t slots)
{
    return aligned_alloc(PAGE, (slots * stride + PAGE - 1) / PAGE * PAGE);
}

rondo_link *rd_stage_wrap(rondo_link *inner, int side)
{
    stage *s = calloc(1, sizeof *s);
    if (!s) goto no_memory;
    s->queue = calloc(inner->slots, sizeof *s->queue);
    if (!s->queue) goto free_stage;
    s->stride = inner->slot_bytes;
    s->least = SIZE_MAX;
    s->memory = make_memory(s->stride, inner->slots);
    if (!s->memory) goto free_queue;
    s->inner = inner;
    s->side = side;
    s->ops = (rondo_link_ops){
        .size = sizeof(rondo_link_ops),
        .name = inner->ops->name,
        .reserve = stage_reserve,
        .commit = stage_commit,
        .peek = stage_peek,
        .release = stage_release,
        .peek_ahead = stage_peek_ahead,
        .poll = stage_poll,
        .arm = stage_arm,
        .seen = stage_seen,
        .close = stage_close,
    };
    s->link = *inner;
    s->link.ops = &s->ops;
    s->link.caps = RONDO_LINK_SLOTS | RONDO_LINK_STAGED;
    return &s->link;

free_queue:
    free(s->queue);
free_stage:
    free(s);
no_memory:
    rd_fail(RONDO_SYSTEM_ERROR, "no memory for slots of the link with rank %d", inner->peer);
    return NULL;
}

bool rd_stage_in_gpu(rondo_link *link, int device, char *how, size_t bytes)
{
    stage *s = stage_of(link);
    rd_gpu_shared gpu;
    rd_gpu_ticket ticket;
    size_t least;
    int fd;
    unsigned ways = rd_gpu_shared_ways(device, true);
    if (link->ops->close != stage_close || !s->inner->ops->reach_gpu) {
        snprintf(how, bytes, "%s moves host memory only", link->ops->name);
        return false;
    }
    if (rd_gpu_shared_make(device, link->slots * link->slot_bytes, ways, &gpu, &ticket, &fd) != RONDO_SUCCESS) {
        snprintf(how, bytes, "%s", rd_last_error());
        return false;
    }
    if (fd >= 0) close(fd);
    if (s->inner->ops->reach_gpu(s->inner, device, (void *)(uintptr_t)gpu.address, gpu.bytes, &least, how, bytes) !=
        RONDO_LINK_OK) {
        rd_gpu_shared_close(&gpu);
        return false;
    }
    s->gpu = gpu;
    s->least = least;
    link->caps |= RONDO_LINK_FAR;
    size_t stride = (least + 63) / 64 * 64;
    unsigned char *less = stride < s->stride ? make_memory(stride, link->slots) : NULL;
    if (!less) return true;
    free(s->memory);
    s->memory = less;
    s->stride = stride;
    return true;
}
