/* SPDX-License-Identifier: Apache-2.0
 *
 * Where payload lies when the executor moves it over sockets: sends leave the user's memory, what replaces lands in it,
 * what is added lands in one scratch of at most 256 KiB. What moves bytes is wrapped (by the linker) to see.
 */
#include "test.h"

#include "base/dtype.h"
#include "world.h"

#include <sys/socket.h>
#include <sys/uio.h>

#define N 3
#define HEADER 32

ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __real_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_send(int fd, const void *from, size_t bytes, int flags);
ssize_t __wrap_recv(int fd, void *to, size_t bytes, int flags);

typedef struct area {
    const unsigned char *from;
    size_t bytes;
} area;

/* Payload seen so far, by where it lay and by direction: 0 sent, 1 received. */
static struct {
    area user[2 * N], scratch[N];
    size_t in_user[2], in_scratch[2], elsewhere[2];
    int sends, asked_first; /* calls; of them receives before the first send */
} seen;

static bool within(const area *areas, int count, const struct iovec *v)
{
    const unsigned char *at = v->iov_base;
    for (int i = 0; i < count; i++)
        if (at >= areas[i].from && at + v->iov_len <= areas[i].from + areas[i].bytes) return true;
    return false;
}

/* Of the first `moved` bytes. What is no longer than a header and lies elsewhere is (part of) one. */
static void look(const struct msghdr *message, ssize_t moved, int direction)
{
    for (size_t i = 0; i < (size_t)message->msg_iovlen && moved > 0; i++) {
        struct iovec v = message->msg_iov[i];
        if ((ssize_t)v.iov_len > moved) v.iov_len = (size_t)moved;
        moved -= (ssize_t)v.iov_len;
        if (within(seen.user, 2 * N, &v)) seen.in_user[direction] += v.iov_len;
        else if (within(seen.scratch, N, &v)) seen.in_scratch[direction] += v.iov_len;
        else if (v.iov_len > HEADER) seen.elsewhere[direction] += v.iov_len;
    }
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
    ssize_t moved = __real_sendmsg(fd, message, flags);
    seen.sends++;
    look(message, moved, 0);
    return moved;
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags)
{
    ssize_t moved = __real_recvmsg(fd, message, flags);
    if (!seen.sends) seen.asked_first++;
    look(message, moved, 1);
    return moved;
}

#include "one_piece.h" /* send and recv, by way of these two */

/* Runs the call out of place and leaves in `seen` where its payload lay. */
static void run(rondo_collective collective, rondo_dtype dtype, uint64_t count)
{
    static world w;
    size_t bytes = count * rd_dtype_bytes(dtype);
    world_options o = {.n = N, .channels = 1, .slice_bytes = 262144, .transport = world_tcp};
    world_call c = {.collective = collective, .dtype = dtype, .op = RONDO_SUM, .count = count};
    memset(&seen, 0, sizeof seen);
    world_open(&w, &o);
    for (int r = 0; r < N; r++) {
        c.send[r] = calloc(1, bytes);
        c.recv[r] = calloc(1, bytes);
        seen.user[2 * r] = (area){c.send[r], bytes};
        seen.user[2 * r + 1] = (area){c.recv[r], bytes};
        seen.scratch[r] = (area){w.wiring[r].scratch[0], 262144};
    }
    world_run(&w, &c, count);
    assert_int_equal(seen.elsewhere[0] + seen.elsewhere[1], 0);
    for (int r = 0; r < N; r++) {
        free((void *)(uintptr_t)c.send[r]);
        free(c.recv[r]);
    }
    world_close(&w);
}

/* Chunks of 700,001 elements: several slices, the last one short. */
#define COUNT (UINT64_C(700001) * N)

static void test_all_reduce(void **state)
{
    (void)state;
    run(RONDO_COLL_ALL_REDUCE, RONDO_FLOAT32, COUNT);
    assert_int_equal(seen.asked_first, 0); /* nobody waits for a call that can bring nothing yet */
    size_t phase = (N - 1) * COUNT * 4; /* of all ranks together: each moves (N-1)/N of the message */
    assert_int_equal(seen.in_user[0], 2 * phase);
    assert_int_equal(seen.in_scratch[0], 0);
    assert_int_equal(seen.in_scratch[1], phase);
    assert_int_equal(seen.in_user[1], phase);
}

static void test_moves(void **state)
{
    (void)state;
    run(RONDO_COLL_ALL_GATHER, RONDO_FLOAT32, COUNT);
    assert_int_equal(seen.in_user[0], (N - 1) * COUNT * 4);
    assert_int_equal(seen.in_user[1], (N - 1) * COUNT * 4);
    run(RONDO_COLL_BROADCAST, RONDO_FLOAT32, COUNT);
    assert_int_equal(seen.in_user[0], (N - 1) * COUNT * 4);
    assert_int_equal(seen.in_user[1], (N - 1) * COUNT * 4);
}

/* Partial sums without a place in the user's memory: the first hop leaves it, the others leave the scratch. */
static void test_partial_sums(void **state)
{
    (void)state;
    run(RONDO_COLL_REDUCE_SCATTER, RONDO_FLOAT32, COUNT);
    assert_int_equal(seen.in_user[0], COUNT * 4);
    assert_int_equal(seen.in_scratch[0], (N - 2) * COUNT * 4);
    assert_int_equal(seen.in_scratch[1], (N - 1) * COUNT * 4);
    run(RONDO_COLL_ALL_REDUCE, RONDO_BFLOAT16, COUNT);
    assert_int_equal(seen.in_user[0], COUNT * 2 + (N - 1) * COUNT * 2);
    assert_int_equal(seen.in_scratch[0], (N - 2) * COUNT * 4);
    assert_int_equal(seen.in_scratch[1], COUNT * 2 + (N - 2) * COUNT * 4);
    assert_int_equal(seen.in_user[1], (N - 1) * COUNT * 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_reduce),
        cmocka_unit_test(test_moves),
        cmocka_unit_test(test_partial_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
