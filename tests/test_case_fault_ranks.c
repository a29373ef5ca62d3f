/* SPDX-License-Identifier: Apache-2.0
 *
 * Cases 1, 3, 6 and 7 between processes whose links are made worse after they were connected, with waits that sleep at
 * once; and what each rank says when one end of a link fails.
 */
#include "test.h"

#include "core/comm.h"
#include "transport/transport.h"
#include "trial.h"
#include "world.h"

/* ---- Worse links, right results ---- */

static void make_worse(rondo_comm *comm, uint64_t seed)
{
    for (int i = 0; i < comm->size * RD_MAX_CHANNELS; i++)
        for (int end = 0; end < 2; end++) {
            rd_wire *wire = end ? &comm->in[i] : &comm->out[i];
            uint64_t draw = mix(seed * 1000 + (uint64_t)comm->rank, (uint64_t)(2 * i + end));
            struct rd_fault fault = {.seed = draw, .again = draw & 1 ? (double)(draw >> 8 & 511) / 600 : 0,
                                     .delay = draw & 2 ? (uint32_t)(draw >> 20) % 6 : 0,
                                     .bytes_per_second = (draw & 60) == 4 ? 200000000 : 0};
            if (!wire->link) continue;
            wire->link = rd_fault_wrap(wire->link, &fault);
            CHECK(wire->link, "%s", rondo_last_error(NULL));
        }
}

static void worse_rank(rondo_comm *comm, int rank, int n, void *context)
{
    (void)rank;
    uint64_t seed = *(const uint64_t *)context, un = (uint64_t)n;
    make_worse(comm, seed);
    trial large = {.collective = RONDO_COLL_ALL_REDUCE, .dtype = RONDO_FLOAT32, .count = 105565, .in_place = true};
    trial_run(&large, comm);
    large.shared = seed + 1;
    trial_run(&large, comm);
    for (uint64_t k = 0; k < 40; k++) {
        uint64_t draw = mix(seed, k), slices = 1024 * un * (draw >> 8 & 3) + (draw >> 10 & 1);
        trial t = trial_draw(draw, n, draw & 1 ? (draw >> 8) % (2 * un + 2) : slices);
        trial_run(&t, comm);
        t.count = 0;
        SUCCEEDS(trial_call(&t, NULL, NULL, comm), comm);
    }
    rondo_comm_destroy(comm);
}

static void case_fault_links(void **state)
{
    (void)state;
    test_env("RONDO_SLICE", "4096");
    test_env("RONDO_SPIN", "0");
    for (uint64_t seed = 0; seed < (test_slowness() > 1 ? 2 : 6); seed++)
        for (int w = 0; w < WAYS; w++) {
            way_take(&ways[w]);
            test_env("RONDO_CHANNELS", seed % 2 ? "2" : NULL);
            ranks_run(2 + (int)seed % 4, NULL, NULL, worse_rank, &seed);
        }
    test_env("RONDO_SLICE", NULL);
    test_env("RONDO_SPIN", NULL);
    test_env("RONDO_CHANNELS", NULL);
}

/* ---- A link that fails ---- */

typedef struct failure {
    const struct way *way;
    bool sending;  /* which end of rank 1's links fails */
    rondo_link_result with;
    uint64_t at;
} failure;

static void failing_rank(rondo_comm *comm, int rank, int n, void *context)
{
    const failure *f = context;
    rondo_result r = RONDO_SUCCESS;
    char peer[32], first[RD_ERROR_BYTES];
    for (int i = 0; rank == 1 && i < comm->size * RD_MAX_CHANNELS; i++) {
        rd_wire *wire = f->sending ? &comm->out[i] : &comm->in[i];
        struct rd_fault fault = {.fail_at = f->at, .fail_with = f->with};
        if (wire->link) CHECK(wire->link = rd_fault_wrap(wire->link, &fault), "%s", rondo_last_error(NULL));
    }
    static float data[20000];
    for (int k = 0; r == RONDO_SUCCESS && k < 1000; k++)
        r = rondo_all_reduce(data, data, 20000, RONDO_FLOAT32, RONDO_SUM, comm, NULL);
    CHECK(r == RONDO_REMOTE_ERROR, "rank %d of %d: %s: %s", rank, n, rondo_result_string(r), rondo_last_error(comm));
    snprintf(first, sizeof first, "%s", rondo_last_error(comm));
    const rd_wire *ring = f->sending ? comm->wiring.ring_out[0] : comm->wiring.ring_in[0];
    snprintf(peer, sizeof peer, "link with rank %d", ring->link->peer);
    if (rank == 1 && (f->way == &ways[WAY_RING] || f->way == &ways[WAY_TCP]))
        CHECK(strstr(first, peer), "\"%s\" lacks \"%s\"", first, peer);
    if (rank == 1) CHECK(strstr(first, f->way->transport), "\"%s\" lacks %s", first, f->way->transport);
    if (rank == 1 && f->with == RONDO_LINK_BROKEN)
        CHECK(strstr(first, "as the fault wrapper"), "\"%s\" lacks the reason", first);
    if (rank != 1) CHECK(strstr(first, "rank 1"), "rank %d: \"%s\" does not name rank 1", rank, first);
    CHECK(rondo_barrier(comm, NULL) == r, "the error did not stay");
    CHECK(!strcmp(first, rondo_last_error(comm)), "first \"%s\", then \"%s\"", first, rondo_last_error(comm));
    rondo_comm_destroy(comm);
}

static void case_fault_failing_link(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++)
        for (int k = 0; k < (w == WAY_TCP ? 4 : 2); k++) { /* each takes a second: the rank waits for a better reason */
            failure f = {&ways[w], k & 1, (k + w) & 2 ? RONDO_LINK_CLOSED : RONDO_LINK_BROKEN, k == w ? 1 : 37};
            way_take(&ways[w]);
            ranks_run(4, NULL, NULL, failing_rank, &f);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_fault_links),
        cmocka_unit_test(case_fault_failing_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
