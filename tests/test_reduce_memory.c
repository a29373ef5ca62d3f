/* SPDX-License-Identifier: Apache-2.0
 *
 * Random passes of every type and operator at every level, bit for bit, in buffers of any alignment between pages that
 * no one may enter; and copies.
 */
#include "test_reduce.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_SOURCES 5
#define MOST_OUTPUTS 3
#define ROOM 65536 /* bytes of one buffer, between its fences */
#define UNTOUCHED 0xa5

struct fenced {
    unsigned char *start, *end;
};
static struct fenced sources[MOST_SOURCES], outputs[MOST_OUTPUTS];

static struct fenced fenced_new(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *all = mmap(NULL, ROOM + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(all, MAP_FAILED);
    assert_int_equal(mprotect(all, page, PROT_NONE), 0);
    assert_int_equal(mprotect(all + page + ROOM, page, PROT_NONE), 0);
    return (struct fenced){all + page, all + page + ROOM};
}
static int make_buffers(void **state)
{
    (void)state;
    for (int i = 0; i < MOST_SOURCES; i++) sources[i] = fenced_new();
    for (int i = 0; i < MOST_OUTPUTS; i++) outputs[i] = fenced_new();
    return 0;
}

/* `bytes` that begin `offset` after the fence in front, or end `offset` before the one behind. */
static unsigned char *place(struct fenced buffer, size_t bytes, bool at_end, size_t offset)
{
    return at_end ? buffer.end - bytes - offset : buffer.start + offset;
}
/* The bytes around, as far as anything could have been written by mistake. */
static void clear_around(struct fenced buffer, unsigned char *at, size_t bytes)
{
    unsigned char *from = at - buffer.start > 512 ? at - 512 : buffer.start;
    unsigned char *to = buffer.end - (at + bytes) > 512 ? at + bytes + 512 : buffer.end;
    memset(from, UNTOUCHED, (size_t)(to - from));
}
static void check_around(struct fenced buffer, unsigned char *at, size_t bytes)
{
    unsigned char *from = at - buffer.start > 512 ? at - 512 : buffer.start;
    unsigned char *to = buffer.end - (at + bytes) > 512 ? at + bytes + 512 : buffer.end;
    for (unsigned char *b = from; b < to; b++)
        if ((b < at || b >= at + bytes) && *b != UNTOUCHED) fail_msg("wrote at %td of %zu bytes", b - at, bytes);
}

/* ---- Passes --------------------------------------------------------------------------------------------------- */

struct situation {
    rondo_dtype type;
    rondo_op op;
    int ranks;
    size_t count;
    bool at_end;
    size_t source_offset, output_offset;
};

/* A partial sum such as an earlier pass leaves. */
static void fill_partial(unsigned char *to, const struct situation *s, bool wide)
{
    size_t bytes = rd_dtype_bytes(s->type), out_bytes = wide ? sizeof(float) : bytes;
    rd_pass earlier = {.sources = 2, .out_wide = wide};
    for (size_t i = 0; i < s->count; i++) {
        uint64_t term[2] = {random_element(s->type), random_element(s->type)};
        write_bits(to, i, out_bytes, expected(s->type, s->op, s->ranks, &earlier, term));
    }
}

static void fill_sources(const struct situation *s, rd_pass *pass, size_t first_bytes)
{
    size_t bytes = rd_dtype_bytes(s->type);
    for (int k = 0; k < pass->sources; k++) {
        size_t size = s->count * (k == 0 ? first_bytes : bytes);
        unsigned char *at = place(sources[k], size, s->at_end, s->source_offset + (size_t)k);
        pass->source[k] = at;
        if (k == 0 && pass->first_partial) fill_partial(at, s, pass->first_wide);
        else
            for (size_t i = 0; i < s->count; i++) write_bits(at, i, bytes, random_element(s->type));
    }
}

static void compare(const struct situation *s, const rd_pass *pass, int level, const unsigned char *wanted,
                    size_t out_bytes)
{
    for (int o = 0; o < pass->outputs; o++) {
        check_around(outputs[o], pass->output[o], s->count * out_bytes);
        for (size_t i = 0; i < s->count; i++)
            if (read_bits(pass->output[o], i, out_bytes) != read_bits(wanted, i, out_bytes))
                fail_msg(
                    "%s %s, %s: element %zu of %zu in output %d is %llx, not %llx (%d sources, %d outputs%s%s%s%s)",
                    rd_dtype_name(s->type), rd_op_name(s->op), rd_cpu_level_name(level), i, s->count, o,
                    (unsigned long long)read_bits(pass->output[o], i, out_bytes),
                    (unsigned long long)read_bits(wanted, i, out_bytes), pass->sources, pass->outputs,
                    pass->first_partial ? ", first partial" : "", pass->first_wide ? ", first wide" : "",
                    pass->out_wide ? ", out wide" : "", pass->finish ? ", finish" : "");
    }
}

/* Runs one pass at every level and compares each with what is expected. */
static void check_pass(const struct situation *s, rd_pass pass)
{
    static unsigned char wanted[ROOM], before[ROOM];
    size_t bytes = rd_dtype_bytes(s->type), wide = rd_dtype_narrow(s->type) ? sizeof(float) : bytes;
    size_t first_bytes = pass.first_wide ? wide : bytes, out_bytes = pass.out_wide ? wide : bytes;
    pass.count = s->count;
    fill_sources(s, &pass, first_bytes);
    for (size_t i = 0; i < s->count; i++) {
        uint64_t term[MOST_SOURCES];
        for (int k = 0; k < pass.sources; k++) term[k] = read_bits(pass.source[k], i, k == 0 ? first_bytes : bytes);
        write_bits(wanted, i, out_bytes, expected(s->type, s->op, s->ranks, &pass, term));
    }
    memcpy(before, pass.source[0], s->count * first_bytes);
    FOR_EACH_LEVEL(level) {
        rd_reduction reduction;
        must_init(&reduction, s->type, s->op, s->ranks, level);
        for (int o = 0; o < pass.outputs; o++) {
            pass.output[o] = place(outputs[o], s->count * out_bytes, s->at_end, s->output_offset + (size_t)o);
            clear_around(outputs[o], pass.output[o], s->count * out_bytes);
        }
        rd_reduce(&reduction, &pass);
        compare(s, &pass, level, wanted, out_bytes);
        assert_memory_equal(pass.source[0], before, s->count * first_bytes);
    }
}

static rd_pass random_pass(rondo_dtype type)
{
    rd_pass pass = {.sources = 1 + (int)random_below(MOST_SOURCES), .outputs = 1 + (int)random_below(MOST_OUTPUTS)};
    if (random_below(2)) pass.sources = 2;
    pass.finish = random_below(2);
    pass.first_partial = random_below(2);
    pass.touch = random_below(2);
    if (rd_dtype_narrow(type)) {
        pass.first_wide = pass.first_partial && random_below(2);
        pass.out_wide = !pass.finish && random_below(2);
    }
    return pass;
}

static void every_type_and_operator_in_random_passes(void **state)
{
    (void)state;
    static const int ranks[] = {1, 2, 3, 5, 7, 8, 100, 127, 128, 129, 255, 256, 257, 1000, 10000};
    FOR_EACH_TYPE(type)
        FOR_EACH_OP(op)
            for (size_t count = 0; count <= 260; count += 1 + random_below(3)) {
                struct situation s = {
                    type, op, ranks[random_below(sizeof ranks / sizeof *ranks)], count, random_below(2), 0, 0};
                if (random_below(2)) s.source_offset = random_below(64), s.output_offset = random_below(64);
                check_pass(&s, random_pass(type));
            }
}

static void larger_counts(void **state)
{
    (void)state;
    static const size_t counts[] = {1000, 1024, 4099};
    FOR_EACH_TYPE(type)
        FOR_EACH_OP(op)
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                for (int i = 0; i < 2; i++) {
                    struct situation s = {type, op, 3, counts[c], false, random_below(64), random_below(64)};
                    check_pass(&s, random_pass(type));
                }
}

static void every_misalignment(void **state)
{
    (void)state;
    static const rondo_dtype types[] = {RONDO_INT8, RONDO_FLOAT32, RONDO_FLOAT16, RONDO_FLOAT8E4M3, RONDO_FLOAT64};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t offset = 0; offset < 64; offset++) {
            struct situation s = {types[t], RONDO_SUM, 2, 1500 / rd_dtype_bytes(types[t]), false, offset, 63 - offset};
            check_pass(&s, (rd_pass){.sources = 2, .outputs = 2, .finish = true, .touch = true});
            s.output_offset = 0;
            check_pass(&s, (rd_pass){.sources = 2, .outputs = 1, .finish = true});
        }
}

/* ---- Touch ---------------------------------------------------------------------------------------------------- */

/* Whether the call ends well when its source cannot be written. */
static bool survives(void (*call)(void *read_only, bool touch), bool touch)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *memory = mmap(NULL, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr)) _exit(2); /* a sanitizer's report of what is expected here */
        signal(SIGSEGV, SIG_DFL);                         /* CMocka would go on with the next test */
        call(memory, touch);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    munmap(memory, page);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
static void reduce_read_only(void *source, bool touch)
{
    static float out[1000], other[1000];
    rd_reduction reduction;
    rd_pass pass = {.count = 1000,
                    .sources = 2,
                    .outputs = 1,
                    .finish = true,
                    .touch = touch,
                    .source = {source, other},
                    .output = {out}};
    must_init(&reduction, RONDO_FLOAT32, RONDO_SUM, 2, RD_CPU_AUTO);
    rd_reduce(&reduction, &pass);
}
static void copy_read_only(void *source, bool touch)
{
    static unsigned char to[4000];
    rd_copy(to, NULL, source, sizeof to, touch);
}
static void touch_stores_and_nothing_else_does(void **state)
{
    (void)state;
    assert_true(survives(reduce_read_only, false));
    assert_false(survives(reduce_read_only, true));
    assert_true(survives(copy_read_only, false));
    assert_false(survives(copy_read_only, true));
}

/* A byte stored back outside the source changes nothing that could be seen here; the address sanitizer sees it. */
static void touch_stays_inside(void **state)
{
    (void)state;
    static unsigned char to[1000];
    for (size_t bytes = 1; bytes < 600; bytes += 1 + random_below(20)) {
        rd_reduction reduction;
        unsigned char *source = malloc(bytes);
        rd_pass pass = {.count = bytes, .sources = 1, .outputs = 1, .touch = true, .source = {source}, .output = {to}};
        assert_non_null(source);
        memset(source, (int)bytes, bytes);
        must_init(&reduction, RONDO_UINT8, RONDO_SUM, 2, RD_CPU_AUTO);
        rd_reduce(&reduction, &pass);
        assert_memory_equal(source, to, bytes);
        rd_copy(to + 200, NULL, source, bytes, true);
        assert_memory_equal(source, to + 200, bytes);
        free(source);
    }
}

/* ---- Copies --------------------------------------------------------------------------------------------------- */

static void check_copy(size_t bytes, bool at_end, bool two, bool touch)
{
    static unsigned char before[ROOM];
    unsigned char *from = place(sources[0], bytes, at_end, random_below(2) * random_below(64));
    unsigned char *to = place(outputs[0], bytes, at_end, random_below(2) * random_below(64));
    unsigned char *also = place(outputs[1], bytes, at_end, random_below(2) * random_below(64));
    clear_around(outputs[0], to, bytes), clear_around(outputs[1], also, bytes);
    for (size_t b = 0; b < bytes; b++) before[b] = from[b] = (unsigned char)random_bits();
    rd_copy(to, two ? also : NULL, from, bytes, touch);
    assert_memory_equal(from, before, bytes);
    assert_memory_equal(to, before, bytes);
    check_around(outputs[0], to, bytes);
    if (two) assert_memory_equal(also, before, bytes);
    check_around(outputs[1], also, two ? bytes : 0);
}
static void copies(void **state)
{
    (void)state;
    for (size_t bytes = 0; bytes < 3000; bytes += 1 + random_below(bytes < 300 ? 3 : 200))
        for (int i = 0; i < 8; i++) check_copy(bytes, i & 1, i & 2, i & 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_and_operator_in_random_passes),
        cmocka_unit_test(larger_counts),
        cmocka_unit_test(every_misalignment),
        cmocka_unit_test(touch_stores_and_nothing_else_does),
        cmocka_unit_test(touch_stays_inside),
        cmocka_unit_test(copies),
    };
    return cmocka_run_group_tests(tests, make_buffers, NULL);
}
