/* SPDX-License-Identifier: Apache-2.0
 *
 * test_sock.c - addresses, the choice of interfaces, connections with deadlines, descriptors that travel.
 */
#include "test.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/interface.h"
#include "base/sock.h"
#include "base/status.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/un.h>
#include <unistd.h>

#define SOON rd_deadline(10)

static void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part)) fail_msg("no \"%s\" in: %s", part, text);
}

static void assert_ok(rondo_result result)
{
    if (result != RONDO_SUCCESS) fail_msg("%s: %s", rondo_result_string(result), rd_last_error());
}

static int open_files(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir)) count++;
    closedir(dir);
    return count;
}

static rd_address parsed(const char *text)
{
    rd_address a;
    assert_ok(rd_address_parse(&a, text));
    return a;
}

/* A name nobody else uses. */
static const char *unique_name(void)
{
    static char name[48];
    unsigned char random[8];
    char digits[17];
    rd_random(random, sizeof random);
    rd_hex(digits, random, sizeof random);
    snprintf(name, sizeof name, "rondo-test-%s", digits);
    return name;
}

/* ---- Addresses ---- */

static void texts(void **state)
{
    (void)state;
    static const char *const same[] = {"10.0.0.1:4711",
                                       "127.0.0.1:0",
                                       "255.255.255.255:65535",
                                       "[fd00::1]:4711",
                                       "[::]:1",
                                       "unix:x",
                                       "unix:rondo-4294967295-0123456789abcdef0123456789abcdef",
                                       "[fe80:1111:2222:3333:4444:5555:6666:7777%lo]:65535"};
    char text[RD_ADDRESS_TEXT];
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        rd_address a = parsed(same[i]);
        rd_address_print(&a, text);
        assert_string_equal(text, same[i]);
    }
    static const char *const bad[] = {"",
                                      ":",
                                      "10.0.0.1",
                                      "10.0.0.1:",
                                      ":80",
                                      "10.0.0.1:65536",
                                      "10.0.0.1:-1",
                                      "10.0.0:1",
                                      "10.0.0.1:8x",
                                      "10.0.0.1:+8",
                                      "host:80",
                                      "fd00::1:80",
                                      "[fd00::1]",
                                      "[fd00::1]80",
                                      "[10.0.0.1]:80",
                                      "[fd00::1:80",
                                      "fd00::1]:80",
                                      "[]:80",
                                      "[:]:80",
                                      "[fe80::1%nosuchif]:1",
                                      "unix:",
                                      "[:80",
                                      "]:80",
                                      "unix:01234567890123456789012345678901234567890123456789012345678"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        rd_address a = {.bytes = 77};
        if (rd_address_parse(&a, bad[i]) != RONDO_INVALID_ARGUMENT) fail_msg("taken: %s", bad[i]);
        assert_int_equal(a.bytes, 77);
        assert_contains(rd_last_error(), bad[i]);
    }
    char longest[5000];
    memset(longest, '1', sizeof longest - 1);
    memcpy(longest + sizeof longest - 4, ":80", 4);
    rd_address a;
    assert_int_equal(rd_address_parse(&a, longest), RONDO_INVALID_ARGUMENT);
    a.at.ss_family = AF_UNSPEC;
    rd_address_print(&a, text);
    assert_string_equal(text, "(no address)");
}

static void ports_and_loopback(void **state)
{
    (void)state;
    rd_address v4 = parsed("10.1.2.3:5"), v6 = parsed("[fd00::1]:6"), un = parsed("unix:name");
    char text[RD_ADDRESS_TEXT];
    rd_address_set_port(&v4, 1000);
    rd_address_set_port(&v6, 60000);
    rd_address_set_port(&un, 1);
    assert_int_equal(rd_address_port(&v4), 1000);
    assert_int_equal(rd_address_port(&v6), 60000);
    assert_int_equal(rd_address_port(&un), 0);
    rd_address_print(&v6, text);
    assert_string_equal(text, "[fd00::1]:60000");
    assert_false(rd_address_is_loopback(&v4));
    assert_false(rd_address_is_loopback(&v6));
    assert_true(rd_address_is_loopback(&un));
    v4 = parsed("127.9.9.9:1");
    v6 = parsed("[::1]:1");
    assert_true(rd_address_is_loopback(&v4));
    assert_true(rd_address_is_loopback(&v6));
}

static void names(void **state)
{
    (void)state;
    rd_address list[4];
    char text[RD_ADDRESS_TEXT], host[301];
    int count = 0;
    assert_ok(rd_address_resolve("10.2.3.4", 99, 0, list, 4, &count));
    assert_int_equal(count, 1);
    rd_address_print(&list[0], text);
    assert_string_equal(text, "10.2.3.4:99");
    assert_ok(rd_address_resolve("fd00::7", 98, 0, list, 4, &count));
    assert_int_equal(count, 1);
    rd_address_print(&list[0], text);
    assert_string_equal(text, "[fd00::7]:98");
    /* No resolver has to be asked that this cannot be. It may come, for all we know: asked until the deadline. */
    memset(host, 'x', sizeof host - 1);
    host[sizeof host - 1] = 0;
    int64_t start = rd_now();
    count = 55;
    assert_int_not_equal(rd_address_resolve(host, 1, rd_deadline(0.3), list, 4, &count), RONDO_SUCCESS);
    assert_true(rd_now() - start < 5000000000);
    assert_contains(rd_last_error(), "xxxx");
    assert_int_equal(count, 55);
}

/* ---- Interfaces ---- */

struct fake {
    const char *name, *address; /* NULL: one without */
    unsigned flags;
};

/* What a filter takes of a machine: "10.0.0.1 fd00::1", or NULL when it is refused. */
static const char *pick(const struct fake *machine, int count, const char *filter)
{
    static char text[1024];
    struct ifaddrs all[32];
    rd_address at[32];
    rd_interface list[32];
    int found = 0;
    for (int i = 0; i < count; i++) {
        char with_port[80];
        memset(&all[i], 0, sizeof all[i]);
        all[i].ifa_name = (char *)(uintptr_t)machine[i].name;
        all[i].ifa_flags = machine[i].flags;
        all[i].ifa_next = i + 1 < count ? &all[i + 1] : NULL;
        if (!machine[i].address) continue;
        snprintf(with_port, sizeof with_port, strchr(machine[i].address, ':') ? "[%s]:7" : "%s:7", machine[i].address);
        at[i] = parsed(with_port);
        all[i].ifa_addr = (struct sockaddr *)&at[i].at;
    }
    if (rd_interface_pick(count ? all : NULL, filter, list, 32, &found) != RONDO_SUCCESS) return NULL;
    text[0] = 0;
    for (int i = 0; i < found; i++) {
        char one[RD_ADDRESS_TEXT];
        rd_address_print(&list[i].at, one);
        assert_string_equal(one + strlen(one) - 2, ":0");
        one[strlen(one) - 2] = 0;
        strcat(strcat(text, i ? " " : ""), one);
    }
    return text;
}

#define PLUGGED (IFF_UP | IFF_RUNNING)

/* As getifaddrs tells it: links first, then IPv4, then IPv6. */
static const struct fake big[] = {
    {"lo", NULL, PLUGGED | IFF_LOOPBACK},
    {"eth0", NULL, PLUGGED},
    {"eth1", NULL, PLUGGED},
    {"ib0", NULL, PLUGGED},
    {"docker0", NULL, PLUGGED},
    {"eno8", NULL, IFF_UP},
    {"eno9", NULL, 0},
    {"lo", "127.0.0.1", PLUGGED | IFF_LOOPBACK},
    {"eth0", "10.0.0.1", PLUGGED},
    {"eth1", "10.1.0.1", PLUGGED},
    {"ib0", "10.2.0.1", PLUGGED},
    {"docker0", "172.17.0.1", PLUGGED},
    {"virbr0", "192.168.122.1", PLUGGED},
    {"veth12ab", "172.18.0.1", PLUGGED},
    {"br-77aa", "172.19.0.1", PLUGGED},
    {"eno8", "10.8.0.1", IFF_UP},
    {"eno9", "10.9.0.1", 0},
    {"lo", "::1", PLUGGED | IFF_LOOPBACK},
    {"eth0", "fd00::1", PLUGGED},
    {"eth0", "fe80::1", PLUGGED},
    {"eth1", "2001:db8::1", PLUGGED},
};

static void case_25_interfaces(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {NULL, "10.0.0.1 10.1.0.1 10.2.0.1 [fd00::1] [2001:db8::1]"},
        {"", "10.0.0.1 10.1.0.1 10.2.0.1 [fd00::1] [2001:db8::1]"},
        {"eth", "10.0.0.1 10.1.0.1 [fd00::1] [2001:db8::1]"},
        {"eth1", "10.1.0.1 [2001:db8::1]"},
        {"eth1,ib", "10.1.0.1 10.2.0.1 [2001:db8::1]"},
        {"ib,eth1", "10.1.0.1 10.2.0.1 [2001:db8::1]"},
        {"=eth0", "10.0.0.1 [fd00::1]"},
        {"=eth0,ib0", "10.0.0.1 10.2.0.1 [fd00::1]"},
        {"=eth0,=eth1", "10.0.0.1 10.1.0.1 [fd00::1] [2001:db8::1]"},
        {"^eth", "10.2.0.1"},
        {"^eth1,ib", "10.0.0.1 [fd00::1]"},
        {"^=eth", "10.0.0.1 10.1.0.1 10.2.0.1 [fd00::1] [2001:db8::1]"},
        {"^=eth0", "10.1.0.1 10.2.0.1 [2001:db8::1]"},
        {"eth,^eth1", "10.0.0.1 [fd00::1]"},
        {"^docker", "10.0.0.1 10.1.0.1 10.2.0.1 [fd00::1] [2001:db8::1]"},
        {"docker", "172.17.0.1"},
        {"veth", "172.18.0.1"},
        {"lo", "127.0.0.1 [::1]"},
        {"lo,eth0", "10.0.0.1 [fd00::1] 127.0.0.1 [::1]"},
        {",eth1,,", "10.1.0.1 [2001:db8::1]"},
        {"wlan,ib", "10.2.0.1"},
        {"^eth,ib", "127.0.0.1 [::1]"}, /* nothing else is left */
        {"wlan", NULL},
        {"=eth", NULL},
        {"eno9", NULL},
        {"wlan0,wifi", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *found = pick(big, sizeof big / sizeof *big, cases[i][0]);
        if (found && cases[i][1] ? strcmp(found, cases[i][1]) != 0 : found || cases[i][1])
            fail_msg("%s: %s", cases[i][0] ? cases[i][0] : "none", found ? found : rd_last_error());
    }
    assert_null(pick(big, sizeof big / sizeof *big, "wlan"));
    assert_contains(rd_last_error(), "RONDO_INTERFACE=wlan");
    assert_contains(
        rd_last_error(),
        "there are: lo, eth0, eth1, ib0, docker0, eno8 (no carrier), eno9 (down), virbr0, veth12ab, br-77aa");
}

static void case_24_loopback_only(void **state)
{
    (void)state;
    static const struct fake small[] = {{"lo", "127.0.0.1", PLUGGED | IFF_LOOPBACK},
                                        {"docker0", "172.17.0.1", PLUGGED}};
    static const struct fake down[] = {{"lo", "127.0.0.1", IFF_LOOPBACK}};
    /* The bridge may lead somewhere, if nothing else does. */
    assert_string_equal(pick(small, 2, NULL), "127.0.0.1 172.17.0.1");
    assert_string_equal(pick(small, 2, "^eth"), "127.0.0.1");
    assert_null(pick(small, 2, "eth"));
    assert_string_equal(pick(down, 1, NULL), "");
    assert_string_equal(pick(NULL, 0, NULL), "");
    assert_null(pick(NULL, 0, "eth"));
    assert_contains(rd_last_error(), "there are: none");
}

static void interfaces_here(void **state)
{
    (void)state;
    rd_interface first[16], second[16];
    int count = -1, again = -1;
    assert_ok(rd_interface_list(NULL, first, 16, &count));
    assert_ok(rd_interface_list(NULL, second, 16, &again));
    assert_int_equal(count, again);
    for (int i = 0; i < count; i++) assert_memory_equal(&first[i].at.at, &second[i].at.at, first[i].at.bytes);
    if (count > 1) {
        assert_ok(rd_interface_list(NULL, second, 1, &again));
        assert_int_equal(again, 1);
    }
    assert_int_equal(rd_interface_list("=no-such-if", first, 16, &count), RONDO_INVALID_ARGUMENT);
}

/* ---- Connections ---- */

/* Both ends of a TCP connection. */
static void tcp_pair(int *client, int *server)
{
    int listener, port;
    assert_ok(rd_sock_listen_tcp(&listener, 0, &port));
    rd_address to = parsed("127.0.0.1:1");
    rd_address_set_port(&to, port);
    assert_ok(rd_sock_connect(client, &to, SOON));
    assert_ok(rd_sock_wait(listener, POLLIN, SOON));
    assert_ok(rd_sock_accept(listener, server));
    close(listener);
}

static void unix_pair(int *client, int *server)
{
    char text[RD_ADDRESS_TEXT];
    const char *name = unique_name();
    int listener;
    assert_ok(rd_sock_listen_unix(&listener, name));
    snprintf(text, sizeof text, "unix:%s", name);
    rd_address to = parsed(text);
    assert_ok(rd_sock_connect(client, &to, SOON));
    assert_ok(rd_sock_accept(listener, server));
    close(listener);
}

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

/* ---- Descriptors ---- */

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

/* ---- Hashes ---- */

static void hashes(void **state)
{
    (void)state;
    unsigned char a[32], b[32], zero[32] = {0};
    char text[65];
    rd_hash(a, 32, "label", "data", 4);
    rd_hex(text, a, 32);
    assert_string_equal(text, "3371ae06467ad50247c0f2458bb32590503b606f02d386fa58e6083f8b7d86a0");
    rd_hash(b, 32, "labe", "ldata", 5); /* the label's end counts */
    assert_memory_not_equal(a, b, 32);
    rd_hash(b, 16, "label", "data", 4); /* another length is another hash, not a piece */
    assert_memory_not_equal(a, b, 16);
    rd_random(a, 32);
    rd_random(b, 32);
    assert_memory_not_equal(a, b, 32);
    assert_memory_not_equal(a, zero, 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts),
        cmocka_unit_test(ports_and_loopback),
        cmocka_unit_test(names),
        cmocka_unit_test(case_25_interfaces),
        cmocka_unit_test(case_24_loopback_only),
        cmocka_unit_test(interfaces_here),
        cmocka_unit_test(connections),
        cmocka_unit_test(connections_v6),
        cmocka_unit_test(refused),
        cmocka_unit_test(taken),
        cmocka_unit_test(start_and_stop_fifty_times),
        cmocka_unit_test(no_connection_to_oneself),
        cmocka_unit_test(deadlines),
        cmocka_unit_test(whole_transfers),
        cmocka_unit_test(full_queue),
        cmocka_unit_test(descriptors_travel),
        cmocka_unit_test(descriptors_that_do_not_belong),
        cmocka_unit_test(single_attempts),
        cmocka_unit_test(hashes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
