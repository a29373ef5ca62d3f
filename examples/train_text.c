/* SPDX-License-Identifier: Apache-2.0
 *
 * train_text [OPTIONS] [FILE] - a small network learns to guess a text's next letter; what a longer training needs.
 *
 *     build/rondo run -n 3 -- build/examples/train_text
 *
 * Read train_digits.c first. Here is what comes after it, and where:
 *   step()          a batch in parts, whose gradients add up on each rank and travel with the last one (no_sync)
 *   epoch()         ranks with different numbers of samples; those that have none left join the others' steps
 *   same_state()    what the optimizer remembers must be alike, too
 *   save(), load()  checkpoints: -c FILE writes them, -r FILE goes on from one, with any number of ranks
 *   recover()       --survive: a rank is killed, the others go on without it:
 *
 *     build/rondo run -n 3 --keep-going -- build/examples/train_text --survive 300
 *
 * Samples are windows of the text, and the sampler gives them an order that depends on seed and epoch alone. A batch is
 * so many *places* of that order, shared by the ranks that there are: place p is rank p mod N's. So any number of ranks
 * makes the same steps, also when it changes on the way, and the losses differ in their last digits only
 * (tests/test_train_text.sh compares).
 */
#include <rondo_ddp.h>

#include "train_text_net.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const float rate = 0.1f, momentum = 0.9f, steepest = 1;
enum { REPORT = 200 }; /* steps from one report, and checkpoint, to the next */

typedef struct job {
    rondo_comm *comm;
    rondo_ddp *ddp;
    rondo_sampler *sampler;
    int rank, ranks;
    long epochs, batch, parts, seed, stop;
    int survives;   /* goes on without ranks that died */
    int said;       /* why it ends */
    long killed_at; /* the step in which the last rank is killed; 0: none */
    const char *write_to, *read_from;
    unsigned char *text; /* numbers of letters */
    int letters;         /* that there are */
    char letter[MOST_LETTERS];
    uint64_t learned, held;   /* windows: the first ones to learn from, the others to test with */
    uint64_t step, per_epoch; /* made so far; see windows() */
    net net;
    float *velocities; /* what the optimizer remembers of each parameter */
    pass *passes;
} job;

/* ---- A step ----------------------------------------------------------------------------------------------------- */

/* This rank's windows of the batch that comes next: numbers [*from, *to) of its sampler. Only an epoch's last batch,
 * which is shorter, may have none for it. */
static void windows(const job *j, uint64_t *from, uint64_t *to)
{
    uint64_t rank = (uint64_t)j->rank, ranks = (uint64_t)j->ranks, most = rondo_sampler_count(j->sampler);
    uint64_t first = j->step % j->per_epoch * (uint64_t)j->batch, last = first + (uint64_t)j->batch; /* places */
    *from = first > rank ? (first - rank + ranks - 1) / ranks : 0;
    *to = last > rank ? (last - rank + ranks - 1) / ranks : 0;
    if (*to > most) *to = most;
}

/* Adds the gradients of those windows, each `share` of the rank's; layer by layer, so that one leaves while those
 * before it are worked out. */
static rondo_result learn(job *j, uint64_t from, uint64_t to, float share)
{
    rondo_result r = RONDO_SUCCESS;
    for (uint64_t i = from, window; i < to && r == RONDO_SUCCESS; i++) {
        pass *p = &j->passes[i - from];
        if ((r = rondo_sampler_get(j->sampler, i, &window)) != RONDO_SUCCESS) return r;
        forward(&j->net, j->text + window, p);
        softmax(&j->net, p);
        p->score[p->letter[WINDOW]] -= 1; /* the loss's slopes by the scores */
        for (int c = 0; c < j->net.letters; c++) p->score[c] *= share;
    }
    for (int t = TENSORS - 1; t >= 0 && r == RONDO_SUCCESS; t--) {
        for (uint64_t i = from; i < to; i++) backward(&j->net, t, &j->passes[i - from]);
        r = rondo_ddp_ready(j->ddp, t);
        if (t == OUT_WEIGHT && j->killed_at == (long)j->step + 1 && j->rank == j->ranks - 1) raise(SIGKILL);
    }
    return r;
}

static rondo_result step(job *j, uint64_t from, uint64_t to)
{
    rondo_result r = RONDO_SUCCESS;
    uint64_t count = to - from, parts = (uint64_t)j->parts;
    for (int t = 0; t < TENSORS; t++) memset(j->net.gradient[t], 0, j->net.count[t] * sizeof(float));
    for (uint64_t part = 0; part < parts && r == RONDO_SUCCESS; part++) {
        uint64_t a = from + count * part / parts, b = from + count * (part + 1) / parts;
        int last = part == parts - 1; /* never empty */
        if (a == b) continue;
        if (!last && (r = rondo_ddp_no_sync_begin(j->ddp)) != RONDO_SUCCESS) return r;
        if ((r = rondo_ddp_forward(j->ddp, b - a, NULL)) == RONDO_SUCCESS) r = learn(j, a, b, 1.0f / (float)count);
        if (r == RONDO_SUCCESS && !last) r = rondo_ddp_no_sync_end(j->ddp);
    }
    if (r == RONDO_SUCCESS) r = rondo_ddp_wait(j->ddp);
    if (r == RONDO_SUCCESS) r = rondo_ddp_clip(j->ddp, (double)steepest, NULL);
    if (r != RONDO_SUCCESS) return r;

    float *velocity = j->velocities;
    for (int t = 0; t < TENSORS; t++) {
        const float *gradient = j->net.gradient[t];
        for (size_t i = 0; i < j->net.count[t]; i++, velocity++) {
            *velocity = momentum * *velocity + gradient[i];
            j->net.value[t][i] -= rate * *velocity;
        }
    }
    j->step++;
    return r;
}

/* ---- What all ranks must have alike ------------------------------------------------------------------------------ */

/* All take the step, the parameters and the optimizer's memory of the rank that has made most steps, of several the
 * first: rank 0 after it has read a checkpoint; one that did not have to join; after a failure, one that ended the step
 * in which others failed, for a rank that dies may leave some with its gradients and others without. */
static rondo_result same_state(job *j)
{
    uint64_t best = j->step * (uint64_t)j->ranks + (uint64_t)(j->ranks - 1 - j->rank);
    rondo_result r = rondo_all_reduce(&best, &best, 1, RONDO_UINT64, RONDO_MAX, j->comm, NULL);
    if (r != RONDO_SUCCESS) return r;
    int root = j->ranks - 1 - (int)(best % (uint64_t)j->ranks);
    r = rondo_broadcast(j->net.values, j->net.values, j->net.parameters, RONDO_FLOAT32, root, j->comm, NULL);
    if (r != RONDO_SUCCESS) return r;
    r = rondo_broadcast(j->velocities, j->velocities, j->net.parameters, RONDO_FLOAT32, root, j->comm, NULL);
    if (r == RONDO_SUCCESS) j->step = best / (uint64_t)j->ranks;
    return r;
}

/* A data-parallel training of the ranks of j->comm. */
static rondo_result start(job *j)
{
    rondo_sampler_config order = RONDO_SAMPLER_CONFIG_INIT;
    rondo_ddp_config config = RONDO_DDP_CONFIG_INIT;
    rondo_ddp_tensor tensor[TENSORS];
    j->rank = rondo_comm_rank(j->comm);
    j->ranks = rondo_comm_size(j->comm);

    order.samples = j->learned;
    order.world_size = j->ranks;
    order.rank = j->rank;
    order.seed = (uint64_t)j->seed;
    order.tail = RONDO_TAIL_UNEVEN;
    rondo_result r = rondo_sampler_create(&j->sampler, &order);
    if (r == RONDO_SUCCESS) r = same_state(j);
    if (r != RONDO_SUCCESS) return r;

    config.reduce = RONDO_DDP_WEIGHTED; /* ranks' averages, by their shares of a batch's windows */
    config.join = RONDO_DDP_JOIN_ACTIVE;
    config.first_bucket_bytes = 1 << 10; /* the standard sizes would put all of this small network into one bucket */
    config.bucket_bytes = 8 << 10;
    for (int t = 0; t < TENSORS; t++)
        tensor[t] = (rondo_ddp_tensor){names[t], j->net.value[t], j->net.count[t], RONDO_FLOAT32, &j->net.gradient[t]};
    return rondo_ddp_create(&j->ddp, tensor, TENSORS, NULL, 0, j->comm, &config);
}

/* The survivors make a communicator, and what was made upon the old one, anew. The step in which the rank died is made
 * again unless one of them had ended it. */
static rondo_result recover(job *j)
{
    rondo_comm *left;
    rondo_result r;
    fprintf(stderr, "train_text: rank %d: step %" PRIu64 ": %s\n", j->rank, j->step + 1, rondo_last_error(NULL));
    rondo_ddp_destroy(j->ddp);
    rondo_sampler_destroy(j->sampler);
    j->ddp = NULL;
    j->sampler = NULL;
    if ((r = rondo_comm_shrink(j->comm, NULL, 0, &left, NULL)) != RONDO_SUCCESS) return r;
    rondo_comm_destroy(j->comm);
    j->comm = left;
    j->killed_at = 0; /* one is enough */
    r = start(j);
    if (r == RONDO_SUCCESS && j->rank == 0)
        printf("%d rank%s left, going on after step %" PRIu64 "\n", j->ranks, j->ranks == 1 ? " is" : "s are", j->step);
    return r;
}

/* ---- Checkpoints: a line of text on what was trained, then for each tensor its name, its size and its elements ----
 */

static int good(job *j, const char *path, const char *what)
{
    if (!what) return 1;
    j->said = 1;
    fprintf(stderr, "train_text: rank %d: %s: %s\n", j->rank, path, what);
    return 0;
}

/* Written beside, then renamed: whoever is killed meanwhile leaves the checkpoint before. */
static int save(job *j)
{
    char beside[4096];
    snprintf(beside, sizeof beside, "%s.new", j->write_to);
    FILE *file = fopen(beside, "w");
    if (!file) return good(j, beside, strerror(errno));
    fprintf(file, "train_text step %" PRIu64 " seed %ld batch %ld\n", j->step, j->seed, j->batch);
    for (int t = 0; t < TENSORS; t++) {
        const float *both[2] = {j->net.value[t], j->velocities + (j->net.value[t] - j->net.values)};
        const char *name = NULL;
        rondo_ddp_name(j->ddp, t, &name);
        for (int k = 0; k < 2; k++) {
            fprintf(file, "%s%s %zu\n", k ? "optimizer." : "", name, j->net.count[t]);
            for (size_t i = 0; i < j->net.count[t]; i++)
                fprintf(file, "%a\n", (double)both[k][i]); /* hexadecimal: exact */
        }
    }
    int failed = ferror(file);
    if (fclose(file) || failed || rename(beside, j->write_to)) return good(j, j->write_to, strerror(errno));
    return 1;
}

/* What is wrong, NULL if nothing. Nothing is used of a file that is not whole. */
static const char *load_tensors(job *j, FILE *file)
{
    static const char optimizer[] = "optimizer.";
    char name[64];
    size_t count, read = 0;
    while (fscanf(file, "%63s %zu", name, &count) == 2) {
        size_t skip = strncmp(name, optimizer, sizeof optimizer - 1) ? 0 : sizeof optimizer - 1;
        int t;
        if (rondo_ddp_find(j->ddp, name + skip, &t) != RONDO_SUCCESS) return rondo_last_error(NULL);
        if (count != j->net.count[t]) return "a tensor has another size; the text or the network is another one";
        float *to = skip ? j->velocities + (j->net.value[t] - j->net.values) : j->net.value[t];
        for (size_t i = 0; i < count; i++, read++)
            if (fscanf(file, "%f", &to[i]) != 1) return "ends within a tensor";
    }
    return read == 2 * j->net.parameters ? NULL : "not all tensors are there";
}

static int load(job *j)
{
    long seed, batch;
    uint64_t step;
    FILE *file = fopen(j->read_from, "r");
    if (!file) return good(j, j->read_from, strerror(errno));
    const char *wrong = "must begin with train_text step STEP seed SEED batch BATCH";
    if (fscanf(file, "train_text step %" SCNu64 " seed %ld batch %ld", &step, &seed, &batch) == 3)
        wrong = seed != j->seed || batch != j->batch ? "made with another -s or -b; its first line has both"
                                                     : load_tensors(j, file);
    fclose(file);
    if (!wrong) j->step = step;
    return good(j, j->read_from, wrong);
}

/* ---- Training --------------------------------------------------------------------------------------------------- */

/* Between steps the communicator is the program's: each rank tries its part of the text that is held out. */
static rondo_result report(job *j)
{
    uint64_t from = j->held * (uint64_t)j->rank / (uint64_t)j->ranks;
    uint64_t to = j->held * (uint64_t)(j->rank + 1) / (uint64_t)j->ranks;
    double loss = 0;
    for (uint64_t i = from; i < to; i++) {
        forward(&j->net, j->text + j->learned + i, j->passes);
        softmax(&j->net, j->passes);
        loss -= log((double)j->passes->score[j->text[j->learned + i + WINDOW]]);
    }
    rondo_result r = rondo_all_reduce(&loss, &loss, 1, RONDO_FLOAT64, RONDO_SUM, j->comm, NULL);
    if (r != RONDO_SUCCESS || j->rank) return r;
    printf("step %5" PRIu64 "   held out: loss %.8f\n", j->step, loss / (double)j->held);
    fflush(stdout);
    return !j->write_to || save(j) ? RONDO_SUCCESS : RONDO_SYSTEM_ERROR;
}

static rondo_result epoch(job *j)
{
    uint64_t number = j->step / j->per_epoch, end = (number + 1) * j->per_epoch, from, to;
    if (j->stop && end > (uint64_t)j->stop) end = (uint64_t)j->stop;
    rondo_result r = rondo_sampler_set_epoch(j->sampler, number);
    while (r == RONDO_SUCCESS && j->step < end) {
        windows(j, &from, &to);
        if (from == to) break; /* none left for this rank */
        r = step(j, from, to);
        if (r == RONDO_SUCCESS && j->step < end && j->step % REPORT == 0) r = report(j);
    }
    if (r == RONDO_SUCCESS) r = rondo_ddp_join(j->ddp);
    if (r == RONDO_SUCCESS) r = same_state(j); /* join gives the parameters, but not the velocities */
    return r == RONDO_SUCCESS ? report(j) : r;
}

static rondo_result train(job *j)
{
    uint64_t last = (uint64_t)j->epochs * j->per_epoch;
    rondo_result r = RONDO_SUCCESS;
    if (j->stop && last > (uint64_t)j->stop) last = (uint64_t)j->stop;
    while (r == RONDO_SUCCESS && j->step < last) r = epoch(j);
    return r;
}

/* ---- Chance that repeats, as in train_digits.c ------------------------------------------------------------------- */

static float random_to_1(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    *state = x;
    return (float)(x * 0x2545f4914f6cdd1dULL >> 40) * 0x1p-24f;
}

/* Rank 0's become everybody's. */
static void first_parameters(job *j)
{
    uint64_t state = (uint64_t)j->seed * 0x9e3779b97f4a7c15ULL;
    const float most[TENSORS] = {[EMBEDDING] = 1, [HIDDEN_WEIGHT] = sqrtf(3.0f / INPUTS), [OUT_WEIGHT] = 0.1f};
    for (int t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < j->net.count[t]; i++)
            j->net.value[t][i] = t == NORM_GAIN ? 1 : most[t] * (2 * random_to_1(&state) - 1);
}

/* What the network has learned, in its own words, and a hash of its parameters' bits. */
static void tell(job *j)
{
    uint64_t state = (uint64_t)j->seed + 1, hash = 14695981039346656037ULL;
    unsigned char said[WINDOW + 160];
    memcpy(said, j->text + j->learned, WINDOW);
    for (size_t i = WINDOW; i < sizeof said; i++) {
        float chance = random_to_1(&state);
        int c = 0;
        forward(&j->net, said + i - WINDOW, j->passes);
        softmax(&j->net, j->passes);
        while (c < j->net.letters - 1 && (chance -= j->passes->score[c]) > 0) c++;
        said[i] = (unsigned char)c;
    }
    printf("it goes on: ");
    for (size_t i = 0; i < sizeof said; i++) putchar(j->letter[said[i]] == '\n' ? ' ' : j->letter[said[i]]);
    for (size_t i = 0; i < j->net.parameters * sizeof(float); i++)
        hash = (hash ^ ((const unsigned char *)j->net.values)[i]) * 1099511628211ULL;
    printf("\n%" PRIu64 " steps; the parameters' bits are %016" PRIx64 "\n", j->step, hash);
}

/* ---- Data and options ------------------------------------------------------------------------------------------- */

/* The text with its letters numbered in the order of their codes: every rank has the same. */
static int read_text(job *j, const char *path)
{
    enum { MOST = 1 << 20 };
    int number[256] = {0};
    FILE *file = fopen(path, "r");
    if (!file) return good(j, path, strerror(errno));
    j->text = malloc(MOST);
    size_t size = j->text ? fread(j->text, 1, MOST, file) : 0;
    fclose(file);
    for (size_t i = 0; i < size; i++) number[j->text[i]] = 1;
    for (int c = 0; c < 256; c++) {
        if (!number[c]) continue;
        if (c >= MOST_LETTERS) return good(j, path, "has bytes above 127; give a text in ASCII");
        number[c] = j->letters;
        j->letter[j->letters++] = (char)c;
    }
    if (size < 1000) return good(j, path, "must have 1000 letters or more");
    for (size_t i = 0; i < size; i++) j->text[i] = (unsigned char)number[j->text[i]];
    j->held = size / 10;
    j->learned = size - WINDOW - j->held;
    return 1;
}

static int prepare(job *j, const char *path)
{
    if (!read_text(j, path)) return 0;
    j->per_epoch = (j->learned + (uint64_t)j->batch - 1) / (uint64_t)j->batch;
    int made = make_net(&j->net, j->letters);
    j->velocities = calloc(j->net.parameters, sizeof *j->velocities);
    j->passes = malloc((size_t)j->batch * sizeof *j->passes);
    if (!made || !j->velocities || !j->passes) return good(j, path, "no memory");
    first_parameters(j);
    return 1;
}

/* data/text.txt in the folder that this program is in. */
static const char *beside_program(char *path, size_t room)
{
    static const char name[] = "data/text.txt";
    ssize_t length = readlink("/proc/self/exe", path, room - sizeof name);
    while (length > 0 && path[length - 1] != '/') length--;
    strcpy(path + (length > 0 ? length : 0), name);
    return path;
}

static int usage(FILE *to, int status)
{
    fprintf(to, "usage: train_text [OPTIONS] [FILE]   a network learns to guess the next letter of FILE, else of\n"
                "data/text.txt beside the program; started as the ranks of a job: rondo run -n 3 -- train_text\n"
                "  -e EPOCHS   (3)\n"
                "  -b BATCH    windows in a step of all ranks together, as many as ranks or more (64)\n"
                "  -a PARTS    of each rank's share of a batch, one after the other (2)\n"
                "  -s SEED     of the first parameters and of the order (1)\n"
                "  -t STEP     stop after it\n"
                "  -c FILE     write a checkpoint there, every 200 steps and at the end\n"
                "  -r FILE     go on from one\n"
                "  --survive STEP   the last rank is killed in that step (0: none is), and ranks go on without those\n"
                "              that died; with rondo run --keep-going\n");
    return status;
}

/* Whether the option and its number are good. */
static int take(job *j, int option, const char *argument)
{
    char *end = NULL;
    long *to = option == 'e'   ? &j->epochs
               : option == 'b' ? &j->batch
               : option == 'a' ? &j->parts
               : option == 's' ? &j->seed
               : option == 't' ? &j->stop
               : option == 'k' ? &j->killed_at
                               : NULL;
    if (option == 'c') j->write_to = argument;
    if (option == 'r') j->read_from = argument;
    if (option == 'k') j->survives = 1;
    if (!to) return option == 'c' || option == 'r';
    *to = strtol(argument, &end, 10);
    return end != argument && !*end && *to >= (option != 'k') && *to <= 100000;
}

static rondo_result run(job *j)
{
    rondo_result r = rondo_init_env(&j->comm, NULL);
    if (r != RONDO_SUCCESS) return r;
    int ranks = rondo_comm_size(j->comm);
    if (j->batch < ranks) return good(j, "-b", "must be at least the number of ranks"), RONDO_INVALID_USAGE;
    r = start(j);
    if (r == RONDO_SUCCESS && j->read_from) {
        if (j->rank == 0 && !load(j)) return RONDO_INVALID_USAGE;
        r = same_state(j);
    }
    if (r == RONDO_SUCCESS && j->rank == 0)
        printf("%" PRIu64 " windows to learn from, %" PRIu64 " held out; %zu parameters; %" PRIu64 " steps of %ld an "
               "epoch, shared by %d rank%s\n",
               j->learned, j->held, j->net.parameters, j->per_epoch, j->batch, ranks, ranks == 1 ? "" : "s");
    if (r == RONDO_SUCCESS) r = train(j);
    while (r == RONDO_REMOTE_ERROR && j->survives && --ranks > 0) {
        r = recover(j);
        if (r == RONDO_SUCCESS) r = train(j);
    }
    return r;
}

int main(int argc, char **argv)
{
    static const struct option names_of[] = {
        {"help", no_argument, NULL, 'h'}, {"survive", required_argument, NULL, 'k'}, {NULL, 0, NULL, 0}};
    char path[4096];
    job j = {.epochs = 3, .batch = 64, .parts = 2, .seed = 1};
    for (int option; (option = getopt_long(argc, argv, "e:b:a:s:t:c:r:h", names_of, NULL)) != -1;) {
        if (option == 'h') return usage(stdout, 0);
        if (option == '?' || !take(&j, option, optarg)) return usage(stderr, 2);
    }
    rondo_result r = RONDO_INVALID_USAGE;
    if (prepare(&j, optind < argc ? argv[optind] : beside_program(path, sizeof path))) {
        r = run(&j);
        if (r != RONDO_SUCCESS)
            fprintf(stderr, "train_text: rank %d: %s\n", j.rank, rondo_last_error(NULL));
        else if (j.rank == 0)
            tell(&j);
    }
    rondo_ddp_destroy(j.ddp);
    rondo_sampler_destroy(j.sampler);
    rondo_comm_destroy(j.comm);
    free(j.passes);
    free(j.velocities);
    free(j.net.values);
    free(j.text);
    return r != RONDO_SUCCESS;
}
