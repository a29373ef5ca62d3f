/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/transport.h"

#include "base/status.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

const rondo_transport *const rd_transports[] = {
    &rd_transport_loop, &rd_transport_shm,
#ifdef RD_VERBS
    &rd_transport_verbs,
#endif
    &rd_transport_tcp, NULL};

static const char *const needed[] = {
    [RONDO_REACH_PROCESS] = "both ranks are in one process",
    [RONDO_REACH_HOST] = "both ranks are on one host, in two processes",
    [RONDO_REACH_NETWORK] = "the ranks do not share a host's memory",
};

static const rondo_transport *by_name(const char *name)
{
    for (const rondo_transport *const *t = rd_transports; *t; t++)
        if (!strcmp((*t)->name, name)) return *t;
    return NULL;
}

const rondo_transport *rd_transport_choose(rondo_reach reach, const char *forced, char *why, size_t bytes)
{
    const rondo_transport *best = NULL;
    if (forced) {
        best = by_name(forced);
        if (!best) snprintf(why, bytes, "there is no transport named %s", forced);
        else if (best->reach >= reach) snprintf(why, bytes, "%s was asked for", forced);
        else {
            snprintf(why, bytes, "%s was asked for, but does not reach: %s; unset RONDO_TRANSPORT, or set it to %s",
                     forced, needed[reach], reach == RONDO_REACH_HOST ? "shm or tcp" : "tcp");
            best = NULL;
        }
        return best;
    }
    for (const rondo_transport *const *t = rd_transports; *t; t++)
        if ((*t)->reach >= reach && (!best || (*t)->cost < best->cost)) best = *t;
    if (best) snprintf(why, bytes, "%s, since %s", best->name, needed[reach]);
    else snprintf(why, bytes, "no transport reaches: %s", needed[reach]);
    return best;
}

rondo_result rd_spec_check(const rondo_link_spec *spec)
{
    if (!spec->slots || spec->slots > 1U << 16 || (spec->slots & (spec->slots - 1)))
        return rd_fail(RONDO_INVALID_ARGUMENT, "%u slots: a link has 1 to 65536, a power of two", spec->slots);
    if (!spec->slot_bytes || spec->slot_bytes > 1U << 30 || spec->slot_bytes % 64)
        return rd_fail(RONDO_INVALID_ARGUMENT, "slots of %zu bytes: a slot has 64 to 2^30, a multiple of 64",
                       spec->slot_bytes);
    return RONDO_SUCCESS;
}

void rd_offer_close(const rondo_offer *offer)
{
    for (int i = 0; i < offer->fd_count && i < RONDO_OFFER_FDS; i++) close(offer->fds[i]);
}
