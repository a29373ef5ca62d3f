/* SPDX-License-Identifier: Apache-2.0
 *
 * scaled.c - operators made at run time: sums to which every rank brings its own terms times a factor of its own.
 *
 * The terms are scaled first, into where the result goes or into room of the communicator, and then summed as they
 * would be otherwise. That is one pass over the message more than if each executor multiplied as it reads; but none of
 * them has to know of it, and no other rank: the factor never travels, and ring, flat and exchange keep giving equal
 * bits. The pass is a product with the factor repeated, so it rounds and wraps as RONDO_PROD does, at its speed.
 */
#include "core/scaled.h"

#include "base/dtype.h"
#include "base/process.h"
#include "reduce/device.h"

#include <stdlib.h>
#include <string.h>

#define MOST_OPERATORS  UINT16_MAX /* of one communicator at a time */
#define BLOCK_BYTES     4096       /* of the factor, repeated */
#define GPU_BLOCK_BYTES (1 << 20)  /* on a GPU */

struct rd_scaled {
    rd_scaled *next;
    uint16_t number; /* from 1; the operator is RONDO_OPS - 1 more */
    rondo_dtype dtype;
    const void *later; /* where calls read the factor when they run; NULL: it is here */
    unsigned char factor[8];
    int calls; /* that have named it and not run yet */
    bool destroyed;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
RD_HOLD_AT_FORK(lock)

static rd_scaled **find(rondo_comm *comm, int number)
{
    rd_scaled **at = &comm->scaled;
    while (*at && (*at)->number != number) at = &(*at)->next;
    return at;
}

static void drop_unused(rd_scaled **at)
{
    rd_scaled *entry = *at;
    if (!entry->destroyed || entry->calls) return;
    *at = entry->next;
    free(entry);
}

void rd_scaled_forget(rondo_comm *comm)
{
    free(comm->scaled_here.memory);
    if (comm->scaled_on_gpu.memory) rd_device_free(rd_device_ordinal(comm->device), comm->scaled_on_gpu.memory);
    for (int i = 0; i < comm->scaled_outgrown.count; i++)
        rd_device_free(rd_device_ordinal(comm->device), comm->scaled_outgrown.memory[i]);
    if (comm->scaled_factor) rd_device_free(rd_device_ordinal(comm->device), comm->scaled_factor);
    for (rd_scaled *next; comm->scaled; comm->scaled = next) {
        next = comm->scaled->next;
        free(comm->scaled);
    }
}

/* ---- Used by a call ---- */

rondo_result rd_scaled_take(rondo_comm *comm, rd_call *call)
{
    rondo_result result = RONDO_SUCCESS;
    int number = (int)call->op < RONDO_OPS ? 0 : (int)call->op - RONDO_OPS + 1;
    pthread_mutex_lock(&lock);
    rd_scaled *entry = number ? *find(comm, number) : NULL;
    if (!entry || entry->destroyed) {
        result = rd_fail(RONDO_INVALID_ARGUMENT,
                         "%s: op is %d; the operators are 0 to %d (RONDO_SUM to RONDO_AVG) and those that "
                         "rondo_op_create_scaled_sum gave for this communicator and that have not been destroyed",
                         call->name, (int)call->op, RONDO_OPS - 1);
    } else if (entry->dtype != call->dtype) {
        result = rd_fail(RONDO_INVALID_ARGUMENT, "%s: dtype is %s, but the operator %d was made for %s", call->name,
                         rd_dtype_name(call->dtype), (int)call->op, rd_dtype_name(entry->dtype));
    } else {
        entry->calls++;
        call->scaled = entry->number;
        call->op = RONDO_OPS; /* its number is this rank's own */
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* The factor, which the call no longer needs to be kept. It may lie on a GPU. */
static rondo_result read_factor(rondo_comm *comm, const rd_call *call, unsigned char factor[8])
{
    size_t bytes = rd_dtype_bytes(call->dtype);
    pthread_mutex_lock(&lock);
    rd_scaled **at = find(comm, call->scaled), *entry = *at;
    const void *later = entry->later;
    if (!later) memcpy(factor, entry->factor, bytes);
    entry->calls--;
    drop_unused(at);
    pthread_mutex_unlock(&lock);
    if (later && comm->device) return rd_device_move(comm->device, factor, later, bytes);
    if (later) memcpy(factor, later, bytes);
    return RONDO_SUCCESS;
}

/* ---- The pass ---- */

static void repeat(unsigned char *to, const unsigned char factor[8], size_t bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) memcpy(to + i * bytes, factor, bytes);
}

/* All of it, by blocks of as many elements as `repeated` has; by the CPU, or after what the engine has been given. */
static rondo_result multiply(const rd_reduction *product, rd_engine *engine, const void *from, void *to, size_t count,
                             const void *repeated, size_t block)
{
    for (size_t at = 0, n; at < count; at += n) {
        rd_pass pass;
        n = count - at < block ? count - at : block;
        rd_pass_begin(&pass, n, 2);
        pass.source[0] = (const unsigned char *)from + at * product->bytes;
        pass.source[1] = repeated;
        pass.output[pass.outputs++] = (unsigned char *)to + at * product->bytes;
        if (engine)
            RD_TRY(rd_engine_reduce(engine, product, &pass));
        else
            rd_reduce(product, &pass);
    }
    return RONDO_SUCCESS;
}

static rondo_result scale_here(const rd_reduction *product, const unsigned char factor[8], const void *from, void *to,
                               size_t count)
{
    _Alignas(64) unsigned char repeated[BLOCK_BYTES];
    size_t block = sizeof repeated / product->bytes;
    repeat(repeated, factor, product->bytes, block < count ? block : count);
    return multiply(product, NULL, from, to, count, repeated, block);
}

/* With longer blocks, since each costs a launch. */
static rondo_result scale_on_gpu(rondo_comm *comm, const rd_reduction *product, const unsigned char factor[8],
                                 const void *from, void *to, size_t count)
{
    size_t block = GPU_BLOCK_BYTES / product->bytes, n = block < count ? block : count;
    if (!comm->scaled_factor) RD_TRY(rd_device_alloc(comm->device, GPU_BLOCK_BYTES, &comm->scaled_factor));
    unsigned char *repeated = malloc(n * product->bytes);
    if (!repeated) return rd_fail_errno("no memory for a factor");
    repeat(repeated, factor, product->bytes, n);
    rondo_result result = rd_device_move(comm->device, comm->scaled_factor, repeated, n * product->bytes);
    free(repeated);
    if (result != RONDO_SUCCESS) return result;
    return multiply(product, rd_device_engine(comm->device), from, to, count, comm->scaled_factor, block);
}

/* ---- Where the scaled terms go ---- */

/* Room of the communicator, where the terms lie. NULL: no memory, last error set. */
static void *own_room(rondo_comm *comm, size_t bytes, bool on_gpu)
{
    rd_room *room = on_gpu ? &comm->scaled_on_gpu : &comm->scaled_here;
    if (!on_gpu) return rd_room_hold(room, bytes, "scaled terms") == RONDO_SUCCESS ? room->memory : NULL;
    if (bytes <= room->bytes) return room->memory;
    void *larger = NULL;
    if (bytes < 2 * room->bytes) bytes = 2 * room->bytes;
    if (rd_device_alloc(comm->device, bytes, &larger) != RONDO_SUCCESS) return NULL;
    if (room->memory) comm->scaled_outgrown.memory[comm->scaled_outgrown.count++] = room->memory;
    *room = (rd_room){larger, bytes};
    return larger;
}

/* Where the whole message may be written: where the result goes, if all of it does, and there. */
static void *room_for(rondo_comm *comm, const rd_call *call, size_t bytes)
{
    bool whole = call->collective == RONDO_COLL_ALL_REDUCE ||
                 (call->collective == RONDO_COLL_REDUCE && comm->rank == call->root);
    return whole && call->send_on_gpu == call->recv_on_gpu ? call->recv : own_room(comm, bytes, call->send_on_gpu);
}

rondo_result rd_scaled_terms(rondo_comm *comm, const rd_call *call, rd_call *sum)
{
    unsigned char factor[8];
    rd_reduction product;
    size_t count = call->count * rd_call_parts(comm, call);
    *sum = *call;
    sum->op = RONDO_SUM;
    RD_TRY(read_factor(comm, call, factor));
    if (!count) return RONDO_SUCCESS;
    void *terms = room_for(comm, call, count * rd_dtype_bytes(call->dtype));
    if (!terms) return RONDO_SYSTEM_ERROR;
    sum->send = terms;
    RD_TRY(rd_reduction_init(&product, call->dtype, RONDO_PROD, comm->size, (int)comm->settings.cpu));
    return call->send_on_gpu ? scale_on_gpu(comm, &product, factor, call->send, terms, count)
                             : scale_here(&product, factor, call->send, terms, count);
}

/* ---- The calls ---- */

/* With the smallest number that is free. */
static rondo_result add(rondo_comm *comm, rd_scaled *entry)
{
    int number = 1;
    pthread_mutex_lock(&lock);
    while (number <= MOST_OPERATORS && *find(comm, number)) number++;
    if (number <= MOST_OPERATORS) {
        entry->number = (uint16_t)number;
        entry->next = comm->scaled;
        comm->scaled = entry;
    }
    pthread_mutex_unlock(&lock);
    if (number <= MOST_OPERATORS) return RONDO_SUCCESS;
    free(entry);
    return rd_fail(RONDO_INVALID_USAGE,
                   "rondo_op_create_scaled_sum: this communicator has %d operators; destroy those that are not needed",
                   MOST_OPERATORS);
}

static rondo_result create(rondo_op *op, const void *factor, rondo_dtype dtype, rondo_when when, rondo_comm *comm)
{
    static const char who[] = "rondo_op_create_scaled_sum";
    if (!op) return rd_fail(RONDO_INVALID_ARGUMENT, "%s: op is NULL; it must point to where the operator goes", who);
    if (!factor) return rd_fail(RONDO_INVALID_ARGUMENT, "%s: factor is NULL; it must point to one element", who);
    if (!rd_dtype_bytes(dtype))
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "%s: dtype is %d; the types are 0 to %d (RONDO_INT8 to RONDO_FLOAT8E5M2)", who, (int)dtype,
                       RONDO_DTYPES - 1);
    if (when != RONDO_NOW && when != RONDO_LATER)
        return rd_fail(RONDO_INVALID_ARGUMENT, "%s: when is %d; it must be RONDO_NOW (%d) or RONDO_LATER (%d)", who,
                       (int)when, RONDO_NOW, RONDO_LATER);
    rd_scaled *entry = calloc(1, sizeof *entry);
    if (!entry) return rd_fail_errno("%s: no memory for an operator", who);
    entry->dtype = dtype;
    if (when == RONDO_LATER)
        entry->later = factor;
    else
        memcpy(entry->factor, factor, rd_dtype_bytes(dtype));
    RD_TRY(add(comm, entry));
    *op = (rondo_op)(RONDO_OPS - 1 + entry->number);
    return RONDO_SUCCESS;
}

rondo_result rondo_op_create_scaled_sum(rondo_op *op, const void *factor, rondo_dtype dtype, rondo_when when,
                                        rondo_comm *comm)
{
    if (!comm)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "rondo_op_create_scaled_sum: comm is NULL; it must come from a rondo_init call");
    RD_TRY(rd_comm_enter(comm, "rondo_op_create_scaled_sum"));
    rondo_result result = rd_comm_note(comm, create(op, factor, dtype, when, comm));
    rd_comm_leave(comm);
    return result;
}

rondo_result rondo_op_destroy(rondo_op op, rondo_comm *comm)
{
    if (!comm)
        return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_op_destroy: comm is NULL; it must come from a rondo_init call");
    RD_TRY(rd_check_process(comm, "rondo_op_destroy"));
    pthread_mutex_lock(&lock);
    rd_scaled **at = find(comm, (int)op < RONDO_OPS ? -1 : (int)op - RONDO_OPS + 1);
    bool there = *at && !(*at)->destroyed;
    if (there) {
        (*at)->destroyed = true;
        drop_unused(at);
    }
    pthread_mutex_unlock(&lock);
    if (there) return RONDO_SUCCESS;
    return rd_fail(RONDO_INVALID_ARGUMENT,
                   "rondo_op_destroy: op is %d; only what rondo_op_create_scaled_sum gave for this communicator can be "
                   "destroyed, and only once",
                   (int)op);
}
