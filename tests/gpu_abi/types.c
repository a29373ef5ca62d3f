/* SPDX-License-Identifier: Apache-2.0
 *
 * types.c - what src/base/gpu_abi.h declares, beside the toolkit's own. Compiled only.
 */
#include "base/gpu_abi.h"

#include <cuda.h>

#define SAME_SIZE(ours, theirs)                                                                                        \
    _Static_assert(sizeof(ours) == sizeof(theirs), #ours " has another size");                                         \
    _Static_assert(_Alignof(ours) == _Alignof(theirs), #ours " is aligned otherwise");
#define SAME_PLACE(ours, member, theirs, member_there)                                                                 \
    _Static_assert(offsetof(ours, member) == offsetof(theirs, member_there), #ours "." #member " lies elsewhere");     \
    _Static_assert(sizeof(((ours *)0)->member) == sizeof(((theirs *)0)->member_there),                                 \
                   #ours "." #member " differs in size");

SAME_SIZE(rd_cu_result, CUresult)
SAME_SIZE(rd_cu_device, CUdevice)
SAME_SIZE(rd_cu_address, CUdeviceptr)
SAME_SIZE(rd_cu_allocation, CUmemGenericAllocationHandle)
SAME_SIZE(rd_cu_uuid, CUuuid)
SAME_SIZE(rd_cu_ipc_memory, CUipcMemHandle)
SAME_SIZE(rd_cu_ipc_event, CUipcEventHandle)
SAME_SIZE(rd_cu_location, CUmemLocation)
SAME_PLACE(rd_cu_location, type, CUmemLocation, type)
SAME_PLACE(rd_cu_location, id, CUmemLocation, id)
SAME_SIZE(rd_cu_properties, CUmemAllocationProp)
SAME_PLACE(rd_cu_properties, type, CUmemAllocationProp, type)
SAME_PLACE(rd_cu_properties, handle_types, CUmemAllocationProp, requestedHandleTypes)
SAME_PLACE(rd_cu_properties, location, CUmemAllocationProp, location)
SAME_PLACE(rd_cu_properties, win32, CUmemAllocationProp, win32HandleMetaData)
SAME_PLACE(rd_cu_properties, flags, CUmemAllocationProp, allocFlags)
SAME_PLACE(rd_cu_properties, flags.rdma, CUmemAllocationProp, allocFlags.gpuDirectRDMACapable)
SAME_PLACE(rd_cu_properties, flags.usage, CUmemAllocationProp, allocFlags.usage)
SAME_SIZE(rd_cu_access, CUmemAccessDesc)
SAME_PLACE(rd_cu_access, location, CUmemAccessDesc, location)
SAME_PLACE(rd_cu_access, flags, CUmemAccessDesc, flags)

#define SAME_RESULT(name, value) _Static_assert(CUDA_##name == (value), "CUDA_" #name);
#define SAME_VALUE(name, value)  _Static_assert((unsigned)CU_##name == (value), "CU_" #name);
RD_CU_RESULTS(SAME_RESULT)
RD_CU_VALUES(SAME_VALUE)
