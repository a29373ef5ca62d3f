/* SPDX-License-Identifier: Apache-2.0
 *
 * program.h - what the programs for NCCL in this folder share. WITH_CUDA: on GPUs by the CUDA runtime, as such programs
 * are; else the same program in host memory, where NULL is the only stream.
 */
#ifndef RONDO_TEST_NCCL_PROGRAM_H
#define RONDO_TEST_NCCL_PROGRAM_H

#ifdef WITH_CUDA
#include <cuda_runtime.h>
#endif
#include <nccl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 100003

#define NCCL(call)                                                                                                     \
    do {                                                                                                               \
        ncclResult_t nccl_ = (call);                                                                                   \
        if (nccl_ == ncclSuccess) break;                                                                               \
        fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #call, ncclGetErrorString(nccl_),                   \
                ncclGetLastError(NULL));                                                                               \
        exit(1);                                                                                                       \
    } while (0)

#ifdef WITH_CUDA

#define CUDA(call)                                                                                                     \
    do {                                                                                                               \
        cudaError_t cuda_ = (call);                                                                                    \
        if (cuda_ == cudaSuccess) break;                                                                               \
        fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(cuda_));                      \
        exit(1);                                                                                                       \
    } while (0)

/* Several ranks may share a device. */
static inline void use_device(int rank)
{
    int devices;
    CUDA(cudaGetDeviceCount(&devices));
    CUDA(cudaSetDevice(rank % devices));
}
static inline cudaStream_t new_stream(void)
{
    cudaStream_t stream;
    CUDA(cudaStreamCreate(&stream));
    return stream;
}
static inline void free_stream(cudaStream_t stream)
{
    CUDA(cudaStreamDestroy(stream));
}
static inline void await(cudaStream_t stream)
{
    CUDA(cudaStreamSynchronize(stream));
}
static inline void *new_buffer(size_t bytes)
{
    void *buffer;
    CUDA(cudaMalloc(&buffer, bytes));
    return buffer;
}
static inline void free_buffer(void *buffer)
{
    CUDA(cudaFree(buffer));
}
static inline void copy(void *to, const void *from, size_t bytes, cudaStream_t stream)
{
    CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
}

#else

static inline void use_device(int rank)
{
    (void)rank;
}
static inline cudaStream_t new_stream(void)
{
    return NULL;
}
static inline void free_stream(cudaStream_t stream)
{
    (void)stream;
}
static inline void await(cudaStream_t stream)
{
    (void)stream;
}
static inline void *new_buffer(size_t bytes)
{
    void *buffer = malloc(bytes);
    if (!buffer) exit(1);
    return buffer;
}
static inline void free_buffer(void *buffer)
{
    free(buffer);
}
static inline void copy(void *to, const void *from, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    memcpy(to, from, bytes);
}

#endif

/* ---- One rank's part of an exchange that can fail ---- */

typedef struct part {
    ncclComm_t comm;
    cudaStream_t stream;
    int rank, n;
    float *host, *send, *recv;
} part;

static inline float element(int rank, size_t i)
{
    return (float)(rank * 1000 + (int)(i % 997));
}

static inline part part_new(ncclComm_t comm, int rank, int n)
{
    part p = {.comm = comm, .rank = rank, .n = n};
    p.stream = new_stream();
    p.host = malloc(COUNT * sizeof *p.host);
    p.send = new_buffer(COUNT * sizeof *p.send);
    p.recv = new_buffer(COUNT * sizeof *p.recv);
    if (!p.host) exit(1);
    for (size_t i = 0; i < COUNT; i++) p.host[i] = element(rank, i);
    copy(p.send, p.host, COUNT * sizeof *p.host, p.stream);
    return p;
}

/* The sum of all ranks; what the rank before sent. */
static inline void part_sum(part *p)
{
    NCCL(ncclAllReduce(p->send, p->recv, COUNT, ncclFloat, ncclSum, p->comm, p->stream));
}
static inline void part_pass_on(part *p)
{
    NCCL(ncclSend(p->send, COUNT, ncclFloat, (p->rank + 1) % p->n, p->comm, p->stream));
    NCCL(ncclRecv(p->recv, COUNT, ncclFloat, (p->rank + p->n - 1) % p->n, p->comm, p->stream));
}

static inline void part_expect(part *p, float (*value)(const part *p, size_t i), const char *what)
{
    copy(p->host, p->recv, COUNT * sizeof *p->host, p->stream);
    await(p->stream);
    for (size_t i = 0; i < COUNT; i++) {
        if (p->host[i] == value(p, i)) continue;
        fprintf(stderr, "%s: rank %d of %d: element %zu is %g, not %g\n", what, p->rank, p->n, i, (double)p->host[i],
                (double)value(p, i));
        exit(1);
    }
}
static inline float is_sum(const part *p, size_t i)
{
    float sum = 0;
    for (int r = 0; r < p->n; r++) sum += element(r, i);
    return sum;
}
static inline float is_previous(const part *p, size_t i)
{
    return element((p->rank + p->n - 1) % p->n, i);
}

/* For one who is alone in his thread. */
static inline void part_run(part *p)
{
    part_sum(p);
    part_expect(p, is_sum, "all-reduce");
    NCCL(ncclGroupStart());
    part_pass_on(p);
    NCCL(ncclGroupEnd());
    part_expect(p, is_previous, "send and receive");
}

static inline void part_free(part *p)
{
    await(p->stream);
    free_buffer(p->send);
    free_buffer(p->recv);
    free_stream(p->stream);
    free(p->host);
}

#endif
