/* SPDX-License-Identifier: Apache-2.0 */
#include "link_kit.h"

#include "base/status.h"
#include "test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

void link_sockets(int from[], int to[], int count)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), buffer = 128 * 1024; /* soon full */
    assert_true(listener >= 0);
    assert_int_equal(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer), 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, count), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &length), 0);
    for (int i = 0; i < count; i++) {
        from[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(setsockopt(from[i], SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer), 0);
        assert_int_equal(connect(from[i], (struct sockaddr *)&at, sizeof at), 0);
        to[i] = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        assert_true(to[i] >= 0);
        assert_int_equal(fcntl(from[i], F_SETFL, O_NONBLOCK), 0);
    }
    close(listener);
}

static void before(const struct link_kind *kind, int side)
{
    if (kind->before) kind->before(side);
}

/* NULL on failure. */
static rondo_link *dress(const struct link_kind *kind, rondo_link *link, int side)
{
    const struct rd_fault fault = {.seed = (uint64_t)side + 7, .again = 0.2, .delay = side == RD_SENDER ? 2 : 3};
    char how[400];
    if (kind->in_gpu && (link = rd_stage_wrap(link, side)) && !rd_stage_in_gpu(link, kind->devices[side], how, sizeof how)) {
        fprintf(stderr, "side %d: %s\n", side, how);
        return NULL;
    }
    if (kind->fault && link) link = rd_fault_wrap(link, &fault);
    if (kind->adapted && link) link = rd_adapter_wrap(link, side);
    return link;
}

void link_pair_open(struct link_pair *pair, const struct link_kind *kind, uint32_t slots, size_t slot_bytes)
{
    rondo_offer offer, answer;
    rondo_link_spec specs[2];
    *pair = (struct link_pair){.kind = kind};
    for (int side = 0; side < 2; side++) {
        assert_int_equal(rd_bell_open(&pair->bells[side]), RONDO_SUCCESS);
        specs[side] = (rondo_link_spec){.me = side, .peer = !side, .slots = slots, .slot_bytes = slot_bytes,
                                        .bell = &pair->bells[side], .device = kind->devices[side],
                                        .socket_count = kind->sockets};
    }
    link_sockets(specs[RD_SENDER].sockets, specs[RD_RECEIVER].sockets, kind->sockets);
    for (int side = 0; side < 2 && kind->fault; side++)
        assert_int_equal(rd_fault_shorten(&specs[side], 16384), RONDO_SUCCESS);
    const rondo_transport *t = kind->transport;
    before(kind, RD_SENDER);
    assert_int_equal(t->offer(&specs[RD_SENDER], &pair->ends[RD_SENDER], &offer), RONDO_SUCCESS);
    before(kind, RD_RECEIVER);
    assert_int_equal(t->accept(&specs[RD_RECEIVER], &offer, &pair->ends[RD_RECEIVER], &answer), RONDO_SUCCESS);
    assert_int_equal(t->complete(pair->ends[RD_SENDER], &answer), RONDO_SUCCESS);
    for (int side = 0; side < 2; side++) {
        pair->ends[side] = dress(kind, pair->ends[side], side);
        assert_non_null(pair->ends[side]);
    }
}

void link_pair_close_end(struct link_pair *pair, int side)
{
    if (pair->ends[side]) pair->ends[side]->ops->close(pair->ends[side]);
    pair->ends[side] = NULL;
}

void link_pair_close(struct link_pair *pair)
{
    for (int side = 0; side < 2; side++) {
        link_pair_close_end(pair, side);
        rd_bell_close(&pair->bells[side]);
    }
}

/* ---- Two processes ---- */

static bool send_offer(int control, const rondo_offer *offer)
{
    char space[CMSG_SPACE(sizeof offer->fds)] = {0};
    struct iovec iov = {(void *)(uintptr_t)offer, sizeof *offer};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    size_t bytes = (size_t)offer->fd_count * sizeof(int);
    if (bytes) {
        message.msg_control = space;
        message.msg_controllen = CMSG_SPACE(bytes);
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(bytes)};
        memcpy(CMSG_DATA(head), offer->fds, bytes);
    }
    bool sent = sendmsg(control, &message, MSG_NOSIGNAL) == (ssize_t)sizeof *offer;
    rd_offer_close(offer);
    return sent;
}

static bool receive_offer(int control, rondo_offer *offer)
{
    char space[CMSG_SPACE(sizeof offer->fds)] = {0};
    struct iovec iov = {offer, sizeof *offer};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct timeval patience = {.tv_sec = 20};
    setsockopt(control, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (recvmsg(control, &message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof *offer) return false;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (head) memcpy(offer->fds, CMSG_DATA(head), (size_t)offer->fd_count * sizeof(int));
    return true;
}

bool link_pair_join(struct link_pair *pair, const struct link_kind *kind, int side, rondo_link_spec *spec, int control)
{
    rondo_offer offer, answer;
    const rondo_transport *t = kind->transport;
    *pair = (struct link_pair){.kind = kind};
    bool made = rd_bell_open(&pair->bells[side]) == RONDO_SUCCESS;
    spec->bell = &pair->bells[side];
    before(kind, side);
    if (side == RD_SENDER)
        made = made && t->offer(spec, &pair->ends[side], &offer) == RONDO_SUCCESS && send_offer(control, &offer) &&
               receive_offer(control, &answer) && t->complete(pair->ends[side], &answer) == RONDO_SUCCESS;
    else
        made = made && receive_offer(control, &offer) &&
               t->accept(spec, &offer, &pair->ends[side], &answer) == RONDO_SUCCESS && send_offer(control, &answer);
    if (made) pair->ends[side] = dress(kind, pair->ends[side], side);
    if (!made || !pair->ends[side]) fprintf(stderr, "side %d: no link: %s\n", side, rd_last_error());
    return made && pair->ends[side];
}
