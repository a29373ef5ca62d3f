/* SPDX-License-Identifier: Apache-2.0
 *
 * load.c - a machine by hwloc: the one that we are on, one described in words, or one that an XML file has kept.
 *
 * Here only what rd_place needs is asked for: every kind of object that is not kept costs nothing to find. On 2 cores
 * with Debian's hwloc 2.9 that is about 2.5 ms per process, nearly 2 of them spent by hwloc on opening its plugins,
 * which only the environment (HWLOC_PLUGINS_PATH) could avoid. Devices, the slow part of hwloc, are found when they are
 * needed: with them it takes five times as long. So there are several machines that are this one; all of them number
 * its parts alike.
 */
#include "base/gpu.h"
#include "base/status.h"
#include "topo/machine.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* INCLUDE_DISALLOWED: two ranks of one host may sit in containers with different cpusets. Their logical indices mean
 * the same things only if both number the whole machine.
 * DONT_CHANGE_BINDING: hwloc would else move the caller's thread over every processing unit to ask each by cpuid:
 * slow, and no thread may find itself elsewhere because of us. */
static const unsigned long flags = HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED | HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING;

static rondo_result prepare(hwloc_topology_t topology, bool devices)
{
    /* NUMA nodes and processing units are always kept. Groups are needed where a NUMA node is smaller than a package
     * and larger than an L3 cache: without one to hang it on, hwloc would give it to the whole package or machine. */
    static const hwloc_obj_type_t kept[] = {HWLOC_OBJ_PACKAGE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_CORE};
    static const hwloc_obj_type_t io[] = {HWLOC_OBJ_BRIDGE, HWLOC_OBJ_PCI_DEVICE, HWLOC_OBJ_OS_DEVICE};
    int failed = hwloc_topology_set_flags(topology, flags);
    failed |= hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        failed |= hwloc_topology_set_type_filter(topology, kept[i], HWLOC_TYPE_FILTER_KEEP_ALL);
    for (size_t i = 0; devices && i < sizeof io / sizeof *io; i++)
        failed |= hwloc_topology_set_type_filter(topology, io[i], HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    failed |= hwloc_topology_set_type_filter(topology, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
    return failed ? rd_fail(RONDO_INTERNAL_ERROR, "hwloc %#x refuses our filters or flags", hwloc_get_api_version())
                  : RONDO_SUCCESS;
}

/* PCI devices are hwloc's own to find, in /sys. Its plugin, which asks libpciaccess, finds the same and looks up their
 * names, for which each process would read the whole list of all there are. */
static void find_devices_in_sys(hwloc_topology_t topology)
{
    hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "pci"); /* fails: is not there */
}

static rondo_result set_source(hwloc_topology_t topology, rd_source source, const char *text)
{
    if (source == RD_SOURCE_XML) return rd_topology_set_xml(topology, text);
    if (source == RD_SOURCE_HERE || hwloc_topology_set_synthetic(topology, text) == 0) return RONDO_SUCCESS;
    return rd_fail(RONDO_INVALID_ARGUMENT,
                   "machine description \"%s\" is not valid: it must name kinds of "
                   "objects from the outside in, each with how many lie in one of the kind before, and end with "
                   "pu, for example \"pack:2 numa:1 l3:2 core:4 pu:2\"",
                   text);
}

static rondo_result build(hwloc_topology_t topology, rd_source source, const char *text)
{
    if (hwloc_topology_load(topology) == 0) return RONDO_SUCCESS;
    switch (source) {
    case RD_SOURCE_HERE: return rd_fail_errno("hwloc cannot discover this machine (is /sys mounted?)");
    case RD_SOURCE_SYNTHETIC: return rd_fail_errno("hwloc cannot build the machine \"%s\"", text);
    default:
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "%s is damaged: hwloc cannot build a machine from it; "
                       "HWLOC_XML_VERBOSE=1 says where",
                       text);
    }
}

rondo_result rd_machine_load(rd_machine **machine, rd_source source, const char *text, bool devices)
{
    rondo_result result;
    rd_machine *loaded = calloc(1, sizeof *loaded);
    if (!loaded) return rd_fail(RONDO_SYSTEM_ERROR, "no memory for the machine's topology");
    if (hwloc_topology_init(&loaded->topology)) {
        result = rd_fail_errno("hwloc_topology_init");
        goto free_machine;
    }
    if ((result = prepare(loaded->topology, devices)) != RONDO_SUCCESS) goto destroy_topology;
    if (devices && source == RD_SOURCE_HERE) find_devices_in_sys(loaded->topology);
    if ((result = set_source(loaded->topology, source, text)) != RONDO_SUCCESS) goto destroy_topology;
    if ((result = build(loaded->topology, source, text)) != RONDO_SUCCESS) goto destroy_topology;
    if (devices && (result = rd_machine_find_devices(loaded)) != RONDO_SUCCESS) goto destroy_topology;
    *machine = loaded;
    return RONDO_SUCCESS;

destroy_topology:
    hwloc_topology_destroy(loaded->topology);
free_machine:
    free(loaded);
    return result;
}

void rd_machine_free(rd_machine *machine)
{
    if (!machine) return;
    free(machine->access);
    free(machine->fabric);
    free(machine->nics);
    free(machine->gpus);
    hwloc_topology_destroy(machine->topology);
    free(machine);
}

rondo_result rd_machine_synthetic(rd_machine **machine, const char *description)
{
    if (!description) return rd_fail(RONDO_INVALID_ARGUMENT, "machine description is NULL");
    return rd_machine_load(machine, RD_SOURCE_SYNTHETIC, description, false);
}

rondo_result rd_machine_xml(rd_machine **machine, const char *path)
{
    if (!path) return rd_fail(RONDO_INVALID_ARGUMENT, "path of the topology is NULL");
    return rd_machine_load(machine, RD_SOURCE_XML, path, true);
}

/* Discovered by whoever asks first, under the lock, so that many ranks as threads do it once; a failure is not
 * remembered, and the next to ask tries again. Afterwards read-only, and no lock is taken. */
enum { PLAIN, DEVICES, DRIVER, KINDS }; /* the latter two with devices, the last also as the CUDA driver sees them */

static _Atomic(rd_machine *) machines_here[KINDS];
static pthread_mutex_t discovering = PTHREAD_MUTEX_INITIALIZER;

static rondo_result discover(rd_machine **machine, int kind)
{
    rd_machine *found;
    RD_TRY(rd_machine_load(&found, RD_SOURCE_HERE, NULL, kind != PLAIN));
    rondo_result result = kind == DRIVER ? rd_machine_ask_driver(found) : RONDO_SUCCESS;
    if (result == RONDO_SUCCESS)
        *machine = found;
    else
        rd_machine_free(found);
    return result;
}

static const rd_machine *here(int kind)
{
    rd_machine *machine = atomic_load_explicit(&machines_here[kind], memory_order_acquire);
    if (machine) return machine;
    pthread_mutex_lock(&discovering);
    machine = atomic_load_explicit(&machines_here[kind], memory_order_relaxed);
    if (!machine && discover(&machine, kind) == RONDO_SUCCESS)
        atomic_store_explicit(&machines_here[kind], machine, memory_order_release);
    pthread_mutex_unlock(&discovering);
    return machine;
}

const rd_machine *rd_machine_here(void)
{
    return here(PLAIN);
}
const rd_machine *rd_machine_with_devices(void)
{
    return here(rd_gpu_in_use() ? DRIVER : DEVICES);
}
