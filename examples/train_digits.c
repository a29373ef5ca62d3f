/* SPDX-License-Identifier: Apache-2.0
 *
 * train_digits [-e EPOCHS] [-b BATCH] [FILE] - data-parallel training of a small network to read handwritten digits.
 *
 *     build/rondo run -n 4 -- build/examples/train_digits
 *
 * Every rank holds the whole network. In each step all of them take the same *global batch* of digits, and each works
 * on its share of it:
 *
 *     rank 0   digits  0..15 of the batch -> sum of their gradients \
 *     rank 1   digits 16..31              -> sum of their gradients  \ all-reduce: everybody       everybody makes
 *     rank 2   digits 32..47              -> sum of their gradients  / has the sum of all 64  ->   the same step
 *     rank 3   digits 48..63              -> sum of their gradients /
 *
 * What differs from a program for one process:
 *   1. rondo_ddp_create once: it is told of the parameters and gives all ranks those of rank 0;
 *   2. rondo_ddp_ready after each layer of the backward pass, last layer first, which goes layer by layer over all of
 *      the rank's digits: a layer's gradient is complete, and leaves, while those before it are worked out;
 *   3. rondo_ddp_wait before the optimizer, which each rank runs for itself;
 *   4. after each epoch an all-reduce of what is to be told.
 *
 * So N ranks train the network that one rank would train from the same batches. The gradient's terms are only added
 * in another order, which changes its last bits, and from them the last digits of the losses; tests/test_train.sh
 * compares them. Among the ranks of one run nothing differs, not even in the last bit, because an all-reduce gives
 * the same bits to all; the last line says that this was checked.
 */
#include <rondo_ddp.h>

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- The network ----------------------------------------------------------------------------------------------- */

enum { LAYERS = 3, PIXELS = 64, CLASSES = 10, WIDEST = 64 };
static const int width[LAYERS + 1] = {PIXELS, 64, 32, CLASSES};
static const char *const layer_name[LAYERS] = {"layer0", "layer1", "layer2"};

/* A layer is a row for each of its units: a weight for each input, and the bias. */
static size_t parameters_of(int layer)
{
    return (size_t)(width[layer + 1] * (width[layer] + 1));
}

static const float rate = 0.05f, momentum = 0.9f;

typedef struct digit {
    float pixel[PIXELS]; /* 0 to 1 */
    int label;
} digit;

/* What the backward pass needs of one digit's forward pass, and leaves for the layer before. */
typedef struct pass {
    float unit[LAYERS + 1][WIDEST], slope[LAYERS + 1][WIDEST];
} pass;

typedef struct job {
    rondo_comm *comm;
    rondo_ddp *ddp;
    int rank, ranks, epochs, batch;
    digit *digits;
    int *order;        /* the digits' numbers: those to learn from, then the held-out ones */
    int learned, held; /* how many there are of each */
    float *parameter[LAYERS], *velocity[LAYERS];
    void *gradient[LAYERS];   /* the library's memory */
    pass *passes;             /* of the digits of this rank's share */
    double under_way, hidden; /* seconds of communication, and those of them in which the backward pass went on */
    int same;                 /* 1: all ranks ended with the same parameters */
} job;

/* What ranks tell one another after an epoch. */
enum { LOSS, RIGHT, HELD_OUT_RIGHT, TOLD };

static void forward(const job *j, const digit *d, pass *p)
{
    memcpy(p->unit[0], d->pixel, sizeof d->pixel);
    for (int l = 0; l < LAYERS; l++) {
        const float *row = j->parameter[l];
        for (int o = 0; o < width[l + 1]; o++, row += width[l] + 1) {
            float sum = row[width[l]];
            for (int i = 0; i < width[l]; i++) sum += row[i] * p->unit[l][i];
            p->unit[l + 1][o] = l + 1 < LAYERS ? tanhf(sum) : sum;
        }
    }
}

static int best(const float *score)
{
    int most = 0;
    for (int c = 1; c < CLASSES; c++)
        if (score[c] > score[most]) most = c;
    return most;
}

/* The last slopes become the loss's by each score: probability (softmax) less 1 for the right one. Returns the loss. */
static float softmax_loss(pass *p, int label)
{
    const float *score = p->unit[LAYERS];
    float *slope = p->slope[LAYERS], highest = score[best(score)], sum = 0;
    for (int c = 0; c < CLASSES; c++) sum += slope[c] = expf(score[c] - highest);
    for (int c = 0; c < CLASSES; c++) slope[c] = slope[c] / sum - (c == label ? 1.0f : 0.0f);
    return logf(sum) - (score[label] - highest);
}

/* Adds one digit's part of a layer's gradient, and works out the slopes of the layer before. */
static void backward(const job *j, int l, pass *p)
{
    const float *row = j->parameter[l];
    float *by = j->gradient[l];
    memset(p->slope[l], 0, sizeof p->slope[l]);
    for (int o = 0; o < width[l + 1]; o++, row += width[l] + 1, by += width[l] + 1) {
        float s = p->slope[l + 1][o];
        for (int i = 0; i < width[l]; i++) {
            by[i] += s * p->unit[l][i];
            p->slope[l][i] += s * row[i];
        }
        by[width[l]] += s;
    }
    for (int i = 0; i < width[l]; i++) p->slope[l][i] *= 1 - p->unit[l][i] * p->unit[l][i]; /* tanh's */
}

/* ---- Chance that repeats: the same numbers on every machine, from a seed ---------------------------------------- */

static uint64_t random_bits(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    *state = x;
    return x * 0x2545f4914f6cdd1dULL;
}

static void shuffle(int *order, int count, uint64_t *state)
{
    for (int i = count - 1; i > 0; i--) {
        int k = (int)((random_bits(state) >> 32) % (uint64_t)(i + 1)), t = order[i];
        order[i] = order[k];
        order[k] = t;
    }
}

/* Weights from -w to w, where w shrinks with the inputs, so that values neither fade nor grow from layer to layer. */
static void first_parameters(job *j, uint64_t seed)
{
    for (int l = 0; l < LAYERS; l++) {
        float w = sqrtf(3.0f / (float)width[l]), *parameter = j->parameter[l];
        for (int o = 0; o < width[l + 1]; o++) {
            for (int i = 0; i < width[l]; i++) *parameter++ = w * ((float)(random_bits(&seed) >> 40) * 0x1p-23f - 1);
            *parameter++ = 0;
        }
    }
}

/* ---- Training --------------------------------------------------------------------------------------------------- */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* This rank's share of `count` items: [*from, *to). The shares cover all of them and differ by one at most. */
static void share(const job *j, int count, int *from, int *to)
{
    *from = (int)((long long)count * j->rank / j->ranks);
    *to = (int)((long long)count * (j->rank + 1) / j->ranks);
}

/* One step on the global batch of `size` digits that batch[] names. */
static rondo_result step(job *j, const int *batch, int size, double *told)
{
    rondo_result r;
    int from, to;
    share(j, size, &from, &to);
    for (int i = from; i < to; i++) {
        const digit *d = &j->digits[batch[i]];
        forward(j, d, &j->passes[i - from]);
        told[RIGHT] += best(j->passes[i - from].unit[LAYERS]) == d->label;
        told[LOSS] += (double)softmax_loss(&j->passes[i - from], d->label);
    }
    for (int l = LAYERS - 1; l >= 0; l--) {
        memset(j->gradient[l], 0, parameters_of(l) * sizeof(float));
        for (int i = 0; i < to - from; i++) backward(j, l, &j->passes[i]);
        if ((r = rondo_ddp_ready(j->ddp, l)) != RONDO_SUCCESS) return r;
    }
    rondo_ddp_report report = {.size = sizeof report};
    if ((r = rondo_ddp_wait(j->ddp)) != RONDO_SUCCESS) return r;
    if ((r = rondo_ddp_get_report(j->ddp, &report)) != RONDO_SUCCESS) return r;
    j->under_way += report.communicating_s;
    j->hidden += report.hidden_s;

    /* The average over the batch is the sum over all ranks by the size of the *global* batch. The average of each
     * rank's own average would be another number wherever the shares are not equally large, as in the last batch. */
    for (int l = 0; l < LAYERS; l++) {
        const float *sum = j->gradient[l];
        for (size_t p = 0; p < parameters_of(l); p++) {
            j->velocity[l][p] = momentum * j->velocity[l][p] + sum[p] / (float)size;
            j->parameter[l][p] -= rate * j->velocity[l][p];
        }
    }
    return RONDO_SUCCESS;
}

/* How many of this rank's share of the held-out digits are read rightly. */
static double held_out(const job *j)
{
    int from, to;
    double hits = 0;
    share(j, j->held, &from, &to);
    for (int i = from; i < to; i++) {
        const digit *d = &j->digits[j->order[j->learned + i]];
        forward(j, d, j->passes);
        hits += best(j->passes->unit[LAYERS]) == d->label;
    }
    return hits;
}

/* Whether all ranks hold the same parameters, bit by bit: then a hash of them has one value, its least and its
 * greatest are the same. The greatest is found as the least of the complements, in the same call. */
static rondo_result same_everywhere(job *j)
{
    uint64_t hash[2] = {14695981039346656037ULL, 0};
    for (int l = 0; l < LAYERS; l++) {
        const unsigned char *byte = (const unsigned char *)j->parameter[l];
        for (size_t i = 0; i < parameters_of(l) * sizeof(float); i++) hash[0] = (hash[0] ^ byte[i]) * 1099511628211ULL;
    }
    hash[1] = ~hash[0];
    rondo_result r = rondo_all_reduce(hash, hash, 2, RONDO_UINT64, RONDO_MIN, j->comm, NULL);
    if (r == RONDO_SUCCESS) j->same = hash[0] == ~hash[1];
    return r;
}

static rondo_result tell(const job *j, double right, double took)
{
    rondo_ddp_report last = {.size = sizeof last};
    rondo_result r = rondo_ddp_get_report(j->ddp, &last);
    if (j->rank || r != RONDO_SUCCESS) return r;
    printf("%.0f of the %d held-out digits read rightly (%.2f %%) after %.2f s; gradients travelled for %.2f s, %.2f s "
           "of them hidden, in %d steps of %d buckets, %.1f KiB; the parameters of all ranks %s\n",
           right, j->held, 100 * right / j->held, took, j->under_way, j->hidden, (int)last.step, last.buckets,
           (double)last.bytes / 1024, j->same ? "have the same bits" : "DIFFER");
    return r;
}

static rondo_result train(job *j)
{
    uint64_t chance = 2; /* the same on every rank, so that all of them shuffle alike and know each batch */
    double start = seconds(), right = 0;
    rondo_result r;
    for (int epoch = 1; epoch <= j->epochs; epoch++) {
        double told[TOLD] = {0};
        shuffle(j->order, j->learned, &chance);
        for (int at = 0; at < j->learned; at += j->batch) {
            int size = j->learned - at < j->batch ? j->learned - at : j->batch;
            if ((r = step(j, j->order + at, size, told)) != RONDO_SUCCESS) return r;
        }
        told[HELD_OUT_RIGHT] = held_out(j);
        /* Between steps the communicator is the program's. */
        r = rondo_all_reduce(told, told, TOLD, RONDO_FLOAT64, RONDO_SUM, j->comm, NULL);
        if (r != RONDO_SUCCESS) return r;
        right = told[HELD_OUT_RIGHT];
        if (j->rank == 0)
            printf("epoch %3d   loss %.8f   training %6.2f %%   held out %6.2f %%\n", epoch, told[LOSS] / j->learned,
                   100 * told[RIGHT] / j->learned, 100 * right / j->held);
    }
    if ((r = same_everywhere(j)) != RONDO_SUCCESS) return r;
    return tell(j, right, seconds() - start);
}

static rondo_result start(job *j)
{
    rondo_ddp_config config = RONDO_DDP_CONFIG_INIT;
    rondo_ddp_tensor tensor[LAYERS];
    config.reduce = RONDO_DDP_SUM;       /* shares need not be equally large */
    config.first_bucket_bytes = 1 << 10; /* the standard sizes would put all of this small network into one bucket */
    config.bucket_bytes = 8 << 10;
    for (int l = 0; l < LAYERS; l++)
        tensor[l] =
            (rondo_ddp_tensor){layer_name[l], j->parameter[l], parameters_of(l), RONDO_FLOAT32, &j->gradient[l]};
    if (j->rank == 0) first_parameters(j, 3); /* the others get them */
    return rondo_ddp_create(&j->ddp, tensor, LAYERS, NULL, 0, j->comm, &config);
}

/* ---- Data and options ------------------------------------------------------------------------------------------- */

/* "64 pixels from 0 to 16, then the digit": 0 when the line is not that. */
static int parse(const char *line, digit *d)
{
    for (int i = 0; i <= PIXELS; i++) {
        char *end;
        long value = strtol(line, &end, 10), most = i < PIXELS ? 16 : CLASSES - 1;
        if (end == line || value < 0 || value > most) return 0;
        if (i < PIXELS && *end != ',') return 0;
        if (i < PIXELS)
            d->pixel[i] = (float)value / 16;
        else
            d->label = (int)value;
        line = end + (i < PIXELS);
    }
    return !line[strspn(line, "\r\n")];
}

/* *digits is to be freed, also after a failure. Returns their number, or 0 after saying what is wrong. */
static int read_digits(const char *path, digit **digits)
{
    char line[512];
    int count = 0, room = 0;
    FILE *file = fopen(path, "r");
    if (!file) {
        fprintf(stderr, "train_digits: %s: %s; name the file of digits as the last argument\n", path, strerror(errno));
        return 0;
    }
    while (fgets(line, sizeof line, file)) {
        if (count == room) {
            room = room ? 2 * room : 1024;
            digit *more = realloc(*digits, (size_t)room * sizeof *more);
            if (!more) break;
            *digits = more;
        }
        if (!parse(line, &(*digits)[count++])) {
            fprintf(stderr, "train_digits: %s:%d: must be 64 pixels from 0 to 16 and the digit, with commas\n", path,
                    count);
            fclose(file);
            return 0;
        }
    }
    if (!feof(file) || count < 10) {
        fprintf(stderr, "train_digits: %s: %s\n", path, feof(file) ? "needs 10 digits or more" : strerror(errno));
        count = 0;
    }
    fclose(file);
    return count;
}

/* Each rank reads the digits and lays the same fifth of them aside. */
static int prepare(job *j, const char *path)
{
    uint64_t chance = 1;
    int count = read_digits(path, &j->digits);
    if (count == 0) return 0;
    j->held = count / 5;
    j->learned = count - j->held;
    j->order = malloc((size_t)count * sizeof *j->order);
    j->passes = malloc(((size_t)j->batch + 1) * sizeof *j->passes);
    int good = j->order && j->passes;
    for (int l = 0; l < LAYERS; l++) {
        j->parameter[l] = calloc(parameters_of(l), sizeof(float));
        j->velocity[l] = calloc(parameters_of(l), sizeof(float));
        good = good && j->parameter[l] && j->velocity[l];
    }
    if (!good) {
        fprintf(stderr, "train_digits: no memory for %d digits\n", count);
        return 0;
    }
    for (int i = 0; i < count; i++) j->order[i] = i;
    shuffle(j->order, count, &chance);
    return 1;
}

static void free_arrays(job *j)
{
    for (int l = 0; l < LAYERS; l++) {
        free(j->parameter[l]);
        free(j->velocity[l]);
    }
    free(j->passes);
    free(j->order);
    free(j->digits);
}

/* data/digits.csv in the folder that this program is in. */
static const char *beside_program(char *path, size_t room)
{
    static const char name[] = "data/digits.csv";
    ssize_t length = readlink("/proc/self/exe", path, room - sizeof name);
    while (length > 0 && path[length - 1] != '/') length--;
    strcpy(path + (length > 0 ? length : 0), name);
    return path;
}

static int usage(FILE *to, int status)
{
    fprintf(to, "usage: train_digits [-e EPOCHS] [-b BATCH] [FILE]   EPOCHS (20) and BATCH (64) from 1 to 100000\n"
                "learns to read the digits of FILE, else of data/digits.csv beside the program; started as the ranks\n"
                "of a job:  rondo run -n 4 -- train_digits\n");
    return status;
}

int main(int argc, char **argv)
{
    static const struct option names[] = {{"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    char path[4096];
    job j = {.epochs = 20, .batch = 64};
    for (int option; (option = getopt_long(argc, argv, "e:b:h", names, NULL)) != -1;) {
        int number = optarg ? atoi(optarg) : 0;
        if (option == 'h') return usage(stdout, 0);
        if (option == '?' || number < 1 || number > 100000) return usage(stderr, 2);
        if (option == 'e') j.epochs = number;
        if (option == 'b') j.batch = number;
    }
    rondo_result r = RONDO_INVALID_USAGE;
    if (prepare(&j, optind < argc ? argv[optind] : beside_program(path, sizeof path))) {
        r = rondo_init_env(&j.comm, NULL);
        if (r == RONDO_SUCCESS) {
            j.rank = rondo_comm_rank(j.comm);
            j.ranks = rondo_comm_size(j.comm);
            if (j.rank == 0)
                printf("%d digits to learn from, %d held out; %d parameters; batches of %d shared by %d rank%s\n",
                       j.learned, j.held, (int)(parameters_of(0) + parameters_of(1) + parameters_of(2)), j.batch,
                       j.ranks, j.ranks == 1 ? "" : "s");
            r = start(&j);
        }
        if (r == RONDO_SUCCESS) r = train(&j);
        if (r != RONDO_SUCCESS) fprintf(stderr, "train_digits: rank %d: %s\n", j.rank, rondo_last_error(NULL));
    }
    rondo_ddp_destroy(j.ddp);
    rondo_comm_destroy(j.comm);
    free_arrays(&j);
    return r != RONDO_SUCCESS || !j.same;
}
