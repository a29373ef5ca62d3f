/* SPDX-License-Identifier: Apache-2.0 */
#include "base/process.h"

#include <pthread.h>

static int generation;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void forked(void) { generation++; }
static void watch_forks(void) { pthread_atfork(0, 0, forked); }

int rd_generation(void)
{
    pthread_once(&once, watch_forks);
    return generation;
}
