/* SPDX-License-Identifier: Apache-2.0
 *
 * dp_vs_ddp_run.c - the same steps twice: by one process with a thread per device, and by a process per rank. Both add
 * up the same gradients of the same batch, so both end with the same parameters but for roundings.
 */
#include "base/clock.h"
#include "base/status.h"
#include "cli/dp_vs_ddp.h"
#include "cli/limits.h"
#include "rondo_ddp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const float rate = 0.1f;

static void descend(float *parameters, const float *gradient, size_t count)
{
    for (size_t i = 0; i < count; i++) parameters[i] -= rate * gradient[i];
}

/* Sorts them. */
static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, rd_by_value);
    return values[count / 2];
}

/* ---- nn.DataParallel's way ---- */

/* Units and slopes of each device, kept from forward to backward. */
typedef struct dp_side {
    const rd_net *net;
    float *units[RD_TEAM_RANKS], *slopes[RD_TEAM_RANKS];
} dp_side;

static void dp_forward(void *context, int device, const float *parameters, const float *input, size_t samples,
                       float *output)
{
    const dp_side *side = context;
    size_t row = samples * (size_t)side->net->width;
    memcpy(side->units[device], input, row * sizeof *input);
    rd_net_forward(side->net, parameters, side->units[device], samples);
    memcpy(output, side->units[device] + (size_t)side->net->layers * row, row * sizeof *output);
}

static void dp_backward(void *context, int device, const float *parameters, const float *input, size_t samples,
                        const float *output_gradient, float *gradient)
{
    const dp_side *side = context;
    size_t row = samples * (size_t)side->net->width;
    (void)input; /* is in the units */
    memcpy(side->slopes[device] + (size_t)side->net->layers * row, output_gradient, row * sizeof *output_gradient);
    for (int l = side->net->layers - 1; l >= 0; l--)
        rd_net_backward(side->net, l, parameters, side->units[device], side->slopes[device], samples,
                        gradient + (size_t)l * rd_net_layer(side->net));
}

typedef struct dp_data {
    float *input, *target, *output, *slopes, *gradient;
} dp_data;

static rondo_result dp_step(rondo_data_parallel *dp, const rd_versus_options *o, const dp_data *d, float *parameters)
{
    size_t batch = (size_t)o->batch, count = rd_net_parameters(&o->net);
    memset(d->gradient, 0, count * sizeof *d->gradient);
    RD_TRY(rondo_data_parallel_forward(dp, d->input, batch, d->output, NULL));
    rd_net_loss_slopes(&o->net, d->output, d->target, batch, batch, d->slopes);
    RD_TRY(rondo_data_parallel_backward(dp, d->slopes));
    descend(parameters, d->gradient, count);
    return RONDO_SUCCESS;
}

static rondo_result dp_report(const rondo_data_parallel *dp, const rd_versus_options *o, int devices,
                              rd_versus_row *row, double *idle_first, double *idle_others)
{
    rondo_data_parallel_report report = {.size = sizeof report};
    *idle_others = row->held_others = 0;
    for (int d = 0; d < devices; d++) {
        RD_TRY(rondo_data_parallel_get_report(dp, d, &report));
        double held = (double)report.held + 2.0 * (double)(report.samples * rd_net_units(&o->net) * sizeof(float));
        if (d == 0) {
            row->held_first = held;
            row->through_first = (double)(report.in + report.out);
            *idle_first = report.idle_s;
        } else {
            row->held_others += held / (devices - 1);
            *idle_others += report.idle_s / (devices - 1);
        }
    }
    return RONDO_SUCCESS;
}

static rondo_result dp_train(rondo_data_parallel *dp, const rd_versus_options *o, int devices, const dp_data *d,
                             float *parameters, rd_versus_row *row)
{
    double step[RD_VERSUS_STEPS] = {0}, first[RD_VERSUS_STEPS] = {0}, others[RD_VERSUS_STEPS] = {0};
    for (int s = -1; s < o->steps; s++) { /* the first one is not counted: it meets memory for the first time */
        int at = s < 0 ? 0 : s;
        int64_t from = rd_now();
        RD_TRY(dp_step(dp, o, d, parameters));
        step[at] = (double)(rd_now() - from) * 1e-9;
        RD_TRY(dp_report(dp, o, devices, row, &first[at], &others[at]));
    }
    row->step_s = median(step, o->steps);
    row->idle_first_s = median(first, o->steps);
    row->idle_others_s = median(others, o->steps);
    return RONDO_SUCCESS;
}

bool rd_versus_dp(const rd_versus_options *o, int devices, float *parameters, rd_versus_row *row)
{
    size_t batch = (size_t)o->batch, rows = batch * (size_t)o->net.width,
           part = (batch + (size_t)devices - 1) / (size_t)devices;
    size_t units = part * rd_net_units(&o->net), count = rd_net_parameters(&o->net);
    dp_side side = {.net = &o->net};
    rondo_data_parallel_model model = {sizeof model, count, (size_t)o->net.width, (size_t)o->net.width, 0, dp_forward,
                                       dp_backward,  &side};
    rondo_data_parallel *dp = NULL;
    rondo_result result = RONDO_SYSTEM_ERROR;
    float *all = calloc(4 * rows + count + 2 * units * (size_t)devices, sizeof *all);
    if (!all)
        rd_fail_errno("no memory for a batch of %d samples", o->batch);
    else {
        dp_data d = {all, all + rows, all + 2 * rows, all + 3 * rows, all + 4 * rows};
        for (int k = 0; k < devices; k++) {
            side.units[k] = all + 4 * rows + count + 2 * units * (size_t)k;
            side.slopes[k] = side.units[k] + units;
        }
        rd_net_first(&o->net, parameters);
        rd_net_samples(&o->net, 0, batch, d.input, d.target);
        result = rondo_data_parallel_create(&dp, devices, &model, parameters, d.gradient);
        if (result == RONDO_SUCCESS) result = dp_train(dp, o, devices, &d, parameters, row);
    }
    if (result != RONDO_SUCCESS) fprintf(stderr, "rondo bench dp-vs-ddp: %s\n", rondo_last_error(NULL));
    rondo_data_parallel_destroy(dp);
    free(all);
    return result == RONDO_SUCCESS;
}

/* ---- DistributedDataParallel's way ---- */

/* In memory of all ranks. */
typedef struct ddp_side {
    const rd_versus_options *options;
    struct {
        double step_s, idle_s, held, through;
    } rank[RD_TEAM_RANKS];
    float parameters[]; /* rank 0's, at the end */
} ddp_side;

typedef struct ddp_rank {
    const rd_net *net;
    size_t samples;
    float *parameters, *units, *slopes, *target;
    rondo_ddp_tensor *tensor; /* one for each layer */
    void **gradient;
} ddp_rank;

static rondo_result ddp_step(rondo_ddp *ddp, const rd_versus_options *o, const ddp_rank *r)
{
    size_t layer = rd_net_layer(r->net), row = r->samples * (size_t)r->net->width, last = (size_t)r->net->layers * row;
    rd_net_forward(r->net, r->parameters, r->units, r->samples);
    rd_net_loss_slopes(r->net, r->units + last, r->target, r->samples, (size_t)o->batch, r->slopes + last);
    for (int l = r->net->layers - 1; l >= 0; l--) {
        memset(r->gradient[l], 0, layer * sizeof(float));
        rd_net_backward(r->net, l, r->parameters, r->units, r->slopes, r->samples, r->gradient[l]);
        RD_TRY(rondo_ddp_ready(ddp, l));
    }
    RD_TRY(rondo_ddp_wait(ddp));
    for (int l = 0; l < r->net->layers; l++) descend(r->parameters + (size_t)l * layer, r->gradient[l], layer);
    return RONDO_SUCCESS;
}

static rondo_result ddp_train(rondo_comm *comm, ddp_side *side, const ddp_rank *r)
{
    const rd_versus_options *o = side->options;
    int rank = rondo_comm_rank(comm), size = rondo_comm_size(comm);
    double step[RD_VERSUS_STEPS] = {0}, idle[RD_VERSUS_STEPS] = {0};
    rondo_ddp_config config = RONDO_DDP_CONFIG_INIT;
    rondo_ddp_report report = {.size = sizeof report};
    rondo_ddp *ddp = NULL;
    config.reduce = RONDO_DDP_SUM; /* of slopes that are by the whole batch already */
    RD_TRY(rondo_ddp_create(&ddp, r->tensor, r->net->layers, NULL, 0, comm, &config));
    rondo_result result = RONDO_SUCCESS;
    for (int s = -1; s < o->steps && result == RONDO_SUCCESS; s++) {
        int at = s < 0 ? 0 : s;
        int64_t from = rd_now();
        result = ddp_step(ddp, o, r);
        step[at] = (double)(rd_now() - from) * 1e-9;
        if (result == RONDO_SUCCESS) result = rondo_ddp_get_report(ddp, &report);
        idle[at] = report.waited_s;
    }
    side->rank[rank].step_s = median(step, o->steps);
    side->rank[rank].idle_s = median(idle, o->steps);
    side->rank[rank].held =
        (double)sizeof(float) * (double)(2 * rd_net_parameters(r->net) + 2 * r->samples * rd_net_units(r->net) +
                                         r->samples * (size_t)r->net->width);
    side->rank[rank].through = 2 * 2.0 * (size - 1) / size * (double)report.bytes;
    if (rank == 0) memcpy(side->parameters, r->parameters, rd_net_parameters(r->net) * sizeof(float));
    rondo_ddp_destroy(ddp);
    return result;
}

static rondo_result ddp_run(rondo_comm *comm, int rank, void *context)
{
    ddp_side *side = context;
    const rd_versus_options *o = side->options;
    size_t size = (size_t)rondo_comm_size(comm), batch = (size_t)o->batch, layers = (size_t)o->net.layers;
    size_t first = batch * (size_t)rank / size, samples = batch * ((size_t)rank + 1) / size - first;
    size_t count = rd_net_parameters(&o->net), units = samples * rd_net_units(&o->net);
    char(*name)[32] = calloc(layers, sizeof *name);
    float *all = calloc(count + 2 * units + samples * (size_t)o->net.width, sizeof *all);
    ddp_rank r = {.net = &o->net,
                  .samples = samples,
                  .parameters = all,
                  .tensor = calloc(layers, sizeof *r.tensor),
                  .gradient = calloc(layers, sizeof *r.gradient)};
    rondo_result result = RONDO_SYSTEM_ERROR;
    if (!all || !name || !r.tensor || !r.gradient)
        rd_fail_errno("no memory for %zu parameters", count);
    else {
        r.units = all + count;
        r.slopes = r.units + units;
        r.target = r.slopes + units;
        for (size_t l = 0; l < layers; l++) {
            snprintf(name[l], sizeof *name, "layer%zu", l);
            r.tensor[l] = (rondo_ddp_tensor){name[l], all + l * rd_net_layer(&o->net), rd_net_layer(&o->net),
                                             RONDO_FLOAT32, &r.gradient[l]};
        }
        if (rank == 0) rd_net_first(&o->net, all); /* the others get them */
        rd_net_samples(&o->net, first, samples, r.units, r.target);
        result = ddp_train(comm, side, &r);
    }
    free(r.gradient);
    free(r.tensor);
    free(name);
    free(all);
    return result;
}

bool rd_versus_ddp(const rd_versus_options *o, int ranks, float *parameters, rd_versus_row *row)
{
    char said[RD_ERROR_BYTES] = "no memory to share";
    size_t count = rd_net_parameters(&o->net), bytes = sizeof(ddp_side) + count * sizeof(float);
    ddp_side *side = rd_team_memory(bytes);
    if (side) side->options = o;
    rd_team team = {.ranks = ranks, .timeout_s = 120, .run = ddp_run, .context = side};
    bool good = side && rd_team_run(&team, said, sizeof said);
    if (!good) fprintf(stderr, "rondo bench dp-vs-ddp: %s\n", said);
    if (good) {
        *row = (rd_versus_row){side->rank[0].step_s, side->rank[0].idle_s, 0, side->rank[0].held, 0,
                               side->rank[0].through};
        for (int r = 1; r < ranks; r++) {
            row->idle_others_s += side->rank[r].idle_s / (ranks - 1);
            row->held_others += side->rank[r].held / (ranks - 1);
        }
        memcpy(parameters, side->parameters, count * sizeof *parameters);
    }
    rd_team_memory_free(side, bytes);
    return good;
}
