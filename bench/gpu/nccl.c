/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl.c - the same all-reduces by NCCL, which wants a GPU for each rank. Its library is loaded here, not linked.
 */
#include "compat/nccl.h"
#include "gpu.h"
#include "rondo.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 16 };

static struct {
    const char *(*error)(ncclResult_t);
    ncclResult_t (*version)(int *);
    ncclResult_t (*init_all)(ncclComm_t *, int, const int *);
    ncclResult_t (*destroy)(ncclComm_t);
    ncclResult_t (*begin)(void);
    ncclResult_t (*end)(void);
    ncclResult_t (*all_reduce)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);
} nccl;

#define NCCL(call)                                                                                                     \
    do {                                                                                                               \
        ncclResult_t nccl_ = (call);                                                                                   \
        if (nccl_ != ncclSuccess) gpu_fail("NCCL: %s: %s", #call, nccl.error(nccl_));                                  \
    } while (0)

static void find(void *library, const char *name, void *function)
{
    *(void **)function = dlsym(library, name);
    if (!*(void **)function) gpu_fail("NCCL's library has no %s", name);
}

/* named: a library that is asked for; else NVIDIA's, for which Rondo's own drop-in must not be taken. */
static void load(const char *named)
{
    void *library = dlopen(named ? named : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) gpu_cannot("NCCL beside it: libnccl.so.2 is not here");
    find(library, "ncclGetErrorString", &nccl.error);
    find(library, "ncclGetVersion", &nccl.version);
    find(library, "ncclCommInitAll", &nccl.init_all);
    find(library, "ncclCommDestroy", &nccl.destroy);
    find(library, "ncclGroupStart", &nccl.begin);
    find(library, "ncclGroupEnd", &nccl.end);
    find(library, "ncclAllReduce", &nccl.all_reduce);
    bool own = strcmp(nccl.error(ncclSuccess), rondo_result_string(RONDO_SUCCESS)) == 0;
    if (own && !named) gpu_cannot("NCCL beside it: the libnccl.so.2 here is Rondo's, not NVIDIA's");
}

typedef struct rank {
    int device;
    rd_cu_context context;
    gpu_timer timer;
    ncclComm_t comm;
    rd_cu_address send, recv;
} rank;

static void use(const rank *r)
{
    CU(r->device, cuCtxSetCurrent, r->context);
}

static void open_rank(rank *r, size_t bytes)
{
    rd_cu_stream stream;
    CU(r->device, cuDevicePrimaryCtxRetain, &r->context, r->device);
    use(r);
    CU(r->device, cuStreamCreateWithPriority, &stream, RD_CU_STREAM_NON_BLOCKING, 0);
    gpu_timer_open(&r->timer, r->device, stream);
    CU(r->device, cuMemAlloc, &r->send, bytes);
    CU(r->device, cuMemAlloc, &r->recv, bytes);
}

static void close_rank(rank *r)
{
    use(r);
    NCCL(nccl.destroy(r->comm));
    CU(r->device, cuMemFree, r->send);
    CU(r->device, cuMemFree, r->recv);
    gpu_timer_close(&r->timer);
    CU(r->device, cuStreamDestroy, r->timer.stream);
    CU(r->device, cuDevicePrimaryCtxRelease, r->device);
}

static void call_all(rank *ranks, int n, size_t bytes)
{
    NCCL(nccl.begin());
    for (int k = 0; k < n; k++) {
        rank *r = &ranks[k];
        NCCL(nccl.all_reduce((void *)(uintptr_t)r->send, (void *)(uintptr_t)r->recv, bytes / sizeof(float), ncclFloat,
                             ncclSum, r->comm, r->timer.stream));
    }
    NCCL(nccl.end());
}

static void copy_now(const rank *r, rd_cu_address to, rd_cu_address from, size_t bytes)
{
    use(r);
    CU(r->device, cuMemcpyAsync, to, from, bytes, r->timer.stream);
    CU(r->device, cuStreamSynchronize, r->timer.stream);
}

/* The first call of a size, whose result is looked at. */
static void check(rank *ranks, int n, size_t bytes)
{
    size_t count = bytes / sizeof(float);
    float *host = malloc(bytes);
    if (!host) gpu_fail("no memory for %zu bytes", bytes);
    for (int k = 0; k < n; k++) {
        for (size_t i = 0; i < count; i++) host[i] = gpu_term(k, i);
        copy_now(&ranks[k], ranks[k].send, (rd_cu_address)(uintptr_t)host, bytes);
    }
    call_all(ranks, n, bytes);
    for (int k = 0; k < n; k++) {
        copy_now(&ranks[k], (rd_cu_address)(uintptr_t)host, ranks[k].recv, bytes);
        for (size_t i = 0; i < count; i++)
            if (host[i] != gpu_sum(n, i))
                gpu_fail("NCCL, rank %d, %zu bytes: sum %zu is %g", k, bytes, i, (double)host[i]);
    }
    free(host);
}

static double measure(rank *ranks, int n, const gpu_effort *effort, size_t bytes)
{
    int calls = gpu_calls(effort, bytes);
    double times[effort->runs];
    check(ranks, n, bytes);
    for (int run = 0; run < effort->runs; run++) {
        times[run] = 0;
        for (int k = 0; k < n; k++) use(&ranks[k]), gpu_timer_start(&ranks[k].timer);
        for (int i = 0; i < calls; i++) call_all(ranks, n, bytes);
        for (int k = 0; k < n; k++) {
            use(&ranks[k]);
            double time = gpu_timer_stop(&ranks[k].timer) / calls;
            if (time > times[run]) times[run] = time;
        }
    }
    return gpu_median(times, effort->runs);
}

void gpu_nccl(const gpu_effort *effort, int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 0, devices[MOST], version;
    static rank ranks[MOST];
    size_t sizes[GPU_SIZES];
    ncclComm_t comms[MOST];
    if (n < 2 || n > MOST) gpu_fail("gpu nccl: 2 to %d GPUs", MOST);
    if (rd_gpu_count() < n) gpu_cannot("NCCL beside it: it wants a GPU for each rank, and fewer are here");
    if (gpu_is_simulated() && argc < 3)
        gpu_cannot("NCCL beside it: NVIDIA's library does not run over the simulated driver");
    load(argc > 2 ? argv[2] : NULL);
    int count = gpu_sizes(effort, sizes);
    for (int k = 0; k < n; k++) {
        ranks[k].device = devices[k] = k;
        open_rank(&ranks[k], sizes[count - 1]);
    }
    NCCL(nccl.version(&version));
    NCCL(nccl.init_all(comms, n, devices));
    for (int k = 0; k < n; k++) ranks[k].comm = comms[k];
    for (int s = 0; s < count; s++) {
        char what[128], size[24];
        snprintf(what, sizeof what, "all-reduce of %s, %d ranks on %d GPUs, by NCCL %d.%d.%d%s%s",
                 gpu_size(size, sizes[s]), n, n, version / 10000, version / 100 % 100, version % 100,
                 argc > 2 ? " of " : "", argc > 2 ? argv[2] : "");
        gpu_row(what, measure(ranks, n, effort, sizes[s]), "us", -1, NULL);
    }
    for (int k = 0; k < n; k++) close_rank(&ranks[k]);
}
