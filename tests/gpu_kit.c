/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu_kit.h"

rd_cu_context gpu_enter(int device)
{
    rd_cu_context context;
    CU(cuDevicePrimaryCtxRetain, &context, device);
    CU(cuCtxPushCurrent, context);
    return context;
}

void gpu_leave(int device)
{
    CU(cuCtxPopCurrent, NULL);
    CU(cuDevicePrimaryCtxRelease, device);
}

rd_cu_address gpu_alloc(size_t bytes)
{
    rd_cu_address address;
    CU(cuMemAlloc, &address, bytes);
    return address;
}

rd_cu_stream gpu_stream(unsigned flags)
{
    rd_cu_stream stream;
    CU(cuStreamCreateWithPriority, &stream, flags, 0);
    return stream;
}

void gpu_put(rd_cu_address to, const void *from, size_t bytes)
{
    CU(cuMemcpyAsync, to, (rd_cu_address)(uintptr_t)from, bytes, NULL);
    CU(cuStreamSynchronize, NULL);
}

void gpu_get(void *to, rd_cu_address from, size_t bytes)
{
    CU(cuMemcpyAsync, (rd_cu_address)(uintptr_t)to, from, bytes, NULL);
    CU(cuStreamSynchronize, NULL);
}

rd_cu_function gpu_trial(const char *file, const char *kernel)
{
    char image[64];
    rd_cu_module module;
    rd_cu_function function;
    snprintf(image, sizeof image, "// trial_%s\n", file);
    CU(cuModuleLoadData, &module, image);
    CU(cuModuleGetFunction, &function, module, kernel);
    return function;
}

void gpu_launch(rd_cu_function function, unsigned blocks, unsigned threads, rd_cu_stream stream, void *argument)
{
    void *parameters[] = {argument};
    CU(cuLaunchKernel, function, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, NULL);
}
