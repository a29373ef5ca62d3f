/* SPDX-License-Identifier: Apache-2.0
 *
 * device.c - devices, who reaches whom, and primary contexts.
 */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CURRENT_MOST = 64 };

static int visible[SIM_DEVICES], visible_count; /* ordinal -> device */
static struct sim_context contexts[SIM_DEVICES];
static unsigned resident_threads[SIM_DEVICES], resident_blocks[SIM_DEVICES];

/* Each thread has a stack of current contexts. */
static __thread struct sim_context *current[CURRENT_MOST];
static __thread int current_count;

/* ---- Devices ------------------------------------------------------------------------------------------------------
 */

/* As the driver does: numbers up to the first that is none; what is not numbers is not simulated. */
int sim_devices_begin(void)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    sim_lock();
    visible_count = 0;
    if (list == NULL) {
        for (int i = 0; i < sim_settings.devices; i++) visible[visible_count++] = i;
    } else {
        char *end;
        for (;; list = end + 1) {
            long device = strtol(list, &end, 10);
            if (end == list || device < 0 || device >= sim_settings.devices || visible_count == SIM_DEVICES) break;
            visible[visible_count++] = (int)device;
            if (*end != ',') break;
        }
    }
    sim_unlock();
    return visible_count;
}

int sim_ordinal(int device)
{
    for (int i = 0; i < visible_count; i++)
        if (visible[i] == device) return i;
    return -1;
}

int sim_device(int ordinal)
{
    return ordinal >= 0 && ordinal < visible_count ? visible[ordinal] : -1;
}

bool sim_devices_reach(int from, int to)
{
    return from == to || sim_settings.p2p != SIM_P2P_NONE;
}

/* Whether the two are joined by something faster than PCIe. */
static bool near(int a, int b)
{
    return sim_settings.p2p == SIM_P2P_ALL || sim_settings.p2p == SIM_P2P_SWITCH ||
           (sim_settings.p2p == SIM_P2P_PAIRS && a / 2 == b / 2);
}

bool sim_device_enter(int device, unsigned threads)
{
    unsigned most = (unsigned)sim_settings.multiprocessors;
    if (resident_threads[device] + threads > most * SIM_THREADS_PER_MULTIPROCESSOR ||
        resident_blocks[device] + 1 > most * SIM_BLOCKS_PER_MULTIPROCESSOR)
        return false;
    resident_threads[device] += threads;
    resident_blocks[device]++;
    return true;
}

void sim_device_leave(int device, unsigned threads)
{
    resident_threads[device] -= threads;
    resident_blocks[device]--;
    sim_moved();
}

unsigned sim_max_threads(void)
{
#ifdef SIM_SAN_thread
    return RD_SIM_WARP; /* a fiber costs the sanitizer a megabyte and a half */
#else
    return 1024;
#endif
}

rd_cu_result cuDeviceGetCount(int *count)
{
    SIM_ENTER(cuDeviceGetCount);
    *count = visible_count;
    return RD_CU_SUCCESS;
}

rd_cu_result cuDeviceGet(rd_cu_device *device, int ordinal)
{
    SIM_ENTER(cuDeviceGet);
    if (sim_device(ordinal) < 0) return RD_CU_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return RD_CU_SUCCESS;
}

rd_cu_result cuDeviceGetName(char *name, int bytes, rd_cu_device device)
{
    SIM_ENTER(cuDeviceGetName);
    if (sim_device(device) < 0) return RD_CU_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)bytes, "Simulated GPU");
    return RD_CU_SUCCESS;
}

rd_cu_result cuDeviceGetUuid(rd_cu_uuid *uuid, rd_cu_device device)
{
    SIM_ENTER(cuDeviceGetUuid);
    if (sim_device(device) < 0) return RD_CU_ERROR_INVALID_DEVICE;
    memcpy(uuid->bytes, "simulated device", sizeof uuid->bytes);
    uuid->bytes[15] = (char)sim_device(device);
    return RD_CU_SUCCESS;
}

rd_cu_result cuDeviceGetPCIBusId(char *id, int bytes, rd_cu_device device)
{
    SIM_ENTER(cuDeviceGetPCIBusId);
    if (sim_device(device) < 0) return RD_CU_ERROR_INVALID_DEVICE;
    if (bytes < 13) return RD_CU_ERROR_INVALID_VALUE;
    snprintf(id, (size_t)bytes, "%s", sim_settings.pci[sim_device(device)]);
    return RD_CU_SUCCESS;
}

rd_cu_result cuDeviceTotalMem(size_t *bytes, rd_cu_device device)
{
    SIM_ENTER(cuDeviceTotalMem);
    if (sim_device(device) < 0) return RD_CU_ERROR_INVALID_DEVICE;
    *bytes = sim_settings.memory_bytes;
    return RD_CU_SUCCESS;
}

rd_cu_result cuDeviceGetAttribute(int *value, unsigned attribute, rd_cu_device device)
{
    SIM_ENTER(cuDeviceGetAttribute);
    unsigned domain, bus, slot;
    if (sim_device(device) < 0) return RD_CU_ERROR_INVALID_DEVICE;
    if (sscanf(sim_settings.pci[sim_device(device)], "%x:%x:%x.0", &domain, &bus, &slot) != 3) abort();
    switch (attribute) {
    case RD_CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = (int)sim_max_threads(); break;
    case RD_CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = RD_SIM_WARP; break;
    case RD_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = sim_settings.multiprocessors; break;
    case RD_CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: *value = SIM_THREADS_PER_MULTIPROCESSOR; break;
    case RD_CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: *value = (int)domain; break;
    case RD_CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: *value = (int)bus; break;
    case RD_CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: *value = (int)slot; break;
    case RD_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = sim_settings.capability / 10; break;
    case RD_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = sim_settings.capability % 10; break;
    case RD_CU_DEVICE_ATTRIBUTE_INTEGRATED:
    case RD_CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
    case RD_CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS: *value = 0; break;
    case RD_CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case RD_CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case RD_CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case RD_CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case RD_CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case RD_CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: *value = 1; break;
    case RD_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
    case RD_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED: *value = !sim_settings.no_rdma; break;
    case RD_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS: *value = !sim_settings.no_flush; break;
    case RD_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING: *value = sim_settings.ordered_rdma ? 200 : 0; break;
    case RD_CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED: *value = !sim_settings.no_dmabuf; break;
    case RD_CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED: *value = !sim_settings.no_ipc; break;
    case RD_CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS: *value = !sim_settings.no_memory_operations; break;
    case RD_CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR: *value = 0; break;
    case RD_CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: *value = !sim_settings.no_fds; break;
    default: return RD_CU_ERROR_INVALID_VALUE;
    }
    return RD_CU_SUCCESS;
}

rd_cu_result cuDeviceCanAccessPeer(int *can, rd_cu_device device, rd_cu_device peer)
{
    SIM_ENTER(cuDeviceCanAccessPeer);
    int from = sim_device(device), to = sim_device(peer);
    if (from < 0 || to < 0) return RD_CU_ERROR_INVALID_DEVICE;
    *can = from != to && sim_devices_reach(from, to);
    return RD_CU_SUCCESS;
}

rd_cu_result cuDeviceGetP2PAttribute(int *value, unsigned attribute, rd_cu_device from_ordinal, rd_cu_device to_ordinal)
{
    SIM_ENTER(cuDeviceGetP2PAttribute);
    int from = sim_device(from_ordinal), to = sim_device(to_ordinal);
    if (from < 0 || to < 0 || from == to) return RD_CU_ERROR_INVALID_DEVICE;
    switch (attribute) {
    case RD_CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED: *value = sim_devices_reach(from, to); break;
    case RD_CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED: *value = near(from, to); break;
    case RD_CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK: *value = near(from, to) ? 0 : 1; break;
    default: return RD_CU_ERROR_INVALID_VALUE;
    }
    return RD_CU_SUCCESS;
}

/* ---- Contexts -----------------------------------------------------------------------------------------------------
 */

struct sim_context *sim_context_current(void)
{
    return current_count > 0 ? current[current_count - 1] : NULL;
}

struct sim_context *sim_context_find(rd_cu_context context)
{
    return sim_handle_find(context, SIM_CONTEXT);
}

void sim_context_lose(struct sim_context *context, rd_cu_result result)
{
    sim_lock();
    context->lost = result;
    sim_moved();
    sim_unlock();
}

static bool is_busy(const struct sim_context *context)
{
    for (const struct sim_stream *stream = context->streams; stream != NULL; stream = stream->next)
        if (stream->done < stream->queued) return true;
    return false;
}

rd_cu_result sim_context_lost(struct sim_context *context)
{
    enum { PAUSES = 10000 };
    unsigned turn = 0;
    sim_lock();
    while (context->lost != RD_CU_SUCCESS && turn < PAUSES && is_busy(context)) {
        sim_unlock();
        sim_pause(&turn);
        sim_lock();
    }
    sim_unlock();
    return context->lost;
}

rd_cu_result cuDevicePrimaryCtxRetain(rd_cu_context *context, rd_cu_device ordinal)
{
    SIM_ENTER(cuDevicePrimaryCtxRetain);
    int device = sim_device(ordinal);
    if (device < 0) return RD_CU_ERROR_INVALID_DEVICE;
    struct sim_context *found = &contexts[device];
    sim_lock();
    if (found->retained++ == 0) {
        *found = (struct sim_context){.device = device, .ordinal = ordinal, .retained = 1};
        sim_handle_add(&found->handle, SIM_CONTEXT);
        sim_streams_open(found);
    }
    sim_unlock();
    *context = (rd_cu_context)found;
    return RD_CU_SUCCESS;
}

rd_cu_result cuDevicePrimaryCtxRelease(rd_cu_device ordinal)
{
    SIM_ENTER(cuDevicePrimaryCtxRelease);
    int device = sim_device(ordinal);
    if (device < 0) return RD_CU_ERROR_INVALID_DEVICE;
    struct sim_context *context = &contexts[device];
    sim_lock();
    if (context->retained == 0) {
        sim_unlock();
        return RD_CU_ERROR_INVALID_CONTEXT;
    }
    if (context->retained == 1) {
        sim_context_await(context);
        context->lost = RD_CU_ERROR_CONTEXT_IS_DESTROYED;
        sim_streams_close(context);
        sim_modules_close(context);
        sim_context_memory_free(context);
        sim_handle_remove(&context->handle);
    }
    context->retained--;
    sim_unlock();
    return RD_CU_SUCCESS;
}

rd_cu_result cuCtxPushCurrent(rd_cu_context context)
{
    SIM_ENTER(cuCtxPushCurrent);
    sim_lock();
    struct sim_context *found = sim_context_find(context);
    sim_unlock();
    if (found == NULL || current_count == CURRENT_MOST) return RD_CU_ERROR_INVALID_CONTEXT;
    current[current_count++] = found;
    return RD_CU_SUCCESS;
}

rd_cu_result cuCtxPopCurrent(rd_cu_context *context)
{
    SIM_ENTER(cuCtxPopCurrent);
    if (current_count == 0) return RD_CU_ERROR_INVALID_CONTEXT;
    current_count--;
    if (context != NULL) *context = (rd_cu_context)current[current_count];
    return RD_CU_SUCCESS;
}

rd_cu_result cuCtxGetCurrent(rd_cu_context *context)
{
    SIM_ENTER(cuCtxGetCurrent);
    *context = (rd_cu_context)sim_context_current();
    return RD_CU_SUCCESS;
}

/* Replaces the top of the thread's stack; NULL takes it off. */
rd_cu_result cuCtxSetCurrent(rd_cu_context context)
{
    SIM_ENTER(cuCtxSetCurrent);
    sim_lock();
    struct sim_context *found = context == NULL ? NULL : sim_context_find(context);
    sim_unlock();
    if (context != NULL && found == NULL) return RD_CU_ERROR_INVALID_CONTEXT;
    if (current_count > 0) current_count--;
    if (found != NULL) current[current_count++] = found;
    return RD_CU_SUCCESS;
}

rd_cu_result cuCtxGetDevice(rd_cu_device *device)
{
    SIM_ENTER_CONTEXT(cuCtxGetDevice, context);
    *device = context->ordinal;
    return RD_CU_SUCCESS;
}

rd_cu_result cuCtxSynchronize(void)
{
    SIM_ENTER_CONTEXT(cuCtxSynchronize, context);
    sim_lock();
    sim_context_await(context);
    sim_unlock();
    return sim_context_lost(context);
}

rd_cu_result cuCtxEnablePeerAccess(rd_cu_context peer, unsigned flags)
{
    SIM_ENTER_CONTEXT(cuCtxEnablePeerAccess, context);
    rd_cu_result result = RD_CU_SUCCESS;
    sim_lock();
    struct sim_context *other = sim_context_find(peer);
    if (flags != 0)
        result = RD_CU_ERROR_INVALID_VALUE;
    else if (other == NULL || other == context)
        result = RD_CU_ERROR_INVALID_DEVICE;
    else if (!sim_devices_reach(context->device, other->device))
        result = RD_CU_ERROR_PEER_ACCESS_UNSUPPORTED;
    else if (context->peer[other->device])
        result = RD_CU_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    else
        context->peer[other->device] = true;
    sim_unlock();
    return result;
}
