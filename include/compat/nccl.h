/* SPDX-License-Identifier: Apache-2.0
 *
 * compat/nccl.h - the interface of NCCL 2.28.9 as Rondo's drop-in library build/compat/libnccl.so.2 offers it: the same
 * names, values and layouts, so that programs may be compiled with this header or with NVIDIA's and run with either
 * library. It needs no CUDA toolkit. What each call does here, and what differs: docs/nccl.md.
 *
 * RONDO_NCCL_PROTOTYPES_ONLY leaves out everything but the prototypes, for a program that has the types from elsewhere.
 */
#ifndef RONDO_COMPAT_NCCL_H
#define RONDO_COMPAT_NCCL_H

#include <limits.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef RONDO_NCCL_PROTOTYPES_ONLY

#define NCCL_H_ /* this one is in the place of NVIDIA's */

#define NCCL_MAJOR 2
#define NCCL_MINOR 28
#define NCCL_PATCH 9
#define NCCL_SUFFIX ""
#define NCCL_VERSION_CODE 22809
/* Up to 2.8 a version had four digits. */
#define NCCL_VERSION(x, y, z)                                                                       \
    ((x) < 3 && (y) < 9 ? (x) * 1000 + (y) * 100 + (z) : (x) * 10000 + (y) * 100 + (z))

/* The CUDA runtime's stream, as its own headers have it. */
typedef struct CUstream_st *cudaStream_t;

typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;
#define NCCL_COMM_NULL NULL

#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
    ncclNumResults = 8
} ncclResult_t;

#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_SPLIT_NOCOLOR (-1)
#define NCCL_UNDEF_FLOAT (-1.0f)

#define NCCL_WIN_DEFAULT 0x00
#define NCCL_WIN_COLL_SYMMETRIC 0x01
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096

#define NCCL_CTA_POLICY_DEFAULT 0x00
#define NCCL_CTA_POLICY_EFFICIENCY 0x01
#define NCCL_CTA_POLICY_ZERO 0x02

#define NCCL_SHRINK_DEFAULT 0x00
#define NCCL_SHRINK_ABORT 0x01
#define NCCL_REVOKE_DEFAULT 0x00

/* size, magic and version are the initializer's; a field left at its undefined value has the library's default. */
typedef struct ncclConfig_v22800 {
    size_t size;
    unsigned int magic;
    unsigned int version;
    int blocking;
    int cgaClusterSize;
    int minCTAs;
    int maxCTAs;
    const char *netName;
    int splitShare;
    int trafficClass;
    const char *commName;
    int collnetEnable;
    int CTAPolicy;
    int shrinkShare;
    int nvlsCTAs;
    int nChannelsPerNetPeer;
    int nvlinkCentricSched;
} ncclConfig_t;

#define NCCL_CONFIG_MAGIC 0xcafebeef
#define NCCL_CONFIG_INITIALIZER                                                                     \
    {                                                                                               \
        sizeof(ncclConfig_t), NCCL_CONFIG_MAGIC, NCCL_VERSION_CODE, /* size, magic, version */      \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,               /* blocking, cgaClusterSize */  \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,               /* minCTAs, maxCTAs */          \
        NCCL_CONFIG_UNDEF_PTR,                                      /* netName */                   \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,               /* splitShare, trafficClass */  \
        NCCL_CONFIG_UNDEF_PTR,                                      /* commName */                  \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,               /* collnetEnable, CTAPolicy */  \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,               /* shrinkShare, nvlsCTAs */     \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT                /* nChannelsPerNetPeer, nvlinkCentricSched */ \
    }

typedef struct ncclSimInfo_v22200 {
    size_t size;
    unsigned int magic;
    unsigned int version;
    float estimatedTime;
} ncclSimInfo_t;

#define NCCL_SIM_INFO_MAGIC 0x74685283
#define NCCL_SIM_INFO_INITIALIZER                                                                   \
    { sizeof(ncclSimInfo_t), NCCL_SIM_INFO_MAGIC, NCCL_VERSION_CODE, NCCL_UNDEF_FLOAT }

typedef enum { ncclNumOps_dummy = 5 } ncclRedOp_dummy_t;
typedef enum {
    ncclSum = 0,
    ncclProd = 1,
    ncclMax = 2,
    ncclMin = 3,
    ncclAvg = 4,
    ncclNumOps = 5, /* ncclRedOpCreatePreMulSum's are from here on */
    ncclMaxRedOp = 0x7fffffff >> (32 - 8 * sizeof(ncclRedOp_dummy_t))
} ncclRedOp_t;

typedef enum {
    ncclInt8 = 0,
    ncclChar = 0,
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclInt = 2,
    ncclUint32 = 3,
    ncclInt64 = 4,
    ncclUint64 = 5,
    ncclFloat16 = 6,
    ncclHalf = 6,
    ncclFloat32 = 7,
    ncclFloat = 7,
    ncclFloat64 = 8,
    ncclDouble = 8,
    ncclBfloat16 = 9,
    ncclFloat8e4m3 = 10,
    ncclFloat8e5m2 = 11,
    ncclNumTypes = 12
} ncclDataType_t;

typedef enum {
    ncclScalarDevice = 0,        /* read while a collective runs */
    ncclScalarHostImmediate = 1, /* read before the operator's creation returns */
} ncclScalarResidence_t;

#endif /* RONDO_NCCL_PROTOTYPES_ONLY */

/* Every call has a second name with a p before it, so that a profiler may put itself in the place of the first. */
#define RONDO_NCCL(result, name, parameters)                                                        \
    result name parameters;                                                                         \
    result p##name parameters

/* Communicators */
RONDO_NCCL(ncclResult_t, ncclGetVersion, (int *version));
RONDO_NCCL(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * uniqueId));
RONDO_NCCL(ncclResult_t, ncclCommInitRank, (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank));
RONDO_NCCL(ncclResult_t, ncclCommInitRankConfig,
           (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config));
RONDO_NCCL(ncclResult_t, ncclCommInitRankScalable,
           (ncclComm_t * newcomm, int nranks, int myrank, int nId, ncclUniqueId *commIds, ncclConfig_t *config));
RONDO_NCCL(ncclResult_t, ncclCommInitAll, (ncclComm_t * comm, int ndev, const int *devlist));
RONDO_NCCL(ncclResult_t, ncclCommSplit,
           (ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config));
RONDO_NCCL(ncclResult_t, ncclCommShrink,
           (ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm, ncclConfig_t *config,
            int shrinkFlags));
RONDO_NCCL(ncclResult_t, ncclCommRevoke, (ncclComm_t comm, int revokeFlags));
RONDO_NCCL(ncclResult_t, ncclCommFinalize, (ncclComm_t comm));
RONDO_NCCL(ncclResult_t, ncclCommDestroy, (ncclComm_t comm));
RONDO_NCCL(ncclResult_t, ncclCommAbort, (ncclComm_t comm));
RONDO_NCCL(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t *asyncError));
RONDO_NCCL(ncclResult_t, ncclCommCount, (const ncclComm_t comm, int *count));
RONDO_NCCL(ncclResult_t, ncclCommCuDevice, (const ncclComm_t comm, int *device));
RONDO_NCCL(ncclResult_t, ncclCommUserRank, (const ncclComm_t comm, int *rank));

/* Errors */
RONDO_NCCL(const char *, ncclGetErrorString, (ncclResult_t result));
RONDO_NCCL(const char *, ncclGetLastError, (ncclComm_t comm));
RONDO_NCCL(void, ncclResetDebugInit, (void));

/* Memory */
RONDO_NCCL(ncclResult_t, ncclMemAlloc, (void **ptr, size_t size));
RONDO_NCCL(ncclResult_t, ncclMemFree, (void *ptr));
RONDO_NCCL(ncclResult_t, ncclCommRegister, (const ncclComm_t comm, void *buff, size_t size, void **handle));
RONDO_NCCL(ncclResult_t, ncclCommDeregister, (const ncclComm_t comm, void *handle));
RONDO_NCCL(ncclResult_t, ncclCommWindowRegister,
           (ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags));
RONDO_NCCL(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t win));

/* Operators */
RONDO_NCCL(ncclResult_t, ncclRedOpCreatePreMulSum,
           (ncclRedOp_t * op, void *scalar, ncclDataType_t datatype, ncclScalarResidence_t residence, ncclComm_t comm));
RONDO_NCCL(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm));

/* Collectives and messages */
RONDO_NCCL(ncclResult_t, ncclAllReduce,
           (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
            ncclComm_t comm, cudaStream_t stream));
RONDO_NCCL(ncclResult_t, ncclReduceScatter,
           (const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op,
            ncclComm_t comm, cudaStream_t stream));
RONDO_NCCL(ncclResult_t, ncclAllGather,
           (const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype, ncclComm_t comm,
            cudaStream_t stream));
RONDO_NCCL(ncclResult_t, ncclBroadcast,
           (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
            cudaStream_t stream));
RONDO_NCCL(ncclResult_t, ncclBcast,
           (void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream));
RONDO_NCCL(ncclResult_t, ncclReduce,
           (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, int root,
            ncclComm_t comm, cudaStream_t stream));
RONDO_NCCL(ncclResult_t, ncclGather,
           (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
            cudaStream_t stream));
RONDO_NCCL(ncclResult_t, ncclScatter,
           (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
            cudaStream_t stream));
RONDO_NCCL(ncclResult_t, ncclAlltoAll,
           (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
            cudaStream_t stream));
RONDO_NCCL(ncclResult_t, ncclSend,
           (const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
            cudaStream_t stream));
RONDO_NCCL(ncclResult_t, ncclRecv,
           (void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream));

/* Groups */
RONDO_NCCL(ncclResult_t, ncclGroupStart, (void));
RONDO_NCCL(ncclResult_t, ncclGroupEnd, (void));
RONDO_NCCL(ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t * simInfo));

/* Device API: not here, both return ncclInvalidUsage. */
struct ncclDevComm;
struct ncclDevCommRequirements;
RONDO_NCCL(ncclResult_t, ncclDevCommCreate,
           (ncclComm_t comm, const struct ncclDevCommRequirements *requirements, struct ncclDevComm *outDevComm));
RONDO_NCCL(ncclResult_t, ncclDevCommDestroy, (ncclComm_t comm, const struct ncclDevComm *devComm));

#undef RONDO_NCCL

#ifdef __cplusplus
}
#endif

#endif
