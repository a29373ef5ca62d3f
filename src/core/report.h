/* SPDX-License-Identifier: Apache-2.0
 *
 * report.h - what ranks tell one another about their calls when one of them fails or is slow.
 */
#ifndef RD_CORE_REPORT_H
#define RD_CORE_REPORT_H

#include "core/comm.h"

/* What this rank does now, as it goes over the control plane; docs/wire.md has the bytes. */
void rd_report_pack(const rondo_comm *comm, unsigned char bytes[RD_REPORT_BYTES]);

typedef struct rd_report {
    bool called;            /* it has called anything collective */
    rondo_record_call call; /* the latest collective: no times but begun_ns and ended_ns, which are ages in ns here */
    bool passes;            /* it is inside a send or recv */
    rondo_record_call message; /* the latest such */
} rd_report;

/* false: these bytes are no report. */
bool rd_report_unpack(const unsigned char bytes[RD_REPORT_BYTES], rd_report *report);

#endif
