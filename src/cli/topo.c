/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/topo.h"

#include "base/status.h"
#include "cli/cli.h"
#include "cli/option.h"

#include <errno.h>
#include <string.h>

#define WHO "rondo topo"

static const char help[] =
    "usage: rondo topo [options]\n"
    "\n"
    "Shows a machine, and the rings that ranks on it would form. Hosts follow one another; inside a host the ring "
    "goes\n"
    "the cheapest way through all ranks, from the one nearest the network card by which it comes in to the one "
    "nearest\n"
    "the card by which it leaves.\n"
    "\n"
    "  -n, --ranks N           N ranks: on GPUs where there are as many, else on cores, one on each before any gets "
    "two\n"
    "      --ranks LIST        where they sit, in the order of ranks: cpu:0-3,8  core:0-7  gpu:0-15  gpu:all  "
    "core:all\n"
    "                          (without a word: cpu), and / between the lists of hosts: gpu:0-3/gpu:4-7\n"
    "                          default: one on each GPU, where there are several, or on each core\n"
    "      --hosts M           the same on M hosts, 1 to 64, all of them like this machine (1)\n"
    "      --channels K        rings, 1 to 8; 0: as many as links and cards are good for (0)\n"
    "      --xml FILE          another machine: a file that lstopo has written\n"
    "      --synthetic WORDS   another machine, in hwloc's words, for example \"pack:2 numa:1 l3:2 core:4 pu:2\"\n"
    "      --measure           measure between the cores of this machine instead of believing the table\n"
    "      --json              for programs; docs/tools.md has its fields\n"
    "      --svg FILE          as a picture\n"
    "  -h, --help              this text\n"
    "\n"
    "CPU is the number that taskset and the kernel use. A hop's nanoseconds are its latency; what a hop costs is what\n"
    "64 KiB take. Where hwloc or the driver say nothing of a link, the figures are those of machines like this one.\n";

enum option_id {
    OPT_RANKS = 'n',
    OPT_HELP = 'h',
    OPT_HOSTS = 256,
    OPT_CHANNELS,
    OPT_XML,
    OPT_SYNTHETIC,
    OPT_MEASURE,
    OPT_JSON,
    OPT_SVG
};

static const struct option names[] = {
    {"ranks", required_argument, NULL, OPT_RANKS},
    {"hosts", required_argument, NULL, OPT_HOSTS},
    {"channels", required_argument, NULL, OPT_CHANNELS},
    {"xml", required_argument, NULL, OPT_XML},
    {"synthetic", required_argument, NULL, OPT_SYNTHETIC},
    {"measure", no_argument, NULL, OPT_MEASURE},
    {"json", no_argument, NULL, OPT_JSON},
    {"svg", required_argument, NULL, OPT_SVG},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

static int show(const rd_topo_options *options)
{
    rd_topo_view view = {0};
    rondo_result result = rd_topo_open(&view, options);
    if (result == RONDO_SUCCESS && options->svg) result = rd_topo_write_svg(&view, options->svg);
    if (result != RONDO_SUCCESS)
        fprintf(stderr, WHO ": %s\n", rd_last_error());
    else if (options->json)
        rd_topo_print_json(&view);
    else if (!options->svg || strcmp(options->svg, "/dev/stdout") != 0)
        rd_topo_print_text(&view);
    rd_topo_close(&view);
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, WHO ": cannot write all of it to standard output: %s\n", strerror(errno));
        return 1;
    }
    return result == RONDO_SUCCESS ? 0 : 1;
}

static int apply(rd_topo_options *options, int id, char *value)
{
    switch (id) {
    case OPT_RANKS: options->ranks = value; return 0;
    case OPT_HOSTS: return rd_option_number(WHO, "--hosts", value, 1, 64, &options->hosts);
    case OPT_CHANNELS: return rd_option_number(WHO, "--channels", value, 0, RD_MAX_RINGS, &options->channels);
    case OPT_XML: options->xml = value; return 0;
    case OPT_SYNTHETIC: options->synthetic = value; return 0;
    case OPT_MEASURE: options->measure = true; return 0;
    case OPT_JSON: options->json = true; return 0;
    default: options->svg = value; return 0;
    }
}

/* What holds between options. */
static int check(const rd_topo_options *options)
{
    int number;
    if (options->xml && options->synthetic) {
        fprintf(stderr, WHO ": --xml and --synthetic are two machines; say one\n");
        return RD_EXIT_USAGE;
    }
    if (options->measure && (options->xml || options->synthetic || options->hosts > 1)) {
        fprintf(stderr, WHO ": --measure is for the machine here alone; leave out %s\n",
                options->xml         ? "--xml"
                : options->synthetic ? "--synthetic"
                                     : "--hosts");
        return RD_EXIT_USAGE;
    }
    /* A plain number is a count, and its range is told as every option's is. */
    if (options->ranks && !strpbrk(options->ranks, ":,/") && strspn(options->ranks, "-0123456789") > 0 &&
        (strspn(options->ranks, "0123456789") == strlen(options->ranks) || *options->ranks == '-'))
        return rd_option_number(WHO, "--ranks", options->ranks, 1, RD_TOPO_RANKS, &number);
    return 0;
}

int rd_cli_topo(int argc, char **argv)
{
    static const char short_names[] = "+:n:h";
    rd_topo_options options = {.hosts = 1};
    int status = 0;
    optind = 1;
    opterr = 0;
    for (int id; !status && (id = getopt_long(argc, argv, short_names, names, NULL)) >= 0;) {
        if (id == '?' || id == ':') return rd_option_wrong(WHO, id, argv, short_names, names);
        if (id == OPT_HELP) {
            fputs(help, stdout);
            return 0;
        }
        status = apply(&options, id, optarg);
    }
    if (!status) status = rd_option_no_words(WHO, argc, argv);
    if (!status) status = check(&options);
    return status ? status : show(&options);
}
