/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gpu_link.c - the conformance suite for cuda_ipc: two GPUs and one, over descriptors, and where a GPU has none
 * over handles and addresses. Payloads are filled and checked by copies of the driver.
 */
#include "gpu_kit.h"
#include "link_kit.h"
#include "on_cudasim.h"

static void copy(void *to, const void *from, size_t bytes)
{
    static _Thread_local rd_cu_context context;
    if (!context) context = gpu_enter(0);
    gpu_put((rd_cu_address)(uintptr_t)to, from, bytes);
}

int main(int argc, char **argv)
{
    static const char *const settings[] = {"devices=2 p2p=switch", "devices=2 p2p=pcie no_fds", NULL};
    static const struct link_kind bases[] = {
        {.name = "cuda_ipc", .transport = &rd_transport_cuda_ipc, .devices = {0, 1}},
        {.name = "cuda_ipc, one GPU", .transport = &rd_transport_cuda_ipc, .devices = {1, 1}},
    };
    (void)argc;
    on_each_cudasim(argv, settings);
    link_copy_device = copy;
    return link_conformance(bases, sizeof bases / sizeof bases[0], 500); /* a copy by a driver takes long */
}
