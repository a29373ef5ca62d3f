/* SPDX-License-Identifier: Apache-2.0
 *
 * kit.h - what tests of the drop-in share: n ranks in one thread, whose calls are grouped, and elements whose value
 * says which rank's they are and where.
 */
#ifndef RONDO_TEST_NCCL_KIT_H
#define RONDO_TEST_NCCL_KIT_H

#include "../test.h"

#include <nccl.h>

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#define RANKS 3
#define COUNT 1003 /* of a rank; does not divide by it */

/* Succeeds, or says why not. */
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        ncclResult_t ok_ = (call);                                                                                     \
        if (ok_ != ncclSuccess) print_error("%s: %d, %s\n", #call, ok_, ncclGetLastError(NULL));                       \
        assert_int_equal(ok_, ncclSuccess);                                                                            \
    } while (0)
/* Is refused, in words that hold `part`. */
#define REFUSED(result, part, call)                                                                                    \
    do {                                                                                                               \
        ncclResult_t refused_ = (call);                                                                                \
        assert_int_equal(refused_, result);                                                                            \
        if (!strstr(ncclGetLastError(NULL), part)) print_error("%s\n", ncclGetLastError(NULL));                        \
        assert_non_null(strstr(ncclGetLastError(NULL), part));                                                         \
    } while (0)
/* Everyone's call, as one group. */
#define ALL(call)                                                                                                      \
    do {                                                                                                               \
        OK(ncclGroupStart());                                                                                          \
        for (int r = 0; r < RANKS; r++) OK(call);                                                                      \
        OK(ncclGroupEnd());                                                                                            \
    } while (0)

typedef struct world {
    ncclComm_t comm[RANKS];
    float *send[RANKS], *recv[RANKS]; /* RANKS * COUNT each */
} world;

static inline float element(int rank, size_t i)
{
    return (float)(rank * 5000 + (int)i + 1);
}

static inline void world_fill(world *w)
{
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; i < RANKS * COUNT; i++) {
            w->send[r][i] = element(r, i);
            w->recv[r][i] = -1;
        }
}

static inline int world_open(void **state)
{
    world *w = calloc(1, sizeof *w);
    for (int r = 0; r < RANKS; r++) {
        w->send[r] = calloc(RANKS * COUNT, sizeof(float));
        w->recv[r] = calloc(RANKS * COUNT, sizeof(float));
    }
    OK(ncclCommInitAll(w->comm, RANKS, NULL));
    world_fill(w);
    *state = w;
    return 0;
}

static inline int world_close(void **state)
{
    world *w = *state;
    for (int r = 0; r < RANKS; r++) {
        OK(ncclCommDestroy(w->comm[r]));
        free(w->send[r]);
        free(w->recv[r]);
    }
    free(w);
    return 0;
}

/* Ranks r of n in one thread: a group of inits. */
static inline void init_ranks(ncclComm_t *comms, int n)
{
    ncclUniqueId id;
    OK(ncclGetUniqueId(&id));
    OK(ncclGroupStart());
    for (int r = 0; r < n; r++) OK(ncclCommInitRank(&comms[r], n, id, r));
    OK(ncclGroupEnd());
}

static inline void destroy_all(const ncclComm_t *comms, int n)
{
    for (int r = 0; r < n; r++) OK(ncclCommDestroy(comms[r]));
}

/* It works: the sum of all ranks' numbers. */
static inline void use(const ncclComm_t *comms, int n)
{
    int value[RANKS];
    OK(ncclGroupStart());
    for (int r = 0; r < n; r++) {
        value[r] = 1 << r;
        OK(ncclAllReduce(&value[r], &value[r], 1, ncclInt, ncclSum, comms[r], NULL));
    }
    OK(ncclGroupEnd());
    for (int r = 0; r < n; r++) assert_int_equal(value[r], (1 << n) - 1);
}

static inline void expect_rank(ncclComm_t comm, int rank, int size)
{
    int is = -1, of = -1;
    OK(ncclCommUserRank(comm, &is));
    OK(ncclCommCount(comm, &of));
    assert_int_equal(is, rank);
    assert_int_equal(of, size);
}

static inline void pause_ms(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

static inline double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

#endif
