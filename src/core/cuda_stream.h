/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_stream.h - a rondo_stream that stands in a CUDA stream: what it is given begins after what was on the CUDA
 * stream before it, and what comes on the CUDA stream after it waits for it.
 */
#ifndef RD_CORE_CUDA_STREAM_H
#define RD_CORE_CUDA_STREAM_H

#include "core/stream.h"

typedef struct rd_cuda_stream rd_cuda_stream;

/* handle: a CUstream or cudaStream_t; NULL is the legacy stream. comm: NULL, or who says which GPU. */
rondo_result rd_cuda_stream_open(rd_cuda_stream **stream, void *handle, const rondo_comm *comm);
/* After all that it was given is done. */
void rd_cuda_stream_close(rd_cuda_stream *stream);

/* Work number `number`, from 1, is about to be given. On failure nothing has changed. */
rondo_result rd_cuda_stream_order(rd_cuda_stream *stream, rondo_work *work, uint64_t number);
/* So many of them are done, well or not. */
void rd_cuda_stream_done(rd_cuda_stream *stream, uint64_t number);

#endif
