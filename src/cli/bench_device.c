/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_device.c - --device cuda: each buffer has a twin in the memory of the rank's GPU, which the calls are given.
 * What is in it comes from here, and is looked at here.
 */
#include "base/dtype.h"
#include "base/env.h"
#include "base/gpu.h"
#include "base/status.h"
#include "cli/bench.h"

#include <stdlib.h>

rondo_result rd_twins_choose(rd_bench *b, rondo_config *config)
{
    const char *local = rd_env("LOCAL_RANK");
    b->twins.device = RONDO_DEVICE_HOST;
    if (b->options->cuda) {
        RD_TRY(rd_gpu_require());
        b->twins.device = (local ? atoi(local) : 0) % rd_gpu_count();
    }
    config->device = b->twins.device;
    return RONDO_SUCCESS;
}

/* How far off its alignment each buffer begins. */
static size_t shift(const rd_bench *b)
{
    return b->options->misalign * rd_dtype_bytes(b->options->dtype);
}

rondo_result rd_twins_open(rd_bench *b, size_t bytes)
{
    rd_twins *t = &b->twins;
    rd_cu_context context;
    RD_TRY(RD_GPU(t->device, cuDevicePrimaryCtxRetain, &context, t->device));
    t->retained = true;
    RD_TRY(RD_GPU(t->device, cuCtxSetCurrent, context));
    RD_TRY(rondo_mem_alloc(&t->main, bytes + shift(b), b->comm));
    return b->spare ? rondo_mem_alloc(&t->spare, bytes + shift(b), b->comm) : RONDO_SUCCESS;
}

void rd_twins_close(rd_bench *b)
{
    rondo_mem_free(b->twins.main, b->comm);
    rondo_mem_free(b->twins.spare, b->comm);
    if (b->twins.retained) rd_gpu_driver()->cuDevicePrimaryCtxRelease(b->twins.device);
}

void *rd_twin(const rd_bench *b, unsigned char *at, size_t room)
{
    if (!b->options->cuda) return at;
    bool spare = b->spare && at >= b->spare && at < b->spare + room;
    return spare ? (unsigned char *)b->twins.spare + shift(b) + (at - b->spare)
                 : (unsigned char *)b->twins.main + shift(b) + (at - b->main);
}

/* A buffer and its twin. */
static rondo_result copy(const rd_bench *b, void *twin, unsigned char *host, size_t bytes, bool to_twin)
{
    rd_cu_address gpu = (rd_cu_address)(uintptr_t)twin + shift(b), cpu = (rd_cu_address)(uintptr_t)host;
    return RD_GPU(b->twins.device, cuMemcpyAsync, to_twin ? gpu : cpu, to_twin ? cpu : gpu, bytes, NULL);
}

static rondo_result copy_both(const rd_bench *b, size_t bytes, bool to_twins)
{
    if (!b->options->cuda) return RONDO_SUCCESS;
    RD_TRY(copy(b, b->twins.main, b->main, bytes, to_twins));
    if (b->spare) RD_TRY(copy(b, b->twins.spare, b->spare, bytes, to_twins));
    return RD_GPU(b->twins.device, cuStreamSynchronize, NULL);
}

rondo_result rd_twins_put(const rd_bench *b, size_t bytes)
{
    return copy_both(b, bytes, true);
}

rondo_result rd_twins_get(const rd_bench *b, size_t bytes)
{
    return copy_both(b, bytes, false);
}
