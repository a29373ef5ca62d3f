/* SPDX-License-Identifier: Apache-2.0
 *
 * status.h - how a failure is described. The first who knows says it, in words; the others pass the result on.
 */
#ifndef RD_BASE_STATUS_H
#define RD_BASE_STATUS_H

#include "rondo.h"

#define RD_ERROR_BYTES 2048

/* Sets this thread's last error to the formatted text (what, where, valid range, what to do) and returns `result`. */
rondo_result rd_fail(rondo_result result, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for a failed system call: appends ": <strerror(errno)>", and what to do where descriptors ran out; returns
 * RONDO_SYSTEM_ERROR. errno stays. */
rondo_result rd_fail_errno(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What to do about it, to be appended to its text; "" for most. */
const char *rd_errno_remedy(int error);

/* This thread's last error text, "" when there was none. */
const char *rd_last_error(void);
/* A copy that is the thread's until it keeps another. */
char *rd_kept_text(const char *text);

/* Passes a failure on to the caller. */
#define RD_TRY(call)                                    \
    do {                                                \
        rondo_result rd_try_ = (call);                  \
        if (rd_try_ != RONDO_SUCCESS) return rd_try_;   \
    } while (0)

#endif
