/* SPDX-License-Identifier: Apache-2.0
 *
 * The same bits: from ring, flat, exchange and sockets, on every rank, in every run, in slices of any size, from
 * instructions of any level, and from a reduce-scatter followed by an all-gather.
 */
#include "test.h"

#include "base/dtype.h"
#include "trial.h"
#include "world.h"

#include <math.h>
#include <stdatomic.h>

static const rondo_dtype floats[] = {RONDO_FLOAT32, RONDO_FLOAT64, RONDO_FLOAT16, RONDO_BFLOAT16, RONDO_FLOAT8E4M3,
                                     RONDO_FLOAT8E5M2};
enum { FLOATS = 6, SIZES = 3 };

/* Bits of finite numbers from 2^-12 to 2^12 or what the type has of it: sums depend on their order. */
static void draw(void *at, rondo_dtype type, uint64_t seed, uint64_t i)
{
    uint64_t bits = mix(seed, i);
    float f = ldexpf(1 + (float)(bits & 0x7fffff) / 0x800000, (int)(bits >> 24 & 0xff) % 25 - 12);
    double d = ldexp(1 + (double)(bits & 0xfffffffffffff) / 0x10000000000000, (int)(bits >> 54) % 25 - 12);
    uint32_t word;
    if (bits >> 63) f = -f, d = -d;
    switch (type) {
    case RONDO_FLOAT32: memcpy(at, &f, 4); return;
    case RONDO_FLOAT64: memcpy(at, &d, 8); return;
    case RONDO_BFLOAT16: memcpy(&word, &f, 4), word >>= 16; break;
    case RONDO_FLOAT16: word = (uint32_t)bits & 0xBFFF; break;                                     /* below 2 */
    case RONDO_FLOAT8E4M3: word = (bits & 0x7F) == 0x7F ? 0 : (uint32_t)bits & 0xFF; break;        /* all but NaN */
    default: word = (bits & 0x7C) == 0x7C ? (uint32_t)bits & 3 : (uint32_t)bits & 0xFF; break;     /* nor infinite */
    }
    memcpy(at, &word, rd_dtype_bytes(type));
}

static uint64_t fingerprint(const void *data, size_t bytes)
{
    uint64_t sum = bytes, word = 0;
    for (size_t i = 0; i < bytes; i += 8) {
        memcpy(&word, (const char *)data + i, bytes - i < 8 ? bytes - i : 8);
        sum = mix(sum, word);
    }
    return sum;
}

/* What all ranks of all ways must have: written by the first to come, compared by the others. */
typedef struct known {
    const char *name; /* of the way in question */
    size_t counts[SIZES];
    _Atomic uint64_t sums[SIZES][FLOATS][RONDO_OPS];
} known;

static void agree(known *k, int size, size_t t, rondo_op op, uint64_t sum, int rank, int n)
{
    uint64_t first = 0;
    if (atomic_compare_exchange_strong(&k->sums[size][t][op], &first, sum))
        return;
    CHECK(first == sum, "%s, rank %d of %d: %s %s of %zu has other bits", k->name, rank, n, rd_dtype_name(floats[t]),
          rd_op_name(op), k->counts[size]);
}

/* The same sum by reduce-scatter and all-gather, and this rank's own chunk of it by reduce. */
static void check_parts(const unsigned char *send, const unsigned char *sum, size_t count, rondo_dtype type,
                        rondo_op op, rondo_comm *comm, int rank, int n)
{
    size_t part = count / (size_t)n, b = rd_dtype_bytes(type), at = (size_t)rank * part * b;
    unsigned char *other = calloc(count, b);
    SUCCEEDS(rondo_reduce_scatter(send, other + at, part, type, op, comm, NULL), comm);
    SUCCEEDS(rondo_all_gather(other + at, other, part, type, comm, NULL), comm);
    CHECK(!memcmp(sum, other, count * b), "%s %s, %d ranks: reduce-scatter and all-gather have other bits",
          rd_dtype_name(type), rd_op_name(op), n);
    for (int root = 0; root < n; root++)
        SUCCEEDS(rondo_reduce(send, root == rank ? other : NULL, count, type, op, root, comm, NULL), comm);
    CHECK(!memcmp(sum + at, other + at, part * b), "%s %s, %d ranks: reduce has other bits", rd_dtype_name(type),
          rd_op_name(op), n);
    free(other);
}

static void bits_rank(rondo_comm *comm, int rank, int n, void *context)
{
    known *k = context;
    for (int size = 0; size < SIZES; size++)
        for (size_t t = 0; t < FLOATS; t++) {
            size_t b = rd_dtype_bytes(floats[t]), count = k->counts[size];
            unsigned char *send = calloc(count, b), *recv = calloc(count, b);
            for (size_t i = 0; i < count; i++) draw(send + i * b, floats[t], (uint64_t)rank + 11, i);
            for (int op = 0; op < RONDO_OPS; op++) {
                for (int again = 0; again < 2; again++) {
                    SUCCEEDS(rondo_all_reduce(send, recv, count, floats[t], (rondo_op)op, comm, NULL), comm);
                    agree(k, size, t, (rondo_op)op, fingerprint(recv, count * b), rank, n);
                }
                if (count % (size_t)n == 0) check_parts(send, recv, count, floats[t], (rondo_op)op, comm, rank, n);
            }
            free(send);
            free(recv);
        }
    rondo_comm_destroy(comm);
}

static void same_bits(int n)
{
    static const char *const slices[] = {NULL, "8192"};
    known *k = test_shared(sizeof *k);
    k->counts[0] = (size_t)(9001 / test_slowness()) | 1;
    k->counts[1] = (size_t)(1500 / test_slowness()) * (size_t)n;
    k->counts[2] = 17; /* short: one hop */
    for (int w = 0; w < WAYS; w++)
        for (int s = 0; s < 2; s++) {
            k->name = ways[w].name;
            way_take(&ways[w]);
            test_env("RONDO_SLICE", slices[s]);
            test_env("RONDO_CHANNELS", s ? "2" : NULL);
            ranks_run(n, NULL, NULL, bits_rank, k);
        }
    test_env("RONDO_SLICE", NULL);
    test_env("RONDO_CHANNELS", NULL);
    k->name = "portable instructions";
    way_take(&ways[WAY_FLAT]);
    test_env("RONDO_CPU", "portable");
    ranks_run(n, NULL, NULL, bits_rank, k);
    test_env("RONDO_CPU", NULL);
}

static void case_bits_2(void **state) { (void)state; same_bits(2); }
static void case_bits_3(void **state) { (void)state; same_bits(3); }
static void case_bits_5(void **state) { (void)state; same_bits(5); }
static void case_bits_8(void **state) { (void)state; same_bits(8); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_bits_2),
        cmocka_unit_test(case_bits_3),
        cmocka_unit_test(case_bits_5),
        cmocka_unit_test(case_bits_8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
