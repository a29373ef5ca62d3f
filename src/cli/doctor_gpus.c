/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/doctor.h"

#include "base/gpu.h"
#include "base/status.h"

#include <stdio.h>

#define SECTION "gpus"

/* Whether a rank could use it: kernels that run there, memory, streams. */
static rondo_result try_gpu(int device)
{
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_unique_id id;
    rondo_comm *comm;
    config.device = device;
    config.timeout_s = 30;
    RD_TRY(rondo_get_unique_id(&id));
    RD_TRY(rondo_init_rank(&comm, 1, id, 0, &config));
    return rondo_comm_destroy(comm);
}

static void check_gpu(rd_findings *f, int device)
{
    struct rd_gpu_info info;
    char name[40];
    snprintf(name, sizeof name, "GPU %d", device);
    rondo_result result = rd_gpu_describe(device, &info);
    if (result == RONDO_SUCCESS) result = try_gpu(device);
    if (result != RONDO_SUCCESS) {
        rd_find(f, SECTION, name, RD_LEVEL_WARNING, "RONDO_DEVICE=host does without it", "%s", rd_last_error());
        return;
    }
    rd_find(f, SECTION, name, RD_LEVEL_OK, NULL, "%s at %s, sm_%d, %d multiprocessors, %.3g GiB; a rank can use it",
            info.name, info.pci, info.capability, info.multiprocessors, (double)info.memory_bytes / (1 << 30));
}

/* RONDO_DEVICE in the environment would win over what is asked for here. */
void rd_doctor_gpus(rd_findings *f, const rd_settings *settings)
{
    int version = 0;
    const char *why = rd_gpu_absent();
    rd_find(f, SECTION, "kernels", RD_LEVEL_INFO, NULL, "%s", RD_KERNELS_FOR);
    if (why) {
        rd_find(f, SECTION, "driver", RD_LEVEL_INFO, NULL, "no GPU: %s", why);
        return;
    }
    rd_gpu_driver()->cuDriverGetVersion(&version);
    rd_find(f, SECTION, "driver", RD_LEVEL_OK, NULL, "the driver is for CUDA %d.%d and earlier; it sees %d GPUs",
            version / 1000, version % 1000 / 10, rd_gpu_count());
    if (settings && settings->device != RONDO_DEVICE_AUTO) {
        rd_find(f, SECTION, "GPUs", RD_LEVEL_INFO, NULL, "not tried one by one, as RONDO_DEVICE is set");
        return;
    }
    for (int device = 0; device < rd_gpu_count(); device++) check_gpu(f, device);
}
