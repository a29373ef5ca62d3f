/* SPDX-License-Identifier: Apache-2.0
 *
 * dp_vs_ddp_net.c - loops that compilers make vectors of: the innermost goes over a row of W.
 */
#include "cli/dp_vs_ddp.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 16 };

size_t rd_net_layer(const rd_net *net)
{
    return (size_t)net->width * ((size_t)net->width + 1);
}

size_t rd_net_parameters(const rd_net *net)
{
    return (size_t)net->layers * rd_net_layer(net);
}

size_t rd_net_units(const rd_net *net)
{
    return ((size_t)net->layers + 1) * (size_t)net->width;
}

/* From -1 to 1, by number (SplitMix64). */
static float chance(uint64_t number)
{
    uint64_t z = (number + 1) * 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return 2 * (float)((z ^ z >> 31) >> 40) * 0x1p-24f - 1;
}

void rd_net_first(const rd_net *net, float *parameters)
{
    float widest = sqrtf(3.0f / (float)net->width);
    for (size_t i = 0; i < rd_net_parameters(net); i++) parameters[i] = widest * chance(i);
}

void rd_net_samples(const rd_net *net, size_t first, size_t count, float *input, float *target)
{
    size_t width = (size_t)net->width;
    for (size_t i = 0; i < count * width; i++) {
        input[i] = chance(~(uint64_t)(first * width + i));
        target[i] = chance(~(uint64_t)(first * width + i) << 1);
    }
}

void rd_net_forward(const rd_net *net, const float *parameters, float *units, size_t samples)
{
    size_t width = (size_t)net->width;
    for (int l = 0; l < net->layers; l++) {
        const float *w = parameters + (size_t)l * rd_net_layer(net);
        const float *in = units + (size_t)l * samples * width;
        float *out = units + ((size_t)l + 1) * samples * width;
        for (size_t s = 0; s < samples; s++, in += width, out += width) {
            memcpy(out, w + width * width, width * sizeof *out);
            for (size_t i = 0; i < width; i++)
                for (size_t o = 0; o < width; o++) out[o] += in[i] * w[i * width + o];
            for (size_t o = 0; o < width; o++) out[o] = tanhf(out[o]);
        }
    }
}

/* Partial sums side by side: the order of additions is the same for every compiler. */
static float dot(const float *a, const float *b, size_t count)
{
    float sums[LANES] = {0}, sum = 0;
    size_t whole = count / LANES * LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (size_t k = 0; k < LANES; k++) sums[k] += a[i + k] * b[i + k];
    for (size_t k = 0; k < LANES; k++) sum += sums[k];
    for (size_t i = whole; i < count; i++) sum += a[i] * b[i];
    return sum;
}

void rd_net_backward(const rd_net *net, int layer, const float *parameters, const float *units, float *slopes,
                     size_t samples, float *gradient)
{
    size_t width = (size_t)net->width, l = (size_t)layer;
    const float *w = parameters + l * rd_net_layer(net);
    for (size_t s = 0; s < samples; s++) {
        const float *in = units + (l * samples + s) * width, *out = units + ((l + 1) * samples + s) * width;
        float *in_slope = slopes + (l * samples + s) * width, *slope = slopes + ((l + 1) * samples + s) * width;
        for (size_t o = 0; o < width; o++) slope[o] *= 1 - out[o] * out[o]; /* tanh's */
        for (size_t i = 0; i < width; i++) {
            for (size_t o = 0; o < width; o++) gradient[i * width + o] += in[i] * slope[o];
            in_slope[i] = dot(w + i * width, slope, width);
        }
        for (size_t o = 0; o < width; o++) gradient[width * width + o] += slope[o];
    }
}

void rd_net_loss_slopes(const rd_net *net, const float *output, const float *target, size_t samples, size_t batch,
                        float *slopes)
{
    for (size_t i = 0; i < samples * (size_t)net->width; i++) slopes[i] = (output[i] - target[i]) / (float)batch;
}
