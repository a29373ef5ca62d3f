/* SPDX-License-Identifier: Apache-2.0 */
#include "base/env.h"
#include "cli/cli.h"
#include "rondo.h"

#include <stdio.h>
#include <string.h>

static int help_main(int argc, char **argv);
static int version_main(int argc, char **argv);

static const struct command {
    const char *name, *summary;
    int (*main)(int argc, char **argv);
} commands[] = {
    {"run", "start the ranks of a job on this machine", rd_cli_run},
    {"bench", "measure a collective beside what this machine allows", rd_cli_bench},
    {"teach", "step through a real all-reduce", rd_cli_teach},
    {"topo", "this machine, and the ring that ranks on it would form", rd_cli_topo},
    {"doctor", "what Rondo finds here, what is missing, every setting", rd_cli_doctor},
    {"help", "this text, or that of a command: rondo help run", help_main},
    {"version", "the version of the tool and its library", version_main},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static const struct command *find(const char *name)
{
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(name, commands[i].name) == 0) return &commands[i];
    return NULL;
}

static int unknown_command(const char *name)
{
    static const char *const options[] = {"--help", "--version"};
    const char *names[COMMANDS];
    for (int i = 0; i < COMMANDS; i++) names[i] = commands[i].name;
    if (name[0] == '-') return rd_cli_unknown("rondo", "option", name, options, 2);
    return rd_cli_unknown("rondo", "command", name, names, COMMANDS);
}

static void print_help(FILE *to)
{
    fprintf(to, "rondo - collective communication over a ring\n\nusage: rondo COMMAND [options]\n\n");
    for (int i = 0; i < COMMANDS; i++) fprintf(to, "  %-10s%s\n", commands[i].name, commands[i].summary);
    fprintf(to, "\nrondo COMMAND --help says more. For example:  rondo run -n 4 -- ./my-program\n");
}

static int help_main(int argc, char **argv)
{
    char *help[] = {NULL, "--help", NULL};
    if (argc < 2 || argv[1][0] == '-') {
        print_help(stdout);
        return 0;
    }
    const struct command *about = find(argv[1]);
    if (!about) return unknown_command(argv[1]);
    help[0] = argv[1];
    return about->main(2, help);
}

static int version_main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        printf("usage: rondo version\n");
        return 0;
    }
    printf("rondo %d.%d.%d\n", RONDO_VERSION_MAJOR, RONDO_VERSION_MINOR, RONDO_VERSION_PATCH);
    return 0;
}

/* Too far to be a slip of the keys, but begun alike: --nprocs for --nproc-per-node. */
static const char *begun_alike(const char *word, const char *const *known, int count)
{
    const char *best = NULL;
    size_t longest = word[0] == '-' ? strlen("--x") : 1;
    for (int i = 0; i < count; i++) {
        size_t same = 0;
        while (word[same] && word[same] == known[i][same]) same++;
        if (same > longest) {
            longest = same;
            best = known[i];
        }
    }
    return best;
}

int rd_cli_unknown(const char *who, const char *what, const char *word, const char *const *known, int count)
{
    const char *near = rd_nearest(word, known, count);
    if (!near) near = begun_alike(word, known, count);
    if (near) fprintf(stderr, "%s: unknown %s '%s'; did you mean '%s'?\n", who, what, word, near);
    else fprintf(stderr, "%s: unknown %s '%s'; see %s --help\n", who, what, word, who);
    return RD_EXIT_USAGE;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return RD_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) return help_main(1, argv);
    if (strcmp(argv[1], "--version") == 0) return version_main(1, argv);
    const struct command *command = find(argv[1]);
    return command ? command->main(argc - 1, argv + 1) : unknown_command(argv[1]);
}
