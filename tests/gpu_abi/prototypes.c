/* SPDX-License-Identifier: Apache-2.0
 *
 * prototypes.c - the table of src/base/gpu.h with the toolkit's types in the place of ours (whose sizes types.c
 * compares): each function must then be of exactly the type that cudaTypedefs.h has for its version. Compiled only.
 */
#include <cuda.h>
#include <cudaTypedefs.h>

#define RD_BASE_GPU_ABI_H
typedef CUresult rd_cu_result;
typedef CUdevice rd_cu_device;
typedef CUdeviceptr rd_cu_address;
typedef CUmemGenericAllocationHandle rd_cu_allocation;
typedef CUcontext rd_cu_context;
typedef CUstream rd_cu_stream;
typedef CUevent rd_cu_event;
typedef CUgraph rd_cu_graph;
typedef CUgraphNode rd_cu_graph_node;
typedef CUmodule rd_cu_module;
typedef CUfunction rd_cu_function;
typedef CUhostFn rd_cu_host_function;
typedef CUuuid rd_cu_uuid;
typedef CUipcMemHandle rd_cu_ipc_memory;
typedef CUipcEventHandle rd_cu_ipc_event;
typedef CUmemAllocationProp rd_cu_properties;
typedef CUmemAccessDesc rd_cu_access;
#include "base/gpu.h"

#define SAME_PROTOTYPE(name, version, parameters)                                                                      \
    _Static_assert(__builtin_types_compatible_p(rd_cu_result(*) parameters, PFN_##name##_v##version),                  \
                   #name " differs");                                                                                  \
    _Static_assert((version) <= RD_GPU_OLDEST_DRIVER, #name " is newer than the oldest driver");
RD_CU_FUNCTIONS(SAME_PROTOTYPE)
