/* SPDX-License-Identifier: Apache-2.0
 *
 * around.c - what a rank tells of the devices around it, and what drivers report of GPUs.
 */
#include "base/status.h"
#include "topo/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void tell_card(const rd_machine *machine, const rd_place *place, int gpu, int nic, rd_nic *told)
{
    const rd_peripheral *seen = &machine->nics[nic].seen;
    told->mbit = seen->mbit;
    told->up = seen->up;
    told->bus = seen->bus < RD_NO_BUS ? seen->bus : 0;
    told->link = gpu < 0 ? rd_place_nic_link(machine, place, nic) : rd_gpu_nic_link(machine, gpu, nic);
    snprintf(told->name, sizeof told->name, "%.15s", seen->name);
}

void rd_around_of(const rd_machine *machine, const rd_place *place, int gpu, rd_around *around)
{
    memset(around, 0, sizeof *around);
    around->gpu = gpu < 0 ? RD_NO_GPU : machine->gpus[gpu].seen.bus;
    for (int i = 0; i < machine->gpu_count && i < RD_MAX_GPUS; i++)
        around->to_gpu[around->gpus++] =
            (rd_way){.bus = machine->gpus[i].seen.bus,
                     .link = gpu < 0 ? rd_place_gpu_link(machine, place, i) : rd_gpu_link(machine, gpu, i)};
    for (int i = 0; i < machine->nic_count && i < RD_MAX_NICS; i++)
        tell_card(machine, place, gpu, i, &around->nic[around->nics++]);
}

/* By its interface or its OpenFabrics device. */
static int nic_named(const rd_machine *machine, const char *name)
{
    for (int i = 0; i < machine->nic_count && *name; i++) {
        const rd_peripheral *seen = &machine->nics[i].seen;
        if (strcmp(seen->name, name) == 0 || strncmp(seen->verbs, name, sizeof seen->verbs - 1) == 0) return i;
    }
    return -1;
}

bool rd_nic_tell(const rd_machine *machine, const rd_place *place, int gpu, const char *device, const char *interface,
                 rd_nic *told)
{
    char under[16];
    int nic = device ? nic_named(machine, device) : -1;
    if (nic < 0) nic = nic_named(machine, interface);
    if (nic < 0 && rd_nic_lower(interface, under)) nic = nic_named(machine, under);
    told->link = rd_link_of(RD_LINK_SELF);
    if (nic >= 0) tell_card(machine, place, gpu, nic, told);
    return nic >= 0;
}

static void tell_interface(const rd_machine *machine, const rd_place *place, int gpu, const char *name, rd_nic *told)
{
    rd_peripheral here = {.up = true};
    bool known = rd_nic_tell(machine, place, gpu, NULL, name, told);
    snprintf(here.name, sizeof here.name, "%s", name);
    rd_nic_ask_kernel(&here, 1);
    if (!known || here.mbit) told->mbit = here.mbit;
    told->up = here.up;
    snprintf(told->name, sizeof told->name, "%s", name);
}

rondo_result rd_around_here(const rd_place *place, uint32_t gpu, const rd_reached_by *interfaces, int count,
                            rd_around *around)
{
    const rd_machine *machine = rd_machine_with_devices();
    int mine = -1;
    if (!machine) return RONDO_SYSTEM_ERROR;
    for (int i = 0; i < machine->gpu_count; i++)
        if (machine->gpus[i].seen.bus == gpu) mine = i;
    rd_around_of(machine, place, mine, around);
    around->gpu = gpu;
    around->nics = count < RD_MAX_NICS ? count : RD_MAX_NICS;
    memset(around->nic, 0, sizeof around->nic);
    for (int i = 0; i < around->nics; i++) {
        tell_interface(machine, place, mine, interfaces[i].name, &around->nic[i]);
        memcpy(around->nic[i].networks, interfaces[i].networks, sizeof interfaces[i].networks);
    }
    return RONDO_SUCCESS;
}
