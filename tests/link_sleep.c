/* SPDX-License-Identifier: Apache-2.0 */
#include "link_kit.h"

#include "test.h"

#include <pthread.h>
#include <unistd.h>

enum { SLOTS = 4, SLOT_BYTES = 4096 };

static void open_pair(void **state, struct link_pair *pair)
{
    link_pair_open(pair, *state, SLOTS, SLOT_BYTES);
}

static bool has_slots(const struct link_pair *pair)
{
    return pair->ends[RD_SENDER]->caps & RONDO_LINK_SLOTS;
}

struct later {
    struct link_pair *pair;
    int side; /* that does it */
    bool closes;
    uint64_t slices;
    unsigned char memory[SLOT_BYTES];
    rondo_link_result result;
    _Atomic bool woke, over; /* the sleeper has what it waited for; all is done */
};

static void *do_later(void *argument)
{
    struct later *later = argument;
    rondo_link *link = later->pair->ends[later->side];
    const rondo_bell *bell = &later->pair->bells[!later->side];
    for (int armed = 0; armed < 10 && !later->woke; armed = *bell->word ? armed + 1 : 0) usleep(500);
    if (later->closes) link_pair_close_end(later->pair, later->side);
    for (uint64_t n = 0; n < later->slices && later->result == RONDO_LINK_OK; n++) {
        if (later->side == RD_SENDER) {
            link_fill(later->memory, n, SLOT_BYTES);
            later->result = link_put(link, n, later->memory, SLOT_BYTES);
            continue;
        }
        later->result = link_get(link, n, later->memory, SLOT_BYTES, link_signature(n));
        if (later->result == RONDO_LINK_OK && !link_filled(later->memory, n, SLOT_BYTES))
            later->result = RONDO_LINK_MISMATCH;
    }
    later->over = true;
    return NULL;
}

/* The other side sleeps until its count passes `seen`, or the link ends. */
static void sleep_until(struct later *later, uint64_t seen)
{
    struct link_pair *pair = later->pair;
    pthread_t thread;
    uint64_t count = 0;
    rondo_link_result result = RONDO_LINK_OK;
    rondo_link *link = pair->ends[!later->side];
    int64_t slept = 0, deadline = rd_now() + LINK_DEADLINE_NS;
    assert_int_equal(pthread_create(&thread, NULL, do_later, later), 0);
    while (rd_now() < deadline && count <= seen && result == RONDO_LINK_OK) {
        slept += link_nap(link, &pair->bells[!later->side], seen, LINK_DEADLINE_NS);
        result = link->ops->poll(link, &count);
    }
    int64_t woke = rd_now();
    later->woke = true;
    while (!later->over) link->ops->poll(link, &count);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(later->result, RONDO_LINK_OK);
    assert_true(woke < deadline);
    if (!pair->kind->sockets && !pair->kind->fault) assert_true(slept > 0);
    assert_int_equal(result, later->closes ? RONDO_LINK_CLOSED : RONDO_LINK_OK);
}

/* A receiver that waits for slice n; links that must be told what to expect are told. */
static void expect(rondo_link *receiver, uint64_t n, unsigned char *to)
{
    void *place;
    rondo_link_result result = RONDO_LINK_AGAIN;
    for (int tries = 0; tries < 100; tries++) {
        if (receiver->caps & RONDO_LINK_SLOTS)
            receiver->ops->peek(receiver, SLOT_BYTES, link_signature(n), &place);
        else if (result == RONDO_LINK_AGAIN)
            result = receiver->ops->recv(receiver, to, SLOT_BYTES, link_signature(n));
        link_count(receiver);
    }
}

void link_test_receiver_wakes(void **state)
{
    unsigned char got[SLOT_BYTES];
    for (int closes = 0; closes < 2; closes++) {
        struct link_pair pair;
        struct later later = {.pair = &pair, .side = RD_SENDER, .closes = closes, .slices = !closes};
        open_pair(state, &pair);
        expect(pair.ends[RD_RECEIVER], 0, got);
        sleep_until(&later, 0);
        link_pair_close(&pair);
    }
}

/* Sends with nobody receiving, from slice `sent` on, until nothing has moved for a while. Returns how many went. */
static uint64_t fill_up(struct link_pair *pair, unsigned char *memory, uint64_t sent)
{
    rondo_link *sender = pair->ends[RD_SENDER];
    uint64_t count = sent, before;
    for (int stuck = 0; stuck < 120 && sent < 100000; stuck++) {
        void *place = memory + sent % sender->slots * SLOT_BYTES;
        rondo_link_result result = RONDO_LINK_AGAIN;
        if (has_slots(pair))
            result = sender->ops->reserve(sender, SLOT_BYTES, &place);
        else if (sent - count < sender->slots)
            result = RONDO_LINK_OK; /* this memory is ours again */
        if (result == RONDO_LINK_OK) {
            link_fill_at(sender, place, sent, SLOT_BYTES);
            result = has_slots(pair) ? sender->ops->commit(sender, SLOT_BYTES, link_signature(sent))
                                     : sender->ops->send(sender, place, SLOT_BYTES, link_signature(sent));
        }
        before = count;
        assert_in_range(result, RONDO_LINK_OK, RONDO_LINK_AGAIN);
        assert_int_equal(sender->ops->poll(sender, &count), RONDO_LINK_OK);
        if (result == RONDO_LINK_OK) sent++;
        if (result == RONDO_LINK_OK || count > before) stuck = 0;
        assert_true(count <= sent && sent <= count + sender->slots);
        if (stuck > 20) usleep(300); /* the kernel may yet move what it holds */
    }
    return sent;
}

void link_test_sender_wakes(void **state)
{
    const struct link_kind *kind = *state;
    unsigned char memory[8 * SLOT_BYTES] = {0};
    for (int closes = 0; closes < (kind->sockets ? 1 : 2); closes++) { /* of sockets: test_receiver_closes_early */
        struct link_pair pair;
        uint64_t sent = 0, done;
        open_pair(state, &pair);
        do {
            sent = fill_up(&pair, memory, sent);
            done = link_count(pair.ends[RD_SENDER]);
        } while (done == sent); /* what the kernel held for longer has moved after all */
        struct later later = {.pair = &pair, .side = RD_RECEIVER, .closes = closes, .slices = closes ? 0 : sent};
        sleep_until(&later, done);
        link_pair_close(&pair);
    }
}

/* With nobody receiving a sender is told AGAIN; when somebody does, it goes on. */
void link_test_credits(void **state)
{
    const struct link_kind *kind = *state;
    struct link_pair pair;
    pthread_t thread;
    unsigned char memory[8 * SLOT_BYTES], got[1];
    open_pair(state, &pair);
    rondo_link *sender = pair.ends[RD_SENDER];
    uint64_t sent = fill_up(&pair, memory, 0);
    if (!kind->sockets) assert_int_equal(sent, SLOTS);
    assert_in_range(sent, sender->slots, 99999);
    struct later later = {.pair = &pair, .side = RD_RECEIVER, .slices = sent, .woke = true};
    assert_int_equal(pthread_create(&thread, NULL, do_later, &later), 0);
    while (!later.over) link_count(sender);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(later.result, RONDO_LINK_OK);
    int64_t deadline = rd_now() + LINK_DEADLINE_NS;
    while (link_count(sender) < sent && rd_now() < deadline) continue;
    assert_int_equal(link_count(sender), sent);
    assert_int_equal(link_put(sender, sent, memory, 1), RONDO_LINK_OK);
    assert_int_equal(link_get(pair.ends[RD_RECEIVER], sent, got, 1, link_signature(sent)), RONDO_LINK_OK);
    link_pair_close(&pair);
}
