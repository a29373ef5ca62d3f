/* SPDX-License-Identifier: Apache-2.0
 *
 * sampler.c - the order of an epoch's samples. The header has the generator and the rules.
 */
#include "base/status.h"
#include "rondo_ddp.h"

#include <stdlib.h>
#include <string.h>

struct rondo_sampler {
    rondo_sampler_config config;
    uint64_t count, total;
    uint64_t *order; /* config.samples: a permutation of them */
};

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static uint64_t next(uint64_t *state)
{
    return mix(*state += 0x9e3779b97f4a7c15);
}

/* From 0 to n - 1. What is drawn again are the 2^64 mod n lowest: a whole number of rounds of n is left. */
static uint64_t below(uint64_t n, uint64_t *state)
{
    uint64_t surplus = -n % n, drawn;
    do drawn = next(state);
    while (drawn < surplus);
    return drawn % n;
}

static void order_samples(rondo_sampler *s, uint64_t epoch)
{
    uint64_t state = mix(s->config.seed) + epoch;
    for (uint64_t i = 0; i < s->config.samples; i++) s->order[i] = i;
    if (!s->config.shuffle) return;
    for (uint64_t i = s->config.samples; i-- > 1;) {
        uint64_t j = below(i + 1, &state), t = s->order[i];
        s->order[i] = s->order[j];
        s->order[j] = t;
    }
}

static rondo_result check(const rondo_sampler_config *c)
{
    if (c->size != sizeof *c)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "rondo_sampler_create: config->size is %zu; it must be %zu: start from "
                       "RONDO_SAMPLER_CONFIG_INIT",
                       c->size, sizeof *c);
    if (c->world_size < 1)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "rondo_sampler_create: world_size is %d; the world has 1 rank or more, and "
                       "rondo_comm_size says how many",
                       c->world_size);
    if (c->rank < 0 || c->rank >= c->world_size)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "rondo_sampler_create: rank is %d; in a world of %d it must be from 0 to %d", c->rank,
                       c->world_size, c->world_size - 1);
    if ((int)c->tail < RONDO_TAIL_PAD || c->tail > RONDO_TAIL_UNEVEN)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "rondo_sampler_create: tail is %d; it must be RONDO_TAIL_PAD, _DROP or _UNEVEN", (int)c->tail);
    if (c->samples > (UINT64_MAX >> 1) / sizeof(uint64_t))
        return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_sampler_create: samples is %llu; it must be at most %llu",
                       (unsigned long long)c->samples, (unsigned long long)((UINT64_MAX >> 1) / sizeof(uint64_t)));
    return RONDO_SUCCESS;
}

static void count_samples(rondo_sampler *s)
{
    uint64_t n = s->config.samples, world = (uint64_t)s->config.world_size, rank = (uint64_t)s->config.rank;
    uint64_t rounds = n / world, rest = n % world;
    switch (s->config.tail) {
    case RONDO_TAIL_PAD:
        s->count = rounds + (rest > 0);
        s->total = s->count * world;
        break;
    case RONDO_TAIL_DROP:
        s->count = rounds;
        s->total = rounds * world;
        break;
    case RONDO_TAIL_UNEVEN:
        s->count = rounds + (rank < rest);
        s->total = n;
        break;
    }
}

rondo_result rondo_sampler_create(rondo_sampler **sampler, const rondo_sampler_config *config)
{
    if (!sampler || !config)
        return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_sampler_create: %s is NULL", sampler ? "config" : "sampler");
    RD_TRY(check(config));
    rondo_sampler *made = calloc(1, sizeof *made);
    if (!made) return rd_fail_errno("rondo_sampler_create: no memory");
    made->config = *config;
    made->order = malloc((config->samples ? config->samples : 1) * sizeof *made->order);
    if (!made->order) {
        free(made);
        return rd_fail_errno("rondo_sampler_create: no memory for the order of %llu samples",
                             (unsigned long long)config->samples);
    }
    count_samples(made);
    order_samples(made, 0);
    *sampler = made;
    return RONDO_SUCCESS;
}

rondo_result rondo_sampler_set_epoch(rondo_sampler *sampler, uint64_t epoch)
{
    if (!sampler) return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_sampler_set_epoch: sampler is NULL");
    order_samples(sampler, epoch);
    return RONDO_SUCCESS;
}

uint64_t rondo_sampler_count(const rondo_sampler *sampler)
{
    return sampler ? sampler->count : 0;
}

uint64_t rondo_sampler_total(const rondo_sampler *sampler)
{
    return sampler ? sampler->total : 0;
}

rondo_result rondo_sampler_get(const rondo_sampler *sampler, uint64_t i, uint64_t *sample)
{
    if (!sampler || !sample)
        return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_sampler_get: %s is NULL", sampler ? "sample" : "sampler");
    if (i >= sampler->count)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "rondo_sampler_get: i is %llu; rank %d takes %llu samples, numbered from 0",
                       (unsigned long long)i, sampler->config.rank, (unsigned long long)sampler->count);
    uint64_t place = (uint64_t)sampler->config.rank + i * (uint64_t)sampler->config.world_size;
    *sample = sampler->order[place % sampler->config.samples]; /* beyond the end: padding, from the start again */
    return RONDO_SUCCESS;
}

void rondo_sampler_destroy(rondo_sampler *sampler)
{
    if (sampler) free(sampler->order);
    free(sampler);
}
