/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "cli/run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void rd_say(rd_sink *err, const char *format, ...)
{
    char line[1024];
    int head = snprintf(line, sizeof line, "rondo run: ");
    va_list arguments;
    va_start(arguments, format);
    int body = vsnprintf(line + head, sizeof line - (size_t)head - 1, format, arguments);
    va_end(arguments);
    size_t bytes = (size_t)head + (body < 0 ? 0 : (size_t)body);
    if (bytes > sizeof line - 2) bytes = sizeof line - 2;
    line[bytes++] = '\n';
    rd_sink_put(err, line, bytes);
    rd_sink_flush(err);
}

const char *rd_signal_name(int number, char *text, size_t bytes)
{
    const char *name = sigabbrev_np(number);
    if (name) snprintf(text, bytes, "SIG%s", name);
    else snprintf(text, bytes, "signal %d", number);
    return text;
}

/* The last `lines` lines of a tail; a first one that is cut off is left out. */
static size_t last_lines(const rd_tail *tail, int lines)
{
    size_t from = tail->length;
    while (from > 0) {
        if (tail->data[from - 1] == '\n' && from < tail->length && --lines == 0) break;
        from--;
    }
    if (from > 0 || tail->length < sizeof tail->data) return from;
    const char *end = memchr(tail->data, '\n', tail->length - 1);
    return end ? (size_t)(end - tail->data) + 1 : 0;
}

static void say_tail(rd_sink *err, const rd_tail *tail)
{
    static const char margin[] = "rondo run:   | ";
    for (size_t from = last_lines(tail, 10), bytes; from < tail->length; from += bytes) {
        const char *end = memchr(tail->data + from, '\n', tail->length - from);
        bytes = end ? (size_t)(end - tail->data) + 1 - from : tail->length - from;
        rd_sink_put(err, margin, sizeof margin - 1);
        rd_sink_put(err, tail->data + from, bytes);
        if (!end) rd_sink_put(err, "\n", 1);
    }
}

/* "exited with status 3 after 0.20 s" */
static void describe_end(const rd_worker *worker, char *text, size_t bytes)
{
    const siginfo_t *how = &worker->how;
    double seconds = (double)(worker->ended - worker->started) * 1e-9;
    char name[32];
    if (how->si_code == CLD_EXITED)
        snprintf(text, bytes, "exited with status %d after %.2f s", how->si_status, seconds);
    else
        snprintf(text, bytes, "was killed by %s (%s%s) after %.2f s",
                 rd_signal_name(how->si_status, name, sizeof name), strsignal(how->si_status),
                 how->si_code == CLD_DUMPED ? ", core dumped" : "", seconds);
}

void rd_report_failure(rd_sink *err, const rd_worker *worker, bool above)
{
    char what[128];
    describe_end(worker, what, sizeof what);
    rd_say(err, "rank %d (pid %d) was the first to fail: it %s%s", worker->rank, (int)worker->pid, what,
           !worker->tail.length ? ", having printed nothing"
           : above              ? "; its last lines are above"
                                : "; its last lines:");
    if (!above) say_tail(err, &worker->tail);
    rd_sink_flush(err);
}

void rd_report_loss(rd_sink *err, const rd_worker *worker)
{
    char what[128];
    describe_end(worker, what, sizeof what);
    rd_say(err, "rank %d (pid %d) %s; the others go on", worker->rank, (int)worker->pid, what);
}

int rd_report_survivors(rd_sink *err, const rd_worker *workers, int count)
{
    int failed = 0, killed = 0, status = 0;
    char what[128];
    for (int i = 0; i < count; i++) {
        const siginfo_t *how = &workers[i].how;
        bool exited = how->si_code == CLD_EXITED;
        failed += !exited || how->si_status;
        killed += !exited;
        if (exited && how->si_status > status) status = how->si_status;
    }
    if (failed) rd_say(err, "%d of %d rank%s failed:", failed, count, count == 1 ? "" : "s");
    for (int i = 0; i < count; i++) {
        if (workers[i].how.si_code == CLD_EXITED && !workers[i].how.si_status) continue;
        describe_end(&workers[i], what, sizeof what);
        rd_say(err, "  rank %d (pid %d) %s", workers[i].rank, (int)workers[i].pid, what);
    }
    if (killed < count) return status;
    const rd_worker *first = workers;
    for (int i = 1; i < count; i++)
        if (workers[i].ended < first->ended) first = &workers[i];
    return 128 + first->how.si_status;
}
