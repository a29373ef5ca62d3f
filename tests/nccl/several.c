/* SPDX-License-Identifier: Apache-2.0
 *
 * several.c - several communicators at a time, as where a model and its data are both divided: all ranks, and from it
 * by splits the rows and columns of a grid of two columns; one process for each device.   several RANK N FILE
 */
#include "program.h"

#include "id_file.h"

int main(int argc, char **argv)
{
    if (argc != 4) return 2;
    int rank = atoi(argv[1]), n = atoi(argv[2]), row = rank / 2, column = rank % 2, at, size;
    ncclComm_t all, mine[2];
    use_device(rank);
    NCCL(ncclCommInitRank(&all, n, shared_id(rank, argv[3]), rank));
    NCCL(ncclCommSplit(all, row, column, &mine[0], NULL));
    NCCL(ncclCommSplit(all, column, row, &mine[1], NULL));
    part whole = part_new(all, rank, n), parts[2];
    for (int i = 0; i < 2; i++) {
        NCCL(ncclCommUserRank(mine[i], &at));
        NCCL(ncclCommCount(mine[i], &size));
        parts[i] = part_new(mine[i], at, size);
    }
    for (int round = 0; round < 3; round++) {
        NCCL(ncclGroupStart());
        for (int i = 0; i < 2; i++) part_sum(&parts[i]);
        part_sum(&whole);
        NCCL(ncclGroupEnd());
        for (int i = 0; i < 2; i++) part_expect(&parts[i], is_sum, "all-reduce of a part");
        part_expect(&whole, is_sum, "all-reduce of all");
        for (int i = 0; i < 2; i++) part_run(&parts[i]);
    }
    for (int i = 0; i < 2; i++) {
        part_free(&parts[i]);
        NCCL(ncclCommDestroy(mine[i]));
    }
    part_free(&whole);
    NCCL(ncclCommDestroy(all));
    printf("rank %d of %d in three communicators: ok\n", rank, n);
    return 0;
}
