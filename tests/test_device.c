/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks on GPUs: every collective, messages, all kinds of memory, over every kind of link, with ranks on the host among
 * them. Over the simulated driver, or with CUDASIM=off on what GPUs there are. Started as the rank of a job (RANK is set),
 * it is what tests/test_hosts_gpus.sh runs on several hosts.
 */
#include "test.h"

#include "base/dtype.h"
#include "elements.h"
#include "gpu_kit.h"
#include "on_cudasim.h"
#include "ranks.h"

#include <pthread.h>

/* ---- Buffers ---- */

enum kind { PLAIN, PINNED, MANAGED, DEVICE, KINDS };
static const char *const kind_names[KINDS] = {"plain", "pinned", "managed", "device"};


enum { MARGIN = 64, GUARD = 0xa5 };

/* `bytes` of memory, `shift` off alignment, between guards; `here` is where the CPU fills it in and looks at it. */
typedef struct buffer {
    enum kind kind;
    size_t bytes;
    unsigned char *base, *at, *here;
} buffer;

static void get(buffer *b)
{
    if (b->kind == DEVICE) {
        GPU(cuMemcpyAsync, (uintptr_t)b->here, (uintptr_t)b->base, b->bytes + 2 * MARGIN, RD_CU_STREAM_LEGACY);
        GPU(cuStreamSynchronize, RD_CU_STREAM_LEGACY);
    }
}

static void put(buffer *b)
{
    if (b->kind == DEVICE)
        GPU(cuMemcpyAsync, (uintptr_t)b->base, (uintptr_t)b->here, b->bytes + 2 * MARGIN, RD_CU_STREAM_LEGACY);
}

/* Of a rank on the host, plain whatever is asked. */
static buffer make(enum kind kind, bool on_gpu, size_t bytes, size_t shift)
{
    buffer b = {.kind = on_gpu ? kind : PLAIN, .bytes = bytes};
    size_t all = bytes + 2 * MARGIN;
    rd_cu_address device = 0;
    void *host = NULL;
    switch (b.kind) {
    case PINNED: GPU(cuMemHostAlloc, &host, all, 0); break;
    case MANAGED: GPU(cuMemAllocManaged, &device, all, RD_CU_MEM_ATTACH_GLOBAL); break;
    case DEVICE: GPU(cuMemAlloc, &device, all); break;
    default: host = malloc(all);
    }
    b.base = host ? host : (void *)(uintptr_t)device;
    b.here = b.kind == DEVICE ? malloc(all) : b.base;
    b.at = b.base + shift;
    memset(b.here, GUARD, all);
    return b;
}

static unsigned char *inside(const buffer *b)
{
    return b->here + (b->at - b->base);
}

static void discard(buffer *b)
{
    if (b->kind == DEVICE) free(b->here);
    if (b->kind == PLAIN)
        free(b->base);
    else if (b->kind == PINNED)
        GPU(cuMemFreeHost, b->base);
    else
        GPU(cuMemFree, (uintptr_t)b->base);
}

/* ---- Where ranks are ---- */

/* Of a world: which ranks use a GPU (bit by bit), how many GPUs there are for them, and by what links. */
typedef struct setting {
    unsigned on_gpu;
    int gpus;
    const char *transport;
    enum kind send, recv;
    const char *driver; /* what the simulated one lacks */
} setting;

static bool uses_gpu(const setting *s, int rank)
{
    return s->on_gpu >> rank & 1;
}

/* Of a rank's own process: the test's has not asked for the driver, for it forks. */
static int gpu_of(const setting *s, int rank)
{
    int count = rd_gpu_count();
    return rank % (count < s->gpus ? count : s->gpus);
}

static void set_up(int rank, void *context)
{
    const setting *s = context;
    char device[16];
    test_env("RONDO_TRANSPORT", s->transport);
    test_env("RONDO_SLICE", "4096");
    if (is_cudasim() && s->driver) test_env("CUDASIM", s->driver); /* which this process has not loaded yet */
    snprintf(device, sizeof device, "%d", gpu_of(s, rank));
    test_env("RONDO_DEVICE", uses_gpu(s, rank) ? device : "host");
}

static void use_gpu(const setting *s, int rank)
{
    rd_cu_context context;
    if (!uses_gpu(s, rank)) return;
    GPU(cuDevicePrimaryCtxRetain, &context, gpu_of(s, rank));
    GPU(cuCtxPushCurrent, context);
}

/* ---- Calls ---- */

enum { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, REDUCE, GATHER, SCATTER, ALL_TO_ALL, COLLECTIVES };

static bool reduces(int c)
{
    return c == ALL_REDUCE || c == REDUCE_SCATTER || c == REDUCE;
}

/* How many elements send and recv have on this rank, for `count` per rank. */
static size_t sends(int c, int rank, int n, int root, size_t count)
{
    if (c == BROADCAST) return rank == root ? count : 0;
    if (c == SCATTER) return rank == root ? count * (size_t)n : 0;
    return c == REDUCE_SCATTER || c == ALL_TO_ALL ? count * (size_t)n : count;
}
static size_t receives(int c, int rank, int n, int root, size_t count)
{
    if (c == REDUCE) return rank == root ? count : 0;
    if (c == GATHER) return rank == root ? count * (size_t)n : 0;
    return c == ALL_GATHER || c == ALL_TO_ALL ? count * (size_t)n : count;
}

/* Element i of what `from` sends; of collectives that do not reduce. */
static double moved(rondo_dtype type, int from, size_t i, uint64_t seed)
{
    return element_term(type, RONDO_SUM, from, 64, i, seed);
}

static double wanted(int c, rondo_dtype type, rondo_op op, int rank, int n, int root, size_t count, size_t i,
                     uint64_t seed)
{
    switch (c) {
    case ALL_REDUCE:
    case REDUCE: return element_result(type, op, n, i, seed);
    case REDUCE_SCATTER: return element_result(type, op, n, (size_t)rank * count + i, seed);
    case ALL_GATHER:
    case GATHER: return moved(type, (int)(i / count), i % count, seed);
    case BROADCAST: return moved(type, root, i, seed);
    case SCATTER: return moved(type, root, (size_t)rank * count + i, seed);
    default: return moved(type, (int)(i / count), (size_t)rank * count + i % count, seed);
    }
}

static rondo_result start_call(int c, const void *send, void *recv, size_t count, rondo_dtype type, rondo_op op,
                               int root, rondo_comm *comm, rondo_stream *stream)
{
    switch (c) {
    case ALL_REDUCE: return rondo_all_reduce(send, recv, count, type, op, comm, stream);
    case REDUCE_SCATTER: return rondo_reduce_scatter(send, recv, count, type, op, comm, stream);
    case ALL_GATHER: return rondo_all_gather(send, recv, count, type, comm, stream);
    case BROADCAST: return rondo_broadcast(send, recv, count, type, root, comm, stream);
    case REDUCE: return rondo_reduce(send, recv, count, type, op, root, comm, stream);
    case GATHER: return rondo_gather(send, recv, count, type, root, comm, stream);
    case SCATTER: return rondo_scatter(send, recv, count, type, root, comm, stream);
    default: return rondo_all_to_all(send, recv, count, type, comm, stream);
    }
}

static void call(int c, rondo_dtype type, rondo_op op, size_t count, const setting *s, rondo_comm *comm, uint64_t seed)
{
    int rank = rondo_comm_rank(comm), n = rondo_comm_size(comm), root = (int)(seed % (uint64_t)n);
    size_t bytes = rd_dtype_bytes(type), out = sends(c, rank, n, root, count), in = receives(c, rank, n, root, count);
    buffer send = make(s->send, uses_gpu(s, rank), out * bytes, seed % 5 * bytes);
    buffer recv = make(s->recv, uses_gpu(s, rank), in * bytes, seed % 3 * bytes);
    for (size_t i = 0; i < out; i++)
        element_put(inside(&send) + i * bytes, type,
                    reduces(c) ? element_term(type, op, rank, n, i, seed) : moved(type, rank, i, seed));
    put(&send), put(&recv);
    OK(start_call(c, send.at, recv.at, count, type, op, root, comm, NULL));
    get(&recv);
    for (size_t i = 0; i < in; i++) {
        double got = element_get(inside(&recv) + i * bytes, type),
               want = wanted(c, type, op, rank, n, root, count, i, seed);
        CHECK(got == want, "collective %d of %zu %s, %s to %s, rank %d of %d: element %zu is %g, not %g", c, count,
              rd_dtype_name(type), kind_names[send.kind], kind_names[recv.kind], rank, n, i, got, want);
    }
    for (size_t i = 0; i < in * bytes + 2 * MARGIN; i++)
        if (recv.here + i < inside(&recv) || recv.here + i >= inside(&recv) + in * bytes)
            CHECK(recv.here[i] == GUARD, "collective %d: byte %zu beside recv was written", c, i);
    discard(&send), discard(&recv);
}

/* ---- Every collective ---- */

/* The GPU worked where it should have, and nothing of the library's is left on it. */
static void check_what_was_used(const setting *s, int rank, int n)
{
    struct cudasim_held held;
    if (!is_cudasim() || !uses_gpu(s, rank)) return;
    bool plain = s->send == PLAIN && s->recv == PLAIN && s->transport; /* else slots lie in GPU memory */
    unsigned long kernels = cudasim_calls("kernel");
    CHECK(plain ? kernels == 0 : kernels > 20 || n == 1, "%lu kernels ran", kernels);
    cudasim_held(&held);
    CHECK(held.streams + held.events + held.modules + held.registered + held.host_memory == 0,
          "%d streams, %d events, %d modules, %d registrations, %d host allocations are left", held.streams,
          held.events, held.modules, held.registered, held.host_memory);
}

static void all_calls(rondo_comm *comm, int rank, int n, void *context)
{
    static const size_t counts[] = {0, 1, 3, 1000, 5003};
    static const rondo_dtype types[] = {RONDO_FLOAT32, RONDO_BFLOAT16, RONDO_INT8, RONDO_FLOAT64, RONDO_FLOAT8E4M3};
    const setting *s = context;
    uint64_t seed = 0;
    use_gpu(s, rank);
    for (int c = 0; c < COLLECTIVES; c++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++, seed++)
            call(c, types[seed % 5], (rondo_op)(seed % RONDO_OPS), counts[i], s, comm, seed);
    OK(rondo_barrier(comm, NULL));
    OK(rondo_comm_destroy(comm));
    check_what_was_used(s, rank, n);
}

/* A group's messages and collective go on beside one another: the peer may make them one after the other, and in either
 * order. Rank 0's kernel of the collective waits for a rank that waits for the message. */
static void group_beside_calls(rondo_comm *comm, int rank, int n, void *context)
{
    const size_t count = 1 << 20;
    const setting *s = context;
    (void)n;
    use_gpu(s, rank);
    buffer message = make(DEVICE, true, count * sizeof(float), 0), sum = make(DEVICE, true, 100 * sizeof(float), 0);
    for (int round = 0; round < 2; round++) {
        float *sums = (float *)inside(&sum), *words = (float *)inside(&message);
        for (size_t i = 0; i < 100; i++) sums[i] = (float)(rank + (int)i);
        for (size_t i = 0; i < count; i++) words[i] = rank ? 0 : (float)(i % 1000 + (size_t)round);
        put(&message), put(&sum);
        if (rank == 0) OK(rondo_group_start());
        if (rank == 0) OK(rondo_send(message.at, count, RONDO_FLOAT32, 1, comm, NULL));
        if (rank == 1 && round == 0) OK(rondo_recv(message.at, count, RONDO_FLOAT32, 0, comm, NULL));
        OK(rondo_all_reduce(sum.at, sum.at, 100, RONDO_FLOAT32, RONDO_SUM, comm, NULL));
        if (rank == 1 && round == 1) OK(rondo_recv(message.at, count, RONDO_FLOAT32, 0, comm, NULL));
        if (rank == 0) OK(rondo_group_end());
        get(&message), get(&sum);
        for (size_t i = 0; i < 100; i++) CHECK(sums[i] == (float)(1 + 2 * i), "sum %zu: %g", i, (double)sums[i]);
        for (size_t i = 0; i < count; i++)
            CHECK(words[i] == (float)(i % 1000 + (size_t)round), "word %zu: %g", i, (double)words[i]);
    }
    discard(&message), discard(&sum);
}

static void a_group_beside_calls(void **state)
{
    (void)state;
    setting s = {0xff, 2, NULL, DEVICE, DEVICE, NULL};
    ranks_run(2, NULL, set_up, group_beside_calls, &s);
}

static void run_all(int n, setting s)
{
    ranks_run(n, NULL, set_up, all_calls, &s);
}

static void a_gpu_for_each(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++) run_all(n, (setting){0xff, 4, NULL, DEVICE, DEVICE, NULL});
}

static void several_on_one_gpu(void **state)
{
    (void)state;
    run_all(3, (setting){0xff, 1, NULL, DEVICE, DEVICE, NULL});
}

static void gpus_and_hosts(void **state)
{
    (void)state;
    run_all(2, (setting){0x1, 2, NULL, DEVICE, DEVICE, NULL});
    run_all(4, (setting){0x5, 2, NULL, DEVICE, MANAGED, NULL});
    run_all(3, (setting){0x6, 2, "tcp", DEVICE, DEVICE, NULL});
}

static void over_sockets(void **state)
{
    (void)state;
    run_all(3, (setting){0xff, 4, "tcp", DEVICE, DEVICE, NULL});
}

static void every_kind_of_memory(void **state)
{
    (void)state;
    for (enum kind send = 0; send < KINDS; send++)
        for (enum kind recv = 0; recv < KINDS; recv++) run_all(2, (setting){0xff, 2, NULL, send, recv, NULL});
    run_all(2, (setting){0xff, 2, "shm", PLAIN, PLAIN, NULL});
}

static void slots_where_they_are_asked_for(void **state)
{
    (void)state;
    run_all(3, (setting){0xff, 2, "cuda_ipc", DEVICE, DEVICE, NULL});
    run_all(3, (setting){0xff, 2, "shm", DEVICE, DEVICE, NULL});
}

/* Then events tell what is done. */
static void streams_that_cannot_store(void **state)
{
    (void)state;
    run_all(3, (setting){0x3, 2, NULL, DEVICE, DEVICE, "devices=2 no_memory_operations"});
}

/* In device memory, unless RONDO_DEVICE=host; then in plain memory. */
static int as_rank(void)
{
    const char *device = getenv("RONDO_DEVICE");
    setting s = {device && strcmp(device, "host") == 0 ? 0 : ~0u, 4, getenv("RONDO_TRANSPORT"), DEVICE, DEVICE, NULL};
    rondo_comm *comm;
    set_up(atoi(getenv("RANK")), &s);
    OK(rondo_init_env(&comm, NULL));
    all_calls(comm, rondo_comm_rank(comm), rondo_comm_size(comm), &s);
    puts("all right");
    return 0;
}

int main(int argc, char **argv)
{
    (void)argc;
    on_cudasim(argv, "devices=4");
    if (getenv("RANK")) return as_rank();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpu_for_each),
        cmocka_unit_test(a_group_beside_calls),
        cmocka_unit_test(several_on_one_gpu),
        cmocka_unit_test(gpus_and_hosts),
        cmocka_unit_test(over_sockets),
        cmocka_unit_test(every_kind_of_memory),
        cmocka_unit_test(streams_that_cannot_store),
        cmocka_unit_test(slots_where_they_are_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
