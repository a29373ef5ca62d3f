/* SPDX-License-Identifier: Apache-2.0
 *
 * test_device_peers.c - messages and all-to-alls of ranks on GPUs are one kernel each once their links stand: of ranks
 * as processes and as threads, of every type, of odd counts, misaligned. Beside such a rank one that goes slice by
 * slice sleeps no longer than it must. An abort, a timeout and a death free the kernel that waits, and what does not
 * match is told as it is without kernels. Over the simulated driver, which counts launches.
 */
#include "test.h"

#include "base/dtype.h"
#include "core/device.h"
#include "gpu_kit.h"
#include "on_cudasim.h"
#include "reduce/device.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

enum { GPUS = 4, RANKS = 8 };

static const char *places = "32"; /* for links in each GPU's memory */
static const char *driver;        /* what the simulated one is like; NULL: as in main */

static void set_up(int rank, void *context)
{
    char device[16];
    (void)context;
    snprintf(device, sizeof device, "%d", rank % GPUS);
    test_env("RONDO_DEVICE", device);
    test_env("RONDO_GPU_LINKS", places);
    if (driver) test_env("CUDASIM", driver);
}

static void run(int n, double timeout_s, rank_fn f, void *context)
{
    rondo_config config = RONDO_CONFIG_INIT;
    config.timeout_s = timeout_s * test_slowness();
    ranks_run(n, &config, set_up, f, context);
}

/* ---- Buffers in the rank's GPU ---- */

typedef struct buffer {
    rd_cu_address device;
    unsigned char *here, *at; /* at: what calls are given */
    size_t bytes, shift;
} buffer;

static buffer make(size_t bytes, size_t shift)
{
    buffer b = {.bytes = bytes + shift, .shift = shift};
    b.here = calloc(1, b.bytes + 1);
    GPU(cuMemAlloc, &b.device, b.bytes + 1);
    b.at = (unsigned char *)(uintptr_t)b.device + shift;
    return b;
}

static void discard(buffer *b)
{
    GPU(cuMemFree, b->device);
    free(b->here);
}

static unsigned char byte(int from, int to, size_t i)
{
    return (unsigned char)(i * 7 + (size_t)from * 31 + (size_t)to * 101 + i / 251);
}

static void fill(buffer *b, size_t at, int from, int to, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) b->here[b->shift + at + i] = byte(from, to, i);
}

static void check(const buffer *b, size_t at, int from, int to, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        CHECK(b->here[b->shift + at + i] == byte(from, to, i), "from %d to %d: byte %zu of %zu is %d", from, to, i,
              bytes, b->here[b->shift + at + i]);
}

/* ---- Calls ---- */

enum pattern { TO_THE_NEXT, TO_ALL, ALL_TO_ALL };
static const size_t counts[] = {0, 1, 33, 1003, 40001};
enum { COUNTS = sizeof counts / sizeof *counts, LONGEST = 8 * 40001 };

/* Memory for calls among n ranks. It is freed when no call will come any more, for that is to wait for all that the GPU
 * was given: also for the kernel of a rank that shares it, which may wait for this one. */
typedef struct room {
    buffer out, in;
} room;

static room open_room(const rondo_comm *comm)
{
    size_t all = (size_t)rondo_comm_size(comm) * LONGEST;
    gpu_enter(rondo_comm_rank(comm) % GPUS);
    return (room){make(all, 1), make(all, 0)};
}

static void close_room(room *r, rondo_comm *comm)
{
    OK(rondo_barrier(comm, NULL));
    discard(&r->out);
    discard(&r->in);
}

/* Returns how many kernels this process has run for it. */
static unsigned long call(rondo_comm *comm, room *r, enum pattern pattern, size_t count, rondo_dtype type)
{
    int me = rondo_comm_rank(comm), n = rondo_comm_size(comm), next = (me + 1) % n, before = (me + n - 1) % n;
    size_t bytes = count * rd_dtype_bytes(type), all = bytes * (size_t)n;
    buffer out = r->out, in = r->in;
    for (int peer = 0; peer < n; peer++) fill(&out, (size_t)peer * bytes, me, peer, bytes);
    memset(in.here, 0, all);
    gpu_put(out.device, out.here, all + out.shift);
    gpu_put(in.device, in.here, all + in.shift);
    unsigned long kernels = cudasim_calls("kernel");
    OK(rondo_group_start());
    for (int peer = 0; peer < n; peer++) {
        size_t at = (size_t)peer * bytes;
        if (peer == me || pattern == ALL_TO_ALL) continue;
        if (pattern == TO_ALL || peer == next) OK(rondo_send(out.at + at, count, type, peer, comm, NULL));
        if (pattern == TO_ALL || peer == before) OK(rondo_recv(in.at + at, count, type, peer, comm, NULL));
    }
    if (pattern == ALL_TO_ALL) OK(rondo_all_to_all(out.at, in.at, count, type, comm, NULL));
    OK(rondo_group_end());
    kernels = cudasim_calls("kernel") - kernels;
    gpu_get(in.here, in.device, all + in.shift);
    for (int peer = 0; peer < n; peer++)
        if (pattern == ALL_TO_ALL || (peer != me && (pattern == TO_ALL || peer == before)))
            check(&in, (size_t)peer * bytes, peer, me, bytes);
    return kernels;
}

/* All links of messages and of all-to-alls. */
static room meet(rondo_comm *comm)
{
    room r = open_room(comm);
    call(comm, &r, TO_ALL, 1, RONDO_UINT8);
    call(comm, &r, ALL_TO_ALL, 1, RONDO_UINT8);
    OK(rondo_barrier(comm, NULL)); /* what follows are no first meetings on any rank */
    return r;
}

static void one_kernel_each(rondo_comm *comm, int rank, int n, void *context)
{
    (void)rank, (void)context;
    room r = meet(comm);
    for (enum pattern p = TO_THE_NEXT; p <= ALL_TO_ALL; p++)
        for (rondo_dtype type = 0; type < RONDO_DTYPES; type++) {
            unsigned long kernels = call(comm, &r, p, counts[type % COUNTS], type);
            CHECK(kernels == 1, "pattern %d among %d ranks: %lu kernels", p, n, kernels);
        }
    close_room(&r, comm);
}

static void as_processes(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n++) run(n, 20, one_kernel_each, NULL);
    if (test_slowness() <= 1) run(RANKS, 20, one_kernel_each, NULL);
}

/* A plain send, a plain receive, and a group beside which a collective runs: one kernel for that, and one for this. */
static void plain_ones(rondo_comm *comm, int rank, int n, void *context)
{
    enum { BYTES = 300000 };
    (void)n, (void)context;
    room r = meet(comm);
    buffer message = make(BYTES, 3), sum = make(4, 0);
    for (int turn = 0; turn < 4; turn++) {
        bool sends = rank == turn % 2, in_group = turn >= 2;
        if (sends) fill(&message, 0, rank, !rank, BYTES);
        gpu_put(message.device, message.here, message.bytes);
        unsigned long kernels = cudasim_calls("kernel");
        if (in_group) OK(rondo_group_start());
        if (sends) OK(rondo_send(message.at, BYTES, RONDO_UINT8, !rank, comm, NULL));
        if (!sends) OK(rondo_recv(message.at, BYTES, RONDO_UINT8, !rank, comm, NULL));
        if (in_group) OK(rondo_all_reduce(sum.at, sum.at, 1, RONDO_FLOAT32, RONDO_SUM, comm, NULL));
        if (in_group) OK(rondo_group_end());
        kernels = cudasim_calls("kernel") - kernels;
        CHECK(kernels == (in_group ? 2 : 1), "turn %d: %lu kernels", turn, kernels);
        gpu_get(message.here, message.device, message.bytes);
        check(&message, 0, turn % 2, !(turn % 2), BYTES);
    }
    close_room(&r, comm);
    discard(&message);
    discard(&sum);
}

static void send_and_recv(void **state)
{
    (void)state;
    run(2, 20, plain_ones, NULL);
}

/* ---- Ranks as threads of one process ---- */

static void *as_thread(void *context)
{
    rondo_comm *comm = context;
    room r = meet(comm);
    for (enum pattern p = TO_THE_NEXT; p <= ALL_TO_ALL; p++)
        for (size_t i = 0; i < COUNTS; i++) {
            if (test_slowness() > 1 && rondo_comm_size(comm) == RANKS && i + 1 == COUNTS) continue;
            call(comm, &r, p, counts[i], RONDO_BFLOAT16);
            CHECK(p == ALL_TO_ALL ? comm->op.peers.kernel : comm->messages.peers.kernel, "no kernel");
        }
    close_room(&r, comm);
    OK(rondo_comm_destroy(comm));
    return NULL;
}

static void as_threads(void **state)
{
    (void)state;
    test_env("RONDO_GPU_LINKS", places);
    for (int n = 2; n <= RANKS; n *= 2) gpu_threads(n, GPUS, as_thread);
    test_env("RONDO_GPU_LINKS", NULL);
}

/* ---- Waits ---- */

static void doze(double seconds)
{
    nanosleep(&(struct timespec){0, (long)(seconds * 1e9)}, NULL);
}

/* Rank 1 goes slice by slice; rank 0 goes by a kernel, which rings nobody. */
static void beside_a_kernel(rondo_comm *comm, int rank, int n, void *context)
{
    (void)n, (void)context;
    room r = meet(comm);
    rd_engine *engine = rd_device_engine(comm->messenger);
    struct rd_engine_ops ops = *engine->ops;
    ops.peers = NULL;
    if (rank == 1) engine->ops = &ops;
    OK(rondo_barrier(comm, NULL));
    double began = test_seconds();
    if (rank == 0) doze(0.3); /* until rank 1 sleeps */
    call(comm, &r, TO_THE_NEXT, 40001, RONDO_FLOAT64);
    CHECK(comm->messages.peers.kernel == (rank == 0), "rank %d", rank);
    CHECK(test_seconds() - began < 1 * test_slowness(), "it took %g s", test_seconds() - began);
    close_room(&r, comm);
    CHECK(comm->missed_bells == 0, "rank %d overslept", rank);
}

static void slices_beside_a_kernel(void **state)
{
    (void)state;
    run(2, 20, beside_a_kernel, NULL);
}

/* ---- Failures ---- */

enum failure { TIMEOUT, ABORT, DEATH, FAILURES };

static void *abort_soon(void *comm)
{
    doze(0.3);
    rondo_comm_abort(comm);
    return NULL;
}

/* Rank 0 waits for room to send to rank 1 and for something from rank 2, neither of whom has called. */
static void waits(rondo_comm *comm, int rank, int n, void *context)
{
    static const rondo_result results[FAILURES] = {RONDO_TIMEOUT, RONDO_ABORTED, RONDO_REMOTE_ERROR};
    enum { BYTES = 1 << 20 };
    enum failure failure = *(enum failure *)context;
    pthread_t thread;
    struct cudasim_held held;
    (void)n;
    room r = meet(comm);
    buffer b = make(2 * BYTES, 0);
    OK(rondo_barrier(comm, NULL));
    if (rank > 0) {
        doze(0.5);
        if (failure == DEATH && rank == 2) _exit(0);
        while (!rd_comm_stopped(comm)) doze(0.01);
        discard(&b), discard(&r.out), discard(&r.in);
        return;
    }
    if (failure == ABORT) CHECK(!pthread_create(&thread, NULL, abort_soon, comm), "no thread");
    double began = test_seconds();
    OK(rondo_group_start());
    OK(rondo_send(b.at, BYTES, RONDO_UINT8, 1, comm, NULL));
    OK(rondo_recv(b.at + BYTES, BYTES, RONDO_UINT8, 2, comm, NULL));
    rondo_result result = rondo_group_end();
    CHECK(comm->messages.peers.kernel, "no kernel");
    CHECK(result == results[failure], "%s: %s", rondo_result_string(result), rondo_last_error(comm));
    CHECK(failure == ABORT || strstr(rondo_last_error(comm), "rank"), "%s", rondo_last_error(comm));
    CHECK(test_seconds() - began < 5 * test_slowness(), "it took %g s", test_seconds() - began);
    rd_engine *engine = rd_device_engine(comm->messenger);
    CHECK(rd_engine_done(engine, engine->given), "the kernel is still there");
    if (failure == ABORT) pthread_join(thread, NULL);
    discard(&b), discard(&r.out), discard(&r.in); /* which waits for all kernels */
    rondo_comm_destroy(comm);
    cudasim_held(&held);
    CHECK(held.streams + held.device_memory + held.registered + held.host_memory == 0,
          "%d streams, %d allocations, %d registrations, %d host allocations are left", held.streams,
          held.device_memory, held.registered, held.host_memory);
}

static void what_waits_is_freed(void **state)
{
    (void)state;
    for (enum failure f = TIMEOUT; f < FAILURES; f++) run(3, f == TIMEOUT ? 2 : 60, waits, &f);
}

/* A kernel of the user's that fills the GPU until flag[RESIDENT] is set. */
enum { RESIDENT = 32 }; /* blocks, of one multiprocessor */

static uint32_t *fill_gpu(void)
{
    void *memory;
    GPU(cuMemHostAlloc, &memory, (RESIDENT + 1) * sizeof(uint32_t), RD_CU_MEMHOSTALLOC_DEVICEMAP);
    struct {
        uint32_t *flag;
    } args = {memset(memory, 0, (RESIDENT + 1) * sizeof(uint32_t))};
    rd_cu_function chain = gpu_trial("ring", "trial_chain"); /* each block waits for the next one */
    void *parameters[] = {&args};
    GPU(cuLaunchKernel, chain, RESIDENT + 1, 1, 1, 32, 1, 1, 0, gpu_stream(RD_CU_STREAM_NON_BLOCKING), parameters,
        NULL);
    doze(0.2); /* until they are there */
    return args.flag;
}

typedef struct tenancy {
    rondo_comm *comm;
    uint32_t *flag;
} tenancy;

static void *leave_late(void *context)
{
    const tenancy *t = context;
    while (!rd_comm_stopped(t->comm)) doze(0.01);
    doze(0.3);
    __atomic_store_n(&t->flag[RESIDENT], 1, __ATOMIC_RELEASE);
    return NULL;
}

/* Rank 1 dies when it has sent all. Rank 0's kernel comes to it only when that is long known. */
static void legacy(rondo_comm *comm, int rank, int n, void *context)
{
    enum { BYTES = 200000 }; /* of the slots that a link has */
    _Atomic int *waits = context;
    pthread_t thread;
    (void)n;
    room r = meet(comm);
    fill(&r.out, 0, 1, 0, BYTES);
    gpu_put(r.out.device, r.out.here, r.out.bytes);
    OK(rondo_barrier(comm, NULL));
    if (rank == 1) {
        while (!atomic_load(waits)) doze(0.01);
        doze(0.2);
        OK(rondo_send(r.out.at, BYTES, RONDO_UINT8, 0, comm, NULL));
        _exit(0);
    }
    tenancy t = {comm, fill_gpu()};
    CHECK(!pthread_create(&thread, NULL, leave_late, &t), "no thread");
    atomic_store(waits, 1);
    OK(rondo_recv(r.in.at, BYTES, RONDO_UINT8, 1, comm, NULL));
    CHECK(comm->messages.peers.kernel, "no kernel");
    gpu_get(r.in.here, r.in.device, r.in.bytes);
    check(&r.in, 0, 1, 0, BYTES);
    CHECK(rondo_barrier(comm, NULL) == RONDO_REMOTE_ERROR, "%s", rondo_last_error(comm));
    pthread_join(thread, NULL);
    discard(&r.out), discard(&r.in);
}

static void what_a_dead_rank_has_sent_is_received(void **state)
{
    (void)state;
    driver = "devices=4 multiprocessors=1";
    run(2, 20, legacy, test_shared(sizeof(_Atomic int)));
    driver = NULL;
}

/* A kernel of rank 1's fails; or it is launched and waits, and the driver refuses what would tell of its end. */
static void fails(rondo_comm *comm, int rank, int n, void *context)
{
    const char *call = context;
    struct cudasim_held held;
    (void)n;
    room r = meet(comm);
    if (rank == 0) { /* rank 1 does not wait for it */
        while (!rd_comm_stopped(comm)) doze(0.01);
    } else {
        doze(0.2 * test_slowness()); /* not while rank 0 is still in the call before, which it would end */
        CHECK(cudasim_fail(call, 1, RD_CU_ERROR_LAUNCH_FAILED, 0) == 0, "%s is no call", call);
        rondo_result result = rondo_recv(r.in.at, 100, RONDO_UINT8, 0, comm, NULL);
        CHECK(result == RONDO_UNHANDLED_CUDA_ERROR, "%s: %s", rondo_result_string(result), rondo_last_error(comm));
    }
    CHECK(rondo_barrier(comm, NULL) != RONDO_SUCCESS, "after %s", call);
    const char *text = rondo_last_error(comm);
    CHECK(strstr(text, "rondo_recv of 100 uint8") && strstr(text, "LAUNCH_FAILED") && strstr(text, "GPU 1"), "%s",
          text);
    rondo_comm_destroy(comm);
    free(r.in.here), free(r.out.here);
    if (!strcmp(call, "kernel")) return; /* the GPU is lost with it */
    cudasim_held(&held);
    CHECK(held.streams + held.registered + held.host_memory == 0,
          "%d streams, %d registrations, %d host allocations are left", held.streams, held.registered,
          held.host_memory);
}

static void a_gpu_that_fails_is_told(void **state)
{
    (void)state;
    run(2, 60, fails, "kernel");
    run(2, 60, fails, "cuLaunchKernel");
    run(2, 60, fails, "cuStreamWriteValue64");
}

/* What is received is not what was sent: the second of two messages. As it is told without kernels. */
static void mismatch(rondo_comm *comm, int rank, int n, void *context)
{
    static const struct {
        size_t count;
        rondo_dtype type;
    } other[] = {{10, RONDO_INT8}, {12, RONDO_FLOAT32}, {90000, RONDO_FLOAT32}};
    int which = *(int *)context;
    char words[100];
    (void)n;
    room r = meet(comm);
    buffer b = r.in;
    OK(rondo_group_start());
    for (int i = 0; i < 2; i++) {
        bool differs = i == 1 && rank == 1;
        size_t count = differs ? other[which].count : 10;
        rondo_dtype type = differs ? other[which].type : RONDO_FLOAT32;
        if (rank == 0) OK(rondo_send(b.at, count, type, 1, comm, NULL));
        if (rank == 1) OK(rondo_recv(b.at + 200000 * i, count, type, 0, comm, NULL));
    }
    rondo_result result = rondo_group_end();
    if (rank == 0 && result == RONDO_SUCCESS) result = rondo_barrier(comm, NULL);
    CHECK(comm->messages.peers.kernel == !strcmp(places, "32"),
          "by kernel where it should not, or the other way round");
    const char *text = rondo_last_error(comm);
    snprintf(words, sizeof words, "rondo_recv of %zu %s from rank 0", other[which].count,
             rd_dtype_name(other[which].type));
    CHECK(result == RONDO_MISMATCH && strstr(text, words) && strstr(text, "does not match"), "%d: %s", result, text);
    CHECK(rondo_barrier(comm, NULL) == RONDO_MISMATCH, "a call after it");
    discard(&r.out), discard(&r.in);
}

static void what_does_not_match_is_told(void **state)
{
    (void)state;
    for (int which = 0; which < 3; which++) {
        run(2, 60, mismatch, &which);
        places = "0";
        run(2, 60, mismatch, &which);
        places = "32";
    }
}

int main(int argc, char **argv)
{
    (void)argc;
    on_cudasim(argv, "devices=4 multiprocessors=32");
    needs_kernels();
    needs_cudasim("launches are counted");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_processes),
        cmocka_unit_test(send_and_recv),
        cmocka_unit_test(as_threads),
        cmocka_unit_test(slices_beside_a_kernel),
        cmocka_unit_test(what_waits_is_freed),
        cmocka_unit_test(what_a_dead_rank_has_sent_is_received),
        cmocka_unit_test(a_gpu_that_fails_is_told),
        cmocka_unit_test(what_does_not_match_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
