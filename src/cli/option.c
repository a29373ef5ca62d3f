/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/option.h"

#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 32 };

int rd_option_wrong(const char *who, int answer, char **argv, const char *short_names, const struct option *names)
{
    char word[64], storage[MOST][32];
    const char *candidates[MOST], *argument = argv[optind - 1];
    int count = 0;
    if (answer == ':') {
        fprintf(stderr, "%s: %s needs a value; see %s --help\n", who, argument, who);
        return RD_EXIT_USAGE;
    }
    for (int i = 0; names[i].name && count < MOST; i++) {
        snprintf(storage[count], sizeof storage[count], "--%s", names[i].name);
        candidates[count] = storage[count];
        count++;
        if (optopt && optopt == names[i].val && strncmp(argument, "--", 2) == 0) {
            fprintf(stderr, "%s: --%s takes no value\n", who, names[i].name);
            return RD_EXIT_USAGE;
        }
    }
    for (const char *s = short_names; *s && count < MOST; s++) {
        if (*s == ':' || *s == '+') continue;
        snprintf(storage[count], sizeof storage[count], "-%c", *s);
        candidates[count] = storage[count];
        count++;
    }
    if (strncmp(argument, "--", 2) == 0) snprintf(word, sizeof word, "%.*s", (int)strcspn(argument, "="), argument);
    else snprintf(word, sizeof word, "-%c", optopt);
    return rd_cli_unknown(who, "option", word, candidates, count);
}

int rd_option_no_words(const char *who, int argc, char **argv)
{
    if (optind >= argc) return 0;
    fprintf(stderr, "%s: '%s' is not an option, and there is nothing else to say; see %s --help\n", who, argv[optind],
            who);
    return RD_EXIT_USAGE;
}

int rd_option_number(const char *who, const char *option, const char *text, int least, int most, int *value)
{
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (errno || end == text || *end || number < least || number > most) {
        fprintf(stderr, "%s: %s '%s': must be a whole number from %d to %d\n", who, option, text, least, most);
        return RD_EXIT_USAGE;
    }
    *value = (int)number;
    return 0;
}

int rd_option_numbers(const char *who, const char *option, const char *text, int least, int most, int most_numbers,
                      int *values, int *count)
{
    char words[256], *rest = words, *word;
    snprintf(words, sizeof words, "%s", text);
    for (*count = 0; (word = strsep(&rest, ","));) {
        if (*count == most_numbers) {
            fprintf(stderr, "%s: %s '%s': at most %d numbers\n", who, option, text, most_numbers);
            return RD_EXIT_USAGE;
        }
        int status = rd_option_number(who, option, word, least, most, &values[(*count)++]);
        if (status) return status;
    }
    return 0;
}

int rd_option_choice(const char *who, const char *option, const char *text, const char *choices, int *value)
{
    int at = 0;
    for (const char *word = choices; *word; at++) {
        size_t length = strcspn(word, "|");
        if (strlen(text) == length && strncmp(text, word, length) == 0) {
            *value = at;
            return 0;
        }
        word += length + (word[length] == '|');
    }
    fprintf(stderr, "%s: %s '%s': must be one of %s\n", who, option, text, choices);
    return RD_EXIT_USAGE;
}
