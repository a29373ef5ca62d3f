/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu.h - the CUDA driver, loaded when somebody first asks for it. Nothing of CUDA is linked: the same library runs
 * where there is no driver, and there a GPU is simply absent, which is no error.
 */
#ifndef RD_BASE_GPU_H
#define RD_BASE_GPU_H

#include "base/gpu_abi.h"
#include "rondo.h"

#include <stdbool.h>

/* The driver's functions: CALL(name, first driver version that has this prototype, parameters); all return
 * rd_cu_result. The version is what cuGetProcAddress chooses among several prototypes of one name by (cudaTypedefs.h:
 * PFN_name_vVERSION). */
/* clang-format off */
#define RD_CU_FUNCTIONS(CALL)                                                                                          \
    CALL(cuDriverGetVersion, 2020, (int *version))                                                                     \
    CALL(cuGetErrorName, 6000, (rd_cu_result result, const char **name))                                               \
    CALL(cuGetErrorString, 6000, (rd_cu_result result, const char **text))                                             \
    CALL(cuInit, 2000, (unsigned flags))                                                                               \
    /* devices */                                                                                                      \
    CALL(cuDeviceGetCount, 2000, (int *count))                                                                         \
    CALL(cuDeviceGet, 2000, (rd_cu_device *device, int ordinal))                                                      \
    CALL(cuDeviceGetName, 2000, (char *name, int bytes, rd_cu_device device))                                          \
    CALL(cuDeviceGetUuid, 11040, (rd_cu_uuid *uuid, rd_cu_device device))                                             \
    CALL(cuDeviceGetPCIBusId, 4010, (char *id, int bytes, rd_cu_device device))                                        \
    CALL(cuDeviceTotalMem, 3020, (size_t *bytes, rd_cu_device device))                                                \
    CALL(cuDeviceGetAttribute, 2000, (int *value, unsigned attribute, rd_cu_device device))                            \
    CALL(cuDeviceCanAccessPeer, 4000, (int *can, rd_cu_device device, rd_cu_device peer))                              \
    CALL(cuDeviceGetP2PAttribute, 8000, (int *value, unsigned attribute, rd_cu_device from, rd_cu_device to))          \
    /* contexts */                                                                                                     \
    CALL(cuDevicePrimaryCtxRetain, 7000, (rd_cu_context *context, rd_cu_device device))                               \
    CALL(cuDevicePrimaryCtxRelease, 11000, (rd_cu_device device))                                                      \
    CALL(cuCtxPushCurrent, 4000, (rd_cu_context context))                                                              \
    CALL(cuCtxPopCurrent, 4000, (rd_cu_context *context))                                                             \
    CALL(cuCtxGetCurrent, 4000, (rd_cu_context *context))                                                             \
    CALL(cuCtxSetCurrent, 4000, (rd_cu_context context))                                                               \
    CALL(cuCtxGetDevice, 2000, (rd_cu_device *device))                                                                \
    CALL(cuCtxSynchronize, 2000, (void))                                                                               \
    CALL(cuCtxEnablePeerAccess, 4000, (rd_cu_context peer, unsigned flags))                                            \
    /* memory */                                                                                                       \
    CALL(cuPointerGetAttributes, 7000, (unsigned count, unsigned *attributes, void **values, rd_cu_address address))   \
    CALL(cuMemAlloc, 3020, (rd_cu_address *address, size_t bytes))                                                    \
    CALL(cuMemAllocManaged, 6000, (rd_cu_address *address, size_t bytes, unsigned flags))                             \
    CALL(cuMemFree, 3020, (rd_cu_address address))                                                                     \
    CALL(cuMemGetAddressRange, 3020, (rd_cu_address *start, size_t *bytes, rd_cu_address address))                   \
    CALL(cuMemGetInfo, 3020, (size_t *free, size_t *total))                                                          \
    CALL(cuMemHostAlloc, 2020, (void **address, size_t bytes, unsigned flags))                                         \
    CALL(cuMemFreeHost, 2000, (void *address))                                                                         \
    CALL(cuMemHostRegister, 6050, (void *address, size_t bytes, unsigned flags))                                       \
    CALL(cuMemHostUnregister, 4000, (void *address))                                                                   \
    CALL(cuMemHostGetDevicePointer, 3020, (rd_cu_address *address, void *host, unsigned flags))                       \
    CALL(cuMemcpyAsync, 4000, (rd_cu_address to, rd_cu_address from, size_t bytes, rd_cu_stream stream))               \
    CALL(cuMemcpyPeerAsync, 4000,                                                                                      \
         (rd_cu_address to, rd_cu_context to_context, rd_cu_address from, rd_cu_context from_context, size_t bytes,    \
          rd_cu_stream stream))                                                                                        \
    CALL(cuMemsetD8Async, 3020, (rd_cu_address address, unsigned char value, size_t count, rd_cu_stream stream))       \
    /* memory that other processes can map */                                                                          \
    CALL(cuIpcGetMemHandle, 4010, (rd_cu_ipc_memory *handle, rd_cu_address address))                                  \
    CALL(cuIpcOpenMemHandle, 11000, (rd_cu_address *address, rd_cu_ipc_memory handle, unsigned flags))                \
    CALL(cuIpcCloseMemHandle, 4010, (rd_cu_address address))                                                           \
    CALL(cuIpcGetEventHandle, 4010, (rd_cu_ipc_event *handle, rd_cu_event event))                                     \
    CALL(cuIpcOpenEventHandle, 4010, (rd_cu_event *event, rd_cu_ipc_event handle))                                    \
    CALL(cuMemGetAllocationGranularity, 10020, (size_t *bytes, const rd_cu_properties *wanted, unsigned which))       \
    CALL(cuMemCreate, 10020,                                                                                           \
         (rd_cu_allocation *allocation, size_t bytes, const rd_cu_properties *wanted, unsigned long long flags))      \
    CALL(cuMemRelease, 10020, (rd_cu_allocation allocation))                                                           \
    CALL(cuMemRetainAllocationHandle, 11000, (rd_cu_allocation *allocation, void *address))                           \
    CALL(cuMemExportToShareableHandle, 10020,                                                                          \
         (void *handle, rd_cu_allocation allocation, unsigned type, unsigned long long flags))                         \
    CALL(cuMemImportFromShareableHandle, 10020, (rd_cu_allocation *allocation, void *handle, unsigned type))          \
    CALL(cuMemAddressReserve, 10020,                                                                                   \
         (rd_cu_address *address, size_t bytes, size_t alignment, rd_cu_address wish, unsigned long long flags))      \
    CALL(cuMemAddressFree, 10020, (rd_cu_address address, size_t bytes))                                               \
    CALL(cuMemMap, 10020,                                                                                              \
         (rd_cu_address address, size_t bytes, size_t offset, rd_cu_allocation allocation, unsigned long long flags))  \
    CALL(cuMemUnmap, 10020, (rd_cu_address address, size_t bytes))                                                     \
    CALL(cuMemSetAccess, 10020, (rd_cu_address address, size_t bytes, const rd_cu_access *access, size_t count))       \
    /* memory that RDMA devices reach */                                                                               \
    CALL(cuMemGetHandleForAddressRange, 11070,                                                                         \
         (void *handle, rd_cu_address address, size_t bytes, unsigned type, unsigned long long flags))                 \
    CALL(cuFlushGPUDirectRDMAWrites, 11030, (unsigned target, unsigned scope))                                         \
    /* streams and events */                                                                                           \
    CALL(cuStreamCreateWithPriority, 5050, (rd_cu_stream *stream, unsigned flags, int priority))                      \
    CALL(cuStreamDestroy, 4000, (rd_cu_stream stream))                                                                 \
    CALL(cuStreamGetCtx, 9020, (rd_cu_stream stream, rd_cu_context *context))                                         \
    CALL(cuStreamQuery, 2000, (rd_cu_stream stream))                                                                   \
    CALL(cuStreamSynchronize, 2000, (rd_cu_stream stream))                                                             \
    CALL(cuStreamWaitEvent, 3020, (rd_cu_stream stream, rd_cu_event event, unsigned flags))                            \
    CALL(cuStreamWriteValue32, 11070, (rd_cu_stream stream, rd_cu_address address, uint32_t value, unsigned flags))    \
    CALL(cuStreamWaitValue32, 11070, (rd_cu_stream stream, rd_cu_address address, uint32_t value, unsigned flags))     \
    CALL(cuStreamWriteValue64, 11070, (rd_cu_stream stream, rd_cu_address address, uint64_t value, unsigned flags))    \
    CALL(cuStreamWaitValue64, 11070, (rd_cu_stream stream, rd_cu_address address, uint64_t value, unsigned flags))     \
    CALL(cuLaunchHostFunc, 10000, (rd_cu_stream stream, rd_cu_host_function function, void *argument))                 \
    CALL(cuEventCreate, 2000, (rd_cu_event *event, unsigned flags))                                                   \
    CALL(cuEventDestroy, 4000, (rd_cu_event event))                                                                    \
    CALL(cuEventRecord, 2000, (rd_cu_event event, rd_cu_stream stream))                                                \
    CALL(cuEventQuery, 2000, (rd_cu_event event))                                                                      \
    CALL(cuEventSynchronize, 2000, (rd_cu_event event))                                                                \
    CALL(cuEventElapsedTime, 2000, (float *ms, rd_cu_event from, rd_cu_event to))                                      \
    /* capture of streams into graphs */                                                                               \
    CALL(cuStreamIsCapturing, 10000, (rd_cu_stream stream, unsigned *status))                                          \
    CALL(cuThreadExchangeStreamCaptureMode, 10010, (unsigned *mode))                                                   \
    CALL(cuStreamBeginCapture, 10010, (rd_cu_stream stream, unsigned mode))                                            \
    CALL(cuStreamEndCapture, 10000, (rd_cu_stream stream, rd_cu_graph *graph))                                         \
    CALL(cuGraphGetNodes, 10000, (rd_cu_graph graph, rd_cu_graph_node *nodes, size_t *count))                          \
    CALL(cuGraphDestroy, 10000, (rd_cu_graph graph))                                                                   \
    /* kernels */                                                                                                      \
    CALL(cuModuleLoadData, 2000, (rd_cu_module *module, const void *image))                                           \
    CALL(cuModuleUnload, 2000, (rd_cu_module module))                                                                  \
    CALL(cuModuleGetFunction, 2000, (rd_cu_function *function, rd_cu_module module, const char *name))                \
    CALL(cuFuncGetAttribute, 2020, (int *value, unsigned attribute, rd_cu_function function))                          \
    CALL(cuFuncSetAttribute, 9000, (rd_cu_function function, unsigned attribute, int value))                           \
    CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050,                                                            \
         (int *blocks, rd_cu_function function, int threads, size_t shared_bytes))                                     \
    CALL(cuLaunchKernel, 4000,                                                                                         \
         (rd_cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,                \
          unsigned block_y, unsigned block_z, unsigned shared_bytes, rd_cu_stream stream, void **parameters,           \
          void **extra))
/* clang-format on */

#define RD_CU_MEMBER(name, version, parameters) rd_cu_result(*name) parameters;
struct rd_gpu_driver {
    RD_CU_FUNCTIONS(RD_CU_MEMBER)
};
#undef RD_CU_MEMBER

/* The oldest driver that will do: CUDA 12.0, which has all of the above. */
#define RD_GPU_OLDEST_DRIVER 12000

/* The driver, initialised; NULL where no GPU can be used, and rd_gpu_absent says why. The first call of a process loads
 * it, which takes from milliseconds to a second; later ones cost two loads. Any thread. In a child forked after that
 * the driver does not work: there it is NULL. */
const struct rd_gpu_driver *rd_gpu_driver(void);

/* Whether this process has loaded the driver, by us or by the application. Loads nothing: a program that has never used
 * CUDA has no current context either, and need not wait for a driver to tell so. */
bool rd_gpu_in_use(void);

/* Why there is none, in words that follow "no GPU: "; NULL where there is one. */
const char *rd_gpu_absent(void);

/* For those who cannot do without: RONDO_INVALID_USAGE with that text where there is none. */
rondo_result rd_gpu_require(void);

/* Translates what a driver call returned: RONDO_SUCCESS, or RONDO_UNHANDLED_CUDA_ERROR with the call, the device (-1:
 * none in particular), the driver's name and text for it, and what can be done about it. */
rondo_result rd_gpu_check(rd_cu_result result, const char *call, int device);

/* One driver call, translated: RD_TRY(RD_GPU(device, cuMemAlloc, &address, bytes)). Only where rd_gpu_driver is not
 * NULL. */
#define RD_GPU(device, function, ...) rd_gpu_check(rd_gpu_driver()->function(__VA_ARGS__), #function, (device))

/* Makes a context current in this thread for some calls of the driver, until rd_gpu_leave; may be nested. Somebody may be
 * capturing a stream into a graph meanwhile. The strictest mode of that, which is the usual one, forbids every thread what
 * might have to wait for the graph, such as allocating memory and asking for an event, and a call spoils the capture.
 * Nothing of ours waits for a graph, so the thread is exempt in between (cuThreadExchangeStreamCaptureMode). */
rondo_result rd_gpu_enter(int device, rd_cu_context context);
void rd_gpu_leave(void);
/* The same for the device's primary context, which is retained meanwhile. */
rondo_result rd_gpu_enter_primary(int device);
void rd_gpu_leave_primary(int device);

/* Before a stream is given anything, in its context. RONDO_INVALID_USAGE: it is being captured into a graph, which what this
 * library does cannot be part of; or it is the legacy stream, which must not be used while another is captured. */
rondo_result rd_gpu_refuse_capture(int device, rd_cu_stream stream);

/* How many GPUs this process sees; 0 where there is no driver. CUDA_VISIBLE_DEVICES, which the driver reads, hides GPUs
 * and numbers the others: the same GPU may have other numbers in other processes; its PCI address and uuid stay. */
int rd_gpu_count(void);

struct rd_gpu_info {
    char name[64];
    char pci[20]; /* "0000:65:00.0", as hwloc and sysfs write it */
    unsigned char uuid[16];
    size_t memory_bytes;
    int capability; /* 90: sm_90 */
    int multiprocessors;
    bool managed_by_host; /* host and GPU may touch managed memory at the same time */
    bool exports_fds;     /* memory can be made that leaves the process as a descriptor */
};
rondo_result rd_gpu_describe(int device, struct rd_gpu_info *info);

/* What the driver knows of an address. */
struct rd_gpu_place {
    bool known;   /* else plain memory of the host, or none at all */
    bool device;  /* memory of a GPU that the CPU does not reach */
    bool managed; /* moves between both */
    int gpu;      /* which one has it; -1: not known */
    unsigned long long start;
    size_t bytes; /* of its allocation, from start */
};
struct rd_gpu_place rd_gpu_locate(const void *ptr);

/* How one GPU reaches the memory of another. */
struct rd_gpu_reach {
    bool access;  /* by loads and stores */
    bool atomics; /* by atomic operations, too */
    int rank;     /* the driver's order of such links: 0 is the fastest */
};
rondo_result rd_gpu_reach(int from, int to, struct rd_gpu_reach *reach);

#endif
