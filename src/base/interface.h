/* SPDX-License-Identifier: Apache-2.0
 *
 * interface.h - this machine's network interfaces, and which networks two machines share.
 */
#ifndef RD_BASE_INTERFACE_H
#define RD_BASE_INTERFACE_H

#include "base/sock.h"

#include <net/if.h>

/* An address, and the interface that has it. */
typedef struct rd_interface {
    rd_address at;
    char name[IF_NAMESIZE];
    int bits;       /* of the address that all on its network have in common */
    uint32_t mbits; /* per second, as the driver says; 0: it doesn't */
} rd_interface;

/* This machine's addresses (port 0) from its interfaces, never from its host name: IPv4, then IPv6, in the kernel's
 * order of interfaces; loopback last; no link-local IPv6. NULL takes all interfaces that are up and plugged in, but not
 * bridges and virtual ones (docker*, virbr*, veth*, br-*); where there is nothing else, loopback and after it those, which
 * may be a container's way out. filter is a list: "eth,ib" takes those with these prefixes, whatever they are; "=eth0" that one; "^eth" of those
 * that NULL takes all but these. A mark holds for the names after it up to the next. RONDO_INVALID_ARGUMENT when it
 * matches nothing: lists what is there. */
rondo_result rd_interface_list(const char *filter, rd_interface *list, int room, int *count);
/* The same from a given list of interfaces; no speeds. */
struct ifaddrs;
rondo_result rd_interface_pick(const struct ifaddrs *all, const char *filter, rd_interface *list, int room, int *count);

/* Both addresses are on one network, as both their interfaces see it, and are not the same. */
bool rd_interface_same_network(const rd_interface *a, const rd_interface *b);
/* The same address, whatever the port. */
bool rd_address_same(const rd_address *a, const rd_address *b);
/* "10.1.0.0/24" */
void rd_interface_network(const rd_interface *nic, char text[RD_ADDRESS_TEXT]);

#endif
