/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce.c - how long a pass takes per byte, for every type and operator at every level, in units of a float32 sum.
 *
 *   reduce [-n RUNS] [-l LEVEL] [-t TYPE] [bytes...]     16 KiB (in the first cache) and 128 KiB (in the second) of each buffer
 *
 * The pass is that of flat for two ranks: two sources, of which the first is a slot that the result is written back to,
 * and the output. Its float32 sum is measured in turns with each pair, so that both meet the same machine: the figure
 * is the quotient of the fastest of RUNS (40) turns each.
 *
 * The values lie around 1, and what the operator leaves in the slot does, too: no NaN, no subnormals. The last columns
 * are an average of two terms by three, which needs a division, and passes over three terms, as flat makes them for
 * three ranks; these in units of a float32 sum of three.
 */
#include "reduce/reduce.h"
#include "base/dtype.h"
#include "base/env.h"
#include "bench/one.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_BYTES = 16 << 20, RUN_NS = 60000 };

struct bench {
    rd_reduction reduction;
    rd_pass pass;
    double best; /* ns per byte of one buffer */
};

static _Alignas(64) unsigned char slot[MOST_BYTES], own[MOST_BYTES], out[MOST_BYTES];

static const struct column {
    const char *name;
    rondo_op op;
    int sources, ranks;
} columns[] = {
    {"sum", RONDO_SUM, 2, 2},      {"prod", RONDO_PROD, 2, 2},        {"max", RONDO_MAX, 2, 2},
    {"min", RONDO_MIN, 2, 2},      {"avg", RONDO_AVG, 2, 2},          {"two terms / 3", RONDO_AVG, 2, 3},
    {"sum of 3", RONDO_SUM, 3, 3}, {"avg of 3", RONDO_AVG, 3, 3},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static double nanoseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* In the slot: 1 and the two numbers after it. Own ones that leave them so: 0 for sums, 1 for products. */
static void fill(const rd_reduction *reduction, size_t bytes)
{
    uint64_t one = bits_of_one(reduction->type);
    for (size_t i = 0; i < bytes / reduction->bytes; i++) {
        uint64_t value = one + i % 3, mine = one + (i + 1) % 3;
        if (reduction->op == RONDO_SUM) mine = 0;
        if (reduction->op == RONDO_PROD) mine = one;
        memcpy(slot + i * reduction->bytes, &value, reduction->bytes);
        memcpy(own + i * reduction->bytes, &mine, reduction->bytes);
    }
}

static struct bench bench_of(rondo_dtype type, struct column c, int level, size_t bytes)
{
    struct bench b = {.best = 1e9};
    rondo_result r = rd_reduction_init(&b.reduction, type, c.op, c.ranks, level);
    if (r != RONDO_SUCCESS) exit(1);
    b.pass = (rd_pass){.count = bytes / b.reduction.bytes, .sources = c.sources, .outputs = 2, .finish = true};
    b.pass.source[0] = b.pass.output[1] = slot, b.pass.output[0] = out;
    b.pass.source[1] = b.pass.source[2] = own;
    return b;
}

static void run(struct bench *b)
{
    size_t bytes = b->pass.count * b->reduction.bytes, calls = 1 + RUN_NS * 20 / bytes;
    fill(&b->reduction, bytes);
    rd_reduce(&b->reduction, &b->pass);
    double start = nanoseconds();
    for (size_t i = 0; i < calls; i++) rd_reduce(&b->reduction, &b->pass);
    double each = (nanoseconds() - start) / (double)calls / (double)bytes;
    if (each < b->best) b->best = each;
}

static void table(int level, size_t bytes, int runs, const char *only)
{
    double reference = 1e9;
    static double each[RONDO_DTYPES][COLUMNS];
    for (rondo_dtype type = 0; type < RONDO_DTYPES; type++)
        for (int c = 0; c < COLUMNS && (!only || strcmp(only, rd_dtype_name(type)) == 0); c++) {
            struct column sum = {.op = RONDO_SUM, .sources = columns[c].sources, .ranks = columns[c].sources};
            struct bench one = bench_of(RONDO_FLOAT32, sum, level, bytes);
            struct bench b = bench_of(type, columns[c], level, bytes);
            for (int i = 0; i < runs; i++) run(&one), run(&b);
            each[type][c] = b.best / one.best;
            if (sum.sources == 2 && one.best < reference) reference = one.best;
        }
    printf("\n%s, buffers of %zu KiB; a float32 sum takes %.4f ns per byte, which is 1:\n\n| type |",
           rd_cpu_level_name(level), bytes >> 10, reference);
    for (int c = 0; c < COLUMNS; c++) printf(" %s |", columns[c].name);
    printf("\n|---|");
    for (int c = 0; c < COLUMNS; c++) printf("---|");
    for (rondo_dtype type = 0; type < RONDO_DTYPES; type++) {
        if (only && strcmp(only, rd_dtype_name(type)) != 0) continue;
        printf("\n| %s |", rd_dtype_name(type));
        for (int c = 0; c < COLUMNS; c++) printf(" %.2f |", each[type][c]);
    }
    printf("\n");
}

static int usage(void)
{
    fprintf(stderr,
            "usage: reduce [-n RUNS] [-l LEVEL] [-t TYPE] [bytes...]   (LEVEL: portable, avx2 or avx512; all by default; "
            "bytes of one buffer: multiples of 64, 64 to %d)\n",
            MOST_BYTES);
    return 2;
}

int main(int argc, char **argv)
{
    static char l1[] = "16384", l2[] = "131072", *usual[] = {l1, l2};
    const char *only = NULL, *type = NULL;
    int runs = 40;
    for (int o; (o = getopt(argc, argv, "n:l:t:")) != -1;) {
        if (o == 'n')
            runs = atoi(optarg);
        else if (o == 'l')
            only = optarg;
        else if (o == 't')
            type = optarg;
        else
            return usage();
    }
    char **sizes = optind < argc ? argv + optind : usual;
    int count = optind < argc ? argc - optind : 2;
    if (runs < 1) return usage();
    for (int i = 0; i < count; i++)
        if (atoi(sizes[i]) < 64 || atoi(sizes[i]) > MOST_BYTES || atoi(sizes[i]) % 64 != 0) return usage();
    for (int level = RD_CPU_PORTABLE; level <= RD_CPU_AVX512; level++)
        if (rd_cpu_level_has(level) && (!only || strcmp(only, rd_cpu_level_name(level)) == 0))
            for (int i = 0; i < count; i++) table(level, (size_t)atoi(sizes[i]), runs, type);
    return 0;
}
