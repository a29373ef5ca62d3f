/* SPDX-License-Identifier: Apache-2.0
 *
 * fabric.c - links that GPUs have between them, as hwloc's distances tell: matrices of bandwidths between OS devices
 * (NVLinkBandwidth; XGMIBandwidth of AMD and XeLinkBandwidth of Intel are links of the same kind).
 *
 * What a matrix has between two GPUs is a direct link. Switches are objects of the matrix, too, each port of the fabric
 * a PCI device of its own, with links to the GPUs of its board and none among themselves. All ports are taken to be one
 * switch, as hwloc's own transformation does it: two GPUs on it reach each other with the smaller of what they have to
 * all ports. (That transformation, in hwloc 2.9, loses GPUs that come behind a port in the matrix.) Processors that are
 * objects of a matrix, as on POWER, do not pass on what is not for them.
 */
#include "base/status.h"
#include "topo/machine.h"

#include <hwloc/distances.h>
#include <stdlib.h>

enum { MATRICES = 16, MOST_MBS = 100000000 };
enum { NO_GPU = -1, SWITCH = -2 };

/* Index of the GPU that an object of a matrix is, or SWITCH, or NO_GPU. */
static int gpu_of(const rd_machine *m, hwloc_obj_t object)
{
    for (hwloc_obj_t at = object; at; at = at->type == HWLOC_OBJ_OS_DEVICE ? at->parent : NULL)
        for (int i = 0; i < m->gpu_count; i++)
            if (m->gpus[i].object && m->gpus[i].object == at) return i;
    return object && object->type == HWLOC_OBJ_PCI_DEVICE ? SWITCH : NO_GPU;
}

rondo_result rd_fabric_room(rd_machine *machine)
{
    size_t n = (size_t)machine->gpu_count;
    free(machine->fabric);
    machine->fabric = calloc(n * n, sizeof *machine->fabric);
    return machine->fabric ? RONDO_SUCCESS : rd_fail(RONDO_SYSTEM_ERROR, "no memory for the links of %zu GPUs", n);
}

void rd_fabric_add(rd_machine *machine, int a, int b, rd_link_kind kind, uint64_t mbs)
{
    rd_link *link = &machine->fabric[a * machine->gpu_count + b];
    if (mbs > MOST_MBS) mbs = MOST_MBS;
    if (a == b || mbs <= link->mbs) return;
    *link = rd_link_of(kind);
    link->mbs = (uint32_t)mbs;
}

void rd_fabric_switch(rd_machine *machine, const uint64_t *to_switch, const uint64_t *from_switch)
{
    for (int a = 0; a < machine->gpu_count; a++)
        for (int b = 0; b < machine->gpu_count; b++)
            rd_fabric_add(machine, a, b, RD_LINK_NVSWITCH,
                          to_switch[a] < from_switch[b] ? to_switch[a] : from_switch[b]);
}

/* to_switch, from_switch: by GPU, zero. */
static void take(rd_machine *m, const struct hwloc_distances_s *matrix, uint64_t *to_switch, uint64_t *from_switch)
{
    for (unsigned i = 0; i < matrix->nbobjs; i++) {
        int a = gpu_of(m, matrix->objs[i]);
        for (unsigned j = 0; j < matrix->nbobjs; j++) {
            int b = gpu_of(m, matrix->objs[j]);
            uint64_t mbs = matrix->values[i * matrix->nbobjs + j];
            if (a >= 0 && b >= 0) rd_fabric_add(m, a, b, RD_LINK_NVLINK, mbs);
            if (a >= 0 && b == SWITCH) to_switch[a] += mbs;
            if (a == SWITCH && b >= 0) from_switch[b] += mbs;
        }
    }
    rd_fabric_switch(m, to_switch, from_switch);
}

rondo_result rd_machine_find_fabric(rd_machine *machine)
{
    struct hwloc_distances_s *matrices[MATRICES];
    unsigned count = MATRICES;
    size_t n = (size_t)machine->gpu_count;
    rondo_result result = RONDO_SUCCESS;
    if (n < 2) return RONDO_SUCCESS;
    if (hwloc_distances_get(machine->topology, &count, matrices, HWLOC_DISTANCES_KIND_MEANS_BANDWIDTH, 0) || !count)
        return RONDO_SUCCESS;
    result = rd_fabric_room(machine);
    for (unsigned i = 0; i < count && i < MATRICES; i++) {
        uint64_t *switches = result == RONDO_SUCCESS ? calloc(2 * n, sizeof *switches) : NULL;
        if (switches)
            take(machine, matrices[i], switches, switches + n);
        else if (result == RONDO_SUCCESS)
            result = rd_fail(RONDO_SYSTEM_ERROR, "no memory for the links of %zu GPUs", n);
        free(switches);
        hwloc_distances_release(machine->topology, matrices[i]);
    }
    return result;
}
