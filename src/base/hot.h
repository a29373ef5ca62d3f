/* SPDX-License-Identifier: Apache-2.0
 *
 * hot.h - hints to the compiler and the processor, for what every call goes through.
 */
#ifndef RD_BASE_HOT_H
#define RD_BASE_HOT_H

/* Part of its callers, each of which then needs only what is its own. */
#define RD_HOT static inline __attribute__((always_inline))

/* Not part of its caller, whose usual way would have to save registers for it. */
#define RD_APART static __attribute__((noinline))

/* Between two looks at what another thread will store. */
RD_HOT void rd_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* The line at an address will be written soon: the processor may fetch it now, away from whoever wrote it last, and go on
 * meanwhile. (The compilers' own hint becomes one for reading on x86, unless they may leave out processors that take this
 * one for nothing.) */
RD_HOT void rd_will_write(const void *at)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)at));
#else
    __builtin_prefetch(at, 1);
#endif
}

#endif
