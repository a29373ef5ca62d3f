/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_abi.h - the part of the CUDA driver's binary interface that Rondo uses, in declarations of its own, so that it is
 * built alike with and without the CUDA toolkit. Where the toolkit is there, tests/test_gpu_abi.sh holds every type,
 * value and prototype against cuda.h.
 *
 * RD_CU_X stands for the driver's CU_X or CUDA_X. An enumeration is an unsigned int in this interface.
 */
#ifndef RD_BASE_GPU_ABI_H
#define RD_BASE_GPU_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned rd_cu_result;
typedef int rd_cu_device;                    /* the ordinal, as CUDA_VISIBLE_DEVICES leaves it */
typedef unsigned long long rd_cu_address;    /* CUdeviceptr: device and mapped host memory share one address space */
typedef unsigned long long rd_cu_allocation; /* CUmemGenericAllocationHandle */
typedef struct CUctx_st *rd_cu_context;
typedef struct CUstream_st *rd_cu_stream;
typedef struct CUevent_st *rd_cu_event;
typedef struct CUgraph_st *rd_cu_graph;
typedef struct CUgraphNode_st *rd_cu_graph_node;
typedef struct CUmod_st *rd_cu_module;
typedef struct CUfunc_st *rd_cu_function;
typedef void (*rd_cu_host_function)(void *argument);

typedef struct rd_cu_uuid {
    char bytes[16];
} rd_cu_uuid;

typedef struct rd_cu_ipc_memory {
    char bytes[64];
} rd_cu_ipc_memory;

typedef struct rd_cu_ipc_event {
    char bytes[64];
} rd_cu_ipc_event;

typedef struct rd_cu_location {
    unsigned type; /* RD_CU_MEM_LOCATION_TYPE_DEVICE */
    int id;
} rd_cu_location;

/* What cuMemCreate is asked for. */
typedef struct rd_cu_properties {
    unsigned type;         /* RD_CU_MEM_ALLOCATION_TYPE_PINNED */
    unsigned handle_types; /* how it may be exported */
    rd_cu_location location;
    void *win32;
    struct {
        unsigned char compression, rdma;
        unsigned short usage;
        unsigned char reserved[4];
    } flags;
} rd_cu_properties;

typedef struct rd_cu_access {
    rd_cu_location location; /* who */
    unsigned flags;          /* RD_CU_MEM_ACCESS_FLAGS_PROT_READWRITE */
} rd_cu_access;

/* VALUE(the driver's name after CU_ or CUDA_, value). */
#define RD_CU_RESULTS(VALUE)                                                                                           \
    VALUE(SUCCESS, 0)                                                                                                  \
    VALUE(ERROR_INVALID_VALUE, 1)                                                                                      \
    VALUE(ERROR_OUT_OF_MEMORY, 2)                                                                                      \
    VALUE(ERROR_NOT_INITIALIZED, 3)                                                                                    \
    VALUE(ERROR_DEINITIALIZED, 4)                                                                                      \
    VALUE(ERROR_STUB_LIBRARY, 34)                                                                                      \
    VALUE(ERROR_DEVICE_UNAVAILABLE, 46)                                                                                \
    VALUE(ERROR_NO_DEVICE, 100)                                                                                        \
    VALUE(ERROR_INVALID_DEVICE, 101)                                                                                   \
    VALUE(ERROR_INVALID_IMAGE, 200)                                                                                    \
    VALUE(ERROR_INVALID_CONTEXT, 201)                                                                                  \
    VALUE(ERROR_MAP_FAILED, 205)                                                                                       \
    VALUE(ERROR_NO_BINARY_FOR_GPU, 209)                                                                                \
    VALUE(ERROR_ECC_UNCORRECTABLE, 214)                                                                                \
    VALUE(ERROR_PEER_ACCESS_UNSUPPORTED, 217)                                                                          \
    VALUE(ERROR_INVALID_PTX, 218)                                                                                      \
    VALUE(ERROR_UNSUPPORTED_PTX_VERSION, 222)                                                                          \
    VALUE(ERROR_JIT_COMPILATION_DISABLED, 223)                                                                         \
    VALUE(ERROR_OPERATING_SYSTEM, 304)                                                                                 \
    VALUE(ERROR_INVALID_HANDLE, 400)                                                                                   \
    VALUE(ERROR_ILLEGAL_STATE, 401)                                                                                    \
    VALUE(ERROR_NOT_FOUND, 500)                                                                                        \
    VALUE(ERROR_NOT_READY, 600)                                                                                        \
    VALUE(ERROR_ILLEGAL_ADDRESS, 700)                                                                                  \
    VALUE(ERROR_LAUNCH_OUT_OF_RESOURCES, 701)                                                                          \
    VALUE(ERROR_PEER_ACCESS_ALREADY_ENABLED, 704)                                                                      \
    VALUE(ERROR_PEER_ACCESS_NOT_ENABLED, 705)                                                                          \
    VALUE(ERROR_CONTEXT_IS_DESTROYED, 709)                                                                             \
    VALUE(ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712)                                                                   \
    VALUE(ERROR_HOST_MEMORY_NOT_REGISTERED, 713)                                                                       \
    VALUE(ERROR_MISALIGNED_ADDRESS, 716)                                                                               \
    VALUE(ERROR_LAUNCH_FAILED, 719)                                                                                    \
    VALUE(ERROR_NOT_PERMITTED, 800)                                                                                    \
    VALUE(ERROR_NOT_SUPPORTED, 801)                                                                                    \
    VALUE(ERROR_SYSTEM_NOT_READY, 802)                                                                                 \
    VALUE(ERROR_SYSTEM_DRIVER_MISMATCH, 803)                                                                           \
    VALUE(ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, 804)                                                                   \
    VALUE(ERROR_STREAM_CAPTURE_UNSUPPORTED, 900)                                                                       \
    VALUE(ERROR_STREAM_CAPTURE_INVALIDATED, 901)                                                                       \
    VALUE(ERROR_STREAM_CAPTURE_IMPLICIT, 906)                                                                          \
    VALUE(ERROR_CAPTURED_EVENT, 907)                                                                                   \
    VALUE(ERROR_STREAM_CAPTURE_WRONG_THREAD, 908)                                                                      \
    VALUE(ERROR_UNKNOWN, 999)

#define RD_CU_VALUES(VALUE)                                                                                            \
    VALUE(DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1)                                                                   \
    VALUE(DEVICE_ATTRIBUTE_WARP_SIZE, 10)                                                                              \
    VALUE(DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                                                                   \
    VALUE(DEVICE_ATTRIBUTE_INTEGRATED, 18)                                                                             \
    VALUE(DEVICE_ATTRIBUTE_COMPUTE_MODE, 20)                                                                           \
    VALUE(DEVICE_ATTRIBUTE_PCI_BUS_ID, 33)                                                                             \
    VALUE(DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 34)                                                                          \
    VALUE(DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 36)                                                                      \
    VALUE(DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 37)                                                                \
    VALUE(DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 39)                                                         \
    VALUE(DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 41)                                                                     \
    VALUE(DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 50)                                                                          \
    VALUE(DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                                                               \
    VALUE(DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                                                               \
    VALUE(DEVICE_ATTRIBUTE_MANAGED_MEMORY, 83)                                                                         \
    VALUE(DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 88)                                                                 \
    VALUE(DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 89)                                                              \
    VALUE(DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 91)                                                \
    VALUE(DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 99)                                                                \
    VALUE(DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102)                                                   \
    VALUE(DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 103)                                           \
    VALUE(DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 110)                                               \
    VALUE(DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 116)                                                             \
    VALUE(DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, 117)                                                  \
    VALUE(DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, 118)                                                       \
    VALUE(DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 122)                                                         \
    VALUE(DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 123)                                                         \
    VALUE(DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 124)                                                                     \
    VALUE(DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 125)                                                                   \
    VALUE(DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 1)                                                                    \
    VALUE(DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 2)                                                                    \
    VALUE(DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, 3)                                                             \
    VALUE(POINTER_ATTRIBUTE_CONTEXT, 1)                                                                                \
    VALUE(POINTER_ATTRIBUTE_MEMORY_TYPE, 2)                                                                            \
    VALUE(POINTER_ATTRIBUTE_DEVICE_POINTER, 3)                                                                         \
    VALUE(POINTER_ATTRIBUTE_HOST_POINTER, 4)                                                                           \
    VALUE(POINTER_ATTRIBUTE_SYNC_MEMOPS, 6)                                                                            \
    VALUE(POINTER_ATTRIBUTE_BUFFER_ID, 7)                                                                              \
    VALUE(POINTER_ATTRIBUTE_IS_MANAGED, 8)                                                                             \
    VALUE(POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9)                                                                         \
    VALUE(POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, 10)                                                            \
    VALUE(POINTER_ATTRIBUTE_RANGE_START_ADDR, 11)                                                                      \
    VALUE(POINTER_ATTRIBUTE_RANGE_SIZE, 12)                                                                            \
    VALUE(POINTER_ATTRIBUTE_MAPPED, 13)                                                                                \
    VALUE(POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, 14)                                                                  \
    VALUE(MEMORYTYPE_HOST, 1)                                                                                          \
    VALUE(MEMORYTYPE_DEVICE, 2)                                                                                        \
    VALUE(MEMORYTYPE_UNIFIED, 4)                                                                                       \
    VALUE(FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0)                                                                     \
    VALUE(FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, 1)                                                                         \
    VALUE(FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, 3)                                                                          \
    VALUE(FUNC_ATTRIBUTE_NUM_REGS, 4)                                                                                  \
    VALUE(FUNC_ATTRIBUTE_PTX_VERSION, 5)                                                                               \
    VALUE(FUNC_ATTRIBUTE_BINARY_VERSION, 6)                                                                            \
    VALUE(FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8)                                                             \
    VALUE(STREAM_DEFAULT, 0)                                                                                           \
    VALUE(STREAM_NON_BLOCKING, 1)                                                                                      \
    VALUE(STREAM_WRITE_VALUE_DEFAULT, 0)                                                                               \
    VALUE(STREAM_WAIT_VALUE_GEQ, 0)                                                                                    \
    VALUE(STREAM_WAIT_VALUE_EQ, 1)                                                                                     \
    VALUE(STREAM_WAIT_VALUE_AND, 2)                                                                                    \
    VALUE(STREAM_CAPTURE_STATUS_NONE, 0)                                                                               \
    VALUE(STREAM_CAPTURE_STATUS_ACTIVE, 1)                                                                             \
    VALUE(STREAM_CAPTURE_STATUS_INVALIDATED, 2)                                                                        \
    VALUE(STREAM_CAPTURE_MODE_GLOBAL, 0)                                                                               \
    VALUE(STREAM_CAPTURE_MODE_THREAD_LOCAL, 1)                                                                         \
    VALUE(STREAM_CAPTURE_MODE_RELAXED, 2)                                                                              \
    VALUE(EVENT_DEFAULT, 0)                                                                                            \
    VALUE(EVENT_BLOCKING_SYNC, 1)                                                                                      \
    VALUE(EVENT_DISABLE_TIMING, 2)                                                                                     \
    VALUE(EVENT_INTERPROCESS, 4)                                                                                       \
    VALUE(MEMHOSTALLOC_PORTABLE, 1)                                                                                    \
    VALUE(MEMHOSTALLOC_DEVICEMAP, 2)                                                                                   \
    VALUE(MEMHOSTREGISTER_PORTABLE, 1)                                                                                 \
    VALUE(MEMHOSTREGISTER_DEVICEMAP, 2)                                                                                \
    VALUE(MEM_ATTACH_GLOBAL, 1)                                                                                        \
    VALUE(IPC_MEM_LAZY_ENABLE_PEER_ACCESS, 1)                                                                          \
    VALUE(MEM_ALLOCATION_TYPE_PINNED, 1)                                                                               \
    VALUE(MEM_HANDLE_TYPE_NONE, 0)                                                                                     \
    VALUE(MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1)                                                                    \
    VALUE(MEM_LOCATION_TYPE_DEVICE, 1)                                                                                 \
    VALUE(MEM_ACCESS_FLAGS_PROT_NONE, 0)                                                                               \
    VALUE(MEM_ACCESS_FLAGS_PROT_READ, 1)                                                                               \
    VALUE(MEM_ACCESS_FLAGS_PROT_READWRITE, 3)                                                                          \
    VALUE(MEM_ALLOC_GRANULARITY_MINIMUM, 0)                                                                            \
    VALUE(MEM_ALLOC_GRANULARITY_RECOMMENDED, 1)                                                                        \
    VALUE(MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 1)                                                                         \
    VALUE(FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST, 1)                                                                 \
    VALUE(FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX, 0)                                                          \
    VALUE(FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER, 100)                                                                  \
    VALUE(GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER, 100)                                                                  \
    VALUE(GET_PROC_ADDRESS_LEGACY_STREAM, 1)                                                                           \
    VALUE(GET_PROC_ADDRESS_SUCCESS, 0)                                                                                 \
    VALUE(GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, 1)                                                                        \
    VALUE(GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, 2)

#define RD_CU_VALUE(name, value) RD_CU_##name = (value),
enum { RD_CU_RESULTS(RD_CU_VALUE) };
enum { RD_CU_VALUES(RD_CU_VALUE) };
#undef RD_CU_VALUE

/* Streams that every context has: the legacy one (also NULL), with which all but non-blocking streams take turns, and
 * one for each thread. */
#define RD_CU_STREAM_LEGACY     ((rd_cu_stream)(uintptr_t)1)
#define RD_CU_STREAM_PER_THREAD ((rd_cu_stream)(uintptr_t)2)

#endif
