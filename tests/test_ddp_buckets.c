/* SPDX-License-Identifier: Apache-2.0
 *
 * test_ddp_buckets.c - which parameter goes into which bucket, that buckets leave while gradients are still missing,
 * their order after the first step, the report, hooks and compressed buckets. On the host and on GPUs.
 */
#include "base/dtype.h"
#include "ddp/ddp.h"
#include "ranks.h"
#include "rondo_trace.h"
#include "tensors.h"
#include "test.h"

#include <math.h>
#include <time.h>
#include <unistd.h>

#define OK(call) CHECK((call) == RONDO_SUCCESS, "%s", rondo_last_error(NULL))

/* ---- The plan ---- */

static void expect_plan(const size_t *count, const rondo_dtype *dtype, int params, size_t first, size_t bytes,
                        const int *expected, int buckets)
{
    rd_ddp_param param[8] = {0};
    int order[8], of_place[8];
    for (int p = 0; p < params; p++) {
        param[p].of.count = count[p];
        param[p].of.dtype = dtype[p];
        order[p] = params - 1 - p;
    }
    assert_int_equal(rd_ddp_plan(param, order, params, first, bytes, of_place), buckets);
    for (int k = 0; k < params; k++) assert_int_equal(of_place[k], expected[k]);
}

static void buckets_are_planned(void **state)
{
    (void)state;
    const rondo_dtype f = RONDO_FLOAT32, h = RONDO_FLOAT16;
    const size_t count[] = {10, 20, 30, 40, 50, 60};
    /* In reverse: 240 bytes fill the first; then 200 + 160 reach 300; 120 + 80 + 40 don't. */
    expect_plan(count, (rondo_dtype[]){f, f, f, f, f, f}, 6, 200, 300, (int[]){0, 1, 1, 2, 2, 2}, 3);
    expect_plan(count, (rondo_dtype[]){f, f, f, f, f, f}, 6, 1, 1, (int[]){0, 1, 2, 3, 4, 5}, 6);
    expect_plan(count, (rondo_dtype[]){f, f, f, f, f, f}, 6, 9999, 9999, (int[]){0, 0, 0, 0, 0, 0}, 1);
    /* Types apart, each with a first bucket: 240 | 80 bytes of float16 | 200 + 80 | 60 + 20. */
    expect_plan(count, (rondo_dtype[]){h, f, h, h, f, f}, 6, 70, 300, (int[]){0, 2, 1, 3, 2, 3}, 4);
    expect_plan((size_t[]){0, 0}, (rondo_dtype[]){f, f}, 2, 1, 1, (int[]){0, 0}, 1);
}

/* ---- A model of LAYERS float32 parameters of EACH elements ---- */

enum { LAYERS = 6, EACH = 3000 };

typedef struct model {
    void *gradient[LAYERS];
    rondo_ddp_tensor tensor[LAYERS];
} model;

static model *make_model(void)
{
    static const char *const name[LAYERS] = {"l0", "l1", "l2", "l3", "l4", "l5"};
    model *m = calloc(1, sizeof *m);
    CHECK(m, "no memory");
    tensors_forget();
    for (int p = 0; p < LAYERS; p++)
        m->tensor[p] =
            (rondo_ddp_tensor){name[p], tensor_new(NULL, EACH * sizeof(float)), EACH, RONDO_FLOAT32, &m->gradient[p]};
    return m;
}

static float term(int rank, int p, int i)
{
    return (float)((rank + 1) * ((i % 13) - 5) * 2 + 4 * p) / 8;
}

static void get(const model *m, int p, float *to)
{
    tensor_get(to, m->gradient[p], EACH * sizeof(float));
}

static void put(const model *m, int p, const float *from)
{
    tensor_put(m->gradient[p], from, EACH * sizeof(float));
}

static void fill(const model *m, int rank, int p)
{
    float g[EACH];
    for (int i = 0; i < EACH; i++) g[i] = term(rank, p, i);
    put(m, p, g);
}

/* All elements are the average within `error` of the largest term. */
static void check_all(const model *m, int n, double error)
{
    float g[EACH];
    for (int p = 0; p < LAYERS; p++) {
        get(m, p, g);
        for (int i = 0; i < EACH; i++) {
            double sum = 0, most = 0.01, got = (double)g[i];
            for (int r = 0; r < n; r++) {
                sum += (double)term(r, p, i);
                most = fmax(most, fabs((double)term(r, p, i)));
            }
            CHECK(fabs(got - sum / n) <= error * most, "layer %d element %d: %.9g, expected %.9g", p, i, got, sum / n);
        }
    }
}

static rondo_ddp_config two_each(void)
{
    rondo_ddp_config config = RONDO_DDP_CONFIG_INIT;
    config.first_bucket_bytes = config.bucket_bytes = 2 * EACH * sizeof(float);
    return config;
}

/* ---- The first bucket leaves before the last gradient is there ---- */

static char trace_file[96];

static void trace_here(int rank, void *context)
{
    tensors_set_up(rank, context);
    test_env("RONDO_TRACE", trace_file);
}

static void overlaps(rondo_comm *comm, int rank, int n, void *context)
{
    uint64_t *last_ready = context;
    struct timespec t;
    rondo_ddp_config config = two_each();
    rondo_ddp_report report = {.size = sizeof report};
    rondo_ddp *ddp = NULL;
    model *m = make_model();
    OK(rondo_ddp_create(&ddp, m->tensor, LAYERS, NULL, 0, comm, &config));
    for (int p = LAYERS - 1; p >= 0; p--) {
        fill(m, rank, p);
        if (p == 0) {
            usleep(500000); /* the layers before take their time */
            clock_gettime(CLOCK_MONOTONIC, &t);
            last_ready[rank] = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
        }
        OK(rondo_ddp_ready(ddp, p));
    }
    OK(rondo_ddp_wait(ddp));
    check_all(m, n, 0);
    OK(rondo_ddp_get_report(ddp, &report));
    CHECK(report.step == 1 && report.buckets == 3, "step %d, %d buckets", (int)report.step, report.buckets);
    CHECK(report.bytes == (LAYERS * EACH + 3) * sizeof(float), "%d bytes", (int)report.bytes);
    CHECK(report.hidden_s > 0 && report.hidden_s <= report.communicating_s, "%g hidden of %g s", report.hidden_s,
          report.communicating_s);
    CHECK(report.waited_s > 0 && report.waited_s < 10, "waited %g s", report.waited_s);
    OK(rondo_ddp_destroy(ddp));
    OK(rondo_comm_destroy(comm));
    exit(0);
}

static void first_bucket_leaves_early(void **state)
{
    (void)state;
    enum { RANKS = 2 };
    uint64_t *last_ready = test_shared(RANKS * sizeof *last_ready), first_sent[RANKS] = {UINT64_MAX, UINT64_MAX};
    rondo_trace_record record;
    snprintf(trace_file, sizeof trace_file, "/tmp/rondo-test-ddp.%d.trace", (int)getpid());
    ranks_run(RANKS, NULL, trace_here, overlaps, last_ready);
    FILE *in = fopen(trace_file, "rb");
    assert_non_null(in);
    uint64_t gradients[RANKS] = {0}; /* the call that has the first bucket */
    while (fread(&record, sizeof record, 1, in) == 1) {
        if (record.kind == RONDO_TRACE_CALL && record.of.made.count == 2 * EACH + 1 && !gradients[record.rank])
            gradients[record.rank] = record.call;
        bool sent = record.kind == RONDO_TRACE_SEND && record.call == gradients[record.rank];
        if (sent && record.time_ns < first_sent[record.rank]) first_sent[record.rank] = record.time_ns;
    }
    fclose(in);
    remove(trace_file);
    for (int r = 0; r < RANKS; r++) {
        if (first_sent[r] >= last_ready[r])
            fail_msg("rank %d: first slice at %lu, last ready at %lu", r, (unsigned long)first_sent[r],
                     (unsigned long)last_ready[r]);
    }
}

/* ---- The order of arrival ---- */

/* Gradients come 0, 3, 1, 4, 2, 5 on rank 0, otherwise elsewhere: from the second step on buckets are {0, 3}, {1, 4},
 * ... on all. */
static void arrives(rondo_comm *comm, int rank, int n, void *context)
{
    static const int of_0[LAYERS] = {0, 3, 1, 4, 2, 5};
    rondo_ddp_config config = two_each();
    rondo_ddp *ddp = NULL;
    model *m = make_model();
    (void)context;
    OK(rondo_ddp_create(&ddp, m->tensor, LAYERS, NULL, 0, comm, &config));
    void *before = m->gradient[0];
    for (int step = 0; step < 3; step++) {
        for (int k = 0; k < LAYERS; k++) {
            int p = step ? of_0[k] : of_0[(k + rank) % LAYERS];
            fill(m, rank, p);
            OK(rondo_ddp_ready(ddp, p));
            CHECK(step == 0 || ddp->next == (k + 1) / 2, "after %d gradients %d buckets have left", k + 1, ddp->next);
        }
        OK(rondo_ddp_wait(ddp));
        check_all(m, n, 0);
        for (int b = 0; b < 3; b++)
            CHECK(ddp->bucket[b].member[0] == of_0[2 * b] && ddp->bucket[b].member[1] == of_0[2 * b + 1],
                  "bucket %d has %d", b, ddp->bucket[b].member[0]);
    }
    CHECK(m->gradient[0] != before, "views stayed where they were");
    OK(rondo_ddp_destroy(ddp));
    free(m);
}

static void buckets_follow_the_order_of_arrival(void **state)
{
    (void)state;
    ranks_run(3, NULL, tensors_set_up, arrives, NULL);
}

/* ---- What travels ---- */

/* The average over N of values that are rounded to b bits before and after: off by at most 2 * 2^-b of the largest. */
static void compresses(rondo_comm *comm, int rank, int n, void *context)
{
    static const double error[] = {0, 0x1p-7, 0x1p-10};
    rondo_ddp_config config = two_each();
    rondo_ddp_report report = {.size = sizeof report};
    rondo_ddp *ddp = NULL;
    model *m = make_model();
    float g[EACH] = {0};
    (void)context;
    for (int k = 0; k < 3; k++) {
        config.compression = (rondo_ddp_compression)k;
        config.find_unused = k == 2;
        OK(rondo_ddp_create(&ddp, m->tensor, LAYERS, NULL, 0, comm, &config));
        for (int step = 0; step < 2; step++) {
            for (int p = LAYERS - 1; p >= 0; p--) {
                for (int i = 0; i < EACH; i++) /* every seventh has more bits than fit */
                    g[i] = term(rank, p, i) + (i % 7 ? 0 : 1e-3f * (float)rank);
                put(m, p, g);
                OK(rondo_ddp_ready(ddp, p));
            }
            OK(rondo_ddp_wait(ddp));
            for (int p = 0; p < LAYERS; p++) {
                get(m, p, g);
                for (int i = 0; i < EACH; i += 7) g[i] -= 1e-3f * (float)(n - 1) / 2;
                put(m, p, g);
            }
            check_all(m, n, k ? error[k] : 0x1p-20);
        }
        OK(rondo_ddp_get_report(ddp, &report));
        size_t marks = k == 2 ? LAYERS : 3;
        CHECK(report.bytes == (LAYERS * EACH + marks) * (k ? 2 : 4), "%d bytes", (int)report.bytes);
        OK(rondo_ddp_destroy(ddp));
    }
    /* 60000 on all ranks is within float16, and so is their average. */
    config.compression = RONDO_DDP_AS_FLOAT16;
    OK(rondo_ddp_create(&ddp, m->tensor, 1, NULL, 0, comm, &config));
    g[0] = 60000;
    put(m, 0, g);
    OK(rondo_ddp_ready(ddp, 0));
    OK(rondo_ddp_wait(ddp));
    get(m, 0, g);
    CHECK(g[0] == 60000, "%g", (double)g[0]);
    OK(rondo_ddp_destroy(ddp));
    free(m);
}

static void compressed_buckets_are_accurate(void **state)
{
    (void)state;
    ranks_run(3, NULL, tensors_set_up, compresses, NULL);
}

/* A user's hook: the sign of the sum of signs, as int8: a byte per element travels. */
typedef struct vote {
    int8_t *sign[3];
    int started, finished, order[6];
} vote;

static rondo_result start_vote(void *context, const rondo_ddp_bucket *bucket, rondo_comm *comm, rondo_stream *stream)
{
    vote *v = context;
    float g[2 * EACH];
    CHECK(bucket->size == sizeof *bucket && bucket->buckets == 3 && bucket->dtype == RONDO_FLOAT32, "the bucket");
    CHECK(bucket->count == 2 * EACH, "%zu elements", bucket->count);
    tensor_get(g, bucket->data, sizeof g);
    v->order[v->started++ % 6] = bucket->index;
    int8_t *sign = v->sign[bucket->index];
    for (size_t i = 0; i < bucket->count; i++) sign[i] = (int8_t)((g[i] > 0) - (g[i] < 0));
    return rondo_all_reduce(sign, sign, bucket->count, RONDO_INT8, RONDO_SUM, comm, stream);
}

static rondo_result finish_vote(void *context, const rondo_ddp_bucket *bucket)
{
    vote *v = context;
    float g[2 * EACH];
    const int8_t *sign = v->sign[bucket->index];
    for (size_t i = 0; i < bucket->count; i++) g[i] = (float)((sign[i] > 0) - (sign[i] < 0));
    tensor_put(bucket->data, g, sizeof g);
    v->finished++;
    return RONDO_SUCCESS;
}

static rondo_result refuse(void *context, const rondo_ddp_bucket *bucket, rondo_comm *comm, rondo_stream *stream)
{
    (void)context;
    (void)bucket;
    (void)comm;
    (void)stream;
    return RONDO_INVALID_USAGE;
}

static void votes(rondo_comm *comm, int rank, int n, void *context)
{
    vote v = {.started = 0};
    rondo_ddp_hook hook = {sizeof hook, start_vote, finish_vote, &v};
    rondo_ddp_config config = two_each();
    rondo_ddp *ddp = NULL;
    model *m = make_model();
    float g[EACH];
    for (int b = 0; b < 3; b++) CHECK((v.sign[b] = malloc(2 * EACH)), "no memory");
    config.hook = &hook;
    config.find_unused = context != NULL;
    OK(rondo_ddp_create(&ddp, m->tensor, LAYERS, NULL, 0, comm, &config));
    for (int step = 0; step < 2; step++) {
        for (int p = LAYERS - 1; p >= 0; p--) {
            fill(m, rank, p);
            if (p || !context) OK(rondo_ddp_ready(ddp, p));
        }
        OK(rondo_ddp_wait(ddp));
        for (int p = context ? 1 : 0; p < LAYERS; p++) {
            get(m, p, g);
            for (int i = 0; i < EACH; i++) {
                int sum = 0;
                for (int r = 0; r < n; r++) sum += (term(r, p, i) > 0) - (term(r, p, i) < 0);
                CHECK(g[i] == (float)((sum > 0) - (sum < 0)), "layer %d element %d", p, i);
            }
        }
        get(m, 0, g);
        if (context) CHECK(g[5] == term(rank, 0, 5), "an unused gradient was touched");
    }
    CHECK(v.started == 6 && v.finished == 6, "%d, %d", v.started, v.finished);
    for (int k = 0; k < 6; k++) CHECK(v.order[k] == k % 3, "bucket %d came as number %d", v.order[k], k);
    OK(rondo_ddp_destroy(ddp));
    hook.start = refuse;
    OK(rondo_ddp_create(&ddp, m->tensor, 1, NULL, 0, comm, &config));
    rondo_result r = rondo_ddp_ready(ddp, 0);
    CHECK(r == RONDO_INVALID_USAGE && rondo_ddp_wait(ddp) == RONDO_INVALID_USAGE, "a hook that fails");
    OK(rondo_ddp_destroy(ddp));
    config.compression = RONDO_DDP_AS_FLOAT16;
    CHECK(rondo_ddp_create(&ddp, m->tensor, 1, NULL, 0, comm, &config) == RONDO_INVALID_ARGUMENT,
          "a hook and compression");
    for (int b = 0; b < 3; b++) free(v.sign[b]);
    free(m);
}

static void a_hook_of_one_s_own(void **state)
{
    (void)state;
    ranks_run(3, NULL, tensors_set_up, votes, NULL);
    ranks_run(2, NULL, tensors_set_up, votes, (void *)1);
}

/* ---- Element types ---- */

/* Every 16-bit float is itself, and what lies between two becomes the nearer one, or the even one. */
static void conversions_round_to_nearest_even(void **state)
{
    (void)state;
    static const rondo_dtype types[] = {RONDO_FLOAT16, RONDO_BFLOAT16};
    for (int t = 0; t < 2; t++)
        for (uint32_t bits = 0; bits < 0xffff; bits++) {
            uint16_t half = (uint16_t)bits, next = (uint16_t)(bits + 1), got;
            double value = rd_ddp_get(&half, 0, types[t]), above = rd_ddp_get(&next, 0, types[t]),
                   middle = (value + above) / 2;
            if (isnan(value)) continue;
            rd_ddp_put(&got, 0, types[t], value);
            assert_int_equal(got, half);
            if (!isfinite(value) || !isfinite(above) || (half >> 15) != (next >> 15)) continue;
            uint16_t even = half & 1 ? next : half;
            const struct {
                double value;
                uint16_t expected;
            } near[] = {
                {middle, even}, {middle + (above - middle) * 1e-9, next}, {middle + (value - middle) * 1e-9, half}};
            for (int k = 0; k < 3; k++) {
                rd_ddp_put(&got, 0, types[t], near[k].value);
                assert_int_equal(got, near[k].expected);
            }
        }
    float wide[] = {65519.9f, 65520, -1e30f, NAN, 1.0009765625f};
    uint16_t narrow[5];
    rd_ddp_convert(wide, RONDO_FLOAT32, narrow, RONDO_FLOAT16, 5);
    assert_int_equal(narrow[0], 0x7bff);
    assert_int_equal(narrow[1], 0x7c00);
    assert_int_equal(narrow[2], 0xfc00);
    assert_int_equal(narrow[3], 0x7e00);
    assert_int_equal(narrow[4], 0x3c01);
}

/* float16, bfloat16 and float64 side by side, with scaling on the way. */
static void mixes(rondo_comm *comm, int rank, int n, void *context)
{
    enum { COUNT = 40 };
    static const rondo_dtype dtype[] = {RONDO_FLOAT64, RONDO_FLOAT16, RONDO_FLOAT32, RONDO_BFLOAT16};
    static const char *const name[] = {"p0", "p1", "p2", "p3"};
    rondo_ddp_config config = RONDO_DDP_CONFIG_INIT;
    rondo_ddp_tensor tensor[4];
    double g[COUNT];
    void *gradient[4] = {NULL};
    rondo_ddp *ddp = NULL;
    (void)context;
    config.reduce = RONDO_DDP_WEIGHTED;
    for (int p = 0; p < 4; p++)
        tensor[p] = (rondo_ddp_tensor){name[p], tensor_new(NULL, sizeof g), COUNT, dtype[p], &gradient[p]};
    OK(rondo_ddp_create(&ddp, tensor, 4, NULL, 0, comm, &config));
    CHECK(rondo_ddp_ready(ddp, 0) == RONDO_INVALID_USAGE, "WEIGHTED without forward");
    OK(rondo_ddp_forward(ddp, (size_t)(rank + 1), NULL)); /* shares 1/6, 2/6, 3/6 */
    for (int p = 0; p < 4; p++) {
        for (size_t i = 0; i < COUNT; i++) rd_ddp_put(g, i, dtype[p], 6.0 * (double)(i % 5) * (rank + 1));
        tensor_put(gradient[p], g, COUNT * rd_dtype_bytes(dtype[p]));
        OK(rondo_ddp_ready(ddp, p));
    }
    OK(rondo_ddp_wait(ddp));
    for (int p = 0; p < 4; p++) {
        tensor_get(g, gradient[p], COUNT * rd_dtype_bytes(dtype[p]));
        for (size_t i = 0; i < COUNT; i++) {
            double got = rd_ddp_get(g, i, dtype[p]), expected = (double)(i % 5) * n * (n + 1) * (2 * n + 1) / 6;
            CHECK(fabs(got - expected) <= 0.004 * expected, "parameter %d element %zu: %g, expected %g", p, i, got,
                  expected);
        }
    }
    OK(rondo_ddp_destroy(ddp));
}

static void types_are_mixed(void **state)
{
    (void)state;
    ranks_run(3, NULL, tensors_set_up, mixes, NULL);
}

int main(int argc, char **argv)
{
    (void)argc;
    tensors_everywhere(argv);
    alarm((unsigned)(120 * test_slowness()));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_are_planned),
        cmocka_unit_test(first_bucket_leaves_early),
        cmocka_unit_test(buckets_follow_the_order_of_arrival),
        cmocka_unit_test(compressed_buckets_are_accurate),
        cmocka_unit_test(a_hook_of_one_s_own),
        cmocka_unit_test(conversions_round_to_nearest_even),
        cmocka_unit_test(types_are_mixed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
