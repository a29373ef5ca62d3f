/* SPDX-License-Identifier: Apache-2.0
 *
 * The zero-copy bound. If every rank could read and write every other rank's buffers, an all-reduce would read each
 * element once and write it once per rank, and nobody would copy: no library that leaves its users their private memory
 * can do as well, and one whose users let it share their memory can. Two meetings stand around the work, since nobody
 * may read before its owner has written, or return before all have.
 */
#include "cli/limits.h"

#include <stdint.h>

enum { LINE = 64 };

typedef uint32_t line __attribute__((vector_size(LINE), aligned(4), may_alias));

/* Lines [begin, end) of the sum of all `froms` buffers to each of the `tos`. */
static inline __attribute__((always_inline)) void add_lines(unsigned char *const *from, int froms,
                                                            unsigned char *const *to, int tos, size_t begin, size_t end)
{
    for (size_t at = begin * LINE; at < end * LINE; at += LINE) {
        line sum = *(const line *)(from[0] + at);
        for (int r = 1; r < froms; r++) sum += *(const line *)(from[r] + at);
        for (int r = 0; r < tos; r++) *(line *)(to[r] + at) = sum;
    }
}

typedef void adder(unsigned char *const *from, int froms, unsigned char *const *to, int tos, size_t begin, size_t end);

static void add(unsigned char *const *from, int froms, unsigned char *const *to, int tos, size_t begin, size_t end)
{
    if (froms == 2 && tos == 2) add_lines(from, 2, to, 2, begin, end); /* the compiler unrolls it */
    else add_lines(from, froms, to, tos, begin, end);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void add_avx2(unsigned char *const *from, int froms, unsigned char *const *to,
                                                     int tos, size_t begin, size_t end)
{
    if (froms == 2 && tos == 2) add_lines(from, 2, to, 2, begin, end);
    else add_lines(from, froms, to, tos, begin, end);
}

__attribute__((target("avx512f"))) static void add_avx512(unsigned char *const *from, int froms,
                                                          unsigned char *const *to, int tos, size_t begin, size_t end)
{
    if (froms == 2 && tos == 2) add_lines(from, 2, to, 2, begin, end);
    else add_lines(from, froms, to, tos, begin, end);
}
#endif

static adder *best_adder(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return add_avx512;
    if (__builtin_cpu_supports("avx2")) return add_avx2;
#endif
    return add;
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
