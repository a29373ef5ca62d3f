/* SPDX-License-Identifier: Apache-2.0
 *
 * test_address.c - addresses, and the choice of interfaces.
 */
#include "asserts.h"
#include "sock_kit.h"

#include "base/interface.h"

#include <ifaddrs.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts),
        cmocka_unit_test(ports_and_loopback),
        cmocka_unit_test(names),
        cmocka_unit_test(case_25_interfaces),
        cmocka_unit_test(case_24_loopback_only),
        cmocka_unit_test(interfaces_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
