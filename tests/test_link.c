/* SPDX-License-Identifier: Apache-2.0
 *
 * test_link.c - the conformance suite for every transport of CPUs, plain, made worse by the fault wrapper, and with its
 * other face by the adapter.
 */
#include "link_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef RD_VERBS
/* Needs RDMA devices: RONDO_TEST_RDMA names them, one for each side, and then the suite is for verbs alone. Short slices
 * go through slots, long ones into memory; half of all sizes are long where the limit is low. */
static void on_devices(int side, const char *short_bytes)
{
    char names[128], *second = NULL;
    snprintf(names, sizeof names, "%s", getenv("RONDO_TEST_RDMA"));
    char *first = strtok_r(names, " ", &second);
    setenv("RONDO_RDMA_DEVICE", side == RD_SENDER || !*second ? first : second, 1);
    setenv("RONDO_RDMA_EAGER", short_bytes, 1);
}
static void mostly_short(int side) { on_devices(side, "8192"); }
static void mostly_long(int side) { on_devices(side, "256"); }

static const struct link_kind rdma[] = {
    {.name = "verbs, short", .transport = &rd_transport_verbs, .sockets = 1, .before = mostly_short},
    {.name = "verbs, long", .transport = &rd_transport_verbs, .sockets = 1, .before = mostly_long, .asks = 256},
    {.name = "verbs, 3 queue pairs", .transport = &rd_transport_verbs, .sockets = 3, .before = mostly_long, .asks = 256},
};
#endif

int main(void)
{
    static const struct link_kind bases[] = {
        {.name = "loop", .transport = &rd_transport_loop},
        {.name = "shm", .transport = &rd_transport_shm},
        {.name = "tcp, 1 socket", .transport = &rd_transport_tcp, .sockets = 1},
        {.name = "tcp, 2 sockets", .transport = &rd_transport_tcp, .sockets = 2},
        {.name = "tcp, 4 sockets", .transport = &rd_transport_tcp, .sockets = 4},
    };
#ifdef RD_VERBS
    if (getenv("RONDO_TEST_RDMA")) return link_conformance(rdma, sizeof rdma / sizeof rdma[0], 1000);
#endif
    return link_conformance(bases, sizeof bases / sizeof bases[0], 0);
}
