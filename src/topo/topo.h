/* SPDX-License-Identifier: Apache-2.0
 *
 * topo.h - where ranks sit, and what lies between two of them.
 *   discover.c  this machine, by hwloc          -> rd_place of a rank
 *   cost.c      kinds of links, and what a hop over one costs
 *   crowd.c     whether ranks of a host must take turns
 * and ring.h has what follows from it: the rings.
 */
#ifndef RD_TOPO_TOPO_H
#define RD_TOPO_TOPO_H

#include "rondo.h"

#include <stdbool.h>

/* Where a rank runs: the smallest object of each kind that contains its binding, by hwloc's logical index; -1 where
 * its binding spans several (a rank that is not bound: all -1). Plain data that travels in the rendezvous table. */
typedef struct rd_place {
    int32_t host; /* filled in by the caller: ranks on one host have the same number */
    int32_t package, numa, l3, l2, core;
    int32_t pus;  /* processing units of the binding, and the first and last of them */
    int32_t first_pu, last_pu;
} rd_place;

typedef struct rd_machine rd_machine;

/* The machine the process runs on; discovered once per process, never freed. NULL + rd_last_error when hwloc fails. */
const rd_machine *rd_machine_here(void);
/* From an hwloc synthetic string, for tests; free it. */
rondo_result rd_machine_synthetic(rd_machine **machine, const char *description);
void rd_machine_free(rd_machine *machine);

/* The place of the calling thread's binding on the machine here. */
rondo_result rd_place_here(rd_place *place);
/* The place of processing unit `pu` (hwloc's logical index). */
rondo_result rd_place_of_pu(const rd_machine *machine, int pu, rd_place *place);
/* One line for people: "2 packages, 2 NUMA nodes, 4 L3 caches, 16 cores, 32 PUs (24 allowed)". */
void rd_machine_describe(const rd_machine *machine, char *text, size_t bytes);
/* Of one processing unit (hwloc's logical index): its place, the number that the operating system gives it, and whether
 * this process may run there (on another machine: whether the file of it says so). */
typedef struct rd_pu {
    rd_place place;
    int os_index;
    bool allowed;
} rd_pu;
int rd_machine_pus(const rd_machine *machine);
rondo_result rd_machine_pu(const rd_machine *machine, int pu, rd_pu *unit);
/* Bytes of a cache, or of a NUMA node's memory; 0 when they are not known or there is no such thing. */
typedef enum rd_storage { RD_STORAGE_L2, RD_STORAGE_L3, RD_STORAGE_NUMA } rd_storage;
uint64_t rd_machine_bytes(const rd_machine *machine, rd_storage what, int index);
/* Processing units this process may run on, by its first thread's binding. Says nothing of other ranks: of two that are
 * bound to a unit each, both see 1. For that there is rd_crowded(). */
int rd_allowed_pus(void);

/* What lies between two ranks, or between a rank and a device: the closest thing that both share, or the way between
 * two devices. cost.c has the figures of each kind, and where they come from. */
typedef enum rd_link_kind {
    RD_LINK_SELF, /* one device */
    RD_LINK_CORE,
    RD_LINK_L2,
    RD_LINK_L3,
    RD_LINK_NUMA,
    RD_LINK_PACKAGE,
    RD_LINK_HOST,
    RD_LINK_NVLINK,     /* two GPUs joined directly */
    RD_LINK_NVSWITCH,   /* ... by a switch that joins all of them */
    RD_LINK_PCI_SWITCH, /* below one PCIe switch */
    RD_LINK_PCI_BRIDGE, /* below one host bridge */
    RD_LINK_PCI_NUMA,   /* through one processor, from one of its host bridges to another */
    RD_LINK_PCI_HOST,   /* through several */
    RD_LINK_NETWORK,
    RD_LINK_KINDS
} rd_link_kind;

typedef struct rd_link {
    uint32_t kind; /* rd_link_kind */
    uint32_t ns;   /* latency, one way */
    uint32_t mbs;  /* bandwidth in one direction, in 10^6 bytes a second */
} rd_link;

/* A link of this kind, with the table's figures. */
rd_link rd_link_of(rd_link_kind kind);
/* A network link: mbit per second, 0 when that is not known. */
rd_link rd_link_network(uint32_t mbit);
/* "core", "L2 cache", "L3 cache", "NUMA node", "package", "host", "NVLink", "PCIe switch", ... */
const char *rd_link_name(uint32_t kind);
/* Nanoseconds that 64 KiB take over it while `users` rings use it. */
uint32_t rd_link_cost(rd_link link, int users);

/* Between two ranks that work on host memory; RD_LINK_NETWORK when they are on different hosts. */
rd_link rd_place_link(const rd_place *a, const rd_place *b);

/* What lies between a place on the machine here and a network interface, by where its card hangs as /sys says; of an
 * interface of software (a bond, a VLAN), the card that it lies upon. RD_LINK_PCI_BRIDGE: on the place's own NUMA node,
 * RD_LINK_PCI_NUMA: on its package, RD_LINK_PCI_HOST: elsewhere, RD_LINK_HOST: on no card that is known. */
rd_link_kind rd_place_interface(const rd_place *place, const char *name);

/* true when more ranks of `host` are bound to some processing units than there are of these: some must take turns, and
 * one that spins may keep the one it waits for from running. places: one per rank, n of them, of any host. */
bool rd_crowded(const rd_place *places, int n, int host);

#endif
