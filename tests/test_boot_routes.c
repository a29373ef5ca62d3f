/* SPDX-License-Identifier: Apache-2.0
 *
 * test_boot_routes.c - which networks two ranks share, and in which order the addresses of the other are tried.
 */
#include "test.h"

#include "base/status.h"
#include "boot/member.h"

#include <stdio.h>

/* "eth0 10.1.0.1/24 10000, eth1 fd00::1/64": addresses of a rank. */
static rd_contact contact(const char *text)
{
    rd_contact c = {0};
    for (const char *at = text; at && *at; at = strchr(at, ','), at += at ? 2 : 0) {
        char name[16], ip[64], with_port[80];
        unsigned bits = 0, mbits = 0;
        assert_in_range(sscanf(at, "%15s %63[^/]/%u %u", name, ip, &bits, &mbits), 3, 4);
        rd_interface *nic = &c.interface[c.interfaces++];
        snprintf(with_port, sizeof with_port, strchr(ip, ':') ? "[%s]:4711" : "%s:4711", ip);
        assert_int_equal(rd_address_parse(&nic->at, with_port), RONDO_SUCCESS);
        snprintf(nic->name, sizeof nic->name, "%s", name);
        nic->bits = (int)bits;
        nic->mbits = mbits;
    }
    return c;
}

/* "eth0>eth1 eth1>ib0" */
static void assert_networks(const char *here, const char *there, const char *expected)
{
    rd_contact a = contact(here), b = contact(there);
    rd_route routes[RD_INTERFACES];
    char text[512] = "";
    int n = rd_contact_networks(&a, &b, routes);
    for (int i = 0; i < n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s>%s", i ? " " : "",
                 a.interface[routes[i].from].name, b.interface[routes[i].to].name);
    assert_string_equal(text, expected);
}

static void networks(void **state)
{
    (void)state;
    static const char two[] = "eth0 10.1.0.1/24 10000, eth1 10.2.0.1/24 10000";
    assert_networks(two, "eth0 10.1.0.2/24 10000, eth1 10.2.0.2/24 10000", "eth0>eth0 eth1>eth1");
    assert_networks(two, "ib3 10.2.0.9/24 10000", "eth1>ib3");
    assert_networks(two, "eth0 10.3.0.1/24 10000", "");
    /* the fastest first, by the slower end; who says nothing last */
    assert_networks("eth0 10.1.0.1/24 1000, eth1 10.2.0.1/24 25000, eth2 10.3.0.1/24",
                    "eth0 10.1.0.2/24 25000, eth1 10.2.0.2/24 10000, eth2 10.3.0.2/24 400000",
                    "eth1>eth1 eth0>eth0 eth2>eth2");
    /* one interface, two families: one network */
    assert_networks("eth0 10.1.0.1/24, eth0 fd00::1/64, eth1 fd01::1/64",
                    "eth0 10.1.0.2/24, eth0 fd00::2/64, eth1 fd01::2/64", "eth0>eth0 eth1>eth1");
    assert_networks("eth0 10.9.0.1/24, eth0 fd00::1/64", "eth0 10.8.0.2/24, eth0 fd00::2/64", "eth0>eth0");
    /* several interfaces on one network: one */
    assert_networks("eth0 10.1.0.1/24, eth1 10.1.0.2/24", "eth0 10.1.0.3/24, eth1 10.1.0.4/24", "eth0>eth0");
    assert_networks("eth0 10.1.0.1/24, eth1 10.1.0.2/24", "eth0 10.1.0.3/24", "eth0>eth0");
    /* the same address on both is no network; nor is one that one side alone takes for the same */
    assert_networks("br0 172.17.0.1/16, eth0 10.1.0.1/24", "br0 172.17.0.1/16, eth0 10.1.0.2/24", "eth0>eth0");
    assert_networks("eth0 10.1.0.1/16", "eth0 10.1.9.2/24", "");
    assert_networks("eth0 10.1.0.1/31, eth1 10.1.0.3/31", "eth0 10.1.0.0/31, eth1 10.1.0.2/31", "eth0>eth0 eth1>eth1");
    assert_networks("wg0 10.0.0.1/32", "wg0 10.0.0.2/32", "");
    assert_networks("", "eth0 10.0.0.2/24", "");
}

/* "10.1.0.2 10.3.0.2(own)": the addresses in order. */
static void assert_routes(const char *here, const char *there, bool one_host, int first, const char *expected)
{
    rd_contact a = contact(here), b = contact(there);
    rd_route routes[RD_INTERFACES];
    char text[512] = "", ip[RD_ADDRESS_TEXT];
    b.host[0] = !one_host;
    int shared, n = rd_contact_routes(&a, &b, first, routes, &shared);
    for (int i = 0; i < n; i++) {
        rd_address_print(&b.interface[routes[i].to].at, ip);
        *strrchr(ip, ':') = 0;
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s%s", i ? " " : "", ip,
                 routes[i].own ? "(own)" : "");
        assert_true((routes[i].from >= 0) == (i < shared));
    }
    assert_string_equal(text, expected);
}

static void order_of_routes(void **state)
{
    (void)state;
    static const char here[] = "eth0 10.1.0.1/24, eth1 10.2.0.1/24";
    static const char there[] = "br0 127.0.0.1/8, br1 172.17.0.1/16, eth0 10.1.0.2/24, eth1 10.2.0.2/24";
    /* 127.0.0.1 is surely an address of this machine */
    assert_routes(here, there, false, 0, "10.1.0.2 10.2.0.2 172.17.0.1 127.0.0.1(own)");
    assert_routes(here, there, false, 1, "10.2.0.2 10.1.0.2 172.17.0.1 127.0.0.1(own)");
    assert_routes(here, there, false, 6, "10.1.0.2 10.2.0.2 172.17.0.1 127.0.0.1(own)");
    assert_routes("br0 127.0.0.1/8", "br0 127.0.0.1/8", true, 0, "127.0.0.1"); /* on one host its own will do */
    assert_routes("eth0 10.1.0.1/24", "eth0 10.1.0.1/24", true, 3, "10.1.0.1");
}

static void packed(void **state)
{
    (void)state;
    rd_contact c = contact("eth0 10.1.0.1/24 10000, eth1-is-longest fd00::7/64"), back;
    unsigned char bytes[RD_CONTACT_BYTES];
    rd_contact_pack(&c, bytes);
    assert_int_equal(rd_contact_unpack(&back, bytes), RONDO_SUCCESS);
    assert_int_equal(back.interfaces, 2);
    for (int i = 0; i < 2; i++) {
        assert_true(rd_address_same(&back.interface[i].at, &c.interface[i].at));
        assert_int_equal(rd_address_port(&back.interface[i].at), 4711);
        assert_string_equal(back.interface[i].name, c.interface[i].name);
        assert_int_equal(back.interface[i].bits, c.interface[i].bits);
        assert_int_equal(back.interface[i].mbits, c.interface[i].mbits);
    }
    enum { NICS = 88, COUNT = 408 };               /* docs/wire.md */
    for (int at = NICS; at <= NICS + 2; at += 2) { /* no family; more bits than there are */
        rd_contact_pack(&c, bytes);
        bytes[at] = 33;
        back.interfaces = 55;
        assert_int_equal(rd_contact_unpack(&back, bytes), RONDO_REMOTE_ERROR);
        assert_int_equal(back.interfaces, 55);
    }
    rd_contact_pack(&c, bytes);
    bytes[COUNT] = RD_INTERFACES + 1;
    assert_int_equal(rd_contact_unpack(&back, bytes), RONDO_REMOTE_ERROR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks),
        cmocka_unit_test(order_of_routes),
        cmocka_unit_test(packed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
