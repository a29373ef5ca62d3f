/* SPDX-License-Identifier: Apache-2.0
 *
 * one_process.c - one thread drives all devices: ncclCommInitAll, then groups.   one_process N
 */
#include "program.h"

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 2, devices[64];
    ncclComm_t comms[64];
    part parts[64];
    for (int i = 0; i < n; i++) devices[i] = i;
    NCCL(ncclCommInitAll(comms, n, devices));
    for (int i = 0; i < n; i++) {
        use_device(i);
        parts[i] = part_new(comms[i], i, n);
    }
    NCCL(ncclGroupStart());
    for (int i = 0; i < n; i++) part_sum(&parts[i]);
    NCCL(ncclGroupEnd());
    for (int i = 0; i < n; i++) part_expect(&parts[i], is_sum, "all-reduce");
    NCCL(ncclGroupStart());
    for (int i = 0; i < n; i++) part_pass_on(&parts[i]);
    NCCL(ncclGroupEnd());
    for (int i = 0; i < n; i++) part_expect(&parts[i], is_previous, "send and receive");
    for (int i = 0; i < n; i++) {
        use_device(i);
        part_free(&parts[i]);
        NCCL(ncclCommDestroy(comms[i]));
    }
    printf("%d devices in one thread: ok\n", n);
    return 0;
}
