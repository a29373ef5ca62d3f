/* SPDX-License-Identifier: Apache-2.0
 *
 * Case 12, RONDO_NUMERICS=strict: every element of a sum, product or average has the bits that its terms have when they
 * are taken in the order of ranks, from rank 0 on: in messages of any size, fused or not, whoever gets the result, over
 * every kind of link, on the host and on GPUs. Started as the rank of a job (RANK is set), it is what
 * tests/test_hosts_hier.sh runs on several hosts.
 */
#include "test.h"

#include "base/dtype.h"
#include "core/comm.h"
#include "elements.h"
#include "gpu_kit.h"
#include "on_cudasim.h"
#include "ranks.h"
#include "trial.h"
#include "world.h"

#include <math.h>

enum { MOST = 8000, CHUNK = 311 }; /* elements; of those that a rank gets in a reduce-scatter */

static const rondo_dtype types[] = {RONDO_FLOAT32, RONDO_FLOAT64,    RONDO_FLOAT16,   RONDO_BFLOAT16,
                                    RONDO_FLOAT8E4M3, RONDO_FLOAT8E5M2, RONDO_INT32};
static const rondo_op ops[] = {RONDO_SUM, RONDO_PROD, RONDO_AVG, RONDO_MAX};

/* Of a setting: which ranks are on GPUs, bit by bit. */
static unsigned on_gpu;

static double term(rondo_dtype type, int rank, size_t i)
{
    uint64_t bits = mix((uint64_t)rank + 11, i);
    if (type == RONDO_INT32) return (double)(bits % 7) - 3;
    double x = ldexp(1 + (double)(bits & 0xffffff) / 0x1000000, (int)(bits >> 24 & 7) - 5);
    return element_round(bits >> 63 ? -x : x, type);
}

/* As a sum of its type is rounded: narrow types are added in float32. */
static double rounded(double x, rondo_dtype type)
{
    return type == RONDO_FLOAT64 || type == RONDO_INT32 ? x : (double)(float)x;
}

/* factor: of a rank's terms, by rank; NULL: none. */
static double expected(rondo_dtype type, rondo_op op, int n, size_t i, const double *factor)
{
    double sum = 0;
    for (int r = 0; r < n; r++) {
        double x = term(type, r, i);
        if (factor) x = element_round(x * factor[r], type);
        if (r == 0) sum = x;
        else if (op == RONDO_PROD) sum = rounded(sum * x, type);
        else if (op == RONDO_MAX) sum = x > sum ? x : sum;
        else sum = rounded(sum + x, type);
    }
    if (op == RONDO_AVG) sum = type == RONDO_INT32 ? trunc(sum / n) : rounded(sum / n, type);
    if (rd_dtype_bytes(type) == 1 && fabs(sum) > element_largest(type)) sum = copysign(element_largest(type), sum);
    return element_round(sum, type);
}

/* ---- A rank's memory, on its GPU if it has one ---- */

typedef struct memory {
    unsigned char *here; /* where the CPU fills it in and looks at it */
    unsigned char *at;   /* what calls are given */
    size_t bytes;
    bool device;
} memory;

static memory make(int rank, size_t bytes)
{
    memory m = {.bytes = bytes, .device = on_gpu >> rank & 1};
    m.here = calloc(1, bytes);
    m.at = m.device ? (unsigned char *)(uintptr_t)gpu_alloc(bytes) : m.here;
    return m;
}

static void put_terms(const memory *m, rondo_dtype type, int rank)
{
    size_t b = rd_dtype_bytes(type);
    for (size_t i = 0; i < m->bytes / b; i++) element_put(m->here + i * b, type, term(type, rank, i));
    if (m->device) gpu_put((uintptr_t)m->at, m->here, m->bytes);
}

static void discard(memory *m)
{
    if (m->device) GPU(cuMemFree, (uintptr_t)m->at);
    free(m->here);
}

/* Elements from `first` on of the message lie at `at` and must be what they must. */
static void look(const memory *m, size_t at, size_t first, size_t count, rondo_dtype type, rondo_op op,
                 const rondo_comm *comm, const double *factor, const char *call)
{
    size_t b = rd_dtype_bytes(type);
    if (m->device) gpu_get(m->here, (uintptr_t)m->at, m->bytes);
    for (size_t i = 0; i < count; i++) {
        double got = element_get(m->here + (at + i) * b, type), want = expected(type, op, comm->size, first + i, factor);
        CHECK(got == want, "%s of %zu, %s %s, element %zu of rank %d of %d: %.17g, not %.17g", call, count,
              rd_dtype_name(type), rd_op_name(op), first + i, comm->rank, comm->size, got, want);
    }
}

/* ---- The calls ---- */

static void all_reduces(rondo_comm *comm, const memory *send, const memory *recv, rondo_dtype type, rondo_op op)
{
    const size_t counts[] = {1, (size_t)comm->size + 1, 777, 1000, 1777, MOST};
    size_t b = rd_dtype_bytes(type);
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        SUCCEEDS(rondo_all_reduce(send->at, recv->at, counts[c], type, op, comm, NULL), comm);
        look(recv, 0, 0, counts[c], type, op, comm, NULL, "all-reduce");
    }
    SUCCEEDS(rondo_group_start(), comm);
    SUCCEEDS(rondo_all_reduce(send->at, recv->at, 1000, type, op, comm, NULL), comm);
    SUCCEEDS(rondo_all_reduce(send->at + 1000 * b, recv->at + 1000 * b, 777, type, op, comm, NULL), comm);
    SUCCEEDS(rondo_group_end(), comm);
    look(recv, 0, 0, 1777, type, op, comm, NULL, "two all-reduces of a group, together");
}

static void parts(rondo_comm *comm, const memory *send, const memory *recv, rondo_dtype type, rondo_op op)
{
    size_t b = rd_dtype_bytes(type), mine = (size_t)comm->rank * CHUNK;
    SUCCEEDS(rondo_reduce_scatter(send->at, recv->at, CHUNK, type, op, comm, NULL), comm);
    look(recv, 0, mine, CHUNK, type, op, comm, NULL, "reduce-scatter");
    for (int root = 0; root < comm->size; root++) {
        bool here = root == comm->rank;
        SUCCEEDS(rondo_reduce(send->at, here ? recv->at : NULL, 1777, type, op, root, comm, NULL), comm);
        if (here) look(recv, 0, 0, 1777, type, op, comm, NULL, "reduce");
    }
    SUCCEEDS(rondo_reduce_scatter(send->at, send->at + mine * b, CHUNK, type, op, comm, NULL), comm);
    look(send, (size_t)comm->rank * CHUNK, mine, CHUNK, type, op, comm, NULL, "reduce-scatter in place");
    put_terms(send, type, comm->rank);
    SUCCEEDS(rondo_all_reduce(send->at, send->at, 1777, type, op, comm, NULL), comm);
    look(send, 0, 0, 1777, type, op, comm, NULL, "all-reduce in place");
}

static void scaled(rondo_comm *comm, const memory *send, const memory *recv)
{
    double factors[RANKS_MAX];
    rondo_op op;
    for (int r = 0; r < comm->size; r++) factors[r] = 0.75 * r - 1;
    float mine = (float)factors[comm->rank];
    SUCCEEDS(rondo_op_create_scaled_sum(&op, &mine, RONDO_FLOAT32, RONDO_NOW, comm), comm);
    SUCCEEDS(rondo_all_reduce(send->at, recv->at, 1777, RONDO_FLOAT32, op, comm, NULL), comm);
    look(recv, 0, 0, 1777, RONDO_FLOAT32, RONDO_SUM, comm, factors, "scaled all-reduce");
    SUCCEEDS(rondo_reduce_scatter(send->at, recv->at, CHUNK, RONDO_FLOAT32, op, comm, NULL), comm);
    look(recv, 0, (size_t)comm->rank * CHUNK, CHUNK, RONDO_FLOAT32, RONDO_SUM, comm, factors, "scaled reduce-scatter");
    SUCCEEDS(rondo_op_destroy(op, comm), comm);
}

/* Calls on a stream, of which each begins when the one before is done. */
static void on_a_stream(rondo_comm *comm, const memory *send, const memory *recv)
{
    rondo_stream *stream;
    SUCCEEDS(rondo_stream_create(&stream, comm), comm);
    SUCCEEDS(rondo_all_reduce(send->at, recv->at, 1000, RONDO_FLOAT32, RONDO_SUM, comm, stream), comm);
    SUCCEEDS(rondo_all_reduce(send->at + 4000, recv->at + 4000, 777, RONDO_FLOAT32, RONDO_SUM, comm, stream), comm);
    SUCCEEDS(rondo_stream_synchronize(stream), comm);
    look(recv, 0, 0, 1777, RONDO_FLOAT32, RONDO_SUM, comm, NULL, "all-reduces on a stream");
    SUCCEEDS(rondo_stream_destroy(stream), comm);
}

/* Ranks of a part of the ranks, which it numbers the other way round. */
static void in_a_split(rondo_comm *comm, int rank, int n)
{
    rondo_comm *child;
    SUCCEEDS(rondo_comm_split(comm, n > 3 && rank == 0 ? RONDO_NO_COLOR : 1, n - rank, &child, NULL), comm);
    if (!child) return;
    memory send = make(rank, 1777 * 4), recv = make(rank, send.bytes);
    put_terms(&send, RONDO_FLOAT32, rondo_comm_rank(child));
    SUCCEEDS(rondo_all_reduce(send.at, recv.at, 1777, RONDO_FLOAT32, RONDO_SUM, child, NULL), child);
    look(&recv, 0, 0, 1777, RONDO_FLOAT32, RONDO_SUM, child, NULL, "all-reduce of a split");
    SUCCEEDS(rondo_comm_destroy(child), child);
    discard(&send);
    discard(&recv);
}

static void strict_rank(rondo_comm *comm, int rank, int n, void *context)
{
    (void)context;
    in_a_split(comm, rank, n);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        memory send = make(rank, MOST * rd_dtype_bytes(types[t])), recv = make(rank, send.bytes);
        put_terms(&send, types[t], rank);
        for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
            all_reduces(comm, &send, &recv, types[t], ops[o]);
            parts(comm, &send, &recv, types[t], ops[o]);
            put_terms(&send, types[t], rank);
        }
        if (types[t] == RONDO_FLOAT32) {
            scaled(comm, &send, &recv);
            on_a_stream(comm, &send, &recv);
        }
        discard(&send);
        discard(&recv);
    }
    SUCCEEDS(rondo_barrier(comm, NULL), comm);
}

/* ---- Where ---- */

static void on_the_host(void **state)
{
    (void)state;
    on_gpu = 0;
    test_env("RONDO_NUMERICS", "strict");
    for (int n = 2; n <= 5; n++)
        for (int w = 0; w < WAYS; w++) {
            way_take(&ways[w]);
            test_env("RONDO_SLICE", n == 4 ? "8192" : NULL);
            test_env("RONDO_CHANNELS", n == 5 ? "2" : NULL);
            test_env("RONDO_CPU", n == 3 ? "portable" : NULL);
            ranks_run(n, NULL, NULL, strict_rank, NULL);
        }
    way_take(&ways[WAY_AUTO]);
    test_env("RONDO_SLICE", NULL);
    test_env("RONDO_CHANNELS", NULL);
    test_env("RONDO_CPU", NULL);
}

static void choose_device(int rank, void *context)
{
    char device[8] = "host";
    (void)context;
    if (on_gpu >> rank & 1) snprintf(device, sizeof device, "%d", rank % 2);
    test_env("RONDO_DEVICE", device);
    if (on_gpu >> rank & 1) gpu_enter(rank % 2);
}

static void on_gpus(void **state)
{
    (void)state;
    way_take(&ways[WAY_AUTO]);
    test_env("RONDO_NUMERICS", "strict");
    for (on_gpu = 7; on_gpu >= 5; on_gpu -= 2) ranks_run(3, NULL, choose_device, strict_rank, NULL); /* all; not rank 1 */
}

static int as_rank(void)
{
    rondo_comm *comm;
    OK(rondo_init_env(&comm, NULL));
    strict_rank(comm, rondo_comm_rank(comm), rondo_comm_size(comm), NULL);
    puts("all right");
    OK(rondo_comm_destroy(comm));
    return 0;
}

int main(int argc, char **argv)
{
    (void)argc;
    if (getenv("RANK")) return as_rank();
    on_cudasim(argv, "devices=2");
    const struct CMUnitTest tests[] = {cmocka_unit_test(on_the_host), cmocka_unit_test(on_gpus)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
