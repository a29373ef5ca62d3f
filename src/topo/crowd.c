/* SPDX-License-Identifier: Apache-2.0
 *
 * crowd.c - whether ranks must take turns on processing units.
 *
 * Ranks can have a unit each unless some set of units has more ranks that may run nowhere else. Bindings are in
 * practice equal, apart, or one inside the other, and then it is enough to look at each rank's own binding, and at all
 * that lie within it. A binding is taken for the stretch from its first to its last unit, in the order of the machine's
 * parts; one with holes may therefore be called crowded when it is not, which costs a little waiting and nothing else.
 */
#include "topo/topo.h"

bool rd_crowded(const rd_place *places, int n, int host)
{
    for (int a = 0; a < n; a++) {
        int within = 0;
        if (places[a].host != host) continue;
        for (int b = 0; b < n; b++)
            within += places[b].host == host && places[b].first_pu >= places[a].first_pu &&
                      places[b].last_pu <= places[a].last_pu;
        if (within > places[a].pus) return true;
    }
    return false;
}
