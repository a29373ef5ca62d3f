/* SPDX-License-Identifier: Apache-2.0
 *
 * internal.h - what the files of src/boot know of one another.
 */
#ifndef RD_BOOT_INTERNAL_H
#define RD_BOOT_INTERNAL_H

#include "boot/boot.h"

#define RD_UNIX_NAME 40

/* The abstract socket of a process (without "unix:"), from its token: random, one per process. A name that cannot be
 * guessed and fits everywhere: "rondo-" and 32 hexadecimal digits. */
void rd_process_unix_name(const unsigned char token[16], char name[RD_UNIX_NAME]);

/* The service thread (started if need be) serves the table of this job while the process lives: over TCP at *tcp_port
 * (settings->port where set) and over the abstract socket that token names. world 0: known with the first that joins. */
rondo_result rd_service_serve_job(const unsigned char id[16], const unsigned char key[32], bool has_key, int world,
                                  const rd_settings *settings, int *tcp_port, unsigned char token[16]);

#endif
