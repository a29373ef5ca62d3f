/* SPDX-License-Identifier: Apache-2.0
 *
 * devices.h - GPUs and network cards of a machine, and the ways between them.
 *   devices.c  which of hwloc's objects they are
 *   kernel.c   what /sys says of network cards here
 *   fabric.c   direct links between GPUs: hwloc's distances
 *   live.c     what the CUDA driver says of the GPUs here
 *   nvml.c     ... and NVIDIA's management library of their links
 *   ways.c     the link between two devices, or a rank and a device
 *   around.c   what a rank tells of all that
 *   rails.c    ... of RDMA ports (rails.h)
 */
#ifndef RD_TOPO_DEVICES_H
#define RD_TOPO_DEVICES_H

#include "topo/ring.h"

typedef struct rd_peripheral {
    char name[32];  /* "cuda0", "nvml3", "eth0"; the bus address where the system has no name for it */
    char verbs[16]; /* of a network card: its OpenFabrics device, "mlx5_0"; "" */
    char model[64]; /* "" when it is not known */
    uint32_t bus;   /* rd_bus_id(); devices that are on no bus get numbers of their own, from RD_NO_BUS on */
    rd_place place; /* the smallest part of the machine that it hangs on; -1 where it hangs on several of a kind */
    uint32_t mbit;  /* of a network card: what it says, else an estimate by its kind and its PCIe link, and `guessed` */
    bool guessed;
    bool up; /* of a network card: nothing says that it is not */
} rd_peripheral;

#define RD_NO_BUS 0xffff0000u

/* Domain, bus, device and function in one number, of which the domain has the upper 16 bits. */
uint32_t rd_bus_id(unsigned domain, unsigned bus, unsigned device, unsigned function);
/* From "0000:3b:00.0" or "3b:00.0", as drivers print it. false: it is none. */
bool rd_bus_id_parse(uint32_t *id, const char *text);
/* "0000:3b:00.0", or "no bus" */
void rd_bus_id_print(uint32_t id, char text[16]);

/* From an XML file of hwloc's; free it. */
rondo_result rd_machine_xml(rd_machine **machine, const char *path);
/* The machine here with its devices: rd_machine_here() does not look for them, which takes several times as long. Once
 * a process, and once more when it has loaded the CUDA driver since: then with what that reports. NULL + rd_last_error.
 */
const rd_machine *rd_machine_with_devices(void);

/* In the order of their bus addresses; those without one last. */
int rd_machine_gpus(const rd_machine *machine);
const rd_peripheral *rd_machine_gpu(const rd_machine *machine, int gpu);
int rd_machine_nics(const rd_machine *machine);
const rd_peripheral *rd_machine_nic(const rd_machine *machine, int nic);

/* Whether the driver lets a GPU reach another one's memory, and which pairs it prefers (0 the most). */
typedef struct rd_gpu_access {
    bool can;
    uint32_t rank;
} rd_gpu_access;

/* A GPU as its driver reports it. */
typedef struct rd_live_gpu {
    uint32_t bus;
    char name[64];
} rd_live_gpu;

/* Those that hwloc has not found are added, those that it has get the driver's name. access[a * count + b]: where hwloc
 * tells of no direct links, pairs that the driver prefers to others have one. Before others use the machine. */
rondo_result rd_machine_attach_gpus(rd_machine *machine, const rd_live_gpu *gpus, int count,
                                    const rd_gpu_access *access);
/* The links that NVIDIA's management library knows, instead of hwloc's; without that library nothing changes. */
rondo_result rd_machine_attach_nvml(rd_machine *machine);

/* The ways. */
rd_link rd_gpu_link(const rd_machine *machine, int a, int b);
rd_link rd_gpu_nic_link(const rd_machine *machine, int gpu, int nic);
rd_link rd_place_gpu_link(const rd_machine *machine, const rd_place *place, int gpu);
rd_link rd_place_nic_link(const rd_machine *machine, const rd_place *place, int nic);

/* What a rank at this place tells, which works on the memory of this GPU (-1: host memory). Its nics are the machine's,
 * up to RD_MAX_NICS, without networks. */
void rd_around_of(const rd_machine *machine, const rd_place *place, int gpu, rd_around *around);

/* An interface over which this process can be reached, and its networks as in rd_nic. */
typedef struct rd_reached_by {
    char name[16];
    uint64_t networks[RD_MAX_NETWORKS];
} rd_reached_by;

/* The same for a rank of the machine here, with these interfaces instead of the machine's cards: also those that hwloc
 * does not list (veth, bonds), in the caller's order, up to RD_MAX_NICS. gpu: rd_bus_id(), or RD_NO_GPU. Looks for
 * devices, so it is for communicators of several hosts or with GPUs. */
rondo_result rd_around_here(const rd_place *place, uint32_t gpu, const rd_reached_by *interfaces, int count,
                            rd_around *around);

#endif
