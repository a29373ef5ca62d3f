/* SPDX-License-Identifier: Apache-2.0
 *
 * test_link_make.c - offers that must be refused, what they leave behind (nothing), ends that close in any order, and
 * the choice of a transport.
 */
#include "link_kit.h"

#include "base/status.h"
#include "test.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLOTS = 4, SLOT_BYTES = 4096 };

static const struct link_kind kinds[] = {
    {.name = "loop", .transport = &rd_transport_loop},
    {.name = "shm", .transport = &rd_transport_shm},
    {.name = "tcp", .transport = &rd_transport_tcp, .sockets = 2},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static int open_fds(void)
{
    int n = 0;
    for (int fd = 0; fd < 512; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void prepare(const struct link_kind *kind, rondo_bell bells[2], rondo_link_spec specs[2])
{
    for (int side = 0; side < 2; side++) {
        assert_int_equal(rd_bell_open(&bells[side]), RONDO_SUCCESS);
        specs[side] = (rondo_link_spec){.me = side, .peer = !side, .slots = SLOTS, .slot_bytes = SLOT_BYTES,
                                        .bell = &bells[side], .socket_count = kind->sockets};
    }
    link_sockets(specs[0].sockets, specs[1].sockets, kind->sockets);
}

/* How an offer or answer may be spoilt on its way. */
enum spoil { NOT, VERSION, SIZE, SHORT, NO_FDS, LESS_SLOTS, BAD_TOKEN, WRONG_MEMORY, SPOILS };

static void spoil(rondo_offer *offer, enum spoil how)
{
    int memory;
    switch (how) {
    case VERSION: offer->data[0]++; break;
    case SIZE: offer->data[9]++; break;
    case SHORT: offer->bytes--; break;
    case NO_FDS:
        rd_offer_close(offer);
        offer->fd_count = 0;
        break;
    case LESS_SLOTS: offer->data[4] = 1; break;
    case BAD_TOKEN: offer->data[20] ^= 1; break;
    case WRONG_MEMORY: /* of the right size, but not what the sender holds */
        memory = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        assert_int_equal(ftruncate(memory, 1 << 20), 0);
        fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK);
        dup3(memory, offer->fds[2], O_CLOEXEC);
        close(memory);
        break;
    default: break;
    }
}

/* Which of these an offer of the transport can have. */
static bool applies(const struct link_kind *kind, enum spoil how)
{
    if (how == NO_FDS || how == WRONG_MEMORY) return kind->transport == &rd_transport_shm;
    return how != BAD_TOKEN || kind->transport != &rd_transport_tcp;
}

static void test_spoilt_offers(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++)
        for (enum spoil how = VERSION; how < SPOILS; how++) {
            rondo_bell bells[2];
            rondo_link_spec specs[2];
            rondo_offer offer, answer;
            rondo_link *sender, *receiver = NULL;
            const rondo_transport *t = kinds[k].transport;
            if (!applies(&kinds[k], how)) continue;
            int before = open_fds();
            prepare(&kinds[k], bells, specs);
            assert_int_equal(t->offer(&specs[0], &sender, &offer), RONDO_SUCCESS);
            spoil(&offer, how);
            rd_fail(RONDO_SUCCESS, "%s", "");
            assert_int_not_equal(t->accept(&specs[1], &offer, &receiver, &answer), RONDO_SUCCESS);
            assert_null(receiver);
            assert_non_null(strstr(rd_last_error(), "rank 0"));
            if (how == BAD_TOKEN || how == WRONG_MEMORY)
                assert_non_null(strstr(rd_last_error(), k == 1 ? "do not share a host" : "two processes"));
            sender->ops->close(sender);
            for (int side = 0; side < 2; side++) rd_bell_close(&bells[side]);
            assert_int_equal(open_fds(), before);
        }
}

static void test_spoilt_answers(void **state)
{
    (void)state;
    const struct {
        int kind;
        enum spoil how;
    } tries[] = {{1, NO_FDS}, {2, VERSION}, {2, SIZE}, {2, SHORT}};
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        rondo_bell bells[2];
        rondo_link_spec specs[2];
        rondo_offer offer, answer;
        rondo_link *ends[2];
        const rondo_transport *t = kinds[tries[i].kind].transport;
        int before = open_fds();
        prepare(&kinds[tries[i].kind], bells, specs);
        assert_int_equal(t->offer(&specs[0], &ends[0], &offer), RONDO_SUCCESS);
        assert_int_equal(t->accept(&specs[1], &offer, &ends[1], &answer), RONDO_SUCCESS);
        spoil(&answer, tries[i].how);
        assert_int_not_equal(t->complete(ends[0], &answer), RONDO_SUCCESS);
        for (int side = 0; side < 2; side++) {
            ends[side]->ops->close(ends[side]);
            rd_bell_close(&bells[side]);
        }
        assert_int_equal(open_fds(), before);
    }
}

static void test_bad_specs(void **state)
{
    (void)state;
    const struct {
        uint32_t slots;
        size_t slot_bytes;
    } bad[] = {{0, 4096}, {3, 4096}, {1 << 17, 4096}, {4, 0}, {4, 4095}, {4, 100}, {4, (size_t)1 << 40}};
    for (int k = 0; k < KINDS; k++)
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
            rondo_bell bells[2];
            rondo_link_spec specs[2];
            rondo_offer offer;
            rondo_link *sender = NULL;
            int before = open_fds();
            prepare(&kinds[k], bells, specs);
            specs[0].slots = bad[i].slots;
            specs[0].slot_bytes = bad[i].slot_bytes;
            assert_int_equal(kinds[k].transport->offer(&specs[0], &sender, &offer), RONDO_INVALID_ARGUMENT);
            assert_null(sender);
            for (int s = 0; s < kinds[k].sockets; s++) close(specs[1].sockets[s]);
            for (int side = 0; side < 2; side++) rd_bell_close(&bells[side]);
            assert_int_equal(open_fds(), before);
        }
    rondo_link_spec spec = {.slots = 4, .slot_bytes = 4096};
    rondo_offer offer;
    rondo_link *sender;
    assert_int_equal(rd_transport_tcp.offer(&spec, &sender, &offer), RONDO_INVALID_ARGUMENT);
}

/* Either end, or a bell, may go first; nothing of it stays. */
static void test_close_orders(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++)
        for (int order = 0; order < 4; order++) {
            int before = open_fds();
            struct link_pair pair;
            unsigned char byte = 1;
            link_pair_open(&pair, &kinds[k], SLOTS, SLOT_BYTES);
            assert_int_equal(link_put(pair.ends[0], 0, &byte, 1), RONDO_LINK_OK);
            link_pair_close_end(&pair, order & 1);
            if (order & 2) rd_bell_close(&pair.bells[order & 1]);
            link_pair_close_end(&pair, !(order & 1));
            link_pair_close(&pair);
            assert_int_equal(open_fds(), before);
        }
}

/* Where in a page the payload of slot 0 begins, which is the same at both ends. */
static uintptr_t begins_at(const rondo_transport *transport, int from, int to)
{
    rondo_bell bell;
    rondo_link *ends[2];
    rondo_offer offer, answer;
    rondo_view views[2];
    assert_int_equal(rd_bell_open(&bell), RONDO_SUCCESS);
    rondo_link_spec spec = {.me = from, .peer = to, .slots = SLOTS, .slot_bytes = SLOT_BYTES, .bell = &bell};
    assert_int_equal(transport->offer(&spec, &ends[0], &offer), RONDO_SUCCESS);
    spec.me = to;
    spec.peer = from;
    assert_int_equal(transport->accept(&spec, &offer, &ends[1], &answer), RONDO_SUCCESS);
    assert_int_equal(transport->complete(ends[0], &answer), RONDO_SUCCESS);
    for (int side = 0; side < 2; side++) {
        assert_int_equal(ends[side]->ops->view(ends[side], &views[side]), RONDO_LINK_OK);
        ends[side]->ops->close(ends[side]);
    }
    rd_bell_close(&bell);
    assert_int_equal((uintptr_t)views[0].payloads % 4096, (uintptr_t)views[1].payloads % 4096);
    assert_int_not_equal((uintptr_t)views[0].payloads / 128, (uintptr_t)views[0].heads / 128); /* lines that come in pairs */
    assert_int_equal(views[0].head_stride % 128, 0);
    return (uintptr_t)views[0].payloads % 4096;
}

/* What one rank reads side by side does not meet in the same lines of the first cache. */
static void test_slots_apart(void **state)
{
    (void)state;
    enum { RANKS = 16, READER = 5 };
    for (int k = 0; k < 2; k++) {
        uintptr_t at[RANKS];
        for (int from = 0; from < RANKS; from++) {
            if (from == READER) continue;
            at[from] = begins_at(kinds[k].transport, from, READER);
            assert_int_not_equal(at[from], 0); /* users' buffers begin there */
            for (int other = 0; other < from; other++) {
                if (other == READER) continue;
                uintptr_t apart = (at[from] - at[other]) % 4096;
                assert_in_range(apart, 256, 4096 - 256);
            }
        }
    }
}

static void *commit_and_close(void *argument)
{
    rondo_link *_Atomic *handed = argument;
    void *place;
    for (rondo_link *sender; (sender = *handed) != (rondo_link *)handed;) {
        if (!sender) {
            sched_yield();
            continue;
        }
        sender->ops->reserve(sender, 0, &place);
        sender->ops->commit(sender, 0, 0);
        sender->ops->close(sender);
        *handed = NULL;
    }
    return NULL;
}

/* A slice is committed and its sender closes while the receiver looks: it never sees the close and not the slice. */
static void test_close_while_looking(void **state)
{
    (void)state;
    rondo_link *_Atomic handed = NULL;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, commit_and_close, (void *)&handed), 0);
    for (int round = 0; round < 300; round++) {
        struct link_pair pair;
        uint64_t count;
        int64_t deadline = rd_now() + LINK_DEADLINE_NS;
        link_pair_open(&pair, &kinds[0], SLOTS, 64);
        rondo_link *receiver = pair.ends[1];
        handed = pair.ends[0];
        while (receiver->ops->poll(receiver, &count) == RONDO_LINK_OK) assert_true(rd_now() < deadline);
        assert_int_equal(count, 1);
        while (handed) sched_yield();
        pair.ends[0] = NULL;
        link_pair_close(&pair);
    }
    handed = (rondo_link *)&handed;
    pthread_join(thread, NULL);
}

/* An offer that nobody takes, one that comes twice, one that comes too late, one from another process. */
static void test_loop_offers(void **state)
{
    (void)state;
    rondo_bell bells[2];
    rondo_link_spec specs[2];
    rondo_offer offer, answer;
    rondo_link *sender, *receiver, *none = NULL;
    const rondo_transport *t = &rd_transport_loop;
    prepare(&kinds[0], bells, specs);
    assert_int_equal(t->offer(&specs[0], &sender, &offer), RONDO_SUCCESS);
    sender->ops->close(sender);
    assert_int_equal(t->accept(&specs[1], &offer, &none, &answer), RONDO_SYSTEM_ERROR);
    assert_int_equal(t->offer(&specs[0], &sender, &offer), RONDO_SUCCESS);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) _exit(t->accept(&specs[1], &offer, &none, &answer) == RONDO_SYSTEM_ERROR && !none ? 0 : 1);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(t->accept(&specs[1], &offer, &receiver, &answer), RONDO_SUCCESS);
    assert_int_equal(t->accept(&specs[1], &offer, &none, &answer), RONDO_SYSTEM_ERROR);
    assert_null(none);
    sender->ops->close(sender);
    receiver->ops->close(receiver);
    for (int side = 0; side < 2; side++) rd_bell_close(&bells[side]);
}

/* Capabilities that contradict one another, or lack their operations. */
static void test_contradictions(void **state)
{
    (void)state;
    rondo_bell bells[2];
    rondo_link_spec specs[2];
    rondo_offer offer;
    rondo_link *sender;
    prepare(&kinds[0], bells, specs);
    assert_int_equal(rd_transport_loop.offer(&specs[0], &sender, &offer), RONDO_SUCCESS);
    const rondo_link_ops *ops = sender->ops;
    uint32_t caps = sender->caps;
    static const uint32_t wrong[] = {0,
                                     RONDO_LINK_SLOTS | RONDO_LINK_MEMORY,
                                     RONDO_LINK_MEMORY | RONDO_LINK_VIEW,
                                     RONDO_LINK_MEMORY, /* a link of slots has no send */
                                     RONDO_LINK_SLOTS | RONDO_LINK_DEVICE | RONDO_LINK_DIRECT,
                                     RONDO_LINK_SLOTS | RONDO_LINK_VIEW | RONDO_LINK_PACKETS,
                                     RONDO_LINK_SLOTS | RONDO_LINK_FAR};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        sender->caps = wrong[i];
        assert_int_equal(rd_link_check(sender), RONDO_INTERNAL_ERROR);
        assert_non_null(strstr(rd_last_error(), "must have"));
    }
    sender->caps = caps;
    assert_int_equal(rd_link_check(sender), RONDO_SUCCESS);
    rondo_link_ops less = *ops;
    sender->ops = &less;
    less.enter = NULL;
    assert_int_equal(rd_link_check(sender), RONDO_INTERNAL_ERROR);
    less = *ops, less.moved = NULL;
    assert_int_equal(rd_link_check(sender), RONDO_INTERNAL_ERROR);
    less = *ops, less.size--;
    assert_int_equal(rd_link_check(sender), RONDO_INTERNAL_ERROR);
    sender->ops = ops;
    sender->ops->close(sender);
    for (int side = 0; side < 2; side++) rd_bell_close(&bells[side]);
}

static void test_choice(void **state)
{
    (void)state;
    char why[200];
    assert_ptr_equal(rd_transport_choose(RONDO_REACH_PROCESS, NULL, RD_LACKS_VERBS, why, sizeof why), &rd_transport_loop);
    assert_string_equal(why, "loop, since both ranks are in one process");
    assert_ptr_equal(rd_transport_choose(RONDO_REACH_HOST, NULL, RD_LACKS_VERBS, why, sizeof why), &rd_transport_shm);
    assert_ptr_equal(rd_transport_choose(RONDO_REACH_NETWORK, NULL, RD_LACKS_VERBS, why, sizeof why), &rd_transport_tcp);
    assert_ptr_equal(rd_transport_choose(RONDO_REACH_PROCESS, "tcp", RD_LACKS_VERBS, why, sizeof why), &rd_transport_tcp);
    assert_ptr_equal(rd_transport_choose(RONDO_REACH_PROCESS, "shm", RD_LACKS_VERBS, why, sizeof why), &rd_transport_shm);
    assert_null(rd_transport_choose(RONDO_REACH_NETWORK, "shm", RD_LACKS_VERBS, why, sizeof why));
    assert_non_null(strstr(why, "shm was asked for, but does not reach"));
    assert_null(rd_transport_choose(RONDO_REACH_HOST, "loop", RD_LACKS_VERBS, why, sizeof why));
    assert_null(rd_transport_choose(RONDO_REACH_HOST, "carrier pigeon", RD_LACKS_VERBS, why, sizeof why));
    assert_non_null(strstr(why, "carrier pigeon"));
#ifdef RD_VERBS
    assert_ptr_equal(rd_transport_choose(RONDO_REACH_NETWORK, NULL, 0, why, sizeof why), &rd_transport_verbs);
    assert_ptr_equal(rd_transport_choose(RONDO_REACH_PROCESS, "verbs", 0, why, sizeof why), &rd_transport_verbs);
#endif
    assert_null(rd_transport_choose(RONDO_REACH_NETWORK, "verbs", RD_LACKS_VERBS, why, sizeof why));
    assert_non_null(strstr(why, "verbs"));
    for (int i = 0; rd_transports[i]; i++) {
        assert_int_equal(rd_transports[i]->size, sizeof(rondo_transport));
        if (i) assert_true(rd_transports[i]->cost >= rd_transports[i - 1]->cost);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spoilt_offers), cmocka_unit_test(test_spoilt_answers), cmocka_unit_test(test_bad_specs),
        cmocka_unit_test(test_close_orders),  cmocka_unit_test(test_loop_offers),    cmocka_unit_test(test_choice),
        cmocka_unit_test(test_close_while_looking), cmocka_unit_test(test_slots_apart), cmocka_unit_test(test_contradictions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
