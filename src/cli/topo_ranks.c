/* SPDX-License-Identifier: Apache-2.0
 *
 * topo_ranks.c - where ranks sit, as --ranks says it.
 *
 *   8                  eight ranks: on GPUs where there are as many, else on cores
 *   cpu:0-3,8          on processing units, by the numbers of the system; the word may be left out
 *   core:0-7           on cores, by hwloc's logical numbers: one of each core's units that may be used
 *   gpu:0-15           on GPUs, in the order of their bus addresses
 *   core:all           on each
 *   LIST/LIST          hosts one after the other
 */
#include "cli/topo.h"

#include "base/status.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef enum kind { ON_CPU, ON_CORE, ON_GPU } kind;

static const char *const words[] = {"cpu", "core", "gpu"};

static rondo_result add(rd_topo_view *v, rd_seat seat)
{
    if (v->ranks == RD_TOPO_RANKS)
        return rd_fail(RONDO_INVALID_ARGUMENT, "--ranks: more than %d ranks; that is the most", RD_TOPO_RANKS);
    v->seats[v->ranks++] = seat;
    return RONDO_SUCCESS;
}

/* The processing units in the order in which ranks get them: one of each core, then another one of each. Units of a
 * core follow one another; on a machine whose cores are not known each is its own. Returns how many there are. */
static int deal(rd_topo_view *v, int *turn)
{
    int count = 0;
    v->cores = 0;
    for (int round = 0, before = -1; count > before; round++) {
        before = count;
        for (int i = 0, nth = 0, core = -1; i < v->pu_count; i++) {
            int here = v->pus[i].place.core;
            if (here < 0 || here != core) nth = 0;
            core = here;
            if (!v->pus[i].allowed) continue;
            if (nth++ == round) turn[count++] = i;
        }
        if (round == 0) v->cores = count;
    }
    return count;
}

/* n ranks on a host; 0: one on each GPU, or where there is no pair of them on each core. */
static rondo_result seat_count(rd_topo_view *v, int host, int n, const int *turn, int units)
{
    int gpus = rd_machine_gpus(v->machine);
    bool on_gpus = n ? n <= gpus : gpus > 1; /* one GPU is no ring */
    if (n == 0) n = on_gpus ? gpus : v->cores;
    for (int i = 0; i < n; i++)
        RD_TRY(add(v, (rd_seat){.host = host, .pu = on_gpus ? -1 : turn[i % units], .gpu = on_gpus ? i : -1}));
    return RONDO_SUCCESS;
}

/* ---- Lists ---- */

/* The first unit of this kind and number that may be used; -1: there is none. *there: but it exists. */
static int unit_of(const rd_topo_view *v, kind k, int number, bool *there)
{
    *there = false;
    for (int i = 0; i < v->pu_count; i++) {
        if ((k == ON_CPU ? v->pus[i].os_index : v->pus[i].place.core) != number) continue;
        *there = true;
        if (v->pus[i].allowed) return i;
    }
    return -1;
}

static int highest(const rd_topo_view *v, kind k)
{
    int most = -1;
    if (k == ON_GPU) return rd_machine_gpus(v->machine) - 1;
    for (int i = 0; i < v->pu_count; i++) {
        int number = k == ON_CPU ? v->pus[i].os_index : v->pus[i].place.core;
        if (number > most) most = number;
    }
    return most;
}

static rondo_result seat_one(rd_topo_view *v, int host, kind k, int number)
{
    bool there;
    int most = highest(v, k);
    if (most < 0)
        return rd_fail(RONDO_INVALID_ARGUMENT, "--ranks: %s %d: this machine has no %ss%s", words[k], number, words[k],
                       k == ON_GPU && !v->options->xml ? " that a driver or hwloc reports" : "");
    if (k == ON_GPU && number <= most) return add(v, (rd_seat){.host = host, .pu = -1, .gpu = number});
    int pu = k == ON_GPU ? -1 : unit_of(v, k, number, &there);
    if (pu >= 0) return add(v, (rd_seat){.host = host, .pu = pu, .gpu = -1});
    if (k != ON_GPU && there)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "--ranks: %s %d is there, but this process may not run on it (taskset, a "
                       "cgroup's cpuset)",
                       words[k], number);
    return rd_fail(RONDO_INVALID_ARGUMENT, "--ranks: %s %d is not there: this machine's are numbered from 0 to %d",
                   words[k], number, most);
}

static rondo_result seat_all(rd_topo_view *v, int host, kind k)
{
    int most = highest(v, k), before = v->ranks;
    for (int number = 0; number <= most; number++) {
        bool there;
        if (k != ON_GPU && unit_of(v, k, number, &there) < 0) continue;
        RD_TRY(seat_one(v, host, k, number));
    }
    return v->ranks > before ? RONDO_SUCCESS
                             : rd_fail(RONDO_INVALID_ARGUMENT, "--ranks: %s:all: this machine has no %ss%s", words[k],
                                       words[k], k == ON_CORE ? " that are known; say cpu:all" : "");
}

static rondo_result wrong(const char *at)
{
    return rd_fail(RONDO_INVALID_ARGUMENT,
                   "--ranks: cannot read \"%.40s\"; say how many ranks, or where they sit: a list "
                   "of numbers as in cpu:0-3,8 or core:0-7 or gpu:0-15, or core:all or gpu:all, with / between hosts",
                   *at ? at : "nothing");
}

static bool read_number(const char **at, int *number)
{
    char *end;
    if (!isdigit((unsigned char)**at)) return false;
    long value = strtol(*at, &end, 10);
    if (value > 1000000) return false;
    *at = end;
    *number = (int)value;
    return true;
}

/* "cpu:0-3,8,gpu:0" up to a / or the end. */
static rondo_result seat_list(rd_topo_view *v, int host, const char **text)
{
    const char *at = *text;
    kind k = ON_CPU;
    for (;;) {
        int from, to;
        for (int i = 0; i < 3; i++) {
            size_t length = strlen(words[i]);
            if (strncmp(at, words[i], length) != 0 || at[length] != ':') continue;
            k = (kind)i;
            at += length + 1;
            break;
        }
        const char *begin = at;
        if (strncmp(at, "all", 3) == 0) {
            at += 3;
            RD_TRY(seat_all(v, host, k));
        } else {
            if (!read_number(&at, &from)) return wrong(begin);
            to = from;
            if (*at == '-' && (at++, !read_number(&at, &to) || to < from)) return wrong(begin);
            for (int number = from; number <= to; number++) RD_TRY(seat_one(v, host, k, number));
        }
        if (*at != ',') break;
        at++;
    }
    if (*at && *at != '/') return wrong(at);
    *text = at;
    return RONDO_SUCCESS;
}

/* The ranks of one set of hosts, from host number `host` on. */
static rondo_result seat_hosts(rd_topo_view *v, const int *turn, int units)
{
    const char *text = v->options->ranks;
    if (!text || strspn(text, "0123456789") == strlen(text))
        return seat_count(v, v->hosts++, text ? atoi(text) : 0, turn, units);
    for (;; text++) {
        RD_TRY(seat_list(v, v->hosts++, &text));
        if (!*text) return RONDO_SUCCESS;
    }
}

rondo_result rd_topo_seat(rd_topo_view *v)
{
    rondo_result result = RONDO_SUCCESS;
    int *turn = calloc((size_t)v->pu_count, sizeof *turn);
    v->seats = calloc(RD_TOPO_RANKS, sizeof *v->seats);
    if (!turn || !v->seats) result = rd_fail(RONDO_SYSTEM_ERROR, "no memory for the places of ranks");
    int units = turn ? deal(v, turn) : 0;
    if (result == RONDO_SUCCESS && units == 0)
        result = rd_fail(RONDO_INVALID_USAGE, "this machine allows no processing unit to be used");
    for (int i = 0; i < v->options->hosts && result == RONDO_SUCCESS; i++) result = seat_hosts(v, turn, units);
    free(turn);
    return result;
}
