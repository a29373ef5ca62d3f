/* SPDX-License-Identifier: Apache-2.0
 *
 * tables8.h - tables by which two float8 are added, or averaged, 64 at a time and without widening (sum8.h).
 *
 * A magnitude is nearly a logarithm: `unit` more (the smallest normal one: 8 in e4m3, 4 in e5m2) is twice the number.
 * So the sum of a larger number M and a smaller m is M's logarithm and something that depends on M's last bits, on how
 * far m's logarithm lies below, and on whether the signs differ. Where M's last place is 1, and its significand 8 to 15
 * or 4 to 7, four times the sum is taken in whole numbers, and what is left of it in 256ths. There are few enough of
 * the former for a table that says how far the result lies below M, and beyond which rest it is one more; a quotient of
 * the sum takes but other entries of the same table. All are less than 128 bytes, which AVX-512 VBMI looks up at once.
 */
#ifndef RD_REDUCE_TABLES8_H
#define RD_REDUCE_TABLES8_H

#include "rondo.h"

#include <stdint.h>

#define RD_LOG_OF_ONE   64  /* of the smallest number above 0, whose logarithm is 0: far below all others */
#define RD_LOG_OF_NONE  255 /* infinities and NaN */
#define RD_LOG_LEAST    16  /* what looks like a result below this is 0 */
#define RD_MOST_DIVISOR 16

struct rd_tables8 {
    /* By a magnitude: its logarithm, of subnormal ones as if there were more exponents. */
    _Alignas(64) uint8_t log[128];
    /* By (log M | unit - 1) - log m, at most 63: four times m, and from 64 on four times -m. */
    uint8_t whole[128], rest[128];
    /* By four times the sum: log M | unit - 1 less this is the result's logarithm less `unit`; one more, where the rest
     * is above that. */
    uint8_t below[128], above[128];
    /* By the result's logarithm less `unit`. */
    uint8_t magnitude[128];
    /* By the last bits of log M: four times M. */
    uint8_t first[64];
};

/* For sums of two numbers of a float8 type divided by `divisor`. NULL: for this one the tables are not fine enough. */
const struct rd_tables8 *rd_tables8_of(rondo_dtype type, int divisor);

#endif
