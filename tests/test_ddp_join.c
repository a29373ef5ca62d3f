/* SPDX-License-Identifier: Apache-2.0
 *
 * test_ddp_join.c - buffers, weights, uneven inputs, clipping, names. On the host and on GPUs.
 */
#include "ranks.h"
#include "rondo_ddp.h"
#include "tensors.h"
#include "test.h"

#include <math.h>
#include <stdatomic.h>
#include <unistd.h>

#define OK(call) CHECK((call) == RONDO_SUCCESS, "%s", rondo_last_error(NULL))

enum { W = 6, S = 4, BIG = 40000 };

/* A parameter, a buffer of statistics, one that counts, and one that is too large to travel in a pack: as the test sees
 * them, from pull to push. */
typedef struct model {
    float weight[W], statistic[S], big[BIG];
    int64_t counted;
    void *gradient;
    rondo_ddp_tensor parameter[1], buffer[3];
} model;

static void push(const model *m)
{
    tensor_put(m->parameter[0].data, m->weight, sizeof m->weight);
    tensor_put(m->buffer[0].data, m->statistic, sizeof m->statistic);
    tensor_put(m->buffer[1].data, &m->counted, sizeof m->counted);
    tensor_put(m->buffer[2].data, m->big, sizeof m->big);
}

static void pull(model *m)
{
    tensor_get(m->weight, m->parameter[0].data, sizeof m->weight);
    tensor_get(m->statistic, m->buffer[0].data, sizeof m->statistic);
    tensor_get(&m->counted, m->buffer[1].data, sizeof m->counted);
    tensor_get(m->big, m->buffer[2].data, sizeof m->big);
}

static void make_model(model *m, int rank)
{
    memset(m, 0, sizeof *m);
    tensors_forget();
    for (int i = 0; i < W; i++) m->weight[i] = (float)(i + 100 * rank);
    for (int i = 0; i < S; i++) m->statistic[i] = (float)(i + 10 * rank);
    for (int i = 0; i < BIG; i++) m->big[i] = (float)(i + rank);
    m->counted = 5 + rank;
    m->parameter[0] = (rondo_ddp_tensor){"weight", tensor_new(NULL, sizeof m->weight), W, RONDO_FLOAT32, &m->gradient};
    m->buffer[0] = (rondo_ddp_tensor){"mean", tensor_new(NULL, sizeof m->statistic), S, RONDO_FLOAT32, NULL};
    m->buffer[1] = (rondo_ddp_tensor){"counted", tensor_new(NULL, sizeof m->counted), 1, RONDO_INT64, NULL};
    m->buffer[2] = (rondo_ddp_tensor){"big", tensor_new(NULL, sizeof m->big), BIG, RONDO_FLOAT32, NULL};
    push(m);
}

static void gradient(const model *m, float value)
{
    float g[W];
    for (int i = 0; i < W; i++) g[i] = value + (float)i;
    tensor_put(m->gradient, g, sizeof g);
}

static float grad(const model *m, int i)
{
    float value;
    tensor_get(&value, (const float *)m->gradient + i, sizeof value);
    return value;
}

static void expect_gradient(const model *m, double value, double each)
{
    for (int i = 0; i < W; i++) {
        double got = (double)grad(m, i), expected = value + each * i;
        CHECK(fabs(got - expected) < 1e-5 * fabs(expected) + 1e-6, "element %d: %.9g, expected %.9g", i, got, expected);
    }
}

static void step(rondo_ddp *ddp, const model *m, float value)
{
    gradient(m, value);
    OK(rondo_ddp_ready(ddp, 0));
    OK(rondo_ddp_wait(ddp));
}

/* ---- Buffers ---- */

static void buffers_of(rondo_comm *comm, int rank, int n, void *context)
{
    rondo_ddp_config config = RONDO_DDP_CONFIG_INIT;
    rondo_ddp *ddp = NULL;
    model m;
    (void)context;
    for (int mode = 0; mode < 3; mode++) {
        make_model(&m, rank);
        config.buffers = (rondo_ddp_buffers)mode;
        OK(rondo_ddp_create(&ddp, m.parameter, 1, m.buffer, 3, comm, &config));
        pull(&m);
        for (int i = 0; i < S; i++) CHECK(m.statistic[i] == (float)i, "buffers at the start");
        CHECK(m.counted == 5 && m.big[BIG - 1] == BIG - 1, "buffers at the start");
        double expected = 0; /* of statistic[i], above i; rank 0, whose FIRST takes, adds nothing */
        for (int s = 0; s < 3; s++) {
            OK(rondo_ddp_forward(ddp, (size_t)(rank + 1 + s), NULL));
            pull(&m);
            double sum = 0, samples = 0;
            for (int r = 0; s && r < n; r++) { /* by the samples of the forward before */
                sum += (r + s) * (expected + 8 * r);
                samples += r + s;
            }
            if (mode == RONDO_DDP_BUFFERS_MEAN && s) expected = sum / samples;
            if (mode == RONDO_DDP_BUFFERS_OWN) expected = 8.0 * rank * s;
            for (int i = 0; i < S; i++)
                CHECK(fabs((double)m.statistic[i] - expected - i) < 1e-4, "mode %d step %d: %g, expected %g", mode, s,
                      (double)m.statistic[i], expected + i);
            int64_t counted = mode == RONDO_DDP_BUFFERS_OWN ? 5 + s * (rank + 1) : 5 + s;
            CHECK(m.counted == counted, "mode %d step %d: %d, expected %d", mode, s, (int)m.counted, (int)counted);
            for (int i = 0; i < S; i++) m.statistic[i] += 8 * (float)rank;
            m.counted += rank + 1;
            push(&m);
            step(ddp, &m, (float)rank);
        }
        OK(rondo_ddp_sync_buffers(ddp));
        pull(&m);
        double all[16], first;
        CHECK(n <= 16, "%d", n);
        all[rank] = (double)m.statistic[2];
        OK(rondo_all_gather(&all[rank], all, 1, RONDO_FLOAT64, comm, NULL));
        first = all[0];
        for (int r = 1; r < n; r++)
            CHECK((all[r] == first) == (mode != RONDO_DDP_BUFFERS_OWN), "mode %d: rank %d has %g, rank 0 %g", mode, r,
                  all[r], first);
        OK(rondo_ddp_destroy(ddp));
    }
}

static void buffers_are_made_alike(void **state)
{
    (void)state;
    ranks_run(3, NULL, tensors_set_up, buffers_of, NULL);
}

/* ---- Sum and weights ---- */

static void reduces(rondo_comm *comm, int rank, int n, void *context)
{
    rondo_ddp_config config = RONDO_DDP_CONFIG_INIT;
    rondo_ddp *ddp = NULL;
    model m;
    (void)context;
    make_model(&m, rank);
    config.reduce = RONDO_DDP_SUM;
    OK(rondo_ddp_create(&ddp, m.parameter, 1, NULL, 0, comm, &config));
    step(ddp, &m, (float)rank);
    expect_gradient(&m, n * (n - 1) / 2, n);
    OK(rondo_ddp_destroy(ddp));
    config.reduce = RONDO_DDP_WEIGHTED;
    OK(rondo_ddp_create(&ddp, m.parameter, 1, NULL, 0, comm, &config));
    for (int s = 0; s < 2; s++) {
        double sum = 0, samples = 0;
        OK(rondo_ddp_forward(ddp, (size_t)(1 + 3 * rank), NULL));
        CHECK(rondo_ddp_forward(ddp, 1, NULL) == RONDO_INVALID_USAGE, "forward twice");
        for (int r = 0; r < n; r++) {
            sum += (1 + 3 * r) * (r + 1);
            samples += 1 + 3 * r;
        }
        step(ddp, &m, (float)(rank + 1));
        expect_gradient(&m, sum / samples, 1);
    }
    /* Samples of accumulated batches add up: shares 4 + 1 and 1 + 1 of 7 on two ranks. */
    OK(rondo_ddp_no_sync_begin(ddp));
    OK(rondo_ddp_forward(ddp, rank ? 1 : 4, NULL));
    OK(rondo_ddp_no_sync_end(ddp));
    OK(rondo_ddp_forward(ddp, 1, NULL));
    step(ddp, &m, rank ? 7 : 14);
    if (n == 2) expect_gradient(&m, 12, 1);
    CHECK(rondo_ddp_forward(ddp, 0, NULL) == RONDO_INVALID_ARGUMENT, "no samples");
    OK(rondo_ddp_destroy(ddp));
}

static void sums_and_weights(void **state)
{
    (void)state;
    ranks_run(2, NULL, tensors_set_up, reduces, NULL);
    ranks_run(3, NULL, tensors_set_up, reduces, NULL);
}

/* ---- Uneven inputs ---- */

/* Rank r has 2 + r batches, in another epoch 4 - r. */
static int batches(int rank, int epoch)
{
    return epoch ? 4 - rank : 2 + rank;
}

static void joins(rondo_comm *comm, int rank, int n, void *context)
{
    rondo_ddp_config config = *(const rondo_ddp_config *)context;
    rondo_ddp *ddp = NULL;
    model m;
    make_model(&m, rank);
    config.first_bucket_bytes = config.bucket_bytes = 8;
    OK(rondo_ddp_create(&ddp, m.parameter, 1, m.buffer, 2, comm, &config));
    for (int epoch = 0; epoch < 2; epoch++) {
        int steps = 0, longest = 0;
        for (int r = 0; r < n; r++) longest = batches(r, epoch) > longest ? batches(r, epoch) : longest;
        for (int s = 0; s < batches(rank, epoch); s++) {
            int active = -1, expected = 0;
            double sum = 0;
            for (int r = 0; r < n; r++) {
                if (s >= batches(r, epoch)) continue;
                expected++;
                sum += r + 1;
            }
            OK(rondo_ddp_forward(ddp, 1, &active));
            if (config.join == RONDO_DDP_JOIN_STOP && expected < n) expected = 0;
            CHECK(active == expected, "step %d: %d active, expected %d", s, active, expected);
            if (active == 0) break;
            int by = config.reduce == RONDO_DDP_SUM ? 1 : config.join == RONDO_DDP_JOIN_WORLD ? n : active;
            if (config.reduce == RONDO_DDP_WEIGHTED) by = active;
            step(ddp, &m, (float)(rank + 1));
            expect_gradient(&m, sum / by, (double)active / by);
            pull(&m);
            for (int i = 0; i < W; i++) m.weight[i] -= grad(&m, i);
            m.statistic[0] += (float)(rank + 1);
            push(&m);
            steps++;
        }
        if (config.join == RONDO_DDP_JOIN_STOP) CHECK(steps == 2, "epoch %d: %d steps", epoch, steps);
        OK(rondo_ddp_join(ddp));
        pull(&m);
        float all[2][8];
        CHECK(n <= 8, "%d", n);
        all[0][rank] = m.weight[3];
        all[1][rank] = m.statistic[0];
        for (int k = 0; k < 2; k++) OK(rondo_all_gather(&all[k][rank], all[k], 1, RONDO_FLOAT32, comm, NULL));
        for (int r = 0; r < n; r++)
            CHECK(all[0][r] == m.weight[3] && all[1][r] == m.statistic[0], "rank %d differs after join", r);
        int last = epoch ? 0 : n - 1; /* that is the one that made all steps */
        if (config.join != RONDO_DDP_JOIN_STOP) CHECK(rank != last || steps == longest, "%d steps", steps);
    }
    OK(rondo_ddp_destroy(ddp));
}

static void uneven_inputs(void **state)
{
    (void)state;
    for (int mode = 1; mode < 4; mode++)
        for (int k = 0; k < 6; k++) {
            rondo_ddp_config config = RONDO_DDP_CONFIG_INIT;
            config.join = (rondo_ddp_join_mode)mode;
            config.reduce = (rondo_ddp_reduce)(k % 3);
            config.find_unused = k / 3;
            config.buffers = k / 3 ? RONDO_DDP_BUFFERS_MEAN : RONDO_DDP_BUFFERS_FIRST;
            ranks_run(3, NULL, tensors_set_up, joins, &config);
        }
}

static void join_is_refused(rondo_comm *comm, int rank, int n, void *context)
{
    rondo_ddp_config config = RONDO_DDP_CONFIG_INIT;
    rondo_ddp *ddp = NULL;
    model m;
    int active;
    (void)n;
    (void)context;
    make_model(&m, rank);
    OK(rondo_ddp_create(&ddp, m.parameter, 1, NULL, 0, comm, NULL));
    CHECK(rondo_ddp_join(ddp) == RONDO_INVALID_USAGE && strstr(rondo_last_error(NULL), "JOIN_NONE"), "%s",
          rondo_last_error(NULL));
    OK(rondo_ddp_destroy(ddp));
    config.join = RONDO_DDP_JOIN_STOP;
    OK(rondo_ddp_create(&ddp, m.parameter, 1, NULL, 0, comm, &config));
    CHECK(rondo_ddp_forward(ddp, 1, NULL) == RONDO_INVALID_ARGUMENT, "STOP without active");
    OK(rondo_ddp_forward(ddp, 1, &active));
    CHECK(rondo_ddp_join(ddp) == RONDO_INVALID_USAGE, "join within a step");
    step(ddp, &m, 1);
    OK(rondo_ddp_join(ddp));
    OK(rondo_ddp_destroy(ddp));
}

static void wrong_joins(void **state)
{
    (void)state;
    ranks_run(2, NULL, tensors_set_up, join_is_refused, NULL);
}

/* A rank that dies is an error of wait for the others, and of every call after. */
static void dies(rondo_comm *comm, int rank, int n, void *context)
{
    atomic_int *through = context; /* ranks that have made the first step */
    rondo_ddp *ddp = NULL;
    model m;
    make_model(&m, rank);
    OK(rondo_ddp_create(&ddp, m.parameter, 1, m.buffer, 2, comm, NULL));
    step(ddp, &m, 1);
    atomic_fetch_add(through, 1);
    while (rank == 1 && atomic_load(through) < n) usleep(1000);
    if (rank == 1) _exit(0);
    gradient(&m, 1);
    rondo_result r = rondo_ddp_ready(ddp, 0);
    if (r == RONDO_SUCCESS) r = rondo_ddp_wait(ddp);
    CHECK(r == RONDO_REMOTE_ERROR && strstr(rondo_last_error(NULL), "rank 1"), "%d: %s", (int)r,
          rondo_last_error(NULL));
    CHECK(rondo_ddp_forward(ddp, 1, NULL) == RONDO_REMOTE_ERROR && strstr(rondo_last_error(NULL), "rank 1"), "%s",
          rondo_last_error(NULL));
    rondo_ddp_destroy(ddp);
}

static void a_death_is_told(void **state)
{
    (void)state;
    ranks_run(3, NULL, tensors_set_up, dies, test_shared(sizeof(atomic_int)));
}

/* ---- Clipping, names ---- */

static void clips(rondo_comm *comm, int rank, int n, void *context)
{
    static const char *const named[][2] = {
        {"weight", "weight"},  {"module.weight", "weight"}, {"module.module.mean", "mean"},
        {"big", "big"},        {"module.", NULL},           {"weigh", NULL},
        {"odule.weight", NULL}};
    rondo_ddp *ddp = NULL;
    const char *name = NULL;
    int number = -1;
    double norm = 0;
    model m;
    (void)n;
    (void)context;
    make_model(&m, rank);
    OK(rondo_ddp_create(&ddp, m.parameter, 1, m.buffer, 3, comm, NULL));
    gradient(&m, rank ? 5 : 3);
    OK(rondo_ddp_ready(ddp, 0));
    CHECK(rondo_ddp_clip(ddp, 1, &norm) == RONDO_INVALID_USAGE, "within a step");
    OK(rondo_ddp_wait(ddp));
    OK(rondo_ddp_clip(ddp, 20, &norm)); /* 4 to 9: 16 + 25 + 36 + 49 + 64 + 81 */
    CHECK(fabs(norm - sqrt(271)) < 1e-9, "%g", norm);
    expect_gradient(&m, 4, 1);
    OK(rondo_ddp_clip(ddp, 2, NULL));
    expect_gradient(&m, 8 / sqrt(271), 2 / sqrt(271));
    float before = grad(&m, 1), nan = NAN;
    tensor_put((float *)m.gradient + 2, &nan, sizeof nan);
    OK(rondo_ddp_clip(ddp, 1, &norm));
    CHECK(isnan(norm) && grad(&m, 1) == before, "a norm that is NaN");
    CHECK(rondo_ddp_clip(ddp, 0, &norm) == RONDO_INVALID_ARGUMENT, "0");

    for (int k = 0; k < 7; k++) {
        rondo_result r = rondo_ddp_find(ddp, named[k][0], &number);
        CHECK((r == RONDO_SUCCESS) == (named[k][1] != NULL), "'%s'", named[k][0]);
        if (r != RONDO_SUCCESS) continue;
        OK(rondo_ddp_name(ddp, number, &name));
        CHECK(strcmp(name, named[k][1]) == 0, "'%s' is '%s'", named[k][0], name);
    }
    CHECK(rondo_ddp_name(ddp, 4, &name) == RONDO_INVALID_ARGUMENT, "number 4");
    OK(rondo_ddp_destroy(ddp));
}

static void clipping_and_names(void **state)
{
    (void)state;
    ranks_run(2, NULL, tensors_set_up, clips, NULL);
}

int main(int argc, char **argv)
{
    (void)argc;
    tensors_everywhere(argv);
    alarm((unsigned)(120 * test_slowness()));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffers_are_made_alike), cmocka_unit_test(sums_and_weights),
        cmocka_unit_test(uneven_inputs),          cmocka_unit_test(wrong_joins),
        cmocka_unit_test(a_death_is_told),        cmocka_unit_test(clipping_and_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
