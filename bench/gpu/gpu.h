/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu.h - what the parts of the benchmark on GPUs share. Each part is a run of its own, so that one that fails or hangs
 * takes nothing with it; bench/gpu.sh runs them all and puts their rows in one table.
 */
#ifndef RONDO_BENCH_GPU_H
#define RONDO_BENCH_GPU_H

#include "base/gpu.h"

#include <stdbool.h>
#include <stddef.h>

/* How much each part does: less over the simulated driver, whose times say nothing. */
typedef struct gpu_effort {
    size_t bytes; /* of the largest buffers: more than caches hold */
    int runs;     /* of which the median counts */
    int calls;    /* between two events, of what is short */
} gpu_effort;

typedef struct gpu_part {
    const char *name, *arguments, *help;
    void (*run)(const gpu_effort *effort, int argc, char **argv);
} gpu_part;
void gpu_copies(const gpu_effort *effort, int argc, char **argv);
void gpu_kernels(const gpu_effort *effort, int argc, char **argv);
void gpu_launches(const gpu_effort *effort, int argc, char **argv);
void gpu_ranks(const gpu_effort *effort, int argc, char **argv);
void gpu_nccl(const gpu_effort *effort, int argc, char **argv);

/* The simulated driver (tests/cudasim) has functions that no real one has. */
bool gpu_is_simulated(void);

/* ---- The table ---- */

/* A row: what was measured, its figure, and how it compares. percent below 0: with nothing. */
void gpu_row(const char *what, double figure, const char *unit, double percent, const char *of);
/* What could not be measured, and why. Ends the part, well. */
void gpu_cannot(const char *why) __attribute__((noreturn));
void gpu_fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* A call of the library or of the driver that must succeed. */
#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        rondo_result must_ = (call);                                                                                   \
        if (must_ != RONDO_SUCCESS) gpu_fail("%s", rondo_last_error(NULL));                                            \
    } while (0)
#define CU(device, function, ...) MUST(RD_GPU(device, function, __VA_ARGS__))

/* "256 MiB" */
const char *gpu_size(char text[24], size_t bytes);

/* ---- Time ---- */

/* The GPU's own clock: two events in a stream. */
typedef struct gpu_timer {
    int device;
    rd_cu_stream stream;
    rd_cu_event from, to;
} gpu_timer;
void gpu_timer_open(gpu_timer *timer, int device, rd_cu_stream stream); /* in the device's context */
void gpu_timer_close(gpu_timer *timer);
void gpu_timer_start(gpu_timer *timer);
double gpu_timer_stop(gpu_timer *timer); /* waits; microseconds */

/* The median of effort->runs times, each of `calls` calls of give(argument), which gives the stream work; one more that
 * does not count goes before. Microseconds a call. */
double gpu_time(gpu_timer *timer, const gpu_effort *effort, int calls, void (*give)(void *argument), void *argument);
double gpu_median(double *times, int count); /* sorts them */
double gpu_now(void);                        /* microseconds of the host's clock */

/* How long the driver takes to copy so many bytes from device memory to device memory. */
double gpu_copy_time(gpu_timer *timer, const gpu_effort *effort, size_t bytes);

/* ---- All-reduces, of whoever ---- */

enum { GPU_SIZES = 7 };
/* Message sizes, ascending, and how many: from 8 bytes to a quarter of effort->bytes. */
int gpu_sizes(const gpu_effort *effort, size_t sizes[GPU_SIZES]);
int gpu_calls(const gpu_effort *effort, size_t bytes); /* between two events */
/* Float i of a rank, from 0, and of the sum; all of them small whole numbers. */
static inline float gpu_term(int rank, size_t i)
{
    return (float)(rank + 1) * (float)(1 + i % 1009);
}
static inline float gpu_sum(int ranks, size_t i)
{
    return (float)(ranks * (ranks + 1) / 2) * (float)(1 + i % 1009);
}

#endif
