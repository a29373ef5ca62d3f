/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu_world.h"

#include "test.h"

rd_device *gpu_devices[GPU_RANKS];
int gpu_plain_every;
struct rd_engine_ops gpu_plain;

static void *pinned[4 * GPU_RANKS * GPU_RANKS];
static int pinned_count;

int gpu_device_of(int rank)
{
    return rank % GPU_DEVICES;
}

static const rondo_transport *by_ipc(int from)
{
    (void)from;
    return &rd_transport_cuda_ipc;
}

static rd_engine *engine_of(int rank)
{
    rd_engine *engine = rd_device_engine(gpu_devices[rank]);
    engine->ops = gpu_plain_every && rank % gpu_plain_every == 0 ? &gpu_plain : &rd_device_engine_ops;
    return engine;
}

static rondo_link *as_on_gpu(rondo_link *link)
{
    void *base;
    size_t bytes;
    assert_true(rd_link_memory(link, &base, &bytes));
    assert_int_equal(rd_device_pin(gpu_devices[0], base, bytes), RONDO_SUCCESS);
    pinned[pinned_count++] = base;
    link->caps |= RONDO_LINK_DEVICE;
    return link;
}

void gpu_world_open(world *w, world_options options, bool within)
{
    for (int r = 0; r < options.n; r++)
        assert_int_equal(rd_device_open(&gpu_devices[r], gpu_device_of(r)), RONDO_SUCCESS);
    options.transport = within ? world_loop : by_ipc;
    options.wrap = within ? as_on_gpu : NULL;
    options.device = gpu_device_of;
    options.engine = engine_of;
    world_open(w, &options);
}

void gpu_world_close(world *w)
{
    int n = w->options.n;
    while (pinned_count) rd_device_unpin(pinned[--pinned_count]);
    world_close(w);
    for (int r = 0; r < n; r++) rd_device_close(gpu_devices[r]);
}
