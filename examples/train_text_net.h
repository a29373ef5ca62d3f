/* SPDX-License-Identifier: Apache-2.0
 *
 * train_text_net.h - the network of train_text.c, which knows nothing of ranks: from WINDOW letters the chances of the
 * one that follows.
 *
 *     letters -> embedding -> linear -> LayerNorm -> tanh -> linear -> softmax
 */
#ifndef TRAIN_TEXT_NET_H
#define TRAIN_TEXT_NET_H

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 8, EMBEDDED = 8, INPUTS = WINDOW * EMBEDDED, HIDDEN = 64, MOST_LETTERS = 128 };
enum { EMBEDDING, HIDDEN_WEIGHT, HIDDEN_BIAS, NORM_GAIN, NORM_BIAS, OUT_WEIGHT, OUT_BIAS, TENSORS };
static const char *const names[TENSORS] = {"embedding.weight", "hidden.weight", "hidden.bias", "norm.weight",
                                           "norm.bias",        "out.weight",    "out.bias"};

typedef struct net {
    int letters; /* that there are, numbered from 0 */
    size_t count[TENSORS], parameters;
    float *values, *value[TENSORS]; /* all parameters in one array, and where each one begins */
    void *gradient[TENSORS];        /* whoever trains says where */
} net;

/* What the backward pass needs of one window's forward pass, and leaves for the layer before. */
typedef struct pass {
    const unsigned char *letter; /* WINDOW of them, then the one to guess */
    float input[INPUTS], sum[HIDDEN], normal[HIDDEN], unit[HIDDEN], score[MOST_LETTERS];
    float by_unit[HIDDEN], by_sum[HIDDEN], by_input[INPUTS]; /* slopes; those by the scores take their place */
    float by_spread;                                         /* 1 / standard deviation of sum[] */
} pass;

/* out = weight * in + bias; a row of weights for each output. */
static void linear(const float *weight, const float *bias, const float *in, int inputs, float *out, int outputs)
{
    for (int o = 0; o < outputs; o++, weight += inputs) {
        float sum = bias[o];
        for (int i = 0; i < inputs; i++) sum += weight[i] * in[i];
        out[o] = sum;
    }
}

/* From the slopes by the outputs, adds those by weights and bias, and works out those by the inputs. */
static void linear_back(const float *weight, float *by_weight, float *by_bias, const float *in, float *by_in,
                        int inputs, const float *by_out, int outputs)
{
    memset(by_in, 0, (size_t)inputs * sizeof *by_in);
    for (int o = 0; o < outputs; o++, weight += inputs, by_weight += inputs) {
        for (int i = 0; i < inputs; i++) {
            by_weight[i] += by_out[o] * in[i];
            by_in[i] += by_out[o] * weight[i];
        }
        by_bias[o] += by_out[o];
    }
}

static void forward(const net *n, const unsigned char *letter, pass *p)
{
    float mean = 0, square = 0;
    p->letter = letter;
    for (int w = 0; w < WINDOW; w++)
        memcpy(p->input + w * EMBEDDED, n->value[EMBEDDING] + letter[w] * EMBEDDED, EMBEDDED * sizeof(float));
    linear(n->value[HIDDEN_WEIGHT], n->value[HIDDEN_BIAS], p->input, INPUTS, p->sum, HIDDEN);
    for (int i = 0; i < HIDDEN; i++) mean += p->sum[i] / HIDDEN;
    for (int i = 0; i < HIDDEN; i++) square += (p->sum[i] - mean) * (p->sum[i] - mean) / HIDDEN;
    p->by_spread = 1 / sqrtf(square + 1e-5f);
    for (int i = 0; i < HIDDEN; i++) {
        p->normal[i] = (p->sum[i] - mean) * p->by_spread;
        p->unit[i] = tanhf(n->value[NORM_GAIN][i] * p->normal[i] + n->value[NORM_BIAS][i]);
    }
    linear(n->value[OUT_WEIGHT], n->value[OUT_BIAS], p->unit, HIDDEN, p->score, n->letters);
}

/* Scores become probabilities. */
static void softmax(const net *n, pass *p)
{
    float highest = p->score[0], sum = 0;
    for (int c = 1; c < n->letters; c++) highest = fmaxf(highest, p->score[c]);
    for (int c = 0; c < n->letters; c++) sum += p->score[c] = expf(p->score[c] - highest);
    for (int c = 0; c < n->letters; c++) p->score[c] /= sum;
}

/* A layer's last parameter is first on the way back, and stands for the layer: adds the slopes by all of its
 * parameters, and works out those by its inputs. */
static void backward(const net *n, int t, pass *p)
{
    float *by = n->gradient[t], along = 0, mean = 0;
    if (t == OUT_BIAS) {
        linear_back(n->value[OUT_WEIGHT], n->gradient[OUT_WEIGHT], by, p->unit, p->by_unit, HIDDEN, p->score,
                    n->letters);
        for (int i = 0; i < HIDDEN; i++) p->by_unit[i] *= 1 - p->unit[i] * p->unit[i]; /* tanh's */
    } else if (t == NORM_BIAS) {
        float *by_gain = n->gradient[NORM_GAIN];
        for (int i = 0; i < HIDDEN; i++) {
            by[i] += p->by_unit[i];
            by_gain[i] += p->by_unit[i] * p->normal[i];
            p->by_unit[i] *= n->value[NORM_GAIN][i];
            mean += p->by_unit[i] / HIDDEN;
            along += p->by_unit[i] * p->normal[i] / HIDDEN;
        }
        for (int i = 0; i < HIDDEN; i++) p->by_sum[i] = (p->by_unit[i] - mean - along * p->normal[i]) * p->by_spread;
    } else if (t == HIDDEN_BIAS) {
        linear_back(n->value[HIDDEN_WEIGHT], n->gradient[HIDDEN_WEIGHT], by, p->input, p->by_input, INPUTS, p->by_sum,
                    HIDDEN);
    } else if (t == EMBEDDING) {
        for (int i = 0; i < INPUTS; i++) by[p->letter[i / EMBEDDED] * EMBEDDED + i % EMBEDDED] += p->by_input[i];
    }
}

/* The parameters' memory, zeroed, to be freed as values. 0: there is none. */
static int make_net(net *n, int letters)
{
    size_t l = (size_t)letters, at = 0;
    const size_t count[TENSORS] = {l * EMBEDDED, INPUTS * HIDDEN, HIDDEN, HIDDEN, HIDDEN, l * HIDDEN, l};
    memcpy(n->count, count, sizeof count);
    n->letters = letters;
    for (int t = 0; t < TENSORS; t++) n->parameters += count[t];
    n->values = calloc(n->parameters, sizeof *n->values);
    for (int t = 0; t < TENSORS && n->values; at += count[t++]) n->value[t] = n->values + at;
    return n->values != NULL;
}

#endif
