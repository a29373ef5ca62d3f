/* SPDX-License-Identifier: Apache-2.0
 *
 * test_reach.c - a peer that seems to share the host, and that no unix socket reaches: links to it are made as to
 * another host's, at the start and on demand, and it is tried once. Connections for links fail here as the linker is
 * told to give them to this file (Makefile: LDFLAGS_test_reach).
 */
#include "ranks.h"
#include "test.h"

#include "base/status.h"
#include "boot/boot.h"

enum { RANKS = 3, COUNT = 5000 };

#define OK(call) CHECK((call) == RONDO_SUCCESS, "%s", rondo_last_error(NULL))

rondo_result __real_rd_member_connect(rd_member *, int, int, int, int, int64_t, int *);
rondo_result __wrap_rd_member_connect(rd_member *, int, int, int, int, int64_t, int *);
rondo_result __real_rd_member_visit(rd_member *, int, int, int, int64_t, int *);
rondo_result __wrap_rd_member_visit(rd_member *, int, int, int, int64_t, int *);

/* Of this process's connections for links. */
static bool unix_fails, network_fails;
static int failed[RANKS]; /* by peer */

static bool fails(int peer, int over)
{
    bool now = over == RD_OVER_UNIX ? unix_fails : network_fails;
    if (now) failed[peer]++;
    return now;
}

rondo_result __wrap_rd_member_connect(rd_member *member, int peer, int purpose, int index, int over, int64_t deadline,
                                      int *fd)
{
    if (fails(peer, over)) return rd_fail(RONDO_REMOTE_ERROR, "planted");
    return __real_rd_member_connect(member, peer, purpose, index, over, deadline, fd);
}

rondo_result __wrap_rd_member_visit(rd_member *member, int peer, int index, int over, int64_t deadline, int *fd)
{
    if (fails(peer, over)) return rd_fail(RONDO_REMOTE_ERROR, "planted");
    return __real_rd_member_visit(member, peer, index, over, deadline, fd);
}

static int32_t value(int rank, int i)
{
    return rank * 100003 + i * 7;
}

static void sum(rondo_comm *comm, int rank)
{
    static int32_t x[COUNT];
    for (int i = 0; i < COUNT; i++) x[i] = value(rank, i);
    OK(rondo_all_reduce(x, x, COUNT, RONDO_INT32, RONDO_SUM, comm, NULL));
    for (int i = 0; i < COUNT; i++)
        CHECK(x[i] == value(0, i) + value(1, i) + value(2, i), "number %d of the sum is %d", i, x[i]);
}

/* Messages from rank 0 to each of the others, then a collective that has links on demand of its own. */
static void scatter(rondo_comm *comm, int rank)
{
    static int32_t x[COUNT], all[RANKS * COUNT];
    for (int i = 0; i < COUNT; i++) x[i] = value(rank, i);
    for (int peer = 1; peer < RANKS; peer++) {
        if (rank == 0) OK(rondo_send(x, COUNT, RONDO_INT32, peer, comm, NULL));
        if (rank == peer) OK(rondo_recv(x, COUNT, RONDO_INT32, 0, comm, NULL));
    }
    for (int i = 0; i < COUNT; i++) CHECK(x[i] == value(0, i), "number %d of the message is %d", i, x[i]);
    for (int i = 0; i < RANKS * COUNT; i++) all[i] = value(i / COUNT + 5, i % COUNT);
    OK(rondo_scatter(all, x, COUNT, RONDO_INT32, 0, comm, NULL));
    for (int i = 0; i < COUNT; i++) CHECK(x[i] == value(rank + 5, i), "number %d of rank's part is %d", i, x[i]);
}

static void check_tried_once(int rank)
{
    for (int peer = 0; peer < RANKS; peer++) {
        int expected = rank == 0 && peer != 0;
        CHECK(failed[peer] == expected, "rank %d tried rank %d by a unix socket %d times", rank, peer, failed[peer]);
    }
}

/* What the start has found holds for links on demand, too. */
static void fail_at_once(int rank, void *context)
{
    (void)context;
    unix_fails = rank == 0;
}
static void all_calls(rondo_comm *comm, int rank, int n, void *context)
{
    (void)n, (void)context;
    sum(comm, rank);
    unix_fails = rank == 0; /* from now on, where it did not from the start */
    scatter(comm, rank);
    sum(comm, rank);
    check_tried_once(rank);
}
static void at_the_start(void **state)
{
    (void)state;
    ranks_run(RANKS, NULL, fail_at_once, all_calls, NULL);
}

static void on_demand(void **state)
{
    (void)state;
    ranks_run(RANKS, NULL, NULL, all_calls, NULL);
}

/* Where nothing else is allowed, it says what the nearest way came to; and what failed over the network has no other.
 */
static void in_vain(rondo_comm *comm, int rank, int n, void *context)
{
    const char *expected = context;
    int32_t x = value(rank, 0);
    (void)n;
    if (rank > 1) return;
    unix_fails = network_fails = true;
    rondo_result result =
        rank ? rondo_recv(&x, 1, RONDO_INT32, 0, comm, NULL) : rondo_send(&x, 1, RONDO_INT32, 1, comm, NULL);
    CHECK(result == RONDO_REMOTE_ERROR, "%s", rondo_result_string(result));
    if (rank) return;
    CHECK(strstr(rondo_last_error(comm), expected), "no '%s' in: %s", expected, rondo_last_error(comm));
    CHECK(failed[1] == 1, "rank 1 was tried %d times", failed[1]);
}
static void no_other_way(void **state)
{
    (void)state;
    char near[] = "tried as one host: planted", far[] = "planted";
    test_env("RONDO_TRANSPORT", "shm");
    ranks_run(RANKS, NULL, NULL, in_vain, near);
    test_env("RONDO_TRANSPORT", "tcp");
    ranks_run(RANKS, NULL, NULL, in_vain, far);
    test_env("RONDO_TRANSPORT", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_the_start),
        cmocka_unit_test(on_demand),
        cmocka_unit_test(no_other_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
