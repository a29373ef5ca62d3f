/* SPDX-License-Identifier: Apache-2.0 */
#include "ddp/devices.h"

#include "base/clock.h"
#include "base/status.h"
#include "base/thread.h"

#include <errno.h>

static void *run(void *argument)
{
    rd_device *device = argument;
    rd_devices *all = device->all;
    uint64_t seen = 0;
    pthread_mutex_lock(&all->lock);
    for (;;) {
        while (all->round == seen) pthread_cond_wait(&all->begin, &all->lock);
        seen = all->round;
        if (!all->work) break;
        if (device->number >= all->serving) continue;
        pthread_mutex_unlock(&all->lock);
        int64_t from = rd_now();
        all->work(device, all->context);
        device->busy_ns += rd_now() - from;
        pthread_mutex_lock(&all->lock);
        if (--all->running == 0) pthread_cond_signal(&all->end);
    }
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

rondo_result rd_devices_start(rd_devices *all, int count)
{
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->begin, NULL);
    pthread_cond_init(&all->end, NULL);
    all->count = count;
    for (int d = 0; d < count; d++) {
        rd_device *device = &all->device[d];
        device->number = d;
        device->all = all;
        if (d > 0 && (errno = rd_thread_start(&device->thread, "rondo-device", run, device)))
            return rd_fail_errno("rondo_data_parallel_create: no thread for device %d", d);
        device->started = d > 0;
    }
    return RONDO_SUCCESS;
}

static void begin(rd_devices *all, rd_round work, void *context)
{
    pthread_mutex_lock(&all->lock);
    all->work = work;
    all->context = context;
    all->serving = all->used; /* one that sleeps through a round must not see the next one's */
    all->running = all->serving - 1;
    all->round++;
    pthread_cond_broadcast(&all->begin);
    pthread_mutex_unlock(&all->lock);
}

int64_t rd_devices_run(rd_devices *all, rd_round work, void *context)
{
    begin(all, work, context);
    work(&all->device[0], context);
    int64_t from = rd_now();
    pthread_mutex_lock(&all->lock);
    while (all->running > 0) pthread_cond_wait(&all->end, &all->lock);
    pthread_mutex_unlock(&all->lock);
    return rd_now() - from;
}

void rd_devices_stop(rd_devices *all)
{
    begin(all, NULL, NULL);
    for (int d = 1; d < all->count; d++)
        if (all->device[d].started) pthread_join(all->device[d].thread, NULL);
    pthread_cond_destroy(&all->end);
    pthread_cond_destroy(&all->begin);
    pthread_mutex_destroy(&all->lock);
}
