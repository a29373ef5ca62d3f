/* SPDX-License-Identifier: Apache-2.0
 *
 * pointer.c - what a pointer is, as the driver tells.
 */
#include "sim.h"

rd_cu_result cuMemGetAddressRange(rd_cu_address *start, size_t *bytes, rd_cu_address address)
{
    SIM_ENTER_CONTEXT(cuMemGetAddressRange, context);
    (void)context;
    sim_lock();
    struct sim_range *range = sim_range_find(address);
    if (range != NULL && start != NULL) *start = range->start;
    if (range != NULL && bytes != NULL) *bytes = range->bytes;
    sim_unlock();
    return range != NULL ? RD_CU_SUCCESS : RD_CU_ERROR_NOT_FOUND;
}

static bool on_host(const struct sim_range *range)
{
    return range->kind == SIM_HOST_ALLOCATED || range->kind == SIM_HOST_REGISTERED;
}

/* Of memory that is not the driver's, everything is nothing. */
static rd_cu_result pointer_attribute(unsigned attribute, void *value, struct sim_range *range, rd_cu_address address)
{
    bool host = range != NULL && on_host(range), device = range != NULL && !host;
    unsigned type = range == NULL ? 0 : host ? RD_CU_MEMORYTYPE_HOST : RD_CU_MEMORYTYPE_DEVICE;
    switch (attribute) {
    case RD_CU_POINTER_ATTRIBUTE_CONTEXT:
        *(rd_cu_context *)value = range != NULL ? (rd_cu_context)range->context : NULL;
        break;
    case RD_CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *(unsigned *)value = type; break;
    case RD_CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(rd_cu_address *)value = range != NULL ? address : 0; break;
    case RD_CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *(void **)value = host || (device && range->kind == SIM_MANAGED) ? sim_pointer(address) : NULL;
        break;
    case RD_CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: *(unsigned *)value = 0; break;
    case RD_CU_POINTER_ATTRIBUTE_BUFFER_ID: *(uint64_t *)value = range != NULL ? range->id : 0; break;
    case RD_CU_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned *)value = device && range->kind == SIM_MANAGED; break;
    case RD_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)value = range != NULL ? sim_ordinal(range->device) : -2; break;
    case RD_CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned *)value = device && range->kind == SIM_DEVICE_MEMORY && !sim_settings.no_ipc;
        break;
    case RD_CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(rd_cu_address *)value = range != NULL ? range->start : 0; break;
    case RD_CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)value = range != NULL ? range->bytes : 0; break;
    case RD_CU_POINTER_ATTRIBUTE_MAPPED: *(unsigned *)value = range != NULL; break;
    case RD_CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(uint64_t *)value = device && range->kind == SIM_MAPPED ? RD_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0;
        break;
    default: return RD_CU_ERROR_INVALID_VALUE;
    }
    return RD_CU_SUCCESS;
}

rd_cu_result cuPointerGetAttributes(unsigned count, unsigned *attributes, void **values, rd_cu_address address)
{
    SIM_ENTER(cuPointerGetAttributes);
    rd_cu_result result = RD_CU_SUCCESS;
    sim_lock();
    struct sim_range *range = sim_range_find(address);
    for (unsigned i = 0; i < count && result == RD_CU_SUCCESS; i++)
        result = pointer_attribute(attributes[i], values[i], range, address);
    sim_unlock();
    return result;
}
