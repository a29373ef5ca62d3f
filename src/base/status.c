/* SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"

#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char last_error[RD_ERROR_BYTES];

static void set_error(const char *format, va_list arguments)
{
    char text[RD_ERROR_BYTES]; /* the arguments may point into last_error */
    vsnprintf(text, sizeof text, format, arguments);
    memcpy(last_error, text, sizeof text);
}

rondo_result rd_fail(rondo_result result, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    set_error(format, arguments);
    va_end(arguments);
    /* TRACE: much that fails inside is tried again, and what is not, the caller is told. */
    rd_log(RD_LOG_TRACE, "%s: %s", rondo_result_string(result), last_error);
    return result;
}

rondo_result rd_fail_errno(const char *format, ...)
{
    int error = errno;
    va_list arguments;
    va_start(arguments, format);
    set_error(format, arguments);
    va_end(arguments);
    rd_fail(RONDO_SYSTEM_ERROR, "%s: %s%s", last_error, strerror(error), rd_errno_remedy(error));
    errno = error;
    return RONDO_SYSTEM_ERROR;
}

const char *rd_errno_remedy(int error)
{
    return error == EMFILE ? "; raise this process's limit on open descriptors (ulimit -n)" : "";
}

const char *rd_last_error(void) { return last_error; }

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
