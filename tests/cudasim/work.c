/* SPDX-License-Identifier: Apache-2.0
 *
 * work.c - what streams do beside kernels and events: copy, fill, write and wait for words, call host functions.
 */
#include "sanitize.h"
#include "sim.h"

#include <stdlib.h>
#include <string.h>

/* The driver copies what is not pinned at once up to this size, and makes the caller wait above. */
enum { STAGED_MOST = 64 << 10 };

/* With the order that a call comes before its work. */
static rd_cu_result put(struct sim_stream *stream, struct sim_work *work, bool wait)
{
    SIM_RELEASE(work);
    sim_lock();
    uint64_t number = sim_stream_put(stream, work);
    if (wait) sim_stream_await(stream, number);
    sim_unlock();
    if (wait) SIM_ACQUIRE(stream);
    return wait ? sim_context_lost(stream->context) : RD_CU_SUCCESS;
}

/* ---- Copies -------------------------------------------------------------------------------------------------------
 */

enum place { WRONG, PAGEABLE, PINNED };

/* What the bytes are to the driver. A range of its own must hold all of them. */
static enum place place(rd_cu_address address, size_t bytes)
{
    enum place found = WRONG;
    sim_lock();
    struct sim_range *range = sim_range_find(address);
    if (range == NULL)
        found = sim_memory_reserved(address) ? WRONG : PAGEABLE;
    else if (address + bytes <= range->start + range->bytes)
        found = PINNED;
    else if (range->kind == SIM_HOST_REGISTERED)
        found = PAGEABLE;
    sim_unlock();
    return found;
}

static rd_cu_result run_copy(struct sim_work *work)
{
    const void *from = work->as.copy.staged != NULL ? work->as.copy.staged : sim_pointer(work->as.copy.from);
    sim_copy(sim_pointer(work->as.copy.to), from, work->as.copy.bytes);
    return RD_CU_SUCCESS;
}

static void discard_copy(struct sim_work *work)
{
    free(work->as.copy.staged);
}

static rd_cu_result copy(struct sim_stream *stream, rd_cu_address to, rd_cu_address from, size_t bytes)
{
    if (bytes == 0) return RD_CU_SUCCESS;
    enum place target = place(to, bytes), source = place(from, bytes);
    if (target == WRONG || source == WRONG || to == 0 || from == 0) return RD_CU_ERROR_INVALID_VALUE;
    struct sim_work *work = sim_work_new(run_copy);
    work->discard = discard_copy;
    work->as.copy.to = to;
    work->as.copy.from = from;
    work->as.copy.bytes = bytes;
    bool wait = target == PAGEABLE || (source == PAGEABLE && bytes > STAGED_MOST);
    if (source == PAGEABLE && !wait) {
        work->as.copy.staged = malloc(bytes);
        if (work->as.copy.staged == NULL) abort();
        memcpy(work->as.copy.staged, sim_pointer(from), bytes);
    }
    return put(stream, work, wait);
}

rd_cu_result cuMemcpyAsync(rd_cu_address to, rd_cu_address from, size_t bytes, rd_cu_stream stream)
{
    SIM_ENTER_WORK(cuMemcpyAsync, found, stream);
    return copy(found, to, from, bytes);
}

rd_cu_result cuMemcpyPeerAsync(rd_cu_address to, rd_cu_context to_context, rd_cu_address from,
                               rd_cu_context from_context, size_t bytes, rd_cu_stream stream)
{
    SIM_ENTER_WORK(cuMemcpyPeerAsync, found, stream);
    sim_lock();
    bool known = sim_context_find(to_context) != NULL && sim_context_find(from_context) != NULL;
    sim_unlock();
    return known ? copy(found, to, from, bytes) : RD_CU_ERROR_INVALID_CONTEXT;
}

static rd_cu_result run_fill(struct sim_work *work)
{
    sim_fill(sim_pointer(work->as.fill.address), work->as.fill.value, work->as.fill.bytes);
    return RD_CU_SUCCESS;
}

rd_cu_result cuMemsetD8Async(rd_cu_address address, unsigned char value, size_t count, rd_cu_stream stream)
{
    SIM_ENTER_WORK(cuMemsetD8Async, found, stream);
    if (count == 0) return RD_CU_SUCCESS;
    if (place(address, count) != PINNED) return RD_CU_ERROR_INVALID_VALUE;
    struct sim_work *work = sim_work_new(run_fill);
    work->as.fill.address = address;
    work->as.fill.value = value;
    work->as.fill.bytes = count;
    return put(found, work, false);
}

/* ---- Words in memory ----------------------------------------------------------------------------------------------
 */

static uint64_t load_word(const struct sim_work *work)
{
    void *word = sim_pointer(work->as.word.address);
    if (work->as.word.wide) return __atomic_load_n((uint64_t *)word, __ATOMIC_ACQUIRE);
    return __atomic_load_n((uint32_t *)word, __ATOMIC_ACQUIRE);
}

static rd_cu_result run_write(struct sim_work *work)
{
    void *word = sim_pointer(work->as.word.address);
    SIM_RELEASE(word);
    if (work->as.word.wide)
        __atomic_store_n((uint64_t *)word, work->as.word.value, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint32_t *)word, (uint32_t)work->as.word.value, __ATOMIC_RELEASE);
    return RD_CU_SUCCESS;
}

static bool is_there(const struct sim_work *work)
{
    uint64_t now = load_word(work), value = work->as.word.value;
    switch (work->as.word.flags) {
    case RD_CU_STREAM_WAIT_VALUE_GEQ: /* cyclic */
        return work->as.word.wide ? (int64_t)(now - value) >= 0 : (int32_t)((uint32_t)now - (uint32_t)value) >= 0;
    case RD_CU_STREAM_WAIT_VALUE_EQ: return now == value;
    default: return (now & value) != 0;
    }
}

static rd_cu_result run_wait(struct sim_work *work)
{
    unsigned turn = 0;
    while (!is_there(work) && work->stream->context->lost == RD_CU_SUCCESS) sim_pause(&turn);
    SIM_ACQUIRE(work->as.word.address);
    return RD_CU_SUCCESS;
}

static rd_cu_result word(struct sim_stream *stream, rd_cu_result (*run)(struct sim_work *), rd_cu_address address,
                         uint64_t value, unsigned flags, bool wide)
{
    unsigned bytes = wide ? 8 : 4,
             most = run == run_wait ? RD_CU_STREAM_WAIT_VALUE_AND : RD_CU_STREAM_WRITE_VALUE_DEFAULT;
    if (sim_settings.no_memory_operations) return RD_CU_ERROR_NOT_SUPPORTED;
    if (flags > most || address % bytes != 0 || place(address, bytes) != PINNED) return RD_CU_ERROR_INVALID_VALUE;
    struct sim_work *work = sim_work_new(run);
    work->as.word.address = address;
    work->as.word.value = value;
    work->as.word.flags = flags;
    work->as.word.wide = wide;
    return put(stream, work, false);
}

rd_cu_result cuStreamWriteValue32(rd_cu_stream stream, rd_cu_address address, uint32_t value, unsigned flags)
{
    SIM_ENTER_WORK(cuStreamWriteValue32, found, stream);
    return word(found, run_write, address, value, flags, false);
}

rd_cu_result cuStreamWaitValue32(rd_cu_stream stream, rd_cu_address address, uint32_t value, unsigned flags)
{
    SIM_ENTER_WORK(cuStreamWaitValue32, found, stream);
    return word(found, run_wait, address, value, flags, false);
}

rd_cu_result cuStreamWriteValue64(rd_cu_stream stream, rd_cu_address address, uint64_t value, unsigned flags)
{
    SIM_ENTER_WORK(cuStreamWriteValue64, found, stream);
    return word(found, run_write, address, value, flags, true);
}

rd_cu_result cuStreamWaitValue64(rd_cu_stream stream, rd_cu_address address, uint64_t value, unsigned flags)
{
    SIM_ENTER_WORK(cuStreamWaitValue64, found, stream);
    return word(found, run_wait, address, value, flags, true);
}

/* ---- Host functions -----------------------------------------------------------------------------------------------
 */

static rd_cu_result run_host(struct sim_work *work)
{
    sim_in_host_function = true;
    work->as.host.function(work->as.host.argument);
    sim_in_host_function = false;
    return RD_CU_SUCCESS;
}

rd_cu_result cuLaunchHostFunc(rd_cu_stream stream, rd_cu_host_function function, void *argument)
{
    SIM_ENTER_WORK(cuLaunchHostFunc, found, stream);
    if (function == NULL) return RD_CU_ERROR_INVALID_VALUE;
    struct sim_work *work = sim_work_new(run_host);
    work->as.host.function = function;
    work->as.host.argument = argument;
    return put(found, work, false);
}

/* ---- Kernels ------------------------------------------------------------------------------------------------------
 */

static rd_cu_result run_kernel(struct sim_work *work)
{
    return sim_launch_run(work->as.launch);
}

static void discard_kernel(struct sim_work *work)
{
    free(work->as.launch);
}

rd_cu_result sim_launch_put(struct sim_stream *stream, struct sim_launch *launch)
{
    struct sim_work *work = sim_work_new(run_kernel);
    work->discard = discard_kernel;
    work->as.launch = launch;
    return put(stream, work, false);
}
