/* SPDX-License-Identifier: Apache-2.0
 *
 * cli.h - the tool `rondo`: one subcommand, one function.
 */
#ifndef RD_CLI_CLI_H
#define RD_CLI_CLI_H

/* argv[0] is the subcommand's name. Returns the exit status. */
int rd_cli_run(int argc, char **argv);
int rd_cli_bench(int argc, char **argv);
int rd_cli_teach(int argc, char **argv);
int rd_cli_topo(int argc, char **argv);
int rd_cli_doctor(int argc, char **argv);

/* Exit statuses of the tool's own: wrong use, and the shell's for a program that cannot be started. */
enum { RD_EXIT_USAGE = 2, RD_EXIT_NOT_EXECUTABLE = 126, RD_EXIT_NOT_FOUND = 127 };

/* Says "<who>: unknown <what> '<word>'; did you mean '<nearest>'?" on standard error. Returns RD_EXIT_USAGE. */
int rd_cli_unknown(const char *who, const char *what, const char *word, const char *const *known, int count);

#endif
