/* SPDX-License-Identifier: Apache-2.0
 *
 * Cases 8 to 11: wrapping integers, averages, and sums of narrow types, with the bytes that they cost.
 */
#include "test.h"

#include "base/dtype.h"
#include "core/comm.h"
#include "elements.h"
#include "trial.h"

#define COUNT 1003

/* All ranks give element i the value of the table that belongs to their rank; the result must be `want`. */
typedef struct known {
    rondo_dtype dtype;
    rondo_op op;
    int n;
    double term[8], want;
} known;

static void check_sum(const known *s, rondo_comm *comm, int rank)
{
    size_t b = rd_dtype_bytes(s->dtype);
    for (int in_place = 0; in_place < 2; in_place++) {
        unsigned char *send = guard_begin(COUNT * b, 0, false);
        unsigned char *recv = in_place ? send : guard_begin(COUNT * b, 0, false);
        for (size_t i = 0; i < COUNT; i++) element_put(send + i * b, s->dtype, s->term[rank]);
        SUCCEEDS(rondo_all_reduce(send, recv, COUNT, s->dtype, s->op, comm, NULL), comm);
        for (size_t i = 0; i < COUNT; i++) {
            double got = element_get(recv + i * b, s->dtype);
            CHECK(got == element_round(s->want, s->dtype), "%s %s, element %zu of rank %d: %.9g, not %.9g",
                  rd_dtype_name(s->dtype), rd_op_name(s->op), i, rank, got, s->want);
        }
        CHECK(guard_end(send, COUNT * b), "written beside send");
        CHECK(in_place || guard_end(recv, COUNT * b), "written beside recv");
    }
}

static void sum_rank(rondo_comm *comm, int rank, int n, void *context)
{
    for (const known *s = context; s->n; s++)
        if (s->n == n) check_sum(s, comm, rank);
    rondo_comm_destroy(comm);
}

static void on_all_ways(int n, const known *sums)
{
    for (int w = 0; w < WAYS; w++) {
        way_take(&ways[w]);
        ranks_run(n, NULL, NULL, sum_rank, (void *)(uintptr_t)sums);
    }
}

static void case_08(void **state)
{
    static const known sums[] = {
        {RONDO_INT8, RONDO_SUM, 2, {120, 100}, -36},
        {RONDO_UINT8, RONDO_SUM, 2, {200, 100}, 44},
        {RONDO_INT8, RONDO_PROD, 2, {100, 3}, 44},
        {RONDO_INT32, RONDO_SUM, 2, {2147483647, 1}, -2147483648.0},
        {RONDO_INT32, RONDO_SUM, 2, {-2147483648.0, -1}, 2147483647},
        {RONDO_INT32, RONDO_PROD, 2, {65536, 65537}, 65536},
        {RONDO_UINT32, RONDO_SUM, 2, {4294967295.0, 2}, 1},
        {RONDO_INT64, RONDO_SUM, 2, {0x1p62, 0x1p62}, -0x1p63},
        {RONDO_INT64, RONDO_PROD, 2, {0x1p40, 0x1p23}, -0x1p63},
        {RONDO_UINT64, RONDO_SUM, 2, {0x1p63, 0x1p63}, 0},
        {RONDO_INT8, RONDO_AVG, 2, {120, 100}, -18}, /* the sum wraps first */
        {RONDO_UINT8, RONDO_AVG, 2, {200, 100}, 22},
        {0, 0, 0, {0}, 0},
    };
    (void)state;
    on_all_ways(2, sums);
}

static void case_09(void **state)
{
    static const known sums[] = {
        {RONDO_INT32, RONDO_AVG, 3, {1, 1, 0}, 0},        {RONDO_INT32, RONDO_AVG, 3, {-1, -1, 0}, 0},
        {RONDO_INT32, RONDO_AVG, 3, {-7, 0, 0}, -2},      {RONDO_INT32, RONDO_AVG, 3, {7, 7, 7}, 7},
        {RONDO_INT8, RONDO_AVG, 3, {-7, 0, 0}, -2},       {RONDO_INT64, RONDO_AVG, 3, {-7, 0, 0}, -2},
        {RONDO_UINT32, RONDO_AVG, 3, {1, 1, 0}, 0},       {RONDO_UINT64, RONDO_AVG, 3, {7, 7, 7}, 7},
        {RONDO_FLOAT32, RONDO_AVG, 3, {1, 1, 0}, (double)(2 / 3.0f)},
        {RONDO_FLOAT32, RONDO_AVG, 3, {-1, -1, 0}, (double)(-2 / 3.0f)},
        {RONDO_FLOAT32, RONDO_AVG, 3, {-7, 0, 0}, (double)(-7 / 3.0f)},
        {RONDO_FLOAT32, RONDO_AVG, 3, {7, 7, 7}, 7},
        {RONDO_FLOAT64, RONDO_AVG, 3, {-7, 0, 0}, -7 / 3.0},
        {RONDO_FLOAT16, RONDO_AVG, 3, {-7, 0, 0}, (double)(-7 / 3.0f)},
        {0, 0, 0, {0}, 0},
    };
    (void)state;
    on_all_ways(3, sums);
}

static void case_10(void **state)
{
    static const known sums[] = {
        {RONDO_FLOAT16, RONDO_AVG, 2, {60000, 60000}, 60000},
        {RONDO_BFLOAT16, RONDO_AVG, 3, {2e38, 2e38, 2e38}, 2e38},
        {RONDO_FLOAT32, RONDO_AVG, 3, {0x1.8p127, 0x1.8p127, 0x1.8p127}, 0x1.8p127},
        {RONDO_FLOAT64, RONDO_AVG, 2, {1.5e308, 1.5e308}, 1.5e308},
        {RONDO_FLOAT8E4M3, RONDO_AVG, 3, {448, 448, 448}, 448},
        {RONDO_FLOAT8E5M2, RONDO_AVG, 2, {57344, 57344}, 57344},
        {RONDO_FLOAT16, RONDO_SUM, 3, {60000, 60000, -60000}, 60000}, /* nothing overflows on the way */
        {0, 0, 0, {0}, 0},
    };
    (void)state;
    on_all_ways(2, sums);
    on_all_ways(3, sums);
}

/* ---- Case 11 ---- */

/* Payload this rank has sent so far, over all its links. */
static uint64_t bytes_sent(const rondo_comm *comm)
{
    uint64_t all = 0;
    for (int i = 0; i < comm->size * RD_MAX_CHANNELS; i++)
        if (comm->out[i].link) all += comm->out[i].link->bytes_sent;
    return all;
}

static void narrow_rank(rondo_comm *comm, int rank, int n, void *context)
{
    int w = *(const int *)context;
    size_t un = (size_t)n, count = 6007 * un;
    static const struct {
        rondo_dtype dtype;
        double first; /* rank 0 holds this, the others 1 */
    } cases[] = {{RONDO_BFLOAT16, 256}, {RONDO_FLOAT16, 2048}, {RONDO_FLOAT8E4M3, 16}, {RONDO_FLOAT8E5M2, 8}};
    CHECK((comm->wiring.flat_out != NULL) == (w == WAY_FLAT), "%s is not what runs", ways[w].name);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        rondo_dtype type = cases[k].dtype;
        size_t b = rd_dtype_bytes(type), message = count * b;
        double want = element_round(cases[k].first + n - 1, type);
        unsigned char *x = guard_begin(message, 0, false);
        for (size_t i = 0; i < count; i++) element_put(x + i * b, type, rank == 0 ? cases[k].first : 1);
        uint64_t before = bytes_sent(comm);
        SUCCEEDS(rondo_all_reduce(x, x, count, type, RONDO_SUM, comm, NULL), comm);
        for (size_t i = 0; i < count; i++)
            CHECK(element_get(x + i * b, type) == want, "%s, %d ranks, %s, element %zu: %g, not %g", ways[w].name, n,
                  rd_dtype_name(type), i, element_get(x + i * b, type), want);
        /* In chunks of the message: float32 sums from the second step on; flat moves a chunk to each owner, and the sum
         * comes back in the same slots. */
        size_t chunks = w == WAY_FLAT ? un - 1 : b == 2 ? 3 * un - 4 : 5 * un - 8;
        uint64_t sent = bytes_sent(comm) - before;
        CHECK(sent == chunks * message / un, "%s, %d ranks, %s: %llu bytes sent, not %zu", ways[w].name, n,
              rd_dtype_name(type), (unsigned long long)sent, chunks * message / un);
        CHECK(guard_end(x, message), "written beside the buffer");
    }
    uint64_t before = bytes_sent(comm);
    float *x = calloc(count, sizeof *x);
    SUCCEEDS(rondo_all_reduce(x, x, count, RONDO_FLOAT32, RONDO_SUM, comm, NULL), comm);
    CHECK(bytes_sent(comm) - before == (w == WAY_FLAT ? 1 : 2) * (un - 1) * 4 * count / un, "float32: %llu bytes sent",
          (unsigned long long)(bytes_sent(comm) - before));
    free(x);
    rondo_comm_destroy(comm);
}

static void case_11(void **state)
{
    (void)state;
    assert_true(element_round(256 + 7, RONDO_BFLOAT16) == 264);
    for (int w = 0; w <= WAY_TCP; w++)
        for (int n = 2; n <= 8; n++) {
            way_take(&ways[w]);
            test_env("RONDO_SLICE", n % 2 ? "4096" : NULL);
            ranks_run(n, NULL, NULL, narrow_rank, &w);
        }
    test_env("RONDO_SLICE", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_08),
        cmocka_unit_test(case_09),
        cmocka_unit_test(case_10),
        cmocka_unit_test(case_11),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
