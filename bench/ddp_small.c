/* SPDX-License-Identifier: Apache-2.0
 *
 * ddp_small - 10,000 gradients of 64 B to 2 KiB, by rondo_ddp in buckets and by an all-reduce for each.
 *
 *     RONDO_TRANSPORT=tcp build/rondo run -n 2 -- build/bench/ddp_small
 */
#include "rondo_ddp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TENSORS = 10000, LEAST = 16, MOST = 512, TIMES = 5 };

typedef struct gradients {
    rondo_ddp_tensor tensor[TENSORS];
    void *gradient[TENSORS];
    char name[TENSORS][16];
    float value[MOST]; /* no parameter is trained here */
} gradients;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static float term(int rank, int tensor)
{
    return (float)((rank + 1) * (tensor % 31));
}

static void fill(const gradients *g, int rank)
{
    for (int i = 0; i < TENSORS; i++)
        for (size_t k = 0; k < g->tensor[i].count; k++) ((float *)g->gradient[i])[k] = term(rank, i);
}

static int right(const gradients *g, int ranks)
{
    for (int i = 0; i < TENSORS; i++)
        for (size_t k = 0; k < g->tensor[i].count; k++)
            if (((float *)g->gradient[i])[k] != term(ranks * (ranks + 1) / 2 - 1, i)) return 0;
    return 1;
}

static rondo_result bucketed(const gradients *g, rondo_ddp *ddp)
{
    (void)g;
    for (int i = TENSORS - 1; i >= 0; i--) {
        rondo_result r = rondo_ddp_ready(ddp, i);
        if (r != RONDO_SUCCESS) return r;
    }
    return rondo_ddp_wait(ddp);
}

static rondo_result one_by_one(const gradients *g, rondo_comm *comm)
{
    for (int i = TENSORS - 1; i >= 0; i--) {
        void *data = g->gradient[i];
        rondo_result r = rondo_all_reduce(data, data, g->tensor[i].count, RONDO_FLOAT32, RONDO_SUM, comm, NULL);
        if (r != RONDO_SUCCESS) return r;
    }
    return RONDO_SUCCESS;
}

/* The best of some, of the slowest rank. */
static rondo_result measure(const gradients *g, rondo_comm *comm, rondo_ddp *ddp, double *best)
{
    int rank = rondo_comm_rank(comm), ranks = rondo_comm_size(comm);
    for (int t = 0; t < TIMES; t++) {
        fill(g, rank);
        rondo_result r = rondo_barrier(comm, NULL);
        double from = seconds();
        if (r == RONDO_SUCCESS) r = ddp ? bucketed(g, ddp) : one_by_one(g, comm);
        double took = seconds() - from;
        if (r == RONDO_SUCCESS) r = rondo_all_reduce(&took, &took, 1, RONDO_FLOAT64, RONDO_MAX, comm, NULL);
        if (r != RONDO_SUCCESS) return r;
        if (!right(g, ranks)) fprintf(stderr, "ddp_small: rank %d has wrong sums\n", rank);
        if (t == 0 || took < *best) *best = took;
    }
    return RONDO_SUCCESS;
}

int main(int argc, char **argv)
{
    if (argc > 1) return printf("usage: rondo run -n 2 -- %s\n", argv[0]) < 0;
    rondo_ddp_config config = RONDO_DDP_CONFIG_INIT;
    rondo_comm *comm = NULL;
    rondo_ddp *ddp = NULL;
    double with = 0, without = 0, bytes = 0;
    gradients *g = calloc(1, sizeof *g);
    if (!g) return 1;
    for (int i = 0; i < TENSORS; i++) {
        size_t count = LEAST + (size_t)i * 7919 % (MOST - LEAST + 1);
        snprintf(g->name[i], sizeof *g->name, "t%d", i);
        g->tensor[i] = (rondo_ddp_tensor){g->name[i], g->value, count, RONDO_FLOAT32, &g->gradient[i]};
        bytes += (double)(count * sizeof(float));
    }
    config.reduce = RONDO_DDP_SUM;
    rondo_result r = rondo_init_env(&comm, NULL);
    if (r == RONDO_SUCCESS) r = rondo_ddp_create(&ddp, g->tensor, TENSORS, NULL, 0, comm, &config);
    if (r == RONDO_SUCCESS) r = measure(g, comm, ddp, &with);
    if (r == RONDO_SUCCESS) r = measure(g, comm, NULL, &without);
    if (r != RONDO_SUCCESS)
        fprintf(stderr, "ddp_small: %s\n", rondo_last_error(NULL));
    else if (rondo_comm_rank(comm) == 0)
        printf("%d ranks, %d gradients, %.1f MiB: in buckets %.2f ms, one by one %.2f ms, %.1f times as long\n",
               rondo_comm_size(comm), TENSORS, bytes / (1 << 20), with * 1e3, without * 1e3, without / with);
    rondo_ddp_destroy(ddp);
    rondo_comm_destroy(comm);
    free(g);
    return r != RONDO_SUCCESS;
}
