/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/slots.h"

#include "base/hot.h"
#include "base/process.h"
#include "base/status.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/random.h>

/* Bytes of a slice up to which it pays to ask for the lines of the next. */
#define SHORT_SLICE 4096

_Static_assert(sizeof(rondo_slot) == 64, "a slot's head is one line");
_Static_assert(sizeof(rd_slots_control) == 64, "the control line is one line");

/* ---- Making one ---- */

/* The same at both ends, and another for each of 15 ranks that send to one; none where a page begins. */
static size_t first_slot(const rondo_link_spec *spec)
{
    size_t place = ((size_t)(spec->me ^ spec->peer) - 1) % (RD_SLOTS_PLACES - 1);
    if (place >= RD_SLOTS_PLACES / 2) place++;
    return RD_SLOTS_FIRST + place * (4096 / RD_SLOTS_PLACES);
}

rondo_result rd_slots_agree(const rondo_link_spec *spec, const char *transport, uint32_t our_version,
                            uint32_t version, uint32_t slots, uint64_t slot_bytes)
{
    if (version != our_version)
        return rd_fail(RONDO_MISMATCH, "rank %d speaks version %u of %s links, this rank version %u; use one build of "
                       "the library", spec->peer, version, transport, our_version);
    if (slots != spec->slots || slot_bytes != spec->slot_bytes)
        return rd_fail(RONDO_MISMATCH, "rank %d offers a link of %u slots of %llu bytes, this rank expects %u of %zu; "
                       "set RONDO_SLICE to the same value on all ranks", spec->peer, slots,
                       (unsigned long long)slot_bytes, spec->slots, spec->slot_bytes);
    return RONDO_SUCCESS;
}

static size_t stride_of(const rondo_link_spec *spec)
{
    return RD_SLOTS_HEAD + spec->slot_bytes;
}

size_t rd_slots_memory(const rondo_link_spec *spec)
{
    return first_slot(spec) + spec->slots * stride_of(spec);
}

void rd_slots_prepare(void *memory, const rondo_link_spec *spec, const uint64_t token[2])
{
    rd_slots_control *control = memory;
    *control = (rd_slots_control){.token = {token[0], token[1]}, .slot_bytes = spec->slot_bytes, .slots = spec->slots};
    unsigned char *base = (unsigned char *)memory + first_slot(spec);
    for (uint32_t i = 0; i < spec->slots; i++)
        *(rondo_slot *)(base + i * stride_of(spec)) = (rondo_slot){0};
}

void rd_slots_init(rd_slots *end, void *memory, const rondo_link_spec *spec, int side, const rondo_link_ops *ops)
{
    *end = (rd_slots){
        .link = {.ops = ops,
                 .caps = RD_SLOTS_CAPS,
                 .slots = spec->slots,
                 .slot_bytes = spec->slot_bytes,
                 .peer = spec->peer},
        .base = (unsigned char *)memory + first_slot(spec),
        .stride = stride_of(spec),
        .mask = spec->slots - 1,
        .watched = side == RD_SENDER ? offsetof(rondo_slot, freed) : offsetof(rondo_slot, filled),
        .control = memory,
        .side = side,
        .ringer = RD_RINGER_NOBODY,
    };
}

void rd_slots_leave(rd_slots *end)
{
    atomic_store_explicit(&end->control->closed[end->side], 1, memory_order_release);
    rd_ringer_ring(&end->ringer);
}

rondo_result rd_slots_token(uint64_t token[2])
{
    ssize_t got;
    do got = getrandom(token, 16, 0);
    while (got < 0 && errno == EINTR);
    return got == 16 ? RONDO_SUCCESS : rd_fail_errno("cannot get 16 random bytes");
}

static struct {
    pthread_mutex_t mutex;
    uint64_t process[2];
    int generation;
} self = {.mutex = PTHREAD_MUTEX_INITIALIZER, .generation = -1};

rondo_result rd_slots_process(uint64_t process[2])
{
    rondo_result result = RONDO_SUCCESS;
    pthread_mutex_lock(&self.mutex);
    if (self.generation != rd_generation()) {
        result = rd_slots_token(self.process);
        if (result == RONDO_SUCCESS) self.generation = rd_generation();
    }
    memcpy(process, self.process, sizeof self.process);
    pthread_mutex_unlock(&self.mutex);
    return result;
}

/* ---- Using it ---- */

static inline rondo_slot *slot_of(const rd_slots *end, uint64_t slice)
{
    return (rondo_slot *)(end->base + (slice & end->mask) * end->stride);
}

/* In host memory the payload lies behind the head. */
static inline void *payload_of(rondo_slot *slot, size_t bytes)
{
    return bytes <= RONDO_SLOT_BRIEF ? slot->brief : (unsigned char *)slot + RD_SLOTS_HEAD;
}

static inline bool has_come(const rd_slots *end, uint64_t slice)
{
    const uint64_t *word = (const uint64_t *)((const unsigned char *)slot_of(end, slice) + end->watched);
    return __atomic_load_n(word, __ATOMIC_ACQUIRE) == slice + 1;
}

/* The slice this end waits for has not come. Its peer says that it closed after it stored its last head, so another
 * look is needed, once, after that was seen. */
static rondo_link_result not_come(const rd_slots *end, uint64_t slice)
{
    if (!atomic_load_explicit(&end->control->closed[!end->side], memory_order_acquire)) return RONDO_LINK_AGAIN;
    return has_come(end, slice) ? RONDO_LINK_OK : RONDO_LINK_CLOSED;
}

static rondo_link_result misused(const rd_slots *end, const char *what)
{
    rd_fail(RONDO_INTERNAL_ERROR, "link with rank %d over %s: %s", end->link.peer, end->link.ops->name, what);
    return RONDO_LINK_BROKEN;
}

/* All slots are under way. They come back in order: when one halfway has, so have those before it, and the next calls
 * need not fetch a line from the peer each to know. Where slices stream, that line is one which the peer is about to
 * store to, and the look would cost it; so it is tried once a lap, and again while it tells. */
static rondo_link_result take_back(rd_slots *end, uint64_t slice)
{
    uint64_t halfway = end->counted + end->mask / 2;
    if (end->by_halves || !(slice & end->mask)) {
        end->by_halves = has_come(end, halfway);
        if (end->by_halves) {
            end->counted = halfway + 1;
            return RONDO_LINK_OK;
        }
    }
    if (!has_come(end, end->counted)) {
        rondo_link_result result = not_come(end, end->counted);
        if (result != RONDO_LINK_OK) return result;
    }
    end->counted++;
    return RONDO_LINK_OK;
}

rondo_link_result rd_slots_reserve(rondo_link *link, size_t bytes, void **place)
{
    rd_slots *end = (rd_slots *)link;
    uint64_t slice = end->reserved;
    if (slice - end->counted > end->mask) {
        rondo_link_result result = take_back(end, slice);
        if (result != RONDO_LINK_OK) return result;
    }
    end->reserved = slice + 1;
    *place = payload_of(slot_of(end, slice), bytes);
    return RONDO_LINK_OK;
}

/* Where the next slice will lie, if it is one like this: its lines are the peer's, and by the time that they are written
 * they may be here. Not the head's, at which the peer looks, which would take it back. Where slots come back one by one,
 * slices stream, and the peer may be reading there. */
static inline void expect_another(const rd_slots *end, size_t bytes)
{
    const unsigned char *payload = payload_of(slot_of(end, end->finished), bytes);
    if (bytes <= RONDO_SLOT_BRIEF || bytes > SHORT_SLICE || !end->by_halves) return;
    if (bytes > end->stride - RD_SLOTS_HEAD) return; /* payloads lie elsewhere */
    for (size_t at = 0; at < bytes; at += sizeof(rondo_slot)) rd_will_write(payload + at);
}

rondo_link_result rd_slots_commit(rondo_link *link, size_t bytes, uint64_t signature)
{
    rd_slots *end = (rd_slots *)link;
    uint64_t slice = end->finished;
    if (slice == end->reserved) return misused(end, "commit without reserve");
    if (bytes > link->slot_bytes) return misused(end, "a slice larger than its slot was committed");
    rondo_slot *slot = slot_of(end, slice);
    slot->signature = signature;
    slot->bytes = bytes;
    __atomic_store_n(&slot->filled, slice + 1, __ATOMIC_RELEASE);
    end->finished = slice + 1;
    link->bytes_sent += bytes;
    expect_another(end, bytes);
    rd_ringer_ring(&end->ringer);
    return RONDO_LINK_OK;
}

rondo_link_result rd_slots_peek_ahead(rondo_link *link, uint32_t ahead, size_t bytes, uint64_t signature, void **place)
{
    rd_slots *end = (rd_slots *)link;
    uint64_t slice = end->finished + ahead;
    for (; end->counted <= slice; end->counted++) {
        if (has_come(end, end->counted)) continue;
        rondo_link_result result = not_come(end, end->counted);
        if (result != RONDO_LINK_OK) return result;
    }
    rondo_slot *slot = slot_of(end, slice);
    end->foreign = ahead;
    if (slot->signature != signature || slot->bytes != bytes) return RONDO_LINK_MISMATCH;
    end->foreign = 0;
    *place = payload_of(slot, bytes);
    return RONDO_LINK_OK;
}

rondo_link_result rd_slots_peek(rondo_link *link, size_t bytes, uint64_t signature, void **place)
{
    rd_slots *end = (rd_slots *)link;
    uint64_t slice = end->finished;
    rondo_slot *slot = slot_of(end, slice);
    if (slice == end->counted) {
        if (__atomic_load_n(&slot->filled, __ATOMIC_ACQUIRE) != slice + 1) {
            rondo_link_result result = not_come(end, slice);
            if (result != RONDO_LINK_OK) return result;
        }
        end->counted = slice + 1;
    }
    if (slot->signature != signature || slot->bytes != bytes) return RONDO_LINK_MISMATCH;
    *place = payload_of(slot, bytes);
    return RONDO_LINK_OK;
}

rondo_link_result rd_slots_release(rondo_link *link)
{
    rd_slots *end = (rd_slots *)link;
    uint64_t slice = end->finished;
    if (slice == end->counted) return misused(end, "release of a slice that has not come");
    __atomic_store_n(&slot_of(end, slice)->freed, slice + 1, __ATOMIC_RELEASE);
    end->finished = slice + 1;
    rd_ringer_ring(&end->ringer);
    return RONDO_LINK_OK;
}

rondo_link_result rd_slots_poll(rondo_link *link, uint64_t *count)
{
    rd_slots *end = (rd_slots *)link;
    uint64_t slice = end->counted;
    while (has_come(end, slice)) slice++;
    rondo_link_result result = RONDO_LINK_OK;
    /* A sender that has everything back misses nothing if its peer is gone. */
    if (slice == end->counted && (end->side == RD_RECEIVER || slice != end->finished) &&
        not_come(end, slice) == RONDO_LINK_CLOSED)
        result = RONDO_LINK_CLOSED;
    *count = end->counted = slice;
    return result;
}

rondo_link_result rd_slots_arm(rondo_link *link, rondo_bell *bell, uint64_t seen)
{
    (void)bell; /* the peer rings it with every head that it stores */
    uint64_t count;
    return rd_slots_poll(link, &count) == RONDO_LINK_OK && count <= seen ? RONDO_LINK_AGAIN : RONDO_LINK_OK;
}

rondo_link_result rd_slots_view(rondo_link *link, rondo_view *view)
{
    const rd_slots *end = (const rd_slots *)link;
    *view = (rondo_view){.heads = end->base, .payloads = end->base + RD_SLOTS_HEAD, .head_stride = end->stride,
                         .payload_stride = end->stride, .count = link->slots, .next = end->finished};
    return RONDO_LINK_OK;
}

rondo_link_result rd_slots_moved(rondo_link *link, uint64_t slices, uint64_t bytes)
{
    rd_slots *end = (rd_slots *)link;
    if (end->side == RD_SENDER && end->reserved != end->finished) return misused(end, "moved between reserve and commit");
    end->finished += slices;
    end->reserved = end->side == RD_SENDER ? end->finished : end->reserved;
    link->bytes_sent += bytes;
    /* What he sent after it, or took, tells of the slices before. */
    uint64_t least = end->side == RD_SENDER ? end->finished - link->slots : end->finished;
    if (end->side == RD_SENDER && end->finished < link->slots) least = 0;
    if (end->counted < least) end->counted = least;
    rd_ringer_ring(&end->ringer);
    return RONDO_LINK_OK;
}

/* One stores `withdrawn` and looks at `inside`, the other stores `inside` and looks at `withdrawn`: with a fence between
 * store and look, at least one of them sees the other. */
rondo_link_result rd_slots_withdraw(rondo_link *link)
{
    rd_slots_control *control = ((rd_slots *)link)->control;
    atomic_store_explicit(&control->withdrawn, 1, memory_order_relaxed);
    rd_fence();
    return atomic_load_explicit(&control->inside, memory_order_acquire) ? RONDO_LINK_AGAIN : RONDO_LINK_OK;
}

rondo_link_result rd_slots_enter(rondo_link *link)
{
    rd_slots_control *control = ((rd_slots *)link)->control;
    atomic_store_explicit(&control->inside, 1, memory_order_relaxed);
    rd_fence();
    if (!atomic_load_explicit(&control->withdrawn, memory_order_relaxed)) return RONDO_LINK_OK;
    rd_slots_exit(link);
    return RONDO_LINK_CLOSED;
}

void rd_slots_exit(rondo_link *link)
{
    atomic_store_explicit(&((rd_slots *)link)->control->inside, 0, memory_order_release);
}

void rd_slots_seen(const rondo_link *link, uint64_t *signature, uint64_t *bytes)
{
    const rd_slots *end = (const rd_slots *)link;
    const rondo_slot *slot = slot_of(end, end->finished + end->foreign);
    *signature = slot->signature;
    *bytes = slot->bytes;
}
