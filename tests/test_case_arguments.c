/* SPDX-License-Identifier: Apache-2.0
 *
 * Every argument error: what is said names the argument, its value and what would be valid; nothing was started, so a
 * refused call takes no number and the communicator is as good as before.
 */
#include "test.h"

#include "trial.h"

#include <math.h>

static float in[8 * 8], out[8 * 8]; /* room for 8 elements from each of 8 ranks */

/* The error of the last call, as both questions give it, says all of `words`. */
static void says(const rondo_comm *comm, rondo_result r, rondo_result expected, const char *const words[])
{
    const char *text = rondo_last_error(NULL);
    CHECK(r == expected, "expected %s, got %s (\"%s\")", rondo_result_string(expected), rondo_result_string(r), text);
    CHECK(!comm || !strcmp(text, rondo_last_error(comm)), "the communicator says \"%s\", the thread \"%s\"",
          rondo_last_error(comm), text);
    for (; *words; words++) CHECK(strstr(text, *words), "\"%s\" lacks \"%s\"", text, *words);
}

#define SAYS(comm, call, ...) says(comm, call, RONDO_INVALID_ARGUMENT, (const char *const[]){__VA_ARGS__, NULL})

/* ---- Calls ---- */

static int step; /* of the list below */
static bool mine; /* this rank makes the refused calls of this step */

/* One rank is refused; then all go on. */
#define REFUSED(call, ...)                                       \
    do {                                                         \
        if (mine) SAYS(comm, call, __VA_ARGS__);                 \
        trial_still_works(comm, (uint64_t)step++);               \
        mine = step % n == rank;                                 \
    } while (0)

static void bad_buffers(rondo_comm *comm, int rank, int n)
{
    const rondo_dtype f = RONDO_FLOAT32;
    REFUSED(rondo_all_reduce(NULL, out, 5, f, RONDO_SUM, comm, NULL), "rondo_all_reduce", "send", "NULL", "count 5");
    REFUSED(rondo_all_reduce(in, NULL, 5, f, RONDO_SUM, comm, NULL), "rondo_all_reduce", "recv", "NULL");
    REFUSED(rondo_reduce_scatter(NULL, out, 5, f, RONDO_SUM, comm, NULL), "rondo_reduce_scatter", "send", "NULL");
    REFUSED(rondo_reduce_scatter(in, NULL, 5, f, RONDO_SUM, comm, NULL), "rondo_reduce_scatter", "recv", "NULL");
    REFUSED(rondo_all_gather(NULL, out, 5, f, comm, NULL), "rondo_all_gather", "send", "NULL");
    REFUSED(rondo_all_gather(in, NULL, 5, f, comm, NULL), "rondo_all_gather", "recv", "NULL");
    REFUSED(rondo_broadcast(NULL, out, 5, f, rank, comm, NULL), "rondo_broadcast", "send", "NULL");
    REFUSED(rondo_broadcast(in, NULL, 5, f, rank, comm, NULL), "rondo_broadcast", "recv", "NULL");
    REFUSED(rondo_reduce(NULL, out, 5, f, RONDO_SUM, rank, comm, NULL), "rondo_reduce", "send", "NULL");
    REFUSED(rondo_reduce(in, NULL, 5, f, RONDO_SUM, rank, comm, NULL), "rondo_reduce", "recv", "NULL");
}

static void bad_enumerations(rondo_comm *comm, int rank, int n)
{
    static const int types[] = {-1, RONDO_DTYPES, 99, 0x7fffffff}, ops[] = {-1, RONDO_OPS, 99, 0x7fffffff};
    char number[32];
    for (int k = 0; k < 4; k++)
        for (int c = 0; c < TRIAL_COLLECTIVES; c++) {
            trial t = {.collective = (rondo_collective)c, .dtype = RONDO_FLOAT32, .count = 5, .root = rank};
            bool reduces = c != RONDO_COLL_ALL_GATHER && c != RONDO_COLL_BROADCAST;
            snprintf(number, sizeof number, "is %d;", types[k]);
            t.dtype = (rondo_dtype)types[k];
            REFUSED(trial_call(&t, in, out, comm), "dtype", number, "0 to 11");
            t.dtype = RONDO_FLOAT32;
            t.op = (rondo_op)ops[k];
            snprintf(number, sizeof number, "is %d;", ops[k]);
            if (reduces) REFUSED(trial_call(&t, in, out, comm), "op", number, "0 to 4");
        }
}

static void bad_roots(rondo_comm *comm, int rank, int n)
{
    const int roots[] = {-1, n, n + 1, 0x7fffffff, -0x7fffffff};
    char number[32], range[32];
    snprintf(range, sizeof range, "0 to %d", n - 1);
    for (int k = 0; k < 5; k++) {
        snprintf(number, sizeof number, "root is %d", roots[k]);
        REFUSED(rondo_broadcast(in, out, 5, RONDO_FLOAT32, roots[k], comm, NULL), "rondo_broadcast", number, range);
        REFUSED(rondo_reduce(in, out, 5, RONDO_INT8, RONDO_SUM, roots[k], comm, NULL), "rondo_reduce", number, range);
        REFUSED(rondo_reduce(NULL, NULL, 0, RONDO_INT8, RONDO_SUM, roots[k], comm, NULL), number, range);
    }
}

static void bad_streams(rondo_comm *comm, int rank, int n)
{
    rondo_stream *stream = (rondo_stream *)(void *)out;
    const rondo_dtype f = RONDO_FLOAT32;
    char value[32];
    snprintf(value, sizeof value, "%p", (void *)stream);
    REFUSED(rondo_all_reduce(in, out, 5, f, RONDO_SUM, comm, stream), "stream", value, "NULL");
    REFUSED(rondo_reduce_scatter(in, out, 5, f, RONDO_SUM, comm, stream), "stream", value, "NULL");
    REFUSED(rondo_all_gather(in, out, 5, f, comm, stream), "stream", value, "NULL");
    REFUSED(rondo_broadcast(in, out, 5, f, 0, comm, stream), "stream", value, "NULL");
    REFUSED(rondo_reduce(in, out, 5, f, RONDO_SUM, 0, comm, stream), "stream", value, "NULL");
    REFUSED(rondo_barrier(comm, stream), "rondo_barrier", "stream", value, "NULL");
}

static void calls_rank(rondo_comm *comm, int rank, int n, void *context)
{
    (void)context;
    mine = step % n == rank;
    bad_buffers(comm, rank, n);
    bad_enumerations(comm, rank, n);
    bad_roots(comm, rank, n);
    bad_streams(comm, rank, n);
    /* All refused at once, and more often than anyone calls. */
    for (int k = 0; k < 100 * (rank + 1); k++)
        SAYS(comm, rondo_all_reduce(in, NULL, 5, RONDO_INT8, RONDO_SUM, comm, NULL), "recv");
    trial_still_works(comm, 1);
    rondo_comm_destroy(comm);
}

static void case_bad_calls(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++)
        for (int n = 1; n <= 3; n++) {
            way_take(&ways[w]);
            ranks_run(n, NULL, NULL, calls_rank, NULL);
        }
}

static void case_no_communicator(void **state)
{
    const rondo_dtype f = RONDO_FLOAT32;
    void *memory = NULL;
    (void)state;
    SAYS(NULL, rondo_all_reduce(in, out, 1, f, RONDO_SUM, NULL, NULL), "rondo_all_reduce", "comm", "NULL");
    SAYS(NULL, rondo_reduce_scatter(in, out, 1, f, RONDO_SUM, NULL, NULL), "rondo_reduce_scatter", "comm", "NULL");
    SAYS(NULL, rondo_all_gather(in, out, 1, f, NULL, NULL), "rondo_all_gather", "comm", "NULL");
    SAYS(NULL, rondo_broadcast(in, out, 1, f, 0, NULL, NULL), "rondo_broadcast", "comm", "NULL");
    SAYS(NULL, rondo_reduce(in, out, 1, f, RONDO_SUM, 0, NULL, NULL), "rondo_reduce", "comm", "NULL");
    SAYS(NULL, rondo_barrier(NULL, NULL), "rondo_barrier", "comm", "NULL");
    SAYS(NULL, rondo_comm_abort(NULL), "rondo_comm_abort", "comm", "NULL");
    SAYS(NULL, rondo_register(in, 4, NULL), "rondo_register", "comm", "NULL");
    SAYS(NULL, rondo_deregister(in, NULL), "rondo_deregister", "comm", "NULL");
    SAYS(NULL, rondo_version(NULL), "rondo_version", "version", "NULL");
    SAYS(NULL, rondo_mem_alloc(NULL, 4, NULL), "rondo_mem_alloc", "ptr", "NULL");
    SAYS(NULL, rondo_mem_alloc(&memory, (size_t)-4, NULL), "rondo_mem_alloc", "bytes", "18446744073709551612");
    SAYS(NULL, rondo_mem_free(in, NULL), "rondo_mem_free", "ptr");
    assert_null(memory);
    assert_int_equal(rondo_comm_destroy(NULL), RONDO_SUCCESS);
    assert_int_equal(rondo_mem_free(NULL, NULL), RONDO_SUCCESS);
    assert_int_equal(rondo_comm_rank(NULL), -1);
    assert_int_equal(rondo_comm_size(NULL), -1);
    assert_non_null(rondo_result_string((rondo_result)12345));
}

/* ---- Start-up ---- */

static void case_bad_worlds(void **state)
{
    rondo_unique_id id, zero = {{0}};
    char mark;
    rondo_comm *const untouched = (rondo_comm *)(void *)&mark, *comm = untouched;
    int devices[] = {RONDO_DEVICE_HOST, 0};
    (void)state;
    assert_int_equal(rondo_get_unique_id(&id), RONDO_SUCCESS);
    SAYS(NULL, rondo_get_unique_id(NULL), "id", "NULL");
    SAYS(NULL, rondo_init_rank(NULL, 1, id, 0, NULL), "rondo_init_rank", "comm", "NULL");
    SAYS(NULL, rondo_init_rank(&comm, 0, id, 0, NULL), "rondo_init_rank", "world_size is 0", "at least 1");
    SAYS(NULL, rondo_init_rank(&comm, -3, id, 0, NULL), "world_size is -3", "at least 1");
    SAYS(NULL, rondo_init_rank(&comm, 4, id, 4, NULL), "rank is 4", "world_size 4", "0 to 3");
    SAYS(NULL, rondo_init_rank(&comm, 4, id, -1, NULL), "rank is -1", "0 to 3");
    SAYS(NULL, rondo_init_rank(&comm, 1, zero, 0, NULL), "id");
    SAYS(NULL, rondo_init_env(NULL, NULL), "rondo_init_env", "comm", "NULL");
    SAYS(NULL, rondo_init_all(NULL, 1, NULL), "rondo_init_all", "comms", "NULL");
    SAYS(NULL, rondo_init_all(&comm, 0, NULL), "rondo_init_all", "is 0", "at least 1");
    SAYS(NULL, rondo_init_all(&comm, 2, devices), "device", "is 0", "RONDO_DEVICE_HOST");
    assert_ptr_equal(comm, untouched);
}

static void case_bad_configurations(void **state)
{
    static const struct {
        rondo_config config;
        const char *words[3];
    } bad[] = {
        {{0, 600, 10, -1, 0, 0, NULL, NULL, 0, 0}, {"size", "0", "RONDO_CONFIG_INIT"}},
        {{3, 600, 10, -1, 0, 0, NULL, NULL, 0, 0}, {"size", "3", "RONDO_CONFIG_INIT"}},
        {{sizeof(rondo_config), 0, 10, -1, 0, 0, NULL, NULL, 0, 0}, {"timeout_s", "0", "0.001"}},
        {{sizeof(rondo_config), -5, 10, -1, 0, 0, NULL, NULL, 0, 0}, {"timeout_s", "-5", "0.001"}},
        {{sizeof(rondo_config), (double)NAN, 10, -1, 0, 0, NULL, NULL, 0, 0}, {"timeout_s", "nan", "0.001"}},
        {{sizeof(rondo_config), (double)INFINITY, 10, -1, 0, 0, NULL, NULL, 0, 0}, {"timeout_s", "inf", "1000000000"}},
        {{sizeof(rondo_config), 600, 0, -1, 0, 0, NULL, NULL, 0, 0}, {"slow_warning_s", "0", "0.001"}},
        {{sizeof(rondo_config), 600, 10, 0, 0, 0, NULL, NULL, 0, 0}, {"device", "0", "RONDO_DEVICE_HOST"}},
        {{sizeof(rondo_config), 600, 10, -3, 0, 0, NULL, NULL, 0, 0}, {"device", "-3", "RONDO_DEVICE_HOST"}},
        {{sizeof(rondo_config), 600, 10, -1, 9, 0, NULL, NULL, 0, 0}, {"channels", "9", "0 to 8"}},
        {{sizeof(rondo_config), 600, 10, -1, -1, 0, NULL, NULL, 0, 0}, {"channels", "-1", "0 to 8"}},
        {{sizeof(rondo_config), 600, 10, -1, 0, 100, NULL, NULL, 0, 0}, {"slice_bytes", "100", "4096 to 262144"}},
        {{sizeof(rondo_config), 600, 10, -1, 0, 4097, NULL, NULL, 0, 0}, {"slice_bytes", "4097", "multiple of 64"}},
        {{sizeof(rondo_config), 600, 10, -1, 0, 0, "smh", NULL, 0, 0}, {"transport", "smh", "shm"}},
        {{sizeof(rondo_config), 600, 10, -1, 0, 0, NULL, "rings", 0, 0}, {"algo", "rings", "ring, flat, exchange or hier"}},
    };
    rondo_unique_id id;
    rondo_comm *comm = NULL;
    (void)state;
    assert_int_equal(rondo_get_unique_id(&id), RONDO_SUCCESS);
    test_env("RONDO_TRANSPORT", NULL);
    test_env("RONDO_ALGO", NULL);
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        SAYS(NULL, rondo_init_rank(&comm, 1, id, 0, &bad[k].config), bad[k].words[0], bad[k].words[1], bad[k].words[2]);
    assert_null(comm);

    rondo_config good = RONDO_CONFIG_INIT; /* the id is still good */
    good.device = RONDO_DEVICE_HOST;
    good.slice_bytes = 4096;
    assert_int_equal(rondo_init_rank(&comm, 1, id, 0, &good), RONDO_SUCCESS);
    trial_still_works(comm, 3);
    rondo_comm_destroy(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_bad_calls),
        cmocka_unit_test(case_no_communicator),
        cmocka_unit_test(case_bad_worlds),
        cmocka_unit_test(case_bad_configurations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
