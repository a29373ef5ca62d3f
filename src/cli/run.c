/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run.h"

#include "base/env.h"
#include "cli/cli.h"
#include "cli/option.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: rondo run -n N [options] [--] PROGRAM [arguments]\n"
    "\n"
    "Starts N ranks of PROGRAM on this machine, relays what they print line by line, and ends all of them when one\n"
    "fails: 0.2 s later, so that they can say what they know of it. The exit status is that of the first rank to\n"
    "fail, 128 + signal where a signal ended it.\n"
    "\n"
    "  -n, --nproc-per-node N  ranks on this node; auto: as many as there are processors\n"
    "      --nnodes M          nodes of the job (1); run the same command on each, with its own --node-rank\n"
    "      --node-rank K       which node this is, from 0\n"
    "      --master-addr A     address or name of node 0; else MASTER_ADDR\n"
    "      --master-port P     a port that is free there; else MASTER_PORT, else 29500\n"
    "      --keep-going        a rank that fails ends no other, so that these may rondo_comm_shrink(); the exit\n"
    "                          status is the highest of those that no signal ended, and the failed are listed at the "
    "end\n"
    "      --bind WHERE        which processors each rank may use: core, l3, numa or package (one of these each, of those\n"
    "                          that this process may use), gpu (those near its GPU), one list for each rank as in\n"
    "                          0-3/4-7, or none: all (none)\n"
    "      --no-prefix         no \"[rank] \" before each line\n"
    "      --output-dir DIR    write DIR/rank-R.out and DIR/rank-R.err instead of standard output and error\n"
    "      --grace SECONDS     from SIGTERM to SIGKILL when the run ends early (5)\n"
    "      --timeout SECONDS   end the run after this long, with status 124\n"
    "  -h, --help              this text\n"
    "\n"
    "Underscores do for hyphens (torchrun's --nproc_per_node). Each rank finds in its environment RANK, LOCAL_RANK,\n"
    "WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK, NODE_RANK, MASTER_ADDR and MASTER_PORT, and on one node RONDO_JOB, a\n"
    "random name under which the ranks meet, and RONDO_KEY, a random key (unless you set RONDO_KEY or\n"
    "RONDO_KEY_FILE; more than one node needs one of them). On one node MASTER_PORT is only for programs that expect\n"
    "it: a port that was free. The first rank of the node reads standard input, unless that is a terminal.\n"
    "Ctrl-C is passed on; a second one kills at once. Nothing that a rank started outlives the run.\n"
    "\n"
    "  rondo run -n 4 -- ./my-program --its-option\n"
    "  rondo run -n 8 --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 -- ./train\n";

enum { DEFAULT_PORT = 29500 };
enum option_id {
    OPT_WORKERS = 'n',
    OPT_HELP = 'h',
    OPT_NODES = 256,
    OPT_NODE,
    OPT_ADDRESS,
    OPT_PORT,
    OPT_KEEP_GOING,
    OPT_BIND,
    OPT_NO_PREFIX,
    OPT_OUTPUT_DIR,
    OPT_GRACE,
    OPT_TIMEOUT,
    OPT_STANDALONE,
    OPT_REFUSED /* and above: index into refused */
};

static const struct {
    const char *name, *why;
} refused[] = {
    {"rdzv-backend", "there is no rendezvous service to choose; ranks meet at --master-addr and --master-port"},
    {"rdzv-endpoint", "say --master-addr and --master-port instead"},
    {"rdzv-id", "the job's name comes from --master-addr and --master-port, or is random on one node"},
    {"rdzv-conf", "there is no rendezvous service to configure; see --timeout and RONDO_TIMEOUT"},
    {"max-restarts", "failed ranks are not restarted; run the command again"},
    {"module", "say  -- python3 -m MODULE  instead"},
    {"no-python", "programs are always run as they are; leave it out"},
    {"log-dir", "say --output-dir instead"},
};
enum { REFUSED = sizeof refused / sizeof *refused };

#define WITH required_argument
static const struct option known[] = {
    {"nproc-per-node", WITH, NULL, OPT_WORKERS},
    {"nnodes", WITH, NULL, OPT_NODES},
    {"node-rank", WITH, NULL, OPT_NODE},
    {"master-addr", WITH, NULL, OPT_ADDRESS},
    {"master-port", WITH, NULL, OPT_PORT},
    {"keep-going", no_argument, NULL, OPT_KEEP_GOING},
    {"bind", WITH, NULL, OPT_BIND},
    {"no-prefix", no_argument, NULL, OPT_NO_PREFIX},
    {"output-dir", WITH, NULL, OPT_OUTPUT_DIR},
    {"grace", WITH, NULL, OPT_GRACE},
    {"timeout", WITH, NULL, OPT_TIMEOUT},
    {"standalone", no_argument, NULL, OPT_STANDALONE},
    {"help", no_argument, NULL, OPT_HELP},
};
#undef WITH
enum { KNOWN = sizeof known / sizeof *known };

static int wrong(const char *option, const char *value, const char *valid)
{
    fprintf(stderr, "rondo run: %s '%s': must be %s\n", option, value, valid);
    return RD_EXIT_USAGE;
}

/* 0, or the exit status after saying what is valid. */
static int whole_number(const char *option, const char *text, int least, int most, int *value)
{
    return rd_option_number("rondo run", option, text, least, most, value);
}

static int seconds(const char *option, const char *text, double *value)
{
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end || !isfinite(number) || number < 0 || number > 1e9)
        return wrong(option, text, "seconds from 0 to 1e9");
    *value = number;
    return 0;
}

static int worker_count(const char *text, int *workers)
{
    if (strcmp(text, "auto") == 0 || strcmp(text, "cpu") == 0) {
        int cpus = rd_cpus_allowed();
        *workers = cpus ? cpus : 1;
        return 0;
    }
    if (strcmp(text, "gpu") == 0) {
        fprintf(stderr, "rondo run: -n gpu: GPUs are not counted here; give the number\n");
        return RD_EXIT_USAGE;
    }
    return whole_number("-n", text, 1, RD_MAX_WORKERS, workers);
}

static int apply(rd_run_options *options, int id, const char *value)
{
    switch (id) {
    case OPT_WORKERS: return worker_count(value, &options->workers);
    case OPT_NODES: return whole_number("--nnodes", value, 1, 65536, &options->nodes);
    case OPT_NODE: return whole_number("--node-rank", value, 0, 65535, &options->node);
    case OPT_ADDRESS: options->address = value; return 0;
    case OPT_PORT: return whole_number("--master-port", value, 1, 65535, &options->port);
    case OPT_KEEP_GOING: options->keep_going = true; return 0;
    case OPT_BIND: options->bind = strcmp(value, "none") == 0 ? NULL : value; options->bind_given = true; return 0;
    case OPT_NO_PREFIX: options->prefix = false; return 0;
    case OPT_OUTPUT_DIR: options->output_dir = value; return 0;
    case OPT_GRACE: return seconds("--grace", value, &options->grace_s);
    case OPT_TIMEOUT: return seconds("--timeout", value, &options->timeout_s);
    case OPT_STANDALONE: return 0; /* what one node is anyway */
    default:
        fprintf(stderr, "rondo run: --%s is torchrun's: %s\n", refused[id - OPT_REFUSED].name,
                refused[id - OPT_REFUSED].why);
        return RD_EXIT_USAGE;
    }
}

/* getopt_long has not seen this argument yet: torchrun's underscores become hyphens. */
static void hyphens(char *argument)
{
    if (!argument || strncmp(argument, "--", 2) != 0) return;
    for (char *c = argument; *c && *c != '='; c++)
        if (*c == '_') *c = '-';
}

static int unknown_option(char **argv)
{
    static const char *const short_names[] = {"-n", "-h"};
    char word[64], names[KNOWN + 2][32];
    const char *candidates[KNOWN + 2] = {short_names[0], short_names[1]};
    const char *argument = argv[optind - 1];
    if (optopt >= OPT_NODES) {
        fprintf(stderr, "rondo run: %s: this option takes no value\n", argument);
        return RD_EXIT_USAGE;
    }
    if (optopt && strncmp(argument, "--", 2) != 0) snprintf(word, sizeof word, "-%c", optopt);
    else snprintf(word, sizeof word, "%.*s", (int)strcspn(argument, "="), argument);
    for (int i = 0; i < KNOWN; i++) {
        snprintf(names[i], sizeof names[i], "--%s", known[i].name);
        candidates[i + 2] = names[i];
    }
    return rd_cli_unknown("rondo run", "option", word, candidates, KNOWN + 2);
}

/* What holds between options. */
static int check(rd_run_options *options, bool node_given)
{
    if (options->workers == 0) {
        fprintf(stderr, "rondo run: how many ranks? Say -n N\n");
        return RD_EXIT_USAGE;
    }
    if (!options->program[0]) {
        fprintf(stderr, "rondo run: which program? For example:  rondo run -n %d -- ./my-program\n", options->workers);
        return RD_EXIT_USAGE;
    }
    if (options->node >= options->nodes) {
        fprintf(stderr, "rondo run: --node-rank %d: must be from 0 to %d with --nnodes %d\n", options->node,
                options->nodes - 1, options->nodes);
        return RD_EXIT_USAGE;
    }
    if (options->nodes == 1) return 0;
    const char *port = rd_env("MASTER_PORT");
    if (!node_given) {
        fprintf(stderr, "rondo run: which of the %d nodes is this? Say --node-rank K, 0 to %d, another on each\n",
                options->nodes, options->nodes - 1);
        return RD_EXIT_USAGE;
    }
    if (!options->address) options->address = rd_env("MASTER_ADDR");
    if (!options->address) {
        fprintf(stderr, "rondo run: %d nodes need --master-addr, the address of node 0 that all of them reach\n",
                options->nodes);
        return RD_EXIT_USAGE;
    }
    if (options->port == 0 && port) return whole_number("MASTER_PORT", port, 1, 65535, &options->port);
    if (options->port == 0) options->port = DEFAULT_PORT;
    return 0;
}

/* With RONDO_DEBUG=INFO it is told where each rank runs, or what might be better than anywhere. */
static int bind_and_watch(const rd_run_options *options)
{
    rd_run_options bound = *options;
    rd_bindings bindings = {0};
    const char *debug = rd_env("RONDO_DEBUG"), *better;
    bool each_its_own, explain = debug && (strcmp(debug, "INFO") == 0 || strcmp(debug, "TRACE") == 0);
    int status = options->bind ? rd_bind_plan(&bindings, options->bind, options->workers, explain) : 0;
    if (options->bind) bound.bindings = &bindings;
    else if (explain && !options->bind_given && (better = rd_bind_suggest(options->workers, &each_its_own)))
        fprintf(stderr, "rondo run: ranks are not bound to processors; --bind %s %s\n", better,
                each_its_own ? "gives each its own" : "has as many take turns on each");
    if (!status) status = rd_watch(&bound);
    rd_bindings_free(&bindings);
    return status;
}

int rd_cli_run(int argc, char **argv)
{
    struct option table[KNOWN + REFUSED + 1] = {{0}};
    rd_run_options options = {.nodes = 1, .grace_s = 5, .prefix = true};
    bool node_given = false;
    memcpy(table, known, sizeof known);
    for (int i = 0; i < REFUSED; i++)
        table[KNOWN + i] = (struct option){refused[i].name, optional_argument, NULL, OPT_REFUSED + i};
    optind = 1;
    opterr = 0;
    for (;;) {
        hyphens(argv[optind]);
        int id = getopt_long(argc, argv, "+:n:h", table, NULL);
        if (id < 0) break;
        if (id == OPT_HELP) {
            fputs(help, stdout);
            return 0;
        }
        if (id == '?') return unknown_option(argv);
        if (id == ':') {
            fprintf(stderr, "rondo run: %s needs a value; see rondo run --help\n", argv[optind - 1]);
            return RD_EXIT_USAGE;
        }
        int status = apply(&options, id, optarg);
        if (status) return status;
        node_given |= id == OPT_NODE;
    }
    options.program = argv + optind;
    int status = check(&options, node_given);
    return status ? status : bind_and_watch(&options);
}
