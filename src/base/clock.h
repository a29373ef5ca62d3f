/* SPDX-License-Identifier: Apache-2.0
 *
 * clock.h - monotonic time in nanoseconds, and deadlines.
 */
#ifndef RD_BASE_CLOCK_H
#define RD_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t rd_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A cheap clock for records: runs evenly, in a unit of its own. */
static inline uint64_t rd_ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return (uint64_t)rd_now();
#endif
}

static inline int64_t rd_deadline(double seconds)
{
    return seconds > 4e9 ? INT64_MAX : rd_now() + (int64_t)(seconds * 1e9);
}

/* Milliseconds until then for poll(2): rounded up, 0 when past, at most an hour. */
static inline int rd_until_ms(int64_t deadline)
{
    int64_t left = deadline - rd_now();
    return left <= 0 ? 0 : left > 3600000000000 ? 3600000 : (int)((left + 999999) / 1000000);
}

#endif
