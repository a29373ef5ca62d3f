/* SPDX-License-Identifier: Apache-2.0
 *
 * test_nccl_calls.c - every collective, message and operator of the drop-in, through nccl.h alone, on host memory:
 * three ranks in one thread.
 */
#include "nccl/kit.h"

static float sum_at(size_t i)
{
    float sum = 0;
    for (int r = 0; r < RANKS; r++) sum += element(r, i);
    return sum;
}

static void expect(const float *got, size_t i, float value)
{
    if (got[i] != value) print_error("element %zu is %g, not %g\n", i, (double)got[i], (double)value);
    assert_true(got[i] == value);
}

static void all_reduce_sums(void **state)
{
    world *w = *state;
    world_fill(w);
    ALL(ncclAllReduce(w->send[r], w->recv[r], COUNT, ncclFloat, ncclSum, w->comm[r], NULL));
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; i < COUNT; i++) {
            expect(w->recv[r], i, sum_at(i));
            expect(w->send[r], i, element(r, i));
        }
    ALL(ncclAllReduce(w->send[r], w->send[r], COUNT, ncclFloat, ncclAvg, w->comm[r], NULL));
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; i < COUNT; i++) expect(w->send[r], i, sum_at(i) / RANKS);
    assert_true(w->send[0][COUNT] == element(0, COUNT));
}

static void other_operators_and_types(void **state)
{
    world *w = *state;
    unsigned char a[RANKS], b[RANKS];
    long long c[RANKS];
    for (int r = 0; r < RANKS; r++) {
        a[r] = (unsigned char)(100 + r);
        c[r] = r - 5;
    }
    ALL(ncclAllReduce(&a[r], &b[r], 1, ncclUint8, ncclMax, w->comm[r], NULL));
    for (int r = 0; r < RANKS; r++) assert_int_equal(b[r], 102);
    ALL(ncclAllReduce(&a[r], &b[r], 1, ncclUint8, ncclMin, w->comm[r], NULL));
    for (int r = 0; r < RANKS; r++) assert_int_equal(b[r], 100);
    ALL(ncclAllReduce(&c[r], &c[r], 1, ncclInt64, ncclProd, w->comm[r], NULL));
    for (int r = 0; r < RANKS; r++) assert_int_equal(c[r], -5 * -4 * -3);
}

static void reduce_scatter_leaves_parts(void **state)
{
    world *w = *state;
    world_fill(w);
    ALL(ncclReduceScatter(w->send[r], w->recv[r], COUNT, ncclFloat, ncclSum, w->comm[r], NULL));
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; i < COUNT; i++) expect(w->recv[r], i, sum_at((size_t)r * COUNT + i));
    ALL(ncclReduceScatter(w->send[r], w->send[r] + r * COUNT, COUNT, ncclFloat, ncclSum, w->comm[r], NULL));
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; i < COUNT; i++) expect(w->send[r] + r * COUNT, i, sum_at((size_t)r * COUNT + i));
}

static void all_gather_collects(void **state)
{
    world *w = *state;
    world_fill(w);
    ALL(ncclAllGather(w->send[r], w->recv[r], COUNT, ncclFloat, w->comm[r], NULL));
    for (int r = 0; r < RANKS; r++)
        for (int from = 0; from < RANKS; from++)
            for (size_t i = 0; i < COUNT; i++) expect(w->recv[r] + from * COUNT, i, element(from, i));
    ALL(ncclAllGather(w->send[r] + r * COUNT, w->send[r], COUNT, ncclFloat, w->comm[r], NULL));
    for (int r = 0; r < RANKS; r++)
        for (int from = 0; from < RANKS; from++)
            expect(w->send[r] + from * COUNT, 7, element(from, (size_t)from * COUNT + 7));
}

static void broadcast_copies(void **state)
{
    world *w = *state;
    world_fill(w);
    ALL(ncclBroadcast(r == 1 ? w->send[r] : NULL, w->recv[r], COUNT, ncclFloat, 1, w->comm[r], NULL));
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; i < COUNT; i++) expect(w->recv[r], i, element(1, i));
    ALL(ncclBcast(w->send[r], COUNT, ncclFloat, 2, w->comm[r], NULL));
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; i < COUNT; i++) expect(w->send[r], i, element(2, i));
}

static void reduce_gives_to_the_root(void **state)
{
    world *w = *state;
    world_fill(w);
    ALL(ncclReduce(w->send[r], r == 2 ? w->recv[r] : NULL, COUNT, ncclFloat, ncclSum, 2, w->comm[r], NULL));
    for (size_t i = 0; i < COUNT; i++) expect(w->recv[2], i, sum_at(i));
    ALL(ncclReduce(w->send[r], w->send[r], COUNT, ncclFloat, ncclSum, 0, w->comm[r], NULL));
    for (size_t i = 0; i < COUNT; i++) {
        expect(w->send[0], i, sum_at(i));
        expect(w->send[1], i, element(1, i));
    }
}

static void gather_and_scatter(void **state)
{
    world *w = *state;
    world_fill(w);
    ALL(ncclGather(w->send[r], w->recv[r], COUNT, ncclFloat, 1, w->comm[r], NULL));
    for (int from = 0; from < RANKS; from++)
        for (size_t i = 0; i < COUNT; i++) expect(w->recv[1] + from * COUNT, i, element(from, i));
    expect(w->recv[0], 0, -1);
    ALL(ncclScatter(w->send[r], w->recv[r], COUNT, ncclFloat, 1, w->comm[r], NULL));
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; i < COUNT; i++) expect(w->recv[r], i, element(1, (size_t)r * COUNT + i));
    ALL(ncclScatter(w->send[r], r == 0 ? w->send[r] : w->recv[r], COUNT, ncclFloat, 0, w->comm[r], NULL));
    expect(w->recv[2], 5, element(0, 2 * COUNT + 5));
}

static void all_to_all_transposes(void **state)
{
    world *w = *state;
    world_fill(w);
    ALL(ncclAlltoAll(w->send[r], w->recv[r], COUNT, ncclFloat, w->comm[r], NULL));
    for (int r = 0; r < RANKS; r++)
        for (int from = 0; from < RANKS; from++)
            for (size_t i = 0; i < COUNT; i++)
                expect(w->recv[r] + from * COUNT, i, element(from, (size_t)r * COUNT + i));
}

static void messages_go_round(void **state)
{
    world *w = *state;
    world_fill(w);
    OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        OK(ncclSend(w->send[r], COUNT, ncclFloat, (r + 1) % RANKS, w->comm[r], NULL));
        OK(ncclRecv(w->recv[r], COUNT, ncclFloat, (r + RANKS - 1) % RANKS, w->comm[r], NULL));
        OK(ncclSend(w->send[r] + COUNT, 1, ncclFloat, r, w->comm[r], NULL));
        OK(ncclRecv(w->recv[r] + COUNT, 1, ncclFloat, r, w->comm[r], NULL));
    }
    OK(ncclGroupEnd());
    for (int r = 0; r < RANKS; r++) {
        for (size_t i = 0; i < COUNT; i++) expect(w->recv[r], i, element((r + RANKS - 1) % RANKS, i));
        expect(w->recv[r], COUNT, element(r, COUNT));
    }
}

/* What others of NCCL's programs do: buffers that overlap, whose contents nobody looks at. */
static void overlapping_buffers_are_the_callers_business(void **state)
{
    world *w = *state;
    ALL(ncclAlltoAll(w->send[r], w->send[r], COUNT, ncclFloat, w->comm[r], NULL));
    OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        OK(ncclSend(w->send[r], COUNT, ncclFloat, (r + 1) % RANKS, w->comm[r], NULL));
        OK(ncclRecv(w->send[r], COUNT, ncclFloat, (r + RANKS - 1) % RANKS, w->comm[r], NULL));
    }
    OK(ncclGroupEnd());
}

static void a_count_of_0_succeeds(void **state)
{
    world *w = *state;
    ALL(ncclAllReduce(NULL, NULL, 0, ncclFloat, ncclSum, w->comm[r], NULL));
    ALL(ncclReduceScatter(NULL, NULL, 0, ncclFloat, ncclSum, w->comm[r], NULL));
    ALL(ncclAllGather(NULL, NULL, 0, ncclFloat, w->comm[r], NULL));
    ALL(ncclBroadcast(NULL, NULL, 0, ncclFloat, 0, w->comm[r], NULL));
    ALL(ncclReduce(NULL, NULL, 0, ncclFloat, ncclSum, 0, w->comm[r], NULL));
    ALL(ncclAlltoAll(NULL, NULL, 0, ncclFloat, w->comm[r], NULL));
    ALL(ncclSend(NULL, 0, ncclFloat, (r + 1) % RANKS, w->comm[r], NULL) ||
        ncclRecv(NULL, 0, ncclFloat, (r + RANKS - 1) % RANKS, w->comm[r], NULL));
}

/* ---- Operators made at run time ---- */

/* One factor each; the operator may go as soon as the call was made. */
static void scaled_sums(void **state)
{
    world *w = *state;
    float factor[RANKS] = {0.5f, 2, -3};
    ncclRedOp_t op[RANKS];
    world_fill(w);
    for (int r = 0; r < RANKS; r++) {
        for (int more = 0; more < r; more++) /* so that they have another number on every rank */
            OK(ncclRedOpCreatePreMulSum(&op[r], &factor[r], ncclFloat, ncclScalarHostImmediate, w->comm[r]));
        OK(ncclRedOpCreatePreMulSum(&op[r], &factor[r], ncclFloat, ncclScalarHostImmediate, w->comm[r]));
        assert_true((int)op[r] >= ncclNumOps);
        factor[r] = 1e9f; /* it has been read */
    }
    OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        OK(ncclAllReduce(w->send[r], w->recv[r], COUNT, ncclFloat, op[r], w->comm[r], NULL));
        OK(ncclReduceScatter(w->send[r], w->recv[r] + COUNT, COUNT, ncclFloat, op[r], w->comm[r], NULL));
        OK(ncclReduce(w->send[r], r == 1 ? w->recv[r] + 2 * COUNT : NULL, COUNT, ncclFloat, op[r], 1, w->comm[r],
                      NULL));
        OK(ncclRedOpDestroy(op[r], w->comm[r]));
    }
    OK(ncclGroupEnd());
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; i < COUNT; i++) {
            size_t at = (size_t)r * COUNT + i;
            expect(w->recv[r], i, 0.5f * element(0, i) + 2 * element(1, i) - 3 * element(2, i));
            expect(w->recv[r] + COUNT, i, 0.5f * element(0, at) + 2 * element(1, at) - 3 * element(2, at));
            expect(w->send[r], i, element(r, i));
        }
    expect(w->recv[1] + 2 * COUNT, 9, 0.5f * element(0, 9) + 2 * element(1, 9) - 3 * element(2, 9));
    REFUSED(ncclInvalidArgument, "op is", ncclAllReduce(w->send[0], w->recv[0], 1, ncclFloat, op[0], w->comm[0], NULL));
}

static void a_scalar_may_be_read_when_the_call_runs(void **state)
{
    world *w = *state;
    int factor[RANKS] = {1, 1, 1}, value[RANKS] = {7, 8, 9};
    ncclRedOp_t op[RANKS];
    for (int r = 0; r < RANKS; r++)
        OK(ncclRedOpCreatePreMulSum(&op[r], &factor[r], ncclInt, ncclScalarDevice, w->comm[r]));
    for (int r = 0; r < RANKS; r++) factor[r] = 10 + r;
    ALL(ncclAllReduce(&value[r], &value[r], 1, ncclInt, op[r], w->comm[r], NULL));
    for (int r = 0; r < RANKS; r++) assert_int_equal(value[r], 7 * 10 + 8 * 11 + 9 * 12);
    REFUSED(ncclInvalidArgument, "was made for int32",
            ncclAllReduce(w->send[0], w->recv[0], 1, ncclFloat, op[0], w->comm[0], NULL));
    for (int r = 0; r < RANKS; r++) OK(ncclRedOpDestroy(op[r], w->comm[r]));
    REFUSED(ncclInvalidArgument, "only once", ncclRedOpDestroy(op[0], w->comm[0]));
    REFUSED(ncclInvalidArgument, "can be destroyed", ncclRedOpDestroy(ncclSum, w->comm[0]));
}

static void bad_operators(void **state)
{
    world *w = *state;
    float one = 1;
    ncclRedOp_t op = ncclSum;
    REFUSED(ncclInvalidArgument, "op is NULL",
            ncclRedOpCreatePreMulSum(NULL, &one, ncclFloat, ncclScalarHostImmediate, w->comm[0]));
    REFUSED(ncclInvalidArgument, "scalar is NULL",
            ncclRedOpCreatePreMulSum(&op, NULL, ncclFloat, ncclScalarHostImmediate, w->comm[0]));
    REFUSED(ncclInvalidArgument, "residence is 2",
            ncclRedOpCreatePreMulSum(&op, &one, ncclFloat, (ncclScalarResidence_t)2, w->comm[0]));
    REFUSED(ncclInvalidArgument, "dtype is 12",
            ncclRedOpCreatePreMulSum(&op, &one, ncclNumTypes, ncclScalarHostImmediate, w->comm[0]));
    assert_int_equal(op, ncclSum);
}

/* ---- Groups and mistakes ---- */

static void groups_nest_and_a_refused_call_stops_all(void **state)
{
    world *w = *state;
    world_fill(w);
    REFUSED(ncclInvalidUsage, "no open group", ncclGroupEnd());
    OK(ncclGroupStart());
    OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++)
        OK(ncclAllReduce(w->send[r], w->recv[r], COUNT, ncclFloat, ncclSum, w->comm[r], NULL));
    OK(ncclGroupEnd());
    expect(w->recv[0], 0, -1);
    OK(ncclGroupEnd());
    expect(w->recv[0], 0, sum_at(0));
    world_fill(w);
    OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++)
        OK(ncclAllReduce(w->send[r], w->recv[r], COUNT, ncclFloat, ncclSum, w->comm[r], NULL));
    REFUSED(ncclInvalidArgument, "comm is NULL",
            ncclAllReduce(w->send[0], w->recv[0], COUNT, ncclFloat, ncclSum, NULL, NULL));
    REFUSED(ncclInvalidArgument, "nothing of the group was started", ncclGroupEnd());
    expect(w->recv[0], 0, -1);
}

/* Microseconds that all-reduces of so many elements may take. */
static float simulated(const world *w, size_t count, int calls)
{
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    OK(ncclGroupStart());
    for (int i = 0; i < calls; i++)
        OK(ncclAllReduce(w->send[0], w->recv[0], count, ncclFloat, ncclSum, w->comm[0], NULL));
    OK(ncclGroupStart());
    OK(ncclGroupSimulateEnd(&info)); /* an inner one says nothing yet */
    assert_true(info.estimatedTime == NCCL_UNDEF_FLOAT);
    OK(ncclGroupSimulateEnd(&info));
    assert_int_equal(info.size, sizeof info);
    return info.estimatedTime;
}

/* One rank alone: nothing has run. */
static void a_group_can_be_simulated(void **state)
{
    world *w = *state;
    ncclSimInfo_t bad = NCCL_SIM_INFO_INITIALIZER;
    world_fill(w);
    /* a + b x bytes: from two sizes follow the others, and calls come one after the other. */
    float none = simulated(w, 0, 1), some = simulated(w, COUNT, 1);
    assert_true(none > 0.1f && none < 1000 && some > none && some < none + 100);
    assert_true(fabsf(simulated(w, 3 * COUNT, 1) - (none + 3 * (some - none))) < 0.01f * some);
    assert_true(fabsf(simulated(w, COUNT, 2) - 2 * some) < 0.01f * some);
    assert_true(simulated(w, 0, 0) == 0);
    expect(w->recv[0], 0, -1);
    OK(ncclGroupStart());
    OK(ncclSend(w->send[0], COUNT, ncclFloat, 1, w->comm[0], NULL));
    OK(ncclGroupSimulateEnd(NULL));
    bad.magic = 7;
    OK(ncclGroupStart());
    REFUSED(ncclInvalidArgument, "NCCL_SIM_INFO_INITIALIZER", ncclGroupSimulateEnd(&bad));
    bad.magic = NCCL_SIM_INFO_MAGIC, bad.size = 12;
    OK(ncclGroupStart());
    REFUSED(ncclInvalidArgument, "size 12", ncclGroupSimulateEnd(&bad));
    OK(ncclGroupStart());
    REFUSED(ncclInvalidArgument, "op is 77",
            ncclAllReduce(w->send[0], w->recv[0], 1, ncclFloat, (ncclRedOp_t)77, w->comm[0], NULL));
    REFUSED(ncclInvalidArgument, "op is 77", ncclGroupSimulateEnd(NULL));
    REFUSED(ncclInvalidUsage, "no open group", ncclGroupSimulateEnd(NULL));
    ALL(ncclAllReduce(w->send[r], w->recv[r], COUNT, ncclFloat, ncclSum, w->comm[r], NULL)); /* none of it did harm */
    expect(w->recv[1], 0, sum_at(0));
}

static void mistakes_are_named(void **state)
{
    world *w = *state;
    float *s = w->send[0], *d = w->recv[0];
    ncclComm_t c = w->comm[0];
    REFUSED(ncclInvalidArgument, "ncclAllReduce: dtype is 12", ncclAllReduce(s, d, 1, ncclNumTypes, ncclSum, c, NULL));
    REFUSED(ncclInvalidArgument, "ncclAllReduce: op is 77",
            ncclAllReduce(s, d, 1, ncclFloat, (ncclRedOp_t)77, c, NULL));
    REFUSED(ncclInvalidArgument, "ncclAllReduce: send is NULL", ncclAllReduce(NULL, d, 1, ncclFloat, ncclSum, c, NULL));
    REFUSED(ncclInvalidArgument, "ncclBroadcast: root is 3", ncclBroadcast(s, d, 1, ncclFloat, RANKS, c, NULL));
    REFUSED(ncclInvalidArgument, "ncclReduce: root is -1", ncclReduce(s, d, 1, ncclFloat, ncclSum, -1, c, NULL));
    REFUSED(ncclInvalidArgument, "ncclSend: peer is 9", ncclSend(s, 1, ncclFloat, 9, c, NULL));
    REFUSED(ncclInvalidArgument, "ncclRecv: comm is", ncclRecv(d, 1, ncclFloat, 0, (ncclComm_t)s, NULL));
    REFUSED(ncclInvalidUsage, "itself", ncclSend(s, 1, ncclFloat, 0, c, NULL));
    REFUSED(ncclInvalidUsage, "kernels", ncclDevCommCreate(c, NULL, NULL));
    REFUSED(ncclInvalidUsage, "kernels", ncclDevCommDestroy(c, NULL));
    ALL(ncclAllReduce(w->send[r], w->recv[r], 1, ncclFloat, ncclSum, w->comm[r], NULL)); /* none of it did harm */
}

/* Where there is no memory; but what a rank does not use may be anything. */
static void wild_pointers_are_named(void **state)
{
    world *w = *state;
    void *wild = (void *)(uintptr_t)0x10;
    float *s = w->send[0], *d = w->recv[0];
    ncclComm_t c = w->comm[0];
    REFUSED(ncclInvalidArgument, "ncclAllReduce: sendbuff is 0x10", ncclAllReduce(wild, d, 1, ncclFloat, ncclSum, c, NULL));
    REFUSED(ncclInvalidArgument, "ncclAllReduce: recvbuff is 0x10", ncclAllReduce(s, wild, 1, ncclFloat, ncclSum, c, NULL));
    REFUSED(ncclInvalidArgument, "ncclBcast: sendbuff is 0x10", ncclBcast(wild, 1, ncclFloat, 0, c, NULL));
    REFUSED(ncclInvalidArgument, "ncclScatter: recvbuff is 0x10", ncclScatter(s, wild, 1, ncclFloat, 1, c, NULL));
    REFUSED(ncclInvalidArgument, "ncclGather: recvbuff is 0x10", ncclGather(s, wild, 1, ncclFloat, 0, c, NULL));
    REFUSED(ncclInvalidArgument, "ncclSend: sendbuff is 0x10", ncclSend(wild, 1, ncclFloat, 1, c, NULL));
    REFUSED(ncclInvalidArgument, "ncclRecv: recvbuff is 0x10", ncclRecv(wild, 1, ncclFloat, 1, c, NULL));
    world_fill(w);
    ALL(ncclAllReduce(wild, wild, 0, ncclFloat, ncclSum, w->comm[r], NULL));
    ALL(ncclBroadcast(r ? wild : w->send[0], w->recv[r], 1, ncclFloat, 0, w->comm[r], NULL));
    ALL(ncclReduce(w->send[r], r ? wild : w->recv[0], 1, ncclFloat, ncclSum, 0, w->comm[r], NULL));
    ALL(ncclGather(w->send[r], r ? wild : w->recv[0], 1, ncclFloat, 0, w->comm[r], NULL));
    ALL(ncclScatter(r ? wild : w->send[0], w->recv[r], 1, ncclFloat, 0, w->comm[r], NULL));
    for (int r = 0; r < RANKS; r++) assert_true(w->recv[r][0] == element(0, (size_t)r));
}

/* Another program's profiler defines the name and calls this one. */
static void the_other_names_do_the_same(void **state)
{
    world *w = *state;
    world_fill(w);
    OK(pncclGroupStart());
    for (int r = 0; r < RANKS; r++)
        OK(pncclAllReduce(w->send[r], w->recv[r], COUNT, ncclFloat, ncclSum, w->comm[r], NULL));
    OK(pncclGroupEnd());
    expect(w->recv[1], 3, sum_at(3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reduce_sums),
        cmocka_unit_test(other_operators_and_types),
        cmocka_unit_test(reduce_scatter_leaves_parts),
        cmocka_unit_test(all_gather_collects),
        cmocka_unit_test(broadcast_copies),
        cmocka_unit_test(reduce_gives_to_the_root),
        cmocka_unit_test(gather_and_scatter),
        cmocka_unit_test(all_to_all_transposes),
        cmocka_unit_test(messages_go_round),
        cmocka_unit_test(overlapping_buffers_are_the_callers_business),
        cmocka_unit_test(a_count_of_0_succeeds),
        cmocka_unit_test(scaled_sums),
        cmocka_unit_test(a_scalar_may_be_read_when_the_call_runs),
        cmocka_unit_test(bad_operators),
        cmocka_unit_test(groups_nest_and_a_refused_call_stops_all),
        cmocka_unit_test(a_group_can_be_simulated),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(wild_pointers_are_named),
        cmocka_unit_test(the_other_names_do_the_same),
    };
    return cmocka_run_group_tests(tests, world_open, world_close);
}
