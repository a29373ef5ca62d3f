/* SPDX-License-Identifier: Apache-2.0
 *
 * verify [-c COUNT] [-r ROUNDS] - an all-reduce of COUNT float32 whose every element is checked.
 *
 * The value depends on rank, element and round, so that no mix-up of ranks, chunks or calls gives the right sum by
 * luck; all are small whole numbers, so that the sum is exact and any difference is an error.
 */
#include <rondo.h>

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static float value(int rank, size_t i, int round) { return (float)(i % 97) + (float)(rank + round % 8); }

static double expected(int ranks, size_t i, int round)
{
    return (double)ranks * (double)(i % 97) + ranks * (ranks - 1) / 2.0 + ranks * (round % 8);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int whole_number(const char *text, long long most, long long *number)
{
    char *end;
    errno = 0;
    *number = strtoll(text, &end, 10);
    return errno == 0 && end != text && !*end && *number >= 0 && *number <= most;
}

/* Returns the largest error of the round, < 0 when the call failed. */
static double round_error(rondo_comm *comm, float *send, float *recv, size_t count, int round, double *took)
{
    const int rank = rondo_comm_rank(comm), ranks = rondo_comm_size(comm);
    double worst = 0;
    for (size_t i = 0; i < count; i++) send[i] = value(rank, i, round);
    if (rondo_barrier(comm, NULL) != RONDO_SUCCESS) return -1;
    double start = seconds();
    if (rondo_all_reduce(send, recv, count, RONDO_FLOAT32, RONDO_SUM, comm, NULL) != RONDO_SUCCESS) return -1;
    *took = seconds() - start;
    for (size_t i = 0; i < count; i++) {
        double error = fabs((double)recv[i] - expected(ranks, i, round));
        if (!(error <= worst)) worst = error; /* a NaN counts */
    }
    return worst;
}

static int verify(rondo_comm *comm, size_t count, int rounds)
{
    const int rank = rondo_comm_rank(comm), ranks = rondo_comm_size(comm);
    float *send = malloc(count * sizeof *send + 1), *recv = calloc(count + 1, sizeof *recv);
    double worst = 0, best = INFINITY, took = 0;
    if (!send || !recv) {
        fprintf(stderr, "rank %d: no memory for 2 buffers of %zu float32\n", rank, count);
        free(send);
        free(recv);
        return 1;
    }
    for (int round = 0; round < rounds; round++) {
        double error = round_error(comm, send, recv, count, round, &took);
        if (error < 0) fprintf(stderr, "rank %d: %s\n", rank, rondo_last_error(comm));
        if (error < 0 || !(error <= worst)) worst = error;
        if (error < 0) break;
        if (took < best) best = took;
    }
    int wrong = !(worst == 0);
    printf("rank %d of %d: %s, largest error %g\n", rank, ranks, wrong ? "FAILED" : "OK", worst < 0 ? NAN : worst);
    if (rank == 0 && ranks > 1 && !wrong && rounds > 0)
        printf("rank 0: fastest of %d rounds %.3f ms, busbw %.2f GB/s\n", rounds, best * 1e3,
               (double)count * sizeof *send / best * 2 * (ranks - 1) / ranks * 1e-9);
    free(send);
    free(recv);
    return wrong;
}

static int usage(FILE *to, int status)
{
    fprintf(to, "usage: verify [-c COUNT] [-r ROUNDS]: an all-reduce of COUNT float32 (1048576), every element checked,\n"
                "ROUNDS times (3)\n"
                "started as the ranks of a job:  rondo run -n 4 -- verify -c 1000\n");
    return status;
}

int main(int argc, char **argv)
{
    static const struct option names[] = {{"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    long long count = 1 << 20, rounds = 3;
    for (int option; (option = getopt_long(argc, argv, "c:r:h", names, NULL)) != -1;) {
        if (option == 'h') return usage(stdout, 0);
        int right = option == 'c' ? whole_number(optarg, 1LL << 40, &count)
                                  : option == 'r' && whole_number(optarg, 1 << 30, &rounds);
        if (!right) return usage(stderr, 2);
    }
    rondo_comm *comm;
    if (rondo_init_env(&comm, NULL) != RONDO_SUCCESS) {
        fprintf(stderr, "verify: %s\n", rondo_last_error(NULL));
        return 1;
    }
    if (rondo_comm_rank(comm) == 0)
        printf("rank 0: sum over %d rank%s of %lld float32 (%.1f MiB) each\n", rondo_comm_size(comm),
               rondo_comm_size(comm) == 1 ? "" : "s", count, (double)count * 4 / 1048576);
    int wrong = verify(comm, (size_t)count, (int)rounds);
    rondo_comm_destroy(comm);
    return wrong;
}
