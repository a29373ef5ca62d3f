/* SPDX-License-Identifier: Apache-2.0 */
#include "reduce/tables8.h"

#include "base/process.h"

#include <pthread.h>
#include <stdbool.h>

/* n / d, to nearest, ties to even. */
static int nearest(int64_t n, int64_t d)
{
    int64_t whole = n / d, rest = n % d;
    return (int)(whole + (2 * rest > d || (2 * rest == d && whole % 2 != 0)));
}

/* Of n / d, rounded to a significand below 2 * unit. That of `unit` is `unit`. */
static int log_of(int64_t n, int64_t d, int unit)
{
    int exponent = 0;
    for (; n >= 2 * unit * d; exponent++) d *= 2;
    for (; n < unit * d; exponent--) n *= 2;
    return exponent * unit + nearest(n, d);
}

/* The magnitude of a logarithm: it itself for normal numbers, below them a multiple of the smallest number. */
static int magnitude_of(int log, int unit)
{
    if (log >= unit) return log;
    int exponents = 0;
    for (; log < unit; exponents++) log += unit;
    return nearest(log, (int64_t)1 << exponents);
}

/* Four times m, or -m, for each distance. The last one is also that of all smaller m, 0 among them, and adds nothing.
 */
static void fill_terms(struct rd_tables8 *tables, int unit, bool minus)
{
    for (int distance = 0; distance < 63; distance++) {
        int64_t significand = 2 * unit - 1 - distance % unit, term = (significand * 4 << 16) >> (distance / unit);
        if (minus) term = -term;
        int at = distance + (minus ? 64 : 0);
        tables->whole[at] = (uint8_t)(term >> 16);
        tables->rest[at] = (uint8_t)(term >> 8);
    }
}

static void fill_results(struct rd_tables8 *tables, int unit, int divisor)
{
    tables->below[0] = tables->above[0] = 255;
    for (int sum = 1; sum < 128; sum++) {
        int log = log_of(sum, 4 * divisor, unit), rest = 1;
        while (rest < 256 && log_of(sum * 256 + rest, 4 * 256 * divisor, unit) == log) rest++;
        tables->below[sum] = (uint8_t)(3 * unit - 1 - log);
        tables->above[sum] = (uint8_t)(rest - 1);
    }
}

/* Whether the last distance's m, and so every smaller one, makes no difference to any M. */
static bool fine_enough(int unit, int divisor)
{
    int64_t scale = (int64_t)1 << (64 / unit - 1);
    for (int m = unit; m < 2 * unit; m++) {
        int log = log_of(m, divisor, unit);
        if (log_of(m * scale - unit, scale * divisor, unit) != log) return false;
        if (log_of(m * scale + unit, scale * divisor, unit) != log) return false;
    }
    return true;
}

static void fill(struct rd_tables8 *tables, int unit, int largest, int divisor)
{
    int one = log_of(1, 1, unit) - RD_LOG_OF_ONE;
    for (int i = 1; i < 128; i++) {
        int log = (i < unit ? log_of(i, 1, unit) : i) - one;
        tables->log[i] = (uint8_t)(i > largest ? RD_LOG_OF_NONE : log);
    }
    for (int i = 0; i < 128; i++) tables->magnitude[i] = (uint8_t)magnitude_of(i + unit + one, unit);
    for (int i = 0; i < 64; i++) tables->first[i] = (uint8_t)(4 * (unit + i % unit));
    fill_terms(tables, unit, false);
    fill_terms(tables, unit, true);
    fill_results(tables, unit, divisor);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
RD_HOLD_AT_FORK(lock)

const struct rd_tables8 *rd_tables8_of(rondo_dtype type, int divisor)
{
    static struct rd_tables8 tables[2][RD_MOST_DIVISOR];
    bool e4m3 = type == RONDO_FLOAT8E4M3;
    int unit = e4m3 ? 8 : 4, largest = e4m3 ? 0x7e : 0x7b;
    if (divisor > RD_MOST_DIVISOR || !fine_enough(unit, divisor)) return NULL;
    struct rd_tables8 *found = &tables[e4m3][divisor - 1];
    pthread_mutex_lock(&lock);
    if (found->first[0] == 0) fill(found, unit, largest, divisor);
    pthread_mutex_unlock(&lock);
    return found;
}
