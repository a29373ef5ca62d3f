/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/rails.h"

#include "base/hash.h"
#include "base/interface.h"
#include "base/status.h"
#include "topo/machine.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Networks ---- */

/* The address of a RoCE port as its interface has it, with the size of its network. */
static bool interface_of(const rd_rdma_gid *gid, rd_interface *interface)
{
    enum { MOST = 16 };
    rd_interface list[MOST], own = {0};
    char filter[sizeof gid->netdev + 1];
    int count = 0;
    snprintf(filter, sizeof filter, "=%s", gid->netdev);
    if (gid->kind == RD_GID_ROCE2_IPV4) {
        struct sockaddr_in *at = (struct sockaddr_in *)&own.at.at;
        at->sin_family = AF_INET;
        memcpy(&at->sin_addr, gid->bytes + 12, 4);
    } else {
        struct sockaddr_in6 *at = (struct sockaddr_in6 *)&own.at.at;
        at->sin6_family = AF_INET6;
        memcpy(&at->sin6_addr, gid->bytes, 16);
    }
    if (!*gid->netdev || rd_interface_list(filter, list, MOST, &count) != RONDO_SUCCESS) return false;
    for (int i = 0; i < count; i++) {
        if (!rd_address_same(&list[i].at, &own.at)) continue;
        *interface = list[i];
        return true;
    }
    return false;
}

/* Equal networks have equal numbers; 0: it is not known. Ports of InfiniBand on one subnet have one prefix. */
static uint64_t subnet_of(const rd_rdma_gid *gid)
{
    char text[RD_ADDRESS_TEXT];
    uint64_t number[2];
    rd_interface interface;
    if (gid->kind == RD_GID_INFINIBAND)
        rd_hash(number, sizeof number, "subnet", gid->bytes, 8);
    else if (interface_of(gid, &interface)) {
        rd_interface_network(&interface, text);
        rd_hash(number, sizeof number, "network", text, strlen(text));
    } else
        return 0;
    return number[0] | 1;
}

static bool share_subnet(const rd_around *a, const rd_around *b)
{
    for (int i = 0; i < a->nics; i++)
        for (int j = 0; j < b->nics; j++)
            if (a->nic[i].networks[0] && a->nic[i].networks[0] == b->nic[j].networks[0]) return true;
    return false;
}

void rd_rails_agree(rd_around *told, int n)
{
    const rd_around *first = NULL;
    bool routed = false;
    for (int r = 0; r < n; r++) {
        if (!told[r].nics) continue;
        if (!first) first = &told[r];
        routed = routed || !share_subnet(first, &told[r]);
    }
    for (int r = 0; r < n; r++)
        for (int i = 0; i < told[r].nics; i++) {
            rd_nic *nic = &told[r].nic[i];
            if (routed) nic->networks[0] = nic->networks[1];
            nic->networks[1] = 0;
            nic->up = nic->networks[0] != 0;
        }
}

/* ---- Ports ---- */

void rd_rails_of(const rd_machine *machine, const rd_place *place, int gpu, const rd_rdma_port *ports, int count,
                 rd_rails *rails)
{
    memset(rails, 0, sizeof *rails);
    rails->told.gpu = gpu < 0 ? RD_NO_GPU : machine->gpus[gpu].seen.bus;
    for (int i = 0; i < count && rails->told.nics < RD_MAX_NICS; i++) {
        const rd_rdma_port *port = &ports[i];
        if (*port->unusable || port->gid < 0) continue;
        const rd_rdma_gid *gid = &port->gids[port->gid];
        char *name = rails->port[rails->told.nics];
        rd_nic *nic = &rails->told.nic[rails->told.nics++];
        rd_rdma_port_name(port, name);
        rd_nic_tell(machine, place, gpu, port->device, gid->netdev, nic);
        snprintf(nic->name, sizeof nic->name, "%.15s", *gid->netdev ? gid->netdev : name);
        nic->mbit = (uint32_t)(strtod(port->rate, NULL) * 1000);
        nic->up = 1;
        nic->networks[0] = subnet_of(gid);
        nic->networks[1] = 1 + (uint64_t)gid->kind;
    }
}

const char *rd_rails_between(const rd_rails *rails, int port)
{
    uint32_t kind = rails->told.nic[port].link.kind;
    return kind == RD_LINK_SELF ? "no hardware" : rd_link_name(kind);
}

rondo_result rd_rails_here(const rd_settings *settings, const rd_place *place, uint32_t gpu, rd_rails *rails)
{
    int count = 0, mine = -1;
    const rd_machine *machine = NULL;
    rd_rdma_port *ports = calloc(RD_RDMA_PORTS, sizeof *ports);
    if (!ports) return rd_fail(RONDO_SYSTEM_ERROR, "no memory for the list of RDMA devices");
    rondo_result result = rd_rdma_list(RD_RDMA_SYSFS, settings, ports, RD_RDMA_PORTS, &count);
    if (result == RONDO_SUCCESS && count && !(machine = rd_machine_with_devices())) result = RONDO_SYSTEM_ERROR;
    for (int i = 0; machine && i < machine->gpu_count; i++)
        if (machine->gpus[i].seen.bus == gpu) mine = i;
    if (result == RONDO_SUCCESS) rd_rails_of(machine, place, mine, ports, count, rails);
    free(ports);
    return result;
}
