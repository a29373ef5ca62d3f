/* SPDX-License-Identifier: Apache-2.0
 *
 * option.h - what the command lines of several subcommands have in common. `who` is "rondo teach".
 */
#ifndef RD_CLI_OPTION_H
#define RD_CLI_OPTION_H

#include <getopt.h>

/* getopt_long() answered '?' or ':': says what is wrong, and the nearest option. Returns RD_EXIT_USAGE. */
int rd_option_wrong(const char *who, int answer, char **argv, const char *short_names, const struct option *names);

/* Words after the options of a command that takes none. Returns 0, or RD_EXIT_USAGE after saying so. */
int rd_option_no_words(const char *who, int argc, char **argv);

/* A whole number. Returns 0, or RD_EXIT_USAGE after saying the range. */
int rd_option_number(const char *who, const char *option, const char *text, int least, int most, int *value);

/* Numbers between commas, at most `most_numbers` of them. Likewise. */
int rd_option_numbers(const char *who, const char *option, const char *text, int least, int most, int most_numbers,
                      int *values, int *count);

/* A word of "a|b|c", by its place there. Likewise. */
int rd_option_choice(const char *who, const char *option, const char *text, const char *choices, int *value);

#endif
