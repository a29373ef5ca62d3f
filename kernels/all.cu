/* SPDX-License-Identifier: Apache-2.0
 *
 * all.cu - all kernels, for one image in the library.
 */
#include "peers.cu"
#include "reduce.cu"
#include "ring.cu"
