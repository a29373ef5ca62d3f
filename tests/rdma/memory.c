/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c - what an RDMA link does with user memory: registers it once, forgets it when it is unmapped, copies where it
 * cannot, and takes it back; and what it says of a key that is refused and of limits.
 */
#include "../link_kit.h"
#include "../test.h"

#include "base/status.h"
#include "transport/verbs_link.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLOTS = 4, LONG = 65536 };

static void on_devices(int side)
{
    char names[128], *second = NULL;
    snprintf(names, sizeof names, "%s", getenv("RONDO_TEST_RDMA"));
    char *first = strtok_r(names, " ", &second);
    setenv("RONDO_RDMA_DEVICE", side == RD_SENDER || !*second ? first : second, 1);
}

static const struct link_kind kind = {.name = "verbs", .transport = &rd_transport_verbs, .sockets = 1, .before = on_devices};

/* Both ends by turns until both have counted `n`, or one has ended; the answers. */
static void drive(struct link_pair *pair, uint64_t n, rondo_link_result result[2])
{
    uint64_t count[2] = {0, 0};
    int64_t deadline = rd_now() + LINK_DEADLINE_NS;
    result[0] = result[1] = RONDO_LINK_OK;
    while ((count[0] < n || count[1] < n) && rd_now() < deadline)
        for (int side = 0; side < 2; side++)
            if (result[side] == RONDO_LINK_OK) result[side] = pair->ends[side]->ops->poll(pair->ends[side], &count[side]);
            else return;
}

static void move_one(struct link_pair *pair, uint64_t n, const unsigned char *from, unsigned char *to, size_t bytes)
{
    rondo_link_result result[2];
    assert_int_equal(pair->ends[RD_RECEIVER]->ops->recv(pair->ends[RD_RECEIVER], to, bytes, link_signature(n)), RONDO_LINK_OK);
    assert_int_equal(pair->ends[RD_SENDER]->ops->send(pair->ends[RD_SENDER], from, bytes, link_signature(n)), RONDO_LINK_OK);
    drive(pair, n + 1, result);
    assert_int_equal(result[0] | result[1], RONDO_LINK_OK);
}

static unsigned char *map_at(void *at, size_t bytes)
{
    void *memory = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

/* Memory that comes again is registered once; an address that comes again with other memory is not taken for it. */
static void test_registered_once(void **state)
{
    (void)state;
    struct link_pair pair;
    link_pair_open(&pair, &kind, SLOTS, LONG);
    unsigned char *from = map_at(NULL, LONG), *to = map_at(NULL, LONG);
    uint64_t before = rd_verbs_registrations();
    for (uint64_t n = 0; n < 40; n++) {
        if (n == 10) assert_int_equal(munmap(from, LONG), 0);
        if (n == 10) map_at(from, LONG);
        if (n == 20) assert_int_equal(madvise(to, LONG, MADV_DONTNEED), 0);
        if (n == 30) assert_true(mremap(from, LONG, 2 * LONG, MREMAP_MAYMOVE) != MAP_FAILED);
        if (n == 30) map_at(from, LONG);
        link_fill(from, n, LONG);
        move_one(&pair, n, from, to, LONG);
        assert_true(link_filled(to, n, LONG));
    }
    assert_int_equal(rd_verbs_registrations() - before, 5);
    link_pair_close(&pair);
}

static void test_forked(void **state)
{
    (void)state;
    struct link_pair pair;
    link_pair_open(&pair, &kind, SLOTS, LONG);
    unsigned char *from = map_at(NULL, LONG), *to = map_at(NULL, LONG);
    for (uint64_t n = 0; n < 6; n++) {
        int status = 0;
        pid_t child = fork(); /* from now on the pages are shared until one writes to them */
        if (!child) {
            memset(from, 1, LONG);
            memset(to, 2, LONG);
            _exit(0);
        }
        link_fill(from, n, LONG);
        move_one(&pair, n, from, to, LONG);
        assert_true(link_filled(to, n, LONG));
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    link_pair_close(&pair);
}

/* From memory that may only be read; and more regions than the table keeps. */
static void test_all_kinds(void **state)
{
    (void)state;
    struct link_pair pair;
    enum { MANY = 100 };
    link_pair_open(&pair, &kind, SLOTS, LONG);
    unsigned char *from = map_at(NULL, (size_t)MANY * LONG), *to = map_at(NULL, LONG);
    for (uint64_t n = 0; n < MANY; n++) link_fill(from + n * LONG, n, LONG);
    assert_int_equal(mprotect(from, (size_t)MANY * LONG / 2, PROT_READ), 0);
    for (uint64_t n = 0; n < MANY; n++) {
        move_one(&pair, n, from + n * LONG + n, to + n, LONG - n);
        assert_true(!memcmp(from + n * LONG + n, to + n, LONG - n));
    }
    link_pair_close(&pair);
    munmap(from, (size_t)MANY * LONG);
}

/* A long slice where a short one is expected, which asks for nothing. */
static void test_notice(void **state)
{
    (void)state;
    struct link_pair pair;
    rondo_link_result result[2];
    unsigned char *from = map_at(NULL, LONG), to[100];
    link_pair_open(&pair, &kind, SLOTS, LONG);
    rondo_link *sender = pair.ends[RD_SENDER], *receiver = pair.ends[RD_RECEIVER];
    assert_int_equal(receiver->ops->recv(receiver, to, sizeof to, 7), RONDO_LINK_OK);
    assert_int_equal(sender->ops->send(sender, from, LONG, 7), RONDO_LINK_OK);
    drive(&pair, 1, result);
    assert_int_equal(result[RD_RECEIVER], RONDO_LINK_MISMATCH);
    uint64_t signature, bytes;
    receiver->ops->seen(receiver, &signature, &bytes);
    assert_int_equal(signature, 7);
    assert_int_equal(bytes, LONG);
    link_pair_close(&pair);
}

/* After withdraw, and once it says OK, what was posted is written to no more. */
static void test_withdrawn(void **state)
{
    (void)state;
    struct link_pair pair;
    rondo_link_result result[2];
    unsigned char *from = map_at(NULL, LONG), *to = map_at(NULL, LONG);
    link_pair_open(&pair, &kind, SLOTS, LONG);
    rondo_link *sender = pair.ends[RD_SENDER], *receiver = pair.ends[RD_RECEIVER];
    setenv("RONDO_RDMA_TIMEOUT", "12", 1);
    link_fill(from, 0, LONG);
    move_one(&pair, 0, from, to, LONG);
    assert_int_equal(receiver->ops->recv(receiver, to, LONG, link_signature(1)), RONDO_LINK_OK);
    memset(to, 0x77, LONG);
    assert_int_equal(receiver->ops->withdraw(receiver), RONDO_LINK_OK);
    link_fill(from, 1, LONG);
    assert_int_equal(sender->ops->send(sender, from, LONG, link_signature(1)), RONDO_LINK_OK);
    drive(&pair, 2, result);
    assert_true(result[RD_SENDER] == RONDO_LINK_BROKEN || result[RD_RECEIVER] == RONDO_LINK_BROKEN);
    for (size_t i = 0; i < LONG; i++) assert_int_equal(to[i], 0x77);
    link_pair_close(&pair);
}

/* A key that the peer's device does not know. */
static void test_wrong_key(void **state)
{
    (void)state;
    struct link_pair pair;
    rondo_link_result result[2];
    unsigned char from[100] = {0}, to[100];
    link_pair_open(&pair, &kind, SLOTS, LONG);
    rondo_link *sender = pair.ends[RD_SENDER], *receiver = pair.ends[RD_RECEIVER];
    ((rd_verbs_end *)sender)->rails[0].key ^= 0xff00;
    assert_int_equal(receiver->ops->recv(receiver, to, sizeof to, 1), RONDO_LINK_OK);
    for (int i = 0; i < SLOTS; i++) sender->ops->send(sender, from, sizeof from, 1);
    /* Short slices are done when they are copied: a long one has to wait for the answer. */
    unsigned char *more = map_at(NULL, LONG);
    uint64_t count;
    int64_t deadline = rd_now() + LINK_DEADLINE_NS;
    result[0] = RONDO_LINK_OK;
    while (sender->ops->send(sender, more, LONG, 2) == RONDO_LINK_AGAIN) sender->ops->poll(sender, &count);
    while (result[0] == RONDO_LINK_OK && rd_now() < deadline) result[0] = sender->ops->poll(sender, &count);
    assert_int_equal(result[0], RONDO_LINK_BROKEN);
    assert_non_null(strstr(rd_last_error(), "rank 1 at"));
    assert_non_null(strstr(rd_last_error(), "refused the key"));
    link_pair_close(&pair);
}

/* What a peer says of its end is anything: an error that says what is wrong with it, or a link that fails, and no hang. */
static void test_spoilt_offers(void **state)
{
    (void)state;
    enum { VERSION = 0, GID = 24, TRIES = 200 }; /* where they are in an offer (docs/wire.md) */
    rondo_bell bell;
    rondo_offer offer, answer;
    rondo_link *sender, *receiver;
    assert_int_equal(rd_bell_open(&bell), RONDO_SUCCESS);
    const rondo_link_spec spec = {.me = 0, .peer = 1, .slots = SLOTS, .slot_bytes = LONG, .bell = &bell, .device = -1};
    on_devices(RD_SENDER);
    assert_int_equal(rd_transport_verbs.offer(&spec, &sender, &offer), RONDO_SUCCESS);
    on_devices(RD_RECEIVER);
    rondo_offer spoilt = offer;
    spoilt.data[VERSION]++;
    assert_int_equal(rd_transport_verbs.accept(&spec, &spoilt, &receiver, &answer), RONDO_MISMATCH);
    assert_non_null(strstr(rd_last_error(), "speaks version"));
    spoilt = offer;
    memset(spoilt.data + GID, 0x20, 12); /* an IPv6 address */
    assert_int_equal(rd_transport_verbs.accept(&spec, &spoilt, &receiver, &answer), RONDO_MISMATCH);
    assert_non_null(strstr(rd_last_error(), "neither reaches"));
    srand(1);
    int64_t deadline = rd_now() + LINK_DEADLINE_NS;
    for (int i = 0; i < TRIES; i++) {
        spoilt = offer;
        for (int k = 0; k <= i % 4; k++) spoilt.data[(unsigned)rand() % spoilt.bytes] = (unsigned char)rand();
        if (i % 8 == 0) spoilt.bytes = (uint32_t)rand() % 128;
        if (rd_transport_verbs.accept(&spec, &spoilt, &receiver, &answer) == RONDO_SUCCESS) receiver->ops->close(receiver);
    }
    assert_true(rd_now() < deadline);
    sender->ops->close(sender);
    rd_bell_close(&bell);
}

/* One sentence with what there is, what is needed, and the command. As a user who is no administrator. */
static int without_memory(void)
{
    const struct rlimit limit = {65536, 65536};
    on_devices(0);
    if (setrlimit(RLIMIT_MEMLOCK, &limit) || setgid(65534) || setuid(65534)) return 2;
    if (rd_transport_verbs.try_out() == RONDO_SUCCESS) return 3;
    fprintf(stderr, "%s\n", rd_last_error());
    return !strstr(rd_last_error(), "64 KiB") || !strstr(rd_last_error(), "ulimit -l");
}

static void test_memlock(void **state)
{
    (void)state;
    int status;
    if (getuid()) return; /* natively, perhaps: only an administrator can become somebody else */
    pid_t child = fork();
    if (!child) _exit(without_memory());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memlock),   cmocka_unit_test(test_registered_once), cmocka_unit_test(test_forked),
        cmocka_unit_test(test_all_kinds), cmocka_unit_test(test_notice),          cmocka_unit_test(test_withdrawn),
        cmocka_unit_test(test_wrong_key), cmocka_unit_test(test_spoilt_offers),
    };
    if (!getenv("RONDO_TEST_RDMA")) return fputs("RONDO_TEST_RDMA names no RDMA device\n", stderr), 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
