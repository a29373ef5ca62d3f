/* SPDX-License-Identifier: Apache-2.0 */
#include "base/gpu.h"
#include "base/process.h"
#include "base/status.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>

typedef rd_cu_result (*find_function)(const char *name, void **function, int version, uint64_t flags, unsigned *found);

#define LIBRARY "libcuda.so.1"

enum { UNKNOWN, PRESENT, ABSENT };

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static atomic_int state = UNKNOWN; /* the three below do not change once it is known */
static int loaded_in;              /* rd_generation */
static struct rd_gpu_driver driver;
static char absent[256];

RD_HOLD_AT_FORK(loading)

/* "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected". */
static void describe(rd_cu_result result, char *text, size_t bytes)
{
    const char *name = NULL, *words = NULL;
    driver.cuGetErrorName(result, &name);
    driver.cuGetErrorString(result, &words);
    snprintf(text, bytes, "%s (%u): %s", name ? name : "unknown error", result, words ? words : "no text");
}

/* Fills the table; returns the name of what the driver lacks, or NULL. */
static const char *find_all(find_function find)
{
    static const struct {
        const char *name;
        int version;
        size_t place;
    } wanted[] = {
#define WANTED(name, version, parameters) {#name, version, offsetof(struct rd_gpu_driver, name)},
        RD_CU_FUNCTIONS(WANTED)
#undef WANTED
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        /* What was not found is a success that leaves NULL. */
        void *function = NULL;
        unsigned found;
        rd_cu_result result =
            find(wanted[i].name, &function, wanted[i].version, RD_CU_GET_PROC_ADDRESS_LEGACY_STREAM, &found);
        if (result != RD_CU_SUCCESS || function == NULL) return wanted[i].name;
        *(void **)((char *)&driver + wanted[i].place) = function;
    }
    return NULL;
}

static int load(void)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(absent, sizeof absent, "the CUDA driver cannot be loaded (%s)", dlerror());
        return ABSENT;
    }
    find_function find;
    *(void **)&find = dlsym(library, "cuGetProcAddress_v2");
    const char *missing = find == NULL ? "cuGetProcAddress_v2" : find_all(find);
    if (missing != NULL) {
        snprintf(absent, sizeof absent, LIBRARY " has no %s; a driver of CUDA %d.%d or later is needed", missing,
                 RD_GPU_OLDEST_DRIVER / 1000, RD_GPU_OLDEST_DRIVER % 1000 / 10);
        return ABSENT;
    }
    int count = 0;
    const char *call = "cuInit";
    rd_cu_result result = driver.cuInit(0);
    if (result == RD_CU_SUCCESS) result = driver.cuDeviceGetCount(&count), call = "cuDeviceGetCount";
    if (result != RD_CU_SUCCESS) {
        char text[160];
        describe(result, text, sizeof text);
        snprintf(absent, sizeof absent, "%s says %s", call, text);
        return ABSENT;
    }
    if (count == 0) {
        snprintf(absent, sizeof absent, "the CUDA driver sees no device; CUDA_VISIBLE_DEVICES may hide them");
        return ABSENT;
    }
    return PRESENT;
}

static int load_once(void)
{
    int now = atomic_load_explicit(&state, memory_order_acquire);
    if (now != UNKNOWN) return now;
    pthread_mutex_lock(&loading);
    now = atomic_load_explicit(&state, memory_order_relaxed);
    if (now == UNKNOWN) {
        now = load();
        loaded_in = rd_generation();
        atomic_store_explicit(&state, now, memory_order_release);
    }
    pthread_mutex_unlock(&loading);
    return now;
}

const struct rd_gpu_driver *rd_gpu_driver(void)
{
    return load_once() == PRESENT && loaded_in == rd_generation() ? &driver : NULL;
}

bool rd_gpu_in_use(void)
{
    void *library = dlopen(LIBRARY, RTLD_LAZY | RTLD_NOLOAD);
    if (library != NULL) dlclose(library);
    return library != NULL;
}

const char *rd_gpu_absent(void)
{
    if (load_once() == ABSENT) return absent;
    return loaded_in == rd_generation()
               ? NULL
               : "this process was forked by one that had begun to use CUDA, and the driver does "
                 "not survive that; fork before the first use, or start a program";
}

rondo_result rd_gpu_require(void)
{
    const char *why = rd_gpu_absent();
    return why == NULL ? RONDO_SUCCESS : rd_fail(RONDO_INVALID_USAGE, "no GPU: %s", why);
}

static const char *remedy(rd_cu_result result)
{
    switch (result) {
    case RD_CU_ERROR_OUT_OF_MEMORY: return "; free GPU memory (nvidia-smi shows who has it), or use smaller buffers";
    case RD_CU_ERROR_NO_BINARY_FOR_GPU:
    case RD_CU_ERROR_INVALID_PTX:
    case RD_CU_ERROR_UNSUPPORTED_PTX_VERSION:
    case RD_CU_ERROR_JIT_COMPILATION_DISABLED:
        return "; this build has no kernels for this GPU and driver: `make release` builds them for all, or update the "
               "driver";
    case RD_CU_ERROR_DEVICE_UNAVAILABLE: return "; another process has this GPU for itself (nvidia-smi -q -d COMPUTE)";
    case RD_CU_ERROR_SYSTEM_NOT_READY: return "; on machines with NVSwitch the fabric manager has to run";
    case RD_CU_ERROR_ILLEGAL_ADDRESS:
    case RD_CU_ERROR_MISALIGNED_ADDRESS:
    case RD_CU_ERROR_LAUNCH_FAILED:
        return "; a kernel of this process crashed, maybe an earlier one, and its context is lost: compute-sanitizer "
               "finds which";
    case RD_CU_ERROR_ECC_UNCORRECTABLE: return "; the GPU's memory is faulty: drain the host and have it examined";
    default: return "";
    }
}

rondo_result rd_gpu_check(rd_cu_result result, const char *call, int device)
{
    if (result == RD_CU_SUCCESS) return RONDO_SUCCESS;
    char text[160], where[32] = "";
    describe(result, text, sizeof text);
    if (device >= 0) snprintf(where, sizeof where, " on GPU %d", device);
    return rd_fail(RONDO_UNHANDLED_CUDA_ERROR, "%s%s failed: %s%s", call, where, text, remedy(result));
}

/* Of this thread: how often it has entered, and its own mode, to which it returns. */
static _Thread_local unsigned depth, own_mode;

rondo_result rd_gpu_enter(int device, rd_cu_context context)
{
    RD_TRY(RD_GPU(device, cuCtxPushCurrent, context));
    if (depth++ > 0) return RONDO_SUCCESS;
    own_mode = RD_CU_STREAM_CAPTURE_MODE_RELAXED;
    rondo_result result = RD_GPU(device, cuThreadExchangeStreamCaptureMode, &own_mode);
    if (result == RONDO_SUCCESS) return RONDO_SUCCESS;
    depth--;
    driver.cuCtxPopCurrent(NULL);
    return result;
}

void rd_gpu_leave(void)
{
    unsigned mode = own_mode;
    if (--depth == 0) driver.cuThreadExchangeStreamCaptureMode(&mode);
    driver.cuCtxPopCurrent(NULL);
}

rondo_result rd_gpu_enter_primary(int device)
{
    rd_cu_context context;
    RD_TRY(RD_GPU(device, cuDevicePrimaryCtxRetain, &context, device));
    rondo_result result = rd_gpu_enter(device, context);
    if (result != RONDO_SUCCESS) driver.cuDevicePrimaryCtxRelease(device);
    return result;
}

void rd_gpu_leave_primary(int device)
{
    rd_gpu_leave();
    driver.cuDevicePrimaryCtxRelease(device);
}

rondo_result rd_gpu_refuse_capture(int device, rd_cu_stream stream)
{
    unsigned status = RD_CU_STREAM_CAPTURE_STATUS_NONE;
    rd_cu_result result = driver.cuStreamIsCapturing(stream, &status);
    if (result == RD_CU_ERROR_STREAM_CAPTURE_IMPLICIT)
        return rd_fail(RONDO_INVALID_USAGE,
                       "a stream of GPU %d is being captured into a graph, and meanwhile nothing may use CUDA's legacy "
                       "stream, after which this call comes: call when the capture has ended, or capture a stream that was "
                       "made with cudaStreamNonBlocking",
                       device);
    RD_TRY(rd_gpu_check(result, "cuStreamIsCapturing", device));
    if (status == RD_CU_STREAM_CAPTURE_STATUS_NONE) return RONDO_SUCCESS;
    return rd_fail(RONDO_INVALID_USAGE,
                   "the CUDA stream is being captured into a graph, which calls of this library cannot be part of: call "
                   "before the capture or when it has ended");
}
