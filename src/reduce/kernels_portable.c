/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels for every processor. Vectors of 16 bytes, which all 64-bit processors have.
 */
#define RD_VECTOR_BYTES 16
#define RD_KERNELS rd_kernels_portable
#include "reduce/kernels.h"
