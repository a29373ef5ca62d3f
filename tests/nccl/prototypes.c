/* SPDX-License-Identifier: Apache-2.0
 *
 * prototypes.c - declares every call twice, as NVIDIA's nccl.h does and as ours: a compiler refuses two declarations
 * that differ. Compiled only.
 */
#include <nccl.h>

#define RONDO_NCCL_PROTOTYPES_ONLY
#include "compat/nccl.h"
