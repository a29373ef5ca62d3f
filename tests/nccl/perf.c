/* SPDX-License-Identifier: Apache-2.0
 *
 * perf.c - calls as benchmarks of collectives make them: several threads, each with several devices whose calls it groups;
 * collectives, and others put together from sends and receives; out of place and in place; all types and operators, one of
 * them made for each call and destroyed right after it; again and again, with and without waiting in between; every
 * result checked.
 *   perf THREADS DEVICES_EACH [parallel] [background] [memory] [split]
 * parallel: each thread makes its communicators; background: they do not block; memory: buffers of ncclMemAlloc, and
 * registered; split: on halves of the world.
 */
#include "program.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

enum { MOST = 8, ITERATIONS = 3, SCALED = 5 };

typedef struct rank {
    ncclComm_t comm;
    cudaStream_t stream;
    int rank, n;
    char *send, *recv, *host;
    void *registered[2];
} rank;

typedef struct thread {
    pthread_t thread;
    int index;
    rank ranks[MOST];
} thread;

static int threads, each, world;
static bool parallel, background, memory, halves;
static ncclUniqueId id;
static pthread_barrier_t all;
static size_t room; /* bytes of a buffer */

/* ---- Elements: small numbers, exact in every type however they are added up ---- */

static const struct {
    size_t bytes;
    int exponent, mantissa; /* bits; 0: an integer */
} types[] = {{1, 0, 0}, {1, 0, 0}, {4, 0, 0}, {4, 0, 0},  {8, 0, 0}, {8, 0, 0},
             {2, 5, 10}, {4, 8, 23}, {8, 11, 52}, {2, 8, 7}, {1, 4, 3}, {1, 5, 2}};

static void encode(double value, int type, char *to)
{
    uint64_t bits = (uint64_t)value;
    int power;
    if (types[type].exponent && value != 0) {
        double fraction = frexp(value, &power);
        bits = (uint64_t)(power - 1 + (1 << (types[type].exponent - 1)) - 1) << types[type].mantissa |
               (uint64_t)ldexp(fraction * 2 - 1, types[type].mantissa);
    }
    memcpy(to, &bits, types[type].bytes); /* little-endian */
}

static double value(int rank, size_t i, int op)
{
    size_t mixed = (size_t)rank * 7 + i * 3 + i / 5;
    return op == ncclProd ? (double)(1 + mixed % 2) : (double)(mixed % 3);
}

static double reduced(int n, size_t i, int op, bool integer)
{
    double x = value(0, i, op);
    for (int r = 1; r < n; r++) {
        double y = value(r, i, op);
        x = op == ncclProd ? x * y : op == ncclMax ? fmax(x, y) : op == ncclMin ? fmin(x, y) : x + y;
    }
    if (op == ncclAvg) x = integer ? floor(x / n) : x / n;
    return op == SCALED ? 2 * x : x;
}

/* ---- What is run: on c elements of each rank, from and to buffers of parts of so many ---- */

typedef struct job {
    size_t count, bytes; /* bytes: of a part */
    int type, op, root;
    bool in_place;
} job;

static void all_reduce(rank *k, const job *j, const char *from, char *to)
{
    ncclRedOp_t op = (ncclRedOp_t)j->op;
    char two[8];
    encode(2, j->type, two);
    if (j->op == SCALED)
        NCCL(ncclRedOpCreatePreMulSum(&op, two, (ncclDataType_t)j->type, ncclScalarHostImmediate, k->comm));
    NCCL(ncclAllReduce(from, to, j->count, (ncclDataType_t)j->type, op, k->comm, k->stream));
    if (j->op == SCALED) NCCL(ncclRedOpDestroy(op, k->comm));
}
static void reduce_scatter(rank *k, const job *j, const char *from, char *to)
{
    NCCL(ncclReduceScatter(from, to, j->count, (ncclDataType_t)j->type, (ncclRedOp_t)j->op, k->comm, k->stream));
}
static void reduce(rank *k, const job *j, const char *from, char *to)
{
    NCCL(ncclReduce(from, to, j->count, (ncclDataType_t)j->type, (ncclRedOp_t)j->op, j->root, k->comm, k->stream));
}
static void all_gather(rank *k, const job *j, const char *from, char *to)
{
    NCCL(ncclAllGather(from, to, j->count, (ncclDataType_t)j->type, k->comm, k->stream));
}
static void broadcast(rank *k, const job *j, const char *from, char *to)
{
    NCCL(ncclBroadcast(from, to, j->count, (ncclDataType_t)j->type, j->root, k->comm, k->stream));
}

static void send(rank *k, const job *j, const char *from, int peer)
{
    NCCL(ncclSend(from, j->count, (ncclDataType_t)j->type, peer, k->comm, k->stream));
}
static void receive(rank *k, const job *j, char *to, int peer)
{
    NCCL(ncclRecv(to, j->count, (ncclDataType_t)j->type, peer, k->comm, k->stream));
}
static void gather(rank *k, const job *j, const char *from, char *to)
{
    NCCL(ncclGroupStart());
    send(k, j, from, j->root);
    for (int r = 0; r < k->n && k->rank == j->root; r++) receive(k, j, to + (size_t)r * j->bytes, r);
    NCCL(ncclGroupEnd());
}
static void scatter(rank *k, const job *j, const char *from, char *to)
{
    NCCL(ncclGroupStart());
    for (int r = 0; r < k->n && k->rank == j->root; r++) send(k, j, from + (size_t)r * j->bytes, r);
    receive(k, j, to, j->root);
    NCCL(ncclGroupEnd());
}
static void all_to_all(rank *k, const job *j, const char *from, char *to)
{
    NCCL(ncclGroupStart());
    for (int r = 0; r < k->n; r++) {
        send(k, j, from + (size_t)r * j->bytes, r);
        receive(k, j, to + (size_t)r * j->bytes, r);
    }
    NCCL(ncclGroupEnd());
}
static void send_receive(rank *k, const job *j, const char *from, char *to)
{
    NCCL(ncclGroupStart());
    send(k, j, from, (k->rank + 1) % k->n);
    receive(k, j, to, (k->rank + k->n - 1) % k->n);
    NCCL(ncclGroupEnd());
}
/* What a rank has doubles with each exchange, which needs the one before: for a thread with one device. */
static void hypercube(rank *k, const job *j, const char *from, char *to)
{
    char *own = to + (size_t)k->rank * j->bytes;
    if (own != from) copy(own, from, j->bytes, k->stream);
    for (int bit = 1; bit < k->n; bit *= 2) {
        int peer = k->rank ^ bit;
        NCCL(ncclGroupStart());
        for (int block = 0; block < bit; block++) {
            send(k, j, to + (size_t)((k->rank & ~(bit - 1)) + block) * j->bytes, peer);
            receive(k, j, to + (size_t)((peer & ~(bit - 1)) + block) * j->bytes, peer);
        }
        NCCL(ncclGroupEnd());
    }
}

enum parts { ONE, ALL, ROOT_ALL }; /* of a buffer: for or from each rank */

static const struct {
    const char *name;
    void (*run)(rank *, const job *, const char *, char *);
    enum parts send, recv;
    enum { REDUCED, FROM_ROOT, FROM_EACH, TO_EACH, FROM_PREVIOUS } gives;
    bool rooted_result;
    bool checked_in_place; /* else it may hold anything then */
} kinds[] = {
    {"all-reduce", all_reduce, ONE, ONE, REDUCED, false, true},
    {"reduce-scatter", reduce_scatter, ALL, ONE, REDUCED, false, true},
    {"reduce", reduce, ONE, ONE, REDUCED, true, true},
    {"all-gather", all_gather, ONE, ALL, FROM_EACH, false, true},
    {"broadcast", broadcast, ONE, ONE, FROM_ROOT, false, true},
    {"gather", gather, ONE, ROOT_ALL, FROM_EACH, true, true},
    {"scatter", scatter, ROOT_ALL, ONE, FROM_ROOT, false, true},
    {"all-to-all", all_to_all, ALL, ALL, TO_EACH, false, false},
    {"send and receive", send_receive, ONE, ONE, FROM_PREVIOUS, false, false},
    {"hypercube", hypercube, ONE, ALL, FROM_EACH, false, true},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static double expected(int kind, const rank *k, const job *j, size_t i)
{
    size_t part = i / j->count, at = i % j->count, here = (size_t)k->rank * j->count + at;
    switch (kinds[kind].gives) {
    case REDUCED:
        return reduced(k->n, kinds[kind].send == ALL ? here : at, j->op, types[j->type].exponent == 0);
    case FROM_ROOT: return value(j->root, kinds[kind].send == ROOT_ALL ? here : at, j->op);
    case FROM_EACH: return value((int)part, at, j->op);
    case TO_EACH: return value((int)part, here, j->op);
    case FROM_PREVIOUS: return value((k->rank + k->n - 1) % k->n, at, j->op);
    }
    return 0;
}

/* ---- One job on the ranks of a thread ---- */

static size_t parts(enum parts of, const rank *k)
{
    return of == ONE ? 1 : (size_t)k->n;
}

/* In place: the smaller of the two is this rank's part of the larger one. */
static void places(int kind, const rank *k, const job *j, char **from, char **to)
{
    size_t mine = (size_t)k->rank * j->bytes;
    *from = j->in_place ? k->recv : k->send;
    *to = k->recv;
    if (!j->in_place || kinds[kind].send == kinds[kind].recv) return;
    if (kinds[kind].send == ONE)
        *from += mine;
    else
        *to += mine;
}

static void fill(int kind, rank *k, const job *j, char *from)
{
    size_t n = parts(kinds[kind].send, k) * j->count;
    for (size_t i = 0; i < n; i++) encode(value(k->rank, i, j->op), j->type, k->host + i * types[j->type].bytes);
    copy(from, k->host, n * types[j->type].bytes, k->stream);
    await(k->stream);
}

static void check(int kind, rank *k, const job *j, const char *to)
{
    size_t n = parts(kinds[kind].recv, k) * j->count, bytes = types[j->type].bytes;
    char right[8];
    if ((kinds[kind].rooted_result && k->rank != j->root) || (j->in_place && !kinds[kind].checked_in_place)) return;
    copy(k->host, to, n * bytes, k->stream);
    await(k->stream);
    for (size_t i = 0; i < n; i++) {
        encode(expected(kind, k, j, i), j->type, right);
        if (memcmp(k->host + i * bytes, right, bytes) == 0) continue;
        fprintf(stderr, "%s, rank %d of %d, type %d, operator %d, root %d, %zu elements%s: element %zu is wrong\n",
                kinds[kind].name, k->rank, k->n, j->type, j->op, j->root, j->count, j->in_place ? ", in place" : "", i);
        exit(1);
    }
}

/* As such a program waits: it asks the stream, and the communicator whether it is still well. */
static void wait_for(rank *k)
{
    ncclResult_t state;
#ifdef WITH_CUDA
    while (cudaStreamQuery(k->stream) == cudaErrorNotReady) {
        NCCL(ncclCommGetAsyncError(k->comm, &state));
        NCCL(state);
        sched_yield();
    }
#endif
    await(k->stream);
    NCCL(ncclCommGetAsyncError(k->comm, &state));
    NCCL(state);
}

static void run_once(thread *t, int kind, const job *j, char *from[], char *to[])
{
    if (each > 1) NCCL(ncclGroupStart());
    for (int g = 0; g < each; g++) kinds[kind].run(&t->ranks[g], j, from[g], to[g]);
    if (each > 1) NCCL(ncclGroupEnd());
}

/* Repeated without new data, which gives the same where it is not in place; with floats also waiting in between. */
static void run_job(thread *t, int kind, const job *j)
{
    char *from[MOST], *to[MOST];
    for (int g = 0; g < each; g++) places(kind, &t->ranks[g], j, &from[g], &to[g]);
    for (int waits = 0; waits < (j->type == ncclFloat && !j->in_place ? 2 : 1); waits++) {
        for (int g = 0; g < each; g++) fill(kind, &t->ranks[g], j, from[g]);
        pthread_barrier_wait(&all);
        for (int i = 0; i < (j->in_place ? 1 : ITERATIONS); i++) {
            run_once(t, kind, j, from, to);
            for (int g = 0; waits && g < each; g++) wait_for(&t->ranks[g]);
        }
        for (int g = 0; g < each; g++) wait_for(&t->ranks[g]);
        for (int g = 0; g < each; g++) check(kind, &t->ranks[g], j, to[g]);
    }
}

static void run_kind(thread *t, int kind)
{
    bool reduces = kinds[kind].gives == REDUCED, hyper = kinds[kind].run == hypercube;
    int n = t->ranks[0].n, ops = !reduces ? 1 : kinds[kind].run == all_reduce ? SCALED + 1 : SCALED;
    static const size_t counts[] = {257, 1, 20001};
    if (hyper && (each > 1 || (n & (n - 1)))) return;
    for (int type = 0; type < ncclNumTypes; type++)
        for (int op = 0; op < ops; op++)
            for (int c = 0; c < 3; c++)
                for (int in_place = 0; in_place < 2; in_place++) {
                    if (c > 0 && (type != ncclFloat || op != ncclSum)) continue;
                    job j = {counts[c], counts[c] * types[type].bytes, type, op, (type + c) % n, in_place};
                    run_job(t, kind, &j);
                }
}

/* ---- A thread's communicators and buffers ---- */

static void settle(ncclResult_t result, ncclComm_t *comms, int n)
{
    ncclResult_t state = ncclInProgress;
    if (result != ncclInProgress) NCCL(result);
    for (int i = 0; i < n; i++)
        for (state = ncclInProgress; comms[i] && state == ncclInProgress; sched_yield())
            NCCL(ncclCommGetAsyncError(comms[i], &state));
    NCCL(state);
}

static void init(ncclComm_t *comms, int first, int n)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = !background;
    NCCL(ncclGroupStart());
    for (int i = 0; i < n; i++) {
        use_device(first + i);
        ncclResult_t result = ncclCommInitRankConfig(&comms[i], world, id, first + i, &config);
        if (result != ncclInProgress) NCCL(result);
    }
    settle(ncclGroupEnd(), comms, n);
}

static void split(thread *t)
{
    ncclComm_t half[MOST] = {NULL};
    NCCL(ncclGroupStart());
    for (int g = 0; g < each; g++) {
        ncclResult_t result = ncclCommSplit(t->ranks[g].comm, (t->index * each + g) % 2, -g, &half[g], NULL);
        if (result != ncclInProgress) NCCL(result);
    }
    settle(ncclGroupEnd(), half, each);
    for (int g = 0; g < each; g++) {
        NCCL(ncclCommDestroy(t->ranks[g].comm));
        t->ranks[g].comm = half[g];
    }
}

static char *allocate(void)
{
    void *buffer;
    if (!memory) return new_buffer(room);
    NCCL(ncclMemAlloc(&buffer, room));
    return buffer;
}

static void prepare(thread *t)
{
    for (int g = 0; g < each; g++) {
        rank *k = &t->ranks[g];
        use_device(t->index * each + g);
        NCCL(ncclCommUserRank(k->comm, &k->rank));
        NCCL(ncclCommCount(k->comm, &k->n));
        k->stream = new_stream();
        k->send = allocate();
        k->recv = allocate();
        k->host = malloc(room);
        if (!k->host) exit(1);
        if (memory) NCCL(ncclCommRegister(k->comm, k->send, room, &k->registered[0]));
        if (memory) NCCL(ncclCommRegister(k->comm, k->recv, room, &k->registered[1]));
    }
}

static void release(thread *t)
{
    for (int g = 0; g < each; g++) {
        rank *k = &t->ranks[g];
        use_device(t->index * each + g);
        for (int b = 0; b < 2 && memory; b++) {
            NCCL(ncclCommDeregister(k->comm, k->registered[b]));
            NCCL(ncclMemFree(b ? k->recv : k->send));
        }
        if (!memory) free_buffer(k->send);
        if (!memory) free_buffer(k->recv);
        free(k->host);
        NCCL(ncclCommDestroy(k->comm));
        free_stream(k->stream);
    }
}

static void *work(void *argument)
{
    thread *t = argument;
    ncclComm_t comms[MOST] = {NULL};
    if (parallel) init(comms, t->index * each, each);
    for (int g = 0; g < each && parallel; g++) t->ranks[g].comm = comms[g];
    if (halves) split(t);
    prepare(t);
    for (int kind = 0; kind < KINDS; kind++) run_kind(t, kind);
    pthread_barrier_wait(&all);
    release(t);
    return NULL;
}

int main(int argc, char **argv)
{
    static thread list[MOST];
    ncclComm_t comms[MOST * MOST] = {NULL};
    threads = argc > 1 ? atoi(argv[1]) : 1;
    each = argc > 2 ? atoi(argv[2]) : 2;
    if (threads < 1 || threads > MOST || each < 1 || each > MOST) return 2;
    for (int i = 3; i < argc; i++) {
        parallel |= strcmp(argv[i], "parallel") == 0;
        background |= strcmp(argv[i], "background") == 0;
        memory |= strcmp(argv[i], "memory") == 0;
        halves |= strcmp(argv[i], "split") == 0;
    }
    world = threads * each;
    room = (size_t)world * 20001 * sizeof(float);
    pthread_barrier_init(&all, NULL, (unsigned)threads);
    NCCL(ncclGetUniqueId(&id));
    if (!parallel) init(comms, 0, world);
    for (int t = 0; t < threads; t++) {
        list[t].index = t;
        for (int g = 0; g < each; g++) list[t].ranks[g].comm = comms[t * each + g];
        if (pthread_create(&list[t].thread, NULL, work, &list[t])) return 1;
    }
    for (int t = 0; t < threads; t++) pthread_join(list[t].thread, NULL);
    printf("%d threads with %d devices each: ok\n", threads, each);
    return 0;
}
