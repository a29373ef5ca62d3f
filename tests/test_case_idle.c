/* SPDX-License-Identifier: Apache-2.0
 *
 * case 40, first half: who waits for a late rank sleeps, in shared memory and over TCP. (The other half is a row of
 * bench/peers.)
 */
#include "test.h"

#include "ranks.h"

#include <unistd.h>

#define LATE_S  10.0
#define AWAKE_S 0.01 /* before it sleeps */

/* In a call that has its own part done, and in one that can't begin. */
static void wait_for_rank_1(rondo_comm *comm, int rank, int n, void *context)
{
    size_t count = *(const size_t *)context;
    float *data = malloc(count * sizeof *data);
    for (size_t i = 0; i < count; i++) data[i] = (float)(i % 97);
    CHECK(rondo_barrier(comm, NULL) == RONDO_SUCCESS, "%s", rondo_last_error(comm));
    double busy = test_processor_seconds(), began = test_seconds();
    if (rank == 1) usleep((useconds_t)(LATE_S * 1e6));
    CHECK(rondo_all_reduce(data, data, count, RONDO_FLOAT32, RONDO_SUM, comm, NULL) == RONDO_SUCCESS, "%s",
          rondo_last_error(comm));
    busy = test_processor_seconds() - busy;
    for (size_t i = 0; i < count; i++) CHECK(data[i] == (float)(n * (int)(i % 97)), "element %zu", i);
    if (rank == 0) {
        printf("%zu elements: %.2f %% of a core in %.1f s\n", count, busy * 100 / LATE_S, test_seconds() - began);
        CHECK(test_seconds() - began > 0.9 * LATE_S, "nobody was late");
        CHECK(busy < (AWAKE_S + 0.01 * LATE_S) * test_slowness(), "used %.3f s of a core in %g s", busy, LATE_S);
    }
    free(data);
}

static void case_40(void **state)
{
    (void)state;
    static const char *const transports[] = {"shm", "tcp"};
    static size_t counts[] = {2, 1 << 20};
    ranks worlds[4];
    for (int w = 0; w < 4; w++) {
        test_env("RONDO_TRANSPORT", transports[w / 2]);
        ranks_start(&worlds[w], 2, NULL, NULL, wait_for_rank_1, &counts[w % 2]);
    }
    for (int w = 0; w < 4; w++) {
        ranks_wait(&worlds[w], LATE_S + 20 * test_slowness());
        for (int r = 0; r < 2; r++) assert_int_equal(worlds[w].status[r], 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(case_40)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
