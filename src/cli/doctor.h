/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor.h - `rondo doctor`: what Rondo finds on this machine.
 *
 *   doctor.c         the command: runs the checks, prints what they found, and every setting
 *   doctor_links.c   shared memory, sleeping, sockets, network interfaces; an all-reduce over each
 *   doctor_rdma.c    RDMA devices: ports, addresses, which one would be used and why
 *   doctor_limits.c  limits of this process and machine, kernel, libraries
 *
 * What ranks called last is in flight.h.
 */
#ifndef RD_CLI_DOCTOR_H
#define RD_CLI_DOCTOR_H

#include "base/env.h"

#include <stdbool.h>

typedef enum rd_level {
    RD_LEVEL_OK,
    RD_LEVEL_INFO,    /* good to know; nothing depends on it */
    RD_LEVEL_WARNING, /* works, but not as it could, or not for long */
    RD_LEVEL_MISSING  /* Rondo needs it */
} rd_level;

typedef struct rd_finding {
    const char *section;
    char name[40];
    rd_level level;
    char text[600];
    char fix[160]; /* a command, or what to do; "": nothing */
} rd_finding;

typedef struct rd_findings {
    rd_finding list[96];
    int count;
} rd_findings;

/* fix (NULL: nothing can be done) counts only where the level says that something is wrong. */
void rd_find(rd_findings *findings, const char *section, const char *name, rd_level level, const char *fix,
             const char *format, ...) __attribute__((format(printf, 6, 7)));

void rd_doctor_links(rd_findings *findings, const rd_settings *settings);
void rd_doctor_rdma(rd_findings *findings, const rd_settings *settings);
void rd_doctor_self_test(rd_findings *findings);
/* settings: NULL when none can be in force. */
void rd_doctor_limits(rd_findings *findings, const rd_settings *settings);
void rd_doctor_kernel(rd_findings *findings);
void rd_doctor_libraries(rd_findings *findings);
void rd_doctor_gpus(rd_findings *findings, const rd_settings *settings);

#endif
