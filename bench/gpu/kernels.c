/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels.c - the reduction kernels beside the driver's copies, and what launching them costs. They are given work as
 * the library gives it, by its engine. Bandwidth is bytes read and bytes written.
 */
#include "base/dtype.h"
#include "bench/one.h"
#include "gpu.h"
#include "kernels/reduce.h"
#include "reduce/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SOURCES = 8, MOST_OUTPUTS = 2, PIECE = 1 << 20, PERIOD = 997 };

/* ---- Copies ---- */

typedef struct copying {
    const gpu_timer *timer;
    rd_cu_address to, from;
    size_t bytes;
} copying;

static void give_copy(void *argument)
{
    const copying *c = argument;
    CU(c->timer->device, cuMemcpyAsync, c->to, c->from, c->bytes, c->timer->stream);
}

double gpu_copy_time(gpu_timer *timer, const gpu_effort *effort, size_t bytes)
{
    copying c = {.timer = timer, .bytes = bytes};
    CU(timer->device, cuMemAlloc, &c.to, bytes);
    CU(timer->device, cuMemAlloc, &c.from, bytes);
    double time = gpu_time(timer, effort, bytes < PIECE ? effort->calls : 1, give_copy, &c);
    CU(timer->device, cuMemFree, c.to);
    CU(timer->device, cuMemFree, c.from);
    return time;
}

/* Both words from the driver: two transfers a clock. */
static double peak(int device)
{
    int khz = 0, bits = 0;
    const struct rd_gpu_driver *driver = rd_gpu_driver();
    if (driver->cuDeviceGetAttribute(&khz, RD_CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, device) != RD_CU_SUCCESS ||
        driver->cuDeviceGetAttribute(&bits, RD_CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, device) != RD_CU_SUCCESS)
        return 0;
    return 2.0 * khz * 1e3 * bits / 8 * 1e-9;
}

static rd_device *open_device(gpu_timer *timer)
{
    rd_device *device;
    MUST(rd_device_open(&device, 0));
    MUST(rd_gpu_push(device->gpu));
    gpu_timer_open(timer, 0, device->stream);
    return device;
}

static void close_device(rd_device *device, gpu_timer *timer)
{
    gpu_timer_close(timer);
    rd_gpu_pop();
    rd_device_close(device);
}

void gpu_copies(const gpu_effort *effort, int argc, char **argv)
{
    gpu_timer timer;
    char what[96], size[24], of[64];
    (void)argc, (void)argv;
    rd_device *device = open_device(&timer);
    double time = gpu_copy_time(&timer, effort, effort->bytes), most = peak(0),
           gbs = 2e-3 * (double)effort->bytes / time;
    snprintf(what, sizeof what, "the driver's copy of %s, device to device", gpu_size(size, effort->bytes));
    snprintf(of, sizeof of, "%d GB/s by the memory's clock", (int)most);
    gpu_row(what, gbs, "GB/s", most > 0 ? 100 * gbs / most : -1, of);
    close_device(device, &timer);
}

/* ---- Passes ---- */

typedef struct form {
    rondo_dtype type;
    rondo_op op;
    int sources, outputs;
    const char *what; /* NULL: "TYPE OP" */
} form;

typedef struct passing {
    rd_device *device;
    rd_reduction reduction;
    rd_pass pass;
    size_t bytes;
} passing;

/* Memory of the GPU for the widest pass, and of the host for a piece of it. */
typedef struct room {
    rd_cu_address source[MOST_SOURCES], output[MOST_OUTPUTS];
    size_t bytes;
    unsigned char *values[MOST_SOURCES]; /* a piece and a period: of all elements, at some place in it */
    unsigned char *want, *got;
} gpu_room;

static void room_open(gpu_room *room, size_t bytes)
{
    room->bytes = bytes;
    for (int i = 0; i < MOST_SOURCES + MOST_OUTPUTS; i++)
        CU(0, cuMemAlloc, i < MOST_SOURCES ? &room->source[i] : &room->output[i - MOST_SOURCES], bytes);
    bool all = (room->want = malloc(PIECE)) && (room->got = malloc(PIECE));
    for (int i = 0; i < MOST_SOURCES; i++) all = all && (room->values[i] = malloc(PIECE + PERIOD * 8));
    if (!all) gpu_fail("no memory for what results must be");
}

static void room_close(gpu_room *room)
{
    for (int i = 0; i < MOST_SOURCES + MOST_OUTPUTS; i++)
        CU(0, cuMemFree, i < MOST_SOURCES ? room->source[i] : room->output[i - MOST_SOURCES]);
    for (int i = 0; i < MOST_SOURCES; i++) free(room->values[i]);
    free(room->want), free(room->got);
}

/* Element i of source s is 1 or one of the six numbers after it, by i mod PERIOD and s. */
static void make_values(gpu_room *room, const rd_reduction *reduction, int sources)
{
    size_t each = reduction->bytes;
    for (int s = 0; s < sources; s++)
        for (size_t i = 0; i < PIECE / each + PERIOD; i++) {
            uint64_t value = bits_of_one(reduction->type) + ((i % PERIOD + (size_t)s * 13) * 2654435761u >> 7) % 7;
            memcpy(room->values[s] + i * each, &value, each);
        }
}

/* What source s has from byte `at` on. */
static const unsigned char *values_at(const gpu_room *room, const rd_reduction *reduction, int s, size_t at)
{
    return room->values[s] + at / reduction->bytes % PERIOD * reduction->bytes;
}

static void copy_now(rd_cu_address to, rd_cu_address from, size_t bytes)
{
    CU(0, cuMemcpyAsync, to, from, bytes, NULL);
    CU(0, cuStreamSynchronize, NULL);
}

static size_t piece(size_t bytes, size_t at)
{
    return bytes - at < PIECE ? bytes - at : PIECE;
}

static void put_sources(gpu_room *room, const passing *p)
{
    make_values(room, &p->reduction, p->pass.sources);
    for (int s = 0; s < p->pass.sources; s++)
        for (size_t at = 0; at < p->bytes; at += PIECE)
            copy_now(room->source[s] + at, (rd_cu_address)(uintptr_t)values_at(room, &p->reduction, s, at),
                     piece(p->bytes, at));
    for (int o = 0; o < p->pass.outputs; o++) {
        CU(0, cuMemsetD8Async, room->output[o], 0xa5, p->bytes, NULL);
        CU(0, cuStreamSynchronize, NULL);
    }
}

/* Every output beside the host's own pass over the same sources, bit for bit. */
static void check_outputs(gpu_room *room, const passing *p, const char *what)
{
    rd_pass host = p->pass;
    for (size_t at = 0; at < p->bytes; at += PIECE) {
        for (int s = 0; s < host.sources; s++) host.source[s] = values_at(room, &p->reduction, s, at);
        host.outputs = 1;
        host.output[0] = room->want;
        host.count = piece(p->bytes, at) / p->reduction.bytes;
        rd_reduce(&p->reduction, &host);
        for (int o = 0; o < p->pass.outputs; o++) {
            copy_now((rd_cu_address)(uintptr_t)room->got, room->output[o] + at, piece(p->bytes, at));
            if (memcmp(room->want, room->got, piece(p->bytes, at)) != 0)
                gpu_fail("%s: the GPU's result differs from the host's within %d bytes from byte %zu of output %d on",
                         what, PIECE, at, o);
        }
    }
}

static void give_pass(void *argument)
{
    passing *p = argument;
    MUST(rd_engine_reduce(rd_device_engine(p->device), &p->reduction, &p->pass));
}

/* The sources are the form's, the bytes those of one buffer. */
static passing pass_of(rd_device *device, const gpu_room *room, form f, size_t bytes)
{
    passing p = {.device = device, .bytes = bytes};
    MUST(rd_reduction_init(&p.reduction, f.type, f.op, f.op == RONDO_AVG ? 3 : 2, 0));
    p.pass = (rd_pass){.count = bytes / p.reduction.bytes, .sources = f.sources, .outputs = f.outputs, .finish = true};
    for (int s = 0; s < f.sources; s++) p.pass.source[s] = (void *)(uintptr_t)room->source[s];
    for (int o = 0; o < f.outputs; o++) p.pass.output[o] = (void *)(uintptr_t)room->output[o];
    return p;
}

static void measure(rd_device *device, gpu_room *room, gpu_timer *timer, const gpu_effort *effort, form f,
                    double copy_gbs)
{
    char what[96];
    passing p = pass_of(device, room, f, room->bytes);
    snprintf(what, sizeof what, "%s %s, %d to %d%s%s", rd_dtype_name(f.type), rd_op_name(f.op), f.sources, f.outputs,
             f.what ? ": " : "", f.what ? f.what : "");
    put_sources(room, &p);
    double time = gpu_time(timer, effort, 1, give_pass, &p);
    check_outputs(room, &p, what);
    double gbs = (f.sources + f.outputs) * 1e-3 * (double)p.bytes / time;
    gpu_row(what, gbs, "GB/s", 100 * gbs / copy_gbs, "the driver's copy");
}

/* Slices follow one another as in a ring that goes slice by slice; they are in the cache. */
static void measure_slices(rd_device *device, gpu_room *room, gpu_timer *timer, const gpu_effort *effort, size_t bytes)
{
    char what[96], size[24];
    passing p = pass_of(device, room, (form){RONDO_FLOAT32, RONDO_SUM, 2, 1, NULL}, bytes);
    snprintf(what, sizeof what, "float32 sum, 2 to 1, slices of %s one after the other", gpu_size(size, bytes));
    put_sources(room, &p);
    double time = gpu_time(timer, effort, effort->calls, give_pass, &p);
    check_outputs(room, &p, what);
    gpu_row(what, time, "us each", -1, NULL);
}

/* More than the runs need: ten buffers must fit. */
static size_t fitting(size_t bytes)
{
    size_t free_bytes, total;
    CU(0, cuMemGetInfo, &free_bytes, &total);
    while (bytes * (MOST_SOURCES + MOST_OUTPUTS + 1) > free_bytes && bytes > PIECE) bytes /= 2;
    return bytes;
}

void gpu_kernels(const gpu_effort *effort, int argc, char **argv)
{
    static const form others[] = {
        {RONDO_UINT8, RONDO_SUM, 1, 1, "the library's copy"},
        {RONDO_UINT8, RONDO_SUM, 1, 2, "a copy to two places"},
        {RONDO_FLOAT32, RONDO_SUM, 2, 2, "the last addition of a ring"},
        {RONDO_FLOAT32, RONDO_AVG, 2, 1, NULL},
        {RONDO_FLOAT32, RONDO_SUM, MOST_SOURCES, 1, NULL},
    };
    gpu_timer timer;
    gpu_room room;
    (void)argc, (void)argv;
    rd_device *device = open_device(&timer);
    room_open(&room, fitting(effort->bytes));
    double copy = 2e-3 * (double)room.bytes / gpu_copy_time(&timer, effort, room.bytes);
    for (rondo_dtype type = 0; type < RONDO_DTYPES; type++)
        measure(device, &room, &timer, effort, (form){type, RONDO_SUM, 2, 1, NULL}, copy);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) measure(device, &room, &timer, effort, others[i], copy);
    measure_slices(device, &room, &timer, effort, 64 << 10);
    room_close(&room);
    close_device(device, &timer);
}

/* ---- Launches ---- */

typedef struct launching {
    rd_device *device;
    rd_reduce_args args;
    rd_reduction reduction;
    rd_pass pass;
} launching;

static void give_kernel(void *argument)
{
    launching *l = argument;
    void *parameters[] = {&l->args};
    CU(0, cuLaunchKernel, l->device->gpu->reduce[RONDO_FLOAT32], 1, 1, 1, 32, 1, 1, 0, l->device->stream, parameters,
       NULL);
}

static void give_ticket(void *argument)
{
    launching *l = argument;
    MUST(rd_engine_reduce(rd_device_engine(l->device), &l->reduction, &l->pass));
}

static void wait_for_all(launching *l)
{
    CU(0, cuStreamSynchronize, l->device->stream);
}

/* How long the caller is busy with one, when the stream has nothing else to do. */
static double call_time(launching *l, const gpu_effort *effort, void (*give)(void *))
{
    double times[effort->calls];
    for (int i = 0; i < effort->calls; i++) {
        double start = gpu_now();
        give(l);
        times[i] = gpu_now() - start;
        wait_for_all(l);
    }
    return gpu_median(times, effort->calls);
}

/* From the call until the CPU sees its ticket. */
static double ticket_time(launching *l, const gpu_effort *effort)
{
    rd_engine *engine = rd_device_engine(l->device);
    double times[effort->calls];
    for (int i = 0; i < effort->calls; i++) {
        double start = gpu_now();
        give_ticket(l);
        while (!rd_engine_done(engine, engine->given))
            if (gpu_now() - start > 10e6) gpu_fail("a ticket has not come within 10 s");
        times[i] = gpu_now() - start;
    }
    return gpu_median(times, effort->calls);
}

void gpu_launches(const gpu_effort *effort, int argc, char **argv)
{
    gpu_timer timer;
    rd_cu_address memory;
    float sum, terms[2] = {1.5f, 2.25f};
    (void)argc, (void)argv;
    launching l = {.device = open_device(&timer)};
    CU(0, cuMemAlloc, &memory, 3 * sizeof sum);
    copy_now(memory, (rd_cu_address)(uintptr_t)terms, sizeof terms);
    MUST(rd_reduction_init(&l.reduction, RONDO_FLOAT32, RONDO_SUM, 2, 0));
    l.pass = (rd_pass){.count = 1, .sources = 2, .outputs = 1, .finish = true};
    l.args = (rd_reduce_args){
        .count = 1, .scale = 1, .divisor = 1, .op = RONDO_SUM, .ranks = 2, .sources = 2, .outputs = 1, .finish = 1};
    for (int s = 0; s < 2; s++)
        l.args.source[s] = l.pass.source[s] = (void *)(uintptr_t)(memory + (unsigned)s * sizeof sum);
    l.args.output[0] = l.pass.output[0] = (void *)(uintptr_t)(memory + 2 * sizeof sum);
    gpu_row("a kernel's launch: the call, by the host's clock", call_time(&l, effort, give_kernel), "us", -1, NULL);
    gpu_row("kernels one after the other", gpu_time(&timer, effort, effort->calls, give_kernel, &l), "us each", -1,
            NULL);
    gpu_row("a kernel and its ticket: the call, by the host's clock", call_time(&l, effort, give_ticket), "us", -1,
            NULL);
    gpu_row("kernels with tickets one after the other", gpu_time(&timer, effort, effort->calls, give_ticket, &l),
            "us each", -1, NULL);
    gpu_row("from the call until the CPU sees the ticket", ticket_time(&l, effort), "us", -1, NULL);
    copy_now((rd_cu_address)(uintptr_t)&sum, memory + 2 * sizeof sum, sizeof sum);
    if (sum != terms[0] + terms[1])
        gpu_fail("launches: the sum is %g, not %g", (double)sum, (double)(terms[0] + terms[1]));
    CU(0, cuMemFree, memory);
    close_device(l.device, &timer);
}
