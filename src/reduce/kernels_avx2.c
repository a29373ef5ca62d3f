/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels for AVX2, FMA and F16C; empty on other processors. The Makefile compiles this file with flags of its own.
 */
#ifdef __x86_64__
#ifndef __clang__ /* gcc would otherwise build constants anew in every step instead of keeping them, if in memory */
#pragma GCC optimize("ira-loop-pressure")
#endif
#define RD_VECTOR_BYTES 32
#define RD_KERNELS rd_kernels_avx2
#include "reduce/kernels.h"
#else
typedef int rd_no_avx2; /* C wants a declaration */
#endif
