/* SPDX-License-Identifier: Apache-2.0
 *
 * link_cases.c - the conformance suite: what rondo_transport.h says of a link. A transport is done when it passes.
 */
#include "link_kit.h"

#include "test.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLOTS = 4, SLOT_BYTES = 4096 };
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
static uint64_t slices = 1000;
#else
static uint64_t slices = 10000;
#endif

static void open_pair(void **state, struct link_pair *pair) { link_pair_open(pair, *state, SLOTS, SLOT_BYTES); }

static bool has_slots(const struct link_pair *pair) { return pair->ends[RD_SENDER]->caps & RONDO_LINK_SLOTS; }

/* The most that reaches a receiver without any further doing of the sender. */
static size_t goes_by_itself(void **state)
{
    const struct link_kind *kind = *state;
    return kind->asks ? kind->asks : SLOT_BYTES;
}

/* ---- Order and content ---- */

static void test_one_thread(void **state)
{
    struct link_pair pair;
    struct link_flow flows[2];
    open_pair(state, &pair);
    for (int side = 0; side < 2; side++) link_flow_open(&flows[side], &pair, side, slices);
    int64_t deadline = rd_now() + LINK_DEADLINE_NS;
    while (!(link_flow_over(&flows[0]) && link_flow_over(&flows[1])) && rd_now() < deadline) {
        if (!link_flow_over(&flows[0])) link_flow_step(&flows[0]);
        if (!link_flow_over(&flows[1])) link_flow_step(&flows[1]);
    }
    for (int side = 0; side < 2; side++) {
        assert_string_equal(flows[side].trouble, "");
        assert_int_equal(flows[side].moved, slices);
        link_flow_close(&flows[side]);
    }
    assert_int_equal(pair.ends[RD_SENDER]->bytes_sent, flows[RD_RECEIVER].bytes);
    link_pair_close(&pair);
}

static void run_threads(void **state, uint32_t slots)
{
    struct link_pair pair;
    struct link_flow flows[2];
    pthread_t thread;
    link_pair_open(&pair, *state, slots, SLOT_BYTES);
    for (int side = 0; side < 2; side++) link_flow_open(&flows[side], &pair, side, slices);
    assert_int_equal(pthread_create(&thread, NULL, link_flow_run, &flows[RD_SENDER]), 0);
    link_flow_run(&flows[RD_RECEIVER]);
    assert_int_equal(pthread_join(thread, NULL), 0);
    for (int side = 0; side < 2; side++) {
        assert_string_equal(flows[side].trouble, "");
        link_flow_close(&flows[side]);
    }
    link_pair_close(&pair);
}

static void test_two_threads(void **state) { run_threads(state, SLOTS); }
static void test_one_slot(void **state) { run_threads(state, 1); } /* every slice waits for the one before */

/* One side of it, in a process of its own. */
static int run_process(const struct link_kind *kind, int side, rondo_link_spec *spec, int control)
{
    struct link_pair pair;
    struct link_flow flow;
    if (!link_pair_join(&pair, kind, side, spec, control)) return 1;
    link_flow_open(&flow, &pair, side, slices);
    link_flow_run(&flow);
    if (*flow.trouble) fprintf(stderr, "%s\n", flow.trouble);
    link_flow_close(&flow);
    link_pair_close(&pair);
    return *flow.trouble != 0;
}

/* Both are forked: a GPU's driver does not survive that, so this process must not need it before. */
static void test_two_processes(void **state)
{
    const struct link_kind *kind = *state;
    int control[2], status;
    pid_t children[2];
    rondo_link_spec specs[2];
    if (kind->transport->reach == RONDO_REACH_PROCESS) return;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control), 0);
    for (int side = 0; side < 2; side++)
        specs[side] = (rondo_link_spec){.me = side, .peer = !side, .slots = SLOTS, .slot_bytes = SLOT_BYTES,
                                        .device = kind->devices[side], .socket_count = kind->sockets};
    link_sockets(specs[RD_SENDER].sockets, specs[RD_RECEIVER].sockets, kind->sockets);
    for (int side = 0; side < 2; side++) {
        children[side] = fork();
        assert_true(children[side] >= 0);
        if (children[side]) continue;
        close(control[!side]);
        for (int i = 0; i < kind->sockets; i++) close(specs[!side].sockets[i]);
        _exit(run_process(kind, side, &specs[side], control[side]));
    }
    for (int side = 0; side < 2; side++) {
        close(control[side]);
        for (int i = 0; i < kind->sockets; i++) close(specs[side].sockets[i]);
    }
    for (int side = 0; side < 2; side++) {
        assert_int_equal(waitpid(children[side], &status, 0), children[side]);
        assert_int_equal(status, 0);
    }
}

static void test_empty_slices(void **state)
{
    struct link_pair pair;
    unsigned char nothing[1] = {42};
    open_pair(state, &pair);
    for (uint64_t n = 0; n < 20; n++) {
        assert_int_equal(link_put(pair.ends[RD_SENDER], n, nothing, 0), RONDO_LINK_OK);
        assert_int_equal(link_get(pair.ends[RD_RECEIVER], n, nothing, 0, link_signature(n)), RONDO_LINK_OK);
    }
    assert_int_equal(nothing[0], 42);
    assert_int_equal(pair.ends[RD_SENDER]->bytes_sent, 0);
    link_pair_close(&pair);
}

/* ---- Slots ---- */

/* Reserves a slot, however often it is told to try again. */
static unsigned char *reserve(rondo_link *sender, size_t bytes)
{
    void *place = NULL;
    for (int tries = 0; tries < 1000 && !place; tries++)
        if (sender->ops->reserve(sender, bytes, &place) != RONDO_LINK_OK) place = NULL;
    assert_non_null(place);
    return place;
}

static void test_reserve_ahead(void **state)
{
    struct link_pair pair;
    unsigned char *places[SLOTS], got[SLOT_BYTES];
    rondo_view view;
    size_t bytes = goes_by_itself(state);
    open_pair(state, &pair);
    if (!has_slots(&pair)) return link_pair_close(&pair);
    rondo_link *sender = pair.ends[RD_SENDER];
    for (uint64_t n = 0; n < SLOTS; n++) {
        places[n] = reserve(sender, SLOT_BYTES);
        assert_int_equal((uintptr_t)places[n] % 64, 0);
        for (uint64_t m = 0; m < n; m++)
            assert_true(places[m] + SLOT_BYTES <= places[n] || places[n] + SLOT_BYTES <= places[m]);
    }
    void *more;
    assert_int_equal(sender->ops->reserve(sender, SLOT_BYTES, &more), RONDO_LINK_AGAIN);
    if (sender->caps & RONDO_LINK_VIEW) {
        assert_int_equal(sender->ops->view(sender, &view), RONDO_LINK_OK);
        assert_int_equal(view.count, SLOTS);
        for (uint64_t n = 0; n < SLOTS; n++)
            assert_ptr_equal(places[n], rondo_view_payload(&view, n, SLOT_BYTES));
    }
    for (uint64_t n = SLOTS; n-- > 0;) link_fill_at(sender, places[n], n, bytes); /* in any order; committed in one */
    assert_int_equal(link_count(pair.ends[RD_RECEIVER]), 0);
    for (uint64_t n = 0; n < SLOTS; n++)
        assert_int_equal(sender->ops->commit(sender, bytes, link_signature(n)), RONDO_LINK_OK);
    for (uint64_t n = 0; n < SLOTS; n++) {
        assert_int_equal(link_get(pair.ends[RD_RECEIVER], n, got, bytes, link_signature(n)), RONDO_LINK_OK);
        assert_true(link_filled(got, n, bytes));
    }
    link_pair_close(&pair);
}

/* Slices that go by the view, as a kernel would move them, between others that go by the operations. */
static void test_view(void **state)
{
    struct link_pair pair;
    rondo_view view;
    unsigned char got[SLOT_BYTES];
    open_pair(state, &pair);
    rondo_link *sender = pair.ends[RD_SENDER], *receiver = pair.ends[RD_RECEIVER];
    if (!(sender->caps & RONDO_LINK_VIEW)) return link_pair_close(&pair);
    for (uint64_t n = 0; n < 60;) {
        link_fill(got, n, SLOT_BYTES);
        assert_int_equal(link_put(sender, n, got, SLOT_BYTES), RONDO_LINK_OK);
        assert_int_equal(link_get(receiver, n, got, SLOT_BYTES, link_signature(n)), RONDO_LINK_OK);
        assert_true(link_filled(got, n, SLOT_BYTES));
        n++;
        for (int side = 0; side < 2; side++) { /* up to a ring full sent so, then taken so */
            uint64_t many = n % SLOTS + 1;
            assert_int_equal(pair.ends[side]->ops->view(pair.ends[side], &view), RONDO_LINK_OK);
            assert_int_equal(view.next, n);
            for (uint64_t k = n; k < n + many; k++) {
                rondo_slot *slot = rondo_view_head(&view, k);
                void *payload = rondo_view_payload(&view, k, SLOT_BYTES);
                if (side == RD_SENDER) {
                    if (k >= SLOTS) assert_int_equal(__atomic_load_n(&slot->freed, __ATOMIC_ACQUIRE), k - SLOTS + 1);
                    link_fill_at(sender, payload, k, SLOT_BYTES);
                    slot->signature = link_signature(k);
                    slot->bytes = SLOT_BYTES;
                    __atomic_store_n(&slot->filled, k + 1, __ATOMIC_RELEASE);
                } else {
                    assert_int_equal(__atomic_load_n(&slot->filled, __ATOMIC_ACQUIRE), k + 1);
                    assert_int_equal(slot->signature, link_signature(k));
                    assert_true(link_filled_at(receiver, payload, k, SLOT_BYTES));
                    __atomic_store_n(&slot->freed, k + 1, __ATOMIC_RELEASE);
                }
            }
            uint64_t bytes = side == RD_SENDER ? many * SLOT_BYTES : 0;
            assert_int_equal(pair.ends[side]->ops->moved(pair.ends[side], many, bytes), RONDO_LINK_OK);
            if (side == 1) n += many;
        }
        int64_t deadline = rd_now() + LINK_DEADLINE_NS; /* a link with faults may be slow to tell */
        while (link_count(sender) < n && rd_now() < deadline) continue;
        assert_int_equal(link_count(sender), n);
        assert_int_equal(pair.ends[RD_SENDER]->bytes_sent, n * SLOT_BYTES);
    }
    link_pair_close(&pair);
}

/* What the receiver leaves in a slot the sender reads, after done and until it reserves that slot again; also in a brief
 * slice, which lies in the slot's head. */
static void test_return(void **state)
{
    static const size_t sizes[] = {SLOT_BYTES, 1, RONDO_SLOT_BRIEF, RONDO_SLOT_BRIEF + 1, 0};
    struct link_pair pair;
    void *place;
    open_pair(state, &pair);
    rondo_link *sender = pair.ends[RD_SENDER], *receiver = pair.ends[RD_RECEIVER];
    if (!(sender->caps & RONDO_LINK_RETURN)) return link_pair_close(&pair);
    int64_t deadline = rd_now() + LINK_DEADLINE_NS;
    for (uint64_t n = 0; n < 50; n++) {
        size_t bytes = sizes[n % (sizeof sizes / sizeof *sizes)];
        unsigned char *mine = reserve(sender, bytes);
        link_fill_at(sender, mine, n, bytes);
        assert_int_equal(sender->ops->commit(sender, bytes, link_signature(n)), RONDO_LINK_OK);
        assert_int_equal(link_count(sender), n);
        while (receiver->ops->peek(receiver, bytes, link_signature(n), &place) != RONDO_LINK_OK)
            assert_true(rd_now() < deadline);
        assert_int_equal((uintptr_t)place % 64, bytes <= RONDO_SLOT_BRIEF ? offsetof(rondo_slot, brief) : 0);
        assert_true(link_filled_at(receiver, place, n, bytes));
        link_fill_at(receiver, place, n + 1000, bytes);
        assert_int_equal(receiver->ops->release(receiver), RONDO_LINK_OK);
        while (link_count(sender) <= n) assert_true(rd_now() < deadline);
        assert_true(link_filled_at(sender, mine, n + 1000, bytes));
    }
    link_pair_close(&pair);
}

/* ---- Mismatch ---- */

static void check_mismatch(void **state, size_t expected_bytes, uint64_t expected_signature)
{
    struct link_pair pair;
    unsigned char memory[SLOT_BYTES], got[SLOT_BYTES];
    uint64_t signature = 0, bytes = 0;
    open_pair(state, &pair);
    rondo_link *receiver = pair.ends[RD_RECEIVER];
    for (uint64_t n = 0; n < 3; n++) {
        link_fill(memory, n, 100);
        assert_int_equal(link_put(pair.ends[RD_SENDER], n, memory, 100), RONDO_LINK_OK);
        if (n < 2) assert_int_equal(link_get(receiver, n, got, 100, link_signature(n)), RONDO_LINK_OK);
    }
    for (int twice = 0; twice < 2; twice++) {
        if (receiver->caps & RONDO_LINK_SLOTS || !twice)
            assert_int_equal(link_get(receiver, 2, got, expected_bytes, expected_signature), RONDO_LINK_MISMATCH);
        receiver->ops->seen(receiver, &signature, &bytes);
        assert_int_equal(signature, link_signature(2));
        assert_int_equal(bytes, 100);
    }
    bool native = receiver->caps & RONDO_LINK_RETURN; /* and no adapter */
    assert_true(link_count(receiver) <= (native ? 3 : 2));
    if (native) { /* it is still there for who expects it */
        assert_int_equal(link_get(receiver, 2, got, 100, link_signature(2)), RONDO_LINK_OK);
        assert_true(link_filled(got, 2, 100));
    }
    link_pair_close(&pair);
}

static void test_mismatch(void **state)
{
    check_mismatch(state, 100, link_signature(3));
    check_mismatch(state, 99, link_signature(2));
    check_mismatch(state, 101, link_signature(2));
    check_mismatch(state, 0, link_signature(2));
    check_mismatch(state, SLOT_BYTES, 0);
}

/* ---- The end ---- */

/* All that was sent before the close arrives, then CLOSED. */
static void test_close_after_data(void **state)
{
    struct link_pair pair;
    unsigned char memory[3][SLOT_BYTES], got[SLOT_BYTES];
    size_t bytes = goes_by_itself(state);
    open_pair(state, &pair);
    rondo_link *sender = pair.ends[RD_SENDER], *receiver = pair.ends[RD_RECEIVER];
    for (uint64_t n = 0; n < 3; n++) {
        link_fill(memory[n], n, bytes);
        assert_int_equal(link_put(sender, n, memory[n], bytes), RONDO_LINK_OK);
    }
    int64_t deadline = rd_now() + LINK_DEADLINE_NS;
    bool at_once = ((const struct link_kind *)*state)->sockets; /* sockets take it all; slots come back when released */
    while (at_once && link_count(sender) < 3) assert_true(rd_now() < deadline);
    link_pair_close_end(&pair, RD_SENDER);
    for (uint64_t n = 0; n < 3; n++) {
        assert_int_equal(link_get(receiver, n, got, bytes, link_signature(n)), RONDO_LINK_OK);
        assert_true(link_filled(got, n, bytes));
    }
    assert_int_equal(link_get(receiver, 3, got, bytes, link_signature(3)), RONDO_LINK_CLOSED);
    uint64_t count;
    assert_int_equal(receiver->ops->poll(receiver, &count), RONDO_LINK_CLOSED);
    assert_int_equal(count, 3);
    assert_int_equal(link_nap(receiver, &pair.bells[RD_RECEIVER], 3, LINK_DEADLINE_NS), 0);
    link_pair_close(&pair);
}

/* A sender whose peer is gone learns it as soon as it waits for the peer. SIGPIPE would end the test. */
static void test_receiver_closes_early(void **state)
{
    struct link_pair pair;
    unsigned char memory[SLOT_BYTES] = {0}, got[SLOT_BYTES];
    rondo_link_result result = RONDO_LINK_OK;
    open_pair(state, &pair);
    assert_int_equal(link_put(pair.ends[RD_SENDER], 0, memory, 64), RONDO_LINK_OK);
    assert_int_equal(link_get(pair.ends[RD_RECEIVER], 0, got, 64, link_signature(0)), RONDO_LINK_OK);
    link_pair_close_end(&pair, RD_RECEIVER);
    for (uint64_t n = 1; n < 10000 && result == RONDO_LINK_OK; n++)
        result = link_put(pair.ends[RD_SENDER], n, memory, SLOT_BYTES);
    assert_int_equal(result, RONDO_LINK_CLOSED);
    link_pair_close(&pair);
}

/* ---- Every kind ---- */

/* Those that fork come first. */
static const struct {
    const char *name;
    CMUnitTestFunction function;
} cases[] = {
    {"two processes", test_two_processes},
    {"one thread", test_one_thread},
    {"two threads", test_two_threads},
    {"one slot", test_one_slot},
    {"empty slices", test_empty_slices},
    {"credits", link_test_credits},
    {"capabilities", link_test_capabilities},
    {"no more than slots", link_test_no_more},
    {"peek ahead", link_test_peek_ahead},
    {"withdraw", link_test_withdraw},
    {"direct access", link_test_direct},
    {"reserve ahead", test_reserve_ahead},
    {"view", test_view},
    {"return", test_return},
    {"mismatch", test_mismatch},
    {"close after data", test_close_after_data},
    {"receiver closes early", test_receiver_closes_early},
    {"receiver wakes", link_test_receiver_wakes},
    {"sender wakes", link_test_sender_wakes},
};
enum { CASES = sizeof cases / sizeof cases[0], BASES_MOST = 8, DRESSES = 4 };

int link_conformance(const struct link_kind *bases, int base_count, int flow)
{
    static struct link_kind kinds[BASES_MOST * DRESSES];
    static struct CMUnitTest tests[CASES * BASES_MOST * DRESSES];
    static char names[CASES * BASES_MOST * DRESSES][96];
    int count = 0, made = 0;
    assert_in_range(base_count, 1, BASES_MOST);
    if (flow) slices = (uint64_t)flow;
    for (int i = 0; i < base_count * DRESSES; i++) {
        struct link_kind *kind = &kinds[count];
        const struct link_kind *base = &bases[i / DRESSES];
        *kind = *base;
        kind->fault = i & 1;
        kind->adapted = i & 2;
        if (kind->adapted && link_copy_device) continue; /* an adapter copies by CPU */
        snprintf(kind->name, sizeof kind->name, "%.44s%s%s", base->name, kind->fault ? ", faults" : "",
                 kind->adapted ? ", adapted" : "");
        count++;
    }
    for (int c = 0; c < CASES; c++)
        for (int k = 0; k < count; k++, made++) {
            snprintf(names[made], sizeof names[made], "%.63s: %.30s", kinds[k].name, cases[c].name);
            tests[made] = (struct CMUnitTest){
                .name = names[made], .test_func = cases[c].function, .initial_state = &kinds[k]};
        }
    return _cmocka_run_group_tests("links", tests, (size_t)made, NULL, NULL);
}
