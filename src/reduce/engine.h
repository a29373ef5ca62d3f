/* SPDX-License-Identifier: Apache-2.0
 *
 * engine.h - one who carries out passes and copies later: a GPU. Nothing here blocks.
 *
 * Whatever it is given gets the next number, from 1: its ticket. It does them in that order, so that a ticket is done
 * when `done` has come that far. Until then their memory is the engine's: what is read does not change, and what is
 * written nobody reads but what it is given later.
 */
#ifndef RD_REDUCE_ENGINE_H
#define RD_REDUCE_ENGINE_H

#include "reduce/reduce.h"

typedef struct rd_engine rd_engine;
struct rd_ring_args; /* kernels/ring.h */
struct rd_ring_report;
struct rd_peers_args; /* kernels/peers.h */

struct rd_engine {
    uint64_t given; /* so far: the latest ticket */
    uint64_t done;  /* as rd_engine_done saw last */
    const struct rd_engine_ops *ops;
    uint32_t *stop;                       /* of the latest ring or peers: stored to, it gives up */
    const struct rd_ring_report *reports; /* of the latest ring, by channel; valid when it is done */
};

struct rd_engine_ops {
    /* As rd_reduce and rd_copy. A failure leaves the reason as this thread's last error. */
    rondo_result (*reduce)(rd_engine *engine, const rd_reduction *reduction, const rd_pass *pass);
    rondo_result (*copy)(rd_engine *engine, void *to, void *also, const void *from, size_t bytes);
    /* The latest ticket of those that are done. */
    uint64_t (*look)(rd_engine *engine);
    /* Costs more: whether what it was given can still be done. */
    rondo_result (*check)(rd_engine *engine);

    /* What waits for peers; NULL where it cannot. ring_room: where RD_RING_CALLS calls are to be told. ring: begins the
     * first `count` of them, one after the other, each the whole ring of an operation, whose channels wait for their
     * neighbours, by at most so many threads each; fills in the addresses that are the engine's own. The one before
     * must be done, also when calls are told. ring_take: whether from now on it can do so with rings of so many ranks,
     * over so many channels. */
    struct rd_ring_args *(*ring_room)(rd_engine *engine);
    rondo_result (*ring)(rd_engine *engine, rondo_dtype type, int count, int threads);
    bool (*ring_take)(rd_engine *engine, int channels, int ranks);

    /* Transfers over several wires at once, each of which waits for its peer. peers_room: where wires and transfers are to
     * be told, whose reports then say how far they are; NULL: there cannot be so many. peers: begins what was told, by at
     * most so many threads for each wire. The one before must be done. */
    struct rd_peers_args *(*peers_room)(rd_engine *engine, int wires, int transfers);
    rondo_result (*peers)(rd_engine *engine, int wires, int threads);
};

static inline rondo_result rd_engine_reduce(rd_engine *engine, const rd_reduction *reduction, const rd_pass *pass)
{
    if (!pass->count) return RONDO_SUCCESS;
    rondo_result result = engine->ops->reduce(engine, reduction, pass);
    engine->given += result == RONDO_SUCCESS;
    return result;
}

static inline rondo_result rd_engine_copy(rd_engine *engine, void *to, void *also, const void *from, size_t bytes)
{
    if (!bytes) return RONDO_SUCCESS;
    rondo_result result = engine->ops->copy(engine, to, also, from, bytes);
    engine->given += result == RONDO_SUCCESS;
    return result;
}

static inline rondo_result rd_engine_ring(rd_engine *engine, rondo_dtype type, int count, int threads)
{
    rondo_result result = engine->ops->ring(engine, type, count, threads);
    engine->given += result == RONDO_SUCCESS;
    return result;
}

static inline rondo_result rd_engine_peers(rd_engine *engine, int wires, int threads)
{
    rondo_result result = engine->ops->peers(engine, wires, threads);
    engine->given += result == RONDO_SUCCESS;
    return result;
}

static inline bool rd_engine_done(rd_engine *engine, uint64_t ticket)
{
    if (engine->done < ticket) engine->done = engine->ops->look(engine);
    return engine->done >= ticket;
}

#endif
