/* SPDX-License-Identifier: Apache-2.0 */
#include "reduce/constants.h"

#define RD_ALL8(value)  {[0 ... 63] = (value)}
#define RD_ALL16(value) {[0 ... 31] = (value)}
#define RD_ALL32(value) {[0 ... 15] = (value)}

const struct rd_constants rd_constants = {
    .one8 = RD_ALL8(1),
    .magnitude8 = RD_ALL8(0x7f),
    .sign8 = RD_ALL8(0x80),
    .one16 = RD_ALL16(1),
    .near16 = RD_ALL16(15),
    .upper32 = RD_ALL32(0xffff0000),
    .magnitude32 = RD_ALL32(0x7fffffff),
    .last_bits32 = RD_ALL32(31),
};
const struct rd_constants8 rd_constants_e4m3 = {
    .largest = RD_ALL8(0x7e),
    .unit = RD_ALL8(8),
    .factor = RD_ALL16(1 << 4),
    .keep = RD_ALL16(0x8000 | 0x7f << 4),
};
const struct rd_constants8 rd_constants_e5m2 = {
    .largest = RD_ALL8(0x7b),
    .unit = RD_ALL8(4),
    .factor = RD_ALL16(1 << 5),
    .keep = RD_ALL16(0x8000 | 0x7f << 5),
};
