/* SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"
#include "boot/internal.h"

#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY_DIGITS 64

/* No message here holds what the key was read from: it goes to logs. */
static rondo_result parse_key(const char *from, const char *text, size_t length, unsigned char key[32])
{
    unsigned char bytes[32];
    size_t got = 0;
    rondo_result result = RONDO_SUCCESS;
    while (length && memchr(" \t\r\n", text[length - 1], 4)) length--;
    if (length != KEY_DIGITS || sodium_hex2bin(bytes, sizeof bytes, text, length, NULL, &got, NULL) ||
        got != sizeof bytes)
        result = rd_fail(RONDO_INVALID_ARGUMENT,
                         "%s holds no key: valid are %d hexadecimal digits (%zu characters were found); make one with: "
                         "openssl rand -hex 32",
                         from, KEY_DIGITS, length);
    else if (sodium_is_zero(bytes, sizeof bytes))
        result = rd_fail(RONDO_INVALID_ARGUMENT,
                         "%s holds a key of zeros, which anybody may guess; make one with: openssl rand -hex 32", from);
    else
        memcpy(key, bytes, sizeof bytes);
    sodium_memzero(bytes, sizeof bytes);
    return result;
}

static rondo_result check_file(const char *path, int fd)
{
    struct stat s;
    if (fstat(fd, &s)) return rd_fail_errno("RONDO_KEY_FILE=%s", path);
    if (!S_ISREG(s.st_mode)) return rd_fail(RONDO_INVALID_ARGUMENT, "RONDO_KEY_FILE=%s is not a regular file", path);
    if (s.st_uid != geteuid())
        return rd_fail(
            RONDO_INVALID_ARGUMENT,
            "RONDO_KEY_FILE=%s belongs to user %u, this process to %u; a key is its owner's alone: make your own copy",
            path, (unsigned)s.st_uid, (unsigned)geteuid());
    if (s.st_mode & 077)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "RONDO_KEY_FILE=%s has mode %04o, so that others can reach the key; run: chmod 600 %s", path,
                       (unsigned)(s.st_mode & 07777), path);
    return RONDO_SUCCESS;
}

static rondo_result read_file(const char *path, unsigned char key[32])
{
    char text[256], from[300];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe in its place must not hold us up */
    if (fd < 0) return rd_fail_errno("RONDO_KEY_FILE=%s", path);
    rondo_result result = check_file(path, fd);
    if (result == RONDO_SUCCESS) {
        ssize_t got = read(fd, text, sizeof text);
        snprintf(from, sizeof from, "RONDO_KEY_FILE=%s", path);
        result = got < 0 ? rd_fail_errno("reading %s", from) : parse_key(from, text, (size_t)got, key);
        sodium_memzero(text, sizeof text);
    }
    close(fd);
    return result;
}

rondo_result rd_key_read(const rd_settings *settings, unsigned char key[32], bool *has_key)
{
    if (settings->key_file)
        RD_TRY(read_file(settings->key_file, key));
    else if (settings->key)
        RD_TRY(parse_key("RONDO_KEY", settings->key, strlen(settings->key), key));
    else if (settings->require_key)
        return rd_fail(RONDO_INVALID_USAGE,
                       "RONDO_REQUIRE_KEY is set, but there is no key; put the same one on every host: (umask 077; "
                       "openssl rand -hex 32 >job.key), and RONDO_KEY_FILE=job.key");
    *has_key = settings->key_file || settings->key;
    return RONDO_SUCCESS;
}
