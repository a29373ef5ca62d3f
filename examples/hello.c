/* SPDX-License-Identifier: Apache-2.0 */
#include <rondo.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    if (argc > 1) return printf("usage: rondo run -n 4 -- %s\n", argv[0]) < 0;
    rondo_comm *comm = NULL;
    if (rondo_init_env(&comm, NULL) != RONDO_SUCCESS) goto failed;
    float x[2] = {(float)rondo_comm_rank(comm), 1};
    if (rondo_all_reduce(x, x, 2, RONDO_FLOAT32, RONDO_SUM, comm, NULL) != RONDO_SUCCESS) goto failed;
    printf("rank %d: the ranks add up to %g, and there are %g of them\n", rondo_comm_rank(comm), x[0], x[1]);
    return rondo_comm_destroy(comm) != RONDO_SUCCESS;
failed:
    fprintf(stderr, "%s\n", rondo_last_error(comm));
    return 1;
}
