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
 * The library is called for three things only, all in train():
 *   1. before the first step a broadcast, so that all ranks start from the parameters of rank 0;
 *   2. in each step one all-reduce of the gradient;
 *   3. after each epoch an all-reduce of how many of the held-out digits were read rightly.
 *
 * So N ranks train the network that one rank would train from the same batches. The gradient's terms are only added
 * in another order, which changes its last bits, and from them the last digits of the losses; tests/test_train.sh
 * compares them. Among the ranks of one run nothing differs, not even in the last bit, because an all-reduce gives
 * the same bits to all; the last line says that this was checked.
 */
#include <rondo.h>

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

/* All parameters lie in one array, and so does the gradient: one broadcast carries the one, one all-reduce the other,
 * instead of a call for each layer. A layer is a row for each of its units: a weight for each input, and the bias. */
enum { PARAMETERS = 64 * (PIXELS + 1) + 32 * (64 + 1) + CLASSES * (32 + 1) };

/* What else is to be added up over the ranks travels behind the gradient, at no extra call. */
enum { LOSS = PARAMETERS, RIGHT, SUMS };

static const float rate = 0.05f, momentum = 0.9f;

typedef struct digit {
    float pixel[PIXELS]; /* 0 to 1 */
    int label;
} digit;

/* The units' values, layer by layer; the last layer's are the scores of the ten digits. */
static void forward(const float *parameter, const digit *d, float unit[LAYERS + 1][WIDEST])
{
    const float *row = parameter;
    memcpy(unit[0], d->pixel, sizeof d->pixel);
    for (int l = 0; l < LAYERS; l++) {
        for (int o = 0; o < width[l + 1]; o++, row += width[l] + 1) {
            float sum = row[width[l]];
            for (int i = 0; i < width[l]; i++) sum += row[i] * unit[l][i];
            unit[l + 1][o] = l + 1 < LAYERS ? tanhf(sum) : sum;
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

/* score becomes the loss's slope by each score: probability (softmax) less 1 for the right one. Returns the loss. */
static float softmax_loss(float *score, int label)
{
    float highest = score[best(score)], right = score[label], sum = 0;
    for (int c = 0; c < CLASSES; c++) sum += score[c] = expf(score[c] - highest);
    for (int c = 0; c < CLASSES; c++) score[c] = score[c] / sum - (c == label ? 1.0f : 0.0f);
    return logf(sum) - (right - highest);
}

/* Adds one digit's gradient, loss and whether it was read rightly to `sums`. */
static void learn(const float *parameter, const digit *d, float *sums)
{
    float unit[LAYERS + 1][WIDEST], slope[LAYERS + 1][WIDEST];
    forward(parameter, d, unit);
    memcpy(slope[LAYERS], unit[LAYERS], sizeof slope[LAYERS]);
    sums[RIGHT] += best(unit[LAYERS]) == d->label ? 1.0f : 0.0f;
    sums[LOSS] += softmax_loss(slope[LAYERS], d->label);

    int start = PARAMETERS;
    for (int l = LAYERS - 1; l >= 0; l--) {
        start -= width[l + 1] * (width[l] + 1);
        memset(slope[l], 0, sizeof slope[l]);
        for (int o = 0; o < width[l + 1]; o++) {
            const float *row = parameter + start + o * (width[l] + 1);
            float *by = sums + start + o * (width[l] + 1), s = slope[l + 1][o];
            for (int i = 0; i < width[l]; i++) {
                by[i] += s * unit[l][i];
                slope[l][i] += s * row[i];
            }
            by[width[l]] += s;
        }
        for (int i = 0; i < width[l]; i++) slope[l][i] *= 1 - unit[l][i] * unit[l][i]; /* tanh's */
    }
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
        int j = (int)((random_bits(state) >> 32) % (uint64_t)(i + 1)), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
}

/* Weights from -w to w, where w shrinks with the inputs, so that values neither fade nor grow from layer to layer. */
static void first_parameters(float *parameter, uint64_t seed)
{
    for (int l = 0; l < LAYERS; l++) {
        float w = sqrtf(3.0f / (float)width[l]);
        for (int o = 0; o < width[l + 1]; o++) {
            for (int i = 0; i < width[l]; i++)
                *parameter++ = w * ((float)(random_bits(&seed) >> 40) * 0x1p-23f - 1);
            *parameter++ = 0;
        }
    }
}

/* ---- Training --------------------------------------------------------------------------------------------------- */

typedef struct job {
    rondo_comm *comm;
    int rank, ranks, epochs, batch;
    digit *digits;
    int *order;         /* the digits' numbers: those to learn from, then the held-out ones */
    int learned, held;  /* how many there are of each */
    float *parameter;   /* PARAMETERS */
    float *velocity;    /* PARAMETERS: past gradients, fading */
    float *sums;        /* SUMS: the gradient's, the loss's and the hits' */
    double reducing;    /* seconds spent in all-reduce, waiting for slower ranks included */
    int steps, same;    /* all-reduces of a gradient; 1: all ranks ended with the same parameters */
} job;

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
static rondo_result step(job *j, const int *batch, int size)
{
    int from, to;
    share(j, size, &from, &to);
    memset(j->sums, 0, SUMS * sizeof *j->sums);
    for (int i = from; i < to; i++) learn(j->parameter, &j->digits[batch[i]], j->sums);

    double start = seconds();
    rondo_result r = rondo_all_reduce(j->sums, j->sums, SUMS, RONDO_FLOAT32, RONDO_SUM, j->comm, NULL);
    if (r != RONDO_SUCCESS) return r;
    j->reducing += seconds() - start;
    j->steps++;

    /* The average over the batch is the sum over all ranks by the size of the *global* batch. RONDO_AVG of each rank's
     * own average would be another number wherever the shares are not equally large, as in the last batch. */
    for (int p = 0; p < PARAMETERS; p++) {
        j->velocity[p] = momentum * j->velocity[p] + j->sums[p] / (float)size;
        j->parameter[p] -= rate * j->velocity[p];
    }
    return RONDO_SUCCESS;
}

/* How many of the held-out digits are read rightly. Each rank tries its share of them. */
static rondo_result held_out(job *j, int64_t *right)
{
    float unit[LAYERS + 1][WIDEST];
    int from, to;
    int64_t hits = 0;
    share(j, j->held, &from, &to);
    for (int i = from; i < to; i++) {
        const digit *d = &j->digits[j->order[j->learned + i]];
        forward(j->parameter, d, unit);
        hits += best(unit[LAYERS]) == d->label;
    }
    return rondo_all_reduce(&hits, right, 1, RONDO_INT64, RONDO_SUM, j->comm, NULL);
}

/* Whether all ranks hold the same parameters, bit by bit: then a hash of them has one value, its least and its
 * greatest are the same. The greatest is found as the least of the complements, in the same call. */
static rondo_result same_everywhere(job *j)
{
    uint64_t hash[2] = {14695981039346656037ULL, 0};
    const unsigned char *byte = (const unsigned char *)j->parameter;
    for (size_t i = 0; i < PARAMETERS * sizeof *j->parameter; i++) hash[0] = (hash[0] ^ byte[i]) * 1099511628211ULL;
    hash[1] = ~hash[0];
    rondo_result r = rondo_all_reduce(hash, hash, 2, RONDO_UINT64, RONDO_MIN, j->comm, NULL);
    if (r == RONDO_SUCCESS) j->same = hash[0] == ~hash[1];
    return r;
}

static rondo_result train(job *j)
{
    int64_t right = 0;
    uint64_t chance = 2; /* the same on every rank, so that all of them shuffle alike and know each batch */
    double start = seconds();

    if (j->rank == 0) first_parameters(j->parameter, 3);
    rondo_result r = rondo_broadcast(j->parameter, j->parameter, PARAMETERS, RONDO_FLOAT32, 0, j->comm, NULL);
    if (r != RONDO_SUCCESS) return r;

    for (int epoch = 1; epoch <= j->epochs; epoch++) {
        double loss = 0, hits = 0;
        shuffle(j->order, j->learned, &chance);
        for (int at = 0; at < j->learned; at += j->batch) {
            int size = j->learned - at < j->batch ? j->learned - at : j->batch;
            if ((r = step(j, j->order + at, size)) != RONDO_SUCCESS) return r;
            loss += (double)j->sums[LOSS];
            hits += (double)j->sums[RIGHT];
        }
        if ((r = held_out(j, &right)) != RONDO_SUCCESS) return r;
        if (j->rank == 0)
            printf("epoch %3d   loss %.8f   training %6.2f %%   held out %6.2f %%\n", epoch, loss / j->learned,
                   100 * hits / j->learned, 100.0 * (double)right / j->held);
    }
    if ((r = same_everywhere(j)) != RONDO_SUCCESS) return r;
    if (j->rank == 0)
        printf("%d of the %d held-out digits read rightly (%.2f %%) after %.2f s, %.2f s of them in %d all-reduces of "
               "%.1f KiB; the parameters of all ranks %s\n",
               (int)right, j->held, 100.0 * (double)right / j->held, seconds() - start, j->reducing, j->steps,
               SUMS * sizeof *j->sums / 1024.0, j->same ? "have the same bits" : "DIFFER");
    return RONDO_SUCCESS;
}

/* ---- Data, options, and what has to be freed -------------------------------------------------------------------- */

/* "64 pixels from 0 to 16, then the digit": 0 when the line is not that. */
static int parse(const char *line, digit *d)
{
    for (int i = 0; i <= PIXELS; i++) {
        char *end;
        long value = strtol(line, &end, 10), most = i < PIXELS ? 16 : CLASSES - 1;
        if (end == line || value < 0 || value > most) return 0;
        if (i < PIXELS && *end != ',') return 0;
        if (i < PIXELS) d->pixel[i] = (float)value / 16;
        else d->label = (int)value;
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

/* data/digits.csv in the folder that this program is in. */
static const char *beside_program(char *path, size_t room)
{
    static const char name[] = "data/digits.csv";
    ssize_t length = readlink("/proc/self/exe", path, room - sizeof name);
    while (length > 0 && path[length - 1] != '/') length--;
    strcpy(path + (length > 0 ? length : 0), name);
    return path;
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
    j->parameter = calloc(PARAMETERS, sizeof *j->parameter);
    j->velocity = calloc(PARAMETERS, sizeof *j->velocity);
    if (!j->order || !j->parameter || !j->velocity) {
        fprintf(stderr, "train_digits: no memory for %d digits\n", count);
        return 0;
    }
    for (int i = 0; i < count; i++) j->order[i] = i;
    shuffle(j->order, count, &chance);
    return 1;
}

static int whole_number(const char *text, int most)
{
    char *end;
    long number = strtol(text, &end, 10);
    return end != text && !*end && number >= 1 && number <= most ? (int)number : 0;
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
    int failed = 1;
    for (int option; (option = getopt_long(argc, argv, "e:b:h", names, NULL)) != -1;) {
        if (option == 'h') return usage(stdout, 0);
        if (option == 'e') j.epochs = whole_number(optarg, 100000);
        if (option == 'b') j.batch = whole_number(optarg, 100000);
        if (option == '?' || j.epochs == 0 || j.batch == 0) return usage(stderr, 2);
    }
    if (!prepare(&j, optind < argc ? argv[optind] : beside_program(path, sizeof path))) goto free_arrays;

    if (rondo_init_env(&j.comm, NULL) != RONDO_SUCCESS) {
        fprintf(stderr, "train_digits: %s\n", rondo_last_error(NULL));
        goto free_arrays;
    }
    j.rank = rondo_comm_rank(j.comm);
    j.ranks = rondo_comm_size(j.comm);
    if (j.rank == 0)
        printf("%d digits to learn from, %d held out; %d parameters; batches of %d shared by %d rank%s\n", j.learned,
               j.held, PARAMETERS, j.batch, j.ranks, j.ranks == 1 ? "" : "s");

    /* What is all-reduced often is best in memory that the library gives: on one host the other ranks then reach it
     * where it lies, without a copy in between. Any other memory works, too. */
    void *sums;
    rondo_result r = rondo_mem_alloc(&sums, SUMS * sizeof *j.sums, j.comm);
    if (r == RONDO_SUCCESS) {
        j.sums = sums;
        r = train(&j);
        rondo_mem_free(sums, j.comm);
    }
    if (r != RONDO_SUCCESS) fprintf(stderr, "train_digits: rank %d: %s\n", j.rank, rondo_last_error(j.comm));
    failed = r != RONDO_SUCCESS || !j.same;
    rondo_comm_destroy(j.comm);
free_arrays:
    free(j.velocity);
    free(j.parameter);
    free(j.order);
    free(j.digits);
    return failed;
}
