/* SPDX-License-Identifier: Apache-2.0
 *
 * ping [BYTES [ROUNDS]] - half of a round trip between two ranks, by send and receive, in microseconds: least, median.
 * Started by a launcher, as in bench/verbs.sh.
 */
#include <rondo.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    size_t bytes = argc > 1 ? strtoul(argv[1], NULL, 10) : 8, rounds = argc > 2 ? strtoul(argv[2], NULL, 10) : 2000;
    rondo_comm *comm;
    char *data = calloc(bytes + 1, 1);
    double *times = calloc(rounds + 1, sizeof *times);
    rondo_result result = data && times ? rondo_init_env(&comm, NULL) : RONDO_SYSTEM_ERROR;
    if (result != RONDO_SUCCESS || rondo_comm_size(comm) != 2) return fprintf(stderr, "ping: %s\n", rondo_last_error(NULL)), 1;
    int rank = rondo_comm_rank(comm);
    for (size_t i = 0; i < rounds && result == RONDO_SUCCESS; i++) {
        double begin = now_us();
        for (int leg = 0; leg < 2 && result == RONDO_SUCCESS; leg++)
            result = leg == rank ? rondo_send(data, bytes, RONDO_UINT8, !rank, comm, NULL)
                                 : rondo_recv(data, bytes, RONDO_UINT8, !rank, comm, NULL);
        times[i] = (now_us() - begin) / 2;
    }
    if (result != RONDO_SUCCESS) return fprintf(stderr, "ping: %s\n", rondo_last_error(comm)), 1;
    qsort(times, rounds, sizeof *times, rising);
    if (!rank && rounds) printf("%zu %.2f %.2f\n", bytes, times[0], times[rounds / 2]);
    rondo_comm_destroy(comm);
    free(times);
    free(data);
    return 0;
}
