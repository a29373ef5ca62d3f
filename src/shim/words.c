/* SPDX-License-Identifier: Apache-2.0
 *
 * words.c - the library's errors, for a reader who knows only NCCL: its names of functions and values, and of variables
 * those that he has set.
 */
#include "shim/shim.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

typedef struct pair {
    const char *ours, *theirs;
} pair;

/* What differs in more than its first letters, longer texts before parts of them. */
static const pair words[] = {
    {"; RONDO_DEVICE_HOST (-2) uses none", ""},
    {"use RONDO_DEVICE_AUTO (-1) or RONDO_DEVICE_HOST (-2), or RONDO_DEVICE=auto or host where that is set",
     "unset RONDO_DEVICE"},
    {"make one with config.device = ", "make one where this device is current: "},
    {"rondo_op_create_scaled_sum", "ncclRedOpCreatePreMulSum"},
    {"rondo_op_destroy", "ncclRedOpDestroy"},
    {"rondo_all_to_all", "ncclAlltoAll"},
    {"rondo_comm_error", "ncclCommGetAsyncError"},
    {"rondo_init_rank", "ncclCommInitRank"},
    {"rondo_init_all", "ncclCommInitAll"},
    {"rondo_init", "ncclCommInit"},
    {"rondo_deregister", "ncclCommDeregister"},
    {"rondo_register", "ncclCommRegister"},
    {"RONDO_INT8", "ncclInt8"},
    {"RONDO_FLOAT8E5M2", "ncclFloat8e5m2"},
    {"RONDO_SUM", "ncclSum"},
    {"RONDO_AVG", "ncclAvg"},
    {"RONDO_IN_PROGRESS", "ncclInProgress"},
    {"RONDO_NO_COLOR", "NCCL_SPLIT_NOCOLOR"},
};

static bool in_a_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Where the whole word stands, from `text` on; NULL: nowhere. */
static char *find_word(char *text, const char *word)
{
    size_t length = strlen(word);
    bool open = !in_a_name(word[length - 1]); /* a phrase: whatever follows */
    for (char *at = text; (at = strstr(at, word)); at++)
        if (open || !in_a_name(at[length])) return at;
    return NULL;
}

/* What no longer fits is cut at the end. */
static void replace(char text[RD_ERROR_BYTES], const char *ours, const char *theirs)
{
    char rest[RD_ERROR_BYTES];
    for (char *at = text; (at = find_word(at, ours)); at += strlen(theirs)) {
        size_t room = RD_ERROR_BYTES - (size_t)(at - text);
        snprintf(rest, sizeof rest, "%s", at + strlen(ours));
        snprintf(at, room, "%s%s", theirs, rest);
        if (strlen(theirs) >= room) return;
    }
}

/* rondo_all_reduce is ncclAllReduce. */
static void rename_functions(char *text)
{
    for (char *at = text; (at = strstr(at, "rondo_"));) {
        char *to = at + 4;
        memcpy(at, "nccl", 4);
        for (at += 5; *at == '_' || (*at >= 'a' && *at <= 'z'); at++)
            if (*at != '_') *to++ = at[-1] == '_' ? (char)(*at - 'a' + 'A') : *at;
        memmove(to, at, strlen(at) + 1);
        at = to;
    }
}

/* A variable of the same notation takes the other's place; of another that one's origin is said. */
static void rename_variables(char text[RD_ERROR_BYTES])
{
    const char *theirs, *ours, *value;
    for (int i = 0; (theirs = rd_shim_followed(&i, &ours, &value));) {
        size_t length = strlen(text);
        if (!find_word(text, ours) || strstr(text, theirs)) continue;
        if (!value)
            replace(text, ours, theirs);
        else
            snprintf(text + length, RD_ERROR_BYTES - length, " (%s: as %s=%s has it)", ours, theirs, value);
    }
}

void rd_shim_translate(char text[RD_ERROR_BYTES])
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) replace(text, words[i].ours, words[i].theirs);
    rename_functions(text);
    rename_variables(text);
}
