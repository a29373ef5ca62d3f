/* SPDX-License-Identifier: Apache-2.0
 *
 * test_data_parallel.c - parts as torch.chunk makes them, outputs and gradients as one device would have them, what
 * goes through device 0, and the trap of gathering scalars. On the host and on GPUs.
 */
#include "rondo_ddp.h"
#include "tensors.h"
#include "test.h"

#include <math.h>
#include <stdbool.h>
#include <unistd.h>

enum { IN = 3, OUT = 2, PARAMETERS = IN * OUT, MOST = 40 };

/* output = input times a matrix. */
static void forward(void *context, int device, const float *parameters, const float *input, size_t samples,
                    float *output)
{
    size_t *seen = context;
    seen[device] = samples;
    for (size_t s = 0; s < samples; s++)
        for (int o = 0; o < OUT; o++) {
            output[s * OUT + (size_t)o] = 0;
            for (int i = 0; i < IN; i++)
                output[s * OUT + (size_t)o] += parameters[o * IN + i] * input[s * IN + (size_t)i];
        }
}

static void backward(void *context, int device, const float *parameters, const float *input, size_t samples,
                     const float *output_gradient, float *gradient)
{
    (void)context;
    (void)device;
    (void)parameters;
    for (size_t s = 0; s < samples; s++)
        for (int o = 0; o < OUT; o++)
            for (int i = 0; i < IN; i++)
                gradient[o * IN + i] += output_gradient[s * OUT + (size_t)o] * input[s * IN + (size_t)i];
}

/* The same on a device, whose memory may be a GPU's. */
static void device_forward(void *context, int device, const float *parameters, const float *input, size_t samples,
                           float *output)
{
    float p[PARAMETERS], in[MOST * IN], out[MOST * OUT];
    tensor_get(p, parameters, sizeof p);
    tensor_get(in, input, samples * IN * sizeof *in);
    forward(context, device, p, in, samples, out);
    tensor_put(output, out, samples * OUT * sizeof *out);
}

static void device_backward(void *context, int device, const float *parameters, const float *input, size_t samples,
                            const float *output_gradient, float *gradient)
{
    float in[MOST * IN], slope[MOST * OUT], g[PARAMETERS];
    tensor_get(in, input, samples * IN * sizeof *in);
    tensor_get(slope, output_gradient, samples * OUT * sizeof *slope);
    tensor_get(g, gradient, sizeof g);
    backward(context, device, parameters, in, samples, slope, g);
    tensor_put(gradient, g, sizeof g);
}

/* Two GPUs take turns; NULL: the host. */
static const int *places(void)
{
    static const int gpus[4] = {0, 1, 0, 1};
    return tensors_on_gpu() ? gpus : NULL;
}

static const size_t parts[][6] = {
    /* samples, devices: the parts */
    {10, 4, 3, 3, 3, 1}, {5, 4, 2, 2, 1, 0}, {5, 2, 3, 2, 0, 0},
    {4, 4, 1, 1, 1, 1},  {2, 4, 1, 1, 0, 0}, {7, 1, 7, 0, 0, 0},
};

static void matches_one_device(const size_t *part)
{
    size_t seen[4] = {0}, samples = part[0], rows = 0;
    int devices = (int)part[1], used = 0;
    float parameters[PARAMETERS], gradient[PARAMETERS], input[MOST * IN], output[MOST * OUT], slope[MOST * OUT];
    rondo_data_parallel_model model = {sizeof model, PARAMETERS, IN, OUT, 0, device_forward, device_backward, seen};
    rondo_data_parallel *dp = NULL;
    tensors_forget();
    float *its_parameters = tensor_new(NULL, sizeof parameters), *its_gradient = tensor_new(NULL, sizeof gradient),
          *its_input = tensor_new(NULL, sizeof input), *its_output = tensor_new(NULL, sizeof output),
          *its_slope = tensor_new(NULL, sizeof slope);
    assert_int_equal(rondo_data_parallel_create_on(&dp, devices, places(), &model, its_parameters, its_gradient),
                     RONDO_SUCCESS);
    for (int step = 0; step < 3; step++) {
        float expected[MOST * OUT], sums[PARAMETERS] = {0};
        for (int i = 0; i < PARAMETERS; i++) parameters[i] = (float)(i + step);
        for (size_t i = 0; i < samples * IN; i++) input[i] = (float)(i * (size_t)(step + 1));
        for (size_t i = 0; i < samples * OUT; i++) slope[i] = (float)i - 3;
        memset(gradient, 0, sizeof gradient);
        tensor_put(its_parameters, parameters, sizeof parameters);
        tensor_put(its_gradient, gradient, sizeof gradient);
        tensor_put(its_input, input, samples * IN * sizeof *input);
        tensor_put(its_slope, slope, samples * OUT * sizeof *slope);
        assert_int_equal(rondo_data_parallel_forward(dp, its_input, samples, its_output, &rows), RONDO_SUCCESS);
        for (int d = 0; d < 4; d++) assert_int_equal(seen[d], part[2 + d]);
        assert_int_equal(rows, samples);
        assert_int_equal(rondo_data_parallel_backward(dp, its_slope), RONDO_SUCCESS);
        assert_int_equal(rondo_data_parallel_backward(dp, its_slope), RONDO_INVALID_USAGE);
        tensor_get(output, its_output, samples * OUT * sizeof *output);
        tensor_get(gradient, its_gradient, sizeof gradient);
        size_t ignored[1];
        forward(ignored, 0, parameters, input, samples, expected);
        backward(NULL, 0, parameters, input, samples, slope, sums);
        for (size_t i = 0; i < samples * OUT; i++) assert_true(output[i] == expected[i]);
        for (int i = 0; i < PARAMETERS; i++) assert_true(gradient[i] == sums[i]);
    }
    for (int d = 0; d < devices; d++) used += part[2 + d] > 0;
    uint64_t others = samples - part[2], copies = (uint64_t)used - 1;
    for (int d = 0; d < devices; d++) {
        rondo_data_parallel_report report = {.size = sizeof report};
        assert_int_equal(rondo_data_parallel_get_report(dp, d, &report), RONDO_SUCCESS);
        assert_int_equal(report.samples, part[2 + d]);
        bool takes_part = part[2 + d] > 0;
        uint64_t out = d ? part[2 + d] * OUT + takes_part * PARAMETERS : others * (IN + OUT) + copies * PARAMETERS;
        uint64_t in = d ? part[2 + d] * (IN + OUT) + takes_part * PARAMETERS : others * OUT + copies * PARAMETERS;
        assert_int_equal(report.out, out * sizeof(float));
        assert_int_equal(report.in, in * sizeof(float));
        uint64_t held = d ? part[2 + d] : samples;
        assert_int_equal(report.held, (2 * PARAMETERS + held * (IN + 2 * OUT)) * sizeof(float));
        assert_true(report.step_s > 0 && report.idle_s >= 0 && report.idle_s <= report.step_s);
    }
    rondo_data_parallel_destroy(dp);
}

static void devices_do_what_one_would(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) matches_one_device(parts[k]);
}

/* A model that averages its own loss over its part. */
static void own_loss(void *context, int device, const float *parameters, const float *input, size_t samples,
                     float *output)
{
    (void)context;
    (void)device;
    *output = 0;
    for (size_t s = 0; s < samples; s++) *output += parameters[0] * input[s] / (float)samples;
}

static void own_loss_back(void *context, int device, const float *parameters, const float *input, size_t samples,
                          const float *output_gradient, float *gradient)
{
    (void)context;
    (void)device;
    (void)parameters;
    for (size_t s = 0; s < samples; s++) *gradient += *output_gradient * input[s] / (float)samples;
}

static void gathered_scalars_are_one_per_device(void **state)
{
    (void)state;
    static const float input[5] = {1, 1, 1, 6, 6}, mean[2] = {0.5f, 0.5f}, by_samples[2] = {0.6f, 0.4f};
    float parameter = 1, gradient = 0, losses[2] = {0};
    size_t rows = 0;
    rondo_data_parallel_model model = {sizeof model, 1, 1, 1, 1, own_loss, own_loss_back, NULL};
    rondo_data_parallel *dp = NULL;
    assert_int_equal(rondo_data_parallel_create(&dp, 2, &model, &parameter, &gradient), RONDO_SUCCESS);
    assert_int_equal(rondo_data_parallel_forward(dp, input, 5, losses, &rows), RONDO_SUCCESS);
    assert_int_equal(rows, 2);
    assert_true(fabsf(losses[0] - 1) < 1e-6f && fabsf(losses[1] - 6) < 1e-6f);
    assert_int_equal(rondo_data_parallel_backward(dp, mean), RONDO_SUCCESS);
    assert_true(fabsf(gradient - 3.5f) < 1e-6f); /* not 3, the batch's mean */
    gradient = 0;
    assert_int_equal(rondo_data_parallel_forward(dp, input, 5, losses, &rows), RONDO_SUCCESS);
    assert_int_equal(rondo_data_parallel_backward(dp, by_samples), RONDO_SUCCESS);
    assert_true(fabsf(gradient - 3) < 1e-6f);
    rondo_data_parallel_destroy(dp);
}

static void wrong_arguments_are_named(void **state)
{
    (void)state;
    float parameters[PARAMETERS] = {0}, gradient[PARAMETERS], x[IN] = {0}, y[OUT];
    size_t seen[4];
    rondo_data_parallel_model model = {sizeof model, PARAMETERS, IN, OUT, 0, forward, backward, seen};
    rondo_data_parallel_report report = {.size = 1};
    rondo_data_parallel *dp = NULL;
    assert_int_equal(rondo_data_parallel_create(&dp, 65, &model, parameters, gradient), RONDO_INVALID_ARGUMENT);
    assert_non_null(strstr(rondo_last_error(NULL), "devices is 65; it must be from 1 to 64"));
    assert_int_equal(rondo_data_parallel_create(&dp, 2, &model, NULL, gradient), RONDO_INVALID_ARGUMENT);
    model.backward = NULL;
    assert_int_equal(rondo_data_parallel_create(&dp, 2, &model, parameters, gradient), RONDO_INVALID_ARGUMENT);
    model.backward = backward;
    assert_null(dp);
    assert_int_equal(rondo_data_parallel_create(&dp, 2, &model, parameters, gradient), RONDO_SUCCESS);
    assert_int_equal(rondo_data_parallel_forward(dp, x, 0, y, NULL), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_data_parallel_backward(dp, y), RONDO_INVALID_USAGE);
    assert_int_equal(rondo_data_parallel_get_report(dp, 0, &report), RONDO_INVALID_ARGUMENT);
    rondo_data_parallel_destroy(dp);
    rondo_data_parallel_destroy(NULL);
}

/* Memory that a device cannot use is named. */
static void wrong_memory_is_named(void **state)
{
    (void)state;
    size_t seen[4];
    float plain[MOST * IN] = {0};
    rondo_data_parallel_model model = {sizeof model, PARAMETERS, IN, OUT, 0, device_forward, device_backward, seen};
    rondo_data_parallel *dp = NULL;
    if (!tensors_on_gpu()) return;
    tensors_forget();
    float *good = tensor_new(NULL, sizeof plain);
    assert_int_equal(rondo_data_parallel_create_on(&dp, 2, places(), &model, good, plain), RONDO_INVALID_ARGUMENT);
    assert_non_null(strstr(rondo_last_error(NULL), "rondo_data_parallel_create: gradient is "));
    assert_non_null(strstr(rondo_last_error(NULL), "it must be memory that GPU 0 reaches"));
    assert_int_equal(rondo_data_parallel_create_on(&dp, 2, (int[]){1, 0}, &model, good, good), RONDO_INVALID_ARGUMENT);
    assert_non_null(strstr(rondo_last_error(NULL), "memory of GPU 0; it must be memory that GPU 1 reaches"));
    assert_int_equal(rondo_data_parallel_create(&dp, 2, &model, good, plain), RONDO_INVALID_ARGUMENT);
    assert_non_null(strstr(rondo_last_error(NULL), "parameters is "));
    assert_int_equal(rondo_data_parallel_create_on(&dp, 2, (int[]){0, 77}, &model, good, good), RONDO_INVALID_ARGUMENT);
    assert_non_null(strstr(rondo_last_error(NULL), "device 1 is to be on GPU 77; this process sees "));
    assert_int_equal(rondo_data_parallel_create_on(&dp, 2, (int[]){0, -1}, &model, good, good), RONDO_INVALID_ARGUMENT);
    assert_null(dp);
    assert_int_equal(rondo_data_parallel_create_on(&dp, 2, places(), &model, good, good), RONDO_SUCCESS);
    assert_int_equal(rondo_data_parallel_forward(dp, plain, 4, good, NULL), RONDO_INVALID_ARGUMENT);
    assert_non_null(strstr(rondo_last_error(NULL), "rondo_data_parallel_forward: input is "));
    rondo_data_parallel_destroy(dp);
}

int main(int argc, char **argv)
{
    (void)argc;
    tensors_everywhere(argv);
    tensors_set_up(0, NULL);
    alarm(60);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_do_what_one_would),
        cmocka_unit_test(gathered_scalars_are_one_per_device),
        cmocka_unit_test(wrong_arguments_are_named),
        cmocka_unit_test(wrong_memory_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
