/* SPDX-License-Identifier: Apache-2.0
 *
 * MPI_Allreduce, to be timed by serve.c. One source for every MPI.
 */
#include "serve.h"

#include <mpi.h>

static bool call(const float *from, float *to, size_t count)
{
    return MPI_Allreduce(from == to ? MPI_IN_PLACE : from, to, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) ==
           MPI_SUCCESS;
}

int main(int argc, char **argv)
{
    int rank, size;
    peers_bind(argc, argv);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int status = peers_serve(argc, argv, rank, size, &(contestant){.call = call});
    MPI_Finalize();
    return status;
}
