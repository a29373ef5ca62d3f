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

enum { ADDRESSES = 4 };

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
    rd_address list[16];
    int count = 0;
    memset(contact, 0, sizeof *contact);
    RD_TRY(rd_address_list(settings->interface, list, 16, &count));
    for (int i = 0; i < count && contact->addresses < ADDRESSES; i++) {
        rd_address_set_port(&list[i], tcp_port);
        rd_address_print(&list[i], contact->address[contact->addresses++]);
    }
    memcpy(contact->process, token, sizeof contact->process);
    rd_process_unix_name(token, contact->unix_name);
    RD_TRY(hash_host(contact->host));
    contact->pid = (int32_t)getpid();
    gethostname(contact->hostname, sizeof contact->hostname - 1);
    return RONDO_SUCCESS;
}

void rd_contact_pack(const rd_contact *contact, unsigned char bytes[RD_CONTACT_BYTES])
{
    rd_writer w = {bytes, RD_CONTACT_BYTES, false};
    rd_write_bytes(&w, contact->process, 16);
    rd_write_bytes(&w, contact->host, 32);
    rd_write_text(&w, contact->unix_name, sizeof contact->unix_name);
    for (int i = 0; i < ADDRESSES; i++) rd_write_text(&w, contact->address[i], sizeof contact->address[i]);
    rd_write_u32(&w, (uint32_t)contact->addresses);
    rd_write_u32(&w, (uint32_t)contact->pid);
    rd_write_text(&w, contact->hostname, sizeof contact->hostname);
}

rondo_result rd_contact_unpack(rd_contact *contact, const unsigned char bytes[RD_CONTACT_BYTES])
{
    rd_reader r = {bytes, RD_CONTACT_BYTES, false};
    rd_contact c = {0};
    rd_read_bytes(&r, c.process, 16);
    rd_read_bytes(&r, c.host, 32);
    rd_read_text(&r, c.unix_name, sizeof c.unix_name, sizeof c.unix_name);
    for (int i = 0; i < ADDRESSES; i++) rd_read_text(&r, c.address[i], sizeof c.address[i], sizeof c.address[i]);
    uint32_t addresses = rd_read_u32(&r);
    c.pid = (int32_t)rd_read_u32(&r);
    rd_read_text(&r, c.hostname, sizeof c.hostname, sizeof c.hostname);
    if (addresses > ADDRESSES)
        return rd_fail(RONDO_REMOTE_ERROR, "a rank's contact claims %u addresses; at most %d fit", addresses,
                       ADDRESSES);
    c.addresses = (int32_t)addresses;
    *contact = c;
    return RONDO_SUCCESS;
}

void rd_contact_restrain(rd_contact *contact)
{
    if (contact->addresses < 0 || contact->addresses > ADDRESSES) contact->addresses = 0;
    for (int i = 0; i < ADDRESSES; i++) contact->address[i][sizeof contact->address[i] - 1] = 0;
    contact->unix_name[sizeof contact->unix_name - 1] = 0;
    contact->hostname[sizeof contact->hostname - 1] = 0;
}

/* ---- Which address first ---- */

/* The family's address bytes; 0 for other families. */
static size_t raw_address(const struct sockaddr *at, unsigned char raw[16])
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    if (at && at->sa_family == AF_INET) {
        memcpy(&v4, at, sizeof v4);
        memcpy(raw, &v4.sin_addr, 4);
        return 4;
    }
    if (at && at->sa_family == AF_INET6) {
        memcpy(&v6, at, sizeof v6);
        memcpy(raw, &v6.sin6_addr, 16);
        return 16;
    }
    return 0;
}

enum closeness { SAME_SUBNET, ROUTED, OWN_ADDRESS };

/* A peer's address that we have ourselves (the same private bridge on two hosts) leads to us, not to it. */
static enum closeness closeness_of(const char *address, const struct ifaddrs *interfaces)
{
    rd_address to;
    unsigned char theirs[16], ours[16], mask[16];
    enum closeness best = ROUTED;
    if (rd_address_parse(&to, address) != RONDO_SUCCESS) return OWN_ADDRESS;
    size_t bytes = raw_address((const struct sockaddr *)&to.at, theirs);
    for (const struct ifaddrs *i = interfaces; i; i = i->ifa_next) {
        if (!bytes || raw_address(i->ifa_addr, ours) != bytes || raw_address(i->ifa_netmask, mask) != bytes) continue;
        if (memcmp(ours, theirs, bytes) == 0) return OWN_ADDRESS;
        bool same = true;
        for (size_t b = 0; b < bytes; b++) same = same && !((ours[b] ^ theirs[b]) & mask[b]);
        if (same) best = SAME_SUBNET;
    }
    return best;
}

int rd_contact_order(const rd_contact *contact, bool same_host, int order[ADDRESSES])
{
    struct ifaddrs *interfaces = NULL;
    enum closeness closeness[ADDRESSES];
    int count = 0;
    if (getifaddrs(&interfaces)) interfaces = NULL;
    for (int i = 0; i < contact->addresses; i++) {
        closeness[i] = closeness_of(contact->address[i], interfaces);
        if (same_host && closeness[i] == OWN_ADDRESS) closeness[i] = SAME_SUBNET;
    }
    for (int wanted = SAME_SUBNET; wanted <= OWN_ADDRESS; wanted++)
        for (int i = 0; i < contact->addresses; i++)
            if ((int)closeness[i] == wanted) order[count++] = i;
    if (interfaces) freeifaddrs(interfaces);
    return count;
}
