/* SPDX-License-Identifier: Apache-2.0
 *
 * test_limits.c - the zero-copy bound does the work that it is the bound of, and placements have their names.
 */
#include "test.h"

#include "cli/limits_meet.c" /* the tool's sources are in no library */
#include "cli/limits_memory.c"

#include <string.h>

enum { MOST_RANKS = 5, MOST_LINES = 67, WORDS = LINE / 4, GUARD = 0x5a5a5a5a };

typedef struct buffers {
    uint32_t words[MOST_RANKS][(MOST_LINES + 1) * WORDS];
    unsigned char *of[MOST_RANKS];
} buffers;

static uint32_t value(int rank, size_t i) { return (uint32_t)(i * 7919 + (size_t)rank * 104729 + 1); }

static uint32_t sum(int size, size_t i)
{
    uint32_t all = 0;
    for (int r = 0; r < size; r++) all += value(r, i);
    return all;
}

static void fill(buffers *b, bool values)
{
    for (int r = 0; r < MOST_RANKS; r++) {
        b->of[r] = (unsigned char *)b->words[r];
        for (size_t i = 0; i < (MOST_LINES + 1) * WORDS; i++) b->words[r][i] = values ? value(r, i) : GUARD;
    }
}

/* Every rank's work, one after the other, as between two meetings. */
static void work(rd_bound_kind kind, buffers *from, buffers *to, int size, int root, size_t lines)
{
    for (int rank = 0; rank < size; rank++) rd_bound_work(kind, from->of, to->of, rank, size, root, lines * LINE);
}

/* Which rank's part word i is. */
static int owner(size_t i, int size, size_t lines)
{
    int r = 0;
    while (i / WORDS >= lines * ((size_t)r + 1) / (size_t)size) r++;
    return r;
}

static uint32_t expected(rd_bound_kind kind, int rank, int size, int root, size_t i, size_t lines)
{
    switch (kind) {
    case RD_BOUND_ALL_REDUCE: return sum(size, i);
    case RD_BOUND_REDUCE: return rank == root ? sum(size, i) : GUARD;
    case RD_BOUND_REDUCE_SCATTER: return owner(i, size, lines) == rank ? sum(size, i) : GUARD;
    case RD_BOUND_ALL_GATHER: return owner(i, size, lines) == rank ? GUARD : value(owner(i, size, lines), i);
    default: return rank == root ? GUARD : value(root, i);
    }
}

static void bound_does_the_work(void **state)
{
    static const size_t lines[] = {1, 2, 7, 8, 9, 64, MOST_LINES};
    static buffers from, to;
    (void)state;
    for (int kind = RD_BOUND_ALL_REDUCE; kind <= RD_BOUND_REDUCE; kind++)
        for (int size = 2; size <= MOST_RANKS; size++)
            for (size_t l = 0; l < sizeof lines / sizeof *lines; l++) {
                int root = size - 1;
                fill(&from, true);
                fill(&to, false);
                work(kind, &from, &to, size, root, lines[l]);
                for (int rank = 0; rank < size; rank++)
                    for (size_t i = 0; i < (lines[l] + 1) * WORDS; i++) {
                        uint32_t right = i < lines[l] * WORDS ? expected(kind, rank, size, root, i, lines[l]) : GUARD;
                        if (to.words[rank][i] != right)
                            fail_msg("kind %d, %d ranks, %zu lines: word %zu of rank %d", kind, size, lines[l], i, rank);
                    }
            }
}

static void bound_works_in_place(void **state)
{
    static buffers both;
    (void)state;
    for (int size = 2; size <= MOST_RANKS; size++) {
        fill(&both, true);
        work(RD_BOUND_ALL_REDUCE, &both, &both, size, 0, MOST_LINES);
        for (int rank = 0; rank < size; rank++)
            for (size_t i = 0; i < MOST_LINES * WORDS; i++) assert_int_equal(both.words[rank][i], sum(size, i));
    }
}

static void placements_have_names(void **state)
{
    (void)state;
    assert_string_equal(rd_placement_name((rd_placement){61, true}), "core");
    assert_string_equal(rd_placement_name((rd_placement){55, false}), "L3");
    assert_string_equal(rd_placement_name((rd_placement){115, false}), "L3");
    assert_string_equal(rd_placement_name((rd_placement){250, false}), "host");
    assert_string_equal(rd_placement_name((rd_placement){400, false}), "host");
    assert_string_equal(rd_placement_name((rd_placement){5000, true}), "busy");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bound_does_the_work),
        cmocka_unit_test(bound_works_in_place),
        cmocka_unit_test(placements_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
