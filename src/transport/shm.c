/* SPDX-License-Identifier: Apache-2.0
 *
 * shm.c - slots in a sealed memfd, for two ranks of one host.
 *
 * The sender makes the memory and passes its descriptor, so nothing has a name that could be left behind. That the
 * ranks share a host is not guessed from names: the receiver maps the memory and finds a random token in it.
 */
#include "base/shared.h"
#include "base/status.h"
#include "transport/direct.h"
#include "transport/slots.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct end {
    rd_slots slots;
    void *memory;
    size_t bytes;
    rd_direct direct;
};

struct wire_offer {
    uint32_t version, slots;
    uint64_t slot_bytes;
    uint64_t token[2];
};
enum { VERSION = 2 };
enum { FD_BELL_PAGE, FD_BELL_EVENT, FD_MEMORY, OFFER_FDS, ANSWER_FDS = FD_MEMORY };

static rondo_link_result shm_register(rondo_link *link, void *ptr, size_t bytes, unsigned char descriptor[128])
{
    return rd_direct_register(&((struct end *)link)->direct, ptr, bytes, descriptor);
}

static rondo_link_result shm_import(rondo_link *link, const unsigned char descriptor[128], size_t bytes,
                                     void **address)
{
    return rd_direct_import(&((struct end *)link)->direct, descriptor, bytes, address);
}

/* About to sleep: time to let go of memory that its owner has freed. */
static rondo_link_result shm_arm(rondo_link *link, rondo_bell *bell, uint64_t seen)
{
    struct end *end = (struct end *)link;
    if (end->slots.side == RD_RECEIVER) rd_direct_sweep(&end->direct);
    return rd_slots_arm(link, bell, seen);
}

static void close_end(rondo_link *link)
{
    struct end *end = (struct end *)link;
    rd_direct_close(&end->direct);
    rd_slots_leave(&end->slots);
    rd_ringer_close(&end->slots.ringer);
    rd_shared_unmap(end->memory, end->bytes);
    free(end);
}

static const rondo_link_ops shm_ops = RD_SLOTS_OPS("shm", shm_register, shm_import, shm_arm, close_end);

/* The socket on which the link is made, if there is one, carries the descriptors of memory. */
static rd_direct direct_of(const rondo_link_spec *spec)
{
    return (rd_direct){.socket = spec->socket_count ? spec->sockets[0] : -1};
}

static void give_up(const rondo_link_spec *spec)
{
    for (int i = 0; i < spec->socket_count; i++) close(spec->sockets[i]);
}

/* Copies of this rank's bell for the peer. */
static rondo_result add_bell(rondo_offer *offer, const rondo_bell *bell)
{
    const int own[] = {[FD_BELL_PAGE] = bell->page_fd, [FD_BELL_EVENT] = bell->event_fd};
    for (int i = 0; i < 2; i++) {
        offer->fds[i] = fcntl(own[i], F_DUPFD_CLOEXEC, 0);
        if (offer->fds[i] < 0) {
            rondo_result result = rd_fail_errno("cannot duplicate a descriptor of the doorbell");
            rd_offer_close(offer);
            return result;
        }
        offer->fd_count = i + 1;
    }
    return RONDO_SUCCESS;
}

static rondo_result make_offer(const rondo_link_spec *spec, rondo_link **sender, rondo_offer *offer)
{
    RD_TRY(rd_spec_check(spec));
    struct wire_offer wire = {.version = VERSION, .slots = spec->slots, .slot_bytes = spec->slot_bytes};
    RD_TRY(rd_slots_token(wire.token));
    rondo_offer made = {.bytes = sizeof wire};
    memcpy(made.data, &wire, sizeof wire);
    struct end *end = calloc(1, sizeof *end);
    if (!end) return rd_fail(RONDO_SYSTEM_ERROR, "no memory for a link to rank %d", spec->peer);
    rondo_result result = add_bell(&made, spec->bell);
    if (result != RONDO_SUCCESS) goto free_end;
    char label[64];
    snprintf(label, sizeof label, "rondo link %d>%d", spec->me, spec->peer);
    end->bytes = rd_slots_memory(spec->slots, spec->slot_bytes);
    result = rd_shared_create(label, end->bytes, &end->memory, &made.fds[FD_MEMORY]);
    if (result != RONDO_SUCCESS) goto close_offer;
    made.fd_count = OFFER_FDS;
    rd_slots_prepare(end->memory, spec, wire.token);
    rd_slots_init(&end->slots, end->memory, spec, RD_SENDER, &shm_ops);
    end->direct = direct_of(spec);
    *offer = made;
    *sender = &end->slots.link;
    return RONDO_SUCCESS;

close_offer:
    rd_offer_close(&made);
free_end:
    free(end);
    return result;
}

static rondo_result shm_offer(const rondo_link_spec *spec, rondo_link **sender, rondo_offer *offer)
{
    rondo_result result = make_offer(spec, sender, offer);
    if (result != RONDO_SUCCESS) give_up(spec);
    return result;
}

static rondo_result map_offer(const rondo_link_spec *spec, const struct wire_offer *wire, int fd, struct end *end)
{
    end->bytes = rd_slots_memory(spec->slots, spec->slot_bytes);
    if (rd_shared_map(fd, end->bytes, &end->memory) != RONDO_SUCCESS)
        return rd_fail(RONDO_SYSTEM_ERROR, "cannot map the memory that rank %d offers (%s); the ranks do not share a "
                       "host: use RONDO_TRANSPORT=tcp", spec->peer, rd_last_error());
    const rd_slots_control *control = end->memory;
    if (!memcmp(control->token, wire->token, sizeof wire->token)) return RONDO_SUCCESS;
    rd_shared_unmap(end->memory, end->bytes);
    return rd_fail(RONDO_SYSTEM_ERROR, "the memory that rank %d offers does not hold the token it said; the ranks do "
                   "not share a host: use RONDO_TRANSPORT=tcp", spec->peer);
}

static rondo_result check_offer(const rondo_link_spec *spec, const rondo_offer *offer, struct wire_offer *wire)
{
    RD_TRY(rd_spec_check(spec));
    if (offer->bytes != sizeof *wire || offer->fd_count != OFFER_FDS)
        return rd_fail(RONDO_MISMATCH, "rank %d offers a shm link in %u bytes and %d descriptors where %zu and %d are "
                       "expected", spec->peer, offer->bytes, offer->fd_count, sizeof *wire, OFFER_FDS);
    memcpy(wire, offer->data, sizeof *wire);
    return rd_slots_agree(spec, "shm", VERSION, wire->version, wire->slots, wire->slot_bytes);
}

static rondo_result shm_accept(const rondo_link_spec *spec, const rondo_offer *offer, rondo_link **receiver,
                               rondo_offer *answer)
{
    struct wire_offer wire;
    rondo_offer made = {0};
    rondo_offer owned = *offer; /* loses the descriptors that go elsewhere */
    struct end *end = NULL;
    rondo_result result = check_offer(spec, offer, &wire);
    if (result != RONDO_SUCCESS) goto close_offer;
    end = calloc(1, sizeof *end);
    if (!end) {
        result = rd_fail(RONDO_SYSTEM_ERROR, "no memory for a link from rank %d", spec->peer);
        goto close_offer;
    }
    if ((result = map_offer(spec, &wire, offer->fds[FD_MEMORY], end)) != RONDO_SUCCESS) goto close_offer;
    close(offer->fds[FD_MEMORY]);
    owned.fd_count = FD_MEMORY;
    if ((result = add_bell(&made, spec->bell)) != RONDO_SUCCESS) goto unmap;
    rd_slots_init(&end->slots, end->memory, spec, RD_RECEIVER, &shm_ops);
    owned.fd_count = 0;
    result = rd_ringer_open(&end->slots.ringer, offer->fds[FD_BELL_PAGE], offer->fds[FD_BELL_EVENT]);
    if (result != RONDO_SUCCESS) goto close_answer;
    end->direct = direct_of(spec);
    *answer = made;
    *receiver = &end->slots.link;
    return RONDO_SUCCESS;

close_answer:
    rd_offer_close(&made);
unmap:
    rd_shared_unmap(end->memory, end->bytes);
close_offer:
    rd_offer_close(&owned);
    free(end);
    give_up(spec);
    return result;
}

static rondo_result shm_complete(rondo_link *sender, const rondo_offer *answer)
{
    struct end *end = (struct end *)sender;
    if (answer->fd_count == ANSWER_FDS)
        return rd_ringer_open(&end->slots.ringer, answer->fds[FD_BELL_PAGE], answer->fds[FD_BELL_EVENT]);
    rd_offer_close(answer);
    return rd_fail(RONDO_MISMATCH, "rank %d answers a shm link with %d descriptors where %d are expected", sender->peer,
                   answer->fd_count, ANSWER_FDS);
}

const rondo_transport rd_transport_shm = {
    .size = sizeof(rondo_transport),
    .name = "shm",
    .reach = RONDO_REACH_HOST,
    .cost = 110,
    .sockets = 1,
    .offer = shm_offer,
    .accept = shm_accept,
    .complete = shm_complete,
};
