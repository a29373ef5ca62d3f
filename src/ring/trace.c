/* SPDX-License-Identifier: Apache-2.0 */
#include "ring/trace.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORDS 1024 /* written at a time; an append of this size is one piece in the file */

_Static_assert(sizeof(rondo_trace_record) == 64, "the record has no padding");

struct rd_trace {
    int fd;
    int rank;
    uint16_t comm;
    rondo_trace_record call; /* the one in progress */
    size_t count;
    rondo_trace_record record[RECORDS];
};

rondo_result rd_trace_open(rd_trace **out, const char *file, int rank)
{
    static _Atomic uint32_t comms;
    rd_trace *trace = calloc(1, sizeof *trace);
    if (!trace) return rd_fail_errno("no memory for a trace");
    trace->fd = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (trace->fd < 0) {
        rondo_result result = rd_fail_errno("RONDO_TRACE: cannot write to %s", file);
        free(trace);
        return result;
    }
    struct stat info;
    if (fstat(trace->fd, &info) || !S_ISREG(info.st_mode)) { /* a pipe could keep the executor waiting */
        close(trace->fd);
        free(trace);
        return rd_fail(RONDO_INVALID_ARGUMENT, "RONDO_TRACE: %s is not a regular file", file);
    }
    trace->rank = rank;
    trace->comm = (uint16_t)atomic_fetch_add(&comms, 1);
    *out = trace;
    return RONDO_SUCCESS;
}

/* A trace that cannot be written ends, and says so; the calls go on. */
static void flush(rd_trace *trace)
{
    size_t bytes = trace->count * sizeof trace->record[0];
    trace->count = 0;
    if (!bytes || trace->fd < 0) return;
    ssize_t written;
    do written = write(trace->fd, trace->record, bytes);
    while (written < 0 && errno == EINTR);
    if (written == (ssize_t)bytes) return;
    rd_log(RD_LOG_WARN, "rank %d: the trace ends here: %s", trace->rank, written < 0 ? strerror(errno) : "the disk is full");
    close(trace->fd);
    trace->fd = -1;
}

void rd_trace_close(rd_trace *trace)
{
    if (!trace) return;
    flush(trace);
    if (trace->fd >= 0) close(trace->fd);
    free(trace);
}

static void append(rd_trace *trace, const rondo_trace_record *record)
{
    rondo_trace_record *to = &trace->record[trace->count++];
    *to = *record;
    to->version = RONDO_TRACE_VERSION;
    to->comm = trace->comm;
    to->rank = trace->rank;
    to->call = trace->call.call;
    to->time_ns = (uint64_t)rd_now();
    if (trace->count == RECORDS) flush(trace);
}

void rd_trace_call(rd_trace *trace, uint64_t call, const rondo_plan *plan, rondo_dtype dtype, rondo_op op, int channels)
{
    trace->call = (rondo_trace_record){.kind = RONDO_TRACE_CALL, .call = call};
    trace->call.of.made = (rondo_trace_call){
        .count = plan->count, .collective = (uint16_t)plan->collective, .algo = (uint16_t)plan->algo,
        .dtype = (uint16_t)dtype, .op = (uint16_t)op, .size = plan->size, .root = plan->root,
        .position = plan->position, .channels = (uint16_t)channels,
    };
    append(trace, &trace->call);
}

/* A call's records are in the file when it returns. */
void rd_trace_end(rd_trace *trace, rondo_result result)
{
    trace->call.kind = RONDO_TRACE_END;
    trace->call.of.made.result = (uint16_t)result;
    append(trace, &trace->call);
    flush(trace);
}

static rondo_trace_record slice_record(rondo_trace_kind kind, int32_t number, rondo_range part, size_t bytes,
                                       uint64_t slice, int channel)
{
    rondo_trace_record record = {.kind = (uint8_t)kind};
    record.of.slice = (rondo_trace_slice){.step = number, .slice = (uint32_t)slice, .first = part.first,
                                          .count = (uint32_t)part.count, .bytes = (uint32_t)bytes,
                                          .channel = (uint16_t)channel};
    return record;
}

void rd_trace_sent(rd_trace *trace, int32_t number, const rondo_step *step, rondo_range part, size_t bytes, uint64_t slice,
                   int channel)
{
    rondo_trace_record record = slice_record(RONDO_TRACE_SEND, number, part, bytes, slice, channel);
    record.of.slice.peer = step->send_to;
    record.of.slice.chunk = step->send_chunk;
    record.of.slice.wide = step->send_wide;
    record.of.slice.own = step->send_own;
    append(trace, &record);
}

void rd_trace_received(rd_trace *trace, int32_t number, const rondo_step *step, rondo_range part, size_t bytes,
                       uint64_t slice, int channel)
{
    rondo_trace_record record = slice_record(RONDO_TRACE_RECEIVE, number, part, bytes, slice, channel);
    record.of.slice.peer = step->recv_from;
    record.of.slice.chunk = step->recv_chunk;
    record.of.slice.wide = step->recv_wide;
    record.of.slice.action = step->action;
    append(trace, &record);
}
