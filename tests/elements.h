/* SPDX-License-Identifier: Apache-2.0
 *
 * elements.h - numbers in any of the 12 element types, and test data whose reductions are known. Shares no code with
 * the library: types are converted here by arithmetic on double, one element at a time.
 */
#ifndef RONDO_TEST_ELEMENTS_H
#define RONDO_TEST_ELEMENTS_H

#include "rondo.h"

#include <stdbool.h>
#include <stdint.h>

/* Stores x, rounded to nearest even; an integer type must be able to hold it. NaN and infinity go into floats that have
 * them. Needs the default rounding mode. */
void element_put(void *at, rondo_dtype type, double x);
double element_get(const void *at, rondo_dtype type);
double element_round(double x, rondo_dtype type); /* what get gives after put */

bool element_is_float(rondo_dtype type);
bool element_is_unsigned(rondo_dtype type);

/* The smallest number above zero, the largest finite one, and up to where every integer is held exactly (or is enough
 * for data, where the type holds more than double does). */
double element_smallest(rondo_dtype type);
double element_largest(rondo_dtype type);
double element_exact(rondo_dtype type);

/* Data. term: what `rank` of n holds in element i. result: op over all terms, in the type; no partial sum or product
 * leaves what float32 holds exactly, and sums and products are exact in the type itself. Different seeds give different
 * data. AVG is rounded as the library documents: integers toward zero, narrow types from the float32 quotient. */
double element_term(rondo_dtype type, rondo_op op, int rank, int n, uint64_t i, uint64_t seed);
double element_result(rondo_dtype type, rondo_op op, int n, uint64_t i, uint64_t seed);

#endif
