/* SPDX-License-Identifier: Apache-2.0
 *
 * Case 6: buffers that coincide in the ways that are named, in others, and nearly.
 */
#include "test.h"

#include "base/dtype.h"
#include "trial.h"

static void in_place_rank(rondo_comm *comm, int rank, int n, void *context)
{
    static const size_t counts[] = {1, 2, 257, 5000};
    static const rondo_dtype types[] = {RONDO_FLOAT32, RONDO_INT8, RONDO_BFLOAT16, RONDO_FLOAT64};
    (void)rank, (void)context;
    for (int c = 0; c < TRIAL_COLLECTIVES; c++)
        for (size_t k = 0; k < 4; k++)
            for (int root = 0; root < n; root++) {
                trial t = trial_draw(k, n, counts[(k + (size_t)root) % 4]);
                t.collective = (rondo_collective)c;
                t.dtype = types[k];
                t.root = root;
                t.in_place = true;
                trial_run(&t, comm);
            }
    rondo_comm_destroy(comm);
}

static void case_06_in_place(void **state)
{
    (void)state;
    test_env("RONDO_SLICE", "4096");
    for (int w = 0; w < WAYS; w++) {
        way_take(&ways[w]);
        ranks_run(4, NULL, NULL, in_place_rank, NULL);
    }
    test_env("RONDO_SLICE", NULL);
}

/* ---- Overlaps that are no in-place form: refused, with both ranges in words, and nothing is touched ---- */

/* A call whose recv begins `shift` bytes after its send. */
static void try_shift(const trial *t, long shift, rondo_comm *comm)
{
    char name[160], range[2][128];
    int rank = rondo_comm_rank(comm), n = rondo_comm_size(comm);
    size_t b = rd_dtype_bytes(t->dtype), sends = trial_sends(t, n) * b, receives = trial_receives(t, n) * b;
    size_t both = sends + receives + (size_t)labs(shift);
    unsigned char *memory = guard_begin(both, 0, false), *before = malloc(both);
    unsigned char *send = memory + (shift < 0 ? -shift : 0), *recv = memory + (shift < 0 ? 0 : shift);
    trial_fill(t, rank, n, send);
    memcpy(before, memory, both);
    rondo_result r = trial_call(t, send, recv, comm);
    trial_name(t, name, sizeof name);
    CHECK(r == RONDO_INVALID_ARGUMENT, "%s, recv = send + %ld bytes: %s", name, shift, rondo_result_string(r));
    snprintf(range[0], sizeof range[0], "send [%p, %p)", (void *)send, (void *)(send + sends));
    snprintf(range[1], sizeof range[1], "recv [%p, %p)", (void *)recv, (void *)(recv + receives));
    for (int k = 0; k < 2; k++)
        CHECK(strstr(rondo_last_error(comm), range[k]), "%s: \"%s\" lacks %s", name, rondo_last_error(comm), range[k]);
    CHECK(!memcmp(before, memory, both), "%s, recv = send + %ld bytes: a refused call wrote", name, shift);
    CHECK(guard_end(memory, both), "%s: written beside the buffers", name);
    free(before);
}

/* Buffers that touch and do not overlap, either one first, are two buffers. */
static void side_by_side(const trial *t, bool recv_first, rondo_comm *comm)
{
    char name[160], text[256];
    int rank = rondo_comm_rank(comm), n = rondo_comm_size(comm);
    size_t b = rd_dtype_bytes(t->dtype), sends = trial_sends(t, n) * b, receives = trial_receives(t, n) * b;
    unsigned char *memory = guard_begin(sends + receives, 0, false);
    unsigned char *send = memory + (recv_first ? receives : 0), *recv = memory + (recv_first ? 0 : sends);
    trial_fill(t, rank, n, send);
    rondo_result r = trial_call(t, send, recv, comm);
    trial_name(t, name, sizeof name);
    CHECK(r == RONDO_SUCCESS, "%s, side by side: %s", name, rondo_last_error(comm));
    CHECK(trial_holds(t, rank, n, recv, text, sizeof text), "%s, side by side: %s", name, text);
    CHECK(guard_end(memory, sends + receives), "%s: written beside the buffers", name);
}

/* Does this rank use both buffers? */
static bool uses_both(const trial *t, int rank)
{
    bool rooted = t->collective == RONDO_COLL_BROADCAST || t->collective == RONDO_COLL_REDUCE;
    return !rooted || rank == t->root;
}

static void overlap_rank(rondo_comm *comm, int rank, int n, void *context)
{
    static const rondo_dtype types[] = {RONDO_FLOAT32, RONDO_UINT8, RONDO_FLOAT64};
    (void)context;
    for (int c = 0; c < TRIAL_COLLECTIVES; c++)
        for (size_t k = 0; k < 3; k++) {
            trial t = {.collective = (rondo_collective)c, .dtype = types[k], .op = RONDO_SUM, .root = (int)k % n,
                       .count = 100 + k, .seed = k};
            long b = (long)rd_dtype_bytes(types[k]), sends = (long)trial_sends(&t, n) * b;
            long receives = (long)trial_receives(&t, n) * b, in_place = 0;
            if (c == RONDO_COLL_REDUCE_SCATTER) in_place = rank * (long)t.count * b;
            if (c == RONDO_COLL_ALL_GATHER) in_place = -rank * (long)t.count * b;
            long shifts[] = {0,                            /* recv == send */
                             b, -b, 1, -1,                 /* by an element, by a byte */
                             in_place + b, in_place - b, in_place + 1, /* beside the in-place form */
                             sends - 1, 1 - receives,      /* a byte of the tail */
                             sends / 2, (sends - receives) / 2 + b / 2 + (b == 1), /* one inside the other */
                             (rank + 1) % n * (long)t.count * b, /* another rank's part */
                             -((rank + 1) % n) * (long)t.count * b};
            for (size_t i = 0; uses_both(&t, rank) && i < sizeof shifts / sizeof *shifts; i++)
                if (shifts[i] != in_place && shifts[i] < sends && -shifts[i] < receives) try_shift(&t, shifts[i], comm);
            side_by_side(&t, k % 2, comm);
        }
    rondo_comm_destroy(comm);
}

static void case_06_overlap(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++)
        for (int n = 1; n <= 4; n++) {
            way_take(&ways[w]);
            ranks_run(n, NULL, NULL, overlap_rank, NULL);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_06_in_place),
        cmocka_unit_test(case_06_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
