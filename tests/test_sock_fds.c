/* SPDX-License-Identifier: Apache-2.0
 *
 * test_sock_fds.c - descriptors that travel, and reads and writes that are tried once.
 */
#include "asserts.h"
#include "sock_kit.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static int file_with(const char *text)
{
    int fd = memfd_create("test", MFD_CLOEXEC);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    return fd;
}

static void assert_holds(int fd, const char *text)
{
    char found[64] = "";
    assert_int_equal(pread(fd, found, sizeof found, 0), (ssize_t)strlen(text));
    assert_string_equal(found, text);
}

static void descriptors_travel(void **state)
{
    (void)state;
    int client, server, sent[RD_SOCK_FDS], got[RD_SOCK_FDS];
    char message[6], text[24];
    unix_pair(&client, &server);
    int before = open_files();
    for (int count = 0; count <= RD_SOCK_FDS; count++) {
        for (int i = 0; i < count; i++) {
            snprintf(text, sizeof text, "file %d", i);
            sent[i] = file_with(text);
        }
        assert_ok(rd_sock_send_fds(client, "hello", 6, sent, count, SOON));
        assert_ok(rd_sock_recv_fds(server, message, 6, got, count, SOON));
        assert_string_equal(message, "hello");
        for (int i = 0; i < count; i++) {
            snprintf(text, sizeof text, "file %d", i);
            assert_holds(got[i], text);
            assert_true(fcntl(got[i], F_GETFD) & FD_CLOEXEC);
            close(sent[i]);
            close(got[i]);
        }
    }
    assert_int_equal(open_files(), before);
    close(client);
    close(server);
}

/* A message of fewer, more or unexpected descriptors is an error that leaves none open. */
static void descriptors_that_do_not_belong(void **state)
{
    (void)state;
    static const struct {
        int sent, wanted;
    } cases[] = {{0, 1}, {1, 0}, {1, 2}, {2, 1}, {4, 3}, {3, 4}, {4, 0}};
    char message[2];
    int sent[RD_SOCK_FDS], got[RD_SOCK_FDS], client, server;
    for (int i = 0; i < RD_SOCK_FDS; i++) sent[i] = file_with("x");
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        unix_pair(&client, &server);
        int before = open_files();
        memset(got, 0x55, sizeof got);
        assert_ok(rd_sock_send_fds(client, "m", 2, sent, cases[c].sent, SOON));
        assert_int_equal(rd_sock_recv_fds(server, message, 2, got, cases[c].wanted, SOON), RONDO_REMOTE_ERROR);
        assert_int_equal(open_files(), before);
        for (int i = 0; i < RD_SOCK_FDS; i++) assert_int_equal(got[i], 0x55555555);
        close(client);
        close(server);
    }
    /* More than a message may carry, from a stranger who is not bound by our send. */
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(9 * sizeof(int))];
    } control = {.bytes = {0}};
    struct iovec part = {.iov_base = message, .iov_len = 2};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    control.head =
        (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(9 * sizeof(int))};
    for (size_t i = 0; i < 9; i++) memcpy(CMSG_DATA(&control.head) + i * sizeof(int), &sent[0], sizeof(int));
    unix_pair(&client, &server);
    int before = open_files();
    assert_int_equal(sendmsg(client, &m, 0), 2);
    assert_int_equal(rd_sock_recv_fds(server, message, 2, got, RD_SOCK_FDS, SOON), RONDO_REMOTE_ERROR);
    assert_int_equal(open_files(), before);
    close(client);
    close(server);
    /* A message that ends early, and descriptors in its middle. */
    unix_pair(&client, &server);
    before = open_files();
    assert_ok(rd_sock_send_fds(client, "m", 1, sent, 2, SOON));
    assert_int_equal(rd_sock_recv_fds(server, message, 2, got, 2, rd_deadline(0.05)), RONDO_TIMEOUT);
    assert_int_equal(open_files(), before);
    assert_ok(rd_sock_send_fds(client, "m", 1, sent, 1, SOON));
    assert_ok(rd_sock_send_fds(client, "n", 1, sent, 1, SOON));
    assert_int_equal(rd_sock_recv_fds(server, message, 2, got, 1, SOON), RONDO_REMOTE_ERROR);
    assert_int_equal(open_files(), before);
    close(client);
    close(server);
    for (int i = 0; i < RD_SOCK_FDS; i++) close(sent[i]);
}

static void single_attempts(void **state)
{
    (void)state;
    int client, server, got_fds[RD_SOCK_FDS], count = RD_SOCK_FDS, file = file_with("one");
    size_t got = 99, put = 0;
    char data[16] = "";
    unix_pair(&client, &server);
    assert_int_equal(rd_sock_read(server, data, 16, &got, got_fds, &count), RONDO_IN_PROGRESS);
    assert_int_equal(got, 99);
    assert_ok(rd_sock_write(client, "abc", 3, &put, &file, 1));
    assert_int_equal(put, 3);
    assert_ok(rd_sock_read(server, data, 16, &got, got_fds, &count));
    assert_int_equal(got, 3);
    assert_int_equal(count, 1);
    assert_holds(got_fds[0], "one");
    close(got_fds[0]);
    assert_ok(rd_sock_write(client, "d", 1, &put, NULL, 0));
    count = RD_SOCK_FDS;
    assert_ok(rd_sock_read(server, data, 16, &got, got_fds, &count));
    assert_int_equal(count, 0);
    /* Fill it up. */
    rondo_result result;
    static const char block[65536];
    while ((result = rd_sock_write(client, block, sizeof block, &put, NULL, 0)) == RONDO_SUCCESS) continue;
    assert_int_equal(result, RONDO_IN_PROGRESS);
    close(client);
    while ((result = rd_sock_read(server, data, 16, &got, NULL, NULL)) == RONDO_SUCCESS) continue;
    assert_int_equal(result, RONDO_REMOTE_ERROR);
    assert_contains(rd_last_error(), "closed the connection");
    close(server);
    close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptors_travel),
        cmocka_unit_test(descriptors_that_do_not_belong),
        cmocka_unit_test(single_attempts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
