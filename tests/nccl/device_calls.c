/* SPDX-License-Identifier: Apache-2.0
 *
 * device_calls.c - what is so only on GPUs: two ranks on one, CUDA's order of streams, memory, wrong GPUs, scaled sums,
 * ends while calls wait. Two devices at least.   device_calls
 */
#include "program.h"

#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (condition) break;                                                                                          \
        fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, ncclGetLastError(NULL));           \
        exit(1);                                                                                                       \
    } while (0)

enum { RANKS = 2 };

/* Two ranks on GPU 0. */
static void open_pair(ncclComm_t *comms)
{
    int same[RANKS] = {0, 0}, device = -1;
    NCCL(ncclCommInitAll(comms, RANKS, same));
    for (int r = 0; r < RANKS; r++) {
        NCCL(ncclCommCuDevice(comms[r], &device));
        CHECK(device == 0);
    }
    CUDA(cudaSetDevice(0));
}

static void close_pair(const ncclComm_t *comms)
{
    for (int r = 0; r < RANKS; r++) NCCL(ncclCommDestroy(comms[r]));
}

static void put(float *device, float value, cudaStream_t stream)
{
    static float kept[64];
    static int at;
    kept[at = (at + 1) % 64] = value;
    CUDA(cudaMemcpyAsync(device, &kept[at], sizeof value, cudaMemcpyHostToDevice, stream));
}

static float get(const float *device, cudaStream_t stream)
{
    float value;
    CUDA(cudaMemcpyAsync(&value, device, sizeof value, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
    return value;
}

static atomic_int gate;

static void wait_at_the_gate(void *unused)
{
    (void)unused;
    while (!atomic_load(&gate)) usleep(1000);
}

/* The call returns while what is on the legacy stream before it is under way; what comes after it has its result. */
static void null_is_the_legacy_stream(void)
{
    ncclComm_t comms[RANKS];
    float *x[RANKS];
    open_pair(comms);
    for (int r = 0; r < RANKS; r++) NCCL(ncclMemAlloc((void **)&x[r], 1 << 20)); /* of the GPU, the current one */
    atomic_store(&gate, 0);
    CUDA(cudaLaunchHostFunc(NULL, wait_at_the_gate, NULL));
    for (int r = 0; r < RANKS; r++) put(x[r], (float)(r + 1), NULL);
    NCCL(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) NCCL(ncclAllReduce(x[r], x[r], 1, ncclFloat, ncclSum, comms[r], NULL));
    NCCL(ncclGroupEnd());
    CHECK(cudaStreamQuery(NULL) == cudaErrorNotReady);
    atomic_store(&gate, 1);
    for (int r = 0; r < RANKS; r++) CHECK(get(x[r], NULL) == 3);
    for (int r = 0; r < RANKS; r++) NCCL(ncclMemFree(x[r]));
    CHECK(ncclMemFree(x[0]) == ncclInvalidArgument);
    close_pair(comms);
}

/* Streams come and go between calls; the same handle may be another stream. */
static void streams_come_and_go(void)
{
    ncclComm_t comms[RANKS];
    float *x[RANKS];
    open_pair(comms);
    for (int r = 0; r < RANKS; r++) CUDA(cudaMalloc((void **)&x[r], sizeof(float)));
    for (int round = 0; round < 8; round++) {
        cudaStream_t stream[RANKS];
        for (int r = 0; r < RANKS; r++) CUDA(cudaStreamCreateWithFlags(&stream[r], cudaStreamNonBlocking));
        for (int r = 0; r < RANKS; r++) put(x[r], (float)(10 * round + r), stream[r]);
        NCCL(ncclGroupStart());
        for (int r = 0; r < RANKS; r++) NCCL(ncclAllReduce(x[r], x[r], 1, ncclFloat, ncclSum, comms[r], stream[r]));
        NCCL(ncclGroupEnd());
        for (int r = 0; r < RANKS; r++) CHECK(get(x[r], stream[r]) == (float)(20 * round + 1));
        for (int r = 0; r < RANKS; r++) CUDA(cudaStreamDestroy(stream[r]));
    }
    for (int r = 0; r < RANKS; r++) CUDA(cudaFree(x[r]));
    close_pair(comms);
}

/* In one group calls of a communicator on two streams: each has its own result in its own order. */
static void a_group_may_name_two_streams(void)
{
    ncclComm_t comms[RANKS];
    cudaStream_t stream[2];
    float *x[RANKS][2];
    open_pair(comms);
    for (int s = 0; s < 2; s++) {
        CUDA(cudaStreamCreateWithFlags(&stream[s], cudaStreamNonBlocking));
        for (int r = 0; r < RANKS; r++) {
            CUDA(cudaMalloc((void **)&x[r][s], sizeof(float)));
            put(x[r][s], (float)(r + 10 * s), stream[s]);
        }
    }
    NCCL(ncclGroupStart());
    for (int r = 0; r < RANKS; r++)
        for (int s = 0; s < 2; s++) NCCL(ncclAllReduce(x[r][s], x[r][s], 1, ncclFloat, ncclSum, comms[r], stream[s]));
    NCCL(ncclGroupEnd());
    for (int s = 0; s < 2; s++)
        for (int r = 0; r < RANKS; r++) CHECK(get(x[r][s], stream[s]) == (float)(1 + 20 * s));
    for (int s = 0; s < 2; s++) {
        for (int r = 0; r < RANKS; r++) CUDA(cudaFree(x[r][s]));
        CUDA(cudaStreamDestroy(stream[s]));
    }
    close_pair(comms);
}

/* One factor on the GPU, read when the call runs; the other in the program's memory, read before. */
static void scaled_sums(void)
{
    enum { MANY = 300007 };
    static float host[2 * MANY];
    ncclComm_t comms[RANKS];
    ncclRedOp_t op[RANKS];
    float *send[RANKS], *recv[RANKS], *factor, half = 0.5f;
    open_pair(comms);
    CUDA(cudaMalloc((void **)&factor, sizeof(float)));
    put(factor, 3, NULL);
    NCCL(ncclRedOpCreatePreMulSum(&op[0], factor, ncclFloat, ncclScalarDevice, comms[0]));
    NCCL(ncclRedOpCreatePreMulSum(&op[1], &half, ncclFloat, ncclScalarHostImmediate, comms[1]));
    half = 99;
    for (int r = 0; r < RANKS; r++) {
        CUDA(cudaMalloc((void **)&send[r], sizeof host));
        CUDA(cudaMalloc((void **)&recv[r], sizeof host));
        for (int i = 0; i < 2 * MANY; i++) host[i] = (float)(r * 100 + i % 1000);
        CUDA(cudaMemcpy(send[r], host, sizeof host, cudaMemcpyHostToDevice));
    }
    for (int scatter = 0; scatter < 2; scatter++) {
        NCCL(ncclGroupStart());
        for (int r = 0; r < RANKS; r++)
            if (scatter)
                NCCL(ncclReduceScatter(send[r], recv[r], MANY, ncclFloat, op[r], comms[r], NULL));
            else
                NCCL(ncclAllReduce(send[r], recv[r], MANY, ncclFloat, op[r], comms[r], NULL));
        NCCL(ncclGroupEnd());
        for (int r = 0; r < RANKS; r++) {
            CUDA(cudaMemcpy(host, recv[r], MANY * sizeof *host, cudaMemcpyDeviceToHost));
            for (int i = 0; i < MANY; i++) {
                float x = (float)((i + scatter * r * MANY) % 1000);
                CHECK(host[i] == 3 * x + 0.5f * (100 + x));
            }
        }
    }
    for (int r = 0; r < RANKS; r++) {
        NCCL(ncclRedOpDestroy(op[r], comms[r]));
        CUDA(cudaFree(send[r]));
        CUDA(cudaFree(recv[r]));
    }
    CUDA(cudaFree(factor));
    close_pair(comms);
}

static void wrong_gpus(void)
{
    ncclComm_t comms[RANKS];
    int beyond[1] = {63}, two[2] = {0, 1}, count;
    float *elsewhere, *here;
    CHECK(ncclCommInitAll(comms, 1, beyond) == ncclInvalidArgument);
    CHECK(strstr(ncclGetLastError(NULL), "63"));
    CHECK(!strstr(ncclGetLastError(NULL), "RONDO"));
    CUDA(cudaGetDeviceCount(&count));
    if (count < 2) return;
    NCCL(ncclCommInitAll(comms, 2, two));
    CUDA(cudaSetDevice(1));
    CUDA(cudaMalloc((void **)&elsewhere, sizeof(float)));
    CUDA(cudaSetDevice(0));
    CUDA(cudaMalloc((void **)&here, sizeof(float)));
    CHECK(ncclAllReduce(elsewhere, here, 1, ncclFloat, ncclSum, comms[0], NULL) == ncclInvalidArgument);
    CHECK(strstr(ncclGetLastError(NULL), "memory of GPU 1"));
    CHECK(strstr(ncclGetLastError(NULL), "where this device is current: 1"));
    CUDA(cudaFree(here));
    CUDA(cudaFree(elsewhere));
    close_pair(comms);
}

/* Nobody else calls: the stream goes on after the abort, and the program ends. */
static void an_abort_frees_the_stream(void)
{
    ncclComm_t comms[RANKS];
    cudaStream_t stream;
    float *x;
    ncclResult_t state = ncclSuccess;
    open_pair(comms);
    CUDA(cudaStreamCreate(&stream));
    CUDA(cudaMalloc((void **)&x, sizeof(float)));
    NCCL(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, comms[0], stream));
    usleep(20000);
    CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
    NCCL(ncclCommAbort(comms[0]));
    CUDA(cudaStreamSynchronize(stream));
    for (int i = 0; i < 500 && state == ncclSuccess; i++) {
        NCCL(ncclCommGetAsyncError(comms[1], &state));
        usleep(10000);
    }
    CHECK(state == ncclRemoteError);
    NCCL(ncclCommAbort(comms[1]));
    CUDA(cudaFree(x));
    CUDA(cudaStreamDestroy(stream));
}

/* Whether the communicator has met the stream or not, and as the second stream of a group, which the first would follow. */
static void captured_streams_are_refused(void)
{
    enum { MET, NEW, FREE, STREAMS };
    ncclComm_t comms[RANKS];
    cudaStream_t stream[STREAMS];
    cudaGraph_t graph;
    float *x[RANKS];
    open_pair(comms);
    for (int s = 0; s < STREAMS; s++) CUDA(cudaStreamCreateWithFlags(&stream[s], cudaStreamNonBlocking));
    for (int r = 0; r < RANKS; r++) CUDA(cudaMalloc((void **)&x[r], sizeof(float)));
    for (int round = 0; round < 2; round++) {
        for (int r = 0; r < RANKS; r++) put(x[r], (float)(r + 1), stream[MET]);
        NCCL(ncclGroupStart());
        for (int r = 0; r < RANKS; r++) NCCL(ncclAllReduce(x[r], x[r], 1, ncclFloat, ncclSum, comms[r], stream[MET]));
        NCCL(ncclGroupEnd());
        for (int r = 0; r < RANKS; r++) CHECK(get(x[r], stream[MET]) == 3);
        for (int s = MET; s <= NEW; s++) {
            size_t nodes = 99;
            CUDA(cudaStreamBeginCapture(stream[s], cudaStreamCaptureModeGlobal));
            CHECK(ncclAllReduce(x[0], x[0], 1, ncclFloat, ncclSum, comms[0], stream[s]) == ncclInvalidUsage);
            CHECK(strstr(ncclGetLastError(NULL), "is being captured into a graph"));
            NCCL(ncclGroupStart());
            NCCL(ncclAllReduce(x[0], x[0], 1, ncclFloat, ncclSum, comms[0], stream[FREE]));
            CHECK(ncclAllReduce(x[0], x[0], 1, ncclFloat, ncclSum, comms[0], stream[s]) == ncclInvalidUsage);
            CHECK(ncclGroupEnd() == ncclInvalidUsage);
            CUDA(cudaStreamEndCapture(stream[s], &graph));
            CUDA(cudaGraphGetNodes(graph, NULL, &nodes));
            CHECK(nodes == 0);
            CUDA(cudaGraphDestroy(graph));
            CUDA(cudaStreamSynchronize(stream[FREE]));
        }
    }
    for (int s = 0; s < STREAMS; s++) CUDA(cudaStreamDestroy(stream[s]));
    for (int r = 0; r < RANKS; r++) CUDA(cudaFree(x[r]));
    close_pair(comms);
}

int main(void)
{
    null_is_the_legacy_stream();
    streams_come_and_go();
    a_group_may_name_two_streams();
    scaled_sums();
    captured_streams_are_refused();
    wrong_gpus();
    an_abort_frees_the_stream();
    printf("calls on devices: ok\n");
    return 0;
}
