/* SPDX-License-Identifier: Apache-2.0
 *
 * The zero-copy bound. If every rank could read and write every other rank's buffers, an all-reduce would read each
 * element once and write it once per rank, and nobody would copy: no library that leaves its users their private memory
 * can do as well, and one whose users let it share their memory can. Two meetings stand around the work, since nobody
 * may read before its owner has written, or return before all have.
 */
#include "cli/limits.h"

#include <stdint.h>

enum { LINE = 64, BATCH = 8 };

typedef uint32_t line __attribute__((vector_size(LINE), aligned(4), may_alias));

/* Lines at [begin, end) of the sum of all `froms` buffers to each of the `tos`, `step` lines at a time: a store may be
 * to anywhere, for all the compiler knows, so that the pointers are read again after each. */
static inline __attribute__((always_inline)) void
add_many(unsigned char *const *from, int froms, unsigned char *const *to, int tos, size_t begin, size_t end, int step)
{
    for (size_t at = begin; at < end; at += (size_t)step * LINE) {
        line sum[BATCH];
        for (int k = 0; k < step; k++) sum[k] = *(const line *)(from[0] + at + k * LINE);
        for (int r = 1; r < froms; r++)
            for (int k = 0; k < step; k++) sum[k] += *(const line *)(from[r] + at + k * LINE);
        for (int r = 0; r < tos; r++)
            for (int k = 0; k < step; k++) *(line *)(to[r] + at + k * LINE) = sum[k];
    }
}

static inline __attribute__((always_inline)) void add_lines(unsigned char *const *from, int froms,
                                                            unsigned char *const *to, int tos, size_t begin, size_t end)
{
    size_t batches = (end - begin) / BATCH * BATCH;
    add_many(from, froms, to, tos, begin * LINE, (begin + batches) * LINE, BATCH);
    add_many(from, froms, to, tos, (begin + batches) * LINE, end * LINE, 1);
}

/* Two ranks, whose pointers fit into registers. */
static inline __attribute__((always_inline)) void add_pair(unsigned char *const *from, unsigned char *const *to,
                                                           size_t begin, size_t end)
{
    unsigned char *const a = from[0], *const b = from[1], *const c = to[0], *const d = to[1];
    for (size_t at = begin * LINE; at < end * LINE; at += LINE) {
        line sum = *(const line *)(a + at) + *(const line *)(b + at);
        *(line *)(c + at) = sum;
        *(line *)(d + at) = sum;
    }
}

typedef void adder(unsigned char *const *from, int froms, unsigned char *const *to, int tos, size_t begin, size_t end);

/* The same for each instruction set. */
#define ADDER(name, attributes)                                                                                        \
    attributes static void name(unsigned char *const *from, int froms, unsigned char *const *to, int tos,              \
                                size_t begin, size_t end)                                                              \
    {                                                                                                                  \
        if (froms == 2 && tos == 2)                                                                                    \
            add_pair(from, to, begin, end);                                                                            \
        else                                                                                                           \
            add_lines(from, froms, to, tos, begin, end);                                                               \
    }

ADDER(add, )
#if defined(__x86_64__)
ADDER(add_avx2, __attribute__((target("avx2"))))
ADDER(add_avx512, __attribute__((target("avx512f"))))
#endif

static adder *best_adder(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return add_avx512;
    if (__builtin_cpu_supports("avx2")) return add_avx2;
#endif
    return add;
}

void rd_triad(double *restrict a, const double *restrict b, const double *restrict c, size_t count)
{
    for (size_t i = 0; i < count; i++) a[i] = b[i] + 3 * c[i];
}

void rd_bound_work(rd_bound_kind kind, unsigned char *const *from, unsigned char *const *to, int rank, int size,
                   int root, size_t bytes)
{
    adder *sum = best_adder();
    size_t lines = (bytes + LINE - 1) / LINE;
    size_t begin = lines * (size_t)rank / (size_t)size, end = lines * ((size_t)rank + 1) / (size_t)size;
    switch (kind) {
    case RD_BOUND_ALL_REDUCE: sum(from, size, to, size, begin, end); return;
    case RD_BOUND_REDUCE_SCATTER: sum(from, size, to + rank, 1, begin, end); return;
    case RD_BOUND_REDUCE: sum(from, size, to + root, 1, begin, end); return;
    case RD_BOUND_BROADCAST:
        if (rank != root) sum(from + root, 1, to + rank, 1, 0, lines);
        return;
    case RD_BOUND_ALL_GATHER:
        for (int step = 1; step < size; step++) {
            size_t r = (size_t)((rank + step) % size);
            sum(from + r, 1, to + rank, 1, lines * r / (size_t)size, lines * (r + 1) / (size_t)size);
        }
        return;
    }
}
