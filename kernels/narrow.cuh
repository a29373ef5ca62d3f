/* SPDX-License-Identifier: Apache-2.0
 *
 * narrow.cuh - floats of 16 and 8 bits by their bits: a sign, EXPONENT bits and FRACTION bits. Included by device.cuh,
 * and as plain as that: arithmetic on float32 and on integers.
 */
#ifndef RD_KERNELS_NARROW_CUH
#define RD_KERNELS_NARROW_CUH

template <int EXPONENT, int FRACTION> struct rd_narrow {
    static constexpr int bias = (1 << (EXPONENT - 1)) - 1;
    static constexpr uint32_t sign = 1u << (EXPONENT + FRACTION), infinity = ((1u << EXPONENT) - 1) << FRACTION;
};

/* What the bits say, those of infinities and NaN included, in a format that has them. The magnitude, put where a
 * float32 has it, lacks the difference of the two biases; where the exponent is 0 it counts in units of the smallest
 * number. */
template <int EXPONENT, int FRACTION> RD_DEVICE float rd_narrow_value(uint32_t bits)
{
    typedef rd_narrow<EXPONENT, FRACTION> narrow;
    uint32_t magnitude = bits & (narrow::sign - 1), word = magnitude << (23 - FRACTION);
    word += (uint32_t)(127 - narrow::bias) << 23;
    if (magnitude >= narrow::infinity) word += (uint32_t)(127 - narrow::bias) << 23;
    if (magnitude < 1u << FRACTION) {
        word += 1u << 23;
        word = rd_bits_as<uint32_t>(rd_bits_as<float>(word) - rd_bits_as<float>((uint32_t)(128 - narrow::bias) << 23));
    }
    return rd_bits_as<float>(word | (bits & narrow::sign) << (31 - EXPONENT - FRACTION));
}

/* The magnitude of what is no NaN, rounded to nearest even. Beyond infinity's where it is beyond the largest number.
 * Below the smallest normal number: added to the number whose last bit is worth the format's smallest one, it is
 * rounded there. */
template <int EXPONENT, int FRACTION> RD_DEVICE uint32_t rd_narrow_magnitude(float value)
{
    typedef rd_narrow<EXPONENT, FRACTION> narrow;
    const uint32_t grid = (uint32_t)(127 + 24 - narrow::bias - FRACTION) << 23;
    uint32_t word = rd_bits_as<uint32_t>(value) & 0x7fffffff;
    if (word < (uint32_t)(128 - narrow::bias) << 23)
        return rd_bits_as<uint32_t>(rd_bits_as<float>(word) + rd_bits_as<float>(grid)) - grid;
    uint32_t rounding = (1u << (22 - FRACTION)) - 1 + (word >> (23 - FRACTION) & 1);
    return ((word + rounding) >> (23 - FRACTION)) - ((uint32_t)(127 - narrow::bias) << FRACTION);
}

#endif
