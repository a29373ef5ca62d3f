/* SPDX-License-Identifier: Apache-2.0
 *
 * ways.c - the link between two devices, or a rank's processor and a device.
 *
 * Two GPUs: the link that they have between them, where there is one (fabric.c) and the driver does not forbid it. Else
 * two devices meet in the lowest object that is above both: a bridge below the root is a PCIe switch; the host bridge;
 * or a part of the machine, which is one processor or several. What hwloc has not located is as far as can be.
 *
 * The bandwidth is the table's, which is for 16 lanes of PCIe 3.0, in proportion to the slowest PCIe link on the way.
 * It is the speed that links have when hwloc looks; a GPU that idles may run its own slower.
 */
#include "topo/machine.h"

#define TABLE_GBS 15.75 /* PCIe 3.0 x16, as hwloc writes it */

static bool is_io(hwloc_obj_t object)
{
    return object && hwloc_obj_type_is_io(object->type);
}

/* GB/s of the PCIe link above an object; 0: not known. A host bridge has none. */
static double speed_of(hwloc_obj_t object)
{
    if (object->type == HWLOC_OBJ_PCI_DEVICE) return object->attr->pcidev.linkspeed;
    if (object->type == HWLOC_OBJ_BRIDGE && object->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI)
        return object->attr->bridge.upstream.pci.linkspeed;
    return 0;
}

/* The slowest link from an object up to, and without, `top`. */
static double slowest_to(hwloc_obj_t object, hwloc_obj_t top, double least)
{
    for (; is_io(object) && object != top; object = object->parent) {
        double speed = speed_of(object);
        if (speed > 0 && (least == 0 || speed < least)) least = speed;
    }
    return least;
}

static rd_link scaled(rd_link_kind kind, double speed)
{
    rd_link link = rd_link_of(kind);
    if (speed > 0) link.mbs = (uint32_t)(link.mbs * speed / TABLE_GBS);
    if (link.mbs == 0) link.mbs = 1;
    return link;
}

static bool is_above(hwloc_obj_t top, hwloc_obj_t object)
{
    while (object && object != top) object = object->parent;
    return object != NULL;
}

static bool same(int32_t a, int32_t b)
{
    return a >= 0 && a == b;
}

/* Within one processor, or between several: from where two things hang on the machine. Of memory that spans packages
 * the same holds as in cost.c: it brings nothing closer. */
static rd_link_kind kind_apart(const rd_place *a, const rd_place *b)
{
    bool together = a->package == b->package && (same(a->package, b->package) || same(a->numa, b->numa));
    return together ? RD_LINK_PCI_NUMA : RD_LINK_PCI_HOST;
}

static rd_link between(const rd_device_object *a, const rd_device_object *b)
{
    hwloc_obj_t meet = a->object;
    if (!a->object || !b->object) return rd_link_of(RD_LINK_PCI_HOST);
    if (a->object == b->object) return rd_link_of(RD_LINK_SELF);
    while (meet && !is_above(meet, b->object)) meet = meet->parent;
    double speed = slowest_to(b->object, meet, slowest_to(a->object, meet, 0));
    if (!is_io(meet)) return scaled(kind_apart(&a->seen.place, &b->seen.place), speed);
    if (meet->type == HWLOC_OBJ_BRIDGE && meet->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST)
        return scaled(RD_LINK_PCI_BRIDGE, speed);
    return scaled(RD_LINK_PCI_SWITCH, speed);
}

rd_link rd_gpu_link(const rd_machine *machine, int a, int b)
{
    size_t pair = (size_t)a * (size_t)machine->gpu_count + (size_t)b;
    if (a == b) return rd_link_of(RD_LINK_SELF);
    bool can = !machine->access || machine->access[pair].can;
    if (can && machine->fabric && machine->fabric[pair].mbs) return machine->fabric[pair];
    rd_link link = between(&machine->gpus[a], &machine->gpus[b]);
    if (can) return link;
    /* Through host memory: down one link and then up the other. */
    rd_link detour = rd_link_of(RD_LINK_PCI_HOST);
    detour.ns += link.ns;
    detour.mbs = (link.mbs < detour.mbs ? link.mbs : detour.mbs) / 2;
    return detour;
}

rd_link rd_gpu_nic_link(const rd_machine *machine, int gpu, int nic)
{
    return between(&machine->gpus[gpu], &machine->nics[nic]);
}

/* A processor reaches what hangs on its own node by one host bridge. A place that lies in no node or package for
 * certain, as a device that hwloc has not located, is near nothing. */
rd_link_kind rd_kind_to_device(const rd_place *place, const rd_place *device)
{
    bool on_node = place->package == device->package && same(place->numa, device->numa);
    return on_node ? RD_LINK_PCI_BRIDGE : kind_apart(place, device);
}

static rd_link to_device(const rd_place *place, const rd_device_object *device)
{
    double speed = device->object ? slowest_to(device->object, NULL, 0) : 0;
    return scaled(rd_kind_to_device(place, &device->seen.place), speed);
}

rd_link rd_place_gpu_link(const rd_machine *machine, const rd_place *place, int gpu)
{
    return to_device(place, &machine->gpus[gpu]);
}

rd_link rd_place_nic_link(const rd_machine *machine, const rd_place *place, int nic)
{
    return to_device(place, &machine->nics[nic]);
}
