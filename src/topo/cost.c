/* SPDX-License-Identifier: Apache-2.0
 *
 * cost.c - what a hop between two places costs: nanoseconds for one cache line, one way, by the closest thing that
 * both certainly share.
 *
 *   share              ns
 *   a core             25    measured: half the round trip of a flag between SMT siblings (50)
 *   an L2 cache        40    estimate, between its neighbours (clusters of cores on Arm and some Intel)
 *   an L3 cache        55    measured: half of 105 to 125
 *   a NUMA node       160    measured, two L3 caches of one package: half of 250 to 400
 *   a package         190    estimate: as above and a longer way through the same chip
 *   a host            300    estimate: one hop between sockets more
 *   nothing         5,000    estimate: a small message through the kernels of two hosts and a fast network
 *
 * Measured with `build/bench/guard shm`, which prints the round trip, on one virtual machine with two cores of an AMD
 * EPYC (family 25, model 17), as the hypervisor moved them about. The ring's order needs no more than which is
 * cheaper, and that the steps come in this order everywhere.
 *
 * A NUMA node that spans packages (memory interleaved by the firmware, a virtual machine that shows one node) brings
 * their cores no closer: the package decides. A machine without packages has -1 there for every rank.
 *
 * Two ranks bound to one processing unit count as a shared core: what one left in the cache the other finds.
 * A rank whose binding spans several things of a kind shares none of them for certain, and is not taken to: the cost
 * is that of the next larger thing that contains both. So costs are ultrametric wherever one kind nests in the other
 * (c(x,z) <= max(c(x,y), c(y,z))), which makes the order found in order.c the best there is.
 */
#include "topo/topo.h"

#include <stdbool.h>

enum closest { CORE, L2, L3, NUMA, PACKAGE, HOST, NOTHING };

static const struct {
    uint32_t ns;
    const char *name;
} shared[] = {
    [CORE] = {25, "core"},         [L2] = {40, "L2 cache"},  [L3] = {55, "L3 cache"},      [NUMA] = {160, "NUMA node"},
    [PACKAGE] = {190, "package"}, [HOST] = {300, "host"}, [NOTHING] = {5000, "network"},
};

static bool both_in(int32_t a, int32_t b) { return a >= 0 && a == b; }

static enum closest closest(const rd_place *a, const rd_place *b)
{
    if (a->host != b->host) return NOTHING;
    if (both_in(a->core, b->core)) return CORE;
    if (both_in(a->l2, b->l2)) return L2;
    if (both_in(a->l3, b->l3)) return L3;
    if (both_in(a->numa, b->numa) && a->package == b->package) return NUMA;
    if (both_in(a->package, b->package)) return PACKAGE;
    return HOST;
}

uint32_t rd_cost(const rd_place *a, const rd_place *b) { return shared[closest(a, b)].ns; }

const char *rd_shared_name(const rd_place *a, const rd_place *b) { return shared[closest(a, b)].name; }
