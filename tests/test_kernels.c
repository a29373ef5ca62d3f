/* SPDX-License-Identifier: Apache-2.0
 *
 * The GPU's reductions beside the CPU's, bit for bit: every type and operator, every form of a pass, any alignment.
 */
#include "test_reduce.h"

#include "on_cudasim.h"
#include "reduce/device.h"

enum { MOST = 3000, ROOM = MOST * 8 + 64, PAIRS = 65536, GUARD = 0xa5 };

static rd_device *device;

/* Memory that both sides reach. */
static struct arena {
    unsigned char source[5][ROOM], gpu[2][ROOM];
    uint16_t a[PAIRS], b[PAIRS], sum[PAIRS];
} * arena;

static int open_device(void **state)
{
    (void)state;
    void *memory;
    if (rd_device_open(&device, 0) != RONDO_SUCCESS ||
        rd_device_alloc_host(device, sizeof *arena, &memory) != RONDO_SUCCESS) {
        fprintf(stderr, "%s\n", rd_last_error());
        return -1;
    }
    arena = memory;
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    if (device) rd_device_free_host(device, arena);
    rd_device_close(device);
    return 0;
}

static void run_pass(const rd_reduction *reduction, const rd_pass *pass)
{
    rd_engine *engine = rd_device_engine(device);
    if (rd_engine_reduce(engine, reduction, pass) != RONDO_SUCCESS) fail_msg("%s", rd_last_error());
    while (!rd_engine_done(engine, engine->given))
        if (engine->ops->check(engine) != RONDO_SUCCESS) fail_msg("%s", rd_last_error());
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
    static unsigned char kept[ROOM], host[2][ROOM];
    unsigned char(*source)[ROOM] = arena->source, (*gpu)[ROOM] = arena->gpu;
    rd_reduction reduction;
    rd_pass pass = *form;
    must_init(&reduction, type, op, ranks, 0);
    for (int k = 0; k < pass.sources; k++) {
        if (k == 0 && pass.first_partial) fill_partial(source[k] + at[0], &reduction, pass.first_wide, pass.count);
        else fill(source[k] + at[k % 2], type, pass.count);
        pass.source[k] = source[k] + at[k == 0 ? 0 : k % 2];
    }
    size_t bytes = pass.out_wide ? reduction.wide_bytes : reduction.bytes;
    memset(host, GUARD, sizeof host), memset(gpu, GUARD, sizeof arena->gpu);
    for (int o = 0; o < pass.outputs; o++) pass.output[o] = host[o] + 16 + at[2 + o];
    rd_reduce(&reduction, &pass);
    for (int o = 0; o < pass.outputs; o++) pass.output[o] = gpu[o] + 16 + at[2 + o];
    memcpy(kept, source[1], sizeof kept);
    if (in_place) pass.output[0] = source[1] + at[1];
    run_pass(&reduction, &pass);
    if (in_place) {
        memcpy(gpu[0] + 16 + at[2], source[1] + at[1], pass.count * bytes);
        memcpy(source[1] + at[1], kept + at[1], pass.count * bytes);
        assert_memory_equal(source[1], kept, sizeof kept);
    }
    for (int o = 0; o < pass.outputs; o++)
        if (memcmp(gpu[o], host[o], ROOM)) {
            size_t i = 0;
            while (gpu[o][i] == host[o][i]) i++;
            fail_msg("%s %s, %zu elements, sources %d%s%s%s%s at %zu %zu, output %d at %zu: byte %zu is %02x, not %02x",
                     rd_dtype_name(type), rd_op_name(op), pass.count, pass.sources,
                     pass.first_partial ? ", partial" : "", pass.first_wide ? ", wide" : "",
                     pass.out_wide ? ", to wide" : "", pass.finish ? ", finish" : "", at[0], at[1], o, at[2 + o], i,
                     gpu[o][i], host[o][i]);
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
    static unsigned char host[PAIRS];
    unsigned char *a = (unsigned char *)arena->a, *b = (unsigned char *)arena->b, *gpu = (unsigned char *)arena->sum;
    for (int i = 0; i < PAIRS; i++) a[i] = (unsigned char)i, b[i] = (unsigned char)(i >> 8);
    for (rondo_dtype type = RONDO_FLOAT8E4M3; type <= RONDO_FLOAT8E5M2; type++)
        FOR_EACH_OP(op) {
            rd_reduction reduction;
            must_init(&reduction, type, op, 2, 0);
            rd_pass pass = {
                .count = PAIRS, .sources = 2, .outputs = 1, .finish = true, .source = {a, b}, .output = {host}};
            rd_reduce(&reduction, &pass);
            pass.output[0] = gpu;
            run_pass(&reduction, &pass);
            assert_memory_equal(host, gpu, sizeof host);
        }
}

static void every_float16_and_bfloat16(void **state)
{
    (void)state;
    static uint16_t host[PAIRS];
    uint16_t *a = arena->a, *b = arena->b, *gpu = arena->sum;
    static const rondo_dtype types[] = {RONDO_FLOAT16, RONDO_BFLOAT16};
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < PAIRS; i++) a[i] = (uint16_t)i, b[i] = (uint16_t)random_element(types[round % 2]);
        FOR_EACH_OP(op) {
            rd_reduction reduction;
            must_init(&reduction, types[round % 2], op, 3, 0);
            rd_pass pass = {
                .count = PAIRS, .sources = 2, .outputs = 1, .finish = true, .source = {a, b}, .output = {host}};
            rd_reduce(&reduction, &pass);
            pass.output[0] = gpu;
            run_pass(&reduction, &pass);
            assert_memory_equal(host, gpu, sizeof host);
        }
    }
}

/* Fewer threads than pieces, and addresses and sizes of all kinds. */
static void copies(void **state)
{
    (void)state;
    rd_engine *engine = rd_device_engine(device);
    unsigned char *from = (unsigned char *)arena->a, *to = (unsigned char *)arena->b,
                  *also = (unsigned char *)arena->sum;
    for (int round = 0; round < 40; round++) {
        size_t bytes = random_below(round < 30 ? 100 : 120000), at[3];
        for (int i = 0; i < 3; i++) at[i] = 16 + random_below(17);
        for (int i = 0; i < 2 * PAIRS; i++) from[i] = (unsigned char)random_bits();
        memset(to, GUARD, 2 * PAIRS), memset(also, GUARD, 2 * PAIRS);
        rondo_result result = rd_engine_copy(engine, to + at[1], round % 2 ? also + at[2] : NULL, from + at[0], bytes);
        assert_int_equal(result, RONDO_SUCCESS);
        while (!rd_engine_done(engine, engine->given)) continue;
        for (int both = 0; both < 1 + round % 2; both++) {
            const unsigned char *got = both ? also : to, *payload = got + at[1 + both];
            assert_memory_equal(payload, from + at[0], bytes);
            for (size_t i = 0; i < 2 * PAIRS; i++)
                if (got + i < payload || got + i >= payload + bytes) assert_int_equal(got[i], GUARD);
        }
    }
}

int main(int argc, char **argv)
{
    (void)argc;
    on_cudasim(argv, "devices=1");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_has_the_bits_of_the_host),
        cmocka_unit_test(any_alignment),
        cmocka_unit_test(every_pair_of_float8),
        cmocka_unit_test(every_float16_and_bfloat16),
        cmocka_unit_test(copies),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
