/* SPDX-License-Identifier: Apache-2.0
 *
 * test_sock.c - connections with deadlines.
 */
#include "asserts.h"
#include "sock_kit.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/un.h>
#include <unistd.h>

static void assert_flags(int fd)
{
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
}

static void connections(void **state)
{
    (void)state;
    int client, server, on = 0, listener, port, none = -5;
    char text[RD_ADDRESS_TEXT];
    rd_address peer;
    uid_t uid;
    pid_t pid;
    tcp_pair(&client, &server);
    assert_flags(client);
    assert_flags(server);
    assert_int_equal(getsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, &(socklen_t){sizeof on}), 0);
    assert_true(on);
    assert_int_equal(getsockopt(server, IPPROTO_TCP, TCP_NODELAY, &on, &(socklen_t){sizeof on}), 0);
    assert_true(on);
    assert_ok(rd_sock_peer_address(server, &peer)); /* plain IPv4, though the listener was for both */
    rd_address_print(&peer, text);
    assert_int_equal(strncmp(text, "127.0.0.1:", 10), 0);
    assert_int_equal(rd_sock_peer_process(server, &uid, &pid), RONDO_INTERNAL_ERROR);
    close(client);
    close(server);
    unix_pair(&client, &server);
    assert_flags(client);
    assert_flags(server);
    for (int i = 0; i < 2; i++) {
        assert_ok(rd_sock_peer_process(i ? client : server, &uid, &pid));
        assert_int_equal(uid, geteuid());
        assert_int_equal(pid, getpid());
    }
    assert_ok(rd_sock_peer_process(server, NULL, NULL));
    close(client);
    close(server);
    assert_ok(rd_sock_listen_tcp(&listener, 0, &port));
    assert_true(port > 0);
    assert_flags(listener);
    assert_int_equal(rd_sock_accept(listener, &none), RONDO_IN_PROGRESS);
    assert_int_equal(none, -5);
    close(listener);
}

static void connections_v6(void **state)
{
    (void)state;
    int listener, port, client, server;
    assert_ok(rd_sock_listen_tcp(&listener, 0, &port));
    rd_address to = parsed("[::1]:1");
    rd_address_set_port(&to, port);
    rondo_result result = rd_sock_connect(&client, &to, SOON);
    if (result != RONDO_SUCCESS) { /* a machine without IPv6 */
        close(listener);
        skip();
    }
    assert_ok(rd_sock_wait(listener, POLLIN, SOON));
    assert_ok(rd_sock_accept(listener, &server));
    close(client);
    close(server);
    close(listener);
}

static void refused(void **state)
{
    (void)state;
    int listener, port, fd = -7;
    char text[RD_ADDRESS_TEXT];
    assert_ok(rd_sock_listen_tcp(&listener, 0, &port));
    close(listener);
    snprintf(text, sizeof text, "127.0.0.1:%d", port);
    rd_address to = parsed(text);
    int before = open_files();
    assert_int_equal(rd_sock_connect(&fd, &to, SOON), RONDO_REMOTE_ERROR);
    assert_contains(rd_last_error(), text);
    snprintf(text, sizeof text, "unix:%s", unique_name());
    to = parsed(text);
    assert_int_equal(rd_sock_connect(&fd, &to, SOON), RONDO_REMOTE_ERROR);
    assert_contains(rd_last_error(), text);
    assert_int_equal(fd, -7);
    assert_int_equal(open_files(), before);
}

static void taken(void **state)
{
    (void)state;
    int first, second = -1, port, bound = -1;
    char text[16];
    assert_ok(rd_sock_listen_tcp(&first, 0, &port));
    int before = open_files();
    assert_int_equal(rd_sock_listen_tcp(&second, port, &bound), RONDO_SYSTEM_ERROR);
    assert_int_equal(errno, EADDRINUSE);
    snprintf(text, sizeof text, ":%d", port);
    assert_contains(rd_last_error(), text);
    assert_int_equal(bound, -1);
    close(first);
    const char *name = unique_name();
    assert_ok(rd_sock_listen_unix(&first, name));
    assert_int_equal(rd_sock_listen_unix(&second, name), RONDO_SYSTEM_ERROR);
    assert_int_equal(errno, EADDRINUSE);
    assert_int_equal(open_files(), before);
    close(first);
    assert_ok(rd_sock_listen_unix(&first, name));
    close(first);
    /* One that listens on IPv4 alone holds the port as well. */
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    first = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(first, (struct sockaddr *)&v4, sizeof v4), 0);
    assert_int_equal(listen(first, 1), 0);
    assert_int_equal(getsockname(first, (struct sockaddr *)&v4, &(socklen_t){sizeof v4}), 0);
    assert_int_equal(rd_sock_listen_tcp(&second, ntohs(v4.sin_port), &bound), RONDO_SYSTEM_ERROR);
    assert_int_equal(errno, EADDRINUSE);
    close(first);
}

/* Case 26: the listening side closes first, so that its end of the connection lingers on the port. */
static void start_and_stop_fifty_times(void **state)
{
    (void)state;
    int port = 0, bound, listener, client, server;
    for (int i = 0; i < 50; i++) {
        assert_ok(rd_sock_listen_tcp(&listener, port, &bound));
        if (port) assert_int_equal(bound, port);
        port = bound;
        rd_address to = parsed("127.0.0.1:1");
        rd_address_set_port(&to, port);
        assert_ok(rd_sock_connect(&client, &to, SOON));
        assert_ok(rd_sock_wait(listener, POLLIN, SOON));
        assert_ok(rd_sock_accept(listener, &server));
        close(listener);
        close(server);
        close(client);
    }
}

/* A client that asks again and again for a free port of the range that connections come from is, in the end, given
 * that very port for its own end, and connects to itself. */
static void no_connection_to_oneself(void **state)
{
    (void)state;
    int listener, port, fd, least = 32768, most = 60999;
    FILE *range = fopen("/proc/sys/net/ipv4/ip_local_port_range", "r");
    if (range && fscanf(range, "%d %d", &least, &most) != 2) most = 60999;
    if (range) fclose(range);
    assert_ok(rd_sock_listen_tcp(&listener, 0, &port));
    close(listener);
    rd_address to = parsed("127.0.0.1:1");
    for (int parity = 0; parity < 2; parity++) { /* the kernel prefers odd or even ones */
        rd_address_set_port(&to, port ^ parity);
        for (int i = 0; i < (most - least) / 2 + 2; i++) {
            if (rd_sock_connect(&fd, &to, SOON) != RONDO_SUCCESS) continue;
            rd_address here = {.bytes = sizeof here.at}; /* someone may listen there by now; that is not ourselves */
            assert_int_equal(getsockname(fd, (struct sockaddr *)&here.at, &here.bytes), 0);
            close(fd);
            if (rd_address_port(&here) == rd_address_port(&to)) fail_msg("met itself at attempt %d", i);
        }
    }
}

static void deadlines(void **state)
{
    (void)state;
    int client, server;
    char byte, some[4];
    tcp_pair(&client, &server);
    int64_t start = rd_now();
    assert_int_equal(rd_sock_recv(client, &byte, 1, rd_deadline(0.1)), RONDO_TIMEOUT);
    assert_true(rd_now() - start >= 100000000 && rd_now() - start < 5000000000);
    assert_contains(rd_last_error(), "127.0.0.1:");
    assert_int_equal(rd_sock_recv(client, &byte, 1, 0), RONDO_TIMEOUT);
    /* Half a message, then nothing; then an end. */
    assert_ok(rd_sock_send(server, "abc", 2, SOON));
    assert_int_equal(rd_sock_recv(client, some, 3, rd_deadline(0.05)), RONDO_TIMEOUT);
    assert_ok(rd_sock_send(server, "abc", 2, SOON));
    close(server);
    assert_int_equal(rd_sock_recv(client, some, 3, SOON), RONDO_REMOTE_ERROR);
    /* Into a connection that is gone: an error, not a signal. */
    rondo_result result = RONDO_SUCCESS;
    for (int i = 0; i < 100 && result == RONDO_SUCCESS; i++) result = rd_sock_send(client, some, sizeof some, SOON);
    assert_int_equal(result, RONDO_REMOTE_ERROR);
    close(client);
    /* A reader that does not read. */
    tcp_pair(&client, &server);
    size_t bytes = 64 << 20;
    char *much = calloc(1, bytes);
    assert_int_equal(rd_sock_send(client, much, bytes, rd_deadline(0.1)), RONDO_TIMEOUT);
    free(much);
    close(client);
    close(server);
    /* Nothing is always there. */
    tcp_pair(&client, &server);
    assert_ok(rd_sock_send(client, "", 0, 0));
    assert_ok(rd_sock_recv(client, some, 0, 0));
    close(client);
    close(server);
}

struct flow {
    int fd;
    bool sends;
    uint32_t seed;
    unsigned char *data;
    size_t bytes;
    rondo_result result;
};

static void *flow(void *argument)
{
    struct flow *f = argument;
    f->result = f->sends ? rd_sock_send(f->fd, f->data, f->bytes, SOON) : rd_sock_recv(f->fd, f->data, f->bytes, SOON);
    return NULL;
}

static unsigned char byte_at(uint32_t seed, size_t i)
{
    return (unsigned char)((i * 2654435761u + seed) >> 13);
}

/* Both ways at once, more than any buffer holds. */
static void whole_transfers(void **state)
{
    (void)state;
    const size_t bytes = 6 << 20;
    for (int kind = 0; kind < 2; kind++) {
        int ends[2];
        struct flow f[4];
        pthread_t threads[4];
        (kind ? unix_pair : tcp_pair)(&ends[0], &ends[1]);
        for (int i = 0; i < 4; i++) {
            f[i] = (struct flow){.fd = ends[i / 2],
                                 .sends = i % 2,
                                 .bytes = bytes,
                                 .seed = (uint32_t)(i / 2) * 77777,
                                 .data = calloc(1, bytes)};
            for (size_t b = 0; b < bytes && f[i].sends; b++) f[i].data[b] = byte_at(f[i].seed, b);
            assert_int_equal(pthread_create(&threads[i], NULL, flow, &f[i]), 0);
        }
        for (int i = 0; i < 4; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
        for (int i = 0; i < 4; i++) assert_int_equal(f[i].result, RONDO_SUCCESS);
        assert_memory_equal(f[0].data, f[3].data, bytes);
        assert_memory_equal(f[2].data, f[1].data, bytes);
        for (int i = 0; i < 4; i++) free(f[i].data);
        close(ends[0]);
        close(ends[1]);
    }
}

static void *accept_later(void *argument)
{
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    close(accept(*(int *)argument, NULL, NULL));
    return NULL;
}

static void full_queue(void **state)
{
    (void)state;
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    char text[RD_ADDRESS_TEXT];
    const char *name = unique_name();
    int fds[64], count = 0;
    bool done;
    rondo_result result = RONDO_SUCCESS;
    memcpy(un.sun_path + 1, name, strlen(name));
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(
        bind(listener, (struct sockaddr *)&un, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))),
        0);
    assert_int_equal(listen(listener, 1), 0);
    snprintf(text, sizeof text, "unix:%s", name);
    rd_address to = parsed(text);
    while (count < 64 && (result = rd_sock_connect_start(&fds[count], &to, &done)) == RONDO_SUCCESS) count++;
    assert_int_equal(result, RONDO_IN_PROGRESS);
    int fd = -9;
    assert_int_equal(rd_sock_connect(&fd, &to, rd_deadline(0.05)), RONDO_TIMEOUT);
    assert_contains(rd_last_error(), text);
    assert_int_equal(fd, -9);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, accept_later, &listener), 0);
    assert_ok(rd_sock_connect(&fd, &to, SOON));
    pthread_join(thread, NULL);
    close(fd);
    while (count) close(fds[--count]);
    close(listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connections),
        cmocka_unit_test(connections_v6),
        cmocka_unit_test(refused),
        cmocka_unit_test(taken),
        cmocka_unit_test(start_and_stop_fifty_times),
        cmocka_unit_test(no_connection_to_oneself),
        cmocka_unit_test(deadlines),
        cmocka_unit_test(whole_transfers),
        cmocka_unit_test(full_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
