/* SPDX-License-Identifier: Apache-2.0
 *
 * test_id_at.c - ids that every process makes of an address for itself.
 */
#include "ranks.h"
#include "test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#define OK(call) CHECK((call) == RONDO_SUCCESS, "%s", rondo_last_error(NULL))

static int free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    close(fd);
    return ntohs(at.sin_port);
}

/* Each makes its own id; twice, since the port stays the job's. */
static void meet(const rondo_unique_id *unused, int rank, int n, void *context)
{
    (void)unused;
    for (int round = 0; round < 2; round++) {
        rondo_unique_id id;
        rondo_comm *comm;
        int32_t x = rank + 1;
        OK(rondo_unique_id_at(&id, context));
        OK(rondo_init_rank(&comm, n, id, rank, NULL));
        OK(rondo_all_reduce(&x, &x, 1, RONDO_INT32, RONDO_SUM, comm, NULL));
        CHECK(x == n * (n + 1) / 2, "%d", x);
        OK(rondo_comm_destroy(comm));
    }
}

static void processes_meet_at_an_address(void **state)
{
    char address[64];
    (void)state;
    snprintf(address, sizeof address, "127.0.0.1:%d", free_port());
    test_env("RONDO_KEY", "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff");
    ranks_run_bare(3, meet, address);
    test_env("RONDO_KEY", NULL);
}

static void ids_are_alike_for_equal_addresses(void **state)
{
    rondo_unique_id a, b;
    (void)state;
    memset(&a, 1, sizeof a);
    memset(&b, 2, sizeof b);
    assert_int_equal(rondo_unique_id_at(&a, "127.0.0.1:5000"), RONDO_SUCCESS);
    assert_int_equal(rondo_unique_id_at(&b, "127.0.0.1:5000"), RONDO_SUCCESS);
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(rondo_unique_id_at(&b, "127.0.0.1:5001"), RONDO_SUCCESS);
    assert_memory_not_equal(&a, &b, sizeof a);
    assert_int_equal(rondo_unique_id_at(&b, "[::1]:5001"), RONDO_SUCCESS);
}

static void mistakes(void **state)
{
    static const char *const bad[] = {
        "", "127.0.0.1", "127.0.0.1:", ":", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:80x"};
    rondo_unique_id id, before;
    (void)state;
    memset(&id, 7, sizeof id);
    before = id;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(rondo_unique_id_at(&id, bad[i]), RONDO_INVALID_ARGUMENT);
        assert_non_null(strstr(rondo_last_error(NULL), bad[i]));
    }
    assert_int_equal(rondo_unique_id_at(NULL, "127.0.0.1:5000"), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_unique_id_at(&id, NULL), RONDO_INVALID_ARGUMENT);
    assert_memory_equal(&id, &before, sizeof id);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_meet_at_an_address),
        cmocka_unit_test(ids_are_alike_for_equal_addresses),
        cmocka_unit_test(mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
