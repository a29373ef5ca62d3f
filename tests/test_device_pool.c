/* SPDX-License-Identifier: Apache-2.0
 *
 * test_device_pool.c - links on demand between ranks on GPUs: they have their slots in GPU memory that was there before,
 * as long as there are places, then in host memory; whatever the driver and the settings allow, messages and
 * all-to-alls arrive. Over the simulated driver.
 */
#include "test.h"

#include "core/device.h"
#include "core/pool.h"
#include "gpu_kit.h"
#include "on_cudasim.h"

#include <pthread.h>

/* What ranks are told, and what is to come of it. */
typedef struct setting {
    const char *places, *transport, *driver;
    unsigned hosts; /* ranks without a GPU, bit by bit */
    int in_gpu;     /* links into each rank that have slots in GPU memory, after messages and all-to-alls */
} setting;

enum { GPUS = 2, COUNT = 40001, MISALIGNED = 1 };

static bool uses_gpu(const setting *s, int rank)
{
    return !(s->hosts >> rank & 1);
}

static void set_up(int rank, void *context)
{
    const setting *s = context;
    char device[16];
    snprintf(device, sizeof device, "%d", rank % GPUS);
    test_env("RONDO_DEVICE", uses_gpu(s, rank) ? device : "host");
    test_env("RONDO_GPU_LINKS", s->places);
    test_env("RONDO_TRANSPORT", s->transport);
    if (s->driver) test_env("CUDASIM", s->driver);
}

static float word(int from, int to, size_t i)
{
    return (float)((i * 7 + (size_t)from * 31 + (size_t)to * 1009) % 65536);
}

/* ---- Buffers: in the rank's GPU, or on the host ---- */

typedef struct buffer {
    rd_cu_address device;
    float *here, *at; /* at: what calls are given */
    size_t bytes;
} buffer;

static buffer make(bool on_gpu, size_t words)
{
    buffer b = {.bytes = (words + MISALIGNED) * sizeof(float)};
    b.here = calloc(1, b.bytes);
    if (on_gpu) GPU(cuMemAlloc, &b.device, b.bytes);
    b.at = (on_gpu ? (float *)(uintptr_t)b.device : b.here) + MISALIGNED;
    return b;
}
static void put(buffer *b)
{
    if (b->device) gpu_put(b->device, b->here, b->bytes);
}
static void get(buffer *b)
{
    if (b->device) gpu_get(b->here, b->device, b->bytes);
}

/* GPU memory is freed when no call will come any more, for that is to wait for all that the GPU was given: also for the
 * kernel of a rank that shares it, which may wait for this one. */
static _Thread_local rd_cu_address kept[64];
static _Thread_local int kept_count;

static void discard(buffer *b)
{
    if (b->device) kept[kept_count++] = b->device;
    free(b->here);
}
static void free_all(rondo_comm *comm)
{
    OK(rondo_barrier(comm, NULL));
    while (kept_count) GPU(cuMemFree, kept[--kept_count]);
}

/* ---- Calls ---- */

/* Everybody sends to everybody in one group, twice `count`, so that what comes second is not what came first. */
static void exchange(rondo_comm *comm, bool on_gpu, size_t count)
{
    int me = rondo_comm_rank(comm), n = rondo_comm_size(comm);
    size_t all = count * (size_t)n;
    buffer out = make(on_gpu, 2 * all), in = make(on_gpu, 2 * all);
    for (int turn = 0; turn < 2; turn++)
        for (int peer = 0; peer < n; peer++)
            for (size_t i = 0; i < count; i++)
                out.here[MISALIGNED + (size_t)turn * all + (size_t)peer * count + i] = word(me, peer, i + (size_t)turn);
    put(&out), put(&in);
    OK(rondo_group_start());
    for (int turn = 0; turn < 2; turn++)
        for (int peer = 0; peer < n; peer++) {
            size_t at = (size_t)turn * all + (size_t)peer * count;
            if (peer == me) continue;
            OK(rondo_send(out.at + at, count, RONDO_FLOAT32, peer, comm, NULL));
            OK(rondo_recv(in.at + at, count, RONDO_FLOAT32, peer, comm, NULL));
        }
    OK(rondo_group_end());
    get(&in);
    for (int turn = 0; turn < 2; turn++)
        for (int peer = 0; peer < n; peer++)
            for (size_t i = 0; peer != me && i < count; i++) {
                float got = in.here[MISALIGNED + (size_t)turn * all + (size_t)peer * count + i];
                CHECK(got == word(peer, me, i + (size_t)turn), "message %d from %d: word %zu is %g", turn, peer, i,
                      (double)got);
            }
    discard(&out), discard(&in);
}

static void all_to_all(rondo_comm *comm, bool on_gpu, size_t count)
{
    int me = rondo_comm_rank(comm), n = rondo_comm_size(comm);
    buffer out = make(on_gpu, count * (size_t)n), in = make(on_gpu, count * (size_t)n);
    for (int peer = 0; peer < n; peer++)
        for (size_t i = 0; i < count; i++) out.here[MISALIGNED + (size_t)peer * count + i] = word(me, peer, i);
    put(&out), put(&in);
    OK(rondo_all_to_all(out.at, in.at, count, RONDO_FLOAT32, comm, NULL));
    get(&in);
    for (int peer = 0; peer < n; peer++)
        for (size_t i = 0; i < count; i++)
            CHECK(in.here[MISALIGNED + (size_t)peer * count + i] == word(peer, me, i), "from %d: word %zu is %g", peer,
                  i, (double)in.here[MISALIGNED + (size_t)peer * count + i]);
    discard(&out), discard(&in);
}

static int links_in_gpu(const rondo_comm *comm)
{
    int links = 0;
    for (int i = 0; i < RD_LANES * comm->size; i++)
        links += comm->links.in[i].link && (comm->links.in[i].link->caps & RONDO_LINK_DEVICE);
    return links;
}

static unsigned long memory_calls(void)
{
    return cudasim_calls("cuMemCreate") + cudasim_calls("cuMemMap") + cudasim_calls("cuMemSetAccess") +
           cudasim_calls("cuMemUnmap") + cudasim_calls("cuMemsetD8Async");
}

static void calls(rondo_comm *comm, int rank, int n, void *context)
{
    const setting *s = context;
    bool on_gpu = uses_gpu(s, rank);
    if (on_gpu) gpu_enter(rank % GPUS);
    unsigned long before = on_gpu ? memory_calls() : 0;
    static const size_t counts[] = {0, 1, 9, 1003, COUNT};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        exchange(comm, on_gpu, counts[i]);
        all_to_all(comm, on_gpu, counts[i]);
    }
    exchange(comm, false, COUNT); /* of the host, over slots that it does not reach */
    all_to_all(comm, false, 1003);
    exchange(comm, on_gpu && rank == 0, COUNT);
    if (on_gpu) CHECK(memory_calls() == before, "memory of the GPU was taken or mapped");
    CHECK(links_in_gpu(comm) == (on_gpu ? s->in_gpu : 0), "%d links of %d ranks have slots in this GPU's memory",
          links_in_gpu(comm), n);
    free_all(comm);
    OK(rondo_comm_destroy(comm));
    if (!on_gpu) return;
    struct cudasim_held held;
    cudasim_held(&held);
    CHECK(held.mapped + held.allocations == 0, "%d mappings, %d allocations are left", held.mapped, held.allocations);
}

/* ---- Ranks as threads of one process: what the thread sanitizer sees ---- */

enum { THREADS = 4 };

static void *as_thread(void *context)
{
    rondo_comm *comm = context;
    static const size_t counts[] = {1, 9, 40001};
    gpu_enter(rondo_comm_rank(comm) % GPUS);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        exchange(comm, true, counts[i]);
        all_to_all(comm, true, counts[i]);
    }
    CHECK(links_in_gpu(comm) == RD_LANES * (THREADS - 1), "%d links have slots in this GPU's memory",
          links_in_gpu(comm));
    free_all(comm);
    OK(rondo_comm_destroy(comm));
    return NULL;
}

static void as_threads(const rondo_unique_id *id, int rank, int n, void *context)
{
    rondo_comm *comms[THREADS];
    pthread_t threads[THREADS];
    int devices[THREADS];
    (void)id, (void)rank, (void)n, (void)context;
    for (int i = 0; i < THREADS; i++) devices[i] = i % GPUS;
    OK(rondo_init_all(comms, THREADS, devices));
    for (int i = 0; i < THREADS; i++) CHECK(!pthread_create(&threads[i], NULL, as_thread, comms[i]), "no thread");
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

static void within_a_process(void **state)
{
    (void)state;
    ranks_run_bare(1, as_threads, NULL);
}

/* ---- */

static void run(int n, setting s)
{
    ranks_run(n, NULL, set_up, calls, &s);
}

static void in_gpu_memory(void **state)
{
    (void)state;
    run(2, (setting){.in_gpu = 2});
    run(4, (setting){.in_gpu = 6});
    run(3, (setting){.transport = "cuda_ipc", .in_gpu = 4});
    run(2, (setting){.driver = "devices=2 no_memory_operations", .in_gpu = 2});
}

static void further_ones_on_the_host(void **state)
{
    (void)state;
    run(3, (setting){.places = "1", .in_gpu = 1});
    run(4, (setting){.places = "5", .in_gpu = 5});
}

static void none(void **state)
{
    (void)state;
    run(3, (setting){.places = "0"});
    run(2, (setting){.transport = "shm"});
    run(2, (setting){.transport = "tcp"});
    run(3, (setting){.driver = "devices=2 no_fds"});
    run(2, (setting){.driver = "devices=2 p2p=none"});
}

static void beside_hosts(void **state)
{
    (void)state;
    run(4, (setting){.hosts = 2, .in_gpu = 4});
}

/* The first of a rank's is for the ring. */
static void no_memory_for_it(void **state)
{
    (void)state;
    run(2, (setting){.driver = "devices=2 fail=cuMemCreate:2:2"});
}

/* A link that is closed leaves its place to another. */
static void place_given_back(rondo_comm *comm, int rank, int n, void *context)
{
    rd_wire *in = rd_links_in(&comm->links, comm->size, RD_LANE_MESSAGES, !rank);
    rondo_link_spec spec = {.me = rank, .peer = !rank, .slots = RD_POOL_SLOTS, .slot_bytes = RD_POOL_SLOT_BYTES};
    (void)n, (void)context;
    gpu_enter(rank % GPUS);
    exchange(comm, true, 100);
    OK(rondo_barrier(comm, NULL));
    CHECK(in->link->caps & RONDO_LINK_DEVICE, "the link is in host memory");
    CHECK(!rd_pool_lend_in(comm, &spec), "there is a second place");
    rd_comm_close_link(comm, in->link);
    in->link = NULL;
    CHECK(rd_pool_lend_in(comm, &spec) && spec.shared_at == 0, "there is no place");
    CHECK(!rd_pool_lend_in(comm, &spec), "there are two places");
}

static void places_are_given_back(void **state)
{
    (void)state;
    setting s = {.places = "1"};
    ranks_run(2, NULL, set_up, place_given_back, &s);
}

int main(int argc, char **argv)
{
    (void)argc;
    on_cudasim(argv, "devices=2");
    needs_kernels();
    needs_cudasim("what the driver is asked for is counted");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_gpu_memory), cmocka_unit_test(further_ones_on_the_host),
        cmocka_unit_test(within_a_process),
        cmocka_unit_test(none),          cmocka_unit_test(beside_hosts),
        cmocka_unit_test(no_memory_for_it), cmocka_unit_test(places_are_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
