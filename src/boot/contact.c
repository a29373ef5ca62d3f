/* SPDX-License-Identifier: Apache-2.0
 *
 * contact.c - how a rank can be reached: what it says about itself, and in which order others try it.
 */
#include "boot/member.h"

#include "base/hash.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INTERFACE_BYTES 40 /* of an address, packed */

/* Two processes of one kernel and one network namespace hash alike; whether they share memory is proved elsewhere. */
static rondo_result hash_host(unsigned char hash[32])
{
    char boot[64] = "";
    struct stat space = {0};
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) return rd_fail_errno("reading this host's boot id");
    if (fd >= 0) {
        if (read(fd, boot, sizeof boot - 1) < 0) boot[0] = 0;
        close(fd);
    }
    if (!boot[0]) gethostname(boot, sizeof boot - 1);
    if (stat("/proc/self/ns/net", &space)) space.st_ino = 0;
    struct {
        char boot[64];
        uint64_t space;
    } host = {.space = space.st_ino};
    memcpy(host.boot, boot, sizeof boot);
    rd_hash(hash, 32, "host", &host, sizeof host);
    return RONDO_SUCCESS;
}

rondo_result rd_contact_here(rd_contact *contact, const rd_settings *settings, int tcp_port,
                             const unsigned char token[16])
{
    int count = 0;
    memset(contact, 0, sizeof *contact);
    RD_TRY(rd_interface_list(settings->interface, contact->interface, RD_INTERFACES, &count));
    contact->interfaces = count;
    for (int i = 0; i < count; i++) rd_address_set_port(&contact->interface[i].at, tcp_port);
    memcpy(contact->process, token, sizeof contact->process);
    rd_process_unix_name(token, contact->unix_name);
    RD_TRY(hash_host(contact->host));
    contact->pid = (int32_t)getpid();
    gethostname(contact->hostname, sizeof contact->hostname - 1);
    return RONDO_SUCCESS;
}

/* ---- The bytes ---- */

/* The bytes of its IP address, and how many. */
static void *ip_of(rd_address *at, size_t *bytes)
{
    bool six = at->at.ss_family == AF_INET6;
    *bytes = six ? 16 : 4;
    return six ? (void *)&((struct sockaddr_in6 *)&at->at)->sin6_addr
               : (void *)&((struct sockaddr_in *)&at->at)->sin_addr;
}

static void pack_interface(rd_writer *w, rd_interface i, bool any)
{
    unsigned char ip[16] = {0};
    size_t bytes;
    const void *from = ip_of(&i.at, &bytes);
    memcpy(ip, from, any ? bytes : 0);
    rd_write_u16(w, !any ? 0 : bytes == 16 ? 6 : 4);
    rd_write_u16(w, any ? (uint16_t)i.bits : 0);
    rd_write_u32(w, any ? i.mbits : 0);
    rd_write_bytes(w, ip, sizeof ip);
    rd_write_text(w, any ? i.name : "", sizeof i.name);
}

/* false: no address. */
static bool unpack_interface(rd_reader *r, uint32_t port, rd_interface *i)
{
    unsigned char ip[16];
    size_t bytes;
    uint16_t family = rd_read_u16(r);
    memset(i, 0, sizeof *i);
    i->bits = rd_read_u16(r);
    i->mbits = rd_read_u32(r);
    rd_read_bytes(r, ip, sizeof ip);
    rd_read_text(r, i->name, sizeof i->name, sizeof i->name);
    i->at.at.ss_family = family == 6 ? AF_INET6 : AF_INET;
    i->at.bytes = family == 6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    void *to = ip_of(&i->at, &bytes);
    memcpy(to, ip, bytes);
    rd_address_set_port(&i->at, (int)port);
    return (family == 4 || family == 6) && i->bits <= 8 * (int)bytes;
}

void rd_contact_pack(const rd_contact *contact, unsigned char bytes[RD_CONTACT_BYTES])
{
    rd_writer w = {bytes, RD_CONTACT_BYTES, false};
    rd_write_bytes(&w, contact->process, 16);
    rd_write_bytes(&w, contact->host, 32);
    rd_write_text(&w, contact->unix_name, sizeof contact->unix_name);
    for (int i = 0; i < RD_INTERFACES; i++) pack_interface(&w, contact->interface[i], i < contact->interfaces);
    rd_write_u32(&w, (uint32_t)contact->interfaces);
    rd_write_u32(&w, contact->interfaces ? (uint32_t)rd_address_port(&contact->interface[0].at) : 0);
    rd_write_u32(&w, (uint32_t)contact->pid);
    rd_write_text(&w, contact->hostname, sizeof contact->hostname);
}

rondo_result rd_contact_unpack(rd_contact *contact, const unsigned char bytes[RD_CONTACT_BYTES])
{
    rd_reader r = {bytes, RD_CONTACT_BYTES, false}, list;
    rd_contact c = {0};
    bool valid = true;
    rd_read_bytes(&r, c.process, 16);
    rd_read_bytes(&r, c.host, 32);
    rd_read_text(&r, c.unix_name, sizeof c.unix_name, sizeof c.unix_name);
    list = (rd_reader){rd_read_room(&r, RD_INTERFACES * INTERFACE_BYTES), RD_INTERFACES * INTERFACE_BYTES, false};
    uint32_t count = rd_read_u32(&r), port = rd_read_u32(&r);
    c.pid = (int32_t)rd_read_u32(&r);
    rd_read_text(&r, c.hostname, sizeof c.hostname, sizeof c.hostname);
    if (count > RD_INTERFACES)
        return rd_fail(RONDO_REMOTE_ERROR, "a rank's contact claims %u addresses; at most %d fit", count,
                       RD_INTERFACES);
    for (uint32_t i = 0; i < count; i++) valid = unpack_interface(&list, port, &c.interface[i]) && valid;
    if (!valid || port > 65535) return rd_fail(RONDO_REMOTE_ERROR, "a rank's contact has addresses that are none");
    c.interfaces = (int32_t)count;
    *contact = c;
    return RONDO_SUCCESS;
}

void rd_contact_restrain(rd_contact *contact)
{
    if (contact->interfaces < 0 || contact->interfaces > RD_INTERFACES) contact->interfaces = 0;
    for (int i = 0; i < RD_INTERFACES; i++) contact->interface[i].name[sizeof contact->interface[i].name - 1] = 0;
    contact->unix_name[sizeof contact->unix_name - 1] = 0;
    contact->hostname[sizeof contact->hostname - 1] = 0;
}

/* ---- Which route ---- */

/* A network is as fast as the slower end; ends that say nothing are slower than any that do. */
static uint32_t speed(const rd_contact *here, const rd_contact *there, rd_route route)
{
    uint32_t a = here->interface[route.from].mbits, b = there->interface[route.to].mbits;
    return a < b ? a : b;
}

/* What is on an interface or a network that is among the routes already makes no further one. A second card on one
 * network neither: whatever address a connection has, Linux sends by the card that its routes name first. */
static bool is_taken(const rd_contact *here, const rd_contact *there, const rd_route *routes, int count, int from,
                     int to)
{
    for (int i = 0; i < count; i++)
        if (strcmp(here->interface[routes[i].from].name, here->interface[from].name) == 0 ||
            strcmp(there->interface[routes[i].to].name, there->interface[to].name) == 0 ||
            rd_interface_same_network(&here->interface[routes[i].from], &here->interface[from]))
            return true;
    return false;
}

int rd_contact_networks(const rd_contact *here, const rd_contact *there, rd_route networks[RD_INTERFACES])
{
    int count = 0;
    for (int to = 0; to < there->interfaces; to++) {
        int from = 0;
        while (from < here->interfaces && (!rd_interface_same_network(&here->interface[from], &there->interface[to]) ||
                                           is_taken(here, there, networks, count, from, to)))
            from++;
        if (from == here->interfaces) continue;
        rd_route route = {.from = from, .to = to};
        int at = count++;
        for (; at > 0 && speed(here, there, networks[at - 1]) < speed(here, there, route); at--)
            networks[at] = networks[at - 1];
        networks[at] = route;
    }
    return count;
}

/* Whether some interface of this machine, whatever its name, has the address: then it leads here and not there. */
static bool leads_here(const rd_address *to, const struct ifaddrs *interfaces)
{
    rd_address ours;
    for (const struct ifaddrs *i = interfaces; i; i = i->ifa_next) {
        if (!i->ifa_addr || i->ifa_addr->sa_family != to->at.ss_family) continue;
        memset(&ours, 0, sizeof ours);
        memcpy(&ours.at, i->ifa_addr, to->bytes);
        if (rd_address_same(&ours, to)) return true;
    }
    return false;
}

int rd_contact_routes(const rd_contact *here, const rd_contact *there, int first, rd_route routes[RD_INTERFACES],
                      int *networks)
{
    rd_route shared[RD_INTERFACES];
    bool listed[RD_INTERFACES] = {false}, own[RD_INTERFACES] = {false};
    struct ifaddrs *interfaces = NULL;
    int n = rd_contact_networks(here, there, shared), count = 0;
    bool one_host = memcmp(here->host, there->host, sizeof here->host) == 0;
    if (one_host || getifaddrs(&interfaces)) interfaces = NULL;
    for (int i = 0; i < n; i++) routes[count++] = shared[(first + i) % n];
    for (int i = 0; i < n; i++) listed[shared[i].to] = true;
    for (int to = 0; to < there->interfaces; to++) own[to] = leads_here(&there->interface[to].at, interfaces);
    for (int last = 0; last <= 1; last++)
        for (int to = 0; to < there->interfaces; to++)
            if (!listed[to] && own[to] == last) routes[count++] = (rd_route){-1, to, own[to]};
    if (interfaces) freeifaddrs(interfaces);
    *networks = n;
    return count;
}
