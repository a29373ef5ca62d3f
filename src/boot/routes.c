/* SPDX-License-Identifier: Apache-2.0
 *
 * routes.c - connections to a peer: its addresses in turn, the best first, until one answers that is it.
 */
#include "boot/member.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "boot/dial.h"

#include <stdio.h>
#include <string.h>

#define REFUSED_SECONDS 1.0 /* a peer that nothing answers for at all its addresses so long is not coming back */

typedef struct call {
    rd_member *member;
    int peer;
    uint64_t starved;
    bool warned;
} call;

static rondo_result go_on(void *context)
{
    call *c = context;
    char name[192];
    rd_service_lock();
    rondo_result result = rd_member_check(c->member, c->peer);
    if (result == RONDO_SUCCESS) result = rd_door_check(c->starved);
    bool warns = result == RONDO_SUCCESS && !c->warned && c->member->ranks[c->peer].is_stopped;
    if (warns) rd_member_name(c->member, c->peer, name, sizeof name);
    rd_service_unlock();
    if (warns)
        rd_log(RD_LOG_WARN, "rank %d connects to %s, which is stopped (SIGSTOP, or a debugger)", c->member->job.rank,
               name);
    c->warned = c->warned || warns;
    return result;
}

/* What is tried for one connection. */
typedef struct tries {
    const rd_contact *here, *there;
    int count, networks;
    rd_route route[RD_INTERFACES];
    char address[RD_INTERFACES][RD_ADDRESS_TEXT];
    char reason[RD_INTERFACES][192];
} tries;

/* Routes from an interface from which nothing was reached before come last, though before the hopeless ones. It may be
 * on another network of the same name, as private bridges of two machines are. */
static void put_off_vain(tries *t, uint32_t vain)
{
    int front = 0;
    for (int i = 0; i < t->networks; i++) {
        rd_route route = t->route[i];
        if (vain >> route.from & 1) continue;
        memmove(&t->route[front + 1], &t->route[front], (size_t)(i - front) * sizeof route);
        t->route[front++] = route;
    }
}

static void list_routes(const rd_member *member, int peer, int over, tries *t)
{
    t->here = &member->contacts[member->job.rank];
    t->there = &member->contacts[peer];
    t->count = 1;
    t->networks = 0;
    t->route[0] = (rd_route){.from = -1, .to = -1};
    if (over == RD_OVER_UNIX)
        snprintf(t->address[0], sizeof t->address[0], "unix:%.40s", t->there->unix_name);
    else
        t->count = rd_contact_routes(t->here, t->there, over, t->route, &t->networks);
    put_off_vain(t, atomic_load(&member->vain));
    for (int i = 0; over != RD_OVER_UNIX && i < t->count; i++)
        rd_address_print(&t->there->interface[t->route[i].to].at, t->address[i]);
}

/* Which network was chosen, and why; and what was passed over. */
static void log_route(const rd_member *member, int peer, const tries *t, int chosen)
{
    char why[512] = "", network[RD_ADDRESS_TEXT];
    size_t at = 0;
    if (t->route[chosen].to < 0 || !rd_log_wants(RD_LOG_INFO)) return;
    if (t->route[chosen].from >= 0) {
        const rd_interface *from = &t->here->interface[t->route[chosen].from];
        rd_interface_network(from, network);
        at = (size_t)snprintf(why, sizeof why, "from %s by network %s", from->name, network);
        if (t->networks > 1)
            at += (size_t)snprintf(why + at, sizeof why - at, ", one of %d that", t->networks);
        else
            at += (size_t)snprintf(why + at, sizeof why - at, ", the one that");
        at += (size_t)snprintf(why + at, sizeof why - at, " both are on");
    } else if (memcmp(t->here->host, t->there->host, sizeof t->here->host) == 0) {
        at = (size_t)snprintf(why, sizeof why, "since it is on this host");
    } else {
        at = (size_t)snprintf(why, sizeof why, "which is on no network of this machine");
    }
    for (int i = 0; i < chosen && at < sizeof why; i++)
        at += (size_t)snprintf(why + at, sizeof why - at, "; not %s: %s", t->address[i], t->reason[i]);
    for (int i = chosen + 1; i < t->count && at < sizeof why; i++)
        if (t->route[i].own)
            at += (size_t)snprintf(why + at, sizeof why - at, "; not %s: this machine has that, too", t->address[i]);
    rd_log(RD_LOG_INFO, "rank %d reaches rank %d at %s %s", member->job.rank, peer, t->address[chosen], why);
}

static rondo_result not_connected(const rd_member *member, int peer, rondo_result result, const tries *t)
{
    char name[192], tried[1024] = "";
    for (int i = 0; i < t->count; i++) {
        size_t have = strlen(tried);
        bool named = strstr(t->reason[i], t->address[i]);
        snprintf(tried + have, sizeof tried - have, "%s%s%s%s", i ? "; " : "", named ? "" : t->address[i],
                 named ? "" : ": ", t->reason[i]);
    }
    rd_member_peer_name(member, peer, name, sizeof name);
    return rd_fail(result, "rank %d could not connect to %s: %s", member->job.rank, name,
                   t->count ? tried : "it has no address");
}

rondo_result rd_member_dial(rd_member *member, int peer, uint32_t purpose, int index, int over, int64_t deadline,
                            int *fd)
{
    rd_dialing dialing;
    call context = {.member = member, .peer = peer};
    tries t;
    if (!member->contacts) return rd_fail(RONDO_INTERNAL_ERROR, "rd_member_connect comes after rd_member_set_contacts");
    rd_service_lock();
    context.starved = rd_door_starved();
    rd_service_unlock();
    RD_TRY(go_on(&context));
    rd_dialing_init(&dialing, &member->job, &member->settings, deadline);
    dialing.request.to = (uint32_t)peer;
    dialing.request.purpose = purpose;
    dialing.request.index = (uint32_t)index;
    dialing.go_on = go_on;
    dialing.context = &context;
    list_routes(member, peer, over, &t);
    int64_t hopeless_at = rd_deadline(REFUSED_SECONDS);
    for (int round = 0;; round++) {
        bool right_one = false, silent = false;
        rondo_result result = RONDO_SUCCESS;
        for (int i = 0; i < t.count; i++) {
            enum rd_dialed dialed = rd_dial(&dialing, t.address[i], fd, &result, t.reason[i], sizeof t.reason[i]);
            if (dialed == RD_DIALED) log_route(member, peer, &t, i);
            if (dialed == RD_DIALED) return RONDO_SUCCESS;
            if (dialed == RD_DIAL_FAILED) return result;
            silent = silent || dialed == RD_DIAL_SILENT;
            if (dialed != RD_DIAL_LATER && t.route[i].from >= 0)
                atomic_fetch_or(&member->vain, 1u << t.route[i].from);
            /* Over TCP a process that is stopped is silent like a stranger's. */
            right_one = right_one || dialed == RD_DIAL_LATER || rd_member_is_stopped(member, peer, NULL);
        }
        /* The first round is no longer than it takes until a lost packet is sent again. */
        bool tried = round > 0 || !silent;
        if (!right_one && tried && rd_now() >= hopeless_at) return not_connected(member, peer, RONDO_REMOTE_ERROR, &t);
        result = rd_dial_pause(&dialing, round);
        if (result == RONDO_TIMEOUT) return not_connected(member, peer, result, &t);
        RD_TRY(result);
    }
}
