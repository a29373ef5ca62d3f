/* SPDX-License-Identifier: Apache-2.0 */
#include "base/env.h"
#include "base/log.h"
#include "base/sock.h"
#include "base/status.h"
#include "transport/verbs_link.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { EAGER_UNIT = 64 };

struct wire_offer {
    uint8_t version, rails;
    uint16_t eager; /* in units of EAGER_UNIT */
    uint32_t slot_bytes;
    uint64_t address; /* all little-endian */
    rd_rail_address rail[RD_VERBS_RAILS];
};
_Static_assert(sizeof(struct wire_offer) <= sizeof((rondo_offer *)0)->data, "it fits into an offer");

static void close_sockets(const rondo_link_spec *spec, int from)
{
    for (int i = from; i < spec->socket_count && i < (int)(sizeof spec->sockets / sizeof *spec->sockets); i++)
        close(spec->sockets[i]);
}

/* ---- One end ---- */

static rondo_result make_memory(rd_verbs_end *end)
{
    size_t mails = RD_VERBS_MAILS * RD_VERBS_MAIL;
    end->stride = (sizeof(rd_verbs_header) + end->eager + 63) / 64 * 64;
    end->memory_bytes = mails + RD_VERBS_CREDITS * end->stride + end->link.slots * end->link.slot_bytes;
    void *at = mmap(NULL, end->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return rd_fail_errno("no memory for %zu bytes of an RDMA link with rank %d", end->memory_bytes, end->link.peer);
    madvise(at, end->memory_bytes, MADV_DONTFORK); /* a child's copy is of no use, and must not move the pages */
    end->memory = at;
    end->slots = end->memory + mails;
    end->bounce = end->slots + RD_VERBS_CREDITS * end->stride;
    return RONDO_SUCCESS;
}

static rondo_result make_rails(rd_verbs_end *end, const rondo_link_spec *spec, const rd_settings *settings)
{
    int wanted = spec->socket_count < 1 ? 1 : spec->socket_count > RD_VERBS_RAILS ? RD_VERBS_RAILS : spec->socket_count;
    for (int i = 0; i < wanted; i++) {
        rd_verbs_rail *rail = &end->rails[i];
        rd_verbs_wish wish = {.port = spec->port, .socket = i < spec->socket_count ? spec->sockets[i] : -1};
        RD_TRY(rd_rail_open(rail, end->rails, i, wish, settings, end->memory, end->memory_bytes, spec->slot_bytes,
                            RD_VERBS_RECEIVES));
        end->rail_count = i + 1;
        if (spec->socket_count && (i == 0 || strcmp(rail->why, rail[-1].why) != 0))
            rd_log(RD_LOG_INFO, "rank %d %s rank %d: RDMA by %s", spec->me, end->side == RD_SENDER ? "->" : "<-", spec->peer,
                   rail->why);
    }
    return RONDO_SUCCESS;
}

/* eager: as the sending end has it. */
static rondo_result make_end(const rondo_link_spec *spec, int side, const rd_settings *settings, size_t eager,
                             rd_verbs_end **made)
{
    rondo_result result = rd_spec_check(spec);
    if (result != RONDO_SUCCESS) return result;
    rd_verbs_end *end = calloc(1, sizeof *end);
    if (!end) return rd_fail(RONDO_SYSTEM_ERROR, "no memory for a link with rank %d", spec->peer);
    end->link = (rondo_link){.ops = &rd_verbs_ops, .caps = RONDO_LINK_MEMORY, .slot_bytes = spec->slot_bytes,
                             .slots = spec->slots < RD_VERBS_SLICES ? spec->slots : RD_VERBS_SLICES, .peer = spec->peer};
    end->side = side;
    end->eager = eager;
    end->socket = spec->socket_count ? spec->sockets[0] : -1;
    if ((result = make_memory(end)) != RONDO_SUCCESS) goto free_end;
    if ((result = make_rails(end, spec, settings)) != RONDO_SUCCESS) goto close_rails;
    *made = end;
    return RONDO_SUCCESS;

close_rails:
    for (int i = end->rail_count; i-- > 0;) rd_rail_close(&end->rails[i], NULL);
    munmap(end->memory, end->memory_bytes);
free_end:
    free(end);
    return result;
}

static void discard(rd_verbs_end *end)
{
    end->ended = RONDO_LINK_CLOSED; /* nothing to wait for */
    end->link.ops->close(&end->link);
}

/* ---- Offers ---- */

static rondo_offer what_it_is(const rd_verbs_end *end)
{
    struct wire_offer wire = {.version = RD_VERBS_VERSION, .rails = (uint8_t)end->rail_count,
                              .eager = htole16((uint16_t)(end->eager / EAGER_UNIT)),
                              .slot_bytes = htole32((uint32_t)end->link.slot_bytes),
                              .address = htole64((uintptr_t)(end->side == RD_SENDER ? end->memory : end->slots))};
    for (int i = 0; i < end->rail_count; i++) wire.rail[i] = rd_rail_here(&end->rails[i]);
    rondo_offer offer = {.bytes = sizeof wire};
    memcpy(offer.data, &wire, sizeof wire);
    return offer;
}

static rondo_result read_offer(int32_t peer, const rondo_offer *offer, size_t slot_bytes, struct wire_offer *wire)
{
    rd_offer_close(offer);
    if (offer->bytes != sizeof *wire)
        return rd_fail(RONDO_MISMATCH, "rank %d describes a verbs link in %u bytes where %zu are expected", peer,
                       offer->bytes, sizeof *wire);
    memcpy(wire, offer->data, sizeof *wire);
    if (wire->version != RD_VERBS_VERSION)
        return rd_fail(RONDO_MISMATCH, "rank %d speaks version %u of verbs links, this rank version %d; use one build of "
                       "the library", peer, wire->version, RD_VERBS_VERSION);
    size_t eager = (size_t)le16toh(wire->eager) * EAGER_UNIT;
    if (wire->rails < 1 || wire->rails > RD_VERBS_RAILS || eager < EAGER_UNIT || eager > 65536)
        return rd_fail(RONDO_MISMATCH, "rank %d offers a verbs link of %u queue pairs and short slices up to %zu bytes, "
                       "which are 1 to %d, and 64 to 65536", peer, wire->rails, eager, RD_VERBS_RAILS);
    if (le32toh(wire->slot_bytes) != slot_bytes)
        return rd_fail(RONDO_MISMATCH, "rank %d uses slices of %u bytes, this rank %zu; set RONDO_SLICE to the same value "
                       "on all ranks", peer, le32toh(wire->slot_bytes), slot_bytes);
    return RONDO_SUCCESS;
}

static rondo_result connect_end(rd_verbs_end *end, const struct wire_offer *wire)
{
    if (wire->rails != end->rail_count)
        return rd_fail(RONDO_MISMATCH, "rank %d uses %u queue pairs, this rank %d; set RONDO_SOCKETS to the same value on "
                       "all ranks", end->link.peer, wire->rails, end->rail_count);
    for (int i = 0; i < end->rail_count; i++) RD_TRY(rd_rail_connect(&end->rails[i], &wire->rail[i], end->link.peer));
    end->peer = le64toh(wire->address);
    rd_rdma_gid_print(wire->rail[0].gid, end->where);
    return RONDO_SUCCESS;
}

static rondo_result verbs_offer(const rondo_link_spec *spec, rondo_link **sender, rondo_offer *offer)
{
    rd_settings settings;
    rd_verbs_end *end;
    rondo_result result = rd_settings_load(&settings, NULL);
    size_t eager = (size_t)settings.rdma_eager < spec->slot_bytes ? (size_t)settings.rdma_eager : spec->slot_bytes;
    if (result == RONDO_SUCCESS) result = make_end(spec, RD_SENDER, &settings, eager, &end);
    if (result != RONDO_SUCCESS) {
        close_sockets(spec, 0);
        return result;
    }
    close_sockets(spec, 1);
    *offer = what_it_is(end);
    *sender = &end->link;
    return RONDO_SUCCESS;
}

static rondo_result verbs_accept(const rondo_link_spec *spec, const rondo_offer *offer, rondo_link **receiver,
                                 rondo_offer *answer)
{
    rd_settings settings;
    struct wire_offer wire;
    rd_verbs_end *end;
    rondo_result result = read_offer(spec->peer, offer, spec->slot_bytes, &wire);
    if (result == RONDO_SUCCESS) result = rd_settings_load(&settings, NULL);
    if (result == RONDO_SUCCESS)
        result = make_end(spec, RD_RECEIVER, &settings, (size_t)le16toh(wire.eager) * EAGER_UNIT, &end);
    if (result != RONDO_SUCCESS) {
        close_sockets(spec, 0);
        return result;
    }
    close_sockets(spec, 1);
    if ((result = connect_end(end, &wire)) != RONDO_SUCCESS) {
        discard(end);
        return result;
    }
    *answer = what_it_is(end);
    *receiver = &end->link;
    return RONDO_SUCCESS;
}

/* The receiving end can take in everything since accept; it may send from the greeting on. */
static rondo_result verbs_complete(rondo_link *sender, const rondo_offer *answer)
{
    rd_verbs_end *end = (rd_verbs_end *)sender;
    struct wire_offer wire;
    RD_TRY(read_offer(sender->peer, answer, sender->slot_bytes, &wire));
    RD_TRY(connect_end(end, &wire));
    return rd_verbs_greet(end);
}

static rondo_result verbs_try_out(void)
{
    const rondo_link_spec spec = {.slots = RD_VERBS_SLICES, .slot_bytes = 262144};
    rd_settings settings;
    rd_verbs_end *end;
    RD_TRY(rd_settings_load(&settings, NULL));
    RD_TRY(make_end(&spec, RD_SENDER, &settings, (size_t)settings.rdma_eager, &end));
    discard(end);
    return RONDO_SUCCESS;
}

const rondo_transport rd_transport_verbs = {
    .size = sizeof(rondo_transport),
    .name = "verbs",
    .reach = RONDO_REACH_NETWORK,
    .cost = 2000,
    .may_lack = RD_LACKS_VERBS,
    .sockets = 1,
    .offer = verbs_offer,
    .accept = verbs_accept,
    .complete = verbs_complete,
    .try_out = verbs_try_out,
};
