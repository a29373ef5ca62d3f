/* SPDX-License-Identifier: Apache-2.0 */
#include "link_kit.h"

#include "base/status.h"
#include "test.h"

/* ---- What the slices hold ---- */

static uint64_t mix(uint64_t x)
{
    x = (x + 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 29)) * 0x94d049bb133111eb;
    return x ^ (x >> 32);
}

/* From 0 to most, both often; the rest spread over all magnitudes. */
size_t link_size(uint64_t n, size_t most)
{
    uint64_t x = mix(n);
    if (x % 16 == 0) return 0;
    if (x % 16 == 1) return most;
    return (size_t)((x >> 8) % (most + 1)) >> ((x >> 4) % 8);
}

uint64_t link_signature(uint64_t n) { return mix(n ^ 0xabcdef); }

void link_fill(unsigned char *to, uint64_t n, size_t bytes)
{
    unsigned char first = (unsigned char)mix(n + 99);
    for (size_t i = 0; i < bytes; i++) to[i] = (unsigned char)(first + 7 * i + (i >> 8));
}

bool link_filled(const unsigned char *at, uint64_t n, size_t bytes)
{
    unsigned char first = (unsigned char)mix(n + 99), wrong = 0;
    for (size_t i = 0; i < bytes; i++) wrong |= at[i] ^ (unsigned char)(first + 7 * i + (i >> 8));
    return !wrong;
}

void (*link_copy_device)(void *to, const void *from, size_t bytes);

void link_copy(const rondo_link *link, void *to, const void *from, size_t bytes)
{
    if ((link->caps & (RONDO_LINK_DEVICE | RONDO_LINK_FAR)) && bytes > RONDO_SLOT_BRIEF) link_copy_device(to, from, bytes);
    else if (bytes) memcpy(to, from, bytes);
}

void link_fill_at(const rondo_link *link, void *place, uint64_t n, size_t bytes)
{
    unsigned char *here = malloc(bytes + 1);
    link_fill(here, n, bytes);
    link_copy(link, place, here, bytes);
    free(here);
}

bool link_filled_at(const rondo_link *link, const void *place, uint64_t n, size_t bytes)
{
    unsigned char *here = malloc(bytes + 1);
    link_copy(link, here, place, bytes);
    bool filled = link_filled(here, n, bytes);
    free(here);
    return filled;
}

/* ---- A side ---- */

uint64_t link_count(rondo_link *link)
{
    uint64_t count = 0;
    link->ops->poll(link, &count);
    return count;
}

void link_flow_open(struct link_flow *flow, struct link_pair *pair, int side, uint64_t total)
{
    rondo_link *link = pair->ends[side];
    *flow = (struct link_flow){.link = link, .bell = &pair->bells[side], .side = side, .total = total,
                               .random = (uint64_t)side + 1};
    flow->pool = malloc(link->slots * link->slot_bytes);
}

void link_flow_close(struct link_flow *flow) { free(flow->pool); }

bool link_flow_over(const struct link_flow *flow)
{
    return *flow->trouble || (flow->moved == flow->total && flow->counted >= flow->total);
}

static unsigned char **place_of(struct link_flow *flow, uint64_t n) { return &flow->places[n % 64]; }

static void trouble(struct link_flow *flow, const char *what, rondo_link_result result)
{
    if (!*flow->trouble)
        snprintf(flow->trouble, sizeof flow->trouble, "side %d: %s (answer %d; begun %llu moved %llu counted %llu): %s",
                 flow->side, what, result, (unsigned long long)flow->begun, (unsigned long long)flow->moved,
                 (unsigned long long)flow->counted, rd_last_error());
}

/* Polls, and checks what the contract states of the counts. */
static bool count(struct link_flow *flow)
{
    uint64_t now = flow->counted;
    rondo_link_result result = flow->link->ops->poll(flow->link, &now);
    bool more = now > flow->counted;
    if (now < flow->counted) trouble(flow, "poll counts backwards", result);
    flow->counted = now;
    if (result != RONDO_LINK_OK && now < flow->total) trouble(flow, "poll", result);
    if (flow->side == RD_SENDER &&
        (now > flow->moved || flow->moved > flow->begun || flow->begun > now + flow->link->slots))
        trouble(flow, "not done <= committed <= reserved <= done + slots", result);
    if (flow->side == RD_RECEIVER && (flow->link->caps & RONDO_LINK_MEMORY) && now > flow->begun)
        trouble(flow, "more has arrived than was posted", result);
    return more;
}

static bool send_slots(struct link_flow *flow)
{
    const rondo_link_ops *ops = flow->link->ops;
    bool progress = false;
    uint64_t ahead = 1 + mix(flow->random++) % flow->link->slots; /* reserve several before the first is committed */
    while (flow->begun < flow->total && flow->begun - flow->moved < ahead) {
        void *place;
        size_t bytes = link_size(flow->begun, flow->link->slot_bytes);
        rondo_link_result result = ops->reserve(flow->link, bytes, &place);
        if (result == RONDO_LINK_AGAIN) break;
        if (result != RONDO_LINK_OK) return trouble(flow, "reserve", result), false;
        if ((uintptr_t)place % (bytes > RONDO_SLOT_BRIEF ? 64 : 32)) trouble(flow, "a slot is not aligned", result);
        *place_of(flow, flow->begun++) = place;
    }
    while (flow->moved < flow->begun) {
        size_t bytes = link_size(flow->moved, flow->link->slot_bytes);
        link_fill_at(flow->link, *place_of(flow, flow->moved), flow->moved, bytes);
        rondo_link_result result = ops->commit(flow->link, bytes, link_signature(flow->moved));
        if (result != RONDO_LINK_OK) return trouble(flow, "commit", result), false;
        flow->moved++;
        flow->bytes += bytes;
        progress = true;
    }
    return progress;
}

static bool send_memory(struct link_flow *flow)
{
    rondo_link *link = flow->link;
    bool progress = false;
    while (flow->moved < flow->total && flow->moved - flow->counted < link->slots) {
        uint64_t n = flow->moved;
        unsigned char *from = flow->pool + (n % link->slots) * link->slot_bytes;
        size_t bytes = link_size(n, link->slot_bytes);
        link_fill(from, n, bytes);
        rondo_link_result result = link->ops->send(link, from, bytes, link_signature(n));
        if (result == RONDO_LINK_AGAIN) break;
        if (result != RONDO_LINK_OK) return trouble(flow, "send", result), false;
        flow->begun = ++flow->moved;
        flow->bytes += bytes;
        progress = true;
    }
    return progress;
}

static void check(struct link_flow *flow, const unsigned char *at)
{
    size_t bytes = link_size(flow->moved, flow->link->slot_bytes);
    if (!link_filled_at(flow->link, at, flow->moved, bytes)) trouble(flow, "a slice holds other bytes", RONDO_LINK_OK);
    flow->bytes += bytes;
    flow->moved++;
}

static bool receive_slots(struct link_flow *flow)
{
    const rondo_link_ops *ops = flow->link->ops;
    bool progress = false;
    while (flow->moved < flow->total) {
        void *place;
        size_t bytes = link_size(flow->moved, flow->link->slot_bytes);
        rondo_link_result result = ops->peek(flow->link, bytes, link_signature(flow->moved), &place);
        if (result == RONDO_LINK_AGAIN) break;
        if (result != RONDO_LINK_OK) return trouble(flow, "peek", result), false;
        check(flow, place);
        result = ops->release(flow->link);
        if (result != RONDO_LINK_OK) return trouble(flow, "release", result), false;
        progress = true;
    }
    return progress;
}

static bool receive_memory(struct link_flow *flow)
{
    rondo_link *link = flow->link;
    bool progress = false;
    while (flow->begun < flow->total && flow->begun - flow->moved < link->slots) {
        uint64_t n = flow->begun;
        unsigned char *to = flow->pool + (n % link->slots) * link->slot_bytes;
        rondo_link_result result = link->ops->recv(link, to, link_size(n, link->slot_bytes), link_signature(n));
        if (result == RONDO_LINK_AGAIN) break;
        if (result != RONDO_LINK_OK) return trouble(flow, "recv", result), false;
        flow->begun++;
        progress = true;
    }
    count(flow);
    while (flow->moved < flow->counted && !*flow->trouble) {
        check(flow, flow->pool + (flow->moved % link->slots) * link->slot_bytes);
        progress = true;
    }
    return progress;
}

bool link_flow_step(struct link_flow *flow)
{
    bool slots = flow->link->caps & RONDO_LINK_SLOTS, progress;
    if (flow->side == RD_SENDER) progress = slots ? send_slots(flow) : send_memory(flow);
    else progress = slots ? receive_slots(flow) : receive_memory(flow);
    return (!*flow->trouble && count(flow)) || progress;
}

int64_t link_nap(rondo_link *link, rondo_bell *bell, uint64_t seen, int64_t timeout_ns)
{
    int64_t slept = 0;
    rd_bell_arm(bell);
    if (link->ops->arm(link, bell, seen) == RONDO_LINK_AGAIN) {
        slept = -rd_now();
        rd_bell_sleep(bell, timeout_ns);
        slept += rd_now();
    } else {
        rd_bell_disarm(bell);
    }
    return slept;
}

void *link_flow_run(void *argument)
{
    struct link_flow *flow = argument;
    uint64_t patience = 0;
    while (!link_flow_over(flow)) {
        if (link_flow_step(flow)) {
            patience = 1U << mix(flow->random++) % 8; /* so that it arms at any time, early or late */
        } else if (patience) {
            patience--;
        } else {
            int64_t slept = link_nap(flow->link, flow->bell, flow->counted, LINK_DEADLINE_NS);
            if (slept >= LINK_DEADLINE_NS) trouble(flow, "a wake-up was lost", RONDO_LINK_OK);
            if (slept) flow->sleeps++;
        }
    }
    if (flow->side == RD_SENDER && flow->link->bytes_sent != flow->bytes)
        trouble(flow, "bytes_sent is not the sum of the slices", RONDO_LINK_OK);
    return NULL;
}

/* ---- One slice ---- */

rondo_link_result link_put(rondo_link *link, uint64_t n, const unsigned char *from, size_t bytes)
{
    rondo_link_result result = RONDO_LINK_AGAIN;
    int64_t deadline = rd_now() + LINK_DEADLINE_NS;
    uint64_t counted;
    while (result == RONDO_LINK_AGAIN && rd_now() < deadline) {
        void *place;
        if (link->caps & RONDO_LINK_MEMORY) {
            result = link->ops->send(link, from, bytes, link_signature(n));
        } else {
            result = link->ops->reserve(link, bytes, &place);
            if (result == RONDO_LINK_OK) {
                link_copy(link, place, from, bytes);
                result = link->ops->commit(link, bytes, link_signature(n));
            }
        }
        rondo_link_result polled = link->ops->poll(link, &counted);
        if (polled != RONDO_LINK_OK) return polled;
    }
    return result;
}

rondo_link_result link_get(rondo_link *link, uint64_t n, unsigned char *to, size_t bytes, uint64_t signature)
{
    rondo_link_result result = RONDO_LINK_AGAIN;
    int64_t deadline = rd_now() + LINK_DEADLINE_NS;
    uint64_t counted = 0;
    while (result == RONDO_LINK_AGAIN && rd_now() < deadline) {
        void *place;
        if (link->caps & RONDO_LINK_MEMORY) {
            result = link->ops->recv(link, to, bytes, signature);
            continue;
        }
        result = link->ops->peek(link, bytes, signature, &place);
        if (result == RONDO_LINK_AGAIN) link->ops->poll(link, &counted);
        if (result != RONDO_LINK_OK) continue;
        link_copy(link, to, place, bytes);
        return link->ops->release(link);
    }
    while (result == RONDO_LINK_OK && counted <= n && rd_now() < deadline) result = link->ops->poll(link, &counted);
    if (!(link->caps & RONDO_LINK_MEMORY)) return result;
    return counted > n ? RONDO_LINK_OK : result == RONDO_LINK_OK ? RONDO_LINK_AGAIN : result;
}
