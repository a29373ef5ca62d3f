/* SPDX-License-Identifier: Apache-2.0
 *
 * The GPU's reductions beside the CPU's, bit for bit: every type and operator, every form of a pass, any alignment.
 */
#include "test_reduce.h"

#include "kernels/reduce.h"

#include <dlfcn.h>

enum { MOST = 3000, ROOM = MOST * 8 + 64, GUARD = 0xa5 };

/* Where a kernel is, as kernels_cpu.h declares it. */
typedef struct place {
    unsigned x, y, z;
} place;
__attribute__((visibility("default"))) _Thread_local place threadIdx, blockIdx, blockDim, gridDim;

static void *library;

static int load(void **state)
{
    (void)state;
    char path[4096];
    snprintf(path, sizeof path, "%s/kernels_cpu.so", getenv("RONDO_BUILD") ? getenv("RONDO_BUILD") : "build");
    library = dlopen(path, RTLD_NOW);
    if (!library) fprintf(stderr, "%s\n", dlerror());
    return library ? 0 : -1;
}

/* One thread after the other. */
static void run_pass(const rd_reduction *reduction, const rd_pass *pass, unsigned blocks, unsigned threads)
{
    char name[64];
    void (*kernel)(rd_reduce_args);
    snprintf(name, sizeof name, "rd_reduce_%s", rd_dtype_name(reduction->type));
    *(void **)&kernel = dlsym(library, name);
    if (!kernel) fail_msg("%s", dlerror());
    rd_reduce_args args = {
        .count = pass->count, .scale = reduction->scale, .divisor = reduction->divisor, .op = reduction->op,
        .ranks = reduction->ranks, .sources = pass->sources, .outputs = pass->outputs,
        .first_partial = pass->first_partial, .first_wide = pass->first_wide, .out_wide = pass->out_wide,
        .finish = pass->finish,
    };
    memcpy(args.source, pass->source, (size_t)pass->sources * sizeof *args.source);
    memcpy(args.output, pass->output, (size_t)pass->outputs * sizeof *args.output);
    blockDim.x = threads, gridDim.x = blocks;
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++) kernel(args);
}

static void fill(void *to, rondo_dtype type, size_t count)
{
    for (size_t i = 0; i < count; i++) write_bits(to, i, rd_dtype_bytes(type), random_element(type));
}

/* What an earlier pass leaves: in the wide type, or rounded. */
static void fill_partial(void *to, const rd_reduction *reduction, bool wide, size_t count)
{
    static unsigned char terms[2][ROOM];
    rd_pass pass = {.count = count, .sources = 2, .outputs = 1, .out_wide = wide, .output = {to}};
    for (int k = 0; k < 2; k++) fill(terms[k], reduction->type, count), pass.source[k] = terms[k];
    rd_reduce(reduction, &pass);
}

static void compare(rondo_dtype type, rondo_op op, const rd_pass *form, int ranks, size_t at[4], bool in_place)
{
    static unsigned char source[RD_MAX_SOURCES][ROOM], kept[ROOM], host[2][ROOM], device[2][ROOM];
    rd_reduction reduction;
    rd_pass pass = *form;
    must_init(&reduction, type, op, ranks, 0);
    for (int k = 0; k < pass.sources; k++) {
        if (k == 0 && pass.first_partial) fill_partial(source[k] + at[0], &reduction, pass.first_wide, pass.count);
        else fill(source[k] + at[k % 2], type, pass.count);
        pass.source[k] = source[k] + at[k == 0 ? 0 : k % 2];
    }
    size_t bytes = pass.out_wide ? reduction.wide_bytes : reduction.bytes;
    memset(host, GUARD, sizeof host), memset(device, GUARD, sizeof device);
    for (int o = 0; o < pass.outputs; o++) pass.output[o] = host[o] + 16 + at[2 + o];
    rd_reduce(&reduction, &pass);
    for (int o = 0; o < pass.outputs; o++) pass.output[o] = device[o] + 16 + at[2 + o];
    memcpy(kept, source[1], sizeof kept);
    if (in_place) pass.output[0] = source[1] + at[1];
    run_pass(&reduction, &pass, 3, 64);
    if (in_place) {
        memcpy(device[0] + 16 + at[2], source[1] + at[1], pass.count * bytes);
        memcpy(source[1] + at[1], kept + at[1], pass.count * bytes);
        assert_memory_equal(source[1], kept, sizeof kept);
    }
    for (int o = 0; o < pass.outputs; o++)
        if (memcmp(device[o], host[o], ROOM)) {
            size_t i = 0;
            while (device[o][i] == host[o][i]) i++;
            fail_msg("%s %s, %zu elements, sources %d%s%s%s%s at %zu %zu, output %d at %zu: byte %zu is %02x, not %02x",
                     rd_dtype_name(type), rd_op_name(op), pass.count, pass.sources, pass.first_partial ? ", partial" : "",
                     pass.first_wide ? ", wide" : "", pass.out_wide ? ", to wide" : "", pass.finish ? ", finish" : "",
                     at[0], at[1], o, at[2 + o], i, device[o][i], host[o][i]);
        }
}

/* The forms that the executors use. */
static void every_form_has_the_bits_of_the_host(void **state)
{
    (void)state;
    static const rd_pass forms[] = {
        {.sources = 2, .outputs = 1},
        {.sources = 2, .outputs = 1, .out_wide = true},
        {.sources = 2, .outputs = 2, .first_partial = true},
        {.sources = 2, .outputs = 1, .first_partial = true, .first_wide = true, .out_wide = true},
        {.sources = 2, .outputs = 2, .first_partial = true, .first_wide = true, .finish = true},
        {.sources = 2, .outputs = 2, .finish = true},
        {.sources = 1, .outputs = 1, .finish = true},
        {.sources = 5, .outputs = 2, .finish = true},
    };
    static const size_t counts[] = {0, 1, 2, 15, 16, 17, 100, 777, MOST};
    FOR_EACH_TYPE(type)
        FOR_EACH_OP(op)
            for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
                for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                    rd_pass form = forms[f];
                    form.count = counts[c];
                    size_t at[4];
                    for (int i = 0; i < 4; i++) at[i] = random_below(3) ? random_below(48) : 0;
                    compare(type, op, &form, 1 + (int)random_below(9), at, f != 1 && random_below(4) == 0 && form.sources == 2 && !form.out_wide);
                }
}

static void any_alignment(void **state)
{
    (void)state;
    FOR_EACH_TYPE(type)
        for (size_t a = 0; a < 17; a++)
            for (size_t b = 0; b < 17; b++) {
                rd_pass form = {.count = 70 + a + b, .sources = 2, .outputs = 2, .finish = true};
                compare(type, RONDO_AVG, &form, 3, (size_t[]){a, b, (a + b) % 16, b}, false);
            }
}

/* Both operands of every kind there is. */
static void every_pair_of_float8(void **state)
{
    (void)state;
    static unsigned char a[65536], b[65536], host[65536], device[65536];
    for (int i = 0; i < 65536; i++) a[i] = (unsigned char)i, b[i] = (unsigned char)(i >> 8);
    for (rondo_dtype type = RONDO_FLOAT8E4M3; type <= RONDO_FLOAT8E5M2; type++)
        FOR_EACH_OP(op) {
            rd_reduction reduction;
            must_init(&reduction, type, op, 2, 0);
            rd_pass pass = {.count = 65536, .sources = 2, .outputs = 1, .finish = true, .source = {a, b}, .output = {host}};
            rd_reduce(&reduction, &pass);
            pass.output[0] = device;
            run_pass(&reduction, &pass, 8, 256);
            assert_memory_equal(host, device, sizeof host);
        }
}

static void every_float16_and_bfloat16(void **state)
{
    (void)state;
    static uint16_t a[65536], b[65536], host[65536], device[65536];
    static const rondo_dtype types[] = {RONDO_FLOAT16, RONDO_BFLOAT16};
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 65536; i++) a[i] = (uint16_t)i, b[i] = (uint16_t)random_element(types[round % 2]);
        FOR_EACH_OP(op) {
            rd_reduction reduction;
            must_init(&reduction, types[round % 2], op, 3, 0);
            rd_pass pass = {.count = 65536, .sources = 2, .outputs = 1, .finish = true, .source = {a, b}, .output = {host}};
            rd_reduce(&reduction, &pass);
            pass.output[0] = device;
            run_pass(&reduction, &pass, 8, 256);
            assert_memory_equal(host, device, sizeof host);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_has_the_bits_of_the_host),
        cmocka_unit_test(any_alignment),
        cmocka_unit_test(every_pair_of_float8),
        cmocka_unit_test(every_float16_and_bfloat16),
    };
    return cmocka_run_group_tests(tests, load, NULL);
}
