/* SPDX-License-Identifier: Apache-2.0
 *
 * order.h - round trips inside order*.c: over n nodes from node 0 and back, cost[a * n + b] from a to b, in 64 bits so
 * that sums cannot overflow. order[0] is 0.
 */
#ifndef RD_TOPO_ORDER_H
#define RD_TOPO_ORDER_H

#include "rondo.h"

/* The cheapest of all; n <= 17 */
enum { RD_EXACT_NODES = 17 };
rondo_result rd_tour_exact(const uint64_t *cost, int n, int32_t *order);

/* Makes the round trip in `order` cheaper, until no reversal and no move of a short piece does. */
rondo_result rd_tour_search(const uint64_t *cost, int n, int32_t *order);

#endif
