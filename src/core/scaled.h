/* SPDX-License-Identifier: Apache-2.0
 *
 * scaled.h - operators made at run time.
 */
#ifndef RD_CORE_SCALED_H
#define RD_CORE_SCALED_H

#include "core/comm.h"

/* A checked call whose operator is none of the built-in ones: names it by call->scaled, with the operator RONDO_OPS, and
 * keeps the factor until rd_scaled_terms. (What never runs, having been refused later or because its communicator has
 * ended, keeps it until the communicator goes.) RONDO_INVALID_ARGUMENT: there is no such operator for this type. */
rondo_result rd_scaled_take(rondo_comm *comm, rd_call *call);
/* The sum that remains when this rank's terms have been scaled, or the GPU has been given the task to. By the task that runs. */
rondo_result rd_scaled_terms(rondo_comm *comm, const rd_call *call, rd_call *sum);
void rd_scaled_forget(rondo_comm *comm);

#endif
