/* SPDX-License-Identifier: Apache-2.0
 *
 * test_link_tcp.c - what only a socket link does. What moves bytes is wrapped (by the linker), so that the test sees
 * every call: where its parts lie, how long they are, and what happens when it moves little or nothing.
 */
#include "link_kit.h"

#include "base/status.h"
#include "test.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEADER = 32, LETTER = 4096, MAGIC = 0x524e0002, LARGE = 256 * 1024 };

/* ---- Wrapped calls ---- */

static struct {
    const unsigned char *memory; /* where payload may lie; NULL: not looked at */
    size_t bytes;
    bool cut;                    /* calls move less than asked, or nothing */
    uint64_t random;
    int calls, again, strayed, too_long, signals;
} watch;

ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __real_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_send(int fd, const void *from, size_t bytes, int flags);
ssize_t __wrap_recv(int fd, void *to, size_t bytes, int flags);

/* A part is payload in the caller's memory, or (a rest of) a header, or of one with a short payload. */
static void look(const struct msghdr *message)
{
    size_t payload = 0;
    for (size_t i = 0; i < message->msg_iovlen; i++) {
        const unsigned char *at = message->msg_iov[i].iov_base;
        size_t length = message->msg_iov[i].iov_len;
        if (at >= watch.memory && at + length <= watch.memory + watch.bytes) payload += length;
        else if (length > HEADER + LETTER) watch.strayed++;
    }
    watch.too_long += payload > LARGE;
    watch.calls++;
}

/* Cuts the message to its first few bytes: 0 of them is EAGAIN or EINTR. */
static bool cut(struct msghdr *message, struct iovec *iov)
{
    size_t left = (size_t)(link_signature(watch.random++) % 40), n = 0;
    if (left % 10 == 0) left *= 1000;
    for (; n < message->msg_iovlen && left; n++) {
        iov[n] = message->msg_iov[n];
        if (iov[n].iov_len > left) iov[n].iov_len = left;
        left -= iov[n].iov_len;
    }
    message->msg_iov = iov;
    message->msg_iovlen = n;
    return n > 0;
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
    struct iovec iov[16];
    struct msghdr less = *message;
    if (watch.memory) look(message);
    if (!(flags & MSG_NOSIGNAL)) watch.signals++;
    if (watch.cut && !cut(&less, iov)) return errno = watch.random % 2 ? EAGAIN : EINTR, -1;
    ssize_t moved = __real_sendmsg(fd, &less, flags);
    watch.again += moved < 0;
    return moved;
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags)
{
    struct iovec iov[16];
    struct msghdr less = *message;
    if (watch.memory) look(message);
    if (watch.cut && !cut(&less, iov)) return errno = watch.random % 2 ? EAGAIN : EINTR, -1;
    ssize_t moved = __real_recvmsg(fd, &less, flags);
    watch.again += moved < 0;
    return moved;
}

#include "one_piece.h" /* send and recv, by way of these two */

/* ---- Tests ---- */

static const struct link_kind one = {.name = "tcp", .transport = &rd_transport_tcp, .sockets = 1};
static const struct link_kind three = {.name = "tcp", .transport = &rd_transport_tcp, .sockets = 3};

static uint64_t poll_count(rondo_link *link)
{
    uint64_t count = 0;
    link->ops->poll(link, &count);
    return count;
}

static void flow(const struct link_kind *kind, size_t slot_bytes, uint64_t total)
{
    struct link_pair pair;
    struct link_flow flows[2];
    link_pair_open(&pair, kind, 4, slot_bytes);
    unsigned char *memory = malloc(2 * 4 * slot_bytes);
    for (int side = 0; side < 2; side++) {
        link_flow_open(&flows[side], &pair, side, total);
        free(flows[side].pool);
        flows[side].pool = memory + (size_t)side * 4 * slot_bytes;
    }
    watch.memory = memory;
    watch.bytes = 2 * 4 * slot_bytes;
    int64_t deadline = rd_now() + LINK_DEADLINE_NS;
    while (!(link_flow_over(&flows[0]) && link_flow_over(&flows[1])) && rd_now() < deadline)
        for (int side = 0; side < 2; side++)
            if (!link_flow_over(&flows[side])) link_flow_step(&flows[side]);
    for (int side = 0; side < 2; side++) {
        assert_string_equal(flows[side].trouble, "");
        assert_int_equal(flows[side].moved, total);
    }
    assert_in_range(watch.calls, 1, INT32_MAX);
    assert_int_equal(watch.strayed, 0);
    assert_int_equal(watch.too_long, 0);
    assert_int_equal(watch.signals, 0);
    link_pair_close(&pair);
    free(memory);
    memset(&watch, 0, sizeof watch);
}

/* No copy is made: every byte of more than LETTER goes from and to the caller's memory. */
static void test_payload_in_place(void **state)
{
    (void)state;
    flow(&one, LARGE, 300);
    flow(&three, LARGE, 300);
    flow(&one, 64, 3000);
    flow(&one, LETTER, 1000);
    flow(&three, LETTER + 64, 1000);
}

static void test_large_slots(void **state)
{
    (void)state;
    flow(&one, 1 << 20, 40); /* in pieces */
    flow(&three, 1 << 20, 40);
}

/* Calls that move a few bytes, or say EAGAIN or EINTR, at any place of header and payload. */
static void test_short_calls(void **state)
{
    (void)state;
    watch.cut = true;
    flow(&one, 256, 1500);
    watch.cut = true;
    flow(&three, 4096, 600);
}

/* A small slice leaves with send itself, by one call; nothing is asked in vain, and nothing is asked again before poll
 * once the socket is full. */
static void test_calls_are_few(void **state)
{
    (void)state;
    struct link_pair pair;
    static unsigned char memory[8][LARGE];
    link_pair_open(&pair, &one, 8, LARGE);
    rondo_link *sender = pair.ends[RD_SENDER];
    watch.memory = memory[0];
    watch.bytes = sizeof memory;
    for (int n = 0; n < 5; n++) assert_int_equal(sender->ops->send(sender, memory[n], 100, 1), RONDO_LINK_OK);
    assert_int_equal(watch.calls, 5);
    assert_int_equal(poll_count(sender), 5);
    assert_int_equal(watch.calls, 5);
    uint64_t sent = 5;
    for (int idle = 0; idle < 50; idle++) {
        while (sender->ops->send(sender, memory[sent % 8], LARGE, 1) == RONDO_LINK_OK) sent++;
        uint64_t before = poll_count(sender);
        if (before == sent) idle = 0;
        usleep(1000);
    }
    assert_true(poll_count(sender) < sent);
    watch.calls = 0;
    assert_int_equal(sender->ops->send(sender, memory[0], 1, 1), RONDO_LINK_AGAIN);
    assert_int_equal(watch.calls, 0);
    poll_count(sender);
    assert_int_equal(watch.calls, 1);
    link_pair_close(&pair);
    memset(&watch, 0, sizeof watch);
}

/* What nobody has asked for stays in the socket. Several posted slices come in one call. */
static void test_reads_no_further(void **state)
{
    (void)state;
    struct link_pair pair = {.kind = &one};
    unsigned char memory[6][100], got[6][100];
    int left, fds[2][1];
    rondo_link_spec specs[2];
    rondo_offer offer, answer;
    link_sockets(fds[0], fds[1], 1);
    int spy = dup(fds[1][0]);
    for (int side = 0; side < 2; side++)
        specs[side] = (rondo_link_spec){.me = side, .peer = !side, .slots = 8, .slot_bytes = 4096, .socket_count = 1,
                                        .sockets = {fds[side][0]}};
    assert_int_equal(rd_transport_tcp.offer(&specs[0], &pair.ends[0], &offer), RONDO_SUCCESS);
    assert_int_equal(rd_transport_tcp.accept(&specs[1], &offer, &pair.ends[1], &answer), RONDO_SUCCESS);
    assert_int_equal(rd_transport_tcp.complete(pair.ends[0], &answer), RONDO_SUCCESS);
    for (uint64_t n = 0; n < 6; n++) {
        link_fill(memory[n], n, 100);
        assert_int_equal(link_put(pair.ends[0], n, memory[n], 100), RONDO_LINK_OK);
    }
    rondo_link *receiver = pair.ends[1];
    assert_int_equal(link_get(receiver, 0, got[0], 100, link_signature(0)), RONDO_LINK_OK);
    poll_count(receiver);
    assert_int_equal(ioctl(spy, FIONREAD, &left), 0);
    assert_int_equal(left, 5 * (HEADER + 100));
    for (uint64_t n = 1; n < 4; n++)
        assert_int_equal(receiver->ops->recv(receiver, got[n], 100, link_signature(n)), RONDO_LINK_OK);
    watch.memory = got[0];
    watch.bytes = sizeof got;
    assert_int_equal(poll_count(receiver), 4);
    assert_int_equal(watch.calls, 1);
    memset(&watch, 0, sizeof watch);
    assert_int_equal(ioctl(spy, FIONREAD, &left), 0);
    assert_int_equal(left, 2 * (HEADER + 100));
    for (uint64_t n = 0; n < 4; n++) assert_true(link_filled(got[n], n, 100));
    link_pair_close_end(&pair, 0);
    link_pair_close_end(&pair, 1);
    close(spy);
}

/* A receiver, and the bare socket of its peer. */
static int bare_peer(struct link_pair *pair)
{
    int fds[2][1];
    rondo_offer offer = {.bytes = 16}, answer;
    uint32_t words[4] = {htole32(2), htole32(1), htole32(4096), 0};
    memcpy(offer.data, words, sizeof words);
    link_sockets(fds[0], fds[1], 1);
    rondo_link_spec spec = {.me = 1, .peer = 3, .slots = 4, .slot_bytes = 4096, .socket_count = 1,
                            .sockets = {fds[1][0]}};
    *pair = (struct link_pair){.kind = &one};
    assert_int_equal(rd_transport_tcp.accept(&spec, &offer, &pair->ends[1], &answer), RONDO_SUCCESS);
    assert_int_equal(fcntl(fds[0][0], F_SETFL, 0), 0);
    return fds[0][0];
}

static void put_header(unsigned char to[HEADER], uint64_t signature, uint64_t slice, uint32_t bytes, uint32_t magic)
{
    uint64_t words[2] = {htole64(signature), htole64(slice)};
    uint32_t halves[2] = {htole32(bytes), htole32(magic)};
    memcpy(to, words, 16);
    memcpy(to + 16, halves, 8);
    memset(to + 24, 0, 8);
}

static void check_end(const unsigned char *bytes, size_t length, bool reset, rondo_link_result expected,
                      const char *says)
{
    struct link_pair pair;
    unsigned char got[100];
    int fd = bare_peer(&pair);
    struct linger hard = {.l_onoff = 1};
    if (reset) setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    assert_int_equal(send(fd, bytes, length, 0), length);
    if (reset) usleep(20000);
    close(fd);
    uint64_t count;
    assert_int_equal(link_get(pair.ends[1], 0, got, 100, 7), expected);
    assert_int_equal(pair.ends[1]->ops->poll(pair.ends[1], &count), expected); /* and stays so */
    assert_int_equal(count, 0);
    assert_non_null(strstr(rd_last_error(), says));
    if (expected == RONDO_LINK_BROKEN) {
        assert_non_null(strstr(rd_last_error(), "rank 3 at 127.0.0.1:"));
    }
    link_pair_close_end(&pair, 1);
}

static void test_ends(void **state)
{
    (void)state;
    unsigned char frame[HEADER + 100] = {0};
    put_header(frame, 7, 0, 100, MAGIC);
    rd_fail(RONDO_SUCCESS, "%s", "");
    check_end(frame, 0, false, RONDO_LINK_CLOSED, "");
    check_end(frame, 1, false, RONDO_LINK_BROKEN, "in the middle of a slice");
    check_end(frame, HEADER, false, RONDO_LINK_BROKEN, "in the middle of a slice");
    check_end(frame, HEADER + 99, false, RONDO_LINK_BROKEN, "in the middle of a slice");
    check_end(frame, HEADER + 50, true, RONDO_LINK_BROKEN, "reset by peer");
    put_header(frame, 7, 0, 100, MAGIC + 1); /* another version */
    check_end(frame, HEADER + 100, false, RONDO_LINK_BROKEN, "not the next slice");
    put_header(frame, 7, 1, 100, MAGIC);
    check_end(frame, HEADER + 100, false, RONDO_LINK_BROKEN, "not the next slice");
    put_header(frame, 7, 0, UINT32_MAX, MAGIC);
    check_end(frame, HEADER + 100, false, RONDO_LINK_MISMATCH, "");
    put_header(frame, 8, 0, 100, MAGIC);
    check_end(frame, HEADER, false, RONDO_LINK_MISMATCH, "");
}

/* A socket that stays readable, but for which nothing is posted, does not keep its rank awake. */
static void test_unwanted_data_lets_sleep(void **state)
{
    (void)state;
    struct link_pair pair;
    unsigned char memory[2][100] = {{0}}, got[100];
    link_pair_open(&pair, &one, 4, 4096);
    assert_int_equal(link_put(pair.ends[0], 0, memory[0], 100), RONDO_LINK_OK);
    assert_int_equal(link_put(pair.ends[0], 1, memory[1], 100), RONDO_LINK_OK);
    assert_int_equal(link_get(pair.ends[1], 0, got, 100, link_signature(0)), RONDO_LINK_OK);
    for (int i = 0; i < 3; i++)
        assert_true(link_nap(pair.ends[1], &pair.bells[1], 1, 20000000) >= 15000000);
    link_pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_payload_in_place),
        cmocka_unit_test(test_large_slots),
        cmocka_unit_test(test_short_calls),
        cmocka_unit_test(test_calls_are_few),
        cmocka_unit_test(test_reads_no_further),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_unwanted_data_lets_sleep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
