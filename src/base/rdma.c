/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rdma.h"

#include "base/filter.h"
#include "base/status.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const rd_gid_kind_names[RD_GID_KINDS] = {"RoCE v2, IPv4", "RoCE v2, IPv6", "InfiniBand",
                                                     "RoCE v2, link-local", "RoCE v1"};

/* ---- Reading ---- */

/* The first line of a file; false, and "", when it cannot be read, as for a GID that is not in use. */
static bool __attribute__((format(printf, 3, 4))) read_line(char *text, size_t bytes, const char *format, ...)
{
    char path[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(path, sizeof path, format, arguments);
    va_end(arguments);
    *text = '\0';
    FILE *file = fopen(path, "re");
    if (!file) return false;
    bool read = fgets(text, (int)bytes, file) != NULL;
    fclose(file);
    if (!read) *text = '\0';
    text[strcspn(text, "\n")] = '\0';
    return read;
}

/* "fe80:0000:0000:0000:0000:00ff:fe00:0001" */
static bool parse_gid(const char *text, unsigned char gid[16])
{
    unsigned words[8];
    if (sscanf(text, "%4x:%4x:%4x:%4x:%4x:%4x:%4x:%4x", &words[0], &words[1], &words[2], &words[3], &words[4],
               &words[5], &words[6], &words[7]) != 8)
        return false;
    unsigned any = 0;
    for (int i = 0; i < 8; i++) {
        gid[2 * i] = (unsigned char)(words[i] >> 8);
        gid[2 * i + 1] = (unsigned char)words[i];
        any |= words[i];
    }
    return any;
}

static const unsigned char ipv4_prefix[12] = {[10] = 0xff, [11] = 0xff};

static rd_gid_kind kind_of(const rd_rdma_port *port, const unsigned char gid[16], const char *type)
{
    if (!port->ethernet) return RD_GID_INFINIBAND;
    if (!strstr(type, "v2")) return RD_GID_ROCE1;
    if (!memcmp(gid, ipv4_prefix, sizeof ipv4_prefix)) return RD_GID_ROCE2_IPV4;
    return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80 ? RD_GID_ROCE2_LINK_LOCAL : RD_GID_ROCE2_IPV6;
}

void rd_rdma_gid_print(const unsigned char gid[16], char text[48])
{
    bool v4 = !memcmp(gid, ipv4_prefix, sizeof ipv4_prefix);
    if (!inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? gid + 12 : gid, text, 48)) snprintf(text, 48, "?");
}

/* The table has holes, and entries that cannot be read: they are passed over. */
static void read_gids(const char *sysfs, rd_rdma_port *port)
{
    enum { MOST = 256, HOLES = 16 };
    char text[80], type[40];
    for (int i = 0, holes = 0; i < MOST && holes < HOLES && port->gid_count < RD_RDMA_GIDS; i++) {
        rd_rdma_gid *gid = &port->gids[port->gid_count];
        const char *at = port->device;
        if (!read_line(text, sizeof text, "%s/%s/ports/%d/gids/%d", sysfs, at, port->port, i) ||
            !parse_gid(text, gid->bytes)) {
            holes++;
            continue;
        }
        if (!read_line(type, sizeof type, "%s/%s/ports/%d/gid_attrs/types/%d", sysfs, at, port->port, i) &&
            port->ethernet)
            continue;
        holes = 0;
        read_line(gid->netdev, sizeof gid->netdev, "%s/%s/ports/%d/gid_attrs/ndevs/%d", sysfs, at, port->port, i);
        gid->index = i;
        gid->kind = kind_of(port, gid->bytes, type);
        port->gid_count++;
    }
}

/* Whether this thread may run on a processing unit that the kernel counts as the device's own: "0-3,8-11". */
static bool is_near(const char *list)
{
    cpu_set_t mine;
    if (sched_getaffinity(0, sizeof mine, &mine)) return true;
    while (*list) {
        char *end;
        long first = strtol(list, &end, 10), last = first;
        if (end == list) return true; /* the kernel does not say: as near as any */
        if (*end == '-') last = strtol(end + 1, &end, 10);
        for (long cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++)
            if (cpu >= 0 && CPU_ISSET((size_t)cpu, &mine)) return true;
        list = end + (*end == ',');
    }
    return false;
}

/* ---- Judging ---- */

static rondo_result pick_gid(rd_rdma_port *port, const rd_settings *settings)
{
    long asked = -1;
    RD_TRY(rd_rdma_number("RONDO_RDMA_GID_INDEX", settings->rdma_gid_index, port->device, 0, 255, &asked));
    port->gid = -1;
    for (int i = 0; i < port->gid_count; i++) {
        const rd_rdma_gid *gid = &port->gids[i];
        if (asked >= 0 ? gid->index == asked
                       : gid->kind <= RD_GID_INFINIBAND && (port->gid < 0 || gid->kind < port->gids[port->gid].kind))
            port->gid = i;
    }
    if (port->gid >= 0) return RONDO_SUCCESS;
    if (asked >= 0)
        snprintf(port->unusable, sizeof port->unusable, "it has no GID with index %ld (RONDO_RDMA_GID_INDEX)", asked);
    else
        snprintf(port->unusable, sizeof port->unusable, "none of its %d GIDs is RoCE v2 with a routable address; give "
                 "its network device an IP address", port->gid_count);
    return RONDO_SUCCESS;
}

void rd_rdma_port_name(const rd_rdma_port *port, char name[RD_RDMA_PORT_NAME])
{
    snprintf(name, RD_RDMA_PORT_NAME, "%s:%d", port->device, port->port);
}

static rondo_result judge(rd_rdma_port *port, const rd_filter *filter, const rd_settings *settings)
{
    char whole[RD_RDMA_PORT_NAME];
    rd_rdma_port_name(port, whole);
    rd_filter_answer device = rd_filter_ask(filter, port->device), exact = rd_filter_ask(filter, whole);
    port->named = device == RD_FILTER_NAMED || exact == RD_FILTER_NAMED;
    RD_TRY(pick_gid(port, settings));
    if (device == RD_FILTER_EXCLUDED || exact == RD_FILTER_EXCLUDED || (filter->naming && !port->named))
        snprintf(port->unusable, sizeof port->unusable, "RONDO_RDMA_DEVICE=%.80s leaves it out",
                 settings->rdma_device);
    else if (!port->active)
        snprintf(port->unusable, sizeof port->unusable, "its port is %s; set the link up (ip link set DEVICE up; for "
                 "InfiniBand a subnet manager must run)", port->state);
    return RONDO_SUCCESS;
}

static void read_port(const char *sysfs, const char *device, int number, rd_rdma_port *port)
{
    char text[256];
    *port = (rd_rdma_port){.port = number, .gid = -1};
    snprintf(port->device, sizeof port->device, "%.*s", (int)sizeof port->device - 1, device);
    read_line(text, sizeof text, "%s/%s/ports/%d/link_layer", sysfs, device, number);
    port->ethernet = strcmp(text, "InfiniBand") != 0;
    read_line(text, sizeof text, "%s/%s/ports/%d/state", sysfs, device, number); /* "4: ACTIVE" */
    const char *colon = strchr(text, ':');
    snprintf(port->state, sizeof port->state, "%.20s", colon ? colon + 1 + strspn(colon + 1, " ") : "not known");
    port->active = !strcmp(port->state, "ACTIVE");
    read_line(port->rate, sizeof port->rate, "%s/%s/ports/%d/rate", sysfs, device, number);
    if (read_line(text, sizeof text, "%s/%s/ports/%d/lid", sysfs, device, number)) port->lid = (int)strtol(text, NULL, 0);
    snprintf(text, sizeof text, "%s/%.64s/device", sysfs, device);
    port->software = access(text, F_OK) != 0;
    port->near = !read_line(text, sizeof text, "%s/%s/device/local_cpulist", sysfs, device) || is_near(text);
    read_gids(sysfs, port);
}

static int by_name(const void *a, const void *b)
{
    const rd_rdma_port *x = a, *y = b;
    int order = strcmp(x->device, y->device);
    return order ? order : x->port - y->port;
}

rondo_result rd_rdma_list(const char *sysfs, const rd_settings *settings, rd_rdma_port *list, int room, int *count)
{
    rd_filter filter;
    char path[512];
    const struct dirent *entry;
    *count = 0;
    DIR *devices = opendir(sysfs);
    if (!devices) return RONDO_SUCCESS; /* a kernel without RDMA */
    rd_filter_parse(&filter, settings->rdma_device);
    int n = 0;
    rondo_result result = RONDO_SUCCESS;
    while (n < room && (entry = readdir(devices))) {
        if (entry->d_name[0] == '.') continue;
        for (int port = 1; n < room && result == RONDO_SUCCESS; port++) {
            snprintf(path, sizeof path, "%s/%.60s/ports/%d/state", sysfs, entry->d_name, port);
            FILE *there = fopen(path, "re");
            if (!there) break;
            fclose(there);
            read_port(sysfs, entry->d_name, port, &list[n]);
            result = judge(&list[n++], &filter, settings);
        }
    }
    closedir(devices);
    if (result != RONDO_SUCCESS) return result;
    qsort(list, (size_t)n, sizeof *list, by_name);
    *count = n;
    return RONDO_SUCCESS;
}

static bool has_name(const rd_rdma_port *port, const char *name)
{
    char own[RD_RDMA_PORT_NAME];
    rd_rdma_port_name(port, own);
    return !strcmp(own, name);
}

const rd_rdma_port *rd_rdma_choose(const rd_rdma_port *list, int count, const char *named, const char *netdev, char *why,
                                   size_t bytes)
{
    const rd_rdma_port *best = NULL;
    int most = -1, usable = 0;
    for (int i = 0; i < count; i++) {
        const rd_rdma_port *port = &list[i];
        if (*port->unusable) continue;
        usable++;
        bool same = netdev && port->gid >= 0 && !strcmp(port->gids[port->gid].netdev, netdev);
        int score = 4 * (named && has_name(port, named)) + 2 * same + port->near;
        if (score <= most) continue;
        best = port;
        most = score;
    }
    if (best)
        snprintf(why, bytes, "%s port %d, %s", best->device, best->port,
                 usable == 1   ? best->named ? "since RONDO_RDMA_DEVICE asks for it" : "the only one that can be used"
                 : most >= 4   ? "the best by speed and distance"
                 : most >= 2   ? "whose network device carries the connection"
                 : best->named ? "since RONDO_RDMA_DEVICE asks for it"
                 : most == 1   ? "the first one near this thread's processors"
                               : "the first usable one");
    else if (count == 0)
        snprintf(why, bytes, "this host has no RDMA device (nothing in " RD_RDMA_SYSFS "; rdma link shows them)");
    else
        snprintf(why, bytes, "no RDMA port can be used: %s port %d: %s", list[0].device, list[0].port, list[0].unusable);
    return best;
}

rondo_result rd_rdma_number(const char *name, const char *text, const char *device, long least, long most, long *value)
{
    size_t known = strlen(device);
    long said = *value;
    for (const char *at = text; at && *at;) {
        char *end;
        const char *equals = strchr(at, '='), *comma = strchr(at, ',');
        bool listed = equals && (!comma || equals < comma);
        const char *digits = listed ? equals + 1 : at;
        errno = 0;
        long number = strtol(digits, &end, 0);
        if (end == digits || errno || (*end && *end != ',') || number < least || number > most)
            return rd_fail(RONDO_INVALID_ARGUMENT, "%s=%.100s is not valid: a number from %ld to %ld for every RDMA "
                           "device, or a list such as mlx5_0=%ld,mlx5_1=%ld", name, text, least, most, least, most);
        if (!listed || ((size_t)(equals - at) == known && !strncmp(at, device, known))) said = number;
        at = *end ? end + 1 : end;
    }
    *value = said;
    return RONDO_SUCCESS;
}
