/* SPDX-License-Identifier: Apache-2.0
 *
 * How often a rank polls before it yields: where ranks share a processor less, and on a ring not at all.
 */
#include "test.h"

#include "core/comm.h"
#include "ranks.h"

#include <sched.h>

/* All ranks on one processor. */
static void together(int rank, void *context)
{
    cpu_set_t all, one;
    int cpu = 0;
    (void)rank;
    (void)context;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0, "no processors");
    while (!CPU_ISSET(cpu, &all)) cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0, "not bound");
}

static void polls(rondo_comm *comm, int rank, int n, void *context)
{
    const long *expected = context;
    CHECK(comm->spin == expected[0] && comm->ring_spin == expected[1], "rank %d of %d polls %ld times, on a ring %ld, not %ld and %ld",
          rank, n, comm->spin, comm->ring_spin, expected[0], expected[1]);
}

static void run(const char *name, const char *value, long flat, long ring)
{
    long expected[] = {flat, ring};
    test_env(name, value);
    ranks_run(2, NULL, together, polls, expected);
    test_env(name, NULL);
}

static void ranks_that_share_a_processor(void **state)
{
    (void)state;
    run("RONDO_TRANSPORT", "shm", 2, 0);
    run("RONDO_SPIN", "7", 7, 7);
}

static void a_processor_each(void **state)
{
    long expected[] = {1000, 1000};
    (void)state;
    cpu_set_t all;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    if (CPU_COUNT(&all) < 2) skip();
    ranks_run(2, NULL, NULL, polls, expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_share_a_processor),
        cmocka_unit_test(a_processor_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
