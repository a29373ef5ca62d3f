/* SPDX-License-Identifier: Apache-2.0
 *
 * test_ddp_gpu.c - training in GPU memory: the host's bits, memory of all kinds, ranks on GPUs and on the host
 * together, the order of CUDA streams, pointers that a rank cannot use. Over the simulated driver, or with CUDASIM=off
 * on what GPUs there are.
 */
#include "gpu_kit.h"
#include "on_cudasim.h"
#include "ranks.h"
#include "rondo_ddp.h"
#include "tensors.h"
#include "test.h"

#include <unistd.h>


/* ---- The host's bits ---- */

enum { RANKS = 3, TENSORS = 4, MOST = 3001, STEPS = 3, SETTINGS = 6 };
static const size_t counts[TENSORS] = {1, 77, 1000, MOST};

/* Not exact in any order but one. */
static float rough(int rank, int step, int p, int i)
{
    unsigned x = (unsigned)(i * 7919 + p * 104729 + rank * 1299709 + step * 31) * 2654435761u;
    return (float)(x >> 8) * 1e-7f * (x & 1 ? -1 : 1);
}

typedef struct results {
    float gradient[STEPS][TENSORS][MOST], statistic[STEPS][MOST];
    double norm[STEPS];
} results;

typedef struct trial {
    rondo_ddp_config config;
    results *of; /* each rank's */
} trial;

static void trains(rondo_comm *comm, int rank, int n, void *context)
{
    static float g[MOST];
    static const char *const names[TENSORS] = {"a", "b", "c", "d"};
    const trial *t = context;
    results *mine = &t->of[rank];
    void *gradient[TENSORS];
    rondo_ddp_tensor tensor[TENSORS], buffer;
    rondo_ddp *ddp = NULL;
    (void)n;
    for (int p = 0; p < TENSORS; p++) {
        gradient[p] = p % 2 ? tensor_new(NULL, counts[p] * sizeof(float)) : NULL;
        tensor[p] = (rondo_ddp_tensor){names[p], tensor_new(NULL, counts[p] * sizeof(float)), counts[p], RONDO_FLOAT32,
                                       &gradient[p]};
    }
    buffer = (rondo_ddp_tensor){"statistic", tensor_new(NULL, sizeof g), MOST, RONDO_FLOAT32, NULL};
    OK(rondo_ddp_create(&ddp, tensor, TENSORS, &buffer, 1, comm, &t->config));
    for (int step = 0; step < STEPS; step++) {
        OK(rondo_ddp_forward(ddp, (size_t)(1 + rank), NULL));
        for (int i = 0; i < MOST; i++) g[i] = rough(rank, step, 9, i);
        tensor_get(mine->statistic[step], buffer.data, sizeof g);
        tensor_put(buffer.data, g, sizeof g);
        for (int p = 0; p < TENSORS; p++) {
            for (int i = 0; i < (int)counts[p]; i++) g[i] = rough(rank, step, p, i);
            tensor_put(gradient[p], g, counts[p] * sizeof(float));
            OK(rondo_ddp_ready(ddp, p));
        }
        OK(rondo_ddp_wait(ddp));
        OK(rondo_ddp_clip(ddp, 1, &mine->norm[step]));
        for (int p = 0; p < TENSORS; p++) tensor_get(mine->gradient[step][p], gradient[p], counts[p] * sizeof(float));
    }
    OK(rondo_ddp_destroy(ddp));
    bool by_gpu = is_cudasim() && tensors_on_gpu() && t->config.compression == RONDO_DDP_AS_IS;
    CHECK(!by_gpu || cudasim_calls("kernel") > 0, "no kernel has run");
}

static trial settings(int k)
{
    trial t = {.config = RONDO_DDP_CONFIG_INIT};
    t.config.first_bucket_bytes = t.config.bucket_bytes = 4000;
    t.config.reduce = (rondo_ddp_reduce)(k % 3);
    t.config.find_unused = k % 2;
    t.config.buffers = k % 2 ? RONDO_DDP_BUFFERS_MEAN : RONDO_DDP_BUFFERS_FIRST;
    t.config.compression = (rondo_ddp_compression)(k / 2);
    return t;
}

static void bits_are_the_host_s(void **state)
{
    (void)state;
    results *host = test_shared(RANKS * sizeof *host), *gpus = test_shared(RANKS * sizeof *gpus);
    for (int k = 0; k < SETTINGS; k++) {
        trial t = settings(k);
        memset(host, 0, RANKS * sizeof *host);
        memset(gpus, 0, RANKS * sizeof *gpus);
        test_env("RONDO_TEST_TENSORS", "the host");
        t.of = host;
        ranks_run(RANKS, NULL, tensors_set_up, trains, &t);
        test_env("RONDO_TEST_TENSORS", "GPUs");
    test_env("RONDO_NUMERICS", "accurate"); /* GPUs round narrow sums at each hop else, and the host does not */
        t.of = gpus;
        ranks_run(RANKS, NULL, tensors_set_up, trains, &t);
        assert_memory_equal(host, gpus, RANKS * sizeof *host);
        assert_true(host->norm[0] > 1);
        assert_memory_equal(&gpus[0].gradient, &gpus[2].gradient, sizeof gpus->gradient);
    }
}

/* ---- All kinds of memory ---- */

enum kind { PLAIN, PINNED, MANAGED, DEVICE, KINDS };

static void *make(enum kind kind, size_t bytes)
{
    static unsigned char plain[4][1024];
    static int given;
    void *host = plain[given++ % 4];
    rd_cu_address made = 0;
    if (kind == PINNED) GPU(cuMemHostAlloc, &host, bytes, 0);
    if (kind == MANAGED) GPU(cuMemAllocManaged, &made, bytes, RD_CU_MEM_ATTACH_GLOBAL);
    if (kind == DEVICE) GPU(cuMemAlloc, &made, bytes);
    return made ? (void *)(uintptr_t)made : host;
}

static void kinds_of(rondo_comm *comm, int rank, int n, void *context)
{
    enum { COUNT = 50 };
    (void)context;
    for (int k = 0; k < KINDS * KINDS; k++) {
        float g[COUNT];
        void *gradient[2] = {make((enum kind)(k % KINDS), sizeof g), NULL};
        void *value[2] = {make((enum kind)(k / KINDS), sizeof g), make((enum kind)(k / KINDS), sizeof g)};
        rondo_ddp_tensor tensor[2] = {{"own", value[0], COUNT, RONDO_FLOAT32, &gradient[0]},
                                      {"view", value[1], COUNT, RONDO_FLOAT32, &gradient[1]}};
        rondo_ddp *ddp = NULL;
        for (int i = 0; i < COUNT; i++) g[i] = (float)(i + 100 * rank);
        for (int p = 0; p < 2; p++) tensor_put(value[p], g, sizeof g);
        OK(rondo_ddp_create(&ddp, tensor, 2, NULL, 0, comm, NULL));
        for (int p = 0; p < 2; p++) {
            tensor_put(gradient[p], g, sizeof g);
            OK(rondo_ddp_ready(ddp, p));
        }
        OK(rondo_ddp_wait(ddp));
        bool on_gpu = rd_gpu_locate(gradient[1]).device;
        CHECK(on_gpu == (k / KINDS == DEVICE), "parameters of kind %d, and the view is %s GPU's", k / KINDS,
              on_gpu ? "the" : "no");
        for (int p = 0; p < 2; p++) {
            float got[COUNT];
            tensor_get(got, value[p], sizeof got);
            for (int i = 0; i < COUNT; i++) CHECK(got[i] == (float)i, "kind %d: value %d is %g", k, i, (double)got[i]);
            tensor_get(got, gradient[p], sizeof got);
            for (int i = 0; i < COUNT; i++)
                CHECK(got[i] == (float)i + 50 * (float)(n - 1), "kind %d: %d is %g", k, i, (double)got[i]);
        }
        OK(rondo_ddp_destroy(ddp));
        CHECK(!gradient[1], "the pointer after destroy");
    }
}

static void every_kind_of_memory(void **state)
{
    (void)state;
    ranks_run(2, NULL, tensors_set_up, kinds_of, NULL);
}

/* Rank 1 stays on the host. */
static void one_on_a_gpu(int rank, void *context)
{
    if (rank == 1) test_env("RONDO_TEST_TENSORS", "the host");
    tensors_set_up(rank, context);
}

static void gpus_and_hosts(void **state)
{
    (void)state;
    results *mixed = test_shared(RANKS * sizeof *mixed), *gpus = test_shared(RANKS * sizeof *gpus);
    for (int k = 0; k < SETTINGS; k += 2) {
        trial t = settings(k);
        t.of = mixed;
        ranks_run(RANKS, NULL, one_on_a_gpu, trains, &t);
        t.of = gpus;
        ranks_run(RANKS, NULL, tensors_set_up, trains, &t);
        assert_memory_equal(mixed, gpus, RANKS * sizeof *mixed);
    }
}

/* ---- The order of streams ---- */

static void take_time(void *argument)
{
    (void)argument;
    usleep(20000);
}

/* Gradients that are still under way when ready is called; nobody waits for them, and nothing of the library's stays.
 */
static void streams_of(rondo_comm *comm, int rank, int n, void *context)
{
    enum { COUNT = 16 }; /* exact in bfloat16 */
    rondo_ddp_config config = RONDO_DDP_CONFIG_INIT;
    rd_cu_stream stream;
    float *from;
    void *place, *gradient[2] = {tensor_new(NULL, COUNT * sizeof(float)), NULL};
    rondo_ddp_tensor tensor[2] = {
        {"own", tensor_new(NULL, COUNT * sizeof(float)), COUNT, RONDO_FLOAT32, &gradient[0]},
        {"view", tensor_new(NULL, COUNT * sizeof(float)), COUNT, RONDO_FLOAT32, &gradient[1]}};
    struct cudasim_held before = {0}, after;
    (void)context;
    GPU(cuMemHostAlloc, &place, COUNT * sizeof(float), 0);
    GPU(cuStreamCreateWithPriority, &stream, 0, 0);
    from = place;
    for (int k = 0; k < 6; k++) { /* the first time the communicator may take memory that it keeps */
        rondo_ddp *ddp = NULL;
        config.compression = (rondo_ddp_compression)(k % 3);
        if (k == 3 && is_cudasim()) cudasim_held(&before);
        OK(rondo_ddp_create(&ddp, tensor, 2, NULL, 0, comm, &config));
        for (int step = 1; step < 4; step++) {
            float got[COUNT];
            for (int i = 0; i < COUNT; i++) from[i] = (float)(step * (i + rank));
            for (int p = 0; p < 2; p++) {
                GPU(cuLaunchHostFunc, stream, take_time, NULL);
                GPU(cuMemcpyAsync, (uintptr_t)gradient[p], (uintptr_t)from, sizeof got, stream);
                OK(rondo_ddp_ready(ddp, p));
            }
            OK(rondo_ddp_wait(ddp));
            for (int p = 0; p < 2; p++) {
                tensor_get(got, gradient[p], sizeof got);
                for (int i = 0; i < COUNT; i++)
                    CHECK(got[i] == (float)step * ((float)i + (float)(n - 1) / 2), "step %d: %d is %g", step, i,
                          (double)got[i]);
            }
        }
        OK(rondo_ddp_destroy(ddp));
    }
    if (!is_cudasim()) return;
    cudasim_held(&after);
    CHECK(after.host_memory == before.host_memory && after.device_memory == before.device_memory,
          "%d host and %d device allocations are left", after.host_memory - before.host_memory,
          after.device_memory - before.device_memory);
}

static void gradients_may_be_under_way(void **state)
{
    (void)state;
    ranks_run(2, NULL, tensors_set_up, streams_of, NULL);
}

/* ---- Pointers that cannot be used ---- */

static void expect(rondo_result result, const char *text)
{
    CHECK(result == RONDO_INVALID_ARGUMENT && strstr(rondo_last_error(NULL), text), "%s: '%s' lacks '%s'",
          rondo_result_string(result), rondo_last_error(NULL), text);
}

static void *freed(void)
{
    void *gone = make(DEVICE, 64);
    GPU(cuMemFree, (uintptr_t)gone);
    return gone;
}

static void *of_gpu(int device)
{
    rd_cu_context context;
    GPU(cuDevicePrimaryCtxRetain, &context, device);
    GPU(cuCtxPushCurrent, context);
    void *made = make(DEVICE, 64);
    GPU(cuCtxPopCurrent, NULL);
    return made;
}

/* Rank 1 uses GPU 1. What it was given is said on both. */
static void wrongs(rondo_comm *comm, int rank, int n, void *context)
{
    void *gradient[2] = {NULL, NULL}, *good = tensor_new(NULL, 64), *other = of_gpu(1 - rank);
    rondo_ddp_tensor tensor[2] = {{"a", tensor_new(NULL, 64), 4, RONDO_FLOAT32, &gradient[0]},
                                  {"b", tensor_new(NULL, 64), 4, RONDO_FLOAT32, &gradient[1]}};
    rondo_ddp_tensor buffer = {"s", good, 4, RONDO_FLOAT32, NULL};
    rondo_ddp *ddp = NULL;
    (void)n;
    (void)context;
    void *right = tensor[1].data;
    if (rank == 1) tensor[1].data = other;
    expect(rondo_ddp_create(&ddp, tensor, 2, &buffer, 1, comm, NULL), "rondo_ddp_create: parameter 1 'b': data is ");
    expect(RONDO_INVALID_ARGUMENT, "memory of GPU 0, and rank 1 of this communicator uses GPU 1; make one with "
                                   "config.device = 0");
    if (rank == 1) tensor[1].data = freed();
    expect(rondo_ddp_create(&ddp, tensor, 2, &buffer, 1, comm, NULL), "parameter 1 'b': data is ");
    expect(RONDO_INVALID_ARGUMENT, "neither of a GPU nor of the host; was it freed? (on rank 1)");
    tensor[1].data = right;
    if (rank == 1) gradient[0] = other;
    expect(rondo_ddp_create(&ddp, tensor, 2, &buffer, 1, comm, NULL), "parameter 0 'a': gradient is ");
    gradient[0] = NULL;
    if (rank == 1) buffer.data = other;
    expect(rondo_ddp_create(&ddp, tensor, 2, &buffer, 1, comm, NULL), "buffer 0 's': data is ");
    buffer.data = good;

    OK(rondo_ddp_create(&ddp, tensor, 2, &buffer, 1, comm, NULL));
    OK(rondo_ddp_forward(ddp, 1, NULL));
    void *view = gradient[1];
    gradient[1] = other;
    expect(rondo_ddp_ready(ddp, 1), "rondo_ddp_ready: parameter 1 'b': gradient is ");
    gradient[1] = freed();
    expect(rondo_ddp_ready(ddp, 1), "was it freed?");
    gradient[1] = view; /* and nothing is lost */
    for (int p = 0; p < 2; p++) OK(rondo_ddp_ready(ddp, p));
    OK(rondo_ddp_wait(ddp));
    gradient[0] = other;
    expect(rondo_ddp_clip(ddp, 1, NULL), "rondo_ddp_clip: parameter 0 'a': gradient is ");
    OK(rondo_ddp_destroy(ddp));
}

/* The communicator is the host's, and its tensors are not. */
static void host_with_gpu_memory(rondo_comm *comm, int rank, int n, void *context)
{
    void *gradient = NULL;
    rondo_ddp_tensor tensor = {"a", of_gpu(0), 4, RONDO_FLOAT32, &gradient};
    rondo_ddp *ddp = NULL;
    (void)rank;
    (void)n;
    (void)context;
    expect(rondo_ddp_create(&ddp, &tensor, 1, NULL, 0, comm, NULL), "parameter 0 'a': data is ");
    expect(RONDO_INVALID_ARGUMENT, "rank 0 of this communicator uses host memory; make one with config.device = 0");
}

static void pointers_that_cannot_be_used(void **state)
{
    (void)state;
    rondo_config config = RONDO_CONFIG_INIT;
    if (is_cudasim()) ranks_run(2, NULL, tensors_set_up, wrongs, NULL); /* which has two GPUs */
    config.timeout_s = 20;
    config.device = RONDO_DEVICE_HOST;
    ranks_run(2, &config, NULL, host_with_gpu_memory, NULL);
}

int main(int argc, char **argv)
{
    (void)argc;
    test_env("RONDO_TEST_TENSORS", "GPUs");
    tensors_everywhere(argv);
    alarm((unsigned)(120 * test_slowness()));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_the_host_s),
        cmocka_unit_test(every_kind_of_memory),
        cmocka_unit_test(gpus_and_hosts),
        cmocka_unit_test(gradients_may_be_under_way),
        cmocka_unit_test(pointers_that_cannot_be_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
