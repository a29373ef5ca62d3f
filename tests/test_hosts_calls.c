/* SPDX-License-Identifier: Apache-2.0
 *
 * test_hosts_calls [ROUNDS [SEED]] - every kind of call, its results checked. As a test of its own: three ranks of this
 * host. Started as the rank of a job (RANK is set), it is what tests/test_hosts*.sh run on several hosts.
 */
#include "test.h"

#include "base/dtype.h"
#include "trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rounds = 24;
static uint64_t first_seed = 1;

static uint32_t number(int from, int to, size_t i)
{
    return (uint32_t)from * 1000003u + (uint32_t)to * 10007u + (uint32_t)i;
}

static void collectives(rondo_comm *comm)
{
    static const size_t counts[] = {0, 1, 5, 1000, 4096, 70001, 300007};
    int n = rondo_comm_size(comm);
    for (int i = 0; i < rounds; i++) {
        trial t = trial_draw(first_seed + (uint64_t)i, n, counts[(size_t)i % (sizeof counts / sizeof *counts)]);
        trial_run(&t, comm);
    }
}

/* Sums that depend on the order: the same bits on all ranks, and again. */
static void same_bits(rondo_comm *comm)
{
    enum { COUNT = 100003 };
    static const rondo_dtype types[] = {RONDO_FLOAT32, RONDO_BFLOAT16, RONDO_FLOAT16};
    int rank = rondo_comm_rank(comm), n = rondo_comm_size(comm);
    unsigned char *bits[2] = {malloc(COUNT * 4), malloc(COUNT * 4)}, *send = malloc(COUNT * 4),
                  *all = malloc(COUNT * 4);
    for (int t = 0; t < 3; t++) {
        size_t b = rd_dtype_bytes(types[t]);
        srand((unsigned)(rank + 1));
        for (size_t i = 0; i < COUNT; i++) {
            float x = (float)rand() / (float)RAND_MAX;
            uint32_t word;
            memcpy(&word, &x, 4);
            if (types[t] == RONDO_BFLOAT16) word >>= 16;
            if (types[t] == RONDO_FLOAT16) word = 0x3800u | (word >> 13 & 0x3ff);
            memcpy(send + i * b, &word, b);
        }
        for (int again = 0; again < 2; again++)
            SUCCEEDS(rondo_all_reduce(send, bits[again], COUNT, types[t], RONDO_SUM, comm, NULL), comm);
        CHECK(memcmp(bits[0], bits[1], COUNT * b) == 0, "type %d: other bits the second time", types[t]);
        memcpy(all, bits[0], COUNT * b);
        SUCCEEDS(rondo_broadcast(all, all, COUNT * b, RONDO_UINT8, n - 1, comm, NULL), comm);
        CHECK(memcmp(all, bits[0], COUNT * b) == 0, "type %d: rank %d has other bits than rank %d", types[t], rank,
              n - 1);
    }
    free(bits[0]);
    free(bits[1]);
    free(send);
    free(all);
}

static void straight(rondo_comm *comm)
{
    enum { COUNT = 20011 };
    int rank = rondo_comm_rank(comm), n = rondo_comm_size(comm), root = n / 2;
    size_t all = (size_t)n * COUNT;
    uint32_t *send = malloc(all * 4), *recv = malloc(all * 4);
    for (size_t i = 0; i < all; i++) send[i] = number(rank, (int)(i / COUNT), i % COUNT);
    SUCCEEDS(rondo_all_to_all(send, recv, COUNT, RONDO_UINT32, comm, NULL), comm);
    for (size_t i = 0; i < all; i++)
        CHECK(recv[i] == number((int)(i / COUNT), rank, i % COUNT), "all-to-all, element %zu", i);
    SUCCEEDS(rondo_gather(send, recv, COUNT, RONDO_UINT32, root, comm, NULL), comm);
    for (size_t i = 0; rank == root && i < all; i++)
        CHECK(recv[i] == number((int)(i / COUNT), 0, i % COUNT), "gather, element %zu", i);
    SUCCEEDS(rondo_scatter(send, recv, COUNT, RONDO_UINT32, root, comm, NULL), comm);
    for (size_t i = 0; i < COUNT; i++) CHECK(recv[i] == number(root, rank, i), "scatter, element %zu", i);
    SUCCEEDS(rondo_barrier(comm, NULL), comm);
    /* Messages between any two, over links that are made for them. */
    SUCCEEDS(rondo_group_start(), comm);
    for (int peer = 0; peer < n; peer++) {
        SUCCEEDS(rondo_send(send + (size_t)peer * COUNT, COUNT, RONDO_UINT32, peer, comm, NULL), comm);
        SUCCEEDS(rondo_recv(recv + (size_t)peer * COUNT, COUNT, RONDO_UINT32, peer, comm, NULL), comm);
    }
    SUCCEEDS(rondo_group_end(), comm);
    for (size_t i = 0; i < all; i++)
        CHECK(recv[i] == number((int)(i / COUNT), rank, i % COUNT), "messages, element %zu", i);
    free(send);
    free(recv);
}

static void all_calls(rondo_comm *comm, int rank, int n, void *context)
{
    rondo_comm *half = NULL;
    (void)context;
    collectives(comm);
    same_bits(comm);
    straight(comm);
    SUCCEEDS(rondo_comm_split(comm, rank % 2, n - rank, &half, NULL), comm);
    trial_still_works(half, 5);
    same_bits(half);
    rondo_comm_destroy(half);
}

static void on_one_host(void **state)
{
    (void)state;
    ranks_run(3, NULL, NULL, all_calls, NULL);
}

static int as_rank(void)
{
    rondo_comm *comm;
    CHECK(rondo_init_env(&comm, NULL) == RONDO_SUCCESS, "%s", rondo_last_error(NULL));
    all_calls(comm, rondo_comm_rank(comm), rondo_comm_size(comm), NULL);
    SUCCEEDS(rondo_comm_destroy(comm), NULL);
    puts("all right");
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(on_one_host)};
    if (argc > 1) rounds = atoi(argv[1]);
    if (argc > 2) first_seed = strtoull(argv[2], NULL, 10);
    if (getenv("RANK")) return as_rank();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
