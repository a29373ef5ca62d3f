/* SPDX-License-Identifier: Apache-2.0
 *
 * hash.h - hashes, random bytes and their text, over libsodium.
 */
#ifndef RD_BASE_HASH_H
#define RD_BASE_HASH_H

#include <stddef.h>

/* BLAKE2b of data, out_bytes (16 to 64) long. `label` says what the hash is for: another label, another hash. */
void rd_hash(void *out, size_t out_bytes, const char *label, const void *data, size_t bytes);
void rd_random(void *out, size_t bytes);
/* 2 * bytes lower-case hexadecimal digits and an end. */
void rd_hex(char *text, const void *data, size_t bytes);

#endif
