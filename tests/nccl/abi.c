/* SPDX-License-Identifier: Apache-2.0
 *
 * abi.c - prints all that a program takes from nccl.h when it is compiled: the same text whichever nccl.h that was.
 * Then the versions that it was compiled for and runs with.
 */
#include <nccl.h>

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define VALUE(name) printf("%s %lld\n", #name, (long long)(name))
#define SIZE(type)  printf("%s %zu bytes, aligned to %zu\n", #type, sizeof(type), _Alignof(type))
#define FIELD(type, member)                                                                                            \
    printf("%s.%s at %zu, %zu bytes\n", #type, #member, offsetof(type, member), sizeof(((type *)0)->member))
#define CONFIG(member)                                                                                                 \
    FIELD(ncclConfig_t, member);                                                                                       \
    printf("  %lld\n", (long long)config.member)

static void print_config(void)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    SIZE(ncclConfig_t);
    CONFIG(size);
    CONFIG(magic);
    CONFIG(version);
    CONFIG(blocking);
    CONFIG(cgaClusterSize);
    CONFIG(minCTAs);
    CONFIG(maxCTAs);
    FIELD(ncclConfig_t, netName);
    CONFIG(splitShare);
    CONFIG(trafficClass);
    FIELD(ncclConfig_t, commName);
    CONFIG(collnetEnable);
    CONFIG(CTAPolicy);
    CONFIG(shrinkShare);
    CONFIG(nvlsCTAs);
    CONFIG(nChannelsPerNetPeer);
    CONFIG(nvlinkCentricSched);
    printf("names %d\n", config.netName == NULL && config.commName == NULL);
    SIZE(ncclSimInfo_t);
    FIELD(ncclSimInfo_t, magic);
    FIELD(ncclSimInfo_t, version);
    FIELD(ncclSimInfo_t, estimatedTime);
    printf("%zu %#x %u %g\n", info.size, info.magic, info.version, (double)info.estimatedTime);
}

static void print_results(void)
{
    VALUE(ncclSuccess);
    VALUE(ncclUnhandledCudaError);
    VALUE(ncclSystemError);
    VALUE(ncclInternalError);
    VALUE(ncclInvalidArgument);
    VALUE(ncclInvalidUsage);
    VALUE(ncclRemoteError);
    VALUE(ncclInProgress);
    VALUE(ncclNumResults);
}

static void print_types(void)
{
    VALUE(ncclSum);
    VALUE(ncclProd);
    VALUE(ncclMax);
    VALUE(ncclMin);
    VALUE(ncclAvg);
    VALUE(ncclNumOps);
    VALUE(ncclMaxRedOp);
    VALUE(ncclInt8);
    VALUE(ncclChar);
    VALUE(ncclUint8);
    VALUE(ncclInt32);
    VALUE(ncclInt);
    VALUE(ncclUint32);
    VALUE(ncclInt64);
    VALUE(ncclUint64);
    VALUE(ncclFloat16);
    VALUE(ncclHalf);
    VALUE(ncclFloat32);
    VALUE(ncclFloat);
    VALUE(ncclFloat64);
    VALUE(ncclDouble);
    VALUE(ncclBfloat16);
    VALUE(ncclFloat8e4m3);
    VALUE(ncclFloat8e5m2);
    VALUE(ncclNumTypes);
    VALUE(ncclScalarDevice);
    VALUE(ncclScalarHostImmediate);
}

static void print_constants(void)
{
    VALUE(NCCL_MAJOR);
    VALUE(NCCL_MINOR);
    VALUE(NCCL_PATCH);
    printf("NCCL_SUFFIX \"%s\"\n", NCCL_SUFFIX);
    VALUE(NCCL_VERSION_CODE);
    VALUE(NCCL_VERSION(2, 7, 8));
    VALUE(NCCL_VERSION(2, 8, 4));
    VALUE(NCCL_VERSION(2, 9, 1));
    VALUE(NCCL_VERSION(3, 1, 0));
    VALUE(NCCL_UNIQUE_ID_BYTES);
    VALUE(NCCL_CONFIG_UNDEF_INT);
    VALUE(NCCL_SPLIT_NOCOLOR);
    printf("%d %d %g\n", NCCL_CONFIG_UNDEF_PTR == NULL, NCCL_COMM_NULL == NULL, (double)NCCL_UNDEF_FLOAT);
    VALUE(NCCL_WIN_DEFAULT);
    VALUE(NCCL_WIN_COLL_SYMMETRIC);
    VALUE(NCCL_WIN_REQUIRED_ALIGNMENT);
    VALUE(NCCL_CTA_POLICY_DEFAULT);
    VALUE(NCCL_CTA_POLICY_EFFICIENCY);
    VALUE(NCCL_CTA_POLICY_ZERO);
    VALUE(NCCL_SHRINK_DEFAULT);
    VALUE(NCCL_SHRINK_ABORT);
    VALUE(NCCL_REVOKE_DEFAULT);
    SIZE(ncclUniqueId);
    SIZE(ncclComm_t);
    SIZE(ncclWindow_t);
    SIZE(ncclResult_t);
    SIZE(ncclRedOp_t);
    SIZE(ncclDataType_t);
    SIZE(ncclScalarResidence_t);
    SIZE(cudaStream_t);
}

int main(void)
{
    int version = 0;
    print_config();
    print_results();
    print_types();
    print_constants();
    if (ncclGetVersion(&version) != ncclSuccess) return 1;
    printf("runs with %d\n", version);
    return version == NCCL_VERSION_CODE ? 0 : 1;
}
