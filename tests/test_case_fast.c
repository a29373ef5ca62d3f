/* SPDX-License-Identifier: Apache-2.0
 *
 * The fast mode: a ring rounds sums of narrow types to the type at each hop, in its order, and carries no more than the
 * type's bytes; averages do not overflow. Ranks on GPUs are so without being asked, and have the host's bits.
 */
#include "test.h"

#include "base/dtype.h"
#include "core/comm.h"
#include "elements.h"
#include "gpu_kit.h"
#include "on_cudasim.h"
#include "ranks.h"

#include <math.h>
#include <string.h>

enum { COUNT = 840 * 3, MOST = 8 }; /* a multiple of every number of ranks */

typedef struct mode {
    rondo_dtype dtype;
    rondo_op op;
    bool on_gpu, rounds; /* at each hop */
} mode;

static double term(const mode *m, int rank, size_t i)
{
    double x = rank == 0 ? 250 + (double)(i % 13) : 1 + (double)((i + (size_t)rank) % 3);
    return element_round(m->dtype == RONDO_FLOAT8E4M3 ? x / 16 : x, m->dtype);
}

/* Of chunk `owner`: the terms of the ranks after it on the ring, one after the other, its own last. */
static double expected(const mode *m, const rondo_comm *comm, int n, size_t i)
{
    int owner = (int)(i / (COUNT / (size_t)n)), at = 0;
    double scale = 1, sum = 0;
    while (m->op == RONDO_AVG && scale * n > 1) scale /= 2;
    while (comm->order[at] != owner) at++;
    for (int k = 1; k <= n; k++) {
        double x = term(m, comm->order[(at + k) % n], i) * scale;
        sum = k == 1 ? x : (float)(sum + x);
        if (m->rounds && k < n) sum = element_round(sum, m->dtype);
    }
    return element_round(m->op == RONDO_AVG ? (double)((float)sum / (float)(n * scale)) : sum, m->dtype);
}

static void sum_and_look(rondo_comm *comm, int rank, int n, void *context)
{
    const mode *m = context;
    size_t b = rd_dtype_bytes(m->dtype);
    unsigned char data[COUNT * 2];
    rd_cu_address memory = 0;
    uint64_t before = comm->wiring.ring_out[0]->link->bytes_sent;
    for (size_t i = 0; i < COUNT; i++) element_put(data + i * b, m->dtype, term(m, rank, i));
    if (m->on_gpu) {
        memory = gpu_alloc(COUNT * b);
        gpu_put(memory, data, COUNT * b);
    }
    void *at = m->on_gpu ? (void *)(uintptr_t)memory : data;
    CHECK(rondo_all_reduce(at, at, COUNT, m->dtype, m->op, comm, NULL) == RONDO_SUCCESS, "%s", rondo_last_error(comm));
    if (m->on_gpu) gpu_get(data, memory, COUNT * b);
    for (size_t i = 0; i < COUNT; i++) {
        double got = element_get(data + i * b, m->dtype), want = expected(m, comm, n, i);
        CHECK(got == want, "%s %s, element %zu of rank %d of %d: %.9g, not %.9g", rd_dtype_name(m->dtype),
              rd_op_name(m->op), i, rank, n, got, want);
    }
    uint64_t sent = comm->wiring.ring_out[0]->link->bytes_sent - before;
    uint64_t least = 2 * (uint64_t)(n - 1) * COUNT / (uint64_t)n * b;
    CHECK(n == 2 || (sent == least) == m->rounds, "rank %d of %d sent %llu bytes, 2(N-1)/N are %llu", rank, n,
          (unsigned long long)sent, (unsigned long long)least);
}

static const rondo_dtype types[] = {RONDO_BFLOAT16, RONDO_FLOAT16, RONDO_FLOAT8E4M3, RONDO_FLOAT8E5M2};

static void on_every_type(int n, bool on_gpu, bool rounds, setup_fn setup)
{
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int average = 0; average < 2; average++) {
            mode m = {types[t], average ? RONDO_AVG : RONDO_SUM, on_gpu, rounds};
            ranks_run(n, NULL, setup, sum_and_look, &m);
        }
}

static void use_the_ring(int rank, void *context)
{
    (void)rank, (void)context;
    test_env("RONDO_DEVICE", "host");
    test_env("RONDO_ALGO", "ring");
    test_env("RONDO_NUMERICS", "fast");
}

static void use_the_accurate_ring(int rank, void *context)
{
    use_the_ring(rank, context);
    test_env("RONDO_NUMERICS", NULL);
}

static void on_the_host(void **state)
{
    (void)state;
    for (int n = 2; n <= MOST; n += 3) on_every_type(n, false, true, use_the_ring);
    on_every_type(4, false, false, use_the_accurate_ring);
}

static void use_a_gpu(int rank, void *context)
{
    char device[8];
    (void)context;
    snprintf(device, sizeof device, "%d", rank % 2);
    test_env("RONDO_DEVICE", device);
    gpu_enter(rank % 2);
}

static void use_a_gpu_accurately(int rank, void *context)
{
    use_a_gpu(rank, context);
    test_env("RONDO_NUMERICS", "accurate");
}

static void on_gpus(void **state)
{
    (void)state;
    on_every_type(3, true, true, use_a_gpu);
    on_every_type(3, true, false, use_a_gpu_accurately);
}

/* Case 10, where each hop rounds: what is added is scaled first. */
static void averages_at_the_edge(rondo_comm *comm, int rank, int n, void *context)
{
    (void)n, (void)context;
    unsigned char x[16];
    for (int i = 0; i < 8; i++) element_put(x + 2 * i, RONDO_FLOAT16, 60000);
    CHECK(rondo_all_reduce(x, x, 8, RONDO_FLOAT16, RONDO_AVG, comm, NULL) == RONDO_SUCCESS, "%s", rondo_last_error(comm));
    for (int i = 0; i < 8; i++)
        CHECK(fabs(element_get(x + 2 * i, RONDO_FLOAT16) - 60000) <= 64, "rank %d: %g", rank,
              element_get(x + 2 * i, RONDO_FLOAT16));
}

static void averages(void **state)
{
    (void)state;
    for (int n = 2; n <= 5; n++) ranks_run(n, NULL, use_the_ring, averages_at_the_edge, NULL);
}

int main(int argc, char **argv)
{
    (void)argc;
    on_cudasim(argv, "devices=2");
    const struct CMUnitTest tests[] = {cmocka_unit_test(on_the_host), cmocka_unit_test(on_gpus),
                                       cmocka_unit_test(averages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
