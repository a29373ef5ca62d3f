/* SPDX-License-Identifier: Apache-2.0
 *
 * cudart.c - a libcudart.so.13 for tests, over whatever driver is loaded: NVIDIA's own does not start on a simulated
 * one. For C programs that use the runtime and have no kernels. A device's primary context is made when it is first
 * used and then stays, as the runtime does it; each thread has a current device, which begins as 0, and a last error.
 */
#include "cuda_runtime.h"

#include "base/gpu.h"

#include <pthread.h>
#include <stdint.h>

enum { DEVICES = 64 };

static _Thread_local cudaError_t last;
static _Thread_local int current;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static rd_cu_context contexts[DEVICES];

/* The values that matter are the driver's own. */
static cudaError_t note(rd_cu_result result)
{
    if (result != RD_CU_SUCCESS && result != RD_CU_ERROR_NOT_READY) last = (cudaError_t)result;
    return (cudaError_t)result;
}

#define DRIVER(...)                                                                                                    \
    do {                                                                                                               \
        const struct rd_gpu_driver *cu = rd_gpu_driver();                                                              \
        if (!cu) return note((rd_cu_result)cudaErrorNoDevice);                                                         \
        return note(__VA_ARGS__);                                                                                      \
    } while (0)

/* The current device's context is current in the driver, too. */
static rd_cu_result enter(const struct rd_gpu_driver *cu)
{
    rd_cu_result result = RD_CU_SUCCESS;
    pthread_mutex_lock(&lock);
    if (!contexts[current]) result = cu->cuDevicePrimaryCtxRetain(&contexts[current], current);
    pthread_mutex_unlock(&lock);
    return result ? result : cu->cuCtxSetCurrent(contexts[current]);
}

/* A call in the current device's context. */
#define IN_CONTEXT(call)                                                                                               \
    do {                                                                                                               \
        const struct rd_gpu_driver *cu = rd_gpu_driver();                                                              \
        if (!cu) return note((rd_cu_result)cudaErrorNoDevice);                                                         \
        rd_cu_result entered = enter(cu);                                                                              \
        return note(entered ? entered : cu->call);                                                                     \
    } while (0)

/* ---- Errors, versions ---- */

const char *cudaGetErrorName(cudaError_t error)
{
    const char *name = "unknown";
    if (rd_gpu_driver()) rd_gpu_driver()->cuGetErrorName((rd_cu_result)error, &name);
    return name;
}
const char *cudaGetErrorString(cudaError_t error)
{
    const char *text = "unknown error";
    if (rd_gpu_driver()) rd_gpu_driver()->cuGetErrorString((rd_cu_result)error, &text);
    return text;
}
cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last;
    last = cudaSuccess;
    return error;
}
cudaError_t cudaPeekAtLastError(void)
{
    return last;
}
cudaError_t cudaDriverGetVersion(int *version)
{
    DRIVER(cu->cuDriverGetVersion(version));
}
cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

/* ---- Devices ---- */

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 0;
    DRIVER(cu->cuDeviceGetCount(count));
}
cudaError_t cudaSetDevice(int device)
{
    int count;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error) return error;
    if (device < 0 || device >= count || device >= DEVICES) return note((rd_cu_result)cudaErrorInvalidDevice);
    current = device;
    return note(enter(rd_gpu_driver()));
}
cudaError_t cudaGetDevice(int *device)
{
    *device = current;
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void)
{
    IN_CONTEXT(cuCtxSynchronize());
}
cudaError_t cudaDeviceReset(void)
{
    return cudaDeviceSynchronize();
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    DRIVER(cu->cuDeviceCanAccessPeer(can, device, peer));
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    int mine = current;
    cudaError_t error = cudaSetDevice(peer);
    current = mine;
    if (error) return error;
    IN_CONTEXT(cuCtxEnablePeerAccess(contexts[peer], flags));
}
cudaError_t cudaDeviceGetPCIBusId(char *id, int bytes, int device)
{
    DRIVER(cu->cuDeviceGetPCIBusId(id, bytes, device));
}

/* ---- Memory ---- */

static rd_cu_address as_address(const void *pointer)
{
    return (rd_cu_address)(uintptr_t)pointer;
}

/* Nothing of nothing, as the runtime has it. */
static cudaError_t allocate(void **address, size_t bytes, bool managed)
{
    rd_cu_address at = 0;
    const struct rd_gpu_driver *cu = rd_gpu_driver();
    if (!cu) return note((rd_cu_result)cudaErrorNoDevice);
    rd_cu_result result = enter(cu);
    if (!result && bytes)
        result = managed ? cu->cuMemAllocManaged(&at, bytes, RD_CU_MEM_ATTACH_GLOBAL) : cu->cuMemAlloc(&at, bytes);
    if (!result) *address = (void *)(uintptr_t)at;
    return note(result);
}

cudaError_t cudaMalloc(void **address, size_t bytes)
{
    return allocate(address, bytes, false);
}
cudaError_t cudaMallocManaged(void **address, size_t bytes, unsigned flags)
{
    (void)flags;
    return allocate(address, bytes, true);
}
cudaError_t cudaFree(void *address)
{
    if (!address) return cudaDeviceSynchronize();
    IN_CONTEXT(cuMemFree(as_address(address)));
}
cudaError_t cudaMallocHost(void **address, size_t bytes)
{
    return cudaHostAlloc(address, bytes, cudaHostAllocDefault);
}
cudaError_t cudaHostAlloc(void **address, size_t bytes, unsigned flags)
{
    IN_CONTEXT(cuMemHostAlloc(address, bytes, flags));
}
cudaError_t cudaFreeHost(void *address)
{
    IN_CONTEXT(cuMemFreeHost(address));
}
cudaError_t cudaHostRegister(void *address, size_t bytes, unsigned flags)
{
    IN_CONTEXT(cuMemHostRegister(address, bytes, flags));
}
cudaError_t cudaHostUnregister(void *address)
{
    IN_CONTEXT(cuMemHostUnregister(address));
}
cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    IN_CONTEXT(cuMemGetInfo(free, total));
}
/* The driver knows where memory is. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    (void)kind;
    if (!bytes) return cudaSuccess;
    IN_CONTEXT(cuMemcpyAsync(as_address(to), as_address(from), bytes, stream));
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, NULL);
    return error ? error : cudaStreamSynchronize(NULL);
}
cudaError_t cudaMemsetAsync(void *address, int value, size_t bytes, cudaStream_t stream)
{
    if (!bytes) return cudaSuccess;
    IN_CONTEXT(cuMemsetD8Async(as_address(address), (unsigned char)value, bytes, stream));
}
cudaError_t cudaMemset(void *address, int value, size_t bytes)
{
    cudaError_t error = cudaMemsetAsync(address, value, bytes, NULL);
    return error ? error : cudaStreamSynchronize(NULL);
}

/* ---- Streams and events ---- */

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    IN_CONTEXT(cuStreamCreateWithPriority(stream, flags, priority));
}
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    IN_CONTEXT(cuStreamDestroy(stream));
}
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    IN_CONTEXT(cuStreamQuery(stream));
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    IN_CONTEXT(cuStreamSynchronize(stream));
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    IN_CONTEXT(cuStreamWaitEvent(stream, event, flags));
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument)
{
    IN_CONTEXT(cuLaunchHostFunc(stream, function, argument));
}
cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    IN_CONTEXT(cuEventCreate(event, flags));
}
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    IN_CONTEXT(cuEventDestroy(event));
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    IN_CONTEXT(cuEventRecord(event, stream));
}
cudaError_t cudaEventQuery(cudaEvent_t event)
{
    IN_CONTEXT(cuEventQuery(event));
}
cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    IN_CONTEXT(cuEventSynchronize(event));
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    IN_CONTEXT(cuStreamBeginCapture(stream, mode));
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    IN_CONTEXT(cuStreamEndCapture(stream, graph));
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    IN_CONTEXT(cuGraphGetNodes(graph, nodes, count));
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    IN_CONTEXT(cuGraphDestroy(graph));
}
