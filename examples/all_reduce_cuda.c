/* SPDX-License-Identifier: Apache-2.0
 *
 * An all-reduce in GPU memory, in the order of a CUDA stream. Start it with a rank for each GPU:
 *
 *   rondo run -n 2 -- all_reduce_cuda
 *
 * It needs neither a CUDA header nor a CUDA library: buffers are pointers, of whatever memory, and a stream is a
 * handle. In a program of yours `gradient` would come from cudaMalloc, and `cuda` from cudaStreamCreate.
 */
#include <rondo.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT 1000000

/* Passes a failure on. */
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        rondo_result result_ = (call);                                                                                 \
        if (result_ != RONDO_SUCCESS) return result_;                                                                  \
    } while (0)

static float own(int rank, size_t i)
{
    return (float)(rank + 1) * (float)(i % 100);
}

static size_t wrong(const float *sum, int size)
{
    size_t count = 0;
    for (size_t i = 0; i < COUNT; i++) count += sum[i] != (float)(size * (size + 1) / 2) * (float)(i % 100);
    return count;
}

static rondo_result work(rondo_comm *comm, float *host)
{
    int rank = rondo_comm_rank(comm), size = rondo_comm_size(comm);
    void *gradient, *cuda = NULL; /* CUDA's legacy stream */
    rondo_stream *stream;
    TRY(rondo_mem_alloc(&gradient, COUNT * sizeof(float), comm)); /* of the rank's GPU */
    TRY(rondo_stream_from_cuda(&stream, cuda, comm));

    for (size_t i = 0; i < COUNT; i++) host[i] = own(rank, i);
    /* From plain memory to the GPU, adding all ranks' terms on the way. */
    TRY(rondo_all_reduce(host, gradient, COUNT, RONDO_FLOAT32, RONDO_SUM, comm, stream));
    /* On the GPU alone: what is equal on all ranks stays what it is when it is averaged. */
    TRY(rondo_all_reduce(gradient, gradient, COUNT, RONDO_FLOAT32, RONDO_AVG, comm, stream));
    /* Kernels that you launch on `cuda` here find the average. Back to plain memory: */
    TRY(rondo_all_reduce(gradient, host, COUNT, RONDO_FLOAT32, RONDO_MAX, comm, stream));
    TRY(rondo_stream_synchronize(stream));

    printf("rank %d of %d: %d sums over the GPU, %zu wrong\n", rank, size, COUNT, wrong(host, size));
    TRY(rondo_stream_destroy(stream));
    return rondo_mem_free(gradient, comm);
}

/* Where the launcher says which of the host's ranks this is, that is the number of its GPU. */
static int choose_gpu(void)
{
    const char *local = getenv("LOCAL_RANK");
    return local ? atoi(local) : 0;
}

int main(int argc, char **argv)
{
    if (argc > 1) return printf("usage: rondo run -n RANKS -- %s\n", argv[0]) < 0;
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_comm *comm = NULL;
    float *host = malloc(COUNT * sizeof *host);
    config.device = choose_gpu();
    rondo_result result = host ? rondo_init_env(&comm, &config) : RONDO_SYSTEM_ERROR;
    if (result == RONDO_SUCCESS) result = work(comm, host);
    if (result != RONDO_SUCCESS) fprintf(stderr, "%s: %s\n", rondo_result_string(result), rondo_last_error(NULL));
    rondo_comm_destroy(comm);
    free(host);
    return result != RONDO_SUCCESS;
}
