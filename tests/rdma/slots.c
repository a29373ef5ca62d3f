/* SPDX-License-Identifier: Apache-2.0
 *
 * slots.c - the conformance suite for RDMA links whose long slots lie in memory of a simulated GPU, registered by its
 * address. Slots are filled and checked by copies of the driver.
 */
#include "../gpu_kit.h"
#include "../link_kit.h"
#include "../on_cudasim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void copy(void *to, const void *from, size_t bytes)
{
    static _Thread_local rd_cu_context context;
    if (!context) context = gpu_enter(0);
    gpu_put((rd_cu_address)(uintptr_t)to, from, bytes);
}

static void on_devices(int side)
{
    char names[128], *second = NULL;
    snprintf(names, sizeof names, "%s", getenv("RONDO_TEST_RDMA"));
    char *first = strtok_r(names, " ", &second);
    setenv("RONDO_RDMA_DEVICE", side == RD_SENDER || !*second ? first : second, 1);
    setenv("RONDO_RDMA_EAGER", "256", 1);
}

int main(int argc, char **argv)
{
    static const struct link_kind bases[] = {
        {.name = "verbs, GPU memory", .transport = &rd_transport_verbs, .sockets = 1, .before = on_devices, .asks = 256,
         .devices = {0, 1}, .in_gpu = true},
        {.name = "verbs, GPU memory, 3 queue pairs", .transport = &rd_transport_verbs, .sockets = 3, .before = on_devices,
         .asks = 256, .devices = {1, 0}, .in_gpu = true},
    };
    (void)argc;
    if (!getenv("RONDO_TEST_RDMA")) return fputs("RONDO_TEST_RDMA names no RDMA device\n", stderr), 1;
    on_cudasim(argv, "devices=2 no_fds");
    link_copy_device = copy;
    return link_conformance(bases, sizeof bases / sizeof bases[0], 300);
}
