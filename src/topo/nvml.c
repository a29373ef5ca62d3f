/* SPDX-License-Identifier: Apache-2.0
 *
 * nvml.c - NVLinks as NVIDIA's management library knows them: of each link of each GPU whether it is up, what its other
 * end is, and its version, which gives the speed. The library comes with the driver; it is loaded when it is there, and
 * closed again. The few declarations of its that are needed are here.
 */
#include "base/status.h"
#include "topo/machine.h"

#include <dlfcn.h>
#include <stdlib.h>

enum { LINKS = 18, END_IS_SWITCH = 2 };

typedef struct nvml_device *nvml_device;

typedef struct nvml_pci {
    char legacy[16];
    unsigned domain, bus, device, ids, subsystem;
    char address[32]; /* "00000000:3B:00.0" */
} nvml_pci;

/* Each returns 0 on success. end_type is of newer libraries, the others are in all. */
typedef struct nvml {
    int (*init)(void), (*shutdown)(void);
    int (*by_address)(const char *address, nvml_device *device);
    int (*link_state)(nvml_device device, unsigned link, unsigned *active);
    int (*link_version)(nvml_device device, unsigned link, unsigned *version);
    int (*link_end)(nvml_device device, unsigned link, nvml_pci *end);
    int (*end_type)(nvml_device device, unsigned link, int *type);
} nvml;

/* One direction of a link, 10^6 bytes a second, by its version: 20, 25, 25, 25 and 50 GB/s. */
static uint64_t speed_of(unsigned version)
{
    if (version <= 1) return 20000;
    return version <= 4 ? 25000 : 50000;
}

static bool open_library(void *library, nvml *n)
{
    *(void **)&n->init = dlsym(library, "nvmlInit_v2");
    *(void **)&n->shutdown = dlsym(library, "nvmlShutdown");
    *(void **)&n->by_address = dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2");
    *(void **)&n->link_state = dlsym(library, "nvmlDeviceGetNvLinkState");
    *(void **)&n->link_version = dlsym(library, "nvmlDeviceGetNvLinkVersion");
    *(void **)&n->link_end = dlsym(library, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
    *(void **)&n->end_type = dlsym(library, "nvmlDeviceGetNvLinkRemoteDeviceType");
    return n->init && n->shutdown && n->by_address && n->link_state && n->link_version && n->link_end && n->init() == 0;
}

typedef struct links {
    uint64_t *between;   /* [a * gpus + b]: several links add up */
    uint64_t *to_switch; /* by GPU */
} links;

static void take_link(const nvml *n, rd_machine *machine, int a, nvml_device device, unsigned link, links *found)
{
    unsigned active = 0, version = 2;
    int type = -1;
    nvml_pci end = {.address = ""};
    uint32_t bus;
    if (n->link_state(device, link, &active) || !active || n->link_end(device, link, &end)) return;
    n->link_version(device, link, &version);
    end.address[sizeof end.address - 1] = '\0';
    rd_device_object *other = rd_bus_id_parse(&bus, end.address) ? rd_machine_gpu_on(machine, bus) : NULL;
    if (n->end_type && n->end_type(device, link, &type)) type = -1;
    if (other)
        found->between[a * machine->gpu_count + (other - machine->gpus)] += speed_of(version);
    else if (type == END_IS_SWITCH || type < 0)
        found->to_switch[a] += speed_of(version);
}

static rondo_result take_all(const nvml *n, rd_machine *machine, links *found)
{
    int gpus = machine->gpu_count;
    bool any = false;
    char address[16];
    for (int a = 0; a < gpus; a++) {
        nvml_device device;
        rd_bus_id_print(machine->gpus[a].seen.bus, address);
        if (n->by_address(address, &device)) continue;
        for (unsigned link = 0; link < LINKS; link++) take_link(n, machine, a, device, link, found);
        any = any || found->to_switch[a];
        for (int b = 0; b < gpus; b++) any = any || found->between[a * gpus + b];
    }
    if (!any) return RONDO_SUCCESS;
    RD_TRY(rd_fabric_room(machine));
    for (int i = 0; i < gpus * gpus; i++) rd_fabric_add(machine, i / gpus, i % gpus, RD_LINK_NVLINK, found->between[i]);
    rd_fabric_switch(machine, found->to_switch, found->to_switch);
    return RONDO_SUCCESS;
}

rondo_result rd_machine_attach_nvml(rd_machine *machine)
{
    size_t gpus = (size_t)machine->gpu_count;
    rondo_result result = RONDO_SUCCESS;
    nvml n = {0};
    void *library = gpus > 1 ? dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) return RONDO_SUCCESS;
    if (open_library(library, &n)) {
        links found = {.between = calloc(gpus * gpus, sizeof *found.between),
                       .to_switch = calloc(gpus, sizeof *found.to_switch)};
        if (!found.between || !found.to_switch)
            result = rd_fail(RONDO_SYSTEM_ERROR, "no memory for the links of %zu GPUs", gpus);
        else
            result = take_all(&n, machine, &found);
        free(found.to_switch);
        free(found.between);
        n.shutdown();
    }
    dlclose(library);
    return result;
}
