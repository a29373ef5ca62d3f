/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static _Atomic int wanted = RD_LOG_WARN;
static _Atomic int where = STDERR_FILENO;

void rd_log_set(enum rd_log_level level) { atomic_store_explicit(&wanted, (int)level, memory_order_relaxed); }

void rd_log_to(int fd) { atomic_store(&where, fd); }

int rd_log_wants(enum rd_log_level level)
{
    return (int)level <= atomic_load_explicit(&wanted, memory_order_relaxed);
}

void rd_log(enum rd_log_level level, const char *format, ...)
{
    static const char *const names[] = {"", " WARN", " INFO", " TRACE"};
    char line[2304];
    if (!rd_log_wants(level)) return;
    int head = snprintf(line, sizeof line, "rondo[%d]%s: ", (int)getpid(), names[level]);
    va_list arguments;
    va_start(arguments, format);
    int body = vsnprintf(line + head, sizeof line - (size_t)head - 1, format, arguments);
    va_end(arguments);
    size_t length = (size_t)head + (body < 0 ? 0 : (size_t)body);
    if (length > sizeof line - 2) length = sizeof line - 2;
    line[length++] = '\n';
    if (write(atomic_load(&where), line, length) < 0) return; /* nowhere to report it */
}
