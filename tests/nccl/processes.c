/* SPDX-License-Identifier: Apache-2.0
 *
 * processes.c - one process for each device; rank 0 writes the id to a file, the others wait for it.
 *   processes RANK N FILE
 */
#include "program.h"

#include "id_file.h"

int main(int argc, char **argv)
{
    if (argc != 4) return 2;
    int rank = atoi(argv[1]), n = atoi(argv[2]);
    ncclComm_t comm;
    use_device(rank);
    NCCL(ncclCommInitRank(&comm, n, shared_id(rank, argv[3]), rank));
    part p = part_new(comm, rank, n);
    for (int round = 0; round < 3; round++) part_run(&p);
    part_free(&p);
    NCCL(ncclCommDestroy(comm));
    printf("rank %d of %d processes: ok\n", rank, n);
    return 0;
}
