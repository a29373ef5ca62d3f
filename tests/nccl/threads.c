/* SPDX-License-Identifier: Apache-2.0
 *
 * threads.c - one thread for each device: ncclCommInitRank with an id that they share.   threads N
 */
#include "program.h"

#include <pthread.h>

typedef struct worker {
    pthread_t thread;
    ncclUniqueId id;
    int rank, n;
} worker;

static void *work(void *argument)
{
    worker *w = argument;
    ncclComm_t comm;
    use_device(w->rank);
    NCCL(ncclCommInitRank(&comm, w->n, w->id, w->rank));
    part p = part_new(comm, w->rank, w->n);
    for (int round = 0; round < 3; round++) part_run(&p);
    part_free(&p);
    NCCL(ncclCommFinalize(comm));
    NCCL(ncclCommDestroy(comm));
    return NULL;
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 2;
    ncclUniqueId id;
    worker workers[64];
    NCCL(ncclGetUniqueId(&id));
    for (int i = 0; i < n; i++) {
        workers[i] = (worker){.id = id, .rank = i, .n = n};
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i])) return 1;
    }
    for (int i = 0; i < n; i++) pthread_join(workers[i].thread, NULL);
    printf("%d threads with a device each: ok\n", n);
    return 0;
}
