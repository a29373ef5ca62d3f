/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include <sodium.h>
#include <string.h>

void rd_hash(void *out, size_t out_bytes, const char *label, const void *data, size_t bytes)
{
    /* The label goes in with its end, so that no choice of data makes two purposes meet. */
    crypto_generichash_state state;
    crypto_generichash_init(&state, NULL, 0, out_bytes);
    crypto_generichash_update(&state, (const unsigned char *)label, strlen(label) + 1);
    crypto_generichash_update(&state, data, bytes);
    crypto_generichash_final(&state, out, out_bytes);
}

void rd_random(void *out, size_t bytes)
{
    (void)!sodium_init(); /* makes the generator safe to share between threads; after the first call it does nothing */
    randombytes_buf(out, bytes);
}

void rd_hex(char *text, const void *data, size_t bytes)
{
    sodium_bin2hex(text, 2 * bytes + 1, data, bytes);
}
