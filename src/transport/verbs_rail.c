/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/verbs_rail.h"

#include "base/log.h"
#include "base/status.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>

/* Every so many writes one completes visibly, so that the queue's places are known to be free. */
enum { VISIBLE = 16 };
/* 7 would mean "for ever" for one of them and does so on Soft-RoCE for both. */
enum { RETRIES = 6, NOT_READY_RETRIES = 6, NOT_READY_TIMER = 12 /* 0.64 ms */ };

/*
 * Soft-RoCE counts a packet lost as a try of the whole message, and acknowledges nothing before the message's end or the
 * 64th packet: where one packet in twenty is lost, a message of 64 hardly comes through in 7 tries, and one of 16 hardly
 * ever fails to. So long writes go in pieces there. A card counts tries anew whenever something came through.
 */
enum { SOFTWARE_PACKETS = 16 };

/* ---- Opening ---- */

static rondo_result make_queues(rd_verbs_rail *rail, int receives)
{
    const rd_verbs_calls *ibv = rd_verbs_lib();
    static const uint32_t inlines[] = {220, 124, 60, 0}; /* what a device grants is not to be asked otherwise */
    rail->channel = ibv->create_comp_channel(rail->device->context);
    if (!rail->channel) return rd_fail_errno("RDMA device %s gives no completion channel", rail->device->name);
    fcntl(rail->channel->fd, F_SETFL, fcntl(rail->channel->fd, F_GETFL) | O_NONBLOCK);
    rail->cq = ibv->create_cq(rail->device->context, RD_RAIL_DEPTH + receives, NULL, rail->channel, 0);
    if (!rail->cq) return rd_fail_errno("RDMA device %s gives no completion queue", rail->device->name);
    for (size_t i = 0; i < sizeof inlines / sizeof *inlines && !rail->qp; i++) {
        struct ibv_qp_init_attr wanted = {.send_cq = rail->cq, .recv_cq = rail->cq, .qp_type = IBV_QPT_RC,
                                          .cap = {.max_send_wr = RD_RAIL_DEPTH, .max_recv_wr = (uint32_t)receives,
                                                  .max_send_sge = 2, .max_recv_sge = 1,
                                                  .max_inline_data = inlines[i]}};
        rail->qp = ibv->create_qp(rail->device->pd, &wanted);
        rail->inline_bytes = inlines[i];
    }
    return rail->qp ? RONDO_SUCCESS
                    : rd_fail_errno("RDMA device %s gives no queue pair (it may have run out of them, or this process of "
                                    "memory it may lock: ulimit -l)", rail->device->name);
}

static rondo_result prepare(rd_verbs_rail *rail, int receives)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .pkey_index = (uint16_t)rail->pkey_index,
                               .port_num = (uint8_t)rail->port.port, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    int error = rd_verbs_lib()->modify_qp(rail->qp, &attr,
                                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (error)
        return rd_fail(RONDO_SYSTEM_ERROR, "RDMA device %s refuses a queue pair on port %d with the partition key at "
                       "index %ld (RONDO_RDMA_PKEY_INDEX): %s", rail->device->name, rail->port.port, rail->pkey_index,
                       strerror(error));
    for (int i = 0; i < receives; i++)
        if (!rd_rail_expect(rail)) return rd_fail_errno("RDMA device %s takes no receive", rail->device->name);
    return RONDO_SUCCESS;
}

static rondo_result read_settings(rd_verbs_rail *rail, const rd_settings *s)
{
    const char *name = rail->device->name;
    rail->timeout = s->rdma_timeout;
    RD_TRY(rd_rdma_number("RONDO_RDMA_TRAFFIC_CLASS", s->rdma_traffic_class, name, 0, 255, &rail->traffic_class));
    RD_TRY(rd_rdma_number("RONDO_RDMA_SERVICE_LEVEL", s->rdma_service_level, name, 0, 15, &rail->service_level));
    return rd_rdma_number("RONDO_RDMA_PKEY_INDEX", s->rdma_pkey_index, name, 0, 65535, &rail->pkey_index);
}

static uint32_t longest_piece(enum ibv_mtu mtu, size_t largest)
{
    uint32_t packets = SOFTWARE_PACKETS << (mtu + 7), least = (uint32_t)((largest + RD_RAIL_PIECES - 1) / RD_RAIL_PIECES);
    return packets > least ? packets : least;
}

static rondo_result read_port(rd_verbs_rail *rail, size_t bytes)
{
    struct ibv_port_attr attr = {0};
    int error = rd_verbs_lib()->query_port(rail->device->context, (uint8_t)rail->port.port, (void *)&attr);
    if (error)
        return rd_fail(RONDO_SYSTEM_ERROR, "RDMA device %s does not say what port %d is like: %s", rail->device->name,
                       rail->port.port, strerror(error));
    if (attr.max_msg_sz < bytes)
        return rd_fail(RONDO_INVALID_ARGUMENT, "RDMA device %s moves at most %u bytes at once, slices have up to %zu: "
                       "set RONDO_SLICE", rail->device->name, attr.max_msg_sz, bytes);
    rail->mtu = attr.active_mtu;
    if (rail->port.software) rail->piece = longest_piece(attr.active_mtu, bytes);
    rail->port.lid = attr.lid;
    return RONDO_SUCCESS;
}

rondo_result rd_rail_open(rd_verbs_rail *rail, const rd_verbs_rail *earlier, int count, rd_verbs_wish wish,
                          const rd_settings *settings, void *memory, size_t bytes, size_t largest, int receives)
{
    *rail = (rd_verbs_rail){0};
    RD_TRY(rd_verbs_device_open(wish, settings, &rail->device, &rail->port, rail->why, sizeof rail->why));
    rondo_result result = read_settings(rail, settings);
    if (result == RONDO_SUCCESS) result = read_port(rail, largest);
    for (int i = 0; i < count && !rail->mr; i++)
        if (earlier[i].device == rail->device) rail->mr = earlier[i].mr;
    rail->shares_mr = rail->mr != NULL;
    if (result == RONDO_SUCCESS && !rail->mr)
        result = rd_verbs_device_register(rail->device, memory, bytes, &rail->mr);
    if (result == RONDO_SUCCESS) result = make_queues(rail, receives);
    if (result == RONDO_SUCCESS) result = prepare(rail, receives);
    if (result == RONDO_SUCCESS) return RONDO_SUCCESS;
    rd_rail_close(rail, NULL);
    return result;
}

void rd_rail_close(rd_verbs_rail *rail, rondo_bell *bell)
{
    if (!rail->device) return;
    const rd_verbs_calls *ibv = rd_verbs_lib();
    if (rail->channel && bell) rd_bell_forget(bell, rail->channel->fd);
    if (rail->qp) ibv->destroy_qp(rail->qp);
    if (rail->unacked) ibv->ack_cq_events(rail->cq, rail->unacked);
    if (rail->cq) ibv->destroy_cq(rail->cq);
    if (rail->channel) ibv->destroy_comp_channel(rail->channel);
    if (rail->mr && !rail->shares_mr) ibv->dereg_mr(rail->mr);
    rd_verbs_device_close(rail->device);
    *rail = (rd_verbs_rail){0};
}

/* ---- Connecting ---- */

rd_rail_address rd_rail_here(const rd_verbs_rail *rail)
{
    rd_rail_address here = {.queue = htole32(rail->qp->qp_num), .key = htole32(rail->mr->rkey),
                            .lid = htole16((uint16_t)rail->port.lid), .mtu = (uint8_t)rail->mtu,
                            .ethernet = rail->port.ethernet};
    if (rail->port.gid >= 0) memcpy(here.gid, rail->port.gids[rail->port.gid].bytes, sizeof here.gid);
    return here;
}

/* Packet numbers start where packets of an earlier queue pair with this number hardly were. */
static uint32_t first_packet(uint32_t queue, uint32_t key) { return (queue * 2654435761U ^ key) & 0xffffff; }

static rondo_result check(const rd_verbs_rail *rail, const rd_rail_address *there, int32_t peer)
{
    char mine[48] = "none", theirs[48];
    bool here_v4 = rail->port.gid >= 0 && rail->port.gids[rail->port.gid].kind == RD_GID_ROCE2_IPV4;
    static const unsigned char v4[12] = {[10] = 0xff, [11] = 0xff};
    if (there->ethernet > 1 || there->mtu < IBV_MTU_256 || there->mtu > IBV_MTU_4096)
        return rd_fail(RONDO_MISMATCH, "rank %d describes an RDMA port with link layer %u and MTU code %u, which is none",
                       peer, there->ethernet, there->mtu);
    if (there->ethernet != rail->port.ethernet)
        return rd_fail(RONDO_MISMATCH, "%s is %s, and rank %d's RDMA port is %s: choose ports of one kind by "
                       "RONDO_RDMA_DEVICE, or set RONDO_TRANSPORT=tcp", rail->device->name,
                       rail->port.ethernet ? "Ethernet" : "InfiniBand", peer, there->ethernet ? "Ethernet" : "InfiniBand");
    if (!there->ethernet || here_v4 == !memcmp(there->gid, v4, sizeof v4)) return RONDO_SUCCESS;
    if (rail->port.gid >= 0) rd_rdma_gid_print(rail->port.gids[rail->port.gid].bytes, mine);
    rd_rdma_gid_print(there->gid, theirs);
    return rd_fail(RONDO_MISMATCH, "%s has address %s, and rank %d's RDMA port has %s: of these two kinds neither reaches "
                   "the other; choose by RONDO_RDMA_GID_INDEX", rail->device->name, mine, peer, theirs);
}

static rondo_result refused(const rd_verbs_rail *rail, const rd_rail_address *there, int32_t peer, int error)
{
    char theirs[48];
    rd_rdma_gid_print(there->gid, theirs);
    return rd_fail(RONDO_SYSTEM_ERROR, "RDMA device %s does not connect to rank %d at %s (queue pair %u): %s; is there a "
                   "route to it, and is its address on this fabric?", rail->device->name, peer, theirs,
                   le32toh(there->queue), strerror(error));
}

rondo_result rd_rail_connect(rd_verbs_rail *rail, const rd_rail_address *there, int32_t peer)
{
    const rd_verbs_calls *ibv = rd_verbs_lib();
    uint32_t queue = le32toh(there->queue), key = le32toh(there->key);
    RD_TRY(check(rail, there, peer));
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR, .path_mtu = there->mtu < rail->mtu ? (enum ibv_mtu)there->mtu : rail->mtu,
        .dest_qp_num = queue, .rq_psn = first_packet(queue, key), .max_dest_rd_atomic = 1, .min_rnr_timer = NOT_READY_TIMER,
        .ah_attr = {.dlid = le16toh(there->lid), .sl = (uint8_t)rail->service_level, .port_num = (uint8_t)rail->port.port}};
    if (rail->port.ethernet) {
        attr.ah_attr.is_global = 1;
        attr.ah_attr.grh = (struct ibv_global_route){.sgid_index = (uint8_t)rail->port.gids[rail->port.gid].index,
                                                     .hop_limit = 64, .traffic_class = (uint8_t)rail->traffic_class};
        memcpy(attr.ah_attr.grh.dgid.raw, there->gid, sizeof there->gid);
    }
    int error = ibv->modify_qp(rail->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                               IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (error) return refused(rail, there, peer, error);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = (uint8_t)rail->timeout, .retry_cnt = RETRIES,
                                .rnr_retry = NOT_READY_RETRIES, .max_rd_atomic = 1,
                                .sq_psn = first_packet(rail->qp->qp_num, rail->mr->rkey)};
    error = ibv->modify_qp(rail->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    if (error) return refused(rail, there, peer, error);
    rail->key = key;
    return RONDO_SUCCESS;
}

void rd_rail_stop(rd_verbs_rail *rail)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    if (rail->qp) rd_verbs_lib()->modify_qp(rail->qp, &attr, IBV_QP_STATE);
}

/* ---- Using ---- */

static uint64_t post_one(rd_verbs_rail *rail, const rd_rail_write *write, enum ibv_wr_opcode opcode)
{
    uint64_t number = rail->posted + 1;
    struct ibv_sge parts[2] = {write->parts[0], write->parts[1]};
    struct ibv_send_wr *bad, wr = {
        .wr_id = number, .sg_list = parts, .num_sge = write->count, .opcode = opcode,
        .imm_data = htobe32(write->immediate), .wr.rdma = {.remote_addr = write->to, .rkey = rail->key}};
    if (write->copied) wr.send_flags |= IBV_SEND_INLINE;
    if (write->told || number % VISIBLE == 0) wr.send_flags |= IBV_SEND_SIGNALED;
    errno = ibv_post_send(rail->qp, &wr, &bad);
    if (errno) return 0;
    return rail->posted = number;
}

uint64_t rd_rail_post(rd_verbs_rail *rail, const rd_rail_write *write)
{
    rd_rail_write rest = *write;
    while (rail->piece && rest.parts[0].length > rail->piece) {
        rd_rail_write piece = {.parts = {rest.parts[0]}, .count = 1, .to = rest.to};
        piece.parts[0].length = rail->piece;
        if (!post_one(rail, &piece, IBV_WR_RDMA_WRITE)) return 0;
        rest.parts[0].addr += rail->piece;
        rest.parts[0].length -= rail->piece;
        rest.to += rail->piece;
    }
    return post_one(rail, &rest, IBV_WR_RDMA_WRITE_WITH_IMM);
}

bool rd_rail_expect(rd_verbs_rail *rail)
{
    struct ibv_recv_wr *bad, wr = {0};
    errno = ibv_post_recv(rail->qp, &wr, &bad);
    return !errno;
}

rondo_result rd_rail_arm(rd_verbs_rail *rail, rondo_bell *bell)
{
    struct ibv_cq *cq;
    void *context;
    while (!rd_verbs_lib()->get_cq_event(rail->channel, &cq, &context)) rail->unacked++;
    int error = ibv_req_notify_cq(rail->cq, 0);
    if (error)
        return rd_fail(RONDO_SYSTEM_ERROR, "RDMA device %s does not promise an event: %s", rail->device->name,
                       strerror(error));
    return rd_bell_watch(bell, rail->channel->fd, EPOLLIN);
}
