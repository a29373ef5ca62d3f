/* SPDX-License-Identifier: Apache-2.0
 *
 * internal.h - what the files of src/boot know of one another.
 */
#ifndef RD_BOOT_INTERNAL_H
#define RD_BOOT_INTERNAL_H

#include "base/sock.h"
#include "boot/boot.h"

#define RD_UNIX_NAME 40
#define RD_LARGEST_WORLD 65536

/* ---- Names and numbers (job.c) ---- */

/* The abstract socket of a process (without "unix:"), from its token: random, one per process. A name that cannot be
 * guessed and fits everywhere: "rondo-" and 32 hexadecimal digits. */
void rd_process_unix_name(const unsigned char token[16], char name[RD_UNIX_NAME]);

/* How many communicators of this job and rank this process has begun before. Counts. */
rondo_result rd_job_count(const unsigned char id[16], int rank, uint32_t *number);

/* What a unique id holds. 128 bytes, little-endian:
 *     0   4  "rndo"
 *     4   2  version of this layout, 1
 *     6   2  TCP port of the process that made it
 *     8  16  job id, random
 *    24  32  key, random
 *    56  16  token of the process that made it: its abstract socket
 *    72   1  number of addresses
 *    73   1  flags: 1: made from an address, alike in all processes; rank 0 listens there
 *    74  50  addresses, best first: a byte 4 or 6, then 4 or 16 bytes; zero after the last
 *   124   4  hash of all before it, so that an id that was cut or garbled on its way says so */
#define RD_ID_ADDRESSES 10

struct rd_id_parts {
    unsigned char job[16], key[32], token[16];
    int port, addresses;
    bool at_address; /* no token, and no key: that is the environment's */
    rd_address address[RD_ID_ADDRESSES];
};

/* Of the addresses, as many as fit. */
void rd_id_encode(rondo_unique_id *id, const struct rd_id_parts *parts);
rondo_result rd_id_decode(struct rd_id_parts *parts, const rondo_unique_id *id);

/* ---- Keys (key.c) ---- */

/* The job's key from RONDO_KEY_FILE, else from RONDO_KEY, else none (an error with RONDO_REQUIRE_KEY). */
rondo_result rd_key_read(const rd_settings *settings, unsigned char key[32], bool *has_key);

/* ---- The service thread ---- */

/* The service thread (started if need be) serves the table of this job while the process lives: over TCP at
 * *tcp_port (settings->port where set) and over the abstract socket that token names. world 0: known with the first
 * that joins. */
rondo_result rd_service_serve_job(const unsigned char id[16], const unsigned char key[32], bool has_key, int world,
                                  const rd_settings *settings, int *tcp_port, unsigned char token[16]);

#endif
