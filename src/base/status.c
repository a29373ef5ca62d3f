/* SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"

#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of each thread that had something to say, on the heap: with the texts themselves in thread-local storage no process
 * could dlopen this library, since other variables there are read on every call and so must be where the loader puts
 * little. */
struct texts {
    char last[RD_ERROR_BYTES], kept[RD_ERROR_BYTES];
};
static _Thread_local struct texts *mine;
static struct texts without_memory; /* for all threads that get none */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t at_exit;

static void make_key(void) { pthread_key_create(&at_exit, free); }

static struct texts *texts(void)
{
    if (mine) return mine;
    pthread_once(&once, make_key);
    struct texts *made = calloc(1, sizeof *made);
    if (made && pthread_setspecific(at_exit, made)) {
        free(made);
        made = NULL;
    }
    return made ? (mine = made) : &without_memory;
}

static const char *set_error(const char *format, va_list arguments)
{
    char text[RD_ERROR_BYTES]; /* the arguments may point into the last one */
    vsnprintf(text, sizeof text, format, arguments);
    return memcpy(texts()->last, text, sizeof text);
}

rondo_result rd_fail(rondo_result result, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const char *text = set_error(format, arguments);
    va_end(arguments);
    /* TRACE: much that fails inside is tried again, and what is not, the caller is told. */
    rd_log(RD_LOG_TRACE, "%s: %s", rondo_result_string(result), text);
    return result;
}

rondo_result rd_fail_errno(const char *format, ...)
{
    int error = errno;
    va_list arguments;
    va_start(arguments, format);
    const char *text = set_error(format, arguments);
    va_end(arguments);
    rd_fail(RONDO_SYSTEM_ERROR, "%s: %s%s", text, strerror(error), rd_errno_remedy(error));
    errno = error;
    return RONDO_SYSTEM_ERROR;
}

const char *rd_errno_remedy(int error)
{
    return error == EMFILE ? "; raise this process's limit on open descriptors (ulimit -n)" : "";
}

const char *rd_last_error(void) { return mine ? mine->last : ""; }

char *rd_kept_text(const char *text)
{
    char *kept = texts()->kept;
    snprintf(kept, RD_ERROR_BYTES, "%s", text);
    return kept;
}

const char *rondo_result_string(rondo_result result)
{
    switch (result) {
#define RD_RESULT_CASE(name, value, text) \
    case RONDO_##name: return text;
        RONDO_RESULT_MAP(RD_RESULT_CASE)
#undef RD_RESULT_CASE
    }
    return "unknown result";
}
