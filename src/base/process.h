/* SPDX-License-Identifier: Apache-2.0
 *
 * process.h - whether this is still the process that made something.
 */
#ifndef RD_BASE_PROCESS_H
#define RD_BASE_PROCESS_H

/* A number that differs between a process and its forked children. Costs a load. */
int rd_generation(void);

#endif
