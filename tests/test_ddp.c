/* SPDX-License-Identifier: Apache-2.0
 *
 * test_ddp.c - what ranks agree on at create, gradients as views and copied, accumulation (case 35), gradients that do
 * not come (case 33), tensors that differ (case 34). On the host and on GPUs.
 */
#include "ranks.h"
#include "rondo_ddp.h"
#include "tensors.h"
#include "test.h"

#include <math.h>
#include <unistd.h>

#define OK(call) CHECK((call) == RONDO_SUCCESS, "%s", rondo_last_error(NULL))

enum { A = 5, B = 7, C = 3, MOST = 4 };

/* Three parameters; their gradients are views where own is 0. */
typedef struct model {
    void *memory[MOST]; /* for gradients of its own */
    void *gradient[MOST];
    rondo_ddp_tensor tensor[MOST];
} model;

static void make_model(model *m, int rank, bool own)
{
    static const char *const name[MOST] = {"a", "b", "c", "d"};
    static const size_t count[MOST] = {A, B, C, C};
    memset(m, 0, sizeof *m);
    tensors_forget();
    for (int p = 0; p < MOST; p++) {
        float value[B];
        for (size_t i = 0; i < count[p]; i++) value[i] = (float)(100 * p + (int)i + 1000 * rank);
        m->memory[p] = tensor_new(NULL, B * sizeof(float));
        m->gradient[p] = own ? m->memory[p] : NULL;
        m->tensor[p] = (rondo_ddp_tensor){name[p], tensor_new(value, count[p] * sizeof(float)), count[p], RONDO_FLOAT32,
                                          &m->gradient[p]};
    }
}

/* Element i, and what is to be added to it. */
static float at(const void *tensor, int i)
{
    float value;
    tensor_get(&value, (const float *)tensor + i, sizeof value);
    return value;
}

static float grad(const model *m, int p, int i)
{
    return at(m->gradient[p], i);
}

static void add(const model *m, int p, int i, float term)
{
    float sum = grad(m, p, i) + term;
    tensor_put((float *)m->gradient[p] + i, &sum, sizeof sum);
}

/* Element i of parameter p on rank r: sums and halves are exact. */
static float term(int r, int p, int i)
{
    return (float)(8 * (r + 1) * (p + 1) + 2 * i);
}

static void add_terms(const model *m, int rank, int p)
{
    for (int i = 0; i < (int)m->tensor[p].count; i++) add(m, p, i, term(rank, p, i));
}

static void check_average(const model *m, int n, int p, int steps)
{
    for (int i = 0; i < (int)m->tensor[p].count; i++) {
        float sum = 0;
        for (int r = 0; r < n; r++) sum += (float)steps * term(r, p, i);
        CHECK(grad(m, p, i) == sum / (float)n, "parameter %d element %d: %g, expected %g", p, i, (double)grad(m, p, i),
              (double)(sum / (float)n));
    }
}

static void zero(const model *m, int params)
{
    static const float zeros[B];
    for (int p = 0; p < params; p++) tensor_put(m->gradient[p], zeros, m->tensor[p].count * sizeof(float));
}

/* ---- Steps ---- */

/* Values start as rank 0's; averages come, step after step, with buckets of all sizes, in views and in own memory. */
static void averages(rondo_comm *comm, int rank, int n, void *context)
{
    static const size_t limits[][2] = {{1, 1}, {20, 30}, {1, 1000}, {1 << 20, 1 << 20}};
    for (int k = 0; k < 8; k++) {
        rondo_ddp_config config = RONDO_DDP_CONFIG_INIT;
        rondo_ddp *ddp = NULL;
        model m;
        make_model(&m, rank, k % 2);
        config.first_bucket_bytes = limits[k / 2][0];
        config.bucket_bytes = limits[k / 2][1];
        config.find_unused = context != NULL;
        OK(rondo_ddp_create(&ddp, m.tensor, 3, NULL, 0, comm, &config));
        for (int p = 0; p < 3; p++)
            for (int i = 0; i < (int)m.tensor[p].count; i++) {
                CHECK(at(m.tensor[p].data, i) == (float)(100 * p + i), "value %d of %d is %g", i, p,
                      (double)at(m.tensor[p].data, i));
                CHECK(grad(&m, p, i) == 0, "a gradient that is not zero");
            }
        for (int step = 0; step < 4; step++) {
            static const int order[4][3] = {{1, 0, 2}, {2, 1, 0}, {0, 1, 2}, {1, 2, 0}};
            OK(rondo_ddp_forward(ddp, 1, NULL));
            for (int j = 0; j < 3; j++) {
                int p = order[(step + (step ? rank : 0)) % 4][j]; /* the ranks' orders differ */
                add_terms(&m, rank, p);
                OK(rondo_ddp_ready(ddp, p));
            }
            OK(rondo_ddp_wait(ddp));
            for (int p = 0; p < 3; p++) check_average(&m, n, p, 1);
            zero(&m, 3);
            for (int p = 0; p < 3; p++) {
                void *view = NULL;
                OK(rondo_ddp_view(ddp, p, &view));
                CHECK((m.gradient[p] == view) == (k % 2 == 0), "parameter %d is %s view", p, k % 2 ? "a" : "no");
                CHECK(k % 2 == 0 || m.gradient[p] == m.memory[p], "the caller's pointer was replaced");
            }
        }
        OK(rondo_ddp_destroy(ddp));
        for (int p = 0; p < 3; p++) CHECK(m.gradient[p] == (k % 2 ? m.memory[p] : NULL), "the pointer after destroy");
    }
}

static void every_rank_gets_the_average(void **state)
{
    (void)state;
    ranks_run(1, NULL, tensors_set_up, averages, NULL);
    ranks_run(4, NULL, tensors_set_up, averages, NULL);
    ranks_run(2, NULL, tensors_set_up, averages, (void *)1);
}

/* Case 35. */
static void accumulates(rondo_comm *comm, int rank, int n, void *context)
{
    static const float gradient[2][2] = {{1, 3}, {2, 5}};
    rondo_ddp *ddp = NULL;
    model m;
    (void)n;
    make_model(&m, rank, context != NULL);
    OK(rondo_ddp_create(&ddp, m.tensor, 1, NULL, 0, comm, NULL));
    for (int round = 0; round < 3; round++) {
        OK(rondo_ddp_no_sync_begin(ddp));
        add(&m, 0, 0, gradient[rank][0]);
        OK(rondo_ddp_ready(ddp, 0));
        OK(rondo_ddp_wait(ddp));
        CHECK(grad(&m, 0, 0) == gradient[rank][0], "sent within no_sync: %g", (double)grad(&m, 0, 0));
        if (round == 2) { /* without the synchronised step */
            add(&m, 0, 0, gradient[rank][1]);
            OK(rondo_ddp_ready(ddp, 0));
            CHECK(grad(&m, 0, 0) == (rank ? 7 : 4), "%g", (double)grad(&m, 0, 0));
        }
        OK(rondo_ddp_no_sync_end(ddp));
        if (round == 2) break;
        add(&m, 0, 0, gradient[rank][1]);
        OK(rondo_ddp_ready(ddp, 0));
        CHECK(rondo_ddp_no_sync_begin(ddp) == RONDO_INVALID_USAGE, "within a step");
        OK(rondo_ddp_wait(ddp));
        CHECK(grad(&m, 0, 0) == 5.5f, "round %d: %g", round, (double)grad(&m, 0, 0));
        zero(&m, 1);
    }
    CHECK(rondo_ddp_no_sync_end(ddp) == RONDO_INVALID_USAGE, "an end without a begin");
    OK(rondo_ddp_destroy(ddp));
}

static void case_35_accumulation(void **state)
{
    (void)state;
    ranks_run(2, NULL, tensors_set_up, accumulates, NULL);
    ranks_run(2, NULL, tensors_set_up, accumulates, (void *)1);
}

/* The user's pointer may change between steps: to his own memory, to other memory, and to the view again. */
static void replaces(rondo_comm *comm, int rank, int n, void *context)
{
    rondo_ddp *ddp = NULL;
    model m;
    (void)context;
    make_model(&m, rank, false);
    void *other = tensor_new(NULL, B * sizeof(float));
    OK(rondo_ddp_create(&ddp, m.tensor, 3, NULL, 0, comm, NULL));
    for (int step = 0; step < 5; step++) {
        void *view = NULL;
        OK(rondo_ddp_view(ddp, 1, &view));
        m.gradient[1] = (void *[]){view, m.memory[1], other, view, NULL}[step];
        if (!m.gradient[1]) {
            CHECK(rondo_ddp_ready(ddp, 1) == RONDO_INVALID_ARGUMENT, "a gradient that is NULL");
            CHECK(strstr(rondo_last_error(NULL), "parameter 1 'b'"), "%s", rondo_last_error(NULL));
            m.gradient[1] = other;
        }
        void *before = m.gradient[1];
        zero(&m, 3);
        for (int p = 0; p < 3; p++) {
            add_terms(&m, rank, p);
            OK(rondo_ddp_ready(ddp, p));
        }
        OK(rondo_ddp_wait(ddp));
        for (int p = 0; p < 3; p++) check_average(&m, n, p, 1);
        OK(rondo_ddp_view(ddp, 1, &view));
        CHECK(m.gradient[1] == before || (step == 0 && m.gradient[1] == view), "step %d: the pointer was replaced",
              step);
    }
    OK(rondo_ddp_destroy(ddp));
    CHECK(m.gradient[1] == other && !m.gradient[0], "pointers after destroy");
}

static void pointers_may_be_replaced(void **state)
{
    (void)state;
    ranks_run(2, NULL, tensors_set_up, replaces, NULL);
}

/* ---- Case 33 ---- */

enum { BOTH = 1, RANK_1 = 2, OWN = 4 };

static void lacks(rondo_comm *comm, int rank, int n, void *context)
{
    int how = *(const int *)context;
    bool lacking = rank == 1 || (how & BOTH);
    rondo_ddp *ddp = NULL;
    model m;
    (void)n;
    make_model(&m, rank, how & OWN);
    OK(rondo_ddp_create(&ddp, m.tensor, 3, NULL, 0, comm, NULL));
    for (int p = 0; p < 3; p++) {
        add_terms(&m, rank, p);
        if (p < 2 || !lacking) OK(rondo_ddp_ready(ddp, p));
    }
    char named[64];
    snprintf(named, sizeof named, "parameter 2 'c' got no gradient on rank %d", how & BOTH ? 0 : 1);
    CHECK(rondo_ddp_wait(ddp) == RONDO_INVALID_USAGE, "wait: %s", rondo_last_error(NULL));
    CHECK(strstr(rondo_last_error(NULL), named), "%s", rondo_last_error(NULL));
    CHECK(rondo_ddp_forward(ddp, 1, NULL) == RONDO_INVALID_USAGE, "the next forward");
    CHECK(strstr(rondo_last_error(NULL), named), "%s", rondo_last_error(NULL));
    OK(rondo_ddp_destroy(ddp));
    OK(rondo_barrier(comm, NULL)); /* the communicator is as good as before */
}

/* A program that leaves out wait, too, hears of it at the next forward. */
static void forgets(rondo_comm *comm, int rank, int n, void *context)
{
    rondo_ddp *ddp = NULL;
    model m;
    (void)n;
    (void)context;
    make_model(&m, rank, false);
    OK(rondo_ddp_create(&ddp, m.tensor, 3, NULL, 0, comm, NULL));
    OK(rondo_ddp_forward(ddp, 1, NULL));
    for (int p = 0; p < 2; p++) OK(rondo_ddp_ready(ddp, p));
    CHECK(rondo_ddp_forward(ddp, 1, NULL) == RONDO_INVALID_USAGE, "forward within a step");
    CHECK(strstr(rondo_last_error(NULL), "parameter 2 'c' got no gradient on rank"), "%s", rondo_last_error(NULL));
    CHECK(rondo_ddp_ready(ddp, 1) == RONDO_INVALID_USAGE, "ready twice");
    CHECK(strstr(rondo_last_error(NULL), "parameter 1 'b' is ready for the second time"), "%s", rondo_last_error(NULL));
    CHECK(rondo_ddp_ready(ddp, 3) == RONDO_INVALID_ARGUMENT, "an index that is not there");
    OK(rondo_ddp_ready(ddp, 2));
    OK(rondo_ddp_wait(ddp));
    OK(rondo_ddp_destroy(ddp));
}

static void case_33_without_search(void **state)
{
    (void)state;
    for (int how = 0; how < 8; how++) {
        if (how & BOTH && how & RANK_1) continue;
        if (how & (BOTH | RANK_1)) ranks_run(2, NULL, tensors_set_up, lacks, &how);
    }
    ranks_run(2, NULL, tensors_set_up, forgets, NULL);
}

/* c comes nowhere, on rank 1 not, and everywhere; its gradient holds 77 where it does not come. */
static void searches(rondo_comm *comm, int rank, int n, void *context)
{
    rondo_ddp_config config = RONDO_DDP_CONFIG_INIT;
    rondo_ddp *ddp = NULL;
    model m;
    make_model(&m, rank, context != NULL);
    config.find_unused = 1;
    config.first_bucket_bytes = context ? 1 : 1 << 20;
    OK(rondo_ddp_create(&ddp, m.tensor, 3, NULL, 0, comm, &config));
    for (int step = 0; step < 6; step++) {
        bool nowhere = step % 3 == 0, everywhere = step % 3 == 2, here = everywhere || (!nowhere && rank != 1);
        zero(&m, 3);
        for (int p = 0; p < 2; p++) {
            add_terms(&m, rank, p);
            OK(rondo_ddp_ready(ddp, p));
        }
        if (here) {
            add_terms(&m, rank, 2);
            OK(rondo_ddp_ready(ddp, 2));
        } else {
            for (int i = 0; i < C; i++) add(&m, 2, i, 77 - grad(&m, 2, i));
        }
        OK(rondo_ddp_wait(ddp));
        for (int p = 0; p < 2; p++) check_average(&m, n, p, 1);
        if (everywhere) check_average(&m, n, 2, 1);
        for (int i = 0; i < C && !everywhere; i++) {
            float sum = 0;
            for (int r = 0; r < n; r++) sum += r != 1 ? term(r, 2, i) : 0;
            float expected = nowhere ? 77 : sum / (float)n;
            CHECK(grad(&m, 2, i) == expected, "step %d: %g, expected %g", step, (double)grad(&m, 2, i),
                  (double)expected);
        }
    }
    /* What came within no_sync has come. */
    zero(&m, 3);
    OK(rondo_ddp_no_sync_begin(ddp));
    for (int p = 0; p < 3; p++) {
        add_terms(&m, rank, p);
        OK(rondo_ddp_ready(ddp, p));
    }
    OK(rondo_ddp_no_sync_end(ddp));
    add_terms(&m, rank, 0);
    OK(rondo_ddp_ready(ddp, 0));
    OK(rondo_ddp_wait(ddp));
    for (int p = 0; p < 3; p++) check_average(&m, n, p, p ? 1 : 2);
    OK(rondo_ddp_destroy(ddp));
}

static void case_33_with_search(void **state)
{
    (void)state;
    ranks_run(2, NULL, tensors_set_up, searches, NULL);
    ranks_run(4, NULL, tensors_set_up, searches, (void *)1);
}

/* ---- Case 34 ---- */

typedef enum other { FEWER, ORDER, TYPE, NAME, COUNT, MORE, BUFFER, SETTING, OTHERS } other;

static const struct {
    int rank;
    const char *said;
} differences[OTHERS] = {
    [FEWER] = {1, "rank 1 was given parameter 1 'c', 3 elements of float32, where rank 0 was given parameter 1 'b', 7"},
    [ORDER] = {2, "rank 2 was given parameter 2 'd', 3 elements of float32, where rank 0 was given parameter 2 'c', 3"},
    [TYPE] = {1, "rank 1 was given parameter 1 'b', 7 elements of float16, where rank 0 was given parameter 1 'b', 7 "
                 "elements of float32"},
    [NAME] = {2, "rank 2 was given parameter 0 'x', 5 elements of float32, where rank 0 was given parameter 0 'a', 5"},
    [COUNT] = {1, "rank 1 was given parameter 3 'd', 2 elements of float32, where rank 0 was given parameter 3 'd', 3"},
    [MORE] = {0, "rank 1 was given no more tensors, where rank 0 was given buffer 0 's', 3 elements"},
    [BUFFER] = {2, "rank 2 was given buffer 0 's', 3 elements of int8, where rank 0 was given no more tensors"},
    [SETTING] = {1, "find_unused 1, compression 0, hook NULL, where rank 0 was given the settings"},
};

static void differs(rondo_comm *comm, int rank, int n, void *context)
{
    other what = *(const other *)context;
    rondo_ddp_config config = RONDO_DDP_CONFIG_INIT;
    rondo_ddp *ddp = NULL;
    int params = 4, buffers = 0;
    model m;
    (void)n;
    make_model(&m, rank, false);
    rondo_ddp_tensor buffer = {"s", tensor_new(NULL, 3), 3, RONDO_INT8, NULL};
    if (rank == differences[what].rank) {
        rondo_ddp_tensor *t = m.tensor, swapped = t[2];
        if (what == FEWER) {
            t[1] = t[2];
            t[2] = t[3];
            params = 3;
        }
        if (what == ORDER) {
            t[2] = t[3];
            t[3] = swapped;
        }
        if (what == TYPE) t[1].dtype = RONDO_FLOAT16;
        if (what == NAME) t[0].name = "x";
        if (what == COUNT) t[3].count = 2;
        if (what == MORE || what == BUFFER) buffers = 1;
        config.find_unused = what == SETTING;
    }
    CHECK(rondo_ddp_create(&ddp, m.tensor, params, &buffer, buffers, comm, &config) == RONDO_INVALID_ARGUMENT, "%s",
          rondo_last_error(NULL));
    CHECK(!ddp && !m.gradient[0], "something was left");
    CHECK(strstr(rondo_last_error(NULL), differences[what].said), "'%s' lacks '%s'", rondo_last_error(NULL),
          differences[what].said);
    make_model(&m, rank, false);
    OK(rondo_ddp_create(&ddp, m.tensor, 4, NULL, 0, comm, NULL)); /* and the next one goes well */
    OK(rondo_ddp_destroy(ddp));
}

static void case_34_tensors_that_differ(void **state)
{
    (void)state;
    for (other what = 0; what < OTHERS; what++) ranks_run(3, NULL, tensors_set_up, differs, &what);
}

/* What is wrong on one rank is said on all. */
static void wrongs(rondo_comm *comm, int rank, int n, void *context)
{
    static const char *const said[] = {
        "parameter 1 has no name",          "parameter 2 'c': data is NULL",
        "two tensors are named 'a'",        "parameter 0 'a': type 0; it must be float16, bfloat16, float32 or float64",
        "config->bucket_bytes is 0",        "config->reduce is 9; it must be from 0 to 2",
        "parameter 3 'd': gradient is NULL"};
    (void)n;
    (void)context;
    for (int k = 0; k < 7; k++) {
        rondo_ddp_config config = RONDO_DDP_CONFIG_INIT;
        rondo_ddp *ddp = NULL;
        model m;
        make_model(&m, rank, false);
        if (rank == 1) {
            if (k == 0) m.tensor[1].name = NULL;
            if (k == 1) m.tensor[2].data = NULL;
            if (k == 2) m.tensor[1].name = "a";
            if (k == 3) m.tensor[0].dtype = RONDO_INT8;
            if (k == 4) config.bucket_bytes = 0;
            if (k == 5) config.reduce = (rondo_ddp_reduce)9;
            if (k == 6) m.tensor[3].gradient = NULL;
        }
        CHECK(rondo_ddp_create(&ddp, m.tensor, 4, NULL, 0, comm, &config) == RONDO_INVALID_ARGUMENT, "%d", k);
        CHECK(strstr(rondo_last_error(NULL), said[k]) && strstr(rondo_last_error(NULL), "on rank 1"), "%s",
              rondo_last_error(NULL));
    }
    CHECK(rondo_ddp_ready(NULL, 0) == RONDO_INVALID_ARGUMENT, "NULL");
    OK(rondo_ddp_destroy(NULL));
}

static void one_rank_s_arguments_fail_all(void **state)
{
    (void)state;
    ranks_run(3, NULL, tensors_set_up, wrongs, NULL);
}

int main(int argc, char **argv)
{
    (void)argc;
    tensors_everywhere(argv);
    alarm((unsigned)(120 * test_slowness()));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_gets_the_average),   cmocka_unit_test(case_35_accumulation),
        cmocka_unit_test(pointers_may_be_replaced),      cmocka_unit_test(case_33_without_search),
        cmocka_unit_test(case_33_with_search),           cmocka_unit_test(case_34_tensors_that_differ),
        cmocka_unit_test(one_rank_s_arguments_fail_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
