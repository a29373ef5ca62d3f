/* SPDX-License-Identifier: Apache-2.0
 *
 * cost.c - kinds of links: latency and bandwidth of each, one way, for the pairs of which nothing better is known.
 *
 *   kind              ns   10^6 B/s   source
 *   a core            25     40,000   measured: half the round trip of a flag between siblings (50); lines: estimate
 *   an L2 cache       40     38,000   estimate, between its neighbours (clusters of cores on Arm and some Intel)
 *   an L3 cache       55     36,000   measured: half of 105 to 125; a line moves in 1.5 to 2 ns
 *   a NUMA node      160     12,800   measured, two L3 caches of one package: half of 250 to 400; a line moves in 5 ns
 *   a package        190     12,000   estimate: as above and a longer way through the same chip
 *   a host           300     10,000   estimate: one hop between sockets more
 *   NVLink           700     25,000   a link of the second or third generation; hwloc and NVML say how many there are
 *   NVSwitch         900    150,000   six links into a switch of the first generation; likewise
 *   a PCIe switch  1,200     12,500   PCIe 3.0 x16 carries 15.75 x 10^9 B/s, of which packets of 256 B leave 80 %
 *   a host bridge  1,500     12,000   estimate: the same through the root complex
 *   a processor    1,800     11,000   estimate: from one root complex to another on the same die
 *   processors     2,500      9,000   estimate: over the link between sockets
 *   a network      5,000  by its speed   estimate: a small message through the kernels of two hosts
 *
 * Measured between cores by a flag's round trip, as `rondo bench` does, on one virtual machine with two
 * cores of an AMD EPYC (family 25, model 17), as the hypervisor moved them about; lines by its all-reduces. The ring's
 * order needs no more than which is cheaper, and that the steps come in this order everywhere. hwloc's figures
 * and measured ones (`rondo topo --measure`) take the place of the table's.
 *
 * A NUMA node that spans packages (memory interleaved by the firmware, a virtual machine that shows one node) brings
 * their cores no closer: the package decides. A machine without packages has -1 there for every rank.
 *
 * Two ranks bound to one processing unit count as a shared core: what one left in the cache the other finds.
 * A rank whose binding spans several things of a kind shares none of them for certain, and is not taken to: the cost
 * is that of the next larger thing that contains both. So costs are ultrametric wherever one kind nests in the other
 * (c(x,z) <= max(c(x,y), c(y,z))), which makes the first order found in order.c the best there is.
 */
#include "topo/topo.h"

static const struct {
    const char *name;
    uint32_t ns, mbs;
} table[RD_LINK_KINDS] = {
    [RD_LINK_SELF] = {"device", 0, 400000},
    [RD_LINK_CORE] = {"core", 25, 40000},
    [RD_LINK_L2] = {"L2 cache", 40, 38000},
    [RD_LINK_L3] = {"L3 cache", 55, 36000},
    [RD_LINK_NUMA] = {"NUMA node", 160, 12800},
    [RD_LINK_PACKAGE] = {"package", 190, 12000},
    [RD_LINK_HOST] = {"host", 300, 10000},
    [RD_LINK_NVLINK] = {"NVLink", 700, 25000},
    [RD_LINK_NVSWITCH] = {"NVSwitch", 900, 150000},
    [RD_LINK_PCI_SWITCH] = {"PCIe switch", 1200, 12500},
    [RD_LINK_PCI_BRIDGE] = {"host bridge", 1500, 12000},
    [RD_LINK_PCI_NUMA] = {"processor", 1800, 11000},
    [RD_LINK_PCI_HOST] = {"processors", 2500, 9000},
    [RD_LINK_NETWORK] = {"network", 5000, 1250},
};

enum { SLICE = 64 << 10, UNKNOWN_MBIT = 10000 };

rd_link rd_link_of(rd_link_kind kind)
{
    return (rd_link){.kind = kind, .ns = table[kind].ns, .mbs = table[kind].mbs};
}

rd_link rd_link_network(uint32_t mbit)
{
    rd_link link = rd_link_of(RD_LINK_NETWORK);
    if (!mbit) mbit = UNKNOWN_MBIT;
    link.mbs = mbit < 8 ? 1 : mbit / 8;
    return link;
}

const char *rd_link_name(uint32_t kind) { return kind < RD_LINK_KINDS ? table[kind].name : "unknown link"; }

uint32_t rd_link_cost(rd_link link, int users)
{
    return link.ns + (uint32_t)((uint64_t)SLICE * 1000 * (uint64_t)users / (link.mbs ? link.mbs : 1));
}

static bool both_in(int32_t a, int32_t b) { return a >= 0 && a == b; }

static rd_link_kind closest(const rd_place *a, const rd_place *b)
{
    if (a->host != b->host) return RD_LINK_NETWORK;
    if (both_in(a->core, b->core)) return RD_LINK_CORE;
    if (both_in(a->l2, b->l2)) return RD_LINK_L2;
    if (both_in(a->l3, b->l3)) return RD_LINK_L3;
    if (both_in(a->numa, b->numa) && a->package == b->package) return RD_LINK_NUMA;
    if (both_in(a->package, b->package)) return RD_LINK_PACKAGE;
    return RD_LINK_HOST;
}

rd_link rd_place_link(const rd_place *a, const rd_place *b) { return rd_link_of(closest(a, b)); }
