/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c - memory that neighbours can reach, what is registered, and operators made at run time.
 */
#include "shim/shim.h"

#include "base/gpu.h"
#include "base/process.h"

#include <stdint.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
RD_HOLD_AT_FORK(lock)

/* ---- Memory: of the caller's GPU, or, where there is none, of the host ---- */

typedef struct rd_on_gpu {
    struct rd_on_gpu *next;
    rd_cu_address address;
    int device;
} rd_on_gpu;

static rd_on_gpu *on_gpus;

/* One driver call in the GPU's primary context, which the runtime uses, too. */
#define IN_CONTEXT(result, device, function, ...)                                                                      \
    do {                                                                                                               \
        rd_cu_context context_;                                                                                        \
        RD_TRY(RD_GPU(device, cuDevicePrimaryCtxRetain, &context_, device));                                           \
        result = RD_GPU(device, cuCtxPushCurrent, context_);                                                           \
        if (result == RONDO_SUCCESS) {                                                                                 \
            result = RD_GPU(device, function, __VA_ARGS__);                                                            \
            rd_gpu_driver()->cuCtxPopCurrent(&context_);                                                               \
        }                                                                                                              \
        rd_gpu_driver()->cuDevicePrimaryCtxRelease(device);                                                            \
    } while (0)

static rondo_result alloc_on_gpu(int device, size_t bytes, rd_cu_address *address)
{
    rondo_result result;
    IN_CONTEXT(result, device, cuMemAlloc, address, bytes);
    return result;
}

static rondo_result free_on_gpu(int device, rd_cu_address address)
{
    rondo_result result;
    IN_CONTEXT(result, device, cuMemFree, address);
    return result;
}

static rondo_result mem_alloc(void **ptr, size_t bytes)
{
    int device = rd_shim_current_device();
    if (!ptr) return rd_shim_null("ptr");
    if (device < 0 || !bytes) return rondo_mem_alloc(ptr, bytes, NULL);
    rd_on_gpu *made = malloc(sizeof *made);
    if (!made) return rd_fail_errno("no memory for a list of allocations");
    made->device = device;
    rondo_result result = alloc_on_gpu(device, bytes, &made->address);
    if (result != RONDO_SUCCESS) {
        free(made);
        return result;
    }
    *ptr = (void *)(uintptr_t)made->address;
    pthread_mutex_lock(&lock);
    made->next = on_gpus;
    on_gpus = made;
    pthread_mutex_unlock(&lock);
    return RONDO_SUCCESS;
}

static rondo_result mem_free(void *ptr)
{
    pthread_mutex_lock(&lock);
    rd_on_gpu **at = &on_gpus;
    while (*at && (*at)->address != (rd_cu_address)(uintptr_t)ptr) at = &(*at)->next;
    rd_on_gpu *found = *at;
    if (found) *at = found->next;
    pthread_mutex_unlock(&lock);
    if (!found) return rondo_mem_free(ptr, NULL);
    rondo_result result = free_on_gpu(found->device, found->address);
    free(found);
    return result;
}

RD_NCCL(ncclMemAlloc);
ncclResult_t ncclMemAlloc(void **ptr, size_t size)
{
    return rd_shim_result("ncclMemAlloc", mem_alloc(ptr, size));
}

RD_NCCL(ncclMemFree);
ncclResult_t ncclMemFree(void *ptr)
{
    return rd_shim_result("ncclMemFree", mem_free(ptr));
}

/* ---- Registrations; a window is one, too ---- */

struct rd_registered {
    rd_registered *next;
    void *address;
};

static rondo_result add(ncclComm_t comm, void *address, size_t bytes, void **handle)
{
    if (!handle) return rd_shim_null("the place for the handle");
    *handle = NULL;
    if (address && !bytes) return RONDO_SUCCESS; /* nothing, as NCCL has it */
    rd_registered *entry = malloc(sizeof *entry);
    if (!entry) return rd_fail_errno("no memory for a registration");
    rondo_result result = rondo_register(address, bytes, comm->inner);
    if (result != RONDO_SUCCESS) {
        free(entry);
        return result;
    }
    pthread_mutex_lock(&lock);
    *entry = (rd_registered){comm->registered, address};
    comm->registered = entry;
    pthread_mutex_unlock(&lock);
    *handle = entry;
    return RONDO_SUCCESS;
}

static rondo_result take_out(ncclComm_t comm, const void *handle)
{
    pthread_mutex_lock(&lock);
    rd_registered **at = &comm->registered;
    while (*at && *at != handle) at = &(*at)->next;
    rd_registered *entry = *at;
    if (entry) *at = entry->next;
    pthread_mutex_unlock(&lock);
    if (!entry)
        return rd_fail(RONDO_INVALID_USAGE, "%p is no handle of what is registered with this communicator", handle);
    rondo_result result = rondo_deregister(entry->address, comm->inner);
    free(entry);
    return result;
}

void rd_shim_forget_memory(ncclComm_t comm)
{
    for (rd_registered *next; comm->registered; comm->registered = next) {
        next = comm->registered->next;
        free(comm->registered);
    }
}

static ncclResult_t register_memory(const char *function, ncclComm_t comm, void *address, size_t bytes, void **handle)
{
    rondo_result result = rd_shim_enter(comm);
    if (result == RONDO_SUCCESS) {
        result = add(comm, address, bytes, handle);
        rd_shim_leave(comm);
    }
    return rd_shim_result(function, result);
}

/* NULL is what NCCL gives for memory that it does not register, and takes back. */
static ncclResult_t deregister_memory(const char *function, ncclComm_t comm, void *handle)
{
    rondo_result result = rd_shim_hold(comm);
    if (result == RONDO_SUCCESS) {
        if (handle) result = take_out(comm, handle);
        rd_shim_leave(comm);
    }
    return rd_shim_result(function, result);
}

RD_NCCL(ncclCommRegister);
ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle)
{
    return register_memory("ncclCommRegister", comm, buff, size, handle);
}

RD_NCCL(ncclCommDeregister);
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    return deregister_memory("ncclCommDeregister", comm, handle);
}

RD_NCCL(ncclCommWindowRegister);
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags)
{
    static const char who[] = "ncclCommWindowRegister";
    bool symmetric = winFlags == NCCL_WIN_COLL_SYMMETRIC;
    if (winFlags != NCCL_WIN_DEFAULT && !symmetric)
        return rd_shim_result(who, rd_fail(RONDO_INVALID_ARGUMENT,
                                           "winFlags is %#x; it must be NCCL_WIN_DEFAULT or NCCL_WIN_COLL_SYMMETRIC",
                                           (unsigned)winFlags));
    if (symmetric && (uintptr_t)buff % NCCL_WIN_REQUIRED_ALIGNMENT)
        return rd_shim_result(who, rd_fail(RONDO_INVALID_ARGUMENT, "buff is %p; it must be aligned to %d bytes", buff,
                                           NCCL_WIN_REQUIRED_ALIGNMENT));
    void *handle = NULL;
    ncclResult_t result = register_memory(who, comm, buff, size, win ? &handle : NULL);
    if (result == ncclSuccess) *win = handle;
    return result;
}

RD_NCCL(ncclCommWindowDeregister);
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win)
{
    return deregister_memory("ncclCommWindowDeregister", comm, win);
}

/* ---- Operators ---- */

static rondo_result create(ncclRedOp_t *op, const void *scalar, ncclDataType_t datatype,
                           ncclScalarResidence_t residence, ncclComm_t comm)
{
    rondo_op made;
    if (!op) return rd_shim_null("op");
    if (!scalar) return rd_shim_null("scalar");
    if (residence != ncclScalarDevice && residence != ncclScalarHostImmediate)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "residence is %d; it must be ncclScalarDevice (0) or ncclScalarHostImmediate (1)",
                       (int)residence);
    RD_TRY(rondo_op_create_scaled_sum(&made, scalar, (rondo_dtype)datatype,
                                      residence == ncclScalarDevice ? RONDO_LATER : RONDO_NOW, comm->inner));
    *op = (ncclRedOp_t)made;
    return RONDO_SUCCESS;
}

RD_NCCL(ncclRedOpCreatePreMulSum);
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm)
{
    rondo_result result = rd_shim_enter(comm);
    if (result == RONDO_SUCCESS) {
        result = create(op, scalar, datatype, residence, comm);
        rd_shim_leave(comm);
    }
    return rd_shim_result("ncclRedOpCreatePreMulSum", result);
}

RD_NCCL(ncclRedOpDestroy);
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    rondo_result result = rd_shim_hold(comm);
    if (result == RONDO_SUCCESS) {
        result = comm->inner ? rondo_op_destroy((rondo_op)op, comm->inner)
                             : rd_fail(RONDO_INVALID_ARGUMENT, "the communicator is still being made");
        rd_shim_leave(comm);
    }
    return rd_shim_result("ncclRedOpDestroy", result);
}
