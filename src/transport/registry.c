/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/transport.h"

#include "base/log.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

const rondo_transport *const rd_transports[] = {
    &rd_transport_loop, &rd_transport_shm, &rd_transport_cuda_ipc,
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

/* A transport that no build has and one that this build lacks. */
static void not_there(const char *name, char *why, size_t bytes)
{
    bool known = !strcmp(name, "verbs");
    snprintf(why, bytes, known ? "this build has no %s: build it where rdma-core's headers are (apt-get install libibverbs-dev)"
                               : "there is no transport named %s", name);
}

uint32_t rd_transports_lacking(const char *forced, char *why, size_t bytes)
{
    uint32_t lacking = RD_LACKS_VERBS; /* unless this build has it */
    *why = '\0';
    if (forced && !by_name(forced)) not_there(forced, why, bytes);
    for (const rondo_transport *const *t = rd_transports; *t; t++) {
        if (!(*t)->may_lack || (forced && *t != by_name(forced))) continue;
        if ((*t)->try_out() == RONDO_SUCCESS) lacking &= ~(*t)->may_lack;
        else if (forced) snprintf(why, bytes, "%s", rd_last_error());
        else rd_log(RD_LOG_INFO, "%s is not used: %s", (*t)->name, rd_last_error());
    }
    return lacking;
}

const rondo_transport *rd_transport_choose(rondo_reach reach, const char *forced, uint32_t lacking, char *why,
                                           size_t bytes)
{
    const rondo_transport *best = NULL;
    if (forced && by_name(forced) == &rd_transport_cuda_ipc) forced = NULL; /* these ranks are not two with GPUs */
    if (forced) {
        best = by_name(forced);
        if (!best) {
            not_there(forced, why, bytes);
        } else if (best->may_lack & lacking) {
            snprintf(why, bytes, "%s was asked for, and one of the two cannot use it (its log says why, RONDO_DEBUG=INFO)", forced);
            best = NULL;
        } else if (best->reach >= reach) snprintf(why, bytes, "%s was asked for", forced);
        else {
            snprintf(why, bytes, "%s was asked for, but does not reach: %s; unset RONDO_TRANSPORT, or set it to %s",
                     forced, needed[reach], reach == RONDO_REACH_HOST ? "shm or tcp" : "tcp");
            best = NULL;
        }
        return best;
    }
    const char *lacked = NULL; /* a better one */
    for (const rondo_transport *const *t = rd_transports; *t; t++) {
        if (*t == &rd_transport_cuda_ipc || (*t)->reach < reach || (best && (*t)->cost >= best->cost)) continue;
        if ((*t)->may_lack & lacking) lacked = (*t)->name;
        else best = *t;
    }
    if (best && lacked)
        snprintf(why, bytes, "%s, since %s, and one of the two cannot use %s (its log says why)", best->name, needed[reach], lacked);
    else if (best) snprintf(why, bytes, "%s, since %s", best->name, needed[reach]);
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

/* NULL: a link may have these capabilities together, and has the operations for them. */
static const char *contradiction(const rondo_link *link)
{
    const rondo_link_ops *ops = link->ops;
    uint32_t caps = link->caps, kind = caps & (RONDO_LINK_SLOTS | RONDO_LINK_MEMORY), more = caps & ~kind;
    if (kind != RONDO_LINK_SLOTS && kind != RONDO_LINK_MEMORY) return "exactly one of SLOTS and MEMORY";
    if (kind == RONDO_LINK_MEMORY && more) return "SLOTS for what else it is capable of";
    if ((caps & RONDO_LINK_DEVICE) && (caps & (RONDO_LINK_TOUCH | RONDO_LINK_DIRECT | RONDO_LINK_STAGED)))
        return "none of TOUCH, DIRECT and STAGED beside DEVICE";
    if ((caps & RONDO_LINK_PACKETS) && !((caps & RONDO_LINK_DEVICE) && (caps & RONDO_LINK_VIEW)))
        return "DEVICE and VIEW beside PACKETS";
    if ((caps & RONDO_LINK_FAR) && !(caps & RONDO_LINK_STAGED)) return "STAGED beside FAR";
    if (!(ops->poll && ops->arm && ops->seen && ops->close)) return "poll, arm, seen and close";
    if (kind == RONDO_LINK_MEMORY && !(ops->send && ops->recv)) return "send and recv";
    if (kind == RONDO_LINK_SLOTS && !(ops->reserve && ops->commit && ops->peek && ops->release))
        return "reserve, commit, peek and release";
    if ((caps & RONDO_LINK_STAGED) && !ops->peek_ahead) return "peek_ahead";
    if ((caps & RONDO_LINK_VIEW) && !(ops->view && ops->moved)) return "view and moved";
    if ((caps & RONDO_LINK_DIRECT) &&
        !(ops->register_memory && ops->import_memory && ops->withdraw && ops->enter && ops->leave))
        return "register_memory, import_memory, withdraw, enter and leave";
    return NULL;
}

rondo_result rd_link_check(const rondo_link *link)
{
    const char *lacks = contradiction(link);
    if (link->ops->size != sizeof(rondo_link_ops)) lacks = "operations of this library's size";
    if (!lacks) return RONDO_SUCCESS;
    return rd_fail(RONDO_INTERNAL_ERROR, "a link with rank %d over %s, of capabilities %#x, must have %s", link->peer,
                   link->ops->name, (unsigned)link->caps, lacks);
}

void rd_offer_close(const rondo_offer *offer)
{
    for (int i = 0; i < offer->fd_count && i < RONDO_OFFER_FDS; i++) close(offer->fds[i]);
}
