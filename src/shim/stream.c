/* SPDX-License-Identifier: Apache-2.0
 *
 * stream.c - CUDA streams. Without a GPU there are none: NULL runs a call here, to its end.
 */
#include "shim/shim.h"

#include "base/gpu.h"

rondo_result rd_shim_stream(cudaStream_t stream, ncclComm_t comm, rondo_stream **on)
{
    (void)comm;
    *on = NULL;
    if (!stream) return RONDO_SUCCESS;
    return rd_fail(RONDO_INVALID_USAGE,
                   "stream is %p, but there are no CUDA streams here (no GPU: %s); with NULL the call runs on host memory, "
                   "to its end",
                   (void *)stream, rd_gpu_absent());
}

int rd_shim_current_device(void)
{
    return RONDO_DEVICE_AUTO;
}
