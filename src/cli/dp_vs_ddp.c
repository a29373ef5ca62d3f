/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/dp_vs_ddp.h"

#include "cli/bench.h"
#include "cli/option.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char who[] = "rondo bench dp-vs-ddp";
static const char help[] =
    "usage: rondo bench dp-vs-ddp [-n LIST] [--layers N] [--width N] [--batch N] [--steps N]\n"
    "\n"
    "Trains one network twice: as nn.DataParallel does (dp: one process, a thread per device, device 0 in the middle)\n"
    "and as DistributedDataParallel does (ddp: a process per rank). Says for each what a step costs, and checks that\n"
    "both come to the same parameters.\n"
    "\n"
    "  -n, --ranks LIST        numbers of devices or ranks, from 2 to 8 (2,4,8)\n"
    "      --layers N          layers of the network (4)\n"
    "      --width N           units of each (512)\n"
    "      --batch N           samples of a step, over all devices (64)\n"
    "      --steps N           steps that are measured (10)\n"
    "  -h, --help              this text\n"
    "\n"
    "step: median time of a step. idle: how long device 0, and the others on average, waited in it. memory: "
    "parameters,\n"
    "gradients, the units of their samples; on device 0 of dp also the whole batch. through 0: what device 0 takes\n"
    "and gives in a step; for ddp 2(N-1)/N of the buckets, both ways.\n";

/* The largest difference, in parts of the largest parameter. */
static double apart(const float *a, const float *b, size_t count)
{
    double most = 0, largest = 0;
    for (size_t i = 0; i < count; i++) {
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
        largest = fmax(largest, fabs((double)a[i]));
        if (isnan(a[i]) || isnan(b[i])) return INFINITY;
    }
    return largest > 0 ? most / largest : INFINITY;
}

static void print_row(int ranks, const char *name, const rd_versus_row *row)
{
    const double mib = 1 << 20;
    printf("%5d  %-4s %9.2f %9.2f %11.2f %10.2f %12.2f %10.2f\n", ranks, name, row->step_s * 1e3,
           row->idle_first_s * 1e3, row->idle_others_s * 1e3, row->held_first / mib, row->held_others / mib,
           row->through_first / mib);
    fflush(stdout);
}

static void print_head(const rd_versus_options *o)
{
    char machine[512];
    rd_bench_machine(machine, sizeof machine);
    printf("# Rondo %d.%d.%d: DataParallel beside DistributedDataParallel on %s\n", RONDO_VERSION_MAJOR,
           RONDO_VERSION_MINOR, RONDO_VERSION_PATCH, machine);
    printf("# %d layers of %d, %.1f MiB of parameters; batches of %d; medians of %d steps\n", o->net.layers,
           o->net.width, (double)rd_net_parameters(&o->net) * sizeof(float) / (1 << 20), o->batch, o->steps);
    printf("%5s  %-4s %9s %9s %11s %10s %12s %10s\n", "ranks", "way", "step ms", "idle 0", "idle others", "memory 0",
           "their memory", "through 0");
    printf("%5s  %-4s %9s %9s %11s %10s %12s %10s\n", "", "", "", "ms", "ms", "MiB", "MiB", "MiB");
}

static int measure(const rd_versus_options *o)
{
    static const double most_apart = 1e-4;
    size_t count = rd_net_parameters(&o->net);
    float *parameters = malloc(2 * count * sizeof *parameters);
    double worst = 0;
    bool good = parameters != NULL;
    if (!good)
        fprintf(stderr, "%s: no memory for %zu parameters; lower --layers or --width\n", who, count);
    else
        print_head(o);
    for (int k = 0; k < o->runs && good; k++) {
        rd_versus_row row = {0};
        good = rd_versus_ddp(o, o->ranks[k], parameters, &row); /* first: it forks */
        rd_versus_row ddp = row;
        good = good && rd_versus_dp(o, o->ranks[k], parameters + count, &row);
        if (!good) break;
        print_row(o->ranks[k], "dp", &row);
        print_row(o->ranks[k], "ddp", &ddp);
        worst = fmax(worst, apart(parameters, parameters + count, count));
    }
    free(parameters);
    if (!good) return 1;
    printf("# the parameters of both differ by %.1e of the largest one at most\n", worst);
    if (worst <= most_apart) return 0;
    fprintf(stderr, "%s: that is more than %g: one of them is wrong\n", who, most_apart);
    return 1;
}

/* ---- Options ---- */

int rd_bench_dp_vs_ddp(int argc, char **argv)
{
    static const struct option known[] = {
        {"ranks", required_argument, NULL, 'n'},
        {"layers", required_argument, NULL, 'l'},
        {"width", required_argument, NULL, 'w'},
        {"batch", required_argument, NULL, 'b'},
        {"steps", required_argument, NULL, 's'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    rd_versus_options o = {.net = {4, 512}, .batch = 64, .steps = 10, .ranks = {2, 4, 8}, .runs = 3};
    int id, status = 0;
    optind = 1;
    opterr = 0;
    while (status == 0 && (id = getopt_long(argc, argv, ":n:h", known, NULL)) != -1) {
        switch (id) {
        case 'n':
            status = rd_option_numbers(who, "-n", optarg, 2, RD_TEAM_RANKS, RD_TEAM_RANKS, o.ranks, &o.runs);
            break;
        case 'l': status = rd_option_number(who, "--layers", optarg, 1, 1000, &o.net.layers); break;
        case 'w': status = rd_option_number(who, "--width", optarg, 1, 8192, &o.net.width); break;
        case 'b': status = rd_option_number(who, "--batch", optarg, RD_TEAM_RANKS, 65536, &o.batch); break;
        case 's': status = rd_option_number(who, "--steps", optarg, 1, RD_VERSUS_STEPS, &o.steps); break;
        case 'h': fputs(help, stdout); return 0;
        default: status = rd_option_wrong(who, id, argv, "nh", known); break;
        }
    }
    if (status == 0) status = rd_option_no_words(who, argc, argv);
    return status ? status : measure(&o);
}
