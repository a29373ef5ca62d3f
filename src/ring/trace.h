/* SPDX-License-Identifier: Apache-2.0
 *
 * trace.h - writing what the executor does to the file that RONDO_TRACE names (include/rondo_trace.h). Off, it costs
 * the executor one branch.
 */
#ifndef RD_RING_TRACE_H
#define RD_RING_TRACE_H

#include "rondo.h"
#include "rondo_plan.h"
#include "rondo_trace.h"

typedef struct rd_trace rd_trace;

/* RONDO_SYSTEM_ERROR: the file cannot be written. */
rondo_result rd_trace_open(rd_trace **trace, const char *file, int rank);
void rd_trace_close(rd_trace *trace);

/* Begin and end of a call; what is in between belongs to it. */
void rd_trace_call(rd_trace *trace, uint64_t call, const rondo_plan *plan, rondo_dtype dtype, rondo_op op, int channels);
void rd_trace_end(rd_trace *trace, rondo_result result);

/* One slice sent at `step`, or received. A slice that is passed on: both, one after the other. */
void rd_trace_sent(rd_trace *trace, int32_t number, const rondo_step *step, rondo_range part, size_t bytes, uint64_t slice,
                   int channel);
void rd_trace_received(rd_trace *trace, int32_t number, const rondo_step *step, rondo_range part, size_t bytes,
                       uint64_t slice, int channel);

#endif
