/* SPDX-License-Identifier: Apache-2.0
 *
 * rails.h - the RDMA ports of a rank, as cards that its rings cross from one host to the next by. Like interfaces
 * (ring.h), with two differences: a port is on one network, and two ports of a host that are on one network both serve,
 * since a queue pair stays with its port.
 */
#ifndef RD_TOPO_RAILS_H
#define RD_TOPO_RAILS_H

#include "base/rdma.h"
#include "topo/devices.h"

typedef struct rd_rails {
    /* Cards only. Each is named by its network interface, or where there is none as below, and is on two networks: of
     * its subnet and of its kind (rd_rails_agree). */
    rd_around told;
    char port[RD_MAX_NICS][RD_RDMA_PORT_NAME];
} rd_rails;

/* The ports here that can be used, and how far each is from a GPU (rd_bus_id()), or with RD_NO_GPU from a place. Looks
 * for the machine's devices if there is any, which takes some 10 ms. */
rondo_result rd_rails_here(const rd_settings *settings, const rd_place *place, uint32_t gpu, rd_rails *rails);
/* The same of a machine that is described. gpu: its number, -1: none. */
void rd_rails_of(const rd_machine *machine, const rd_place *place, int gpu, const rd_rdma_port *ports, int count,
                 rd_rails *rails);

/* What lies between the rank and a port, in words. */
const char *rd_rails_between(const rd_rails *rails, int port);

/* What n ranks told of their cards, by rank: leaves each the one network that counts. Where all share a subnet with the
 * first who has any ports, as on a fabric of InfiniBand, or with a subnet for each rail, that is the subnet. Else there
 * are routers, and all ports of a kind reach one another. */
void rd_rails_agree(rd_around *told, int n);

#endif
