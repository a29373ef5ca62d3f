/* SPDX-License-Identifier: Apache-2.0
 *
 * fault.c - a wrapper that makes any link worse, within its contract.
 *
 * What it does to a link a link may do: a slice that is seen later, a call that says try again, a peer that is slow, a
 * failure. So whoever uses links must bear it. One promise is easily broken here: a rank that goes to sleep is woken
 * when there is something for it, and nobody rings for what only the wrapper holds back. Therefore arm refuses the
 * sleep while something is held back, and once after every AGAIN that had no cause.
 */
#include "base/clock.h"
#include "base/status.h"
#include "transport/transport.h"

#include <stdlib.h>
#include <sys/socket.h>

struct fault {
    rondo_link link;
    rondo_link_ops ops;
    rondo_link *inner;
    struct rd_fault options;
    uint64_t random;
    uint64_t calls;
    bool failed;
    bool lied;                  /* said AGAIN without cause since the last arm */
    int64_t ready_at;           /* throttle: when the next slice may go */
    uint64_t taken;             /* reserved, sent, released or posted */
    uint64_t visible;           /* what poll reports */
    uint64_t latest;            /* what the inner link reports */
    rondo_link_result ended;    /* likewise */
    uint64_t looks;
    uint64_t history[RD_FAULT_DELAY + 1]; /* latest, look by look */
};

static struct fault *fault_of(rondo_link *link) { return (struct fault *)link; }

/* ---- Faults ---- */

static uint64_t roll(struct fault *f)
{
    uint64_t x = f->random += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

static bool lies(struct fault *f)
{
    if ((double)(roll(f) >> 11) * 0x1p-53 >= f->options.again) return false;
    return f->lied = true;
}

/* Counts a call; true when it and all later ones fail. */
static bool fails(struct fault *f)
{
    if (f->failed) return true;
    if (!f->options.fail_at || ++f->calls < f->options.fail_at) return false;
    f->failed = true;
    if (f->options.fail_with == RONDO_LINK_BROKEN)
        rd_fail(RONDO_REMOTE_ERROR, "the link with rank %d failed at call %llu, as the fault wrapper was told to",
                f->link.peer, (unsigned long long)f->calls);
    return true;
}

static bool held_by_throttle(struct fault *f)
{
    return f->options.bytes_per_second && rd_now() < f->ready_at && (f->lied = true);
}

static void pay(struct fault *f, size_t bytes)
{
    if (!f->options.bytes_per_second) return;
    int64_t now = rd_now();
    if (f->ready_at < now) f->ready_at = now;
    f->ready_at += (int64_t)((double)bytes * 1e9 / (double)f->options.bytes_per_second);
}

/* Asks the inner link, and moves on what may be seen to what it said `delay` looks ago. */
static void look(struct fault *f)
{
    const uint32_t size = f->options.delay + 1;
    if (f->ended == RONDO_LINK_OK) f->ended = f->inner->ops->poll(f->inner, &f->latest);
    f->history[f->looks % size] = f->latest;
    f->looks++;
    if (f->looks >= size) f->visible = f->history[f->looks % size];
}

static bool hides(const struct fault *f) { return f->visible < f->latest; }

/* ---- Operations ---- */

/* May the sender have another slice under way, going by what it was shown? */
static rondo_link_result may_take(struct fault *f)
{
    if (fails(f)) return f->options.fail_with;
    if (lies(f)) return RONDO_LINK_AGAIN;
    if (!f->options.delay || f->taken - f->visible < f->link.slots) return RONDO_LINK_OK;
    look(f);
    return f->taken - f->visible < f->link.slots ? RONDO_LINK_OK : hides(f) ? RONDO_LINK_AGAIN
           : f->ended != RONDO_LINK_OK ? f->ended : RONDO_LINK_AGAIN;
}

static rondo_link_result fault_reserve(rondo_link *link, size_t bytes, void **place)
{
    struct fault *f = fault_of(link);
    rondo_link_result result = may_take(f);
    if (result == RONDO_LINK_OK && held_by_throttle(f)) result = RONDO_LINK_AGAIN;
    if (result == RONDO_LINK_OK) result = f->inner->ops->reserve(f->inner, bytes, place);
    if (result == RONDO_LINK_OK) f->taken++;
    return result;
}

static rondo_link_result fault_commit(rondo_link *link, size_t bytes, uint64_t signature)
{
    struct fault *f = fault_of(link);
    if (fails(f)) return f->options.fail_with;
    rondo_link_result result = f->inner->ops->commit(f->inner, bytes, signature);
    link->bytes_sent = f->inner->bytes_sent;
    if (result == RONDO_LINK_OK) pay(f, bytes);
    return result;
}

static rondo_link_result fault_send(rondo_link *link, const void *from, size_t bytes, uint64_t signature)
{
    struct fault *f = fault_of(link);
    rondo_link_result result = may_take(f);
    if (result == RONDO_LINK_OK && held_by_throttle(f)) result = RONDO_LINK_AGAIN;
    if (result == RONDO_LINK_OK) result = f->inner->ops->send(f->inner, from, bytes, signature);
    link->bytes_sent = f->inner->bytes_sent;
    if (result != RONDO_LINK_OK) return result;
    f->taken++;
    pay(f, bytes);
    return RONDO_LINK_OK;
}

static rondo_link_result fault_recv(rondo_link *link, void *to, size_t bytes, uint64_t signature)
{
    struct fault *f = fault_of(link);
    rondo_link_result result = may_take(f);
    if (result == RONDO_LINK_OK) result = f->inner->ops->recv(f->inner, to, bytes, signature);
    if (result == RONDO_LINK_OK) f->taken++;
    return result;
}

/* OK: the slice that is so far ahead may be seen, if it is there. */
static rondo_link_result may_show(struct fault *f, uint32_t ahead)
{
    uint64_t slice = f->taken + ahead;
    if (fails(f)) return f->options.fail_with;
    if (lies(f)) return RONDO_LINK_AGAIN;
    if (!f->options.delay || slice < f->visible) return RONDO_LINK_OK;
    look(f);
    return slice >= f->visible && hides(f) ? RONDO_LINK_AGAIN : RONDO_LINK_OK;
}

static rondo_link_result fault_peek(rondo_link *link, size_t bytes, uint64_t signature, void **place)
{
    struct fault *f = fault_of(link);
    rondo_link_result result = may_show(f, 0);
    return result == RONDO_LINK_OK ? f->inner->ops->peek(f->inner, bytes, signature, place) : result;
}

/* A link that must be told what is expected is told, also when it is said not to be there. */
static rondo_link_result fault_peek_ahead(rondo_link *link, uint32_t ahead, size_t bytes, uint64_t signature, void **place)
{
    struct fault *f = fault_of(link);
    rondo_link_result result = may_show(f, ahead), inner = f->inner->ops->peek_ahead(f->inner, ahead, bytes, signature, place);
    return result == RONDO_LINK_OK ? inner : result;
}

static rondo_link_result fault_release(rondo_link *link)
{
    struct fault *f = fault_of(link);
    if (fails(f)) return f->options.fail_with;
    rondo_link_result result = f->inner->ops->release(f->inner);
    if (result == RONDO_LINK_OK) f->taken++;
    return result;
}

static rondo_link_result fault_poll(rondo_link *link, uint64_t *count)
{
    struct fault *f = fault_of(link);
    bool failing = fails(f);
    if (!failing) look(f);
    *count = f->visible;
    return failing ? f->options.fail_with : hides(f) ? RONDO_LINK_OK : f->ended;
}

static rondo_link_result fault_arm(rondo_link *link, rondo_bell *bell, uint64_t seen)
{
    struct fault *f = fault_of(link);
    bool lied = f->lied;
    f->lied = false;
    if (f->failed || lied || hides(f) || f->visible > seen || f->ended != RONDO_LINK_OK) return RONDO_LINK_OK;
    return f->inner->ops->arm(f->inner, bell, seen);
}

static rondo_link_result fault_register(rondo_link *link, void *ptr, size_t bytes, unsigned char descriptor[128])
{
    rondo_link *inner = fault_of(link)->inner;
    return inner->ops->register_memory(inner, ptr, bytes, descriptor);
}

static rondo_link_result fault_import(rondo_link *link, const unsigned char descriptor[128], size_t bytes,
                                      void **address)
{
    rondo_link *inner = fault_of(link)->inner;
    return inner->ops->import_memory(inner, descriptor, bytes, address);
}

static void fault_foresee(rondo_link *link, const void *ptr, size_t bytes)
{
    rondo_link *inner = fault_of(link)->inner;
    inner->ops->foresee(inner, ptr, bytes);
}

static rondo_link_result fault_withdraw(rondo_link *link)
{
    rondo_link *inner = fault_of(link)->inner;
    return inner->ops->withdraw(inner);
}

static rondo_link_result fault_enter(rondo_link *link)
{
    rondo_link *inner = fault_of(link)->inner;
    return inner->ops->enter(inner);
}

static void fault_leave(rondo_link *link)
{
    rondo_link *inner = fault_of(link)->inner;
    inner->ops->leave(inner);
}

static void fault_seen(const rondo_link *link, uint64_t *signature, uint64_t *bytes)
{
    const rondo_link *inner = ((const struct fault *)link)->inner;
    inner->ops->seen(inner, signature, bytes);
}

static void fault_close(rondo_link *link)
{
    struct fault *f = fault_of(link);
    f->inner->ops->close(f->inner);
    free(f);
}

rondo_link *rd_fault_wrap(rondo_link *inner, const struct rd_fault *options)
{
    if (options->delay > RD_FAULT_DELAY || !(options->again >= 0 && options->again < 1)) {
        rd_fail(RONDO_INVALID_ARGUMENT, "a fault with delay %u and again %g: delay is 0 to %d, again from 0 to below 1",
                options->delay, options->again, RD_FAULT_DELAY);
        return NULL;
    }
    struct fault *f = calloc(1, sizeof *f);
    if (!f) {
        rd_fail(RONDO_SYSTEM_ERROR, "no memory to wrap the link with rank %d", inner->peer);
        return NULL;
    }
    f->inner = inner;
    f->options = *options;
    f->random = options->seed;
    f->ops = (rondo_link_ops){
        .size = sizeof(rondo_link_ops), .name = inner->ops->name, .reserve = fault_reserve, .commit = fault_commit,
        .send = fault_send, .peek = fault_peek, .release = fault_release, .recv = fault_recv, .poll = fault_poll,
        .arm = fault_arm, .seen = fault_seen, .close = fault_close,
        .register_memory = inner->ops->register_memory ? fault_register : NULL,
        .import_memory = inner->ops->import_memory ? fault_import : NULL,
        .foresee = inner->ops->foresee ? fault_foresee : NULL,
        .peek_ahead = inner->ops->peek_ahead ? fault_peek_ahead : NULL,
        .withdraw = inner->ops->withdraw ? fault_withdraw : NULL,
        .enter = inner->ops->enter ? fault_enter : NULL,
        .leave = inner->ops->leave ? fault_leave : NULL,
    };
    f->link = *inner;
    f->link.ops = &f->ops;
    /* Nothing can be hidden from one who looks at the slots themselves. */
    f->link.caps &= ~(uint32_t)(RONDO_LINK_VIEW | RONDO_LINK_PACKETS);
    return &f->link;
}

rondo_result rd_fault_shorten(const rondo_link_spec *spec, int bytes)
{
    for (int i = 0; i < spec->socket_count; i++)
        if (setsockopt(spec->sockets[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes))
            return rd_fail_errno("cannot set the send buffer of a socket to %d bytes", bytes);
    return RONDO_SUCCESS;
}
