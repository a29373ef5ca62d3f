/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi.c - one process for each device, the id carried by MPI.   mpirun -n N mpi
 */
#include "program.h"

#include <mpi.h>

int main(int argc, char **argv)
{
    int rank, n;
    ncclUniqueId id;
    ncclComm_t comm;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    if (rank == 0) NCCL(ncclGetUniqueId(&id));
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    use_device(rank);
    NCCL(ncclCommInitRank(&comm, n, id, rank));
    part p = part_new(comm, rank, n);
    part_run(&p);
    part_free(&p);
    NCCL(ncclCommDestroy(comm));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("%d ranks of MPI: ok\n", n);
    MPI_Finalize();
    return 0;
}
