/* SPDX-License-Identifier: Apache-2.0
 *
 * devices.h - "devices" of one process: a thread and memory for each, and rounds that all of them work in at the same
 * time.
 */
#ifndef RD_DDP_DEVICES_H
#define RD_DDP_DEVICES_H

#include "ddp/places.h"
#include "rondo_ddp.h"

#include <pthread.h>
#include <stdbool.h>

typedef struct rd_devices rd_devices;

typedef struct rd_device {
    int number;
    rd_place place;
    rondo_result failed; /* in the last round; its text is the device's thread's */
    char error[512];
    float *parameters, *gradient;            /* device 0: the caller's */
    float *input, *output, *output_gradient; /* room for `room` samples; device 0: unused */
    const float *rows;                       /* its part of the input */
    size_t samples, room;
    uint64_t held, in, out;
    int64_t busy_ns; /* of the last step */
    rd_devices *all;
    pthread_t thread;
    bool started;
} rd_device;

/* What a round is, on each device's thread. */
typedef void (*rd_round)(rd_device *device, void *context);

struct rd_devices {
    rd_device device[64];
    int count, used; /* used: those that have samples in this step */
    pthread_mutex_t lock;
    pthread_cond_t begin, end;
    uint64_t round;
    int serving, running; /* devices of this round: those that take part, and are not done */
    rd_round work; /* NULL: there won't be another */
    void *context;
};

/* Threads for devices 1 and up; the caller's is device 0's. */
rondo_result rd_devices_start(rd_devices *all, int count);
/* Runs `work` on all devices that are used, and returns when they are done. Nanoseconds that the caller waited for
 * them. */
int64_t rd_devices_run(rd_devices *all, rd_round work, void *context);
void rd_devices_stop(rd_devices *all);

#endif
