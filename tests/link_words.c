/* SPDX-License-Identifier: Apache-2.0 */
#include "test.h"

#include "base/status.h"
#include "link_kit.h"

enum { SLOTS = 4, BYTES = 1024, TRIES = 100000 };

static bool is_slots(const rondo_link *link)
{
    return link->caps & RONDO_LINK_SLOTS;
}

/* What it is capable of goes together, and its operations are there. */
void link_test_capabilities(void **state)
{
    struct link_pair pair;
    link_pair_open(&pair, *state, SLOTS, BYTES);
    for (int side = 0; side < 2; side++) {
        const rondo_link *link = pair.ends[side];
        if (rd_link_check(link) != RONDO_SUCCESS) fail_msg("%s", rd_last_error());
        assert_int_equal(link->slots, SLOTS);
        assert_int_equal(link->slot_bytes, BYTES);
        assert_int_equal(link->peer, !side);
    }
    link_pair_close(&pair);
}

/* Without a receiver that takes any, `slots` slices go and the next one does not. */
void link_test_no_more(void **state)
{
    const struct link_kind *kind = *state;
    struct link_pair pair;
    static unsigned char memory[BYTES];
    void *place;
    if (kind->fault) return; /* it says so earlier */
    link_pair_open(&pair, kind, SLOTS, BYTES);
    rondo_link *sender = pair.ends[RD_SENDER];
    for (uint64_t n = 0; n <= SLOTS; n++) {
        rondo_link_result result = is_slots(sender) ? sender->ops->reserve(sender, BYTES, &place)
                                                    : sender->ops->send(sender, memory, BYTES, link_signature(n));
        assert_int_equal(result, n < SLOTS ? RONDO_LINK_OK : RONDO_LINK_AGAIN);
    }
    link_pair_close(&pair);
}

/* Until it is there, however often it is told to try again. */
static rondo_link_result ahead(rondo_link *link, uint32_t k, uint64_t n, uint64_t signature, void **place)
{
    rondo_link_result result = RONDO_LINK_AGAIN;
    for (int64_t end = rd_now() + LINK_DEADLINE_NS; result == RONDO_LINK_AGAIN && rd_now() < end;)
        result = link->ops->peek_ahead(link, k, link_size(n, BYTES), signature, place);
    return result;
}

/* Several are read before the first is released, and stay where they are; one that is another is told of as itself. */
void link_test_peek_ahead(void **state)
{
    struct link_pair pair;
    static unsigned char memory[BYTES];
    void *places[SLOTS], *again;
    link_pair_open(&pair, *state, SLOTS, BYTES);
    rondo_link *sender = pair.ends[RD_SENDER], *receiver = pair.ends[RD_RECEIVER];
    if (!is_slots(receiver) || !receiver->ops->peek_ahead) return link_pair_close(&pair);
    bool staged = receiver->caps & RONDO_LINK_STAGED;
    for (uint64_t first = 0; first < 3 * (SLOTS - 1); first += SLOTS - 1) {
        for (uint32_t k = 0; staged && k < SLOTS - 1; k++) /* asks first */
            receiver->ops->peek_ahead(receiver, k, link_size(first + k, BYTES), link_signature(first + k), &again);
        for (uint64_t n = first; n < first + SLOTS - 1; n++) {
            link_fill(memory, n, link_size(n, BYTES));
            assert_int_equal(link_put(sender, n, memory, link_size(n, BYTES)), RONDO_LINK_OK);
        }
        for (uint32_t k = 0; k < SLOTS - 1; k++) {
            uint64_t n = first + k, signature, bytes;
            assert_int_equal(ahead(receiver, k, n, link_signature(n), &places[k]), RONDO_LINK_OK);
            assert_true(link_filled_at(receiver, places[k], n, link_size(n, BYTES)));
            if (staged) continue;
            assert_int_equal(ahead(receiver, k, n, link_signature(n) + 1, &again), RONDO_LINK_MISMATCH);
            receiver->ops->seen(receiver, &signature, &bytes);
            assert_int_equal(signature, link_signature(n));
            assert_int_equal(bytes, link_size(n, BYTES));
        }
        for (uint32_t k = 0; k < SLOTS - 1; k++) {
            assert_int_equal(ahead(receiver, k, first + k, link_signature(first + k), &again), RONDO_LINK_OK);
            assert_ptr_equal(again, places[k]);
        }
        for (uint32_t k = 0; k < SLOTS - 1; k++) {
            rondo_link_result result = RONDO_LINK_AGAIN;
            for (int tries = 0; result == RONDO_LINK_AGAIN && tries < TRIES; tries++)
                result = receiver->ops->release(receiver);
            assert_int_equal(result, RONDO_LINK_OK);
        }
    }
    link_pair_close(&pair);
}

/* What was posted and is withdrawn stays as it is, whatever the peer sends. */
void link_test_withdraw(void **state)
{
    struct link_pair pair;
    static unsigned char memory[BYTES], landing[BYTES];
    link_pair_open(&pair, *state, SLOTS, BYTES);
    rondo_link *sender = pair.ends[RD_SENDER], *receiver = pair.ends[RD_RECEIVER];
    if (is_slots(receiver)) return link_pair_close(&pair);
    memset(landing, 0xA5, sizeof landing);
    rondo_link_result result = RONDO_LINK_AGAIN;
    for (int tries = 0; result == RONDO_LINK_AGAIN && tries < TRIES; tries++)
        result = receiver->ops->recv(receiver, landing, BYTES, link_signature(0));
    assert_int_equal(result, RONDO_LINK_OK);
    if (receiver->ops->withdraw)
        for (int64_t end = rd_now() + LINK_DEADLINE_NS; receiver->ops->withdraw(receiver) != RONDO_LINK_OK;)
            assert_true(rd_now() < end);
    for (uint64_t n = 0; n < SLOTS; n++) { /* the first fit, and go for all that this end knows */
        link_fill(memory, 0, BYTES);
        if (sender->ops->send(sender, memory, BYTES, link_signature(n)) > RONDO_LINK_AGAIN) break;
        uint64_t count;
        sender->ops->poll(sender, &count);
    }
    for (size_t i = 0; i < BYTES; i++) assert_int_equal(landing[i], 0xA5);
    link_pair_close(&pair);
}

/* The peer reaches memory that it was told of, until that is withdrawn; not while he is inside. */
void link_test_direct(void **state)
{
    struct link_pair pair;
    unsigned char descriptor[128];
    void *memory, *there;
    link_pair_open(&pair, *state, SLOTS, BYTES);
    rondo_link *owner = pair.ends[RD_SENDER], *user = pair.ends[RD_RECEIVER];
    if (!(owner->caps & RONDO_LINK_DIRECT)) return link_pair_close(&pair);
    assert_int_equal(rondo_mem_alloc(&memory, 3 * BYTES, NULL), RONDO_SUCCESS);
    link_fill(memory, 5, BYTES);
    /* shm hands memory over by a unix socket, which these pairs have not: then slots must do. */
    const struct link_kind *kind = *state;
    bool reached = !kind->transport->sockets;
    assert_int_equal(owner->ops->register_memory(owner, memory, BYTES, descriptor),
                     reached ? RONDO_LINK_OK : RONDO_LINK_AGAIN);
    if (!reached) {
        assert_int_equal(rondo_mem_free(memory, NULL), RONDO_SUCCESS);
        return link_pair_close(&pair);
    }
    assert_int_equal(user->ops->import_memory(user, descriptor, BYTES + 1, &there), RONDO_LINK_BROKEN);
    assert_int_equal(user->ops->import_memory(user, descriptor, BYTES, &there), RONDO_LINK_OK);
    assert_int_equal(user->ops->enter(user), RONDO_LINK_OK);
    assert_true(link_filled(there, 5, BYTES));
    link_fill(there, 6, BYTES);
    assert_int_equal(owner->ops->withdraw(owner), RONDO_LINK_AGAIN);
    user->ops->leave(user);
    assert_true(link_filled(memory, 6, BYTES));
    assert_int_equal(owner->ops->withdraw(owner), RONDO_LINK_OK);
    assert_int_equal(user->ops->enter(user), RONDO_LINK_CLOSED);
    assert_int_equal(rondo_mem_free(memory, NULL), RONDO_SUCCESS);
    link_pair_close(&pair);
}
