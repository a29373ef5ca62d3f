/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_train [-d DEVICES] [-p PROCESS/PROCESSES -i IDFILE] [-e EPOCHS] [-m] DIGITS - data-parallel training as a
 * program for NCCL does it: nccl.h and the CUDA runtime, no word of Rondo. Compile it with NVIDIA's headers, and run it
 * with NVIDIA's libnccl.so.2 or, unchanged, with Rondo's (docs/nccl.md):
 *
 *     cc -O2 examples/nccl_train.c -o nccl_train -I/usr/local/cuda/include -L/usr/local/cuda/lib64 -lnccl -lcudart -lm
 *     LD_LIBRARY_PATH=build/compat ./nccl_train -d 2 examples/data/digits.csv
 *
 * Each device is a rank: it works on its share of each batch, the gradients are summed by ncclAllReduce on the device's
 * stream, and every rank makes the same step. One process drives all its devices from one thread, by groups. The
 * network is small and worked out by the CPU, since what is shown is the communication.
 *
 * -m: gradients stay in host memory and no CUDA call is made, which Rondo's library can and NVIDIA's cannot.
 */
#include <cuda_runtime.h>
#include <nccl.h>

#include <getopt.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NCCL(call)                                                                                                     \
    do {                                                                                                               \
        ncclResult_t result_ = (call);                                                                                 \
        if (result_ != ncclSuccess) stop(#call, ncclGetErrorString(result_), ncclGetLastError(NULL));                  \
    } while (0)
#define CUDA(call)                                                                                                     \
    do {                                                                                                               \
        cudaError_t error_ = (call);                                                                                   \
        if (error_ != cudaSuccess) stop(#call, cudaGetErrorString(error_), "");                                        \
    } while (0)

static void stop(const char *call, const char *what, const char *why)
{
    fprintf(stderr, "nccl_train: %s: %s. %s\n", call, what, why);
    exit(1);
}

/* ---- The network: 64 pixels, 32 units, 10 scores; a row for each unit: weights, then the bias -------------------- */

enum { PIXELS = 64, UNITS = 32, CLASSES = 10, FIRST = UNITS * (PIXELS + 1), ALL = FIRST + CLASSES * (UNITS + 1) };
enum { BATCH = 64, MOST_DIGITS = 4096, MOST_DEVICES = 16 };

typedef struct digit {
    float pixel[PIXELS];
    int label;
} digit;

static void row_sums(const float *row, const float *in, int ins, float *out, int outs)
{
    for (int o = 0; o < outs; o++, row += ins + 1) {
        out[o] = row[ins];
        for (int i = 0; i < ins; i++) out[o] += row[i] * in[i];
    }
}

/* Adds one digit's part to the gradient; returns its loss. */
static float learn(const float *weights, const digit *d, float *gradient)
{
    float unit[UNITS], score[CLASSES], slope[UNITS] = {0}, highest, sum = 0, loss;
    row_sums(weights, d->pixel, PIXELS, unit, UNITS);
    for (int u = 0; u < UNITS; u++) unit[u] = tanhf(unit[u]);
    row_sums(weights + FIRST, unit, UNITS, score, CLASSES);
    highest = score[0];
    for (int c = 1; c < CLASSES; c++) highest = score[c] > highest ? score[c] : highest;
    loss = highest - score[d->label];
    for (int c = 0; c < CLASSES; c++) sum += score[c] = expf(score[c] - highest);
    for (int c = 0; c < CLASSES; c++) {
        float s = score[c] / sum - (c == d->label ? 1.0f : 0.0f), *by = gradient + FIRST + c * (UNITS + 1);
        for (int u = 0; u < UNITS; u++) {
            by[u] += s * unit[u];
            slope[u] += s * weights[FIRST + c * (UNITS + 1) + u];
        }
        by[UNITS] += s;
    }
    for (int u = 0; u < UNITS; u++) {
        float s = slope[u] * (1 - unit[u] * unit[u]), *by = gradient + u * (PIXELS + 1);
        for (int i = 0; i < PIXELS; i++) by[i] += s * d->pixel[i];
        by[PIXELS] += s;
    }
    return loss + logf(sum);
}

static void first_weights(float *weights)
{
    uint64_t x = 88172645463325252u;
    for (int i = 0; i < ALL; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        weights[i] = ((float)(x >> 40) * 0x1p-23f - 1) * 0.2f;
    }
}

static int read_digits(const char *path, digit *digits)
{
    int count = 0, value;
    FILE *file = fopen(path, "r");
    if (!file) stop(path, "cannot be read", "Name the file of digits last.");
    for (; count < MOST_DIGITS; count++) {
        for (int i = 0; i < PIXELS; i++) {
            if (fscanf(file, "%d,", &value) != 1) return fclose(file), count;
            digits[count].pixel[i] = (float)value / 16;
        }
        if (fscanf(file, "%d", &digits[count].label) != 1) stop(path, "has a line that is cut short", "");
    }
    return fclose(file), count;
}

/* ---- A rank ----------------------------------------------------------------------------------------------------- */

typedef struct rank {
    int number, device;
    ncclComm_t comm;
    cudaStream_t stream;
    float *weights, *gradient; /* on the host; the loss is the last element of the gradient */
    float *shared;             /* the gradient where ncclAllReduce has it */
} rank;

static int in_host_memory;

static void open_device(rank *r, int device)
{
    r->device = device;
    r->weights = malloc(ALL * sizeof(float));
    r->gradient = malloc((ALL + 1) * sizeof(float));
    if (!r->weights || !r->gradient) stop("malloc", "no memory", "");
    first_weights(r->weights);
    r->shared = r->gradient;
    if (in_host_memory) return;
    CUDA(cudaSetDevice(device));
    CUDA(cudaStreamCreate(&r->stream));
    CUDA(cudaMalloc((void **)&r->shared, (ALL + 1) * sizeof(float)));
}

static void close_device(rank *r)
{
    NCCL(ncclCommFinalize(r->comm));
    NCCL(ncclCommDestroy(r->comm));
    if (!in_host_memory) {
        CUDA(cudaSetDevice(r->device));
        CUDA(cudaFree(r->shared));
        CUDA(cudaStreamDestroy(r->stream));
    }
    free(r->weights);
    free(r->gradient);
}

/* To the device, in the order of its stream, or back. */
static void move(rank *r, int to_device)
{
    size_t bytes = (ALL + 1) * sizeof(float);
    if (in_host_memory) return;
    CUDA(cudaSetDevice(r->device));
    if (to_device)
        CUDA(cudaMemcpyAsync(r->shared, r->gradient, bytes, cudaMemcpyHostToDevice, r->stream));
    else
        CUDA(cudaMemcpyAsync(r->gradient, r->shared, bytes, cudaMemcpyDeviceToHost, r->stream));
}

static void work(rank *r, int ranks, const digit *batch, int size)
{
    int from = size * r->number / ranks, to = size * (r->number + 1) / ranks;
    memset(r->gradient, 0, (ALL + 1) * sizeof(float));
    for (int i = from; i < to; i++) r->gradient[ALL] += learn(r->weights, &batch[i], r->gradient);
    move(r, 1);
}

static float update(rank *r, int size)
{
    if (!in_host_memory) CUDA(cudaStreamSynchronize(r->stream));
    for (int i = 0; i < ALL; i++) r->weights[i] -= 0.2f * r->gradient[i] / (float)size;
    return r->gradient[ALL];
}

static void train(rank *mine, int count, int ranks, const digit *digits, int digit_count, int epochs)
{
    for (int epoch = 1; epoch <= epochs; epoch++) {
        double loss = 0;
        for (int at = 0; at < digit_count; at += BATCH) {
            int size = digit_count - at < BATCH ? digit_count - at : BATCH;
            for (int i = 0; i < count; i++) work(&mine[i], ranks, digits + at, size);
            NCCL(ncclGroupStart());
            for (int i = 0; i < count; i++)
                NCCL(ncclAllReduce(mine[i].shared, mine[i].shared, ALL + 1, ncclFloat, ncclSum, mine[i].comm,
                                   mine[i].stream));
            NCCL(ncclGroupEnd());
            for (int i = 0; i < count; i++) move(&mine[i], 0);
            for (int i = 0; i < count; i++) {
                float summed = update(&mine[i], size);
                if (i == 0) loss += (double)summed;
            }
        }
        if (mine[0].number == 0) printf("epoch %2d   loss %.9f\n", epoch, loss / digit_count);
    }
    for (int i = 1; i < count; i++)
        if (memcmp(mine[0].weights, mine[i].weights, ALL * sizeof(float)) != 0) stop("train", "the ranks differ", "");
}

/* ---- Processes -------------------------------------------------------------------------------------------------- */

/* Process 0 makes the id and puts it into the file, complete from the moment it is there; the others wait for it. */
static ncclUniqueId common_id(int process, const char *path)
{
    ncclUniqueId id;
    char unfinished[4096];
    FILE *file = NULL;
    if (process == 0) {
        NCCL(ncclGetUniqueId(&id));
        if (!path) return id;
        snprintf(unfinished, sizeof unfinished, "%s.part", path);
        file = fopen(unfinished, "wb");
        if (!file || fwrite(&id, sizeof id, 1, file) != 1 || fclose(file) || rename(unfinished, path))
            stop(path, "cannot be written", "");
        return id;
    }
    while (!(file = fopen(path, "rb"))) nanosleep(&(struct timespec){0, 10000000}, NULL);
    if (fread(&id, sizeof id, 1, file) != 1) stop(path, "holds no id", "");
    fclose(file);
    return id;
}

static int usage(void)
{
    fprintf(stderr, "usage: nccl_train [-d DEVICES] [-p PROCESS/PROCESSES -i IDFILE] [-e EPOCHS] [-m] DIGITS\n");
    return 2;
}

int main(int argc, char **argv)
{
    static digit digits[MOST_DIGITS];
    rank mine[MOST_DEVICES] = {{0}};
    int devices = 1, process = 0, processes = 1, epochs = 5, there = 1;
    const char *id_file = NULL;
    for (int option; (option = getopt(argc, argv, "d:p:i:e:m")) != -1;) {
        if (option == 'd') devices = atoi(optarg);
        if (option == 'p' && sscanf(optarg, "%d/%d", &process, &processes) != 2) return usage();
        if (option == 'i') id_file = optarg;
        if (option == 'e') epochs = atoi(optarg);
        if (option == 'm') in_host_memory = 1;
        if (option == '?') return usage();
    }
    if (optind + 1 != argc || devices < 1 || devices > MOST_DEVICES || (processes > 1 && !id_file)) return usage();
    int count = read_digits(argv[optind], digits), ranks = devices * processes;
    ncclUniqueId id = common_id(process, id_file);
    if (!in_host_memory) CUDA(cudaGetDeviceCount(&there));
    for (int i = 0; i < devices; i++) {
        mine[i].number = process * devices + i;
        open_device(&mine[i], mine[i].number % there);
    }
    NCCL(ncclGroupStart());
    for (int i = 0; i < devices; i++) {
        if (!in_host_memory) CUDA(cudaSetDevice(mine[i].device));
        NCCL(ncclCommInitRank(&mine[i].comm, ranks, id, mine[i].number));
    }
    NCCL(ncclGroupEnd());
    train(mine, devices, ranks, digits, count, epochs);
    for (int i = 0; i < devices; i++) close_device(&mine[i]);
    return 0;
}
