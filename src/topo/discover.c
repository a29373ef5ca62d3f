/* SPDX-License-Identifier: Apache-2.0
 *
 * discover.c - places on a machine: of a thread's binding, and of processing units.
 */
#include "base/status.h"
#include "base/text.h"
#include "topo/machine.h"

#include <hwloc/linux.h>
#include <unistd.h>

/* The first object of `type` that contains all of `set`, or -1. Memory-only NUMA nodes have no processing units and so
 * contain nothing, and what hangs on such a node is in nothing; of two nodes over the same cores (DRAM and HBM) the
 * first speaks for both. */
static int32_t container(hwloc_topology_t topology, hwloc_obj_type_t type, hwloc_const_bitmap_t set)
{
    if (hwloc_bitmap_iszero(set)) return -1;
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(topology, type, o));)
        if (hwloc_bitmap_isincluded(set, o->cpuset)) return (int32_t)o->logical_index;
    return -1;
}

rd_place rd_place_of_set(const rd_machine *machine, hwloc_const_bitmap_t set)
{
    hwloc_topology_t topology = machine->topology;
    rd_place place = {.host = 0,
                      .package = container(topology, HWLOC_OBJ_PACKAGE, set),
                      .numa = container(topology, HWLOC_OBJ_NUMANODE, set),
                      .l3 = container(topology, HWLOC_OBJ_L3CACHE, set),
                      .l2 = container(topology, HWLOC_OBJ_L2CACHE, set),
                      .core = container(topology, HWLOC_OBJ_CORE, set),
                      .pus = hwloc_bitmap_weight(set),
                      .first_pu = -1,
                      .last_pu = -1};
    for (hwloc_obj_t pu = NULL; (pu = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, pu));) {
        if (!hwloc_bitmap_isset(set, pu->os_index)) continue;
        if (place.first_pu < 0) place.first_pu = (int32_t)pu->logical_index;
        place.last_pu = (int32_t)pu->logical_index;
    }
    return place;
}

/* The processing units on which thread `tid` may run (0: the calling one), as the kernel says: its affinity within its
 * cgroup's cpuset. Asks the kernel even where HWLOC_XMLFILE or HWLOC_SYNTHETIC stand in for this machine. NULL +
 * rd_last_error on failure; free it. */
static hwloc_bitmap_t binding(const rd_machine *machine, pid_t tid)
{
    hwloc_bitmap_t bound = hwloc_bitmap_alloc();
    if (!bound) {
        rd_fail(RONDO_SYSTEM_ERROR, "no memory for a set of processing units");
    } else if (hwloc_linux_get_tid_cpubind(machine->topology, tid, bound)) {
        rd_fail_errno("cannot read on which processing units thread %d may run (sched_getaffinity)", (int)tid);
        hwloc_bitmap_free(bound);
        bound = NULL;
    }
    return bound;
}

rondo_result rd_place_here(rd_place *place)
{
    const rd_machine *machine = rd_machine_here();
    hwloc_bitmap_t bound = machine ? binding(machine, 0) : NULL;
    if (!bound) return RONDO_SYSTEM_ERROR;
    *place = rd_place_of_set(machine, bound);
    hwloc_bitmap_free(bound);
    return RONDO_SUCCESS;
}

rondo_result rd_place_of_pu(const rd_machine *machine, int pu, rd_place *place)
{
    int count = hwloc_get_nbobjs_by_type(machine->topology, HWLOC_OBJ_PU);
    if (pu < 0 || pu >= count)
        return rd_fail(RONDO_INVALID_ARGUMENT, "processing unit %d: this machine has 0 to %d", pu, count - 1);
    hwloc_obj_t object = hwloc_get_obj_by_type(machine->topology, HWLOC_OBJ_PU, (unsigned)pu);
    *place = rd_place_of_set(machine, object->cpuset);
    return RONDO_SUCCESS;
}

int rd_machine_pus(const rd_machine *machine) { return hwloc_get_nbobjs_by_type(machine->topology, HWLOC_OBJ_PU); }

rondo_result rd_machine_pu(const rd_machine *machine, int pu, rd_pu *unit)
{
    rd_pu found = {.allowed = true};
    rondo_result result = rd_place_of_pu(machine, pu, &found.place);
    if (result != RONDO_SUCCESS) return result;
    found.os_index = (int)hwloc_get_obj_by_type(machine->topology, HWLOC_OBJ_PU, (unsigned)pu)->os_index;
    if (!hwloc_topology_is_thissystem(machine->topology)) {
        hwloc_const_bitmap_t allowed = hwloc_topology_get_allowed_cpuset(machine->topology);
        found.allowed = hwloc_bitmap_isset(allowed, (unsigned)found.os_index);
    } else {
        hwloc_bitmap_t bound = binding(machine, getpid());
        if (!bound) return RONDO_SYSTEM_ERROR;
        found.allowed = hwloc_bitmap_isset(bound, (unsigned)found.os_index);
        hwloc_bitmap_free(bound);
    }
    *unit = found;
    return RONDO_SUCCESS;
}

uint64_t rd_machine_bytes(const rd_machine *machine, rd_storage what, int index)
{
    static const hwloc_obj_type_t types[] = {HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_NUMANODE};
    hwloc_obj_t object = index < 0 ? NULL : hwloc_get_obj_by_type(machine->topology, types[what], (unsigned)index);
    if (!object || !object->attr) return 0;
    return what == RD_STORAGE_NUMA ? object->attr->numanode.local_memory : object->attr->cache.size;
}

/* A cgroup's CPU quota (cpu.max) is left out on purpose. It takes time from all threads alike and puts no two of them
 * on one processing unit, so that ranks within it have a unit each, and a waiting rank that gave up its own would
 * only wake later. What it could save is what spinning burns, and that is bounded (RONDO_SPIN, then sleep). */
int rd_allowed_pus(void)
{
    const rd_machine *machine = rd_machine_here();
    hwloc_bitmap_t bound = machine ? binding(machine, getpid()) : NULL;
    if (!bound) {
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        return online > 0 ? (int)online : 1;
    }
    int count = hwloc_bitmap_weight(bound);
    hwloc_bitmap_free(bound);
    return count;
}

void rd_machine_describe(const rd_machine *machine, char *text, size_t bytes)
{
    static const struct {
        hwloc_obj_type_t type;
        const char *name;
    } parts[] = {{HWLOC_OBJ_PACKAGE, "package"}, {HWLOC_OBJ_NUMANODE, "NUMA node"}, {HWLOC_OBJ_L3CACHE, "L3 cache"},
                 {HWLOC_OBJ_CORE, "core"},       {HWLOC_OBJ_PU, "PU"}};
    rd_text said = {text, bytes};
    if (!bytes) return;
    *text = '\0';
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        int count = hwloc_get_nbobjs_by_type(machine->topology, parts[i].type);
        if (count > 0) rd_text_add(&said, "%s%d %s%s", *text ? ", " : "", count, parts[i].name, count == 1 ? "" : "s");
    }
    int pus = hwloc_get_nbobjs_by_type(machine->topology, HWLOC_OBJ_PU);
    int allowed = hwloc_topology_is_thissystem(machine->topology)
                      ? rd_allowed_pus()
                      : hwloc_bitmap_weight(hwloc_topology_get_allowed_cpuset(machine->topology));
    if (allowed != pus) rd_text_add(&said, " (%d allowed)", allowed);
}
