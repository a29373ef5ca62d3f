/* SPDX-License-Identifier: Apache-2.0
 *
 * discover.c - this machine by hwloc, and where a thread's binding lies on it.
 *
 * Only what rd_place needs is asked for: every kind of object that is not kept costs nothing to find, and device
 * discovery (the slow part of hwloc) stays off. On 2 cores with Debian's hwloc 2.9 that is about 2.5 ms per process,
 * nearly 2 of them spent by hwloc on opening its plugins, which only the environment (HWLOC_PLUGINS_PATH) could avoid.
 */
#include "base/status.h"
#include "topo/topo.h"

#include <hwloc.h>
#include <hwloc/linux.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct rd_machine {
    hwloc_topology_t topology;
};

/* INCLUDE_DISALLOWED: two ranks of one host may sit in containers with different cpusets. Their logical indices mean
 * the same things only if both number the whole machine.
 * DONT_CHANGE_BINDING: hwloc would else move the caller's thread over every processing unit to ask each by cpuid:
 * slow, and no thread may find itself elsewhere because of us. */
static const unsigned long flags = HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED | HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING;

static rondo_result prepare(hwloc_topology_t topology)
{
    /* NUMA nodes and processing units are always kept. Groups are needed where a NUMA node is smaller than a package
     * and larger than an L3 cache: without one to hang it on, hwloc would give it to the whole package or machine. */
    static const hwloc_obj_type_t kept[] = {HWLOC_OBJ_PACKAGE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_CORE};
    int failed = hwloc_topology_set_flags(topology, flags);
    failed |= hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        failed |= hwloc_topology_set_type_filter(topology, kept[i], HWLOC_TYPE_FILTER_KEEP_ALL);
    failed |= hwloc_topology_set_type_filter(topology, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
    return failed ? rd_fail(RONDO_INTERNAL_ERROR, "hwloc %#x refuses our filters or flags", hwloc_get_api_version())
                  : RONDO_SUCCESS;
}

/* description: NULL for the machine that we are on. */
static rondo_result load(rd_machine **machine, const char *description)
{
    rondo_result result;
    rd_machine *loaded = malloc(sizeof *loaded);
    if (!loaded) return rd_fail(RONDO_SYSTEM_ERROR, "no memory for the machine's topology");
    if (hwloc_topology_init(&loaded->topology)) {
        result = rd_fail_errno("hwloc_topology_init");
        goto free_machine;
    }
    result = prepare(loaded->topology);
    if (result) goto destroy_topology;
    if (description && hwloc_topology_set_synthetic(loaded->topology, description)) {
        result = rd_fail(RONDO_INVALID_ARGUMENT, "machine description \"%s\" is not valid: it must name kinds of "
                         "objects from the outside in, each with how many lie in one of the kind before, and end with "
                         "pu, for example \"pack:2 numa:1 l3:2 core:4 pu:2\"", description);
        goto destroy_topology;
    }
    if (hwloc_topology_load(loaded->topology)) {
        result = description ? rd_fail_errno("hwloc cannot build the machine \"%s\"", description)
                             : rd_fail_errno("hwloc cannot discover this machine (is /sys mounted?)");
        goto destroy_topology;
    }
    *machine = loaded;
    return RONDO_SUCCESS;

destroy_topology:
    hwloc_topology_destroy(loaded->topology);
free_machine:
    free(loaded);
    return result;
}

/* Discovered by whoever asks first, under the lock, so that many ranks as threads do it once; a failure is not
 * remembered, and the next to ask tries again. Afterwards read-only, and no lock is taken. */
static _Atomic(rd_machine *) here;
static pthread_mutex_t discovering = PTHREAD_MUTEX_INITIALIZER;

const rd_machine *rd_machine_here(void)
{
    rd_machine *machine = atomic_load_explicit(&here, memory_order_acquire);
    if (machine) return machine;
    pthread_mutex_lock(&discovering);
    machine = atomic_load_explicit(&here, memory_order_relaxed);
    if (!machine && load(&machine, NULL) == RONDO_SUCCESS) atomic_store_explicit(&here, machine, memory_order_release);
    pthread_mutex_unlock(&discovering);
    return machine;
}

rondo_result rd_machine_synthetic(rd_machine **machine, const char *description)
{
    if (!description) return rd_fail(RONDO_INVALID_ARGUMENT, "machine description is NULL");
    return load(machine, description);
}

void rd_machine_free(rd_machine *machine)
{
    if (!machine) return;
    hwloc_topology_destroy(machine->topology);
    free(machine);
}

/* The first object of `type` that contains all of `set`, or -1. Memory-only NUMA nodes have no processing units and so
 * contain nothing; of two nodes over the same cores (DRAM and HBM) the first speaks for both. */
static int32_t container(hwloc_topology_t topology, hwloc_obj_type_t type, hwloc_const_bitmap_t set)
{
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(topology, type, o));)
        if (hwloc_bitmap_isincluded(set, o->cpuset)) return (int32_t)o->logical_index;
    return -1;
}

static rd_place place_of(hwloc_topology_t topology, hwloc_const_bitmap_t set)
{
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
    *place = place_of(machine->topology, bound);
    hwloc_bitmap_free(bound);
    return RONDO_SUCCESS;
}

rondo_result rd_place_of_pu(const rd_machine *machine, int pu, rd_place *place)
{
    int count = hwloc_get_nbobjs_by_type(machine->topology, HWLOC_OBJ_PU);
    if (pu < 0 || pu >= count)
        return rd_fail(RONDO_INVALID_ARGUMENT, "processing unit %d: this machine has 0 to %d", pu, count - 1);
    hwloc_obj_t object = hwloc_get_obj_by_type(machine->topology, HWLOC_OBJ_PU, (unsigned)pu);
    *place = place_of(machine->topology, object->cpuset);
    return RONDO_SUCCESS;
}

int rd_machine_pus(const rd_machine *machine) { return hwloc_get_nbobjs_by_type(machine->topology, HWLOC_OBJ_PU); }

rondo_result rd_machine_pu(const rd_machine *machine, int pu, rd_pu *unit)
{
    rd_pu found = {.allowed = true};
    rondo_result result = rd_place_of_pu(machine, pu, &found.place);
    if (result != RONDO_SUCCESS) return result;
    found.os_index = (int)hwloc_get_obj_by_type(machine->topology, HWLOC_OBJ_PU, (unsigned)pu)->os_index;
    if (hwloc_topology_is_thissystem(machine->topology)) {
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

static void __attribute__((format(printf, 4, 5)))
append(char *text, size_t bytes, size_t *used, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int more = *used < bytes ? vsnprintf(text + *used, bytes - *used, format, arguments) : 0;
    va_end(arguments);
    *used += more > 0 ? (size_t)more : 0;
}

void rd_machine_describe(const rd_machine *machine, char *text, size_t bytes)
{
    static const struct {
        hwloc_obj_type_t type;
        const char *name;
    } parts[] = {{HWLOC_OBJ_PACKAGE, "package"}, {HWLOC_OBJ_NUMANODE, "NUMA node"}, {HWLOC_OBJ_L3CACHE, "L3 cache"},
                 {HWLOC_OBJ_CORE, "core"},       {HWLOC_OBJ_PU, "PU"}};
    size_t used = 0;
    if (bytes) *text = '\0';
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        int count = hwloc_get_nbobjs_by_type(machine->topology, parts[i].type);
        if (count > 0)
            append(text, bytes, &used, "%s%d %s%s", used ? ", " : "", count, parts[i].name, count == 1 ? "" : "s");
    }
    int pus = hwloc_get_nbobjs_by_type(machine->topology, HWLOC_OBJ_PU);
    int allowed = hwloc_topology_is_thissystem(machine->topology) ? rd_allowed_pus() : pus;
    if (allowed != pus) append(text, bytes, &used, " (%d allowed)", allowed);
}
