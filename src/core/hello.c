/* SPDX-License-Identifier: Apache-2.0 */
#include "core/hello.h"

#include "base/clock.h"
#include "base/sock.h"
#include "boot/wire.h"
#include "core/card.h"
#include "transport/transport.h"

#include <poll.h>
#include <string.h>

#define LOOK_S 0.05 /* how often a wait for a peer looks whether the communicator has ended */

void rd_hello_pack(unsigned char bytes[RD_HELLO_BYTES], const rondo_transport *transport, const rondo_link_spec *spec,
                   const rondo_offer *offer)
{
    rd_writer w = {.at = bytes, .left = RD_HELLO_BYTES};
    const uint32_t words[] = {RD_LINK_VERSION, (uint32_t)spec->socket_count, spec->slots, (uint32_t)offer->fd_count,
                              offer->bytes};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) rd_write_u32(&w, words[i]);
    rd_write_u64(&w, spec->slot_bytes);
    rd_write_text(&w, transport->name, 8);
    rd_write_bytes(&w, offer->data, sizeof offer->data);
}

rondo_result rd_hello_unpack(const unsigned char bytes[RD_HELLO_BYTES], rd_link_hello *hello, rondo_offer *offer)
{
    rd_reader r = {.at = bytes, .left = RD_HELLO_BYTES};
    uint32_t *const words[] = {&hello->version, &hello->sockets, &hello->slots, &hello->fd_count, &hello->bytes};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) *words[i] = rd_read_u32(&r);
    hello->slot_bytes = rd_read_u64(&r);
    rd_read_text(&r, hello->transport, sizeof hello->transport, 8);
    rd_read_bytes(&r, offer->data, sizeof offer->data);
    if (hello->version != RD_LINK_VERSION || hello->bytes > sizeof offer->data || hello->fd_count > RONDO_OFFER_FDS ||
        hello->sockets > sizeof((rondo_link_spec *)0)->sockets / sizeof(int))
        return rd_fail(RONDO_REMOTE_ERROR, "a peer's offer of a link is damaged (version %u, %u bytes)", hello->version,
                       hello->bytes);
    offer->bytes = hello->bytes;
    return RONDO_SUCCESS;
}

rondo_result rd_hello_send(int fd, const rondo_transport *transport, const rondo_link_spec *spec,
                           const rondo_offer *offer, int64_t deadline)
{
    unsigned char bytes[RD_HELLO_BYTES];
    rd_hello_pack(bytes, transport, spec, offer);
    rondo_result result = rd_sock_send(fd, bytes, sizeof bytes, deadline);
    if (result == RONDO_SUCCESS && offer->fd_count)
        result = rd_sock_send_fds(fd, "f", 1, offer->fds, offer->fd_count, deadline);
    return result;
}

rondo_result rd_hello_await(const rondo_comm *comm, int fd, int64_t deadline)
{
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    for (;;) {
        int64_t look = rd_deadline(LOOK_S);
        if (poll(&readable, 1, rd_until_ms(look < deadline ? look : deadline)) > 0) return RONDO_SUCCESS;
        rondo_result stop = rd_comm_stopped(comm);
        if (stop) return rd_fail(stop, "%s", comm->stop.text);
        if (rd_now() >= deadline)
            return rd_fail(RONDO_TIMEOUT, "rank %d: a peer did not say anything about a link in time", comm->rank);
    }
}

rondo_result rd_hello_recv(const rondo_comm *comm, int fd, rd_link_hello *hello, rondo_offer *offer, int64_t deadline)
{
    char f;
    unsigned char bytes[RD_HELLO_BYTES];
    RD_TRY(rd_hello_await(comm, fd, deadline));
    RD_TRY(rd_sock_recv(fd, bytes, sizeof bytes, deadline));
    RD_TRY(rd_hello_unpack(bytes, hello, offer));
    if (hello->fd_count) RD_TRY(rd_sock_recv_fds(fd, &f, 1, offer->fds, (int)hello->fd_count, deadline));
    offer->fd_count = (int)hello->fd_count;
    return RONDO_SUCCESS;
}

const rondo_transport *rd_transport_named(const char *name)
{
    for (const rondo_transport *const *t = rd_transports; *t; t++)
        if (!strcmp((*t)->name, name)) return *t;
    return NULL;
}

rondo_result rd_hello_transport(const rd_link_hello *hello, int peer, const rondo_transport **transport)
{
    *transport = rd_transport_named(hello->transport);
    if (*transport) return RONDO_SUCCESS;
    return rd_fail(RONDO_REMOTE_ERROR, "rank %d offers a link over %s, which this build does not have", peer,
                   hello->transport);
}
