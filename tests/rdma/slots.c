/* SPDX-License-Identifier: Apache-2.0
 *
 * slots.c - the conformance suite for RDMA links whose long slots lie in memory of a simulated GPU, registered by its
 * address. Slots are filled and checked by copies of the driver.
 */
#include "../gpu_kit.h"
#include "../link_kit.h"
#include "../on_cudasim.h"
#include "../test.h"

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

static const struct link_kind bases[] = {
    {.name = "verbs, GPU memory", .transport = &rd_transport_verbs, .sockets = 1, .before = on_devices, .asks = 256,
     .devices = {0, 1}, .in_gpu = true},
    {.name = "verbs, GPU memory, 3 queue pairs", .transport = &rd_transport_verbs, .sockets = 3, .before = on_devices,
     .asks = 256, .devices = {1, 0}, .in_gpu = true},
};

/* Slices that have come by the time that the receiver looks are flushed together. */
static void test_one_flush(void **state)
{
    enum { TOGETHER = 3, BYTES = 4096 };
    struct link_pair pair;
    void *place;
    uint64_t count = 0;
    (void)state;
    link_pair_open(&pair, &bases[0], 4, BYTES);
    rondo_link *sender = pair.ends[RD_SENDER], *receiver = pair.ends[RD_RECEIVER];
    for (uint64_t round = 0; round < 5; round++) {
        uint64_t first = round * TOGETHER;
        unsigned long before = cudasim_calls("cuFlushGPUDirectRDMAWrites");
        for (uint32_t i = 0; i < TOGETHER; i++)
            assert_int_equal(receiver->ops->peek_ahead(receiver, i, BYTES, link_signature(first + i), &place), RONDO_LINK_AGAIN);
        for (uint64_t n = first; n < first + TOGETHER; n++) {
            assert_int_equal(sender->ops->reserve(sender, BYTES, &place), RONDO_LINK_OK);
            link_fill_at(sender, place, n, BYTES);
            assert_int_equal(sender->ops->commit(sender, BYTES, link_signature(n)), RONDO_LINK_OK);
        }
        for (int64_t until = rd_now() + LINK_DEADLINE_NS; count < first + TOGETHER && rd_now() < until;)
            assert_int_equal(sender->ops->poll(sender, &count), RONDO_LINK_OK);
        assert_int_equal(receiver->ops->poll(receiver, &count), RONDO_LINK_OK);
        assert_int_equal(count, first + TOGETHER);
        assert_int_equal(cudasim_calls("cuFlushGPUDirectRDMAWrites") - before, 1);
        for (uint64_t n = first; n < first + TOGETHER; n++) {
            assert_int_equal(receiver->ops->peek(receiver, BYTES, link_signature(n), &place), RONDO_LINK_OK);
            assert_true(link_filled_at(receiver, place, n, BYTES));
            assert_int_equal(receiver->ops->release(receiver), RONDO_LINK_OK);
        }
    }
    link_pair_close(&pair);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest flushes[] = {cmocka_unit_test(test_one_flush)};
    (void)argc;
    if (!getenv("RONDO_TEST_RDMA")) return fputs("RONDO_TEST_RDMA names no RDMA device\n", stderr), 1;
    on_cudasim(argv, "devices=2 no_fds");
    link_copy_device = copy;
    int failed = link_conformance(bases, sizeof bases / sizeof bases[0], 300); /* first: it forks, and a driver forbids that */
    return cmocka_run_group_tests(flushes, NULL, NULL) + failed;
}
