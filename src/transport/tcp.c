/* SPDX-License-Identifier: Apache-2.0
 *
 * tcp.c - slices over sockets, from the caller's memory to the caller's memory.
 *
 * Each slice travels as a header and its payload over one socket; slice n takes socket n % S, so that the number alone
 * restores the order. Both ends keep a short queue of frames, and both move it in the same way: gather what is left of
 * the frames of one socket into an iovec, make one system call, and mark off what it moved. Only the receiver looks at
 * what it got: it counts no payload before it has compared the header with what was expected.
 *
 * The receiver asks for header and payload at once, and so may have stored the payload of a slice that it then finds
 * to be another one. That costs nothing: a mismatch ends the link, and memory that was posted and not counted holds
 * nothing that anyone may rely on. Asking for the header alone would cost a system call for each slice.
 *
 * A short payload is copied to lie right behind its header, as a letter: one piece, which send and recv move, and they
 * take less than sendmsg and recvmsg, which look at a list first.
 */
#include "base/status.h"
#include "transport/transport.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { VERSION = 2, MAGIC = 0x524e0000 | VERSION }; /* "RN" */
enum { SENDS = 8, RECVS = 4, QUEUE = 8, SOCKETS = 8 };
enum { PIECE = 256 * 1024 }; /* payload of one system call: with more, one direction starves the other */
enum { LETTER = 4096 };      /* a hop takes 0.4 us less of 8, which is more than two copies take */

/* 24 bytes of it are needed. The kernel lays what is sent into pages of its own, from their start when nothing is under
 * way, so that the payload of the first slice lies one header into a page, and the user's memory, when it is malloc's,
 * 16 bytes into one. Eight bytes further on than its source in a page is where a copy on Zen 4 takes 3 to 5 times as long
 * (128 KiB: 47 us instead of 14 to send them); 32 is where it does not. */
struct header {
    uint64_t signature, slice;
    uint32_t bytes, magic; /* all little-endian */
    uint64_t unused;
};
_Static_assert(sizeof(struct header) == 32, "the header has no padding, and none follows it in a frame");

/* A slice that was handed to send or recv. */
struct frame {
    struct header header;
    unsigned char letter[LETTER];
    unsigned char *payload;
    size_t bytes;
    size_t moved; /* of header and payload */
    uint64_t signature;
};

struct wire {
    int fd;
    bool blocked;            /* the last call moved less than it was asked to; not tried again before poll */
    rondo_link_result ended; /* why it moves no more */
    uint64_t next;           /* its oldest frame that is not complete */
};

struct end {
    rondo_link link;
    rondo_bell *bell; /* that watches the sockets; NULL before the first sleep */
    int side;
    int sockets;
    struct wire wires[SOCKETS];
    uint64_t posted, counted;
    struct frame frames[QUEUE]; /* slice n in frames[n % QUEUE] */
    uint64_t seen_signature, seen_bytes;
    char address[80]; /* the peer's */
    char reason[256]; /* for BROKEN */
};

/* ---- Moving frames ---- */

static struct frame *frame_of(struct end *end, uint64_t slice) { return &end->frames[slice % QUEUE]; }
static size_t frame_size(const struct frame *frame) { return sizeof frame->header + frame->bytes; }
static bool is_letter(const struct frame *frame) { return frame->bytes > 0 && frame->bytes <= LETTER; }

static void broken(struct end *end, struct wire *wire, const char *what, int error)
{
    wire->ended = RONDO_LINK_BROKEN;
    snprintf(end->reason, sizeof end->reason, "the connection %s rank %d at %s %s%s%s",
             end->side == RD_SENDER ? "to" : "from", end->link.peer, end->address, what, error ? ": " : "",
             error ? strerror(error) : "");
}

/* What is left of the frames of this socket, PIECE of payload at most. Returns the bytes, and their places in iov. */
static size_t gather(struct end *end, const struct wire *wire, struct iovec *iov, size_t *places)
{
    size_t room = PIECE, total = 0, n = 0;
    for (uint64_t slice = wire->next; slice < end->posted && room; slice += (uint64_t)end->sockets) {
        struct frame *frame = frame_of(end, slice);
        size_t moved = frame->moved;
        if (is_letter(frame)) {
            iov[n++] = (struct iovec){(char *)frame + moved, frame_size(frame) - moved};
            total += frame_size(frame) - moved;
            continue;
        }
        if (moved < sizeof frame->header) {
            iov[n++] = (struct iovec){(char *)&frame->header + moved, sizeof frame->header - moved};
            total += sizeof frame->header - moved;
            moved = sizeof frame->header;
        }
        size_t left = frame_size(frame) - moved;
        if (left > room) left = room;
        if (left) iov[n++] = (struct iovec){frame->payload + (moved - sizeof frame->header), left};
        total += left;
        room -= left;
    }
    *places = n;
    return total;
}

/* The header of the frame is here: is it the one that was expected? */
static bool is_expected(struct end *end, struct wire *wire, const struct frame *frame, uint64_t slice)
{
    const struct header *header = &frame->header;
    if (le32toh(header->magic) != MAGIC || le64toh(header->slice) != slice) {
        broken(end, wire, "carries something that is not the next slice (another program, or a bug)", 0);
        return false;
    }
    end->seen_signature = le64toh(header->signature);
    end->seen_bytes = le32toh(header->bytes);
    if (end->seen_signature == frame->signature && end->seen_bytes == frame->bytes) return true;
    wire->ended = RONDO_LINK_MISMATCH;
    return false;
}

/* Marks off what a system call moved, frame by frame. */
static void mark_off(struct end *end, struct wire *wire, size_t moved)
{
    while (moved) {
        struct frame *frame = frame_of(end, wire->next);
        size_t left = frame_size(frame) - frame->moved, part = moved < left ? moved : left;
        bool had_header = frame->moved >= sizeof frame->header;
        frame->moved += part;
        moved -= part;
        if (end->side == RD_RECEIVER && !had_header && frame->moved >= sizeof frame->header &&
            !is_expected(end, wire, frame, wire->next))
            return;
        if (part < left) return;
        if (end->side == RD_RECEIVER && is_letter(frame)) memcpy(frame->payload, frame->letter, frame->bytes);
        wire->next += (uint64_t)end->sockets;
    }
}

/* A system call moved nothing. */
static void not_moved(struct end *end, struct wire *wire, ssize_t result, int error)
{
    if (result < 0 && (error == EAGAIN || error == EWOULDBLOCK || error == EINTR)) return;
    /* A peer that closes with something unread resets the connection. */
    if (result < 0 && (error == EPIPE || (error == ECONNRESET && end->side == RD_SENDER))) wire->ended = RONDO_LINK_CLOSED;
    else if (result < 0) broken(end, wire, "failed", error);
    else if (frame_of(end, wire->next)->moved) broken(end, wire, "ended in the middle of a slice", 0);
    else wire->ended = RONDO_LINK_CLOSED;
}

static ssize_t move_places(int side, int fd, struct iovec *iov, size_t places)
{
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = places};
    if (side == RD_SENDER)
        return places == 1 ? send(fd, iov->iov_base, iov->iov_len, MSG_NOSIGNAL | MSG_DONTWAIT)
                           : sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    return places == 1 ? recv(fd, iov->iov_base, iov->iov_len, MSG_DONTWAIT) : recvmsg(fd, &message, MSG_DONTWAIT);
}

/* One system call for this socket. */
static void move(struct end *end, struct wire *wire)
{
    struct iovec iov[2 * QUEUE];
    size_t places, asked = gather(end, wire, iov, &places);
    ssize_t moved = move_places(end->side, wire->fd, iov, places);
    int error = errno;
    wire->blocked = moved < 0 || (size_t)moved < asked;
    if (moved > 0) mark_off(end, wire, (size_t)moved);
    else not_moved(end, wire, moved, error);
}

static bool may_move(const struct end *end, const struct wire *wire)
{
    return wire->next < end->posted && wire->ended == RONDO_LINK_OK;
}

/* ---- Operations ---- */

static struct frame *post(struct end *end, size_t bytes, uint64_t signature)
{
    struct frame *frame = frame_of(end, end->posted);
    frame->bytes = bytes;
    frame->signature = signature;
    frame->moved = 0;
    end->posted++;
    return frame;
}

static rondo_link_result too_large(const struct end *end, size_t bytes)
{
    rd_fail(RONDO_INTERNAL_ERROR, "link with rank %d over tcp: a slice of %zu bytes where %zu is the most",
            end->link.peer, bytes, end->link.slot_bytes);
    return RONDO_LINK_BROKEN;
}

static rondo_link_result tcp_send(rondo_link *link, const void *from, size_t bytes, uint64_t signature)
{
    struct end *end = (struct end *)link;
    if (end->posted - end->counted >= link->slots) return RONDO_LINK_AGAIN;
    if (bytes > link->slot_bytes) return too_large(end, bytes);
    uint64_t slice = end->posted;
    struct frame *frame = post(end, bytes, signature);
    frame->payload = (unsigned char *)(uintptr_t)from; /* only read */
    if (is_letter(frame)) memcpy(frame->letter, from, bytes);
    frame->header = (struct header){htole64(signature), htole64(slice), htole32((uint32_t)bytes), htole32(MAGIC), 0};
    link->bytes_sent += bytes;
    struct wire *wire = &end->wires[slice % (uint64_t)end->sockets];
    if (!wire->blocked && may_move(end, wire)) move(end, wire);
    return RONDO_LINK_OK;
}

static rondo_link_result tcp_recv(rondo_link *link, void *to, size_t bytes, uint64_t signature)
{
    struct end *end = (struct end *)link;
    if (end->posted - end->counted >= link->slots) return RONDO_LINK_AGAIN;
    if (bytes > link->slot_bytes) return too_large(end, bytes);
    post(end, bytes, signature)->payload = to;
    return RONDO_LINK_OK;
}

static rondo_link_result tcp_poll(rondo_link *link, uint64_t *count)
{
    struct end *end = (struct end *)link;
    for (int i = 0; i < end->sockets; i++)
        if (may_move(end, &end->wires[i])) move(end, &end->wires[i]);
    const struct wire *wire = &end->wires[end->counted % (uint64_t)end->sockets];
    while (wire->next > end->counted) wire = &end->wires[++end->counted % (uint64_t)end->sockets];
    *count = end->counted;
    if (end->counted == end->posted || wire->ended == RONDO_LINK_OK) return RONDO_LINK_OK;
    if (wire->ended == RONDO_LINK_BROKEN) rd_fail(RONDO_REMOTE_ERROR, "%s", end->reason);
    return wire->ended;
}

static rondo_link_result tcp_arm(rondo_link *link, rondo_bell *bell, uint64_t seen)
{
    struct end *end = (struct end *)link;
    uint64_t count;
    if (tcp_poll(link, &count) != RONDO_LINK_OK || count > seen) return RONDO_LINK_OK;
    end->bell = bell;
    for (int i = 0; i < end->sockets; i++) {
        if (!may_move(end, &end->wires[i])) continue;
        if (rd_bell_watch(bell, end->wires[i].fd, end->side == RD_SENDER ? EPOLLOUT : EPOLLIN) != RONDO_SUCCESS)
            return RONDO_LINK_BROKEN;
    }
    return RONDO_LINK_AGAIN;
}

static void tcp_seen(const rondo_link *link, uint64_t *signature, uint64_t *bytes)
{
    const struct end *end = (const struct end *)link;
    *signature = end->seen_signature;
    *bytes = end->seen_bytes;
}

/* Nothing ever travels against the payload, so the sender's close is an end-of-file behind the last byte that it handed
 * to the kernel, and not a reset, which could overtake it. */
static void tcp_close(rondo_link *link)
{
    struct end *end = (struct end *)link;
    for (int i = 0; i < end->sockets; i++) {
        if (end->bell) rd_bell_forget(end->bell, end->wires[i].fd);
        if (end->side == RD_SENDER) shutdown(end->wires[i].fd, SHUT_WR);
        close(end->wires[i].fd);
    }
    free(end);
}

static const rondo_link_ops tcp_ops = {
    .size = sizeof(rondo_link_ops),
    .name = "tcp",
    .send = tcp_send,
    .recv = tcp_recv,
    .poll = tcp_poll,
    .arm = tcp_arm,
    .seen = tcp_seen,
    .close = tcp_close,
};

/* ---- Making a link ---- */

struct wire_offer {
    uint32_t version, sockets;
    uint64_t slot_bytes; /* all little-endian */
};

static void name_peer(int fd, char *text, size_t bytes)
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    char ip[INET6_ADDRSTRLEN] = "";
    if (getpeername(fd, (struct sockaddr *)&address, &length)) address.ss_family = AF_UNSPEC;
    if (address.ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)&address;
        inet_ntop(AF_INET, &in->sin_addr, ip, sizeof ip);
        snprintf(text, bytes, "%s:%u", ip, ntohs(in->sin_port));
    } else if (address.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)&address;
        inet_ntop(AF_INET6, &in->sin6_addr, ip, sizeof ip);
        snprintf(text, bytes, "[%s]:%u", ip, ntohs(in->sin6_port));
    } else {
        snprintf(text, bytes, "%s", address.ss_family == AF_UNIX ? "a local socket" : "an unknown address");
    }
}

static void close_sockets(const rondo_link_spec *spec)
{
    for (int i = 0; i < spec->socket_count && i < SOCKETS; i++) close(spec->sockets[i]);
}

static rondo_result make_end(const rondo_link_spec *spec, int side, rondo_link **link)
{
    RD_TRY(rd_spec_check(spec));
    if (spec->socket_count < 1 || spec->socket_count > SOCKETS)
        return rd_fail(RONDO_INVALID_ARGUMENT, "%d sockets for a tcp link with rank %d: it takes 1 to %d",
                       spec->socket_count, spec->peer, SOCKETS);
    struct end *end = calloc(1, sizeof *end);
    if (!end) return rd_fail(RONDO_SYSTEM_ERROR, "no memory for a link with rank %d", spec->peer);
    uint32_t most = side == RD_SENDER ? SENDS : RECVS;
    end->link = (rondo_link){.ops = &tcp_ops, .caps = RONDO_LINK_MEMORY, .slot_bytes = spec->slot_bytes,
                             .slots = spec->slots < most ? spec->slots : most, .peer = spec->peer};
    end->side = side;
    end->sockets = spec->socket_count;
    for (int i = 0; i < end->sockets; i++) {
        int on = 1;
        end->wires[i].fd = spec->sockets[i];
        end->wires[i].next = (uint64_t)i;
        if (setsockopt(spec->sockets[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) && errno != EOPNOTSUPP) {
            rondo_result result = rd_fail_errno("cannot set TCP_NODELAY for a link with rank %d", spec->peer);
            free(end);
            return result;
        }
    }
    name_peer(spec->sockets[0], end->address, sizeof end->address);
    *link = &end->link;
    return RONDO_SUCCESS;
}

static rondo_offer what_we_speak(const rondo_link_spec *spec)
{
    struct wire_offer wire = {htole32(VERSION), htole32((uint32_t)spec->socket_count), htole64(spec->slot_bytes)};
    rondo_offer offer = {.bytes = sizeof wire};
    memcpy(offer.data, &wire, sizeof wire);
    return offer;
}

static rondo_result check_peer(int32_t peer, int sockets, size_t slot_bytes, const rondo_offer *offer)
{
    struct wire_offer wire;
    rd_offer_close(offer);
    if (offer->bytes != sizeof wire)
        return rd_fail(RONDO_MISMATCH, "rank %d describes a tcp link in %u bytes where %zu are expected", peer,
                       offer->bytes, sizeof wire);
    memcpy(&wire, offer->data, sizeof wire);
    if (le32toh(wire.version) != VERSION)
        return rd_fail(RONDO_MISMATCH, "rank %d speaks version %u of tcp links, this rank version %d; use one build of "
                       "the library", peer, le32toh(wire.version), VERSION);
    if (le32toh(wire.sockets) != (uint32_t)sockets || le64toh(wire.slot_bytes) != slot_bytes)
        return rd_fail(RONDO_MISMATCH, "rank %d uses %u sockets and slices of %llu bytes, this rank %d and %zu; set "
                       "RONDO_SOCKETS and RONDO_SLICE to the same values on all ranks", peer, le32toh(wire.sockets),
                       (unsigned long long)le64toh(wire.slot_bytes), sockets, slot_bytes);
    return RONDO_SUCCESS;
}

static rondo_result tcp_offer(const rondo_link_spec *spec, rondo_link **sender, rondo_offer *offer)
{
    rondo_result result = make_end(spec, RD_SENDER, sender);
    if (result != RONDO_SUCCESS) close_sockets(spec);
    else *offer = what_we_speak(spec);
    return result;
}

static rondo_result tcp_accept(const rondo_link_spec *spec, const rondo_offer *offer, rondo_link **receiver,
                               rondo_offer *answer)
{
    rondo_result result = check_peer(spec->peer, spec->socket_count, spec->slot_bytes, offer);
    if (result == RONDO_SUCCESS) result = make_end(spec, RD_RECEIVER, receiver);
    if (result != RONDO_SUCCESS) close_sockets(spec);
    else *answer = what_we_speak(spec);
    return result;
}

static rondo_result tcp_complete(rondo_link *sender, const rondo_offer *answer)
{
    const struct end *end = (const struct end *)sender;
    return check_peer(sender->peer, end->sockets, sender->slot_bytes, answer);
}

const rondo_transport rd_transport_tcp = {
    .size = sizeof(rondo_transport),
    .name = "tcp",
    .reach = RONDO_REACH_NETWORK,
    .cost = 6000,
    .sockets = 4, /* where cores share no cache, one moves a fifth less (bench/RESULTS.md) */
    .offer = tcp_offer,
    .accept = tcp_accept,
    .complete = tcp_complete,
};
