/* SPDX-License-Identifier: Apache-2.0
 *
 * device_engine.c - passes and copies by kernels on the device's stream. Behind each the stream stores its ticket in
 * memory that the CPU looks at; where streams cannot do that, events tell.
 */
#include "reduce/device.h"

#include "base/status.h"
#include "kernels/reduce.h"

#include <string.h>

#define BLOCKS_EACH 4  /* of a multiprocessor, at most: enough to keep memory busy, and room for the user's kernels */
#define PIECE       16 /* bytes that a thread takes at a time */

_Static_assert(RD_REDUCE_TERMS == RD_MAX_SOURCES, "a kernel takes any pass");

static rd_device *device_of(rd_engine *engine)
{
    return (rd_device *)engine;
}

/* ---- Tickets ---- */

static rondo_result mark(rd_device *device, uint64_t ticket)
{
    uint64_t at = device->marked % RD_MARKS;
    RD_TRY(RD_GPU(device->gpu->ordinal, cuEventRecord, device->events[at], device->stream));
    device->marks[at] = ticket;
    device->marked++;
    return RONDO_SUCCESS;
}

/* What was given last, now on the stream, is `ticket`. With events that all wait a later mark tells of it. */
static rondo_result number(rd_device *device, uint64_t ticket)
{
    if (device->counter)
        return RD_GPU(device->gpu->ordinal, cuStreamWriteValue64, device->stream,
                      (rd_cu_address)(uintptr_t)device->counter, ticket, RD_CU_STREAM_WRITE_VALUE_DEFAULT);
    return device->marked - device->passed < RD_MARKS ? mark(device, ticket) : RONDO_SUCCESS;
}

static uint64_t look_at_events(rd_device *device)
{
    uint64_t done = device->engine.done, given = device->engine.given;
    if (rd_gpu_push(device->gpu) != RONDO_SUCCESS) return done;
    while (device->passed < device->marked &&
           rd_gpu_driver()->cuEventQuery(device->events[device->passed % RD_MARKS]) == RD_CU_SUCCESS)
        done = device->marks[device->passed++ % RD_MARKS];
    uint64_t latest = device->marked ? device->marks[(device->marked - 1) % RD_MARKS] : 0;
    if (latest < given && device->marked - device->passed < RD_MARKS) mark(device, given);
    rd_gpu_pop();
    return done;
}

static uint64_t look(rd_engine *engine)
{
    rd_device *device = device_of(engine);
    return device->counter ? __atomic_load_n(device->counter, __ATOMIC_ACQUIRE) : look_at_events(device);
}

/* A context that is lost stores nothing more; only the driver tells. */
static rondo_result check(rd_engine *engine)
{
    const rd_device *device = device_of(engine);
    RD_TRY(rd_gpu_push(device->gpu));
    rd_cu_result result = rd_gpu_driver()->cuStreamQuery(device->stream);
    rd_gpu_pop();
    return result == RD_CU_ERROR_NOT_READY ? RONDO_SUCCESS
                                           : rd_gpu_check(result, "cuStreamQuery", device->gpu->ordinal);
}

/* ---- Work ---- */

rondo_result rd_device_launch(rd_device *device, rd_cu_function kernel, int blocks, int threads, void *args,
                              uint32_t *stop)
{
    void *parameters[] = {args};
    if (stop) __atomic_store_n(stop, 0, __ATOMIC_RELAXED);
    device->engine.stop = stop;
    RD_TRY(rd_gpu_push(device->gpu));
    rondo_result result = RD_GPU(device->gpu->ordinal, cuLaunchKernel, kernel, (unsigned)blocks, 1, 1,
                                 (unsigned)threads, 1, 1, 0, device->stream, parameters, NULL);
    if (result == RONDO_SUCCESS && (result = number(device, device->engine.given + 1)) != RONDO_SUCCESS) {
        if (stop) __atomic_store_n(stop, 1, __ATOMIC_RELAXED);
        rd_gpu_driver()->cuStreamSynchronize(device->stream); /* without a number nobody else waits for it */
    }
    rd_gpu_pop();
    return result;
}

static rondo_result launch(rd_device *device, rondo_dtype type, size_t bytes, rd_reduce_args *args)
{
    const rd_gpu *gpu = device->gpu;
    size_t threads = (size_t)gpu->threads[type], most = (size_t)(BLOCKS_EACH * gpu->multiprocessors);
    size_t blocks = (bytes / PIECE + threads) / threads;
    return rd_device_launch(device, gpu->reduce[type], (int)(blocks < most ? blocks : most), (int)threads, args,
                            NULL);
}

static rondo_result reduce(rd_engine *engine, const rd_reduction *reduction, const rd_pass *pass)
{
    rd_reduce_args args = {
        .count = pass->count,
        .scale = reduction->scale,
        .divisor = reduction->divisor,
        .op = (int32_t)reduction->op,
        .ranks = reduction->ranks,
        .sources = pass->sources,
        .outputs = pass->outputs,
        .first_partial = pass->first_partial,
        .first_wide = pass->first_wide,
        .out_wide = pass->out_wide,
        .finish = pass->finish,
    };
    memcpy(args.source, pass->source, (size_t)pass->sources * sizeof *args.source);
    memcpy(args.output, pass->output, (size_t)pass->outputs * sizeof *args.output);
    return launch(device_of(engine), reduction->type, pass->count * reduction->bytes, &args);
}

/* The sum of one term, in bytes. Not the driver's copies: between two places of host memory they make the caller wait,
 * and two of them would read twice. */
static rondo_result copy(rd_engine *engine, void *to, void *also, const void *from, size_t bytes)
{
    rd_reduce_args args = {.count = bytes, .op = RONDO_SUM, .ranks = 1, .sources = 1, .outputs = also ? 2 : 1};
    args.source[0] = from;
    args.output[0] = to;
    args.output[1] = also;
    return launch(device_of(engine), RONDO_UINT8, bytes, &args);
}

const struct rd_engine_ops rd_device_engine_ops = {
    reduce,          copy, look, check, rd_device_ring_room, rd_device_ring, rd_device_ring_take, rd_device_peers_room,
    rd_device_peers,
};
