/* SPDX-License-Identifier: Apache-2.0
 *
 * dp_vs_ddp.h - `rondo bench dp-vs-ddp`: one training step by nn.DataParallel's way and by DistributedDataParallel's.
 *
 *   dp_vs_ddp.c      the command line and the table
 *   dp_vs_ddp_run.c  both ways
 *   dp_vs_ddp_net.c  the network that both train
 */
#ifndef RD_CLI_DP_VS_DDP_H
#define RD_CLI_DP_VS_DDP_H

#include "cli/team.h"

#include <stddef.h>

/* ---- The network: `layers` times tanh(x W + b), all of `width` units ---- */

typedef struct rd_net {
    int layers, width;
} rd_net;

/* Floats: of one layer's parameters (W by rows of inputs, then b), of all, and of one sample's units in all layers. */
size_t rd_net_layer(const rd_net *net);
size_t rd_net_parameters(const rd_net *net);
size_t rd_net_units(const rd_net *net);

/* The same on every rank. */
void rd_net_first(const rd_net *net, float *parameters);
/* Samples first ... first + count - 1 of the batch: width inputs and width targets each. */
void rd_net_samples(const rd_net *net, size_t first, size_t count, float *input, float *target);

/* units: layer by layer, each with a row for each sample; the first are the inputs, the last the outputs. */
void rd_net_forward(const rd_net *net, const float *parameters, float *units, size_t samples);
/* slopes, laid out as units, hold the loss's slopes by this layer's outputs; adds to the layer's gradient (not the
 * whole net's), and works out the slopes by its inputs. */
void rd_net_backward(const rd_net *net, int layer, const float *parameters, const float *units, float *slopes,
                     size_t samples, float *gradient);
/* Of the mean of (output - target)^2 / 2 over a batch of `batch` samples. */
void rd_net_loss_slopes(const rd_net *net, const float *output, const float *target, size_t samples, size_t batch,
                        float *slopes);

/* ---- Both ways ---- */

typedef struct rd_versus_options {
    rd_net net;
    int batch, steps;
    int ranks[RD_TEAM_RANKS], runs;
} rd_versus_options;

enum { RD_VERSUS_STEPS = 1000 };

/* What one of them costs a step: medians of the steps after the first. Bytes and seconds. */
typedef struct rd_versus_row {
    double step_s, idle_first_s, idle_others_s; /* others: their mean */
    double held_first, held_others;
    double through_first; /* that device 0 (rank 0) takes and gives */
} rd_versus_row;

/* Train `parameters` (rd_net_parameters) from rd_net_first on. False after saying why. */
bool rd_versus_dp(const rd_versus_options *options, int devices, float *parameters, rd_versus_row *row);
bool rd_versus_ddp(const rd_versus_options *options, int ranks, float *parameters, rd_versus_row *row);

/* argv[0] is "dp-vs-ddp". Returns the exit status. */
int rd_bench_dp_vs_ddp(int argc, char **argv);

#endif
