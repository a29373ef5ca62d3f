/* SPDX-License-Identifier: Apache-2.0
 *
 * rdma.h - the RDMA devices of this host as the kernel describes them under /sys/class/infiniband, and which of them a
 * link would use. Needs no library and opens no device.
 */
#ifndef RD_BASE_RDMA_H
#define RD_BASE_RDMA_H

#include "base/env.h"

#define RD_RDMA_SYSFS "/sys/class/infiniband"
enum { RD_RDMA_PORTS = 32, RD_RDMA_GIDS = 32, RD_RDMA_NAME = 64, RD_RDMA_PORT_NAME = RD_RDMA_NAME + 8 };

/* How an address of a port can be used; the first is the best. */
typedef enum rd_gid_kind {
    RD_GID_ROCE2_IPV4,
    RD_GID_ROCE2_IPV6,
    RD_GID_INFINIBAND,
    RD_GID_ROCE2_LINK_LOCAL, /* known on its own cable only: never chosen, but may be asked for */
    RD_GID_ROCE1,            /* not routed, and other switches' settings: likewise */
    RD_GID_KINDS
} rd_gid_kind;
extern const char *const rd_gid_kind_names[RD_GID_KINDS];

typedef struct rd_rdma_gid {
    int index;
    unsigned char bytes[16];
    rd_gid_kind kind;
    char netdev[16]; /* "" for InfiniBand */
} rd_rdma_gid;

/* "192.0.2.1", or as IPv6. */
void rd_rdma_gid_print(const unsigned char gid[16], char text[48]);

typedef struct rd_rdma_port {
    char device[RD_RDMA_NAME];
    int port;
    bool ethernet; /* RoCE; else InfiniBand */
    bool active;
    char state[24];
    char rate[40];
    int lid;
    bool software; /* nothing but the kernel is behind it: Soft-RoCE, or iWARP in software */
    bool near;     /* the calling thread may run on a processing unit that the kernel calls local to it */
    bool named;    /* RONDO_RDMA_DEVICE asks for it */
    int gid;       /* in gids: the one that links would use; -1: none */
    int gid_count;
    rd_rdma_gid gids[RD_RDMA_GIDS];
    char unusable[200]; /* why it is not used; "": it could be */
} rd_rdma_port;

/* "mlx5_0:1", as in RONDO_RDMA_DEVICE. */
void rd_rdma_port_name(const rd_rdma_port *port, char name[RD_RDMA_PORT_NAME]);

/* Every port of every device, by name; `sysfs`: RD_RDMA_SYSFS, but for tests. *count may be 0. */
rondo_result rd_rdma_list(const char *sysfs, const rd_settings *settings, rd_rdma_port *list, int room, int *count);

/* The port that a link would use: the one that is named ("mlx5_0:1"; NULL: none is), else that of network device `netdev`
 * (NULL: any), else one near this thread, else the first. NULL when there is none. `why` gets a sentence either way. */
const rd_rdma_port *rd_rdma_choose(const rd_rdma_port *list, int count, const char *named, const char *netdev, char *why,
                                   size_t bytes);

/* What a setting says for one device: "3" for all, or "mlx5_0=3,mlx5_1=5". *value stays when it says nothing. */
rondo_result rd_rdma_number(const char *name, const char *text, const char *device, long least, long most, long *value);

#endif
