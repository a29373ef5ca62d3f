/* SPDX-License-Identifier: Apache-2.0
 *
 * test_rdma.c - which RDMA port and which address of it would be used, from machines written down as the kernel describes
 * them; and the filter that this shares with network interfaces.
 */
#include "test.h"

#include "base/filter.h"
#include "base/rdma.h"
#include "base/status.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64];

static void put(const char *path, const char *text)
{
    char at[256];
    snprintf(at, sizeof at, "%s/%s", root, path);
    for (char *slash = at + strlen(root); (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        assert_true(!mkdir(at, 0700) || errno == EEXIST);
        *slash = '/';
    }
    FILE *file = fopen(at, "w");
    assert_non_null(file);
    fprintf(file, "%s\n", text);
    fclose(file);
}

static void put_port(const char *device, const char *state, const char *layer)
{
    char path[200];
    const char *const files[][2] = {{"state", state}, {"link_layer", layer}, {"rate", "100 Gb/sec (4X EDR)"}, {"lid", "0x5"}};
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/ports/1/%s", device, files[i][0]);
        put(path, files[i][1]);
    }
}

static void put_gid(const char *device, int index, const char *gid, const char *type, const char *netdev)
{
    char path[200];
    snprintf(path, sizeof path, "%s/ports/1/gids/%d", device, index);
    put(path, gid);
    snprintf(path, sizeof path, "%s/ports/1/gid_attrs/types/%d", device, index);
    if (type) put(path, type);
    snprintf(path, sizeof path, "%s/ports/1/gid_attrs/ndevs/%d", device, index);
    if (netdev) put(path, netdev);
}

#define LINK_LOCAL "fe80:0000:0000:0000:0000:00ff:fe00:0001"
#define GLOBAL_6 "fd00:0000:0000:0000:0000:0000:0000:0002"
#define IPV4_1 "0000:0000:0000:0000:0000:ffff:0a01:0001"
#define IPV4_2 "0000:0000:0000:0000:0000:ffff:0a02:0001"
#define NOTHING "0000:0000:0000:0000:0000:0000:0000:0000"

static int make_machine(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/rondo-rdma-XXXXXX");
    if (!mkdtemp(root)) return 1;
    put_port("mlx5_0", "4: ACTIVE", "Ethernet");
    put_gid("mlx5_0", 0, LINK_LOCAL, "IB/RoCE v1", "eth0");
    put_gid("mlx5_0", 1, LINK_LOCAL, "RoCE v2", "eth0");
    put_gid("mlx5_0", 2, NOTHING, "RoCE v2", "eth0");
    put_gid("mlx5_0", 3, GLOBAL_6, "RoCE v2", "eth0");
    put_gid("mlx5_0", 4, IPV4_1, "IB/RoCE v1", "eth0");
    put_gid("mlx5_0", 5, IPV4_1, NULL, NULL); /* its type cannot be read */
    put_gid("mlx5_0", 7, IPV4_1, "RoCE v2", "eth0");
    put_port("mlx5_1", "4: ACTIVE", "Ethernet");
    put_gid("mlx5_1", 1, IPV4_2, "RoCE v2", "eth1");
    put_port("mlx5_2", "1: DOWN", "Ethernet");
    put_gid("mlx5_2", 1, IPV4_2, "RoCE v2", "eth2");
    put_port("mlx5_3", "4: ACTIVE", "Ethernet");
    put_gid("mlx5_3", 0, LINK_LOCAL, "RoCE v2", "eth3");
    put_port("mlx5_4", "4: ACTIVE", "InfiniBand");
    put_gid("mlx5_4", 0, LINK_LOCAL, NULL, NULL);
    return 0;
}

static int remove_machine(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

static rd_rdma_port list[RD_RDMA_PORTS];
static char why[400];

/* The name of what would be used where the communicator names a port, over `netdev`; "" when nothing would. */
static const char *chosen_by(const char *filter, const char *named, const char *netdev, int *gid)
{
    rd_settings settings = {.rdma_device = filter};
    int count;
    assert_int_equal(rd_rdma_list(root, &settings, list, RD_RDMA_PORTS, &count), RONDO_SUCCESS);
    assert_int_equal(count, 5);
    const rd_rdma_port *port = rd_rdma_choose(list, count, named, netdev, why, sizeof why);
    if (port && gid) *gid = port->gids[port->gid].index;
    return port ? port->device : "";
}

static const char *chosen(const char *filter, const char *netdev, int *gid)
{
    return chosen_by(filter, NULL, netdev, gid);
}

static void test_choice(void **state)
{
    (void)state;
    int gid = -1;
    assert_string_equal(chosen(NULL, NULL, &gid), "mlx5_0");
    assert_int_equal(gid, 7); /* RoCE v2 over IPv4 before IPv6; no version 1, nothing unreadable, nothing link-local */
    assert_string_equal(chosen(NULL, "eth1", &gid), "mlx5_1");
    assert_non_null(strstr(why, "carries the connection"));
    assert_string_equal(chosen(NULL, "eth9", NULL), "mlx5_0");
    assert_string_equal(chosen("mlx5_1", "eth0", NULL), "mlx5_1");
    assert_string_equal(chosen_by(NULL, "mlx5_4:1", "eth0", NULL), "mlx5_4"); /* before that of the connection */
    assert_non_null(strstr(why, "by speed and distance"));
    assert_string_equal(chosen_by(NULL, "mlx5_4:2", "eth1", NULL), "mlx5_1"); /* there is no such port */
    assert_string_equal(chosen_by(NULL, "mlx5_2:1", "eth1", NULL), "mlx5_1"); /* it is down */
    assert_string_equal(chosen_by("^mlx5_4", "mlx5_4:1", "eth1", NULL), "mlx5_1");
    assert_string_equal(chosen("=mlx5_4:1", NULL, &gid), "mlx5_4"); /* by LID */
    assert_int_equal(gid, 0);
    assert_string_equal(chosen("^=mlx5_0", NULL, NULL), "mlx5_1");
    assert_string_equal(chosen("^mlx5_0:1,mlx5_1", NULL, NULL), "mlx5_4");
    assert_string_equal(chosen("mlx5_0:2", NULL, NULL), "");
    assert_string_equal(chosen("=mlx5_2", NULL, NULL), "");
    assert_non_null(strstr(list[2].unusable, "DOWN"));
    assert_string_equal(chosen("=mlx5_3", NULL, NULL), "");
    assert_non_null(strstr(list[3].unusable, "routable"));
}

static void test_nothing(void **state)
{
    (void)state;
    const rd_settings settings = {0};
    int count = 7;
    assert_int_equal(rd_rdma_list("/nowhere", &settings, list, RD_RDMA_PORTS, &count), RONDO_SUCCESS);
    assert_int_equal(count, 0);
    assert_null(rd_rdma_choose(list, 0, NULL, NULL, why, sizeof why));
    assert_non_null(strstr(why, "no RDMA device"));
}

static void test_by_device(void **state)
{
    (void)state;
    rd_settings settings = {.rdma_gid_index = "mlx5_0=1,mlx5_3=0"};
    int count;
    long value = 42;
    assert_int_equal(rd_rdma_list(root, &settings, list, RD_RDMA_PORTS, &count), RONDO_SUCCESS);
    assert_int_equal(list[0].gids[list[0].gid].index, 1); /* link-local, but asked for */
    assert_int_equal(list[1].gids[list[1].gid].index, 1);
    assert_string_equal(list[3].unusable, "");
    settings.rdma_gid_index = "6";
    assert_int_equal(rd_rdma_list(root, &settings, list, RD_RDMA_PORTS, &count), RONDO_SUCCESS);
    assert_non_null(strstr(list[0].unusable, "no GID with index 6"));
    static const char *const bad[] = {"256", "-1", "x", "mlx5_0=", "mlx5_0=1,,", "1 2", "mlx5_9=900"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(rd_rdma_number("RONDO_X", bad[i], "mlx5_0", 0, 255, &value), RONDO_INVALID_ARGUMENT);
        assert_non_null(strstr(rd_last_error(), "0 to 255"));
    }
    assert_int_equal(value, 42);
    assert_int_equal(rd_rdma_number("RONDO_X", "mlx5_1=7", "mlx5_0", 0, 255, &value), RONDO_SUCCESS);
    assert_int_equal(value, 42);
    assert_int_equal(rd_rdma_number("RONDO_X", "5,mlx5_0=9", "mlx5_0", 0, 255, &value), RONDO_SUCCESS);
    assert_int_equal(value, 9);
}

static void test_filter(void **state)
{
    (void)state;
    static const struct {
        const char *filter, *name;
        rd_filter_answer answer;
    } cases[] = {
        {NULL, "eth0", RD_FILTER_OPEN},         {"", "eth0", RD_FILTER_OPEN},           {"eth", "eth0", RD_FILTER_NAMED},
        {"=eth", "eth0", RD_FILTER_UNNAMED},    {"ib,=eth0", "eth0", RD_FILTER_NAMED},  {"ib", "eth0", RD_FILTER_UNNAMED},
        {"^docker,lo", "lo", RD_FILTER_EXCLUDED}, {"^docker,lo", "eth0", RD_FILTER_OPEN}, {"eth,^eth1", "eth1", RD_FILTER_EXCLUDED},
        {"^=eth1", "eth10", RD_FILTER_OPEN},    {",,eth", "eth0", RD_FILTER_NAMED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rd_filter filter;
        rd_filter_parse(&filter, cases[i].filter);
        if (rd_filter_ask(&filter, cases[i].name) != cases[i].answer) fail_msg("%s on %s", cases[i].filter, cases[i].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_by_device),
        cmocka_unit_test(test_filter),
    };
    return cmocka_run_group_tests(tests, make_machine, remove_machine);
}
