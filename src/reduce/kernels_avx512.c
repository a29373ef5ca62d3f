/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels for AVX-512 F, BW, DQ, VL and VBMI (Ice Lake, Zen 4 and later); empty on other processors. The Makefile
 * compiles this file with flags of its own. Processors without VBMI lower their clock for vectors of 64 bytes, and take
 * AVX2.
 */
#ifdef __x86_64__
#ifndef __clang__ /* 32 registers: gcc would otherwise count 16 and build constants anew in every step */
#pragma GCC optimize("ira-loop-pressure")
#endif
#define RD_VECTOR_BYTES 64
#define RD_KERNELS rd_kernels_avx512
#include "reduce/kernels.h"
#else
typedef int rd_no_avx512; /* C wants a declaration */
#endif
