/* SPDX-License-Identifier: Apache-2.0
 *
 * test_scaled.c - operators made at run time: sums of scaled terms have the bits of plain sums whose terms the caller
 * has scaled, in every type, by every algorithm; and when an operator and its factor may go.
 */
#include "elements.h"
#include "ranks.h"
#include "test.h"

enum { RANKS = 3, COUNT = 5003 };

#define OK(call) assert_int_equal(call, RONDO_SUCCESS)

static const double factors[RANKS] = {3, 0.5, 2};

static double factor_of(int r, rondo_dtype dtype)
{
    return element_is_float(dtype) ? factors[r] : r + 2;
}

/* terms: as they are, or scaled. */
static void fill(unsigned char *at, rondo_dtype dtype, size_t bytes, int r, size_t count, bool scaled)
{
    for (size_t i = 0; i < count; i++) {
        double x = element_round((double)((i * 7 + (size_t)r * 3) % 11), dtype);
        element_put(at + i * bytes, dtype, scaled ? element_round(x * factor_of(r, dtype), dtype) : x);
    }
}

static void make_operators(rondo_comm **comms, rondo_dtype dtype, rondo_op *ops)
{
    for (int r = 0; r < RANKS; r++) {
        unsigned char factor[8];
        element_put(factor, dtype, factor_of(r, dtype));
        OK(rondo_op_create_scaled_sum(&ops[r], factor, dtype, RONDO_NOW, comms[r]));
        memset(factor, 0xff, sizeof factor);
    }
}

typedef unsigned char buffer[RANKS][RANKS * COUNT * 8];
static buffer terms, scaled, got, want;

static void sum(rondo_comm **comms, rondo_dtype dtype, const rondo_op *ops, buffer from, buffer to, bool scatter)
{
    OK(rondo_group_start());
    for (int r = 0; r < RANKS; r++)
        if (scatter)
            OK(rondo_reduce_scatter(from[r], to[r], COUNT, dtype, ops[r], comms[r], NULL));
        else
            OK(rondo_all_reduce(from[r], to[r], COUNT, dtype, ops[r], comms[r], NULL));
    OK(rondo_group_end());
}

static void compare(rondo_comm **comms, rondo_dtype dtype, bool scatter)
{
    static const rondo_op plain[RANKS] = {RONDO_SUM, RONDO_SUM, RONDO_SUM};
    size_t bytes = dtype == RONDO_FLOAT64 || dtype == RONDO_INT64 || dtype == RONDO_UINT64 ? 8 : 4;
    if (dtype == RONDO_FLOAT16 || dtype == RONDO_BFLOAT16) bytes = 2;
    if (dtype == RONDO_INT8 || dtype == RONDO_UINT8 || dtype >= RONDO_FLOAT8E4M3) bytes = 1;
    size_t count = scatter ? RANKS * COUNT : COUNT;
    rondo_op ops[RANKS];
    make_operators(comms, dtype, ops);
    for (int r = 0; r < RANKS; r++) {
        fill(terms[r], dtype, bytes, r, count, false);
        fill(scaled[r], dtype, bytes, r, count, true);
        memset(got[r], 0, sizeof got[r]);
        memset(want[r], 1, sizeof want[r]);
    }
    sum(comms, dtype, ops, terms, got, scatter);
    sum(comms, dtype, plain, scaled, want, scatter);
    for (int r = 0; r < RANKS; r++) assert_memory_equal(got[r], want[r], COUNT * bytes);
    assert_memory_not_equal(got[0], terms[0], COUNT * bytes);
    sum(comms, dtype, ops, terms, terms, false); /* in place */
    sum(comms, dtype, plain, scaled, want, false);
    for (int r = 0; r < RANKS; r++) assert_memory_equal(terms[r], want[r], COUNT * bytes);
    for (int r = 0; r < RANKS; r++) OK(rondo_op_destroy(ops[r], comms[r]));
}

static void every_type_with_every_algorithm(void **state)
{
    static const char *const ways[][2] = {{"ring", "loop"}, {"flat", "loop"}, {"ring", "tcp"}};
    (void)state;
    for (int w = 0; w < 3; w++) {
        rondo_comm *comms[RANKS];
        test_env("RONDO_ALGO", ways[w][0]);
        test_env("RONDO_TRANSPORT", ways[w][1]);
        OK(rondo_init_all(comms, RANKS, NULL));
        for (int d = 0; d < RONDO_DTYPES; d++)
            for (int scatter = 0; scatter < 2; scatter++) compare(comms, (rondo_dtype)d, scatter);
        for (int r = 0; r < RANKS; r++) OK(rondo_comm_destroy(comms[r]));
    }
    test_env("RONDO_ALGO", NULL);
    test_env("RONDO_TRANSPORT", NULL);
}

/* The first call waits for the second rank, and the others have gone before it runs. */
static void an_operator_may_go_before_its_call_runs(void **state)
{
    rondo_comm *comms[2];
    rondo_stream *stream;
    rondo_op op, later;
    int factor = 5, value[2] = {7, 1}, other[2] = {1, 1};
    (void)state;
    OK(rondo_init_all(comms, 2, NULL));
    OK(rondo_stream_create(&stream, NULL));
    OK(rondo_op_create_scaled_sum(&op, &factor, RONDO_INT32, RONDO_NOW, comms[0]));
    OK(rondo_op_create_scaled_sum(&later, &factor, RONDO_INT32, RONDO_LATER, comms[0]));
    OK(rondo_all_reduce(&value[0], &value[0], 1, RONDO_INT32, RONDO_SUM, comms[0], stream));
    OK(rondo_all_reduce(&other[0], &other[0], 1, RONDO_INT32, op, comms[0], stream));
    OK(rondo_all_reduce(&value[0], &value[0], 1, RONDO_INT32, later, comms[0], stream));
    OK(rondo_op_destroy(op, comms[0]));
    OK(rondo_op_destroy(later, comms[0]));
    factor = 100;
    rondo_op again, one = 1;
    OK(rondo_op_create_scaled_sum(&again, &one, RONDO_INT32, RONDO_NOW, comms[0])); /* takes nobody's place */
    OK(rondo_all_reduce(&value[1], &value[1], 1, RONDO_INT32, RONDO_SUM, comms[1], NULL));
    rondo_op mine;
    OK(rondo_op_create_scaled_sum(&mine, &(int){2}, RONDO_INT32, RONDO_NOW, comms[1]));
    OK(rondo_all_reduce(&other[1], &other[1], 1, RONDO_INT32, mine, comms[1], NULL));
    OK(rondo_all_reduce(&value[1], &value[1], 1, RONDO_INT32, mine, comms[1], NULL));
    OK(rondo_stream_synchronize(stream));
    assert_int_equal(other[0], 5 + 2);
    assert_int_equal(value[0], 8 * 100 + 8 * 2);
    assert_int_equal(value[1], value[0]);
    OK(rondo_stream_destroy(stream));
    for (int r = 0; r < 2; r++) OK(rondo_comm_destroy(comms[r]));
}

/* A plain sum on one rank and a scaled one on the other are different calls. */
static void ranks_must_all_scale(void **state)
{
    rondo_comm *comms[2];
    rondo_op op;
    float value[2] = {1, 2};
    (void)state;
    OK(rondo_init_all(comms, 2, NULL));
    OK(rondo_op_create_scaled_sum(&op, &value[0], RONDO_FLOAT32, RONDO_NOW, comms[0]));
    OK(rondo_group_start());
    OK(rondo_all_reduce(&value[0], &value[0], 1, RONDO_FLOAT32, op, comms[0], NULL));
    OK(rondo_all_reduce(&value[1], &value[1], 1, RONDO_FLOAT32, RONDO_SUM, comms[1], NULL));
    assert_int_equal(rondo_group_end(), RONDO_MISMATCH);
    for (int r = 0; r < 2; r++) OK(rondo_comm_destroy(comms[r]));
}

static void mistakes(void **state)
{
    rondo_comm *comm;
    rondo_op op = RONDO_MAX, second;
    float factor = 2, value = 3;
    (void)state;
    OK(rondo_init_all(&comm, 1, NULL));
    assert_int_equal(rondo_op_create_scaled_sum(NULL, &factor, RONDO_FLOAT32, RONDO_NOW, comm), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_op_create_scaled_sum(&op, NULL, RONDO_FLOAT32, RONDO_NOW, comm), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_op_create_scaled_sum(&op, &factor, RONDO_DTYPES, RONDO_NOW, comm), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_op_create_scaled_sum(&op, &factor, RONDO_FLOAT32, (rondo_when)9, comm),
                     RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_op_create_scaled_sum(&op, &factor, RONDO_FLOAT32, RONDO_NOW, NULL), RONDO_INVALID_ARGUMENT);
    assert_int_equal(op, RONDO_MAX);
    OK(rondo_op_create_scaled_sum(&op, &factor, RONDO_FLOAT32, RONDO_NOW, comm));
    OK(rondo_op_create_scaled_sum(&second, &factor, RONDO_FLOAT32, RONDO_NOW, comm));
    assert_int_not_equal(op, second);
    assert_int_equal(rondo_all_reduce(&value, &value, 1, RONDO_FLOAT64, op, comm, NULL), RONDO_INVALID_ARGUMENT);
    OK(rondo_all_reduce(&value, &value, 1, RONDO_FLOAT32, op, comm, NULL)); /* a world of one scales, too */
    assert_true(value == 6);
    OK(rondo_op_destroy(op, comm));
    assert_int_equal(rondo_op_destroy(op, comm), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_op_destroy(RONDO_SUM, comm), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_op_destroy(second, NULL), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_all_reduce(&value, &value, 1, RONDO_FLOAT32, op, comm, NULL), RONDO_INVALID_ARGUMENT);
    OK(rondo_comm_destroy(comm));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_with_every_algorithm),
        cmocka_unit_test(an_operator_may_go_before_its_call_runs),
        cmocka_unit_test(ranks_must_all_scale),
        cmocka_unit_test(mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
