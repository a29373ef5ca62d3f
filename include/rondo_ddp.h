/* SPDX-License-Identifier: Apache-2.0
 *
 * rondo_ddp.h - data-parallel training: which samples each rank takes, and gradients that are averaged while the
 * backward pass still goes on.
 *
 * Results, errors and their texts are rondo.h's; rondo_last_error(NULL) has the text. Handles are one thread's at a time,
 * those of different communicators are independent, and there is no global state.
 */
#ifndef RONDO_DDP_H
#define RONDO_DDP_H

#include <rondo.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Samplers -----------------------------------------------------------------------------------------------
 *
 * Which samples of a data set each rank takes in an epoch. A sampler communicates nothing: all ranks work out the same
 * order, a permutation of the samples, and rank r takes the places r, r + N, r + 2N ... of it, as PyTorch's
 * DistributedSampler does. With 10 samples on 4 ranks, not shuffled:
 *
 *     place     0  1  2  3 | 4  5  6  7 | 8  9 10 11        tail     samples of each rank   rank 2 takes
 *     PAD       0  1  2  3   4  5  6  7   8  9  0  1        PAD      3                      2 6 0
 *     DROP      0  1  2  3   4  5  6  7                     DROP     2                      2 6
 *     UNEVEN    0  1  2  3   4  5  6  7   8  9              UNEVEN   3, 3, 2, 2             2 6
 *
 * The order is the same on every platform and in every version. The generator is SplitMix64 (Steele, Lea and Flood,
 * "Fast splittable pseudorandom number generators", 2014), started at mix(seed) + epoch, where mix is its output function:
 *
 *     next:   state += 0x9e3779b97f4a7c15;  return mix(state)
 *     mix(z): z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;  z = (z ^ z >> 27) * 0x94d049bb133111eb;  return z ^ z >> 31
 *
 * and the permutation Fisher and Yates's: for i from the last place down to 1, swap place i with place next mod (i + 1),
 * where a draw below 2^64 mod (i + 1) is drawn again, so that all places are equally likely.
 */

/* What becomes of the places after the last full round of all ranks. */
typedef enum rondo_tail {
    RONDO_TAIL_PAD = 0,   /* filled by the first samples again, as often as it takes; PyTorch's default */
    RONDO_TAIL_DROP = 1,  /* left out: drop_last */
    RONDO_TAIL_UNEVEN = 2 /* as they are: the first ranks take one more (rondo_ddp_join) */
} rondo_tail;

typedef struct rondo_sampler_config {
    size_t size;       /* sizeof(rondo_sampler_config) */
    uint64_t samples;  /* in the data set; 0 is fine */
    int world_size;    /* 1 or more */
    int rank;          /* 0 to world_size - 1 */
    int shuffle;       /* 0: in the data set's order, in every epoch */
    uint64_t seed;     /* the same on every rank */
    rondo_tail tail;
} rondo_sampler_config;

/* samples, world_size and rank are to be filled in. */
#define RONDO_SAMPLER_CONFIG_INIT                                                                   \
    { sizeof(rondo_sampler_config), 0, 0, 0, 1, 0, RONDO_TAIL_PAD }

typedef struct rondo_sampler rondo_sampler;

/* A sampler at epoch 0. It holds 8 bytes for each sample of the data set. RONDO_INVALID_ARGUMENT names the field. */
RONDO_API rondo_result rondo_sampler_create(rondo_sampler **sampler, const rondo_sampler_config *config);

/* Another order (if it shuffles): call it before each epoch with the same number on every rank. */
RONDO_API rondo_result rondo_sampler_set_epoch(rondo_sampler *sampler, uint64_t epoch);

/* How many samples this rank takes in an epoch, and all ranks together, padding included. 0 for NULL. */
RONDO_API uint64_t rondo_sampler_count(const rondo_sampler *sampler);
RONDO_API uint64_t rondo_sampler_total(const rondo_sampler *sampler);

/* *sample = the number in the data set of this rank's i-th sample, 0 <= i < count. */
RONDO_API rondo_result rondo_sampler_get(const rondo_sampler *sampler, uint64_t i, uint64_t *sample);

/* NULL is fine. */
RONDO_API void rondo_sampler_destroy(rondo_sampler *sampler);

#ifdef __cplusplus
}
#endif

#endif
