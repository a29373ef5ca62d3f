/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gpu_link_make.c - cuda_ipc: between which GPUs it reaches, what happens when the driver refuses something, when
 * ends close in any order or die, and what they leave behind: nothing.
 */
#include "gpu_kit.h"
#include "link_kit.h"
#include "on_cudasim.h"

#include "base/gpu_shared.h"
#include "base/status.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLOTS = 4, SLOT_BYTES = 4096 };

static const struct link_kind kind = {.name = "cuda_ipc", .transport = &rd_transport_cuda_ipc, .devices = {0, 1}};
static const char *settings;

static bool set(const char *word)
{
    return strstr(settings, word) != NULL;
}

/* ---- What is alive ---- */

struct alive {
    struct cudasim_held held;
    int fds;
};

/* Forgets the last error, too. */
static struct alive look(void)
{
    struct alive now = {0};
    for (int fd = 0; fd < 512; fd++) now.fds += fcntl(fd, F_GETFD) >= 0;
    cudasim_held(&now.held);
    rd_fail(RONDO_SUCCESS, "%s", "");
    return now;
}

static void check_nothing_left(struct alive before)
{
    struct alive now = look();
    assert_memory_equal(&before.held, &now.held, sizeof now.held);
    assert_int_equal(before.fds, now.fds);
}

/* ---- Making a link, as far as it goes ---- */

/* Memory that the two share already, as each of them sees it; NULL: none. The receiver's slots begin at lent_at. */
static const rd_gpu_shared *lent[2];
static size_t lent_at;

struct attempt {
    rondo_bell bells[2];
    rondo_link *ends[2];
    rondo_result result;
};

static void attempt_in(struct attempt *a, size_t slot_bytes, void (*spoil_offer)(rondo_offer *),
                       void (*spoil_answer)(rondo_offer *))
{
    const rondo_transport *t = kind.transport;
    rondo_link_spec specs[2];
    rondo_offer offer, answer;
    *a = (struct attempt){0};
    for (int side = 0; side < 2; side++) {
        assert_int_equal(rd_bell_open(&a->bells[side]), RONDO_SUCCESS);
        specs[side] = (rondo_link_spec){.me = side,
                                        .peer = !side,
                                        .slots = SLOTS,
                                        .slot_bytes = slot_bytes,
                                        .bell = &a->bells[side],
                                        .device = kind.devices[side],
                                        .shared_at = lent_at};
        if (lent[side]) specs[side].shared = (unsigned char *)(uintptr_t)lent[side]->address;
        if (lent[side]) specs[side].shared_bytes = lent[side]->bytes;
    }
    a->result = t->offer(&specs[RD_SENDER], &a->ends[RD_SENDER], &offer);
    if (a->result == RONDO_SUCCESS && spoil_offer) spoil_offer(&offer);
    if (a->result == RONDO_SUCCESS) a->result = t->accept(&specs[RD_RECEIVER], &offer, &a->ends[RD_RECEIVER], &answer);
    if (a->result == RONDO_SUCCESS && spoil_answer) spoil_answer(&answer);
    if (a->result == RONDO_SUCCESS) a->result = t->complete(a->ends[RD_SENDER], &answer);
}

static void give_up(struct attempt *a)
{
    for (int side = 0; side < 2; side++) {
        if (a->ends[side]) a->ends[side]->ops->close(a->ends[side]);
        rd_bell_close(&a->bells[side]);
    }
}

/* The simulated driver opens a descriptor when a GPU's memory is first used. */
static void begin_devices(void)
{
    for (int device = 0; device < 2; device++) {
        gpu_enter(device);
        CU(cuMemFree, gpu_alloc(1));
        gpu_leave(device);
    }
}

/* Must fail, and leave nothing. */
static void check_refused(void (*spoil_offer)(rondo_offer *), void (*spoil_answer)(rondo_offer *), size_t slot_bytes,
                          const char *words)
{
    struct attempt a;
    struct alive before = look();
    attempt_in(&a, slot_bytes, spoil_offer, spoil_answer);
    assert_int_not_equal(a.result, RONDO_SUCCESS);
    if (!strstr(rd_last_error(), words)) assert_string_equal(rd_last_error(), words);
    give_up(&a);
    check_nothing_left(before);
}

/* ---- Reach ---- */

static bool reaches(int from, int to, bool one_process, char *why, size_t bytes)
{
    rd_cu_uuid uuid;
    CU(cuDeviceGetUuid, &uuid, to);
    return rd_cuda_ipc_reaches(from, uuid.bytes, one_process, why, bytes);
}

static void test_reach(void **state)
{
    (void)state;
    char why[200] = "";
    if (set("no_ipc")) return;
    bool none = set("p2p=none");
    assert_true(reaches(0, 0, false, why, sizeof why));
    assert_int_equal(reaches(0, 1, false, why, sizeof why), !none);
    assert_int_equal(reaches(2, 0, true, why, sizeof why), !none);
    if (none) assert_string_equal(why, "GPU 2 has no peer-to-peer access to the memory of GPU 0");
}

/* Neither descriptors nor handles: only within a process. */
static void test_no_sharing(void **state)
{
    (void)state;
    char why[200];
    if (!set("no_ipc")) return;
    assert_true(reaches(0, 1, true, why, sizeof why));
    assert_false(reaches(0, 1, false, why, sizeof why));
    assert_string_equal(why, "GPU 0 can share memory with other processes neither by descriptor nor by IPC handle");
}

/* ---- Refusals ---- */

static void test_no_way(void **state)
{
    (void)state;
    if (!set("p2p=none")) return;
    check_refused(NULL, NULL, SLOT_BYTES, "GPU 0 cannot reach the memory of rank 1's GPU: cu");
    check_refused(NULL, NULL, SLOT_BYTES, "RONDO_TRANSPORT=shm");
}

static void test_out_of_memory(void **state)
{
    (void)state;
    begin_devices();
    check_refused(NULL, NULL, 64 << 20, "no GPU memory for a link from rank 0: cuMem");
    check_refused(NULL, NULL, 64 << 20, "on GPU 1 failed: CUDA_ERROR_OUT_OF_MEMORY");
}

/* Every call of the driver that making a link needs fails once. */
static void test_driver_fails(void **state)
{
    (void)state;
    static const char *const calls[] = {
        "cuDeviceGetUuid",   "cuDevicePrimaryCtxRetain",       "cuCtxPushCurrent",    "cuMemGetAllocationGranularity",
        "cuMemCreate",       "cuMemExportToShareableHandle",   "cuMemAddressReserve", "cuMemMap",
        "cuMemSetAccess",    "cuMemImportFromShareableHandle", "cuMemAlloc",          "cuCtxEnablePeerAccess",
        "cuMemHostRegister",
    };
    struct attempt a;
    unsigned long failed = 0;
    if (set("p2p=none")) return;
    for (size_t c = 0; c < sizeof calls / sizeof calls[0]; c++) {
        unsigned long asked = cudasim_calls(calls[c]);
        attempt_in(&a, SLOT_BYTES, NULL, NULL);
        assert_int_equal(a.result, RONDO_SUCCESS);
        unsigned long needed = cudasim_calls(calls[c]) - asked;
        give_up(&a);
        for (unsigned long nth = 1; nth <= needed; nth++, failed++) {
            struct alive before = look();
            assert_int_equal(cudasim_fail(calls[c], nth, RD_CU_ERROR_NOT_PERMITTED, 0), 0);
            attempt_in(&a, SLOT_BYTES, NULL, NULL);
            if (c > 0) assert_int_equal(a.result, RONDO_UNHANDLED_CUDA_ERROR);
            if (c > 0) assert_non_null(strstr(rd_last_error(), calls[c]));
            if (c > 0) assert_non_null(strstr(rd_last_error(), "failed: CUDA_ERROR_NOT_PERMITTED"));
            if (c > 0) assert_non_null(strstr(rd_last_error(), "rank"));
            give_up(&a);
            check_nothing_left(before);
        }
    }
    assert_in_range(failed, 10, 100);
}

static void other_version(rondo_offer *offer)
{
    offer->data[0]++;
}
static void one_byte_less(rondo_offer *offer)
{
    offer->bytes--;
}
static void other_token(rondo_offer *offer)
{
    offer->data[20] ^= 1;
}
static void another_way(rondo_offer *offer)
{
    offer->data[8] = 64;
}
static void less_memory(rondo_offer *offer)
{
    memset(offer->data, 0, 8), offer->data[0] = 1;
}
static void other_process(rondo_offer *offer)
{
    offer->data[100] ^= 1;
}
static void no_descriptors(rondo_offer *offer)
{
    rd_offer_close(offer);
    offer->fd_count = 0;
}
static void other_descriptor(rondo_offer *offer)
{
    int other = memfd_create("other", MFD_CLOEXEC);
    assert_int_equal(dup3(other, offer->fds[offer->fd_count - 1], O_CLOEXEC), offer->fds[offer->fd_count - 1]);
    close(other);
}

static void test_spoilt(void **state)
{
    (void)state;
    check_refused(other_version, NULL, SLOT_BYTES, "rank 0 speaks version 7 of cuda_ipc links, this rank version 6");
    check_refused(one_byte_less, NULL, SLOT_BYTES, "rank 0 offers a cuda_ipc link in");
    check_refused(no_descriptors, NULL, SLOT_BYTES, "rank 0 offers a cuda_ipc link in");
    check_refused(other_token, NULL, SLOT_BYTES, "does not hold the token");
    check_refused(NULL, one_byte_less, SLOT_BYTES, "rank 1 answers a cuda_ipc link in");
    check_refused(NULL, no_descriptors, SLOT_BYTES, "rank 1 answers a cuda_ipc link in");
    check_refused(NULL, less_memory, SLOT_BYTES,
                  "memory of rank 1's GPU: what was said of it is damaged (1 bytes where");
    check_refused(NULL, another_way, SLOT_BYTES, "memory of rank 1's GPU: ");
    if (set("no_fds"))
        check_refused(NULL, other_process, SLOT_BYTES, "rank 1 names GPU memory by its address, but is in");
    if (!set("no_fds")) check_refused(NULL, other_descriptor, SLOT_BYTES, "cuMemImportFromShareableHandle");
}

/* ---- In memory that is shared already ---- */

static void beyond_the_memory(rondo_offer *offer)
{
    offer->data[32 + 5] = 1; /* of its place */
}
static void between_lines(rondo_offer *offer)
{
    offer->data[32] |= 8;
}

/* The slots lie where they shall, and to make the link takes no memory of a GPU and maps none. */
static void check_lent(const rd_gpu_shared *there, const rd_gpu_shared *here, size_t at)
{
    static const char *const calls[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemAlloc", "cuMemsetD8Async"};
    unsigned long asked = 0, asked_before = 0;
    struct attempt a;
    rondo_view views[2];
    const rd_gpu_shared *shared[2] = {[RD_SENDER] = there, [RD_RECEIVER] = here};
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) asked_before += cudasim_calls(calls[c]);
    memcpy(lent, shared, sizeof lent);
    lent_at = at;
    attempt_in(&a, SLOT_BYTES, NULL, NULL);
    assert_int_equal(a.result, RONDO_SUCCESS);
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) asked += cudasim_calls(calls[c]);
    assert_int_equal(asked, asked_before);
    for (int side = 0; side < 2; side++) {
        assert_int_equal(a.ends[side]->caps & (RONDO_LINK_DEVICE | RONDO_LINK_PACKETS), RONDO_LINK_DEVICE);
        assert_int_equal(a.ends[side]->ops->view(a.ends[side], &views[side]), RONDO_LINK_OK);
        assert_int_equal((uintptr_t)views[side].payloads, shared[side]->address + at);
        assert_null(views[side].packets);
    }
    static unsigned char bytes[SLOT_BYTES], got[SLOT_BYTES];
    link_fill(bytes, 3, SLOT_BYTES);
    assert_int_equal(link_put(a.ends[RD_SENDER], 0, bytes, SLOT_BYTES), RONDO_LINK_OK);
    assert_int_equal(link_get(a.ends[RD_RECEIVER], 0, got, SLOT_BYTES, link_signature(0)), RONDO_LINK_OK);
    assert_memory_equal(bytes, got, SLOT_BYTES);
    give_up(&a);
}

static void test_lent(void **state)
{
    (void)state;
    rd_gpu_shared here, there;
    rd_gpu_ticket ticket;
    int fd;
    if (set("p2p=none")) return;
    begin_devices();
    struct alive before = look();
    unsigned ways = rd_gpu_shared_ways(0, true);
    assert_int_equal(rd_gpu_shared_make(1, 3 * SLOTS * SLOT_BYTES, ways, &here, &ticket, &fd), RONDO_SUCCESS);
    assert_int_equal(rd_gpu_shared_open(0, &ticket, fd, 1, &there), RONDO_SUCCESS);
    check_lent(&there, &here, 0);
    check_lent(&there, &here, 2 * SLOTS * SLOT_BYTES);
    check_lent(&there, &here, here.bytes - SLOTS * SLOT_BYTES);
    lent_at = here.bytes - SLOTS * SLOT_BYTES + 64;
    check_refused(NULL, NULL, SLOT_BYTES, "do not lie in it");
    lent_at = 8;
    check_refused(NULL, NULL, SLOT_BYTES, "do not lie in it");
    lent_at = 0;
    check_refused(NULL, NULL, here.bytes, "do not lie in it");
    check_refused(NULL, beyond_the_memory, SLOT_BYTES, "rank 1 names slots that do not lie in the GPU memory");
    check_refused(NULL, between_lines, SLOT_BYTES, "rank 1 names slots that do not lie in the GPU memory");
    check_refused(NULL, another_way, SLOT_BYTES, "rank 1 names slots that do not lie in the GPU memory");
    lent[RD_SENDER] = NULL;
    check_refused(NULL, NULL, SLOT_BYTES, "rank 0 does not know of the GPU memory");
    lent[RD_SENDER] = &there, lent[RD_RECEIVER] = NULL;
    check_refused(NULL, NULL, SLOT_BYTES, "have no way in common to share memory");
    lent[RD_SENDER] = NULL;
    rd_gpu_shared_close(&there);
    rd_gpu_shared_close(&here);
    if (fd >= 0) close(fd);
    check_nothing_left(before);
}

/* ---- The end ---- */

/* Either end, or a bell, may go first. Where the memory is the receiver's own it stays until the sender has closed. */
static void test_close_orders(void **state)
{
    (void)state;
    if (set("p2p=none")) return;
    for (int order = 0; order < 4; order++) {
        struct link_pair pair;
        struct alive before = look();
        link_pair_open(&pair, &kind, SLOTS, SLOT_BYTES);
        link_pair_close_end(&pair, order & 1);
        if (order & 2) rd_bell_close(&pair.bells[order & 1]);
        assert_int_equal(look().held.device_memory - before.held.device_memory, set("no_fds"));
        link_pair_close_end(&pair, !(order & 1));
        link_pair_close(&pair);
        check_nothing_left(before);
    }
}

/* A sender that closes while a copy of its GPU still runs would be a bug of its own; but that it has been closed by the
 * receiver is none: what it writes then lands in memory that is still there. */
static void test_write_after_receiver_closed(void **state)
{
    (void)state;
    if (set("p2p=none")) return;
    static unsigned char bytes[SLOT_BYTES];
    struct link_pair pair;
    void *place;
    begin_devices();
    struct alive before = look();
    link_pair_open(&pair, &kind, SLOTS, SLOT_BYTES);
    rondo_link *sender = pair.ends[RD_SENDER];
    assert_int_equal(sender->ops->reserve(sender, SLOT_BYTES, &place), RONDO_LINK_OK);
    link_pair_close_end(&pair, RD_RECEIVER);
    gpu_enter(0);
    rd_cu_address other = gpu_alloc(SLOTS * SLOT_BYTES); /* does not get that memory */
    gpu_put((rd_cu_address)(uintptr_t)place, bytes, SLOT_BYTES);
    CU(cuMemFree, other);
    gpu_leave(0);
    link_pair_close(&pair);
    check_nothing_left(before);
}

/* In a child of fork there is no driver. Ends that it inherits may be closed there, and serve on here. */
static void test_fork(void **state)
{
    (void)state;
    if (set("p2p=none")) return;
    static unsigned char bytes[64] = {1, 2, 3}, got[64];
    struct link_pair pair;
    int status;
    link_pair_open(&pair, &kind, SLOTS, SLOT_BYTES);
    pid_t child = fork();
    if (!child) {
        struct attempt a;
        attempt_in(&a, SLOT_BYTES, NULL, NULL);
        _exit(a.result == RONDO_INVALID_USAGE && strstr(rd_last_error(), "fork") ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(link_put(pair.ends[RD_SENDER], 0, bytes, sizeof bytes), RONDO_LINK_OK);
    assert_int_equal(link_get(pair.ends[RD_RECEIVER], 0, got, sizeof got, link_signature(0)), RONDO_LINK_OK);
    assert_memory_equal(bytes, got, sizeof got);
    link_pair_close(&pair);
}

/* A sender in another process, which sees its GPU alone, sends a slice and is killed. */
static void sender_that_dies(int control)
{
    static unsigned char bytes[SLOT_BYTES];
    struct link_pair pair;
    rondo_link_spec spec = {.me = 0, .peer = 1, .slots = SLOTS, .slot_bytes = SLOT_BYTES, .device = 0};
    setenv("CUDA_VISIBLE_DEVICES", "1", 1); /* also: there it is number 0 */
    if (!link_pair_join(&pair, &kind, RD_SENDER, &spec, control)) _exit(1);
    link_fill(bytes, 0, SLOT_BYTES);
    if (link_put(pair.ends[RD_SENDER], 0, bytes, SLOT_BYTES) != RONDO_LINK_OK) _exit(1);
    raise(SIGKILL);
}

static void copy(void *to, const void *from, size_t bytes)
{
    static rd_cu_context context;
    if (!context) context = gpu_enter(0);
    gpu_put((rd_cu_address)(uintptr_t)to, from, bytes);
}

/* What it sent can be read; its end leaves nothing but, where the driver does not count, the memory itself. First of
 * all tests, since they fork before the driver is there. */
static void test_death(void **state)
{
    (void)state;
    static unsigned char got[SLOT_BYTES];
    struct link_pair pair;
    int control[2], status;
    rondo_link_spec spec = {.me = 1, .peer = 0, .slots = SLOTS, .slot_bytes = SLOT_BYTES, .device = 0};
    if (set("p2p=none") || set("no_ipc")) return;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control), 0);
    pid_t child = fork();
    if (!child) sender_that_dies(control[0]);
    close(control[0]);
    assert_true(link_pair_join(&pair, &kind, RD_RECEIVER, &spec, control[1]));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(link_get(pair.ends[RD_RECEIVER], 0, got, SLOT_BYTES, link_signature(0)), RONDO_LINK_OK);
    assert_true(link_filled(got, 0, SLOT_BYTES));
    link_pair_close(&pair);
    close(control[1]);
    struct alive now = look();
    assert_int_equal(now.held.mapped + now.held.allocations, 0);
    assert_int_equal(now.held.device_memory, set("no_fds"));
    assert_int_equal(now.held.registered, set("no_fds"));
}

int main(int argc, char **argv)
{
    static const char *const all[] = {
        "devices=4 memory=64M p2p=switch",
        "devices=4 memory=64M p2p=pairs",
        "devices=4 memory=64M p2p=pcie no_fds",
        "devices=4 memory=64M p2p=none",
        "devices=4 memory=64M no_fds no_ipc p2p=switch",
        NULL,
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_death),         cmocka_unit_test(test_reach),
        cmocka_unit_test(test_no_sharing),    cmocka_unit_test(test_no_way),
        cmocka_unit_test(test_out_of_memory), cmocka_unit_test(test_driver_fails),
        cmocka_unit_test(test_spoilt),        cmocka_unit_test(test_close_orders),
        cmocka_unit_test(test_fork),          cmocka_unit_test(test_write_after_receiver_closed),
        cmocka_unit_test(test_lent),
    };
    (void)argc;
    settings = on_each_cudasim(argv, all);
    link_copy_device = copy;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
