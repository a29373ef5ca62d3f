/* SPDX-License-Identifier: Apache-2.0
 *
 * test_nccl_comms.c - how communicators of the drop-in are made, asked and derived from one another; memory and what is
 * registered; what is said of mistakes. Through nccl.h alone, on host memory.
 */
#include "nccl/kit.h"

/* ---- Helpers ---- */

/* As a program does that doesn't block: asks until it knows. */
static ncclResult_t await(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    for (int i = 0; i < 3000 && state == ncclInProgress; i++) {
        OK(ncclCommGetAsyncError(comm, &state));
        if (state == ncclInProgress) pause_ms(10);
    }
    return state;
}

/* ---- Making ---- */

static void inits_of_one_thread(void **state)
{
    ncclComm_t comms[RANKS];
    (void)state;
    init_ranks(comms, RANKS);
    for (int r = 0; r < RANKS; r++) expect_rank(comms[r], r, RANKS);
    use(comms, RANKS);
    destroy_all(comms, RANKS);
}

struct joiner {
    ncclUniqueId id;
    int rank;
    ncclComm_t comm;
    ncclResult_t result;
};

static void *join(void *argument)
{
    struct joiner *j = argument;
    j->result = ncclCommInitRank(&j->comm, RANKS, j->id, j->rank);
    return NULL;
}

/* An id serves again, which NCCL does not promise. */
static void inits_of_several_threads_and_an_id_used_twice(void **state)
{
    struct joiner j[RANKS];
    ncclUniqueId id;
    (void)state;
    OK(ncclGetUniqueId(&id));
    for (int round = 0; round < 2; round++) {
        pthread_t thread[RANKS];
        ncclComm_t comms[RANKS];
        for (int r = 0; r < RANKS; r++) {
            j[r] = (struct joiner){.id = id, .rank = r};
            assert_int_equal(pthread_create(&thread[r], NULL, join, &j[r]), 0);
        }
        for (int r = 0; r < RANKS; r++) {
            pthread_join(thread[r], NULL);
            OK(j[r].result);
            comms[r] = j[r].comm;
        }
        use(comms, RANKS);
        destroy_all(comms, RANKS);
    }
}

static void several_ids_and_a_config(void **state)
{
    ncclUniqueId ids[2];
    ncclComm_t comms[RANKS];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    (void)state;
    config.blocking = 1;
    config.minCTAs = 1;
    config.maxCTAs = 4;
    config.commName = "several";
    for (int i = 0; i < 2; i++) OK(ncclGetUniqueId(&ids[i]));
    ALL(ncclCommInitRankScalable(&comms[r], RANKS, r, 2, ids, &config));
    use(comms, RANKS);
    destroy_all(comms, RANKS);
    REFUSED(ncclInvalidArgument, "nId is 0", ncclCommInitRankScalable(&comms[0], RANKS, 0, 0, ids, NULL));
    REFUSED(ncclInvalidArgument, "commIds", ncclCommInitRankScalable(&comms[0], RANKS, 0, 1, NULL, NULL));
    OK(ncclGetUniqueId(&ids[0]));
    ALL(ncclCommInitRankConfig(&comms[r], RANKS, ids[0], r, &config));
    use(comms, RANKS);
    destroy_all(comms, RANKS);
}

static void without_blocking(void **state)
{
    ncclUniqueId id;
    ncclComm_t comms[RANKS] = {NULL}, halves[RANKS];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    int size;
    (void)state;
    config.blocking = 0;
    OK(ncclGetUniqueId(&id));
    assert_int_equal(ncclCommInitRankConfig(&comms[0], RANKS, id, 0, &config), ncclInProgress);
    assert_non_null(comms[0]);
    ncclResult_t first;
    OK(ncclCommGetAsyncError(comms[0], &first));
    assert_int_equal(first, ncclInProgress);
    REFUSED(ncclInvalidArgument, "still being made", ncclCommCount(comms[0], &size));
    OK(ncclGroupStart());
    for (int r = 1; r < RANKS; r++)
        assert_int_equal(ncclCommInitRankConfig(&comms[r], RANKS, id, r, &config), ncclSuccess);
    assert_int_equal(ncclGroupEnd(), ncclInProgress);
    for (int r = 0; r < RANKS; r++) assert_int_equal(await(comms[r]), ncclSuccess);
    use(comms, RANKS);
    /* One after the other, each of which needs the others. */
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(ncclCommSplit(comms[r], r == 1 ? NCCL_SPLIT_NOCOLOR : 0, -r, &halves[r], NULL),
                         ncclInProgress);
    for (int r = 0; r < RANKS; r++) assert_int_equal(await(comms[r]), ncclSuccess);
    assert_null(halves[1]);
    assert_int_equal(await(halves[0]), ncclSuccess);
    expect_rank(halves[0], 1, 2);
    expect_rank(halves[2], 0, 2);
    OK(ncclCommDestroy(halves[0]));
    OK(ncclCommDestroy(halves[2]));
    destroy_all(comms, RANKS);
}

static void bad_inits(void **state)
{
    ncclUniqueId id, zero = {{0}};
    ncclComm_t comm = (ncclComm_t)&id;
    ncclConfig_t bare = {0}, config = NCCL_CONFIG_INITIALIZER;
    int devices[2] = {0, -1};
    (void)state;
    OK(ncclGetUniqueId(&id));
    REFUSED(ncclInvalidArgument, "uniqueId is NULL", ncclGetUniqueId(NULL));
    REFUSED(ncclInvalidArgument, "NULL", ncclCommInitRank(NULL, 1, id, 0));
    REFUSED(ncclInvalidArgument, "rank 2 of 2", ncclCommInitRank(&comm, 2, id, 2));
    REFUSED(ncclInvalidArgument, "rank -1 of 2", ncclCommInitRank(&comm, 2, id, -1));
    REFUSED(ncclInvalidArgument, "at least 1 rank", ncclCommInitRank(&comm, 0, id, 0));
    REFUSED(ncclInvalidArgument, "NCCL_CONFIG_INITIALIZER", ncclCommInitRankConfig(&comm, 1, id, 0, &bare));
    config.blocking = 2;
    REFUSED(ncclInvalidArgument, "config->blocking is 2", ncclCommInitRankConfig(&comm, 1, id, 0, &config));
    config.blocking = 1, config.minCTAs = 4, config.maxCTAs = 2;
    REFUSED(ncclInvalidArgument, "minCTAs is 4", ncclCommInitRankConfig(&comm, 1, id, 0, &config));
    config.maxCTAs = 4, config.netName = "mynet";
    REFUSED(ncclInvalidUsage, "plugins", ncclCommInitRankConfig(&comm, 1, id, 0, &config));
    assert_ptr_equal(comm, &id);
    REFUSED(ncclInvalidArgument, "all zero", ncclCommInitRank(&comm, 1, zero, 0));
    assert_null(comm);
    REFUSED(ncclInvalidArgument, "comm is NULL", ncclCommInitAll(NULL, 1, NULL));
    REFUSED(ncclInvalidArgument, "ndev is -1", ncclCommInitAll(&comm, -1, NULL));
    REFUSED(ncclInvalidArgument, "devlist[1] is -1", ncclCommInitAll(&comm, 2, devices));
    OK(ncclCommInitAll(&comm, 0, NULL));
    REFUSED(ncclInvalidArgument, "version is NULL", ncclGetVersion(NULL));
}

/* ---- Asking ---- */

static void what_they_can_be_asked(void **state)
{
    world *w = *state;
    int device = -7;
    ncclResult_t result = ncclInternalError;
    for (int r = 0; r < RANKS; r++) {
        expect_rank(w->comm[r], r, RANKS);
        OK(ncclCommCuDevice(w->comm[r], &device));
        assert_int_equal(device, r);
        OK(ncclCommGetAsyncError(w->comm[r], &result));
        assert_int_equal(result, ncclSuccess);
    }
    REFUSED(ncclInvalidArgument, "count is NULL", ncclCommCount(w->comm[0], NULL));
    REFUSED(ncclInvalidArgument, "rank is NULL", ncclCommUserRank(w->comm[0], NULL));
    REFUSED(ncclInvalidArgument, "device is NULL", ncclCommCuDevice(w->comm[0], NULL));
    REFUSED(ncclInvalidArgument, "comm is NULL", ncclCommCount(NULL, &device));
    REFUSED(ncclInvalidArgument, "asyncError is NULL", ncclCommGetAsyncError(w->comm[0], NULL));
    for (int i = 0; i < ncclNumResults; i++) assert_true(strlen(ncclGetErrorString((ncclResult_t)i)) > 3);
    assert_string_equal(ncclGetErrorString((ncclResult_t)99), ncclGetErrorString((ncclResult_t)-5));
    assert_string_not_equal(ncclGetErrorString(ncclSuccess), ncclGetErrorString(ncclRemoteError));
}

static void *fail_elsewhere(void *unused)
{
    (void)unused;
    ncclCommCount((ncclComm_t)0x1234, NULL);
    return NULL;
}

static void the_last_error_is_the_processes(void **state)
{
    pthread_t thread;
    (void)state;
    assert_int_equal(ncclGetVersion(NULL), ncclInvalidArgument);
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    pthread_join(thread, NULL);
    assert_non_null(strstr(ncclGetLastError(NULL), "ncclCommCount: comm is 0x1234"));
}

/* ---- From one another ---- */

static void splits(void **state)
{
    world *w = *state;
    ncclComm_t part[RANKS], again[RANKS];
    ALL(ncclCommSplit(w->comm[r], r == 0 ? NCCL_SPLIT_NOCOLOR : 5, RANKS - r, &part[r], NULL));
    assert_null(part[0]);
    expect_rank(part[1], 1, 2);
    expect_rank(part[2], 0, 2);
    use(part + 1, 2);
    OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) OK(ncclCommSplit(w->comm[r], 0, 0, &again[r], NULL));
    OK(ncclGroupEnd());
    use(again, RANKS);
    destroy_all(again, RANKS);
    destroy_all(part + 1, 2);
    REFUSED(ncclInvalidArgument, "color is -2", ncclCommSplit(w->comm[0], -2, 0, &part[0], NULL));
    REFUSED(ncclInvalidArgument, "NULL", ncclCommSplit(w->comm[0], 0, 0, NULL, NULL));
    REFUSED(ncclInvalidArgument, "comm is NULL", ncclCommSplit(NULL, 0, 0, &part[0], NULL));
}

static void shrinks(void **state)
{
    world *w = *state;
    ncclComm_t less[RANKS] = {NULL};
    int without = 1, self = 0, beyond = 7;
    OK(ncclGroupStart());
    OK(ncclCommShrink(w->comm[0], &without, 1, &less[0], NULL, NCCL_SHRINK_DEFAULT));
    OK(ncclCommShrink(w->comm[2], &without, 1, &less[1], NULL, NCCL_SHRINK_DEFAULT));
    OK(ncclGroupEnd());
    expect_rank(less[0], 0, 2);
    expect_rank(less[1], 1, 2);
    use(less, 2);
    use(w->comm, RANKS);
    destroy_all(less, 2);
    REFUSED(ncclInvalidArgument, "at least one", ncclCommShrink(w->comm[0], &without, 0, &less[0], NULL, 0));
    REFUSED(ncclInvalidArgument, "excludeRanksList", ncclCommShrink(w->comm[0], NULL, 1, &less[0], NULL, 0));
    REFUSED(ncclInvalidArgument, "shrinkFlags is 0x8", ncclCommShrink(w->comm[0], &without, 1, &less[0], NULL, 8));
    REFUSED(ncclInvalidArgument, "this rank", ncclCommShrink(w->comm[0], &self, 1, &less[0], NULL, 0));
    REFUSED(ncclInvalidArgument, "exclude[0] is 7", ncclCommShrink(w->comm[0], &beyond, 1, &less[0], NULL, 0));
}

/* Named at once, on all ranks, instead of a hang. */
static void calls_that_do_not_match_are_named(void **state)
{
    ncclComm_t comms[2];
    int value[2] = {1, 2};
    (void)state;
    init_ranks(comms, 2);
    OK(ncclGroupStart());
    OK(ncclAllReduce(&value[0], &value[0], 1, ncclInt, ncclSum, comms[0], NULL));
    OK(ncclAllReduce(&value[1], &value[1], 1, ncclInt, ncclMax, comms[1], NULL));
    assert_int_equal(ncclGroupEnd(), ncclInvalidUsage);
    assert_non_null(strstr(ncclGetLastError(comms[0]), "sum"));
    assert_non_null(strstr(ncclGetLastError(comms[0]), "max"));
    for (int r = 0; r < 2; r++) OK(ncclCommAbort(comms[r]));
}

/* ---- Memory ---- */

static void memory_that_neighbours_reach(void **state)
{
    world *w = *state;
    float *mine[RANKS];
    for (int r = 0; r < RANKS; r++) {
        OK(ncclMemAlloc((void **)&mine[r], COUNT * sizeof(float)));
        for (int i = 0; i < COUNT; i++) mine[r][i] = element(r, (size_t)i);
    }
    ALL(ncclAllReduce(mine[r], mine[r], COUNT, ncclFloat, ncclMax, w->comm[r], NULL));
    assert_true(mine[0][5] == element(RANKS - 1, 5));
    for (int r = 0; r < RANKS; r++) OK(ncclMemFree(mine[r]));
    OK(ncclMemFree(NULL));
    REFUSED(ncclInvalidArgument, "ptr is NULL", ncclMemAlloc(NULL, 8));
    assert_int_equal(ncclMemFree(w), ncclInvalidArgument);
}

static void registrations_and_windows(void **state)
{
    world *w = *state;
    void *memory, *handle = NULL, *second = NULL;
    ncclWindow_t window = NULL;
    OK(ncclMemAlloc(&memory, 8192));
    OK(ncclCommRegister(w->comm[0], memory, 8192, &handle));
    OK(ncclCommRegister(w->comm[0], memory, 8192, &second));
    assert_non_null(handle);
    assert_ptr_not_equal(handle, second);
    REFUSED(ncclInvalidUsage, "no handle", ncclCommDeregister(w->comm[1], handle));
    OK(ncclCommDeregister(w->comm[0], handle));
    REFUSED(ncclInvalidUsage, "no handle", ncclCommDeregister(w->comm[0], handle));
    OK(ncclCommDeregister(w->comm[0], second));
    OK(ncclCommWindowRegister(w->comm[0], memory, 8192, &window, NCCL_WIN_COLL_SYMMETRIC));
    assert_non_null(window);
    OK(ncclCommWindowDeregister(w->comm[0], window));
    REFUSED(ncclInvalidUsage, "no handle", ncclCommWindowDeregister(w->comm[0], window));
    REFUSED(ncclInvalidArgument, "winFlags is 0x4", ncclCommWindowRegister(w->comm[0], memory, 8192, &window, 4));
    REFUSED(ncclInvalidArgument, "aligned",
            ncclCommWindowRegister(w->comm[0], (char *)memory + 8, 64, &window, NCCL_WIN_COLL_SYMMETRIC));
    REFUSED(ncclInvalidArgument, "no memory", ncclCommRegister(w->comm[0], NULL, 8, &handle));
    REFUSED(ncclInvalidArgument, "NULL", ncclCommRegister(w->comm[0], memory, 8, NULL));
    OK(ncclMemFree(memory));
}

/* A stream that there cannot be: NULL is the one that there is. */
static void streams_need_a_gpu(void **state)
{
    world *w = *state;
    REFUSED(ncclInvalidUsage, "no GPU",
            ncclAllReduce(w->send[0], w->recv[0], 1, ncclFloat, ncclSum, w->comm[0], (cudaStream_t)(void *)w));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inits_of_one_thread),
        cmocka_unit_test(inits_of_several_threads_and_an_id_used_twice),
        cmocka_unit_test(several_ids_and_a_config),
        cmocka_unit_test(without_blocking),
        cmocka_unit_test(bad_inits),
        cmocka_unit_test(what_they_can_be_asked),
        cmocka_unit_test(the_last_error_is_the_processes),
        cmocka_unit_test(splits),
        cmocka_unit_test(shrinks),
        cmocka_unit_test(calls_that_do_not_match_are_named),
        cmocka_unit_test(memory_that_neighbours_reach),
        cmocka_unit_test(registrations_and_windows),
        cmocka_unit_test(streams_need_a_gpu),
    };
    return cmocka_run_group_tests(tests, world_open, world_close);
}
