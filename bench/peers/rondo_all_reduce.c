/* SPDX-License-Identifier: Apache-2.0
 *
 * rondo_all_reduce, to be timed by serve.c, and the limits beside it:
 *   call, out, huge   private memory
 *   shared    memory from rondo_mem_alloc()
 *   bound     the zero-copy bound (shared memory)
 *   sockets:S:P   plain sockets, S of them, at most P bytes a system call
 */
#include "serve.h"

#include "cli/limits.h"
#include "rondo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rondo_comm *comm;
static rd_commons commons;
static rd_streams streams;

static float *bound_buffer(void)
{
    if (!commons.of && rd_commons_open(&commons, PEERS_MOST_BYTES, comm) != RONDO_SUCCESS) return NULL;
    return commons.of[rondo_comm_rank(comm)];
}

static float *socket_buffer(void)
{
    static float *data; /* what is sent, and behind it what is received */
    if (data) return data;
    streams.crowded = peers_meeting()->crowded;
    if (rd_streams_open(&streams, comm, false) == RONDO_SUCCESS) data = peers_private_buffer(2ul * PEERS_MOST_BYTES);
    return data;
}

static float *shared_buffer(void)
{
    static void *data;
    if (!data && rondo_mem_alloc(&data, PEERS_MOST_BYTES, comm) != RONDO_SUCCESS) return NULL;
    return data;
}

static float *buffer(const char *kind)
{
    if (strcmp(kind, "bound") == 0) return bound_buffer();
    if (strcmp(kind, "shared") == 0) return shared_buffer();
    if (strncmp(kind, "sockets:", 8) == 0) return socket_buffer();
    return NULL;
}

static bool bound(size_t bytes)
{
    unsigned char **of = (unsigned char **)commons.of;
    rd_meet(peers_meeting());
    rd_bound_work(RD_BOUND_ALL_REDUCE, of, of, rondo_comm_rank(comm), rondo_comm_size(comm), 0, bytes);
    rd_meet(peers_meeting());
    return true;
}

static bool exchange(const char *kind, float *data, size_t bytes)
{
    int sockets = 0;
    size_t piece = 0, crossing = 2 * bytes / (size_t)rondo_comm_size(comm) * (size_t)(rondo_comm_size(comm) - 1);
    if (sscanf(kind, "sockets:%d:%zu", &sockets, &piece) != 2 || sockets < 1 || sockets > RD_STREAMS || !piece)
        return false;
    return rd_streams_exchange(&streams, sockets, piece, data, crossing, (char *)data + PEERS_MOST_BYTES, crossing) ==
           RONDO_SUCCESS;
}

static bool call(const char *kind, const float *from, float *to, size_t count)
{
    if (strcmp(kind, "bound") == 0) return bound(count * sizeof *to);
    if (strncmp(kind, "sockets:", 8) == 0) return exchange(kind, to, count * sizeof *to);
    if (rondo_all_reduce(from, to, count, RONDO_FLOAT32, RONDO_SUM, comm, NULL) == RONDO_SUCCESS) return true;
    fprintf(stderr, "%s\n", rondo_last_error(comm));
    return false;
}

static bool sums(const char *kind)
{
    return strcmp(kind, "bound") != 0 && strncmp(kind, "sockets:", 8) != 0;
}

int main(int argc, char **argv)
{
    peers_bind(argc, argv);
    if (rondo_init_env(&comm, NULL) != RONDO_SUCCESS) {
        fprintf(stderr, "%s\n", rondo_last_error(NULL));
        return 1;
    }
    int status = peers_serve(argc, argv, rondo_comm_rank(comm), rondo_comm_size(comm),
                             &(contestant){.buffer = buffer, .call = call, .sums = sums});
    rondo_comm_destroy(comm);
    return status;
}
