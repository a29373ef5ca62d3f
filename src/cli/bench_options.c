/* SPDX-License-Identifier: Apache-2.0 */
#include "base/dtype.h"
#include "base/env.h"
#include "cli/bench.h"
#include "cli/cli.h"
#include "cli/option.h"
#include "cli/run.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: rondo bench [COLLECTIVE] [options]\n"
    "\n"
    "Measures all_reduce (default), reduce_scatter, all_gather, broadcast, reduce, gather, scatter, all_to_all,\n"
    "sendrecv (each rank sends to the next and receives from the one before) or barrier per message size, beside what\n"
    "this machine allows. Starts its ranks itself, or joins those that `rondo run`, torchrun or mpirun started.\n"
    "dp-vs-ddp trains a network in two ways instead: rondo bench dp-vs-ddp --help; limits measures what the machine\n"
    "allows, without Rondo: rondo bench limits --help.\n"
    "\n"
    "  -n, --ranks N           ranks to start (2)\n"
    "  -b, --min-bytes SIZE    first size (8); K, M and G are powers of 1024\n"
    "  -e, --max-bytes SIZE    last size (64M)\n"
    "  -f, --factor F          from one size to the next (2)\n"
    "  -d, --dtype TYPE        element type (float32)\n"
    "  -o, --op OP             operator (sum): sum, prod, max, min, avg\n"
    "      --root RANK         of broadcast, reduce, gather and scatter (0)\n"
    "      --transport T       auto, shm, tcp or verbs, as RONDO_TRANSPORT\n"
    "      --algo A            auto, ring, flat, exchange or hier, as RONDO_ALGO\n"
    "      --in-place          results replace the input (default; all_to_all, sendrecv: never)\n"
    "      --out-of-place      results go to another buffer\n"
    "      --iters N           timed calls per row (default: as many as fit into about 0.1 s, 10 to 2000)\n"
    "      --warmup N          calls before those (5)\n"
    "      --check             check every element after every timed call (default: after one more call per row)\n"
    "      --no-check          check nothing\n"
    "      --reuse             do not rewrite the buffers between calls: measures private caches\n"
    "      --alloc WHAT        malloc: private memory (default); rondo: rondo_mem_alloc(), which neighbours can reach\n"
    "      --device WHAT       host (default); cuda: buffers in GPU memory, ranks take the host's GPUs in turn\n"
    "      --misalign N        put the buffers N elements off their alignment\n"
    "      --no-limits         do not measure what the machine allows\n"
    "      --no-pin            do not bind ranks to processors (else: where as many can on each)\n"
    "      --json FILE         write the results as JSON, too\n"
    "      --startup           measure how long ranks take to start, instead; rondo bench --startup --help\n"
    "  -h, --help              this text\n"
    "\n"
    "Before each timed call every rank rewrites its buffer, as a training step does, and all ranks meet; a call takes\n"
    "as long as the slowest rank's. With a processor for each rank, rank r is bound to the r-th core that is allowed.\n"
    "\n"
    "size: the largest buffer of a rank (all ranks' parts, of those that have parts).\n"
    "algbw: size / median time.\n"
    "busbw: algbw x 2(N-1)/N for all_reduce, algbw x (N-1)/N for reduce_scatter, all_gather, gather, scatter and\n"
    "  all_to_all, else algbw.\n"
    "limit: what the machine allows, measured in the same row. In shared memory the zero-copy bound: all ranks' "
    "buffers\n"
    "  open to all, each rank works on its part of all of them, between two meetings; to 1 KiB that is no bound, and "
    "a\n"
    "  flag's round trip stands there; gather, scatter, all_to_all and sendrecv have none. On TCP plain sockets, the\n"
    "  best of 1, 2, 4 with pieces of 64 KiB, 256 KiB and any size.\n"
    "reached: limit / median; over 105 % the limit is wrong, and marked '!'.\n"
    "copy: memcpy of `size` bytes.\n"
    "place: the closest that the ranks' processors share, in the words of `rondo topo`, but measured before\n"
    "  and after the row (a virtual machine's cores are moved): core, L3 (cache), host or network;\n"
    "  mixed: they were moved each of 5 times; busy: something else runs there; turns: more ranks than processors; "
    "one:\n"
    "  there is one rank.\n"
    "\n"
    "  rondo bench\n"
    "  rondo bench reduce_scatter -n 4 -b 64K -e 16M -d bfloat16 --transport tcp\n"
    "  rondo run -n 2 -- rondo bench all_gather --json rows.json\n";

enum option_id {
    OPT_RANKS = 'n',
    OPT_LEAST = 'b',
    OPT_MOST = 'e',
    OPT_FACTOR = 'f',
    OPT_DTYPE = 'd',
    OPT_OP = 'o',
    OPT_HELP = 'h',
    OPT_ROOT = 256,
    OPT_TRANSPORT,
    OPT_ALGO,
    OPT_IN_PLACE,
    OPT_OUT_OF_PLACE,
    OPT_ITERATIONS,
    OPT_WARM_UP,
    OPT_CHECK,
    OPT_NO_CHECK,
    OPT_REUSE,
    OPT_ALLOC,
    OPT_DEVICE,
    OPT_MISALIGN,
    OPT_LIMITS,
    OPT_NO_LIMITS,
    OPT_NO_PIN,
    OPT_JSON,
    OPT_STARTUP, /* bench_startup.c has it; here so that it is known */
    OPT_PROGRESS, /* from the process that starts the ranks */
    OPT_PLANT     /* for the test */
};

#define WITH required_argument
static const struct option known[] = {
    {"ranks", WITH, NULL, OPT_RANKS},
    {"min-bytes", WITH, NULL, OPT_LEAST},
    {"max-bytes", WITH, NULL, OPT_MOST},
    {"factor", WITH, NULL, OPT_FACTOR},
    {"dtype", WITH, NULL, OPT_DTYPE},
    {"op", WITH, NULL, OPT_OP},
    {"root", WITH, NULL, OPT_ROOT},
    {"transport", WITH, NULL, OPT_TRANSPORT},
    {"algo", WITH, NULL, OPT_ALGO},
    {"in-place", no_argument, NULL, OPT_IN_PLACE},
    {"out-of-place", no_argument, NULL, OPT_OUT_OF_PLACE},
    {"iters", WITH, NULL, OPT_ITERATIONS},
    {"warmup", WITH, NULL, OPT_WARM_UP},
    {"check", no_argument, NULL, OPT_CHECK},
    {"no-check", no_argument, NULL, OPT_NO_CHECK},
    {"reuse", no_argument, NULL, OPT_REUSE},
    {"alloc", WITH, NULL, OPT_ALLOC},
    {"device", WITH, NULL, OPT_DEVICE},
    {"misalign", WITH, NULL, OPT_MISALIGN},
    {"limits", no_argument, NULL, OPT_LIMITS},
    {"no-limits", no_argument, NULL, OPT_NO_LIMITS},
    {"no-pin", no_argument, NULL, OPT_NO_PIN},
    {"json", WITH, NULL, OPT_JSON},
    {"startup", no_argument, NULL, OPT_STARTUP},
    {"help", no_argument, NULL, OPT_HELP},
    {"progress", no_argument, NULL, OPT_PROGRESS},
    {"plant-wrong", WITH, NULL, OPT_PLANT},
    {NULL, 0, NULL, 0},
};
#undef WITH
enum { KNOWN = sizeof known / sizeof *known - 1, HIDDEN = 2 };

const char *const rd_bench_names[RD_BENCH_COLLECTIVES] = {
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce",
    "gather",     "scatter",        "all_to_all", "sendrecv",  "barrier"};

bool rd_bench_reduces(rd_bench_collective c)
{
    return c == RD_BENCH_ALL_REDUCE || c == RD_BENCH_REDUCE_SCATTER || c == RD_BENCH_REDUCE;
}

bool rd_bench_gathers(rd_bench_collective c)
{
    return c == RD_BENCH_REDUCE_SCATTER || c == RD_BENCH_ALL_GATHER || c == RD_BENCH_GATHER || c == RD_BENCH_SCATTER ||
           c == RD_BENCH_ALL_TO_ALL;
}

bool rd_bench_has_bound(rd_bench_collective c) { return c <= RD_BENCH_REDUCE; }

/* ---- Values ---- */

static int wrong(const char *option, const char *value, const char *valid)
{
    fprintf(stderr, "rondo bench: %s '%s': must be %s\n", option, value, valid);
    return RD_EXIT_USAGE;
}

static int whole_number(const char *option, const char *text, int least, int most, int *value)
{
    int status = rd_option_number("rondo bench", option, text, least, most, value);
    return status ? status : -1;
}

static int size_value(const char *option, const char *text, size_t *value)
{
    static const char units[] = "KMG";
    static const char valid[] = "bytes from 1 to 1024G, such as 8, 64K or 1.5M";
    char *end;
    double number = strtod(text, &end);
    const char *unit = *end && end != text ? strchr(units, *end & ~0x20) : NULL;
    if (unit && *unit) {
        number *= (double)(1ull << (10 * (unit - units + 1)));
        end++;
        if (strcmp(end, "iB") == 0 || strcmp(end, "B") == 0) end = "";
    }
    if (end == text || *end || !isfinite(number) || number < 1 || number > 0x1p40) return wrong(option, text, valid);
    *value = (size_t)number;
    return -1;
}

static int factor_value(const char *text, double *value)
{
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end || !isfinite(number) || number < 1.01 || number > 1e9)
        return wrong("--factor", text, "a number from 1.01 to 1e9");
    *value = number;
    return -1;
}

/* The index of a name in a list, or the exit status below 0. */
static int name_value(const char *what, const char *text, const char *const *names, int count, int *value)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(text, names[i]) != 0) continue;
        *value = i;
        return -1;
    }
    char list[256] = "";
    for (int i = 0; i < count; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", names[i]);
    const char *near = rd_nearest(text, names, count);
    if (near)
        fprintf(stderr, "rondo bench: unknown %s '%s'; did you mean '%s'?\n", what, text, near);
    else
        fprintf(stderr, "rondo bench: unknown %s '%s'; there are: %s\n", what, text, list);
    return RD_EXIT_USAGE;
}

static int dtype_value(const char *text, rondo_dtype *value)
{
    const char *names[RONDO_DTYPES];
    int index = 0;
    for (int i = 0; i < RONDO_DTYPES; i++) names[i] = rd_dtype_name((rondo_dtype)i);
    int status = name_value("element type", text, names, RONDO_DTYPES, &index);
    if (status < 0) *value = (rondo_dtype)index;
    return status;
}

static int op_value(const char *text, rondo_op *value)
{
    const char *names[RONDO_OPS];
    int index = 0;
    for (int i = 0; i < RONDO_OPS; i++) names[i] = rd_op_name((rondo_op)i);
    int status = name_value("operator", text, names, RONDO_OPS, &index);
    if (status < 0) *value = (rondo_op)index;
    return status;
}

/* One of the choices of a setting. */
static int choice_value(const char *what, const char *setting, const char *text, const char **value)
{
    char choices[128] = "";
    const char *names[16];
    int count = 0, index = 0;
    for (int i = 0; i < rd_setting_count; i++)
        if (strcmp(rd_setting_table[i].name, setting) == 0)
            snprintf(choices, sizeof choices, "%s", rd_setting_table[i].choices);
    for (char *rest = choices, *name; count < 16 && (name = strsep(&rest, "|"));) names[count++] = name;
    int status = name_value(what, text, names, count, &index);
    if (status < 0) *value = text;
    return status;
}

static int transport_value(const char *text, const char **value)
{
    if (strcmp(text, "loop") != 0) return choice_value("transport", "RONDO_TRANSPORT", text, value);
    fprintf(stderr,
            "rondo bench: --transport loop joins threads of one process; bench's ranks are processes, which shm "
            "and tcp join\n");
    return RD_EXIT_USAGE;
}

static int alloc_value(const char *text, bool *shareable)
{
    static const char *const names[] = {"malloc", "rondo"};
    int index = 0, status = name_value("memory", text, names, 2, &index);
    if (status < 0) *shareable = index == 1;
    return status;
}

static int device_value(const char *text, bool *cuda)
{
    static const char *const names[] = {"host", "cuda"};
    int index = 0, status = name_value("device", text, names, 2, &index);
    if (status < 0) *cuda = index == 1;
    return status;
}

static int count_value(const char *option, const char *text, int most, size_t *value)
{
    int number = 0, status = whole_number(option, text, 0, most, &number);
    if (status < 0) *value = (size_t)number;
    return status;
}

static int apply(rd_bench_options *options, int id, const char *value)
{
    switch (id) {
    case OPT_RANKS: return whole_number("-n", value, 1, RD_MAX_WORKERS, &options->ranks);
    case OPT_LEAST: return size_value("--min-bytes", value, &options->least);
    case OPT_MOST: return size_value("--max-bytes", value, &options->most);
    case OPT_FACTOR: return factor_value(value, &options->factor);
    case OPT_DTYPE: return dtype_value(value, &options->dtype);
    case OPT_OP: return op_value(value, &options->op);
    case OPT_ROOT: return whole_number("--root", value, 0, RD_MAX_WORKERS - 1, &options->root);
    case OPT_TRANSPORT: return transport_value(value, &options->transport);
    case OPT_ALGO: return choice_value("algorithm", "RONDO_ALGO", value, &options->algo);
    case OPT_IN_PLACE: options->out_of_place = false; return -1;
    case OPT_OUT_OF_PLACE: options->out_of_place = true; return -1;
    case OPT_ITERATIONS: return whole_number("--iters", value, 1, RD_BENCH_MOST_CALLS, &options->iterations);
    case OPT_WARM_UP: return whole_number("--warmup", value, 1, RD_BENCH_MOST_CALLS, &options->warm_up);
    case OPT_CHECK: options->check = RD_CHECK_EVERY; return -1;
    case OPT_NO_CHECK: options->check = RD_CHECK_NONE; return -1;
    case OPT_REUSE: options->reuse = true; return -1;
    case OPT_ALLOC: return alloc_value(value, &options->shareable);
    case OPT_DEVICE: return device_value(value, &options->cuda);
    case OPT_MISALIGN: return count_value("--misalign", value, 4096, &options->misalign);
    case OPT_LIMITS: options->limits = true; return -1;
    case OPT_NO_LIMITS: options->limits = false; return -1;
    case OPT_NO_PIN: options->pin = false; return -1;
    case OPT_JSON: options->json = value; return -1;
    case OPT_PROGRESS: options->progress = true; return -1;
    default: return count_value("--plant-wrong", value, 1 << 20, &options->plant);
    }
}

static int unknown_option(char **argv)
{
    static const char *const short_names[] = {"-n", "-b", "-e", "-f", "-d", "-o", "-h"};
    enum { SHORT = sizeof short_names / sizeof *short_names };
    char word[64], names[KNOWN][32];
    const char *candidates[SHORT + KNOWN], *argument = argv[optind - 1];
    if (optopt >= OPT_ROOT) {
        fprintf(stderr, "rondo bench: %s: this option takes no value\n", argument);
        return RD_EXIT_USAGE;
    }
    if (optopt && strncmp(argument, "--", 2) != 0)
        snprintf(word, sizeof word, "-%c", optopt);
    else
        snprintf(word, sizeof word, "%.*s", (int)strcspn(argument, "="), argument);
    memcpy(candidates, short_names, sizeof short_names);
    for (int i = 0; i < KNOWN - HIDDEN; i++) {
        snprintf(names[i], sizeof names[i], "--%s", known[i].name);
        candidates[SHORT + i] = names[i];
    }
    return rd_cli_unknown("rondo bench", "option", word, candidates, SHORT + KNOWN - HIDDEN);
}

/* What holds between options. */
static int check(const rd_bench_options *options)
{
    if (options->least > options->most) {
        fprintf(stderr, "rondo bench: --min-bytes %zu is more than --max-bytes %zu\n", options->least, options->most);
        return RD_EXIT_USAGE;
    }
    if (options->root > 0 && options->ranks > 0 && options->root >= options->ranks) {
        fprintf(stderr, "rondo bench: --root %d: with -n %d it must be from 0 to %d\n", options->root, options->ranks,
                options->ranks - 1);
        return RD_EXIT_USAGE;
    }
    if (options->check == RD_CHECK_EVERY && options->reuse) {
        fprintf(stderr, "rondo bench: --check needs fresh input before every call, which --reuse turns off\n");
        return RD_EXIT_USAGE;
    }
    return -1;
}

static int collective_value(rd_bench_options *options, char **words)
{
    int index = 0;
    if (!words[0]) return -1;
    if (words[1]) {
        fprintf(stderr, "rondo bench: '%s' after '%s': one collective at a time\n", words[1], words[0]);
        return RD_EXIT_USAGE;
    }
    int status = name_value("collective", words[0], rd_bench_names, RD_BENCH_COLLECTIVES, &index);
    if (status >= 0) return status;
    options->collective = (rd_bench_collective)index;
    if (index == RD_BENCH_ALL_TO_ALL || index == RD_BENCH_SENDRECV) options->out_of_place = true;
    return -1;
}

int rd_bench_parse(rd_bench_options *options, int argc, char **argv)
{
    *options = (rd_bench_options){.least = 8,
                                  .most = 64 << 20,
                                  .factor = 2,
                                  .dtype = RONDO_FLOAT32,
                                  .warm_up = 5,
                                  .check = RD_CHECK_ONCE,
                                  .pin = true,
                                  .limits = true};
    int id, status;
    optind = 1;
    opterr = 0;
    while ((id = getopt_long(argc, argv, ":n:b:e:f:d:o:h", known, NULL)) >= 0) {
        if (id == OPT_HELP) {
            fputs(help, stdout);
            return 0;
        }
        if (id == '?') return unknown_option(argv);
        if (id == ':') {
            fprintf(stderr, "rondo bench: %s needs a value; see rondo bench --help\n", argv[optind - 1]);
            return RD_EXIT_USAGE;
        }
        status = apply(options, id, optarg);
        if (status >= 0) return status;
    }
    if (options->cuda) options->limits = false; /* they are of host memory */
    status = collective_value(options, argv + optind);
    return status >= 0 ? status : check(options);
}
