/* SPDX-License-Identifier: Apache-2.0
 *
 * image.h - the kernels for GPUs inside the library: from rd_kernel_image to rd_kernel_image_end, for the driver to load.
 */
#ifndef RD_REDUCE_IMAGE_H
#define RD_REDUCE_IMAGE_H

#include <stdbool.h>

extern const unsigned char rd_kernel_image[], rd_kernel_image_end[];

/* Without nvcc it is but a remark, for which only the simulated driver knows kernels. */
static inline bool rd_kernel_image_is_remark(void) { return rd_kernel_image[0] == '/'; }

#endif
