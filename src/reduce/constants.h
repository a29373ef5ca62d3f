/* SPDX-License-Identifier: Apache-2.0
 *
 * constants.h - constants as whole vectors in memory, from where an instruction can take one as its operand. Those that
 * gcc knows and has no register left for it builds anew in every step: three instructions each.
 */
#ifndef RD_REDUCE_CONSTANTS_H
#define RD_REDUCE_CONSTANTS_H

#include <stdint.h>

#define RD_MOST_VECTOR_BYTES 64
#define RD_CONSTANT(type, name) _Alignas(RD_MOST_VECTOR_BYTES) type name[RD_MOST_VECTOR_BYTES / sizeof(type)]

struct rd_constants {
    RD_CONSTANT(uint8_t, one8);
    RD_CONSTANT(uint8_t, magnitude8);
    RD_CONSTANT(uint8_t, sign8);
    RD_CONSTANT(uint16_t, one16);
    RD_CONSTANT(uint16_t, near16); /* of float8.h: how much above the middle a quotient is the middle */
    RD_CONSTANT(uint32_t, upper32);
    RD_CONSTANT(uint32_t, magnitude32);
    RD_CONSTANT(uint32_t, last_bits32); /* of sums that are divided: float8.h */
};
extern const struct rd_constants rd_constants;

/* Of one float8 type: float8.h. */
struct rd_constants8 {
    RD_CONSTANT(uint8_t, largest);
    RD_CONSTANT(uint8_t, unit);    /* the smallest normal number */
    RD_CONSTANT(uint16_t, factor); /* to the aligned place */
    RD_CONSTANT(uint16_t, keep);   /* of 16 bits there: the sign and the magnitude */
};
extern const struct rd_constants8 rd_constants_e4m3, rd_constants_e5m2;

#endif
