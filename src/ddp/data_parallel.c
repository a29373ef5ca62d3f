/* SPDX-License-Identifier: Apache-2.0
 *
 * data_parallel.c - one process, device 0 in the middle. Every copy between devices is made by the caller's thread, as
 * it goes through device 0, and counted.
 */
#include "base/clock.h"
#include "base/status.h"
#include "ddp/devices.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_DEVICES = 64 };

struct rondo_data_parallel {
    rondo_data_parallel_model model;
    rd_devices all;
    float *output;                /* the caller's, in forward */
    const float *output_gradient; /* and in backward */
    bool forwarded;
    rd_round round; /* what devices work in */
    int64_t began, step_ns, waited_ns;
};

/* ---- Making ---- */

static rondo_result check(int devices, const rondo_data_parallel_model *m, const float *parameters,
                          const float *gradient)
{
    static const char *const where = "rondo_data_parallel_create";
    if (devices < 1 || devices > MOST_DEVICES)
        return rd_fail(RONDO_INVALID_ARGUMENT, "%s: devices is %d; it must be from 1 to %d", where, devices,
                       MOST_DEVICES);
    if (!m || m->size != sizeof *m || !m->forward || !m->backward)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "%s: model must not be NULL, nor forward and backward in it, and its size must be %zu", where,
                       sizeof *m);
    if (!m->parameters || !m->inputs || !m->outputs || !parameters || !gradient)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "%s: %zu parameters at %p, their gradient at %p, %zu inputs, %zu outputs; there must "
                       "be 1 or more of each, and no pointer NULL",
                       where, m->parameters, (const void *)parameters, (const void *)gradient, m->inputs, m->outputs);
    return RONDO_SUCCESS;
}

/* Device 0's are the caller's. */
static rondo_result open_device(rd_device *device, size_t parameters, int gpu)
{
    RD_TRY(rd_place_open(&device->place, gpu, device->number));
    device->held = 2 * parameters * sizeof(float);
    if (device->number == 0) return RONDO_SUCCESS;
    RD_TRY(rd_place_alloc(&device->place, &device->parameters, parameters));
    return rd_place_alloc(&device->place, &device->gradient, parameters);
}

/* The caller's memory, from device 0. */
static rondo_result reaches(const rondo_data_parallel *dp, const char *where, const char *what, const float *ptr)
{
    return rd_place_check(&dp->all.device[0].place, where, what, ptr);
}

rondo_result rondo_data_parallel_create_on(rondo_data_parallel **dp, int devices, const int *gpus,
                                           const rondo_data_parallel_model *model, float *parameters, float *gradient)
{
    if (!dp) return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_data_parallel_create: dp is NULL");
    RD_TRY(check(devices, model, parameters, gradient));
    for (int d = 0; gpus && d < devices; d++)
        if (gpus[d] < 0)
            return rd_fail(RONDO_INVALID_ARGUMENT,
                           "rondo_data_parallel_create_on: gpus[%d] is %d; it must be the number of a GPU, from 0", d,
                           gpus[d]);
    rondo_data_parallel *made = calloc(1, sizeof *made);
    if (!made) return rd_fail_errno("rondo_data_parallel_create: no memory");
    for (int d = 0; d < MOST_DEVICES; d++) made->all.device[d].place.gpu = -1;
    made->model = *model;
    rondo_result result = rd_devices_start(&made->all, devices);
    made->all.device[0].parameters = parameters;
    made->all.device[0].gradient = gradient;
    for (int d = 0; d < devices && result == RONDO_SUCCESS; d++)
        result = open_device(&made->all.device[d], model->parameters, gpus ? gpus[d] : -1);
    if (result == RONDO_SUCCESS) result = reaches(made, "rondo_data_parallel_create", "parameters", parameters);
    if (result == RONDO_SUCCESS) result = reaches(made, "rondo_data_parallel_create", "gradient", gradient);
    if (result == RONDO_SUCCESS)
        *dp = made;
    else
        rondo_data_parallel_destroy(made);
    return result;
}

rondo_result rondo_data_parallel_create(rondo_data_parallel **dp, int devices, const rondo_data_parallel_model *model,
                                        float *parameters, float *gradient)
{
    return rondo_data_parallel_create_on(dp, devices, NULL, model, parameters, gradient);
}

static void free_batch(rd_device *device)
{
    rd_place_free(&device->place, device->input);
    rd_place_free(&device->place, device->output);
    rd_place_free(&device->place, device->output_gradient);
    device->input = device->output = device->output_gradient = NULL;
    device->room = 0;
}

void rondo_data_parallel_destroy(rondo_data_parallel *dp)
{
    if (!dp) return;
    rd_devices_stop(&dp->all);
    for (int d = 0; d < dp->all.count; d++) {
        rd_device *device = &dp->all.device[d];
        if (d) rd_place_free(&device->place, device->parameters);
        if (d) rd_place_free(&device->place, device->gradient);
        free_batch(device);
        rd_place_close(&device->place);
    }
    free(dp);
}

/* ---- Parts ---- */

static size_t rows_of(const rondo_data_parallel *dp, size_t samples)
{
    return dp->model.one_output ? 1 : samples;
}

static rondo_result grow(const rondo_data_parallel *dp, rd_device *device, size_t samples)
{
    const rondo_data_parallel_model *m = &dp->model;
    if (device->number == 0 || samples <= device->room) return RONDO_SUCCESS;
    size_t outputs = rows_of(dp, samples) * m->outputs;
    free_batch(device);
    RD_TRY(rd_place_alloc(&device->place, &device->input, samples * m->inputs));
    RD_TRY(rd_place_alloc(&device->place, &device->output, outputs));
    RD_TRY(rd_place_alloc(&device->place, &device->output_gradient, outputs));
    device->room = samples;
    return RONDO_SUCCESS;
}

/* From device 0 to another, or back. */
static rondo_result copy(rd_device *from, rd_device *to, const float *source, float *target, size_t count)
{
    RD_TRY(rd_place_copy(&to->place, target, source, count));
    from->out += count * sizeof *target;
    to->in += count * sizeof *target;
    return RONDO_SUCCESS;
}

static rondo_result split(rondo_data_parallel *dp, const float *input, size_t samples)
{
    rd_devices *all = &dp->all;
    size_t count = (size_t)all->count, part = samples / count + (samples % count > 0), first = 0;
    all->used = (int)(samples / part + (samples % part > 0));
    for (int d = 0; d < all->count; d++) {
        rd_device *device = &all->device[d];
        device->samples = samples - first < part ? samples - first : part;
        device->in = device->out = 0;
        device->busy_ns = 0;
        if (device->samples) RD_TRY(grow(dp, device, device->samples));
        size_t held = d ? device->room : samples, rows = d                      ? rows_of(dp, held)
                                                         : dp->model.one_output ? (size_t)all->used
                                                                                : held;
        device->held =
            sizeof(float) * (2 * dp->model.parameters + held * dp->model.inputs + 2 * rows * dp->model.outputs);
        device->rows = d ? device->input : input;
        first += device->samples;
    }
    return RONDO_SUCCESS;
}

/* ---- Rounds ---- */

static void forward(rd_device *device, void *context)
{
    const rondo_data_parallel *dp = context;
    dp->model.forward(dp->model.context, device->number, device->parameters, device->rows, device->samples,
                      device->number ? device->output : dp->output);
}

static void backward(rd_device *device, void *context)
{
    const rondo_data_parallel *dp = context;
    if (device->number) device->failed = rd_place_zero(&device->place, device->gradient, dp->model.parameters);
    if (device->failed != RONDO_SUCCESS) return;
    dp->model.backward(dp->model.context, device->number, device->parameters, device->rows, device->samples,
                       device->number ? device->output_gradient : dp->output_gradient, device->gradient);
}

/* On the device's thread, with its GPU current, until what that was given is done. */
static void at_its_place(rd_device *device, void *context)
{
    rondo_data_parallel *dp = context;
    device->failed = rd_place_enter(&device->place);
    if (device->failed == RONDO_SUCCESS) {
        dp->round(device, dp);
        rondo_result left = rd_place_leave(&device->place);
        if (device->failed == RONDO_SUCCESS) device->failed = left;
    }
    if (device->failed != RONDO_SUCCESS) snprintf(device->error, sizeof device->error, "%s", rondo_last_error(NULL));
}

static rondo_result run(rondo_data_parallel *dp, rd_round round)
{
    dp->round = round;
    dp->waited_ns += rd_devices_run(&dp->all, at_its_place, dp);
    for (int d = 0; d < dp->all.used; d++) {
        const rd_device *device = &dp->all.device[d];
        if (device->failed != RONDO_SUCCESS)
            return rd_fail(device->failed, "rondo_data_parallel: device %d: %s", d, device->error);
    }
    return RONDO_SUCCESS;
}

/* The caller's kernels on device 0, whose results other devices are to be given. */
static rondo_result finish_caller_s(const rondo_data_parallel *dp)
{
    RD_TRY(rd_place_enter(&dp->all.device[0].place));
    return rd_place_leave(&dp->all.device[0].place);
}

rondo_result rondo_data_parallel_forward(rondo_data_parallel *dp, const float *input, size_t samples, float *output,
                                         size_t *rows)
{
    if (!dp || !input || !output || samples == 0)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "rondo_data_parallel_forward: dp %p, input %p, output %p, %zu samples; none may be NULL "
                       "or 0",
                       (void *)dp, (const void *)input, (void *)output, samples);
    RD_TRY(reaches(dp, "rondo_data_parallel_forward", "input", input));
    RD_TRY(reaches(dp, "rondo_data_parallel_forward", "output", output));
    const rondo_data_parallel_model *m = &dp->model;
    rd_device *first = dp->all.device;
    size_t row = 0, sample = 0;
    dp->began = rd_now();
    dp->forwarded = false;
    RD_TRY(finish_caller_s(dp));
    RD_TRY(split(dp, input, samples));
    for (int d = 0; d < dp->all.used; d++) {
        rd_device *device = &dp->all.device[d];
        if (d) RD_TRY(copy(first, device, input + sample * m->inputs, device->input, device->samples * m->inputs));
        if (d) RD_TRY(copy(first, device, first->parameters, device->parameters, m->parameters));
        sample += device->samples;
    }
    dp->output = output;
    dp->waited_ns = 0;
    RD_TRY(run(dp, forward));
    for (int d = 0; d < dp->all.used; d++) {
        rd_device *device = &dp->all.device[d];
        size_t count = rows_of(dp, device->samples);
        if (d) RD_TRY(copy(device, first, device->output, output + row * m->outputs, count * m->outputs));
        row += count;
    }
    dp->forwarded = true;
    if (rows) *rows = row;
    return RONDO_SUCCESS;
}

/* On device 0, which alone has room for the sum. */
static rondo_result add_gradient(rondo_data_parallel *dp, rd_device *device)
{
    rd_device *first = dp->all.device;
    RD_TRY(rd_place_add(&first->place, first->gradient, device->gradient, dp->model.parameters));
    device->out += dp->model.parameters * sizeof(float);
    first->in += dp->model.parameters * sizeof(float);
    return RONDO_SUCCESS;
}

rondo_result rondo_data_parallel_backward(rondo_data_parallel *dp, const float *output_gradient)
{
    if (!dp || !output_gradient)
        return rd_fail(RONDO_INVALID_ARGUMENT, "rondo_data_parallel_backward: %s is NULL",
                       dp ? "output_gradient" : "dp");
    if (!dp->forwarded)
        return rd_fail(RONDO_INVALID_USAGE,
                       "rondo_data_parallel_backward: there was no forward before; call one for each backward");
    RD_TRY(reaches(dp, "rondo_data_parallel_backward", "output_gradient", output_gradient));
    RD_TRY(finish_caller_s(dp));
    size_t row = 0, outputs = dp->model.outputs;
    for (int d = 0; d < dp->all.used; d++) {
        rd_device *device = &dp->all.device[d];
        size_t count = rows_of(dp, device->samples);
        if (d)
            RD_TRY(copy(dp->all.device, device, output_gradient + row * outputs, device->output_gradient,
                        count * outputs));
        row += count;
    }
    dp->output_gradient = output_gradient;
    RD_TRY(run(dp, backward));
    for (int d = 1; d < dp->all.used; d++) RD_TRY(add_gradient(dp, &dp->all.device[d]));
    dp->step_ns = rd_now() - dp->began;
    dp->forwarded = false;
    return RONDO_SUCCESS;
}

rondo_result rondo_data_parallel_get_report(const rondo_data_parallel *dp, int device,
                                            rondo_data_parallel_report *report)
{
    if (!dp || device < 0 || device >= dp->all.count || !report || report->size != sizeof *report)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "rondo_data_parallel_get_report: dp %p, device %d, report %p; device must be from 0 to %d, "
                       "and the report's size %zu",
                       (const void *)dp, device, (void *)report, dp ? dp->all.count - 1 : 0, sizeof *report);
    const rd_device *d = &dp->all.device[device];
    int64_t idle = device ? dp->step_ns - d->busy_ns : dp->waited_ns;
    *report = (rondo_data_parallel_report){
        sizeof *report, d->samples, d->held, d->in, d->out, (double)dp->step_ns * 1e-9, (double)idle * 1e-9};
    return RONDO_SUCCESS;
}
