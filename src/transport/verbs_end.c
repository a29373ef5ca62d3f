/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "transport/verbs_link.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

void rd_verbs_look_at_socket(rd_verbs_end *end)
{
    unsigned char more;
    ssize_t got;
    if (end->gone || end->socket < 0) return;
    do {
        size_t room = sizeof end->words - end->heard;
        got = recv(end->socket, room ? end->words + end->heard : &more, room ? room : 1, MSG_DONTWAIT);
        if (got > 0 && room) end->heard += (size_t)got;
    } while (got > 0);
    end->gone = got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
    end->gone_at = end->gone ? rd_now() : 0;
    if (end->gone && end->heard == sizeof end->words && end->side == RD_SENDER) {
        memcpy(&end->confirmed, end->words, sizeof end->confirmed);
        end->confirmed = le64toh(end->confirmed);
    }
}

void rd_verbs_last_words(const rd_verbs_end *end)
{
    uint64_t counted = htole64(end->counted);
    if (end->socket >= 0) send(end->socket, &counted, sizeof counted, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static const char *cause_of(enum ibv_wc_status status)
{
    switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
        return "the peer acknowledged nothing, however often it was sent: its process or host is gone, a port is down, or "
               "the network drops packets (RONDO_RDMA_TIMEOUT sets how long that is tried)";
    case IBV_WC_RNR_RETRY_EXC_ERR: return "the peer had no receive posted, which is a bug, or it is another program";
    case IBV_WC_REM_ACCESS_ERR: return "the peer's device refused the key or the address: its memory is no longer registered";
    case IBV_WC_REM_OP_ERR: return "the peer's device could not carry it out";
    case IBV_WC_REM_INV_REQ_ERR: return "the peer's device takes it for invalid";
    case IBV_WC_LOC_PROT_ERR: return "this device may not read the memory: it is no longer registered";
    case IBV_WC_LOC_QP_OP_ERR: return "this device could not send: its port is down, or its address is gone";
    case IBV_WC_WR_FLUSH_ERR: return "the queue pair failed before";
    default: return "see the device's manual";
    }
}

void rd_verbs_broken(rd_verbs_end *end, const char *what, const char *cause)
{
    if (end->ended != RONDO_LINK_OK) return;
    rd_verbs_look_at_socket(end);
    end->ended = end->gone ? RONDO_LINK_CLOSED : RONDO_LINK_BROKEN;
    snprintf(end->reason, sizeof end->reason, "the RDMA connection %s rank %d at %s failed: %s: %s",
             end->side == RD_SENDER ? "to" : "from", end->link.peer, end->where, what, cause);
}

void rd_verbs_completed_badly(rd_verbs_end *end, const rd_verbs_rail *rail, const struct ibv_wc *wc)
{
    char what[160];
    rd_verbs_device_news(rail->device);
    snprintf(what, sizeof what, "%s port %d says \"%s\" (vendor code %#x)", rail->device->name, rail->port.port,
             rd_verbs_lib()->wc_status_str(wc->status), wc->vendor_err);
    rd_verbs_broken(end, what, cause_of(wc->status));
}
