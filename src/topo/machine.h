/* SPDX-License-Identifier: Apache-2.0
 *
 * machine.h - a machine as the files of this folder see it.
 */
#ifndef RD_TOPO_MACHINE_H
#define RD_TOPO_MACHINE_H

#include "topo/devices.h"
#include "topo/topo.h"

#include <hwloc.h>

typedef struct rd_device_object {
    rd_peripheral seen;
    hwloc_obj_t object; /* the PCI function, or the OS device where there is none; NULL: hwloc does not know it */
} rd_device_object;

struct rd_machine {
    hwloc_topology_t topology;
    rd_device_object *gpus, *nics; /* NULL until devices were asked for */
    int gpu_count, nic_count;
    rd_link *fabric;       /* [a * gpu_count + b]: direct links and switches between GPUs; mbs 0: there is none */
    rd_gpu_access *access; /* likewise, by the driver; NULL: not known */
};

typedef enum rd_source { RD_SOURCE_HERE, RD_SOURCE_SYNTHETIC, RD_SOURCE_XML } rd_source;

/* ---- load.c ---- */

/* text: of the description, or the path of the XML; of the machine here NULL. Devices come with an XML always, with the
 * machine here when they are asked for. */
rondo_result rd_machine_load(rd_machine **machine, rd_source source, const char *text, bool devices);

/* ---- xml.c ---- */

/* The topology will be read from this file. */
rondo_result rd_topology_set_xml(hwloc_topology_t topology, const char *path);

/* ---- discover.c ---- */

rd_place rd_place_of_set(const rd_machine *machine, hwloc_const_bitmap_t set);

/* ---- devices.c ---- */

/* GPUs and network cards among hwloc's objects. */
rondo_result rd_machine_find_devices(rd_machine *machine);

/* ---- ways.c ---- */

/* From a rank at this place to a device that hangs at that one. */
rd_link_kind rd_kind_to_device(const rd_place *place, const rd_place *device);

/* ---- kernel.c ---- */

/* State and speed of an interface and its OpenFabrics device's port, where /sys has them; else nothing changes. */
void rd_nic_ask_kernel(rd_peripheral *nic, int port);
/* The interface that one of software (a bond, a VLAN) lies upon; false: there is none. */
bool rd_nic_lower(const char *name, char lower[16]);

/* Their place in the list of GPUs, by bus address; NULL: it is not there. */
rd_device_object *rd_machine_gpu_on(rd_machine *machine, uint32_t bus);
/* Puts one more at its end; NULL + rd_last_error. */
rd_device_object *rd_machine_add_gpu(rd_machine *machine, hwloc_obj_t object, uint32_t bus);
void rd_machine_sort_gpus(rd_machine *machine);

/* ---- live.c ---- */

/* What the CUDA driver of this process says, if it is loaded. */
rondo_result rd_machine_ask_driver(rd_machine *machine);

/* ---- around.c ---- */

/* What a rank at this place, or on this GPU (-1: none), tells of an OpenFabrics device (NULL) or else of an interface. One
 * of software is as near as the card that it lies upon. Of what lies upon none: false; it is memory, and near to all. */
bool rd_nic_tell(const rd_machine *machine, const rd_place *place, int gpu, const char *device, const char *interface,
                 rd_nic *told);

/* ---- fabric.c ---- */

/* Room for links between GPUs, all without any. */
rondo_result rd_fabric_room(rd_machine *machine);
/* Between two GPUs, unless a faster one is known. */
void rd_fabric_add(rd_machine *machine, int a, int b, rd_link_kind kind, uint64_t mbs);
/* All pairs on a switch, to which GPU a sends to_switch[a] and from which it receives from_switch[a]. */
void rd_fabric_switch(rd_machine *machine, const uint64_t *to_switch, const uint64_t *from_switch);

/* Direct links between GPUs, as hwloc's distances have them. */
rondo_result rd_machine_find_fabric(rd_machine *machine);

#endif
