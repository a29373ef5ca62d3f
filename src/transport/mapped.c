/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/mapped.h"

#include "base/shared.h"
#include "base/status.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The slots as they lie in the memory. */
static rondo_link_spec layout(const rd_mapped_kind *kind, const rondo_link_spec *spec)
{
    rondo_link_spec laid = *spec;
    if (kind->heads_only) laid.slot_bytes = 0;
    return laid;
}

static void begin(const rd_mapped_kind *kind, const rondo_link_spec *spec, int side, rd_mapped *end)
{
    rondo_link_spec laid = layout(kind, spec);
    rd_slots_init(&end->slots, end->memory, &laid, side, kind->ops);
    end->slots.link.slot_bytes = spec->slot_bytes;
}

/* Copies of this rank's bell for the peer. */
static rondo_result add_bell(rondo_offer *offer, const rondo_bell *bell)
{
    const int own[] = {[RD_MAPPED_BELL_PAGE] = bell->page_fd, [RD_MAPPED_BELL_EVENT] = bell->event_fd};
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

rondo_result rd_mapped_make(const rd_mapped_kind *kind, const rondo_link_spec *spec, rd_mapped *end, rondo_offer *offer)
{
    rondo_link_spec laid = layout(kind, spec);
    rd_mapped_offer wire = {.version = kind->version, .slots = spec->slots, .slot_bytes = spec->slot_bytes};
    RD_TRY(rd_slots_token(wire.token));
    rondo_offer made = {.bytes = (uint32_t)kind->offer_bytes};
    memcpy(made.data, &wire, sizeof wire);
    RD_TRY(add_bell(&made, spec->bell));
    char label[64];
    snprintf(label, sizeof label, "rondo link %d>%d", spec->me, spec->peer);
    end->bytes = rd_slots_memory(&laid);
    rondo_result result = rd_shared_create(label, end->bytes, &end->memory, &made.fds[RD_MAPPED_MEMORY]);
    if (result != RONDO_SUCCESS) {
        rd_offer_close(&made);
        return result;
    }
    made.fd_count = RD_MAPPED_FDS;
    rd_slots_prepare(end->memory, &laid, wire.token);
    begin(kind, spec, RD_SENDER, end);
    *offer = made;
    return RONDO_SUCCESS;
}

static rondo_result map_offer(const rondo_link_spec *spec, const rd_mapped_offer *wire, int fd, rd_mapped *end)
{
    if (rd_shared_map(fd, end->bytes, &end->memory) != RONDO_SUCCESS)
        return rd_fail(RONDO_SYSTEM_ERROR,
                       "cannot map the memory that rank %d offers (%s); the ranks do not share a "
                       "host: use RONDO_TRANSPORT=tcp",
                       spec->peer, rd_last_error());
    const rd_slots_control *control = end->memory;
    if (!memcmp(control->token, wire->token, sizeof wire->token)) return RONDO_SUCCESS;
    rd_shared_unmap(end->memory, end->bytes);
    return rd_fail(RONDO_SYSTEM_ERROR,
                   "the memory that rank %d offers does not hold the token it said; the ranks do "
                   "not share a host: use RONDO_TRANSPORT=tcp",
                   spec->peer);
}

static rondo_result check_offer(const rd_mapped_kind *kind, const rondo_link_spec *spec, const rondo_offer *offer,
                                rd_mapped_offer *wire)
{
    const char *name = kind->ops->name;
    if (offer->bytes != kind->offer_bytes || offer->fd_count != RD_MAPPED_FDS)
        return rd_fail(RONDO_MISMATCH,
                       "rank %d offers a %s link in %u bytes and %d descriptors where %zu and %d are "
                       "expected",
                       spec->peer, name, offer->bytes, offer->fd_count, kind->offer_bytes, RD_MAPPED_FDS);
    memcpy(wire, offer->data, sizeof *wire);
    return rd_slots_agree(spec, name, kind->version, wire->version, wire->slots, wire->slot_bytes);
}

rondo_result rd_mapped_accept(const rd_mapped_kind *kind, const rondo_link_spec *spec, const rondo_offer *offer,
                              rd_mapped *end, rondo_offer *answer)
{
    rd_mapped_offer wire;
    rondo_offer made = {0};
    rondo_offer owned = *offer; /* loses the descriptors that go elsewhere */
    rondo_link_spec laid = layout(kind, spec);
    rondo_result result = check_offer(kind, spec, offer, &wire);
    if (result != RONDO_SUCCESS) goto close_offer;
    end->bytes = rd_slots_memory(&laid);
    if ((result = map_offer(spec, &wire, offer->fds[RD_MAPPED_MEMORY], end)) != RONDO_SUCCESS) goto close_offer;
    close(offer->fds[RD_MAPPED_MEMORY]);
    owned.fd_count = RD_MAPPED_MEMORY;
    if ((result = add_bell(&made, spec->bell)) != RONDO_SUCCESS) goto unmap;
    begin(kind, spec, RD_RECEIVER, end);
    owned.fd_count = 0;
    result = rd_ringer_open(&end->slots.ringer, offer->fds[RD_MAPPED_BELL_PAGE], offer->fds[RD_MAPPED_BELL_EVENT]);
    if (result != RONDO_SUCCESS) goto close_answer;
    *answer = made;
    return RONDO_SUCCESS;

close_answer:
    rd_offer_close(&made);
unmap:
    rd_shared_unmap(end->memory, end->bytes);
close_offer:
    rd_offer_close(&owned);
    return result;
}

rondo_result rd_mapped_complete(rd_mapped *end, const rondo_offer *answer)
{
    return rd_ringer_open(&end->slots.ringer, answer->fds[RD_MAPPED_BELL_PAGE], answer->fds[RD_MAPPED_BELL_EVENT]);
}

void rd_mapped_leave(rd_mapped *end)
{
    rd_slots_leave(&end->slots);
    rd_ringer_close(&end->slots.ringer);
}

void rd_mapped_free(rd_mapped *end)
{
    rd_shared_unmap(end->memory, end->bytes);
}

void rd_mapped_give_up(const rondo_link_spec *spec)
{
    for (int i = 0; i < spec->socket_count; i++) close(spec->sockets[i]);
}
