/* SPDX-License-Identifier: Apache-2.0
 *
 * control.h - what a test can ask of the simulated driver beyond what a driver does. Its libcuda.so.1 exports these
 * functions; in a test tests/on_cudasim.c calls those of the driver that is loaded.
 */
#ifndef RONDO_CUDASIM_CONTROL_H
#define RONDO_CUDASIM_CONTROL_H

/* The `after`-th call of `call` from now on (1: the next) fails with `result`, once. call: the driver's name of a
 * function, or "kernel": an execution of one. lost: the current context (of a kernel: its own, always) is lost with
 * that. 0, or -1: no such call. */
int cudasim_fail(const char *call, unsigned long after, unsigned result, int lost);

/* From now on the threads of blocks run in another order; 0: in turns. */
void cudasim_seed(unsigned seed);

/* How often a function has been called in this process, or a "kernel" executed. */
unsigned long cudasim_calls(const char *call);

/* What is alive in this process: to see that nothing is left behind. */
struct cudasim_held {
    int contexts, streams, events, modules;                     /* without legacy streams */
    int device_memory, managed_memory, host_memory, registered; /* allocations and registrations */
    int imported;                                               /* opened IPC handles */
    int mapped, allocations;                                    /* cuMemMap, cuMemCreate */
};
void cudasim_held(struct cudasim_held *held);

#endif
