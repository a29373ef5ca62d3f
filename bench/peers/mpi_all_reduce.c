/* SPDX-License-Identifier: Apache-2.0
 *
 * MPI_Allreduce, to be timed by serve.c. One source for every MPI.
 */
#include "serve.h"

#include <mpi.h>
#include <stdio.h>
#include <string.h>

static float *buffer(const char *kind, size_t bytes)
{
    static float *data;
    (void)bytes;
    if (strcmp(kind, "call") != 0) return NULL;
    if (!data) data = peers_private_buffer(PEERS_MOST_BYTES);
    return data;
}

static bool call(const char *kind, float *data, size_t count)
{
    (void)kind;
    return MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS;
}

static bool sums(const char *kind)
{
    return kind != NULL;
}

int main(int argc, char **argv)
{
    int rank, size;
    peers_bind(argc, argv);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int status = peers_serve(argc, argv, rank, size, &(contestant){buffer, call, sums});
    MPI_Finalize();
    return status;
}
