/* SPDX-License-Identifier: Apache-2.0
 *
 * test_contract.c - docs/contract.md: calls and settings that differ (cases 13, 14, 15), calls that are refused. The
 * timeout is ten minutes, so whatever ends within seconds was noticed.
 */
#include "test.h"

#include "ranks.h"

#include <ctype.h>
#include <unistd.h>

#define SOON (5 * test_slowness())
#define MOST 409600

static rondo_config patient(void)
{
    rondo_config config = RONDO_CONFIG_INIT;
    config.timeout_s = 600;
    return config;
}

/* Does the text say of this rank that it is at `what`? Its list reads "; rank 2 (pid 7 on h): WHAT; ranks 0, 3-5:
 * WHAT". */
static bool says_of(const char *text, int rank, const char *what)
{
    for (const char *at = strstr(text, "; rank"); at; at = strstr(at + 1, "; rank")) {
        const char *end = strstr(at + 1, "; rank"), *colon = strstr(at, ": ");
        bool concerned = false;
        if (!colon || (end && colon > end)) continue;
        at += strlen("; rank");
        if (*at == 's') {
            for (const char *p = at + 1; p < colon; p++) {
                char *after;
                if (!isdigit((unsigned char)*p)) continue;
                long first = strtol(p, &after, 10), last = *after == '-' ? strtol(after + 1, &after, 10) : first;
                concerned = concerned || (rank >= first && rank <= last);
                p = after;
            }
        } else {
            concerned = strtol(at, NULL, 10) == rank;
        }
        const char *found = strstr(colon, what);
        if (concerned) return found && (!end || found < end);
    }
    return false;
}

/* ---- One rank's call differs ---- */

typedef enum deed {
    NOTHING,
    REDUCE_409600,
    REDUCE_409598,
    REDUCE_1,
    REDUCE_2,
    REDUCE_100,
    GATHER_ALL_15,
    AS_INT,
    AS_MAX,
    BARRIER,
    REDUCE_0,
    TWO_TOGETHER,
    TWO_SINGLE,
    BROADCAST,
    REDUCE_TO,
    GATHER,
    SCATTER,
    ALL_TO_ALL,
    RECV_7,
    SEND_8
} deed;

static rondo_result make(rondo_comm *comm, deed what, int root)
{
    static float a[MOST], b[MOST];
    rondo_result result;
    for (int i = 0; i < MOST; i++) a[i] = (float)(i % 97 + rondo_comm_rank(comm));
    switch (what) {
    case REDUCE_409600: return rondo_all_reduce(a, b, 409600, RONDO_FLOAT32, RONDO_SUM, comm, NULL);
    case REDUCE_409598: return rondo_all_reduce(a, b, 409598, RONDO_FLOAT32, RONDO_SUM, comm, NULL);
    case REDUCE_0: return rondo_all_reduce(a, b, 0, RONDO_UINT8, RONDO_SUM, comm, NULL);
    case REDUCE_1: return rondo_all_reduce(a, b, 1, RONDO_FLOAT32, RONDO_SUM, comm, NULL);
    case REDUCE_2: return rondo_all_reduce(a, b, 2, RONDO_FLOAT32, RONDO_SUM, comm, NULL);
    case REDUCE_100: return rondo_all_reduce(a, b, 100, RONDO_FLOAT32, RONDO_SUM, comm, NULL);
    case AS_INT: return rondo_all_reduce(a, b, 100, RONDO_INT32, RONDO_SUM, comm, NULL);
    case AS_MAX: return rondo_all_reduce(a, b, 100, RONDO_FLOAT32, RONDO_MAX, comm, NULL);
    case GATHER_ALL_15: return rondo_all_gather(a, b, 15, RONDO_FLOAT32, comm, NULL);
    case BARRIER: return rondo_barrier(comm, NULL);
    case BROADCAST: return rondo_broadcast(a, b, 100, RONDO_FLOAT32, root, comm, NULL);
    case REDUCE_TO: return rondo_reduce(a, b, 100, RONDO_FLOAT32, RONDO_SUM, root, comm, NULL);
    case GATHER: return rondo_gather(a, b, 100, RONDO_FLOAT32, root, comm, NULL);
    case SCATTER: return rondo_scatter(a, b, 100, RONDO_FLOAT32, root, comm, NULL);
    case ALL_TO_ALL: return rondo_all_to_all(a, b, 100, RONDO_FLOAT32, comm, NULL);
    case SEND_8: return rondo_send(a, 8, RONDO_FLOAT32, 0, comm, NULL);
    case RECV_7: return rondo_recv(b, 7, RONDO_FLOAT32, 1, comm, NULL);
    case TWO_SINGLE:
        result = rondo_all_reduce(a, b, 100, RONDO_FLOAT32, RONDO_SUM, comm, NULL);
        return result ? result : rondo_all_reduce(a, b, 100, RONDO_FLOAT32, RONDO_SUM, comm, NULL);
    case TWO_TOGETHER:
        rondo_group_start();
        rondo_all_reduce(a, b, 100, RONDO_FLOAT32, RONDO_SUM, comm, NULL);
        rondo_all_reduce(a + 100, b + 100, 100, RONDO_FLOAT32, RONDO_SUM, comm, NULL);
        return rondo_group_end();
    case NOTHING: break;
    }
    return RONDO_SUCCESS;
}

/* clang-format off */
static const struct scene {
    const char *name;
    int n, odd;
    deed odd_one, others;
    const char *odd_is, *others_are; /* what the text says of them */
    int own_roots;                   /* everybody's root: itself */
    int before;                      /* calls that match */
} scenes[] = {
    {"case 13, 2 ranks", 2, 1, REDUCE_409600, REDUCE_409598, "of 409600 float32", "of 409598 float32", 0, 0},
    {"case 13, 4 ranks", 4, 2, REDUCE_409600, REDUCE_409598, "of 409600 float32", "of 409598 float32", 0, 0},
    {"case 13, 1 and 2", 2, 0, REDUCE_1, REDUCE_2, "of 1 float32", "of 2 float32", 0, 0},
    {"case 13, 1 and 2, 4 ranks", 4, 3, REDUCE_1, REDUCE_2, "of 1 float32", "of 2 float32", 0, 0},
    {"case 14", 4, 2, GATHER_ALL_15, REDUCE_100, "call 7, rondo_all_gather of 15", "call 7, rondo_all_reduce of 100", 0, 6},
    {"type", 3, 1, AS_INT, REDUCE_100, "of 100 int32", "of 100 float32", 0, 1},
    {"operator", 3, 0, AS_MAX, REDUCE_100, "max", "sum", 0, 1},
    {"barrier", 3, 2, BARRIER, REDUCE_100, "call 3, rondo_barrier", "call 3, rondo_all_reduce", 0, 2},
    {"barrier and nothing", 2, 1, BARRIER, REDUCE_0, "rondo_barrier", "rondo_all_reduce of 0", 0, 2},
    {"together", 3, 1, TWO_TOGETHER, TWO_SINGLE, "2 calls of", "rondo_all_reduce of 100", 0, 1},
    {"roots of broadcast", 3, 0, BROADCAST, BROADCAST, "rondo_broadcast of 100 float32, root 0", "root", 1, 1},
    {"roots of reduce", 3, 0, REDUCE_TO, REDUCE_TO, "rondo_reduce of 100 float32, sum, root 0", "root", 1, 1},
    {"roots of gather", 3, 0, GATHER, GATHER, "rondo_gather of 100 float32, root 0", "root", 1, 1},
    {"roots of scatter", 3, 0, SCATTER, SCATTER, "rondo_scatter of 100 float32, root 0", "root", 1, 1},
    {"gather and all-gather", 4, 1, GATHER, GATHER_ALL_15, "rondo_gather", "rondo_all_gather", 0, 1},
    {"broadcast and all-to-all", 4, 3, BROADCAST, ALL_TO_ALL, "rondo_broadcast", "rondo_all_to_all", 0, 1},
};
/* clang-format on */

static void differ(rondo_comm *comm, int rank, int n, void *context)
{
    const struct scene *scene = context;
    char root[32] = "";
    for (int i = 0; i < scene->before; i++)
        CHECK(make(comm, REDUCE_100, 0) == RONDO_SUCCESS, "%s", rondo_last_error(comm));
    double start = test_seconds();
    rondo_result result = make(comm, rank == scene->odd ? scene->odd_one : scene->others, scene->own_roots ? rank : 0);
    char text[2048];
    snprintf(text, sizeof text, "%s", rondo_last_error(comm));
    CHECK(result == RONDO_MISMATCH, "%s, rank %d: %s: %s", scene->name, rank, rondo_result_string(result), text);
    CHECK(test_seconds() - start < SOON, "%s: noticed after %g s", scene->name, test_seconds() - start);
    for (int r = 0; r < n; r++) {
        const char *what = r == scene->odd ? scene->odd_is : scene->others_are;
        if (scene->own_roots) snprintf(root, sizeof root, "root %d", r);
        CHECK(says_of(text, r, what) && says_of(text, r, root), "%s: does not say \"%s\" of rank %d: %s", scene->name,
              what, r, text);
    }
    for (int i = 0; i < 3; i++) {
        CHECK(make(comm, i ? REDUCE_100 : BARRIER, 0) == RONDO_MISMATCH, "a later call");
        CHECK(!strcmp(text, rondo_last_error(comm)), "the text was \"%s\" and is \"%s\"", text, rondo_last_error(comm));
    }
}

static void run_scenes(const char *transport, const char *algo)
{
    rondo_config config = patient();
    test_env("RONDO_TRANSPORT", transport);
    test_env("RONDO_ALGO", algo);
    for (size_t s = 0; s < sizeof scenes / sizeof *scenes; s++)
        ranks_run(scenes[s].n, &config, NULL, differ, (void *)&scenes[s]);
    test_env("RONDO_TRANSPORT", NULL);
    test_env("RONDO_ALGO", NULL);
}

static void differ_over_shm(void **state)
{
    (void)state, run_scenes("shm", NULL);
}
static void differ_over_shm_ring(void **state)
{
    (void)state, run_scenes("shm", "ring");
}
static void differ_over_tcp(void **state)
{
    (void)state, run_scenes("tcp", NULL);
}

/* ---- ... and one has not called ---- */

static void two_of_three(rondo_comm *comm, int rank, int n, void *context)
{
    int before = *(int *)context;
    const char *not_called =
        before ? "call 2, rondo_barrier, which is done, and no call since" : "has not called anything yet";
    (void)n;
    for (int i = 0; i < before; i++) CHECK(make(comm, BARRIER, 0) == RONDO_SUCCESS, "%s", rondo_last_error(comm));
    if (rank == 2) sleep(2);
    rondo_result result = make(comm, rank == 1 ? REDUCE_100 : REDUCE_2, 0);
    const char *text = rondo_last_error(comm);
    CHECK(result == RONDO_MISMATCH, "rank %d: %s: %s", rank, rondo_result_string(result), text);
    CHECK(says_of(text, 0, "of 2 float32") && says_of(text, 1, "of 100 float32"), "%s", text);
    CHECK(says_of(text, 2, not_called), "does not say that rank 2 has not called: %s", text);
}

static void one_has_not_called(void **state)
{
    rondo_config config = patient();
    (void)state;
    for (int t = 0; t < 2; t++) {
        test_env("RONDO_TRANSPORT", t ? "tcp" : "shm");
        for (int before = 0; before <= 2; before += 2) ranks_run(3, &config, NULL, two_of_three, &before);
    }
    test_env("RONDO_TRANSPORT", NULL);
}

/* ---- Messages ---- */

static void messages(rondo_comm *comm, int rank, int n, void *context)
{
    (void)n, (void)context;
    rondo_result result = rank == 2 ? RONDO_SUCCESS : make(comm, rank ? SEND_8 : RECV_7, 0);
    const char *text = rondo_last_error(comm);
    if (rank == 2) return;
    /* A short message has left when the other end sees it. */
    if (rank == 1 && result == RONDO_SUCCESS) result = make(comm, BARRIER, 0);
    CHECK(result == RONDO_MISMATCH, "rank %d: %s: %s", rank, rondo_result_string(result), text);
    text = rondo_last_error(comm);
    CHECK(strstr(text, "rondo_recv of 7 float32 from rank 1"), "%s", text);
}

static void messages_differ(void **state)
{
    rondo_config config = patient();
    (void)state;
    for (int t = 0; t < 2; t++) {
        test_env("RONDO_TRANSPORT", t ? "tcp" : "shm");
        ranks_run(2, &config, NULL, messages, NULL);
    }
    test_env("RONDO_TRANSPORT", NULL);
}

/* ---- Case 15 ---- */

static void other_algo(const rondo_unique_id *id, int rank, int n, void *context)
{
    rondo_config config = patient();
    rondo_comm *comm = NULL;
    (void)context;
    test_env("RONDO_ALGO", rank == 1 ? "flat" : "ring");
    double start = test_seconds();
    rondo_result result = rondo_init_rank(&comm, n, *id, rank, &config);
    const char *text = rondo_last_error(NULL);
    CHECK(result != RONDO_SUCCESS && result != RONDO_TIMEOUT, "%s", rondo_result_string(result));
    CHECK(strstr(text, "RONDO_ALGO") && strstr(text, "flat") && strstr(text, "ring") && strstr(text, "rank 1"), "%s",
          text);
    CHECK(test_seconds() - start < SOON, "took %g s", test_seconds() - start);
    CHECK(!comm, "the output was written");
}

static void other_slice(int rank, void *context)
{
    static const char *const slices[] = {"4096", "64K", "256K"};
    (void)context;
    test_env("RONDO_SLICE", slices[rank]);
}

static void sum(rondo_comm *comm, int rank, int n, void *context)
{
    static float a[300001];
    (void)context;
    for (int i = 0; i < 300001; i++) a[i] = (float)(i % 97 + rank);
    CHECK(rondo_all_reduce(a, a, 300001, RONDO_FLOAT32, RONDO_SUM, comm, NULL) == RONDO_SUCCESS, "%s",
          rondo_last_error(comm));
    for (int i = 0; i < 300001; i++)
        CHECK(a[i] == (float)(n * (i % 97) + n * (n - 1) / 2), "element %d is %g", i, (double)a[i]);
}

static void case_15(void **state)
{
    rondo_config config = patient();
    (void)state;
    for (int t = 0; t < 2; t++) {
        test_env("RONDO_TRANSPORT", t ? "tcp" : "shm");
        ranks_run(3, &config, other_slice, sum, NULL);
        ranks_run_bare(3, other_algo, NULL);
    }
    test_env("RONDO_TRANSPORT", NULL);
}

/* ---- A call that is refused takes no number ---- */

static void refused(rondo_comm *comm, int rank, int n, void *context)
{
    int32_t x[2], y[2];
    rondo_comm *child;
    for (int i = 0; i < 5; i++) {
        if ((rank + i) % 2) {
            CHECK(rondo_all_reduce(x, y, 2, RONDO_INT32, RONDO_OPS, comm, NULL) == RONDO_INVALID_ARGUMENT,
                  "a bad operator");
            CHECK(rondo_broadcast(x, y, 2, RONDO_INT32, n, comm, NULL) == RONDO_INVALID_ARGUMENT, "a bad root");
            CHECK(rondo_send(x, 2, RONDO_INT32, rank, comm, NULL) == RONDO_INVALID_USAGE, "to itself");
            CHECK(rondo_comm_split(comm, -7, 0, &child, NULL) == RONDO_INVALID_ARGUMENT, "a bad colour");
            rondo_group_start();
            rondo_all_reduce(x, y, 2, RONDO_INT32, RONDO_SUM, comm, NULL);
            CHECK(rondo_all_reduce(x, y, 2, RONDO_DTYPES, RONDO_SUM, comm, NULL) == RONDO_INVALID_ARGUMENT,
                  "a bad type");
            CHECK(rondo_group_end() == RONDO_INVALID_ARGUMENT, "a refused group");
            CHECK(strstr(rondo_last_error(NULL), "dtype"), "%s", rondo_last_error(NULL));
            CHECK(rondo_group_end() == RONDO_INVALID_USAGE, "the end of no group");
        }
        x[0] = rank + i, x[1] = 10 * rank;
        CHECK(rondo_all_reduce(x, y, 2, RONDO_INT32, RONDO_SUM, comm, NULL) == RONDO_SUCCESS, "%s",
              rondo_last_error(comm));
        CHECK(y[0] == n * (n - 1) / 2 + n * i && y[1] == 5 * n * (n - 1), "sums %d and %d", y[0], y[1]);
    }
    CHECK(rondo_comm_split(comm, 0, 0, &child, NULL) == RONDO_SUCCESS, "%s", rondo_last_error(comm));
    sum(child, rank, n, context);
    CHECK(rondo_comm_destroy(child) == RONDO_SUCCESS, "destroy");
}

static void errors_of_a_call(void **state)
{
    rondo_config config = patient();
    (void)state;
    for (int t = 0; t < 2; t++) {
        test_env("RONDO_TRANSPORT", t ? "tcp" : "shm");
        ranks_run(3, &config, NULL, refused, NULL);
    }
    test_env("RONDO_TRANSPORT", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(differ_over_shm),    cmocka_unit_test(differ_over_shm_ring), cmocka_unit_test(differ_over_tcp),
        cmocka_unit_test(one_has_not_called), cmocka_unit_test(messages_differ),      cmocka_unit_test(case_15),
        cmocka_unit_test(errors_of_a_call),
    };
    alarm((unsigned)(250 * (test_slowness() > 1 ? 4 : 1)));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
