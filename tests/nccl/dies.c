/* SPDX-License-Identifier: Apache-2.0
 *
 * dies.c - rank 1 is killed; the others learn it, by name, in the call that needs it, and go on without it.   dies RANK
 * N FILE
 */
#include "program.h"

#include "id_file.h"

#include <signal.h>

int main(int argc, char **argv)
{
    if (argc != 4) return 2;
    int rank = atoi(argv[1]), n = atoi(argv[2]), dead = 1, left = 0;
    ncclComm_t comm, rest;
    use_device(rank);
    NCCL(ncclCommInitRank(&comm, n, shared_id(rank, argv[3]), rank));
    part p = part_new(comm, rank, n);
    part_run(&p);
    /* All others are through with that before it dies. */
    NCCL(ncclGroupStart());
    for (int r = 0; r < n && rank == dead; r++)
        if (r != dead) NCCL(ncclRecv(p.recv, 1, ncclFloat, r, comm, p.stream));
    if (rank != dead) NCCL(ncclSend(p.send, 1, ncclFloat, dead, comm, p.stream));
    NCCL(ncclGroupEnd());
    await(p.stream);
    if (rank == dead) raise(SIGKILL);
    ncclResult_t result = ncclAllReduce(p.send, p.recv, COUNT, ncclFloat, ncclSum, comm, p.stream), state = ncclSuccess;
    await(p.stream);
    NCCL(ncclCommGetAsyncError(comm, &state));
    if ((result != ncclRemoteError && result != ncclSuccess) || state != ncclRemoteError) return 3;
    if (!strstr(ncclGetLastError(comm), "rank 1")) return 4;
    NCCL(ncclCommShrink(comm, &dead, 1, &rest, NULL, NCCL_SHRINK_ABORT));
    NCCL(ncclCommAbort(comm));
    NCCL(ncclCommCount(rest, &left));
    p.comm = rest;
    p.rank = rank > dead ? rank - 1 : rank;
    p.n = left;
    for (size_t i = 0; i < COUNT; i++) p.host[i] = element(p.rank, i);
    copy(p.send, p.host, COUNT * sizeof *p.host, p.stream);
    part_run(&p);
    part_free(&p);
    NCCL(ncclCommDestroy(rest));
    printf("rank %d goes on with %d: ok\n", rank, left);
    return 0;
}
