/* SPDX-License-Identifier: Apache-2.0
 *
 * hot.h - hints to the compiler, for what every call goes through.
 */
#ifndef RD_BASE_HOT_H
#define RD_BASE_HOT_H

/* Part of its callers, each of which then needs only what is its own. */
#define RD_HOT static inline __attribute__((always_inline))

/* Not part of its caller, whose usual way would have to save registers for it. */
#define RD_APART static __attribute__((noinline))

#endif
