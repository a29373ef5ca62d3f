/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_world.h - a world (world.h) whose ranks are on GPUs: rank r on device r % GPU_DEVICES.
 */
#ifndef RONDO_TEST_GPU_WORLD_H
#define RONDO_TEST_GPU_WORLD_H

#include "reduce/device.h"
#include "world.h"

enum { GPU_RANKS = 8, GPU_DEVICES = 4 };

extern rd_device *gpu_devices[GPU_RANKS]; /* by rank, while a world is open */
/* What the engines of each so-manieth rank can do, from the next operation on; 0: all can do everything. */
extern int gpu_plain_every;
extern struct rd_engine_ops gpu_plain;

int gpu_device_of(int rank);

/* The options' devices, engines and transport are set here: cuda_ipc, or, within, links of one process as if their slots
 * were in GPU memory, which both ends see at the same addresses: the thread sanitizer needs that to see what orders what. */
void gpu_world_open(world *w, world_options options, bool within);
void gpu_world_close(world *w);

#endif
