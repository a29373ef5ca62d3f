/* SPDX-License-Identifier: Apache-2.0 */
#include "base/dtype.h"
#include "cli/bench.h"

#include <stdio.h>
#include <string.h>

void rd_bench_print_head(const rd_bench *b, const char *cpus)
{
    const rd_bench_options *o = b->options;
    char machine[512], pages[96];
    bool barrier = o->collective == RD_BENCH_BARRIER;
    rd_bench_machine(machine, sizeof machine);
    rd_bench_pages(pages, sizeof pages);
    printf("# %s, %d rank%s, %s", rd_bench_names[o->collective], b->size, b->size == 1 ? "" : "s", b->transport);
    if (!barrier)
        printf(", %s, %s%s", o->out_of_place ? "out of place" : "in place",
               o->cuda        ? "GPU memory"
               : o->shareable ? "rondo_mem_alloc memory"
                              : "private memory, ",
               o->shareable || o->cuda ? "" : pages);
    if (o->misalign) printf(", %zu elements off its alignment", o->misalign);
    printf("\n# %s\n# %s\n", machine, cpus);
    if (o->reuse && !barrier)
        printf("# --reuse: buffers are not rewritten between calls, so this measures the private caches\n");
    printf(
        "# time: of the slowest rank; limit: what this machine allows, measured in the same row (rondo bench --help)\n"
        "#\n"
        "# %9s %10s %10s %4s %8s %8s %8s %7s %7s %6s %8s %9s %8s  %-7s %s\n"
        "# %9s %10s %10s %4s %8s %8s %8s %7s %7s %6s %8s %9s %8s\n",
        "size", "count", "type", "op", "min", "median", "max", "algbw", "busbw", "wrong", "limit", "reached", "copy",
        "place", "algorithm", "(B)", "(elements)", "", "", "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "",
        "(us)");
    fflush(stdout);
}

/* Where a place was measured that the system does not tell of; each once. */
static void print_places(const rd_bench *b, const rd_row *rows, int count)
{
    static const char *const places[] = {"core", "L3", "host"};
    for (size_t p = 0; b->topo_place && p < sizeof places / sizeof *places; p++) {
        int here = 0;
        for (int i = 0; i < count; i++) here += strcmp(rows[i].placement, places[p]) == 0;
        if (here && strcmp(b->topo_place, places[p]) != 0)
            printf("# place %s: measured; topo says %s: a virtual machine moves its processors\n", places[p],
                   b->topo_place);
    }
}

/* Four digits that mean something: 0.143, 13.8, 4820. */
static const char *number(char text[32], double value)
{
    int digits = value < 1 ? 3 : value < 100 ? 2 : value < 10000 ? 1 : 0;
    snprintf(text, 32, "%.*f", digits, value);
    return text;
}

static const char *number_or_none(char text[32], double value)
{
    return value > 0 ? number(text, value) : "-";
}

void rd_bench_print_row(const rd_bench *b, const rd_row *row)
{
    const rd_bench_options *o = b->options;
    char text[7][32], wrong[32] = "-", reached[32] = "-";
    bool barrier = o->collective == RD_BENCH_BARRIER;
    if (row->checked) snprintf(wrong, sizeof wrong, "%llu", (unsigned long long)row->wrong);
    if (row->limit_us > 0)
        snprintf(reached, sizeof reached, "%.0f%%%s", 100 * row->limit_us / row->median_us,
                 row->limit_is_wrong ? "!" : "");
    printf("%11zu %10zu %10s %4s %8s %8s %8s %7s %7s %6s %8s %9s %8s  %-7s %s\n", row->bytes, row->count,
           barrier ? "-" : rd_dtype_name(o->dtype), rd_bench_reduces(o->collective) ? rd_op_name(o->op) : "-",
           number(text[0], row->min_us), number(text[1], row->median_us), number(text[2], row->max_us),
           barrier ? "-" : number(text[3], row->algbw), barrier ? "-" : number(text[4], row->busbw), wrong,
           number_or_none(text[5], row->limit_us), reached, number_or_none(text[6], row->copy_us), row->placement,
           row->algorithm);
    fflush(stdout);
}

void rd_bench_print_foot(const rd_bench *b, const rd_row *rows, int count)
{
    unsigned long long wrong = 0, wrong_rows = 0, wrong_limits = 0, mixed = 0, busy = 0;
    for (int i = 0; i < count; i++) {
        wrong += rows[i].wrong;
        wrong_rows += rows[i].wrong > 0;
        wrong_limits += rows[i].limit_is_wrong;
        mixed += strcmp(rows[i].placement, "mixed") == 0;
        busy += strcmp(rows[i].placement, "busy") == 0;
    }
    if (b->options->progress) fprintf(stderr, "\033[K\r ");
    printf("#\n");
    if (wrong) printf("# WRONG: %llu elements in %llu of %d rows\n", wrong, wrong_rows, count);
    if (wrong_limits)
        printf("# wrong limit: %llu of %d rows are over 105 %% of it, so it is no limit there\n", wrong_limits, count);
    if (mixed)
        printf("# mixed: in %llu of %d rows the cores were moved while they were measured; do not compare these\n",
               mixed, count);
    print_places(b, rows, count);
    if (busy) printf("# busy: in %llu of %d rows something else ran on these processors\n", busy, count);
    if (b->crowded) printf("# turns: %d ranks share fewer processors; times depend on the scheduler\n", b->size);
    if (!wrong && b->options->check != RD_CHECK_NONE && b->options->collective != RD_BENCH_BARRIER)
        printf("# every element of %s was right\n",
               b->options->check == RD_CHECK_EVERY ? "every timed call" : "one call per row");
    fflush(stdout);
}
