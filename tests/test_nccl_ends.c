/* SPDX-License-Identifier: Apache-2.0
 *
 * test_nccl_ends.c - how communicators of the drop-in end: in order, by an abort or a revoke, also while they are made.
 * Through nccl.h alone, on host memory.
 */
#include "nccl/kit.h"

/* ---- While they are made ---- */

/* Nobody else comes; whoever waits gives up. */
static void an_init_can_be_aborted(void **state)
{
    ncclUniqueId id;
    ncclComm_t comm;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t before;
    (void)state;
    config.blocking = 0;
    OK(ncclGetUniqueId(&id));
    assert_int_equal(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
    OK(ncclCommAbort(comm));
    REFUSED(ncclInvalidArgument, "was destroyed or aborted", ncclCommGetAsyncError(comm, &before));
}

/* Rank 0 of a world whose other ranks do not come, and perhaps one that waits with it in a group. */
struct joiner {
    ncclUniqueId id, other;
    ncclComm_t comm, second;
    bool grouped;
    ncclResult_t result;
    char why[512];
};

static void *join(void *argument)
{
    struct joiner *j = argument;
    if (j->grouped) {
        ncclGroupStart();
        ncclCommInitRank(&j->comm, 2, j->id, 0);
        ncclCommInitRank(&j->second, 3, j->other, 1);
        j->result = ncclGroupEnd();
    } else {
        j->result = ncclCommInitRank(&j->comm, 2, j->id, 0);
    }
    snprintf(j->why, sizeof j->why, "%.511s", ncclGetLastError(NULL));
    return NULL;
}

/* The handle is there as soon as the call has begun. */
static ncclComm_t handle_of(ncclComm_t *comm)
{
    ncclComm_t handle = NULL;
    for (int i = 0; i < 1000 && !(handle = __atomic_load_n(comm, __ATOMIC_ACQUIRE)); i++) pause_ms(1);
    assert_non_null(handle);
    return handle;
}

static void abort_a_blocking_init(bool grouped, int wait_ms)
{
    pthread_t thread;
    struct joiner j = {.grouped = grouped};
    OK(ncclGetUniqueId(&j.id));
    OK(ncclGetUniqueId(&j.other));
    assert_int_equal(pthread_create(&thread, NULL, join, &j), 0);
    ncclComm_t handle = handle_of(&j.comm);
    pause_ms(wait_ms);
    double before = seconds();
    OK(ncclCommAbort(handle));
    pthread_join(thread, NULL);
    assert_true(seconds() - before < 1);
    assert_int_equal(j.result, ncclInvalidUsage);
    assert_non_null(strstr(j.why, grouped ? "ncclGroupEnd: ncclCommAbort was called" : "ncclCommInitRank: "));
    assert_null(j.comm);
    assert_null(j.second);
    REFUSED(ncclInvalidArgument, "was destroyed or aborted", ncclCommAbort(handle));
}

static void a_blocking_init_can_be_aborted_by_another_thread(void **state)
{
    (void)state;
    for (int wait_ms = 0; wait_ms <= 100; wait_ms += 50) abort_a_blocking_init(false, wait_ms);
    abort_a_blocking_init(true, 100);
}

/* The others of its group end, too, and say why. */
static void an_init_that_fails_ends_its_group(void **state)
{
    ncclUniqueId id, bad = {{0}};
    ncclComm_t comms[2];
    (void)state;
    OK(ncclGetUniqueId(&id));
    OK(ncclGroupStart());
    OK(ncclCommInitRank(&comms[0], 2, id, 0));
    OK(ncclCommInitRank(&comms[1], 2, bad, 1));
    REFUSED(ncclInvalidArgument, "all zero", ncclGroupEnd());
    assert_null(comms[0]);
    assert_null(comms[1]);
}

/* ---- Once they are made ---- */

struct waiter {
    ncclComm_t comm;
    int value;
    ncclResult_t result;
    char why[512];
};

static void *wait_for_all(void *argument)
{
    struct waiter *w = argument;
    w->result = ncclAllReduce(&w->value, &w->value, 1, ncclInt, ncclSum, w->comm, NULL);
    snprintf(w->why, sizeof w->why, "%.511s", ncclGetLastError(NULL));
    return NULL;
}

/* Rank 0 is inside a call that rank 1 never makes. */
static void a_shrink_may_abort_what_is_under_way(void **state)
{
    ncclComm_t comms[RANKS], less[2];
    pthread_t thread;
    int without = 1;
    (void)state;
    init_ranks(comms, RANKS);
    struct waiter stuck = {.comm = comms[0], .value = 1};
    assert_int_equal(pthread_create(&thread, NULL, wait_for_all, &stuck), 0);
    pause_ms(50);
    OK(ncclGroupStart());
    OK(ncclCommShrink(comms[2], &without, 1, &less[1], NULL, NCCL_SHRINK_ABORT));
    OK(ncclGroupStart()); /* nested, as anywhere */
    OK(ncclCommShrink(comms[0], &without, 1, &less[0], NULL, NCCL_SHRINK_ABORT));
    OK(ncclGroupEnd());
    OK(ncclGroupEnd());
    pthread_join(thread, NULL);
    assert_int_not_equal(stuck.result, ncclSuccess);
    use(less, 2);
    destroy_all(less, 2);
    destroy_all(comms, RANKS);
}

static void a_revoked_communicator_can_be_split_and_shrunk(void **state)
{
    ncclComm_t comms[RANKS], less[2], part[RANKS];
    int value = 1, without = 2;
    pthread_t thread;
    (void)state;
    init_ranks(comms, RANKS);
    REFUSED(ncclInvalidArgument, "revokeFlags is 0x1", ncclCommRevoke(comms[0], 1));
    struct waiter stuck = {.comm = comms[0], .value = 1};
    assert_int_equal(pthread_create(&thread, NULL, wait_for_all, &stuck), 0);
    pause_ms(50);
    for (int r = 0; r < RANKS; r++) OK(ncclCommRevoke(comms[r], NCCL_REVOKE_DEFAULT));
    pthread_join(thread, NULL);
    assert_int_not_equal(stuck.result, ncclSuccess);
    ncclResult_t after;
    OK(ncclCommGetAsyncError(comms[0], &after));
    assert_int_equal(after, ncclSuccess);
    REFUSED(ncclInvalidUsage, "was revoked", ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comms[0], NULL));
    REFUSED(ncclInvalidUsage, "was revoked", ncclCommFinalize(comms[0]));
    ALL(ncclCommSplit(comms[r], 0, -r, &part[r], NULL));
    expect_rank(part[2], 0, RANKS);
    use(part, RANKS);
    destroy_all(part, RANKS);
    OK(ncclGroupStart());
    for (int r = 0; r < 2; r++) OK(ncclCommShrink(comms[r], &without, 1, &less[r], NULL, NCCL_SHRINK_DEFAULT));
    OK(ncclGroupEnd());
    use(less, 2);
    destroy_all(less, 2);
    destroy_all(comms, RANKS);
}

static void finalize_then_destroy(void **state)
{
    ncclComm_t comms[RANKS];
    int value = 1;
    (void)state;
    init_ranks(comms, RANKS);
    for (int r = 0; r < RANKS; r++) OK(ncclCommFinalize(comms[r]));
    REFUSED(ncclInvalidArgument, "finalized already", ncclCommFinalize(comms[0]));
    REFUSED(ncclInvalidUsage, "can only be destroyed",
            ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comms[0], NULL));
    destroy_all(comms, RANKS);
    REFUSED(ncclInvalidArgument, "was destroyed or aborted", ncclCommDestroy(comms[0]));
    REFUSED(ncclInvalidArgument, "was destroyed or aborted", ncclCommAbort(comms[0]));
    OK(ncclCommDestroy(NULL));
    OK(ncclCommAbort(NULL));
}

/* To the one who revokes, and to the others, it is not an abort. */
static void a_revoke_is_told_as_one(void **state)
{
    ncclComm_t comms[2];
    pthread_t thread;
    (void)state;
    init_ranks(comms, 2);
    struct waiter stuck = {.comm = comms[1], .value = 1};
    assert_int_equal(pthread_create(&thread, NULL, wait_for_all, &stuck), 0);
    pause_ms(50);
    OK(ncclCommRevoke(comms[0], NCCL_REVOKE_DEFAULT));
    pthread_join(thread, NULL);
    assert_int_equal(stuck.result, ncclRemoteError);
    assert_non_null(strstr(stuck.why, "rank 0"));
    assert_non_null(strstr(stuck.why, "ncclCommRevoke was called"));
    assert_null(strstr(stuck.why, "bort"));
    destroy_all(comms, 2);
}

/* It frees, so it is all that a program calls; a thread inside comes out, the other ranks hear of it. */
static void abort_frees_and_ends_calls(void **state)
{
    ncclComm_t comms[RANKS];
    pthread_t thread;
    ncclResult_t seen;
    (void)state;
    init_ranks(comms, RANKS);
    struct waiter stuck = {.comm = comms[0], .value = 1};
    assert_int_equal(pthread_create(&thread, NULL, wait_for_all, &stuck), 0);
    pause_ms(50);
    OK(ncclCommAbort(comms[0]));
    pthread_join(thread, NULL);
    assert_int_equal(stuck.result, ncclInvalidUsage);
    for (int i = 0; i < 500; i++) {
        OK(ncclCommGetAsyncError(comms[1], &seen));
        if (seen != ncclSuccess) break;
        pause_ms(10);
    }
    assert_int_equal(seen, ncclRemoteError);
    assert_non_null(strstr(ncclGetLastError(comms[1]), "rank 0"));
    OK(ncclCommAbort(comms[1]));
    OK(ncclCommAbort(comms[2]));
}

static void ends_in_a_group_come_after_its_calls(void **state)
{
    ncclComm_t comms[RANKS];
    int value[RANKS];
    (void)state;
    init_ranks(comms, RANKS);
    OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        value[r] = r;
        OK(ncclCommDestroy(comms[r]));
        OK(ncclAllReduce(&value[r], &value[r], 1, ncclInt, ncclSum, comms[r], NULL));
    }
    OK(ncclGroupEnd());
    for (int r = 0; r < RANKS; r++) assert_int_equal(value[r], 3);
    REFUSED(ncclInvalidArgument, "was destroyed", ncclCommCount(comms[0], value));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_init_can_be_aborted),
        cmocka_unit_test(a_blocking_init_can_be_aborted_by_another_thread),
        cmocka_unit_test(an_init_that_fails_ends_its_group),
        cmocka_unit_test(a_shrink_may_abort_what_is_under_way),
        cmocka_unit_test(a_revoked_communicator_can_be_split_and_shrunk),
        cmocka_unit_test(a_revoke_is_told_as_one),
        cmocka_unit_test(finalize_then_destroy),
        cmocka_unit_test(abort_frees_and_ends_calls),
        cmocka_unit_test(ends_in_a_group_come_after_its_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
