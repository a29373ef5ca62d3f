/* SPDX-License-Identifier: Apache-2.0
 *
 * devices.c - which of hwloc's objects are GPUs and network cards.
 *
 * A GPU is what a vendor's library calls one (OS devices cuda, nvml, rsmi, ze), or where the topology has none of those
 * what is one by its PCI class: 3D and other display controllers, processing accelerators, and NVIDIA's VGA
 * controllers; not the VGA of a management chip. Devices of several libraries on one PCI function are one GPU. A
 * network card is a network interface on a device, or an OpenFabrics device that has none; interfaces that are software
 * hang on no device, and hwloc does not list them.
 *
 * State and speed come from /sys on the machine here. A topology in a file has the state of OpenFabrics ports alone.
 */
#include "base/status.h"
#include "topo/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Bus addresses ---- */

uint32_t rd_bus_id(unsigned domain, unsigned bus, unsigned device, unsigned function)
{
    return (domain & 0xffffu) << 16 | (bus & 0xffu) << 8 | (device & 0x1fu) << 3 | (function & 7u);
}

bool rd_bus_id_parse(uint32_t *id, const char *text)
{
    unsigned domain = 0, bus, device, function;
    int used = 0;
    if (sscanf(text, "%x:%x:%x.%x%n", &domain, &bus, &device, &function, &used) != 4 || text[used]) {
        domain = 0;
        if (sscanf(text, "%x:%x.%x%n", &bus, &device, &function, &used) != 3 || text[used]) return false;
    }
    if (bus > 0xff || device > 0x1f || function > 7) return false;
    *id = rd_bus_id(domain, bus, device, function);
    return true;
}

void rd_bus_id_print(uint32_t id, char text[16])
{
    if (id >= RD_NO_BUS)
        snprintf(text, 16, "no bus");
    else
        snprintf(text, 16, "%04x:%02x:%02x.%x", id >> 16, id >> 8 & 0xff, id >> 3 & 0x1f, id & 7);
}

static uint32_t bus_of(hwloc_obj_t pci)
{
    return rd_bus_id(pci->attr->pcidev.domain, pci->attr->pcidev.bus, pci->attr->pcidev.dev, pci->attr->pcidev.func);
}

/* ---- What an object is ---- */

/* The libraries whose devices are GPUs, best name first. OpenCL's may be processors, too, and count on a PCI function
 * only. */
static const char *const libraries[] = {"cuda", "nvml", "rsmi", "ze", "opencl"};
enum { LIBRARIES = sizeof libraries / sizeof *libraries, OPENCL = LIBRARIES - 1 };

/* Index into libraries, or -1. Parts of a GPU ("ze0.1") are not devices. */
static int library_of(hwloc_obj_t os)
{
    for (int i = 0; i < LIBRARIES; i++) {
        size_t length = strlen(libraries[i]);
        if (os->name && strncmp(os->name, libraries[i], length) == 0 && os->name[length] >= '0' &&
            os->name[length] <= '9' && !strchr(os->name, '.'))
            return i;
    }
    return -1;
}

static hwloc_obj_t pci_of(hwloc_obj_t os)
{
    hwloc_obj_t at = os->parent;
    while (at && at->type == HWLOC_OBJ_OS_DEVICE) at = at->parent;
    return at && at->type == HWLOC_OBJ_PCI_DEVICE ? at : NULL;
}

static bool is_gpu_by_class(hwloc_obj_t pci)
{
    unsigned class = pci->attr->pcidev.class_id, vendor = pci->attr->pcidev.vendor_id;
    return class == 0x0302 || class == 0x0380 || class >> 8 == 0x12 || (class == 0x0300 && vendor == 0x10de);
}

static const char *info_of(hwloc_obj_t object, const char *name)
{
    const char *value = object ? hwloc_obj_get_info_by_name(object, name) : NULL;
    return value ? value : "";
}

/* Where a device hangs on the machine; of one that hwloc does not know all -1. */
static rd_place place_of_device(const rd_machine *machine, hwloc_obj_t object)
{
    rd_place nowhere = {0, -1, -1, -1, -1, -1, 0, -1, -1};
    hwloc_obj_t at = object ? hwloc_get_non_io_ancestor_obj(machine->topology, object) : NULL;
    return at && at->cpuset && !hwloc_bitmap_iszero(at->cpuset) ? rd_place_of_set(machine, at->cpuset) : nowhere;
}

/* "NVIDIA Corporation GV100", or the numbers by which the vendor and he calls it. */
static void name_model(hwloc_obj_t pci, char *model, size_t bytes)
{
    if (!pci || pci->type != HWLOC_OBJ_PCI_DEVICE) return;
    const char *vendor = info_of(pci, "PCIVendor"), *device = info_of(pci, "PCIDevice");
    if (*device)
        snprintf(model, bytes, "%s%s%s", vendor, *vendor ? " " : "", device);
    else
        snprintf(model, bytes, "%s%s%04x:%04x", vendor, *vendor ? " " : "", pci->attr->pcidev.vendor_id,
                 pci->attr->pcidev.device_id);
}

/* ---- Lists ---- */

static rd_device_object *add(rd_device_object **list, int *count)
{
    rd_device_object *more = realloc(*list, ((size_t)*count + 1) * sizeof **list);
    if (!more) {
        rd_fail(RONDO_SYSTEM_ERROR, "no memory for %d devices", *count + 1);
        return NULL;
    }
    *list = more;
    more[*count] = (rd_device_object){0};
    return &more[(*count)++];
}

static int by_bus(const void *a, const void *b)
{
    const rd_device_object *x = a, *y = b;
    if (x->seen.bus != y->seen.bus) return x->seen.bus < y->seen.bus ? -1 : 1;
    return strcmp(x->seen.name, y->seen.name);
}

rd_device_object *rd_machine_gpu_on(rd_machine *m, uint32_t bus)
{
    for (int i = 0; i < m->gpu_count; i++)
        if (m->gpus[i].seen.bus == bus) return &m->gpus[i];
    return NULL;
}

rd_device_object *rd_machine_add_gpu(rd_machine *m, hwloc_obj_t object, uint32_t bus)
{
    rd_device_object *gpu = add(&m->gpus, &m->gpu_count);
    if (!gpu) return NULL;
    gpu->object = object;
    gpu->seen.bus = bus;
    gpu->seen.place = place_of_device(m, object);
    rd_bus_id_print(bus, gpu->seen.name);
    name_model(object, gpu->seen.model, sizeof gpu->seen.model);
    return gpu;
}

void rd_machine_sort_gpus(rd_machine *m)
{
    if (m->gpu_count) qsort(m->gpus, (size_t)m->gpu_count, sizeof *m->gpus, by_bus);
}

/* ---- GPUs ---- */

/* Devices of this library. One on a PCI function that another library has named already is the same GPU. */
static rondo_result gpus_of_library(rd_machine *m, int library)
{
    int alone = 0;
    for (hwloc_obj_t os = NULL; (os = hwloc_get_next_osdev(m->topology, os));) {
        hwloc_obj_t pci = pci_of(os);
        if (library_of(os) != library || (library == OPENCL && !pci)) continue;
        if (library == OPENCL && !is_gpu_by_class(pci) && pci->attr->pcidev.class_id != 0x0300) continue;
        uint32_t bus = pci ? bus_of(pci) : RD_NO_BUS + (uint32_t)alone++;
        rd_device_object *gpu = rd_machine_gpu_on(m, bus);
        if (gpu) continue;
        if (!(gpu = rd_machine_add_gpu(m, pci ? pci : os, bus))) return RONDO_SYSTEM_ERROR;
        snprintf(gpu->seen.name, sizeof gpu->seen.name, "%s", os->name);
        if (*info_of(os, "GPUModel")) snprintf(gpu->seen.model, sizeof gpu->seen.model, "%s", info_of(os, "GPUModel"));
    }
    return RONDO_SUCCESS;
}

static rondo_result find_gpus(rd_machine *m)
{
    for (int library = 0; library < OPENCL; library++) RD_TRY(gpus_of_library(m, library));
    if (m->gpu_count == 0) {
        RD_TRY(gpus_of_library(m, OPENCL));
        for (hwloc_obj_t pci = NULL; (pci = hwloc_get_next_pcidev(m->topology, pci));)
            if (is_gpu_by_class(pci) && !rd_machine_gpu_on(m, bus_of(pci)) && !rd_machine_add_gpu(m, pci, bus_of(pci)))
                return RONDO_SYSTEM_ERROR;
    }
    rd_machine_sort_gpus(m);
    return RONDO_SUCCESS;
}

/* ---- Network cards ---- */

/* InfiniBand's hardware addresses have 20 bytes, Ethernet's 6. An OpenFabrics device without an interface is not
 * Ethernet. */
static bool is_infiniband(hwloc_obj_t os)
{
    return os->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS || strlen(info_of(os, "Address")) > 17;
}

/* An estimate: InfiniBand of the generation in which it spread (QDR), 10 Gigabit Ethernet, and no more than the PCIe
 * link carries. */
static uint32_t guess_mbit(hwloc_obj_t os, hwloc_obj_t pci)
{
    double mbit = is_infiniband(os) ? 40000 : 10000, most = pci ? pci->attr->pcidev.linkspeed * 8000 * 0.8 : 0;
    return (uint32_t)(most > 0 && most < mbit ? most : mbit);
}

static hwloc_obj_t sibling_verbs(hwloc_topology_t topology, hwloc_obj_t pci)
{
    for (hwloc_obj_t os = NULL; pci && (os = hwloc_get_next_osdev(topology, os));)
        if (os->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS && pci_of(os) == pci) return os;
    return NULL;
}

static bool has_interface(hwloc_topology_t topology, hwloc_obj_t pci)
{
    for (hwloc_obj_t os = NULL; pci && (os = hwloc_get_next_osdev(topology, os));)
        if (os->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK && pci_of(os) == pci) return true;
    return false;
}

static rondo_result add_nic(rd_machine *m, hwloc_obj_t os, hwloc_obj_t verbs)
{
    hwloc_obj_t pci = pci_of(os);
    char key[32];
    rd_device_object *nic = add(&m->nics, &m->nic_count);
    if (!nic) return RONDO_SYSTEM_ERROR;
    rd_peripheral *seen = &nic->seen;
    int port = *info_of(os, "Port") ? atoi(info_of(os, "Port")) : 1;
    nic->object = pci ? pci : os;
    seen->bus = pci ? bus_of(pci) : RD_NO_BUS + (uint32_t)m->nic_count;
    seen->place = place_of_device(m, nic->object);
    seen->up = true;
    snprintf(seen->name, sizeof seen->name, "%s", os->name ? os->name : "?");
    snprintf(seen->verbs, sizeof seen->verbs, "%s", verbs && verbs->name ? verbs->name : "");
    name_model(pci, seen->model, sizeof seen->model);
    snprintf(key, sizeof key, "Port%dState", port);
    if (verbs && *info_of(verbs, key)) seen->up = atoi(info_of(verbs, key)) == 4; /* "active" in its header */
    if (hwloc_topology_is_thissystem(m->topology)) rd_nic_ask_kernel(seen, port);
    seen->guessed = seen->mbit == 0;
    if (seen->guessed) seen->mbit = guess_mbit(os, pci);
    return RONDO_SUCCESS;
}

static rondo_result find_nics(rd_machine *m)
{
    for (hwloc_obj_t os = NULL; (os = hwloc_get_next_osdev(m->topology, os));) {
        hwloc_obj_t pci = pci_of(os);
        if (os->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK)
            RD_TRY(add_nic(m, os, sibling_verbs(m->topology, pci)));
        else if (os->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS && !has_interface(m->topology, pci))
            RD_TRY(add_nic(m, os, os));
    }
    if (m->nic_count) qsort(m->nics, (size_t)m->nic_count, sizeof *m->nics, by_bus);
    return RONDO_SUCCESS;
}

rondo_result rd_machine_find_devices(rd_machine *machine)
{
    RD_TRY(find_gpus(machine));
    RD_TRY(find_nics(machine));
    return rd_machine_find_fabric(machine);
}

/* ---- Asking ---- */

int rd_machine_gpus(const rd_machine *machine)
{
    return machine->gpu_count;
}
const rd_peripheral *rd_machine_gpu(const rd_machine *machine, int gpu)
{
    return &machine->gpus[gpu].seen;
}
int rd_machine_nics(const rd_machine *machine)
{
    return machine->nic_count;
}
const rd_peripheral *rd_machine_nic(const rd_machine *machine, int nic)
{
    return &machine->nics[nic].seen;
}
