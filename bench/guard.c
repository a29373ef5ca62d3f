/* SPDX-License-Identifier: Apache-2.0
 *
 * guard.c - two figures that no change may lose, by the public API alone.
 *
 *   guard start [N]                 N ranks (64) as processes of this host: init by a unique id, a barrier, destroy
 *   guard shm [-c A,B] [bytes...]   a float32 sum in place by two ranks on processing units A and B (the first two
 *                                   that are allowed), 64K and 16M bytes
 *
 * How `shm` measures: ordinary malloc memory; each rank rewrites its whole buffer before every call (else the call
 * would find everything in private caches), then the two meet at a flag of this program's own, and only then the clock
 * starts. A call takes as long as the slower rank's. Every sum is checked.
 *
 * Where the two processing units lie decides more than anything else, and under a hypervisor it changes: so a flag's
 * round trip before and after every block tells the placement, and a block whose two disagree is marked and not
 * compared. Figures of different placements, or of different machines, must not be compared either.
 */
#include "rondo.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_RANKS = 4096, MOST_CALLS = 200, WARM_UP = 5, BLOCKS = 3, DEADLINE_S = 120 };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void give_up(int rank, const char *what)
{
    fprintf(stderr, "guard: rank %d: %s: %s\n", rank, what, rondo_last_error(NULL));
    _exit(1);
}

static void check(rondo_result result, int rank, const char *what)
{
    if (result != RONDO_SUCCESS) give_up(rank, what);
}

static int usage(void)
{
    fprintf(stderr, "usage: guard start [N]   (N ranks, 1 to %d)\n"
                    "       guard shm [-c A,B] [bytes...]   (multiples of 4; K and M are understood)\n", MOST_RANKS);
    return 2;
}

/* true when every child ended well; says which did not. After the first failure the others are ended: they would only
 * wait for it. */
static bool reap(pid_t *children, int count)
{
    bool good = true;
    for (int left = count; left > 0; left--) {
        int status, rank = 0;
        pid_t child = wait(&status);
        if (child < 0) return false;
        while (rank < count && children[rank] != child) rank++;
        if (rank < count) children[rank] = 0;
        if (status == 0 || !good) continue;
        if (WIFSIGNALED(status))
            fprintf(stderr, "guard: rank %d ended by signal %d (%s)\n", rank, WTERMSIG(status),
                    WTERMSIG(status) == SIGALRM ? "over its deadline" : strsignal(WTERMSIG(status)));
        good = false;
        for (int r = 0; r < count; r++)
            if (children[r] > 0) kill(children[r], SIGTERM);
    }
    return good;
}

/* ---- start ---------------------------------------------------------------------------------------------------- */

/* A rank of `guard start`: its number and the world size as arguments, the unique id on standard input. */
static int joiner(int rank, int world)
{
    rondo_unique_id id;
    rondo_comm *comm = NULL;
    if (read(STDIN_FILENO, &id, sizeof id) != (ssize_t)sizeof id) {
        fprintf(stderr, "guard: rank %d: no unique id on standard input\n", rank);
        return 1;
    }
    alarm(DEADLINE_S);
    check(rondo_init_rank(&comm, world, id, rank, NULL), rank, "init");
    check(rondo_barrier(comm, NULL), rank, "barrier");
    check(rondo_comm_destroy(comm), rank, "destroy");
    return 0;
}

static pid_t launch(const char *self, int rank, int world, int input)
{
    char rank_text[16], world_text[16];
    snprintf(rank_text, sizeof rank_text, "%d", rank);
    snprintf(world_text, sizeof world_text, "%d", world);
    pid_t child = fork();
    if (child == 0) {
        dup2(input, STDIN_FILENO);
        execl(self, self, "join", rank_text, world_text, (char *)NULL);
        fprintf(stderr, "guard: cannot run %s: %s\n", self, strerror(errno));
        _exit(1);
    }
    return child;
}

static int start(int world)
{
    static pid_t children[MOST_RANKS];
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    int pipes[2], launched = 0;
    rondo_unique_id id;
    if (length < 0 || pipe2(pipes, O_CLOEXEC)) {
        perror("guard: /proc/self/exe, pipe2");
        return 1;
    }
    self[length] = '\0';
    double begin = seconds();
    check(rondo_get_unique_id(&id), -1, "unique id"); /* served by this process, which is no rank */
    while (launched < world && (children[launched] = launch(self, launched, world, pipes[0])) > 0) launched++;
    close(pipes[0]);
    bool good = launched == world;
    if (!good) perror("guard: fork");
    signal(SIGPIPE, SIG_IGN);
    /* One id per rank; a read of one id's size from a pipe that holds whole ids is never torn. */
    for (int r = 0; good && r < world; r++) good = write(pipes[1], &id, sizeof id) == (ssize_t)sizeof id;
    close(pipes[1]);
    good = reap(children, launched) && good;
    double took = seconds() - begin;
    if (!good) return 1;
    printf("start: %d processes, init, barrier, destroy: %.2f s%s\n", world, took,
           world == 64 ? took < 2 ? " (goal: under 2 s, met)" : " (goal: under 2 s, MISSED)" : "");
    return 0;
}

/* ---- shm ------------------------------------------------------------------------------------------------------ */

/* Best hand-written exchange for two ranks, on virtual machines with two cores of an AMD EPYC (family 25, model 17):
 * medians in microseconds. It copies through a window in shared memory in two phases, and knows nothing but float32
 * sums. The library shall stay within twice of it. */
static const struct {
    size_t bytes;
    double near, far;
} trials[] = {{4, 0.14, 0.49},         {1 << 10, 0.18, 0.58},   {4 << 10, 0.29, 1.1},    {16 << 10, 0.67, 2.6},
              {64 << 10, 2.4, 6.1},    {256 << 10, 9.1, 20},    {1 << 20, 38.6, 65},     {4 << 20, 147, 239},
              {16 << 20, 1190, 1440},  {64 << 20, 6590, 8040}};

typedef enum placement { SMT, NEAR, FAR } placement;
static const char *const placement_names[] = {"core", "L3", "host"};

/* By a flag's round trip in nanoseconds: about 50 between SMT siblings, 105 to 125 within an L3 cache, 250 to 400
 * between two. */
static placement placement_of(double ns) { return ns < 80 ? SMT : ns < 185 ? NEAR : FAR; }

typedef struct line {
    _Alignas(128) _Atomic uint64_t count; /* two lines of 64: some CPUs fetch them in pairs */
} line;

/* What the two ranks and their parent share. */
typedef struct board {
    line arrived[2];
    line ball[2];
    rondo_unique_id id;
    double took[2][MOST_CALLS];
} board;

typedef struct player {
    board *shared;
    int rank;
    uint64_t meetings, rallies;
    rondo_comm *comm;
} player;

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static void await(line *of, uint64_t count)
{
    while (atomic_load_explicit(&of->count, memory_order_acquire) < count) relax();
}

static void meet(player *me)
{
    atomic_store_explicit(&me->shared->arrived[me->rank].count, ++me->meetings, memory_order_release);
    await(&me->shared->arrived[!me->rank], me->meetings);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The round trip of a flag, in nanoseconds: the median of short rallies, so that an interruption does not count. */
static double ping_pong(player *me)
{
    enum { RALLIES = 51, SHOTS = 200 };
    double rally[RALLIES];
    line *mine = &me->shared->ball[me->rank], *other = &me->shared->ball[!me->rank];
    meet(me);
    for (int i = 0; i < RALLIES; i++) {
        double begin = seconds();
        for (int k = 0; k < SHOTS; k++) {
            uint64_t shot = ++me->rallies;
            if (me->rank) await(other, shot);
            atomic_store_explicit(&mine->count, shot, memory_order_release);
            if (!me->rank) await(other, shot);
        }
        rally[i] = (seconds() - begin) / SHOTS * 1e9;
    }
    qsort(rally, RALLIES, sizeof *rally, by_value);
    return rally[RALLIES / 2];
}

/* Small integers: sums are exact. Another value a slice or a chunk further on. */
static float value(size_t i, int rank, int call)
{
    return (float)(((i + (i >> 16)) & 0xffff) + (size_t)(5 * rank + call));
}

static double one_call(player *me, float *data, size_t count, int call)
{
    for (size_t i = 0; i < count; i++) data[i] = value(i, me->rank, call);
    meet(me);
    double begin = seconds();
    check(rondo_all_reduce(data, data, count, RONDO_FLOAT32, RONDO_SUM, me->comm, NULL), me->rank, "all-reduce");
    double took = seconds() - begin;
    for (size_t i = 0; i < count; i++) {
        float right = value(i, 0, call) + value(i, 1, call);
        if (data[i] == right) continue;
        fprintf(stderr, "guard: rank %d: element %zu of %zu is %g, not %g\n", me->rank, i, count, data[i], right);
        _exit(1);
    }
    return took;
}

static void report(size_t bytes, double median, double least, int calls, double before, double after)
{
    char trial_text[64] = "";
    placement from = placement_of(before), to = placement_of(after);
    printf("shm %9zu B  median %9.2f us  min %9.2f us  (%d calls)  round trip %.0f and %.0f ns: ", bytes, median, least,
           calls, before, after);
    if (from != to) {
        printf("%s, then %s: moved, not comparable\n", placement_names[from], placement_names[to]);
        return;
    }
    for (size_t i = 0; from != SMT && i < sizeof trials / sizeof *trials; i++) {
        double trial = from == NEAR ? trials[i].near : trials[i].far;
        if (trials[i].bytes == bytes)
            snprintf(trial_text, sizeof trial_text, "  trial %.2f us, ratio %.2f", trial, median / trial);
    }
    printf("%s%s\n", placement_names[from], trial_text);
}

static void block(player *me, float *data, size_t bytes)
{
    int calls = bytes <= (1 << 20) ? 200 : 30;
    double *took = me->shared->took[me->rank], before = ping_pong(me);
    for (int call = -WARM_UP; call < calls; call++) {
        double one = one_call(me, data, bytes / sizeof *data, call + WARM_UP);
        if (call >= 0) took[call] = one * 1e6;
    }
    double after = ping_pong(me);
    meet(me);
    if (me->rank == 0) {
        const double *other = me->shared->took[1];
        for (int i = 0; i < calls; i++) took[i] = took[i] > other[i] ? took[i] : other[i];
        qsort(took, (size_t)calls, sizeof *took, by_value);
        report(bytes, took[calls / 2], took[0], calls, before, after);
    }
    meet(me); /* the next block writes where rank 0 has just read */
}

static void play(board *shared, int rank, int cpu, const size_t *sizes, int count)
{
    player me = {.shared = shared, .rank = rank};
    cpu_set_t set;
    alarm(DEADLINE_S);
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set)) {
        fprintf(stderr, "guard: rank %d: cannot run on processing unit %d: %s\n", rank, cpu, strerror(errno));
        _exit(1);
    }
    if (rank == 0) check(rondo_get_unique_id(&shared->id), rank, "unique id");
    meet(&me);
    check(rondo_init_rank(&me.comm, 2, shared->id, rank, NULL), rank, "init");
    for (int i = 0; i < count; i++) {
        float *data = malloc(sizes[i]);
        if (!data) {
            fprintf(stderr, "guard: rank %d: no memory for %zu bytes\n", rank, sizes[i]);
            _exit(1);
        }
        for (int b = 0; b < BLOCKS; b++) block(&me, data, sizes[i]);
        free(data);
    }
    check(rondo_comm_destroy(me.comm), rank, "destroy");
    fflush(stdout);
    _exit(0);
}

static bool two_cpus(const char *asked, int cpus[2])
{
    if (asked) return sscanf(asked, "%d,%d", &cpus[0], &cpus[1]) == 2 && cpus[0] >= 0 && cpus[1] >= 0 &&
                      cpus[0] < CPU_SETSIZE && cpus[1] < CPU_SETSIZE && cpus[0] != cpus[1];
    cpu_set_t set;
    int found = 0;
    if (sched_getaffinity(0, sizeof set, &set)) return false;
    for (int cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++)
        if (CPU_ISSET(cpu, &set)) cpus[found++] = cpu;
    return found == 2;
}

static int shm(const char *asked, const size_t *sizes, int count)
{
    int cpus[2];
    pid_t children[2];
    if (!two_cpus(asked, cpus)) {
        fprintf(stderr, "guard: shm needs two different processing units%s%s\n", asked ? ", not " : "",
                asked ? asked : "");
        return 1;
    }
    board *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("guard: mmap");
        return 1;
    }
    printf("shm: float32 sum in place, ranks on processing units %d and %d; goal: ratio at most 2\n", cpus[0], cpus[1]);
    fflush(stdout);
    for (int rank = 0; rank < 2; rank++) {
        children[rank] = fork();
        if (children[rank] == 0) play(shared, rank, cpus[rank], sizes, count);
        if (children[rank] > 0) continue;
        perror("guard: fork");
        if (rank) kill(children[0], SIGTERM);
        return 1;
    }
    return reap(children, 2) ? 0 : 1;
}

/* 0 when `text` is no such number. */
static size_t bytes_of(const char *text)
{
    char *end;
    unsigned long long bytes = strtoull(text, &end, 10);
    if (*end == 'K') bytes <<= 10, end++;
    else if (*end == 'M') bytes <<= 20, end++;
    return *end || *text == '-' || bytes % sizeof(float) || bytes > (1ull << 32) ? 0 : (size_t)bytes;
}

int main(int argc, char **argv)
{
    static size_t sizes[64] = {64 << 10, 16 << 20};
    int count = 2, at = 2;
    const char *cpus = NULL;
    if (argc == 4 && !strcmp(argv[1], "join")) return joiner(atoi(argv[2]), atoi(argv[3]));
    if (argc >= 2 && argc <= 3 && !strcmp(argv[1], "start")) {
        int world = argc == 3 ? atoi(argv[2]) : 64;
        return world >= 1 && world <= MOST_RANKS ? start(world) : usage();
    }
    if (argc < 2 || strcmp(argv[1], "shm")) return usage();
    if (at + 1 < argc && !strcmp(argv[at], "-c")) cpus = argv[at + 1], at += 2;
    if (argc - at > (int)(sizeof sizes / sizeof *sizes)) return usage();
    if (at < argc) count = argc - at;
    for (int i = 0; at + i < argc; i++)
        if (!(sizes[i] = bytes_of(argv[at + i]))) return usage();
    return shm(cpus, sizes, count);
}
