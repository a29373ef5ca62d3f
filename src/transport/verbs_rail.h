/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_rail.h - one queue pair of a link, with its completion queue. A link has one or several, on one device or
 * several; slices take them in turns, as they take the sockets of a tcp link.
 */
#ifndef RD_TRANSPORT_VERBS_RAIL_H
#define RD_TRANSPORT_VERBS_RAIL_H

#include "base/bell.h"
#include "transport/verbs_device.h"

enum {
    RD_RAIL_DEPTH = 64, /* writes that a queue holds */
    RD_RAIL_PIECES = 16 /* of a write, at most */
};

/* What the other end must know to reach this one; on the wire little-endian, but for the GID's own order. */
typedef struct rd_rail_address {
    uint32_t queue, key; /* queue pair, and the key to the link's memory on its device */
    unsigned char gid[16];
    uint16_t lid;
    uint8_t mtu, ethernet;
} rd_rail_address;
_Static_assert(sizeof(rd_rail_address) == 28, "four of them fit into an offer");

typedef struct rd_verbs_rail {
    rd_verbs_device *device;
    rd_rdma_port port;
    char why[400]; /* it is this port */
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;     /* the link's memory, for this device */
    bool shares_mr;        /* it is an earlier rail's */
    uint32_t inline_bytes; /* a write of so much is taken from memory at once */
    uint32_t key;          /* of the peer's memory */
    enum ibv_mtu mtu;
    uint32_t piece; /* bytes of a piece of a long write; 0: it goes in one */
    long traffic_class, service_level, pkey_index, timeout;
    uint64_t posted, done; /* writes: done <= posted <= done + RD_RAIL_DEPTH */
    unsigned unacked;      /* events of the completion queue */
    bool greeted;          /* the peer's queue has sent: so it can receive */
} rd_verbs_rail;

/* Opens the device that is wished for and makes the queues, with `receives` receives posted. `memory` is registered unless an
 * earlier rail of the link has done so for this device; `largest`: bytes of a write. On failure nothing is left. */
rondo_result rd_rail_open(rd_verbs_rail *rail, const rd_verbs_rail *earlier, int count, rd_verbs_wish wish,
                          const rd_settings *settings, void *memory, size_t bytes, size_t largest, int receives);
/* Fine on one that is all zero. */
void rd_rail_close(rd_verbs_rail *rail, rondo_bell *bell);

rd_rail_address rd_rail_here(const rd_verbs_rail *rail);
/* Ready to receive, and to send. */
rondo_result rd_rail_connect(rd_verbs_rail *rail, const rd_rail_address *there, int32_t peer);
/* Takes in and sends nothing from here on; what the peer writes is refused by the device. */
void rd_rail_stop(rd_verbs_rail *rail);

/* One write to the peer's memory. One of several pieces is of one part. */
typedef struct rd_rail_write {
    struct ibv_sge parts[2];
    int count;
    bool copied;       /* the parts are the caller's again at once; at most inline_bytes */
    bool told;         /* `done` shall tell of it by itself; else with a later one */
    uint64_t to;
    uint32_t immediate;
} rd_rail_write;

static inline bool rd_rail_has_room(const rd_verbs_rail *rail)
{
    return rail->posted - rail->done <= RD_RAIL_DEPTH - RD_RAIL_PIECES;
}
/* The number of the write: it is done when rail->done has reached it. 0: it was refused; errno says why. */
uint64_t rd_rail_post(rd_verbs_rail *rail, const rd_rail_write *write);
/* One receive more; false: it was refused. */
bool rd_rail_expect(rd_verbs_rail *rail);

/* Before a sleep: the bell will wake for the next completion. */
rondo_result rd_rail_arm(rd_verbs_rail *rail, rondo_bell *bell);

#endif
