/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu.c - RDMA links of ranks on GPUs, whose long slices lie in GPU memory: over the simulated driver and real verbs.
 * The bytes are those of the same calls over sockets, whichever way the memory is registered, when it cannot be, and
 * when kernels see late what an RDMA device has written.
 *
 * Late is what a real GPU may be. Here it is planted: what is registered in the place of GPU memory is a shadow of it,
 * which the RDMA device writes to, and which a flush copies to where it belongs. Without the flush the bytes are wrong,
 * and the test sees to it that they are.
 */
#include "../gpu_kit.h"
#include "../on_cudasim.h"

#include "base/gpu_rdma.h"
#include "core/comm.h"
#include "transport/verbs_lib.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { CALLS = 4, RANKS_MOST = 4 };
/* Slices of 64 KiB, shorter ones that are written to GPU memory, too, and such as go through host memory. */
static const size_t counts[CALLS] = {40000, 5, 12000, 3001};

/* ---- What is planted ---- */

enum plant { NOTHING, REFUSED, LATE, LATE_FOR_EVER, NO_MEMORY };

static struct shadow {
    void *gpu, *shadow;
    size_t bytes;
} shadows[16];
static int shadow_count;

static struct ibv_mr *refuse(struct ibv_pd *pd, void *at, size_t bytes, int access)
{
    struct ibv_mr *(*real)(struct ibv_pd *, void *, size_t, int) = NULL;
    *(void **)&real = dlsym(dlopen("libibverbs.so.1", RTLD_NOW), "ibv_reg_mr");
    errno = EFAULT;
    return rd_gpu_locate(at).device ? NULL : real(pd, at, bytes, access);
}

/* The device writes to other pages than kernels read. It reads the true ones: for that the memory's sender is not
 * changed. */
static struct ibv_mr *register_late(struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t address, int fd,
                                    int access)
{
    struct ibv_mr *(*real)(struct ibv_pd *, void *, size_t, uint64_t, int) = NULL;
    *(void **)&real = dlsym(dlopen("libibverbs.so.1", RTLD_NOW), "ibv_reg_mr_iova");
    int flags = access & IBV_ACCESS_REMOTE_WRITE ? MAP_PRIVATE : MAP_SHARED;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_POPULATE, fd, (off_t)offset);
    CHECK(at != MAP_FAILED && shadow_count < 16, "what was exported cannot be mapped: %s", strerror(errno));
    if (flags == MAP_PRIVATE) memset(at, 0x77, bytes); /* pages of its own */
    if (flags == MAP_PRIVATE) shadows[shadow_count++] = (struct shadow){(void *)(uintptr_t)address, at, bytes};
    return real(pd, at, bytes, address, access);
}

static rd_cu_result flush(unsigned target, unsigned scope)
{
    (void)target, (void)scope;
    for (int i = 0; i < shadow_count; i++) memcpy(shadows[i].gpu, shadows[i].shadow, shadows[i].bytes);
    return RD_CU_SUCCESS;
}

static rd_cu_result never_flush(unsigned target, unsigned scope)
{
    (void)target, (void)scope;
    return RD_CU_SUCCESS;
}

static void plant(enum plant what)
{
    rd_verbs_calls *ibv = (rd_verbs_calls *)(uintptr_t)rd_verbs_lib();
    struct rd_gpu_driver *driver = (struct rd_gpu_driver *)(uintptr_t)rd_gpu_driver();
    CHECK(ibv && driver, "no libibverbs, or no driver: %s", rondo_last_error(NULL));
    if (what == REFUSED) ibv->reg_mr = refuse;
    if (what == LATE || what == LATE_FOR_EVER) ibv->reg_dmabuf_mr = register_late;
    if (what == LATE) driver->cuFlushGPUDirectRDMAWrites = flush;
    if (what == LATE_FOR_EVER) driver->cuFlushGPUDirectRDMAWrites = never_flush;
    for (unsigned long i = 1; what == NO_MEMORY && i <= 4; i++)
        cudasim_fail("cuMemCreate", i, RD_CU_ERROR_OUT_OF_MEMORY, 0);
}

/* ---- The calls ---- */

typedef struct trial {
    const char *transport, *driver, *gpu;
    enum plant plant;
    unsigned on_host;     /* ranks that use no GPU, bit by bit */
    bool in_gpu, flushes; /* what is to be seen of it */
    uint64_t sum[RANKS_MOST];
} trial;

static void set_up(int rank, void *context)
{
    const trial *t = context;
    char names[128], words[160], *second = NULL;
    bool on_host = t->on_host >> rank & 1;
    snprintf(names, sizeof names, "%s", getenv("RONDO_TEST_RDMA"));
    char *first = strtok_r(names, " ", &second);
    test_env("RONDO_RDMA_DEVICE", rank % 2 && *second ? second : first);
    test_env("RONDO_TRANSPORT", t->transport);
    test_env("RONDO_RDMA_GPU", t->gpu);
    test_env("RONDO_SLICE", "65536");
    test_env("RONDO_DEVICE", on_host ? "host" : rank % 2 ? "1" : "0");
    snprintf(words, sizeof words, "devices=2 %s", t->driver);
    test_env("CUDASIM", words);
    if (!on_host) plant(t->plant);
}

static uint64_t digest(uint64_t sum, const unsigned char *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) sum = (sum ^ at[i]) * 1099511628211U;
    return sum;
}

/* Buffers in GPU memory, or on the host: all that a call leaves goes into the sum. */
static void call(rondo_comm *comm, int rank, int n, bool on_gpu, int which, trial *t)
{
    size_t count = counts[which], whole = count * (size_t)n, bytes = whole * sizeof(float);
    float *from = malloc(bytes), *to = malloc(bytes);
    for (size_t i = 0; i < whole; i++)
        from[i] = (float)((i * 7919 + (size_t)(rank + which) * 104729) % 10007) * 0.001F + 0.1F;
    memset(to, 0x55, bytes);
    rd_cu_address gpu_from = on_gpu ? gpu_alloc(bytes) : 0, gpu_to = on_gpu ? gpu_alloc(bytes) : 0;
    if (on_gpu) gpu_put(gpu_from, from, bytes);
    if (on_gpu) gpu_put(gpu_to, to, bytes);
    const void *in = on_gpu ? (void *)(uintptr_t)gpu_from : from;
    void *out = on_gpu ? (void *)(uintptr_t)gpu_to : to;
    switch (which) {
    case 0: OK(rondo_all_reduce(in, out, count, RONDO_FLOAT32, RONDO_SUM, comm, NULL)); break;
    case 1: OK(rondo_all_reduce(in, out, count, RONDO_FLOAT32, RONDO_SUM, comm, NULL)); break;
    case 2: OK(rondo_all_gather(in, out, count, RONDO_FLOAT32, comm, NULL)); break;
    default: OK(rondo_broadcast(in, out, count, RONDO_FLOAT32, n - 1, comm, NULL));
    }
    if (on_gpu) gpu_get(to, gpu_to, bytes);
    t->sum[rank] = digest(t->sum[rank], (unsigned char *)to, bytes);
    if (on_gpu) GPU(cuMemFree, gpu_from);
    if (on_gpu) GPU(cuMemFree, gpu_to);
    free(to);
    free(from);
}

static void calls(rondo_comm *comm, int rank, int n, void *context)
{
    trial *t = context;
    bool on_host = t->on_host >> rank & 1;
    if (!on_host) gpu_enter(rank % 2);
    for (int i = 0; i < 2; i++) {
        const rondo_link *link = i ? comm->wiring.ring_out[0]->link : comm->wiring.ring_in[0]->link;
        CHECK(on_host || !(link->caps & RONDO_LINK_FAR) == !t->in_gpu, "rank %d: slots are %sin GPU memory (%s)",
              rank, t->in_gpu ? "not " : "", link->ops->name);
    }
    for (int which = 0; which < CALLS; which++) call(comm, rank, n, !on_host, which, t);
    call(comm, rank, n, false, 0, t);
    unsigned long flushes = on_host ? 0 : cudasim_calls("cuFlushGPUDirectRDMAWrites");
    if (!on_host && t->plant != LATE && t->plant != LATE_FOR_EVER)
        CHECK(!flushes == !t->flushes, "rank %d: %lu flushes", rank, flushes);
}

static void run(int n, trial *t)
{
    const rondo_config config = {.size = sizeof config, .timeout_s = 60, .slow_warning_s = 30};
    ranks_run(n, &config, set_up, calls, t);
}

static void compare(int n, const trial *given)
{
    static trial *over_tcp[RANKS_MOST + 1]; /* by n; what is right */
    trial *t = test_shared(sizeof *t);
    if (!over_tcp[n]) {
        over_tcp[n] = test_shared(sizeof *t);
        *over_tcp[n] = (trial){.transport = "tcp", .driver = "", .on_host = given->on_host};
        run(n, over_tcp[n]);
    }
    *t = *given;
    run(n, t);
    bool same = !memcmp(t->sum, over_tcp[n]->sum, sizeof t->sum);
    if (same == (given->plant == LATE_FOR_EVER))
        fail_msg("%s",
                 same ? "what was never flushed is seen all the same: the test is blind" : "other bytes than over tcp");
}

/* ---- The ways ---- */

/* The kernel's Soft-RoCE registers none: an attempt that fails, and then the address. */
static void by_address(void **state)
{
    (void)state;
    compare(2, &(trial){.transport = "verbs", .driver = "", .in_gpu = true, .flushes = true});
}
static void seen_late(void **state)
{
    (void)state;
    compare(2, &(trial){.transport = "verbs", .driver = "", .plant = LATE, .in_gpu = true});
}
static void never_seen(void **state)
{
    (void)state;
    compare(2, &(trial){.transport = "verbs", .driver = "", .plant = LATE_FOR_EVER, .in_gpu = true});
}
static void in_order(void **state)
{
    (void)state;
    compare(2, &(trial){.transport = "verbs", .driver = "ordered_rdma", .in_gpu = true});
}
static void no_access(void **state)
{
    (void)state;
    compare(2, &(trial){.transport = "verbs", .driver = "no_flush"});
}
static void refused(void **state)
{
    (void)state;
    compare(2, &(trial){.transport = "verbs", .driver = "no_dmabuf", .plant = REFUSED});
}
static void out_of_memory(void **state)
{
    (void)state;
    compare(2, &(trial){.transport = "verbs", .driver = "", .plant = NO_MEMORY});
}
static void switched_off(void **state)
{
    (void)state;
    compare(2, &(trial){.transport = "verbs", .driver = "", .gpu = "0"});
}
/* One rank on the host between GPUs: whoever is at the other end of a link need not know. */
static void among_hosts(void **state)
{
    (void)state;
    compare(4, &(trial){.transport = "verbs", .driver = "no_fds", .on_host = 2, .in_gpu = true, .flushes = true});
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_address),    cmocka_unit_test(seen_late),    cmocka_unit_test(never_seen),
        cmocka_unit_test(in_order),      cmocka_unit_test(no_access),    cmocka_unit_test(refused),
        cmocka_unit_test(out_of_memory), cmocka_unit_test(switched_off), cmocka_unit_test(among_hosts),
    };
    if (!getenv("RONDO_TEST_RDMA")) return fputs("RONDO_TEST_RDMA names no RDMA device\n", stderr), 1;
    on_cudasim(argv, "");
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL); /* a pattern of names */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
