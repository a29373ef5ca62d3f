/* SPDX-License-Identifier: Apache-2.0
 *
 * The ring of ranks on GPUs goes where GPUs are joined: on simulated devices of which 0 and 1, and 2 and 3, have a link of
 * their own, whichever ranks use them; ranks on the host among them stay where they are near.
 */
#include "test.h"

#include "core/comm.h"
#include "on_cudasim.h"
#include "ranks.h"

#include <stdio.h>

enum { RANKS = 4 };

typedef struct layout {
    const char *device[RANKS];  /* RONDO_DEVICE */
    int joined[2][2];           /* pairs of ranks that must be neighbours; -1: no second pair */
} layout;

static void choose(int rank, void *context)
{
    test_env("RONDO_DEVICE", ((const layout *)context)->device[rank]);
}

static bool neighbours(const rondo_comm *comm, int a, int b)
{
    for (int i = 0; i < comm->size; i++) {
        int here = comm->order[i], next = comm->order[(i + 1) % comm->size];
        if ((here == a && next == b) || (here == b && next == a)) return true;
    }
    return false;
}

static void look(rondo_comm *comm, int rank, int n, void *context)
{
    const layout *l = context;
    for (int p = 0; p < 2 && l->joined[p][0] >= 0; p++)
        CHECK(neighbours(comm, l->joined[p][0], l->joined[p][1]), "rank %d: %d and %d are not neighbours: %d %d %d %d",
              rank, l->joined[p][0], l->joined[p][1], comm->order[0], comm->order[1], comm->order[2], comm->order[3]);
    float x = (float)(rank + 1);
    CHECK(rondo_all_reduce(&x, &x, 1, RONDO_FLOAT32, RONDO_SUM, comm, NULL) == RONDO_SUCCESS, "%s",
          rondo_last_error(comm));
    CHECK(x == (float)(n * (n + 1) / 2), "rank %d: %g", rank, (double)x);
}

/* In the order of the ranks 0 and 1 would be neighbours, and 2 and 3. */
static void pairs_of_gpus(void **state)
{
    static layout crossed = {{"0", "2", "1", "3"}, {{0, 2}, {1, 3}}}, outside = {{"0", "2", "3", "1"}, {{0, 3}, {1, 2}}};
    (void)state;
    ranks_run(RANKS, NULL, choose, look, &crossed);
    ranks_run(RANKS, NULL, choose, look, &outside);
}

static void one_on_the_host(void **state)
{
    static layout mixed = {{"0", "host", "1", "2"}, {{0, 2}, {-1, -1}}};
    (void)state;
    ranks_run(RANKS, NULL, choose, look, &mixed);
}

int main(int argc, char **argv)
{
    (void)argc;
    on_cudasim(argv, "devices=4 p2p=pairs");
    needs_cudasim("GPUs lie so");
    const struct CMUnitTest tests[] = {cmocka_unit_test(pairs_of_gpus), cmocka_unit_test(one_on_the_host)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
