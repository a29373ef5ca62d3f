/* SPDX-License-Identifier: Apache-2.0
 *
 * test_record.h - what the tests of flight records share: `rondo doctor`, which lies beside their binary, and a
 * directory that RONDO_RECORD names.
 */
#ifndef RONDO_TEST_RECORD_H
#define RONDO_TEST_RECORD_H

#include "ranks.h"
#include "test.h"

#include "rondo_record.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OUTPUT = 1 << 16 };

static char directory[64], tool[512];

/* ---- The tool ---- */

/* Its exit status; what it says, on both channels. */
static inline int doctor(const char *arguments, char output[OUTPUT])
{
    char command[1024];
    size_t got = 0;
    snprintf(command, sizeof command, "timeout -k 1 60 %s doctor %s 2>&1", tool, arguments);
    FILE *from = popen(command, "r");
    assert_non_null(from);
    for (size_t more; (more = fread(output + got, 1, OUTPUT - 1 - got, from)) > 0;) got += more;
    output[got] = '\0';
    int status = pclose(from);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static inline void expect(const char *output, const char *text)
{
    if (!strstr(output, text)) fail_msg("nothing says '%s' in:\n%s", text, output);
}

/* The same of JSON, however it is laid out; text has no blanks. */
static inline void expect_json(const char *output, const char *text)
{
    char squeezed[OUTPUT], *to = squeezed;
    for (const char *at = output; *at; at++)
        if (*at != ' ' && *at != '\n') *to++ = *at;
    *to = '\0';
    if (!strstr(squeezed, text)) fail_msg("nothing says '%s' in:\n%s", text, output);
}

/* The verdict is the first line. */
static inline void expect_first(const char *output, const char *text)
{
    const char *at = strstr(output, text), *end = strchr(output, '\n');
    if (!at || at > end) fail_msg("the first line does not say '%s':\n%s", text, output);
}

static inline void merge(const char *more, int expected, char output[OUTPUT])
{
    char arguments[256];
    snprintf(arguments, sizeof arguments, "--merge %s %s", directory, more);
    int status = doctor(arguments, output);
    if (status != expected) fail_msg("status %d, expected %d:\n%s", status, expected, output);
}

/* ---- Its directory ---- */

static inline void clear(void)
{
    char path[512];
    DIR *all = opendir(directory);
    for (struct dirent *entry; all && (entry = readdir(all));) {
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        if (entry->d_name[0] != '.') unlink(path);
    }
    if (all) closedir(all);
}

static inline int count_records(void)
{
    int count = 0;
    DIR *all = opendir(directory);
    for (struct dirent *entry; all && (entry = readdir(all));) count += strstr(entry->d_name, ".rec") != NULL;
    if (all) closedir(all);
    return count;
}

static inline int set_up(void **state)
{
    char *slash;
    (void)state;
    alarm(240);
    snprintf(directory, sizeof directory, "/tmp/rondo-record-XXXXXX");
    ssize_t length = readlink("/proc/self/exe", tool, sizeof tool - 16);
    if (length < 0 || !mkdtemp(directory)) return -1;
    tool[length] = '\0';
    for (int up = 0; up < 2 && (slash = strrchr(tool, '/')); up++) *slash = '\0';
    strcat(tool, "/rondo");
    test_env("RONDO_RECORD", directory);
    return access(tool, X_OK);
}

static inline int tear_down(void **state)
{
    (void)state;
    clear();
    return rmdir(directory);
}

static inline int each(void **state)
{
    (void)state;
    clear();
    return 0;
}

#endif
