/* SPDX-License-Identifier: Apache-2.0
 *
 * test_rails.c - which RDMA port serves which rank and channel, on a described machine: eight GPUs in pairs, each pair on a
 * PCIe switch with an InfiniBand port (tests/topologies/machines.py, "cube").
 */
#include "test.h"

#include "base/status.h"
#include "topo/nics.h"
#include "topo/rails.h"

#include <unistd.h>

enum { GPUS = 8, PORTS = 4, HOSTS = 2, RANKS = HOSTS * GPUS };

static char folder[64];
static rd_machine *machine;

static int describe(void **state)
{
    char command[200], path[100];
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/rondo-rails-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    snprintf(command, sizeof command, "python3 tests/topologies/machines.py %s", folder);
    snprintf(path, sizeof path, "%s/cube.xml", folder);
    return system(command) || rd_machine_xml(&machine, path) != RONDO_SUCCESS;
}

static int forget(void **state)
{
    char command[200];
    (void)state;
    rd_machine_free(machine);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static rd_rdma_port infiniband(int device, unsigned char subnet)
{
    rd_rdma_port port = {.port = 1, .active = true, .gid_count = 1,
                         .gids = {{.kind = RD_GID_INFINIBAND, .bytes = {0xfe, 0x80, [7] = subnet, [15] = (unsigned char)device}}}};
    snprintf(port.device, sizeof port.device, "mlx5_%d", device);
    snprintf(port.rate, sizeof port.rate, "100 Gb/sec (4X EDR)");
    return port;
}

/* Of a rank on a GPU, or with -1 on a unit of the second package. `apart`: each port is on a subnet of its own. */
static rd_rails rails_of(int gpu, bool apart)
{
    rd_rdma_port ports[PORTS + 1];
    rd_place place;
    rd_rails rails;
    for (int i = 0; i < PORTS; i++) ports[i + 1] = infiniband(i, apart ? (unsigned char)i : 0);
    ports[0] = infiniband(9, 0);
    snprintf(ports[0].unusable, sizeof ports[0].unusable, "its port is DOWN");
    assert_int_equal(rd_place_of_pu(machine, rd_machine_pus(machine) - 1, &place), RONDO_SUCCESS);
    rd_rails_of(machine, &place, gpu, ports, PORTS + 1, &rails);
    assert_int_equal(rails.told.nics, PORTS);
    rd_rails_agree(&rails.told, 1);
    return rails;
}

static int nearest(int gpu)
{
    rd_rails rails = rails_of(gpu, false);
    int32_t here, there;
    rd_nics_pair(&rails.told, &rails.told, &here, &there);
    assert_int_equal(here, there);
    return here;
}

static void each_gpu_has_the_port_on_its_switch(void **state)
{
    (void)state;
    for (int gpu = 0; gpu < GPUS; gpu++) assert_int_equal(nearest(gpu), gpu / 2);
    assert_int_equal(nearest(-1), 2); /* the first on the processor's own package */
    rd_rails rails = rails_of(5, false);
    assert_string_equal(rails.port[2], "mlx5_2:1");
    assert_int_equal(rails.told.nic[2].link.kind, RD_LINK_PCI_SWITCH);
    assert_int_equal(rails.told.nic[3].link.kind, RD_LINK_PCI_BRIDGE);
    assert_int_equal(rails.told.nic[0].link.kind, RD_LINK_PCI_HOST);
    assert_int_equal(rails.told.nic[0].mbit, 100000);
}

/* Two hosts, a rank on each GPU: ring c leaves and enters by port c, from and to a GPU on its switch. */
static void each_channel_has_its_rail(void **state)
{
    (void)state;
    rd_place places[RANKS];
    static rd_around around[RANKS];
    rd_rings rings;
    for (int apart = 0; apart < 2; apart++) {
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(rd_place_of_pu(machine, 0, &places[r]), RONDO_SUCCESS);
            places[r].host = r / GPUS;
            rd_around_of(machine, &places[r], r % GPUS, &around[r]);
            rd_rails rails = rails_of(r % GPUS, apart);
            memcpy(around[r].nic, rails.told.nic, sizeof around[r].nic);
            around[r].nics = rails.told.nics;
        }
        assert_int_equal(rd_rings_make(&rings, &(rd_told){.ranks = RANKS, .places = places, .around = around}, 0), RONDO_SUCCESS);
        assert_int_equal(rings.channels, PORTS);
        for (int i = 0; i < rings.channels * RANKS; i++) {
            const rd_hop *hop = &rings.hops[i];
            int channel = i / RANKS;
            if (hop->from / GPUS == hop->to / GPUS) continue;
            assert_int_equal(hop->nic, channel);
            assert_int_equal(hop->nic_there, channel);
            assert_int_equal(hop->from % GPUS / 2, channel);
            assert_int_equal(hop->to % GPUS / 2, channel);
        }
        rd_rings_free(&rings);
    }
}

static rd_around on_subnets(uint64_t a, uint64_t b, uint64_t kind)
{
    return (rd_around){.nics = 2, .nic = {{.networks = {a, kind}}, {.networks = {b, kind}}}};
}

static void subnets_count_where_all_share_one(void **state)
{
    (void)state;
    rd_around direct[4] = {{0}, on_subnets(7, 8, 1), on_subnets(8, 9, 1), on_subnets(7, 0, 1)};
    rd_rails_agree(direct, 4);
    assert_int_equal(direct[2].nic[1].networks[0], 9);
    assert_int_equal(direct[2].nic[1].networks[1], 0);
    assert_true(direct[3].nic[0].up && !direct[3].nic[1].up);
    rd_around routed[3] = {on_subnets(7, 8, 1), on_subnets(9, 10, 1), on_subnets(7, 8, 2)};
    rd_rails_agree(routed, 3);
    for (int r = 0; r < 3; r++) assert_int_equal(routed[r].nic[1].networks[0], r == 2 ? 2 : 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_gpu_has_the_port_on_its_switch),
        cmocka_unit_test(each_channel_has_its_rail),
        cmocka_unit_test(subnets_count_where_all_share_one),
    };
    return cmocka_run_group_tests(tests, describe, forget);
}
