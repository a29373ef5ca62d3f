/* SPDX-License-Identifier: Apache-2.0
 *
 * address.c - processes that carry no id: NCCL_COMM_ID names where rank 0 listens, and all ask for the id alike. Two
 * communicators, one after the other.   NCCL_COMM_ID=127.0.0.1:PORT address RANK N
 */
#include "program.h"

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    int rank = atoi(argv[1]), n = atoi(argv[2]);
    use_device(rank);
    for (int round = 0; round < 2; round++) {
        ncclUniqueId id;
        ncclComm_t comm;
        NCCL(ncclGetUniqueId(&id));
        NCCL(ncclCommInitRank(&comm, n, id, rank));
        part p = part_new(comm, rank, n);
        part_run(&p);
        part_free(&p);
        NCCL(ncclCommDestroy(comm));
    }
    printf("rank %d of %d met at an address: ok\n", rank, n);
    return 0;
}
