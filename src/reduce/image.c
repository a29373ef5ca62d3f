/* SPDX-License-Identifier: Apache-2.0
 *
 * image.c - the kernels for GPUs, as nvcc made them, inside the library.
 */
#include "reduce/image.h"

__asm__(".pushsection .rodata\n"
        ".balign 64\n"
        ".global rd_kernel_image, rd_kernel_image_end\n"
        ".hidden rd_kernel_image, rd_kernel_image_end\n"
        "rd_kernel_image:\n"
        ".incbin \"" RD_KERNEL_IMAGE "\"\n"
        "rd_kernel_image_end:\n"
        ".byte 0\n"
        ".popsection\n");
