/* SPDX-License-Identifier: Apache-2.0
 *
 * test_device_groups.c - a group's collectives of one type on GPUs are one launch, whatever they are and however long:
 * of ranks as processes and as threads, beside ranks that go slice by slice. What does not match, or does not come,
 * ends as it does for one call. Over the simulated driver, which counts launches.
 */
#include "test.h"

#include "base/dtype.h"
#include "core/comm.h"
#include "elements.h"
#include "gpu_kit.h"
#include "on_cudasim.h"
#include "reduce/device.h"

#include <unistd.h>

enum { GPUS = 4, RANKS = 8, MOST_ITEMS = 20, MOST_COUNT = 40001 };

static void set_up(int rank, void *context)
{
    char device[16];
    (void)context;
    snprintf(device, sizeof device, "%d", rank % GPUS);
    test_env("RONDO_DEVICE", device);
    test_env("RONDO_CHANNELS", "2");
}

static void run(int n, double timeout_s, rank_fn f, void *context)
{
    rondo_config config = RONDO_CONFIG_INIT;
    config.timeout_s = timeout_s * test_slowness();
    ranks_run(n, &config, set_up, f, context);
}

/* ---- Calls of a group ---- */

/* Short ones go in packets by one channel, long ones by two: both in one launch. */
typedef struct item {
    rondo_collective collective;
    rondo_op op;
    size_t count;
    int root;
} item;
static const item items[] = {
    {RONDO_COLL_ALL_REDUCE, RONDO_SUM, 33, 0},     {RONDO_COLL_ALL_REDUCE, RONDO_MAX, MOST_COUNT, 0},
    {RONDO_COLL_BROADCAST, RONDO_SUM, 1003, 1},    {RONDO_COLL_ALL_GATHER, RONDO_SUM, 517, 0},
    {RONDO_COLL_ALL_REDUCE, RONDO_SUM, 0, 0},      {RONDO_COLL_REDUCE_SCATTER, RONDO_SUM, 2001, 0},
    {RONDO_COLL_REDUCE, RONDO_MIN, 70, 1},         {RONDO_COLL_ALL_REDUCE, RONDO_SUM, 1, 0},
};
enum { ITEMS = sizeof items / sizeof *items };

/* Every item has its own memory: what it sends, and behind that what it receives, each with room for a part of every
 * rank's. */
typedef struct room {
    rd_cu_address device;
    unsigned char *here;
    size_t each, bytes;
} room;

static room open_room(int rank, int n)
{
    room r = {.each = (size_t)(MOST_COUNT + 2001 * n) * 8};
    r.bytes = 2 * MOST_ITEMS * r.each;
    gpu_enter(rank % GPUS);
    r.here = calloc(1, r.bytes);
    GPU(cuMemAlloc, &r.device, r.bytes);
    return r;
}

/* When no call will come any more: it waits for all that the GPU was given. */
static void close_room(room *r, rondo_comm *comm)
{
    OK(rondo_barrier(comm, NULL));
    GPU(cuMemFree, r->device);
    free(r->here);
}

static size_t parts(rondo_collective c, bool sends, int n)
{
    return c == (sends ? RONDO_COLL_REDUCE_SCATTER : RONDO_COLL_ALL_GATHER) ? (size_t)n : 1;
}

static void fill(const room *r, int i, const item *it, rondo_dtype type, int rank, int n)
{
    size_t bytes = rd_dtype_bytes(type);
    unsigned char *at = r->here + (size_t)(2 * i) * r->each;
    memset(at, 0x5a, 2 * r->each);
    for (size_t k = 0; k < it->count * parts(it->collective, true, n); k++)
        element_put(at + k * bytes, type, element_term(type, it->op, rank, n, k, (uint64_t)i));
}

static double expected(const item *it, int i, rondo_dtype type, int rank, int n, size_t k)
{
    uint64_t seed = (uint64_t)i;
    switch (it->collective) {
    case RONDO_COLL_BROADCAST: return element_term(type, it->op, it->root, n, k, seed);
    case RONDO_COLL_ALL_GATHER: return element_term(type, it->op, (int)(k / it->count), n, k % it->count, seed);
    case RONDO_COLL_REDUCE_SCATTER: return element_result(type, it->op, n, (size_t)rank * it->count + k, seed);
    default: return element_result(type, it->op, n, k, seed);
    }
}

static void check(const room *r, int i, const item *it, rondo_dtype type, int rank, int n)
{
    size_t bytes = rd_dtype_bytes(type), all = it->count * parts(it->collective, false, n);
    const unsigned char *at = r->here + (size_t)(2 * i + 1) * r->each;
    if (it->collective == RONDO_COLL_REDUCE && rank != it->root) all = 0;
    for (size_t k = 0; k < all; k++) {
        double is = element_get(at + k * bytes, type), right = element_round(expected(it, i, type, rank, n, k), type);
        CHECK(is == right, "item %d of %s: element %zu is %g, not %g", i, rd_dtype_name(type), k, is, right);
    }
    CHECK(at[all * bytes] == 0x5a, "item %d: something was written behind it", i);
}

static void issue(const room *r, int i, const item *it, rondo_dtype type, rondo_comm *comm)
{
    const unsigned char *send = (unsigned char *)(uintptr_t)r->device + (size_t)(2 * i) * r->each;
    unsigned char *recv = (unsigned char *)(uintptr_t)r->device + (size_t)(2 * i + 1) * r->each;
    switch (it->collective) {
    case RONDO_COLL_REDUCE_SCATTER: OK(rondo_reduce_scatter(send, recv, it->count, type, it->op, comm, NULL)); break;
    case RONDO_COLL_ALL_GATHER: OK(rondo_all_gather(send, recv, it->count, type, comm, NULL)); break;
    case RONDO_COLL_BROADCAST: OK(rondo_broadcast(send, recv, it->count, type, it->root, comm, NULL)); break;
    case RONDO_COLL_REDUCE: OK(rondo_reduce(send, recv, it->count, type, it->op, it->root, comm, NULL)); break;
    default: OK(rondo_all_reduce(send, recv, it->count, type, it->op, comm, NULL));
    }
}

/* `count` items as a group, from the second half on of another type where there is one. Returns the launches. */
static unsigned long group(const room *r, int count, rondo_dtype type, rondo_dtype other, rondo_comm *comm)
{
    int rank = rondo_comm_rank(comm), n = rondo_comm_size(comm);
#define TYPE(i) ((i) < count / 2 ? type : other)
    for (int i = 0; i < count; i++) fill(r, i, &items[i % ITEMS], TYPE(i), rank, n);
    gpu_put(r->device, r->here, 2 * (size_t)count * r->each);
    unsigned long kernels = cudasim_calls("kernel");
    OK(rondo_group_start());
    for (int i = 0; i < count; i++) issue(r, i, &items[i % ITEMS], TYPE(i), comm);
    OK(rondo_group_end());
    kernels = cudasim_calls("kernel") - kernels;
    gpu_get(r->here, r->device, 2 * (size_t)count * r->each);
    for (int i = 0; i < count; i++) check(r, i, &items[i % ITEMS], TYPE(i), rank, n);
#undef TYPE
    return kernels;
}

static void launches(rondo_comm *comm, int rank, int n, void *context)
{
    static const rondo_dtype types[] = {RONDO_FLOAT32, RONDO_INT64, RONDO_BFLOAT16, RONDO_UINT8};
    room r = open_room(rank, n);
    (void)context;
    for (int t = 0; t < 4; t++) {
        unsigned long kernels = group(&r, ITEMS, types[t], types[t], comm);
        CHECK(kernels == 1, "%d ranks, %s: %lu launches", n, rd_dtype_name(types[t]), kernels);
    }
    unsigned long kernels = group(&r, ITEMS, RONDO_FLOAT32, RONDO_INT32, comm);
    CHECK(kernels == 2, "of two types: %lu launches", kernels);
    kernels = group(&r, MOST_ITEMS, RONDO_FLOAT32, RONDO_FLOAT32, comm);
    CHECK(kernels == 2, "more than a launch has: %lu launches", kernels);
    close_room(&r, comm);
}

static void as_processes(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n++) run(n, 20, launches, NULL);
    if (test_slowness() <= 1) run(RANKS, 20, launches, NULL);
}

/* Rank 1 makes a launch of each slice. */
static void beside_slices(rondo_comm *comm, int rank, int n, void *context)
{
    room r = open_room(rank, n);
    (void)context;
    if (rank == 1) comm->wiring.kernel = 0;
    comm->wiring.kernels = 0; /* as if they had told one another */
    unsigned long kernels = group(&r, ITEMS, RONDO_FLOAT32, RONDO_FLOAT32, comm);
    CHECK(rank == 1 ? kernels > ITEMS : kernels == 1, "rank %d: %lu launches", rank, kernels);
    close_room(&r, comm);
}

static void beside_ranks_without(void **state)
{
    (void)state;
    for (int n = 2; n <= 3; n++) run(n, 20, beside_slices, NULL);
}

/* ---- Ranks as threads of one process ---- */

static void *as_thread(void *context)
{
    rondo_comm *comm = context;
    room r = open_room(rondo_comm_rank(comm), rondo_comm_size(comm));
    for (int turn = 0; turn < 3; turn++) group(&r, ITEMS, RONDO_FLOAT32, RONDO_FLOAT32, comm);
    close_room(&r, comm);
    OK(rondo_comm_destroy(comm));
    return NULL;
}

static void as_threads(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n++) gpu_threads(n, GPUS, as_thread);
}

/* ---- Failures ---- */

/* The last rank's third call has another count, or it makes two calls only. */
static void differs(rondo_comm *comm, int rank, int n, void *context)
{
    bool shorter = *(bool *)context;
    room r = open_room(rank, n);
    OK(rondo_barrier(comm, NULL));
    OK(rondo_group_start());
    for (int i = 0; i < 4; i++) {
        item one = items[0];
        if (rank == n - 1 && i == 2 && !shorter) one.count++;
        if (rank < n - 1 || !shorter || i < 2) issue(&r, i, &one, RONDO_FLOAT32, comm);
    }
    rondo_result result = rondo_group_end();
    if (shorter && rank == n - 1) {
        CHECK(result == RONDO_SUCCESS || result == RONDO_REMOTE_ERROR, "%s", rondo_result_string(result));
        while (!rd_comm_stopped(comm)) usleep(10000);
    } else {
        CHECK(result == (shorter ? RONDO_TIMEOUT : RONDO_MISMATCH) || result == RONDO_REMOTE_ERROR, "%s: %s",
              rondo_result_string(result), rondo_last_error(comm));
    }
    rd_engine *engine = rd_device_engine(comm->device);
    CHECK(rd_engine_done(engine, engine->given), "the kernel is still there");
    GPU(cuMemFree, r.device);
    free(r.here);
}

static void what_does_not_match_ends(void **state)
{
    (void)state;
    for (int n = 2; n <= 3; n++) {
        run(n, 20, differs, &(bool){false});
        run(n, 2, differs, &(bool){true});
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
        cmocka_unit_test(beside_ranks_without),
        cmocka_unit_test(as_threads),
        cmocka_unit_test(what_does_not_match_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
