/* SPDX-License-Identifier: Apache-2.0 */
#include "base/interface.h"

#include "base/filter.h"
#include "base/status.h"

#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LOWER_UP (1u << 16) /* IFF_LOWER_UP of <linux/if.h>, which cannot stand beside <net/if.h> */

/* ---- Addresses ---- */

/* The bytes of an IP address; 0 for other families. */
static int raw_address(const struct sockaddr *at, const unsigned char **raw)
{
    if (at && at->sa_family == AF_INET) {
        *raw = (const unsigned char *)&((const struct sockaddr_in *)at)->sin_addr;
        return 4;
    }
    if (at && at->sa_family == AF_INET6) {
        *raw = (const unsigned char *)&((const struct sockaddr_in6 *)at)->sin6_addr;
        return 16;
    }
    *raw = NULL;
    return 0;
}

/* How many bits two addresses have in common from the first on; -1 when they are of two families. */
static int common_bits(const rd_address *a, const rd_address *b, int *all)
{
    const unsigned char *x, *y;
    int bytes = raw_address((const struct sockaddr *)&a->at, &x), bits = 0;
    *all = 8 * bytes;
    if (!bytes || raw_address((const struct sockaddr *)&b->at, &y) != bytes) return -1;
    while (bits < 8 * bytes && !((x[bits / 8] ^ y[bits / 8]) >> (7 - bits % 8) & 1)) bits++;
    return bits;
}

bool rd_address_same(const rd_address *a, const rd_address *b)
{
    int all;
    return common_bits(a, b, &all) == all;
}

bool rd_interface_same_network(const rd_interface *a, const rd_interface *b)
{
    int all, common = common_bits(&a->at, &b->at, &all);
    return common >= 0 && common < all && common >= a->bits && common >= b->bits;
}

void rd_interface_network(const rd_interface *nic, char text[RD_ADDRESS_TEXT])
{
    rd_address first = nic->at;
    rd_address_set_port(&first, 0);
    const unsigned char *raw;
    int bytes = raw_address((const struct sockaddr *)&first.at, &raw);
    unsigned char *at = (unsigned char *)(uintptr_t)raw;
    for (int bit = nic->bits; bit < 8 * bytes; bit++) at[bit / 8] &= (unsigned char)~(0x80 >> bit % 8);
    char ip[RD_ADDRESS_TEXT];
    rd_address_print(&first, ip);
    bool six = ip[0] == '['; /* "[fd00::]:0" */
    ip[strlen(ip) - strlen(six ? "]:0" : ":0")] = 0;
    snprintf(text, RD_ADDRESS_TEXT, "%.58s/%d", ip + six, nic->bits);
}

/* ---- Interfaces ---- */

static bool is_plugged(const struct ifaddrs *i)
{
    return (i->ifa_flags & IFF_UP) && (i->ifa_flags & (IFF_RUNNING | LOWER_UP));
}

static bool is_virtual(const char *name)
{
    static const char *const prefixes[] = {"docker", "virbr", "veth", "br-"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) return true;
    return false;
}

/* Those that by their names lead out of the host, those that lead back to it, and those that may do either. */
enum kind { OUTWARD, LOOPBACK, VIRTUAL };

/* Named ones are taken whatever they are. */
static bool wanted(const rd_filter *filter, const struct ifaddrs *i, enum kind kind)
{
    rd_filter_answer answer = rd_filter_ask(filter, i->ifa_name);
    if (answer == RD_FILTER_EXCLUDED || answer == RD_FILTER_UNNAMED) return false;
    if (i->ifa_flags & IFF_LOOPBACK) return kind == LOOPBACK;
    return kind == (answer != RD_FILTER_NAMED && is_virtual(i->ifa_name) ? VIRTUAL : OUTWARD);
}

static void keep(const struct ifaddrs *i, rd_interface *nic)
{
    const unsigned char *raw = NULL;
    memset(nic, 0, sizeof *nic);
    nic->at.bytes = i->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    memcpy(&nic->at.at, i->ifa_addr, nic->at.bytes);
    rd_address_set_port(&nic->at, 0);
    snprintf(nic->name, sizeof nic->name, "%s", i->ifa_name);
    int bytes = raw_address(i->ifa_addr, &raw);
    nic->bits = 8 * bytes; /* without a mask: alone on its network */
    if (raw_address(i->ifa_netmask, &raw) != bytes) return;
    for (nic->bits = 0; nic->bits < 8 * bytes && raw[nic->bits / 8] & (0x80 >> nic->bits % 8);) nic->bits++;
}

static int collect(const struct ifaddrs *all, const rd_filter *filter, enum kind kind, rd_interface *list, int room)
{
    static const int families[] = {AF_INET, AF_INET6};
    int n = 0;
    for (int f = 0; f < 2; f++)
        for (const struct ifaddrs *i = all; i && n < room; i = i->ifa_next) {
            if (!i->ifa_addr || i->ifa_addr->sa_family != families[f] || !is_plugged(i)) continue;
            const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)i->ifa_addr;
            if (f == 1 && IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) continue;
            if (!wanted(filter, i, kind)) continue;
            keep(i, &list[n++]);
        }
    return n;
}

/* "lo, eth0, eth1 (down), eth2 (no carrier)" */
static void list_names(const struct ifaddrs *all, char *text, size_t bytes)
{
    size_t used = 0;
    for (const struct ifaddrs *i = all; i && used < bytes; i = i->ifa_next) {
        const struct ifaddrs *first = all;
        while (strcmp(first->ifa_name, i->ifa_name) != 0) first = first->ifa_next;
        if (first != i) continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s%s%s", used ? ", " : "", i->ifa_name,
                                 !(i->ifa_flags & IFF_UP) ? " (down)"
                                 : is_plugged(i)          ? ""
                                                          : " (no carrier)");
    }
}

rondo_result rd_interface_pick(const struct ifaddrs *all, const char *filter, rd_interface *list, int room, int *count)
{
    rd_filter asked;
    char names[512] = "none";
    rd_filter_parse(&asked, filter);
    int n = collect(all, &asked, OUTWARD, list, room);
    bool alone = n == 0; /* or in a container, whose way out is a veth */
    if (asked.naming || alone) n += collect(all, &asked, LOOPBACK, list + n, room - n);
    if (alone && !asked.count) n += collect(all, &asked, VIRTUAL, list + n, room - n);
    if (n == 0 && asked.count) {
        if (all) list_names(all, names, sizeof names);
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "RONDO_INTERFACE=%.100s matches no interface that is up and has an address; there are: %s",
                       filter, names);
    }
    *count = n; /* perhaps none, when nothing was asked for: ranks of one host do without */
    return RONDO_SUCCESS;
}

static void ask_speeds(rd_interface *list, int count)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    for (int n = 0; fd >= 0 && n < count; n++) {
        struct ethtool_cmd what = {.cmd = ETHTOOL_GSET};
        struct ifreq request;
        memset(&request, 0, sizeof request);
        memcpy(request.ifr_name, list[n].name, sizeof request.ifr_name);
        request.ifr_data = (char *)&what;
        if (ioctl(fd, SIOCETHTOOL, &request)) continue;
        uint32_t speed = (uint32_t)what.speed_hi << 16 | what.speed; /* ethtool_cmd_speed shifts into the sign */
        if (speed != (uint32_t)SPEED_UNKNOWN) list[n].mbits = speed;
    }
    if (fd >= 0) close(fd);
}

rondo_result rd_interface_list(const char *filter, rd_interface *list, int room, int *count)
{
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all)) return rd_fail_errno("listing the network interfaces");
    rondo_result result = rd_interface_pick(all, filter, list, room, count);
    freeifaddrs(all);
    if (result == RONDO_SUCCESS) ask_speeds(list, *count);
    return result;
}
