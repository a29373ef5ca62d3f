/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu - what this GPU does: bandwidth of its memory, reduction kernels, launches, all-reduces; one part a run. It links
 * no CUDA library. bench/gpu.sh runs all parts and makes one table of their rows.
 *
 *   gpu [-b BYTES] [-r RUNS] [-c CALLS] PART ...
 *
 * Figures are medians, by events of the driver where not said otherwise; every result is compared before it counts.
 */
#include "gpu.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

bool gpu_is_simulated(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    return driver && dlsym(driver, "cudasim_held");
}

static void gpu_about(const gpu_effort *effort, int argc, char **argv)
{
    int version = 0;
    (void)effort, (void)argc, (void)argv;
    CU(-1, cuDriverGetVersion, &version);
    printf("%s for CUDA %d.%d; %d GPU%s\n", gpu_is_simulated() ? "simulated driver" : "driver", version / 1000,
           version % 1000 / 10, rd_gpu_count(), rd_gpu_count() == 1 ? "" : "s");
    for (int i = 0; i < rd_gpu_count(); i++) {
        struct rd_gpu_info info;
        MUST(rd_gpu_describe(i, &info));
        printf("GPU %d: %s, sm_%d, %d multiprocessors, %zu MiB\n", i, info.name, info.capability, info.multiprocessors,
               info.memory_bytes >> 20);
    }
}

static const gpu_part parts[] = {
    {"about", "", "the driver and its GPUs", gpu_about},
    {"copies", "", "the driver's copies in the GPU's memory: what the kernels are held against", gpu_copies},
    {"kernels", "", "the library's reduction kernels, for every type", gpu_kernels},
    {"launches", "", "what a launch and a ticket cost", gpu_launches},
    {"ranks", "RANKS GPUS [LINK]", "all-reduces among ranks that are threads, on so many GPUs; LINK as RONDO_TRANSPORT",
     gpu_ranks},
    {"nccl", "GPUS [LIBRARY]", "the same by NVIDIA's libnccl.so.2, a rank for each GPU", gpu_nccl},
};
enum { PARTS = sizeof parts / sizeof *parts };

static int usage(void)
{
    fprintf(stderr, "usage: gpu [-b BYTES] [-r RUNS] [-c CALLS] PART ...\n");
    for (int i = 0; i < PARTS; i++)
        fprintf(stderr, "  %-8s %-18s %s\n", parts[i].name, parts[i].arguments, parts[i].help);
    return 2;
}

/* ---- The table ---- */

void gpu_row(const char *what, double figure, const char *unit, double percent, const char *of)
{
    char compared[160] = "";
    if (percent >= 0) snprintf(compared, sizeof compared, "%.0f %% of %s", percent, of);
    printf("| %s | %.*f %s | %s |\n", what, figure < 10 ? 2 : figure < 100 ? 1 : 0, figure, unit, compared);
    fflush(stdout);
}

/* Other threads may be in the library: nothing is torn down under them. */
static __attribute__((noreturn)) void leave(int status)
{
    fflush(NULL);
    _exit(status);
}

void gpu_cannot(const char *why)
{
    printf("not measured: %s\n", why);
    leave(0);
}

void gpu_fail(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fputc('\n', stderr);
    leave(1);
}

const char *gpu_size(char text[24], size_t bytes)
{
    int shift = bytes >> 30 ? 30 : bytes >> 20 ? 20 : bytes >> 10 ? 10 : 0;
    if (bytes & (((size_t)1 << shift) - 1)) shift = 0;
    snprintf(text, 24, "%zu %s", bytes >> shift, shift == 30 ? "GiB" : shift == 20 ? "MiB" : shift == 10 ? "KiB" : "B");
    return text;
}

/* ---- Time ---- */

double gpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double gpu_median(double *times, int count)
{
    qsort(times, (size_t)count, sizeof *times, ascending);
    return (times[(count - 1) / 2] + times[count / 2]) / 2;
}

void gpu_timer_open(gpu_timer *timer, int device, rd_cu_stream stream)
{
    *timer = (gpu_timer){.device = device, .stream = stream};
    CU(device, cuEventCreate, &timer->from, RD_CU_EVENT_DEFAULT);
    CU(device, cuEventCreate, &timer->to, RD_CU_EVENT_DEFAULT);
}

void gpu_timer_close(gpu_timer *timer)
{
    CU(timer->device, cuEventDestroy, timer->from);
    CU(timer->device, cuEventDestroy, timer->to);
}

void gpu_timer_start(gpu_timer *timer)
{
    CU(timer->device, cuEventRecord, timer->from, timer->stream);
}

double gpu_timer_stop(gpu_timer *timer)
{
    float ms;
    CU(timer->device, cuEventRecord, timer->to, timer->stream);
    CU(timer->device, cuEventSynchronize, timer->to);
    CU(timer->device, cuEventElapsedTime, &ms, timer->from, timer->to);
    return (double)ms * 1e3;
}

double gpu_time(gpu_timer *timer, const gpu_effort *effort, int calls, void (*give)(void *argument), void *argument)
{
    double times[effort->runs];
    for (int run = -1; run < effort->runs; run++) {
        gpu_timer_start(timer);
        for (int i = 0; i < calls; i++) give(argument);
        double time = gpu_timer_stop(timer) / calls;
        if (run >= 0) times[run] = time;
    }
    return gpu_median(times, effort->runs);
}

/* ---- All-reduces ---- */

int gpu_sizes(const gpu_effort *effort, size_t sizes[GPU_SIZES])
{
    static const size_t usual[GPU_SIZES - 1] = {8, 1 << 10, 16 << 10, 128 << 10, 1 << 20, 8 << 20};
    int count = 0;
    for (int i = 0; i < GPU_SIZES - 1; i++)
        if (usual[i] < effort->bytes / 4) sizes[count++] = usual[i];
    sizes[count++] = effort->bytes / 4;
    return count;
}

int gpu_calls(const gpu_effort *effort, size_t bytes)
{
    return bytes <= 1 << 20 ? effort->calls : 1;
}

/* ---- What it is told ---- */

static long number(const char *text, long least, long most)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end || value < least || value > most)
        gpu_fail("gpu: \"%s\" is no number from %ld to %ld", text, least, most);
    return value;
}

int main(int argc, char **argv)
{
    gpu_effort effort = {.bytes = (size_t)256 << 20, .runs = 21, .calls = 100};
    for (int o; (o = getopt(argc, argv, "+b:r:c:")) != -1;) {
        if (o == 'b')
            effort.bytes = (size_t)number(optarg, 1 << 16, 1L << 36) & ~(size_t)0xffff;
        else if (o == 'r')
            effort.runs = (int)number(optarg, 1, 1000);
        else if (o == 'c')
            effort.calls = (int)number(optarg, 1, 100000);
        else
            return usage();
    }
    for (int i = 0; i < PARTS && optind < argc; i++) {
        if (strcmp(argv[optind], parts[i].name) != 0) continue;
        MUST(rd_gpu_require());
        parts[i].run(&effort, argc - optind, argv + optind);
        return 0;
    }
    return usage();
}
